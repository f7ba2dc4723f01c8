//! What a process holds on a card before its allocator has anything: the driver's context and the libraries' own memory.
//!
//! It is not published and depends on the driver, the card, and on which kernels have been loaded: with lazy loading (the
//! default since PyTorch 1.13 and CUDA 12.2) a context grows as kernels are first used. So it is a range of items, each
//! with its source, not a number. The figures for a whole PyTorch training process on an A100 contain everything that an
//! allocator replay does not explain.

use super::{Device, Generation, Vendor};
use crate::{Framework, Plan};
use memfit_graph::Bytes;

/// What the driver's own item is called.
pub const DRIVER: &str = "driver context";

/// A part of the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextItem {
    /// What it is.
    pub name: &'static str,
    /// The least.
    pub low: Bytes,
    /// What is expected.
    pub expected: Bytes,
    /// The most.
    pub high: Bytes,
    /// Where the figures come from.
    pub source: &'static str,
}

/// An item in MiB.
const fn item(name: &'static str, mib: [u64; 3], source: &'static str) -> ContextItem {
    let [low, expected, high] = mib;
    ContextItem { name, low: Bytes::mib(low), expected: Bytes::mib(expected), high: Bytes::mib(high), source }
}

/// The items of a process that trains with a framework on a card, largest first.
///
/// Scratch memory that the framework takes from its own allocator (cuBLAS in PyTorch, all of it in TensorFlow) is not
/// among them.
pub fn context(device: &Device, framework: Framework) -> Vec<ContextItem> {
    match device.vendor {
        Vendor::Nvidia => {}
        Vendor::Amd => return amd(device.generation, framework),
        Vendor::Apple => {
            return vec![item(
                "runtime",
                [100, 400, 1500],
                "no figures found: a guess that is wide on purpose",
            )];
        }
    }
    let driver = match device.generation {
        Generation::Pascal => item(
            DRIVER,
            [100, 150, 320],
            "Titan V without PyTorch's kernels 320 (pytorch#28394), older cards less",
        ),
        Generation::Volta | Generation::Turing => {
            item(DRIVER, [150, 250, 320], "Titan V without PyTorch's kernels 320 (pytorch#28394)")
        }
        Generation::Ampere | Generation::Ada => item(
            DRIVER,
            [256, 300, 430],
            "RTX 3090, driver 610: 256 (InvokeAI#9413); RTX 6000 Ada, CUDA 13.0: 426 with kernels (unsloth-zoo#1053)",
        ),
        Generation::Unknown => {
            item(DRIVER, [100, 300, 700], "of a card that is not known: from the least to the most of all")
        }
        _ => item(
            DRIVER,
            [300, 450, 700],
            "maintainers' 300 to 400 with lazy loading (pytorch#107667, #109888), more on larger chips",
        ),
    };
    let libraries = match framework {
        Framework::Pytorch => pytorch_kernels(device.generation),
        Framework::Tensorflow => item(
            "kernels of TensorFlow and cuDNN",
            [100, 250, 600],
            "A100 40 GB: TensorFlow's log leaves 400 to 500 in all before its pool begins; kernels come later",
        ),
        Framework::Burn => item(
            "compiled kernels",
            [20, 60, 200],
            "no figures found: kernels are compiled one by one, no library is loaded whole",
        ),
    };
    vec![libraries, driver]
}

/// ROCm's runtime with the kernels of its libraries. The workspace that PyTorch gives the library which most products run on is a
/// tensor of the step; that of the other one is here, since it depends on the shapes whether it is used.
fn amd(generation: Generation, framework: Framework) -> Vec<ContextItem> {
    let mut items = vec![item(
        "ROCm's runtime and kernels",
        [100, 600, 1500],
        "a card of 24 GB: 0.62 GiB beside PyTorch's memory in a server of a small model (ServerlessLLM's documentation, vLLM 0.6); \
         none of training was found",
    )];
    if framework == Framework::Pytorch {
        let (name, threads) = ("hipBLAS beside hipBLASLt", 2);
        let other = match generation {
            Generation::Cdna3 => 128,
            Generation::Cdna2 | Generation::Rdna4 => 32,
            _ => 76,
        };
        items.push(item(
            name,
            [0, 0, threads * other],
            "CublasHandlePool.cpp: 32 MiB for hipBLAS, 128 from MI300 on, 76 for hipBLASLt",
        ));
    }
    items
}

/// The items of a process that follows a plan: with the cuDNN search on, PyTorch loads the kernels of every plan that it tries.
pub fn context_of(device: &Device, plan: &Plan) -> Vec<ContextItem> {
    let mut items = context(device, plan.framework);
    if plan.cudnn_benchmark && plan.framework == Framework::Pytorch && device.vendor == Vendor::Nvidia {
        items.insert(
            0,
            item(
                "kernels of cuDNN's search",
                [200, 700, 800],
                "A100 40 GB, training models with the search on: a replay leaves 1,720 over in all (GPUMemNet's measurements); \
                 RTX 3090 in fp16: what fits and what does not leaves 1,495 to 1,725 in all",
            ),
        );
    }
    items
}

/// PyTorch and cuDNN carry the kernels of all generations that they support, and load those of the card: all at once before
/// PyTorch 1.13, as they are used since.
fn pytorch_kernels(generation: Generation) -> ContextItem {
    let name = "kernels of PyTorch, cuDNN and cuBLAS";
    match generation {
        Generation::Pascal => {
            item(name, [100, 570, 900], "GTX 1080, PyTorch 1.8: 721 in all (pytorch#55277)")
        }
        Generation::Volta | Generation::Turing => item(
            name,
            [150, 760, 1300],
            "Titan V, PyTorch 1.3: 1,008 in all (pytorch#28394); RTX 2080 Ti, 1.6: 1,035 with 164 of tensors (#49877); \
             lazy loading saves 362 at the start (PR 86509)",
        ),
        _ => item(
            name,
            [150, 720, 1100],
            "training a ConvNeXt with PyTorch 2.6 (milabench's measurements): a replay leaves 980 to 1,070 over on an L40S, \
             1,240 to 1,270 on an H100, at all batch sizes; without training 426 in all (unsloth-zoo#1053)",
        ),
    }
}

/// The sum of the items.
pub fn total(items: &[ContextItem]) -> ContextItem {
    let sum = |of: fn(&ContextItem) -> Bytes| items.iter().map(of).sum();
    ContextItem {
        name: "context",
        low: sum(|i| i.low),
        expected: sum(|i| i.expected),
        high: sum(|i| i.high),
        source: "the sum of its items",
    }
}

#[cfg(test)]
mod tests {
    use super::super::{catalogue, find};
    use super::*;

    #[test]
    fn ranges_are_ordered_and_leave_room_on_every_card() {
        for card in catalogue() {
            for framework in [Framework::Pytorch, Framework::Tensorflow, Framework::Burn] {
                let items = context(card, framework);
                assert!(items.iter().all(|i| i.low <= i.expected && i.expected <= i.high), "{}", card.id);
                assert!(total(&items).high < card.usable(), "{}", card.id);
            }
        }
    }

    #[test]
    fn public_figures_lie_inside() {
        let range = |id: &str, framework| total(&context(find(id).unwrap(), framework));
        // Per figure: the card, the framework, MiB in all.
        for (id, framework, mib) in [
            ("l40s", Framework::Pytorch, 1_090),
            ("h100-80gb", Framework::Pytorch, 1_300),
            ("rtx-3090", Framework::Pytorch, 1_001),
            ("rtx-6000-ada", Framework::Pytorch, 426),
            ("gtx-1080", Framework::Pytorch, 721),
            ("titan-v", Framework::Pytorch, 1_008),
            ("rtx-2080-ti", Framework::Pytorch, 870),
            ("a100-40gb", Framework::Tensorflow, 518),
        ] {
            let range = range(id, framework);
            assert!(range.low <= Bytes::mib(mib) && Bytes::mib(mib) <= range.high, "{id}: {range:?}");
        }
        let searches = Plan { cudnn_benchmark: true, ..Plan::default() };
        let searching = total(&context_of(find("a100-40gb").unwrap(), &searches));
        assert_eq!(searching.expected - range("a100-40gb", Framework::Pytorch).expected, Bytes::mib(700));
        assert!(searching.low <= Bytes::mib(1_855) && Bytes::mib(1_855) <= searching.high);
    }
}
