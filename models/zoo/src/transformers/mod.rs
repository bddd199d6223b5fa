//! Builds transformers from published `config.json` files; `configs/transformers` contains the shipped ones. A folder
//! may add weights in safetensors files. Module names equal those of the published weights, whose values are not read
//! here, so models of any size load quickly.

mod bert;
mod decoder;
mod fields;
mod llama;
mod net;
mod pairs;
mod rotary;
mod steps;
mod swin;
#[cfg(test)]
mod tests;
mod vision;
mod weights;

use fields::Fields;
use models::configuration::{CONFIG_FILE, is_folder, parse_changes, split_changes};
use models::error::{Error, Result};
use models::graph::{Graph, ValueId};
use models::names;
use models::operators::UnaryOp;
use models::{Choice, choice};
use net::Net;
use std::path::Path;
use weights::Weights;

const MAX_CONFIG_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    pub batch: i64,
    /// Tokens per sequence; in a decoding step, past tokens. Image models ignore it.
    pub sequence: i64,
    pub phase: Phase,
}

impl Default for Options {
    fn default() -> Options {
        Options { batch: 1, sequence: 128, phase: Phase::Prefill }
    }
}

choice! {
    /// Phase of a decoder's work that a graph computes.
    #[derive(Default)]
    pub enum Phase {
        /// All tokens at once
        // Decoders also return the keys and values of each layer.
        #[default]
        Prefill = "prefill",
        /// One more token, after earlier ones
        // The keys and values of the tokens before it are inputs.
        Decode = "decode",
    }
}

#[derive(Clone, Debug)]
pub struct LoadedTransformer {
    pub graph: Graph,
    pub notes: Vec<String>,
}

type Build = fn(&mut Net, &Fields) -> Result<Vec<ValueId>>;

struct Family {
    /// Value of the field `model_type` in configurations of this family.
    name: &'static str,
    /// Optional prefix of published weight names.
    prefix: &'static str,
    is_decoder: bool,
    build: Build,
}

const fn encoder_family(name: &'static str, prefix: &'static str, build: Build) -> Family {
    Family { name, prefix, is_decoder: false, build }
}

const fn decoder_family(name: &'static str, prefix: &'static str, build: Build) -> Family {
    Family { name, prefix, is_decoder: true, build }
}

const FAMILIES: &[Family] = &[
    encoder_family("albert", "albert.", bert::build_albert),
    decoder_family("bart", "model.", pairs::build_bart),
    encoder_family("bert", "bert.", bert::build_bert),
    encoder_family("camembert", "roberta.", bert::build_roberta),
    encoder_family("clip_text_model", "text_model.", vision::clip_text),
    encoder_family("clip_vision_model", "vision_model.", vision::clip_vision),
    encoder_family("deit", "deit.", vision::build_deit),
    encoder_family("distilbert", "distilbert.", bert::build_distilbert),
    encoder_family("electra", "electra.", bert::build_electra),
    decoder_family("gemma", "model.", llama::build_gemma),
    decoder_family("gpt2", "transformer.", decoder::build_gpt2),
    decoder_family("gpt_neo", "transformer.", decoder::gpt_neo),
    decoder_family("gpt_neox", "gpt_neox.", decoder::gpt_neox),
    decoder_family("llama", "model.", llama::build_llama),
    decoder_family("mistral", "model.", llama::build_mistral),
    decoder_family("opt", "model.", decoder::build_opt),
    decoder_family("phi", "model.", decoder::build_phi),
    decoder_family("phi3", "model.", llama::build_phi3),
    decoder_family("qwen2", "model.", llama::build_qwen2),
    decoder_family("qwen3", "model.", llama::build_qwen3),
    encoder_family("roberta", "roberta.", bert::build_roberta),
    encoder_family("swin", "swin.", swin::build_swin),
    decoder_family("t5", "", pairs::build_t5),
    encoder_family("vit", "vit.", vision::build_vit),
    decoder_family("whisper", "model.", pairs::build_whisper),
    encoder_family("xlm-roberta", "roberta.", bert::build_roberta),
];

pub struct Entry {
    pub name: &'static str,
    /// Alternative names. Look-ups ignore case, `-`, `_`, `.` and any text before a `/`.
    pub aliases: &'static [&'static str],
    text: &'static str,
}

macro_rules! shipped {
    ($name:literal $(, $alias:literal)*) => {
        Entry {
            name: $name,
            aliases: &[$($alias),*],
            text: include_str!(concat!("../../../../configs/transformers/", $name, ".json")),
        }
    };
}

const SHIPPED: &[Entry] = &[
    shipped!("bert-base-uncased", "bert", "bert-base"),
    shipped!("bert-large-uncased", "bert-large"),
    shipped!("roberta-base", "roberta"),
    shipped!("xlm-roberta-base", "xlm-roberta"),
    shipped!("distilbert-base-uncased", "distilbert"),
    shipped!("albert-base-v2", "albert"),
    shipped!("electra-small-discriminator", "electra"),
    shipped!("gpt2", "gpt2-small"),
    shipped!("gpt2-medium"),
    shipped!("gpt2-large"),
    shipped!("gpt2-xl"),
    shipped!("gpt-neo-125m", "gpt-neo"),
    shipped!("gpt-neox-20b", "gpt-neox"),
    shipped!("pythia-160m", "pythia"),
    shipped!("opt-125m", "opt"),
    shipped!("phi-2", "phi"),
    shipped!("t5-small", "t5"),
    shipped!("t5-base"),
    shipped!("bart-base", "bart"),
    shipped!("llama-7b", "llama"),
    shipped!("llama-2-7b", "llama-2"),
    shipped!("llama-3.2-1b", "llama-3.2"),
    shipped!("tinyllama-1.1b", "tinyllama"),
    shipped!("mistral-7b-v0.1", "mistral", "mistral-7b"),
    shipped!("qwen2-0.5b", "qwen2"),
    shipped!("qwen3-0.6b", "qwen3"),
    shipped!("gemma-2b", "gemma"),
    shipped!("phi-3-mini-4k", "phi-3", "phi-3-mini"),
    shipped!("vit-base-patch16-224", "vit", "vit-base"),
    shipped!("vit-large-patch16-224", "vit-large"),
    shipped!("deit-base-distilled-patch16-224", "deit", "deit-base"),
    shipped!("swin-tiny-patch4-window7-224", "swin", "swin-tiny"),
    shipped!("whisper-tiny", "whisper"),
    shipped!("whisper-base"),
    shipped!("clip-vit-base-patch32-text", "clip-text"),
    shipped!("clip-vit-base-patch32-vision", "clip-vision"),
];

impl Entry {
    pub fn usual_sequence(&self) -> i64 {
        match self.name {
            // Maximum text length of CLIP.
            name if name.ends_with("-text") => 77,
            // Typical output of Whisper for half a minute of speech.
            name if name.starts_with("whisper") => 32,
            _ => Options::default().sequence,
        }
    }

    pub fn build_random(&self, options: &Options) -> Result<Graph> {
        Ok(build_from_fields(self.name, &Fields::parse_config(self.text, self.name)?, None, options)?.graph)
    }
}

pub fn list_entries() -> &'static [Entry] {
    SHIPPED
}

/// Returns whether a name is a shipped configuration or a family (`model_type`).
pub fn is_known(name: &str) -> bool {
    find_entry(name).is_ok() || FAMILIES.iter().any(|family| family.name == name)
}

/// Formats name, phase and sequence length, such as `gpt2 prefill 64`.
pub fn format_label(name: &str, phase: Phase, sequence: i64) -> String {
    format!("{name} {} {sequence}", phase.name())
}

pub fn parse_label(label: &str) -> Option<(&str, Phase, i64)> {
    let (rest, sequence) = label.rsplit_once(' ')?;
    let (name, phase) = rest.rsplit_once(' ')?;
    let phase = Phase::from_name(phase)?;
    Some((name, phase, sequence.parse().ok()?))
}

/// Loads a folder with a `config.json` or a shipped configuration, both with optional changes (`name:key=value,…`), or a
/// configuration written in place (`model_type:key=value,…`).
pub fn load_model(name: &str, options: &Options) -> Result<LoadedTransformer> {
    let (base, changes) = split_changes(name);
    let folder = is_folder(name).then(|| Path::new(base));
    let mut label = name.to_owned();
    let mut fields = if let Some(folder) = folder {
        let config = folder.join(CONFIG_FILE);
        let text = crate::files::read_text(&config, MAX_CONFIG_BYTES)?;
        label = config.display().to_string() + &name[base.len()..];
        Fields::parse_config(&text, &config.display().to_string())?
    } else {
        match find_entry(base) {
            Ok(entry) => Fields::parse_config(entry.text, name)?,
            Err(error) => match FAMILIES.iter().find(|family| family.name == base) {
                Some(family) => Fields::parse_config(&format!(r#"{{"model_type":"{}"}}"#, family.name), name)?,
                None => return Err(error),
            },
        }
    };
    let refused = |reason: String| Error::Model { model: name.to_owned(), reason };
    for (key, value) in parse_changes(changes).map_err(refused)? {
        fields.set_field(key, value);
    }
    build_from_fields(&label, &fields, folder, options)
}

pub const STEPS_MAX: i64 = 1024;

pub fn load_steps(name: &str, options: &Options, steps: i64) -> Result<LoadedTransformer> {
    let refused = |reason: String| Error::Model { model: name.to_owned(), reason };
    if !(1..=STEPS_MAX).contains(&steps) {
        return Err(refused(format!("{steps} decoding steps are not between 1 and {STEPS_MAX}")));
    }
    if steps == 1 {
        return load_model(name, options);
    }
    if options.phase != Phase::Decode {
        return Err(refused("only the phase `decode` has steps".to_owned()));
    }
    let at = |step: i64| load_model(name, &Options { sequence: options.sequence.saturating_add(step), ..*options });
    let mut loaded = (0..steps).map(at).collect::<Result<Vec<LoadedTransformer>>>()?;
    let graphs: Vec<Graph> = loaded.iter().map(|one| one.graph.clone()).collect();
    Ok(LoadedTransformer { graph: steps::chain_steps(&graphs[0].name, &graphs)?, notes: loaded.swap_remove(0).notes })
}

/// Builds a model from the text of a configuration, with the weights of the folder if it contains any.
pub fn from_config(text: &str, file: &str, folder: Option<&Path>, options: &Options) -> Result<LoadedTransformer> {
    build_from_fields(file, &Fields::parse_config(text, file)?, folder, options)
}

fn build_from_fields(
    name: &str,
    fields: &Fields,
    folder: Option<&Path>,
    options: &Options,
) -> Result<LoadedTransformer> {
    let refused = |reason: String| Error::Model { model: name.to_owned(), reason };
    for (what, number, most) in [("batch size", options.batch, 1 << 16), ("sequence length", options.sequence, 1 << 20)]
    {
        if !(1..=most).contains(&number) {
            return Err(refused(format!("{what} {number} is not between 1 and {most}")));
        }
    }
    let wanted = fields.text_or("model_type", "")?;
    if wanted.is_empty() {
        return Err(refused("the field `model_type`, which names the family such as `llama`, is missing".to_owned()));
    }
    let family = FAMILIES.iter().find(|family| family.name == wanted).ok_or_else(|| {
        let hint = names::name_hint(wanted, FAMILIES.iter().map(|family| family.name));
        fields.unsupported_field("model_type", format!("unknown model family `{wanted}`; {hint}"))
    })?;
    if options.phase == Phase::Decode && !family.is_decoder {
        return Err(refused(format!("`{}` is not a decoder, so it has no decoding steps", family.name)));
    }
    let weights = folder.map(|folder| Weights::open_folder(folder, family.prefix)).transpose()?.flatten();
    let mut notes = Vec::new();
    if folder.is_some() && weights.is_none() {
        notes.push(format!("`{name}`: the folder has no safetensors files; weights are random"));
    }
    let mut net = Net::new(name, weights.unwrap_or_else(Weights::with_random), *options);
    let outputs = (family.build)(&mut net, fields)?;
    fields.check_given().map_err(refused)?;
    let (graph, weights) = net.finish_graph(&outputs)?;
    let method = fields.nested_fields("quantization_config").text_or("quant_method", "")?.to_owned();
    if !method.is_empty() {
        notes.push(format!("`{name}`: the configuration states `{method}` weights; the model is built with `f32`"));
    }
    if let (Some(_), [first, ..]) = (folder, fields.unused_fields().as_slice()) {
        let count = fields.unused_fields().len();
        notes.push(format!("`{name}`: {count} fields of the configuration are ignored, such as `{first}`"));
    }
    if let Some((count, first)) = weights.first_unused() {
        notes.push(format!("`{name}`: {count} tensors of the weight files are unused, such as `{first}`"));
    }
    Ok(LoadedTransformer { graph, notes })
}

fn find_entry(name: &str) -> Result<&'static Entry> {
    let own = name.rsplit('/').next().unwrap_or(name);
    let spellings = SHIPPED.iter().map(|entry| (entry.name, entry.aliases));
    names::find_name(own, spellings).map(|index| &SHIPPED[index]).map_err(|hint| Error::unknown_model(name, hint))
}

const ACTIVATIONS: &[(&str, UnaryOp)] = &[
    ("gelu", UnaryOp::Gelu),
    ("gelu_python", UnaryOp::Gelu),
    ("gelu_new", UnaryOp::GeluTanh),
    ("gelu_fast", UnaryOp::GeluTanh),
    ("gelu_pytorch_tanh", UnaryOp::GeluTanh),
    ("gelu_accurate", UnaryOp::GeluTanh),
    ("relu", UnaryOp::Relu),
    ("silu", UnaryOp::Silu),
    ("swish", UnaryOp::Silu),
    ("quick_gelu", UnaryOp::Swish { beta: 1.702 }),
    ("tanh", UnaryOp::Tanh),
    ("sigmoid", UnaryOp::Sigmoid),
    ("mish", UnaryOp::Mish),
];

fn read_activation(config: &Fields, field: &str, default: &str) -> Result<UnaryOp> {
    let name = config.text_or(field, default)?;
    let found = ACTIVATIONS.iter().find(|(known, _)| *known == name);
    found.map(|(_, function)| *function).ok_or_else(|| {
        let hint = names::name_hint(name, ACTIVATIONS.iter().map(|(known, _)| *known));
        config.unsupported_field(field, format!("unknown activation `{name}`; {hint}"))
    })
}

fn check_divides(config: &Fields, field: &str, heads: i64, width: i64) -> Result<()> {
    if width % heads == 0 {
        return Ok(());
    }
    Err(config.malformed_field(field, format!("{heads} heads do not divide the width {width}")))
}

fn check_key_heads(config: &Fields, kept: i64, heads: i64) -> Result<()> {
    if heads % kept == 0 {
        return Ok(());
    }
    Err(config.malformed_field("num_key_value_heads", format!("{kept} key heads do not divide {heads} query heads")))
}
