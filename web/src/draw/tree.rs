//! Layers as the tree of modules that their paths speak of.

use crate::protocol::Layer;
use std::collections::BTreeMap;

/// A module: a layer, or what several layers' paths begin with.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Module {
    /// The last part of its path.
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) children: Vec<Module>,
    /// Layers in it, itself included.
    pub(crate) layers: usize,
    pub(crate) op: String,
    pub(crate) shape: String,
    pub(crate) parameters: u64,
    pub(crate) saved: u64,
    /// At the peak, by category.
    pub(crate) parts: [u64; 9],
}

impl Module {
    pub(crate) fn at_peak(&self) -> u64 {
        self.parts.iter().fold(0, |n, p| n.saturating_add(*p))
    }

    /// The category with the most bytes.
    pub(crate) fn main_category(&self) -> usize {
        (0..self.parts.len()).max_by_key(|i| (self.parts[*i], std::cmp::Reverse(*i))).unwrap_or_default()
    }

    fn add(&mut self, layer: &Layer) {
        self.layers += 1;
        self.parameters = self.parameters.saturating_add(layer.parameters);
        self.saved = self.saved.saturating_add(layer.saved);
        for (sum, part) in self.parts.iter_mut().zip(&layer.parts) {
            *sum = sum.saturating_add(*part);
        }
        // The last layer's output is the module's.
        self.shape.clone_from(&layer.shape);
        if self.layers == 1 {
            self.op.clone_from(&layer.op);
        } else {
            self.op.clear();
        }
    }
}

/// Whether a module has another one in it, or is it.
fn holds(module: &str, path: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '/']))
}

/// Of these modules the innermost that has another one in it: where that is shown when it does not show itself.
pub(crate) fn innermost<'a>(modules: impl Iterator<Item = &'a str>, path: &str) -> Option<&'a str> {
    modules.filter(|module| !path.is_empty() && holds(module, path)).max_by_key(|module| module.len())
}

/// The modules around one, from the outermost.
pub(crate) fn around<'a>(trees: &'a [Module], path: &str) -> Vec<&'a str> {
    let (mut found, mut level) = (Vec::new(), trees);
    while let Some(module) = level.iter().find(|m| m.path != path && holds(&m.path, path)) {
        found.push(&*module.path);
        level = &module.children;
    }
    found
}

/// The trees of all layers, in forward order; modules with a single child are joined with it.
pub(crate) fn trees(layers: &[Layer]) -> Vec<Module> {
    let mut root = Module::default();
    let mut places: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for layer in layers {
        let mut path = String::new();
        let mut place: Vec<usize> = Vec::new();
        for part in components(&layer.name) {
            path.push_str(part);
            let parent = at(&mut root, &place);
            let next = match places.get(&path) {
                Some(known) => known.clone(),
                None => {
                    let name = part.trim_matches(['.', '/']).to_owned();
                    parent.children.push(Module { name, path: path.clone(), ..Module::default() });
                    let mut next = place.clone();
                    next.push(parent.children.len() - 1);
                    places.insert(path.clone(), next.clone());
                    next
                }
            };
            place = next;
            at(&mut root, &place).add(layer);
        }
    }
    root.children.into_iter().map(joined).collect()
}

fn at<'a>(root: &'a mut Module, place: &[usize]) -> &'a mut Module {
    place.iter().fold(root, |module, i| &mut module.children[*i])
}

fn joined(mut module: Module) -> Module {
    while module.children.len() == 1 && module.children.iter().all(|c| c.layers == module.layers) {
        let Some(mut child) = module.children.pop() else { break };
        child.name = format!("{}.{}", module.name, child.name);
        module = child;
    }
    module.children = module.children.into_iter().map(joined).collect();
    module
}

/// The parts of a path, each with the separator before it, so that they join to the path again.
fn components(name: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    for (i, _) in name.match_indices(['.', '/']) {
        if name[start..i].trim_matches(['.', '/']).is_empty() {
            continue;
        }
        parts.push(&name[start..i]);
        start = i;
    }
    if start < name.len() || parts.is_empty() {
        parts.push(&name[start..]);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(name: &str, bytes: u64) -> Layer {
        Layer { name: name.into(), op: "Conv".into(), parts: vec![0, 0, 0, 0, bytes], ..Layer::default() }
    }

    #[test]
    fn paths_become_a_tree_that_re_adds() {
        let layers = [
            layer("stem", 1),
            layer("a.0.x", 2),
            layer("a.0.y", 3),
            layer("a.1.x", 4),
            layer("/b/c/Conv", 5),
        ];
        let trees = trees(&layers);
        let names: Vec<&str> = trees.iter().map(|m| &*m.name).collect();
        assert_eq!(names, ["stem", "a", "b.c.Conv"]);
        assert_eq!(trees.iter().map(Module::at_peak).sum::<u64>(), 15);
        let a = &trees[1];
        assert_eq!((a.layers, a.children.len(), a.children[0].at_peak(), a.main_category()), (3, 2, 5, 4));
        assert_eq!((&*a.children[1].name, &*a.children[1].path), ("1.x", "a.1.x"));
    }

    #[test]
    fn a_module_is_found_around_another() {
        let shown = ["layer1", "layer1.0", "layer10"];
        assert_eq!(innermost(shown.into_iter(), "layer1.0.conv1"), Some("layer1.0"));
        assert_eq!(innermost(shown.into_iter(), "layer10.3"), Some("layer10"));
        assert_eq!((innermost(shown.into_iter(), "fc"), innermost(shown.into_iter(), "")), (None, None));
        let trees = trees(&[layer("a.0.x", 2), layer("a.0.y", 3), layer("a.1.x", 4), layer("b", 1)]);
        assert_eq!((around(&trees, "a.0.y"), around(&trees, "b")), (vec!["a", "a.0"], vec![]));
    }

    #[test]
    fn odd_names_do_not_panic() {
        let layers: Vec<Layer> =
            ["", ".", "..", "/", "a..b", "é/ü.", "a"].iter().map(|n| layer(n, 1)).collect();
        assert_eq!(trees(&layers).iter().map(Module::at_peak).sum::<u64>(), 7);
    }
}
