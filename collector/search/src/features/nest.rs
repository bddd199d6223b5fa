//! What each loop of a schedule touches, as far as its knobs say.
//!
//! It is a sketch for a cost model: what a knob means that decides no loop, trees learn from the knob itself.

use job::space::{Domain, Form, Loop, LoopNest, Walk};
use samples::features::Work;

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
    pub fn of(work: &Work, domain: &Domain, nest: &LoopNest) -> Nest {
        let taps = if domain.form == Form::Elements { 1.0 } else { work.taps.max(1.0) };
        Nest {
            loops: nest.loops(),
            stride: work.stride.max(1.0),
            side: taps.sqrt(),
            is_depthwise: domain.is_depthwise,
            element_bytes: work.element_bytes,
        }
    }

    /// What each loop and those inside of it touch, the innermost first, and how often they turn together.
    pub fn levels(&self) -> impl Iterator<Item = (Touched, f64)> {
        let mut extents = [1.0; Walk::COUNT];
        self.loops.iter().rev().map(move |one| {
            extents[one.walk as usize] *= one.extent as f64;
            self.touched(extents)
        })
    }

    /// What is touched along so much of everything that loops walk.
    fn touched(&self, extents: [f64; Walk::COUNT]) -> (Touched, f64) {
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
