//! Where grappler's walk meets the updates: by the names of what an optimizer writes.
//!
//! The walk begins at the kernels that must run, the last in the alphabet first (`grappler`): of an update that is a write of a slot or of
//! the variable, or the read after it, whose name is its kind and a number. Read off the graphs of Keras 3.15 and of tf-keras 2.21.
//! Keras 2 had other optimizers before 2.11: one kernel for each variable (`ResourceApply…`), which is named by the variable's number.

/// The optimizers of Keras 2 that were one kernel for each variable before 2.11 (keras/optimizers/optimizer_v2).
const FUSED: &[&str] = &[
    "adadelta",
    "adagrad",
    "adam",
    "adamax",
    "amsgrad",
    "ftrl",
    "momentum",
    "nesterov",
    "rmsprop",
    "rmsprop-centered",
    "rmsprop-momentum",
    "sgd",
];

/// Whose step it is.
#[derive(Clone, Copy)]
pub(super) struct Rule<'a> {
    /// The optimizer by whose rule slots are kept and kernels made.
    pub(super) name: &'a str,
    /// Whether one kernel updates a variable and its slots.
    pub(super) is_fused: bool,
    /// Which write the walk meets: from the first, or from the last back.
    write: Result<usize, usize>,
    /// How many kernels of that kind an update has, and which of them it is.
    stride: usize,
    first: usize,
    /// How many weight decay adds for each variable, before the first update.
    decay: usize,
}

impl<'a> Rule<'a> {
    /// The rule of an optimizer in Keras 3, or in this release of Keras 2.
    pub(super) fn of(name: &'a str, keras_2: Option<u32>) -> Rule<'a> {
        match keras_2 {
            None => keras_3(name),
            Some(11..) => keras_2_11(name),
            Some(_) => Rule { is_fused: FUSED.contains(&name), ..rule(name, Err(0), (1, 0), 0) },
        }
    }

    /// The kernel at which the walk meets an update, of those that write, in order.
    pub(super) fn root(&self, writes: &[u32]) -> Option<u32> {
        let at = match self.write {
            Ok(at) => at,
            Err(back) => writes.len().saturating_sub(back.saturating_add(1)),
        };
        writes.get(at).or(writes.last()).copied()
    }

    /// Puts updates into the order in which the walk begins at them, the last in the alphabet first.
    pub(super) fn sort<T>(&self, decays: bool, updates: Vec<T>) -> Vec<T> {
        let before = if decays { self.decay * updates.len() } else { 0 };
        let number = |k: usize| match self.stride * k + self.first + before {
            0 => String::new(),
            n => n.to_string(),
        };
        let mut named: Vec<(String, T)> =
            updates.into_iter().enumerate().map(|(k, update)| (number(k), update)).collect();
        named.sort_by(|a, b| b.0.cmp(&a.0));
        named.into_iter().map(|(_, update)| update).collect()
    }
}

fn rule(name: &str, write: Result<usize, usize>, (stride, first): (usize, usize), decay: usize) -> Rule<'_> {
    Rule { name, is_fused: false, write, stride, first, decay }
}

/// Weight decay multiplies twice for each variable (base_optimizer.py, `_apply_weight_decay`).
fn keras_3(name: &str) -> Rule<'_> {
    match name {
        // Mul_3/ReadVariableOp, Mul_7…: the first moment, once it is written
        "adam" | "adamw" | "amsgrad" => rule(name, Ok(0), (4, 3), 2),
        "adamax" | "nesterov" => rule(name, Ok(0), (4, 2), 2),
        // Cast_2/ReadVariableOp, Cast_5…
        "momentum" => rule(name, Ok(0), (3, 2), 2),
        // AssignVariableOp_1, _3…; ReadVariableOp_1, _3…; Cast_1/ReadVariableOp, Cast_3…
        "adadelta" | "lamb" | "rmsprop-momentum" => rule(name, Ok(1), (2, 1), 0),
        "adafactor" => rule(name, Ok(0), (13, 12), 2),
        // AssignSubVariableOp, AssignSubVariableOp_1…; AssignVariableOp
        "sgd" | "adagrad" | "lion" => rule(name, Err(0), (1, 0), 0),
        _ => rule(name, Ok(0), (1, 0), 0),
    }
}

/// `momentum` 0 has its slot and its kernels too (tf_keras/src/optimizers/sgd.py). Weight decay reads once and multiplies twice for each
/// variable (optimizer.py, `_apply_weight_decay`).
fn keras_2_11(name: &str) -> Rule<'_> {
    match name {
        // ReadVariableOp_1, _3…: the momentum, once it is written
        "sgd" | "momentum" => rule("momentum", Ok(0), (2, 1), 1),
        "nesterov" => rule(name, Ok(0), (2, 1), 1),
        // Sqrt_1/ReadVariableOp, Sqrt_3…: what the root is taken of
        "adam" | "adamw" => rule(name, Ok(1), (2, 1), 0),
        "amsgrad" => rule(name, Ok(2), (2, 1), 0),
        // Square_1/ReadVariableOp, Square_3…
        "rmsprop-centered" => rule(name, Ok(1), (2, 1), 0),
        "rmsprop-momentum" => rule(name, Ok(1), (5, 4), 1),
        "rmsprop" => rule(name, Ok(0), (3, 1), 1),
        "adagrad" => rule(name, Ok(0), (2, 1), 1),
        "adadelta" => rule(name, Ok(0), (5, 2), 1),
        // mul_2/ReadVariableOp, mul_6…
        "adamax" => rule(name, Ok(0), (4, 2), 2),
        "nadam" => rule(name, Ok(0), (10, 7), 2),
        // sub_2/ReadVariableOp, sub_5…; Rsqrt_2/ReadVariableOp, Rsqrt_5…
        "ftrl" => rule(name, Ok(0), (3, 2), 0),
        "adafactor" => rule(name, Err(1), (3, 2), 0),
        _ => rule(name, Err(0), (1, 0), 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_begin_at_the_last_name() {
        let order = |optimizer, n: usize| Rule::of(optimizer, None).sort(false, (0..n).collect());
        assert_eq!(order("adam", 10), [1, 9, 8, 7, 0, 6, 5, 4, 3, 2]);
        assert_eq!(order("sgd", 4), [3, 2, 1, 0]);
        assert_eq!(order("sgd", 12), [9, 8, 7, 6, 5, 4, 3, 2, 11, 10, 1, 0]);
        // ReadVariableOp_9, _7, _5, _3, _11, _1; with weight decay _9, _7, _17, _15, _13, _11
        let keras_2 = Rule::of("sgd", Some(15));
        assert_eq!(keras_2.sort(false, (0..6).collect()), [4, 3, 2, 1, 5, 0]);
        assert_eq!(keras_2.sort(true, (0..6).collect()), [1, 0, 5, 4, 3, 2]);
    }

    #[test]
    fn keras_2_has_had_two_kinds_of_optimizers() {
        let of = |name, release| Rule::of(name, Some(release));
        assert_eq!(
            (of("sgd", 11).name, of("sgd", 10).name, of("adam", 15).name),
            ("momentum", "sgd", "adam")
        );
        assert!(of("adam", 10).is_fused && !of("nadam", 10).is_fused && !of("adam", 11).is_fused);
        assert!(!Rule::of("adam", None).is_fused);
    }

    #[test]
    fn the_walk_meets_the_write_whose_reader_is_the_last_in_the_alphabet() {
        for (optimizer, keras_2, expected) in [
            ("adam", None, 0),
            ("sgd", None, 3),
            ("lamb", None, 1),
            ("adam", Some(15), 1),
            ("adafactor", Some(15), 2),
            ("lion", Some(15), 3),
        ] {
            assert_eq!(Rule::of(optimizer, keras_2).root(&[0, 1, 2, 3]), Some(expected), "{optimizer}");
        }
        assert_eq!(Rule::of("amsgrad", Some(15)).root(&[7]), Some(7));
    }
}
