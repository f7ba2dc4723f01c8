//! Advice as text and as JSON: the changes with what each saves, the smallest set that fits, and its code.

use crate::json::{plan_value, to_text};
use crate::text::style::{self, GOOD, HEAD, NOTE, WARN};
use crate::text::table::{Column, Table, printable};
use crate::words;
use memfit_engine::Verdict;
use memfit_engine::advise::{Advice, Outcome, Situation};
use memfit_graph::Bytes;
use serde::Serialize;
use serde_json::{Map, Value, json};

#[derive(Serialize)]
struct Document<'a> {
    model: &'a str,
    gpu: &'a str,
    batch_size: Option<u64>,
    now: Result<'a>,
    changes: Vec<Entry<'a>>,
    combination: Option<Set<'a>>,
    warnings: &'a [String],
}

#[derive(Serialize)]
struct Result<'a> {
    device_bytes: u64,
    reserved_bytes: u64,
    usable_bytes: u64,
    verdict: &'a str,
    held_bytes: u64,
    is_partial: bool,
}

#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    title: &'a str,
    effort: u32,
    cost: &'a str,
    saving_bytes: i64,
    for_others: bool,
    result: Result<'a>,
    plan: Map<String, Value>,
    snippet: &'a str,
}

#[derive(Serialize)]
struct Set<'a> {
    changes: Vec<Part<'a>>,
    result: Result<'a>,
    plan: Map<String, Value>,
}

#[derive(Serialize)]
struct Part<'a> {
    name: &'a str,
    title: &'a str,
    snippet: &'a str,
}

fn result(outcome: &Outcome) -> Result<'static> {
    Result {
        device_bytes: outcome.device.0,
        reserved_bytes: outcome.reserved.0,
        usable_bytes: outcome.usable.0,
        verdict: words::verdict(outcome.verdict),
        held_bytes: outcome.held.0,
        is_partial: outcome.is_partial,
    }
}

/// The advice as JSON.
pub fn json(model: &str, advice: &Advice, warnings: &[String]) -> String {
    let changes = advice.changes.iter().map(|change| Entry {
        name: change.name,
        title: &change.title,
        effort: change.effort,
        cost: change.cost,
        saving_bytes: change.saving,
        for_others: change.for_others,
        result: result(&change.outcome),
        plan: changed(&advice.before, &change.after),
        snippet: &change.snippet,
    });
    let combination = advice.combination.as_ref().map(|c| Set {
        changes: c.parts.iter().map(|(name, title, snippet)| Part { name, title, snippet }).collect(),
        result: result(&c.outcome),
        plan: changed(&advice.before, &c.after),
    });
    to_text(&Document {
        model,
        gpu: &advice.before.card.device.id,
        batch_size: advice.before.batch,
        now: result(&advice.now),
        changes: changes.collect(),
        combination,
        warnings,
    })
}

/// The parts of a plan that differ after a change, under the keys that a plan in JSON has.
fn changed(before: &Situation, after: &Situation) -> Map<String, Value> {
    let (before, mut after) = (plan(before), plan(after));
    after.retain(|key, value| before.get(key) != Some(value));
    after
}

fn plan(s: &Situation) -> Map<String, Value> {
    // Plain data always becomes an object.
    let Value::Object(mut plan) = plan_value(&s.plan, s.batch) else { return Map::new() };
    plan.insert("set".into(), json!(s.binding.symbols));
    plan.insert("input".into(), json!(s.binding.shapes));
    plan.insert("other_processes_bytes".into(), json!(s.card.other_processes.0));
    plan.insert("display".into(), json!(s.card.display));
    plan.insert("validation_batch".into(), json!(s.life.validation_batch));
    plan.insert("prefetch_to_device".into(), json!(s.life.prefetch));
    plan.insert("predict_batches".into(), json!(s.life.predict_batches));
    plan.insert("stale_models".into(), json!(s.life.stale_models));
    plan
}

/// The advice as text; `code` shows the lines of every change, not only of those that are needed.
pub fn text(model: &str, advice: &Advice, warnings: &[String], code: bool, width: usize) -> String {
    let width = width.max(60);
    let batch = advice.before.batch.map_or_else(String::new, |n| format!(" · batch {n}"));
    let mut out = format!(
        "{HEAD}{}{HEAD:#}{batch} · {}\n\n",
        printable(model),
        printable(&advice.before.card.device.id)
    );
    let now = &advice.now;
    out.push_str(&format!(
        "as it is: {}, {} wanted of {} usable\n\n",
        style::verdict(now.verdict),
        now.reserved,
        now.usable
    ));
    if now.is_partial {
        out.push_str(&format!("{WARN}{}{WARN:#}\n\n", words::PARTIAL));
    }
    let mut table = Table::new(&[
        Column::text("change alone", 31),
        Column::number("saves"),
        Column::number("wanted").rank(1),
        Column::text("then", 13),
        Column::text("it costs", 16).end().rank(2),
    ]);
    for change in &advice.changes {
        let (o, saves) = (&change.outcome, signed(change.saving));
        let then = words::verdict_in_words(o.verdict);
        let cost = change.cost.into();
        table.row(vec![change.title.clone(), saves, o.reserved.to_string(), then.into(), cost]);
    }
    if !advice.changes.is_empty() {
        table.write(&mut out, width, HEAD);
    }
    if let Some(combination) = &advice.combination {
        let n = combination.parts.len();
        let what =
            if n == 1 { "one change is enough".to_owned() } else { format!("these {n} changes together") };
        let o = &combination.outcome;
        let (verdict, wanted) = (style::verdict(o.verdict), o.reserved);
        out.push_str(&format!("\n{HEAD}Do this{HEAD:#}  {what}: {verdict}, {wanted} of {}\n", o.usable));
        for (name, title, snippet) in &combination.parts {
            let cost = advice.changes.iter().find(|change| change.name == *name).map(|change| change.cost);
            lines(&mut out, title, cost, snippet);
        }
    } else if now.verdict == Verdict::Fits {
        out.push_str(&format!("\n{GOOD}nothing needs to be changed{GOOD:#}\n"));
    } else if now.is_partial && now.verdict == Verdict::Tight {
        out.push_str(&format!("\n{WARN}it fits by what is known{WARN:#}: {}\n", words::tight(true)));
    } else {
        out.push_str(&format!(
            "\n{WARN}no set of these changes makes it fit{WARN:#}: take a smaller model or a larger card\n"
        ));
    }
    if code {
        out.push_str(&format!("\n{HEAD}All changes{HEAD:#}\n"));
        advice.changes.iter().for_each(|c| lines(&mut out, &c.title, Some(c.cost), &c.snippet));
    }
    for warning in warnings {
        out.push_str(&format!("{WARN}warning{WARN:#}: {}\n", printable(warning)));
    }
    out
}

fn lines(out: &mut String, title: &str, cost: Option<&str>, snippet: &str) {
    out.push_str(&format!("\n{NOTE}# {}{NOTE:#}\n", printable(title)));
    if let Some(cost) = cost {
        out.push_str(&format!("{NOTE}# it costs: {cost}{NOTE:#}\n"));
    }
    snippet.lines().for_each(|line| out.push_str(&format!("    {}\n", printable(line))));
}

fn signed(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{sign}{}", Bytes(bytes.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_engine::advise::{Advised, Code, Combination};
    use memfit_engine::devices::Card;
    use memfit_engine::{Life, Plan};
    use memfit_graph::Binding;

    fn outcome(mib: u64, verdict: Verdict) -> Outcome {
        let reserved = Bytes::mib(mib);
        Outcome {
            device: reserved + Bytes::mib(1_730),
            reserved,
            usable: Bytes::mib(10_000),
            verdict,
            held: reserved,
            is_partial: false,
            high: reserved,
        }
    }

    fn situation(batch: u64) -> Situation {
        let plan = Plan { accumulate: u32::try_from(64 / batch).unwrap(), ..Plan::default() };
        let binding = Binding { batch: Some(batch), ..Binding::default() };
        let card = Card::find("rtx-3060").unwrap();
        Situation {
            plan,
            binding,
            batch: Some(batch),
            card,
            life: Life::default(),
            code: Code::default(),
            api: None,
        }
    }

    fn advice() -> Advice {
        let change = |name, title: &str, saving, outcome| Advised {
            for_others: false,
            name,
            title: title.into(),
            cost: "some time",
            effort: 2,
            outcome,
            saving,
            snippet: "for x in loader:\n    step(x)".into(),
            after: situation(32),
        };
        let half = outcome(7_000, Verdict::Fits);
        Advice {
            before: situation(64),
            now: outcome(14_000, Verdict::DoesNotFit),
            changes: vec![
                change("accumulate", "2 micro-batches of 32 a step", 7_000 << 20, half),
                change("allocator", "expandable segments", 700 << 20, outcome(13_300, Verdict::DoesNotFit)),
            ],
            combination: Some(Combination {
                parts: vec![("accumulate", "2 micro-batches of 32 a step".into(), "step()".into())],
                outcome: half,
                after: situation(32),
            }),
        }
    }

    #[test]
    fn changes_come_with_their_saving_and_the_code_of_those_that_are_needed() {
        let text = text("resnet50", &advice(), &[], false, 100);
        expect_test::expect![[r#"
            resnet50 · batch 64 · rtx-3060

            as it is: does not fit, 13.67 GiB wanted of 9.77 GiB usable

            change alone                      saves     wanted  then          it costs
            2 micro-batches of 32 a step   6.84 GiB   6.84 GiB  fits          some time
            expandable segments           700.0 MiB  12.99 GiB  does not fit  some time

            Do this  one change is enough: fits, 6.84 GiB of 9.77 GiB

            # 2 micro-batches of 32 a step
            # it costs: some time
                step()
        "#]]
        .assert_eq(&crate::sample::plain(&text));
    }

    #[test]
    fn json_has_exact_bytes_and_says_how_the_plan_changes() {
        let json: Value = serde_json::from_str(&super::json("resnet50", &advice(), &[])).unwrap();
        assert_eq!(json["changes"][0]["saving_bytes"], 7_000_u64 << 20);
        assert_eq!(json["changes"][1]["result"]["verdict"], "does-not-fit");
        assert_eq!(json["combination"]["changes"][0]["name"], "accumulate");
        assert_eq!(json["changes"][0]["plan"], json!({"batch_size": 32, "accumulate": 2}));
    }
}
