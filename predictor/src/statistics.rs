//! The middle of some numbers, and what stands elsewhere in their order.

/// The middle of some numbers; of an even count the mean of both middles.
pub fn median(values: &mut [f64]) -> f64 {
    quantile(values, 0.5)
}

/// A quantile, between neighbours in proportion.
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
