//! Draws correlations as heat maps, one for each measure, with a row per feature and a column per operator and device.

use super::{escape, styled_page};
use crate::correlate::Correlation;
use report::page::chart::{cell_class, label_width, svg_start};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Maximum number of features on the page; the CSV file contains all.
const MOST: usize = 40;
/// Largest q-value of a correlation that counts as significant.
pub const SIGNIFICANT: f64 = 0.05;
const CELL: (usize, usize) = (44, 19);

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

pub fn heat_map(found: &[Correlation]) -> String {
    let mut groups: Vec<String> = Vec::new();
    let mut strength: BTreeMap<&str, f64> = BTreeMap::new();
    let mut cells: BTreeMap<(&str, usize), &Correlation> = BTreeMap::new();
    let devices: std::collections::BTreeSet<&str> = found.iter().map(|one| one.device.as_str()).collect();
    for one in found {
        let name = match devices.len() {
            1 => format!("{}{}", one.operator, one.part.group_suffix()),
            _ => format!("{}, {}{}", one.operator, one.device, one.part.group_suffix()),
        };
        let group = groups.iter().position(|known| *known == name).unwrap_or_else(|| {
            groups.push(name);
            groups.len() - 1
        });
        // Features with strong correlations in many rows come first; insignificant correlations count as 0.
        let strength = strength.entry(&one.feature).or_default();
        if one.q_value <= SIGNIFICANT {
            *strength += one.spearman.abs() * one.rows as f64;
        }
        cells.insert((&one.feature, group), one);
    }
    let mut features: Vec<&str> = strength.keys().copied().collect();
    features.sort_by(|one, two| strength[two].total_cmp(&strength[one]));
    let count = features.len();
    features.truncate(MOST);
    let mut body = format!(
        "<p>Correlation of each feature with the measured utilisation (attainable time divided by measured time). \
        Stronger colours are stronger correlations. Pale cells are not significant (false-discovery rate above 5 %).</p>\
        <p class=\"soft\">The {} strongest of {count} varying features; {} rows on {}.</p><div class=\"tabs\">",
        features.len(),
        count_rows(found),
        escape(&devices.into_iter().collect::<Vec<_>>().join(", "))
    );
    let mut rules = String::new();
    for (place, (name, ..)) in MEASURES.iter().enumerate() {
        let checked = if place == 0 { " checked" } else { "" };
        let _ = write!(
            body,
            "<input type=\"radio\" name=\"measure\" id=\"m{place}\"{checked}><label for=\"m{place}\">{name}</label>"
        );
        let _ = write!(rules, "#m{place}:checked ~ #f{place}{{display:block}}");
    }
    for (place, measure) in MEASURES.iter().enumerate() {
        let _ = write!(
            body,
            "<figure id=\"f{place}\"><figcaption class=\"soft\">{}: {}. {}</figcaption>{}</figure>",
            measure.0,
            measure.1,
            measure.2,
            draw_map(&groups, &features, &cells, measure)
        );
    }
    let _ = write!(body, "</div><style>{rules}</style>");
    styled_page("Correlation of features with utilisation", &body)
}

fn count_rows(found: &[Correlation]) -> usize {
    let whole = found.iter().filter(|one| one.part.group_suffix().is_empty());
    let groups: BTreeMap<(&str, &str), usize> = whole.map(|one| ((&*one.operator, &*one.device), one.rows)).collect();
    groups.values().sum()
}

fn draw_map(
    groups: &[String],
    features: &[&str],
    cells: &BTreeMap<(&str, usize), &Correlation>,
    (name, .., of): &Measure,
) -> String {
    let (width, height) = CELL;
    // Labels are rotated by 38 degrees; a letter takes about six units.
    let longest = groups.iter().map(|group| group.chars().count()).max().unwrap_or(0);
    let top = 24 + (longest as f64 * 6.4 * 38f64.to_radians().sin()) as usize;
    let left = label_width(features.iter().copied()) as usize + 20;
    let right = label_width(groups.iter().map(String::as_str)) as usize;
    let mut svg =
        svg_start((left + width * groups.len() + right) as f64, (top + height * features.len() + 10) as f64, name);
    for (across, group) in groups.iter().enumerate() {
        let x = left + width * across + width / 2;
        let _ = write!(svg, "<text transform=\"translate({x} {}) rotate(-38)\">{}</text>", top - 8, escape(group));
    }
    // Mutual information is shown relative to its maximum, three bits for eight bins.
    let full = if *name == "mutual information" { 3.0 } else { 1.0 };
    for (down, feature) in features.iter().enumerate() {
        let y = top + height * down;
        let _ = write!(svg, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", left - 8, y + 14, escape(feature));
        for (across, group) in groups.iter().enumerate() {
            let Some(one) = cells.get(&(*feature, across)) else { continue };
            let value = of(one);
            let depth = if value.is_finite() { (value.abs() / full).min(1.0) } else { 0.0 };
            let is_up = value >= 0.0;
            let class = if is_up { "up" } else { "down" };
            let x = left + width * across;
            let is_chance = one.q_value > SIGNIFICANT;
            let depth = if is_chance { 0.3 * depth } else { depth };
            let cell = cell_class(depth, is_up);
            let _ = write!(
                svg,
                "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" fill-opacity=\"{depth:.2}\">\
                <title>{} with {}: {}, {} rows, q-value {:.1e}</title></rect>\
                <text class=\"{cell}\" x=\"{}\" y=\"{}\"{}>{}</text>",
                width - 1,
                height - 1,
                escape(group),
                escape(feature),
                round_to(value, 3),
                one.rows,
                one.q_value,
                x + width / 2,
                y + 13,
                if is_chance { " opacity=\".7\"" } else { "" },
                round_to(value, 2)
            );
        }
    }
    svg + "</svg>"
}

/// Formats a number with a fixed number of decimals, without a sign if it rounds to zero.
fn round_to(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    match text.strip_prefix('-') {
        Some(zero) if zero.bytes().all(|sign| matches!(sign, b'0' | b'.')) => zero.to_owned(),
        _ => text,
    }
}
