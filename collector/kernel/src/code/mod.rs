//! Static features of machine code: the instructions of every loop are counted, multiplied by the loop's iterations if
//! these are constant, and summed over the operator. Only x86-64 is supported.

mod instruction_sets;
mod listing;
pub mod loops;
pub mod step;
pub mod sums;

#[cfg(test)]
mod tests;

pub use instruction_sets::instruction_sets;
pub use listing::list_functions;

use loops::Loop;
use std::collections::{BTreeMap, HashMap};
use step::{Kind, Step};
use sums::Sums;

/// Assumed iterations of a loop whose count is unknown at compile time, often one over window positions at the border.
const UNKNOWN_ITERATIONS: f64 = 3.0;
/// Assumed iterations of an outermost loop whose count is unknown at compile time: a thread's share of the work.
const UNKNOWN_OUTER_ITERATIONS: f64 = 8.0;
/// Latency in cycles between multiply-adds on the same accumulator.
const FMA_LATENCY_CYCLES: f64 = 4.0;

/// Returns features of an operator's code by name; counts of loop nests are scaled to its `macs` multiply-adds.
pub fn code_features<'a>(functions: impl IntoIterator<Item = &'a [u8]>, macs: f64) -> BTreeMap<String, f64> {
    let mut nests: Vec<Nest> = functions.into_iter().flat_map(find_nests).collect();
    let multiplies = |nest: &Nest| nest.sums.fma_lanes > 0.0;
    let done: f64 = nests.iter().map(|nest| nest.sums.fma_lanes).sum();
    let scale = if macs > 0.0 && done > 0.0 { macs / done } else { 1.0 };
    nests.iter_mut().filter(|nest| multiplies(nest)).for_each(|nest| nest.scale_nest(scale));
    let mut sums = Sums::default();
    nests.iter().for_each(|nest| sums.add(&nest.sums, 1.0));
    let cycles: f64 = nests.iter().map(|nest| nest.cycles).sum();
    let mut found: BTreeMap<String, f64> = sums.by_name().map(|(name, sum)| (name.to_owned(), sum)).collect();
    let mut set = |name: &str, value: f64| {
        found.insert(name.to_owned(), value);
    };
    set("cycles", cycles);
    set("cycles_without_fmas", nests.iter().filter(|nest| !multiplies(nest)).map(|nest| nest.cycles).sum());
    set("loops", nests.iter().map(|nest| nest.loops).sum());
    set("loops_uncounted", nests.iter().map(|nest| nest.uncounted).sum());
    set("pieces", scale);
    let hot = nests.iter().filter_map(|nest| nest.hot.as_ref()).max_by(|a, b| a.cycles.total_cmp(&b.cycles));
    if let Some(hot) = hot {
        let share = |part: f64| part / hot.sums.instructions.max(1.0);
        set("hot_share", hot.cycles / cycles);
        set("hot_instructions", hot.sums.instructions);
        set("hot_fmas_in_chain", hot.chain);
        set("hot_turns", hot.turns);
        set("hot_fma_share", share(hot.sums.fmas));
        set("hot_wide_share", share(hot.sums.wide));
        set("hot_arithmetic_share", share(hot.sums.arithmetic));
        set("hot_shuffle_share", share(hot.sums.shuffles));
        set("hot_load_share", share(hot.sums.loads));
        set("hot_store_share", share(hot.sums.stores));
        set("hot_spill_share", share(hot.sums.spill_loads + hot.sums.spill_stores));
        set("hot_integer_share", share(hot.sums.integers));
    }
    found
}

/// An outermost loop with all its inner loops, or the code outside of loops.
#[derive(Default)]
struct Nest {
    sums: Sums,
    cycles: f64,
    loops: f64,
    uncounted: f64,
    hot: Option<Hot>,
}

struct Hot {
    sums: Sums,
    cycles: f64,
    chain: f64,
    turns: f64,
}

#[derive(Clone, Default)]
struct Body {
    sums: Sums,
    chains: HashMap<iced_x86::Register, f64>,
}

impl Nest {
    fn scale_nest(&mut self, scale: f64) {
        self.sums.add(&self.sums.clone(), scale - 1.0);
        self.cycles *= scale;
        self.hot.iter_mut().for_each(|hot| hot.cycles *= scale);
    }

    fn add_loop(&mut self, this: &Loop, body: &Body, weight: f64) {
        let chain = body.chains.values().copied().fold(0.0, f64::max);
        let cycles = weight * body.sums.estimate_cycles().max(FMA_LATENCY_CYCLES * chain);
        self.sums.add(&body.sums, weight);
        self.cycles += cycles;
        self.loops += 1.0;
        self.uncounted += f64::from(u8::from(this.turns.is_none()));
        if self.hot.as_ref().is_none_or(|hot| hot.cycles < cycles) {
            let turns = this.turns.unwrap_or(UNKNOWN_ITERATIONS);
            self.hot = Some(Hot { sums: body.sums, cycles, chain, turns });
        }
    }
}

/// Returns the code outside of a function's loops, as one nest, followed by its loop nests.
fn find_nests(code: &[u8]) -> Vec<Nest> {
    let steps = step::decode_steps(code);
    let found = loops::find_loops(&steps);
    let (bodies, plain) = split_bodies(&steps, &found);
    let mut nests = vec![Nest { cycles: plain.estimate_cycles(), sums: plain, ..Nest::default() }];
    for ((this, body), weight) in found.iter().zip(&bodies).zip(loop_weights(&found)) {
        if this.around.is_none() {
            nests.push(Nest::default());
        }
        nests.last_mut().expect("the first nest holds the code outside of loops").add_loop(this, body, weight);
    }
    nests
}

/// Returns instruction counts of each loop, without its inner loops, and of the code outside of loops.
fn split_bodies(steps: &[Step], found: &[Loop]) -> (Vec<Body>, Sums) {
    let mut bodies = vec![Body::default(); found.len()];
    let mut plain = Sums::default();
    for (place, step) in steps.iter().enumerate() {
        let Some(inner) = found.iter().rposition(|around| around.first <= place && place <= around.last) else {
            plain.count_step(step);
            continue;
        };
        bodies[inner].sums.count_step(step);
        if step.kind == Kind::Fma {
            *bodies[inner].chains.entry(step.first).or_default() += 1.0;
        }
    }
    (bodies, plain)
}

fn loop_weights(loops: &[Loop]) -> Vec<f64> {
    let mut weights: Vec<f64> = Vec::with_capacity(loops.len());
    for this in loops {
        let (around, unknown) = match this.around {
            Some(outer) => (weights[outer], UNKNOWN_ITERATIONS),
            None => (1.0, UNKNOWN_OUTER_ITERATIONS),
        };
        weights.push(around * this.turns.unwrap_or(unknown));
    }
    weights
}
