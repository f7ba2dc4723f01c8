//! A failure beside an estimate of the model that ran: which layer asked, at which batch, and what would have fitted.
//!
//! TensorFlow names the tensor's dims; its first is the batch. PyTorch prints what its allocator asked of the driver: a request up
//! to 1 MiB makes it ask for 2 MiB, up to 10 MiB for 20 MiB, and a larger one is rounded up to 2 MiB
//! (c10/cuda/CUDACachingAllocator.cpp, `get_allocation_size`), so that a tensor is recognised by its size when it is large.

mod card;
mod forward;
mod room;
mod words;

use crate::{Log, Message};
use forward::Forward;
use memfit_engine::advise::{Advice, Around, advise};
use memfit_engine::devices::Card;
use memfit_engine::fit::{self, Subject};
use memfit_engine::{Estimate, EventKind, Model, Peak, Phase, Plan, Verdict};
use memfit_graph::{Binding, Bytes};
use room::Room;

/// How many places are named.
const PLACES: usize = 3;
/// How many divisors of a tensor's first dim are tried as the batch.
const DIVISORS: usize = 16;

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
    /// What that batch takes, as the driver shows it, where nothing is in its way.
    pub predicted: Option<Bytes>,
    /// How the step gets on inside of the log's card.
    pub(crate) room: Option<Room>,
    /// The forward pass that ran out in the place of a step.
    pub(crate) forward: Option<Forward>,
    /// What the log says otherwise than the model at that batch, sentence by sentence.
    pub contradictions: Vec<String>,
    /// What the framework could take.
    pub capacity: Option<Bytes>,
    /// The largest batch that fits, as `memfit fit` says it; 0 where not even one sample does.
    pub fitting: Option<u64>,
    /// The largest that fits at the high end of the range too.
    pub safe: Option<u64>,
    /// What of the plan does nothing, and what else is to be known of the model.
    pub warnings: Vec<String>,
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
    let (mut constant, mut lesser) = (Vec::new(), None);
    // A forward pass alone has a batch size of its own, and the log may name that of training.
    let alone = forward::run(log).is_some();
    let pass = log.context.pass.or(alone.then_some(Phase::Forward));
    for (batch, from, sure) in candidates(batch, log.context.batch, first, alone) {
        let Some(step) = estimate(batch) else { continue };
        let mut found = places(&step, failure, pass);
        // What was held when the allocation failed is less than the peak it was on the way to.
        let likely = failure.allocated.is_none_or(|held| step.peak.allocated.0 >= held.0 / 100 * 97);
        if !sure {
            // A tensor that is as large at another batch says nothing of the batch.
            let other = match found.is_empty() {
                true => Vec::new(),
                false => estimate(batch + 1).map_or_else(Vec::new, |s| places(&s, failure, pass)),
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
        // Of a forward pass alone the most is less than a step's, so that what was held tells the batch only as long as some step explains it.
        if alone && !found.is_empty() && lesser.is_none() {
            lesser = Some((batch, from, found, step.peak));
        }
    }
    let mut beside = Beside { capacity, ..Beside::default() };
    match at.or(lesser) {
        Some((batch, from, places, peak)) => {
            beside.contradictions = contradictions(log, failure, batch, (!alone).then_some(&peak));
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
fn contradictions(log: &Log, failure: &Message, batch: u64, peak: Option<&Peak>) -> Vec<String> {
    let mut said = Vec::new();
    if let Some(named) = log.context.batch.filter(|named| *named > 0 && *named != batch) {
        said.push(format!("The log names another batch: {named}."));
    }
    if let (Some(peak), Some(held)) = (peak, failure.allocated)
        && held.0 / 100 * 97 > peak.allocated.0
    {
        said.push(format!(
            "Tensors held {held} when the allocation failed, and this step never holds more than {}: the batch or a size was larger, \
             or other tensors are alive (another model, outputs that are kept, graphs of earlier steps).",
            peak.allocated
        ));
    }
    said
}

/// Batches to try: what each is, and whether it needs no tensor of the failing size to be believed; what the log names needs one
/// first where a forward pass ran out `alone`.
fn candidates(
    given: Option<u64>,
    named: Option<u64>,
    first: Option<u64>,
    alone: bool,
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
    let named = move |sure| named.filter(|b| *b > 0).map(move |b| (b, "named in the log", sure));
    given
        .into_iter()
        .chain(named(!alone))
        .chain(first.map(of_tensor))
        .chain(divisors)
        .chain(sizes)
        .chain(named(true))
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

impl Beside {
    /// Asks the engine what would have fitted on the log's card, and what to change.
    pub fn advise(&mut self, log: &Log, model: &Model, binding: &Binding, plan: &Plan) {
        match forward::run(log) {
            Some(run) => self.forward_alone(log, run, model, binding, plan),
            None => self.step(log, model, binding, plan),
        }
    }

    fn step(&mut self, log: &Log, model: &Model, binding: &Binding, plan: &Plan) {
        let Some((card, plan)) = card::of(log, plan, Bytes::ZERO) else { return };
        self.fit(model, binding, &plan, &card);
        let Some(batch) = self.batch else { return };
        let binding = Binding { batch: Some(batch), ..binding.clone() };
        self.room = room::of(model, &binding, &plan, &card, Bytes::ZERO);
        self.advice = advise(model, &binding, &plan, &card, &Around::default())
            .ok()
            .filter(|a| a.now.verdict != Verdict::Fits);
    }

    /// Looks for the largest batches of a plan that fit on a card.
    fn fit(&mut self, model: &Model, binding: &Binding, plan: &Plan, card: &Card) {
        let (plans, cards) = (std::slice::from_ref(plan), std::slice::from_ref(card));
        let cells = fit::matrix(Subject::batch(model, binding), plans, cards, &mut |_, _| {});
        if let Some(cell) = cells.ok().as_ref().and_then(|cells| cells.first()) {
            (self.fitting, self.safe) = (Some(cell.largest), Some(cell.safe));
        }
    }
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
        let tried: Vec<u64> = candidates(None, None, Some(96), false).map(|c| c.0).take(4).collect();
        assert_eq!(tried, [96, 48, 32, 24]);
        assert_eq!(
            candidates(Some(7), Some(8), None, false).map(|c| c.0).take(2).collect::<Vec<_>>(),
            [7, 8]
        );
    }

    #[test]
    fn what_pytorch_asks_for_a_tensor() {
        assert_eq!(asked(Bytes(100)), Bytes::mib(2));
        assert_eq!(asked(Bytes::mib(3)), Bytes::mib(20));
        assert_eq!(asked(Bytes(Bytes::MIB * 33 + 1)), Bytes::mib(34));
    }
}
