//! Counts the products of attention and transposed convolution by formulas: loops over untrusted extents might not end.

/// Attention mask of one head. Query row `i` has position `i + places - queries`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionMask {
    /// Number of query rows.
    pub queries: u64,
    /// Number of key and value rows (positions).
    pub places: u64,
    /// Whether each query sees no positions after its own.
    pub is_causal: bool,
    /// Number of visible positions up to and including the query's own; None for no limit. Hides no later positions.
    pub window: Option<i64>,
}

impl AttentionMask {
    /// Returns a mask without hidden positions.
    pub fn fully_visible(queries: u64, places: u64) -> AttentionMask {
        AttentionMask { queries, places, is_causal: false, window: None }
    }

    /// Counts the pairs of a query and a key position visible to it.
    pub fn visible_pairs(&self) -> u64 {
        let (queries, places) = (i128::from(self.queries), i128::from(self.places));
        // Row `i` sees the positions `first..end`; both ends grow by one per row, clamped to the range of positions.
        let ends = if self.is_causal { clamped_sum(places - queries + 1, queries, places) } else { queries * places };
        let firsts = self.window.map_or(0, |window| clamped_sum(self.first_of_window(window), queries, places));
        u64::try_from(ends - firsts).unwrap_or(u64::MAX)
    }

    /// Counts the key positions that at least one query sees.
    pub fn visible_positions(&self) -> u64 {
        let places = i128::from(self.places);
        let first = self.window.map_or(0, |window| self.first_of_window(window).clamp(0, places));
        u64::try_from(places - first).unwrap_or(u64::MAX)
    }

    /// Returns the first key position visible to the first query; negative if the window begins before the first key.
    fn first_of_window(&self, window: i64) -> i128 {
        i128::from(self.places) - i128::from(self.queries) + 1 - i128::from(window)
    }
}

/// Returns the sum of `clamp(first + i, 0, most)` over `i` from 0 up to and excluding `count`.
fn clamped_sum(first: i128, count: i128, most: i128) -> i128 {
    let up_to = |last: i128| if last > 0 { last * (last + 1) / 2 } else { 0 };
    // The sum of `max(first + i - bound, 0)`.
    let above = |bound: i128| up_to(first - bound + count - 1) - up_to(first - bound - 1);
    above(0) - above(most)
}

/// Counts the pairs of output element and contributing tap along one axis of a transposed convolution. Taps outside the
/// input count, as a convolution counts taps on padding. If both dilation and stride exceed 1, the count is the average
/// over the phases of the stride.
pub fn transposed_pairs(outputs: u64, kernel: u64, stride: u64, head: u64, dilation: u64) -> u64 {
    let [outputs, kernel, stride, head] = [outputs, kernel, stride.max(1), head].map(u128::from);
    let pairs = if dilation == 1 {
        // Output `o` has the taps that equal `o + head` modulo the stride. Their number is the quotient of kernel
        // and stride, and one more for small remainders.
        let rest = kernel % stride;
        let extra = |end: u128| end / stride * rest + (end % stride).min(rest);
        outputs * (kernel / stride) + extra(head + outputs) - extra(head)
    } else {
        (outputs * kernel).div_ceil(stride)
    };
    u64::try_from(pairs).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_leaves_the_pairs_that_can_be_enumerated() {
        for (queries, places) in [(1, 1), (1, 7), (4, 4), (3, 5), (5, 3), (8, 1), (6, 0), (0, 4)] {
            for is_causal in [false, true] {
                for window in [None, Some(1), Some(2), Some(4), Some(9), Some(i64::MAX)] {
                    let mask = AttentionMask { queries, places, is_causal, window };
                    let (rows, all) = (queries as i64, places as i64);
                    let sees = |row: i64, place: i64| {
                        let own = i128::from(row + all - rows);
                        let is_late = is_causal && i128::from(place) > own;
                        !is_late && window.is_none_or(|window| i128::from(place) > own - i128::from(window))
                    };
                    let pairs = (0..rows).map(|row| (0..all).filter(|place| sees(row, *place)).count()).sum::<usize>();
                    assert_eq!(mask.visible_pairs(), pairs as u64, "{mask:?}");
                    let seen = (0..all).filter(|place| (0..rows).any(|row| sees(row, *place))).count();
                    if queries > 0 {
                        assert_eq!(mask.visible_positions(), seen as u64, "{mask:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_largest_extents_do_not_overflow() {
        let most = u64::MAX >> 1;
        let mask = AttentionMask { queries: most, places: most, is_causal: true, window: Some(i64::MAX) };
        assert_eq!((mask.visible_pairs(), mask.visible_positions()), (u64::MAX, most));
        assert_eq!(transposed_pairs(most, most, 1, most, 1), u64::MAX);
    }

    #[test]
    fn transposed_windows_count_the_taps_of_each_element() {
        for kernel in 1..6 {
            for stride in 1..6 {
                for head in 0..4 {
                    for outputs in 0..9 {
                        let reaches = |place: &u64, tap: &u64| (place + head) % stride == tap % stride;
                        let pairs = |place: u64| (0..kernel).filter(|tap| reaches(&place, tap)).count() as u64;
                        let all: u64 = (0..outputs).map(pairs).sum();
                        assert_eq!(transposed_pairs(outputs, kernel, stride, head, 1), all);
                    }
                }
            }
        }
        assert_eq!(transposed_pairs(8, 3, 2, 1, 2), 12, "on average");
    }
}
