//! How often a tile fits an extent, when the last one may reach past the end.

/// Tiles that an extent takes.
pub fn count(extent: i64, tile: i64) -> i64 {
    (extent + tile - 1) / tile
}

/// Whether whole tiles reach at most an eighth past the end of an extent.
pub fn reach_little_past(extent: i64, tile: i64) -> bool {
    (filled(extent, tile) - extent) * 8 <= extent
}

/// The extent of whole tiles.
pub fn filled(extent: i64, tile: i64) -> i64 {
    count(extent, tile) * tile
}
