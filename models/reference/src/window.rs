//! Sliding windows: pools, and the window geometry that convolutions also use.
//! One to three spatial axes are all treated as three; missing ones come first and have extent 1.

use super::tensor::Array;
use models::operators::{AdaptivePool, ConvWindow, GlobalPool, Op, Pool, PoolMode};
use std::ops::Range;

#[derive(Clone, Copy)]
pub(super) struct WindowAxis {
    pub input: usize,
    pub output: usize,
    pub kernel: usize,
    pub stride: usize,
    dilation: usize,
    head: usize,
    tail: usize,
}

impl WindowAxis {
    /// Returns the three spatial axes of a window. Spatial extents are the last ones of `x` and `y`.
    pub(super) fn three_axes(x: &Array, y: &Array, kernel: &[usize], window: &ConvWindow<'_>) -> [WindowAxis; 3] {
        let rank = window.strides.len();
        let size = |number: i64| usize::try_from(number).expect("checked attributes are not negative");
        std::array::from_fn(|position| match (position + rank).checked_sub(3) {
            None => WindowAxis::single_element(1),
            Some(axis) => WindowAxis {
                input: x.extents[axis + 2],
                output: y.extents[axis + 2],
                kernel: kernel[axis],
                stride: size(window.strides[axis]),
                dilation: size(window.dilations[axis]),
                head: size(window.pads[axis]),
                tail: size(window.pads[axis + rank]),
            },
        })
    }

    pub(super) fn single_element(extent: usize) -> WindowAxis {
        WindowAxis { input: extent, output: extent, kernel: 1, stride: 1, dilation: 1, head: 0, tail: 0 }
    }

    /// Returns the output positions at which kernel position `tap` reads data, not padding.
    pub(super) fn tap_places(&self, tap: usize) -> Range<usize> {
        let offset = tap * self.dilation;
        let first = self.head.saturating_sub(offset).div_ceil(self.stride);
        let end = match (self.input + self.head).checked_sub(offset + 1) {
            Some(last) => last / self.stride + 1,
            None => 0,
        };
        let end = end.min(self.output);
        first.min(end)..end
    }

    pub(super) fn input_at(&self, place: usize, tap: usize) -> usize {
        place * self.stride + tap * self.dilation - self.head
    }

    fn window_inputs(&self, place: usize) -> impl Iterator<Item = usize> + Clone + use<> {
        let start = place * self.stride;
        let first = self.head.saturating_sub(start).div_ceil(self.dilation);
        let end = self.taps_before(start, self.head + self.input).max(first);
        let (dilation, head) = (self.dilation, self.head);
        (first..end).map(move |tap| start + tap * dilation - head)
    }

    fn inside_pads(&self, place: usize) -> usize {
        self.taps_before(place * self.stride, self.head + self.input + self.tail)
    }

    /// Returns how many elements of a window that starts at `start` are before `end`.
    fn taps_before(&self, start: usize, end: usize) -> usize {
        end.saturating_sub(start).div_ceil(self.dilation).min(self.kernel)
    }
}

pub(super) fn compute_pool(op: &Op, inputs: &[&Array], y: &mut Array) -> bool {
    let x = inputs[0];
    match op {
        Op::Pool(Pool { mode, count_pad, .. }) => {
            let window = op.window().expect("a pool has a window");
            pool_windows(x, *mode, &window, *count_pad, y);
        }
        Op::GlobalPool(GlobalPool { mode }) => global_pool(x, *mode, y),
        Op::AdaptivePool(AdaptivePool { mode, .. }) => adaptive_pool(x, *mode, y),
        _ => return false,
    }
    true
}

fn pool_windows(x: &Array, mode: PoolMode, window: &ConvWindow<'_>, count_pad: bool, y: &mut Array) {
    let kernel: Vec<usize> = window.kernel.iter().map(|&extent| usize::try_from(extent).unwrap_or(0)).collect();
    let [depth, height, width] = WindowAxis::three_axes(x, y, &kernel, window);
    let in_plane = depth.input * height.input * width.input;
    let out_plane = depth.output * height.output * width.output;
    if in_plane == 0 || out_plane == 0 {
        return;
    }
    for (x, y) in x.data.chunks_exact(in_plane).zip(y.data.chunks_exact_mut(out_plane)) {
        for (place, y) in y.iter_mut().enumerate() {
            let (oz, oy, ox) =
                (place / (height.output * width.output), place / width.output % height.output, place % width.output);
            let (mut sum, mut powers, mut largest, mut count) = (0.0, 0.0, f64::NEG_INFINITY, 0usize);
            for iz in depth.window_inputs(oz) {
                for iy in height.window_inputs(oy) {
                    let row = &x[(iz * height.input + iy) * width.input..][..width.input];
                    for ix in width.window_inputs(ox) {
                        sum += row[ix];
                        powers += norm_term(mode, row[ix]);
                        largest = largest.max(row[ix]);
                        count += 1;
                    }
                }
            }
            if count_pad {
                count = depth.inside_pads(oz) * height.inside_pads(oy) * width.inside_pads(ox);
            }
            *y = match mode {
                PoolMode::Max => largest,
                PoolMode::Average => sum / count.max(1) as f64,
                PoolMode::Lp { order } => powers.powf(1.0 / order as f64),
            };
        }
    }
}

fn norm_term(mode: PoolMode, x: f64) -> f64 {
    match mode {
        PoolMode::Lp { order } => x.abs().powi(i32::try_from(order).unwrap_or(i32::MAX)),
        PoolMode::Max | PoolMode::Average => 0.0,
    }
}

fn adaptive_pool(x: &Array, mode: PoolMode, y: &mut Array) {
    let rank = x.extents.len() - 2;
    let ranges: [(usize, Vec<Range<usize>>); 3] =
        std::array::from_fn(|position| match (position + rank).checked_sub(3) {
            None => (1, std::iter::once(0..1).collect()),
            Some(axis) => {
                let (old, new) = (x.extents[axis + 2], y.extents[axis + 2]);
                (old, (0..new).map(|place| place * old / new..((place + 1) * old).div_ceil(new)).collect())
            }
        });
    let [(depth, zs), (height, ys), (width, xs)] = &ranges;
    let places = zs.len() * ys.len() * xs.len();
    for (x, y) in x.data.chunks_exact(depth * height * width).zip(y.data.chunks_exact_mut(places)) {
        for (place, y) in y.iter_mut().enumerate() {
            let (z, row, column) = (place / (ys.len() * xs.len()), place / xs.len() % ys.len(), place % xs.len());
            let mut window = Vec::new();
            for iz in zs[z].clone() {
                for iy in ys[row].clone() {
                    window.extend_from_slice(&x[(iz * height + iy) * width..][xs[column].clone()]);
                }
            }
            *y = pool_whole(mode, &window);
        }
    }
}

fn pool_whole(mode: PoolMode, x: &[f64]) -> f64 {
    match mode {
        PoolMode::Max => x.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        PoolMode::Average => x.iter().sum::<f64>() / x.len() as f64,
        PoolMode::Lp { order } => x.iter().map(|x| norm_term(mode, *x)).sum::<f64>().powf(1.0 / order as f64),
    }
}

fn global_pool(x: &Array, mode: PoolMode, y: &mut Array) {
    let plane: usize = x.extents[2..].iter().product();
    if plane == 0 {
        return;
    }
    for (x, y) in x.data.chunks_exact(plane).zip(&mut y.data) {
        *y = pool_whole(mode, x);
    }
}
