//! `drift`: comparison of two sets of records, or of a store's last nightly run with the earlier ones.

use super::night_arguments::{By, DriftRun, FailOnNight, Judging};
use super::pace::Pace;
use super::progress::terminal_observer;
use super::{DONE, DONE_WITH_LOSSES, Result, SLOWER, print_json, print_text, stdout_paper};
use drift::{Bounds, Drift, render_text};
use engine::drift::{DriftOptions, PagePaths, compare_records};
use engine::failure::Failure;

pub fn run(run: &DriftRun) -> Result<u8> {
    let options = DriftOptions {
        before: run.before.clone(),
        after: run.after.clone(),
        by_task: run.by == By::Task,
        bounds: change_bounds(&run.judging),
        pages: page_paths(&run.judging),
    };
    let report = compare_records(&options, terminal_observer(Pace::default()).as_ref())?;
    match run.judging.json {
        true => print_json(&report)?,
        false => print_text(&render_text(&report.drift, &report.change_points, &stdout_paper()))?,
    }
    let hint = "a line is a task with one schedule; `--by task` compares the best schedules of each task";
    check_judged(&report.drift, &run.judging, hint)?;
    let code = drift_code(&report.drift, &run.judging);
    Ok(if code == DONE && report.is_damaged { DONE_WITH_LOSSES } else { code })
}

/// Checks that `--fail-on`, if given, judges at least one line.
pub fn check_judged(drift: &Drift, judging: &Judging, hint: &str) -> Result<()> {
    if judging.fail_on.is_none() || !drift.changes.is_empty() || !drift.lost.is_empty() {
        return Ok(());
    }
    Err(Failure::usage("`--fail-on` has nothing to judge, because no line has times on both sides").with_hint(hint))
}

pub fn change_bounds(judging: &Judging) -> Bounds {
    Bounds { false_discoveries: judging.false_discoveries / 100.0, threshold: judging.threshold / 100.0 }
}

pub fn page_paths(judging: &Judging) -> PagePaths {
    PagePaths { html: judging.html.clone(), markdown: judging.markdown.clone() }
}

pub fn drift_code(drift: &Drift, judging: &Judging) -> u8 {
    let fails = judging.fail_on == Some(FailOnNight::Regression) && drift.has_regressed();
    if fails { SLOWER } else { DONE }
}
