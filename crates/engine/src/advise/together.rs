//! Several changes are made at once: those of PyTorch's loop are written as one loop that does all of them, behind what is set up
//! before it.

use super::{Api, Combination, loops};

/// What is done to a batch before the model has it begins so.
const OF_BATCH: &str = "x = ";

/// The same changes with one loop.
pub(super) fn in_one_loop(mut all: Combination) -> Combination {
    let of = |name: &str| all.parts.iter().position(|part| part.0 == name);
    let Some(at) = loops::CHANGES.iter().find_map(|name| of(name)) else { return all };
    if all.after.api != Some(Api::Pytorch) {
        return all;
    }
    let (name, title, mut text) = all.parts.remove(at);
    let after = &all.after;
    text = loops::under_autocast(&text, &after.plan, after.code.release).unwrap_or(text);
    for (change, _, snippet) in &mut all.parts {
        let in_loop = |line: &&str| loops::CHANGES.contains(change) || line.starts_with(OF_BATCH);
        let (inside, before): (Vec<&str>, Vec<&str>) = snippet.lines().partition(in_loop);
        if !loops::CHANGES.contains(change) {
            text = inside.iter().fold(text, |text, line| loops::at_each_batch(&text, line));
        }
        if before.is_empty() {
            *snippet = format!("# In the loop of \"{title}\" below.");
        } else {
            *snippet = before.join("\n");
        }
    }
    if all.parts.iter().any(|part| part.0 == "prefetch") {
        text = loops::pinned(&text, &after.batch.unwrap_or(1).to_string());
    }
    all.parts.push((name, title, text));
    all
}

#[cfg(test)]
mod tests {
    use super::super::{Around, Card, advise};
    use super::*;
    use crate::{Model, Plan, Precision};
    use memfit_graph::{Attributes, Binding, DType, Graph, Role, Shape, Type};

    #[test]
    fn changes_of_the_loop_are_one_loop() {
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([64, 3, 64, 64])), Role::Input);
        g.inputs = vec![x];
        let w =
            g.add_tensor("c.w", Type::tensor(DType::Float32, Shape::from([8, 3, 1, 1])), Role::Initializer);
        g.outputs = vec![g.push("Conv", Attributes::default(), &[x, w], "y").unwrap()];
        let model = Model::new(g, "m", "onnx", 1);
        let plan =
            Plan { precision: Precision::MixedFp16, clip_norm: true, accumulate: 4, ..Plan::default() };
        let card = Card::find("24GiB").unwrap();
        let advice = advise(&model, &Binding::default(), &plan, &card, &Around::default()).unwrap();
        let part = |name, text: &str| (name, format!("do {name}"), text.to_owned());
        let all = Combination {
            parts: vec![
                part("prefetch", "for x, y in loader:\n    step()"),
                part(
                    "accumulate",
                    "for x, y in loader:\n    loss = f(x)\n    loss.backward()\n    clip\n    optimizer.step()",
                ),
                part("channels-last", "model = model.to(memory)\nx = x.to(memory)"),
            ],
            outcome: advice.now,
            after: advice.before,
        };
        let parts = in_one_loop(all).parts;
        let names: Vec<&str> = parts.iter().map(|part| part.0).collect();
        assert_eq!(names, ["prefetch", "channels-last", "accumulate"]);
        assert_eq!(parts[0].2, "# In the loop of \"do accumulate\" below.");
        assert_eq!(parts[1].2, "model = model.to(memory)");
        let text = &parts[2].2;
        assert!(
            text.contains("non_blocking=True)\n    x = x.to(memory)\n    with torch.autocast("),
            "{text}"
        );
        assert!(text.contains("    scaler.step(optimizer)\n    scaler.update()"), "{text}");
    }
}
