//! Counts of multiplied pairs where an operator's definition leaves some out: queries and places of attention, elements of
//! a result and taps of transposed convolution. Closed formulas, because extents come from files.

/// Queries and places of one head of attention: the query of row `i` stands at place `i + places - queries`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Rows of queries.
    pub queries: u64,
    /// Places with a key and a value.
    pub places: u64,
    /// Whether a query sees no later place than its own.
    pub is_causal: bool,
    /// Number of places up to its own that a query sees.
    pub window: Option<i64>,
}

impl Sight {
    /// Pairs of a query and a place that it sees.
    pub fn pairs(&self) -> u64 {
        let (queries, places) = (i128::from(self.queries), i128::from(self.places));
        // Row `i` sees the places from the first up to, not including, the end.
        let ends = if self.is_causal { clamped_sum(places - queries + 1, queries, places) } else { queries * places };
        let firsts = self.window.map_or(0, |window| clamped_sum(self.first_of_window(window), queries, places));
        u64::try_from(ends - firsts).unwrap_or(u64::MAX)
    }

    /// Places that at least one query sees.
    pub fn seen_places(&self) -> u64 {
        let places = i128::from(self.places);
        let first = self.window.map_or(0, |window| self.first_of_window(window).clamp(0, places));
        u64::try_from(places - first).unwrap_or(u64::MAX)
    }

    /// The first place in the window of row 0, negative where the window reaches beyond all places.
    fn first_of_window(&self, window: i64) -> i128 {
        i128::from(self.places) - i128::from(self.queries) + 1 - i128::from(window)
    }
}

/// The sum of `clamp(first + i, 0, most)` over `count` numbers `i` from 0 on.
fn clamped_sum(first: i128, count: i128, most: i128) -> i128 {
    let up_to = |last: i128| if last > 0 { last * (last + 1) / 2 } else { 0 };
    // The sum of what the terms exceed a bound by.
    let above = |bound: i128| up_to(first - bound + count - 1) - up_to(first - bound - 1);
    above(0) - above(most)
}

/// Pairs of an element of the result and a tap that reaches it, along one axis of a transposed convolution. Taps that reach
/// it from beside the input count, as those of a convolution that meet padding do.
///
/// Where taps are dilated and windows have steps, taps are taken to be spread evenly over the steps.
pub fn transposed_pairs(outputs: u64, kernel: u64, stride: u64, head: u64, dilation: u64) -> u64 {
    let [outputs, kernel, stride, head] = [outputs, kernel, stride.max(1), head].map(u128::from);
    let pairs = if dilation == 1 {
        // An element is reached by taps of the same remainder: by as many as all have, and perhaps by one more.
        let more = kernel % stride;
        let reached = |end: u128| end / stride * more + (end % stride).min(more);
        outputs * (kernel / stride) + reached(head + outputs) - reached(head)
    } else {
        (outputs * kernel).div_ceil(stride)
    };
    u64::try_from(pairs).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The formulas agree with going through all pairs.
    #[test]
    fn sight_counts_what_can_be_gone_through() {
        for (queries, places) in [(1, 1), (1, 7), (4, 4), (3, 5), (5, 3), (8, 1), (6, 0), (0, 4)] {
            for is_causal in [false, true] {
                for window in [None, Some(1), Some(2), Some(4), Some(9), Some(i64::MAX)] {
                    let sight = Sight { queries, places, is_causal, window };
                    let (rows, all) = (queries as i64, places as i64);
                    let sees = |row: i64, place: i64| {
                        let own = i128::from(row + all - rows);
                        let is_late = is_causal && i128::from(place) > own;
                        !is_late && window.is_none_or(|window| i128::from(place) > own - i128::from(window))
                    };
                    let pairs = (0..rows).map(|row| (0..all).filter(|place| sees(row, *place)).count()).sum::<usize>();
                    assert_eq!(sight.pairs(), pairs as u64, "{sight:?}");
                    let seen = (0..all).filter(|place| (0..rows).any(|row| sees(row, *place))).count();
                    if queries > 0 {
                        assert_eq!(sight.seen_places(), seen as u64, "{sight:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_largest_extents_do_not_overflow() {
        let most = u64::MAX >> 1;
        let sight = Sight { queries: most, places: most, is_causal: true, window: Some(i64::MAX) };
        assert_eq!((sight.pairs(), sight.seen_places()), (u64::MAX, most));
        assert_eq!(transposed_pairs(most, most, 1, most, 1), u64::MAX);
    }

    /// Taps of every element, gone through.
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
