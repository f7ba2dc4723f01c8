//! What is said of a log, for programs.

use crate::context::Run;
use crate::model::Beside;
use crate::{Log, Message, Outcome};
use memfit_engine::Phase;
use memfit_graph::Bytes;
use serde_json::{Map, Value, json};

/// The numbers that a message gives, by their names without `_bytes`.
pub(crate) fn facts(m: &Message) -> impl Iterator<Item = (&'static str, Bytes)> {
    [
        ("requested", m.requested),
        ("capacity", m.capacity),
        ("limit", m.limit),
        ("allocated", m.allocated),
        ("reserved", m.reserved),
        ("free", m.free),
        ("in_use", m.in_use),
        ("largest_free", m.largest_free),
    ]
    .into_iter()
    .filter_map(|(name, bytes)| bytes.map(|b| (name, b)))
}

fn message(m: &Message) -> Value {
    let mut object = Map::new();
    object.insert("line".into(), m.line.into());
    object.insert("framework".into(), m.family.into());
    object.insert("kind".into(), m.kind.name().into());
    object.insert("count".into(), m.count.into());
    object.insert("text".into(), m.text.clone().into());
    for (name, bytes) in facts(m) {
        object.insert(format!("{name}_bytes"), bytes.0.into());
    }
    let words = [("dtype", &m.dtype), ("device", &m.device), ("node", &m.node), ("detail", &m.detail)];
    object.extend(words.into_iter().filter_map(|(name, word)| Some((name.to_owned(), word.clone()?.into()))));
    if let Some(shape) = &m.shape {
        object.insert("shape".into(), shape.clone().into());
    }
    if !m.others.is_empty() {
        let others = m.others.iter().map(|p| json!({"pid": p.pid, "bytes": p.bytes.0}));
        object.insert("other_processes".into(), others.collect());
    }
    Value::Object(object)
}

/// The whole finding; ends with a line break.
pub fn json(log: &Log, beside: Option<&Beside>) -> String {
    let outcome = match log.outcome() {
        Outcome::OutOfMemory => "out-of-memory",
        Outcome::Recovered => "recovered",
        Outcome::NoFailure => "no-failure",
    };
    let findings: Vec<Value> = log
        .findings()
        .iter()
        .map(|f| {
            json!({"cause": f.cause.name(), "confidence": f.confidence.name(), "explanation": f.explanation,
                "lines": f.lines, "advice": f.cause.advice()})
        })
        .collect();
    let pass = log.context.pass.map(Phase::name);
    let run = log.context.run.map(|r| match r {
        Run::Training => "training",
        Run::Validation => "validation",
        Run::Prediction => "prediction",
        Run::Loading => "loading",
        Run::Weights => "weights",
        Run::Building => "building",
    });
    let value = json!({
        "schema_version": 1,
        "tool": {"name": "memfit", "version": env!("CARGO_PKG_VERSION")},
        "outcome": outcome,
        "lines": log.lines,
        "findings": findings,
        "context": {"pass": pass, "run": run, "epoch": log.context.epoch, "step": log.context.step, "batch_size": log.context.batch,
            "frames": log.context.frames},
        "messages": log.messages.iter().map(message).collect::<Vec<_>>(),
        "model": beside.map(Beside::json),
    });
    let mut text = serde_json::to_string_pretty(&value).unwrap_or_else(|_| unreachable!("plain data"));
    text.push('\n');
    text
}
