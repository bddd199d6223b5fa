//! Architectures of language models, read from the `config.json` that is published with each model.

use crate::error::{Error, Result};
use crate::scheme::Scheme;
use models::configuration::{CONFIG_FILE, parse_changes, split_changes};
use models::{Choice, names};
use serde::Serialize;
use serde_json::Value;
use std::path::Path;
use std::sync::LazyLock;

/// Size limit of a `config.json`; published files have a few kilobytes.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Architecture {
    pub name: String,
    pub layers: u64,
    /// Width of the residual stream.
    pub hidden: u64,
    pub vocabulary: u64,
    pub has_tied_embeddings: bool,
    pub quantises_experts_only: bool,
    /// Quantisation of the published weights (`quant_method`), if stated.
    pub quantisation: Option<String>,
    pub attention: Attention,
    /// Number of matrices of each feed-forward network and expert: 3 with a gate, 2 without.
    pub matrices: u64,
    pub intermediate: u64,
    pub dense_layers: u64,
    /// Dense layers with twice the width.
    pub double_layers: u64,
    pub experts: Option<ExpertLayers>,
    pub layer_inputs: Option<LayerInputs>,
    pub streams: Option<Streams>,
    /// Maximum number of tokens of a sequence, if stated.
    pub max_tokens: Option<u64>,
    /// Parts of the model that no answer contains: `vision`, `audio`.
    pub uncounted_parts: Vec<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Attention {
    Grouped(GroupedAttention),
    /// Multi-head latent attention: one compressed vector per token replaces keys and values.
    Latent(LatentAttention),
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GroupedAttention {
    pub heads: u64,
    pub kv_heads: u64,
    pub head_dim: u64,
    /// Whether the query projection also computes a gate for the attention output.
    pub has_output_gate: bool,
    pub windowed_layers: u64,
    pub window: u64,
    /// Heads of the layers with full attention, if they differ from those of the layers with windows.
    pub full_heads: Option<FullHeads>,
    pub sharing: SharingLayers,
    /// Linear attention or Mamba in the layers without attention.
    pub linear: Option<LinearAttention>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FullHeads {
    pub kv_heads: u64,
    pub head_dim: u64,
    /// Whether values have a projection of their own, other than that of the keys.
    pub projects_values: bool,
}

/// Layers that attend to the keys and values of an earlier layer, instead of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SharingLayers {
    pub full: u64,
    pub windowed: u64,
}

/// Layers with attention of the same sizes.
#[derive(Clone, Copy)]
pub(crate) struct AttentionGroup {
    pub layers: u64,
    pub window: Option<u64>,
    pub kv_heads: u64,
    pub head_dim: u64,
    /// Number of projections of keys and values: 0 in layers that share those of an earlier layer.
    pub kv_projections: u64,
}

impl GroupedAttention {
    /// Returns the attention layers of a model: with full attention and with windows, with own keys and shared ones.
    pub(crate) fn split_layers(&self, layers: u64) -> [AttentionGroup; 4] {
        let full_layers = layers - self.windowed_layers - self.linear.map_or(0, |linear| linear.layers);
        let windows = FullHeads { kv_heads: self.kv_heads, head_dim: self.head_dim, projects_values: true };
        let full = self.full_heads.unwrap_or(windows);
        let group = |layers, window, heads: FullHeads, is_own: bool| AttentionGroup {
            layers,
            window,
            kv_heads: heads.kv_heads,
            head_dim: heads.head_dim,
            kv_projections: if is_own { 1 + u64::from(heads.projects_values) } else { 0 },
        };
        [
            group(full_layers - self.sharing.full, None, full, true),
            group(self.sharing.full, None, full, false),
            group(self.windowed_layers - self.sharing.windowed, Some(self.window), windows, true),
            group(self.sharing.windowed, Some(self.window), windows, false),
        ]
    }
}

/// Linear attention (gated delta rule) with a state of fixed size per sequence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LinearAttention {
    pub layers: u64,
    pub key_heads: u64,
    pub value_heads: u64,
    pub key_dim: u64,
    pub value_dim: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LatentAttention {
    pub heads: u64,
    /// Size of the compressed queries; None if queries are projected directly.
    pub query_rank: Option<u64>,
    pub kv_rank: u64,
    pub nope_dim: u64,
    /// Number of elements of a key with rotary position embedding, shared by all heads.
    pub rope_dim: u64,
    pub value_dim: u64,
    /// Index that selects the keys of each query; None for dense attention.
    pub index: Option<SparseIndex>,
}

/// Index of sparse attention: it scores all earlier tokens of a sequence, and attention reads only the best ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SparseIndex {
    pub heads: u64,
    pub head_dim: u64,
    /// Maximum number of keys that are selected.
    pub most_keys: u64,
}

impl SparseIndex {
    /// Returns the bytes of the key of one token in one layer: fp8, with a 4-byte scale for each block of 128 numbers.
    pub fn key_bytes(&self) -> u64 {
        self.head_dim + 4 * self.head_dim.div_ceil(128)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ExpertLayers {
    pub layers: u64,
    pub experts: u64,
    pub top_k: u64,
    pub intermediate: u64,
    /// Inner width of the shared experts; 0 if there are none.
    pub shared_intermediate: u64,
}

/// Inputs of each layer: an embedding of its own for each token, and a projection of the first hidden state.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LayerInputs {
    pub width: u64,
    pub vocabulary: u64,
}

/// Residual streams of Gemma 3n (AltUp), of which one goes through the layers, and its residual of low rank (LAuReL).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Streams {
    pub count: u64,
    pub residual_rank: u64,
}

struct ShippedModel {
    name: &'static str,
    /// Other spellings of the name. Comparisons ignore case, `-`, `_`, `.` and any prefix up to `/`.
    aliases: &'static [&'static str],
    text: &'static str,
}

macro_rules! shipped {
    ($name:literal $(, $alias:literal)*) => {
        ShippedModel {
            name: $name,
            aliases: &[$($alias),*],
            text: include_str!(concat!("../../../configs/transformers/", $name, ".json")),
        }
    };
}

/// Aliases of models that were published with another `max_position_embeddings`.
const TOKEN_LIMITS: [(&str, u64); 3] = [("kimi-k2", 131_072), ("llama-3-70b", 8192), ("llama-3-8b", 8192)];

const SHIPPED: &[ShippedModel] = &[
    shipped!("deepseek-v3", "deepseek-r1", "deepseek-v3.1", "deepseek-v3.1-nvfp4", "deepseek-v3-0324"),
    shipped!("gemma-3-27b", "gemma-3-27b-it"),
    shipped!("glm-5", "glm-5-fp8"),
    shipped!("gpt-oss-120b"),
    shipped!("gpt-oss-20b"),
    shipped!("kimi-k2.5", "kimi-k2"),
    shipped!("llama-2-7b"),
    shipped!("llama-3.1-405b", "llama-3.1-405b-instruct"),
    shipped!("llama-3.1-70b", "llama-3.1-70b-instruct", "llama-3.3-70b", "llama-3.3-70b-instruct", "llama-3-70b"),
    shipped!("llama-3.1-8b", "llama-3.1-8b-instruct", "llama-3-8b", "llama-3.1-8b-instruct-fp8"),
    shipped!("llama-3.2-1b"),
    shipped!("minimax-m2.5", "minimax-m2"),
    shipped!("mistral-7b-v0.1", "mistral-7b"),
    shipped!("mistral-small-24b", "mistral-small", "mistral-small-24b-instruct-2501"),
    shipped!("mixtral-8x7b", "mixtral-8x7b-v0.1", "mixtral-8x7b-instruct-v0.1"),
    shipped!("qwen3-0.6b"),
    shipped!("qwen3-235b-a22b", "qwen3-235b", "qwen3-235b-a22b-fp8"),
    shipped!("qwen3-30b-a3b"),
    shipped!("qwen3-32b", "qwen3-32b-fp8", "qwen3-32b-nvfp4"),
    shipped!("qwen3-8b"),
    shipped!("qwen3.5-397b-a17b"),
];

pub fn shipped_names() -> impl Iterator<Item = &'static str> {
    SHIPPED.iter().map(|one| one.name)
}

impl Architecture {
    /// Loads a shipped configuration by its name, or a `config.json` by the path of the file or its folder. Both may have
    /// changed fields, as in `llama-3.1-8b:num_hidden_layers=2`.
    pub fn load_architecture(model: &str) -> Result<Architecture> {
        let (base, changes) = split_changes(model);
        let path = Path::new(base);
        let file = if path.is_dir() { path.join(CONFIG_FILE) } else { path.to_owned() };
        if file.is_file() {
            return Architecture::parse_config(&change_fields(read_text(&file)?, changes, model)?, model);
        }
        let own = base.rsplit('/').next().unwrap_or(base);
        let spellings = SHIPPED.iter().map(|one| (one.name, one.aliases));
        let place = names::find_name(own, spellings)
            .map_err(|_| Error::Model { model: model.to_owned(), problem: unknown_model(base, own) })?;
        let ShippedModel { name, aliases, text } = &SHIPPED[place];
        let named = if changes.is_empty() { (*name).to_owned() } else { format!("{name}:{changes}") };
        let architecture = Architecture::parse_config(&change_fields((*text).to_owned(), changes, model)?, &named)?;
        let own = names::normalise_name(own);
        let alias = aliases.iter().find(|alias| names::normalise_name(alias) == own);
        Ok(match alias {
            Some(alias) => architecture.with_alias(alias),
            None => architecture,
        })
    }

    /// Changes what a model has under an alias: the format of its published weights, which an alias ends with, and its
    /// maximum number of tokens.
    fn with_alias(self, alias: &str) -> Architecture {
        let format = alias.rsplit('-').next().filter(|end| Scheme::from_name(end).is_some());
        let limit = TOKEN_LIMITS.iter().find(|(name, _)| *name == alias).map(|(_, limit)| *limit);
        Architecture {
            quantisation: format.map(str::to_owned).or(self.quantisation),
            max_tokens: limit.or(self.max_tokens),
            ..self
        }
    }

    /// Returns the name under which servers with these layers were measured: that of the shipped model, if there is one.
    pub fn measured_name(&self) -> &str {
        static SHIPPED_LAYERS: LazyLock<Vec<(&str, Architecture)>> = LazyLock::new(|| {
            let read = |one: &ShippedModel| Architecture::parse_config(one.text, one.name).map(|own| own.layers_only());
            SHIPPED.iter().map(|one| (one.name, read(one).expect("shipped configurations are valid"))).collect()
        });
        let layers = self.layers_only();
        SHIPPED_LAYERS.iter().find(|(_, shipped)| *shipped == layers).map_or(&self.name, |(name, _)| name)
    }

    /// Removes what does not change the time of a layer.
    fn layers_only(&self) -> Architecture {
        let (name, quantisation, max_tokens, uncounted_parts) = (String::new(), None, None, Vec::new());
        Architecture { name, quantisation, max_tokens, uncounted_parts, ..self.clone() }
    }

    /// Returns the kind of network: `dense`, `experts` or `latent`.
    pub fn network_kind(&self) -> &'static str {
        match (&self.attention, &self.experts) {
            (Attention::Latent(_), _) => "latent",
            (_, Some(_)) => "experts",
            (_, None) => "dense",
        }
    }

    pub fn query_heads(&self) -> u64 {
        match self.attention {
            Attention::Grouped(grouped) => grouped.heads,
            Attention::Latent(latent) => latent.heads,
        }
    }
}

/// Describes the problem with a model that is neither shipped nor the path of a configuration; `own` is its name.
fn unknown_model(model: &str, own: &str) -> String {
    if Path::new(model).is_dir() {
        return "the folder has no `config.json`".to_owned();
    }
    let nearest =
        names::suggest_nearest(own, SHIPPED.iter().flat_map(|one| names::name_spellings(one.name, one.aliases)));
    let hint = nearest.as_deref().map_or_else(String::new, |nearest| format!("; {nearest}"));
    names::missing_file(model, &nearest.unwrap_or_default()).unwrap_or_else(|| {
        let known = shipped_names().collect::<Vec<_>>().join(", ");
        format!("unknown model{hint} (known: {known}; or give a config.json)")
    })
}

/// Changes fields that a configuration states, at the top or in its `text_config`.
fn change_fields(text: String, changes: &str, model: &str) -> Result<String> {
    if changes.is_empty() {
        return Ok(text);
    }
    let refused = |problem| Error::Model { model: model.to_owned(), problem };
    let mut config: Value =
        serde_json::from_str(&text).map_err(|error| refused(format!("invalid configuration: {error}")))?;
    for (key, value) in parse_changes(changes).map_err(refused)? {
        let is_nested = config.get(key).is_none() && config.get("text_config").is_some_and(Value::is_object);
        let fields = if is_nested { config.get_mut("text_config") } else { Some(&mut config) };
        let fields = fields.and_then(Value::as_object_mut);
        let fields = fields.ok_or_else(|| refused("invalid configuration: it is not a JSON object".to_owned()))?;
        if !fields.contains_key(key) {
            let hint = names::name_hint(key, fields.keys().map(String::as_str));
            return Err(refused(format!("the configuration has no field `{key}`; {hint}")));
        }
        fields.insert(key.to_owned(), value);
    }
    Ok(config.to_string())
}

fn read_text(file: &Path) -> Result<String> {
    let failed = |problem: String| Error::Data(format!("cannot read `{}`: {problem}", file.display()));
    let size = std::fs::metadata(file).map_err(|error| failed(error.to_string()))?.len();
    if size > MAX_CONFIG_BYTES {
        return Err(failed(format!(
            "the file has {size} bytes, more than the limit of {MAX_CONFIG_BYTES} for a configuration"
        )));
    }
    std::fs::read_to_string(file).map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_configuration_can_be_changed() {
        let load = |name: &str| Architecture::load_architecture(name).map_err(|error| error.to_string());
        let whole = load("llama-3.1-8b").expect("a shipped model");
        let changed = load("llama-3.1-8b:num_hidden_layers=2,vocab_size=1000").expect("two changes");
        assert_eq!((changed.layers, changed.vocabulary, changed.hidden), (2, 1000, whole.hidden));
        assert_eq!(changed.name, "llama-3.1-8b:num_hidden_layers=2,vocab_size=1000");
        let refusal = load("llama-3.1-8b:num_hidden_layer=2").expect_err("a misspelt field");
        assert!(refusal.contains("no field `num_hidden_layer`; did you mean `num_hidden_layers`?"), "{refusal}");
        assert!(load("llama-3.1-8b:num_hidden_layers").is_err_and(|error| error.contains("the form `field=value`")));
        assert!(load("llama-3.1-8b:num_hidden_layers=0").is_err());
        let twice = load("llama-3.1-8b:num_hidden_layers=1,num_hidden_layers=2").expect_err("two values");
        assert!(twice.contains("`num_hidden_layers` is given twice"), "{twice}");
    }

    #[test]
    fn shipped_configurations_are_readable_by_any_spelling() {
        for name in shipped_names() {
            let read = Architecture::load_architecture(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(read.name, name);
        }
        for (name, means) in
            [("meta-llama/Llama-3.1-70B", "llama-3.1-70b"), ("DeepSeek-R1", "deepseek-v3"), ("Qwen3_8B", "qwen3-8b")]
        {
            assert_eq!(Architecture::load_architecture(name).map(|found| found.name).as_deref(), Ok(means));
        }
    }

    #[test]
    fn a_configuration_counts_as_the_shipped_model_with_its_layers() {
        for one in SHIPPED {
            let own = Architecture::load_architecture(one.name).expect("a shipped model");
            let file = Architecture::parse_config(one.text, "folder/config.json").expect("a shipped configuration");
            assert_eq!((own.measured_name(), file.measured_name()), (one.name, one.name));
            assert_eq!(Architecture { layers: file.layers + 1, ..file }.measured_name(), "folder/config.json");
        }
    }

    #[test]
    fn aliases_state_their_own_formats_and_limits() {
        let facts = |name: &str| {
            let read = Architecture::load_architecture(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            (read.name, read.quantisation, read.max_tokens)
        };
        for (alias, name, format, limit) in [
            ("Qwen/Qwen3-32B-FP8", "qwen3-32b", Some("fp8"), 40_960),
            ("deepseek-v3.1-nvfp4", "deepseek-v3", Some("nvfp4"), 163_840),
            ("glm-5-fp8", "glm-5", Some("fp8"), 202_752),
            ("meta-llama/Llama-3-8B", "llama-3.1-8b", None, 8192),
            ("llama-3.1-8b-instruct", "llama-3.1-8b", None, 131_072),
            ("llama_3_70b", "llama-3.1-70b", None, 8192),
            ("kimi-k2", "kimi-k2.5", None, 131_072),
            ("kimi-k2.5", "kimi-k2.5", None, 262_144),
        ] {
            assert_eq!(facts(alias), (name.to_owned(), format.map(str::to_owned), Some(limit)), "{alias}");
        }
        for (alias, _) in TOKEN_LIMITS {
            assert!(SHIPPED.iter().any(|model| model.aliases.contains(&alias)), "{alias}");
        }
    }

    #[test]
    fn kinds_of_layers_are_counted() {
        let load = |name: &str| Architecture::load_architecture(name).expect("a shipped model");
        let gemma = load("gemma-3-27b");
        let Attention::Grouped(attention) = gemma.attention else { panic!("grouped") };
        assert_eq!((attention.windowed_layers, attention.window, gemma.has_tied_embeddings), (52, 1024, true));
        let oss = load("gpt-oss-120b");
        let Attention::Grouped(attention) = oss.attention else { panic!("grouped") };
        assert_eq!((attention.windowed_layers, attention.window, oss.quantises_experts_only), (18, 128, true));
        let deepseek = load("deepseek-v3");
        assert_eq!((deepseek.dense_layers, deepseek.experts.map(|experts| experts.layers)), (3, Some(58)));
        let Attention::Grouped(attention) = load("qwen3.5-397b-a17b").attention else { panic!("grouped") };
        assert_eq!(attention.linear.map(|linear| linear.layers), Some(45));
    }

    #[test]
    fn unknown_models_and_wrong_configurations_are_refused() {
        let error = Architecture::load_architecture("llama-3.1-71b").expect_err("no such model").to_string();
        assert!(error.contains("did you mean `llama-3.1-70b`"), "{error}");
        for (model, problem) in [
            ("absent.json", "no such file"),
            ("absent/model", "no such file"),
            ("meta-llama/Llama-3.1-71B", "no such file; did you mean `llama-3.1-70b`"),
            (concat!(env!("CARGO_MANIFEST_DIR"), "/src"), "the folder has no `config.json`"),
        ] {
            let error = Architecture::load_architecture(model).expect_err(model).to_string();
            assert!(error.starts_with(&format!("cannot use model `{model}`: {problem}")), "{error}");
        }
        for (text, reason) in [
            ("{", "invalid configuration"),
            (r#"{"model_type":"opt"}"#, "models of type `opt` are described by other keys"),
            ("{}", "lacks `num_hidden_layers`"),
            (r#"{"num_hidden_layers":0}"#, "`num_hidden_layers` is 0, but must be from 1"),
            (
                r#"{"num_hidden_layers":1,"hidden_size":8,"vocab_size":9,"num_attention_heads":6,"num_key_value_heads":4}"#,
                "6 heads cannot share 4 key-value heads equally",
            ),
        ] {
            let error = Architecture::parse_config(text, "own").expect_err(text).to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
