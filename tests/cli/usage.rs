//! What is wrong with files and flags, and readers that go away.

use crate::models::Builder;
use crate::{Run, command, file, memfit, memfit_with_input};
use std::process::Stdio;

/// Fails with bad input; its message holds all of these.
pub(crate) fn fails(run: &Run, words: &[&str]) {
    assert_eq!((run.code, &*run.out), (2, ""), "{}", run.err);
    assert!(run.err.starts_with("error: "), "{}", run.err);
    for word in words {
        assert!(run.err.contains(word), "no `{word}` in: {}", run.err);
    }
    assert!(!run.err.contains("panicked"), "{}", run.err);
}

#[test]
fn what_is_not_a_model_is_named_with_a_hint() {
    for command in ["estimate", "inspect"] {
        fails(&memfit(&[command, "no/such/file.onnx"]), &["no/such/file.onnx", "no such file"]);
        fails(&memfit(&[command, env!("CARGO_MANIFEST_DIR")]), &["directory", ".onnx"]);
        let empty = file("empty.onnx", b"");
        fails(
            &memfit(&[command, &empty]),
            &["empty.onnx", "expected an ONNX or a Keras model", "empty file"],
        );
        let text = file("text.onnx", b"This is a letter, not a model.\n");
        fails(&memfit(&[command, &text]), &["expected an ONNX model", "text"]);
        let mut noise: Vec<u8> = (0..4096_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        noise[0] = 0xff;
        fails(&memfit(&[command, &file("noise.onnx", &noise)]), &["noise.onnx"]);
        fails(&memfit_with_input(&[command, "-"], b""), &["standard input", "empty file"]);
    }
}

#[test]
fn a_file_that_is_cut_short_is_an_error_at_any_length() {
    let whole = Builder::conv().bytes();
    for length in (1..whole.len()).step_by(7) {
        let run = memfit_with_input(&["inspect", "-"], &whole[..length]);
        // A cut between two fields of the model may leave a model.
        assert!(run.code == 2 || run.code == 0, "{length}: {}", run.err);
        assert!(!run.err.contains("panicked"), "{length}: {}", run.err);
    }
    fails(&memfit_with_input(&["inspect", "-"], &whole[..whole.len() / 2]), &["standard input"]);
}

#[test]
fn wrong_flags_are_usage_errors() {
    let model = file("usage_conv.onnx", &Builder::conv().bytes());
    for args in [
        &["estimate", &model, "--colour"] as &[&str],
        &["estimate", &model, "--precision", "fp7"],
        &["estimate", &model, "--framework", "mxnet"],
        &["estimate", &model, "-b", "0"],
        &["estimate", &model, "-b", "many"],
        &["estimate", &model, "--set", "batch"],
        &["estimate", &model, "--optimizer", "adm"],
        &["estimate", &model, "--other-processes", "many"],
        &["estimate", &model, "--allocator-conf", "max_split_size_mb:1"],
        &["estimate"],
        &["inspect", &model, "--optimizer", "adam"],
        &["fit", &model],
    ] {
        let run = memfit(args);
        fails(&run, &[]);
        assert!(run.err.contains("--help"), "{}", run.err);
    }
}

#[test]
fn a_card_that_is_not_known_is_told_with_the_nearest() {
    let model = file("usage_card.onnx", &Builder::conv().bytes());
    fails(
        &memfit(&["estimate", &model, "-b", "1", "--gpu", "rtx-3091"]),
        &["--gpu rtx-3091", "rtx-3090", "24GiB"],
    );
    fails(&memfit(&["estimate", &model, "-b", "1", "--gpu", "A100"]), &["a100-40gb", "a100-80gb"]);
}

#[test]
fn names_that_the_model_does_not_have_are_told_with_those_it_has() {
    let model = file("usage_names.onnx", &Builder::conv().bytes());
    fails(&memfit(&["inspect", &model, "--set", "seq=4"]), &["--set seq", "hint:", "batch"]);
    fails(&memfit(&["inspect", &model, "--input", "image:1x3x8x8"]), &["image", "hint:", "x"]);
    fails(&memfit(&["inspect", &model, "--value", "image=1"]), &["--value image", "hint:", "x"]);
    let both = memfit(&["inspect", &model, "--set", "seq=4", "--value", "image=1"]);
    fails(&both, &["2 problems", "--set seq", "--value image"]);
}

#[test]
fn real_steps_say_how_to_get_them() {
    if cfg!(feature = "validate") {
        return;
    }
    let run = memfit(&["validate", "x.onnx", "--backend", "wgpu"]);
    fails(&run, &["built without steps of its own", "--features wgpu"]);
}

#[test]
fn help_and_version_are_no_errors() {
    for args in [&["--help"] as &[&str], &["help", "estimate"], &["estimate", "-h"], &["inspect", "--help"]] {
        let run = memfit(args);
        assert_eq!((run.code, &*run.err), (0, ""));
        assert!(run.out.contains("Usage: memfit"), "{}", run.out);
    }
    let version = memfit(&["--version"]);
    assert_eq!(version.out.trim(), format!("memfit {}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn flags_that_do_nothing_are_told_and_none_wins_in_silence() {
    let model = file("usage_idle.onnx", &Builder::conv().bytes());
    let run =
        |flags: &[&str]| memfit(&[&["estimate", &model, "-b", "2", "--format", "json"], flags].concat());
    for (flags, flag) in [
        (&["--memory-fraction", "0.5"][..], "--memory-fraction"),
        (&["--no-xla"], "--no-xla"),
        (&["--run-eagerly"], "--run-eagerly"),
        (&["--steps-per-execution", "4"], "--steps-per-execution"),
        (&["--layer", "conv:params=4"], "--layer"),
        (&["--composed-attention"], "--composed-attention"),
        (&["--tied-embeddings", "yes"], "--tied-embeddings"),
    ] {
        let told = run(flags).json()["warnings"].to_string();
        assert!(told.contains(flag) && told.contains("nothing"), "{flags:?}: {told}");
    }
    let told =
        run(&["--framework", "tensorflow", "--no-xla", "--steps-per-execution", "4"]).json()["warnings"]
            .to_string();
    assert!(!told.contains("nothing"), "{told}");
    // What runs on the host decides, too.
    let host = ["--gpu", "t4", "--stack", "tensorflow 2.16", "--no-xla", "--steps-per-execution", "4"];
    let told = run(&host).json()["warnings"].to_string();
    assert!(!told.contains("nothing"), "{told}");
    let compiled = run(&["--gpu", "t4", "--stack", "tensorflow 2.16"]).json()["plan"]["xla"].clone();
    assert_eq!(compiled, true);
    let attends = format!("{}/models/gpt.ts_eval_b1.onnx", env!("CARGO_MANIFEST_DIR"));
    for flag in [&["--composed-attention"][..], &["--tied-embeddings", "no"]] {
        let of_gpt = ["estimate", &attends, "-b", "2", "--format", "json"];
        let told = memfit(&[&of_gpt[..], flag].concat());
        assert!(told.code == 0 && !told.out.contains("does nothing"), "{flag:?}: {}{}", told.out, told.err);
    }
    fails(&run(&["--input", "x:2x3x8x8", "--input", "x:4x3x8x8"]), &["--input x", "more than once"]);
    let both = ["--gpu", "8GiB", "--stack", "others 1GiB", "--other-processes", "2GiB"];
    fails(&run(&both), &["--stack", "--other-processes"]);
    assert_eq!(run(&both[..4]).code, 0);
    let other = ["--gpu", "8GiB", "--stack", "tensorflow 2.10", "--framework", "pytorch"];
    fails(&run(&other), &["--stack", "--framework"]);
    // What does nothing on a second host is told as of it.
    let there = run(&["--gpu", "8GiB", "--framework", "pytorch", "--vs", "t4, limit 4GiB"]);
    assert!(there.out.contains("--vs: --memory-limit is TensorFlow's"), "{}{}", there.out, there.err);
    fails(&run(&["--framework", "tensorflow", "--optimizer", "adam8bit"]), &["Keras has no adam8bit"]);
    assert_eq!(run(&["--framework", "tensorflow", "--optimizer", "adam8bit", "--mode", "infer"]).code, 0);
}

#[test]
fn a_file_behind_standard_input_is_as_good_as_its_name() {
    let model = file("usage_stdin.onnx", &Builder::conv().bytes());
    let redirected = |path: &str| -> Run {
        let stdin = std::fs::File::open(path).unwrap();
        command(&["inspect", "-", "-b", "2", "--format", "json"]).stdin(stdin).output().unwrap().into()
    };
    let named = memfit(&["inspect", &model, "-b", "2", "--format", "json"]).json();
    assert_eq!(redirected(&model).json()["tensors"], named["tensors"]);
    fails(&redirected(env!("CARGO_MANIFEST_DIR")), &["standard input", "directory"]);
}

#[test]
fn a_stream_without_an_end_is_refused_by_its_beginning() {
    let noise = vec![0; 1 << 20];
    for input in [&noise[..], &[b'x'; 4096]] {
        fails(&memfit_with_input(&["estimate", "-"], input), &["standard input", "expected an ONNX model"]);
    }
    // More than the beginning of a model goes to a file, and is as good as one.
    let mut builder = Builder::conv();
    for i in 0..300 {
        builder.node("Relu", &format!("/Relu_{i}"), &["y"], &format!("made_{i}"));
    }
    let model = builder.bytes();
    let run = memfit_with_input(&["inspect", "-", "-b", "2"], &model);
    assert!(run.code == 0 && run.out.contains("made_299"), "{}", run.err);
    fails(&memfit(&["diff", "-", "-", "-b", "2"]), &["standard input", "only one"]);
}

#[cfg(unix)]
#[test]
fn a_device_without_an_end_is_no_text() {
    let model = file("usage_zero.onnx", &Builder::conv().bytes());
    for args in [
        &["check", "/dev/zero"] as &[&str],
        &["calibrate", "/dev/zero"],
        &["estimate", &model, "-b", "2", "--device-profile", "/dev/zero"],
        &["validate", "/dev/zero", "--suite", "--record", "/dev/null"],
    ] {
        fails(&memfit(args), &["/dev/zero", "expected text"]);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut builder = Builder::conv();
    // More than a pipe holds, so that the program is still writing when its reader is gone.
    for i in 0..3000 {
        builder.node("Relu", &format!("/Relu_{i}"), &["y"], &format!("a_rather_long_name_of_a_tensor_{i}"));
    }
    let model = file("usage_pipe.onnx", &builder.bytes());
    for args in [&["inspect", &model] as &[&str], &["inspect", &model, "--format", "json"], &["--help"]] {
        let mut child =
            command(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let run: Run = child.wait_with_output().unwrap().into();
        assert_eq!((run.code, &*run.err), (0, ""), "{args:?}");
    }
}

#[test]
fn the_guide_names_every_flag() {
    let guide = include_str!("../../docs/guide.md");
    for command in ["estimate", "inspect"] {
        let help = memfit(&[command, "--help"]).out;
        let flags = help.split(|c: char| !c.is_ascii_lowercase() && c != '-').filter(|w| w.starts_with("--"));
        let absent: Vec<&str> = flags.filter(|f| *f != "--help" && !guide.contains(f)).collect();
        assert!(absent.is_empty(), "docs/guide.md does not name {absent:?}");
    }
}
