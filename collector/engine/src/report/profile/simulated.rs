//! Formats a simulator's counts in a separate table: simulated and measured numbers are never mixed.

use profile::data::Simulation;
use profile::summary::simulated;
use report::{Paper, Table, format_number, number_column, or_unknown, text_column};

/// Formats the counts of a simulation.
pub fn describe_simulation(simulation: &Simulation, paper: &Paper) -> String {
    // Narrow output drops these columns, the highest number first.
    let columns = simulated::FIGURES.map(|name| match name {
        "FLOP/instruction" => number_column(name).drop_order(1),
        "L1 misses/kFLOP" => number_column(name).drop_order(2),
        "written" => number_column(name).drop_order(3),
        "branch misses" => number_column(name).drop_order(4),
        _ => number_column(name),
    });
    let mut table = Table::new([text_column("operator").min_width(20)].into_iter().chain(columns));
    for task in &simulation.tasks {
        let shown = simulated::simulated_figures(task).map(|value| or_unknown(value, format_number));
        table.add_row([task.text.clone()].into_iter().chain(shown));
    }
    let (about, caches) = (simulated::describe_simulation(simulation), simulation.caches.join("; "));
    format!("\n{about}\n{}\ncaches          {caches}", table.format_for(paper))
}
