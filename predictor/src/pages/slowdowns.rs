//! HTML page with slowdowns of concurrent operators as a heat map, and with the errors of prediction rules.

use super::{break_name, escape, styled_page, wider_note};
use crate::planning::coruns::{CoRunSlowdown, CoRuns, Score, Scores};
use planners::interference::Machine;
use report::page::chart::cell_class;
use report::{format_count, format_duration};
use samples::statistics::quantile;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Smallest slowdown with the full colour, so that slowdowns within the noise stay pale.
const LEAST_SCALE: f64 = 1.25;
/// Maximum number of operators in the table of pairs.
const MOST: usize = 60;

pub fn slowdowns_page(coruns: &CoRuns, scores: &Scores, machine: &Machine) -> String {
    let mut body = headline(coruns, scores);
    body += &pairs_table(coruns);
    body += &rules_table(scores, machine);
    body.push_str(&profiles_table(coruns));
    styled_page("Slowdown of concurrent operators", &body)
}

fn rules_table(scores: &Scores, machine: &Machine) -> String {
    let mut text = "<h2>Errors of prediction rules</h2><p class=\"soft\">Absolute errors of predicted slowdowns, in percent of the \
         measured ones: their mean (MAPE), median and 90th percentile.</p>\
         <div class=\"wide\"><table class=\"rules\"><tr><th>rule</th><th>MAPE</th><th>median</th><th>90th \
         percentile</th></tr>"
        .to_owned();
    let percent = |value: f64| format!("{value:.1}\u{a0}%");
    let mut add_row = |rules: &str, predicts: &str, one: &Score| {
        let _ = write!(
            text,
            "<tr><td>{}<br><span class=\"soft\">predicts {predicts}</span></td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(rules),
            percent(one.mape),
            percent(one.median),
            percent(one.p90)
        );
    };
    let (silent, others) = scores.split_silent_rules();
    others.iter().for_each(|one| add_row(one.rule, describe_rule(one.rule), one));
    match silent[..] {
        [] => {}
        [one] => add_row(one.rule, describe_rule(one.rule), one),
        [first, ..] => {
            let rules: Vec<&str> = silent.iter().map(|one| one.rule).collect();
            let predicts = format!("1, no slowdown, for each of these operators: {}", scores.silence_cause());
            add_row(&rules.join(", "), &predicts, first);
        }
    }
    let _ = write!(text, "</table></div><p class=\"soft\">{}.</p>", escape(&scores.describe(machine)));
    text
}

fn headline(coruns: &CoRuns, scores: &Scores) -> String {
    let worst = coruns.beside.iter().max_by(|one, two| one.slowdown.total_cmp(&two.slowdown));
    let worst = worst.map_or(String::new(), |one| {
        let others = one.others.iter().map(|&other| coruns.operators[other].text.as_str()).collect::<Vec<_>>();
        format!(
            " The largest is {:.2} times: <b>{}</b> with <b>{}</b>.",
            one.slowdown,
            escape(&coruns.operators[one.operator].text),
            escape(&others.join(", "))
        )
    });
    let mut slowdowns: Vec<f64> = coruns.beside.iter().map(|one| one.slowdown).collect();
    let (low, high) = match slowdowns.is_empty() {
        true => (f64::NAN, f64::NAN),
        false => (quantile(&mut slowdowns, 0.05), quantile(&mut slowdowns, 0.95)),
    };
    let best = scores.rules.iter().min_by(|one, two| one.mape.total_cmp(&two.mape));
    let best = best.map_or(String::new(), |best| {
        let name = escape(best.rule);
        format!(" The rule with the smallest mean error is <b>{name}</b>: {:.1} %.", best.mape)
    });
    let noise = describe_noise(coruns).map_or(String::new(), |text| format!("<p>{text}</p>"));
    format!(
        "<p><b>An operator that runs concurrently with others takes {:.2} times as long as in isolation</b> on the \
         same cores: this is the median of {} slowdowns of {}, of which 90 % are between {low:.2} and \
         {high:.2}.{worst}{best}</p>{noise}",
        scores.middle,
        coruns.beside.len(),
        format_count(coruns.operators.len(), "operator")
    )
}

/// States how many slowdowns are significant; None without intervals.
fn describe_noise(coruns: &CoRuns) -> Option<String> {
    let intervals: Vec<(f64, f64)> = coruns.beside.iter().filter_map(|one| one.low.zip(one.high)).collect();
    let slower = intervals.iter().filter(|(low, _)| *low > 1.0).count();
    let faster = intervals.iter().filter(|(_, high)| *high < 1.0).count();
    let one_sided = 0.025 * intervals.len() as f64;
    (!intervals.is_empty()).then(|| {
        format!(
            "{slower} of {} have a 95 % interval above 1, {faster} below 1; by chance alone, about {one_sided:.0} would \
             be on each side.",
            format_count(intervals.len(), "slowdown")
        )
    })
}

fn describe_rule(rule: &str) -> &'static str {
    match rule {
        "learned from pairs" => "with a model that is fitted to the measured pairs of the other operators",
        "bandwidth and cache" => "with the model without fitted weights: only memory bandwidth and cache capacity",
        "no interference" => "1",
        "sum" => "1 plus the sum of the partners' shares of the memory bandwidth",
        "maximum" => "1 plus the largest share of the memory bandwidth of a partner",
        "class rule" => "the number of memory-bound operators for a memory-bound operator, otherwise 1",
        _ => "",
    }
}

/// Returns a heat map: a row for each operator, a column for each partner.
fn pairs_table(coruns: &CoRuns) -> String {
    let mut cells: BTreeMap<(usize, usize), Vec<&CoRunSlowdown>> = BTreeMap::new();
    for one in coruns.beside.iter().filter(|one| one.others.len() == 1) {
        cells.entry((one.operator, one.others[0])).or_default().push(one);
    }
    let count = coruns.operators.len().min(MOST);
    let shown = |(own, other): &(usize, usize)| *own < count && *other < count;
    let seen = cells.iter().filter(|(pair, _)| shown(pair)).flat_map(|(_, seen)| seen);
    let most = seen.map(|one| one.slowdown).fold(LEAST_SCALE, f64::max);
    let left_out = match coruns.operators.len() - count {
        0 => String::new(),
        more => format!(" {} not shown.", format_count(more, "further operator")),
    };
    let mut text = format!(
        "<h2>Slowdown of each operator with each partner</h2><p class=\"soft\">Row: the operator that is slowed down. \
         Column: its partner, by the number of its row. Stronger colours are larger slowdowns, from 1 (none) to \
         {most:.2}; bold: its 95 % interval is above 1; empty: not measured, or an uncertainty above 5 %. Titles of \
         cells contain the intervals.{left_out}</p>"
    );
    // Narrow windows show only numbers in the table, and the names below.
    let _ = write!(
        text,
        "<div class=\"wide\"><table class=\"pairs\"><tr><th rowspan=\"2\"><span class=\"rest\">operator</span></th>\
         <th class=\"rest\" rowspan=\"2\">isolated</th><th colspan=\"{count}\">slowed down by operator number</th></tr>\
         <tr>"
    );
    for (place, one) in coruns.operators.iter().take(count).enumerate() {
        let _ = write!(text, "<th title=\"{}\">{}</th>", escape(&one.text), place + 1);
    }
    text += "</tr>";
    for (own, one) in coruns.operators.iter().take(count).enumerate() {
        let _ = write!(
            text,
            "<tr><td>{}<span class=\"rest\">. {}</span></td><td class=\"rest\">{}</td>",
            own + 1,
            escape(&one.text),
            format_duration(one.alone_ns)
        );
        for other in 0..count {
            let partner = &coruns.operators[other].text;
            let cell = cells.get(&(own, other)).map(|seen| slowdown_cell(seen, partner, most));
            text += &cell.unwrap_or_else(|| "<td></td>".to_owned());
        }
        text += "</tr>";
    }
    let _ = write!(text, "</table></div><div class=\"narrow\">{}</div>", names_list(coruns, count));
    text
}

/// Returns the names of operators and their isolated times.
fn names_list(coruns: &CoRuns, count: usize) -> String {
    let named = coruns.operators.iter().take(count).enumerate().map(|(place, one)| {
        let time = format_duration(one.alone_ns);
        format!("<dt>{}</dt><dd>{}, isolated {time}</dd>", place + 1, escape(&one.text))
    });
    format!("<dl class=\"named\">{}</dl>", named.collect::<String>())
}

fn slowdown_cell(seen: &[&CoRunSlowdown], partner: &str, most: f64) -> String {
    let slowdown = seen.iter().map(|one| one.slowdown).sum::<f64>() / seen.len() as f64;
    let depth = if most > 1.0 { ((slowdown - 1.0) / (most - 1.0)).clamp(0.0, 1.0) } else { 0.0 };
    let interval = match seen {
        [CoRunSlowdown { low: Some(low), high: Some(high), .. }] => format!(", 95 % between {low:.3} and {high:.3}"),
        _ => String::new(),
    };
    format!(
        "<td class=\"{}{}\" style=\"--depth:{:.0}%\" title=\"with {}: {slowdown:.3}{interval}\">{slowdown:.2}</td>",
        cell_class(depth, true),
        if seen.iter().all(|one| one.low.is_some_and(|low| low > 1.0)) { " ours" } else { "" },
        100.0 * depth,
        escape(partner)
    )
}

fn profiles_table(coruns: &CoRuns) -> String {
    if coruns.partners.is_empty() || coruns.operators.iter().all(|one| one.demand.profile.is_none()) {
        return String::new();
    }
    let mut text =
        "<h2>With synthetic partners</h2><p class=\"soft\">Time next to a partner over the isolated time: of the \
        operator, and of the partner. The partners compute, access a buffer of the given size, or use the memory \
        bandwidth. 1.00×: no interference. These ratios have no intervals; values below 1 show how \
        uncertain they are. Stronger colours are larger slowdowns, up to 1.25.</p><div class=\"wide\"><table class=\"answers figures\">\
        <tr><th>operator</th>"
            .to_owned();
    let names: Vec<String> = coruns.partners.iter().map(|name| escape(&partner_name(name)).to_string()).collect();
    for (verb, class) in [("slowed down by", ""), ("slows down", " class=\"rest\"")] {
        text.extend(names.iter().map(|name| format!("<th{class}>{verb} {name}</th>")));
    }
    text.push_str("</tr>");
    for one in &coruns.operators {
        let Some(profile) = &one.demand.profile else { continue };
        let _ = write!(text, "<tr><td>{}</td>", break_name(&one.text));
        for (losses, class) in [(&profile.sensitivity, ""), (&profile.pressure, " rest")] {
            text.extend(losses.iter().map(|loss| loss_cell(*loss, class)));
        }
        text.push_str("</tr>");
    }
    format!("{text}</table></div>{}", wider_note(&["how much each operator slows down its partners"]))
}

/// Returns a cell with the slowdown of a loss; `class` follows the class of the colour.
fn loss_cell(loss: f64, class: &str) -> String {
    let depth = (loss / (LEAST_SCALE - 1.0)).clamp(0.0, 1.0);
    let colour = cell_class(depth, true);
    format!("<td class=\"{colour}{class}\" style=\"--depth:{:.0}%\">{:.2}×</td>", 100.0 * depth, 1.0 + loss)
}

/// Returns the name of a synthetic partner in words.
fn partner_name(name: &str) -> String {
    let name = name.trim_start_matches("synthetic ");
    match name.strip_prefix("cache=").map(|size| size.split_at(size.find(|c: char| !c.is_ascii_digit()).unwrap_or(0))) {
        Some((size, unit)) => format!("a buffer of {size}\u{a0}{unit}"),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{loss_cell, partner_name};

    #[test]
    fn partners_are_named_in_words() {
        let names = ["synthetic cache=16MiB", "synthetic bandwidth"].map(partner_name);
        assert_eq!(names, ["a buffer of 16\u{a0}MiB", "bandwidth"]);
    }

    #[test]
    fn losses_below_zero_have_no_colour() {
        assert_eq!(loss_cell(-0.5, " rest"), "<td class=\"cell rest\" style=\"--depth:0%\">0.50×</td>");
        assert!(loss_cell(0.25, "").contains("cell deep\" style=\"--depth:100%\">1.25×"));
    }
}
