//! How often a tile fits an extent, when the last one may reach past the end.

/// Tiles that an extent takes.
pub fn count(extent: i64, tile: i64) -> i64 {
    (extent + tile - 1) / tile
}

/// The extent of whole tiles.
pub fn filled(extent: i64, tile: i64) -> i64 {
    count(extent, tile) * tile
}
