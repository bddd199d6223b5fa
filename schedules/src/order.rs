//! Loop orders that are written as letters, the outermost loop first.

use crate::choices::{SumOrder, TileOrder};

/// A loop: over channels, rows or columns of the result, or over the depth, rows or columns of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Letter {
    C,
    Y,
    X,
}

use Letter::{C, X, Y};

/// Returns dimensions in the order of the letters. Rows and columns are the last two dimensions other than channels;
/// all others stay outermost.
fn order_dimensions(letters: [Letter; 3], channel: usize, rank: usize) -> Vec<usize> {
    let mut others: Vec<usize> = (0..rank).filter(|place| *place != channel).collect();
    let columns = others.pop();
    // Dimensions before the channels are not rows.
    let rows = if others.last().is_some_and(|place| *place > channel) { others.pop() } else { None };
    let of = |letter: Letter| match letter {
        C => Some(channel),
        Y => rows,
        X => columns,
    };
    others.into_iter().chain(letters.into_iter().filter_map(of)).collect()
}

impl TileOrder {
    pub fn dimension_order(self, channel: usize, rank: usize, is_conv: bool) -> Vec<usize> {
        let at = match self {
            TileOrder::Cxy => return order_dimensions([C, X, Y], channel, rank),
            TileOrder::Ycx => return order_dimensions([Y, C, X], channel, rank),
            TileOrder::Xcy => return order_dimensions([X, C, Y], channel, rank),
            TileOrder::Xyc => return order_dimensions([X, Y, C], channel, rank),
            TileOrder::Channels if is_conv => 1,
            TileOrder::Channels => rank - 2,
            TileOrder::Space => rank - 1,
        };
        let mut places: Vec<usize> = (0..rank).filter(|place| *place != channel).collect();
        places.insert(at, channel);
        places
    }
}

impl SumOrder {
    /// Returns the order of a sum's loops as indices; index 0 is the depth, the others are window dimensions.
    pub fn loop_order(self, count: usize) -> Vec<usize> {
        match self {
            SumOrder::DepthFirst => (0..count).collect(),
            SumOrder::KernelFirst => (1..count).chain([0]).collect(),
            SumOrder::Cxy => order_dimensions([C, X, Y], 0, count),
            SumOrder::Ycx => order_dimensions([Y, C, X], 0, count),
            SumOrder::Xcy => order_dimensions([X, C, Y], 0, count),
            SumOrder::Xyc => order_dimensions([X, Y, C], 0, count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_follow_the_letters() {
        assert_eq!(order_dimensions([X, C, Y], 1, 4), [0, 3, 1, 2]);
        assert_eq!(order_dimensions([Y, C, X], 1, 5), [0, 2, 3, 1, 4], "the outermost dimension is not reordered");
        assert_eq!(order_dimensions([X, Y, C], 1, 3), [0, 2, 1], "there are no rows to reorder");
        assert_eq!(order_dimensions([Y, X, C], 0, 3), [1, 2, 0], "the depth of a sum is its first dimension");
        assert_eq!(order_dimensions([X, Y, C], 0, 2), [1, 0]);
    }
}
