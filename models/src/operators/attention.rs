//! Attention of queries to keys and values.

use super::prelude::*;
use crate::pairs::AttentionMask;

/// Inputs: `q[b, h, s, d]`, `k[b, g, t, d]`, `v[b, g, t, e]`, optionally an additive mask that broadcasts to
/// `[b, h, s, t]`. Each of the `g` key heads serves `h / g` neighbouring query heads. Query row `i` has position
/// `i + t - s`. `causal` hides later positions. Of the positions up to a query's own, only the last `window` are
/// visible. `softcap` turns scores into `softcap · tanh(score / softcap)` before the mask.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attention {
    pub causal: bool,
    pub scale: f64,
    pub window: Option<i64>,
    pub softcap: Option<f64>,
}

impl Attention {
    /// Creates attention without a mask, with scores divided by the square root of the head width.
    pub fn with_width(width: i64) -> Attention {
        Attention { causal: false, scale: 1.0 / (width as f64).sqrt(), window: None, softcap: None }
    }

    /// Like `with_width`, with a causal mask: later positions are hidden.
    pub fn causal_with_width(width: i64) -> Attention {
        Attention { causal: true, ..Attention::with_width(width) }
    }

    /// Returns the mask that the attributes define for these numbers of query rows and key positions.
    pub fn attention_mask(&self, queries: u64, places: u64) -> AttentionMask {
        AttentionMask { queries, places, is_causal: self.causal, window: self.window }
    }
}

impl Operator for Attention {
    fn facts(&self) -> Facts {
        Facts::new("attention", Class::Contraction, 3..=4)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        finite_positive(self.scale, "scale")?;
        self.softcap.map_or(Ok(()), |softcap| finite_positive(softcap, "softcap"))?;
        if let Some(window) = self.window.filter(|window| *window < 1) {
            return Err(format!("the window is {window}, but must be at least 1"));
        }
        let (q, k, v) = (inputs[0], inputs[1], inputs[2]);
        floating(q)?;
        for (name, ty) in [("q", q), ("k", k), ("v", v)] {
            same_dtype(q, ty)?;
            if ty.rank() != 4 {
                return Err(format!(
                    "`{name}` must have 4 dimensions (batch, heads, sequence, head size), has {}",
                    ty.rank()
                ));
            }
        }
        let heads = known_extent(&q.shape[1], "the heads of `q`")?;
        let kept = known_extent(&k.shape[1], "the heads of `k`")?;
        if kept < 1 || heads % kept != 0 {
            return Err(format!("{kept} heads of `k` do not divide {heads} heads of `q`"));
        }
        let agree = q.shape[0] == k.shape[0] && q.shape[3] == k.shape[3] && k.shape[..3] == v.shape[..3];
        if !agree {
            return Err("`q` and `k` must have the same batch and head size; `k` and `v` the same batch, heads and sequence length".to_owned());
        }
        if k.shape[2] == Dim::Known(0) {
            return Err("`k` and `v` have no positions".to_owned());
        }
        if let Some(mask) = inputs.get(3) {
            same_dtype(q, mask)?;
            let scores = [&q.shape[..3], &k.shape[2..3]].concat();
            if broadcast_shapes(&mask.shape, &scores)? != scores {
                return Err(format!("the mask {mask} does not broadcast to the scores"));
            }
        }
        Ok(TensorType { dtype: q.dtype, shape: [&q.shape[..3], &v.shape[3..]].concat() })
    }

    fn count_arithmetic(&self, inputs: &[&TensorType], _output: &TensorType) -> Result<Work> {
        let heads = saturating_product(&[axis_extent(inputs[0], 0)?, axis_extent(inputs[0], 1)?]);
        let mask = self.attention_mask(axis_extent(inputs[0], 2)?, axis_extent(inputs[1], 2)?);
        let scores = heads.saturating_mul(mask.visible_pairs());
        let macs = scores.saturating_mul(axis_extent(inputs[0], 3)?.saturating_add(axis_extent(inputs[2], 3)?));
        // Scale, maximum, subtraction, exponential, sum and division; softcap adds two scalings and a tangent.
        let (each, exps) = if self.softcap.is_some() { (9, 2) } else { (6, 1) };
        let each = each + u64::from(inputs.len() == 4);
        let flops = macs.saturating_mul(2).saturating_add(scores.saturating_mul(each));
        Ok(Work { macs, flops, exps: scores.saturating_mul(exps), ..Work::default() })
    }

    /// Counts only key and value rows at positions that at least one query sees.
    fn bytes_read(&self, input: usize, ty: &TensorType, output: &TensorType) -> Result<u64> {
        if ![1, 2].contains(&input) {
            return bytes_of(ty);
        }
        let places = axis_extent(ty, 2)?;
        let seen = self.attention_mask(axis_extent(output, 2)?, places).visible_positions();
        // Each position has the same number of bytes.
        Ok(bytes_of(ty)?.checked_div(places).unwrap_or(0).saturating_mul(seen))
    }

    fn summed_terms(&self, inputs: &[&TensorType]) -> i64 {
        known_product(inputs, 0, 3..4).saturating_add(known_product(inputs, 1, 2..3))
    }

    fn has_needed_numbers(&self, inputs: &[&TensorType]) -> bool {
        let is_sized = |ty: &&TensorType| is_number(ty, 1) && is_number(ty, 3);
        let is_short = self.window.is_none() || (is_number(inputs[0], 2) && is_number(inputs[1], 2));
        inputs[..3].iter().all(is_sized) && is_short
    }

    fn append_attributes(&self, line: &mut String) {
        append_flag(line, "causal", self.causal);
        append_attribute(line, "scale", self.scale, true);
        append_attribute(line, "window", self.window.unwrap_or(0), self.window.is_some());
        append_attribute(line, "softcap", self.softcap.unwrap_or(0.0), self.softcap.is_some());
    }
}
