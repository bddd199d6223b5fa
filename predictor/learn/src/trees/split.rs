//! Splits of trees and the numbers that they compare.
//!
//! Numbers are compared as integers with the same order, which takes fewer instructions than comparing floats.
//! Each feature has two columns of integers, which differ in where a missing number lies: below or above all others.

/// Which of a feature's columns a split compares: in the first, missing numbers go left, in the second, right.
const ABSENT_LEFT: u32 = 0;
const ABSENT_RIGHT: u32 = 1;
/// Integers of missing numbers, below and above those of all others and below the threshold of leaves.
const MISSING_KEYS: [i32; 2] = [i32::MIN, i32::MAX - 1];
const SIGN: u32 = 1 << 31;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Split {
    /// Index of the left child, for rows below the threshold; the right child follows it. A leaf holds its own index.
    pub left: u32,
    threshold: i32,
    column: u32,
}

impl Split {
    pub fn new(left: u32, feature: u16, threshold: f32, absent_left: bool) -> Split {
        let side = if absent_left { ABSENT_LEFT } else { ABSENT_RIGHT };
        Split { left, threshold: order_key(threshold), column: 2 * u32::from(feature) + side }
    }

    /// Returns a leaf: no integer reaches its threshold.
    pub fn leaf_at(place: u32) -> Split {
        Split { left: place, threshold: i32::MAX, column: ABSENT_LEFT }
    }

    pub fn feature(&self) -> u16 {
        (self.column / 2) as u16
    }

    pub fn column(&self) -> usize {
        self.column as usize
    }

    pub fn with_column(self, left: u32, column: u32) -> Split {
        Split { left, column, ..self }
    }

    pub fn absent_left(&self) -> bool {
        self.column % 2 == ABSENT_LEFT
    }

    /// Returns the threshold of an inner node as an integer, comparable with those of rows.
    pub fn threshold_key(&self) -> i32 {
        self.threshold
    }

    /// Returns the threshold of an inner node as it is written to files.
    pub fn written_threshold(&self) -> u32 {
        self.threshold.cast_unsigned() ^ SIGN
    }

    pub fn threshold(&self) -> f32 {
        threshold_of(self.written_threshold())
    }

    pub fn set_threshold(&mut self, threshold: f32) {
        self.threshold = order_key(threshold);
    }

    /// Returns the index of the child that a row with this integer in the split's column enters.
    #[inline(always)]
    pub fn next(&self, key: i32) -> usize {
        self.left as usize + usize::from(key >= self.threshold)
    }
}

/// Returns the integers of a row, two for each number.
pub(super) fn row_keys(row: &[f32]) -> Vec<i32> {
    row.iter().flat_map(|value| [ABSENT_LEFT, ABSENT_RIGHT].map(|side| value_key(*value, side))).collect()
}

/// Returns the integer of a row in one of its columns of integers.
pub(super) fn column_key(row: &[f32], column: u32) -> i32 {
    value_key(row[(column / 2) as usize], column % 2)
}

fn value_key(value: f32, side: u32) -> i32 {
    match value.is_nan() {
        true => MISSING_KEYS[side as usize],
        // Both zeros are equal.
        false => order_key(value + 0.0),
    }
}

/// Maps a number to an integer with the same order.
fn order_key(number: f32) -> i32 {
    let bits = number.to_bits().cast_signed();
    bits ^ ((bits >> 31).cast_unsigned() >> 1).cast_signed()
}

/// Returns the threshold of which this is the written form.
pub(super) fn threshold_of(written: u32) -> f32 {
    f32::from_bits(if written & SIGN == 0 { !written } else { written ^ SIGN })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn children_are_those_of_comparing_floats(value: f32, threshold: f32, absent_left: bool) {
            prop_assume!(!threshold.is_nan());
            let split = Split::new(5, 3, threshold, absent_left);
            let is_left = if value.is_nan() { absent_left } else { value < threshold };
            let row = [0.0, 0.0, 0.0, value];
            let next = split.next(row_keys(&row)[split.column()]);
            prop_assert_eq!(next, if is_left { 5 } else { 6 });
            prop_assert_eq!(next, split.next(column_key(&row, split.column)));
            prop_assert_eq!((split.feature(), split.absent_left()), (3, absent_left));
            prop_assert_eq!(split.threshold().to_bits(), threshold.to_bits());
            prop_assert!(row_keys(&row).iter().all(|key| Split::leaf_at(7).next(*key) == 7));
        }

        #[test]
        fn integers_have_the_order_of_their_numbers(one: f32, other: f32) {
            prop_assert_eq!(Split::new(1, 0, one, true).threshold().to_bits(), one.to_bits());
            prop_assert_eq!(order_key(one).cmp(&order_key(other)), one.total_cmp(&other));
        }
    }

    #[test]
    fn special_numbers_take_the_side_of_their_comparison() {
        let numbers = [f32::NEG_INFINITY, f32::MIN, -0.0, 0.0, f32::MIN_POSITIVE, f32::MAX, f32::INFINITY, f32::NAN];
        for value in numbers {
            for threshold in &numbers[..7] {
                for absent_left in [false, true] {
                    let is_left = if value.is_nan() { absent_left } else { value < *threshold };
                    let split = Split::new(1, 0, *threshold, absent_left);
                    let next = split.next(row_keys(&[value])[split.column()]);
                    assert_eq!(next, 2 - usize::from(is_left), "{value} {threshold} {absent_left}");
                }
            }
            assert!(row_keys(&[value]).iter().all(|key| Split::leaf_at(7).next(*key) == 7), "{value}");
        }
    }
}
