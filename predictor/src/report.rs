//! Pages a browser shows without help: evaluations, heat maps, curves. Text, inline SVG, no scripts.

use crate::correlate::Correlation;
use crate::error::{Error, Result};
use crate::evaluate::{EndToEnd, Evaluation, Point};
use crate::knee::Knee;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}\
table{border-collapse:collapse}th,td{padding:.2rem .7rem;border-bottom:1px solid #ddd;text-align:right}\
th:first-child,td:first-child,td:nth-child(2),th:nth-child(2){text-align:left}.ours{font-weight:600}";

/// Writes a text file.
pub fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| Error::io("write", path, error))
}

fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style>\n<h1>{title}</h1>\n{body}\n</html>\n"
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The tables of an evaluation.
pub fn evaluation(evaluation: &Evaluation) -> String {
    let mut body = format!("<p>{} samples, seeds {:?}.</p>", evaluation.samples, evaluation.seeds);
    if let Some(repeats) = &evaluation.repeats {
        let _ = write!(
            body,
            "<p>{} candidates were measured again: {:.2} % from the median of their own on average, 90 % within {:.2} %.</p>",
            repeats.candidates, repeats.mape, repeats.p90
        );
    }
    if let Some(spread) = evaluation.mean_cv {
        let _ = write!(body, "<p>Spread within a measurement (CV), mean: {spread:.2} %.</p>");
    }
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
            "<h2>{title}</h2><table><tr><th><th>learner<th>rows<th>MAPE %<th>95 % of it<th>median %<th>p90 %<th>RMSPE %<th>hit@5 %<th>hit@10 %<th>hit@20 %<th>weighted %<th>bias %<th>90 % interval holds<th>its width"
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
                    "<tr{class}><td>{}<td>{}<td>{}<td>{:.2}<td>{:.2} … {:.2}<td>{:.2}<td>{:.2}<td>{:.2}<td>{:.1}<td>{:.1}<td>{:.1}<td>{:.2}<td>{:+.2}{interval}",
                    escape(group),
                    escape(learner),
                    one.rows,
                    one.mape,
                    one.mape_interval.0,
                    one.mape_interval.1,
                    one.median,
                    one.p90,
                    one.rmspe,
                    one.hit5,
                    one.hit10,
                    one.hit20,
                    one.weighted_mape,
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
    if !evaluation.curve.is_empty() {
        curve_of_learning(&evaluation.curve, &mut body);
    }
    if let Some(found) = &evaluation.end_to_end {
        networks(found, &mut body);
    }
    if !evaluation.costs.is_empty() {
        body += "<h2>Cost</h2><p>On the clock, with as many divisions side by side as there are cores.</p><table><tr><th>learner<th><th>learning, s<th>answering a row of a batch, µs";
        for (learner, cost) in &evaluation.costs {
            let _ = write!(body, "<tr><td>{}<td><td>{:.2}<td>{:.2}", escape(learner), cost.learn_s, cost.answer_us);
        }
        body += "</table>";
    }
    page(&format!("Evaluation under protocol {}", evaluation.protocol), &body)
}

/// Errors by the share of shapes that was learned from.
fn curve_of_learning(points: &[Point], body: &mut String) {
    *body += "<h2>Our MAPE by the share of shapes learned from, %</h2><table><tr><th>operator<th>";
    points.iter().for_each(|point| *body += &format!("<th>{}", point.share));
    for operator in points.iter().flat_map(|point| point.mape.keys()).collect::<BTreeSet<_>>() {
        let _ = write!(body, "<tr><td>{}<td>", escape(operator));
        for point in points {
            *body += &point.mape.get(operator).map_or("<td>".to_owned(), |mape| format!("<td>{mape:.2}"));
        }
    }
    *body += "</table>";
}

/// Whole networks: shares within limits by learner, then each network by itself.
fn networks(found: &EndToEnd, body: &mut String) {
    *body += "<h2>Whole networks</h2><table><tr><th>learner<th><th>networks<th>off by %<th>within 5 %<th>within 10 %";
    for (learner, one) in &found.learners {
        let _ = write!(
            body,
            "<tr><td>{}<td><td>{}<td>{:.1}<td>{:.1}<td>{:.1}",
            escape(learner),
            one.networks,
            one.mape,
            one.hit5,
            one.hit10
        );
    }
    *body += "</table><p>Differences in percent, by learner:</p><table><tr><th>network<th>run with<th>operators measured<th>measured, ms";
    let learners: Vec<&String> = found.learners.keys().collect();
    learners.iter().for_each(|learner| *body += &format!("<th>{}", escape(learner)));
    for one in &found.networks {
        let scored = if one.counts() { "" } else { " (not scored)" };
        let _ = write!(
            body,
            "<tr><td>{}<td>{}<td>{} of {}{scored}<td>{:.3}",
            escape(&one.name),
            escape(&one.setting),
            one.measured,
            one.operators,
            one.measured_ns / 1e6
        );
        for learner in &learners {
            let _ = write!(body, "<td>{}", one.error(learner).map_or(String::new(), |error| format!("{error:+.1}")));
        }
    }
    *body += "</table>";
}

/// Spearman's correlations as colours: features down, operators and devices across.
pub fn heat_map(found: &[Correlation]) -> String {
    let mut features: Vec<&str> = Vec::new();
    let mut groups: Vec<String> = Vec::new();
    let mut cells: BTreeMap<(String, &str), f64> = BTreeMap::new();
    for one in found {
        let group = format!("{} · {}", one.operator, one.device);
        if !features.contains(&&*one.feature) {
            features.push(&one.feature);
        }
        if !groups.contains(&group) {
            groups.push(group.clone());
        }
        cells.insert((group, &one.feature), one.spearman);
    }
    let (left, top, width, height) = (220, 170, 26, 16);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-size=\"11\">",
        left + width * groups.len() + 120,
        top + height * features.len() + 10
    );
    for (across, group) in groups.iter().enumerate() {
        let x = left + width * across + width / 2;
        let _ = write!(svg, "<text transform=\"translate({x} {}) rotate(-50)\">{}</text>", top - 6, escape(group));
    }
    for (down, feature) in features.iter().enumerate() {
        let y = top + height * down;
        let _ = write!(svg, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", left - 6, y + 12, escape(feature));
        for (across, group) in groups.iter().enumerate() {
            let Some(value) = cells.get(&(group.clone(), *feature)) else { continue };
            // Orange goes with higher utilisation, blue with lower.
            let hue = if *value >= 0.0 { 28 } else { 215 };
            let light = 97.0 - 47.0 * value.abs().min(1.0);
            let _ = write!(
                svg,
                "<rect x=\"{}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"hsl({hue} 80% {light:.0}%)\"><title>{}: {value:.2}</title></rect>",
                left + width * across,
                escape(feature)
            );
        }
    }
    svg += "</svg>";
    page("How features go with utilisation (Spearman)", &svg)
}

/// A curve over threads with its interval and its knee.
pub fn curve(title: &str, knee: &Knee) -> String {
    let (width, height, margin) = (720.0, 360.0, 60.0);
    let most = knee
        .curve
        .iter()
        .map(|point| if point.high_ns.is_finite() { point.high_ns } else { point.time_ns })
        .fold(0.0, f64::max);
    let threads = knee.curve.last().map_or(1.0, |point| point.threads);
    let x = |count: f64| margin + (count - 1.0) / (threads - 1.0).max(1.0) * (width - 2.0 * margin);
    let y = |time: f64| height - margin - time / most * (height - 2.0 * margin);
    let line = |of: &dyn Fn(&crate::knee::Point) -> f64| {
        knee.curve.iter().map(|point| format!("{:.1},{:.1}", x(point.threads), y(of(point)))).collect::<Vec<_>>()
    };
    let mut band = line(&|point| point.high_ns);
    band.extend(line(&|point| point.low_ns).into_iter().rev());
    let mut svg =
        format!("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-size=\"12\">");
    if knee.curve.iter().all(|point| point.high_ns.is_finite()) {
        let _ = write!(svg, "<polygon points=\"{}\" fill=\"#cde\"/>", band.join(" "));
    }
    let _ = write!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"#247\" stroke-width=\"2\"/>",
        line(&|point| point.time_ns).join(" ")
    );
    let _ = write!(
        svg,
        "<line x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{margin}\" y2=\"{1}\" stroke=\"#c50\" stroke-dasharray=\"4\"/>",
        x(knee.knee),
        height - margin
    );
    let _ =
        write!(svg, "<text x=\"{:.1}\" y=\"{}\">knee: {} threads</text>", x(knee.knee) + 4.0, margin - 8.0, knee.knee);
    for point in &knee.curve {
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            x(point.threads),
            height - margin + 18.0,
            point.threads
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{margin}\" y=\"{}\">threads; time from 0 to {:.3} ms</text></svg>",
        height - 12.0,
        most / 1e6
    );
    page(title, &svg)
}
