//! Writes down a step's temporaries by following the Python variables that hold them.
//!
//! CPython frees a tensor when the last reference to it goes: when a variable is rebound *after* the new value was
//! made, at `del`, or when the function returns. That is all that decides which temporaries overlap, so the rules are
//! written in these terms.

use super::{Parameter, StepEvent};
use memfit_graph::Bytes;

/// The running step: live temporaries and the variables that refer to them.
pub struct Recorder<'a> {
    params: &'a [Parameter],
    events: Vec<StepEvent>,
    references: Vec<u32>,
    variables: Vec<(&'static str, Vec<u32>)>,
}

impl<'a> Recorder<'a> {
    /// Nothing happened yet.
    pub fn new(params: &'a [Parameter]) -> Recorder<'a> {
        // As many temporaries as parameters is what most implementations come to.
        let (events, references) = (Vec::with_capacity(2 * params.len()), Vec::with_capacity(params.len()));
        Recorder { params, events, references, variables: Vec::new() }
    }

    /// The parameter at `index`.
    pub fn param(&self, index: usize) -> &'a Parameter {
        &self.params[index]
    }

    /// A new tensor that no variable holds yet.
    pub fn value(&mut self, label: &'static str, index: usize, bytes: Bytes) -> u32 {
        let id = u32::try_from(self.references.len()).unwrap_or(u32::MAX);
        self.references.push(1);
        self.events.push(StepEvent::Allocate {
            id,
            bytes,
            label,
            parameter: u32::try_from(index).unwrap_or(u32::MAX),
        });
        id
    }

    /// A new tensor of the parameter's size that no variable holds yet.
    pub fn like(&mut self, label: &'static str, index: usize) -> u32 {
        self.value(label, index, self.params[index].bytes())
    }

    /// A new scalar of the parameter's dtype that no variable holds yet.
    pub fn scalar(&mut self, label: &'static str, index: usize) -> u32 {
        self.value(label, index, self.params[index].dtype.size_of(1))
    }

    /// One reference to the tensor goes.
    pub fn drop_value(&mut self, id: u32) {
        let count = &mut self.references[id as usize];
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.events.push(StepEvent::Free { id });
        }
    }

    /// Tensors that go together; a list lets go of its last one first.
    pub fn drop_values(&mut self, ids: Vec<u32>) {
        for id in ids.into_iter().rev() {
            self.drop_value(id);
        }
    }

    /// `name = values`, which no variable held yet; then the old value goes.
    pub fn bind(&mut self, name: &'static str, values: Vec<u32>) {
        match self.variables.iter_mut().find(|(known, _)| *known == name) {
            Some((_, slot)) => {
                let old = std::mem::replace(slot, values);
                self.drop_values(old);
            }
            None => self.variables.push((name, values)),
        }
    }

    /// `name = other`.
    pub fn alias(&mut self, name: &'static str, other: &'static str) {
        let ids = self.variables.iter().find(|(known, _)| *known == other).map(|(_, ids)| ids.clone());
        let ids = ids.unwrap_or_default();
        for id in &ids {
            self.references[*id as usize] += 1;
        }
        self.bind(name, ids);
    }

    /// The variable of a finished `for name in list`: of the list it was given, it keeps the last tensor only.
    pub fn keep_last(&mut self, name: &'static str) {
        let Some((_, ids)) = self.variables.iter_mut().find(|(known, _)| *known == name) else { return };
        let last = ids.len().saturating_sub(1);
        let others: Vec<u32> = ids.drain(..last).collect();
        self.drop_values(others);
    }

    /// `name` is bound to something that existed before the step, or deleted.
    pub fn release(&mut self, name: &'static str) {
        self.bind(name, Vec::new());
    }

    /// `name = …`, a new tensor of the parameter's size.
    pub fn tensor(&mut self, name: &'static str, index: usize) {
        let id = self.like(name, index);
        self.bind(name, vec![id]);
    }

    /// `name = torch._foreach_…(…)`: a new tensor for each parameter of the group.
    pub fn list(&mut self, name: &'static str, group: &[usize]) {
        let ids = group.iter().map(|index| self.like(name, *index)).collect();
        self.bind(name, ids);
    }

    /// The function returns: all variables go.
    pub fn end_function(&mut self) {
        for (_, ids) in std::mem::take(&mut self.variables) {
            self.drop_values(ids);
        }
    }

    /// Parameters by dtype, as `_group_tensors_by_device_and_dtype` gives them: a hash map whose newest key comes
    /// first.
    pub fn groups(&self, indices: &[usize]) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for index in indices {
            let dtype = self.params[*index].dtype;
            match groups
                .iter_mut()
                .find(|group| group.first().is_some_and(|i| self.params[*i].dtype == dtype))
            {
                Some(group) => group.push(*index),
                None => groups.push(vec![*index]),
            }
        }
        groups.reverse();
        groups
    }

    /// What happened.
    pub fn into_events(self) -> Vec<StepEvent> {
        self.events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::DType;

    #[test]
    fn a_rebound_variable_lets_go_after_the_new_value_is_made() {
        let p = [Parameter { shape: [2].as_slice().into(), dtype: DType::Float32, is_table: false }];
        let mut step = Recorder::new(&p);
        step.tensor("a", 0);
        step.alias("b", "a");
        step.tensor("a", 0);
        step.release("b");
        step.end_function();
        let order: Vec<i64> = step
            .into_events()
            .iter()
            .map(|event| match event {
                StepEvent::Allocate { id, .. } => i64::from(*id) + 1,
                StepEvent::Free { id } => -i64::from(*id) - 1,
            })
            .collect();
        assert_eq!(order, [1, 2, -1, -2]);
    }
}
