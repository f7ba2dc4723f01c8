//! What a model was compiled with, which files keep beside its layers.
//!
//! Keras 3 writes the arguments of `compile()` below `compile_config` (keras/src/trainers/trainer.py, `get_compile_config`, 3.15), also into JSON.
//! Of them the optimizer and the loss are read. `jit_compile` is not: `"auto"` is resolved before it is written (`compile`), so that a file
//! from a machine without a GPU says false. HDF5 files have the same in an attribute of their own (keras/src/legacy/saving/saving_utils.py,
//! `model_metadata`).

use memfit_graph::Compiled;
use serde_json::Value;

/// Reads what stands beside a model's config; nothing where it was not compiled.
pub(crate) fn read(root: &Value) -> Option<Compiled> {
    let compiled = root.get("compile_config").filter(|c| c.as_object().is_some_and(|c| !c.is_empty()))?;
    let mut optimizer = compiled.get("optimizer").unwrap_or(&Value::Null);
    // `compile()` puts a loss scale around the optimizer under mixed float16.
    if optimizer.get("class_name").is_some_and(|class| class == "LossScaleOptimizer") {
        optimizer = optimizer.get("config").and_then(|c| c.get("inner_optimizer")).unwrap_or(&Value::Null);
    }
    let config = optimizer.get("config").unwrap_or(&Value::Null);
    let is_set = |key: &str| match config.get(key) {
        Some(Value::Bool(set)) => *set,
        Some(value) => value.as_f64().is_some_and(|x| x != 0.0),
        None => false,
    };
    let steps = config.get("gradient_accumulation_steps").and_then(Value::as_u64);
    Some(Compiled {
        optimizer: named(optimizer).map(|class| of_class(&class, is_set)),
        weight_decay: is_set("weight_decay"),
        global_clipnorm: is_set("global_clipnorm"),
        ema: is_set("use_ema"),
        accumulate: steps.and_then(|n| u32::try_from(n).ok()).unwrap_or(1).max(1),
        loss: compiled.get("loss").and_then(named),
    })
}

/// What an HDF5 file says of training, as other files write it.
pub(crate) fn of_training(mut training: Value) -> Value {
    let mut take = |key: &str| training.get_mut(key).map(Value::take).unwrap_or_default();
    serde_json::json!({"optimizer": take("optimizer_config"), "loss": take("loss")})
}

/// A name, or the class of one of Keras' own objects, in small letters.
fn named(value: &Value) -> Option<String> {
    let name = match value {
        Value::String(name) => name,
        Value::Object(object) => {
            let text = |key: &str| object.get(key).and_then(Value::as_str);
            let is_own = text("module").is_none_or(|m| m.starts_with("keras") || m == "builtins");
            let class = text("class_name").filter(|_| is_own)?;
            // Keras 2 registers its own optimizers so (tf_keras/src/saving/object_registration.py, the default package).
            let class = class.strip_prefix("Custom>").unwrap_or(class);
            if class == "function" { text("config")? } else { class }
        }
        _ => return None,
    };
    let mut small = String::new();
    for (i, letter) in name.char_indices() {
        let before = i.checked_sub(1).and_then(|i| name.get(i..=i));
        let begins = letter.is_uppercase() && before.is_some_and(|b| b.chars().all(char::is_lowercase));
        small.extend(begins.then_some('_'));
        small.extend(letter.to_lowercase());
    }
    Some(small)
}

/// The optimizer that a class is with its config.
fn of_class(class: &str, is_set: impl Fn(&str) -> bool) -> String {
    let plain = class.replace('_', "");
    match &*plain {
        "sgd" if is_set("nesterov") && is_set("momentum") => "nesterov".into(),
        "sgd" if is_set("momentum") => "momentum".into(),
        "adam" if is_set("amsgrad") => "amsgrad".into(),
        "rmsprop" if is_set("centered") => "rmsprop-centered".into(),
        "rmsprop" if is_set("momentum") => "rmsprop-momentum".into(),
        "schedulefreeadamw" => "schedule-free-adamw".into(),
        _ => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_optimizer_is_its_class_and_what_it_keeps() {
        let compiled = |optimizer: Value, loss: Value| {
            read(&json!({"compile_config": {"optimizer": optimizer, "loss": loss}})).unwrap()
        };
        let own = |class: &str, config: Value| json!({"module": "keras.optimizers", "class_name": class, "config": config, "registered_name": null});
        for (optimizer, expected) in [
            (json!("rmsprop"), "rmsprop"),
            (own("Adam", json!({"amsgrad": false})), "adam"),
            (own("Adam", json!({"amsgrad": true})), "amsgrad"),
            (own("AdamW", json!({})), "adamw"),
            (own("SGD", json!({"momentum": 0.9, "nesterov": true})), "nesterov"),
            (own("SGD", json!({"momentum": 0.9})), "momentum"),
            (own("SGD", json!({"momentum": 0.0, "nesterov": true})), "sgd"),
            (own("RMSprop", json!({"centered": true, "momentum": 0.9})), "rmsprop-centered"),
            (own("LossScaleOptimizer", json!({"inner_optimizer": own("Lion", json!({}))})), "lion"),
        ] {
            let found = compiled(optimizer, json!("mse"));
            assert_eq!((found.optimizer.as_deref(), found.accumulate), (Some(expected), 1));
        }
        let more = json!({"global_clipnorm": 1.0, "use_ema": true, "gradient_accumulation_steps": 4, "weight_decay": 0.01, "clipnorm": null});
        let found = compiled(own("Adam", more), own("BinaryCrossentropy", json!({})));
        assert!(found.global_clipnorm && found.ema && found.weight_decay);
        assert_eq!((found.accumulate, found.loss.as_deref()), (4, Some("binary_crossentropy")));
        assert_eq!(compiled(own("SGD", json!({})), json!("mse")).loss.as_deref(), Some("mse"));
    }

    #[test]
    fn hdf5_files_say_it_in_other_words() {
        let training = json!({"loss": "binary_crossentropy", "metrics": ["accuracy"], "loss_weights": null,
            "optimizer_config": {"class_name": "Custom>Adam", "config": {"name": "Adam", "amsgrad": true}}});
        let mut root = json!({"compile_config": of_training(training)});
        let found = read(&root).unwrap();
        assert_eq!(
            (found.optimizer.as_deref(), found.loss.as_deref()),
            (Some("amsgrad"), Some("binary_crossentropy"))
        );
        root["compile_config"]["optimizer"]["class_name"] = "mine>Adam".into();
        assert_eq!(read(&root).unwrap().optimizer.as_deref(), Some("mine>adam"));
    }

    #[test]
    fn what_is_not_kerass_own_is_not_named() {
        let own =
            json!({"module": "mine", "class_name": "Adam", "config": {}, "registered_name": "mine>Adam"});
        let found = read(&json!({"compile_config": {"optimizer": own, "loss": ["mse", "mae"]}})).unwrap();
        assert_eq!((found.optimizer, found.loss), (None, None));
        assert_eq!(read(&json!({"compile_config": {}})), None);
        assert_eq!(read(&json!({"compile_config": null})), None);
    }
}
