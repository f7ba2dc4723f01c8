//! Steps on CUDA without a card: the driver is a small C file (`cuda/driver.c`) whose kernels compute nothing. What is missing or wrong
//! is said before anything runs; on what works, pools, the driver's figures and running out of memory are as on a card.
#![cfg(all(feature = "cuda", target_os = "linux"))]

use crate::{Run, command, schema};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

const LENET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/lenet.ts_train.onnx");

/// The folder of the driver, compiled once; nothing without a C compiler.
fn driver() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let make = || {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cuda");
        std::fs::create_dir_all(&folder).unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/cuda/driver.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(folder.join("libcuda.so")).arg(source);
        let Ok(status) = compiler.status() else {
            println!("skipped: no C compiler");
            return None;
        };
        assert!(status.success());
        for name in ["libnvrtc.so", "libnvidia-ml.so.1"] {
            // The same file, so that it is loaded once and counts once.
            let _ = std::fs::remove_file(folder.join(name));
            std::fs::hard_link(folder.join("libcuda.so"), folder.join(name)).unwrap();
        }
        Some(folder)
    };
    FOLDER.get_or_init(make).as_deref()
}

/// A run beside that driver, which has this wrong with it and so much memory.
fn on(folder: &Path, wrong: &str, memory: u64, words: &[&str]) -> Run {
    let mut run = command(&[&["validate", LENET, "--backend", "cuda"], words].concat());
    run.env("LD_LIBRARY_PATH", folder).env("CUDA_PATH", folder).env("FAKE_DRIVER", wrong);
    run.env("FAKE_MEMORY", memory.to_string()).stdin(Stdio::null()).output().unwrap().into()
}

fn row<'a>(record: &'a Value, what: &str) -> &'a Value {
    record["rows"].as_array().unwrap().iter().find(|row| row["what"] == what).unwrap()
}

#[test]
fn what_is_wrong_with_a_driver_is_said_before_anything_runs() {
    let Some(folder) = driver() else { return };
    for (wrong, said) in [
        ("no device", "the driver shows no device"),
        ("none shown", "the driver shows no device"),
        ("old", "the driver is too old: CUDA 11.4, 12.0 is needed"),
        ("mismatch", "are of different versions"),
        ("stub", "the toolkit's stub was found"),
        ("busy", "the device is in use by another process"),
        ("full", "the device has no memory left for a context"),
    ] {
        let run = on(folder, wrong, 8 << 30, &["-b", "4"]);
        assert_eq!((run.code, &*run.out), (2, ""), "{wrong}: {}", run.err);
        assert!(run.err.contains("--backend cuda") && run.err.contains(said), "{wrong}: {}", run.err);
    }
}

#[test]
fn what_is_not_installed_is_said() {
    let Some(folder) = driver() else { return };
    let alone = folder.join("alone");
    let _ = std::fs::remove_dir_all(&alone);
    std::fs::create_dir_all(&alone).unwrap();
    let run = |more: &[&str]| {
        let mut run = command(&["validate", LENET, "--backend", "cuda", "-b", "4"]);
        run.env("LD_LIBRARY_PATH", &alone).env_remove("CUDA_PATH");
        more.iter().for_each(|name| {
            std::fs::copy(folder.join(name), alone.join(name)).unwrap();
        });
        let run: Run = run.stdin(Stdio::null()).output().unwrap().into();
        (run.code, run.err)
    };
    let system = |library: &str| {
        let listed = Command::new("/sbin/ldconfig").arg("-p").output().map(|done| done.stdout);
        String::from_utf8_lossy(&listed.unwrap_or_default()).contains(library)
    };
    if !system("libcuda.so") {
        let (code, said) = run(&[]);
        assert!(code == 2 && said.contains("the NVIDIA driver is not installed"), "{said}");
    }
    if !system("libnvrtc.so") {
        let (code, said) = run(&["libcuda.so"]);
        assert!(code == 2 && said.contains("NVRTC is not installed"), "{said}");
    }
    // Where no driver is, no toolkit is either.
    if !system("libcuda.so") {
        let (code, said) = run(&["libcuda.so", "libnvrtc.so"]);
        assert!(code == 2 && said.contains("headers were not found"), "{said}");
    }
}

#[test]
fn half_precision_is_laid_out_as_predicted() {
    let Some(folder) = driver() else { return };
    for precision in ["bf16", "mixed-fp16", "mixed-bf16"] {
        let words = ["-b", "64", "--steps", "2", "--format", "json", "--precision", precision];
        let run = on(folder, "", 8 << 30, &words);
        assert_eq!(run.code, 0, "{precision}: {}{}", run.out, run.err);
        let record = run.json();
        for (what, most) in [("peak", 0.03), ("reserved", 0.1)] {
            let [measured, predicted] =
                ["measured_bytes", "predicted_bytes"].map(|key| row(&record, what)[key].as_f64().unwrap());
            assert!((predicted / measured - 1.0).abs() < most, "{precision}: {what} {measured} {predicted}");
        }
    }
}

#[test]
fn steps_are_measured_beside_what_is_predicted() {
    let Some(folder) = driver() else { return };
    let run = on(folder, "", 8 << 30, &["-b", "64", "--steps", "2", "--format", "json"]);
    assert_eq!(run.code, 0, "{}{}", run.out, run.err);
    let record = run.json();
    assert!(schema::of("measurement", &record).is_empty());
    assert_eq!(record["device"], "NVIDIA A100-SXM4-40GB");
    for what in ["peak", "reserved"] {
        let error = row(&record, what)["measured_bytes"].as_f64().unwrap()
            / row(&record, what)["predicted_bytes"].as_f64().unwrap();
        assert!((0.97..1.03).contains(&error), "{what}: {error}");
    }
    let seen: Vec<(&str, u64)> = record["driver_view"]
        .as_array()
        .unwrap()
        .iter()
        .map(|seen| (seen["moment"].as_str().unwrap(), seen["device_bytes"].as_u64().unwrap()))
        .collect();
    let moments: Vec<&str> = seen.iter().map(|(moment, _)| *moment).collect();
    assert_eq!(moments, ["start", "first kernel", "model", "first step", "highest"]);
    // A context, then what the pools took of the driver.
    assert_eq!(seen[0].1, 300 << 20);
    let reserved = row(&record, "reserved")["measured_bytes"].as_u64().unwrap();
    assert_eq!(seen[3].1, (300 << 20) + reserved);
}

/// NVML is the driver's, but starts by itself: where it does not, nvidia-smi is asked, and where nobody answers, steps are measured all the
/// same, without the highest figure that only somebody who looks in between can see.
#[test]
fn a_library_of_figures_that_does_not_start_costs_only_its_figure() {
    let Some(folder) = driver() else { return };
    let tools = folder.join("tools");
    std::fs::create_dir_all(&tools).unwrap();
    let moments = |path: &Path| {
        let words = ["validate", LENET, "--backend", "cuda", "-b", "64", "--steps", "2", "--format", "json"];
        let mut run = command(&words);
        run.env("LD_LIBRARY_PATH", folder).env("CUDA_PATH", folder).env("FAKE_DRIVER", "no nvml");
        run.env("FAKE_MEMORY", (8_u64 << 30).to_string()).env("PATH", path);
        let run: Run = run.stdin(Stdio::null()).output().unwrap().into();
        assert_eq!(run.code, 0, "{}{}", run.out, run.err);
        let record = run.json();
        assert!(schema::of("measurement", &record).is_empty());
        let seen = record["driver_view"].as_array().unwrap().iter();
        seen.map(|s| (s["moment"].as_str().unwrap().to_owned(), s["device_bytes"].as_u64().unwrap()))
            .collect::<Vec<_>>()
    };
    let seen = moments(&tools);
    assert_eq!(
        seen.iter().map(|(m, _)| &**m).collect::<Vec<_>>(),
        ["start", "first kernel", "model", "first step"]
    );
    // What nvidia-smi prints for a process that it knows by another number, and for the card.
    let smi = tools.join("nvidia-smi");
    std::fs::write(&smi, "#!/bin/sh\ncase $1 in *compute-apps*) echo '1, 7000' ;; *) echo 900 ;; esac\n")
        .unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&smi, mode).unwrap();
    let seen = moments(&tools);
    std::fs::remove_file(&smi).unwrap();
    let Some(("highest", bytes)) = seen.last().map(|(m, b)| (&**m, *b)) else { panic!("{seen:?}") };
    // The card's less what it held before.
    assert_eq!(bytes, (900 << 20) - seen[0].1, "{seen:?}");
}

#[test]
fn running_out_of_memory_is_a_result() {
    let Some(folder) = driver() else { return };
    // The context takes 300 MiB of 400.
    let run = on(folder, "", 400 << 20, &["-b", "4096", "--steps", "2", "--format", "json"]);
    assert_eq!(run.code, 1, "{}{}", run.out, run.err);
    let record = run.json();
    assert!(schema::of("measurement", &record).is_empty());
    assert_eq!(record["ended"]["kind"], "out-of-memory", "{record:#}");
    // The largest batch that goes through, each in a process of its own.
    let run = on(folder, "", 400 << 20, &["--search", "--steps", "1", "--format", "json"]);
    let found = run.json();
    assert!(found["largest_batch"].as_u64().is_some_and(|batch| batch > 64), "{found:#}");
    assert_eq!(found["largest_batch"], found["predicted_batch"], "{found:#}");
}
