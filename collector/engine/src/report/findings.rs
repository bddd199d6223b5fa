//! Findings about a machine as a table.

use crate::doctor::{Finding, Status};
use report::{Cell, Paper, Table, words};

/// Formats findings, each with its consequence and advice.
pub fn describe(findings: &[Finding], paper: &Paper) -> String {
    let columns = [words(""), words("what"), words("found"), words("consequence and advice").least(24)];
    let mut table = Table::new(columns);
    for finding in findings {
        let mark = match finding.status {
            Status::Ok => Cell::from("ok"),
            Status::Limited => Cell::from("limited").uncertain(),
            Status::Missing => Cell::from("missing").bad(),
        };
        let rest: Vec<&str> = [finding.consequence.as_str(), finding.advice.as_str()]
            .into_iter()
            .filter(|text| !text.is_empty())
            .collect();
        table.row([mark, finding.topic.as_str().into(), finding.found.as_str().into(), rest.join("; ").into()]);
    }
    table.on(paper)
}
