//! Sums of instruction counts by kind.

use super::step::{Kind, Step};

macro_rules! sums {
    ($( $(#[$note:meta])* $name:ident, )*) => {
        /// Instruction counts, which weights by loop iterations make fractional.
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct Sums {
            $( $(#[$note])* pub $name: f64, )*
        }

        impl Sums {
            pub fn add(&mut self, other: &Sums, times: f64) {
                $( self.$name += times * other.$name; )*
            }

            pub fn by_name(&self) -> impl Iterator<Item = (&'static str, f64)> {
                [$( (stringify!($name), self.$name), )*].into_iter()
            }
        }
    };
}

sums! {
    instructions,
    fmas,
    fma_lanes,
    wide,
    arithmetic,
    lanes,
    /// Divisions and square roots.
    divisions,
    shuffles,
    gathers,
    loads,
    loaded_bytes,
    stores,
    stored_bytes,
    spill_loads,
    spill_stores,
    integers,
    jumps,
    calls,
}

impl Sums {
    pub fn count_step(&mut self, step: &Step) {
        const WIDEST_BYTES: u32 = 64;
        let lanes = f64::from(step.lanes);
        let on_stack = if step.is_stack { 1.0 } else { 0.0 };
        self.instructions += 1.0;
        match step.kind {
            Kind::Fma => {
                self.fmas += 1.0;
                self.fma_lanes += lanes;
            }
            Kind::Arithmetic => {
                self.arithmetic += 1.0;
                self.lanes += lanes;
            }
            Kind::Division => self.divisions += lanes,
            Kind::Shuffle => self.shuffles += 1.0,
            Kind::Gather => self.gathers += lanes,
            Kind::Integer => self.integers += 1.0,
            Kind::Jump => self.jumps += 1.0,
            Kind::Call => self.calls += 1.0,
            Kind::Move => {}
        }
        if step.width == WIDEST_BYTES && step.kind != Kind::Move {
            self.wide += 1.0;
        }
        if step.loaded_bytes > 0 {
            self.loads += 1.0;
            self.loaded_bytes += f64::from(step.loaded_bytes);
            self.spill_loads += on_stack;
        }
        if step.stored_bytes > 0 {
            self.stores += 1.0;
            self.stored_bytes += f64::from(step.stored_bytes);
            self.spill_stores += on_stack;
        }
    }

    /// Estimates cycles for a processor with two vector operations, two loads, one store and six instructions per
    /// cycle. The busiest unit counts in full, the second busiest in part; divisions, gathers and calls add cycles.
    pub fn estimate_cycles(&self) -> f64 {
        let mut busy = [
            (self.fmas + self.arithmetic) / 2.0 + 0.7 * self.shuffles,
            self.loads / 2.0,
            self.stores,
            self.instructions / 6.0,
        ];
        busy.sort_unstable_by(f64::total_cmp);
        busy[3] + 0.3 * busy[2] + 0.6 * self.divisions + 0.7 * self.gathers + 15.0 * self.calls
    }
}
