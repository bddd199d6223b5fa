//! Formats the counts of a simulator in a separate table, because simulated and measured numbers
//! are never mixed.

use profile::data::Simulation;
use profile::summary::simulated;
use report::{Paper, Table, figures, number, or_unknown, words};

/// Formats the counts of a simulation.
pub fn describe(simulation: &Simulation, paper: &Paper) -> String {
    // Narrow output drops these columns, the highest number first.
    let columns = simulated::FIGURES.map(|name| match name {
        "FLOP/instruction" => figures(name).drops(1),
        "L1 misses/kFLOP" => figures(name).drops(2),
        "written" => figures(name).drops(3),
        "branch misses" => figures(name).drops(4),
        _ => figures(name),
    });
    let mut table = Table::new([words("operator").least(20)].into_iter().chain(columns));
    for task in &simulation.tasks {
        let shown = simulated::figures(task).map(|value| or_unknown(value, number));
        table.row([task.text.clone()].into_iter().chain(shown));
    }
    let (about, caches) = (simulated::about(simulation), simulation.caches.join("; "));
    format!("\n{about}\n{}\ncaches          {caches}", table.on(paper))
}
