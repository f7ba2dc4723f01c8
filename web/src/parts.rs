//! The parts of the page, one file each.

pub(crate) mod advice;
pub(crate) mod answer;
pub(crate) mod bar;
pub(crate) mod batch;
pub(crate) mod compare;
pub(crate) mod controls;
pub(crate) mod curve;
pub(crate) mod drop;
pub(crate) mod fields;
pub(crate) mod gpu;
pub(crate) mod layers;
pub(crate) mod log;
pub(crate) mod matrix;
pub(crate) mod notes;
pub(crate) mod sections;
pub(crate) mod share;
pub(crate) mod timeline;
pub(crate) mod told;
pub(crate) mod treemap;
