//! A step as a picture: for each column of pixels the moment with the most memory, by category.

use crate::protocol::Step;
use memfit_graph::order::sorted_by_key;

/// Categories from the bottom up: what stays the whole step, then what grows and shrinks.
pub(crate) const STACK: [usize; 9] = [0, 1, 3, 7, 2, 4, 5, 8, 6];

/// The fullest moment of a few events that follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Column {
    /// The event right after which it is.
    pub(crate) event: usize,
    /// What is held, by category.
    pub(crate) parts: [u64; 9],
}

impl Column {
    pub(crate) fn total(&self) -> u64 {
        self.parts.iter().fold(0, |n, p| n.saturating_add(*p))
    }
}

/// A step in columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Columns {
    pub(crate) columns: Vec<Column>,
    /// The column with the peak.
    pub(crate) peak: usize,
}

/// At most `most` columns; set-up is what the first one begins with.
pub(crate) fn columns(step: &Step, most: usize) -> Columns {
    let begin = step.phases[1] as usize;
    let drawn = step.events.len().saturating_sub(begin);
    let each = drawn.div_ceil(most.max(1)).max(1);
    let mut held = [0_u64; 9];
    let mut found = Columns::default();
    for (at, event) in step.events.iter().enumerate() {
        apply(step, *event, &mut held);
        if at < begin {
            continue;
        }
        let here = Column { event: at, parts: held };
        if (at - begin).is_multiple_of(each) {
            found.columns.push(here);
        } else if let Some(last) = found.columns.last_mut()
            && here.total() > last.total()
        {
            *last = here;
        }
    }
    let total = |i: &usize| (found.columns[*i].total(), std::cmp::Reverse(*i));
    found.peak = (0..found.columns.len()).max_by_key(total).unwrap_or_default();
    found
}

fn apply(step: &Step, event: u32, held: &mut [u64; 9]) {
    let storage = (event / 2) as usize;
    let bytes = step.bytes.get(storage).copied().unwrap_or_default();
    let category = usize::from(step.category.get(storage).copied().unwrap_or_default());
    let Some(slot) = held.get_mut(category) else { return };
    *slot = if event.is_multiple_of(2) { slot.saturating_add(bytes) } else { slot.saturating_sub(bytes) };
}

/// The largest storages alive right after an event, as (bytes, storage).
pub(crate) fn alive(step: &Step, event: usize, most: usize) -> Vec<(u64, usize)> {
    let mut live = vec![false; step.bytes.len()];
    for event in step.events.iter().take(event + 1) {
        if let Some(slot) = live.get_mut((event / 2) as usize) {
            *slot = event.is_multiple_of(2);
        }
    }
    let alive: Vec<(u64, usize)> =
        step.bytes.iter().copied().zip(0..).filter(|(_, i)| live.get(*i).is_some_and(|l| *l)).collect();
    let mut alive = sorted_by_key(alive, |(bytes, _)| !bytes);
    alive.truncate(most);
    alive
}

/// The phase of an event.
pub(crate) fn phase(step: &Step, event: usize) -> usize {
    step.phases.iter().rposition(|first| event >= *first as usize).unwrap_or_default()
}

/// Each category's area as an SVG path, from the bottom up, in a box of the given size; `most` bytes reach its top.
pub(crate) fn areas(columns: &[Column], width: f64, height: f64, most: u64) -> Vec<(usize, String)> {
    let step = width / columns.len().max(1) as f64;
    let y = |bytes: u64| height - height * bytes as f64 / most.max(1) as f64;
    let mut below = vec![0_u64; columns.len()];
    let mut areas = Vec::new();
    for category in STACK {
        if columns.iter().all(|c| c.parts[category] == 0) {
            continue;
        }
        let above: Vec<u64> =
            below.iter().zip(columns).map(|(b, c)| b.saturating_add(c.parts[category])).collect();
        // Along the tops to the right, then along the bottoms back.
        let mut path = String::from("M0 ");
        path += &format!("{:.1}", y(above.first().copied().unwrap_or_default()));
        for (i, top) in above.iter().enumerate() {
            path += &format!("V{:.1}H{:.1}", y(*top), (i + 1) as f64 * step);
        }
        for (i, bottom) in below.iter().enumerate().rev() {
            path += &format!("V{:.1}H{:.1}", y(*bottom), i as f64 * step);
        }
        path.push('Z');
        areas.push((category, path));
        below = above;
    }
    areas
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two parameters' worth of set-up, an activation, a gradient.
    fn step() -> Step {
        Step {
            layers: vec!["a".into()],
            labels: vec!["x".into()],
            bytes: vec![100, 50, 30],
            category: vec![0, 4, 5],
            layer: vec![0; 3],
            label: vec![0; 3],
            events: vec![0, 2, 4, 3, 5],
            event_layer: vec![0; 5],
            phases: [0, 1, 2, 5],
        }
    }

    #[test]
    fn columns_hold_the_fullest_moment_of_their_events() {
        let all = columns(&step(), 100);
        assert_eq!(all.columns.iter().map(Column::total).collect::<Vec<_>>(), [150, 180, 130, 100]);
        assert_eq!((all.peak, all.columns[all.peak].event), (1, 2));
        let two = columns(&step(), 2);
        assert_eq!(two.columns.iter().map(Column::total).collect::<Vec<_>>(), [180, 130]);
        assert_eq!(columns(&Step::default(), 10), Columns::default());
    }

    #[test]
    fn what_is_alive_and_in_which_phase() {
        assert_eq!(alive(&step(), 2, 2), [(100, 0), (50, 1)]);
        assert_eq!(alive(&step(), 3, 9), [(100, 0), (30, 2)]);
        assert_eq!((phase(&step(), 0), phase(&step(), 1), phase(&step(), 4)), (0, 1, 2));
    }

    #[test]
    fn areas_stand_on_each_other() {
        let columns = columns(&step(), 100).columns;
        let areas = areas(&columns, 400.0, 180.0, 180);
        assert_eq!(areas.iter().map(|(c, _)| *c).collect::<Vec<_>>(), [0, 4, 5]);
        assert!(areas[0].1.starts_with("M0 80.0V80.0H100.0V80.0"), "{}", areas[0].1);
        assert!(areas[2].1.contains("V0.0H200.0") && areas[2].1.ends_with("V30.0H0.0Z"), "{}", areas[2].1);
    }
}
