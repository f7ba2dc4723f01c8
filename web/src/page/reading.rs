//! What the parts of the page read of it.

use super::{Applied, Page, Pinned};
use crate::parts::matrix::Rows;
use crate::protocol::{Advice, Details, Facts, Sizes};
use crate::state::{Source, State};
use std::rc::Rc;
use yew::AttrValue;

impl Page {
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    pub(crate) fn facts(&self) -> Option<&Rc<Facts>> {
        self.facts.as_ref()
    }

    pub(crate) fn details(&self) -> Option<&Rc<Details>> {
        self.details.as_ref()
    }

    pub(crate) fn curve(&self) -> &Rc<Vec<(u64, u64)>> {
        &self.curve
    }

    pub(crate) fn matrix_wanted(&self) -> bool {
        self.matrix_wanted
    }

    /// The rows of the matrix as far as they are known.
    pub(crate) fn rows(&self) -> Rc<Rows> {
        if self.matrix.0 == self.any_card() { self.matrix.1.clone() } else { Rc::default() }
    }

    /// The largest batch of the plan as it is now, where it is known.
    pub(crate) fn largest(&self) -> Option<Option<Sizes>> {
        self.largest.as_ref().filter(|(plan, _)| *plan == self.any_batch()).map(|(_, n)| *n)
    }

    /// The advice for the plan as it is now, where it is known.
    pub(crate) fn advice(&self) -> Option<&Rc<Advice>> {
        self.advice.as_ref().filter(|(plan, _)| *plan == self.state.plan()).map(|(_, advice)| advice)
    }

    pub(crate) fn advice_wanted(&self) -> bool {
        self.advice_wanted
    }

    pub(crate) fn applied(&self) -> Option<&Applied> {
        self.applied.as_ref()
    }

    /// The structure of the open model as text, where it is known.
    pub(crate) fn packed(&self) -> Option<&Rc<str>> {
        self.packed.as_ref()
    }

    pub(crate) fn pinned(&self) -> Option<&Pinned> {
        self.pinned.as_ref()
    }

    pub(crate) fn selected(&self) -> AttrValue {
        self.selected.clone()
    }

    /// Whether all that is shown is about the state as it is now.
    pub(crate) fn settled(&self) -> bool {
        self.shown == self.generation && self.detailed == self.generation
    }

    pub(crate) fn width(&self) -> u32 {
        self.width
    }

    /// The model's file as the command line would be given it.
    pub(crate) fn file_name(&self) -> String {
        match &self.state.source {
            Source::Example(name) | Source::Own(name) => name.clone(),
            Source::None => "MODEL".into(),
        }
    }
}
