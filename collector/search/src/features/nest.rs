//! The loops that a template for CPUs makes of a task, and what each of them touches, as far as the knobs say.
//!
//! It is a sketch for a cost model: what a knob means that is not named here, trees learn from the knob itself.

use job::space::Knobs;
use samples::features::{Form, Work};

/// What loops walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    Channels,
    Rows,
    Columns,
    Depth,
    Taps,
}

/// How a loop is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    Plain,
    Parallel,
    Unrolled,
    Vector,
}

#[derive(Clone, Copy, Debug)]
pub struct Loop {
    pub walk: Walk,
    pub extent: f64,
    pub mark: Mark,
}

/// Loops, the outermost first.
pub struct Nest {
    pub loops: Vec<Loop>,
    stride: f64,
    side: f64,
    is_depthwise: bool,
    element_bytes: f64,
}

/// Bytes that a loop's body touches once, by what they belong to: data, weights, results.
pub type Touched = [f64; 3];

impl Nest {
    pub fn of(work: &Work, knobs: &Knobs) -> Nest {
        let number = |name: &str| knobs.number(name).map_or(1.0, |number| number.max(1) as f64);
        let is_conv = work.form == Form::Convolution;
        let is_contraction = is_conv || work.form == Form::Contraction;
        let last = work.output[work.rank.saturating_sub(1)].max(1.0);
        let (channels, rows, columns) = match (is_conv, is_contraction) {
            (true, _) => (work.columns * work.groups, work.rows / last, last),
            (false, true) => (work.columns, work.batch, work.rows),
            (false, false) => (1.0, work.rows, work.columns),
        };
        let taps = if is_contraction { work.taps.max(1.0) } else { 1.0 };
        let depth = if is_contraction { (work.depth / taps).max(1.0) } else { 1.0 };
        let block = number("block");
        let is_blocked = knobs.choice("layout") == Some("blocked");
        let (tile_c, tile_y) = (number("tile_c"), number("tile_y"));
        let tile_x = number("tile_x").max(number("vector"));
        let block = if is_blocked { block } else { 1.0 };
        let over = |extent: f64, tile: f64| (extent / tile).ceil().max(1.0);
        let outer_c = (Walk::Channels, over(channels, tile_c * block));
        let (outer_y, outer_x) = ((Walk::Rows, over(rows, tile_y)), (Walk::Columns, over(columns, tile_x)));
        let outer = match knobs.choice("outer") {
            Some("space") => [outer_y, outer_x, outer_c],
            _ => [outer_c, outer_y, outer_x],
        };
        let parallel = knobs.number("parallel").map_or(0, |count| usize::try_from(count).unwrap_or(0));
        let mut loops: Vec<Loop> = Vec::new();
        for (place, (walk, extent)) in outer.into_iter().enumerate() {
            let mark = if place < parallel { Mark::Parallel } else { Mark::Plain };
            loops.push(Loop { walk, extent, mark });
        }
        let split = number("split_r").min(depth);
        let inner = if knobs.number("unroll") == Some(1) { Mark::Unrolled } else { Mark::Plain };
        let sums = [(Walk::Depth, over(depth, split), Mark::Plain), (Walk::Taps, taps, Mark::Plain)];
        let sums = if knobs.choice("order") == Some("kernel_first") { [sums[1], sums[0]] } else { sums };
        loops.extend(sums.map(|(walk, extent, mark)| Loop { walk, extent, mark }));
        loops.push(Loop { walk: Walk::Depth, extent: split, mark: inner });
        let is_vector = knobs.choice("vectorize") != Some("no");
        let vector = if is_vector { Mark::Vector } else { Mark::Plain };
        loops.push(Loop { walk: Walk::Channels, extent: tile_c, mark: Mark::Unrolled });
        loops.push(Loop { walk: Walk::Rows, extent: tile_y, mark: Mark::Unrolled });
        let columns_mark = if is_blocked { Mark::Unrolled } else { vector };
        loops.push(Loop { walk: Walk::Columns, extent: tile_x, mark: columns_mark });
        loops.push(Loop { walk: Walk::Channels, extent: block, mark: vector });
        loops.retain(|one| one.extent > 1.0);
        let is_depthwise = work.groups > 1.0 && depth <= 1.0;
        Nest { loops, stride: work.stride.max(1.0), side: taps.sqrt(), is_depthwise, element_bytes: work.element_bytes }
    }

    /// What the loops from a place to the innermost touch, and how often they turn together.
    pub fn inside(&self, from: usize) -> (Touched, f64) {
        let extent = |walk: Walk| {
            let own = self.loops[from..].iter().filter(|one| one.walk == walk);
            own.map(|one| one.extent).product::<f64>()
        };
        let (channels, rows, columns) = (extent(Walk::Channels), extent(Walk::Rows), extent(Walk::Columns));
        let (depth, taps) = (extent(Walk::Depth), extent(Walk::Taps));
        let side = if taps > 1.0 { self.side } else { 1.0 };
        let window = |extent: f64| (extent - 1.0) * self.stride + side;
        let planes = if self.is_depthwise { channels } else { depth };
        let data = planes * window(rows) * window(columns);
        let touched = [data, channels * depth * taps, channels * rows * columns];
        (touched.map(|elements| elements * self.element_bytes), channels * rows * columns * depth * taps)
    }
}
