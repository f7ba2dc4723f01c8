//! `memfit inspect`: every tensor of a model, without a word about training.

use crate::args::{Format, InspectArgs};
use crate::failure::Failure;
use crate::{load, output};
use memfit_report::inspect::{self, Inspection};

/// Infers what can be known of every tensor and writes it as asked.
pub(crate) fn inspect(args: &InspectArgs) -> Result<(), Failure> {
    let loaded = load::load(&args.model)?;
    let failure = |problems| Failure::of_file(&loaded.file, problems);
    let graph = &loaded.model.graph;
    let binding = args.model.binding(graph).map_err(failure)?;
    let inferred = memfit_graph::infer(graph, &binding).map_err(failure)?;
    let warnings: Vec<String> = loaded.model.warnings.iter().map(ToString::to_string).collect();
    let inspection = Inspection {
        name: &loaded.name,
        format: loaded.model.format,
        producer: &loaded.model.producer,
        opset: loaded.model.opset,
        operators: loaded.model.operators,
        graph,
        inferred: &inferred,
        warnings: &warnings,
    };
    output::print(&match args.format.format {
        Format::Json => inspect::json::inspection(&inspection),
        Format::Text => inspect::text::inspection(&inspection, output::width()),
    })
}
