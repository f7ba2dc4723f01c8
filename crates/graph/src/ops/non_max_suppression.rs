//! NonMaxSuppression. ONNX 10, 11.
//!
//! How many boxes stay depends on the data: exact where boxes and scores are known, else at most so many for each class of each
//! image. The result are indices, without gradient.

use crate::{DType, Dim, Infer, Lowering, Num, Op, OpError, OpSpec, Shape, Value};
use std::sync::Arc;

/// Boxes that no better box of their class overlaps, as (image, class, box) triples.
#[derive(Clone, Copy, Debug)]
pub struct NonMaxSuppression {
    /// Whether a box is centre, width and height, else two corners.
    pub center: bool,
}

/// How NonMaxSuppression is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "NonMaxSuppression",
    since: &[10, 11],
    build: |a, _| Ok(Arc::new(NonMaxSuppression { center: a.flag("center_point_box")? })),
}];

/// Top, left, bottom, right.
type Rectangle = [f64; 4];

impl NonMaxSuppression {
    fn rectangle(&self, b: &[f64]) -> Option<Rectangle> {
        let [y, x, y2, x2] = *b else { return None };
        Some(if self.center {
            let (cx, cy, w, h) = (y, x, y2, x2);
            [cy - h / 2.0, cx - w / 2.0, cy + h / 2.0, cx + w / 2.0]
        } else {
            [y.min(y2), x.min(x2), y.max(y2), x.max(x2)]
        })
    }

    /// The triples that stay.
    fn select(
        &self,
        boxes: &Value,
        scores: &Value,
        most: u64,
        iou: f64,
        score: Option<f64>,
    ) -> Option<Vec<Num>> {
        let (coordinates, points) = (boxes.floats()?, scores.floats()?);
        let [images, classes, count] = scores.shape[..] else { return None };
        if boxes.shape != [images, count, 4] {
            return None;
        }
        let rectangles: Vec<Rectangle> =
            coordinates.chunks(4).map(|b| self.rectangle(b)).collect::<Option<_>>()?;
        let count = usize::try_from(count).ok()?;
        let mut chosen = Vec::new();
        for (row, points) in points.chunks(count.max(1)).enumerate() {
            let (image, class) = (row as u64 / classes.max(1), row as u64 % classes.max(1));
            let of_image = rectangles.get(usize::try_from(image).ok()?.checked_mul(count)?..)?;
            let mut order: Vec<usize> =
                (0..points.len()).filter(|k| score.is_none_or(|least| points[*k] > least)).collect();
            order.sort_by(|a, b| points[*b].total_cmp(&points[*a]));
            let mut kept: Vec<usize> = Vec::new();
            for k in order {
                if kept.len() as u64 >= most {
                    break;
                }
                if kept.iter().all(|other| overlap(&of_image[*other], &of_image[k]) <= iou) {
                    kept.push(k);
                }
            }
            for k in kept {
                chosen.extend([image, class, k as u64].map(|n| Num::from(Dim::Known(n))));
            }
        }
        Some(chosen)
    }
}

/// Intersection over union.
fn overlap(a: &Rectangle, b: &Rectangle) -> f64 {
    let area = |r: &Rectangle| (r[2] - r[0]) * (r[3] - r[1]);
    let (height, width) = (a[2].min(b[2]) - a[0].max(b[0]), a[3].min(b[3]) - a[1].max(b[1]));
    let common = height.max(0.0) * width.max(0.0);
    let union = area(a) + area(b) - common;
    if union > 0.0 { common / union } else { 0.0 }
}

impl Op for NonMaxSuppression {
    fn name(&self) -> &str {
        "NonMaxSuppression"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.require(1)?;
        let (boxes, scores) = (cx.shape_of_rank(0, 3)?, cx.shape_of_rank(1, 3)?);
        let number = |i: usize| cx.value(i).and_then(Value::single).and_then(Num::as_f64);
        // A limit that is not there is zero: no output.
        let most = match cx.value(2).and_then(Value::single).and_then(Num::as_i64) {
            Some(n) => Some(u64::try_from(n).unwrap_or(0)),
            None if cx.has(2) => None,
            None => Some(0),
        };
        let iou = if cx.has(3) { number(3) } else { Some(0.0) };
        let score = if cx.has(4) { number(4).map(Some) } else { Some(None) };
        let known = cx.value(0).zip(cx.value(1)).zip(most).zip(iou).zip(score);
        let chosen = known
            .and_then(|((((boxes, scores), most), iou), score)| self.select(boxes, scores, most, iou, score));
        if let Some(data) = chosen {
            cx.set_value(0, Value { dtype: DType::Int64, shape: vec![data.len() as u64 / 3, 3], data });
            return Ok(());
        }
        let upper = scores.and_then(|s| {
            let spatial = s[2].upper().or_else(|| boxes?[1].upper());
            let each = spatial.into_iter().chain(most).min()?;
            s[0].upper()?.checked_mul(s[1].upper()?)?.checked_mul(each)
        });
        let none = upper == Some(0) || most == Some(0);
        let count = if none { Dim::Known(0) } else { cx.fresh_dim("boxes", upper) };
        cx.set(0, DType::Int64, Some([count, Dim::Known(3)].into_iter().collect::<Shape>()));
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        super::allocate(l, "nms");
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{In, float, int, run};
    use super::*;
    use crate::Attributes;

    fn floats(shape: &[u64], data: &[f64]) -> In {
        let data = data.iter().copied().map(Num::Float).collect();
        In::Value(Value { dtype: DType::Float32, shape: shape.to_vec(), data })
    }

    #[test]
    fn overlapping_boxes_go() {
        let boxes = [0.0, 0.0, 1.0, 1.0, 0.0, 0.1, 1.0, 1.1, 0.0, 5.0, 1.0, 6.0];
        let boxes = floats(&[1, 3, 4], &boxes);
        let scores = floats(&[1, 1, 3], &[0.9, 0.75, 0.6]);
        let of = |most: i64, score: f64| {
            let inputs =
                [boxes.clone(), scores.clone(), int(most), floats(&[], &[0.5]), floats(&[], &[score])];
            run("NonMaxSuppression", 11, Attributes::default(), &inputs, 1)
                .unwrap()
                .remove(0)
                .1
                .unwrap()
                .ints()
                .unwrap()
        };
        assert_eq!(of(3, 0.0), [0, 0, 0, 0, 0, 2]);
        assert_eq!(of(1, 0.0), [0, 0, 0]);
        assert_eq!(of(3, 0.7), [0, 0, 0]);
        assert!(of(0, 0.0).is_empty());
    }

    #[test]
    fn unknown_boxes_have_a_bound() {
        let inputs = [float(&[2, 100, 4]), float(&[2, 5, 100]), int(7)];
        let out = run("NonMaxSuppression", 11, Attributes::default(), &inputs, 1).unwrap();
        assert_eq!(out[0].0.shape().unwrap().upper(), Some(vec![70, 3]));
        let out = run("NonMaxSuppression", 11, Attributes::default(), &inputs[..2], 1).unwrap();
        assert_eq!(out[0].0.shape(), Some(&Shape::from([0, 3])));
        assert!(run("NonMaxSuppression", 11, Attributes::default(), &[float(&[2]), float(&[2])], 1).is_err());
    }
}
