//! The layers as areas as large as what they hold at the peak, module by module.
//!
//! It shows at a glance what the table beside it says in numbers; the table is what a keyboard and a screen reader use.

use crate::categories::{class, percent, size};
use crate::draw::tree::{Module, innermost};
use crate::draw::treemap::{Rect, squarify};
use memfit_graph::order::sorted_by_key;
use std::rc::Rc;
use yew::prelude::*;

const HEIGHT: f64 = 320.0;
/// Modules smaller than this are not divided.
const DIVIDED: f64 = 1600.0;
/// Width of a letter.
const LETTER: f64 = 6.7;

#[derive(Properties, PartialEq)]
pub(crate) struct Props {
    pub(crate) trees: Rc<Vec<Module>>,
    pub(crate) selected: AttrValue,
    pub(crate) on_select: Callback<String>,
    /// A module was clicked.
    pub(crate) on_reveal: Callback<String>,
    pub(crate) width: u32,
}

/// A module with its place.
struct Tile<'a> {
    module: &'a Module,
    place: Rect,
    /// Whether it is divided, so that only its frame and name show.
    frame: bool,
    depth: usize,
}

#[component]
pub(crate) fn Treemap(props: &Props) -> Html {
    let within = Rect { x: 0.0, y: 0.0, width: f64::from(props.width), height: HEIGHT };
    let mut tiles = Vec::new();
    let modules: Vec<&Module> = props.trees.iter().collect();
    place(&modules, within, 0, &mut tiles);
    let total: u64 = modules.iter().map(|m| m.at_peak()).sum();
    let marked = innermost(tiles.iter().map(|tile| &*tile.module.path), &props.selected);
    let leave = props.on_select.reform(|_: PointerEvent| String::new());
    html! {
        <svg class="chart treemap" viewBox={format!("0 0 {} {HEIGHT}", props.width)} role="img" onpointerleave={leave}
            aria-label="Modules as areas as large as what they hold at the peak; the table below has the same in numbers">
            { for tiles.iter().map(|tile| draw(tile, total, marked, props)) }
        </svg>
    }
}

fn place<'a>(modules: &[&'a Module], within: Rect, depth: usize, tiles: &mut Vec<Tile<'a>>) {
    let modules: Vec<&Module> = modules.iter().copied().filter(|m| m.at_peak() > 0).collect();
    let modules = sorted_by_key(modules, |m| !m.at_peak());
    let sizes: Vec<u64> = modules.iter().map(|m| m.at_peak()).collect();
    for (module, place) in modules.iter().zip(squarify(&sizes, within)) {
        if place.width < 1.0 || place.height < 1.0 {
            continue;
        }
        let divided = !module.children.is_empty() && place.area() > DIVIDED && depth < 6;
        tiles.push(Tile { module, place, frame: divided, depth });
        if divided {
            let names = place.height > 40.0 && place.width > 30.0;
            let inner = place.inner(2.0, if names { 17.0 } else { 2.0 });
            self::place(&module.children.iter().collect::<Vec<_>>(), inner, depth + 1, tiles);
        }
    }
}

fn draw(tile: &Tile, total: u64, marked: Option<&str>, props: &Props) -> Html {
    let (module, place) = (tile.module, tile.place);
    let selected = marked == Some(&*module.path);
    let path = module.path.clone();
    let select = props.on_select.reform(move |_: PointerEvent| path.clone());
    let path = module.path.clone();
    let reveal = props.on_reveal.reform(move |_: MouseEvent| path.clone());
    let letters = ((place.width - 8.0) / LETTER).max(0.0) as usize;
    let fits = place.height > 16.0 && letters > 2;
    let mut name: String = module.name.chars().take(letters).collect();
    if name.len() < module.name.len() && name.pop().is_some() {
        name.push('…');
    }
    let shape = if tile.frame {
        classes!("frame", (tile.depth % 2 == 1).then_some("odd"))
    } else {
        classes!("tile", class(module.main_category()))
    };
    let (x, y) = (place.x, place.y);
    html! {
        <g onpointerenter={select} onclick={reveal} class={classes!(selected.then_some("selected"))}>
            <rect x={format!("{x:.1}")} y={format!("{y:.1}")} width={format!("{:.1}", place.width)} height={format!("{:.1}", place.height)} class={shape}>
                <title>{format!("{}: {}, {} of the peak", module.path, size(module.at_peak()), percent(module.at_peak(), total))}</title>
            </rect>
            if fits {
                <text x={format!("{:.1}", x + 4.0)} y={format!("{:.1}", y + 13.0)} class={if tile.frame { "frame-name" } else { "tile-name" }}>{name}</text>
            }
        </g>
    }
}
