//! The models that were open last, kept in this browser: their names and their structure, never weights.

use super::browser::{forget, keep, kept};
use serde::{Deserialize, Serialize};

/// How many are kept, and how long each may be as text; storage is about 5 MB for a site.
const MOST: usize = 8;
const LONGEST: usize = 600 << 10;
const LIST: &str = "recent";

/// A model that is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Recent {
    /// The file's name.
    pub(crate) name: String,
    /// What it is, in a few words.
    pub(crate) what: String,
}

fn place(name: &str) -> String {
    format!("model.{name}")
}

/// Those that are kept, the newest first.
pub(crate) fn list() -> Vec<Recent> {
    kept(LIST).and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// The structure of one, packed.
pub(crate) fn structure(name: &str) -> Option<String> {
    kept(&place(name))
}

/// Keeps a model in front of the others. Where there is no room, the oldest make some.
pub(crate) fn put(recent: Recent, packed: &str) {
    if packed.len() > LONGEST {
        return;
    }
    let here = place(&recent.name);
    let mut all = list();
    all.retain(|old| old.name != recent.name);
    all.insert(0, recent);
    for old in all.drain(MOST.min(all.len())..) {
        forget(&place(&old.name));
    }
    while !keep(&here, packed) {
        match all.pop() {
            Some(old) if !all.is_empty() => forget(&place(&old.name)),
            _ => return,
        }
    }
    write(&all);
}

/// Forgets all of them.
pub(crate) fn clear() {
    for old in list() {
        forget(&place(&old.name));
    }
    forget(LIST);
}

fn write(all: &[Recent]) {
    if let Ok(text) = serde_json::to_string(all) {
        keep(LIST, &text);
    }
}
