//! Builds known networks by name, without model files.
//! Shapes and layers follow common inference implementations without auxiliary heads; weights are random. Tests
//! compare parameter and multiply-add counts with published code.

#![forbid(unsafe_code)]

mod alexnet;
mod convnext;
mod densenet;
mod dqn;
mod files;
mod inception;
mod mlp;
mod mobilenet;
mod net;
mod pixels;
mod recurrent;
mod resnet;
pub mod safetensors;
mod shufflenet;
pub mod simple;
mod sources;
mod squeezenet;
pub mod transformers;
mod vgg;
mod video;
mod yolo;

use models::error::{Error, Result};
use models::graph::{Graph, ValueId};
use models::names;
use net::Net;
use resnet::Bottleneck;
pub use sources::source_of;
use video::VideoTime;

pub struct Entry {
    pub name: &'static str,
    /// Alternative names. Look-ups ignore case, `-`, `_` and `.`.
    pub aliases: &'static [&'static str],
    pub input: &'static [i64],
    make: fn(&mut Net, ValueId) -> Result<Vec<ValueId>>,
}

const IMAGE_SIZES: std::ops::RangeInclusive<i64> = 16..=2048;

const MODELS: &[Entry] = &[
    image_entry("resnet-18", |net, x| resnet::build_basic(net, x, [2, 2, 2, 2])).with_aliases(&["resnet"]),
    image_entry("resnet-34", |net, x| resnet::build_basic(net, x, [3, 4, 6, 3])),
    image_entry("resnet-50", |net, x| resnet::build_bottleneck(net, x, &Bottleneck::plain_variant([3, 4, 6, 3]))),
    image_entry("resnet-101", |net, x| resnet::build_bottleneck(net, x, &Bottleneck::plain_variant([3, 4, 23, 3]))),
    image_entry("resnet-152", |net, x| resnet::build_bottleneck(net, x, &Bottleneck::plain_variant([3, 8, 36, 3]))),
    image_entry("resnext-50-32x4d", |net, x| {
        resnet::build_bottleneck(
            net,
            x,
            &Bottleneck { groups: 32, width: 4, ..Bottleneck::plain_variant([3, 4, 6, 3]) },
        )
    })
    .with_aliases(&["resnext-50", "resnext"]),
    image_entry("wide-resnet-50-2", |net, x| {
        resnet::build_bottleneck(net, x, &Bottleneck { width: 128, ..Bottleneck::plain_variant([3, 4, 6, 3]) })
    })
    .with_aliases(&["wide-resnet-50", "wide-resnet"]),
    image_entry("alexnet", alexnet::build_alexnet),
    image_entry("vgg-11", |net, x| vgg::build_vgg(net, x, [1, 1, 2, 2, 2], false)),
    image_entry("vgg-13", |net, x| vgg::build_vgg(net, x, [2, 2, 2, 2, 2], false)),
    image_entry("vgg-16", |net, x| vgg::build_vgg(net, x, [2, 2, 3, 3, 3], false)).with_aliases(&["vgg"]),
    image_entry("vgg-19", |net, x| vgg::build_vgg(net, x, [2, 2, 4, 4, 4], false)),
    image_entry("vgg-11-bn", |net, x| vgg::build_vgg(net, x, [1, 1, 2, 2, 2], true)),
    image_entry("vgg-13-bn", |net, x| vgg::build_vgg(net, x, [2, 2, 2, 2, 2], true)),
    image_entry("vgg-16-bn", |net, x| vgg::build_vgg(net, x, [2, 2, 3, 3, 3], true)).with_aliases(&["vgg-bn"]),
    image_entry("vgg-19-bn", |net, x| vgg::build_vgg(net, x, [2, 2, 4, 4, 4], true)),
    image_entry("squeezenet-1.0", squeezenet::version_1_0),
    image_entry("squeezenet-1.1", squeezenet::version_1_1).with_aliases(&["squeezenet"]),
    image_entry("mobilenet", mobilenet::version_1).with_aliases(&["mobilenet-v1"]),
    image_entry("mobilenet-v2", mobilenet::version_2),
    image_entry("mobilenet-v3-small", mobilenet::version_3_small),
    image_entry("mobilenet-v3-large", mobilenet::version_3_large).with_aliases(&["mobilenet-v3"]),
    image_entry("mnasnet-1.0", mobilenet::build_mnasnet).with_aliases(&["mnasnet"]),
    image_entry("efficientnet-b0", mobilenet::efficientnet_b0).with_aliases(&["efficientnet"]),
    image_entry("shufflenet-v2-x1.0", shufflenet::version_2).with_aliases(&["shufflenet-v2", "shufflenet"]),
    image_entry("densenet-121", |net, x| densenet::build_densenet(net, x, [6, 12, 24, 16])).with_aliases(&["densenet"]),
    image_entry("densenet-169", |net, x| densenet::build_densenet(net, x, [6, 12, 32, 32])),
    image_entry("densenet-201", |net, x| densenet::build_densenet(net, x, [6, 12, 48, 32])),
    image_entry("googlenet", inception::build_googlenet),
    image_entry("convnext-tiny", convnext::build_tiny).with_aliases(&["convnext"]),
    Entry { name: "inception-v3", aliases: &["inception"], input: &[3, 299, 299], make: inception::version_3 },
    clip_entry("r3d-18", |net, x| video::resnet_18(net, x, VideoTime::Whole))
        .with_aliases(&["resnet3d-18", "resnet3d"]),
    clip_entry("mc3-18", |net, x| video::resnet_18(net, x, VideoTime::Mixed)),
    clip_entry("r2plus1d-18", |net, x| video::resnet_18(net, x, VideoTime::Split)),
    Entry { name: "unet", aliases: &[], input: &[3, 256, 256], make: pixels::build_unet },
    Entry { name: "dcgan", aliases: &[], input: &[100], make: pixels::build_dcgan },
    Entry { name: "yolov3-tiny", aliases: &["yolo-tiny"], input: &[3, 416, 416], make: yolo::version_3_tiny },
    Entry { name: "yolov8-nano", aliases: &["yolov8n"], input: &[3, 640, 640], make: yolo::version_8_nano },
    Entry { name: "dqn", aliases: &[], input: &[4, 84, 84], make: dqn::build_dqn },
    Entry { name: "mlp", aliases: &[], input: &[1, 28, 28], make: mlp::build_mlp },
    Entry { name: "lstm", aliases: &[], input: &[16, 128], make: recurrent::build_lstm },
    Entry { name: "gru", aliases: &[], input: &[16, 128], make: recurrent::build_gru },
];

const fn clip_entry(name: &'static str, make: fn(&mut Net, ValueId) -> Result<Vec<ValueId>>) -> Entry {
    Entry { name, aliases: &[], input: &[3, 16, 112, 112], make }
}

const fn image_entry(name: &'static str, make: fn(&mut Net, ValueId) -> Result<Vec<ValueId>>) -> Entry {
    Entry { name, aliases: &[], input: &[3, 224, 224], make }
}

impl Entry {
    const fn with_aliases(mut self, aliases: &'static [&'static str]) -> Entry {
        self.aliases = aliases;
        self
    }

    pub fn build_graph(&self, batch: i64) -> Result<Graph> {
        self.build_for(self.name, self.input, batch)
    }

    fn build_for(&self, name: &str, input: &[i64], batch: i64) -> Result<Graph> {
        if batch < 1 {
            let reason = format!("batch size {batch} must be at least 1");
            return Err(Error::Model { model: name.to_owned(), reason });
        }
        let mut net = Net::new(name);
        let x = net.add_input("data", &[&[batch], input].concat())?;
        let outputs = (self.make)(&mut net, x)?;
        net.finish(&outputs)
    }

    fn input_of(&self, change: &str) -> std::result::Result<Vec<i64>, String> {
        let &[channels, height, width] = self.input else { return Err(self.has_one_size()) };
        if height != width {
            return Err(self.has_one_size());
        }
        let size = change
            .strip_prefix("hw=")
            .ok_or_else(|| format!("`{change}` does not have the form hw=N, such as `hw=160`"))?;
        match size.parse() {
            Ok(size) if IMAGE_SIZES.contains(&size) => Ok(vec![channels, size, size]),
            _ => {
                Err(format!("the image size `{size}` is not between {} and {}", IMAGE_SIZES.start(), IMAGE_SIZES.end()))
            }
        }
    }

    fn has_one_size(&self) -> String {
        let extents: Vec<String> = self.input.iter().map(i64::to_string).collect();
        format!("the input shape is fixed: {}", extents.join("x"))
    }
}

pub fn list_models() -> &'static [Entry] {
    MODELS
}

/// Builds a graph by name. Image networks accept other image sizes, such as `resnet-18:hw=160`.
pub fn build_model(name: &str, batch: i64) -> Result<Graph> {
    let Some((base, change)) = name.split_once(':') else { return find_entry(name)?.build_graph(batch) };
    let entry = find_entry(base)?;
    let refused = |reason: String| Error::Model { model: name.to_owned(), reason };
    let input = entry.input_of(change).map_err(refused)?;
    // The image may be too small for later layers.
    entry.build_for(&format!("{}:{change}", entry.name), &input, batch).map_err(|error| refused(error.to_string()))
}

/// Returns the canonical form of a name, `resnet-18:hw=160` for `ResNet:hw=160`; None if unknown or canonical.
pub fn canonical_name(name: &str) -> Option<String> {
    let (base, change) = name.split_once(':').map_or((name, None), |(base, change)| (base, Some(change)));
    if MODELS.iter().any(|entry| entry.name == base) {
        return None;
    }
    let entry = find_entry(base).ok()?;
    Some(change.map_or_else(|| entry.name.to_owned(), |change| format!("{}:{change}", entry.name)))
}

pub fn find_entry(name: &str) -> Result<&'static Entry> {
    let index = names::find_name(name, MODELS.iter().map(|entry| (entry.name, entry.aliases)));
    index.map(|index| &MODELS[index]).map_err(|hint| Error::unknown_model(name, hint))
}

#[cfg(test)]
mod tests;
