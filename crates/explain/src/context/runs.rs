//! What the names of functions tell of what the program was doing: a traceback is read from the outside to the inside.

use super::Run;

/// Words of a name that tell one thing.
const WORDS: &[(Run, &[&str])] = &[
    (
        Run::Validation,
        &[
            "val",
            "valid",
            "validate",
            "validating",
            "validation",
            "eval",
            "evaluate",
            "evaluating",
            "evaluation",
        ],
    ),
    (
        Run::Prediction,
        &[
            "predict",
            "predicting",
            "prediction",
            "predictions",
            "generate",
            "generation",
            "infer",
            "inference",
        ],
    ),
    (Run::Training, &["train", "training", "trainer", "fit", "finetune"]),
];

/// Whole names. The servers' are vLLM's (vllm/v1/worker, vllm/model_executor) and those of what followed it; the others are
/// PyTorch's, Lightning's, Accelerate's, transformers' and those of what makes pictures.
const NAMES: &[(Run, &[&str])] = &[
    (
        Run::Weights,
        &[
            "load_model",
            "from_pretrained",
            "_load_pretrained_model",
            "load_pretrained_model",
            "load_checkpoint_and_dispatch",
            "load_checkpoint_in_model",
            "set_module_tensor_to_device",
            "caching_allocator_warmup",
            "dispatch_model",
            "create_weights",
            "process_weights_after_loading",
            "initialize_model",
            "_initialize_model",
            "init_model",
        ],
    ),
    (
        Run::Loading,
        &[
            "load_state_dict",
            "load_checkpoint",
            "_load_checkpoint",
            "load_weights",
            "restore_location",
            "_load",
            "load",
        ],
    ),
    (
        Run::Validation,
        &[
            "test",
            "testing",
            "test_step",
            "test_epoch",
            "test_loop",
            "test_function",
            "test_model",
            "_run_sanity_check",
        ],
    ),
    (
        Run::Prediction,
        &[
            "chat",
            "stream_chat",
            "beam_search",
            "txt2img",
            "img2img",
            "process_images",
            "p_sample_loop",
            "profile_run",
            "_dummy_run",
            "_dummy_sampler_run",
            "determine_available_memory",
            "determine_num_available_blocks",
            "execute_model",
            "capture_model",
        ],
    ),
];

/// Names of a step or loop of training, which stand also in what is called an evaluation of settings.
const STEPS: &[&str] = &[
    "train",
    "fit",
    "train_step",
    "training_step",
    "train_epoch",
    "train_one_epoch",
    "train_batch",
    "train_model",
];

fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty())
}

fn told(file: &str, name: &str) -> Option<Run> {
    if name == "_apply" || name == "cuda" && file.contains("module") {
        return Some(Run::Building);
    }
    // A pipeline of Diffusers or of transformers is an object that is called.
    if name == "__call__" && file.contains("/pipelines/") {
        return Some(Run::Prediction);
    }
    let whole = NAMES.iter().find(|(_, names)| names.contains(&name));
    let part = || WORDS.iter().find(|(_, list)| words(name).any(|word| list.contains(&word)));
    whole.or_else(part).map(|(run, _)| *run)
}

/// What the program was doing inside of a function, where it was doing `outside` around it.
pub(super) fn after(outside: Option<Run>, file: &str, name: &str) -> Option<Run> {
    let inside = told(file, name);
    match (outside, inside) {
        (_, None) => outside,
        // Who evaluates predicts, and who predicts may use the loop of evaluation: the outer name is the purpose.
        (Some(Run::Validation | Run::Prediction), Some(Run::Validation | Run::Prediction)) => outside,
        (Some(_), Some(Run::Training)) if !STEPS.contains(&name) => outside,
        // What is read into weights that are made is no checkpoint held beside them, unless torch.load says so.
        (Some(Run::Weights), Some(Run::Loading)) if !file.ends_with("/serialization.py") => outside,
        (Some(Run::Loading), Some(Run::Building)) => outside,
        (_, Some(_)) => inside,
    }
}

/// What a script's own name tells, where no function's does.
pub(super) fn of_script(file: &str) -> Option<Run> {
    let name = file.rsplit(['/', '\\']).next()?.strip_suffix(".py")?.to_ascii_lowercase();
    let run = told("", &name)?;
    (matches!(run, Run::Validation | Run::Prediction) && name != "test").then_some(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(names: &[&str]) -> Option<Run> {
        names.iter().fold(None, |run, name| after(run, "a.py", name))
    }

    #[test]
    fn the_purpose_is_told_by_names_from_the_outside_in() {
        assert_eq!(run(&["train", "val_one_epoch", "forward"]), Some(Run::Validation));
        assert_eq!(run(&["train", "evaluate", "evaluation_loop", "prediction_step"]), Some(Run::Validation));
        assert_eq!(run(&["predict", "evaluation_loop"]), Some(Run::Prediction));
        assert_eq!(run(&["evaluate", "training_step"]), Some(Run::Training));
        assert_eq!(run(&["evaluate", "get_train_features"]), Some(Run::Validation));
        assert_eq!(run(&["train", "load_model", "load_weights"]), Some(Run::Weights));
        assert_eq!(run(&["retrieval_generator", "pretrained_forward"]), None);
        assert_eq!(after(Some(Run::Weights), "torch/serialization.py", "load"), Some(Run::Loading));
    }

    #[test]
    fn a_script_tells_where_no_function_does() {
        assert_eq!(of_script("C:\\a\\inference.py"), Some(Run::Prediction));
        assert_eq!(of_script("tools/test.py"), None);
        assert_eq!(of_script("train.py"), None);
    }
}
