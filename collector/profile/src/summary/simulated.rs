//! Simulated counts of each task, and metrics derived from them.

use crate::data::{SimulatedTask, Simulation};

/// Names of the values of [`simulated_figures`], in order: first those that narrow windows show.
pub const FIGURES: [&str; 8] = [
    "L1 misses/kFLOP",
    "FLOP/instruction",
    "LL misses",
    "instructions",
    "data read",
    "written",
    "L1 misses",
    "branch misses",
];

pub fn simulated_figures(task: &SimulatedTask) -> [Option<f64>; FIGURES.len()] {
    let count = |names: &[&str]| names.iter().map(|name| task.counts.get(*name).copied()).sum::<Option<f64>>();
    let flops = task.flops.map(|flops| flops as f64);
    let first = count(&["l1d_read_misses", "l1d_write_misses"]);
    let instructions = count(&["instructions"]);
    [
        ratio_if_positive(first, flops.map(|flops| flops / 1000.0)),
        ratio_if_positive(flops, instructions),
        count(&["llc_read_misses", "llc_write_misses"]),
        instructions,
        count(&["data_reads"]),
        count(&["data_writes"]),
        first,
        count(&["branch_misses"]),
    ]
}

pub fn describe_simulation(simulation: &Simulation) -> String {
    format!(
        "SIMULATED, not measured: one call per task, alone, on one thread of a processor simulated by {}, with code \
         for {}",
        simulation.simulator, simulation.target
    )
}

fn ratio_if_positive(part: Option<f64>, whole: Option<f64>) -> Option<f64> {
    part.zip(whole.filter(|whole| *whole > 0.0)).map(|(part, whole)| part / whole)
}
