//! Numbers of tiles that cover an extent, where the last tile may overhang.

pub fn tile_count(extent: i64, tile: i64) -> i64 {
    (extent + tile - 1) / tile
}

/// Returns whether whole tiles overhang an extent by at most an eighth.
pub fn reach_little_past(extent: i64, tile: i64) -> bool {
    (filled_extent(extent, tile) - extent) * 8 <= extent
}

pub fn filled_extent(extent: i64, tile: i64) -> i64 {
    tile_count(extent, tile) * tile
}
