//! Where things go in a picture: plain numbers, without a page, so that tests can look at them.

pub(crate) mod curve;
