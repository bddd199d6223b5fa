//! Output of a comparison as text and as JSON.

use super::compare::{CaptureChange, CaptureComparison};
use super::operators::Operator;
use report::page::{chart, escape_html, whole_page};
use report::{Cell, Paper, Table, format_count, format_duration, format_number, number_column, text_column};
use serde_json::{Value, json};

/// Rules in addition to those of pages with charts: long names wrap.
const STYLE: &str = "td:first-child { white-space: normal; overflow-wrap: anywhere; min-width: 14rem; }\n\
    details { margin: .6rem 0; }\nsummary { cursor: pointer; }\n";

impl CaptureComparison {
    /// Lists up to `limit` changes of each kind. Slower are means that grew significantly and by more than `share`.
    pub fn format_text(&self, share: f64, limit: usize, paper: &Paper) -> String {
        let (table, lines) = self.change_table(share, limit);
        let mut only = Vec::new();
        for (side, list) in self.one_sided() {
            let line = |(operator, time): &(Operator, i64)| {
                format!("only {side}: {} ({})", operator.format_text(), format_duration(*time as f64))
            };
            only.extend(list.iter().take(limit).map(line));
        }
        table.map(|table| table.format_for(paper)).into_iter().chain(only).chain(lines).collect::<Vec<_>>().join("\n")
    }

    pub fn format_page(&self, share: f64) -> String {
        let (table, lines) = self.change_table(share, usize::MAX);
        let mut body: String = lines.iter().map(|line| format!("<p>{}</p>\n", escape_html(line))).collect();
        if let Some(table) = table {
            body += &format!("<div class=\"wide\">{}</div>\n", table.to_html());
        }
        for (side, list) in self.one_sided().into_iter().filter(|(_, list)| !list.is_empty()) {
            body += &format!(
                "<details><summary>{} only {side}</summary><div class=\"wide\">{}</div></details>\n",
                format_count(list.len(), "operator"),
                total_rows(list).to_html()
            );
        }
        whole_page(
            "Two captures compared",
            &format!("{}{STYLE}", chart::STYLE),
            &format!("<main><h1>Two captures compared</h1>\n{body}</main>"),
        )
    }

    /// Returns the operators of only one capture, with their total times.
    fn one_sided(&self) -> [(&'static str, &[(Operator, i64)]); 2] {
        [("before", &self.gone), ("after", &self.new)]
    }

    fn change_table(&self, share: f64, limit: usize) -> (Option<Table>, Vec<String>) {
        let (before, after) = self.spans_ns;
        if self.is_equal() {
            let (count, time) = (format_count(self.changes.len(), "operator"), format_duration(before as f64));
            let equal = format!("no differences: {count} with equal counts and times in both captures of {time}");
            return (None, vec![equal]);
        }
        let (changed, equal): (Vec<_>, Vec<_>) = self.changes.iter().partition(|change| change.differs());
        let table = (!changed.is_empty()).then(|| change_rows(&changed[..changed.len().min(limit)], share));
        let lost: f64 = self.changes.iter().map(CaptureChange::lost_ns).sum();
        let (what, time) = if lost < 0.0 { ("gained", -lost) } else { ("lost", lost) };
        let slower = changed.iter().filter(|change| change.is_slower(share)).count();
        let lines = vec![
            format!(
                "{} in both captures, {} of them equal, {slower} significantly slower by more than {} %; \
             together they {what} {}",
                format_count(self.changes.len(), "operator"),
                equal.len(),
                format_number(share * 100.0),
                format_duration(time)
            ),
            format!(
                "the captures took {} and {}, a ratio of {:.3}",
                format_duration(before as f64),
                format_duration(after as f64),
                self.span_ratio()
            ),
        ];
        (table, lines)
    }

    pub fn to_json(&self, share: f64) -> Value {
        let change = |change: &CaptureChange| {
            json!({
                "operator": change.operator.format_text(),
                "engine": change.operator.engine.name(),
                "before_count": change.before.count,
                "before_mean_ns": change.before.mean_ns,
                "after_count": change.after.count,
                "after_mean_ns": change.after.mean_ns,
                "ratio": change.mean_ratio(),
                "lost_ns": change.lost_ns(),
                "slower": change.is_slower(share),
            })
        };
        let total =
            |(operator, time): &(Operator, i64)| json!({ "operator": operator.format_text(), "total_ns": time });
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

fn change_rows(changes: &[&CaptureChange], share: f64) -> Table {
    let mut table = Table::new([
        text_column("operator"),
        number_column("calls before").drop_order(2),
        number_column("mean before"),
        number_column("calls after").drop_order(1),
        number_column("mean after"),
        number_column("ratio"),
        number_column("lost"),
        text_column(""),
    ]);
    for change in changes {
        table.add_row([
            change.operator.format_text().into(),
            change.before.count.to_string().into(),
            format_duration(change.before.mean_ns).into(),
            change.after.count.to_string().into(),
            format_duration(change.after.mean_ns).into(),
            ratio_cell(change.mean_ratio()),
            format_duration(change.lost_ns()).into(),
            if change.is_slower(share) { Cell::from("slower").mark_bad() } else { Cell::from("") },
        ]);
    }
    table
}

fn total_rows(operators: &[(Operator, i64)]) -> Table {
    let mut table = Table::new([text_column("operator"), number_column("total time")]);
    for (operator, time) in operators {
        table.add_row([operator.format_text(), format_duration(*time as f64)]);
    }
    table
}

fn ratio_cell(ratio: f64) -> Cell {
    const NOTABLE: f64 = 0.01;
    let cell = Cell::from(format!("{ratio:.3}"));
    match ratio {
        ratio if ratio > 1.0 + NOTABLE => cell.mark_bad(),
        ratio if ratio < 1.0 - NOTABLE => cell.mark_best(),
        _ => cell,
    }
}
