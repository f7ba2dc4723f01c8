//! Windows over images on Keras' PyTorch backend: convolutions and pools, and the copies that turn images around.

use super::Torch;
use crate::spatial::{DataFormat, Padding, PerAxis, Window};
use memfit_graph::ops::Traced;
use memfit_graph::{Autocast, Call, DType, Grad, OutDtype, Place, Saved, elements};

/// A shape with its channels where PyTorch has them.
fn shape_channels_first(shape: &[u64], format: DataFormat) -> Vec<u64> {
    let mut made = shape.to_vec();
    if format == DataFormat::ChannelsLast && made.len() > 2 {
        let channels = made.remove(made.len() - 1);
        made.insert(1, channels);
    }
    made
}

impl Torch<'_, '_> {
    /// An image with its channels before its sizes, contiguous.
    pub fn channels_first(&mut self, x: &Traced, format: DataFormat) -> Traced {
        if format == DataFormat::ChannelsFirst || x.rank() < 3 {
            return x.clone();
        }
        let last = x.rank() - 1;
        let order: Vec<usize> = [0, last].into_iter().chain(1..last).collect();
        let turned = x.permute(self.l, &order);
        self.contiguous(&turned)
    }

    /// A result that has its channels before its sizes, as the layer gives it.
    pub fn channels_back(&mut self, y: &Traced, format: DataFormat) -> Traced {
        if format == DataFormat::ChannelsFirst || y.rank() < 3 {
            return y.clone();
        }
        let order: Vec<usize> = [0].into_iter().chain(2..y.rank()).chain([1]).collect();
        y.permute(self.l, &order)
    }

    /// The image of a window that is padded to the same size: as it is where both ends get as much, else a padded copy, with the
    /// edge's values around it for a pool. Padding with those keeps what it pads (derivatives.yaml, `replication_pad2d`).
    pub fn padded(
        &mut self,
        x: &Traced,
        [size, stride, dilation]: [&PerAxis; 3],
        repeats_edge: bool,
    ) -> Traced {
        let mut shape = x.shape.clone();
        let mut is_even = true;
        for (i, dim) in shape.iter_mut().skip(2).enumerate() {
            let reach = size.at(i).saturating_sub(1).saturating_mul(dilation.at(i)).saturating_add(1);
            let steps = dim.div_ceil(stride.at(i).max(1)).saturating_sub(1);
            let more = steps.saturating_mul(stride.at(i)).saturating_add(reach).saturating_sub(*dim);
            is_even &= more.is_multiple_of(2);
            *dim = dim.saturating_add(more);
        }
        if is_even {
            return x.clone();
        }
        if !repeats_edge {
            return self.pad(x, &shape);
        }
        let call = Call::new("replication_pad2d").input(x.operand, Grad::New).saves([Saved::Input(0)]);
        Traced::of(self.l, call.output(&shape, OutDtype::Like(0), Place::New), &shape, &[x])
    }

    /// ATen's one function for all convolutions.
    fn convolution(&mut self, x: &Traced, kernel: &Traced, shape: &[u64]) -> Traced {
        let call = Call::new("convolution")
            .autocast(Autocast::Lower)
            .input(x.operand, Grad::New)
            .input(kernel.operand, Grad::New)
            .output(shape, OutDtype::Promoted, Place::New)
            .saves([Saved::Input(0), Saved::Input(1)]);
        Traced::of(self.l, call, shape, &[x, kernel])
    }

    /// A convolution of tensor `x` with `kernel`, whose last axis are the output's channels.
    pub fn convolve(&mut self, x: &Traced, kernel: &Traced, window: &Window, shape: &[u64]) -> Traced {
        let last = window.data_format == DataFormat::ChannelsLast;
        let mut x = self.channels_first(x, window.data_format);
        let order: Vec<usize> = [kernel.rank() - 1].into_iter().chain(0..kernel.rank() - 1).collect();
        let mut kernel = kernel.permute(self.l, &order);
        // Two and three axes have a layout of their own.
        let converts = last && window.axes > 1;
        if converts {
            kernel = self.contiguous(&kernel);
            x = self.channels_back(&x, window.data_format);
            x = self.contiguous(&x);
            let order: Vec<usize> = [0, x.rank() - 1].into_iter().chain(1..x.rank() - 1).collect();
            x = x.permute(self.l, &order);
        }
        if window.padding == Padding::Same {
            x = self.padded(&x, [&window.kernel_size, &window.strides, &window.dilation_rate], false);
        }
        let made = if converts { shape.to_vec() } else { shape_channels_first(shape, window.data_format) };
        let y = self.convolution(&x, &kernel, &made);
        // In that layout the result is contiguous with its channels last.
        if converts { y } else { self.channels_back(&y, window.data_format) }
    }

    /// The same with a kernel whose channels are each multiplied on their own: `[…, 1, channels * multiplier]`.
    pub fn convolve_depthwise(
        &mut self,
        x: &Traced,
        kernel: &Traced,
        window: &Window,
        shape: &[u64],
    ) -> Traced {
        let mut flat = kernel.shape.clone();
        let last = flat.pop().unwrap_or(1);
        let channels = flat.pop().unwrap_or(1);
        flat.extend([1, channels.saturating_mul(last)]);
        let kernel = kernel.reshape(self.l, &flat);
        self.convolve(x, &kernel, window, shape)
    }

    /// A transposed convolution without padding, of which the middle is cut out. The result may be longer than it: then it is
    /// padded, which is left out here.
    pub fn convolve_transposed(
        &mut self,
        x: &Traced,
        kernel: &Traced,
        window: &Window,
        shape: &[u64],
    ) -> Traced {
        let x = self.channels_first(x, window.data_format);
        let made = shape_channels_first(shape, window.data_format);
        let mut whole = made.clone();
        for (i, (dim, size)) in whole.iter_mut().zip(&x.shape).skip(2).enumerate() {
            let reach = window.kernel_size.at(i).saturating_sub(1).saturating_mul(window.dilation_rate.at(i));
            *dim = size
                .saturating_sub(1)
                .saturating_mul(window.strides.at(i))
                .saturating_add(reach)
                .saturating_add(1);
        }
        let mut y = self.convolution(&x, kernel, &whole);
        for (axis, size) in made.iter().enumerate().skip(2) {
            let more = y.shape.get(axis).and_then(|n| n.checked_sub(*size)).filter(|n| *n > 0);
            if let Some(more) = more {
                y = y.narrow(self.l, axis, more / 2, *size);
            }
        }
        if y.shape[..] != made[..] {
            y = self.pad(&y, &made);
        }
        self.channels_back(&y, window.data_format)
    }

    /// Adds variable `k` along the channels, out of place.
    pub fn add_bias(&mut self, y: &Traced, k: usize, format: DataFormat) -> Traced {
        let bias = self.weight(k);
        let mut shape = vec![1; y.rank()];
        let channels = elements(&bias.shape);
        shape.get_mut(format.channel_axis(y.rank())).into_iter().for_each(|d| *d = channels);
        let bias = bias.reshape(self.l, &shape);
        self.add(y, &bias)
    }

    /// Pooling of an image: the calls of its channels-first copy. The largest are kept by their places, beside the input.
    pub fn pool(&mut self, x: &Traced, is_max: bool, format: DataFormat, shape: &[u64]) -> Traced {
        let made = shape_channels_first(shape, format);
        let name = if is_max { "max_pool2d_with_indices" } else { "avg_pool2d" };
        let call = Call::new(name).input(x.operand, Grad::New).output(&made, OutDtype::Like(0), Place::New);
        let call = match is_max {
            true => call
                .output(&made, OutDtype::Is(DType::Int64), Place::New)
                .saves([Saved::Input(0), Saved::Output(1)]),
            false => call.saves([Saved::Input(0)]),
        };
        let y = Traced::of(self.l, call, &made, &[x]);
        self.channels_back(&y, format)
    }

    /// `torch.nn.functional.interpolate` of an image, turned around by views alone (backend/torch/image.py, `resize`). It keeps nothing.
    pub fn interpolate(&mut self, x: &Traced, format: DataFormat, shape: &[u64]) -> Traced {
        let made = shape_channels_first(shape, format);
        let call = Call::new("upsample_bilinear2d").input(x.operand, Grad::New);
        let x = x.clone();
        let y = Traced::of(self.l, call.output(&made, OutDtype::Like(0), Place::New), &made, &[&x]);
        self.channels_back(&y, format)
    }
}
