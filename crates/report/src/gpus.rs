//! The catalogue of cards as a table and as JSON.

use crate::json::to_text;
use crate::text::style::HEAD;
use crate::text::table::{Column, Table};
use crate::text::wrapped;
use memfit_engine::devices::{Device, Vendor};
use serde::Serialize;

#[derive(Serialize)]
struct Document<'a> {
    gpus: Vec<Gpu<'a>>,
}

#[derive(Serialize)]
struct Gpu<'a> {
    id: &'a str,
    name: &'a str,
    vendor: &'static str,
    compute_capability: Option<String>,
    memory_bytes: u64,
    total_bytes: u64,
    total_source: Option<&'a str>,
    visible_bytes: u64,
    visible_source: Option<&'a str>,
    shares_memory: bool,
}

/// The cards as JSON. A figure without a source is an estimate.
pub fn json(cards: &[&Device]) -> String {
    to_text(&Document { gpus: cards.iter().map(|card| gpu(card)).collect() })
}

fn gpu(card: &Device) -> Gpu<'_> {
    Gpu {
        id: &card.id,
        name: &card.name,
        vendor: vendor(card.vendor),
        compute_capability: capability(card),
        memory_bytes: card.memory.0,
        total_bytes: card.total().0,
        total_source: card.reported.as_ref().map(|r| &*r.1),
        visible_bytes: card.usable().0,
        visible_source: card.visible.as_ref().map(|v| &*v.1),
        shares_memory: card.unified,
    }
}

/// The cards as a table.
pub fn text(cards: &[&Device], width: usize) -> String {
    let mut table = Table::new(&[
        Column::text("id", 8),
        Column::text("name", 12).rank(3),
        Column::number("memory"),
        Column::number("total MiB"),
        Column::number("visible MiB"),
        Column::number("capability").rank(2),
    ]);
    let mib = |bytes: memfit_graph::Bytes| crate::amounts::grouped(bytes.0 >> 20);
    let mut estimated = false;
    for card in cards {
        let mark = if card.is_measured() { " " } else { "~" };
        estimated |= !card.is_measured();
        table.row(vec![
            card.id.clone(),
            card.name.clone(),
            format!("{} GiB", card.memory.0 >> 30),
            mib(card.total()),
            format!("{mark}{}", mib(card.usable())),
            capability(card).unwrap_or_default(),
        ]);
    }
    let mut out = String::new();
    table.write(&mut out, width.max(60), HEAD);
    let mut note = |text: &str| out.push_str(&format!("{}\n", wrapped(text, width.max(60))));
    note("");
    note("total: what nvidia-smi shows; visible: what a framework can see of it, before any context");
    if estimated {
        note("~ no figure was found; estimated from cards like it, on the safe side");
    }
    out
}

fn vendor(vendor: Vendor) -> &'static str {
    match vendor {
        Vendor::Nvidia => "nvidia",
        Vendor::Amd => "amd",
        Vendor::Apple => "apple",
    }
}

fn capability(card: &Device) -> Option<String> {
    card.compute_capability.map(|(major, minor)| format!("{major}.{minor}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_engine::devices::find;

    #[test]
    fn a_table_marks_what_is_estimated() {
        let cards = [find("rtx-3090").unwrap(), find("gtx-1070").unwrap()];
        expect_test::expect![[r#"
            id        name                     memory  total MiB  visible MiB  capability
            rtx-3090  NVIDIA GeForce RTX 3090  24 GiB     24,576       24,121         8.6
            gtx-1070  NVIDIA GeForce GTX 1070   8 GiB      8,192       ~8,082         6.1

            total: what nvidia-smi shows; visible: what a framework can see of it, before any context
            ~ no figure was found; estimated from cards like it, on the safe side
        "#]]
        .assert_eq(&anstyle_free(&text(&cards, 100)));
        let json: serde_json::Value = serde_json::from_str(&json(&cards)).unwrap();
        assert_eq!(json["gpus"][0]["visible_bytes"], 24_121_u64 << 20);
        assert!(json["gpus"][1]["visible_source"].is_null());
    }

    fn anstyle_free(text: &str) -> String {
        text.replace("\u{1b}[1m", "").replace("\u{1b}[0m", "")
    }
}
