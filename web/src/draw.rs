//! Where things go in a picture: plain numbers, without a page, so that tests can look at them.

pub(crate) mod axis;
pub(crate) mod curve;
pub(crate) mod timeline;
pub(crate) mod tree;
pub(crate) mod treemap;
