//! A host in words: `gtx-1080-ti, torch 1.12, display`. What they mean for the card and for the plan.

use super::typed;
use crate::failure::Failure;
use memfit_engine::devices::Card;
use memfit_engine::{Framework, Plan};

/// Every word, for the message about one that is not known.
const WORDS: &str = "torch 1.12, tensorflow, eager-loading, lazy-loading, display, others 1GiB, cudnn-benchmark, \
                     expandable-segments, memory-growth, cuda-malloc-async, fraction 0.8, limit 4GiB";

/// Changes a card and a plan by the words of `--stack`, or those of `--vs` behind the card's name.
pub(super) fn apply(words: &str, card: &mut Card, plan: &mut Plan) -> Result<(), Failure> {
    words.split(',').map(str::trim).filter(|w| !w.is_empty()).try_for_each(|word| one(word, card, plan))
}

/// The framework, where the words name one.
pub(super) fn framework(words: &str) -> Option<Framework> {
    let name = |word: &str| word.trim().split([' ', '=']).next().map(str::to_ascii_lowercase);
    words.split(',').filter_map(name).filter_map(|name| called(&name)).next_back()
}

/// The framework of this name.
fn called(name: &str) -> Option<Framework> {
    match name {
        "torch" | "pytorch" => Some(Framework::Pytorch),
        "tensorflow" | "tf" | "keras" => Some(Framework::Tensorflow),
        _ => None,
    }
}

/// The framework's release, where the words name one.
pub(super) fn release(words: &str) -> Option<(u32, u32)> {
    let names = ["torch", "pytorch", "tensorflow", "tf"];
    words.split(',').find_map(|word| {
        let (name, value) = word.trim().split_once([' ', '='])?;
        names.contains(&&*name.to_ascii_lowercase()).then(|| version(value.trim()))?
    })
}

/// The first of these words that is among them.
pub(super) fn says<'a>(words: &str, any: &[&'a str]) -> Option<&'a str> {
    let named = |word: &str, name: &str| {
        let said = word.trim().split([' ', '=']).next().unwrap_or_default();
        said.eq_ignore_ascii_case(name)
    };
    any.iter().copied().find(|name| words.split(',').any(|word| named(word, name)))
}

fn one(word: &str, card: &mut Card, plan: &mut Plan) -> Result<(), Failure> {
    let lower = word.to_ascii_lowercase();
    let (name, value) = lower.split_once([' ', '=']).unwrap_or((&lower, ""));
    let value = value.trim();
    let wrong = |message: String| Failure::new(format!("`{word}`"), message);
    match name {
        "torch" | "pytorch" => {
            plan.framework = Framework::Pytorch;
            // Lazy loading came with 1.13.
            card.eager_loading = !value.is_empty() && version(value).is_some_and(|v| v < (1, 13));
        }
        "tensorflow" | "tf" | "keras" => {
            plan.framework = Framework::Tensorflow;
            // Keras 2 compiles a step only where it is told to; from TensorFlow 2.16 on it is Keras 3 (`Usual::of`).
            plan.xla &= name == "keras" || version(value).is_none_or(|v| v >= (2, 16));
        }
        "eager-loading" => card.eager_loading = true,
        "lazy-loading" => card.eager_loading = false,
        "display" => card.display = true,
        "others" | "other-processes" => card.other_processes = typed::memory(value).map_err(wrong)?,
        "cudnn-benchmark" => plan.cudnn_benchmark = true,
        "expandable-segments" => plan.allocator.pytorch.expandable_segments = true,
        "memory-growth" => plan.allocator.memory_growth = true,
        "cuda-malloc-async" => plan.allocator.cuda_malloc_async = true,
        "fraction" => plan.allocator.memory_fraction = Some(typed::thousandths(value).map_err(wrong)?),
        "limit" => plan.allocator.memory_limit = Some(typed::memory(value).map_err(wrong)?),
        _ => return Err(wrong("not known of a host".into()).hint(format!("known are: {WORDS}"))),
    }
    Ok(())
}

fn version(text: &str) -> Option<(u32, u32)> {
    let (major, rest) = text.split_once('.').unwrap_or((text, "0"));
    let minor = rest.split('.').next().unwrap_or("0");
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_change_the_card_and_the_plan() {
        let (mut card, mut plan) = (Card::find("t4").unwrap(), Plan::default());
        apply("torch 1.12.1, display, others 1.5GiB, fraction 0.5", &mut card, &mut plan).unwrap();
        assert!(card.eager_loading && card.display);
        assert_eq!((card.other_processes.0, plan.allocator.memory_fraction), (3 << 29, Some(500)));
        assert_eq!(release("display, TensorFlow 2.10.1"), Some((2, 10)));
        assert_eq!((release("torch"), release("fraction 0.5")), (None, None));
        assert_eq!(framework("display, TensorFlow 2.16"), Some(Framework::Tensorflow));
        assert_eq!(framework("display, others 1GiB"), None);
        apply("torch 2.10", &mut card, &mut plan).unwrap();
        assert!(!card.eager_loading);
        for wrong in ["cuda 11", "others many", "fraction 2"] {
            assert!(apply(wrong, &mut card, &mut plan).is_err(), "{wrong}");
        }
    }
}
