//! Median, quantiles, ranks and correlation coefficients.

/// Half-width of a 95 % interval of the normal distribution, in standard deviations.
pub const NORMAL_95: f64 = 1.96;

/// Returns the median; for an even count, the mean of the two central values.
pub fn median(values: &mut [f64]) -> f64 {
    quantile(values, 0.5)
}

/// Returns a quantile, with linear interpolation between neighbouring values.
pub fn quantile(values: &mut [f64], share: f64) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    values.sort_unstable_by(f64::total_cmp);
    let place = share.clamp(0.0, 1.0) * (values.len() - 1) as f64;
    let (low, part) = (place.floor() as usize, place.fract());
    let high = (low + 1).min(values.len() - 1);
    values[low] + (values[high] - values[low]) * part
}

/// Returns Pearson's correlation; NaN if an input is constant.
pub fn pearson(one: &[f64], two: &[f64]) -> f64 {
    let count = one.len() as f64;
    let (mean_one, mean_two) = (one.iter().sum::<f64>() / count, two.iter().sum::<f64>() / count);
    let (mut both, mut square_one, mut square_two) = (0.0, 0.0, 0.0);
    for (a, b) in one.iter().zip(two) {
        let (a, b) = (a - mean_one, b - mean_two);
        both += a * b;
        square_one += a * a;
        square_two += b * b;
    }
    both / (square_one * square_two).sqrt()
}

pub fn spearman(one: &[f64], two: &[f64]) -> f64 {
    pearson(&average_ranks(one), &average_ranks(two))
}

/// Returns the ranks of the values, from 1; ties have their mean rank.
pub fn average_ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|one, two| values[*one].total_cmp(&values[*two]));
    let mut ranks = vec![0.0; values.len()];
    let mut begin = 0;
    while begin < order.len() {
        let same = order[begin..].iter().take_while(|place| values[**place] == values[order[begin]]).count().max(1);
        let rank = begin as f64 + (same as f64 + 1.0) / 2.0;
        order[begin..begin + same].iter().for_each(|place| ranks[*place] = rank);
        begin += same;
    }
    ranks
}

pub fn kendall(one: &[f64], two: &[f64]) -> f64 {
    let (mut agree, mut pairs_one, mut pairs_two) = (0i64, 0i64, 0i64);
    for first in 0..one.len() {
        for second in first + 1..one.len() {
            let sign = |values: &[f64]| match values[first].total_cmp(&values[second]) {
                std::cmp::Ordering::Less => -1,
                std::cmp::Ordering::Equal => 0,
                std::cmp::Ordering::Greater => 1,
            };
            let (a, b) = (sign(one), sign(two));
            agree += a * b;
            pairs_one += a * a;
            pairs_two += b * b;
        }
    }
    agree as f64 / ((pairs_one as f64) * (pairs_two as f64)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn measures_stay_in_their_ranges(pairs in prop::collection::vec((-9i32..9, -9i32..9), 8..60)) {
            let (one, two): (Vec<f64>, Vec<f64>) = pairs.iter().map(|(a, b)| (f64::from(*a), f64::from(*b))).unzip();
            for value in [pearson(&one, &two), spearman(&one, &two), kendall(&one, &two)] {
                prop_assert!(value.is_nan() || value.abs() <= 1.0 + 1e-9);
            }
            let rising: Vec<f64> = one.iter().map(|value| value.exp()).collect();
            let same = spearman(&one, &rising);
            prop_assert!(same.is_nan() || (same - 1.0).abs() < 1e-9);
        }
    }
}
