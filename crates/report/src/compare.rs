//! Two hosts side by side, as text below an estimate.

use crate::amounts::Unit;
use crate::text::style::{GOOD, HEAD, WARN};
use crate::text::table::{Column, Table, printable};
use memfit_engine::compare::{Component, Side, components};
use memfit_engine::{Estimate, Fit, Verdict};
use memfit_graph::Bytes;

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
        out.push_str(&format!(
            "\nthe largest difference against that: {} {what}, {bytes}\n",
            printable(&c.name)
        ));
    }
    out
}

fn side(fit: &Fit) -> String {
    let (style, verdict) = match fit.verdict {
        Verdict::Fits => (GOOD, "fits"),
        Verdict::Tight => (WARN, "tight"),
        Verdict::DoesNotFit => (WARN, "does not fit"),
    };
    format!("{}, {style}{verdict}{style:#}", printable(&fit.gpu))
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
        let mut plain = String::new();
        let text = text(&this, &that, 100);
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            if c == '\u{1b}' {
                chars.by_ref().find(|c| *c == 'm');
            } else {
                plain.push(c);
            }
        }
        expect_test::expect![[r#"

            Compared  this: old, fits · that: rtx-3060, does not fit
            component                               this, MiB  that, MiB    change
              total of the card                       2,740.0   12,288.0  +9,548.0
            - kept by the driver                        490.0      490.0         ·
            - driver context                            300.0      300.0         ·
            - kernels of PyTorch, cuDNN and cuBLAS        0.0      740.0    +740.0

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

            the largest difference against that: kernels of PyTorch, cuDNN and cuBLAS takes more, 740.0 MiB
        "#]]
        .assert_eq(&plain);
    }
}
