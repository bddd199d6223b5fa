//! Arithmetic of scales and zero points that readers and passes must do alike: an equal layer is an equal task only
//! when its bounds come out equal whatever file it was in.

use crate::types::DType;

/// What sums in the scale of `x` times `w` are multiplied by to be in the scale of `y`: in double precision, as every
/// library does, then rounded once.
pub fn multiplier(x_scale: f32, w_scale: f32, y_scale: f32) -> f32 {
    (f64::from(x_scale) * f64::from(w_scale) / f64::from(y_scale)) as f32
}

/// The integers between which a result lies whose real numbers lie between these bounds; nothing when the zero point
/// does not fit the type.
pub fn bounds(to: DType, scale: f32, zero: i64, low: Option<f64>, high: Option<f64>) -> Option<(i64, i64)> {
    let (least, most) = to.integer_range()?;
    if !(least..=most).contains(&zero) {
        return None;
    }
    let stored = |real: f64| -> i64 {
        // A saturating cast: a bound far outside of the type becomes the end of the type.
        let steps = (real / f64::from(scale)).round_ties_even() as i64;
        zero.saturating_add(steps).clamp(least, most)
    };
    let (low, high) = (low.map_or(least, stored), high.map_or(most, stored));
    (low <= high).then_some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activations_are_bounds() {
        let of = |low, high| bounds(DType::I8, 0.0625, -28, low, high);
        assert_eq!(of(None, None), Some((-128, 127)));
        assert_eq!(of(Some(0.0), None), Some((-28, 127)));
        assert_eq!(of(Some(0.0), Some(6.0)), Some((-28, 68)));
        assert_eq!(of(Some(-1e300), Some(1e300)), Some((-128, 127)));
        assert_eq!(bounds(DType::U8, 0.1, -1, None, None), None);
    }
}
