//! A table of TOML as flags of a command.

/// One key as flags: `batch_size = 32`, `weight_decay = true`, `set = ["seq=512"]`.
pub(crate) fn flag(flags: &mut Vec<String>, key: &str, value: &toml::Value) -> Result<(), String> {
    let name = format!("--{}", key.replace('_', "-"));
    match value {
        toml::Value::Boolean(true) => flags.push(name),
        toml::Value::Boolean(false) => {}
        toml::Value::String(text) => flags.extend([name, text.clone()]),
        toml::Value::Integer(n) => flags.extend([name, n.to_string()]),
        toml::Value::Float(x) => flags.extend([name, x.to_string()]),
        toml::Value::Array(items) => {
            for item in items {
                flag(flags, key, item)?;
            }
        }
        toml::Value::Table(_) | toml::Value::Datetime(_) => {
            return Err(format!("{key} should be text, a number, a yes or no, or a list of them"));
        }
    }
    Ok(())
}
