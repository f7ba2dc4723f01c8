//! The state as the fragment of a URL and back: `#model=resnet50&batch=32&gpu=rtx-4090&set.seq=512`.
//!
//! Readable on purpose: people edit such links by hand. What is at its default is left out, what is not understood is
//! ignored. A fragment is never sent to a server.

use super::{Source, State, read_shape, shape};

/// How long a plan in a link may be; a longer one is no link of ours.
const MOST: usize = 16 << 10;
/// How long the structure of a model in a link may be. Browsers take more, what links are pasted into often does not.
pub(crate) const MOST_STRUCTURE: usize = 64 << 10;
/// What stands before it; it comes last.
const STRUCTURE: &str = "&graph=";

/// A fragment with the structure of the model in it.
pub(crate) fn with_structure(fragment: &str, packed: &str) -> String {
    format!("{fragment}{STRUCTURE}{packed}")
}

/// A fragment as its plan and the structure in it.
pub(crate) fn split(fragment: &str) -> (&str, Option<&str>) {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match fragment.split_once(STRUCTURE) {
        Some((plan, packed)) => (plan, Some(packed).filter(|p| p.chars().all(plain))),
        None => (fragment, None),
    }
}

impl State {
    /// The fragment, without its `#`.
    pub(crate) fn link(&self) -> String {
        let d = State::default();
        let mut pairs: Vec<(String, String)> = Vec::new();
        let mut put = |key: &str, value: &str, differs: bool| {
            if differs {
                pairs.push((key.to_owned(), value.to_owned()));
            }
        };
        match &self.source {
            Source::None => {}
            Source::Example(name) => put("model", name, true),
            Source::Own(name) => put("file", name, true),
        }
        put("batch", &self.batch.to_string(), true);
        put("gpu", &self.gpu, true);
        put("framework", &self.framework, self.framework != d.framework);
        put("others", &self.others.to_string(), self.others > 0);
        put("precision", &self.precision, self.precision != d.precision);
        put("mode", &self.mode, self.mode != d.mode);
        put("optimizer", &self.optimizer, self.optimizer != d.optimizer);
        put("impl", &self.optimizer_impl, self.optimizer_impl != d.optimizer_impl);
        put("accumulate", &self.accumulate.to_string(), self.accumulate != d.accumulate);
        put("checkpoint", &self.checkpoint, self.checkpoint != d.checkpoint);
        put("loss", &self.loss, self.loss != d.loss);
        put("parallel", &self.sharing, !self.sharing.is_empty());
        put("alloc", &self.conf, !self.conf.is_empty());
        put("tied", &self.tied, !self.tied.is_empty());
        for (word, n) in &self.amounts {
            put(word, &n.to_string(), true);
        }
        for flag in self.flags() {
            put(flag.word, "1", true);
        }
        for glob in &self.freeze {
            put("freeze", glob, true);
        }
        for (name, n) in &self.set {
            put(&format!("set.{name}"), &n.to_string(), true);
        }
        for (name, dims) in &self.input {
            put(&format!("input.{name}"), &shape(dims), true);
        }
        for (name, what) in &self.layers {
            put(&format!("layer.{name}"), what, true);
        }
        let pairs: Vec<String> = pairs.iter().map(|(k, v)| format!("{}={}", escape(k), escape(v))).collect();
        pairs.join("&")
    }

    /// The state that a fragment says.
    pub(crate) fn from_link(fragment: &str) -> State {
        let mut state = State::default();
        let (fragment, _) = split(fragment);
        if fragment.len() > MOST {
            return state;
        }
        for pair in fragment.trim_start_matches('#').split('&') {
            let Some((key, value)) = pair.split_once('=') else { continue };
            state.take(&unescape(key), unescape(value));
        }
        state
    }

    fn take(&mut self, key: &str, value: String) {
        let one_of = |words: &[(&str, &str)]| words.iter().any(|(word, _)| *word == value);
        match key {
            "model" => self.source = Source::Example(value),
            "file" => self.source = Source::Own(value),
            "batch" => self.batch = number(&value).unwrap_or(self.batch),
            "gpu" => self.gpu = value,
            "others" => self.others = number(&value).unwrap_or_default(),
            "framework" if one_of(&super::FRAMEWORKS) => self.framework = value,
            "precision" if one_of(&super::PRECISIONS) => self.precision = value,
            "mode" if one_of(&super::MODES) => self.mode = value,
            "optimizer" => {
                let known = memfit_engine::optimizers::find(&value);
                self.optimizer = known.map_or_else(|| self.optimizer.clone(), |known| known.name().into());
            }
            "impl" if one_of(&super::IMPLEMENTATIONS) => self.optimizer_impl = value,
            "accumulate" => {
                self.accumulate = value.parse().ok().filter(|n| *n > 0).unwrap_or(self.accumulate)
            }
            "checkpoint" if one_of(&super::CHECKPOINTS) => self.checkpoint = value,
            "loss" if one_of(&super::LOSSES) => self.loss = value,
            "parallel" if one_of(&super::SHARINGS) => self.sharing = value,
            "alloc" => self.conf = value,
            "tied" if one_of(&super::TIED) => self.tied = value,
            _ if super::AMOUNTS.iter().any(|amount| amount.word == key) => {
                self.count(key, number(&value).unwrap_or_default());
            }
            "freeze" => self.freeze.push(value),
            _ => {
                if let (Some(name), Some(n)) = (key.strip_prefix("set."), number(&value)) {
                    self.set.insert(name.into(), n);
                } else if let (Some(name), Some(dims)) = (key.strip_prefix("input."), read_shape(&value)) {
                    self.input.insert(name.into(), dims);
                } else if let Some(name) = key.strip_prefix("layer.") {
                    self.layers.insert(name.into(), value);
                } else {
                    self.turn(key, value == "1");
                }
            }
        }
    }
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|n| *n > 0)
}

/// Percent-encodes what is not plain in a fragment.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.*:/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn unescape(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        let code = tail.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match (first, code) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            (b'+', _) => bytes.push(b' '),
            (byte, _) => bytes.push(*byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_link_brings_the_whole_state_back() {
        let state = State {
            source: Source::Own("größe & mehr=50 %.onnx".into()),
            gpu: "24.5GiB".into(),
            others: 1500,
            framework: "tensorflow".into(),
            batch: 7,
            precision: "mixed-fp16".into(),
            mode: "infer".into(),
            optimizer: "adamw".into(),
            optimizer_impl: "fused".into(),
            accumulate: 4,
            checkpoint: "block".into(),
            freeze: vec!["a.*".into(), "b+c".into()],
            loss: "mse".into(),
            sharing: "zero3".into(),
            conf: "max_split_size_mb:128".into(),
            tied: "no".into(),
            amounts: super::super::AMOUNTS.iter().map(|amount| amount.word).zip(2..).collect(),
            flags: super::super::FLAGS.iter().map(|flag| flag.word).collect(),
            set: BTreeMap::from([("seq len".into(), 512)]),
            input: BTreeMap::from([("x".into(), vec![1, 2])]),
            layers: BTreeMap::from([("my scale".into(), "shape=7x7,params=3".into())]),
        };
        let link = format!("#{}", state.link());
        assert_eq!(State::from_link(&link), state);
        let long = with_structure(&link, "aB-_9");
        assert_eq!((State::from_link(&long), split(&long).1), (state, Some("aB-_9")));
        assert_eq!(split("#batch=1&graph=<>").1, None);
        assert_eq!(State::from_link(&State::default().link()), State::default());
    }

    #[test]
    fn an_optimizer_in_a_link_is_the_one_that_the_page_offers() {
        assert_eq!(State::from_link("#optimizer=AdamW").optimizer, "adamw");
    }

    #[test]
    fn nonsense_is_ignored() {
        for fragment in
            ["#", "#batch=0&precision=fp8&x", "#%zz=%&batch=-1&set.=x&=&&&accumulate=0", "#optimizer=none"]
        {
            assert_eq!(State::from_link(fragment), State::default(), "{fragment}");
        }
        assert_eq!(State::from_link(&format!("#batch={}", "9".repeat(MOST))), State::default());
    }
}
