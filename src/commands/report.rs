//! `memfit report`: an estimate as a document; of a folder or a glob, one document for each model and an index.

mod done;
mod folder;
mod lines;

use crate::args::{Document, ReportArgs};
use crate::failure::Failure;
use crate::step::Step;
use crate::{Finding, output};
use memfit_report::{Provenance, csv, html, json, markdown, netron, svg, text};

/// Writes what was asked.
pub(crate) fn report(args: &ReportArgs) -> Result<Finding, Failure> {
    if folder::is_many(&args.model.file) {
        return folder::report(args);
    }
    let kind = args.document()?;
    let step = Step::new(&args.model, &args.plan, &args.gpu)?;
    let text = write(kind, &step);
    match args.file() {
        Some(path) => output::save(path, &text)?,
        None => output::print(&text)?,
    }
    Ok(Finding::fine_if(step.fits()))
}

fn write(kind: Document, step: &Step) -> String {
    let e = &step.estimate;
    let from = || Provenance::new(&step.file, step.model.graph());
    match kind {
        Document::Html => html::estimate(e, &from()),
        Document::Markdown => markdown::estimate(e, &from()),
        Document::Svg => svg::card(e, &from()),
        Document::Json => json::estimate(e),
        Document::Jsonl => json::line(e, &step.file),
        Document::Csv => csv::estimate(e),
        Document::Text => {
            anstream::adapter::strip_str(&text::estimate(e, &text::Options::default())).to_string()
        }
        Document::Badge => svg::badge(e),
        Document::Shields => svg::endpoint(e),
        Document::Netron => netron::attachment(e, step.model.graph()),
    }
}
