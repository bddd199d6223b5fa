//! Draws correlations as heat maps, one for each measure and part of the rows, with a row per distinct feature and a
//! column per operator and device.

use super::{escape, styled_page};
use crate::correlate::{ALIKE, Correlation, Part};
use report::page::chart::{cell_class, label_width, svg_start};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Maximum number of rows of a map; the CSV file contains all features.
const MOST: usize = 40;
/// Largest q-value of a correlation that counts as significant.
pub const SIGNIFICANT: f64 = 0.05;
const CELL: (usize, usize) = (44, 19);
/// Share of rows in which features must be nearly the same to share a row of the map.
const MOSTLY: f64 = 0.9;

const PARTS: &[(Part, &str)] =
    &[(Part::All, "All rows"), (Part::UpToKnee, "Rows up to the knee"), (Part::BeyondKnee, "Rows beyond the knee")];

/// Name, explanation, meaning of the colours, and accessor of a correlation measure.
type Measure = (&'static str, &'static str, &'static str, fn(&Correlation) -> f64);

const SIGNED: &str = "<b style=\"color:var(--up)\">Orange</b>: utilisation rises with the feature; \
    <b style=\"color:var(--down)\">blue</b>: it falls.";
const UNSIGNED: &str = "The colour shows only the strength: this measure does not tell whether utilisation rises.";

const MEASURES: &[Measure] = &[
    (
        "Spearman",
        "rank correlation: 1 if utilisation only rises with the feature, −1 if it only falls",
        SIGNED,
        |one| one.spearman,
    ),
    ("Pearson", "linear correlation", SIGNED, |one| one.pearson),
    ("Kendall", "share of concordant pairs minus share of discordant pairs", SIGNED, |one| one.kendall),
    ("partial", "rank correlation, controlled for the roofline time", SIGNED, |one| one.partial),
    ("distance", "distance correlation: 0 only for independent values", UNSIGNED, |one| one.distance),
    (
        "mutual information",
        "information shared by the feature and the utilisation, in bits, at most 3",
        UNSIGNED,
        |one| one.mutual_information,
    ),
];

/// Rows of the page: features, of which nearly the same ones share a row.
struct FeatureRow<'a> {
    name: &'a str,
    alike: Vec<&'a str>,
    /// Mean rank correlation over all operators and devices, weighted by rows.
    mean: f64,
}

type CellMap<'a> = BTreeMap<(&'a str, usize), &'a Correlation>;

pub fn heat_map(found: &[Correlation]) -> String {
    let devices: BTreeSet<&str> = found.iter().map(|one| one.device.as_str()).collect();
    let name = |one: &Correlation| match devices.len() {
        1 => one.operator.clone(),
        _ => format!("{}, {}", one.operator, one.device),
    };
    let mut groups: Vec<(Part, String)> = Vec::new();
    let mut cells: CellMap<'_> = BTreeMap::new();
    for one in found {
        let key = (one.part, name(one));
        let group = groups.iter().position(|known| *known == key).unwrap_or_else(|| {
            groups.push(key);
            groups.len() - 1
        });
        cells.insert((&one.feature, group), one);
    }
    let mut rows = feature_rows(found, &cells, groups.len());
    let (distinct, count) = (rows.len(), rows.iter().map(|row| 1 + row.alike.len()).sum::<usize>());
    rows.truncate(MOST);
    let mut body = format!(
        "<p>{}</p><p>Correlation of each feature with the measured utilisation (attainable time divided by measured \
         time). Stronger colours are stronger correlations. Pale cells are not significant (false-discovery rate \
        above 5 %).</p>\
        <p class=\"soft\">The {} strongest of {distinct} distinct features, of {count} that vary; {} rows on {}. \
        <b>+ n</b>: n more features rank the rows nearly alike (|ρ| ≥ {ALIKE} for at least {:.0} % of the rows); \
        they are <a href=\"#alike\">listed below</a>.</p><div class=\"tabs\">",
        strongest_rows(&rows),
        rows.len(),
        count_rows(found),
        escape(&devices.iter().copied().collect::<Vec<_>>().join(", ")),
        100.0 * MOSTLY
    );
    body += &draw_tabs(&groups, &rows, &cells);
    body += &alike_table(&rows);
    styled_page("Correlation of features with utilisation", &body)
}

/// States the distinct features with the largest mean correlation.
fn strongest_rows(rows: &[FeatureRow<'_>]) -> String {
    let mut sorted: Vec<&FeatureRow<'_>> = rows.iter().collect();
    sorted.sort_by(|one, two| two.mean.abs().total_cmp(&one.mean.abs()));
    let named = |row: &&FeatureRow<'_>| {
        let way = if row.mean > 0.0 { "rises" } else { "falls" };
        format!("<b>{}</b> ({}, utilisation {way})", escape(row.name), round_to(row.mean, 2))
    };
    let named: Vec<String> = sorted.iter().take(3).map(named).collect();
    format!("Strongest on average over all rows (Spearman): {}.", named.join(", "))
}

/// Returns distinct features, the strongest first, each with the features that are nearly the same.
fn feature_rows<'a>(found: &'a [Correlation], cells: &CellMap<'a>, groups: usize) -> Vec<FeatureRow<'a>> {
    // Features with strong correlations in many rows come first; insignificant correlations count as 0.
    let mut strength: BTreeMap<&str, f64> = BTreeMap::new();
    let mut means: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for one in found {
        let (strength, rows) = (strength.entry(&one.feature).or_default(), one.rows as f64);
        if one.q_value <= SIGNIFICANT {
            *strength += one.spearman.abs() * rows;
        }
        if one.part == Part::All {
            let (sum, count) = means.entry(&one.feature).or_default();
            (*sum, *count) = (*sum + one.spearman * rows, *count + rows);
        }
    }
    let all: f64 = count_rows(found) as f64;
    let mut features: Vec<&str> = strength.keys().copied().collect();
    features.sort_by(|one, two| strength[two].total_cmp(&strength[one]));
    let mut rows: Vec<FeatureRow<'a>> = Vec::new();
    for name in features {
        match rows.iter_mut().find(|row| is_alike(cells, groups, row.name, name)) {
            Some(row) => row.alike.push(name),
            None => {
                let mean = means.get(name).map_or(0.0, |(sum, _)| sum / all.max(1.0));
                rows.push(FeatureRow { name, alike: Vec::new(), mean });
            }
        }
    }
    rows
}

/// Returns whether two features rank the rows nearly alike in most rows of the groups with either.
fn is_alike(cells: &CellMap<'_>, groups: usize, one: &str, other: &str) -> bool {
    let (mut alike, mut all) = (0, 0);
    for group in 0..groups {
        let pair = (cells.get(&(one, group)), cells.get(&(other, group)));
        let rows = pair.0.or(pair.1).map_or(0, |known| known.rows);
        all += rows;
        if let (Some(first), Some(second)) = pair
            && first.alike.contains(&second.column)
        {
            alike += rows;
        }
    }
    all > 0 && alike as f64 >= MOSTLY * all as f64
}

fn draw_tabs(groups: &[(Part, String)], rows: &[FeatureRow<'_>], cells: &CellMap<'_>) -> String {
    let (mut body, mut rules) = (String::new(), String::new());
    for (place, (name, ..)) in MEASURES.iter().enumerate() {
        let checked = if place == 0 { " checked" } else { "" };
        let _ = write!(
            body,
            "<input type=\"radio\" name=\"measure\" id=\"m{place}\"{checked}><label for=\"m{place}\">{name}</label>"
        );
        let _ = write!(rules, "#m{place}:checked ~ #f{place}{{display:block}}");
    }
    for (place, measure) in MEASURES.iter().enumerate() {
        let _ =
            write!(body, "<section id=\"f{place}\"><p class=\"soft\">{}: {}. {}</p>", measure.0, measure.1, measure.2);
        for (part, title) in PARTS {
            let of_part = groups.iter().enumerate().filter(|(_, (own, _))| own == part);
            let columns: Vec<(usize, &str)> = of_part.map(|(at, (_, name))| (at, name.as_str())).collect();
            if !columns.is_empty() {
                let _ = write!(body, "<h2>{title}</h2><figure>{}</figure>", draw_map(&columns, rows, cells, measure));
            }
        }
        body += "</section>";
    }
    format!("{body}</div><style>.tabs > section {{ display: none; }} {rules}</style>")
}

fn alike_table(rows: &[FeatureRow<'_>]) -> String {
    let mut text = "<h2 id=\"alike\">Features that are nearly the same</h2>".to_owned();
    if rows.iter().all(|row| row.alike.is_empty()) {
        return text + "<p>None.</p>";
    }
    text += "<div class=\"wide\"><table class=\"names\"><tr><th>row of the map</th><th>nearly the same</th></tr>";
    for row in rows.iter().filter(|row| !row.alike.is_empty()) {
        let _ = write!(text, "<tr><td>{}</td><td>{}</td></tr>", escape(row.name), escape(&row.alike.join(", ")));
    }
    text + "</table></div>"
}

fn count_rows(found: &[Correlation]) -> usize {
    let whole = found.iter().filter(|one| one.part == Part::All);
    let groups: BTreeMap<(&str, &str), usize> = whole.map(|one| ((&*one.operator, &*one.device), one.rows)).collect();
    groups.values().sum()
}

/// Draws a map with a column for each of the groups, which are given by number and name.
fn draw_map(groups: &[(usize, &str)], rows: &[FeatureRow<'_>], cells: &CellMap<'_>, measure: &Measure) -> String {
    let (width, height) = CELL;
    // Labels are rotated by 38 degrees; a letter takes about six units.
    let longest = groups.iter().map(|(_, group)| group.chars().count()).max().unwrap_or(0) as f64;
    let top = 24 + (longest * 6.4 * 38f64.to_radians().sin()) as usize;
    let labels: Vec<String> = rows.iter().map(FeatureRow::label).collect();
    let left = label_width(labels.iter().map(String::as_str)) as usize + 20;
    // The last labels reach beyond the last column.
    let reach = |(place, (_, name)): (usize, &(usize, &str))| {
        (6.6 * name.chars().count() as f64 * 38f64.to_radians().cos()) as usize + width * place + width / 2
    };
    let right = groups.iter().enumerate().map(reach).max().unwrap_or(0).max(width * groups.len());
    let (wide, high) = (left + right + 8, top + height * rows.len() + 10);
    let mut svg = svg_start(wide as f64, high as f64, measure.0);
    for (across, (_, group)) in groups.iter().enumerate() {
        let x = left + width * across + width / 2;
        let _ = write!(svg, "<text transform=\"translate({x} {}) rotate(-38)\">{}</text>", top - 8, escape(group));
    }
    for (down, (row, label)) in rows.iter().zip(&labels).enumerate() {
        let y = top + height * down;
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}<title>{}</title></text>",
            left - 8,
            y + 14,
            escape(label),
            escape(&row.alike.join(", "))
        );
        for (across, (group, name)) in groups.iter().enumerate() {
            let Some(one) = cells.get(&(row.name, *group)) else { continue };
            svg += &draw_cell(one, name, (left + width * across, y), measure);
        }
    }
    svg + "</svg>"
}

impl FeatureRow<'_> {
    fn label(&self) -> String {
        match self.alike.len() {
            0 => self.name.to_owned(),
            more => format!("{} + {more}", self.name),
        }
    }
}

fn draw_cell(one: &Correlation, group: &str, (x, y): (usize, usize), (name, .., of): &Measure) -> String {
    let (width, height) = CELL;
    // Mutual information is shown relative to its maximum, three bits for eight bins.
    let full = if *name == "mutual information" { 3.0 } else { 1.0 };
    let value = of(one);
    let depth = if value.is_finite() { (value.abs() / full).min(1.0) } else { 0.0 };
    let is_up = value >= 0.0;
    let is_chance = one.q_value > SIGNIFICANT;
    let depth = if is_chance { 0.3 * depth } else { depth };
    format!(
        "<rect class=\"{}\" x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" fill-opacity=\"{depth:.2}\">\
        <title>{} with {}: {}, {} rows, q-value {:.1e}</title></rect>\
        <text class=\"{}\" x=\"{}\" y=\"{}\"{}>{}</text>",
        if is_up { "up" } else { "down" },
        width - 1,
        height - 1,
        escape(group),
        escape(&one.feature),
        round_to(value, 3),
        one.rows,
        one.q_value,
        cell_class(depth, is_up),
        x + width / 2,
        y + 13,
        if is_chance { " opacity=\".75\"" } else { "" },
        round_to(value, 2)
    )
}

/// Formats a number with a fixed number of decimals, without a sign if it rounds to zero.
fn round_to(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    match text.strip_prefix('-') {
        Some(zero) if zero.bytes().all(|sign| matches!(sign, b'0' | b'.')) => zero.to_owned(),
        _ => text,
    }
}
