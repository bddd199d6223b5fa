//! What a night did, in words.

use super::super::paper;
use drift::{Drift, Turn, render};
use report::{Table, figures, words};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// One kind of work.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Phase {
    /// Its name.
    pub name: &'static str,
    /// Processes that did it.
    pub slices: usize,
    /// How long they took.
    pub seconds: f64,
    /// How attempts ended.
    pub outcomes: BTreeMap<String, u64>,
    /// Attempts that were left.
    pub left: u64,
    /// What to know of it.
    pub notes: Vec<String>,
}

impl Phase {
    /// Nothing done yet.
    pub fn new(name: &'static str) -> Phase {
        Phase { name, ..Phase::default() }
    }

    fn made(&self) -> String {
        let counts: Vec<String> = self.outcomes.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
        if counts.is_empty() { "nothing".to_owned() } else { counts.join(", ") }
    }
}

/// A night and what it found.
#[derive(Serialize)]
pub struct Report<'a> {
    pub night: &'a str,
    pub store: String,
    pub minutes: f64,
    pub allowed_minutes: f64,
    pub phases: &'a [Phase],
    pub sentinels: usize,
    pub notes: &'a [String],
    pub drift: &'a Drift,
    pub turns: &'a [Turn],
}

impl Report<'_> {
    fn title(&self) -> String {
        format!(
            "night {}: {:.1} of {:.1} minutes, sentinels {} times, records in `{}`",
            self.night, self.minutes, self.allowed_minutes, self.sentinels, self.store
        )
    }

    /// For a terminal.
    pub fn render(&self) -> String {
        let mut table =
            Table::new([words("work"), figures("slices"), figures("minutes"), words("attempts"), figures("left")]);
        for phase in self.phases {
            table.row([
                phase.name.to_owned(),
                phase.slices.to_string(),
                format!("{:.1}", phase.seconds / 60.0),
                phase.made(),
                phase.left.to_string(),
            ]);
        }
        let changes = render(self.drift, self.turns, &paper());
        let said: String = self.said().map(|line| format!("\n{line}")).collect();
        format!("{}{said}\n\n{changes}\n{}", table.on(&paper()), self.title())
    }

    /// What to know of its phases.
    fn said(&self) -> impl Iterator<Item = String> {
        self.phases.iter().flat_map(|phase| phase.notes.iter().map(|note| format!("{}: {note}", phase.name)))
    }

    /// What stands above the changes, in Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!(
            "## {}\n\n| work | slices | minutes | attempts | left |\n| --- | ---: | ---: | --- | ---: |\n",
            self.title()
        );
        for phase in self.phases {
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
        let said: String = self.said().map(|line| format!("- {line}\n")).collect();
        if said.is_empty() { text } else { format!("{text}\n{said}") }
    }
}
