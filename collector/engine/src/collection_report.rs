//! The report of a collection, as values and as text.

use crate::boards::Board;
use crate::campaign::Outcomes;
use crate::collection::Collected;
use crate::ifcompare::ModelComparison;
use crate::in_network::NetworkTimes;
use crate::losses::{self, Loss, group_losses};
use crate::peaks;
use crate::report::learning::{self, Effort, Learning, LearningCourse};
use crate::report::operators::{Summary, render_summary};
use crate::session::Session;
use crate::uncounted::{UncountedCounter, describe_uncounted};
use datasets::{KNOWN_WELL, Outcome, Peaks, Record, Store};
use measure::host::Load;
use report::{Paper, format_count};
use serde::Serialize;

/// The report of a collection, serialised for scripts.
#[derive(Serialize)]
pub struct CollectionReport<'a> {
    store: String,
    host: &'a str,
    host_class: &'a str,
    source: &'static str,
    target: &'a str,
    config_hash: String,
    attempts: usize,
    /// Number of visits of all planned attempts; None for a search.
    #[serde(skip_serializing_if = "Option::is_none")]
    visits: Option<usize>,
    known_before: usize,
    outcomes: &'a Outcomes,
    losses: Vec<Loss>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    not_counted: &'a [UncountedCounter],
    load: Option<Load>,
    seconds: f64,
    peaks: &'a Peaks,
    models: &'a [Summary],
    #[serde(skip_serializing_if = "Option::is_none")]
    searches: Option<&'a [Learning]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    courses: Option<&'a [LearningCourse]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'a Effort>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    in_place: &'a [NetworkTimes],
    #[serde(skip_serializing_if = "Option::is_none")]
    comparisons: Option<Vec<ModelComparison>>,
}

impl<'a> CollectionReport<'a> {
    /// Creates the report of a collection, including the runs of whole models that followed the collection.
    pub fn new(
        session: &'a Session,
        done: &'a Collected,
        seconds: f64,
        in_place: &'a [NetworkTimes],
        comparisons: Option<Vec<ModelComparison>>,
    ) -> CollectionReport<'a> {
        CollectionReport {
            store: session.store.root().display().to_string(),
            host: &done.host,
            host_class: &done.host_class,
            source: done.source.name(),
            target: &session.target.text,
            config_hash: session.config.hash(),
            attempts: done.attempts,
            visits: done.visits,
            known_before: done.known_before,
            outcomes: &done.outcomes,
            losses: group_losses(&done.records),
            not_counted: &done.uncounted,
            load: done.load,
            seconds,
            peaks: &done.peaks,
            models: &done.summaries,
            searches: done.searched.as_ref().map(|searched| &searched.learnings[..]),
            courses: done.searched.as_ref().map(|searched| &searched.courses[..]),
            effort: done.searched.as_ref().map(|searched| &searched.effort),
            in_place,
            comparisons,
        }
    }
}

/// Describes a collection: tables of the operators of each model, peak rates, searches, losses and counts.
pub fn describe_collection(session: &Session, done: &Collected, seconds: f64, paper: &Paper) -> String {
    let mut lines: Vec<String> = session.on.board.iter().map(Board::table_heading).collect();
    lines.extend(done.summaries.iter().map(|summary| format!("{}\n", render_summary(summary, paper))));
    lines.extend(peaks::describe_peaks(&done.peaks));
    if let Some(searched) = &done.searched {
        let what = if done.source == datasets::Source::Simulated { "all times are simulated\n" } else { "" };
        lines.push(format!("\n{what}{}\n", learning::render_searches(searched, paper)));
    }
    let losses = losses::describe_losses(&group_losses(&done.records), session.repeat.retry_faults);
    let uncounted = describe_uncounted(&done.uncounted);
    lines.push(format!("{losses}{uncounted}{}", format_footer(done, &session.store, seconds)));
    lines.join("\n")
}

fn format_footer(done: &Collected, store: &Store, seconds: f64) -> String {
    let made = done.outcomes.describe_counts();
    // Repeated failed attempts count, too.
    let all = match done.outcomes.left {
        0 => done.known_before + done.outcomes.ended(),
        _ => 0,
    };
    let mut text = format!("{}: {made}", format_count(done.attempts.max(all), "attempt"));
    if done.known_before > 0 {
        text.push_str(&format!(", {} known before", done.known_before));
    }
    if done.outcomes.elsewhere > 0 {
        text.push_str(&format!(", {} made by other processes", done.outcomes.elsewhere));
    }
    if done.outcomes.left > 0 {
        let left = done.outcomes.left;
        text.push_str(&match done.visits.filter(|visits| *visits > done.attempts) {
            Some(visits) => format!(", {left} of {visits} visits left"),
            None => format!(", {left} left"),
        });
    }
    if done.outcomes.held > 0 {
        text.push_str(&format!(", of which other processes are working on {}", done.outcomes.held));
    }
    let timed: Vec<&Record> = done.records.iter().filter(|record| record.outcome == Outcome::Ok).collect();
    let uncertain = timed.iter().filter(|record| !record.is_known_well()).count();
    if uncertain > 0 {
        let (all, percent) = (timed.len(), 100.0 * KNOWN_WELL);
        let share = 100.0 * uncertain as f64 / all as f64;
        text.push_str(&format!(
            "; {uncertain} of {all} medians ({share:.0} %) are not known to {percent} %; a quieter machine or more \
             `--visits` would help"
        ));
    }
    if let Some(what) = done.load.and_then(|load| load.describe_disturbance()) {
        text.push_str(&format!("; meanwhile {what}"));
    }
    text.push_str(&format!(" · {seconds:.1} s · records in `{}`", store.root().display()));
    text
}
