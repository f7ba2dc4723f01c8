//! One file per framework profile.
