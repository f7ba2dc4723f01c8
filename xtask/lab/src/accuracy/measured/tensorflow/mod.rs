//! TensorFlow figures that others have published: what ran on a card, what ran out of memory there, and peaks of one gradient.
//!
//! Each source is a file that says how its rows were trained and which network they are of; a line in [`SOURCES`] adds it.

mod bert;
mod convnets;
mod google_bert;
mod gradient_checkpointing;
mod net;
mod nvidia;
mod tf_cnn_benchmarks;

use super::sources::table;
use crate::accuracy::compare::caught;
use crate::accuracy::summary::markdown;
use anyhow::Result;
use memfit_engine::devices::Card;
use memfit_engine::fit::{self, Subject};
use memfit_engine::{Framework, Model, Plan, Verdict};
use memfit_graph::{Binding, Bytes};
use std::collections::BTreeMap;
use std::path::Path;

/// A source's rows of `core.tsv`.
type Source = fn(&Cells) -> Option<Entry>;

/// All sources by the name that the table has for them.
const SOURCES: &[(&str, Source)] = &[
    ("google-research/bert", google_bert::entry),
    ("NVIDIA DeepLearningExamples", nvidia::entry),
    ("rtx2080-dl-benchmark", tf_cnn_benchmarks::entry),
    ("gradient-checkpointing", gradient_checkpointing::entry),
];

/// One row of a table by its head.
struct Cells(BTreeMap<String, String>);

impl Cells {
    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.get(name).parse::<f64>().ok().map(|n| n.round() as u64)
    }

    /// The length of a text, from `seq384`.
    fn length(&self) -> Option<u64> {
        self.get("input_shape").strip_prefix("seq")?.parse().ok()
    }

    /// The id of the card.
    fn card(&self) -> String {
        self.get("gpu").to_lowercase().replace(' ', "-").replace("titan-x", "titan-x-pascal")
    }

    /// What a row with a batch that ran or failed says.
    fn outcome(&self) -> Option<Said> {
        match self.get("measured_kind") {
            "fits_at" => Some(Said::Ran),
            "oom_at" => Some(Said::Failed),
            "max_batch_fits" => Some(Said::Largest),
            _ => None,
        }
    }
}

/// What was measured.
#[derive(Clone, Copy)]
enum Said {
    /// This batch ran.
    Ran,
    /// It ran out of memory.
    Failed,
    /// It is the largest that ran; how fine the search was is not known.
    Largest,
    /// The most bytes of one forward and backward pass, with its images, without variables.
    Step(u64),
}

/// A measurement of a network.
struct Entry {
    model: String,
    /// The network as Keras would write it.
    config: String,
    card: String,
    batch: u64,
    plan: Plan,
    said: Said,
    /// Copies of the parameters that the program's own optimizer holds beside those that memfit's has.
    copies: u64,
}

/// A plan as TensorFlow ran it, without XLA.
fn plan() -> Plan {
    Plan { framework: Framework::Tensorflow, xla: false, loss_scale: false, ..Plan::default() }
}

/// Every row of every source.
fn entries(folder: &Path) -> Result<Vec<(&'static str, Entry)>> {
    let mut all = Vec::new();
    for row in table(&folder.join("core.tsv"))? {
        let cells = Cells(row);
        let source = SOURCES.iter().find(|(name, _)| *name == cells.get("source"));
        let framework = cells.get("framework");
        if let Some((name, read)) = source.filter(|_| framework == "TensorFlow") {
            all.extend(read(&cells).map(|entry| (*name, entry)));
        }
    }
    Ok(all)
}

/// What the estimate says of an entry, and whether that is as it was.
fn judge(entry: &Entry) -> Result<(String, bool), String> {
    let imported =
        caught(|| memfit_keras::import(entry.config.as_bytes(), &memfit_keras::Options::default()))?;
    let model = Model::new(imported.graph, &entry.model, "keras", 0);
    let mut card = Card::find(&entry.card).map_err(|e| e.to_string())?;
    let binding = Binding { batch: Some(entry.batch), ..Binding::default() };
    let mut copies = Bytes(0);
    if entry.copies > 0 {
        let parameters = caught(|| model.estimate(&binding, &entry.plan))?.model.parameters_trainable;
        copies = Bytes(4 * parameters * entry.copies);
        card.other_processes = copies;
    }
    match entry.said {
        Said::Step(bytes) => {
            let estimate = caught(|| model.estimate(&binding, &entry.plan.on(&card)))?;
            // Images are made in the step too.
            let own = (estimate.timeline.step_peak() + estimate.breakdown.inputs + copies).0;
            let error = own as f64 / bytes as f64 - 1.0;
            Ok((format!("{} MB, {:+.1} %", own / 1_000_000, 100.0 * error), error.abs() <= 0.1))
        }
        Said::Largest => {
            let plans = [entry.plan.clone()];
            let found = caught(|| {
                let cards = std::slice::from_ref(&card);
                fit::matrix(Subject::batch(&model, &binding), &plans, cards, &mut |_, _| ())
            })?;
            let (safe, largest) = found.first().map_or((0, 0), |cell| (cell.safe, cell.largest));
            // One more or less is how fine such a search is.
            let met = (safe.saturating_sub(1)..=largest + 1).contains(&entry.batch);
            Ok((format!("{safe} are safe, at most {largest}"), met))
        }
        Said::Ran | Said::Failed => {
            let estimate = caught(|| model.estimate_on(&binding, &entry.plan, Some(&card)))?;
            let Some(fit) = estimate.fit else { return Err("no card".into()) };
            let (said, fits) = match fit.verdict {
                Verdict::Fits => ("fits", true),
                Verdict::Tight => ("tight", true),
                Verdict::DoesNotFit => ("does not fit", false),
            };
            let ran = matches!(entry.said, Said::Ran);
            let [needed, room] =
                [estimate.peak.reserved, fit.usable].map(|b| (b + card.other_processes).0 as f64);
            Ok((format!("{said}, {:.0} % of what there is", 100.0 * needed / room.max(1.0)), fits == ran))
        }
    }
}

const ABOUT: &str = "
### TensorFlow

Batches that ran and that ran out of memory, the largest batch, and peaks of one gradient computation. The networks are built as the programs \
that were measured wrote them, in Keras 2's layers (`xtask/lab/src/accuracy/measured/tensorflow`). What ran is met by *fits* or *tight*, what \
ran out of memory by *does not fit*; the largest batch lies between what is safe and what fits at most; a peak is met within a tenth. \
The optimizers of the BERT programs hold three copies of the parameters more than Keras's, from the beginning of the step, NVIDIA's four \
(`bert.rs` there says why); the decayed weights of gradient-checkpointing's loss are one. These are counted as held by others. \
Its row of 1,110 MB is of 34 layers, as its source says (`RESNET_SIZE=34`), whatever the table calls it, and asks for all gradients, \
of which 87 MB are there at the end; here an update takes each as it comes.

What is not met, and why:

- Batches of half precision that ran although they are estimated at a few percent more than there is ran under XLA, which compiled pieces of \
the graph and so needs less.
- Twelve examples of SQuAD on a V100 of 32 GB are marked *not available*, which is read as out of memory; ten ran in the release before.
- google-research/bert says that not one text of 384 words fits a Titan X, while two of 256 do, which are a third more words. The 16,384 \
pairs of words more would have to take what 128 words take, sixteen numbers a pair in each head of each layer; three are kept (softmax, \
dropout's mask and their product). So no rule can have both; the estimates of both zeros are 4 and 10 % below what there is.

Two of these cells are doubtful. A batch that is said to fit has to be safe against them too, so the upper end of an estimate under TensorFlow's \
executor is the least at which no cell that ran out of memory is said to fit: 17 % more segments than expected (`crates/engine/src/range.rs`).

";

/// The section of the page, where the figures lie beside the repository.
///
/// # Errors
/// A table that cannot be read.
pub(super) fn section(folder: &Path) -> Result<String> {
    let mut lines =
        vec![["source", "model", "card", "batch", "measured", "estimated", ""].map(str::to_owned).to_vec()];
    let (mut met, mut safe, mut failed) = (0, 0, 0);
    let entries = entries(folder)?;
    for (source, entry) in &entries {
        let measured = match entry.said {
            Said::Ran => "ran".to_owned(),
            Said::Failed => "out of memory".to_owned(),
            Said::Largest => "the largest that ran".to_owned(),
            Said::Step(bytes) => format!("{} MB", bytes / 1_000_000),
        };
        let (said, is_met) = judge(entry).unwrap_or_else(|why| (why, false));
        met += usize::from(is_met);
        if matches!(entry.said, Said::Failed) {
            failed += 1;
            safe += usize::from(!said.starts_with("fits"));
        }
        lines.push(vec![
            (*source).to_owned(),
            entry.model.clone(),
            entry.card.clone(),
            entry.batch.to_string(),
            measured,
            said,
            if is_met { String::new() } else { "not met".to_owned() },
        ]);
    }
    let of = entries.len();
    Ok(format!(
        "{ABOUT}Met: {met} of {of}. Of {failed} cells that ran out of memory {} are said to fit.\n\n{}",
        failed - safe,
        markdown(&lines)
    ))
}
