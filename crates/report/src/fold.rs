//! Layers folded by module path, so that a table of a thousand layers fits on a screen and still re-adds to its totals.
//!
//! `encoder.layer.3.attention.query` at depth 3 belongs to `encoder.layer.3`. Without a depth, groups are opened one after the
//! other as long as everything still fits, first those with the most memory at the peak for each row they add; numbered
//! siblings (`layer.0` to `layer.11`) only together. If there are too many groups the largest stay, and the rest becomes
//! one more group.

use memfit_engine::{Breakdown, LayerRow};
use memfit_graph::order::largest_first;
use memfit_graph::{Bytes, Dims};
use std::collections::{BTreeMap, BTreeSet};

/// How many components of a module path tell layers apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// As many as fit, more where more memory is.
    #[default]
    Auto,
    /// This many.
    At(usize),
    /// All: one group per layer.
    All,
}

/// Layers that share the beginning of their module path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// What they share.
    pub name: String,
    /// How many layers there are.
    pub layers: usize,
    /// Their operator types with how often each occurs, the most frequent first.
    pub ops: Vec<(String, usize)>,
    /// The output shapes of the last one.
    pub output_shapes: Vec<Dims>,
    /// Elements of their parameters.
    pub parameters: u64,
    /// Bytes first kept for backward by them.
    pub saved: Bytes,
    /// Bytes alive at the peak.
    pub at_peak: Breakdown,
}

/// The groups to show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fold {
    /// In forward order.
    pub groups: Vec<Group>,
    /// All that are not shown, if there are any.
    pub other: Option<Group>,
}

/// Folds layers so that at most `top` groups are shown.
pub fn fold(layers: &[LayerRow], depth: Depth, top: usize) -> Fold {
    let top = top.max(1);
    let parts = match depth {
        Depth::All => (0..layers.len()).map(|row| Part { depth: usize::MAX, rows: vec![row] }).collect(),
        Depth::At(n) => split(layers, &(0..layers.len()).collect::<Vec<_>>(), n.max(1)),
        Depth::Auto => open(layers, top),
    };
    let mut groups: Vec<Group> = parts.iter().map(|part| part.group(layers)).collect();
    if groups.len() <= top {
        return Fold { groups, other: None };
    }
    let by_saved = largest_first((0..groups.len()).collect(), |i: &usize| groups[*i].saved.0);
    let by_size = largest_first(by_saved, |i| groups[*i].at_peak.allocated().0);
    let shown: BTreeSet<usize> = by_size.into_iter().take(top).collect();
    let mut other = Group::default();
    let mut hidden = 0;
    let mut index = 0..;
    groups.retain(|g| {
        let keep = index.next().is_some_and(|i| shown.contains(&i));
        if !keep {
            other.absorb(g);
            hidden += 1;
        }
        keep
    });
    other.name = if hidden == 1 { "1 other".into() } else { format!("{hidden} others") };
    other.output_shapes.clear();
    Fold { groups, other: Some(other) }
}

/// Rows that have the first `depth` components of their paths in common.
struct Part {
    depth: usize,
    rows: Vec<usize>,
}

/// Splits rows by the first `depth` components, in order of appearance.
fn split(layers: &[LayerRow], rows: &[usize], depth: usize) -> Vec<Part> {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut parts: Vec<Part> = Vec::new();
    for row in rows {
        let at = *places.entry(prefix(&layers[*row].name, depth)).or_insert(parts.len());
        if at == parts.len() {
            parts.push(Part { depth, rows: Vec::new() });
        }
        parts[at].rows.push(*row);
    }
    parts
}

/// Opens parts as long as there are at most `top`.
fn open(layers: &[LayerRow], top: usize) -> Vec<Part> {
    let mut parts = split(layers, &(0..layers.len()).collect::<Vec<_>>(), 1);
    while let Some(opened) = best_to_open(layers, &parts, top) {
        parts = opened;
    }
    // One row with more than half of everything says nothing: better its largest parts beside a row of others.
    let total = parts.iter().fold(0_u64, |n, part| n.saturating_add(part.size(layers)));
    let dominates = |part: &Part| part.size(layers) > total / 2 && part.can_open(layers);
    let open = |part: &Part| split(layers, &part.rows, part.depth + usize::from(dominates(part)));
    parts.iter().flat_map(open).collect()
}

/// The parts with one unit of them opened, where one fits: that with the most bytes for each row it adds.
fn best_to_open(layers: &[LayerRow], parts: &[Part], top: usize) -> Option<Vec<Part>> {
    let mut units: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (i, part) in parts.iter().enumerate() {
        units.entry(part.unit(layers)).or_default().push(i);
    }
    let room = top.checked_sub(parts.len())?;
    let worth = |members: &Vec<usize>| {
        let of = || members.iter().map(|i| &parts[*i]);
        let opened: usize = of().map(|p| split(layers, &p.rows, p.depth + 1).len()).sum();
        let added = opened.saturating_sub(members.len());
        let size = of().fold(0_u64, |n, p| n.saturating_add(p.size(layers)));
        let each = u64::try_from(added).ok().and_then(|n| size.checked_div(n)).unwrap_or(u64::MAX);
        (added <= room && of().any(|p| p.can_open(layers))).then_some(each)
    };
    let candidates = units.into_values().filter_map(|members| Some((worth(&members)?, members)));
    let (_, members) = candidates.max_by_key(|(worth, members)| (*worth, std::cmp::Reverse(members[0])))?;
    let opened: BTreeSet<usize> = members.iter().copied().collect();
    let open = |(i, part): (usize, &Part)| {
        let depth = if opened.contains(&i) { part.deeper(layers) } else { part.depth };
        split(layers, &part.rows, depth)
    };
    Some(parts.iter().enumerate().flat_map(open).collect())
}

impl Part {
    fn name<'a>(&self, layers: &'a [LayerRow]) -> &'a str {
        self.rows.first().map_or("", |row| prefix(&layers[*row].name, self.depth))
    }

    /// What is opened together: numbered siblings by their parent's name, anything else by its own.
    fn unit<'a>(&self, layers: &'a [LayerRow]) -> &'a str {
        let name = self.name(layers);
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        if stem.len() < name.len() && stem.ends_with(['.', '/']) { stem } else { name }
    }

    fn size(&self, layers: &[LayerRow]) -> u64 {
        self.rows.iter().fold(0, |n, row| n.saturating_add(layers[*row].at_peak.allocated().0))
    }

    fn can_open(&self, layers: &[LayerRow]) -> bool {
        self.rows.iter().any(|row| components(&layers[*row].name).nth(self.depth).is_some())
    }

    /// How many components its rows have when it is opened: one more, or all that they share, which tell nothing apart. A path of
    /// thousands of them is walked once.
    fn deeper(&self, layers: &[LayerRow]) -> usize {
        let mut names = self.rows.iter().map(|row| &*layers[*row].name);
        let Some(first) = names.next() else { return self.depth + 1 };
        let shared = names.fold(first, |shared, name| common(shared, name));
        components(shared).count().max(self.depth + 1)
    }

    fn group(&self, layers: &[LayerRow]) -> Group {
        let mut group = Group { name: self.name(layers).to_owned(), ..Group::default() };
        for layer in self.rows.iter().map(|row| &layers[*row]) {
            group.absorb(&Group {
                name: String::new(),
                layers: 1,
                ops: layer.op.split('+').filter(|op| !op.is_empty()).map(|op| (op.to_owned(), 1)).collect(),
                output_shapes: layer.output_shapes.to_vec(),
                parameters: layer.parameters,
                saved: layer.saved_bytes,
                at_peak: layer.at_peak,
            });
        }
        group
    }
}

impl Group {
    fn absorb(&mut self, other: &Group) {
        self.layers += other.layers;
        for (op, count) in &other.ops {
            match self.ops.iter_mut().find(|(name, _)| name == op) {
                Some((_, n)) => *n += count,
                None => self.ops.push((op.clone(), *count)),
            }
        }
        self.ops = largest_first(std::mem::take(&mut self.ops), |(_, count)| *count as u64);
        if !other.output_shapes.is_empty() {
            self.output_shapes.clone_from(&other.output_shapes);
        }
        self.parameters = self.parameters.saturating_add(other.parameters);
        self.saved += other.saved;
        for (category, bytes) in other.at_peak.categories() {
            self.at_peak.add(category, bytes);
        }
    }
}

/// The parts of a module path, as (start, end) in it. Dots separate modules, slashes what the older exporter writes.
fn components(name: &str) -> impl Iterator<Item = (usize, usize)> {
    let mut start = 0;
    name.split(['.', '/']).filter_map(move |part| {
        let here = start;
        start += part.len() + 1;
        (!part.is_empty()).then_some((here, here + part.len()))
    })
}

/// The parts at the beginning of `a` that are the same in `b`.
fn common<'a>(a: &'a str, b: &str) -> &'a str {
    let alike = a.bytes().zip(b.bytes()).take_while(|(one, other)| one == other).count();
    let ends_in_b = |end: usize| b.as_bytes().get(end).is_none_or(|next| matches!(next, b'.' | b'/'));
    let ends = components(a).map(|(_, end)| end);
    let end = ends.take_while(|end| *end <= alike && ends_in_b(*end)).last().unwrap_or(0);
    a.get(..end).unwrap_or("")
}

/// The first `depth` parts of a module path.
fn prefix(name: &str, depth: usize) -> &str {
    match components(name).nth(depth.saturating_sub(1)) {
        Some((_, end)) => name.get(..end).unwrap_or(name),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers(names: &[(&str, u64)]) -> Vec<LayerRow> {
        let row = |(name, size): &(&str, u64)| LayerRow {
            name: (*name).into(),
            op: "Conv".into(),
            parameters: *size,
            saved_bytes: Bytes(*size),
            at_peak: Breakdown { activations: Bytes(*size), ..Breakdown::default() },
            ..LayerRow::default()
        };
        names.iter().map(row).collect()
    }

    fn names(fold: &Fold) -> Vec<&str> {
        fold.groups.iter().chain(&fold.other).map(|g| &*g.name).collect()
    }

    #[test]
    fn paths_fold_at_a_depth_and_the_deepest_that_fits_is_chosen() {
        let rows = layers(&[("stem", 1), ("a.0.x", 2), ("a.0.y", 3), ("a.1.x", 4), ("/b/c/Conv", 5)]);
        assert_eq!(names(&fold(&rows, Depth::At(1), 9)), ["stem", "a", "/b"]);
        assert_eq!(names(&fold(&rows, Depth::Auto, 4)), ["stem", "a.0", "a.1", "/b/c/Conv"]);
        assert_eq!(names(&fold(&rows, Depth::Auto, 5)), ["stem", "a.0.x", "a.0.y", "a.1.x", "/b/c/Conv"]);
        let folded = fold(&rows, Depth::At(2), 9);
        assert_eq!(
            (folded.groups[1].layers, folded.groups[1].ops[0].1, folded.groups[1].parameters),
            (2, 2, 5)
        );
    }

    #[test]
    fn the_largest_is_opened_first_and_numbered_siblings_together() {
        let sizes = [("e.0.x", 5), ("e.0.y", 5), ("e.1.x", 5), ("e.1.y", 5), ("h.x", 1), ("h.y", 2)];
        let at = |top| fold(&layers(&sizes), Depth::Auto, top);
        assert_eq!(names(&at(3)), ["e.0", "e.1", "h"]);
        assert_eq!(names(&at(4)), ["e.0", "e.1", "h.x", "h.y"]);
        assert_eq!(names(&at(5)), ["e.0.x", "e.0.y", "e.1.x", "e.1.y", "h"]);
    }

    #[test]
    fn a_row_that_holds_nearly_everything_is_opened_even_where_not_all_of_it_fits() {
        let rows = layers(&[("in", 1), ("m.a", 30), ("m.b", 20), ("m.c", 10), ("m.d", 5)]);
        assert_eq!(names(&fold(&rows, Depth::Auto, 3)), ["m.a", "m.b", "m.c", "2 others"]);
    }

    #[test]
    fn the_largest_stay_and_the_rest_re_adds() {
        let rows = layers(&[("a", 1), ("b", 5), ("c", 2), ("d", 9)]);
        let folded = fold(&rows, Depth::All, 2);
        assert_eq!(names(&folded), ["b", "d", "2 others"]);
        let total: Bytes = folded.groups.iter().chain(&folded.other).map(|g| g.at_peak.allocated()).sum();
        assert_eq!(total, Bytes(17));
    }

    #[test]
    fn a_path_of_thousands_of_modules_is_walked_once() {
        let deep = "m.".repeat(5_000);
        let named: Vec<String> = (0..40).map(|i| format!("{deep}{}.n{i}", i % 2)).collect();
        let rows = layers(&named.iter().map(|name| (&**name, 1)).collect::<Vec<_>>());
        let folded = fold(&rows, Depth::Auto, 20);
        assert_eq!(names(&folded), [0, 1].map(|i| format!("{deep}{i}")));
        assert_eq!(folded.groups.iter().map(|g| g.layers).collect::<Vec<_>>(), [20, 20]);
        assert_eq!(common("a.b.c", "a.b.d"), "a.b");
        assert_eq!(
            (common("a.b.c", "a/b.c"), common("a.b/c", "a.b.c"), common("a", "a.b")),
            ("a", "a.b", "a")
        );
        assert_eq!((common("/a/b", "/a/c"), common("x", "y"), common("é.ü", "é.u")), ("/a", "", "é"));
    }

    #[test]
    fn odd_names_do_not_panic() {
        let rows = layers(&[("", 1), ("...", 1), ("/", 1), ("é.ü/ö", 1), ("a..b", 1)]);
        for depth in [Depth::Auto, Depth::All, Depth::At(0), Depth::At(1), Depth::At(7)] {
            for top in [0, 1, 3, 100] {
                let folded = fold(&rows, depth, top);
                assert_eq!(folded.groups.iter().chain(&folded.other).map(|g| g.layers).sum::<usize>(), 5);
            }
        }
        assert_eq!(prefix("é.ü/ö", 2), "é.ü");
        assert_eq!(fold(&[], Depth::Auto, 5), Fold::default());
    }
}
