//! Areas as large as what they stand for, close to squares (Bruls, Huizing and van Wijk, "Squarified treemaps", 2000).

/// A place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rect {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Rect {
    pub(crate) fn area(&self) -> f64 {
        self.width * self.height
    }

    /// The same without a margin.
    pub(crate) fn inner(&self, margin: f64, top: f64) -> Rect {
        Rect {
            x: self.x + margin,
            y: self.y + top,
            width: (self.width - 2.0 * margin).max(0.0),
            height: (self.height - margin - top).max(0.0),
        }
    }
}

/// A place for each value, in the order of the values, which go from large to small.
pub(crate) fn squarify(values: &[u64], within: Rect) -> Vec<Rect> {
    let total: f64 = values.iter().map(|v| *v as f64).sum();
    let scale = if total > 0.0 { within.area() / total } else { 0.0 };
    let areas: Vec<f64> = values.iter().map(|v| *v as f64 * scale).collect();
    let mut free = within;
    let mut places = Vec::with_capacity(values.len());
    let mut rest = &areas[..];
    while !rest.is_empty() {
        let side = free.width.min(free.height);
        let mut count = 1;
        while count < rest.len() && worst(&rest[..=count], side) <= worst(&rest[..count], side) {
            count += 1;
        }
        let (row, after) = rest.split_at(count);
        lay(row, &mut free, &mut places);
        rest = after;
    }
    places
}

/// How far the narrowest of a row is from a square, along a side of this length.
fn worst(row: &[f64], side: f64) -> f64 {
    let sum: f64 = row.iter().sum();
    let (least, most) = row.iter().fold((f64::MAX, 0.0_f64), |(a, b), v| (a.min(*v), b.max(*v)));
    let square = side * side;
    if sum > 0.0 && least > 0.0 {
        (square * most / (sum * sum)).max(sum * sum / (square * least))
    } else {
        f64::MAX
    }
}

/// Lays a row along the shorter side and takes its place from what is free.
fn lay(row: &[f64], free: &mut Rect, places: &mut Vec<Rect>) {
    let sum: f64 = row.iter().sum();
    let upright = free.width >= free.height;
    let side = if upright { free.height } else { free.width };
    let thickness = if side > 0.0 { sum / side } else { 0.0 };
    let mut at = 0.0;
    for area in row {
        let length = if thickness > 0.0 { area / thickness } else { 0.0 };
        places.push(if upright {
            Rect { x: free.x, y: free.y + at, width: thickness, height: length }
        } else {
            Rect { x: free.x + at, y: free.y, width: length, height: thickness }
        });
        at += length;
    }
    if upright {
        free.x += thickness;
        free.width = (free.width - thickness).max(0.0);
    } else {
        free.y += thickness;
        free.height = (free.height - thickness).max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_are_in_proportion_and_inside() {
        let within = Rect { x: 0.0, y: 0.0, width: 600.0, height: 400.0 };
        let values = [6, 6, 4, 3, 2, 2, 1];
        let places = squarify(&values, within);
        for (value, place) in values.iter().zip(&places) {
            assert!((place.area() - *value as f64 * 10_000.0).abs() < 1.0, "{value}: {place:?}");
            assert!(place.x >= 0.0 && place.x + place.width <= 600.01 && place.y + place.height <= 400.01);
            let ratio = place.width / place.height;
            assert!((0.2..5.0).contains(&ratio), "{place:?}");
        }
    }

    #[test]
    fn nothing_and_noughts_are_no_trouble() {
        let within = Rect { x: 0.0, y: 0.0, width: 10.0, height: 0.0 };
        assert!(squarify(&[], within).is_empty());
        assert_eq!(squarify(&[3, 0, 0], within).len(), 3);
        assert!(squarify(&[0, 0], within).iter().all(|r| r.area() == 0.0));
    }
}
