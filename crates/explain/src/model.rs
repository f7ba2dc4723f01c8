//! A failure beside an estimate of the model that ran: which layer asked, at which batch, and what would have fitted.
//!
//! TensorFlow names the tensor's dims; its first is the batch. PyTorch prints what its allocator asked of the driver: a request up
//! to 1 MiB makes it ask for 2 MiB, up to 10 MiB for 20 MiB, and a larger one is rounded up to 2 MiB
//! (c10/cuda/CUDACachingAllocator.cpp, `get_allocation_size`), so that a tensor is recognised by its size when it is large.

use crate::causes::elsewhere;
use crate::{Log, Message};
use memfit_engine::advise::{Advice, Around, advise};
use memfit_engine::devices::{Card, Device};
use memfit_engine::fit::{self, Subject};
use memfit_engine::{Estimate, EventKind, Model, Peak, Phase, Plan, Verdict};
use memfit_graph::{Binding, Bytes};
use serde_json::{Value, json};

/// How many places are named.
const PLACES: usize = 3;
/// How many divisors of a tensor's first dim are tried as the batch.
const DIVISORS: usize = 16;
/// How many changes are named where no set of them makes the step fit.
const CHANGES: usize = 3;

/// Where an allocation of the failing size is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The layer.
    pub layer: String,
    /// The pass.
    pub phase: Phase,
    /// What is allocated.
    pub label: String,
}

/// A log beside a model.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    /// The batch that the log was run with, where it could be found.
    pub batch: Option<u64>,
    /// How the batch was found.
    pub batch_from: &'static str,
    /// Where the failing allocation may have been made.
    pub places: Vec<Place>,
    /// What that batch takes, as the driver shows it.
    pub predicted: Option<Bytes>,
    /// What the log says otherwise than the model at that batch, sentence by sentence.
    pub contradictions: Vec<String>,
    /// What the framework could take.
    pub capacity: Option<Bytes>,
    /// The largest batch that fits, as `memfit fit` says it; 0 where not even one sample does.
    pub fitting: Option<u64>,
    /// What to change, as `memfit advise` says it.
    pub advice: Option<Advice>,
}

/// Puts a log beside a model. `estimate` gives the step at a batch size, where there is one; `batch` is what the user says it was.
pub fn beside(
    log: &Log,
    batch: Option<u64>,
    mut estimate: impl FnMut(u64) -> Option<Estimate>,
) -> Option<Beside> {
    let failure = log.failure()?;
    let capacity = failure.limit.or(failure.capacity);
    let first = failure.shape.as_ref().and_then(|s| s.first().copied()).filter(|b| *b > 0);
    let mut at = None;
    let mut constant = Vec::new();
    for (batch, from, sure) in candidates(batch, log.context.batch, first) {
        let Some(step) = estimate(batch) else { continue };
        let mut found = places(&step, failure, log.context.pass);
        // What was held when the allocation failed is less than the peak it was on the way to.
        let likely = failure.allocated.is_none_or(|held| step.peak.allocated.0 >= held.0 / 100 * 97);
        if !sure {
            // A tensor that is as large at another batch says nothing of the batch.
            let other = match found.is_empty() {
                true => Vec::new(),
                false => estimate(batch + 1).map_or_else(Vec::new, |s| places(&s, failure, log.context.pass)),
            };
            let same: Vec<Place> = found.extract_if(.., |place| other.contains(place)).collect();
            if constant.is_empty() {
                constant = same;
            }
        }
        if sure || !found.is_empty() && likely {
            at = Some((batch, from, found, step.peak));
            break;
        }
    }
    let mut beside = Beside { capacity, ..Beside::default() };
    match at {
        Some((batch, from, places, peak)) => {
            beside.contradictions = contradictions(log, failure, batch, &peak);
            (beside.batch, beside.batch_from, beside.predicted) = (Some(batch), from, Some(peak.device));
            beside.places = places;
        }
        None => beside.places = constant,
    }
    if let (true, Some(requested), Some(batch)) = (beside.places.is_empty(), failure.requested, beside.batch)
    {
        // A smaller request than PyTorch tells apart says nothing.
        if failure.shape.is_some() || requested > ROUNDED {
            beside
                .contradictions
                .push(format!("No tensor of the step at a batch of {batch} has the size that failed."));
        }
    }
    Some(beside)
}

/// What the log says otherwise than a step at this batch.
fn contradictions(log: &Log, failure: &Message, batch: u64, peak: &Peak) -> Vec<String> {
    let mut said = Vec::new();
    if let Some(named) = log.context.batch.filter(|named| *named > 0 && *named != batch) {
        said.push(format!("The log names another batch: {named}."));
    }
    if let Some(held) = failure.allocated.filter(|held| held.0 / 100 * 97 > peak.allocated.0) {
        said.push(format!(
            "Tensors held {held} when the allocation failed, and this step never holds more than {}: the batch or a size was larger, \
             or other tensors are alive (another model, outputs that are kept, graphs of earlier steps).",
            peak.allocated
        ));
    }
    said
}

/// Batches to try: what each is, and whether it needs no tensor of the failing size to be believed.
fn candidates(
    given: Option<u64>,
    named: Option<u64>,
    first: Option<u64>,
) -> impl Iterator<Item = (u64, &'static str, bool)> {
    let of_tensor = |b| (b, "the first dim of the tensor that failed", false);
    let divisors =
        first.into_iter().flat_map(|n| (2..=n.min(4096)).filter(move |d| n % d == 0).map(move |d| n / d));
    let divisors = divisors
        .take(DIVISORS)
        .map(|b| (b, "the first dim of the tensor that failed is a multiple of it", false));
    let sizes = (0..14u32).flat_map(|k| [1u64 << k, 3u64 << k >> 1]);
    let sizes = sizes.map(|b| (b, "the batch at which a tensor has the size that failed", false));
    let given = given.map(|b| (b, "as given", true));
    given
        .into_iter()
        .chain(named.filter(|b| *b > 0).map(|b| (b, "named in the log", true)))
        .chain(first.map(of_tensor))
        .chain(divisors)
        .chain(sizes)
}

/// The largest segment that PyTorch asks of the driver for a tensor of another size.
const ROUNDED: Bytes = Bytes::mib(20);

/// What the allocator asks of the driver for a tensor, as PyTorch prints it.
fn asked(bytes: Bytes) -> Bytes {
    match bytes.0 {
        0..=0x10_0000 => Bytes::mib(2),
        0x10_0001..0xA0_0000 => ROUNDED,
        _ => bytes.round_up(2 * Bytes::MIB),
    }
}

fn same(failure: &Message, requested: Bytes, bytes: Bytes) -> bool {
    if failure.shape.is_some() {
        return bytes == requested;
    }
    // Two decimals are printed.
    let grain = if requested.0 >= Bytes::GIB { Bytes::GIB / 100 } else { Bytes::MIB / 100 };
    requested > ROUNDED && asked(bytes).0.abs_diff(requested.0) <= grain
}

fn places(step: &Estimate, failure: &Message, pass: Option<Phase>) -> Vec<Place> {
    let Some(requested) = failure.requested else { return Vec::new() };
    let timeline = &step.timeline;
    let mut places: Vec<Place> = Vec::new();
    for event in timeline.events.iter().filter(|e| e.kind == EventKind::Allocate && e.phase != Phase::Setup) {
        let storage = &timeline.storages[event.storage.0 as usize];
        if same(failure, requested, storage.bytes) && pass.is_none_or(|pass| pass == event.phase) {
            let place = Place {
                layer: timeline.layers[event.layer as usize].to_string(),
                phase: event.phase,
                label: timeline.labels[storage.label as usize].to_string(),
            };
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    if let Some(node) = &failure.node {
        places.sort_by_key(|place| std::cmp::Reverse(likeness(&place.layer, node)));
    }
    places.truncate(PLACES);
    places
}

/// How much of a layer's path stands in a part of a node's name: `layer1.0.conv3` in `resnet50/layer1_0_conv3/Conv2D`, or its last
/// component alone.
fn likeness(layer: &str, node: &str) -> usize {
    let path = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric(), "_").to_ascii_lowercase();
    let layer = path(layer);
    let of = |part: &str| {
        let part = path(part);
        let ends = |long: &str, short: &str| {
            long.strip_suffix(short).is_some_and(|r| r.is_empty() || r.ends_with('_'))
        };
        let alike = !part.is_empty() && !layer.is_empty() && (ends(&layer, &part) || ends(&part, &layer));
        if alike { part.len().min(layer.len()) } else { 0 }
    };
    node.split('/').map(of).max().unwrap_or(0)
}

/// The card that the log names, or one of the size that it tells, with what the log says that others hold.
fn card(log: &Log) -> Option<Card> {
    let failure = log.failure()?;
    let named =
        log.messages.iter().filter(|m| m.kind == crate::Kind::Taken).find_map(|m| m.device.as_deref());
    let named = named.and_then(|name| Card::find(name).ok());
    let sized =
        || Some(Card::alone(Device::of_size("the card of the log", failure.capacity.or(failure.limit)?)));
    let mut card = named.or_else(sized)?;
    card.other_processes = elsewhere(log);
    Some(card)
}

impl Beside {
    /// Asks the engine what would have fitted on the log's card, and what to change.
    pub fn advise(&mut self, log: &Log, model: &Model, binding: &Binding, plan: &Plan) {
        let Some(card) = card(log) else { return };
        let (plans, cards) = (std::slice::from_ref(plan), std::slice::from_ref(&card));
        let cells = fit::matrix(Subject::batch(model, binding), plans, cards, &mut |_, _| {});
        if let Some(cell) = cells.ok().as_ref().and_then(|cells| cells.first()) {
            self.fitting = Some(cell.largest);
        }
        let Some(batch) = self.batch else { return };
        let binding = Binding { batch: Some(batch), ..binding.clone() };
        self.advice = advise(model, &binding, plan, &card, &Around::default())
            .ok()
            .filter(|a| a.now.verdict != Verdict::Fits);
    }

    /// What it says, sentence by sentence.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let mut said = Vec::new();
        match self.batch {
            Some(batch) => said.push(format!("The batch was {batch} ({}).", self.batch_from)),
            None if self.places.is_empty() => {
                said.push("The log does not tell the batch, and no size in it does: give it with -b.".into());
            }
            None => said.push(
                "The size that failed is the same at every batch, so that it does not tell the batch: give it with -b."
                    .into(),
            ),
        }
        for place in &self.places {
            said.push(format!(
                "A tensor of the size that failed is {} of {} ({}).",
                place.label,
                place.layer,
                place.phase.name()
            ));
        }
        if let Some(predicted) = self.predicted {
            let verdict = match self.capacity {
                Some(capacity) if predicted > capacity => format!(", more than the {capacity} there were"),
                Some(capacity) => format!(", which fits in {capacity}"),
                None => String::new(),
            };
            said.push(format!("That step takes {predicted} on the device{verdict}."));
        }
        said.extend(self.contradictions.iter().cloned());
        match self.fitting {
            Some(0) => said.push("Not even a batch of 1 fits.".into()),
            Some(batch) => said.push(format!("The largest batch that fits is {batch}.")),
            None => {}
        }
        said.extend(self.advice.as_ref().map(changes));
        said
    }

    pub(crate) fn json(&self) -> Value {
        let places: Vec<Value> = self
            .places
            .iter()
            .map(|p| json!({"layer": p.layer, "phase": p.phase.name(), "tensor": p.label}))
            .collect();
        json!({"batch_size": self.batch, "batch_from": self.batch_from, "places": places,
            "predicted_device_bytes": self.predicted.map(|b| b.0), "contradictions": self.contradictions, "capacity_bytes": self.capacity.map(|b| b.0),
            "largest_batch_size": self.fitting, "advice": self.advice.as_ref().map(advice_json)})
    }
}

/// The smallest set of changes that makes it fit, else those that save most.
fn changes(advice: &Advice) -> String {
    match &advice.combination {
        Some(set) => {
            let parts: Vec<&str> = set.parts.iter().map(|(_, title, _)| title.as_str()).collect();
            format!("To make that batch fit: {} ({} on the device).", parts.join("; "), set.outcome.device)
        }
        None if advice.now.is_partial && advice.now.verdict == Verdict::Tight => {
            "By what is known that batch fits; what some operators need is not known, so that it is not sure."
                .into()
        }
        None => {
            let best = advice.changes.iter().filter(|c| c.saving > 0 && !c.for_others).take(CHANGES);
            let best: Vec<String> =
                best.map(|c| format!("{} saves {}", c.title, Bytes(c.saving.unsigned_abs()))).collect();
            match best.is_empty() {
                true => "No change that memfit knows makes that batch fit.".into(),
                false => format!("No set of changes makes that batch fit; {}.", best.join("; ")),
            }
        }
    }
}

fn advice_json(advice: &Advice) -> Value {
    let set = advice.combination.as_ref().map(|set| {
        let parts: Vec<Value> = set
            .parts
            .iter()
            .map(|(name, title, snippet)| json!({"name": name, "title": title, "snippet": snippet}))
            .collect();
        json!({"changes": parts, "device_bytes": set.outcome.device.0})
    });
    let changes: Vec<Value> = advice
        .changes
        .iter()
        .map(|c| json!({"name": c.name, "title": c.title, "saving_bytes": c.saving}))
        .collect();
    json!({"changes": changes, "combination": set})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nodes_name_prefers_the_layer_that_it_holds() {
        let node = "gradient_tape/resnet50/layer1_0_conv3/Conv2D/Conv2DBackpropInput";
        assert!(likeness("layer1.0.conv3", node) > likeness("layer2.0.conv3", node));
        assert!(
            likeness("encoder/conv3", "model/conv3/Conv2D")
                > likeness("encoder/conv30", "model/conv3/Conv2D")
        );
    }

    #[test]
    fn divisors_of_a_flattened_batch_are_tried_after_it() {
        let tried: Vec<u64> = candidates(None, None, Some(96)).map(|c| c.0).take(4).collect();
        assert_eq!(tried, [96, 48, 32, 24]);
        assert_eq!(candidates(Some(7), Some(8), None).map(|c| c.0).take(2).collect::<Vec<_>>(), [7, 8]);
    }

    #[test]
    fn what_pytorch_asks_for_a_tensor() {
        assert_eq!(asked(Bytes(100)), Bytes::mib(2));
        assert_eq!(asked(Bytes::mib(3)), Bytes::mib(20));
        assert_eq!(asked(Bytes(Bytes::MIB * 33 + 1)), Bytes::mib(34));
    }
}
