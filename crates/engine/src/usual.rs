//! What applies to a model where nobody says it.

use crate::{Framework, Loss, Mode, Plan, optimizers};
use memfit_graph::Imported;

/// Whose rules apply to a file, and whether the program that wrote it would compile the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usual {
    /// Whose rules apply.
    pub framework: Framework,
    /// Whether TensorFlow's step is compiled with XLA.
    pub xla: bool,
    /// What the file says of its optimizer and its loss.
    pub compiled: Compiled,
}

/// What a file keeps of how its model is trained: the arguments of Keras' `compile()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compiled {
    /// The optimizer's name in [`crate::optimizers`].
    pub optimizer: Option<&'static str>,
    /// Whether weights decay.
    pub weight_decay: bool,
    /// Whether gradients are clipped by the norm of all of them together.
    pub clip_norm: bool,
    /// Whether an average of the weights is kept.
    pub ema: bool,
    /// Steps over which gradients are summed.
    pub accumulate: u32,
    /// The loss.
    pub loss: Option<Loss>,
}

impl Compiled {
    /// What a file says, as far as there are rules for it.
    fn of(file: &memfit_graph::Compiled) -> Compiled {
        let optimizer = file.optimizer.as_deref().and_then(optimizers::find);
        let loss = match file.loss.as_deref() {
            Some("categorical_crossentropy" | "sparse_categorical_crossentropy") => Some(Loss::CrossEntropy),
            Some("binary_crossentropy") => Some(Loss::Bce),
            Some("mse" | "mean_squared_error") => Some(Loss::Mse),
            _ => None,
        };
        Compiled {
            optimizer: optimizer.map(|optimizer| optimizer.name()),
            weight_decay: file.weight_decay,
            clip_norm: file.global_clipnorm,
            ema: file.ema,
            accumulate: file.accumulate,
            loss,
        }
    }
}

impl Usual {
    /// By the file's format (`onnx`, `keras`) and by who wrote it (`keras 2.15.0`).
    ///
    /// Keras 3 compiles a step by itself where there is a GPU (keras/src/trainers/trainer.py: `jit_compile="auto"`), Keras 2 only when it
    /// is told to (tf_keras/src/engine/training.py: `jit_compile=None`).
    pub fn of(format: &str, producer: &str) -> Usual {
        let framework = if format == "keras" { Framework::Tensorflow } else { Framework::Pytorch };
        let is_old = ["keras 1", "keras 2"].iter().any(|old| producer.starts_with(old));
        Usual { framework, xla: !is_old, compiled: Compiled::default() }
    }

    /// What applies to a file.
    pub fn of_file(imported: &Imported) -> Usual {
        let compiled = imported.compiled.as_ref().map(Compiled::of).unwrap_or_default();
        Usual::of(imported.format, &imported.producer).trained(compiled)
    }

    /// The same with what the file says of how its model is trained, which is Keras' own.
    pub fn trained(self, compiled: Compiled) -> Usual {
        Usual { compiled, ..self }
    }

    /// The optimizer where nobody names one.
    pub fn optimizer(self) -> &'static str {
        self.compiled.optimizer.unwrap_or("adam")
    }

    /// What the file says and the plan keeps to, in words; `optimizer` and `loss` are whether the user left them open.
    pub fn kept_to(self, plan: &Plan, [optimizer, loss]: [bool; 2]) -> Vec<String> {
        let trains = plan.mode == Mode::Train;
        let named = self.compiled.optimizer.filter(|name| trains && optimizer && *name == plan.optimizer);
        let Compiled { clip_norm, ema, accumulate, weight_decay, .. } = self.compiled;
        let beside = [
            (clip_norm, "global_clipnorm"),
            (ema, "use_ema"),
            (accumulate > 1, "gradient_accumulation_steps"),
            (weight_decay, "weight_decay"),
        ];
        let with: Vec<&str> =
            beside.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name).collect();
        let with = if with.is_empty() { String::new() } else { format!(" with {}", with.join(", ")) };
        let of_loss = self.compiled.loss.filter(|own| trains && loss && *own == plan.loss);
        let said = named.map(|name| {
            format!("optimizer: {name}{with}, as the file was compiled; --optimizer names another")
        });
        let loss = of_loss.map(|_| "loss: as the file was compiled; --loss names another".to_owned());
        said.into_iter().chain(loss).collect()
    }

    /// Whether TensorFlow's step is compiled where nobody says: not where several GPUs share a model (`_resolve_auto_jit_compile`, the
    /// same file).
    pub fn compiles(self, several: bool) -> bool {
        self.xla && self.framework == Framework::Tensorflow && !several
    }

    /// The same with the rules of another framework.
    pub fn with(self, framework: Framework) -> Usual {
        Usual { framework, ..self }
    }
}

impl Default for Usual {
    fn default() -> Usual {
        Usual::of("onnx", "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keras_3_alone_compiles_by_itself() {
        for (producer, xla) in
            [("keras 3.15.1", true), ("keras 2", false), ("keras 2.4.0", false), ("keras 1.2", false)]
        {
            let usual = Usual::of("keras", producer);
            assert_eq!((usual.framework, usual.xla), (Framework::Tensorflow, xla));
        }
        let usual = Usual::of("onnx", "pytorch 2.15.0");
        assert_eq!((usual.framework, usual.xla, usual.optimizer()), (Framework::Pytorch, true, "adam"));
        assert!(Usual::default().with(Framework::Tensorflow).xla);
    }

    #[test]
    fn a_file_says_what_it_was_compiled_with() {
        let file = |optimizer: &str, loss: &str| {
            let (optimizer, loss) = (Some(optimizer.into()), Some(loss.into()));
            let compiled =
                memfit_graph::Compiled { optimizer, loss, global_clipnorm: true, ..Default::default() };
            let producer = "keras 3.15.1".into();
            Imported { format: "keras", producer, compiled: Some(compiled), ..Imported::default() }
        };
        let usual = Usual::of_file(&file("momentum", "mse"));
        assert_eq!(usual.optimizer(), "momentum");
        let plan = Plan { optimizer: "momentum".into(), loss: Loss::Mse, ..Plan::default() };
        let said = usual.kept_to(&plan, [true, true]);
        assert_eq!(
            said[0],
            "optimizer: momentum with global_clipnorm, as the file was compiled; --optimizer names another"
        );
        assert_eq!(said.len(), 2);
        // What the user named himself is not the file's.
        assert!(usual.kept_to(&plan, [false, false]).is_empty());
        assert!(usual.kept_to(&Plan { mode: Mode::Infer, ..plan }, [true, true]).is_empty());
        let own = Usual::of_file(&file("mine", "mine")).compiled;
        assert_eq!((own.optimizer, own.loss, own.clip_norm), (None, None, true));
    }
}
