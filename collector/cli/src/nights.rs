//! `night`: a nightly run, and what it did.

use super::drift::{bounds, code, pages};
use super::night_arguments::NightRun;
use super::pace::Pace;
use super::progress::terminal;
use super::signals::watch_signals;
use super::{DONE, DONE_WITH_LOSSES, Result, SLOWER, paper, print, print_json};
use engine::failure::Failure;
use engine::nights::{NightOptions, NightReport, PARENT_VARIABLE, prepare};
use measure::host::exclusive;
use report::{Table, figures, words};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Variable that names another folder for state of this machine.
const STATE_VARIABLE: &str = "OPCOLLECT_STATE";

/// Ties this process to the nightly run that started it, if one did, so that it does not measure alongside the next one.
pub fn end_with_parent() -> Result<()> {
    let Some(parent) = std::env::var(PARENT_VARIABLE).ok().and_then(|text| text.parse().ok()) else { return Ok(()) };
    worker::end_with(parent).map_err(Failure::environment)
}

/// Measures for a night.
pub fn run(run: &NightRun) -> Result<u8> {
    let observer = terminal(Pace::default());
    let options = NightOptions {
        config: run.config.clone(),
        store: run.store.clone(),
        minutes: run.minutes,
        wait: Duration::from_secs(run.wait),
        bounds: bounds(&run.judging),
        pages: pages(&run.judging),
        program: std::env::current_exe().map_err(Failure::environment)?,
        state: state_folder(),
    };
    let night = prepare(&options, observer.as_ref())?;
    // Signals end the process until measuring begins.
    let signal = watch_signals()?;
    let report = night.run(&signal)?;
    match run.judging.json {
        true => print_json(&report)?,
        false => print(&render(&report))?,
    }
    Ok(match (signal.load(Ordering::Relaxed), code(&report.drift, &run.judging)) {
        (0, SLOWER) => SLOWER,
        (0, _) if report.has_losses => DONE_WITH_LOSSES,
        (0, _) => DONE,
        (signal, _) => 128 + u8::try_from(signal).unwrap_or(0),
    })
}

fn render(report: &NightReport) -> String {
    let mut table =
        Table::new([words("work"), figures("slices"), figures("minutes"), words("attempts"), figures("left")]);
    for phase in &report.phases {
        table.row([
            phase.name.to_owned(),
            phase.slices.to_string(),
            format!("{:.1}", phase.seconds / 60.0),
            phase.made(),
            phase.left.to_string(),
        ]);
    }
    let changes = drift::render(&report.drift, &report.turns, &paper());
    let notes: String = report.phase_notes().map(|line| format!("\n{line}")).collect();
    format!("{}{notes}\n\n{changes}\n{}", table.on(&paper()), report.title())
}

/// Returns the folder for state of this machine: the user's, or else the folder of the locks.
fn state_folder() -> PathBuf {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    named(STATE_VARIABLE)
        .or_else(|| Some(named("XDG_STATE_HOME")?.join("opcollect")))
        .or_else(|| Some(named("HOME")?.join(".local/state/opcollect")))
        .unwrap_or_else(|| exclusive::folder().join("state"))
}
