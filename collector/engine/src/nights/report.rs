//! What a nightly run did.

use drift::{Drift, Turn};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// One kind of work of a nightly run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NightPhase {
    /// Its name.
    pub name: &'static str,
    /// Number of slices.
    pub slices: usize,
    /// Time of all slices, in seconds.
    pub seconds: f64,
    /// Numbers of attempts by outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// Attempts that were not made.
    pub left: u64,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl NightPhase {
    /// Returns a phase without slices.
    pub fn new(name: &'static str) -> NightPhase {
        NightPhase { name, ..NightPhase::default() }
    }

    /// Returns the numbers of attempts by outcome as text.
    pub fn made(&self) -> String {
        let counts: Vec<String> = self.outcomes.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
        if counts.is_empty() { "nothing".to_owned() } else { counts.join(", ") }
    }
}

/// A nightly run, and what changed since those before it.
#[derive(Clone, Debug, Serialize)]
pub struct NightReport {
    /// Start of the run, in UTC, as the name of its night.
    pub night: String,
    /// The store.
    pub store: String,
    /// Time of this process, in minutes.
    pub minutes: f64,
    /// Time that this process had, in minutes.
    pub allowed_minutes: f64,
    /// Kinds of work.
    pub phases: Vec<NightPhase>,
    /// Number of times that the sentinels ran.
    pub sentinels: usize,
    /// Notes about the sentinels.
    pub notes: Vec<String>,
    /// What changed.
    pub drift: Drift,
    /// Where lines changed over nights.
    pub turns: Vec<Turn>,
    /// Whether attempts gave no time, or slices no report.
    #[serde(skip)]
    pub has_losses: bool,
}

impl NightReport {
    /// Returns a line with the night, times and store.
    pub fn title(&self) -> String {
        format!(
            "night {}: {:.1} of {:.1} minutes, sentinels {} times, records in `{}`",
            self.night, self.minutes, self.allowed_minutes, self.sentinels, self.store
        )
    }

    /// Returns the notes of all phases.
    pub fn phase_notes(&self) -> impl Iterator<Item = String> {
        self.phases.iter().flat_map(|phase| phase.notes.iter().map(|note| format!("{}: {note}", phase.name)))
    }

    /// Returns the summary of the work in Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!(
            "## {}\n\n| work | slices | minutes | attempts | left |\n| --- | ---: | ---: | --- | ---: |\n",
            self.title()
        );
        for phase in &self.phases {
            let minutes = phase.seconds / 60.0;
            let _ = writeln!(
                text,
                "| {} | {} | {minutes:.1} | {} | {} |",
                phase.name,
                phase.slices,
                phase.made(),
                phase.left
            );
        }
        let notes: String = self.phase_notes().map(|line| format!("- {line}\n")).collect();
        if notes.is_empty() { text } else { format!("{text}\n{notes}") }
    }
}
