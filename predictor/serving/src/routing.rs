//! Distribution of tokens over the experts of one rank: pairs, experts with tokens, and tiles of rows.

use serde::{Deserialize, Serialize};

/// Numbers of rows in tiles that kernels of experts commonly use.
pub(crate) const TILE_ROWS: [f64; 3] = [16.0, 64.0, 128.0];
/// Share of the tokens that the most popular expert gets, before the loads are normalised.
const MOST_POPULAR: f64 = 0.8;
/// Bounds of the popularity in layers with fewer pairs than experts.
const SPARSE_BOUNDS: (f64, f64) = (0.01, 2.0);

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distribution {
    Balanced,
    /// The share of an expert falls with this power of its popularity rank.
    PowerLaw(f64),
}

/// How a layer distributes tokens over experts and ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Routing {
    pub tokens: u64,
    pub experts: u64,
    pub top_k: u64,
    pub expert_parallel: u64,
    pub distribution: Distribution,
}

impl Routing {
    fn all_pairs(&self) -> f64 {
        self.tokens as f64 * self.top_k as f64
    }

    fn local_experts(&self) -> f64 {
        (self.experts as f64 / self.expert_parallel as f64).max(1.0)
    }
}

/// Load of the rank that has the most pairs of tokens and experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RankLoad {
    pub pairs: f64,
    /// Number of experts with at least one token.
    pub active: f64,
    /// Number of pairs of the busiest expert.
    pub busiest: f64,
    /// Number of tiles along the tokens, for each of [`TILE_ROWS`].
    pub tiles: [f64; TILE_ROWS.len()],
}

impl RankLoad {
    pub fn from_routing(layer: &Routing) -> RankLoad {
        match layer.distribution {
            Distribution::PowerLaw(power) if power > 0.0 => RankLoad::from_loads(&rank_loads(layer, power)),
            Distribution::Balanced | Distribution::PowerLaw(_) => RankLoad::of_equal_shares(layer),
        }
    }

    fn of_equal_shares(layer: &Routing) -> RankLoad {
        let pairs = layer.all_pairs() / layer.expert_parallel as f64;
        let active = layer.local_experts().min(pairs).max(1.0);
        let busiest = pairs / active;
        RankLoad { pairs, active, busiest, tiles: TILE_ROWS.map(|rows| active * (busiest / rows).ceil()) }
    }

    fn from_loads(loads: &[f64]) -> RankLoad {
        let whole = || loads.iter().map(|load| load.round()).filter(|load| *load > 0.0);
        let tiles = TILE_ROWS.map(|rows| whole().map(|load| (load / rows).ceil()).sum::<f64>().max(1.0));
        RankLoad {
            pairs: whole().sum::<f64>().max(1.0),
            active: (whole().count() as f64).max(1.0),
            busiest: whole().fold(1.0, f64::max),
            tiles,
        }
    }
}

/// Returns the expected pairs of each expert of the rank with the most pairs.
///
/// The popularity of experts is a bounded power law, as in benchmarks of AIConfigurator: density x^-power between 1 and
/// 0.8 of the tokens, normalised to the number of pairs. Quantiles stand for random numbers.
fn rank_loads(layer: &Routing, power: f64) -> Vec<f64> {
    let (tokens, pairs) = (layer.tokens as f64, layer.all_pairs());
    let (low, high) = match pairs > layer.experts as f64 {
        true => (1.0, (MOST_POPULAR * tokens).max(1.0)),
        false => SPARSE_BOUNDS,
    };
    let quantile = |share: f64| match 1.0 - power {
        // The density 1/x has a quantile function of another form.
        exponent if exponent.abs() < 1e-9 => low * (high / low).powf(share),
        exponent => {
            let (from, to) = (low.powf(exponent), high.powf(exponent));
            (from + share * (to - from)).powf(1.0 / exponent)
        }
    };
    let mut loads: Vec<f64> =
        (0..layer.experts).map(|expert| quantile((expert as f64 + 0.5) / layer.experts as f64)).collect();
    let total: f64 = loads.iter().sum();
    loads.iter_mut().for_each(|load| *load = (*load * pairs / total).min(tokens));
    if layer.expert_parallel <= 1 {
        return loads;
    }
    // Spread evenly, in an order that is unrelated to popularity.
    let mut order: Vec<(f64, f64)> = loads
        .iter()
        .enumerate()
        .map(|(expert, load)| ((expert as f64 * models::GOLDEN_SHARE).fract(), *load))
        .collect();
    order.sort_by(|one, two| one.0.total_cmp(&two.0));
    let ranks = order.chunks((layer.experts / layer.expert_parallel).max(1) as usize);
    let sum = |rank: &[(f64, f64)]| rank.iter().map(|(_, load)| load).sum::<f64>();
    let fullest = ranks.max_by(|one, two| sum(one).total_cmp(&sum(two))).unwrap_or_default();
    fullest.iter().map(|(_, load)| *load).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYER: Routing =
        Routing { tokens: 64, experts: 128, top_k: 8, expert_parallel: 1, distribution: Distribution::Balanced };

    fn skewed(layer: Routing, power: f64) -> RankLoad {
        RankLoad::from_routing(&Routing { distribution: Distribution::PowerLaw(power), ..layer })
    }

    #[test]
    fn popular_experts_leave_others_without_tokens() {
        let balanced = RankLoad::from_routing(&LAYER);
        assert_eq!((balanced.pairs, balanced.active, balanced.busiest), (512.0, 128.0, 4.0));
        assert_eq!(balanced.tiles, [128.0; 3]);
        let skewed = skewed(LAYER, 1.2);
        assert!((skewed.pairs / 512.0 - 1.0).abs() < 0.1, "{skewed:?}");
        assert!(skewed.active < balanced.active && skewed.busiest >= 4.0 * balanced.busiest, "{skewed:?}");
        assert!(skewed.tiles[0] > skewed.active && skewed.tiles[2] == skewed.active, "{skewed:?}");
    }

    #[test]
    fn the_fullest_rank_has_more_than_its_share() {
        let layer = Routing { tokens: 4096, expert_parallel: 16, ..LAYER };
        assert_eq!(RankLoad::from_routing(&layer).pairs, 2048.0);
        let fullest = skewed(layer, 1.2);
        assert!(fullest.pairs > 1.2 * 2048.0 && fullest.active <= 8.0, "{fullest:?}");
        let alone = skewed(Routing { tokens: 1, experts: 8, top_k: 1, ..LAYER }, 1.0);
        assert!(alone.pairs >= 1.0 && alone.active >= 1.0, "{alone:?}");
    }
}
