//! `status`: what processes at work on a store say of themselves.

use super::{DONE, Result, paper, print, print_json};
use datasets::store::ProcessView;
use engine::stores::{failed, open};
use report::{Cell, Table, figures, or_unknown, percent, words};
use std::path::Path;

/// Tells of every process.
pub fn run(store: &Path, as_json: bool) -> Result<u8> {
    let seen = open(store)?.statuses().map_err(failed)?;
    if as_json {
        print_json(&seen)?;
        return Ok(DONE);
    }
    if seen.is_empty() {
        print(&format!("no process is working on `{}`", store.display()))?;
        return Ok(DONE);
    }
    let mut table = Table::new([
        words("process"),
        figures("done"),
        figures("of"),
        figures("share"),
        figures("a second"),
        figures("left"),
        figures("lost"),
        words("what").drops(2),
        words("command").drops(1),
    ]);
    for ProcessView { status, is_running } in &seen {
        let name = format!("{} on {}", status.pid, status.host);
        table.row([
            if *is_running { Cell::from(name) } else { Cell::from(format!("{name}, ended without a report")).bad() },
            status.done.to_string().into(),
            status.total.to_string().into(),
            percent(status.done as f64 / status.total.max(1) as f64).into(),
            or_unknown(status.rate, |rate| format!("{rate:.2}")).into(),
            or_unknown(status.seconds_left, engine::progress::rounded_time).into(),
            status.losses.to_string().into(),
            status.standing.clone().unwrap_or_default().into(),
            status.command.clone().into(),
        ]);
    }
    print(&table.on(&paper()))?;
    Ok(DONE)
}
