//! Kinds of the layers of a model: full attention, windows, linear attention and Mamba.
//!
//! A configuration that has sizes of linear or state-space layers, but does not state which layers they are in a form
//! that is known here, is refused: as a model with attention in every layer it would get wrong times.

use super::{MAX_COUNT, MAX_WIDTH, ModelConfig, Parsed, PeriodicLayers, WindowPattern, require_bounded};
use crate::architecture::{LinearAttention, SharingLayers};
use serde_json::Value;

/// Default of `max_window_layers`.
const MAX_WINDOW_LAYERS: u64 = 28;
/// Default of `no_rope_layer_interval`.
const CHUNK_INTERVAL: u64 = 4;
/// Default of `full_attention_interval`.
const ATTENTION_INTERVAL: u64 = 4;
/// Families with `ATTENTION_INTERVAL`: the prefixes of their types.
const INTERVAL_PREFIXES: [&str; 2] = ["qwen3_next", "qwen3_5"];
/// Families whose linear attention has the heads of full attention.
const LIGHTNING: [&str; 3] = ["minimax", "minimax_m1", "minimax_text_01"];
/// Families with layers that have both attention and a state-space part.
const PARALLEL: [&str; 2] = ["falcon_h1", "hymba"];
/// Families with linear or state-space layers, whose configurations may leave their sizes at the defaults.
const HYBRIDS: [&str; 18] = [
    "bamba",
    "falcon_mamba",
    "granitemoehybrid",
    "kimi_linear",
    "lfm2",
    "lfm2_moe",
    "mamba",
    "mamba2",
    "minimax",
    "minimax_m1",
    "minimax_text_01",
    "nemotron_h",
    "phi4flash",
    "plamo2",
    "recurrent_gemma",
    "rwkv",
    "zamba",
    "zamba2",
];
/// Keys that state layers of kinds, or in forms, that are not supported.
const LAYOUT_KEYS: [&str; 17] = [
    "_block_types",
    "attn",
    "attn_layer_idx",
    "block_configs",
    "block_types",
    "compress_ratios",
    "full_attn_idxs",
    "global_attn_idx",
    "hybrid_layer_ids",
    "hybrid_layer_pattern",
    "hybrid_override_pattern",
    "layer_group_size",
    "layer_type",
    "linear_attn_config",
    "mamba_step",
    "mb_per_layer",
    "ssm_cfg",
];
/// Words between the underscores of keys that belong to linear or state-space layers.
const STATE_WORDS: [&str; 12] =
    ["deltanet", "gdn", "hyena", "kda", "lightning", "lru", "mamba", "mamba2", "recurrent", "retention", "rwkv", "ssm"];
const STATE_PREFIXES: [&str; 6] =
    ["linear_attn", "linear_conv_", "linear_key_", "linear_num_", "linear_value_", "num_linear"];
const STATE_KEYS: [&str; 3] = ["conv_L_cache", "state_size", "time_step_rank"];
/// Limit on the length of a value in an error, in characters.
const MAX_SHOWN: usize = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LayerKind {
    Full,
    Window,
    /// Attention to the tokens of the same chunk, counted as a window of the chunk's size.
    Chunk,
    Linear,
    Mamba,
}

/// The kind of each layer, and the key that states it.
struct StatedLayers {
    key: &'static str,
    kinds: Vec<LayerKind>,
}

/// Layers without full attention.
#[derive(Clone, Copy, Default)]
pub(super) struct LayerLayout {
    pub windowed_layers: u64,
    pub window: u64,
    pub sharing: SharingLayers,
    pub linear: Option<LinearAttention>,
}

impl LayerKind {
    const ALL: [LayerKind; 5] =
        [LayerKind::Full, LayerKind::Window, LayerKind::Chunk, LayerKind::Linear, LayerKind::Mamba];

    fn from_word(word: &str) -> Option<LayerKind> {
        match word {
            "attention" => Some(LayerKind::Full),
            _ => LayerKind::ALL.into_iter().find(|kind| kind.word() == word),
        }
    }

    fn word(self) -> &'static str {
        match self {
            LayerKind::Full => "full_attention",
            LayerKind::Window => "sliding_attention",
            LayerKind::Chunk => "chunked_attention",
            LayerKind::Linear => "linear_attention",
            LayerKind::Mamba => "mamba",
        }
    }
}

impl StatedLayers {
    fn count(&self, kind: LayerKind) -> u64 {
        self.kinds.iter().filter(|one| **one == kind).count() as u64
    }

    fn refuse(&self, kind: LayerKind, problem: &str) -> String {
        let layer = self.kinds.iter().position(|one| *one == kind).unwrap_or(0);
        refuse_layer(self.key, kind.word(), layer, problem)
    }
}

fn refuse_layer(key: &str, word: &str, layer: usize, problem: &str) -> String {
    format!("layer type `{word}` of layer {layer} (`{key}`) is not supported: {problem}")
}

impl ModelConfig {
    pub(super) fn layer_layout(&self, layers: u64, hidden: u64) -> Parsed<LayerLayout> {
        self.check_layout_keys()?;
        if matches!(self.sliding_window_pattern, Some(WindowPattern::Every(0))) {
            return Err("`sliding_window_pattern` is 0, but must be at least 1".to_owned());
        }
        if let Some(stated) = self.stated_layers(layers)? {
            return self.count_stated(&stated, hidden);
        }
        self.check_states_are_placed()?;
        let windowed_layers = self.windowed_layers(layers);
        let window = match windowed_layers {
            0 => 0,
            _ => require_bounded(self.sliding_window, "sliding_window", MAX_WIDTH)?,
        };
        let full = self.count_sharing(layers, |_| true)?;
        if full > 0 && windowed_layers > 0 {
            return Err("layers share keys and values, but `layer_types` does not state which have windows".to_owned());
        }
        Ok(LayerLayout { windowed_layers, window, sharing: SharingLayers { full, windowed: 0 }, linear: None })
    }

    /// Returns the number of layers of a kind that attend to the keys and values of an earlier layer.
    fn count_sharing(&self, layers: u64, is_wanted: impl Fn(u64) -> bool) -> Parsed<u64> {
        let last = self.num_kv_shared_layers.unwrap_or(0);
        if last >= layers {
            return Err(format!("`num_kv_shared_layers` is {last}, but must be less than the {layers} layers"));
        }
        let group = match self.use_cla {
            Some(true) => require_bounded(self.cla_share_factor, "cla_share_factor", MAX_COUNT)?,
            _ => 1,
        };
        let is_sharing = |layer: &u64| *layer >= layers - last || !layer.is_multiple_of(group);
        Ok((0..layers).filter(|layer| is_sharing(layer) && is_wanted(*layer)).count() as u64)
    }

    /// Returns an error for layers other than full attention in a model with latent attention.
    pub(super) fn check_latent_layers(&self, layers: u64) -> Parsed<()> {
        self.check_layout_keys()?;
        let Some(stated) = self.stated_layers(layers)? else { return self.check_states_are_placed() };
        match stated.kinds.iter().find(|kind| **kind != LayerKind::Full) {
            Some(kind) => Err(stated.refuse(*kind, "the model has latent attention (`kv_lora_rank`)")),
            None => Ok(()),
        }
    }

    fn check_layout_keys(&self) -> Parsed<()> {
        let family = self.model_type.as_str();
        if PARALLEL.contains(&family) {
            return Err(format!(
                "models of type `{family}` have layers with both attention and a state-space part and are not supported"
            ));
        }
        let stated = |key: &&&str| match self.other.get(**key) {
            // A group of one layer has full attention in every layer.
            Some(value) if **key == "layer_group_size" => is_set(value) && value.as_u64() != Some(1),
            value => value.is_some_and(is_set),
        };
        match LAYOUT_KEYS.iter().find(stated) {
            Some(key) => Err(format!(
                "`{key}` is {}: layers that are stated in this form are not supported",
                shorten_value(&self.other[*key])
            )),
            None => Ok(()),
        }
    }

    /// Returns an error if the configuration has linear or state-space layers, but does not state which.
    fn check_states_are_placed(&self) -> Parsed<()> {
        let known = [
            ("mamba_d_state", self.mamba_d_state),
            ("mamba_expand", self.mamba_expand),
            ("mamba_n_heads", self.mamba_n_heads),
            ("mamba_n_groups", self.mamba_n_groups),
            ("linear_num_key_heads", self.linear_num_key_heads),
            ("linear_num_value_heads", self.linear_num_value_heads),
            ("linear_key_head_dim", self.linear_key_head_dim),
            ("linear_value_head_dim", self.linear_value_head_dim),
        ];
        let known = known.into_iter().find_map(|(key, size)| Some((key, size.filter(|size| *size > 0)?.to_string())));
        let other = || {
            let (key, value) = self.other.iter().find(|(key, value)| is_state_key(key) && is_set(value))?;
            Some((key.as_str(), shorten_value(value)))
        };
        let family = self.model_type.as_str();
        let cause = match known.or_else(other) {
            Some((key, value)) => format!("`{key}` is {value}"),
            None if HYBRIDS.contains(&family) => format!("models of type `{family}` mix kinds of layers"),
            None => return Ok(()),
        };
        Err(format!(
            "{cause}, but the configuration does not state which layers are state-space or linear layers (`layer_types`)"
        ))
    }

    fn stated_layers(&self, layers: u64) -> Parsed<Option<StatedLayers>> {
        let lists = [("layer_types", &self.layer_types), ("layers_block_type", &self.layers_block_type)];
        if let Some((key, words)) = lists.into_iter().find_map(|(key, words)| Some((key, words.as_ref()?))) {
            let kinds = self.parse_kinds(key, words, layers)?;
            return Ok(Some(StatedLayers { key, kinds }));
        }
        if let Some(types) = &self.attn_type_list {
            let words: Vec<String> = types.iter().map(u64::to_string).collect();
            return self.parse_flags(&words, layers).map(Some);
        }
        let attention = if self.uses_window() { LayerKind::Window } else { LayerKind::Full };
        let place = |key, other: LayerKind, is_attention: &dyn Fn(u64) -> bool| {
            let kinds = (0..layers).map(|layer| if is_attention(layer) { attention } else { other }).collect();
            Ok(Some(StatedLayers { key, kinds }))
        };
        if let Some(indices) = &self.attn_layer_indices {
            check_indices(indices, "attn_layer_indices", layers)?;
            return place("attn_layer_indices", LayerKind::Mamba, &|layer| indices.contains(&layer));
        }
        if self.is_jamba() {
            let (period, offset) = (self.attn_layer_period.or(Some(8)), self.attn_layer_offset.unwrap_or(4));
            let periodic = PeriodicLayers::check_period(period, offset, "attn_layer")?;
            return place("attn_layer_period", LayerKind::Mamba, &|layer| periodic.contains(layer));
        }
        let family = self.model_type.as_str();
        let has_interval = INTERVAL_PREFIXES.iter().any(|start| family.starts_with(start));
        if let Some(interval) = self.full_attention_interval.or(has_interval.then_some(ATTENTION_INTERVAL)) {
            let key = "full_attention_interval";
            let interval = require_bounded(Some(interval), key, MAX_COUNT)?;
            return place(key, LayerKind::Linear, &|layer| (layer + 1).is_multiple_of(interval));
        }
        if let Some(WindowPattern::Letters(letters)) = &self.sliding_window_pattern {
            return self.parse_letters(letters, layers);
        }
        self.chunked_layers(layers)
    }

    fn parse_letters(&self, letters: &str, layers: u64) -> Parsed<Option<StatedLayers>> {
        let key = "sliding_window_pattern";
        if !self.uses_window() {
            return Ok(None);
        }
        let parse = |(layer, letter): (usize, char)| match letter {
            'L' => Ok(LayerKind::Window),
            'G' => Ok(LayerKind::Full),
            _ => Err(refuse_layer(key, &letter.to_string(), layer, "known types are L and G")),
        };
        let period = letters.chars().enumerate().map(parse).collect::<Parsed<Vec<_>>>()?;
        let mut kinds: Vec<LayerKind> = period.into_iter().cycle().take(layers as usize).collect();
        match kinds.last_mut() {
            Some(last) => *last = LayerKind::Full,
            None => return Err(format!("`{key}` has no letters")),
        }
        Ok(Some(StatedLayers { key, kinds }))
    }

    fn parse_kinds(&self, key: &str, words: &[String], layers: u64) -> Parsed<Vec<LayerKind>> {
        check_length(key, words.len(), layers)?;
        let parse = |(layer, word): (usize, &String)| match LayerKind::from_word(word) {
            // Qwen's switch takes the windows away from all layers.
            Some(LayerKind::Window) if self.use_sliding_window == Some(false) => Ok(LayerKind::Full),
            Some(LayerKind::Window) if self.sliding_window.is_none() => {
                Err(refuse_layer(key, word, layer, "the configuration lacks `sliding_window`"))
            }
            Some(LayerKind::Window) if !self.uses_window() => Ok(LayerKind::Full),
            Some(kind) => Ok(kind),
            None => {
                let known = LayerKind::ALL.map(LayerKind::word).join(", ");
                Err(refuse_layer(key, word, layer, &format!("known types are {known}")))
            }
        };
        words.iter().enumerate().map(parse).collect()
    }

    /// Reads the flags of MiniMax: 1 for a layer with full attention, 0 for linear attention.
    fn parse_flags(&self, flags: &[String], layers: u64) -> Parsed<StatedLayers> {
        let key = "attn_type_list";
        check_length(key, flags.len(), layers)?;
        let parse = |(layer, flag): (usize, &String)| match flag.as_str() {
            "0" => Ok(LayerKind::Linear),
            "1" => Ok(LayerKind::Full),
            _ => Err(refuse_layer(key, flag, layer, "known types are 0 and 1")),
        };
        Ok(StatedLayers { key, kinds: flags.iter().enumerate().map(parse).collect::<Parsed<_>>()? })
    }

    /// Returns the layers of Llama 4: those with rotary positions attend within chunks.
    fn chunked_layers(&self, layers: u64) -> Parsed<Option<StatedLayers>> {
        if self.attention_chunk_size.is_none() || !self.is_llama4() {
            return Ok(None);
        }
        let key = "no_rope_layers";
        let flags = self.no_rope_layers.as_ref().filter(|flags| !flags.is_empty());
        if let Some(flags) = flags {
            check_length(key, flags.len(), layers)?;
        }
        let is_chunked =
            |layer: u64| flags.map_or(!(layer + 1).is_multiple_of(CHUNK_INTERVAL), |flags| flags[layer as usize] != 0);
        let kind = |layer| if is_chunked(layer) { LayerKind::Chunk } else { LayerKind::Full };
        Ok(Some(StatedLayers { key, kinds: (0..layers).map(kind).collect() }))
    }

    fn count_stated(&self, stated: &StatedLayers, hidden: u64) -> Parsed<LayerLayout> {
        let count = |kind| stated.count(kind);
        for (one, other) in [(LayerKind::Mamba, LayerKind::Linear), (LayerKind::Chunk, LayerKind::Window)] {
            if count(one) > 0 && count(other) > 0 {
                let problem = format!("the model also has layers of type `{}`", other.word());
                return Err(stated.refuse(one, &problem));
            }
        }
        let mut layout = LayerLayout::default();
        let is_full = |layer: u64| stated.kinds[layer as usize] == LayerKind::Full;
        let layers = stated.kinds.len() as u64;
        layout.sharing.full = self.count_sharing(layers, is_full)?;
        layout.sharing.windowed = self.count_sharing(layers, |layer| !is_full(layer))?;
        if let Some(kind) = [LayerKind::Linear, LayerKind::Mamba].into_iter().find(|kind| count(*kind) > 0)
            && layout.sharing != SharingLayers::default()
        {
            return Err(stated.refuse(kind, "other layers share keys and values"));
        }
        for (kind, size, field) in [
            (LayerKind::Window, self.sliding_window, "sliding_window"),
            (LayerKind::Chunk, self.attention_chunk_size, "attention_chunk_size"),
        ] {
            if count(kind) > 0 {
                layout.windowed_layers = count(kind);
                layout.window =
                    require_bounded(size, field, MAX_WIDTH).map_err(|problem| stated.refuse(kind, &problem))?;
            }
        }
        for (kind, sizes) in [
            (LayerKind::Linear, ModelConfig::linear_sizes as fn(&ModelConfig, u64) -> Parsed<LinearAttention>),
            (LayerKind::Mamba, ModelConfig::mamba_sizes),
        ] {
            if count(kind) > 0 {
                let sizes = sizes(self, hidden).map_err(|problem| stated.refuse(kind, &problem))?;
                layout.linear = Some(LinearAttention { layers: count(kind), ..sizes });
            }
        }
        Ok(layout)
    }

    fn is_qwen(&self) -> bool {
        self.model_type.starts_with("qwen") || self.max_window_layers.is_some()
    }

    fn uses_window(&self) -> bool {
        self.sliding_window.is_some() && self.use_sliding_window.unwrap_or(!self.is_qwen())
    }

    /// Returns the number of layers with windows in a model that does not state the kind of each layer.
    fn windowed_layers(&self, layers: u64) -> u64 {
        if !self.uses_window() {
            return 0;
        }
        if self.is_qwen() {
            return layers.saturating_sub(self.max_window_layers.unwrap_or(MAX_WINDOW_LAYERS));
        }
        let pattern = match self.sliding_window_pattern {
            Some(WindowPattern::Every(pattern)) => Some(pattern),
            _ => None,
        };
        let stated = pattern.or(self.global_attn_every_n_layers.filter(|pattern| *pattern > 0));
        match stated.or(self.default_window_pattern()) {
            // Every `pattern`-th layer attends to all tokens.
            Some(pattern) => layers - layers / pattern,
            None => layers,
        }
    }

    fn default_window_pattern(&self) -> Option<u64> {
        match self.model_type.as_str() {
            "gemma2" | "gpt_oss" => Some(2),
            "afmoe" | "cohere2" | "exaone4" => Some(4),
            "gemma3" | "gemma3_text" => Some(6),
            _ => None,
        }
    }

    /// Returns the sizes of a layer with linear attention.
    fn linear_sizes(&self, hidden: u64) -> Parsed<LinearAttention> {
        let is_lightning = self.attn_type_list.is_some() || LIGHTNING.contains(&self.model_type.as_str());
        if is_lightning && self.linear_num_key_heads.is_none() {
            let heads = require_bounded(self.num_attention_heads, "num_attention_heads", MAX_COUNT)?;
            let head_dim = require_bounded(self.head_dim.or(Some(hidden / heads)), "head_dim", MAX_WIDTH)?;
            return Ok(LinearAttention {
                layers: 1,
                key_heads: heads,
                value_heads: heads,
                key_dim: head_dim,
                value_dim: head_dim,
            });
        }
        Ok(LinearAttention {
            layers: 1,
            key_heads: require_bounded(self.linear_num_key_heads, "linear_num_key_heads", MAX_COUNT)?,
            value_heads: require_bounded(self.linear_num_value_heads, "linear_num_value_heads", MAX_COUNT)?,
            key_dim: require_bounded(self.linear_key_head_dim, "linear_key_head_dim", MAX_WIDTH)?,
            value_dim: require_bounded(self.linear_value_head_dim, "linear_value_head_dim", MAX_WIDTH)?,
        })
    }

    /// Returns the sizes of a Mamba layer as those of linear attention.
    ///
    /// Mamba-2 has groups of keys and queries (B and C), and heads of values. Mamba-1 counts as one head: the state and
    /// the projections in and out have the same sizes. Its projections of the step size are left out: they have 4 % of
    /// a layer's weights.
    fn mamba_sizes(&self, hidden: u64) -> Parsed<LinearAttention> {
        let expand = self.mamba_expand.unwrap_or(2);
        let inner = expand.saturating_mul(hidden);
        let state = self.mamba_d_state.or(self.is_jamba().then_some(16));
        let key_dim = require_bounded(state, "mamba_d_state", MAX_WIDTH)?;
        if self.mamba_n_heads.is_some() {
            let heads = require_bounded(self.mamba_n_heads, "mamba_n_heads", MAX_COUNT)?;
            let stated = self.mamba_d_head.as_ref().and_then(Value::as_u64); // Not the word `auto`.
            return Ok(LinearAttention {
                layers: 1,
                key_heads: require_bounded(self.mamba_n_groups.or(Some(1)), "mamba_n_groups", MAX_COUNT)?,
                value_heads: heads,
                key_dim,
                value_dim: require_bounded(stated.or(Some(inner / heads)), "mamba_d_head", MAX_WIDTH)?,
            });
        }
        if !self.is_jamba() {
            require_bounded(self.mamba_expand, "mamba_expand", MAX_WIDTH)?;
        }
        let value_dim = require_bounded(Some(inner), "mamba_expand", MAX_WIDTH)?;
        Ok(LinearAttention { layers: 1, key_heads: 1, value_heads: 1, key_dim, value_dim })
    }
}

/// Returns an error if a set of layers has an index beyond the last layer.
pub(super) fn check_indices<'a>(indices: impl IntoIterator<Item = &'a u64>, key: &str, layers: u64) -> Parsed<()> {
    match indices.into_iter().find(|layer| **layer >= layers) {
        Some(layer) => Err(format!("`{key}` has layer {layer}, but the last of the {layers} layers is {}", layers - 1)),
        None => Ok(()),
    }
}

fn check_length(key: &str, entries: usize, layers: u64) -> Parsed<()> {
    match entries as u64 == layers {
        true => Ok(()),
        false => Err(format!("`{key}` has {entries} entries for {layers} layers")),
    }
}

fn is_state_key(key: &str) -> bool {
    STATE_KEYS.contains(&key)
        || STATE_PREFIXES.iter().any(|start| key.starts_with(start))
        || key.split('_').any(|word| STATE_WORDS.contains(&word))
}

/// Returns whether a value is other than `null`, `false`, 0 or empty.
pub(super) fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(entries) => !entries.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

pub(super) fn shorten_value(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
