//! PyTorch's training loop is one loop, whatever is changed of it: the same lines with autocast and a gradient scaler, clipped gradients,
//! batches in pinned memory, a sampler for several processes, or the schedule of a pipeline.
//!
//! Sources: PyTorch's automatic mixed precision examples (where a scaler unscales before gradients are clipped) and its release notes
//! (`torch.amp.GradScaler` 2.3; `torch.cuda.amp` 1.6).

use super::snippet::Release;
use super::{Code, constructor};
use crate::Plan;
use memfit_graph::DType;

/// The changes whose lines are the whole loop; of several the first has it.
pub(super) const CHANGES: [&str; 4] = ["retry", "accumulate", "mixed-precision", "prefetch"];

/// The loops that load a batch begin so.
const LOADER: &str = "loader = torch.utils.data.DataLoader(";

/// Micro-batches of a step; a pipeline has at least as many as stages.
pub(super) fn micro_batches(plan: &Plan) -> u32 {
    plan.parallel.map_or(plan.accumulate, |shared| shared.micro_batches(plan.accumulate))
}

/// The file that has the loop of a change under this plan.
pub(super) fn file<'a>(name: &'a str, plan: &Plan) -> &'a str {
    let staged = plan.parallel.is_some_and(|shared| shared.pipeline > 1);
    match name {
        "accumulate" | "mixed-precision" | "prefetch" if staged => "pipeline",
        "mixed-precision" | "prefetch" if plan.accumulate > 1 => "accumulate",
        name => name,
    }
}

/// The lines as the plan runs them, before values are filled in; none where no such loop is known.
pub(super) fn adapted(mut text: String, name: &str, plan: &Plan, code: &Code) -> Option<String> {
    if plan.clip_norm {
        text = constructor::clipped(&text, code);
    }
    text = under_autocast(&text, plan, code.release)?;
    if name == "prefetch" {
        text = pinned(&text, "__MICRO__");
    }
    if plan.parallel.is_some_and(|shared| shared.replicas() > 1) {
        text = text.replace("shuffle=True", "sampler=torch.utils.data.DistributedSampler(dataset)");
    }
    Some(text)
}

/// A loop with its forward pass under autocast and, of float16, with scaled gradients.
pub(super) fn under_autocast(text: &str, plan: &Plan, release: Option<Release>) -> Option<String> {
    let is_forward = |line: &str| line.starts_with("loss = ") || line.starts_with("schedule.step(");
    let runs = text.lines().any(|line| is_forward(line.trim_start()));
    let Some(dtype) = plan.precision.autocast().filter(|_| runs && !text.contains("autocast(")) else {
        return Some(text.into());
    };
    let scales = dtype == DType::Float16 && text.contains("loss.backward()");
    if dtype == DType::Float16 && text.contains("schedule.step(") {
        // A schedule runs backward itself, on a loss that no scaler sees.
        return None;
    }
    let name = if dtype == DType::Float16 { "float16" } else { "bfloat16" };
    let new = release.is_none_or(|release| release >= (2, 3));
    let autocast = match new {
        true => format!("torch.autocast(device, dtype=torch.{name})"),
        false if dtype == DType::Float16 => "torch.cuda.amp.autocast()".into(),
        false => format!("torch.cuda.amp.autocast(dtype=torch.{name})"),
    };
    let scaler = if new { "torch.amp.GradScaler(device)" } else { "torch.cuda.amp.GradScaler()" };
    let setup = [
        new.then(|| "device = next(model.parameters()).device.type".into()),
        scales.then(|| format!("scaler = {scaler}")),
    ];
    let mut setup: Vec<String> = setup.into_iter().flatten().collect();
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let words = line.trim_start();
        let indent = &line[..line.len() - words.len()];
        if !words.is_empty() && !words.starts_with("from ") && !words.starts_with("import ") {
            lines.append(&mut setup);
        }
        match words {
            _ if is_forward(words) => {
                lines.push(format!("{indent}with {autocast}:"));
                lines.push(format!("{indent}    {words}"));
            }
            "loss.backward()" if scales => lines.push(format!("{indent}scaler.scale(loss).backward()")),
            "optimizer.step()" if scales => {
                lines.extend(["step(optimizer)", "update()"].map(|call| format!("{indent}scaler.{call}")));
            }
            _ => {
                // Gradients are clipped as they are, not as they were scaled.
                let clips = scales && words.starts_with("torch.nn.utils.clip_grad_norm_(");
                lines.extend(clips.then(|| format!("{indent}scaler.unscale_(optimizer)")));
                lines.push(line.into());
            }
        }
    }
    Some(lines.join("\n"))
}

/// A loop whose batches wait in pinned host memory; one is copied when its step begins.
pub(super) fn pinned(text: &str, batch: &str) -> String {
    let pinned = "pin_memory=torch.cuda.is_available())";
    let mut text =
        at_each_batch(text, "x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)");
    if !text.contains("device = next(") {
        text = format!("device = next(model.parameters()).device\n{text}");
    }
    let loaded = text.lines().find(|line| line.starts_with(LOADER)).and_then(|line| line.strip_suffix(')'));
    match loaded {
        Some(line) => text.replace(&format!("{line})"), &format!("{line}, {pinned}")),
        None => format!("{LOADER}dataset, batch_size={batch}, shuffle=True, {pinned}\n{text}"),
    }
}

/// A loop with a line more for each batch, before anything else happens to it.
pub(super) fn at_each_batch(text: &str, line: &str) -> String {
    let mut lines: Vec<String> = text.lines().map(Into::into).collect();
    let starts = |l: &String| {
        let words = l.trim_start();
        words.starts_with("for x, y in ") || words.starts_with("for i, (x, y) in ")
    };
    if let Some(at) = lines.iter().position(starts) {
        let indent = lines[at].len() - lines[at].trim_start().len() + 4;
        lines.insert(at + 1, format!("{:indent$}{line}", ""));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Precision;

    const LOOP: &str =
        "import os\n\nfor x, y in loader:\n    loss = f(x)\n    loss.backward()\n    optimizer.step()";

    fn adapted(text: &str, precision: Precision, release: Option<Release>) -> Option<String> {
        let plan = Plan { clip_norm: true, precision, ..Plan::default() };
        super::adapted(text.into(), "accumulate", &plan, &Code { release, ..Code::default() })
    }

    #[test]
    fn gradients_are_clipped_as_they_are_before_a_step() {
        let clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)";
        assert_eq!(
            adapted(LOOP, Precision::MixedFp16, None).unwrap(),
            format!(
                "import os\n\ndevice = next(model.parameters()).device.type\nscaler = torch.amp.GradScaler(device)\n\
                 for x, y in loader:\n    with torch.autocast(device, dtype=torch.float16):\n        loss = f(x)\n    \
                 scaler.scale(loss).backward()\n    scaler.unscale_(optimizer)\n    {clip}\n    \
                 scaler.step(optimizer)\n    scaler.update()"
            )
        );
        let old = adapted(LOOP, Precision::MixedBf16, Some((2, 2))).unwrap();
        assert!(old.contains("cuda.amp.autocast(dtype=torch.bfloat16)") && !old.contains("scale"), "{old}");
        assert!(
            adapted(LOOP, Precision::Fp32, None).unwrap().ends_with(&format!("{clip}\n    optimizer.step()"))
        );
    }

    #[test]
    fn a_schedule_runs_backward_without_a_scaler() {
        let text = "for x, y in loader:\n    schedule.step(x)\n    optimizer.step()";
        assert!(adapted(text, Precision::MixedFp16, None).is_none());
        let brain = adapted(text, Precision::MixedBf16, None).unwrap();
        assert!(brain.contains("bfloat16):\n        schedule.step(x)\n"), "{brain}");
    }

    #[test]
    fn a_batch_is_copied_when_its_step_begins() {
        let text = "loader = torch.utils.data.DataLoader(dataset, batch_size=4)\nfor i, (x, y) in enumerate(loader):\n    f(x)";
        let pinned = pinned(text, "4");
        assert!(
            pinned.contains("batch_size=4, pin_memory=") && pinned.contains("loader):\n    x, y = x.to(")
        );
    }
}
