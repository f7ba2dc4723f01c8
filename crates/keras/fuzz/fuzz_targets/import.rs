//! `cargo +nightly fuzz run import`: whatever the bytes are, importing and inferring end without a panic.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(model) = memfit_keras::import(bytes, &memfit_keras::Options::default()) {
        let batch = memfit_graph::Binding { batch: Some(3), ..Default::default() };
        for binding in [memfit_graph::Binding::default(), batch] {
            let _ = memfit_graph::infer(&model.graph, &binding);
        }
    }
});
