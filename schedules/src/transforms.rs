//! Winograd's minimal filtering for 3 × 3 filters: computes a tile of the result with fewer products, as products
//! of a transformed window and a transformed filter, element by element.
//!
//! With the matrices `B`, `G` and `A` below, a tile is `Aᵀ ((G g Gᵀ) ⊙ (Bᵀ d B)) A` for a window `d` and a filter
//! `g`. The products are summed over all channels before the last step. Larger tiles save more products but are
//! less exact, because their coefficients differ more in magnitude.

pub const KERNEL: usize = 3;

/// Number of vector elements, over channels or positions. The number of input channels must be a multiple of this.
pub const LANES: i64 = 16;

/// Transform matrices of a tile size, row by row.
#[derive(Debug)]
pub struct Transforms {
    pub tile: i64,
    /// The matrix `Bᵀ`, which transforms a window.
    pub window: &'static [&'static [f64]],
    /// The matrix `G`, which transforms a filter.
    pub filter: &'static [[f64; KERNEL]],
    /// The matrix `Aᵀ`, which transforms the sums to the result.
    pub result: &'static [&'static [f64]],
}

/// Transforms of 2 × 2 tiles: 16 products in place of 36.
static TWO: Transforms = Transforms {
    tile: 2,
    window: &[&[1.0, 0.0, -1.0, 0.0], &[0.0, 1.0, 1.0, 0.0], &[0.0, -1.0, 1.0, 0.0], &[0.0, 1.0, 0.0, -1.0]],
    filter: &[[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0]],
    result: &[&[1.0, 1.0, 1.0, 0.0], &[0.0, 1.0, -1.0, -1.0]],
};

/// Evaluation points of 4 × 4 tiles, in addition to zero and infinity: `±NEAR` and `±FAR`, more exact than 1 and 2.
const NEAR: f64 = 3.0 / 4.0;
const FAR: f64 = 4.0 / 3.0;
const NEAR2: f64 = NEAR * NEAR;
const FAR2: f64 = FAR * FAR;
/// Divisor in the filter transform at the points `±NEAR`; `OF_FAR` is that at `±FAR`.
const OF_NEAR: f64 = 2.0 * NEAR2 * (NEAR2 - FAR2);
const OF_FAR: f64 = 2.0 * FAR2 * (FAR2 - NEAR2);

/// Transforms of 4 × 4 tiles: 36 products in place of 144.
static FOUR: Transforms = Transforms {
    tile: 4,
    window: &[
        &[NEAR2 * FAR2, 0.0, -(NEAR2 + FAR2), 0.0, 1.0, 0.0],
        &[0.0, -NEAR * FAR2, -FAR2, NEAR, 1.0, 0.0],
        &[0.0, NEAR * FAR2, -FAR2, -NEAR, 1.0, 0.0],
        &[0.0, -FAR * NEAR2, -NEAR2, FAR, 1.0, 0.0],
        &[0.0, FAR * NEAR2, -NEAR2, -FAR, 1.0, 0.0],
        &[0.0, NEAR2 * FAR2, 0.0, -(NEAR2 + FAR2), 0.0, 1.0],
    ],
    filter: &[
        [1.0 / (NEAR2 * FAR2), 0.0, 0.0],
        [1.0 / OF_NEAR, NEAR / OF_NEAR, NEAR2 / OF_NEAR],
        [1.0 / OF_NEAR, -NEAR / OF_NEAR, NEAR2 / OF_NEAR],
        [1.0 / OF_FAR, FAR / OF_FAR, FAR2 / OF_FAR],
        [1.0 / OF_FAR, -FAR / OF_FAR, FAR2 / OF_FAR],
        [0.0, 0.0, 1.0],
    ],
    result: &[
        &[1.0, 1.0, 1.0, 1.0, 1.0, 0.0],
        &[0.0, NEAR, -NEAR, FAR, -FAR, 0.0],
        &[0.0, NEAR2, NEAR2, FAR2, FAR2, 0.0],
        &[0.0, NEAR * NEAR2, -NEAR * NEAR2, FAR * FAR2, -FAR * FAR2, 1.0],
    ],
};

pub fn tile_transforms(tile: i64) -> Option<&'static Transforms> {
    [&TWO, &FOUR].into_iter().find(|one| one.tile == tile)
}

pub fn reached_positions(places: i64) -> i64 {
    places + KERNEL as i64 - 1
}

impl Transforms {
    pub fn window_extent(&self) -> i64 {
        reached_positions(self.tile)
    }

    /// Transforms `lanes` filters at once to `G g Gᵀ`, row by row; numbers of a place are adjacent, one of each filter.
    pub(crate) fn transform_filters(&self, filters: &[f64], lanes: usize, transformed: &mut [f64]) {
        let taps: Vec<&[f64]> = filters.chunks_exact(lanes).collect();
        let mut columns = vec![0.0; KERNEL * lanes];
        let mut places = transformed.chunks_exact_mut(lanes);
        for row in self.filter {
            for (column, numbers) in columns.chunks_exact_mut(lanes).enumerate() {
                add_products(*row, [0, 1, 2].map(|tap| taps[tap * KERNEL + column]), numbers);
            }
            let (first, others) = columns.split_at(lanes);
            let (second, third) = others.split_at(lanes);
            for (other, numbers) in self.filter.iter().zip(&mut places) {
                add_products(*other, [first, second, third], numbers);
            }
        }
    }
}

fn add_products(factors: [f64; KERNEL], terms: [&[f64]; KERNEL], sums: &mut [f64]) {
    let [first, second, third] = terms;
    for (((sum, first), second), third) in sums.iter_mut().zip(first).zip(second).zip(third) {
        *sum = factors[0] * first + factors[1] * second + factors[2] * third;
    }
}

#[cfg(test)]
mod tests {
    use super::{KERNEL, tile_transforms};

    fn number(place: usize) -> f64 {
        (place * 7 % 11) as f64 - 5.0
    }

    #[test]
    fn a_tile_is_the_filtered_window() {
        for tile in [2, 4] {
            let found = tile_transforms(tile).unwrap();
            let extent = usize::try_from(found.window_extent()).unwrap();
            let window: Vec<f64> = (0..extent * extent).map(number).collect();
            let filter: [f64; KERNEL * KERNEL] = std::array::from_fn(|place| number(place + 3));
            let turned = |matrix: &[&[f64]], numbers: &[f64]| -> Vec<f64> {
                let rows: Vec<Vec<f64>> = matrix
                    .iter()
                    .map(|row| {
                        (0..extent)
                            .map(|column| (0..extent).map(|at| row[at] * numbers[at * extent + column]).sum())
                            .collect()
                    })
                    .collect();
                let both = rows.iter().flat_map(|row| {
                    matrix.iter().map(|other| row.iter().zip(*other).map(|(a, b)| a * b).sum()).collect::<Vec<f64>>()
                });
                both.collect()
            };
            let mut transformed = vec![0.0; extent * extent];
            found.transform_filters(&filter, 1, &mut transformed);
            let products =
                turned(found.window, &window).iter().zip(transformed).map(|(a, b)| a * b).collect::<Vec<_>>();
            let result = turned(found.result, &products);
            let side = usize::try_from(tile).unwrap();
            for (place, result) in result.iter().enumerate() {
                let (y, x) = (place / side, place % side);
                let taps = (0..KERNEL * KERNEL).map(|tap| (tap / KERNEL, tap % KERNEL));
                let wanted: f64 =
                    taps.map(|(dy, dx)| window[(y + dy) * extent + x + dx] * filter[dy * KERNEL + dx]).sum();
                assert!((result - wanted).abs() < 1e-9, "tile {tile} at {place}: {result} is not {wanted}");
            }
        }
        assert!(tile_transforms(3).is_none());
    }
}
