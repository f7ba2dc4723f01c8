//! `memfit gpus`, and this host's own card.

use crate::{Run, command, memfit};

#[test]
fn a_query_narrows_the_list() {
    let all = memfit(&["gpus", "--format", "json"]);
    assert_eq!((all.code, &*all.err), (0, ""));
    assert!(all.json()["gpus"].as_array().unwrap().len() > 100);
    let some = memfit(&["gpus", "a100", "--format", "json"]).json();
    let ids: Vec<&str> = some["gpus"].as_array().unwrap().iter().map(|g| g["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["a100-40gb", "a100-80gb"]);
    let text = memfit(&["gpus", "rtx", "3090"]);
    assert!(text.out.contains("rtx-3090-ti") && text.out.contains("24,121"), "{}", text.out);
    let none = memfit(&["gpus", "voodoo"]);
    assert_eq!((none.code, &*none.out), (2, ""));
}

#[cfg(unix)]
#[test]
fn this_hosts_card_is_the_one_that_cuda_counts_first() {
    use std::os::unix::fs::PermissionsExt;

    let driver = |folder: &str, kinds: [&str; 2]| {
        let list = kinds.join("\\n");
        let script = format!(
            "#!/bin/sh\ncase \"$*\" in *'-i 1'*) printf '{}\\n';; *) printf '{list}\\n';; esac\n",
            kinds[1]
        );
        let path = crate::file(&format!("{folder}/nvidia-smi"), script.as_bytes());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::path::Path::new(&path).parent().unwrap().to_owned()
    };
    let (t4, ada) = ("Tesla T4, 15360, 10, 7.5", "NVIDIA GeForce RTX 4090, 24564, 20, 8.9");
    let [mixed, alike] = [driver("gpus_mixed", [t4, ada]), driver("gpus_alike", [t4, t4])];
    let asked = |folder: &std::path::Path, order: &[(&str, &str)]| -> Run {
        let model = "models/lenet.ts_train.onnx";
        let mut asked = command(&["estimate", model, "-b", "8", "--gpu", "auto", "--format", "json"]);
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        for name in ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"] {
            asked.env_remove(name);
        }
        asked.env("PATH", path).envs(order.iter().copied()).output().unwrap().into()
    };
    // CUDA counts the fastest first, so which of the two it is cannot be read off their places.
    let unsure = asked(&mixed, &[("CUDA_VISIBLE_DEVICES", "0")]);
    assert!(unsure.code == 2 && unsure.err.contains("several kinds"), "{}", unsure.err);
    let by_bus = [("CUDA_VISIBLE_DEVICES", "1"), ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")];
    assert_eq!(asked(&mixed, &by_bus).json()["fit"]["gpu"], "rtx-4090");
    assert_eq!(asked(&alike, &[("CUDA_VISIBLE_DEVICES", "1")]).json()["fit"]["gpu"], "t4");
    let beyond = asked(&alike, &[("CUDA_VISIBLE_DEVICES", "7")]);
    assert!(beyond.code == 2 && beyond.err.contains("number 7"), "{}", beyond.err);
}
