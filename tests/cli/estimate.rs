//! `memfit estimate`.
