//! The report of a nightly run.

use drift::{ChangePoint, Drift};
use report::page::escape_html;
use report::{Table, number_column, text_column};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Report of one phase of a nightly run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NightPhase {
    /// Name of the phase.
    pub name: &'static str,
    /// Number of slices (campaign processes with a time budget).
    pub slices: usize,
    /// Duration of all slices in seconds.
    pub seconds: f64,
    /// Numbers of attempts by outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// Number of attempts left undone.
    pub left: u64,
    /// Notes about the phase for the user.
    pub notes: Vec<String>,
}

impl NightPhase {
    /// Creates the report of a phase in which no slice has run yet.
    pub fn new(name: &'static str) -> NightPhase {
        NightPhase { name, ..NightPhase::default() }
    }

    /// Returns the numbers of attempts by outcome as text.
    pub fn describe_outcomes(&self) -> String {
        let counts: Vec<String> = self.outcomes.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
        if counts.is_empty() { "nothing".to_owned() } else { counts.join(", ") }
    }
}

/// Report of a nightly run, with the changes since earlier ones.
#[derive(Clone, Debug, Serialize)]
pub struct NightReport {
    /// Name of the nightly run: its start in UTC.
    pub night: String,
    /// Path of the store.
    pub store: String,
    /// Minutes that this process took.
    pub minutes: f64,
    /// Minutes that were available to this process.
    pub allowed_minutes: f64,
    /// Reports of the phases.
    pub phases: Vec<NightPhase>,
    /// Number of times that the sentinels (tasks with unchanging code) were measured.
    pub sentinels: usize,
    /// Notes about the sentinels.
    pub notes: Vec<String>,
    /// Changes compared with earlier nightly runs.
    pub drift: Drift,
    /// Change points of each series over nightly runs.
    #[serde(rename = "turns")]
    pub change_points: Vec<ChangePoint>,
    /// Whether an attempt ended without a time, or a slice without a report.
    #[serde(skip)]
    pub has_losses: bool,
}

impl NightReport {
    /// Returns a line with the name, duration and store of the nightly run.
    pub fn title_line(&self) -> String {
        format!(
            "night {}: {:.1} of {:.1} minutes, sentinels {} times, records in `{}`",
            self.night, self.minutes, self.allowed_minutes, self.sentinels, self.store
        )
    }

    /// Returns the notes of all phases.
    pub fn phase_notes(&self) -> impl Iterator<Item = String> {
        self.phases.iter().flat_map(|phase| phase.notes.iter().map(|note| format!("{}: {note}", phase.name)))
    }

    /// Returns the table of the phases.
    pub fn phase_table(&self) -> Table {
        let mut table = Table::new([
            text_column("work"),
            number_column("slices"),
            number_column("minutes"),
            text_column("attempts"),
            number_column("left"),
        ]);
        for phase in &self.phases {
            table.add_row([
                phase.name.to_owned(),
                phase.slices.to_string(),
                format!("{:.1}", phase.seconds / 60.0),
                phase.describe_outcomes(),
                phase.left.to_string(),
            ]);
        }
        table
    }

    /// Returns the section of an HTML page about the phases.
    pub fn render_section(&self) -> String {
        let notes: String =
            self.phase_notes().map(|note| format!("<p class=\"soft\">{}</p>\n", escape_html(&note))).collect();
        format!(
            "<h2>Work of this night</h2>\n<p class=\"soft\">{}</p>\n<div class=\"wide\">{}</div>\n{notes}",
            escape_html(&self.title_line()),
            self.phase_table().to_html()
        )
    }

    /// Returns a Markdown summary of the phases.
    pub fn render_markdown(&self) -> String {
        let mut text = format!(
            "## {}\n\n| work | slices | minutes | attempts | left |\n| --- | ---: | ---: | --- | ---: |\n",
            self.title_line()
        );
        for phase in &self.phases {
            let minutes = phase.seconds / 60.0;
            let _ = writeln!(
                text,
                "| {} | {} | {minutes:.1} | {} | {} |",
                phase.name,
                phase.slices,
                phase.describe_outcomes(),
                phase.left
            );
        }
        let notes: String = self.phase_notes().map(|line| format!("- {line}\n")).collect();
        if notes.is_empty() { text } else { format!("{text}\n{notes}") }
    }
}
