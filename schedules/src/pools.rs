//! Windows of pools: how far they overhang the input, and the number that sums are divided by.

use models::operators::Pool;
use models::{Op, Task, TensorType};

#[derive(Clone, Debug)]
pub struct PoolWindow {
    pub kernel: Vec<i64>,
    pub strides: Vec<i64>,
    pub heads: Vec<i64>,
    /// Trailing padding, which counts as input if `count_pad` is set.
    pub tails: Vec<i64>,
    pub dilations: Vec<i64>,
    pub count_pad: bool,
}

impl PoolWindow {
    pub fn from_pool(pool: &Pool) -> PoolWindow {
        let Pool { mode: _, kernel, strides, pads, dilations, ceil: _, count_pad } = pool;
        let (heads, tails) = pads.split_at(kernel.len());
        PoolWindow {
            kernel: kernel.clone(),
            strides: strides.clone(),
            heads: heads.to_vec(),
            tails: tails.to_vec(),
            dilations: dilations.clone(),
            count_pad: *count_pad,
        }
    }

    /// Returns how far the last window extends past the input; past its padding, too, if the extent was rounded up.
    pub fn end_overhang(&self, d: usize, old: i64, new: i64) -> i64 {
        let last = (new - 1) * self.strides[d] + (self.kernel[d] - 1) * self.dilations[d] + 1;
        (last - self.heads[d] - old).max(0)
    }

    /// Returns the positions counted per window, None if windows differ; `old` and `new` are input and result extents.
    pub fn window_divisor(&self, old: &[i64], new: &[i64]) -> Option<i64> {
        let counts_all = |d: usize| {
            let reach = self.end_overhang(d, old[d], new[d]);
            if self.count_pad { reach <= self.tails[d] } else { reach == 0 && self.heads[d] == 0 }
        };
        (0..self.kernel.len()).all(counts_all).then(|| self.kernel.iter().product())
    }
}

pub fn has_ends(task: &Task) -> bool {
    let step = &task.steps[0];
    let Op::Pool(pool) = &step.op else { return false };
    let window = PoolWindow::from_pool(pool);
    let last = window.kernel.len() - 1;
    let row = |ty: &TensorType| ty.extents().and_then(|extents| extents.last().copied());
    let extents = task.parameters.first().and_then(|data| row(&data.ty)).zip(row(&step.output));
    extents.is_some_and(|(old, new)| window.heads[last] > 0 || window.end_overhang(last, old, new) > 0)
}

#[cfg(test)]
mod tests {
    use super::PoolWindow;

    #[test]
    fn equal_windows_have_one_divisor() {
        let of = |pad: i64, count_pad: bool| PoolWindow {
            kernel: vec![3],
            strides: vec![2],
            heads: vec![pad],
            tails: vec![pad],
            dilations: vec![1],
            count_pad,
        };
        assert_eq!(of(0, false).window_divisor(&[9], &[4]), Some(3));
        assert_eq!(of(1, false).window_divisor(&[9], &[5]), None);
        assert_eq!(of(1, true).window_divisor(&[9], &[5]), Some(3));
        // The last window overhangs the padding.
        assert_eq!(of(0, false).window_divisor(&[10], &[5]), None);
        assert_eq!(of(1, true).window_divisor(&[10], &[6]), None);
    }
}
