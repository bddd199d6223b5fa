//! Orders of loops by letters, the outermost first.

use crate::choices::{SumOrder, TileOrder};

/// What a loop walks: channels, rows and columns of the result, or the depth and the rows and columns of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Letter {
    /// Channels; of a sum the depth.
    C,
    Y,
    X,
}

use Letter::{C, X, Y};

/// The places of a result's or a sum's dimensions in an order; `channel` is the place of the channels, rows and columns are the last
/// two others, and whatever else there is stays outside.
fn places(letters: [Letter; 3], channel: usize, rank: usize) -> Vec<usize> {
    let mut others: Vec<usize> = (0..rank).filter(|place| *place != channel).collect();
    let columns = others.pop();
    // Of the dimensions before the channels none is one of rows.
    let rows = if others.last().is_some_and(|place| *place > channel) { others.pop() } else { None };
    let of = |letter: Letter| match letter {
        C => Some(channel),
        Y => rows,
        X => columns,
    };
    others.into_iter().chain(letters.into_iter().filter_map(of)).collect()
}

impl TileOrder {
    /// The dimensions of a result in the order of the loops over its tiles.
    pub fn places(self, channel: usize, rank: usize, is_conv: bool) -> Vec<usize> {
        let at = match self {
            TileOrder::Cxy => return places([C, X, Y], channel, rank),
            TileOrder::Ycx => return places([Y, C, X], channel, rank),
            TileOrder::Xcy => return places([X, C, Y], channel, rank),
            TileOrder::Xyc => return places([X, Y, C], channel, rank),
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
    /// The loops of a sum in their order, of which the depth is the first.
    pub fn places(self, count: usize) -> Vec<usize> {
        match self {
            SumOrder::DepthFirst => (0..count).collect(),
            SumOrder::KernelFirst => (1..count).chain([0]).collect(),
            SumOrder::Cxy => places([C, X, Y], 0, count),
            SumOrder::Ycx => places([Y, C, X], 0, count),
            SumOrder::Xcy => places([X, C, Y], 0, count),
            SumOrder::Xyc => places([X, Y, C], 0, count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_stand_where_their_letters_do() {
        assert_eq!(places([X, C, Y], 1, 4), [0, 3, 1, 2]);
        assert_eq!(places([Y, C, X], 1, 5), [0, 2, 3, 1, 4], "the first of three dimensions stays outside");
        assert_eq!(places([X, Y, C], 1, 3), [0, 2, 1], "there are no rows");
        assert_eq!(places([Y, X, C], 0, 3), [1, 2, 0], "a sum's depth comes first");
        assert_eq!(places([X, Y, C], 0, 2), [1, 0]);
    }
}
