//! From a serialised layer to the struct that knows its rule.

use crate::builder::Layered;
use crate::config;
use crate::layer::{Configured, Facts, Keras};
use crate::layers;
use crate::object::Object;
use crate::options::Options;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// Layers that hold layers are nested at most this deep: each level may ask its inner layer more than once.
const MAX_DEPTH: u32 = 12;

/// Layers that stand in several places of a file, by the number that Keras gives them (`shared_object_id`).
pub(crate) type Shared = RefCell<BTreeMap<u64, Rc<RefCell<Layered>>>>;

/// What is needed to read any layer of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    pub(crate) keras: Keras,
    pub(crate) options: &'a Options,
    pub(crate) shared: &'a Shared,
    /// How many layers stand around the one that is read.
    pub(crate) depth: u32,
}

impl<'a> Reader<'a> {
    /// The layer that this object is in its model: the same one where it stood before.
    pub(crate) fn layer(&self, object: &Object<'_>, within: bool) -> Result<Rc<RefCell<Layered>>, String> {
        let id = object.raw.get("shared_object_id").and_then(Value::as_u64);
        let same = |layer: &Rc<RefCell<Layered>>| {
            let facts = &layer.borrow().configured.facts;
            facts.class == object.class() && facts.name == object.name()
        };
        if let Some(known) = id.and_then(|id| self.shared.borrow().get(&id).cloned()).filter(same) {
            return Ok(known);
        }
        let layer = Rc::new(RefCell::new(Layered::new(self.configure(object, within)?)));
        if let Some(id) = id {
            self.shared.borrow_mut().insert(id, layer.clone());
        }
        Ok(layer)
    }

    /// The layer that this object is. `within` tells whether all models and layers around it are trainable.
    pub(crate) fn configure(&self, object: &Object<'_>, within: bool) -> Result<Configured, String> {
        if self.depth > MAX_DEPTH {
            return Err(format!("layers are nested deeper than {MAX_DEPTH}"));
        }
        let facts = object.facts(self.keras, within)?;
        let source =
            Source { object: *object, facts: &facts, reader: Reader { depth: self.depth + 1, ..*self } };
        let layer = layers::build(&source)?;
        Ok(Configured { facts, layer })
    }
}

/// What a layer is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) object: Object<'a>,
    pub(crate) facts: &'a Facts,
    pub(crate) reader: Reader<'a>,
}

impl Source<'_> {
    /// The class without a package.
    pub(crate) fn class(&self) -> &str {
        self.object.class_name
    }

    /// The config as the layer's own struct. What the struct does not name is not read.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, String> {
        config::read(self.object.config, self.facts.keras)
    }

    /// The layer that the config holds under `key`.
    pub(crate) fn inner(&self, key: &str) -> Result<Configured, String> {
        match self.object.config.get(key) {
            Some(Value::Null) | None => Err(format!("its config has no `{key}`")),
            Some(value) => self.layer(value),
        }
    }

    /// The layer that the config may hold under `key`.
    pub(crate) fn optional_inner(&self, key: &str) -> Result<Option<Configured>, String> {
        match self.object.config.get(key) {
            Some(Value::Null) | None => Ok(None),
            Some(value) => self.layer(value).map(Some),
        }
    }

    /// The layers that the config holds under `key`.
    pub(crate) fn inners(&self, key: &str) -> Result<Vec<Configured>, String> {
        match self.object.config.get(key) {
            Some(Value::Array(list)) => list.iter().map(|value| self.layer(value)).collect(),
            _ => Err(format!("its config has no list `{key}`")),
        }
    }

    fn layer(&self, value: &Value) -> Result<Configured, String> {
        let object = Object::read(value)?;
        let inside = |message| format!("in its layer {} ({}): {message}", object.name(), object.class());
        self.reader.configure(&object, self.facts.trainable).map_err(inside)
    }

    /// The number of spatial axes that the class name tells: `Conv2D` has two.
    pub(crate) fn spatial_axes(&self) -> Result<usize, String> {
        let digit = self.class().bytes().rev().find(u8::is_ascii_digit);
        digit
            .map(|d| usize::from(d - b'0'))
            .ok_or_else(|| "its class does not tell the number of axes".to_owned())
    }
}

/// A layer as the trait's object.
pub(crate) fn boxed(
    layer: impl crate::layer::Layer + 'static,
) -> Result<Arc<dyn crate::layer::Layer>, String> {
    Ok(Arc::new(layer))
}
