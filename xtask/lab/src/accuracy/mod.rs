//! `cargo xtask accuracy`: estimates beside what the framework itself allocates.
//!
//! The references are PyTorch's own numbers, byte by byte (`models/reference`), for the models in `models/`. Where a
//! larger collection lies beside the repository it is compared as well.

mod compare;
mod holders;
mod keras;
mod keras_torch;
mod keras_xla;
mod measured;
mod page;
mod records;
mod reference;
mod summary;
mod tensorflow;

use anyhow::{Result, bail};
use compare::{Compared, Pair, Row};
use reference::Reference;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only steps whose `model bBATCH PRECISION OPTIMIZER` contains this; several must all match
    #[arg(long, value_name = "SUBSTR")]
    filter: Vec<String>,
    /// The export to read (`ts_eval`) instead of the best one
    #[arg(long)]
    variant: Option<String>,
    /// Reads every export of a model, not the best one only; implied where docs/accuracy.md is written
    #[arg(long)]
    exports: bool,
    /// Shows the steps with the largest errors, with what is alive at their peaks
    #[arg(long, value_name = "N")]
    worst: Option<usize>,
    /// Shows where saved bytes differ, by the autograd functions that hold them, once for each input size and precision
    #[arg(long)]
    node_types: bool,
    /// Prints one JSON object a step instead of tables
    #[arg(long)]
    json: bool,
    /// Only the larger collection beside the repository
    #[arg(long)]
    shared: bool,
    /// Another collection instead of the one beside the repository: a folder with `truth/pytorch` and `corpus/onnx`, or for
    /// --tensorflow `truth/tensorflow` and `corpus/keras`; implies --shared
    #[arg(long, value_name = "FOLDER")]
    collection: Option<PathBuf>,
    /// Only the figures measured on real GPUs that lie beside the repository
    #[arg(long, conflicts_with_all = ["check", "shared", "variant"])]
    measured: bool,
    /// Only this repository's models, and whether docs/accuracy.md says what is true of them now
    #[arg(long, conflicts_with_all = ["filter", "variant", "json", "shared"])]
    check: bool,
    /// Only Keras models under TensorFlow
    #[arg(long)]
    tensorflow: bool,
    /// Only what memfit validate recorded of real steps (models/measurements)
    #[arg(long)]
    records: bool,
    /// Leaves docs/accuracy.md as it is; implied by a choice of steps
    #[arg(long)]
    no_docs: bool,
}

impl Options {
    /// Whether the page is written: not for a choice of steps.
    fn docs(&self) -> bool {
        let chosen = !self.filter.is_empty()
            || self.variant.is_some()
            || self.only_shared()
            || self.check
            || self.measured;
        !chosen && !self.no_docs && !self.json
    }

    /// Whether this repository's models are left out.
    fn only_shared(&self) -> bool {
        self.shared || self.collection.is_some()
    }

    /// The larger collection.
    fn beside(&self) -> PathBuf {
        self.collection.clone().unwrap_or_else(|| crate::root().join("../shared"))
    }

    /// Whether every export of a model is read.
    fn exports(&self) -> bool {
        self.exports || self.check || self.docs()
    }
}

/// Where references and the models they are about lie.
struct Source {
    title: &'static str,
    about: &'static str,
    models: PathBuf,
    references: Vec<Reference>,
}

/// A source with all that was compared.
struct Section {
    title: &'static str,
    about: &'static str,
    compared: Vec<Compared>,
    /// The same for the other exports of these models, where that was asked for.
    others: Vec<Compared>,
    /// Models without a file to read.
    absent: Vec<String>,
}

impl Section {
    fn all(&self) -> impl Iterator<Item = &Compared> {
        self.compared.iter().chain(&self.others)
    }

    /// Steps that could not be estimated.
    fn failed(&self) -> usize {
        self.all().map(|c| c.failures.len()).sum()
    }
}

/// Prints and writes the tables; whether everything could be estimated.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if options.tensorflow {
        println!("{}", tensorflow::section(&options.beside())?.unwrap_or_default());
        return Ok(true);
    }
    if options.records {
        println!("{}", records::section()?.unwrap_or_default());
        return Ok(true);
    }
    if options.measured {
        return measured_only(options);
    }
    let sources = sources(options)?;
    if sources.is_empty() {
        bail!("there are no references: neither models/reference nor ../shared/truth/pytorch");
    }
    let sections: Vec<Section> = sources.iter().map(|source| compare_all(source, options)).collect();
    if options.check {
        let current = page::is_current(&sections);
        if !current {
            println!("docs/accuracy.md is out of date: run `cargo xtask accuracy` and look at what changed");
        }
        return Ok(current);
    }
    for section in &sections {
        print(section, options)?;
    }
    if options.docs() {
        let measured = measured::compare(&[])?;
        match &measured {
            Some(measured) => measured::print(measured),
            None => println!("{NOT_THERE}"),
        }
        let records = records::section()?;
        println!("{}", records.as_deref().unwrap_or_default());
        page::write(
            &sections,
            [
                tensorflow::section(&options.beside())?,
                keras_xla::section()?,
                keras_torch::section()?,
                records,
                measured.as_ref().map(measured::page),
            ],
        )?;
    }
    Ok(sections.iter().all(|section| section.failed() == 0))
}

/// What is said where there is nothing to compare with.
const NOT_THERE: &str = "skipped: no figures from real GPUs in ../shared/truth/measured";

fn measured_only(options: &Options) -> Result<bool> {
    let Some(measured) = measured::compare(&options.filter)? else {
        println!("{NOT_THERE}");
        return Ok(true);
    };
    if options.json {
        for row in &measured.rows {
            println!("{}", serde_json::to_string(row)?);
        }
    } else {
        measured::print(&measured);
    }
    Ok(measured.failures.is_empty())
}

/// How many threads compare.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn sources(options: &Options) -> Result<Vec<Source>> {
    let root = crate::root();
    let mut sources = Vec::new();
    let own = root.join("models/reference/pytorch.json");
    if own.exists() && !options.only_shared() {
        let references = reference::read(&own)?;
        sources.push(Source {
            title: "The models of this repository",
            about: "Files in `models/`, numbers in `models/reference/pytorch.json`; anyone can repeat this table.\n",
            models: root.join("models"),
            references,
        });
    }
    let shared = options.beside();
    if shared.join("truth/pytorch").exists() && !options.check {
        let references = reference::read_all(&shared.join("truth/pytorch"))?;
        sources.push(Source {
            title: "A larger collection",
            about: "Torchvision, timm and transformers models that are too many to keep here, exported and measured in the same \
                way (torch 2.15.0); compared where `../shared` lies beside the repository.\n",
            models: shared.join("corpus/onnx"),
            references,
        });
    }
    Ok(sources)
}

/// Compares every model of a source, on all cores.
fn compare_all(source: &Source, options: &Options) -> Section {
    let wanted = |key: &str| options.filter.iter().all(|part| key.contains(part.as_str()));
    let mut absent = Vec::new();
    let (mut jobs, mut others) = (Vec::new(), Vec::new());
    for reference in &source.references {
        let mut files = compare::find(&source.models, &reference.model);
        if let Some(variant) = &options.variant {
            files.retain(|(export, _)| export == variant);
        }
        let mut of_model = files.into_iter().map(|(export, path)| (reference, export, path));
        match of_model.next() {
            Some(best) => jobs.push(best),
            None => absent.push(reference.model.clone()),
        }
        if options.exports() {
            others.extend(of_model);
        }
    }
    let best = jobs.len();
    jobs.extend(others);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some((at, (reference, export, path))) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            jobs.get(at).map(|job| (at, job))
        } {
            done.push((at, compare::compare(reference, export.clone(), path, &wanted, options.node_types)));
        }
        done
    };
    let mut done: Vec<(usize, Compared)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores()).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|w| w.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    done.sort_by_key(|(at, _)| *at);
    let mut compared: Vec<Compared> = done.into_iter().map(|(_, compared)| compared).collect();
    let others = compared.split_off(best);
    Section { title: source.title, about: source.about, compared, others, absent }
}

fn print(section: &Section, options: &Options) -> Result<()> {
    let rows: Vec<&Row> = section.compared.iter().flat_map(|c| &c.rows).collect();
    if options.json {
        for row in rows {
            println!("{}", serde_json::to_string(row)?);
        }
        return Ok(());
    }
    println!("{}\n", section.title);
    print!(
        "{}\n{}",
        summary::aligned(&summary::models(&section.compared)),
        summary::aligned(&summary::totals(&rows))
    );
    if !section.others.is_empty() {
        print!("\nother exports\n{}", summary::aligned(&summary::exports(&section.others)));
    }
    if let Some(count) = options.worst {
        print_worst(rows, count);
    }
    if options.node_types {
        for compared in &section.compared {
            print_holders(&compared.rows);
        }
    }
    let failed = section.failed();
    if failed > 0 {
        println!("\nnot estimated: {failed}");
    }
    for compared in section.all() {
        // The same reason for every step of a model is told once.
        let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (step, why) in &compared.failures {
            reasons.entry(why).or_default().push(step);
        }
        for (why, steps) in reasons {
            println!("  {} ({} steps): {why}", steps.first().unwrap_or(&""), steps.len());
        }
    }
    if !section.absent.is_empty() {
        println!("\nno file for: {}", section.absent.join(", "));
    }
    println!();
    Ok(())
}

fn print_worst(mut rows: Vec<&Row>, count: usize) {
    rows.sort_by(|a, b| b.peak.error().abs().total_cmp(&a.peak.error().abs()));
    for row in rows.into_iter().take(count) {
        println!("\n{} b{} {} {}", row.model, row.batch, row.precision, row.optimizer);
        println!("  peak in {}, estimated in {}", row.phase.0, row.phase.1);
        if !row.unknown.is_empty() {
            println!("  without a rule: {}", row.unknown.join(", "));
        }
        let named = [("peak", row.peak), ("saved", row.saved)];
        for (name, pair) in named.into_iter().chain(row.breakdown.iter().copied()) {
            print_pair(name, pair);
        }
    }
}

/// Runs that differ by optimizer alone hold the same.
fn print_holders(rows: &[Row]) {
    let mut seen = BTreeSet::new();
    for row in rows {
        let different: Vec<_> = row.holders.iter().filter(|(_, p)| p.reference != p.estimate).collect();
        if different.is_empty() || !seen.insert((row.batch, &row.precision)) {
            continue;
        }
        println!("\n{} b{} {}", row.model, row.batch, row.precision);
        for (name, pair) in different {
            print_pair(name, *pair);
        }
    }
}

/// Reference, estimate, difference.
fn print_pair(name: &str, pair: Pair) {
    let difference = i128::from(pair.estimate) - i128::from(pair.reference);
    let error = summary::share(pair.error());
    println!("  {name:<40} {:>15} {:>15} {difference:>+14} {error:>9}", pair.reference, pair.estimate);
}
