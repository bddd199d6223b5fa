//! The data that each loop of a schedule touches, derived from its knobs; an approximation for a cost model.

use job::space::{Domain, Form, LoopNest, NestLoop, Walk};
use samples::features::Work;

pub struct Nest {
    pub loops: Vec<NestLoop>,
    stride: f64,
    side: f64,
    is_depthwise: bool,
    element_bytes: f64,
}

/// Bytes of data, weights and results that a loop body touches.
pub type Touched = [f64; 3];

impl Nest {
    pub fn from_loops(work: &Work, domain: &Domain, nest: &LoopNest) -> Nest {
        let taps = if domain.form == Form::Elements { 1.0 } else { work.taps.max(1.0) };
        Nest {
            loops: nest.all_loops(),
            stride: work.stride.max(1.0),
            side: taps.sqrt(),
            is_depthwise: domain.is_depthwise,
            element_bytes: work.element_bytes,
        }
    }

    /// Returns the bytes touched and the iterations of each loop, including its inner loops, innermost loop first.
    pub fn loop_footprints(&self) -> impl Iterator<Item = (Touched, f64)> {
        let mut extents = [1.0; Walk::COUNT];
        self.loops.iter().rev().map(move |one| {
            extents[one.walk as usize] *= one.extent as f64;
            self.touched_bytes(extents)
        })
    }

    fn touched_bytes(&self, extents: [f64; Walk::COUNT]) -> (Touched, f64) {
        let [channels, rows, columns, depth, taps, transformed] = extents;
        let side = if taps > 1.0 { self.side } else { 1.0 };
        let window = |extent: f64| (extent - 1.0) * self.stride + side;
        let planes = if self.is_depthwise { channels } else { depth };
        let data = planes * window(rows) * window(columns);
        let touched = [data, channels * depth * taps, channels * rows * columns];
        let turns = channels * rows * columns * depth * taps * transformed;
        (touched.map(|elements| elements * transformed * self.element_bytes), turns)
    }
}
