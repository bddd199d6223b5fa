//! Draws correlations as heat maps, one for each measure and part of the rows, with a row per distinct feature and a
//! column per operator and device.

use super::meanings::{meaning_of, meaning_with_name, name_cell};
use super::{break_name, escape, styled_page, value_with_interval, wider_note};
use crate::correlate::{ALIKE, Correlation, Part, transform_correlation, transformed_error};
use report::UNKNOWN;
use report::page::chart::{cell_class, draw_for_windows, label_width, svg_start};
use samples::statistics::NORMAL_95;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Maximum number of rows of a map; the CSV file contains all features.
const MOST: usize = 40;
/// Largest q-value of a correlation that counts as significant.
pub const SIGNIFICANT: f64 = 0.05;
const CELL: (usize, usize) = (44, 19);
/// Nominal width of broad images, whose real width depends on their labels; narrow images repeat their cells, with
/// shorter numbers.
const WIDTH: f64 = 1120.0;
/// Share of the rows in which two features must be nearly the same to share a row of the map.
const MOSTLY: f64 = 0.9;

/// Name, explanation, meaning of the colours, and accessor of a correlation measure.
type Measure = (&'static str, &'static str, &'static str, fn(&Correlation) -> f64);

const SIGNED: &str = "<b style=\"color:var(--up)\">Orange</b>: utilisation rises with the feature; \
    <b style=\"color:var(--down)\">blue</b>: it falls.";
const UNSIGNED: &str = "The colour shows only the strength: this measure does not tell whether utilisation rises.";

const MEASURES: &[Measure] = &[
    (
        "Spearman",
        "rank correlation: 1 if utilisation only rises with the feature, -1 if it only falls",
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

/// A row of the map: a feature, with those that are nearly the same.
struct FeatureRow<'a> {
    name: &'a str,
    alike: Vec<&'a str>,
    /// Mean rank correlation over all operators and devices, weighted by rows; a missing correlation counts as 0.
    mean: f64,
    /// Half of the 95 % interval of the mean.
    margin: f64,
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
    let rows = feature_rows(found, &cells, groups.len());
    let (distinct, count) = (rows.len(), rows.iter().map(|row| 1 + row.alike.len()).sum::<usize>());
    let strongest = strongest_by_operator(found);
    let rows = shown_rows(rows, &strongest.iter().map(|one| one.feature.as_str()).collect());
    let (title, choice) = describe_choice(rows.len(), distinct);
    let mut body = format!(
        "{}{}<h2 id=\"map\">{title}</h2><p>Correlation of features with the utilisation. Stronger colours are stronger \
         correlations. Pale cells are not significant (false-discovery rate above 5 %).</p>\
        <details><summary>Order, choice and names of the features</summary>\
        <p class=\"soft\">Order: the strongest features first (|ρ| times rows, significant correlations only). Empty: \
        the feature does not vary or is missing for this operator. The knee of a shape is the smallest number of \
        threads whose time is within 5 % of the fastest.</p>\
        <p class=\"soft\">{choice}; {count} features vary. {} rows on {}. \
        <b>+ n</b>: n more features rank the rows nearly alike (|ρ| ≥ {ALIKE} for at least {:.0} % of the rows); \
        they are <a href=\"#alike\">listed below</a>.</p>{}</details><div class=\"tabs\">",
        strongest_rows(&rows),
        strongest_table(&strongest, count),
        count_rows(found),
        escape(&devices.iter().copied().collect::<Vec<_>>().join(", ")),
        100.0 * MOSTLY,
        super::meanings::explain_names()
    );
    body += &draw_tabs(&groups, &rows, &cells);
    body += &alike_table(&rows);
    styled_page("Correlation of features with utilisation", &body)
}

/// Returns the rows of the maps: the strongest features, and those that the table of the operators names.
fn shown_rows<'a>(rows: Vec<FeatureRow<'a>>, named: &BTreeSet<&str>) -> Vec<FeatureRow<'a>> {
    let is_named = |row: &FeatureRow<'_>| named.contains(row.name) || row.alike.iter().any(|name| named.contains(name));
    let shown = rows.into_iter().enumerate().filter(|(place, row)| *place < MOST || is_named(row));
    shown.map(|(_, row)| row).collect()
}

/// Returns the title of the maps, and the sentence that states which of the distinct features they show.
fn describe_choice(shown: usize, distinct: usize) -> (&'static str, String) {
    if shown == distinct {
        return ("Correlations of all features", format!("All {distinct} distinct features"));
    }
    let more = match shown.saturating_sub(MOST) {
        0 => String::new(),
        more => format!(" and {more} more that the table above names"),
    };
    ("Correlations of the strongest features", format!("The {MOST} strongest of {distinct} distinct features{more}"))
}

/// Returns whether a feature contains the roofline time, of which utilisation is a share.
fn contains_attainable(feature: &str) -> bool {
    feature.contains("attainable")
}

/// States the distinct features with the largest mean correlation.
fn strongest_rows(rows: &[FeatureRow<'_>]) -> String {
    let mut sorted: Vec<&FeatureRow<'_>> = rows.iter().collect();
    sorted.sort_by(|one, two| two.mean.abs().total_cmp(&one.mean.abs()));
    let [first, others @ ..] = &sorted[..] else {
        return "<p>No feature varies in a group with enough rows.</p>".to_owned();
    };
    let way = |row: &FeatureRow<'_>| if row.mean > 0.0 { "rises" } else { "falls" };
    let number = |row: &FeatureRow<'_>| {
        let (low, high) = (row.mean - row.margin, row.mean + row.margin);
        format!("{}, 95 % interval {}", round_to(row.mean, 2), format_interval((low.max(-1.0), high.min(1.0))))
    };
    let named =
        |row: &&&FeatureRow<'_>| format!("{} ({}, utilisation {})", meaning_with_name(row.name), number(row), way(row));
    let is_by_construction = contains_attainable(first.name);
    let others: Vec<&&FeatureRow<'_>> =
        others.iter().filter(|row| !is_by_construction || !contains_attainable(row.name)).take(2).collect();
    let next = if is_by_construction { "Strongest features without the roofline time" } else { "Next" };
    let named: Vec<String> = others.iter().map(named).collect();
    let next = if named.is_empty() { String::new() } else { format!(" {next}: {}.", named.join("; ")) };
    let cause = match is_by_construction {
        true => " This feature contains the roofline time, too, so a part of its correlation is by construction.",
        false => "",
    };
    format!(
        "<p><b>Strongest correlation over all rows: {}; utilisation {} as it rises</b> (mean \
         rank correlation ρ over operators, weighted by rows: {}).{cause}{next}</p><p>Utilisation is the roofline time \
         divided by the measured time.</p>",
        meaning_with_name(first.name),
        way(first),
        number(first)
    )
}

fn format_interval((low, high): (f64, f64)) -> String {
    format!("{}\u{a0}…\u{a0}{}", round_to(low, 2), round_to(high, 2))
}

/// Returns the 95 % interval of a rank correlation, by the normal approximation.
fn spearman_interval(one: &Correlation) -> (f64, f64) {
    let (middle, reach) = (transform_correlation(one.spearman), NORMAL_95 * transformed_error(one.rows));
    ((middle - reach).tanh(), (middle + reach).tanh())
}

/// Returns the strongest correlation of each operator on each device, the strongest first.
fn strongest_by_operator(found: &[Correlation]) -> Vec<&Correlation> {
    let mut strongest: BTreeMap<(&str, &str), &Correlation> = BTreeMap::new();
    let significant = found.iter().filter(|one| one.part == Part::All && one.q_value <= SIGNIFICANT);
    // The correlations of each operator on a device are sorted, the strongest first.
    for one in significant.filter(|one| one.spearman.is_finite()) {
        strongest.entry((&one.operator, &one.device)).or_insert(one);
    }
    let mut sorted: Vec<&Correlation> = strongest.into_values().collect();
    sorted.sort_by(|one, two| two.spearman.abs().total_cmp(&one.spearman.abs()));
    sorted
}

fn strongest_table(sorted: &[&Correlation], features: usize) -> String {
    if sorted.is_empty() {
        return String::new();
    }
    let has_devices = sorted.iter().any(|one| one.device != sorted[0].device);
    let mut text = "<h2>Strongest correlation of each operator</h2><div class=\"wide\"><table class=\"answers\">\
        <tr><th>operator</th><th class=\"text\">feature</th><th>ρ (95 % interval)</th><th class=\"rest\">partial</th>\
        <th class=\"rest\">mutual information, bits</th><th class=\"rest\">q-value</th><th \
        class=\"rest\">rows</th></tr>"
        .to_owned();
    for one in sorted {
        let device = if has_devices { format!(", {}", one.device) } else { String::new() };
        let _ = write!(
            text,
            "<tr><td>{}</td><td class=\"text\">{}</td><td>{}</td><td class=\"rest\">{}</td>\
             <td class=\"rest\">{}</td><td class=\"rest\">{}</td><td class=\"rest\">{}</td></tr>",
            break_name(&format!("{}{device}", one.operator)),
            name_cell(&one.feature),
            value_with_interval(
                &format!("<b>{}</b>", round_to(one.spearman, 2)),
                Some(&format_interval(spearman_interval(one)))
            ),
            round_to(one.partial, 2),
            round_to(one.mutual_information, 2),
            escape(&format_q_value(one.q_value)),
            one.rows
        );
    }
    let _ = write!(
        text,
        "</table></div><p class=\"soft\">ρ: Spearman's rank correlation of the feature and the utilisation; negative: \
         utilisation falls as the feature rises. Each is the strongest of up to {features} features, so it tends to be \
         too large. The q-value (false-discovery rate over all features) is corrected for this choice, the interval is \
         not. Partial: ρ controlled for the roofline time. Operators without a significant correlation are \
         omitted.</p>"
    );
    text + &wider_note(&["partial correlation", "mutual information", "q-value", "rows"])
}

/// Returns distinct features, the strongest first, each with the features that are nearly the same.
fn feature_rows<'a>(found: &'a [Correlation], cells: &CellMap<'a>, groups: usize) -> Vec<FeatureRow<'a>> {
    // Features with strong correlations in many rows come first; insignificant correlations count as 0.
    let mut strength: BTreeMap<&str, f64> = BTreeMap::new();
    let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for one in found {
        let (strength, rows) = (strength.entry(&one.feature).or_default(), one.rows as f64);
        if one.q_value <= SIGNIFICANT {
            *strength += one.spearman.abs() * rows;
        }
        if one.part == Part::All {
            let (sum, variance) = sums.entry(&one.feature).or_default();
            *sum += one.spearman * rows;
            *variance += ((1.0 - one.spearman.powi(2)) * transformed_error(one.rows) * rows).powi(2);
        }
    }
    let all = count_rows(found) as f64;
    let mut features: Vec<&str> = strength.keys().copied().collect();
    features.sort_by(|one, two| strength[two].total_cmp(&strength[one]));
    let mut rows: Vec<FeatureRow<'a>> = Vec::new();
    for name in features {
        match rows.iter_mut().find(|row| is_alike(cells, groups, row.name, name)) {
            Some(row) => row.alike.push(name),
            None => {
                let (sum, variance) = sums.get(name).copied().unwrap_or_default();
                let (mean, margin) = (sum / all.max(1.0), NORMAL_95 * variance.sqrt() / all.max(1.0));
                rows.push(FeatureRow { name, alike: Vec::new(), mean, margin });
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
        let _ = write!(
            body,
            "<section id=\"f{place}\"><p class=\"soft\">{}: {}. {}</p>{}",
            measure.0,
            measure.1,
            measure.2,
            draw_scale(measure)
        );
        for part in Part::ALL {
            let title = if part == Part::All { "All rows".to_owned() } else { format!("Rows {}", part.name()) };
            let of_part = groups.iter().enumerate().filter(|(_, (own, _))| *own == part);
            let columns: Vec<(usize, &str)> = of_part.map(|(at, (_, name))| (at, name.as_str())).collect();
            if !columns.is_empty() {
                let id = format!("c{place}-{}", part as usize);
                let map = draw_for_windows(WIDTH, |width| match width < WIDTH {
                    true => draw_narrow_map(&columns, rows, cells, (measure, &id), width),
                    false => draw_map(&columns, rows, cells, (measure, &id)),
                });
                let _ = write!(body, "<h2>{title}</h2><figure>{map}</figure>");
            }
        }
        body += "</section>";
    }
    format!("{body}</div><style>{rules}</style>")
}

fn alike_table(rows: &[FeatureRow<'_>]) -> String {
    let mut text = "<h2 id=\"alike\">Features that are nearly the same</h2>".to_owned();
    if rows.iter().all(|row| row.alike.is_empty()) {
        return text + "<p>None.</p>";
    }
    text += "<div class=\"wide\"><table class=\"names\"><tr><th>row of the map</th><th>nearly the same</th></tr>";
    for row in rows.iter().filter(|row| !row.alike.is_empty()) {
        let _ = write!(text, "<tr><td>{}</td><td>{}</td></tr>", name_cell(row.name), escape(&row.alike.join(", ")));
    }
    text + "</table></div>"
}

fn count_rows(found: &[Correlation]) -> usize {
    let whole = found.iter().filter(|one| one.part == Part::All);
    let groups: BTreeMap<(&str, &str), usize> = whole.map(|one| ((&*one.operator, &*one.device), one.rows)).collect();
    groups.values().sum()
}

/// Places of a map's cells and labels. Letters take about 6.4 units.
struct MapFrame {
    left: f64,
    top: f64,
    column: f64,
    /// Angle of the labels of columns, in degrees.
    angle: f64,
}

impl MapFrame {
    fn new(groups: &[(usize, &str)], (left, column, angle): (f64, f64, f64)) -> MapFrame {
        let longest = groups.iter().map(|(_, group)| group.chars().count()).max().unwrap_or(0) as f64;
        MapFrame { left, top: 24.0 + (longest * 6.4 * angle.to_radians().sin()).floor(), column, angle }
    }

    /// Returns the right end of the labels, which reach beyond the last column.
    fn right(&self, groups: &[(usize, &str)]) -> f64 {
        let reach = |(place, (_, name)): (usize, &(usize, &str))| {
            6.6 * name.chars().count() as f64 * self.angle.to_radians().cos() + self.column * (place as f64 + 0.5)
        };
        self.left + groups.iter().enumerate().map(reach).fold(self.column * groups.len() as f64, f64::max)
    }

    fn draw_labels(&self, groups: &[(usize, &str)], rows: &[(String, &FeatureRow<'_>)]) -> String {
        let mut svg = String::new();
        for (across, (_, group)) in groups.iter().enumerate() {
            let x = self.left + self.column * (across as f64 + 0.5);
            let _ = write!(
                svg,
                "<text transform=\"translate({x:.1} {:.1}) rotate(-{})\">{}</text>",
                self.top - 8.0,
                self.angle,
                escape(group)
            );
        }
        for (down, (label, row)) in rows.iter().enumerate() {
            let names: Vec<&str> = [row.name].into_iter().chain(row.alike.iter().copied()).collect();
            let meaning = meaning_of(row.name).map_or(String::new(), |meaning| format!("{meaning}: "));
            let _ = write!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}<title>{}</title></text>",
                self.left - 8.0,
                self.top + (CELL.1 * down) as f64 + 14.0,
                escape(label),
                escape(&format!("{meaning}{}", names.join(", ")))
            );
        }
        svg
    }
}

/// Draws a map with a column for each of the groups, which are given by number and name.
fn draw_map(
    groups: &[(usize, &str)],
    rows: &[FeatureRow<'_>],
    cells: &CellMap<'_>,
    (measure, id): (&Measure, &str),
) -> String {
    let (width, height) = CELL;
    let labels: Vec<(String, &FeatureRow<'_>)> = rows.iter().map(|row| (row.label(), row)).collect();
    let left = label_width(labels.iter().map(|(label, _)| label.as_str())) + 20.0;
    let frame = MapFrame::new(groups, (left, width as f64, 38.0));
    let high = frame.top + (height * rows.len()) as f64 + 10.0;
    let mut svg = svg_start(frame.right(groups) + 8.0, high, measure.0) + &frame.draw_labels(groups, &labels);
    for (down, row) in rows.iter().enumerate() {
        let (mut fills, mut texts) = (String::new(), String::new());
        for (across, (group, name)) in groups.iter().enumerate() {
            let Some(one) = cells.get(&(row.name, *group)) else { continue };
            fills += &draw_cell(one, name, width * across, measure);
            texts += &cell_text(one, measure, (width as f64 * (across as f64 + 0.5), 13.0), false);
        }
        let _ = write!(
            svg,
            "<g transform=\"translate({:.1} {:.1})\"><g id=\"{id}-{down}\">{fills}</g>{texts}</g>",
            frame.left,
            frame.top + (height * down) as f64
        );
    }
    svg + "</svg>"
}

/// Draws the map for narrow windows, with the cells of the broad map below the names of their rows. Numbers are
/// shorter, and left out if the columns are too narrow.
fn draw_narrow_map(
    groups: &[(usize, &str)],
    rows: &[FeatureRow<'_>],
    cells: &CellMap<'_>,
    (measure, id): (&Measure, &str),
    width: f64,
) -> String {
    const LEFT: f64 = 6.0;
    const NAME: f64 = 16.0;
    const SMALLEST_COLUMN: f64 = 8.0;
    const SMALLEST_TEXT: f64 = 24.0;
    let frame = |column: f64| MapFrame::new(groups, (LEFT, column, 75.0));
    // The labels reach beyond the last column.
    let beyond = frame(0.0).right(groups) - LEFT;
    let column = ((width - LEFT - beyond) / groups.len() as f64).clamp(SMALLEST_COLUMN, CELL.0 as f64);
    let (frame, lane) = (frame(column), NAME + CELL.1 as f64);
    let high = frame.top + lane * rows.len() as f64 + 10.0;
    let mut svg = svg_start(frame.right(groups).max(width), high, "correlations") + &frame.draw_labels(groups, &[]);
    for (down, row) in rows.iter().enumerate() {
        let top = frame.top + lane * down as f64;
        let _ = write!(
            svg,
            "<text class=\"soft\" x=\"{LEFT}\" y=\"{:.1}\">{}</text><use href=\"#{id}-{down}\" \
             transform=\"translate({LEFT} {:.1}) scale({:.4} 1)\"/>",
            top + NAME - 4.0,
            escape(&row.label()),
            top + NAME,
            column / CELL.0 as f64
        );
        if column < SMALLEST_TEXT {
            continue;
        }
        for (across, (group, _)) in groups.iter().enumerate() {
            if let Some(one) = cells.get(&(row.name, *group)) {
                let middle = LEFT + column * (across as f64 + 0.5);
                svg += &cell_text(one, measure, (middle, top + NAME + 13.0), column < CELL.0 as f64);
            }
        }
    }
    svg + "</svg>"
}

/// Draws the scale of colours of a measure.
fn draw_scale(measure: &Measure) -> String {
    const STEPS: i32 = 5;
    const BOX: i32 = 36;
    let (is_signed, full) = (measure.2 == SIGNED, full_value(measure.0));
    let first = if is_signed { -STEPS } else { 0 };
    let width = f64::from(BOX * (STEPS - first + 1)) + 12.0;
    let mut svg = svg_start(width, 36.0, "scale of colours");
    for step in first..=STEPS {
        let (x, part) = (6 + BOX * (step - first), f64::from(step) / f64::from(STEPS));
        let _ = write!(
            svg,
            "<rect class=\"{}\" x=\"{x}\" y=\"2\" width=\"{BOX}\" height=\"14\" fill-opacity=\"{:.2}\"/>\
             <text class=\"soft\" x=\"{}\" y=\"31\" text-anchor=\"middle\">{}</text>",
            if step >= 0 { "up" } else { "down" },
            part.abs(),
            x + BOX / 2,
            round_to(part * full, 1)
        );
    }
    format!("<div>{svg}</svg></div>")
}

/// Returns the value with the full colour. Mutual information is at most three bits for eight bins.
fn full_value(measure: &str) -> f64 {
    if measure == "mutual information" { 3.0 } else { 1.0 }
}

impl FeatureRow<'_> {
    fn label(&self) -> String {
        match self.alike.len() {
            0 => self.name.to_owned(),
            more => format!("{} + {more}", self.name),
        }
    }
}

/// Returns the opacity of a cell; insignificant correlations are pale.
fn cell_depth(one: &Correlation, (name, .., of): &Measure) -> f64 {
    let value = of(one);
    let depth = if value.is_finite() { (value.abs() / full_value(name)).min(1.0) } else { 0.0 };
    if one.q_value > SIGNIFICANT { 0.3 * depth } else { depth }
}

/// Returns the coloured box of a cell.
fn draw_cell(one: &Correlation, group: &str, x: usize, measure: &Measure) -> String {
    let (width, height) = CELL;
    let (value, depth) = (measure.3(one), cell_depth(one, measure));
    format!(
        "<rect class=\"{}\" x=\"{x}\" width=\"{}\" height=\"{}\" fill-opacity=\"{depth:.2}\">\
        <title>{} with {}: {}, {} rows, q-value {}</title></rect>",
        if value >= 0.0 { "up" } else { "down" },
        width - 1,
        height - 1,
        escape(group),
        escape(&one.feature),
        round_to(value, 3),
        one.rows,
        escape(&format_q_value(one.q_value))
    )
}

/// Returns the number of a cell; short numbers have two digits.
fn cell_text(one: &Correlation, measure: &Measure, (x, y): (f64, f64), is_short: bool) -> String {
    let value = measure.3(one);
    let text = round_to(value, 2);
    let text = match is_short {
        true if value.abs() >= 0.995 => round_to(value, 1),
        true => text.replacen("0.", ".", 1),
        false => text,
    };
    format!(
        "<text class=\"{}\" x=\"{x:.1}\" y=\"{y:.1}\"{}>{text}</text>",
        cell_class(cell_depth(one, measure), value >= 0.0),
        if one.q_value > SIGNIFICANT { " opacity=\".75\"" } else { "" }
    )
}

/// Formats a q-value for terminal and page; tiny ones have no digits.
pub fn format_q_value(value: f64) -> String {
    if value < f64::MIN_POSITIVE { "< 1e-307".to_owned() } else { format!("{value:.1e}") }
}

/// Formats a number with a fixed number of decimals, without a sign if it rounds to zero.
fn round_to(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return UNKNOWN.to_owned();
    }
    let text = format!("{value:.digits$}");
    match text.strip_prefix('-') {
        Some(zero) if zero.bytes().all(|sign| matches!(sign, b'0' | b'.')) => zero.to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_show_the_features_that_the_table_names() {
        let names: Vec<String> = (0..MOST + 3).map(|place| format!("f{place}")).collect();
        let row = |name| FeatureRow { name, alike: vec!["other"], mean: 0.5, margin: 0.1 };
        let all = || names.iter().map(|name| row(name)).collect::<Vec<_>>();
        let last = names[MOST + 2].as_str();
        let shown = shown_rows(all(), &BTreeSet::from(["f0", last]));
        assert_eq!((shown.len(), shown[MOST].name), (MOST + 1, last));
        let (title, choice) = describe_choice(shown.len(), MOST + 3);
        assert_eq!(title, "Correlations of the strongest features");
        assert_eq!(choice, "The 40 strongest of 43 distinct features and 1 more that the table above names");
        assert_eq!(shown_rows(all(), &BTreeSet::from(["other"])).len(), MOST + 3, "names of alike features count");
        assert_eq!(describe_choice(MOST + 3, MOST + 3).0, "Correlations of all features");
    }
}
