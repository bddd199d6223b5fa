//! Estimates how many products of a convolution are with padding, and whether skipping them pays. Where a tap reads
//! only padding for all positions of a register tile, a sum by taps (`order=kernel_first`) skips its products.

use super::template::parameter_extents;
use models::operators::{Conv, QConv};
use models::{Op, Task};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    extent: i64,
    result: i64,
    taps: i64,
    stride: i64,
    dilation: i64,
    head: i64,
}

/// Returns the windows of a convolution along each spatial dimension, outermost first.
pub(crate) fn conv_reaches(task: &Task) -> Vec<Reach> {
    let anchor = &task.steps[0];
    let (Op::Conv(Conv { strides, pads, dilations, .. }) | Op::QConv(QConv { strides, pads, dilations, .. })) =
        &anchor.op
    else {
        return Vec::new();
    };
    let (data, weight) = (parameter_extents(task, 0), parameter_extents(task, 1));
    let result = anchor.output.extents().unwrap_or_default();
    let number = |extents: &[i64], d: usize| extents.get(d + 2).copied().unwrap_or(1);
    let dimensions = strides.iter().zip(dilations).zip(pads).enumerate();
    dimensions
        .map(|(d, ((&stride, &dilation), &head))| Reach {
            extent: number(&data, d),
            result: number(&result, d),
            taps: number(&weight, d),
            stride,
            dilation,
            head,
        })
        .collect()
}

pub(crate) fn is_worth_it(reaches: &[Reach], rows: i64, columns: i64) -> bool {
    /// Speed of a sum by taps that skips nothing, relative to other loop orders: adjacent taps share no loads.
    const LOSS: f64 = 0.85;
    let tiles = [columns, rows].into_iter().chain(std::iter::repeat(1));
    let kept: f64 = reaches.iter().rev().zip(tiles).map(|(reach, tile)| kept_share(reach, tile)).product();
    kept < LOSS
}

/// Returns the share of (tile, tap) pairs that read at least one element of the input, not only padding.
fn kept_share(reach: &Reach, tile: i64) -> f64 {
    let tile = tile.max(1);
    let firsts: Vec<i64> = (0..reach.result).step_by(usize::try_from(tile).unwrap_or(1)).collect();
    let reads = |first: i64, tap: i64| {
        let from = first * reach.stride + tap * reach.dilation - reach.head;
        from < reach.extent && from + (tile - 1) * reach.stride >= 0
    };
    let all = firsts.len() * usize::try_from(reach.taps).unwrap_or(1);
    let kept = firsts.iter().map(|&first| (0..reach.taps).filter(|&tap| reads(first, tap)).count());
    kept.sum::<usize>() as f64 / all.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::{Reach, is_worth_it, kept_share};

    fn around(extent: i64, dilation: i64) -> Reach {
        Reach { extent, result: extent, taps: 3, stride: 1, dilation, head: dilation }
    }

    #[test]
    fn tiles_with_only_padding_are_counted() {
        let close = |part: f64, expected: f64| (part - expected).abs() < 1e-12;
        // Of three rows, the first has no upper neighbour and the last no lower one.
        assert!(close(kept_share(&around(3, 1), 1), 7.0 / 9.0));
        assert!(close(kept_share(&around(33, 12), 1), 75.0 / 99.0));
        // The first of three tiles reads nothing at the first tap, the last tile nothing at the last tap.
        assert!(close(kept_share(&around(33, 12), 11), 7.0 / 9.0));
        assert!(close(kept_share(&around(33, 12), 33), 1.0));
        // With stride 2, a tile covers more of the input.
        let steps = Reach { stride: 2, result: 17, ..around(33, 12) };
        assert!(close(kept_share(&steps, 7), 8.0 / 9.0) && close(kept_share(&steps, 5), 10.0 / 12.0));
    }

    #[test]
    fn only_dilated_windows_skip_enough_padding() {
        let square = |extent, dilation| [around(extent, dilation), around(extent, dilation)];
        assert!(is_worth_it(&square(33, 12), 1, 11) && is_worth_it(&square(33, 24), 1, 11));
        assert!(!is_worth_it(&square(33, 2), 1, 11) && !is_worth_it(&square(56, 1), 2, 14));
        assert!(!is_worth_it(&[], 1, 8));
    }
}
