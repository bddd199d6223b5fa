//! Findings about a machine as a table.

use crate::doctor::{Finding, Status};
use report::{Cell, Paper, Table, text_column};

/// Formats findings, each with its consequence and advice.
pub fn describe_findings(findings: &[Finding], paper: &Paper) -> String {
    let columns = [
        text_column(""),
        text_column("what"),
        text_column("found"),
        text_column("consequence and advice").min_width(24),
    ];
    let mut table = Table::new(columns);
    for finding in findings {
        let mark = match finding.status {
            Status::Ok => Cell::from("ok"),
            Status::Limited => Cell::from("limited").mark_uncertain(),
            Status::Missing => Cell::from("missing").mark_bad(),
        };
        let rest: Vec<&str> = [finding.consequence.as_str(), finding.advice.as_str()]
            .into_iter()
            .filter(|text| !text.is_empty())
            .collect();
        table.add_row([mark, finding.topic.as_str().into(), finding.found.as_str().into(), rest.join("; ").into()]);
    }
    table.format_for(paper)
}
