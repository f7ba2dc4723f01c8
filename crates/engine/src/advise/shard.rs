//! Sharing among several GPUs what each has whole under DDP: the optimizer's state (ZeRO-1), then gradients (ZeRO-2) and weights, too
//! (ZeRO-3).
//!
//! PyTorch's ZeRO-2 is `fully_shard` that keeps weights whole after forward: it gathers them once a step in the place of twice, and holds
//! their parts beside them (torch/distributed/fsdp/_fully_shard/_fully_shard.py, `reshard_after_forward`).

use super::{Api, Change, Kind, Level, Situation, checkpoint, snippet};
use crate::parallel::{Parallel, Sharding};
use crate::{Mode, Model};

pub(super) const CHANGE: Change = Change {
    name: "shard",
    effort: 2,
    kind: Kind::Step,
    cost: "more traffic between the GPUs; checkpoints are put together from parts",
    levels,
};

fn levels(model: &Model, now: &Situation) -> Vec<Level> {
    let whole = |p: &Parallel| {
        p.sharding == Sharding::Ddp && p.gpus > 1 && p.replicas() == p.gpus && p.deepspeed.is_none()
    };
    let Some(shared) = now.plan.parallel.filter(whole) else { return Vec::new() };
    if now.plan.mode != Mode::Train || now.api != Some(Api::Pytorch) {
        return Vec::new();
    }
    let level = |(sharding, file, title): (Sharding, &str, &str)| {
        let mut situation = now.clone();
        situation.plan.parallel = Some(Parallel { sharding, ..shared });
        let lists = checkpoint::lists(model, &now.plan);
        let snippet = snippet::lines(&situation, file, &[("LISTS", lists)])?;
        Some(Level { title: title.into(), situation, snippet, cost: CHANGE.cost })
    };
    let states = (Sharding::Zero1, "zero-1", "optimizer states split (ZeRO-1)");
    let gradients = (Sharding::Zero2, "zero-2", "states and gradients split with FSDP (ZeRO-2)");
    let all = (Sharding::Zero3, "zero-3", "all split with FSDP (ZeRO-3)");
    [states, gradients, all].into_iter().filter_map(level).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Around, Card, advise};
    use super::*;
    use crate::Plan;
    use memfit_graph::{Attributes, Binding, DType, Graph, Role, Shape, Type};

    #[test]
    fn what_each_gpu_has_whole_is_split() {
        let mut g = Graph::default();
        let ty = |dims: [u64; 2]| Type::tensor(DType::Float32, Shape::from(dims));
        let mut x = g.add_tensor("x", ty([8, 4096]), Role::Input);
        g.inputs = vec![x];
        for i in 0..4 {
            let w = g.add_tensor(format!("blocks.{i}.w"), ty([4096, 4096]), Role::Initializer);
            x = g.push("MatMul", Attributes::default(), &[x, w], &format!("y{i}")).unwrap();
            g.nodes.last_mut().unwrap().scope = format!("blocks.{i}").into();
        }
        g.outputs = vec![x];
        let model = Model::new(g, "m", "onnx", 4);
        let look = |parallel, size| {
            let plan = Plan { parallel, ..Plan::default() };
            let card = Card::find(size).unwrap();
            let advice = advise(&model, &Binding::default(), &plan, &card, &Around::default()).unwrap();
            advice.changes
        };
        let found = look(Some(Parallel::data(4, Sharding::Ddp)), "2GiB");
        let of = |name| found.iter().find(|change| change.name == name);
        let shard = of("shard").unwrap();
        assert!(shard.saving > 256 << 20 && shard.snippet.contains("ZeroRedundancyOptimizer("), "{shard:?}");
        let smaller = look(Some(Parallel::data(4, Sharding::Ddp)), "1GiB");
        let all = smaller.iter().find(|change| change.name == "shard").unwrap();
        assert!(all.saving > shard.saving && all.snippet.contains("model.blocks"), "{all:?}");
        let between = look(Some(Parallel::data(4, Sharding::Ddp)), "1800MiB");
        let gradients = between.iter().find(|change| change.name == "shard").unwrap();
        assert!(
            (shard.saving..all.saving).contains(&gradients.saving)
                && gradients.snippet.contains("fully_shard(block, reshard_after_forward=False)"),
            "{gradients:?}"
        );
        // A rank that runs a step again alone leaves the others waiting for its gradients.
        assert!(of("retry").is_none());
        assert!(look(None, "2GiB").iter().all(|change| change.name != "shard"));
    }
}
