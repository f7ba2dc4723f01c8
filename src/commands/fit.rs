//! `memfit fit`: the largest batch, image or sequence on each card.

use crate::args::{FitArgs, Format};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::{Finding, load, output};
use memfit_engine::devices::Card;
use memfit_engine::fit::{self, Axis, Cell};
use memfit_engine::{Model, Plan};
use memfit_graph::{Binding, Problem};
use memfit_report::fit as report;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Searches and writes the matrix as asked.
pub(crate) fn fit(args: &FitArgs) -> Result<Finding, Failure> {
    // What is wrong with the flags alone is told before a file is opened.
    args.plan.framework()?;
    let cards = args.gpus.cards()?;
    let axis = Axis::parse(&args.max);
    let loaded = load::load(&args.model)?;
    let (plans, mut warnings) = args.plan.plans(loaded.framework())?;
    let ready = loaded.bind(&args.model.sizes)?;
    let (model, binding) = (&ready.model, &ready.binding);
    let cells = search(model, binding, &plans, &cards, &axis).map_err(|problems| ready.failure(problems))?;
    warnings.splice(0..0, ready.notices());
    let matrix = report::Matrix {
        model: &ready.name,
        axis: axis.name(),
        batch: binding.batch,
        cells: &cells,
        warnings: &warnings,
    };
    output::print(&match args.format.format {
        Format::Json => report::json(&matrix),
        Format::Text => report::text(&matrix, output::width()),
    })?;
    Ok(Finding::fine_if(matrix.any()))
}

/// What one plan comes to on each card.
type Column = Result<Vec<Cell>, Vec<Problem>>;

/// The matrix, by card and then by plan. Plans are searched side by side.
fn search(model: &Model, binding: &Binding, plans: &[Plan], cards: &[Card], axis: &Axis) -> Column {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (of, progress) = (plans.len() * cards.len(), Mutex::new(Progress::new("searching")));
    let work = || {
        let mut found = Vec::new();
        while let Some((at, plan)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            plans.get(at).map(|plan| (at, plan))
        } {
            let mut tell = |_, _| {
                let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                if let Ok(mut progress) = progress.lock() {
                    progress.tell(done, of);
                }
            };
            found.push((at, fit::matrix(model, binding, std::slice::from_ref(plan), cards, axis, &mut tell)));
        }
        found
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(plans.len());
    let mut columns: Vec<(usize, Column)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|w| w.join().unwrap_or_else(|p| std::panic::resume_unwind(p))).collect()
    });
    columns.sort_by_key(|(at, _)| *at);
    let columns: Vec<Vec<Cell>> = columns.into_iter().map(|(_, cells)| cells).collect::<Result<_, _>>()?;
    let of_card = |card: usize| columns.iter().filter_map(move |cells| cells.get(card).cloned());
    Ok((0..cards.len()).flat_map(of_card).collect())
}
