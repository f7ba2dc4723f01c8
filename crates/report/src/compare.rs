//! Two hosts side by side, as text below an estimate and as JSON beside it.

use crate::amounts::Unit;
use crate::json::{self, Document};
use crate::text::style::{self, HEAD};
use crate::text::table::{Column, Table, printable};
use crate::text::wrapped;
use memfit_engine::compare::{Component, Side, components};
use memfit_engine::{Estimate, Fit};
use memfit_graph::Bytes;
use serde::Serialize;

/// The account of both, and what it comes down to; nothing where one has no card.
pub fn text(this: &Estimate, that: &Estimate, width: usize) -> String {
    let (Some(a), Some(b)) = (&this.fit, &that.fit) else { return String::new() };
    let account = components(this, that);
    let mut table = Table::new(&[
        Column::text("component", 20),
        Column::number("this, MiB"),
        Column::number("that, MiB"),
        Column::number("change"),
    ]);
    let mut last = Side::Has;
    for c in &account {
        if c.side != last && matches!(c.side, Side::Usable | Side::Reserved) {
            // A sum stands apart from what it sums up.
            table.row(vec![String::new(); 4]);
        }
        last = c.side;
        let sign = match c.side {
            Side::Off => "- ",
            Side::Needs => "+ ",
            Side::Usable | Side::Reserved => "= ",
            Side::Has => "  ",
        };
        let mib = |b: Bytes| Unit::MiB.text(Unit::MiB.round(b));
        table.row(vec![format!("{sign}{}", c.name), mib(c.this), mib(c.that), change(c)]);
    }
    let mut out = format!("\n{HEAD}Compared{HEAD:#}  this: {} · that: {}\n", side(a), side(b));
    table.write(&mut out, width.max(60), HEAD);
    let sums = [Side::Usable, Side::Reserved];
    let worst = account.iter().filter(|c| !sums.contains(&c.side)).max_by_key(|c| c.worse());
    if let Some(c) = worst.filter(|c| c.worse() > 0) {
        let what = if c.side == Side::Has { "has less" } else { "takes more" };
        let bytes = Bytes(c.worse().unsigned_abs());
        let told = format!("the largest difference against that: {} {what}, {bytes}", printable(&c.name));
        out.push_str(&format!("\n{}\n", wrapped(&told, width.max(60))));
    }
    out
}

/// The first estimate as JSON with the second beside it, on a host of its own: `memfit estimate … --gpu A --vs B`.
pub fn json(this: &Estimate, that: &Estimate) -> String {
    let components = components(this, that).into_iter().map(|c| Row {
        name: c.name,
        side: match c.side {
            Side::Has => "has",
            Side::Off => "off",
            Side::Usable => "usable",
            Side::Needs => "needs",
            Side::Reserved => "reserved",
        },
        this_bytes: c.this.0,
        that_bytes: c.that.0,
    });
    let comparison = Comparison { fit: that.fit.as_ref().map(json::fit), components: components.collect() };
    json::to_text(&Compared { estimate: json::document(this), comparison })
}

#[derive(Serialize)]
struct Compared<'a> {
    #[serde(flatten)]
    estimate: Document<'a>,
    comparison: Comparison<'a>,
}

#[derive(Serialize)]
struct Comparison<'a> {
    fit: Option<json::Fit<'a>>,
    components: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    side: &'static str,
    this_bytes: u64,
    that_bytes: u64,
}

fn side(fit: &Fit) -> String {
    format!("{}, {}", printable(&fit.gpu), style::verdict(fit.verdict))
}

fn change(c: &Component) -> String {
    let (this, that) = (Unit::MiB.round(c.this), Unit::MiB.round(c.that));
    match that.cmp(&this) {
        std::cmp::Ordering::Equal => "·".into(),
        std::cmp::Ordering::Greater => format!("+{}", Unit::MiB.text(that - this)),
        std::cmp::Ordering::Less => format!("-{}", Unit::MiB.text(this - that)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use memfit_engine::Verdict;

    #[test]
    fn an_account_shows_both_and_the_largest_difference() {
        let mut this = sample::estimate();
        this.fit = Some(Fit {
            usable: Bytes::mib(20),
            capacity: Bytes::mib(2_740),
            kept: Bytes::mib(490),
            verdict: Verdict::Fits,
            gpu: "old".into(),
            ..sample::fit()
        });
        this.context.retain(|item| item.name == "driver context");
        let mut that = sample::estimate();
        that.fit = Some(sample::fit());
        let text = text(&this, &that, 100);
        expect_test::expect![[r#"

            Compared  this: old, fits · that: rtx-3060, does not fit
            component                               this, MiB  that, MiB    change
              total of the card                       2,740.0   12,288.0  +9,548.0
            - kept by the driver                        490.0      490.0         ·
            - driver context                            300.0      300.0         ·
            - kernels of PyTorch, cuDNN and cuBLAS        0.0      720.0    +720.0

            = usable                                     20.0       10.0     -10.0
            + parameters                                  0.3        0.3         ·
            + gradients                                   0.3        0.3         ·
            + optimizer state                             0.6        0.6         ·
            + activations                                 8.0        8.0         ·
            + activation gradients                        2.0        2.0         ·
            + workspace                                   1.0        1.0         ·
            + inputs                                      0.1        0.1         ·
            + transients                                  0.0        0.0         ·
            + held by the allocator                       2.9        2.9         ·

            = reserved                                   15.1       15.1         ·

            the largest difference against that: kernels of PyTorch, cuDNN and cuBLAS takes more, 720.0 MiB
        "#]]
        .assert_eq(&crate::sample::plain(&text));
    }
}
