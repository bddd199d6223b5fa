//! Layers with experts: which they are, and the sizes of routed and shared experts.

use super::layers::check_indices;
use super::{LayerFrequency, MAX_COUNT, MAX_WIDTH, ModelConfig, Parsed, PeriodicLayers, require_bounded};
use crate::architecture::ExpertLayers;

impl ModelConfig {
    pub(super) fn is_jamba(&self) -> bool {
        self.model_type == "jamba" || self.attn_layer_period.is_some()
    }

    pub(super) fn expert_layers(&self, layers: u64) -> Parsed<Option<ExpertLayers>> {
        // A single expert of these families is a dense layer.
        let least = if self.is_jamba() || self.model_type.starts_with("hunyuan") { 2 } else { 1 };
        let Some(experts) = self.num_experts.filter(|experts| *experts >= least) else { return Ok(None) };
        let intermediate = self.moe_intermediate_size.or(self.intermediate_size);
        let intermediate = require_bounded(intermediate, "moe_intermediate_size", MAX_WIDTH)?;
        let shared_width = self.moe_shared_expert_intermediate_size;
        let shared_count = self.n_shared_experts.or(shared_width.map(|_| 1));
        let shared = shared_count.map(|count| count.saturating_mul(shared_width.unwrap_or(intermediate)));
        let shared = shared.or(self.shared_expert_intermediate_size).or(self.shared_intermediate_size);
        let shared = shared.or(self.is_llama4().then_some(intermediate));
        // The dense network next to the experts of Gemma 4 is computed like a shared expert.
        let shared = shared.or(self.intermediate_size.filter(|_| self.enable_moe_block == Some(true))).unwrap_or(0);
        let placed = self.count_expert_layers(layers)?;
        if placed == 0 {
            return Err(format!("none of the {layers} layers has experts"));
        }
        Ok(Some(ExpertLayers {
            layers: placed,
            experts: require_bounded(Some(experts), "num_experts", MAX_COUNT)?,
            top_k: require_bounded(self.num_experts_per_tok, "num_experts_per_tok", experts)?,
            intermediate,
            shared_intermediate: if shared > 0 {
                require_bounded(Some(shared), "n_shared_experts", MAX_WIDTH)?
            } else {
                0
            },
        }))
    }

    pub(super) fn is_llama4(&self) -> bool {
        self.model_type.starts_with("llama4") || self.interleave_moe_layer_step.is_some()
    }

    fn count_expert_layers(&self, layers: u64) -> Parsed<u64> {
        let step = |value: Option<u64>, field| require_bounded(value.or(Some(1)), field, MAX_COUNT);
        let sparse_step = step(self.decoder_sparse_step, "decoder_sparse_step")?;
        let interleave = step(self.interleave_moe_layer_step, "interleave_moe_layer_step")?;
        let interval = step(self.moe_layer_interval, "moe_layer_interval")?;
        let first = self.first_k_dense_replace.unwrap_or(0).max(self.moe_layer_start_index.unwrap_or(0));
        let last = self.moe_layer_end_index.and_then(|last| u64::try_from(last).ok()).unwrap_or(u64::MAX);
        let (every, flags) = match &self.moe_layer_freq {
            Some(LayerFrequency::Flags(flags)) if flags.len() as u64 != layers => {
                return Err(format!("`moe_layer_freq` has {} entries for {layers} layers", flags.len()));
            }
            Some(LayerFrequency::Flags(flags)) => (1, Some(flags)),
            Some(LayerFrequency::Every(every)) => (step(Some(*every), "moe_layer_freq")?, None),
            None => (1, None),
        };
        let (period, offset) = if self.is_jamba() { (2, 1) } else { (1, 0) };
        let period = self.expert_layer_period.or(Some(period));
        let periodic =
            PeriodicLayers::check_period(period, self.expert_layer_offset.unwrap_or(offset), "expert_layer")?;
        check_indices(self.mlp_only_layers.iter().flatten(), "mlp_only_layers", layers)?;
        let has_experts = |layer: &u64| {
            (first..=last).contains(layer)
                && (layer + 1).is_multiple_of(sparse_step)
                && (layer + 1).is_multiple_of(interleave)
                && (layer + 1).is_multiple_of(interval)
                && layer.is_multiple_of(every)
                && flags.is_none_or(|flags| flags[*layer as usize] != 0)
                && self.mlp_only_layers.as_ref().is_none_or(|dense| !dense.contains(layer))
                && periodic.contains(*layer)
        };
        Ok((0..layers).filter(has_experts).count() as u64)
    }
}
