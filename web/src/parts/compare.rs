//! Two estimates side by side: the one that was kept, and the one on the page.

use crate::categories::{NAMES, size};
use crate::page::Pinned;
use crate::protocol::Head;
use std::rc::Rc;
use yew::prelude::*;

#[derive(Properties, PartialEq)]
pub(crate) struct Props {
    pub(crate) pinned: Pinned,
    pub(crate) model: AttrValue,
    pub(crate) summary: AttrValue,
    pub(crate) head: Rc<Head>,
    pub(crate) on_close: Callback<()>,
    /// Goes back to the plan that was kept.
    pub(crate) on_restore: Callback<()>,
}

#[component]
pub(crate) fn Compare(props: &Props) -> Html {
    let (old, new) = (&props.pinned.head, &props.head);
    let parts = (0..NAMES.len()).filter(|i| part(old, *i) > 0 || part(new, *i) > 0);
    let same = props.pinned.model == *props.model;
    html! {
        <section class="card" aria-labelledby="compare-title">
            <h2 id="compare-title">{"Compared"}</h2>
            <div class="scroll" tabindex="0" role="region" aria-label="Comparison">
                <table>
                    <caption class="unseen">{"What was kept beside what is shown now"}</caption>
                    <thead>
                        <tr>
                            <td></td>
                            <th scope="col" class="number">{"kept"}<span class="under">{if same { String::new() } else { props.pinned.model.clone() }}</span><span class="under">{format!("{} · batch {}", props.pinned.summary, old.batch.unwrap_or(1))}</span></th>
                            <th scope="col" class="number">{"now"}<span class="under">{if same { String::new() } else { props.model.to_string() }}</span><span class="under">{format!("{} · batch {}", props.summary, new.batch.unwrap_or(1))}</span></th>
                            <th scope="col" class="number">{"difference"}</th>
                        </tr>
                    </thead>
                    <tbody>
                        { line("peak", total(old), total(new)) }
                        { for parts.map(|i| line(NAMES[i], part(old, i), part(new, i))) }
                        if let (Some(old), Some(new)) = (&old.fit, &new.fit) {
                            <tr>
                                <th scope="row">{"to spare on the card"}</th>
                                <td class="number">{signed(old.headroom)}</td>
                                <td class="number">{signed(new.headroom)}</td>
                                <td></td>
                            </tr>
                        }
                        { line("saved for backward", old.saved, new.saved) }
                    </tbody>
                </table>
            </div>
            <div class="actions">
                <button type="button" onclick={props.on_restore.reform(|_| ())}>{"Back to the kept plan"}</button>
                <button type="button" onclick={props.on_close.reform(|_| ())}>{"End the comparison"}</button>
            </div>
        </section>
    }
}

fn part(head: &Head, i: usize) -> u64 {
    head.parts.get(i).copied().unwrap_or_default()
}

fn total(head: &Head) -> u64 {
    head.parts.iter().sum()
}

fn line(name: &str, old: u64, new: u64) -> Html {
    html! {
        <tr>
            <th scope="row">{name}</th>
            <td class="number">{size(old)}</td>
            <td class="number">{size(new)}</td>
            <td class="number breaks">{difference(old, new)}</td>
        </tr>
    }
}

fn signed(bytes: i64) -> String {
    format!("{}{}", if bytes < 0 { "−" } else { "" }, size(bytes.unsigned_abs()))
}

/// A size with its unit on the same line.
fn tied(bytes: u64) -> String {
    size(bytes).replace(' ', "\u{a0}")
}

/// `−1.20 GiB (−34 %)`; a line may break before the share alone.
pub(crate) fn difference(old: u64, new: u64) -> String {
    if old == new {
        return "the same".into();
    }
    let (sign, by) = if new > old { ('+', new - old) } else { ('−', old - new) };
    match (u128::from(by) * 100).checked_div(u128::from(old)) {
        Some(share) if share < 1000 => format!("{sign}{} ({sign}{share}\u{a0}%)", tied(by)),
        _ => format!("{sign}{}", tied(by)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_has_its_sign_and_share() {
        assert_eq!(difference(1 << 30, 3 << 29), "+512.0\u{a0}MiB (+50\u{a0}%)");
        assert_eq!(difference(3 << 29, 1 << 30), "−512.0\u{a0}MiB (−33\u{a0}%)");
        assert_eq!((difference(0, 5), difference(7, 7)), ("+5\u{a0}B".into(), "the same".into()));
    }
}
