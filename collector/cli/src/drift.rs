//! `drift`: two sides of records compared, or the last night of a store with those before it.

use super::night_arguments::{By, DriftRun, FailOnNight, Judging};
use super::pace::Pace;
use super::progress::terminal;
use super::{DONE, Result, SLOWER, paper, print, print_json};
use drift::{Bounds, Drift, render};
use engine::drift::{DriftOptions, PagePaths, compare};

/// Compares.
pub fn run(run: &DriftRun) -> Result<u8> {
    let options = DriftOptions {
        before: run.before.clone(),
        after: run.after.clone(),
        by_task: run.by == By::Task,
        bounds: bounds(&run.judging),
        pages: pages(&run.judging),
    };
    let report = compare(&options, terminal(Pace::default()).as_ref())?;
    match run.judging.json {
        true => print_json(&report)?,
        false => print(&render(&report.drift, &report.turns, &paper()))?,
    }
    Ok(code(&report.drift, &run.judging))
}

/// Returns which changes count.
pub fn bounds(judging: &Judging) -> Bounds {
    Bounds { false_discoveries: judging.false_discoveries / 100.0, threshold: judging.threshold / 100.0 }
}

/// Returns the files to write.
pub fn pages(judging: &Judging) -> PagePaths {
    PagePaths { html: judging.html.clone(), markdown: judging.markdown.clone() }
}

/// Returns the exit code for changes.
pub fn code(drift: &Drift, judging: &Judging) -> u8 {
    let fails = judging.fail_on == Some(FailOnNight::Regression) && drift.has_regressed();
    if fails { SLOWER } else { DONE }
}
