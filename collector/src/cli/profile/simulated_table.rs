//! What a simulator counted, in a table of its own: nothing of it stands beside what was measured.

use crate::cli::paper;
use profile::data::{SimulatedTask, Simulation};
use report::{Table, figures, number, or_unknown, words};

/// The table with what it is.
pub fn describe(simulation: &Simulation) -> String {
    let mut table = Table::new([
        words("operator").least(20),
        figures("instructions"),
        figures("data read"),
        figures("written").drops(3),
        figures("L1 misses"),
        figures("LL misses"),
        figures("L1 misses/kFLOP").drops(2),
        figures("FLOP/instruction").drops(1),
        figures("branch misses").drops(4),
    ]);
    for task in &simulation.tasks {
        let count = |names: &[&str]| names.iter().map(|name| task.counts.get(*name).copied()).sum::<Option<f64>>();
        let shown = |value: Option<f64>| or_unknown(value, number);
        let first = count(&["l1d_read_misses", "l1d_write_misses"]);
        table.row([
            task.text.clone(),
            shown(count(&["instructions"])),
            shown(count(&["data_reads"])),
            shown(count(&["data_writes"])),
            shown(first),
            shown(count(&["llc_read_misses", "llc_write_misses"])),
            shown(per(first, flops(task).map(|flops| flops / 1000.0))),
            shown(per(flops(task), count(&["instructions"]))),
            shown(count(&["branch_misses"])),
        ]);
    }
    format!(
        "\nSIMULATED, not measured: one call of each, alone, on one thread of a processor that {} makes up, by code for {}\n{}\ncaches          {}",
        simulation.simulator,
        simulation.target,
        table.on(&paper()),
        simulation.caches.join("; ")
    )
}

fn flops(task: &SimulatedTask) -> Option<f64> {
    task.flops.map(|flops| flops as f64)
}

fn per(part: Option<f64>, whole: Option<f64>) -> Option<f64> {
    part.zip(whole.filter(|whole| *whole > 0.0)).map(|(part, whole)| part / whole)
}
