//! Check whether a tiling fits on an accelerator core, and the resulting buffer layout.

use crate::core::{Buffer, Core};
use crate::knobs::Knobs;
use crate::layer::{Kind, Layer, Post};
use crate::layout::{operand_bytes, result_bytes};

/// Limit of instructions per program, due to the maximum size of a buffer.
pub(crate) const INSTRUCTIONS_MAX: u64 = 1 << 21;
const BYTES_MAX: u64 = 1 << 30;
/// Limit of padding elements per side, due to the instruction format.
const PADS_MAX: u32 = 15;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum Misfit {
    #[error("`{knob}` is {value}, which does not divide {extent}")]
    Divides { knob: &'static str, value: u32, extent: u32 },
    #[error("{threads} threads need {needed} elements of {buffer}, but the core has {room}")]
    Room { threads: u32, buffer: &'static str, needed: u64, room: u32 },
    #[error(
        "the padding is {0:?}, but an instruction supports at most 15 zeros per side, and fewer than the window size"
    )]
    Pads([u32; 4]),
    #[error("the row stride is {0} elements, but an instruction supports at most 65535")]
    Stride(u64),
    #[error("the program would have {0} instructions, but one buffer holds at most 2097152")]
    Instructions(u64),
    #[error("the operands need {0} bytes of memory, more than the limit of 1073741824")]
    Memory(u64),
    #[error("the layer is empty, or the window is larger than the image")]
    Empty,
}

/// Buffer layout of one virtual thread. The next thread's layout follows it in each buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Rows and columns of input data that a tile reads.
    pub under: [u32; 2],
    pub data_blocks: u32,
    pub data: u32,
    pub weights: u32,
    pub tile: u32,
    /// Number of sums, including those for operands of post-processing and for the rows of `fillers`.
    pub sums: u32,
    /// Whether a tile has fewer rows of sums than the minimum distance, so that columns must be iterated innermost.
    pub is_narrow: bool,
    /// Number of additional rows of unused sums, into which dummy products are added to keep the minimum distance.
    pub fillers: u32,
    pub threads: u32,
}

pub fn check_fit(core: &Core, layer: &Layer, knobs: &Knobs) -> Result<(), Misfit> {
    plan_buffers(core, layer, knobs).map(|_| ())
}

pub(crate) fn plan_buffers(core: &Core, layer: &Layer, knobs: &Knobs) -> Result<Plan, Misfit> {
    let Knobs { tile_b, tile_h, tile_w, tile_ci, tile_co, oc_threads, h_threads } = *knobs;
    let ([height, width], [batches, _, blocks_out]) = (layer.output_extents(), layer.block_counts(core));
    check_shape(layer)?;
    let summed = layer.summed_blocks(core).max(1);
    for (knob, value, extent) in [
        ("tile_b", tile_b, batches),
        ("tile_h", tile_h, height),
        ("tile_w", tile_w, width),
        ("tile_ci", tile_ci, summed),
        ("tile_co", tile_co, blocks_out),
        ("oc_nthread", oc_threads, blocks_out / tile_co.max(1)),
        ("h_nthread", h_threads, height / tile_h.max(1)),
    ] {
        if value == 0 || !extent.is_multiple_of(value) {
            return Err(Misfit::Divides { knob, value, extent });
        }
    }
    let threads = oc_threads * h_threads;
    let under = [(tile_h - 1) * layer.strides[0] + layer.kernel[0], (tile_w - 1) * layer.strides[1] + layer.kernel[1]];
    let taps = u64::from(layer.kernel[0]) * u64::from(layer.kernel[1]);
    let depth = if layer.kind == Kind::Depthwise { tile_co } else { tile_ci };
    let wide = u64::from;
    let (data, weights) = match layer.kind {
        Kind::Elementwise => (0, 0),
        Kind::Convolution | Kind::Depthwise => {
            (wide(tile_b) * wide(depth) * wide(under[0]) * wide(under[1]), wide(tile_co) * wide(tile_ci) * taps)
        }
    };
    let tile = wide(tile_b) * wide(tile_co) * wide(tile_h) * wide(tile_w);
    let rows = wide(tile_b) * wide(tile_co) * wide(tile_h);
    let sums_products = layer.kind != Kind::Elementwise;
    let is_narrow = sums_products && rows < wide(core.distance);
    let fillers = if is_narrow { wide(core.distance).div_ceil(wide(tile_w)).saturating_sub(rows) } else { 0 };
    let (mut sums, mut micro_ops) = (tile + fillers * wide(tile_w), 1);
    for post in &layer.post {
        match post {
            Post::Immediate(..) => {}
            Post::PerChannel(_) => (sums, micro_ops) = (sums + wide(tile_co), micro_ops + wide(tile_co)),
            Post::Tensor(_) => (sums, micro_ops) = (sums + tile, micro_ops + 1),
        }
    }
    if sums_products {
        micro_ops += wide(tile_ci) * wide(layer.kernel[0]) * (rows + fillers);
    }
    for (buffer, needed) in
        [(Buffer::Data, data), (Buffer::Weights, weights), (Buffer::Sums, sums), (Buffer::MicroOps, micro_ops)]
    {
        if needed.saturating_mul(wide(threads)) > wide(core.buffer_capacity(buffer)) {
            let needed = needed.saturating_mul(wide(threads));
            return Err(Misfit::Room { threads, buffer: buffer.name(), needed, room: core.buffer_capacity(buffer) });
        }
    }
    for stride in [wide(layer.width), wide(height) * wide(width), wide(summed) * taps] {
        if stride > u64::from(u16::MAX) {
            return Err(Misfit::Stride(stride));
        }
    }
    let operands = layer.layer_operands().into_iter();
    let bytes = operands
        .fold(result_bytes(core, layer), |sum, operand| sum.saturating_add(operand_bytes(core, layer, operand)));
    if bytes > BYTES_MAX {
        return Err(Misfit::Memory(bytes));
    }
    let instructions = instruction_bound(core, layer, knobs);
    if instructions > INSTRUCTIONS_MAX {
        return Err(Misfit::Instructions(instructions));
    }
    let small = |number: u64| u32::try_from(number).expect("plans that fit have sizes of 32 bits");
    Ok(Plan {
        under,
        data_blocks: depth,
        data: small(data),
        weights: small(weights),
        tile: small(tile),
        sums: small(sums),
        is_narrow,
        fillers: small(fillers),
        threads,
    })
}

fn check_shape(layer: &Layer) -> Result<(), Misfit> {
    let [top, left, bottom, right] = layer.pads;
    let reaches = |extent: u32, kernel: u32, pads: u32| kernel > 0 && kernel <= extent.saturating_add(pads);
    let counts = [layer.images, layer.channels_in, layer.channels_out, layer.height, layer.width];
    let is_small = |kernel: [u32; 2]| kernel.iter().all(|&extent| extent <= 1 << 12);
    if counts.contains(&0)
        || layer.strides.contains(&0)
        || !is_small(layer.kernel)
        || !reaches(layer.height, layer.kernel[0], top.saturating_add(bottom))
        || !reaches(layer.width, layer.kernel[1], left.saturating_add(right))
    {
        return Err(Misfit::Empty);
    }
    let is_far = |pad: u32, kernel: u32| pad > PADS_MAX || pad >= kernel.max(1) && pad > 0;
    let [rows, columns] = layer.kernel;
    if is_far(top, rows) || is_far(bottom, rows) || is_far(left, columns) || is_far(right, columns) {
        return Err(Misfit::Pads(layer.pads));
    }
    Ok(())
}

fn instruction_bound(core: &Core, layer: &Layer, knobs: &Knobs) -> u64 {
    let WideKnobs { tile_b, tile_h, tile_w, tile_ci, tile_co } = knobs.as_array().map(u64::from).into();
    let ([height, width], [batches, _, blocks_out]) = (layer.output_extents(), layer.block_counts(core));
    let tiles = (u64::from(batches) / tile_b)
        .saturating_mul(u64::from(height) / tile_h)
        .saturating_mul(u64::from(width) / tile_w)
        .saturating_mul(u64::from(blocks_out) / tile_co);
    let depths = u64::from(layer.summed_blocks(core)) / tile_ci;
    let data = if layer.kind == Kind::Depthwise { tile_co } else { tile_ci };
    let products =
        if tile_b * tile_co * tile_h < u64::from(core.distance) { tile_ci * u64::from(layer.kernel[0]) } else { 1 };
    let of_tile = depths * (tile_b * data + 1 + products) + (layer.post.len() as u64 + 1) * (tile_b * tile_co + 1) + 1;
    tiles.saturating_mul(of_tile)
}

struct WideKnobs {
    tile_b: u64,
    tile_h: u64,
    tile_w: u64,
    tile_ci: u64,
    tile_co: u64,
}

impl From<[u64; 7]> for WideKnobs {
    fn from([tile_b, tile_h, tile_w, tile_ci, tile_co, _, _]: [u64; 7]) -> WideKnobs {
        WideKnobs { tile_b, tile_h, tile_w, tile_ci, tile_co }
    }
}
