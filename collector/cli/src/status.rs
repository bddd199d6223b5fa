//! `status`: state of the processes that work on a store, as they report it.

use super::{DONE, Result, print_json, print_text, stdout_paper};
use datasets::store::ProcessView;
use engine::stores::{open_existing, store_failure};
use report::{Cell, Table, format_percent, number_column, or_unknown, text_column};
use std::path::Path;

pub fn run(store: &Path, as_json: bool) -> Result<u8> {
    let seen = open_existing(store)?.read_statuses().map_err(store_failure)?;
    if as_json {
        print_json(&seen)?;
        return Ok(DONE);
    }
    if seen.is_empty() {
        print_text(&format!("no process is working on `{}`", store.display()))?;
        return Ok(DONE);
    }
    let mut table = Table::new([
        text_column("process"),
        number_column("done"),
        number_column("of"),
        number_column("share"),
        number_column("per second"),
        number_column("left"),
        number_column("lost"),
        text_column("activity").drop_order(2),
        text_column("command").drop_order(1),
    ]);
    for ProcessView { status, is_running } in &seen {
        let name = format!("{} on {}", status.pid, status.host);
        table.add_row([
            if *is_running {
                Cell::from(name)
            } else {
                Cell::from(format!("{name}, ended without a report")).mark_bad()
            },
            status.done.to_string().into(),
            status.total.to_string().into(),
            format_percent(status.done as f64 / status.total.max(1) as f64).into(),
            or_unknown(status.rate, |rate| format!("{rate:.2}")).into(),
            or_unknown(status.seconds_left, engine::progress::rounded_time).into(),
            status.losses.to_string().into(),
            status.standing.clone().unwrap_or_default().into(),
            status.command.clone().into(),
        ]);
    }
    print_text(&table.format_for(&stdout_paper()))?;
    Ok(DONE)
}
