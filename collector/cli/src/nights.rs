//! `night`: a nightly run and its report.

use super::drift::{change_bounds, check_judged, drift_code, page_paths};
use super::night_arguments::NightRun;
use super::pace::Pace;
use super::progress::terminal_observer;
use super::signals::watch_signals;
use super::{DONE, DONE_WITH_LOSSES, Result, SLOWER, print_json, print_text, stdout_paper};
use engine::failure::Failure;
use engine::nights::{NightOptions, NightReport, prepare_night};
use measure::host::exclusive;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Environment variable that overrides the folder for this machine's state.
const STATE_VARIABLE: &str = "OPCOLLECT_STATE";

pub fn run(run: &NightRun) -> Result<u8> {
    let observer = terminal_observer(Pace::default());
    let options = NightOptions {
        config: run.config.clone(),
        store: run.store.clone(),
        minutes: run.minutes,
        wait: Duration::from_secs(run.wait),
        bounds: change_bounds(&run.judging),
        pages: page_paths(&run.judging),
        program: std::env::current_exe().map_err(Failure::environment)?,
        state: state_folder(),
    };
    let night = prepare_night(&options, observer.as_ref())?;
    // Signals end the process until measuring begins.
    let signal = watch_signals()?;
    let report = night.run(&signal)?;
    match run.judging.json {
        true => print_json(&report)?,
        false => print_text(&render_report(&report))?,
    }
    let signal = signal.load(Ordering::Relaxed);
    // The first night has nothing to be compared with.
    if signal == 0 && report.drift.only.0 > 0 {
        let hint = "this run measured nothing that an earlier night has measured; give it more `--minutes`";
        check_judged(&report.drift, &run.judging, hint)?;
    }
    Ok(match (signal, drift_code(&report.drift, &run.judging)) {
        (0, SLOWER) => SLOWER,
        (0, _) if report.has_losses => DONE_WITH_LOSSES,
        (0, _) => DONE,
        (signal, _) => 128 + u8::try_from(signal).unwrap_or(0),
    })
}

fn render_report(report: &NightReport) -> String {
    let changes = drift::render_text(&report.drift, &report.change_points, &stdout_paper());
    let notes: String = report.phase_notes().map(|line| format!("\n{line}")).collect();
    format!("{}{notes}\n\n{changes}\n{}", report.phase_table().format_for(&stdout_paper()), report.title_line())
}

/// Returns the user's state folder, or a subfolder of the lock folder if the environment names no state folder.
fn state_folder() -> PathBuf {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    named(STATE_VARIABLE)
        .or_else(|| Some(named("XDG_STATE_HOME")?.join("opcollect")))
        .or_else(|| Some(named("HOME")?.join(".local/state/opcollect")))
        .unwrap_or_else(|| exclusive::lock_folder().join("state"))
}
