//! The layers as a table: modules that open and close, sorted and filtered as one likes.

use super::fields::value;
use crate::categories::{percent, size};
use crate::draw::tree::{Module, around, innermost};
use crate::page::browser::{self, Timer};
use memfit_graph::order::sorted_by_key;
use memfit_report::amounts::grouped;
use std::collections::BTreeSet;
use std::rc::Rc;
use yew::prelude::*;

/// Rows that are opened at first, and shown at once.
const OPENED: usize = 14;
const SHOWN: usize = 40;

/// What rows are ordered by.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Forward,
    Parameters,
    Saved,
    AtPeak,
}

#[derive(Properties, PartialEq)]
pub(crate) struct Props {
    pub(crate) trees: Rc<Vec<Module>>,
    pub(crate) selected: AttrValue,
    pub(crate) on_select: Callback<String>,
    /// A module to open and to bring into view, with how many there were before it.
    pub(crate) revealed: (usize, AttrValue),
}

fn row_id(path: &str) -> String {
    format!("row-{path}")
}

#[component]
pub(crate) fn Layers(props: &Props) -> Html {
    let order = use_state(|| Order::Forward);
    let filter = use_state(String::new);
    let all = use_state(|| false);
    let toggled = use_state(BTreeSet::<String>::new);
    let opened = use_memo(props.trees.clone(), |trees| open_at_first(trees));
    let total: u64 = props.trees.iter().map(Module::at_peak).sum();

    let timer = use_mut_ref(|| None::<Timer>);
    {
        let (trees, toggled, opened) = (props.trees.clone(), toggled.clone(), opened.clone());
        let (filter, all) = (filter.clone(), all.clone());
        use_effect_with(props.revealed.clone(), move |(_, path)| {
            if path.is_empty() {
                return;
            }
            let mut next = (*toggled).clone();
            for module in around(&trees, path) {
                // What was not open at first is toggled once, and what was is not.
                if opened.contains(module) {
                    next.remove(module)
                } else {
                    next.insert(module.into())
                };
            }
            toggled.set(next);
            filter.set(String::new());
            all.set(true);
            let id = row_id(path);
            *timer.borrow_mut() = Some(Timer::after(0, move || browser::show(&id)));
        });
    }

    let mut rows = Vec::new();
    let wanted = filter.trim().to_lowercase();
    if wanted.is_empty() {
        let is_open = |path: &str| opened.contains(path) != toggled.contains(path);
        collect(&props.trees, 0, *order, &is_open, &mut rows);
    } else {
        find(&props.trees, &wanted, &mut rows);
        rows = sorted_by_key(rows, |row| !key(row.0, *order));
    }
    let hidden = if *all { 0 } else { rows.len().saturating_sub(SHOWN) };
    rows.truncate(rows.len() - hidden);

    let revealed = &props.revealed.1;
    let marked = innermost(rows.iter().map(|(module, _)| &*module.path), &props.selected);

    let set = |to: Order| {
        let order = order.clone();
        Callback::from(move |_: MouseEvent| order.set(to))
    };
    let header = |name: &'static str, to: Order, number: bool| {
        let now = *order == to;
        html! {
            <th scope="col" class={classes!(number.then_some("number"), (to == Order::Parameters).then_some("wide"))} aria-sort={now.then_some(if to == Order::Forward { "ascending" } else { "descending" })}>
                <button type="button" class="sort" onclick={set(to)}>{name}<span aria-hidden="true">{match (now, to) { (true, Order::Forward) => " ▲", (true, _) => " ▼", _ => "" }}</span></button>
            </th>
        }
    };
    let typed = {
        let filter = filter.clone();
        Callback::from(move |event: InputEvent| filter.set(value(&event)))
    };
    let toggle = {
        let toggled = toggled.clone();
        Callback::from(move |path: String| {
            let mut next = (*toggled).clone();
            if !next.remove(&path) {
                next.insert(path);
            }
            toggled.set(next);
        })
    };
    let is_open = |path: &str| opened.contains(path) != toggled.contains(path);
    html! {
        <>
            <div class="tools">
                <label for="filter">{"Filter by path or operator"}</label>
                <input id="filter" type="search" value={(*filter).clone()} oninput={typed} placeholder="layer4, Conv, …" />
            </div>
            <div class="scroll" tabindex="0" role="region" aria-label="Table of layers">
                <table class="layers">
                    <caption class="unseen">{"Layers with what they hold"}</caption>
                    <thead><tr>
                        { header("Module", Order::Forward, false) }
                        <th scope="col" class="wide">{"Operator"}</th>
                        <th scope="col" class="wide output">{"Output"}</th>
                        { header("Parameters", Order::Parameters, true) }
                        { header("Saved", Order::Saved, true) }
                        { header("At peak", Order::AtPeak, true) }
                    </tr></thead>
                    <tbody>
                        { for rows.iter().map(|(module, depth)| row(module, *depth, total, wanted.is_empty().then(|| is_open(&module.path)), classes!(
                            (marked == Some(&*module.path)).then_some("selected"),
                            (!revealed.is_empty() && **revealed == *module.path).then_some("revealed"),
                        ), &toggle, props)) }
                    </tbody>
                </table>
            </div>
            if hidden > 0 {
                <button type="button" onclick={Callback::from(move |_| all.set(true))}>{format!("Show {hidden} more")}</button>
            }
        </>
    }
}

fn row(
    module: &Module,
    depth: usize,
    total: u64,
    open: Option<bool>,
    class: Classes,
    toggle: &Callback<String>,
    props: &Props,
) -> Html {
    let path = module.path.clone();
    let select = {
        let (path, on_select) = (path.clone(), props.on_select.clone());
        Callback::from(move |_: PointerEvent| on_select.emit(path.clone()))
    };
    let focus = {
        let (path, on_select) = (path.clone(), props.on_select.clone());
        Callback::from(move |_: FocusEvent| on_select.emit(path.clone()))
    };
    let click = toggle.reform(move |_: MouseEvent| path.clone());
    let depth = ["d0", "d1", "d2", "d3", "d4", "d5", "d6"][depth.min(6)];
    let shown = if open.is_some() { &module.name } else { &module.path };
    html! {
        <tr id={row_id(&module.path)} {class} onpointerenter={select} onfocusin={focus}>
            <th scope="row" class={depth}>
                if let Some(open) = open.filter(|_| !module.children.is_empty()) {
                    <button type="button" class="fold" onclick={click} aria-expanded={open.to_string()}>
                        <span aria-hidden="true">{if open { "▾ " } else { "▸ " }}</span>{shown}
                    </button>
                    <span class="meaning">{format!("{} layers", module.layers)}</span>
                } else {
                    <span class="leaf">{shown}</span>
                }
            </th>
            <td class="wide">{&module.op}</td>
            <td class="wide output">{&module.shape}</td>
            <td class="number wide">{grouped(module.parameters)}</td>
            <td class="number">{size(module.saved)}</td>
            <td class="number" title={percent(module.at_peak(), total)}>{size(module.at_peak())}</td>
        </tr>
    }
}

fn key(module: &Module, order: Order) -> u64 {
    match order {
        Order::Forward => 0,
        Order::Parameters => module.parameters,
        Order::Saved => module.saved,
        Order::AtPeak => module.at_peak(),
    }
}

fn collect<'a>(
    modules: &'a [Module],
    depth: usize,
    order: Order,
    open: &impl Fn(&str) -> bool,
    rows: &mut Vec<(&'a Module, usize)>,
) {
    // From large to small; equal ones stay in forward order.
    for module in sorted_by_key(modules.iter().collect(), |module: &&Module| !key(module, order)) {
        rows.push((module, depth));
        if open(&module.path) {
            collect(&module.children, depth + 1, order, open, rows);
        }
    }
}

/// Single layers whose path or operator has the wanted text in it.
fn find<'a>(modules: &'a [Module], wanted: &str, rows: &mut Vec<(&'a Module, usize)>) {
    for module in modules {
        let is = |text: &str| text.to_lowercase().contains(wanted);
        if module.children.is_empty() && (is(&module.path) || is(&module.op)) {
            rows.push((module, 0));
        }
        find(&module.children, wanted, rows);
    }
}

/// Modules are opened, the fullest first, as long as few rows show.
fn open_at_first(trees: &[Module]) -> BTreeSet<String> {
    let mut rows = trees.len();
    let mut open = BTreeSet::new();
    let mut candidates: Vec<&Module> = trees.iter().collect();
    while let Some(at) = (0..candidates.len()).max_by_key(|i| candidates[*i].at_peak()) {
        let module = candidates.swap_remove(at);
        if module.children.is_empty() || rows + module.children.len() > OPENED {
            continue;
        }
        rows += module.children.len();
        open.insert(module.path.clone());
        candidates.extend(&module.children);
    }
    open
}
