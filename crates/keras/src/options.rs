//! What a user can say of a file that the file does not.

use std::collections::BTreeMap;

/// What the importer is told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// The shape of the input, its batch first, of a model that was saved before it was built; by input name, or under the
    /// empty name for the only input.
    pub inputs: BTreeMap<String, Vec<u64>>,
    /// Layers that are not Keras' own, by name or by class.
    pub layers: BTreeMap<String, Custom>,
}

/// What is said of a custom layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Custom {
    /// The shape of its output without the batch axis.
    pub shape: Option<Vec<u64>>,
    /// How many trained elements it has.
    pub params: Option<u64>,
    /// How many elements of state it has that are not trained.
    pub state: Option<u64>,
}

impl Options {
    /// What is said of the layer with this path, name or class, and under which of them.
    pub(crate) fn custom(&self, path: &str, name: &str, class: &str) -> Option<(&str, &Custom)> {
        let short = class.rsplit('>').next().unwrap_or(class);
        let found = [path, name, class, short].into_iter().find_map(|key| self.layers.get_key_value(key));
        found.map(|(key, custom)| (&**key, custom))
    }
}
