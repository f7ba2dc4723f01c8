//! What `memfit report` takes.

use super::{GpuArgs, ModelArgs, PlanArgs};
use crate::failure::Failure;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};

/// Writes an estimate as a document that needs nothing else: a page, Markdown for a review, a card, a badge.
///
/// Of a folder or a glob it writes one document for each model and an index, or JSON Lines. Identical input gives identical bytes.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  memfit report resnet50.onnx -b 32 --gpu rtx-4090 -o review.html
  memfit report resnet50.onnx -b 32 --as badge -o memory.svg
  memfit report models -b 8 -o reports --as html
  memfit report 'models/resnet*.onnx' -b 8 --as jsonl > all.jsonl")]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    #[command(flatten)]
    pub(crate) gpu: GpuArgs,
    /// Where to write; a folder for a folder of models. Without it, or with -, standard output
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// What to write, where the name of the file does not say it
    #[arg(long = "as", value_enum, value_name = "KIND", help_heading = "Output", alias = "format")]
    kind: Option<Document>,
}

impl ReportArgs {
    /// Where to write, where that is not standard output.
    pub(crate) fn file(&self) -> Option<&Path> {
        super::file(self.output.as_ref())
    }

    /// What to write: as asked, else as the file's name says, else HTML into a folder and Markdown onto a terminal.
    pub(crate) fn document(&self) -> Result<Document, Failure> {
        if let Some(kind) = self.kind {
            return Ok(kind);
        }
        let Some(output) = self.file() else { return Ok(Document::Markdown) };
        let extension = output.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
        match &*extension {
            "html" | "htm" => Ok(Document::Html),
            "md" | "markdown" => Ok(Document::Markdown),
            "svg" => Ok(Document::Svg),
            "json" => Ok(Document::Json),
            "jsonl" | "ndjson" => Ok(Document::Jsonl),
            "csv" => Ok(Document::Csv),
            "txt" => Ok(Document::Text),
            "" => Ok(Document::Html),
            other => Err(Failure::new(
                format!("--output {}", output.display()),
                format!("`.{other}` names no kind of document"),
            )
            .hint("html, md, svg, json, jsonl, csv or txt; or say it with --as")),
        }
    }
}

/// A kind of document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Document {
    /// One page that needs nothing else
    Html,
    /// For a review on a code host
    #[value(alias = "md")]
    Markdown,
    /// A card
    Svg,
    /// The whole estimate for programs
    Json,
    /// The same on one line
    Jsonl,
    /// A row per layer
    Csv,
    /// As on a terminal
    #[value(alias = "txt")]
    Text,
    /// A badge as SVG
    Badge,
    /// A badge as a Shields endpoint's JSON
    Shields,
    /// A side file that shows the numbers in Netron
    Netron,
}

impl Document {
    /// The end of its file's name.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Document::Html => "html",
            Document::Markdown => "md",
            Document::Svg | Document::Badge => "svg",
            Document::Json | Document::Shields | Document::Netron => "json",
            Document::Jsonl => "jsonl",
            Document::Csv => "csv",
            Document::Text => "txt",
        }
    }
}
