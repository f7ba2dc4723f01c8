//! What applies to a model where nobody says it.

use crate::Framework;

/// Whose rules apply to a file, and whether the program that wrote it would compile the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usual {
    /// Whose rules apply.
    pub framework: Framework,
    /// Whether TensorFlow's step is compiled with XLA.
    pub xla: bool,
}

impl Usual {
    /// By the file's format (`onnx`, `keras`) and by who wrote it (`keras 2.15.0`).
    ///
    /// Keras 3 compiles a step by itself where there is a GPU (keras/src/trainers/trainer.py: `jit_compile="auto"`), Keras 2 only when it
    /// is told to (tf_keras/src/engine/training.py: `jit_compile=None`).
    pub fn of(format: &str, producer: &str) -> Usual {
        let framework = if format == "keras" { Framework::Tensorflow } else { Framework::Pytorch };
        let is_old = ["keras 1", "keras 2"].iter().any(|old| producer.starts_with(old));
        Usual { framework, xla: !is_old }
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
            assert_eq!(Usual::of("keras", producer), Usual { framework: Framework::Tensorflow, xla });
        }
        assert_eq!(Usual::of("onnx", "pytorch 2.15.0"), Usual { framework: Framework::Pytorch, xla: true });
        assert!(Usual::default().with(Framework::Tensorflow).xla);
    }
}
