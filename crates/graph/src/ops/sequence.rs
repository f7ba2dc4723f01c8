//! SequenceEmpty, SequenceConstruct, SequenceInsert, SequenceErase, SequenceAt, SequenceLength. ONNX 11.
//!
//! A sequence keeps the type of each item as long as its length is known. It is a list on the host: building one allocates
//! nothing, and taking an item out gives the tensor that was put in.

use super::identity;
use crate::{Build, DType, Infer, Lowering, Op, OpError, OpSpec, Shape, TensorType, Type, Value};
use std::sync::Arc;

/// Which of the six.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Sequence {
    Empty(DType),
    Construct,
    Insert,
    Erase,
    At,
    Length,
}

/// How the six are found.
pub const SPECS: &[OpSpec] = &[
    spec("SequenceAt", |_, _| Ok(Arc::new(Sequence::At))),
    spec("SequenceConstruct", |_, _| Ok(Arc::new(Sequence::Construct))),
    spec("SequenceEmpty", |a, _| {
        Ok(Arc::new(Sequence::Empty(super::dtype_attribute(a, "dtype")?.unwrap_or(DType::Float32))))
    }),
    spec("SequenceErase", |_, _| Ok(Arc::new(Sequence::Erase))),
    spec("SequenceInsert", |_, _| Ok(Arc::new(Sequence::Insert))),
    spec("SequenceLength", |_, _| Ok(Arc::new(Sequence::Length))),
];

const fn spec(name: &'static str, build: Build) -> OpSpec {
    OpSpec { domain: "", name, since: &[11], build }
}

/// The element type and the items of input `i`.
pub(super) fn input<'a>(cx: &Infer<'a>, i: usize) -> Result<(Type, Option<&'a Vec<Type>>), OpError> {
    match cx.require(i)? {
        Type::Sequence { element, items } => Ok(((**element).clone(), items.as_ref())),
        Type::Unknown => Ok((Type::Unknown, None)),
        other => Err(OpError::input(i, "a sequence", other)),
    }
}

/// Where input `i` points in a list of `len` items, of which `end` may be pointed at; `None` where it is not known.
fn position(cx: &Infer<'_>, i: usize, len: usize, end: usize) -> Result<Option<usize>, OpError> {
    let Some(n) = cx.value(i).and_then(Value::single).and_then(crate::Num::as_i64) else { return Ok(None) };
    let from_front = if n < 0 { i64::try_from(len).ok().and_then(|len| n.checked_add(len)) } else { Some(n) };
    let at = from_front.and_then(|n| usize::try_from(n).ok()).filter(|n| *n < end);
    at.map(Some).ok_or_else(|| OpError::input(i, format!("a position among {len} item(s)"), n))
}

impl Sequence {
    fn insert(cx: &Infer<'_>) -> Result<Type, OpError> {
        let (element, items) = input(cx, 0)?;
        let new = cx.require(1)?.clone();
        let Some(items) = items else {
            return Ok(Type::Sequence { element: Box::new(element.join(&new)), items: None });
        };
        let at = if cx.has(2) { position(cx, 2, items.len(), items.len() + 1)? } else { Some(items.len()) };
        let mut all = items.clone();
        match at {
            Some(at) => all.insert(at, new),
            // Wherever it goes, only what all items share is known of each.
            None => {
                let joined = all.iter().fold(new, |acc, item| acc.join(item));
                all = vec![joined; all.len() + 1];
            }
        }
        Ok(Type::sequence(all))
    }

    fn erase(cx: &Infer<'_>) -> Result<Type, OpError> {
        let (element, items) = input(cx, 0)?;
        let unknown = || Type::Sequence { element: Box::new(element.clone()), items: None };
        let Some(items) = items else { return Ok(unknown()) };
        let Some(last) = items.len().checked_sub(1) else {
            return Err(OpError::input(0, "a sequence that is not empty", "an empty one"));
        };
        let at = if cx.has(1) { position(cx, 1, items.len(), items.len())? } else { Some(last) };
        let mut all = items.clone();
        match at {
            Some(at) => drop(all.remove(at)),
            None => all = vec![element; last],
        }
        Ok(Type::sequence(all))
    }

    fn at(cx: &Infer<'_>) -> Result<Type, OpError> {
        let (element, items) = input(cx, 0)?;
        let Some(items) = items else { return Ok(element) };
        Ok(position(cx, 1, items.len(), items.len())?.map_or(element, |at| items[at].clone()))
    }
}

impl Op for Sequence {
    fn name(&self) -> &str {
        match self {
            Sequence::Empty(_) => "SequenceEmpty",
            Sequence::Construct => "SequenceConstruct",
            Sequence::Insert => "SequenceInsert",
            Sequence::Erase => "SequenceErase",
            Sequence::At => "SequenceAt",
            Sequence::Length => "SequenceLength",
        }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let ty = match self {
            Sequence::Empty(dtype) => {
                let element = Box::new(Type::Tensor(TensorType { dtype: *dtype, shape: None }));
                Type::Sequence { element, items: Some(Vec::new()) }
            }
            Sequence::Construct => Type::sequence((0..cx.input_count()).map(|i| cx.ty(i).clone()).collect()),
            Sequence::Insert => Sequence::insert(cx)?,
            Sequence::Erase => Sequence::erase(cx)?,
            Sequence::At => Sequence::at(cx)?,
            Sequence::Length => {
                match input(cx, 0)?.1.and_then(|items| i64::try_from(items.len()).ok()) {
                    Some(n) => cx.set_value(0, Value::scalar(DType::Int64, n)),
                    None => cx.set(0, DType::Int64, Some(Shape::scalar())),
                }
                return Ok(());
            }
        };
        cx.set_type(0, ty);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        match self {
            Sequence::At => l.finish(identity::alias(l)),
            Sequence::Length => super::allocate(l, "len"),
            Sequence::Empty(_) | Sequence::Construct | Sequence::Insert | Sequence::Erase => l.not_modelled(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{In, float, int, run};
    use super::*;
    use crate::Attributes;

    fn types(dims: &[&[u64]]) -> Vec<Type> {
        dims.iter().map(|d| Type::tensor(DType::Float32, Shape::from(*d))).collect()
    }

    fn one(op: &str, inputs: &[In]) -> Result<Type, String> {
        Ok(run(op, 11, Attributes::default(), inputs, 1)?.remove(0).0)
    }

    #[test]
    fn items_keep_their_types() {
        let list = In::Typed(Type::sequence(types(&[&[1], &[2]])));
        let inserted = one("SequenceInsert", &[list.clone(), float(&[3]), int(-1)]).unwrap();
        assert_eq!(inserted, Type::sequence(types(&[&[1], &[3], &[2]])));
        let appended = one("SequenceInsert", &[list.clone(), float(&[3])]).unwrap();
        assert_eq!(appended, Type::sequence(types(&[&[1], &[2], &[3]])));
        assert_eq!(
            one("SequenceErase", std::slice::from_ref(&list)).unwrap(),
            Type::sequence(types(&[&[1]]))
        );
        assert_eq!(one("SequenceAt", &[list.clone(), int(-1)]).unwrap(), types(&[&[2]])[0]);
        assert!(one("SequenceAt", &[list.clone(), int(2)]).is_err());
        assert!(one("SequenceInsert", &[list, float(&[3]), int(3)]).is_err());
        assert!(one("SequenceErase", &[In::Typed(Type::sequence(vec![]))]).is_err());
    }

    #[test]
    fn an_unknown_position_leaves_what_all_share() {
        let list = In::Typed(Type::sequence(types(&[&[1, 4], &[2, 4]])));
        let at = In::Typed(Type::tensor(DType::Int64, Shape::scalar()));
        let item = one("SequenceAt", &[list, at]).unwrap();
        assert_eq!(item.shape().unwrap().upper(), Some(vec![2, 4]));
    }
}
