//! Declares the space of each family on a GPU.
//!
//! Every point can be bound to a grid; what a device has too little of is refused here, before anything is built.

use super::declare::{choice, choices, contraction_extents, numbers, upto};
use super::template::template;
use super::{Axis, Knobs, Setting, Space, Template};
use crate::target::Gpu;
use models::{Op, Task};
use std::collections::BTreeMap;

/// The space of a task on a GPU.
pub(super) fn space(task: &Task, gpu: &Gpu) -> Space {
    let anchor = &task.steps[0];
    let output = anchor.output.extents().unwrap_or_default();
    match template(task) {
        Template::Contraction if output.len() >= 2 => contraction(task, gpu, &output),
        Template::Contraction | Template::Spatial => spatial(gpu),
        Template::Rows => rows(gpu),
    }
}

/// What the points of a space may take of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limits {
    block_threads: i64,
    shared_bytes: i64,
    stage: Option<Stage>,
}

/// What a block stages of both operands: facts that are the same at every point.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stage {
    element_bytes: i64,
    /// Steps between windows, and the reach of one, along rows and columns.
    rows: Window,
    columns: Window,
    /// Weights of one output channel and one step of the depth.
    taps: i64,
    /// Whether each output channel reads an input channel of its own.
    is_depthwise: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Window {
    stride: i64,
    reach: i64,
}

impl Window {
    const POINT: Window = Window { stride: 1, reach: 1 };

    /// Inputs under this many neighbouring windows.
    fn inputs(self, windows: i64) -> i64 {
        (windows - 1) * self.stride + self.reach
    }
}

/// Registers a thread has for its tile of the result, leaving room for operands and addresses.
const TILE_ELEMENTS: i64 = 128;

/// Multiply-adds that are written out: bounds the time of a build.
const UNROLLED_ELEMENTS: i64 = 2048;

impl Limits {
    /// Whether a block of threads fits.
    pub(super) fn allow(&self, knobs: &Knobs) -> bool {
        let number = |name: &str| knobs.number(name).unwrap_or(1);
        let threads = number("threads") * number("threads_c") * number("threads_y") * number("threads_x");
        let tile = number("tile_c") * number("tile_y") * number("tile_x");
        let depth = number("split_r");
        let steps = if number("unroll") == 1 { depth } else { 1 };
        threads <= self.block_threads
            && tile <= TILE_ELEMENTS
            && tile * steps <= UNROLLED_ELEMENTS
            && self.staged_bytes(knobs) <= self.shared_bytes
    }

    /// Shared memory of a block.
    fn staged_bytes(&self, knobs: &Knobs) -> i64 {
        let Some(stage) = self.stage.filter(|_| knobs.choice("stage") == Some("shared")) else { return 0 };
        let along = |axis: &str| {
            knobs.number(&format!("threads_{axis}")).unwrap_or(1) * knobs.number(&format!("tile_{axis}")).unwrap_or(1)
        };
        let depth = knobs.number("split_r").unwrap_or(1);
        let channels = if stage.is_depthwise { along("c") } else { depth };
        let data = channels * stage.rows.inputs(along("y")) * stage.columns.inputs(along("x"));
        let weights = along("c") * depth * stage.taps;
        (data + weights) * stage.element_bytes
    }
}

fn contraction(task: &Task, gpu: &Gpu, output: &[i64]) -> Space {
    let extents = contraction_extents(task, output);
    let stage = stage(task, output);
    let can_stage = stage.is_some();
    let limits = Limits { block_threads: gpu.block_threads, shared_bytes: gpu.shared_bytes, stage };
    let depths: Vec<i64> = upto(depth(task, extents.depth), &[1, 4, 8, 16, 32]).collect();
    let mut axes = vec![
        numbers("threads_c", "threads along channels", powers(extents.channels, 64)),
        numbers("threads_y", "threads along rows", powers(extents.rows, 8)),
        numbers("threads_x", "threads along columns", powers(extents.columns, 64)),
        numbers("tile_c", "channels of one thread", [1, 2, 4, 8]),
        numbers("tile_y", "rows of one thread", upto(extents.rows, &[1, 2, 4])),
        numbers("tile_x", "columns of one thread", tiles(extents.columns)),
        choices("spread", "whether a thread's elements are neighbours", ["apart", "together"]),
        numbers("split_r", "depth staged at once", depths.iter().copied()),
        numbers("unroll", "whether the staged depth is written out", [0, 1]),
    ];
    let places = [("shared", can_stage), ("global", true)];
    axes.push(choices("stage", "where operands are read from", places.iter().filter(|p| p.1).map(|p| p.0)));
    if can_stage {
        axes.push(numbers("fetch", "elements a thread fetches at once", [1, 2, 4]));
    }
    let default = contraction_default(&axes, &limits, [extents.channels, extents.rows, extents.columns], output);
    Space { template: Template::Contraction, axes, default, limits: super::Limits::Device(limits) }
}

/// The largest tile that still gives every multiprocessor of a large device something to do.
fn contraction_default(axes: &[Axis], limits: &Limits, extents: [i64; 3], output: &[i64]) -> Knobs {
    const MULTIPROCESSORS: i64 = 132;
    const THREADS: i64 = 256;
    let [channels, rows, columns] = extents;
    let places: i64 = output.iter().product::<i64>() / (channels * rows * columns).max(1);
    let settings = |name: &str| {
        let axis = axes.iter().find(|axis| axis.name == name).expect("the axis was declared");
        axis.settings.iter().map(|setting| if let Setting::Number(number) = setting { *number } else { 0 })
    };
    let largest = |name: &str, most: i64| settings(name).filter(|&number| number <= most).max().unwrap_or(1);
    let mut best: Option<Knobs> = None;
    for (tile_c, tile_x) in [(8, 8), (8, 4), (4, 4), (4, 2), (2, 2), (1, 1)] {
        let (tile_c, tile_x) = (largest("tile_c", tile_c.min(channels)), largest("tile_x", tile_x.min(columns)));
        let threads_x = largest("threads_x", 16.min((columns / tile_x).max(1)));
        let threads_y = largest("threads_y", (16 / threads_x).max(1));
        let threads_c = largest("threads_c", (THREADS / threads_x / threads_y).min((channels / tile_c).max(1)).min(32));
        let mut knobs = BTreeMap::new();
        for (name, number) in [
            ("threads_c", threads_c),
            ("threads_y", threads_y),
            ("threads_x", threads_x),
            ("tile_c", tile_c),
            ("tile_y", 1),
            ("tile_x", tile_x),
            ("split_r", largest("split_r", 8)),
            ("unroll", 1),
        ] {
            knobs.insert(name.to_owned(), Setting::Number(number));
        }
        let can_stage = limits.stage.is_some();
        knobs.insert("spread".to_owned(), choice("apart"));
        knobs.insert("stage".to_owned(), choice(if can_stage { "shared" } else { "global" }));
        if can_stage {
            knobs.insert("fetch".to_owned(), Setting::Number(1));
        }
        let knobs = Knobs(knobs);
        let blocks = [(channels, threads_c * tile_c), (rows, threads_y), (columns, threads_x * tile_x)];
        let blocks = places * blocks.into_iter().map(|(extent, tile)| (extent + tile - 1) / tile).product::<i64>();
        if limits.allow(&knobs) {
            best = Some(knobs);
            if blocks >= 2 * MULTIPROCESSORS {
                break;
            }
        }
    }
    best.expect("one element a thread fits every device")
}

/// What a block stages; nothing where operands are not two plain tensors.
fn stage(task: &Task, output: &[i64]) -> Option<Stage> {
    let anchor = &task.steps[0];
    let element_bytes = task.parameters.iter().map(|parameter| parameter.ty.dtype.bytes()).max()?;
    let element_bytes = i64::try_from(element_bytes).ok()?;
    let point = Stage {
        element_bytes,
        rows: Window::POINT,
        columns: Window::POINT,
        taps: 1,
        is_depthwise: false,
    };
    match &anchor.op {
        Op::Conv { strides, dilations, .. } | Op::QConv { strides, dilations, .. } => {
            let weight = task.operand_type(*anchor.inputs.get(1)?).ok()?.extents()?;
            let kernel = weight.get(2..)?;
            let window = |place: usize| {
                let reach = (kernel.get(place)? - 1) * dilations.get(place)? + 1;
                Some(Window { stride: *strides.get(place)?, reach })
            };
            let rank = output.len() - 2;
            // Dimensions before the last two have one window per block, but its whole reach.
            let outer: i64 = (0..rank.saturating_sub(2)).map(|place| window(place).map_or(1, |w| w.reach)).product();
            Some(Stage {
                rows: if rank > 1 { window(rank - 2)? } else { Window::POINT },
                columns: window(rank - 1)?,
                taps: kernel.iter().product(),
                is_depthwise: weight.get(1) == Some(&1),
                element_bytes: element_bytes * outer,
            })
        }
        Op::MatMul { .. } | Op::QMatMul { .. } | Op::Dense | Op::QDense { .. } => Some(point),
        _ => None,
    }
}

/// The extent of the first reduction loop.
fn depth(task: &Task, declared: i64) -> i64 {
    let anchor = &task.steps[0];
    let weight = anchor.inputs.get(1).and_then(|at| task.operand_type(*at).ok()).and_then(|ty| ty.extents());
    match (&anchor.op, weight) {
        // A depthwise convolution sums over its window alone.
        (Op::Conv { .. } | Op::QConv { .. }, Some(weight)) if weight[1] == 1 => 1,
        (Op::Conv { .. } | Op::QConv { .. }, Some(weight)) => weight[1],
        (Op::ConvTranspose { groups, .. }, _) => declared / groups,
        _ => declared,
    }
}

/// Powers of two up to an extent, the next one above included.
fn powers(extent: i64, most: i64) -> Vec<i64> {
    (0..=6).map(|power| 1 << power).filter(|&number| number <= most && number < 2 * extent.max(1)).collect()
}

/// Small tiles that divide an extent or are powers of two.
fn tiles(extent: i64) -> impl Iterator<Item = i64> {
    (1..=8i64).filter(move |&tile| (extent % tile == 0 || tile.count_ones() == 1) && tile <= extent.max(1))
}

fn spatial(gpu: &Gpu) -> Space {
    by_threads(gpu, Template::Spatial)
}

fn rows(gpu: &Gpu) -> Space {
    by_threads(gpu, Template::Rows)
}

fn by_threads(gpu: &Gpu, template: Template) -> Space {
    let settings = [32, 64, 128, 256, 512, 1024].into_iter().filter(|&threads| threads <= gpu.block_threads);
    let axes = vec![numbers("threads", "threads of a block", settings)];
    let default = Knobs(BTreeMap::from([("threads".to_owned(), Setting::Number(256.min(gpu.block_threads)))]));
    let limits = Limits { block_threads: gpu.block_threads, shared_bytes: gpu.shared_bytes, stage: None };
    Space { template, axes, default, limits: super::Limits::Device(limits) }
}
