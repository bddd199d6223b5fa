//! Layers of a compiled model, read from files of its compiler, and assignment of commands to layers.
//! Requires two files in the folder of the capture: `tensor_location.json` lists the layers with their tensors and the
//! command numbers before and after each layer, and the first line of `final.mlir` names the network.

use super::chip::Engine;
use super::event::Event;
use super::loss::Losses;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

const TENSORS: &str = "tensor_location.json";
const NETWORK: &str = "final.mlir";
const MAX_BYTES: u64 = 256 << 20;
/// Number of bytes read from the start of the network's file.
const HEAD_BYTES: u64 = 1 << 20;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layers {
    pub network: Option<Network>,
    pub all: Vec<Layer>,
    /// Command ranges of the layers, in order, by core and engine.
    commands: HashMap<(u32, Engine), Vec<Commands>>,
}

/// Numbers of a layer's first and last command, and index of the layer in `Layers::all`.
type Commands = (u64, u64, usize);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    pub name: String,
    pub operations: u64,
    /// Element type of the network in lower case.
    pub mode: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    pub id: usize,
    pub core: u32,
    /// Processing unit that computes the layer, such as `TPU`.
    pub engine: String,
    pub name: String,
    /// Whether all tensors of the layer are in local memory.
    pub is_local: bool,
    /// Input tensors. Those from the third on are constants.
    pub inputs: Vec<Tensor>,
    pub outputs: Vec<Tensor>,
    pub computes: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    pub shape: Vec<u64>,
    /// Element type in the compiler's notation, such as `f16` or `si8`.
    pub dtype: String,
}

impl Layer {
    pub fn display_label(&self) -> String {
        format!("{} layer {}", self.name, self.id)
    }
}

impl Tensor {
    /// Parses a text such as `<1x64x28x28xf16>`.
    fn parse_type(text: &str) -> Option<Tensor> {
        let inner = text.strip_prefix('<')?.strip_suffix('>')?;
        let mut parts: Vec<&str> = inner.split('x').collect();
        let dtype = parts.pop().filter(|dtype| !dtype.is_empty())?.to_owned();
        let shape = parts.into_iter().map(|part| part.parse().ok()).collect::<Option<_>>()?;
        Some(Tensor { shape, dtype })
    }

    pub fn size_bytes(&self) -> u64 {
        let element = match self.dtype.trim_start_matches(|letter: char| letter.is_ascii_lowercase()) {
            "32" => 4,
            "16" => 2,
            _ => 1,
        };
        self.shape.iter().fold(element, |bytes: u64, extent| bytes.saturating_mul(*extent))
    }
}

#[derive(Deserialize)]
struct LayerEntry {
    opcode: String,
    core_id: u32,
    #[serde(rename = "tiu_dma_id(before)")]
    before: Vec<u64>,
    #[serde(rename = "tiu_dma_id(after)")]
    after: Vec<u64>,
    #[serde(default)]
    operands: Vec<LayerPlace>,
    #[serde(default)]
    results: Vec<LayerPlace>,
}

/// Location of a layer's tensor. All fields are absent if the tensor is.
#[derive(Deserialize)]
struct LayerPlace {
    memory_type: Option<String>,
    layout: Option<String>,
}

/// Reads the layers from the folder of a capture. Returns `None` unless both files exist and are valid.
pub fn read_layers(directory: &Path, losses: &mut Losses) -> Option<Layers> {
    let (tensors, network) = (directory.join(TENSORS), directory.join(NETWORK));
    match (tensors.is_file(), network.is_file()) {
        (true, true) => {}
        (false, false) => return None,
        (true, false) => {
            losses.add_note(format!("layers are omitted: the folder contains `{TENSORS}` but not `{NETWORK}`"));
            return None;
        }
        (false, true) => {
            losses.add_note(format!("layers are omitted: the folder contains `{NETWORK}` but not `{TENSORS}`"));
            return None;
        }
    }
    let text = read_start(&tensors, MAX_BYTES, losses)?;
    let mut layers = parse_layers(&tensors, &text, losses)?;
    let head = read_start(&network, HEAD_BYTES, losses)?;
    layers.network = Network::parse_module(&String::from_utf8_lossy(&head));
    if layers.network.is_none() {
        losses.skip_part(&network, None, "has no line `module @name attributes {… module.FLOPs … module.mode …}`");
    }
    Some(layers)
}

fn read_start(path: &Path, most: u64, losses: &mut Losses) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    match std::fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)) {
        Ok(_) => Some(bytes),
        Err(error) => {
            losses.skip_part(path, None, format!("cannot be read: {error}"));
            None
        }
    }
}

fn parse_layers(path: &Path, bytes: &[u8], losses: &mut Losses) -> Option<Layers> {
    // Entries are parsed one by one, since generic JSON values take much more memory than their text.
    let entries: Vec<&RawValue> = match serde_json::from_slice(bytes) {
        Ok(entries) => entries,
        Err(error) => {
            losses.skip_part(path, None, format!("is not a list of layers: {error}"));
            return None;
        }
    };
    let mut layers = Layers::default();
    for (index, entry) in entries.into_iter().enumerate() {
        let id = index + 1;
        match serde_json::from_str::<LayerEntry>(entry.get()) {
            Ok(entry) => layers.add_entry(id, entry, path, losses),
            Err(error) => losses.skip_part(path, None, format!("layer {id}: {error}")),
        }
    }
    layers.commands.values_mut().for_each(|commands| commands.sort_unstable());
    for ((core, engine), commands) in &mut layers.commands {
        let mut end = 0;
        commands.retain(|(first, last, layer)| {
            let is_free = *first > end;
            if is_free {
                end = *last;
            } else {
                let (id, engine) = (layers.all[*layer].id, engine.name());
                let what = format!("layer {id}: its {engine} commands of core {core} belong to another layer");
                losses.skip_part(path, None, what);
            }
            is_free
        });
    }
    Some(layers)
}

impl Layers {
    fn add_entry(&mut self, id: usize, entry: LayerEntry, path: &Path, losses: &mut Losses) {
        let Some((engine, name)) = entry.opcode.split_once('.') else {
            return losses.skip_part(
                path,
                None,
                format!("layer {id}: `{}` is not an operation such as `tpu.Conv2D`", entry.opcode),
            );
        };
        let is_far = |place: &LayerPlace| place.layout.as_deref() == Some("continuous");
        let mut tensors = |places: &[LayerPlace]| -> Vec<Tensor> {
            let texts = places.iter().filter_map(|place| place.memory_type.as_deref());
            let parsed = texts.filter_map(|text| {
                let tensor = Tensor::parse_type(text);
                if tensor.is_none() {
                    losses.skip_part(
                        path,
                        None,
                        format!("layer {id}: `{text}` is not a shape such as `<1x64x28x28xf16>`"),
                    );
                }
                tensor
            });
            parsed.collect()
        };
        let mut layer = Layer {
            id,
            core: entry.core_id,
            engine: engine.to_uppercase(),
            name: name.to_owned(),
            is_local: !entry.operands.iter().chain(&entry.results).any(is_far),
            inputs: tensors(&entry.operands),
            outputs: tensors(&entry.results),
            computes: false,
        };
        for (slot, engine) in [(0, Engine::Tiu), (1, Engine::Gdma)] {
            let (Some(before), Some(after)) = (entry.before.get(slot), entry.after.get(slot)) else { continue };
            if after > before {
                layer.computes |= engine == Engine::Tiu;
                let commands = self.commands.entry((layer.core, engine)).or_default();
                commands.push((before + 1, *after, self.all.len()));
            }
        }
        self.all.push(layer);
    }

    pub fn layer_of(&self, event: &Event<'_>) -> Option<&Layer> {
        self.place_of(event).map(|place| &self.all[place])
    }

    pub fn place_of(&self, event: &Event<'_>) -> Option<usize> {
        let engine = match event.engine {
            // The vendor's tool looks up SDMA commands among those of GDMA.
            Engine::Sdma if event.settings.compat => Engine::Gdma,
            engine => engine,
        };
        let commands = self.commands.get(&(event.core?, engine))?;
        let id = event.command_id();
        let after = commands.partition_point(|(first, _, _)| *first <= id);
        let (_, last, layer) = commands.get(after.checked_sub(1)?)?;
        (id <= *last).then_some(*layer)
    }
}

impl Network {
    fn parse_module(text: &str) -> Option<Network> {
        let line = text.lines().find(|line| line.contains("module @"))?;
        let (_, rest) = line.split_once("module @")?;
        let name = rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()?;
        let (_, operations) = rest.split_once("module.FLOPs = ")?;
        let (_, mode) = rest.split_once("module.mode = \"")?;
        Some(Network {
            name: name.to_owned(),
            operations: operations.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()?,
            mode: mode.split_once('"')?.0.to_lowercase(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_entries_are_skipped_and_reported() {
        let text = r#"[
            {"opcode": "tpu.Conv2D", "core_id": 0, "tiu_dma_id(before)": [0, 0], "tiu_dma_id(after)": [7, 5],
             "operands": [{"memory_type": "<1x64x28x28xf16>", "layout": "continuous"}, {}, {"memory_type": "oops"}]},
            {"opcode": "tpu.Active", "core_id": 0, "tiu_dma_id(before)": [3, 5], "tiu_dma_id(after)": [9, 5]},
            {"opcode": 7},
            {"opcode": "nothing", "core_id": 0, "tiu_dma_id(before)": [], "tiu_dma_id(after)": []}
        ]"#;
        let mut losses = Losses::default();
        let layers = parse_layers(Path::new("list"), text.as_bytes(), &mut losses).expect("a list");
        assert_eq!(losses.count, 4, "{losses:?}");
        assert_eq!(layers.all.iter().map(|layer| layer.id).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(layers.commands[&(0, Engine::Tiu)], [(1, 7, 0)]);
        assert!(!layers.all[0].is_local);
        assert_eq!(layers.all[0].inputs[0].size_bytes(), 64 * 28 * 28 * 2);
        assert!(parse_layers(Path::new("list"), b"{", &mut losses).is_none());
    }

    #[test]
    fn the_head_names_the_network() {
        let text = "#loc = loc(unknown)\nmodule @resnet_18 attributes {module.FLOPs = 3638757376 : i64, \
                    module.mode = \"BF16\"} {\n";
        let network = Network::parse_module(text).expect("a network");
        assert_eq!(network, Network { name: "resnet_18".into(), operations: 3_638_757_376, mode: "bf16".into() });
        assert_eq!(Network::parse_module("module {}"), None);
    }
}
