//! HTML page with slowdowns of concurrent operators as a heat map, and with the errors of prediction rules.

use super::{escape, styled_page};
use crate::planning::coruns::{CoRuns, Scores};
use report::format_duration;
use report::page::chart::{cell_class, svg_start};
use std::collections::BTreeMap;
use std::fmt::Write;

const MOST: usize = 60;
const CELL: (usize, usize) = (42, 22);

pub fn slowdowns_page(coruns: &CoRuns, scores: &Scores) -> String {
    let mut body = format!(
        "<p>Slowdown of an operator that runs concurrently with another one, relative to isolated execution on the same cores. {} slowdowns of {} operators; \
         the median is {:.3}.</p>",
        coruns.beside.len(),
        coruns.operators.len(),
        scores.middle
    );
    let _ = write!(body, "<figure>{}</figure>", draw_pairs(coruns));
    body.push_str("<ol>");
    for one in coruns.operators.iter().take(MOST) {
        let _ = write!(
            body,
            "<li>{} <span class=\"soft\">isolated {}</span></li>",
            escape(&one.text),
            format_duration(one.alone_ns)
        );
    }
    body.push_str("</ol><h2>Errors on held-out operators</h2><table><tr><th>rule</th><th>MAPE</th><th>median</th><th>90th percentile</th></tr>");
    for one in &scores.rules {
        let _ = write!(
            body,
            "<tr><td>{}</td><td>{:.2} %</td><td>{:.2} %</td><td>{:.2} %</td></tr>",
            escape(one.rule),
            one.mape,
            one.median,
            one.p90
        );
    }
    let _ = write!(
        body,
        "</table><p class=\"soft\">{} slowdowns, each predicted with its operator held out. The median uncertainty of a measured slowdown is \
         ± {:.2} %.</p>",
        scores.asked, scores.noise
    );
    body.push_str(&profiles_table(coruns));
    styled_page("Slowdown of concurrent operators", &body)
}

fn draw_pairs(coruns: &CoRuns) -> String {
    let mut cells: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
    for one in coruns.beside.iter().filter(|one| one.others.len() == 1) {
        cells.entry((one.operator, one.others[0])).or_default().push(one.slowdown);
    }
    let count = coruns.operators.len().min(MOST);
    let (width, height) = CELL;
    let (left, top) = (46, 46);
    let mut picture =
        svg_start((left + width * count + 20) as f64, (top + height * count + 20) as f64, "slowdowns of pairs");
    let _ = write!(picture, "<text x=\"{}\" y=\"14\" class=\"soft\">partner</text>", left);
    for place in 0..count {
        let (x, y) = (left + width * place + width / 2, top + height * place + 15);
        let name = escape(&coruns.operators[place].text);
        let number = place + 1;
        let _ = write!(
            picture,
            "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{number}<title>{name}</title></text>\
             <text x=\"{}\" y=\"{y}\" text-anchor=\"end\">{number}<title>{name}</title></text>",
            top - 8,
            left - 8
        );
    }
    let most = cells.values().flatten().copied().fold(1.0, f64::max);
    for ((own, other), seen) in cells.iter().filter(|((own, other), _)| *own < count && *other < count) {
        let slowdown = seen.iter().sum::<f64>() / seen.len() as f64;
        let depth = if most > 1.0 { ((slowdown - 1.0) / (most - 1.0)).clamp(0.0, 1.0) } else { 0.0 };
        let (x, y) = (left + width * other, top + height * own);
        let is_up = slowdown >= 1.0;
        let class = if is_up { "up" } else { "down" };
        let _ = write!(
            picture,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" fill-opacity=\"{depth:.2}\"><title>{} with {}: {slowdown:.3}</title></rect>\
             <text class=\"{}\" x=\"{}\" y=\"{}\">{slowdown:.2}</text>",
            width - 1,
            height - 1,
            escape(&coruns.operators[*own].text),
            escape(&coruns.operators[*other].text),
            cell_class(depth, is_up),
            x + width / 2,
            y + 15
        );
    }
    picture + "</svg>"
}

fn profiles_table(coruns: &CoRuns) -> String {
    if coruns.partners.is_empty() || coruns.operators.iter().all(|one| one.demand.profile.is_none()) {
        return String::new();
    }
    let mut text = "<h2>With synthetic partners</h2><table><tr><th>operator</th>".to_owned();
    let names: Vec<String> =
        coruns.partners.iter().map(|name| escape(name.trim_start_matches("synthetic ")).to_string()).collect();
    for verb in ["with", "slows"] {
        text.extend(names.iter().map(|name| format!("<th>{verb} {name}</th>")));
    }
    text.push_str("</tr>");
    for one in &coruns.operators {
        let Some(profile) = &one.demand.profile else { continue };
        let _ = write!(text, "<tr><td>{}</td>", escape(&one.text));
        for loss in profile.sensitivity.iter().chain(&profile.pressure) {
            let _ = write!(text, "<td>{:.2}×</td>", 1.0 + loss);
        }
        text.push_str("</tr>");
    }
    text + "</table>"
}
