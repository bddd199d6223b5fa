//! Rotary position embeddings: the rotation angle of each pair of head elements, by position.

use super::fields::Fields;
use super::net::Net;
use models::error::Result;
use models::graph::ValueId;
use models::names;

pub(super) struct Rotary {
    /// Rotation angle of each pair per position, in radians.
    frequencies: Vec<f64>,
}

impl Rotary {
    /// Reads `rope_parameters`; in older configurations, separate fields (`part_field` for the rotated part).
    pub fn from_config(config: &Fields, head: i64, part_field: &str, part: f64) -> Result<Rotary> {
        let inside = config.nested_fields("rope_parameters");
        let old = config.nested_fields("rope_scaling");
        let base = config.positive_or("rotary_emb_base", 10_000.0)?;
        let base = inside.positive_or("rope_theta", config.positive_or("rope_theta", base)?)?;
        let part = inside.positive_or("partial_rotary_factor", config.positive_or(part_field, part)?)?;
        let width = (head as f64 * part) as i64;
        if part > 1.0 || width < 2 || width % 2 != 0 {
            let reason = format!(
                "a rotated part of {part} of a head of {head} elements has {width} elements, which do not form pairs"
            );
            return Err(config.malformed_field(part_field, reason));
        }
        let mut frequencies: Vec<f64> =
            (0..width / 2).map(|pair| base.powf(-2.0 * pair as f64 / width as f64)).collect();
        let scaling = if old.find_field("rope_type").or(old.find_field("type")).is_some() { &old } else { &inside };
        let kind = scaling.text_or("rope_type", scaling.text_or("type", "default")?)?;
        match kind {
            "default" => {}
            "linear" => {
                let factor = scaling.positive_or("factor", 1.0)?;
                frequencies.iter_mut().for_each(|frequency| *frequency /= factor);
            }
            "llama3" => scale_frequencies(&mut frequencies, scaling)?,
            other => {
                let hint = names::name_hint(other, ["default", "linear", "llama3"]);
                return Err(config.unsupported_field("rope_parameters", format!("unknown scaling `{other}`; {hint}")));
            }
        }
        Ok(Rotary { frequencies })
    }

    pub fn rotate_heads(&self, net: &mut Net, scope: &str, x: ValueId) -> Result<ValueId> {
        net.rotate_pairs(scope, x, &self.frequencies)
    }
}

/// Applies Llama 3's scaling: low frequencies are divided by a factor, high ones kept, those in between interpolated.
fn scale_frequencies(frequencies: &mut [f64], scaling: &Fields) -> Result<()> {
    let factor = scaling.positive_or("factor", 8.0)?;
    let (low, high) = (scaling.positive_or("low_freq_factor", 1.0)?, scaling.positive_or("high_freq_factor", 4.0)?);
    let places = scaling.positive_or("original_max_position_embeddings", 8192.0)?;
    if high <= low {
        return Err(
            scaling.malformed_field("high_freq_factor", format!("is {high}, must exceed `low_freq_factor` ({low})"))
        );
    }
    for frequency in frequencies {
        let turns = places * *frequency / std::f64::consts::TAU;
        let part = ((turns - low) / (high - low)).clamp(0.0, 1.0);
        *frequency *= part + (1.0 - part) / factor;
    }
    Ok(())
}
