//! What is said of a log beside a model, for people and for programs.

use super::Beside;
use memfit_engine::Verdict;
use memfit_engine::advise::Advice;
use memfit_graph::Bytes;
use serde_json::{Value, json};

/// How many changes are named where no set of them makes the step fit.
const CHANGES: usize = 3;

impl Beside {
    /// What it says, sentence by sentence.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let mut said = Vec::new();
        let of = self.forward.as_ref().map_or_else(String::new, |forward| format!("{} ", forward.name()));
        match self.batch {
            Some(batch) => said.push(format!("The {of}batch was {batch} ({}).", self.batch_from)),
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
        match (&self.forward, &self.room, self.predicted) {
            (Some(forward), ..) => said.extend(forward.sentences()),
            (None, Some(room), _) => {
                said.push(format!(
                    "That step takes {} on the device{}.",
                    room.device,
                    room.verdict_in_words()
                ));
            }
            (None, None, Some(bytes)) => said.push(format!("That step takes {bytes} on the device.")),
            _ => {}
        }
        said.extend(self.contradictions.iter().cloned());
        match (self.fitting, self.safe) {
            (Some(0), _) => said.push(format!("Not even a {of}batch of 1 fits.")),
            (Some(batch), Some(safe)) if 0 < safe && safe < batch => {
                said.push(format!("The largest {of}batch that fits is {batch}; up to {safe} it is sure."));
            }
            (Some(batch), _) => said.push(format!("The largest {of}batch that fits is {batch}.")),
            _ => {}
        }
        said.extend(self.forward.as_ref().map(|forward| forward.helps(self.fitting)));
        said.extend(self.advice.as_ref().map(|advice| self.changes(advice)));
        said
    }

    /// The smallest set of changes that makes it fit, else those that save most.
    fn changes(&self, advice: &Advice) -> String {
        // A batch that just fits is made to fit for sure.
        let (made, makes) = match advice.now.verdict {
            Verdict::Tight => ("To make that batch fit for sure", "makes that batch fit for sure"),
            _ => ("To make that batch fit", "makes that batch fit"),
        };
        match &advice.combination {
            Some(set) => {
                let parts: Vec<&str> = set.parts.iter().map(|(_, title, _)| title.as_str()).collect();
                let takes = match self.room.filter(|room| room.is_limited()) {
                    Some(_) => format!("{} in the framework's allocator", set.outcome.reserved),
                    None => format!("{} on the device", set.outcome.device),
                };
                format!("{made}: {} ({takes}).", parts.join("; "))
            }
            None if advice.now.is_partial && advice.now.verdict == Verdict::Tight => {
                "By what is known that batch fits; what some operators need is not known, so that it is not sure."
                    .into()
            }
            None => {
                let best = advice.changes.iter().filter(|c| c.saving > 0 && !c.for_others).take(CHANGES);
                let best: Vec<String> = best
                    .map(|c| format!("{} saves {}", c.title, Bytes(c.saving.unsigned_abs())))
                    .collect();
                match best.is_empty() {
                    true => format!("No change that memfit knows {makes}."),
                    false => format!("No set of changes {makes}; {}.", best.join("; ")),
                }
            }
        }
    }

    pub(crate) fn json(&self) -> Value {
        let places: Vec<Value> = self
            .places
            .iter()
            .map(|p| json!({"layer": p.layer, "phase": p.phase.name(), "tensor": p.label}))
            .collect();
        let room = self.forward.map(|forward| forward.room).or(self.room);
        let predicted = room.map(|room| room.device).or(self.predicted);
        let verdict = room.map(|room| match room.verdict {
            Verdict::Fits => "fits",
            Verdict::Tight => "tight",
            Verdict::DoesNotFit => "does-not-fit",
        });
        let of = self.forward.map_or("step", |forward| forward.name());
        let with_autograd = self.forward.and_then(|forward| forward.with_autograd);
        json!({"batch_size": self.batch, "batch_from": self.batch_from, "places": places, "of": of, "verdict": verdict,
            "predicted_device_bytes": predicted.map(|b| b.0), "with_autograd_device_bytes": with_autograd.map(|b| b.0),
            "usable_bytes": room.map(|room| room.usable.0), "predicted_reserved_bytes": room.map(|room| room.reserved.0),
            "contradictions": self.contradictions, "warnings": self.warnings, "capacity_bytes": self.capacity.map(|b| b.0),
            "largest_batch_size": self.fitting, "safe_batch_size": self.safe, "advice": self.advice.as_ref().map(advice_json)})
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
