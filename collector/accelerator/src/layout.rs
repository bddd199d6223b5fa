//! Conversion of tensors between their layout outside of the accelerator and its blocked layout.

use crate::core::Core;
use crate::layer::{Kind, Layer, Operand, Tensors};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operand {operand:?} needs {wanted} bytes, got {given}")]
pub struct LayoutError {
    operand: Option<Operand>,
    given: usize,
    wanted: usize,
}

struct Blocked {
    channels: u32,
    height: u32,
    width: u32,
    channel_blocks: u32,
}

/// Converts an operand to the core's layout, with zeros for missing channels and images.
pub fn pack_operand(core: &Core, layer: &Layer, operand: Operand, bytes: &[u8]) -> Result<Vec<u8>, LayoutError> {
    let [batches, blocks_in, blocks_out] = layer.block_counts(core);
    let wanted = match operand {
        Operand::Data => element_count(layer, layer.channels_in, [layer.height, layer.width]) * data_bytes(layer),
        Operand::Weights => weight_elements(layer),
        Operand::PerChannel => 4 * layer.channels_out as usize,
        Operand::Tensor => 4 * element_count(layer, layer.channels_out, layer.output_extents()),
    };
    if bytes.len() != wanted {
        return Err(LayoutError { operand: Some(operand), given: bytes.len(), wanted });
    }
    Ok(match operand {
        Operand::Data => {
            let image = Blocked {
                channels: layer.channels_in,
                height: layer.height,
                width: layer.width,
                channel_blocks: blocks_in,
            };
            scatter_elements(core, layer, &image, batches, bytes, data_bytes(layer))
        }
        Operand::Weights => pack_weights(core, layer, bytes),
        Operand::PerChannel => {
            let mut packed = Vec::new();
            for block in 0..blocks_out {
                for _ in 0..core.batch {
                    let lanes = (0..core.block).map(|lane| (block * core.block + lane) as usize);
                    for channel in lanes {
                        packed.extend(bytes.get(4 * channel..4 * channel + 4).unwrap_or(&[0; 4]));
                    }
                }
            }
            packed
        }
        Operand::Tensor => scatter_elements(core, layer, &result_image(core, layer), batches, bytes, 4),
    })
}

pub fn unpack_result(core: &Core, layer: &Layer, packed: &[u8]) -> Result<Vec<u8>, LayoutError> {
    let image = result_image(core, layer);
    let wanted = packed_elements(core, &image, layer.block_counts(core)[0]);
    if packed.len() != wanted {
        return Err(LayoutError { operand: None, given: packed.len(), wanted });
    }
    let mut bytes = vec![0; element_count(layer, layer.channels_out, layer.output_extents())];
    visit_elements(core, layer, &image, |outside, inside| bytes[outside] = packed[inside]);
    Ok(bytes)
}

pub(crate) fn result_bytes(core: &Core, layer: &Layer) -> u64 {
    let ([height, width], [batches, _, blocks]) = (layer.output_extents(), layer.block_counts(core));
    extent_product(&[batches, blocks, height, width, core.batch, core.block])
}

pub(crate) fn operand_bytes(core: &Core, layer: &Layer, operand: Operand) -> u64 {
    let ([batches, blocks_in, blocks_out], [height, width]) = (layer.block_counts(core), layer.output_extents());
    let Core { batch, block, .. } = *core;
    match operand {
        Operand::Data => extent_product(&[batches, blocks_in, layer.height, layer.width, batch, block])
            .saturating_mul(data_bytes(layer) as u64),
        Operand::Weights => {
            let [rows, columns] = layer.kernel;
            extent_product(&[blocks_out, layer.summed_blocks(core), rows, columns, block, block])
        }
        Operand::PerChannel => extent_product(&[blocks_out, batch, block, 4]),
        Operand::Tensor => extent_product(&[batches, blocks_out, height, width, batch, block, 4]),
    }
}

fn extent_product(extents: &[u32]) -> u64 {
    extents.iter().fold(1, |product: u64, &extent| product.saturating_mul(extent.into()))
}

fn data_bytes(layer: &Layer) -> usize {
    if layer.kind == Kind::Elementwise { 4 } else { 1 }
}

fn element_count(layer: &Layer, channels: u32, [height, width]: [u32; 2]) -> usize {
    let places = match layer.tensors {
        Tensors::Images => layer.images as usize * height as usize * width as usize,
        Tensors::Matrix { rows } => rows as usize,
    };
    places * channels as usize
}

fn weight_elements(layer: &Layer) -> usize {
    let depth = if layer.kind == Kind::Depthwise { 1 } else { layer.channels_in };
    layer.channels_out as usize * depth as usize * layer.kernel[0] as usize * layer.kernel[1] as usize
}

fn result_image(core: &Core, layer: &Layer) -> Blocked {
    let [height, width] = layer.output_extents();
    Blocked { channels: layer.channels_out, height, width, channel_blocks: layer.block_counts(core)[2] }
}

fn packed_elements(core: &Core, image: &Blocked, batches: u32) -> usize {
    let places = batches as usize * image.channel_blocks as usize * image.height as usize * image.width as usize;
    places * core.batch as usize * core.block as usize
}

fn scatter_elements(core: &Core, layer: &Layer, image: &Blocked, batches: u32, bytes: &[u8], size: usize) -> Vec<u8> {
    let mut packed = vec![0; packed_elements(core, image, batches) * size];
    visit_elements(core, layer, image, |outside, inside| {
        packed[inside * size..(inside + 1) * size].copy_from_slice(&bytes[outside * size..(outside + 1) * size]);
    });
    packed
}

/// Calls `visit` with the index in the external layout and the index in the blocked layout of every element.
fn visit_elements(core: &Core, layer: &Layer, image: &Blocked, mut visit: impl FnMut(usize, usize)) {
    let [batch, block] = [core.batch, core.block].map(|extent| extent as usize);
    let [height, width, channels] = [image.height, image.width, image.channels].map(|extent| extent as usize);
    let inside = |n: usize, c: usize, h: usize, w: usize| {
        let vector = ((n / batch * image.channel_blocks as usize + c / block) * height + h) * width + w;
        (vector * batch + n % batch) * block + c % block
    };
    match layer.tensors {
        Tensors::Images => {
            let mut outside = 0;
            for n in 0..layer.images as usize {
                for c in 0..channels {
                    for h in 0..height {
                        for w in 0..width {
                            visit(outside, inside(n, c, h, w));
                            outside += 1;
                        }
                    }
                }
            }
        }
        Tensors::Matrix { rows } => {
            for row in 0..rows as usize {
                let (n, place) = (row % layer.images as usize, row / layer.images as usize);
                for c in 0..channels {
                    visit(row * channels + c, inside(n, c, place / width, place % width));
                }
            }
        }
    }
}

/// Packs weights by output block, input block, kernel position, square channel block (diagonal if depthwise).
fn pack_weights(core: &Core, layer: &Layer, bytes: &[u8]) -> Vec<u8> {
    let block = core.block as usize;
    let taps = (layer.kernel[0] * layer.kernel[1]) as usize;
    let summed = layer.summed_blocks(core) as usize;
    let blocks_out = layer.block_counts(core)[2] as usize;
    let mut packed = vec![0; blocks_out * summed * taps * block * block];
    let place = |out: usize, depth: usize, tap: usize, lane: usize| {
        ((((out / block) * summed + depth) * taps + tap) * block + out % block) * block + lane
    };
    for out in 0..layer.channels_out as usize {
        match layer.kind {
            Kind::Depthwise => {
                for tap in 0..taps {
                    packed[place(out, 0, tap, out % block)] = bytes[out * taps + tap];
                }
            }
            Kind::Convolution | Kind::Elementwise => {
                let depth = layer.channels_in as usize;
                for channel in 0..depth {
                    for tap in 0..taps {
                        packed[place(out, channel / block, tap, channel % block)] =
                            bytes[(out * depth + channel) * taps + tap];
                    }
                }
            }
        }
    }
    packed
}
