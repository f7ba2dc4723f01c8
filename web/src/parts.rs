//! The parts of the page, one file each.

pub(crate) mod answer;
pub(crate) mod bar;
pub(crate) mod controls;
pub(crate) mod drop;
pub(crate) mod fields;
pub(crate) mod notes;
pub(crate) mod sections;
