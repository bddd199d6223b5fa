//! Output of a comparison as text and as JSON.

use super::compare::{CaptureChange, CaptureComparison};
use super::operators::Operator;
use report::page::{chart, escape_html, whole_page};
use report::{Cell, Paper, Table, format_count, format_duration, format_number, number_column, text_column};
use serde_json::{Value, json};

/// Rules in addition to those of pages with charts: long names wrap.
const STYLE: &str = "td:first-child { white-space: normal; overflow-wrap: anywhere; min-width: 9rem; }\n\
    .changes td { white-space: nowrap; }\n.changes td:first-child { white-space: normal; max-width: 30rem; }\n\
    .changes td:last-child { color: var(--up); font-weight: 600; }\n\
    details { margin: .6rem 0; }\nsummary { cursor: pointer; }\n";

impl CaptureComparison {
    /// Lists up to `limit` changes of each kind. Slower are means that grew significantly and by more than `share`.
    pub fn format_text(&self, share: f64, limit: usize, paper: &Paper) -> String {
        let changed = self.changed_operators();
        let table = (!changed.is_empty()).then(|| change_rows(&changed[..changed.len().min(limit)], share));
        let mut only = Vec::new();
        for (side, list) in self.one_sided() {
            let line = |(operator, time): &(Operator, i64)| {
                format!("only {side}: {} ({})", operator.format_text(), format_duration(*time as f64))
            };
            only.extend(list.iter().take(limit).map(line));
        }
        table
            .map(|table| table.format_for(paper))
            .into_iter()
            .chain(only)
            .chain(self.summary_lines(share))
            .collect::<Vec<_>>()
            .join("\n")
    }

    pub fn format_page(&self, share: f64) -> String {
        let lines = self.summary_lines(share);
        let mut body: String = lines.iter().map(|line| format!("<p>{}</p>\n", escape_html(line))).collect();
        let changed = self.changed_operators();
        if !changed.is_empty() {
            body += &change_rows_html(&changed, share);
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

    /// Returns the operators whose counts or times differ.
    fn changed_operators(&self) -> Vec<&CaptureChange> {
        self.changes.iter().filter(|change| change.differs()).collect()
    }

    fn summary_lines(&self, share: f64) -> Vec<String> {
        let (before, after) = self.spans_ns;
        if self.is_equal() {
            let (count, time) = (format_count(self.changes.len(), "operator"), format_duration(before as f64));
            let equal = format!("no differences: {count} with equal counts and times in both captures of {time}");
            return vec![equal];
        }
        let changed = self.changed_operators();
        let lost: f64 = self.changes.iter().map(CaptureChange::lost_ns).sum();
        let (what, time) = if lost < 0.0 { ("gained", -lost) } else { ("lost", lost) };
        let slower = changed.iter().filter(|change| change.is_slower(share)).count();
        vec![
            format!(
                "{} in both captures, {} of them equal, {slower} significantly slower by more than {} %; \
             together they {what} {}",
                format_count(self.changes.len(), "operator"),
                self.changes.len() - changed.len(),
                format_number(share * 100.0),
                format_duration(time)
            ),
            format!(
                "the captures took {} and {}, a ratio of {:.3}",
                format_duration(before as f64),
                format_duration(after as f64),
                self.span_ratio()
            ),
        ]
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
        let mut cells = change_texts(change, share).map(Cell::from);
        cells[5] = ratio_cell(change.mean_ratio());
        if change.is_slower(share) {
            cells[7] = Cell::from("slower").mark_bad();
        }
        table.add_row(cells);
    }
    table
}

/// Returns the cells of a row, in the order of the table's columns.
fn change_texts(change: &CaptureChange, share: f64) -> [String; 8] {
    [
        change.operator.format_text(),
        change.before.count.to_string(),
        format_duration(change.before.mean_ns),
        change.after.count.to_string(),
        format_duration(change.after.mean_ns),
        format!("{:.3}", change.mean_ratio()),
        format_duration(change.lost_ns()),
        if change.is_slower(share) { "slower" } else { "" }.to_owned(),
    ]
}

/// Returns the table of changes with a bar of the lost time in each row.
fn change_rows_html(changes: &[&CaptureChange], share: f64) -> String {
    let longest = changes.iter().map(|change| change.lost_ns().abs()).fold(1.0, f64::max);
    let row = |change: &&CaptureChange| {
        let [operator, figures @ ..] = change_texts(change, share);
        let figures: String = figures.iter().map(|text| format!("<td>{text}</td>")).collect();
        let bar = lost_bar(change.lost_ns() / longest, change.is_slower(share));
        // Names break at underscores in narrow windows.
        let operator = escape_html(&operator).replace('_', "_<wbr>");
        format!("<tr><td>{operator}</td><td>{bar}</td>{figures}</tr>\n")
    };
    let headings = ["calls before", "mean before", "calls after", "mean after", "ratio", "lost", ""];
    format!(
        "<p class=\"soft\">Bars show the lost time: the difference of the means times the calls after. Bars to the \
         right are losses, dark if the operator is significantly slower; bars to the left are gains.</p>\n\
         <div class=\"wide\"><table class=\"changes\"><tr><th>operator</th><th>← gained · lost →</th>{}</tr>\n{}</table></div>\n",
        headings.map(|heading| format!("<th>{heading}</th>")).concat(),
        changes.iter().map(row).collect::<String>()
    )
}

/// Draws a part of the longest bar, to the left if it is negative.
fn lost_bar(part: f64, is_slower: bool) -> String {
    const WIDTH: f64 = 160.0;
    let middle = WIDTH / 2.0;
    let length = (middle * part.abs()).max(1.0);
    let (class, from) = if part > 0.0 { ("up", middle) } else { ("down", middle - length) };
    let opacity = if is_slower || part < 0.0 { 1.0 } else { 0.45 };
    format!(
        "<svg aria-hidden=\"true\" width=\"{WIDTH}\" height=\"18\" viewBox=\"0 0 {WIDTH} 18\" \
         style=\"min-width:{WIDTH}px\">\
         <rect class=\"{class}\" opacity=\"{opacity}\" x=\"{from:.1}\" y=\"4\" width=\"{length:.1}\" height=\"10\"/>\
         <line class=\"axis\" x1=\"{middle}\" x2=\"{middle}\" y1=\"0\" y2=\"18\"/></svg>"
    )
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
