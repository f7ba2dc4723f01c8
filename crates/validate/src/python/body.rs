//! The lines of a written module's `forward`: in the graph's order, with a name deleted after its last use, and what is recomputed in
//! backward as a function of its own.

use super::line::{Line, name, tuple};
use super::quoted;
use memfit_engine::Setting;
use memfit_graph::TensorId;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::Range;

/// The lines of `forward`.
pub(super) struct Body<'a> {
    setting: &'a Setting<'a>,
    lines: &'a [Line],
    outputs: &'a [TensorId],
    /// The last line that needs a name; inputs stay, since who calls holds them.
    last: BTreeMap<TensorId, usize>,
}

impl<'a> Body<'a> {
    pub(super) fn of(setting: &'a Setting<'a>, lines: &'a [Line], outputs: &'a [TensorId]) -> Body<'a> {
        let mut last: BTreeMap<TensorId, usize> = BTreeMap::new();
        for (i, line) in lines.iter().enumerate() {
            last.extend(line.makes.iter().chain(&line.reads).map(|id| (*id, i)));
        }
        last.retain(|id, _| {
            let inputs = &setting.graph.inputs;
            !outputs.contains(id) && !inputs.contains(id) && !name(setting, *id).starts_with("self.")
        });
        Body { setting, lines, outputs, last }
    }

    pub(super) fn text(&self) -> String {
        let segment = |line: &Line| self.setting.recomputed.iter().position(|r| r.contains(&line.number));
        let mut text = String::new();
        let mut begin = 0;
        while begin < self.lines.len() {
            let which = segment(&self.lines[begin]);
            let more = self.lines[begin..].iter().take_while(|line| segment(line) == which).count();
            let lines = begin..begin + more;
            begin = lines.end;
            match which {
                Some(number) => self.recomputed(&mut text, number, lines),
                None => self.plain(&mut text, lines, 8, &|_| true),
            }
        }
        text
    }

    /// Lines one after the other; names that `own` says are given up after their last use.
    fn plain(&self, text: &mut String, lines: Range<usize>, indent: usize, own: &dyn Fn(TensorId) -> bool) {
        let mut layer: Option<&str> = None;
        for i in lines {
            let line = &self.lines[i];
            if layer != Some(&*line.layer) {
                layer = Some(&line.layer);
                let _ = writeln!(text, "{:indent$}self.at({})", "", quoted(&line.layer));
            }
            for one in line.text.lines() {
                let _ = writeln!(text, "{:indent$}{one}", "");
            }
            self.delete(text, &(i..i + 1), indent, own);
        }
    }

    /// Gives up the names whose last use is in these lines.
    fn delete(&self, text: &mut String, lines: &Range<usize>, indent: usize, own: &dyn Fn(TensorId) -> bool) {
        let gone = self.last.iter().filter(|(id, at)| lines.contains(at) && own(**id));
        let gone: Vec<String> = gone.map(|(id, _)| name(self.setting, *id)).collect();
        if !gone.is_empty() {
            let _ = writeln!(text, "{:indent$}del {}", "", gone.join(", "));
        }
    }

    /// A function of what it reads, which is called again in backward.
    fn recomputed(&self, text: &mut String, number: usize, lines: Range<usize>) {
        let own = &self.lines[lines.clone()];
        let made: BTreeSet<TensorId> = own.iter().flat_map(|line| &line.makes).copied().collect();
        let read = own.iter().flat_map(|line| &line.reads).copied().collect::<BTreeSet<_>>();
        let names = |ids: Vec<TensorId>| ids.into_iter().map(|id| name(self.setting, id)).collect::<Vec<_>>();
        let given = read.into_iter().filter(|id| !made.contains(id)).collect();
        let mut given = names(given);
        given.retain(|name| !name.starts_with("self."));
        let leaves = |id: &TensorId| {
            self.outputs.contains(id) || self.last.get(id).is_some_and(|last| *last >= lines.end)
        };
        let back = names(made.iter().copied().filter(leaves).collect());
        let function = format!("segment{number}");
        let _ = writeln!(text, "        def {function}({}):", given.join(", "));
        self.plain(text, lines.clone(), 12, &|id| made.contains(&id));
        let _ = writeln!(text, "            return {}", tuple(&back));
        given.insert(0, function);
        let call = format!("checkpoint({}, use_reentrant=False)", given.join(", "));
        let _ = writeln!(text, "        {}, = {call}", back.join(", "));
        self.delete(text, &lines, 8, &|id| !made.contains(&id));
    }
}
