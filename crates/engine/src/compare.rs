//! Two hosts side by side: of what a step finds less, or needs more, on one than on the other.
//!
//! "It worked on the old machine" has an answer for each component: the card itself, what its driver keeps, the context and
//! the libraries, what the framework leaves to the system by compute capability, then the step's own bytes, whose
//! workspace depends on the card's kernels.

use crate::{Breakdown, Estimate, Fit};
use memfit_graph::Bytes;

/// On which side of the account a component stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What the card has.
    Has,
    /// What comes off it before the framework's allocator.
    Off,
    /// What is left for the allocator.
    Usable,
    /// What the step needs.
    Needs,
    /// The sum of that.
    Reserved,
}

/// One line of the account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// What it is.
    pub name: String,
    /// Where it stands.
    pub side: Side,
    /// On the first host.
    pub this: Bytes,
    /// On the second.
    pub that: Bytes,
}

impl Component {
    /// How much worse the second host is for the step in this.
    pub fn worse(&self) -> i64 {
        let signed = |b: Bytes| i64::try_from(b.0).unwrap_or(i64::MAX);
        let more = signed(self.that).saturating_sub(signed(self.this));
        if matches!(self.side, Side::Has | Side::Usable) { -more } else { more }
    }
}

/// The account of two estimates, each on a card of its own; empty where one has none. What stands under [`Side::Has`] less
/// what comes off is usable, and what the step needs re-adds to what it reserves.
pub fn components(this: &Estimate, that: &Estimate) -> Vec<Component> {
    let (Some(a), Some(b)) = (&this.fit, &that.fit) else { return Vec::new() };
    let mut all = vec![line("total of the card", Side::Has, a.capacity, b.capacity)];
    all.push(line("kept by the driver", Side::Off, a.kept, b.kept));
    let items = |e: &Estimate, f: &Fit| -> Vec<(&'static str, Bytes)> {
        e.context.iter().chain(&f.others).map(|item| (item.name, item.expected)).collect()
    };
    let (first, second) = (items(this, a), items(that, b));
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in first.iter().chain(&second) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    let of = |items: &[(&str, Bytes)], name: &str| items.iter().filter(|i| i.0 == name).map(|i| i.1).sum();
    all.extend(names.iter().map(|name| line(name, Side::Off, of(&first, name), of(&second, name))));
    all.push(line("left to the system by the framework", Side::Off, a.system, b.system));
    all.push(line("usable", Side::Usable, a.usable, b.usable));
    let rows = parts(&this.breakdown).into_iter().zip(parts(&that.breakdown));
    all.extend(rows.map(|((name, x), (_, y))| line(name, Side::Needs, x, y)));
    all.push(line("reserved", Side::Reserved, this.peak.reserved, that.peak.reserved));
    all.retain(|c| c.this > Bytes::ZERO || c.that > Bytes::ZERO);
    all
}

fn line(name: &str, side: Side, this: Bytes, that: Bytes) -> Component {
    Component { name: name.into(), side, this, that }
}

/// What re-adds to reserved bytes.
fn parts(b: &Breakdown) -> [(&'static str, Bytes); 10] {
    [
        ("parameters", b.parameters),
        ("buffers", b.buffers),
        ("gradients", b.gradients),
        ("optimizer state", b.optimizer),
        ("activations", b.activations),
        ("activation gradients", b.activation_gradients),
        ("workspace", b.workspace),
        ("inputs", b.inputs),
        ("transients", b.transients),
        ("held by the allocator", b.allocator),
    ]
}
