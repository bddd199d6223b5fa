//! Output of a comparison as text and as JSON.

use super::compare::{CaptureChange, CaptureComparison};
use super::operators::Operator;
use report::{Cell, Paper, Table, duration, figures, number, page, words};
use serde_json::{Value, json};

impl CaptureComparison {
    /// Formats up to `limit` changes of each kind. An operator counts as slower if its time grew by more than `share`.
    pub fn text(&self, share: f64, limit: usize, paper: &Paper) -> String {
        let (table, lines) = self.shown(share, limit);
        table.map(|table| table.on(paper)).into_iter().chain(lines).collect::<Vec<_>>().join("\n")
    }

    /// Describes all changes as a page for the browser.
    pub fn page(&self, share: f64) -> String {
        let (table, lines) = self.shown(share, usize::MAX);
        let table = table.map_or_else(String::new, |table| table.html());
        let lines: String = lines.iter().map(|line| format!("<p>{}</p>\n", page::escaped(line))).collect();
        page::page("Two captures compared", "", &format!("<h1>Two captures compared</h1>\n{table}{lines}"))
    }

    /// The operators that changed, and what else there is to say.
    fn shown(&self, share: f64, limit: usize) -> (Option<Table>, Vec<String>) {
        let (before, after) = self.spans_ns;
        if self.is_equal() {
            let (count, time) = (self.changes.len(), duration(before as f64));
            let equal =
                format!("nothing differs: {count} operators, each as often and as long in both captures of {time}");
            return (None, vec![equal]);
        }
        let (changed, equal): (Vec<_>, Vec<_>) = self.changes.iter().partition(|change| change.differs());
        let table = (!changed.is_empty()).then(|| table(&changed[..changed.len().min(limit)], share));
        let mut lines = Vec::new();
        for (what, list) in [("only before", &self.gone), ("only after", &self.new)] {
            let line = |(operator, time): &(Operator, i64)| {
                format!("{what}: {} ({})", operator.text(), duration(*time as f64))
            };
            lines.extend(list.iter().take(limit).map(line));
        }
        let lost: f64 = self.changes.iter().map(CaptureChange::lost_ns).sum();
        let (what, time) = if lost < 0.0 { ("gained", -lost) } else { ("lost", lost) };
        let slower = changed.iter().filter(|change| change.is_slower(share)).count();
        lines.push(format!(
            "{} operators in both, {} of them equal, {slower} slower by more than {} % and chance; together they {what} {}",
            self.changes.len(),
            equal.len(),
            number(share * 100.0),
            duration(time)
        ));
        lines.push(format!(
            "the captures took {} and {}, {:.3} times as long",
            duration(before as f64),
            duration(after as f64),
            self.ratio()
        ));
        (table, lines)
    }

    pub fn document(&self, share: f64) -> Value {
        let change = |change: &CaptureChange| {
            json!({
                "operator": change.operator.text(),
                "engine": change.operator.engine.name(),
                "before_count": change.before.count,
                "before_mean_ns": change.before.mean_ns,
                "after_count": change.after.count,
                "after_mean_ns": change.after.mean_ns,
                "ratio": change.ratio(),
                "lost_ns": change.lost_ns(),
                "slower": change.is_slower(share),
            })
        };
        let total = |(operator, time): &(Operator, i64)| json!({ "operator": operator.text(), "total_ns": time });
        json!({
            "changes": self.changes.iter().map(change).collect::<Vec<_>>(),
            "only_before": self.gone.iter().map(total).collect::<Vec<_>>(),
            "only_after": self.new.iter().map(total).collect::<Vec<_>>(),
            "before_ns": self.spans_ns.0,
            "after_ns": self.spans_ns.1,
            "equal": self.is_equal(),
            "slower": self.is_slower(share),
        })
    }
}

fn table(changes: &[&CaptureChange], share: f64) -> Table {
    let mut table = Table::new([
        words("operator"),
        figures("before").drops(2),
        figures("mean before"),
        figures("after").drops(1),
        figures("mean after"),
        figures("ratio"),
        figures("lost"),
        words(""),
    ]);
    for change in changes {
        table.row([
            change.operator.text().into(),
            change.before.count.to_string().into(),
            duration(change.before.mean_ns).into(),
            change.after.count.to_string().into(),
            duration(change.after.mean_ns).into(),
            ratio(change.ratio()),
            duration(change.lost_ns()).into(),
            if change.is_slower(share) { Cell::from("slower").bad() } else { Cell::from("") },
        ]);
    }
    table
}

/// Returns the cell of a ratio, coloured if it differs notably from 1.
fn ratio(ratio: f64) -> Cell {
    const NOTABLE: f64 = 0.01;
    let cell = Cell::from(format!("{ratio:.3}"));
    match ratio {
        ratio if ratio > 1.0 + NOTABLE => cell.bad(),
        ratio if ratio < 1.0 - NOTABLE => cell.best(),
        _ => cell,
    }
}
