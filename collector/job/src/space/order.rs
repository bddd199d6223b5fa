//! Orders of loops by letters, the outermost first.

/// What a loop walks: channels, rows and columns of the result, or the depth and the rows and columns of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Letter {
    /// Channels; of a sum the depth.
    C,
    /// Rows.
    Y,
    /// Columns.
    X,
}

use Letter::{C, X, Y};

/// Orders beside the two that have names of their own: of loops over tiles `channels`, which is `cyx`, and `space`, which is `yxc`;
/// of loops of a sum `depth_first`, which is `cyx`, and `kernel_first`, which is `yxc` and leaves out what is padding for a
/// whole tile.
pub const OTHERS: &[(&str, [Letter; 3])] =
    &[("cxy", [C, X, Y]), ("ycx", [Y, C, X]), ("xcy", [X, C, Y]), ("xyc", [X, Y, C])];

/// The places of a result's or a sum's dimensions in an order; `channel` is the place of the channels, rows and columns are the last
/// two others, and whatever else there is stays outside.
pub fn places(letters: [Letter; 3], channel: usize, rank: usize) -> Vec<usize> {
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

/// The dimensions of a result in the order of the loops over its tiles, which has one of these names, `channels` or `space`.
pub fn of_tiles(name: &str, channel: usize, rank: usize, is_conv: bool) -> Vec<usize> {
    if let Some((_, letters)) = OTHERS.iter().find(|(other, _)| *other == name) {
        return places(*letters, channel, rank);
    }
    let mut places: Vec<usize> = (0..rank).filter(|place| *place != channel).collect();
    let at = match name {
        "channels" if is_conv => 1,
        "channels" => rank - 2,
        _ => rank - 1,
    };
    places.insert(at, channel);
    places
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
