//! A transformer of any length, broken apart as exporters do it.

use crate::model::Builder;

const WIDTH: u64 = 256;
const HEADS: i64 = 4;
const VOCABULARY: u64 = 1000;

/// A file with at least `nodes` nodes: as many whole blocks of attention and feed-forward layers as that takes.
pub fn transformer(nodes: usize) -> Vec<u8> {
    let mut b = Builder::default();
    let table = b.weight(&[VOCABULARY, WIDTH]);
    let mut x = b.node("Gather", &[&table, "tokens"], &[]);
    while b.nodes() < nodes {
        x = attention(&mut b, &x);
        x = feed_forward(&mut b, &x);
    }
    b.finish(&x)
}

fn linear(b: &mut Builder, x: &str, from: u64, to: u64) -> String {
    let (weight, bias) = (b.weight(&[from, to]), b.weight(&[to]));
    let product = b.node("MatMul", &[x, &weight], &[]);
    b.node("Add", &[&bias, &product], &[])
}

/// Layer normalisation in the nine nodes of old operator sets.
fn layer_norm(b: &mut Builder, x: &str) -> String {
    let (weight, bias) = (b.weight(&[WIDTH]), b.weight(&[WIDTH]));
    let (two, epsilon) = (b.number(2.0), b.number(1e-5));
    let mean = b.node("ReduceMean", &[x], &[("axes", &[-1])]);
    let centred = b.node("Sub", &[x, &mean], &[]);
    let square = b.node("Pow", &[&centred, &two], &[]);
    let variance = b.node("ReduceMean", &[&square], &[("axes", &[-1])]);
    let shifted = b.node("Add", &[&variance, &epsilon], &[]);
    let deviation = b.node("Sqrt", &[&shifted], &[]);
    let normal = b.node("Div", &[&centred, &deviation], &[]);
    let scaled = b.node("Mul", &[&normal, &weight], &[]);
    b.node("Add", &[&scaled, &bias], &[])
}

fn attention(b: &mut Builder, x: &str) -> String {
    let split = b.integers(&[0, 0, HEADS, WIDTH as i64 / HEADS]);
    let merge = b.integers(&[0, 0, WIDTH as i64]);
    let normal = layer_norm(b, x);
    let heads = |b: &mut Builder, order: &[i64]| {
        let y = linear(b, &normal, WIDTH, WIDTH);
        let y = b.node("Reshape", &[&y, &split], &[]);
        b.node("Transpose", &[&y], &[("perm", order)])
    };
    let query = heads(b, &[0, 2, 1, 3]);
    let key = heads(b, &[0, 2, 3, 1]);
    let value = heads(b, &[0, 2, 1, 3]);
    let scale = b.number(8.0);
    let scores = b.node("MatMul", &[&query, &key], &[]);
    let scores = b.node("Div", &[&scores, &scale], &[]);
    let weights = b.node("Softmax", &[&scores], &[]);
    let y = b.node("MatMul", &[&weights, &value], &[]);
    let y = b.node("Transpose", &[&y], &[("perm", &[0, 2, 1, 3])]);
    let y = b.node("Reshape", &[&y, &merge], &[]);
    let y = linear(b, &y, WIDTH, WIDTH);
    b.node("Add", &[x, &y], &[])
}

fn feed_forward(b: &mut Builder, x: &str) -> String {
    let normal = layer_norm(b, x);
    let inner = linear(b, &normal, WIDTH, 4 * WIDTH);
    let (root, one, half) = (b.number(std::f32::consts::SQRT_2), b.number(1.0), b.number(0.5));
    let y = b.node("Div", &[&inner, &root], &[]);
    let y = b.node("Erf", &[&y], &[]);
    let y = b.node("Add", &[&y, &one], &[]);
    let y = b.node("Mul", &[&inner, &y], &[]);
    let y = b.node("Mul", &[&y, &half], &[]);
    let y = linear(b, &y, 4 * WIDTH, WIDTH);
    b.node("Add", &[x, &y], &[])
}
