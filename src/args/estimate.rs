//! What `memfit estimate` takes.

use super::{FormatArgs, GpuArgs, HostsArgs, LifeArgs, ModelArgs, PlanArgs, typed};
use clap::Args;
use memfit_report::Depth;
use std::path::Path;

/// Tells the peak of one training step: how many bytes, in which phase and layer, and what they are.
///
/// The model's weights are never read, so a file of any size takes milliseconds. Sizes are 1024-based (MiB, GiB). With --gpu it
/// also says whether the step fits there, and exits with 1 where it does not.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  memfit estimate resnet50.onnx -b 32
  memfit estimate resnet50.onnx -b 64 --gpu rtx-3060 --other-processes 1GiB
  memfit estimate resnet50.onnx -b 64 --gpu rtx-3060 --vs 'gtx-1080-ti, torch 1.12'
  memfit estimate bert.onnx -b 16 --set seq=512 --precision mixed-bf16 --optimizer adamw
  memfit estimate unet.onnx --input image:4x3x512x512 --optimizer sgd --optimizer-impl fused
  memfit estimate llm.onnx -b 1 --set seq=2048 --freeze 'model.embed*' --depth 3 --top 40
  memfit estimate model.onnx -b 8 --format json | jq .peak.allocated_bytes")]
pub(crate) struct EstimateArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    #[command(flatten)]
    pub(crate) gpu: GpuArgs,
    #[command(flatten)]
    pub(crate) hosts: HostsArgs,
    #[command(flatten)]
    pub(crate) life: LifeArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    /// Fold layers to this many components of their path: a number, `auto` (as many as fit) or `all`
    #[arg(long, value_name = "N", default_value = "auto", value_parser = typed::depth, help_heading = "Output")]
    pub(crate) depth: Depth,
    /// Show at most this many layers, the largest at the peak: a number or `all`
    #[arg(long, value_name = "N", default_value = "30", value_parser = typed::top, help_heading = "Output")]
    pub(crate) top: usize,
}

impl EstimateArgs {
    /// Takes the paths beside the model's own as relative to a folder.
    pub(crate) fn read_from(&mut self, folder: &Path) {
        let files = self.life.with.iter_mut().chain(&mut self.life.with_frozen);
        for path in files.chain(self.gpu.files()).filter(|path| path.as_os_str() != "-") {
            *path = folder.join(&*path);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::args::{self, Cli};
    use clap::CommandFactory;
    use std::any::TypeId;
    use std::path::{Path, PathBuf};

    /// Every flag that takes a path is one of them, so that none that comes new is left out.
    #[test]
    fn all_paths_are_relative_to_the_folder() {
        let command = Cli::command();
        let estimate = command.find_subcommand("estimate").unwrap();
        let takes_path = |arg: &&clap::Arg| arg.get_value_parser().type_id() == TypeId::of::<PathBuf>();
        let flags: Vec<&str> =
            estimate.get_arguments().filter(takes_path).filter_map(|arg| arg.get_long()).collect();
        assert_eq!(flags, ["device-profile", "with", "with-frozen"]);
        let words = [
            "estimate",
            "m.onnx",
            "--device-profile",
            "p.json",
            "--with",
            "a.onnx",
            "--with-frozen",
            "/b.onnx",
        ];
        let mut asked = args::estimate(words.iter().map(|word| (*word).to_owned())).unwrap();
        asked.read_from(Path::new("models"));
        assert_eq!(asked.life.with, [Path::new("models/a.onnx")]);
        assert_eq!(asked.life.with_frozen, [Path::new("/b.onnx")]);
        assert_eq!(asked.gpu.files().next().unwrap(), Path::new("models/p.json"));
    }
}
