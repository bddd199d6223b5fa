//! Declares the schedule space of each family of operators on GPUs. Every point can be mapped to a grid; points that
//! exceed the resources of a device are rejected here, before a build.

mod axes;
pub mod sum;
pub mod tensor;

pub(crate) use axes::AXES;
pub use axes::{
    BLOCK_THREADS, FETCH, KERNELS, PAD_ROWS, SPLIT_K, SPREAD, STAGE, THREADS_C, THREADS_X, THREADS_Y, UNIT,
};

use super::choices::{HelpersAt, Kernels, Spread, StagedIn, SummedBy, Unit};
use super::extents::contraction_extents;
use super::template::{rows_of, task_template};
use super::{Axis, Knobs, Rule, Space, Template};
use crate::axes::{NumberAxis, SPLIT_R, SUM, TILE_C, TILE_X, TILE_Y, UNROLL, candidate_divisors};
use crate::machine::Gpu;
use models::operators::{Conv, ConvTranspose, QConv};
use models::{Dim, Op, Task};

/// Replaces symbolic extents by a prime, so that no tile relies on dividing them; threads past the end do nothing.
pub fn assume_sizes(task: &Task) -> Task {
    const OPEN: i64 = 127;
    task.with_sizes(|_| OPEN)
}

#[derive(Clone, Copy)]
struct SymbolicExtents {
    /// Whether any extent of the result is symbolic.
    anywhere: bool,
    /// Whether an extent along which tiles are formed is symbolic.
    tile: bool,
}

impl SymbolicExtents {
    fn from_task(task: &Task) -> SymbolicExtents {
        let symbolic = |dim: &Dim| matches!(dim, Dim::Symbol(_));
        let shape = &task.steps[0].output.shape;
        SymbolicExtents { anywhere: shape.iter().any(symbolic), tile: shape.iter().rev().take(2).any(symbolic) }
    }
}

pub fn gpu_space(task: &Task, gpu: &Gpu) -> Space {
    let symbolic = SymbolicExtents::from_task(task);
    let task = &assume_sizes(task);
    let anchor = &task.steps[0];
    let output = anchor.output.extents().unwrap_or_default();
    match task_template(task) {
        Template::Contraction if output.len() >= 2 => contraction_space(task, gpu, &output, symbolic),
        Template::Contraction | Template::Spatial => spatial_space(task, gpu),
        Template::Rows => rows_space(task, gpu),
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GpuLimits {
    block_threads: i64,
    shared_bytes: i64,
    /// Extents of channels, rows and columns, which tiles must divide.
    extents: [i64; 3],
    depth: i64,
    sums: Option<sum::SumChoices>,
    stage: Option<FetchStage>,
    can_pad: bool,
    /// Operands for tensor cores; None if these cannot compute the product.
    tensor: Option<tensor::Operands>,
}

/// Properties, independent of the schedule, of the operands' data that a block copies to shared memory.
#[derive(Clone, Copy, Debug, PartialEq)]
struct FetchStage {
    element_bytes: i64,
    rows: Window,
    columns: Window,
    /// Number of weights per output channel and depth step.
    taps: i64,
    is_depthwise: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Window {
    stride: i64,
    reach: i64,
}

impl Window {
    const POINT: Window = Window { stride: 1, reach: 1 };

    fn input_extent(self, windows: i64) -> i64 {
        (windows - 1) * self.stride + self.reach
    }
}

/// Registers per thread for the tile of the result, which leaves room for operands and addresses.
const TILE_ELEMENTS: i64 = 128;

const THREADS: &str = "threads";
const TILE: &str = "tile";
const EVEN: &str = "even";
const STAGED: &str = "staged";
const FRAGMENTS: &str = "fragments";
const SUMMED: &str = "summed";

/// Maximum number of unrolled multiply-adds, which bounds build time.
const UNROLLED_ELEMENTS: i64 = 2048;

/// Work of a block: threads, and elements per thread, along channels, rows and columns.
#[derive(Clone, Copy, Debug)]
struct ProductShape {
    threads: [i64; 3],
    tile: [i64; 3],
    depth: i64,
    parts: i64,
    is_unrolled: bool,
    is_staged: bool,
    is_padded: bool,
    vector: i64,
}

static THREADS_ALONG: [&NumberAxis; 3] = [&THREADS_C, &THREADS_Y, &THREADS_X];
static TILE_ALONG: [&NumberAxis; 3] = [&TILE_C, &TILE_Y, &TILE_X];

impl ProductShape {
    fn from_knobs(knobs: &Knobs) -> ProductShape {
        ProductShape {
            threads: THREADS_ALONG.map(|axis| axis.or_one(knobs)),
            tile: TILE_ALONG.map(|axis| axis.or_one(knobs)),
            depth: SPLIT_R.or_one(knobs),
            parts: SPLIT_K.or_one(knobs),
            is_unrolled: UNROLL.or_one(knobs) == 1,
            is_staged: STAGE.is_set_to(knobs, StagedIn::Shared),
            is_padded: PAD_ROWS.setting_in(knobs) == Some(1),
            vector: FETCH.or_one(knobs),
        }
    }

    fn extent_along(&self, dimension: usize) -> i64 {
        self.threads[dimension] * self.tile[dimension]
    }
}

impl GpuLimits {
    pub(super) fn limit_rules(&self) -> Vec<Rule> {
        let rule = |name, text: String| Rule { name, text };
        let mut rules = vec![
            rule(THREADS, format!("a block has at most {} threads", self.block_threads)),
            rule(
                TILE,
                format!(
                    "a thread's tile has at most {TILE_ELEMENTS} elements, and at most {UNROLLED_ELEMENTS} times its \
                     unrolled steps"
                ),
            ),
            rule(
                EVEN,
                "tiles of more than one element divide their extent, and parts of a sum divide its depth".to_owned(),
            ),
            rule(
                STAGED,
                format!(
                    "staged operands take at most {} bytes of shared memory; their rows are padded only where that is \
                     possible",
                    self.shared_bytes
                ),
            ),
        ];
        if self.tensor.is_some() {
            rules.push(rule(
                FRAGMENTS,
                "fragments of tensor cores divide the product, and fit a block's threads and shared memory".to_owned(),
            ));
        }
        if self.sums.is_some() {
            rules.push(rule(SUMMED, "parts of a sum across threads divide its depth and fit a block".to_owned()));
        }
        rules
    }

    pub(super) fn forbidding_rule(&self, knobs: &Knobs) -> Option<&'static str> {
        if UNIT.is_set_to(knobs, Unit::Tensor) {
            let fits = |operands: tensor::Operands| operands.allows_point(knobs, self.block_threads, self.shared_bytes);
            return (!self.tensor.is_some_and(fits)).then_some(FRAGMENTS);
        }
        if SUM.is_set_to(knobs, SummedBy::Block) && sum::SUM_THREADS.setting_in(knobs).is_some() {
            return (!self.sums.is_some_and(|sums| sums.allows_point(knobs, self.block_threads))).then_some(SUMMED);
        }
        if BLOCK_THREADS.or_one(knobs) > self.block_threads {
            return Some(THREADS);
        }
        self.violated_rule(&ProductShape::from_knobs(knobs))
    }

    fn violated_rule(&self, shape: &ProductShape) -> Option<&'static str> {
        let threads: i64 = shape.threads.iter().product();
        let tile: i64 = shape.tile.iter().product();
        let steps = if shape.is_unrolled { shape.depth } else { 1 };
        // An overhanging tile would test each of its elements.
        let divides = |dimension: usize| {
            shape.tile[dimension] == 1 || self.extents[dimension] % shape.extent_along(dimension) == 0
        };
        let is_even = (0..3).all(divides) && (shape.parts == 1 || self.depth % (shape.parts * shape.depth) == 0);
        let is_staged = (self.can_pad || !shape.is_padded) && self.staged_bytes(shape) <= self.shared_bytes;
        [
            (threads <= self.block_threads, THREADS),
            (tile <= TILE_ELEMENTS && tile * steps <= UNROLLED_ELEMENTS, TILE),
            (is_even, EVEN),
            (is_staged, STAGED),
        ]
        .into_iter()
        .find_map(|(obeyed, name)| (!obeyed).then_some(name))
    }

    fn staged_bytes(&self, shape: &ProductShape) -> i64 {
        let Some(stage) = self.stage.filter(|_| shape.is_staged) else { return 0 };
        let depth = shape.depth;
        let channels = if stage.is_depthwise { shape.extent_along(0) } else { depth };
        let data = channels
            * stage.rows.input_extent(shape.extent_along(1))
            * stage.columns.input_extent(shape.extent_along(2));
        let weights = shape.extent_along(0) * depth * stage.taps;
        // An upper bound of the strides in `apply/gpu/contraction.rs`: rows along the depth grow by one vector. If the
        // depth is the outer dimension, its rows grow by less than what their strides are rounded to.
        let vector = shape.vector.max(1);
        let rounded = depth.max(2 * vector) + vector - 1;
        let grown = |rows: i64| if shape.is_padded { (rows * vector).max(depth * rounded) } else { 0 };
        let slack = grown(shape.extent_along(0)) + grown(shape.extent_along(2));
        (data + weights + slack) * stage.element_bytes
    }
}

fn contraction_space(task: &Task, gpu: &Gpu, output: &[i64], symbolic: SymbolicExtents) -> Space {
    let extents = contraction_extents(task, output);
    // TVM gives the remaining extent to the last staged part, so the extent must be known.
    let stage = find_stage(task, output).filter(|_| !symbolic.tile);
    let can_stage = stage.is_some();
    // The staged rows of a convolution are windows, which are too short to be padded.
    let can_pad = can_stage && !matches!(task.steps[0].op, Op::Conv(_) | Op::QConv(_));
    let sizes = [extents.channels, extents.rows, extents.columns];
    // Tensor cores treat the windows of a convolution as columns, whose number must be known at lowering.
    let tensor =
        tensor::tensor_operands(task, gpu.capability).filter(|operands| !(operands.is_conv && symbolic.anywhere));
    let depth = reduction_depth(task, extents.depth);
    let elements: i64 = output.iter().product();
    let places = elements / sizes.iter().product::<i64>().max(1);
    let is_row = places * extents.rows * extents.columns == 1;
    let limits = GpuLimits {
        block_threads: gpu.block_threads,
        shared_bytes: gpu.shared_bytes,
        extents: sizes,
        depth,
        sums: sum::block_sums(task, elements, depth, is_row),
        stage,
        can_pad,
        tensor,
    };
    let depths: Vec<i64> = candidate_divisors(depth, &[1, 4, 8, 16, 32]).collect();
    let threads =
        [(extents.channels, 64), (extents.rows, 8), (extents.columns, 64)].map(|(e, most)| powers_up_to(e, most));
    let tiles = [
        small_tiles(extents.channels),
        candidate_divisors(extents.rows, &[1, 2, 4]).collect(),
        small_tiles(extents.columns),
    ];
    let has_padding = can_pad || tensor.is_some();
    let mut default = contraction_default(&limits, has_padding, &threads, &tiles, &depths, places);
    let [threads_c, threads_y, threads_x] = threads;
    let [tile_c, tile_y, tile_x] = tiles;
    let mut axes = vec![
        THREADS_C.to_axis("threads along channels", threads_c),
        THREADS_Y.to_axis("threads along rows", threads_y),
        THREADS_X.to_axis("threads along columns", threads_x),
        TILE_C.to_axis("channels of one thread", tile_c),
        TILE_Y.to_axis("rows of one thread", tile_y),
        TILE_X.to_axis("columns of one thread", tile_x),
        SPREAD.to_axis(
            "whether the parts of a thread's tile are interleaved with those of other threads",
            [Spread::Apart, Spread::Together],
        ),
        SPLIT_R.to_axis("depth steps that are staged at a time", depths),
        UNROLL.to_axis("whether the staged depth steps are unrolled", [0, 1]),
    ];
    let from = [(StagedIn::Shared, can_stage), (StagedIn::Global, true)];
    axes.push(
        STAGE.to_axis("memory from which operands are read", from.iter().filter(|place| place.1).map(|place| place.0)),
    );
    let parts = sum::part_counts(elements, depth);
    if parts.len() > 1 {
        axes.push(SPLIT_K.to_axis("parts of the sum, each in blocks of its own", parts));
        SPLIT_K.set(&mut default, 1);
    }
    if can_stage {
        axes.push(FETCH.to_axis("elements that a thread fetches at a time", [1, 2, 4]));
    }
    if has_padding {
        axes.push(PAD_ROWS.to_axis("whether staged rows are padded against bank conflicts", [0, 1]));
    }
    if let Some(operands) = &limits.tensor {
        axes.push(UNIT.to_axis("arithmetic unit of the products", [Unit::Threads, Unit::Tensor]));
        axes.extend(operands.tensor_axes());
        // The columns of a convolution include all of its positions.
        let places = if operands.is_conv { 1 } else { places };
        let on_tensor_cores = operands.default_knobs(places, limits.block_threads, limits.shared_bytes);
        // Types with less precision than the task's are used only on request.
        let on_tensor_cores = on_tensor_cores.filter(|_| !operands.is_rounded());
        let unit = if on_tensor_cores.is_some() { Unit::Tensor } else { Unit::Threads };
        default = on_tensor_cores.unwrap_or(default);
        UNIT.set(&mut default, unit);
    }
    if let Some(sums) = limits.sums {
        axes.push(SUM.to_axis("threads that sum an element of the result", [SummedBy::Thread, SummedBy::Block]));
        axes.extend(sums.sum_axes(gpu.block_threads));
        match UNIT.setting_in(&default) {
            Some(Unit::Tensor) => {}
            _ if is_row => default = sums.default_knobs(&default),
            _ => SUM.set(&mut default, SummedBy::Thread),
        }
    }
    Space { template: Template::Contraction, axes, default, limits: super::SpaceLimits::Device(limits) }
}

/// Returns the allowed schedule with the least estimated time. The estimate is based on counts, not on measurements.
fn contraction_default(
    limits: &GpuLimits,
    has_padding: bool,
    threads: &[Vec<i64>; 3],
    tiles: &[Vec<i64>; 3],
    depths: &[i64],
    places: i64,
) -> Knobs {
    let is_staged = limits.stage.is_some();
    let depth = depths.iter().copied().filter(|&depth| depth <= 8).max().unwrap_or(1);
    let single = ProductShape {
        threads: [1; 3],
        tile: [1; 3],
        depth,
        parts: 1,
        is_unrolled: true,
        is_staged,
        is_padded: false,
        vector: 1,
    };
    let mut best = (f64::INFINITY, single);
    for &threads_c in threads[0].iter().filter(|&&count| count <= 32) {
        for &threads_y in &threads[1] {
            for &threads_x in &threads[2] {
                for &tile_c in &tiles[0] {
                    for &tile_x in &tiles[2] {
                        let shape = ProductShape {
                            threads: [threads_c, threads_y, threads_x],
                            tile: [tile_c, 1, tile_x],
                            ..single
                        };
                        let cost = estimate_time(limits, &shape, places);
                        if cost < best.0 && limits.violated_rule(&shape).is_none() {
                            best = (cost, shape);
                        }
                    }
                }
            }
        }
    }
    let shape = best.1;
    let mut knobs = Knobs::default();
    for dimension in 0..3 {
        THREADS_ALONG[dimension].set(&mut knobs, shape.threads[dimension]);
        TILE_ALONG[dimension].set(&mut knobs, shape.tile[dimension]);
    }
    SPLIT_R.set(&mut knobs, depth);
    UNROLL.set(&mut knobs, 1);
    if is_staged {
        FETCH.set(&mut knobs, 1);
    }
    if has_padding {
        PAD_ROWS.set(&mut knobs, 0);
    }
    SPREAD.set(&mut knobs, Spread::Apart);
    STAGE.set(&mut knobs, if is_staged { StagedIn::Shared } else { StagedIn::Global });
    knobs
}

/// Returns the relative time of a shape: the cost per multiply-add, divided by the used share of a large device.
fn estimate_time(limits: &GpuLimits, shape: &ProductShape, places: i64) -> f64 {
    /// Cost of a load from shared memory, in multiply-adds.
    const LOAD: f64 = 4.0;
    let threads: f64 = shape.threads.iter().product::<i64>() as f64;
    let [tile_c, _, tile_x] = shape.tile.map(|tile| tile as f64);
    let tiles = (0..3).map(|d| (limits.extents[d] + shape.extent_along(d) - 1) / shape.extent_along(d));
    let blocks = (places * tiles.product::<i64>()) as f64;
    let done: i64 = (0..3)
        .map(|d| (limits.extents[d] + shape.extent_along(d) - 1) / shape.extent_along(d) * shape.extent_along(d))
        .product();
    let waste = done as f64 / limits.extents.iter().product::<i64>().max(1) as f64;
    (1.0 + LOAD * (tile_c + tile_x) / (tile_c * tile_x)) * waste
        / (occupied_share(blocks, threads) * block_fit(threads))
}

fn occupied_share(blocks: f64, threads: f64) -> f64 {
    const MULTIPROCESSORS: f64 = 132.0;
    const BUSY_THREADS: f64 = 256.0;
    (blocks * threads / (MULTIPROCESSORS * BUSY_THREADS)).min(1.0) * (blocks / MULTIPROCESSORS).min(1.0)
}

/// Rates the number of threads of a block; 1 is best.
fn block_fit(threads: f64) -> f64 {
    const GOOD_BLOCK: [f64; 2] = [128.0, 256.0];
    (threads / GOOD_BLOCK[0]).min(1.0) * (GOOD_BLOCK[1] / threads).min(1.0)
}

/// Returns the data to copy to shared memory. None unless both operands are plain tensors.
fn find_stage(task: &Task, output: &[i64]) -> Option<FetchStage> {
    let anchor = &task.steps[0];
    let element_bytes = task.parameters.iter().map(|parameter| parameter.ty.dtype.size_bytes()).max()?;
    let element_bytes = i64::try_from(element_bytes).ok()?;
    let point = FetchStage { element_bytes, rows: Window::POINT, columns: Window::POINT, taps: 1, is_depthwise: false };
    match &anchor.op {
        Op::Conv(Conv { strides, dilations, .. }) | Op::QConv(QConv { strides, dilations, .. }) => {
            let weight = task.operand_type(*anchor.inputs.get(1)?).ok()?.extents()?;
            let kernel = weight.get(2..)?;
            let window = |place: usize| {
                let reach = (kernel.get(place)? - 1) * dilations.get(place)? + 1;
                Some(Window { stride: *strides.get(place)?, reach })
            };
            let rank = output.len() - 2;
            // Dimensions before the last two have one window per block, but its whole reach.
            let outer: i64 = (0..rank.saturating_sub(2)).map(|place| window(place).map_or(1, |w| w.reach)).product();
            Some(FetchStage {
                rows: if rank > 1 { window(rank - 2)? } else { Window::POINT },
                columns: window(rank - 1)?,
                taps: kernel.iter().product(),
                is_depthwise: weight.get(1) == Some(&1),
                element_bytes: element_bytes * outer,
            })
        }
        Op::MatMul(_) | Op::QMatMul(_) | Op::Dense(_) | Op::QDense(_) => Some(point),
        _ => None,
    }
}

fn reduction_depth(task: &Task, declared: i64) -> i64 {
    let anchor = &task.steps[0];
    let weight = anchor.inputs.get(1).and_then(|at| task.operand_type(*at).ok()).and_then(|ty| ty.extents());
    match (&anchor.op, weight) {
        // A depthwise convolution sums only over its window.
        (Op::Conv(_) | Op::QConv(_), Some(weight)) if weight[1] == 1 => 1,
        (Op::Conv(_) | Op::QConv(_), Some(weight)) => weight[1],
        (Op::ConvTranspose(ConvTranspose { groups, .. }), _) => declared / groups,
        _ => declared,
    }
}

fn powers_up_to(extent: i64, most: i64) -> Vec<i64> {
    (0..=6).map(|power| 1 << power).filter(|&number| number <= most && number <= extent.max(1)).collect()
}

fn small_tiles(extent: i64) -> Vec<i64> {
    (1..=8).filter(|tile| extent % tile == 0).collect()
}

fn threads_axis(gpu: &Gpu) -> Axis {
    let settings = [32, 64, 128, 256, 512, 1024].into_iter().filter(|&threads| threads <= gpu.block_threads);
    BLOCK_THREADS.to_axis("threads per block", settings)
}

/// Minimum number of summed elements for which a block of threads computes one sum.
const BLOCK_SUM: i64 = 64;

fn spatial_space(task: &Task, gpu: &Gpu) -> Space {
    let anchor = &task.steps[0];
    let elements = |extents: Option<Vec<i64>>| extents.map_or(1, |extents| extents.iter().product::<i64>());
    let input = elements(task.parameters.first().and_then(|parameter| parameter.ty.extents()));
    let output = elements(anchor.output.extents());
    let is_long = matches!(anchor.op, Op::Reduce(_) | Op::GlobalPool(_)) && input >= BLOCK_SUM * output;
    let mut axes = vec![threads_axis(gpu)];
    let mut default = Knobs::default();
    BLOCK_THREADS.set(&mut default, 256.min(gpu.block_threads));
    if is_long {
        axes.push(SUM.to_axis("threads that sum an element of the result", [SummedBy::Block, SummedBy::Thread]));
        SUM.set(&mut default, SummedBy::Block);
    }
    thread_space(gpu, Template::Spatial, axes, default)
}

fn rows_space(task: &Task, gpu: &Gpu) -> Space {
    let anchor = &task.steps[0];
    // Other row operators have steps with more dimensions than a row, or their result is a sum.
    let has_rows = matches!(
        anchor.op,
        Op::Softmax(_) | Op::LayerNorm(_) | Op::RmsNorm(_) | Op::GroupNorm(_) | Op::MeanVarianceNorm(_) | Op::LpNorm(_)
    );
    let output = anchor.output.extents().unwrap_or_default();
    let row: i64 = rows_of(task, HelpersAt::Row).into_iter().filter_map(|place| output.get(place)).product();
    let kernels: &[Kernels] = if has_rows { &[Kernels::One, Kernels::Each] } else { &[Kernels::Each] };
    let is_one = has_rows && row >= BLOCK_SUM;
    // For short rows, one thread per element of the row suffices.
    let target = if is_one { row.clamp(32, 256) } else { 256 }.min(gpu.block_threads);
    let count = [32, 64, 128, 256].into_iter().filter(|&count| count <= target).max().unwrap_or(32);
    let mut default = Knobs::default();
    BLOCK_THREADS.set(&mut default, count);
    KERNELS.set(&mut default, if is_one { Kernels::One } else { Kernels::Each });
    let axes = vec![
        threads_axis(gpu),
        KERNELS.to_axis("one kernel for all steps, or one kernel per step", kernels.iter().copied()),
    ];
    thread_space(gpu, Template::Rows, axes, default)
}

fn thread_space(gpu: &Gpu, template: Template, axes: Vec<Axis>, default: Knobs) -> Space {
    let extents = [1; 3];
    let limits = GpuLimits {
        block_threads: gpu.block_threads,
        shared_bytes: gpu.shared_bytes,
        extents,
        depth: 1,
        sums: None,
        stage: None,
        can_pad: false,
        tensor: None,
    };
    Space { template, axes, default, limits: super::SpaceLimits::Device(limits) }
}
