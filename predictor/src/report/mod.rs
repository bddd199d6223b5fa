//! Pages a browser shows without help: evaluations, heat maps, curves. Text, inline SVG, no scripts.

mod chart;
mod curve;
mod heat_map;
mod swarm;

pub use curve::{curves, summary};
pub use heat_map::heat_map;
pub use swarm::swarms;

use crate::error::{Error, Result};
use crate::evaluate::Evaluation;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

const STYLE: &str = include_str!("style.css");

/// Writes a text file.
pub fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| Error::io("write", path, error))
}

fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
        <title>{title}</title><style>{STYLE}</style>\n<h1>{title}</h1>\n{body}\n</html>\n"
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The tables of an evaluation.
pub fn evaluation(evaluation: &Evaluation) -> String {
    let mut body = format!("<p>{} samples, seeds {:?}.</p>", evaluation.samples, evaluation.seeds);
    for (reason, count) in &evaluation.left_out {
        let _ = write!(body, "<p>{count} rows left out: {}.</p>", escape(reason));
    }
    let all = BTreeMap::from([("all".to_owned(), evaluation.learners.clone())]);
    for (title, groups) in
        [("Operators", &evaluation.operators), ("Held out", &evaluation.held_out), ("Everything", &all)]
    {
        if groups.is_empty() {
            continue;
        }
        let _ = write!(
            body,
            "<h2>{title}</h2><table><tr><th><th>learner<th>rows<th>MAPE %<th>95 % of it<th>median %<th>p90 %<th>hit@5 %<th>hit@10 %<th>hit@20 %<th>bias %<th>90 % interval holds<th>its width"
        );
        for (group, learners) in groups {
            let mut sorted: Vec<_> = learners.iter().collect();
            sorted.sort_by(|one, two| one.1.mape.total_cmp(&two.1.mape));
            for (learner, one) in sorted {
                let class = if learner.starts_with("ours") { " class=\"ours\"" } else { "" };
                let interval = one.interval.as_ref().map_or("<td><td>".to_owned(), |interval| {
                    format!("<td>{:.1} %<td>± {:.1} %", interval.coverage, interval.half_width)
                });
                let _ = write!(
                    body,
                    "<tr{class}><td>{}<td>{}<td>{}<td>{:.2}<td>{:.2} … {:.2}<td>{:.2}<td>{:.2}<td>{:.1}<td>{:.1}<td>{:.1}<td>{:+.2}{interval}",
                    escape(group),
                    escape(learner),
                    one.rows,
                    one.mape,
                    one.mape_interval.0,
                    one.mape_interval.1,
                    one.median,
                    one.p90,
                    one.hit5,
                    one.hit10,
                    one.hit20,
                    one.bias
                );
            }
        }
        body += "</table>";
    }
    if !evaluation.ranking.is_empty() {
        body += "<h2>Order of schedules within a task</h2><table><tr><th>learner<th>tasks<th>top-1<th>top-5<th>regret@10 %<th>Kendall<th>Spearman";
        for (learner, one) in &evaluation.ranking {
            let _ = write!(
                body,
                "<tr><td>{}<td>{}<td>{:.3}<td>{:.3}<td>{:.2}<td>{:.3}<td>{:.3}",
                escape(learner),
                one.tasks,
                one.top1,
                one.top5,
                one.regret10,
                one.kendall,
                one.spearman
            );
        }
        body += "</table>";
    }
    page(&format!("Evaluation under protocol {}", evaluation.protocol), &body)
}
