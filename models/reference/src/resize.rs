//! Resizing of images. One to three spatial axes are treated as three.

use super::tensor::Array;
use models::operators::ResizeMode;

/// A sampled position: two neighbouring elements, and the fraction of the way to the second.
#[derive(Clone, Copy)]
struct Between {
    first: usize,
    second: usize,
    fraction: f64,
}

pub(super) fn resize_array(x: &Array, mode: ResizeMode, y: &mut Array) {
    let rank = x.extents.len() - 2;
    let axes: [(usize, Vec<Between>); 3] = std::array::from_fn(|position| match (position + rank).checked_sub(3) {
        None => (1, vec![Between { first: 0, second: 0, fraction: 0.0 }]),
        Some(axis) => {
            let (old, new) = (x.extents[axis + 2], y.extents[axis + 2]);
            (old, (0..new).map(|place| neighbour_pair(mode, place, old, new)).collect())
        }
    });
    let [(depth, zs), (height, ys), (width, xs)] = &axes;
    let places = zs.len() * ys.len() * xs.len();
    for (x, y) in x.data.chunks_exact(depth * height * width).zip(y.data.chunks_exact_mut(places)) {
        let mut y = y.iter_mut();
        for oz in zs {
            for oy in ys {
                for ox in xs {
                    let row = |z: usize, y: usize| blend_pair(*ox, |column| x[(z * height + y) * width + column]);
                    let value = blend_pair(*oz, |z| blend_pair(*oy, |y| row(z, y)));
                    *y.next().expect("one element per place") = value;
                }
            }
        }
    }
}

fn blend_pair(at: Between, value: impl Fn(usize) -> f64) -> f64 {
    if at.fraction == 0.0 {
        return value(at.first);
    }
    value(at.first) * (1.0 - at.fraction) + value(at.second) * at.fraction
}

fn neighbour_pair(mode: ResizeMode, place: usize, old: usize, new: usize) -> Between {
    let position = match mode {
        ResizeMode::Nearest => (place * old / new) as f64,
        ResizeMode::Linear => ((place as f64 + 0.5) * old as f64 / new as f64 - 0.5).max(0.0),
        ResizeMode::LinearAligned if new == 1 => 0.0,
        ResizeMode::LinearAligned => place as f64 * (old - 1) as f64 / (new - 1) as f64,
    };
    let first = (position as usize).min(old - 1);
    Between { first, second: (first + 1).min(old - 1), fraction: position - first as f64 }
}
