//! What XLA turns for cuDNN: in float32 a convolution runs channels first, its filter outputs first.
//!
//! The step's arguments keep TensorFlow's order, so layout assignment puts a copy between a convolution and a variable or a fed image
//! (xla/service/gpu/transforms/layout_assignment.cc, `HeuristicLayoutAssignment`); copies of one tensor are one (hlo_cse.cc). The
//! filter's gradient comes in cuDNN's order, and what is computed of it elementwise has the order of what it is computed from: an
//! update reads the turned filter, which is there until then, and turned slots, and turns the new values back. In half precision the cast
//! makes the other order.

use super::super::cudnn::Pass;
use super::convolutions::pass;
use super::dependencies::has_effect;
use super::{Effect, Flow, Place, Wire};
use memfit_graph::kernels::{Kernel, Made, Stage};
use memfit_graph::{DType, elements, order};

/// Elements of a window from which on a transposition takes tiles of one filter.
const TILE: u64 = 16;

/// Inputs times outputs of a filter that is turned as it is read.
const SMALL: u64 = 64 * 64;

/// Gives turned filters, slots and images buffers of their own.
pub(super) fn turn(flow: &mut Flow) {
    let mut filters = Vec::new();
    let mut images: Vec<(usize, Wire)> = Vec::new();
    for (at, kernel) in flow.kernels.iter().enumerate() {
        let Some(pass) = pass(kernel.name) else { continue };
        let filter = kernel.inputs.get(1).filter(|_| pass != Pass::Filter);
        filters.extend(filter.and_then(|filter| filter_of(flow, *filter)));
        let image = kernel.inputs.first().filter(|_| pass != Pass::Input);
        images.extend(image.filter(|wire| is_image(flow, **wire)).map(|wire| (at, *wire)));
    }
    let turned = order::map(filters);
    for (variable, read) in &turned {
        flow.kernels[*read as usize].outputs.iter_mut().for_each(|made| made.place = Place::New);
        let of = flow.variables[*variable as usize].clone();
        let filter = Wire { kernel: *read, output: 0 };
        let updates = |kernel: &Kernel| has_effect(kernel) && kernel.effect.variable() == Some(*variable);
        let Some(last) = flow.kernels.iter().rposition(updates) else { continue };
        let [window @ .., from, to] = &of.shape[..] else { continue };
        let is_small = !(2..=TILE).contains(&elements(window)) || from.saturating_mul(*to) <= SMALL;
        // Convolutions over one axis read a view of the turned filter: no other reader keeps it from being turned within the update
        // (priority_fusion.cc, `CanFuseWithAllNonBitcastUsers`).
        if !(is_small && window.len() == 1) {
            flow.kernels[last].inputs.push(filter);
        }
        if is_small {
            // Slots are turned where they are used.
            continue;
        }
        // Slots that were not written in this step.
        let layer = flow.kernels[last].layer;
        let slots = flow.kernels.iter_mut().filter(|kernel| {
            kernel.stage == Stage::Update && kernel.layer == layer && kernel.after.is_empty()
        });
        for slot in slots {
            let is_slot = matches!(slot.effect, Effect::Read(of) if of != *variable);
            let alike = slot.outputs.iter_mut().filter(|made| is_slot && made.shape == of.shape);
            alike.for_each(|made| made.place = Place::New);
        }
    }
    let mut made: Vec<(Wire, Wire)> = Vec::new();
    for (at, image) in images {
        let known = made.iter().find(|(of, _)| *of == image).map(|(_, turned)| *turned);
        let turned = known.unwrap_or_else(|| {
            let (shape, dtype) = (flow.shape(image).to_vec(), flow.dtype(image));
            let turned = flow.make("Transpose", &[image], &shape, dtype, None);
            flow.kernels[turned.kernel as usize].stage = Stage::Forward;
            flow.kernels[turned.kernel as usize].layer = flow.kernels[at].layer;
            made.push((image, turned));
            turned
        });
        flow.kernels[at].inputs[0] = turned;
    }
}

/// Turns the rows of a table's gradient that are of a convolution's result: the kernel that makes them writes over nothing.
pub(super) fn turn_rows(flow: &mut Flow) {
    let is_scatter =
        |kernel: &Kernel| kernel.name == "UnsortedSegmentSum" || matches!(kernel.effect, Effect::Scatter(_));
    let scatters = flow.kernels.iter().filter(|kernel| is_scatter(kernel));
    let rows: Vec<Wire> = scatters.filter_map(|kernel| kernel.inputs.first().copied()).collect();
    for mut of in rows {
        // What an optimizer makes of a gradient has its order.
        while flow.kernel(of).stage == Stage::Update
            && let [from] = flow.kernel(of).inputs[..]
        {
            of = from;
        }
        if !is_of_convolution(flow, of, CHAIN) {
            continue;
        }
        let kernel = &mut flow.kernels[of.kernel as usize];
        if matches!(&kernel.outputs[..], [Made { place: Place::Alias, .. }]) {
            kernel.name = "Transpose";
        }
        kernel.outputs.iter_mut().for_each(|made| made.place = Place::New);
    }
}

/// So many kernels between a table's gradient and a convolution are looked through.
const CHAIN: usize = 8;

/// Whether elementwise kernels made it of what a convolution in float32 made.
fn is_of_convolution(flow: &Flow, wire: Wire, left: usize) -> bool {
    let wire = viewed(flow, wire);
    let kernel = flow.kernel(wire);
    let through = flow.made(wire).place == Place::Reuse && left > 0;
    (kernel.name.contains("BackpropInput") && flow.dtype(wire) == DType::Float32)
        || (through && kernel.inputs.iter().any(|from| is_of_convolution(flow, *from, left - 1)))
}

/// Whether a kernel makes nothing but a view.
pub(super) fn is_view(kernel: &Kernel) -> bool {
    kernel.effect == Effect::None && matches!(&kernel.outputs[..], [Made { place: Place::Alias, .. }])
}

/// What a view is a view of.
pub(super) fn viewed(flow: &Flow, mut wire: Wire) -> Wire {
    loop {
        let kernel = flow.kernel(wire);
        match kernel.inputs.first().filter(|_| is_view(kernel)) {
            Some(of) => wire = *of,
            None => return wire,
        }
    }
}

/// The variable of a filter that lies in another order than cuDNN's, and the kernel that reads it.
fn filter_of(flow: &Flow, filter: Wire) -> Option<(u32, u32)> {
    let (window, channels): (_, &[u64; 2]) = flow.shape(filter).split_last_chunk()?;
    let read = viewed(flow, filter);
    let Effect::Read(variable) = flow.kernel(read).effect else { return None };
    let several = [elements(window), channels[0], channels[1]].into_iter().filter(|n| *n > 1).count();
    let turns = flow.dtype(filter) == DType::Float32 && several > 1;
    turns.then_some((variable, read.kernel))
}

/// Whether these are fed images of several channels.
fn is_image(flow: &Flow, wire: Wire) -> bool {
    let shape = flow.shape(wire);
    let channels = shape.last().copied().unwrap_or(1);
    matches!(flow.kernel(viewed(flow, wire)).effect, Effect::Feed(_))
        && flow.dtype(wire) == DType::Float32
        && channels > 1
        && shape.get(1..shape.len().saturating_sub(1)).is_some_and(|window| elements(window) > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A convolution with a filter of this shape, and the filter's update by an optimizer with one slot; gives the reads of filter and slot.
    fn step(flow: &mut Flow, shape: &[u64]) -> [Wire; 2] {
        let [variable, slot] = [0, 1].map(|_| flow.variable(shape, DType::Float32, true));
        let filter = flow.read(variable);
        let image = Made { shape: vec![2, 8, 8, 3], dtype: DType::Float32, place: Place::Alias };
        let image = flow.effect("Placeholder", &[], vec![image], Effect::Feed(0), None);
        let y = flow.convolution("Conv2D", image, filter, &[2, 8, 8, 128]);
        flow.make("Conv2DBackpropFilter", &[image, y], shape, DType::Float32, None);
        flow.stage = Stage::Update;
        let old = flow.read(slot);
        flow.effect("AssignSubVariableOp", &[old], Vec::new(), Effect::Update(variable), None);
        [filter, old]
    }

    #[test]
    fn an_update_reads_the_turned_filter() {
        let turned = |shape: &[u64]| {
            let mut flow = Flow::default();
            let [filter, slot] = step(&mut flow, shape);
            turn(&mut flow);
            let update = flow.kernels.iter().find(|kernel| has_effect(kernel)).unwrap();
            assert_eq!(update.inputs.contains(&filter), flow.made(filter).place == Place::New);
            [filter, slot].map(|wire| flow.made(wire).place == Place::New)
        };
        assert_eq!(turned(&[3, 3, 64, 128]), [true, true]);
        // Of a window of one element, or small ones, slots are turned by the update itself.
        assert_eq!([turned(&[1, 1, 64, 128]), turned(&[3, 3, 3, 64])], [[true, false]; 2]);
        // One number for each output is the same in any order.
        assert_eq!(turned(&[1, 1, 1, 128]), [false, false]);
    }

    #[test]
    fn rows_of_a_convolution_are_turned() {
        let is_new = |name| {
            let mut flow = Flow::default();
            let parts = [0, 1].map(|_| flow.make(name, &[], &[2, 1, 8, 16], DType::Float32, None));
            let sum = flow.add_n(&parts).unwrap();
            let rows = flow.view("Reshape", sum, &[16, 16]);
            flow.make("UnsortedSegmentSum", &[rows], &[100, 16], DType::Float32, None);
            turn_rows(&mut flow);
            flow.kernel(rows).name == "Transpose" && flow.made(rows).place == Place::New
        };
        assert_eq!(["Conv2DBackpropInput", "MatMul"].map(is_new), [true, false]);
    }

    #[test]
    fn an_image_is_turned_once() {
        let mut flow = Flow::default();
        step(&mut flow, &[3, 3, 3, 64]);
        turn(&mut flow);
        let of = |name| flow.kernels.iter().find(|kernel| kernel.name == name).unwrap().inputs[0];
        assert_eq!(of("Conv2D"), of("Conv2DBackpropFilter"));
        assert_eq!(flow.kernel(of("Conv2D")).name, "Transpose");
    }
}
