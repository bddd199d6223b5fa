//! Output of a comparison as text and as JSON.

use super::compare::{CaptureChange, CaptureComparison, LostTime, PlaceChange, STANDARD_ERRORS};
use super::operators::Operator;
use report::page::{break_name, chart, escape_html, whole_page, wider_note};
use report::{
    Cell, Paper, Table, UNKNOWN, format_count, format_duration, format_number, format_percent, format_plain,
    number_column, or_unknown, text_column, time_unit, to_sentence,
};
use serde_json::{Value, json};

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
        let mut body = String::new();
        for (place, line) in lines.iter().enumerate() {
            let class = if place < 2 { "answer" } else { "soft" };
            body += &format!("<p class=\"{class}\">{}</p>\n", escape_html(&to_sentence(line)));
        }
        let changed = self.changed_operators();
        body += &places_section(&self.lost_by_place(), share);
        if !changed.is_empty() {
            body += &changes_section(&changed, share);
        }
        for (side, list) in self.one_sided().into_iter().filter(|(_, list)| !list.is_empty()) {
            body += &format!(
                "<details><summary>{} only {side}</summary><div class=\"wide\">{}</div></details>\n",
                format_count(list.len(), "operator"),
                total_rows(list).to_html()
            );
        }
        let title = format!("Captures {} and {}", self.names.0, self.names.1);
        whole_page(
            &title,
            &format!("{}{}", chart::STYLE, include_str!("changes.css")),
            &format!("<main><h1>{}</h1>\n{body}</main>", escape_html(&title)),
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

    pub(super) fn summary_lines(&self, share: f64) -> Vec<String> {
        let (before, _) = self.spans_ns;
        if self.is_equal() {
            let (count, time) = (format_count(self.changes.len(), "operator"), format_duration(before as f64));
            let equal = format!("no differences: {count} with equal counts and times in both captures of {time}");
            return vec![equal];
        }
        let count = |is: &dyn Fn(&CaptureChange) -> bool| self.changes.iter().filter(|change| is(change)).count();
        let (slower, faster) = (count(&|change| change.is_slower(share)), count(&|change| change.is_faster(share)));
        let changed = match (slower, faster) {
            (0, 0) => "none became significantly slower or faster".to_owned(),
            _ => format!("{slower} became significantly slower and {faster} faster"),
        };
        let equal = count(&|change| !change.differs());
        let is_unknown = |change: &CaptureChange| change.differs() && change.lost_error_ns().is_none();
        let unknown = count(&is_unknown);
        let undecided = match self.changes.len() - slower - faster - equal - unknown {
            0 => String::new(),
            undecided => format!(", {undecided} differ by less or within the noise"),
        };
        let unknown = match unknown {
            0 => String::new(),
            unknown => format!(", {unknown} with a single call in a capture cannot be judged"),
        };
        let common = format!(
            "of {} in both captures, {changed} by more than {} %; {equal} are equal{undecided}{unknown}",
            format_count(self.changes.len(), "operator"),
            format_plain(share * 100.0),
        );
        let common = if self.changes.is_empty() { "no operator is in both captures".to_owned() } else { common };
        let captures = Some(self.describe_captures());
        let lines = match self.is_mostly_different() {
            true => [self.describe_others(), captures, Some(common), self.describe_lost()],
            false => [captures, Some(common), self.describe_lost(), self.describe_others()],
        };
        lines.into_iter().flatten().collect()
    }

    /// Returns whether the captures did mostly different work, so that their durations are not comparable.
    fn is_mostly_different(&self) -> bool {
        let (then, now) = self.common_shares();
        then.min(now) < 0.5
    }

    /// Describes the change of the duration, and of the kernels that changed significantly.
    fn describe_captures(&self) -> String {
        /// Maximum number of named kernels.
        const SHOWN: usize = 3;
        let (before, after) = self.spans_ns;
        let ratio = self.span_ratio();
        let change = match ratio {
            1.0 => "as long as".to_owned(),
            ratio if ratio > 1.0 => format!("{} longer than", format_percent(ratio - 1.0)),
            ratio => format!("{} shorter than", format_percent(1.0 - ratio)),
        };
        let places = self.lost_by_place();
        let changed: Vec<&PlaceChange<'_>> =
            places.iter().filter(|place| place.lost.is_significant() && !place.name.is_empty()).collect();
        let named = changed.iter().take(SHOWN).map(|place| format!("{} {}", place.name, format_signed(&place.lost)));
        let named = named.collect::<Vec<_>>().join(", ");
        let outside = describe_single(self.lost_time().single).map_or(String::new(), |text| format!("; {text}"));
        let kernels = match changed.len() {
            0 if places.len() < 2 => String::new(),
            0 => "; no kernel or layer changed significantly".to_owned(),
            count if count > SHOWN => {
                format!(": {named} and {} more, summed over cores and engines{outside}", count - SHOWN)
            }
            _ => format!(": {named}, summed over cores and engines{outside}"),
        };
        format!(
            "the capture {} is {change} {} ({}){kernels}",
            self.names.1,
            self.names.0,
            format_durations(before as f64, after as f64),
        )
    }

    /// Describes the time that the operators in both captures lost.
    fn describe_lost(&self) -> Option<String> {
        if self.changes.is_empty() {
            return None;
        }
        let lost = self.lost_time();
        // The noise of single calls is unknown.
        let is_noise = lost.total_ns == lost.repeated_ns
            && lost.reach_ns.is_some_and(|reach_ns| lost.repeated_ns.abs() < reach_ns);
        let noise = if is_noise { ", within the noise" } else { "" };
        Some(format!(
            "over the calls of the later capture, the operators in both {} {}{noise}, summed over cores and engines \
             that work at the same time",
            if lost.total_ns < 0.0 { "gained" } else { "lost" },
            format_lost(&if lost.total_ns < 0.0 { lost.negate() } else { lost }, "")
        ))
    }

    /// Describes the operators of only one capture, whose times the ratio of the captures includes.
    fn describe_others(&self) -> Option<String> {
        if self.gone.is_empty() && self.new.is_empty() {
            return None;
        }
        let (then, now) = self.common_shares();
        let doubt = if self.is_mostly_different() {
            "the captures did mostly different work, so their durations are not comparable: "
        } else {
            ""
        };
        Some(format!(
            "{doubt}operators in both captures took {} of all operators' time before and {} after; {} only before, {} \
             only after",
            format_percent(then),
            format_percent(now),
            self.gone.len(),
            self.new.len()
        ))
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
                "ratio_interval": change.ratio_interval(),
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

/// Formats two times with enough digits to show that they differ, or one time if they are equal.
fn format_durations(before_ns: f64, after_ns: f64) -> String {
    const DECIMALS: usize = 9;
    let (before, after) = (format_duration(before_ns), format_duration(after_ns));
    if before_ns == after_ns {
        return before;
    }
    if before != after {
        return format!("{before} → {after}");
    }
    let (size, unit) = time_unit(before_ns.max(after_ns));
    let digits = |ns: f64, decimals: usize| format!("{:.decimals$} {unit}", ns / size);
    let pairs = (1..=DECIMALS).map(|decimals| (digits(before_ns, decimals), digits(after_ns, decimals)));
    // One digit beyond the first difference, as the difference itself may be rounded.
    let different = pairs.filter(|(before, after)| before != after).take(2).last();
    or_unknown(different, |(before, after)| format!("{before} → {after}"))
}

/// Formats a lost time with the 95 % interval of the operators that have one. `sign` precedes positive times.
fn format_lost(lost: &LostTime, sign: &str) -> String {
    let total = format!("{sign}{}", format_duration(lost.total_ns));
    let repeated = format!("{sign}{}", format_with_reach(lost.repeated_ns, lost.reach_ns));
    match lost.reach_ns {
        None => format!("{total} (without an interval)"),
        Some(_) if lost.total_ns == lost.repeated_ns => format!("{repeated} (95 %)"),
        Some(_) => format!("{total} ({repeated}, 95 %, without single calls)"),
    }
}

/// Formats a lost time as a change, with a sign.
fn format_signed(lost: &LostTime) -> String {
    format_lost(lost, if lost.total_ns > 0.0 { "+" } else { "" })
}

/// Describes the operators with a single call in a capture, which the intervals do not cover; None if there are none.
fn describe_single(count: usize) -> Option<String> {
    let verb = if count == 1 { "is" } else { "are" };
    (count > 0).then(|| {
        format!("{} with a single call in a capture {verb} not part of the intervals", format_count(count, "operator"))
    })
}

/// Formats a time and its reach, if known, in the unit of the larger one, with as many decimals as that one needs.
fn format_with_reach(time_ns: f64, reach_ns: Option<f64>) -> String {
    let Some(reach_ns) = reach_ns else { return format_duration(time_ns) };
    let largest = time_ns.abs().max(reach_ns);
    let (size, unit) = time_unit(largest);
    let decimals = format_number(largest / size).split_once('.').map_or(0, |(_, decimals)| decimals.len());
    // Avoids a negative zero.
    let power = 10f64.powi(decimals as i32);
    let time = (time_ns / size * power).round() / power + 0.0;
    format!("{time:.decimals$} ± {:.decimals$} {unit}", reach_ns / size)
}

fn change_rows(changes: &[&CaptureChange], share: f64) -> Table {
    let mut table = Table::new([
        text_column("operator"),
        number_column("calls before").drop_order(2),
        number_column("mean before"),
        number_column("calls after").drop_order(1),
        number_column("mean after"),
        number_column("ratio"),
        number_column("95 % interval").drop_order(3),
        number_column("lost"),
        text_column(""),
    ]);
    for change in changes {
        let mut cells = change_texts(change, share).map(Cell::from);
        cells[5] = ratio_cell(change.mean_ratio());
        if change.is_slower(share) {
            cells[8] = Cell::from("slower").mark_bad();
        }
        table.add_row(cells);
    }
    table
}

fn verdict(change: &CaptureChange, share: f64) -> &'static str {
    match (change.is_slower(share), change.is_faster(share)) {
        (true, _) => "slower",
        (_, true) => "faster",
        _ => "",
    }
}

/// Returns the cells of a row, in the order of the table's columns.
fn change_texts(change: &CaptureChange, share: f64) -> [String; 9] {
    [
        change.operator.format_text(),
        change.before.count.to_string(),
        format_duration(change.before.mean_ns),
        change.after.count.to_string(),
        format_duration(change.after.mean_ns),
        format!("{:.3}", change.mean_ratio()),
        or_unknown(change.ratio_interval(), |(low, high)| format!("{low:.3} … {high:.3}")),
        format_duration(change.lost_ns()),
        verdict(change, share).to_owned(),
    ]
}

/// Returns the table of kernels or layers with their lost times, if there are several and some changed.
fn places_section(places: &[PlaceChange<'_>], share: f64) -> String {
    const SHOWN: usize = 20;
    if places.len() < 2 || places[0].lost.total_ns == 0.0 {
        return String::new();
    }
    let name = |place: &PlaceChange<'_>| {
        if place.name.is_empty() { "no kernel".to_owned() } else { render_name(place.name) }
    };
    let shown = &places[..places.len().min(SHOWN)];
    // Operators with a single call have a column for the time that they lost, unless it is zero everywhere.
    let single_ns = |place: &PlaceChange<'_>| place.lost.total_ns - place.lost.repeated_ns;
    let has_single = shown.iter().any(|place| single_ns(place) != 0.0);
    let ends = |lost: &LostTime| lost.repeated_ns.abs() + lost.reach_ns.unwrap_or(0.0);
    let longest = shown.iter().map(|place| ends(&place.lost)).fold(1.0, f64::max);
    let row = |place: &PlaceChange<'_>| {
        let count = |is: fn(&CaptureChange, f64) -> bool| place.changes.iter().filter(|one| is(one, share)).count();
        let class = if place.lost.total_ns > 0.0 { "up" } else { "down" };
        let lost = match place.lost.reach_ns {
            None => UNKNOWN.to_owned(),
            reach => format_with_reach(place.lost.repeated_ns, reach),
        };
        let lost = if place.lost.is_significant() { format!("<b class=\"{class}\">{lost}</b>") } else { lost };
        let single = if has_single {
            format!("<td class=\"rest\">{}</td>", format_duration(single_ns(place)))
        } else {
            String::new()
        };
        format!(
            "<tr><td>{}</td><td>{lost}</td><td class=\"rest\">{}</td>{single}<td>{}</td><td>{}</td><td \
             class=\"rest\">{}</td></tr>\n",
            name(place),
            interval_bar(&place.lost, longest),
            count(CaptureChange::is_slower),
            count(CaptureChange::is_faster),
            place.changes.len()
        )
    };
    let largest = match places.iter().find(|place| place.lost.is_significant()) {
        None => "No kernel or layer changed significantly.".to_owned(),
        Some(place) => format!("The largest significant change is in {}: {}.", name(place), format_signed(&place.lost)),
    };
    let unknown = match has_single {
        true => " Operators with a single call in a capture have no interval and a column of their own.",
        false => "",
    };
    format!(
        "<h2>Kernels or layers</h2>\n<p>{largest}</p>\n<p class=\"soft\">lost: change of the mean time of a call, \
         multiplied by the calls after; negative if gained; summed over cores and engines. slower, faster: numbers of operators \
         that changed significantly.{unknown}<span class=\"broad\"> The bar is the lost time, the line its 95 % \
         interval; pale: within the noise.</span></p>\n\
         <div class=\"wide changes\"><table><tr><th>kernel or layer</th><th>lost (95 %)</th><th class=\"rest\">← \
         gained · lost →</th>{}<th>slower</th>\
         <th>faster</th><th class=\"rest\">operators</th></tr>\n{}</table></div>\n{}\n{}<h2>Operators</h2>\n",
        if has_single { "<th class=\"rest\">in single calls</th>" } else { "" },
        shown.iter().map(row).collect::<String>(),
        wider_note(if has_single {
            &["charts", "times in single calls", "numbers of operators"]
        } else {
            &["charts", "numbers of operators"]
        }),
        match places.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!("<p class=\"soft\">and {more} more with smaller changes</p>\n"),
        }
    )
}

/// Returns the name of an operator, kernel or layer as HTML.
fn render_name(name: &str) -> String {
    break_name(&name.replace("->", "→"))
}

/// Returns the significant and then the largest changes as a table, and all others as a folded one.
fn changes_section(changes: &[&CaptureChange], share: f64) -> String {
    /// Largest numbers of shown changes: in total if few are significant, and of significant ones.
    const SHOWN: (usize, usize) = (10, 20);
    let is_significant = |change: &CaptureChange| !verdict(change, share).is_empty();
    let longest = changes.iter().map(|change| change.lost_ns().abs()).fold(1.0, f64::max);
    let significant = changes.iter().filter(|change| is_significant(change)).count();
    let mut ranked: Vec<usize> = (0..changes.len()).collect();
    ranked.sort_by(|&one, &other| {
        let rank = |place: usize| (is_significant(changes[place]), changes[place].lost_ns().abs());
        let (one, other) = (rank(one), rank(other));
        other.0.cmp(&one.0).then(other.1.total_cmp(&one.1))
    });
    // Both tables keep the order of the changes.
    let (shown, others) = ranked.split_at(significant.clamp(SHOWN.0, SHOWN.1).min(ranked.len()));
    let rows = |places: &[usize]| {
        let mut places = places.to_vec();
        places.sort_unstable();
        let changes: Vec<&CaptureChange> = places.into_iter().map(|place| changes[place]).collect();
        change_rows_html(&changes, share, longest)
    };
    let mut body = format!(
        "<p class=\"soft\">ratio: mean time of a call after over that before, with its 95 % interval. lost: difference \
         of the means times the calls after; negative if gained. Coloured ratios are significant: more than {} % and \
         more than {STANDARD_ERRORS} standard errors, which is stricter than the interval of a single row because many \
         operators are compared. The change of an operator with a single call in a capture is never significant, \
         because its uncertainty is unknown. <span class=\"broad\">Pale bars may be noise.</span></p>\n{}",
        format_plain(share * 100.0),
        rows(shown)
    );
    if !others.is_empty() {
        let left = others.iter().filter(|place| is_significant(changes[**place])).count();
        let left = if left == 0 { "none of them".to_owned() } else { format!("{left} of them") };
        body += &format!(
            "<details><summary>{}, {left} significant</summary>{}</details>\n",
            format_count(others.len(), "more operator"),
            rows(others)
        );
    }
    body
}

/// Returns a table of changes with a bar of the lost time in each row.
fn change_rows_html(changes: &[&CaptureChange], share: f64, longest: f64) -> String {
    let row = |change: &&CaptureChange| {
        let [operator, calls_before, before, calls_after, after, ratio, interval, lost, verdict] =
            change_texts(change, share);
        let bar = lost_bar(change.lost_ns() / longest, !verdict.is_empty());
        let ratio = if change.ratio_interval().is_some() { format!("{ratio} ({interval})") } else { ratio };
        let (ratio, remark) = match verdict.as_str() {
            "" => (ratio, String::new()),
            verdict => {
                let class = if verdict == "slower" { "up" } else { "down" };
                (format!("<b class=\"{class}\">{ratio}</b>"), format!(" <b class=\"{class}\">{verdict}</b>"))
            }
        };
        let operator = render_name(&operator) + &remark;
        format!(
            "<tr><td>{operator}</td><td>{ratio}</td><td>{lost}</td><td class=\"rest\">{bar}</td>\
             <td class=\"rest\">{before}</td><td class=\"rest\">{after}</td><td class=\"rest\">{calls_before}</td>\
             <td class=\"rest\">{calls_after}</td></tr>\n"
        )
    };
    format!(
        "<div class=\"wide changes\"><table><tr><th>operator</th><th>ratio (95 %)</th><th>lost</th>\
         <th class=\"rest\">← gained · lost →</th><th class=\"rest\">mean before</th><th class=\"rest\">mean after</th>\
         <th class=\"rest\">calls before</th><th class=\"rest\">calls after</th></tr>\n{}</table></div>\n{}\n",
        changes.iter().map(row).collect::<String>(),
        wider_note(&["charts", "means", "calls before and after"])
    )
}

/// Draws a lost time and its interval, given the largest distance of any such end from zero.
fn interval_bar(lost: &LostTime, longest_ns: f64) -> String {
    const WIDTH: f64 = 160.0;
    let middle = WIDTH / 2.0;
    let x = |ns: f64| middle + (middle - 2.0) * ns / longest_ns;
    let (class, opacity) =
        (if lost.repeated_ns > 0.0 { "up" } else { "down" }, if lost.is_significant() { 1.0 } else { 0.45 });
    let whisker = lost.reach_ns.map_or(String::new(), |reach_ns| {
        let (low, high) = (x(lost.repeated_ns - reach_ns), x(lost.repeated_ns + reach_ns));
        format!("<path class=\"whisker\" d=\"M{low:.1} 9H{high:.1}M{low:.1} 6v6M{high:.1} 6v6\"/>")
    });
    format!(
        "<svg aria-hidden=\"true\" width=\"{WIDTH}\" height=\"18\" viewBox=\"0 0 {WIDTH} 18\" \
         style=\"min-width:{WIDTH}px\">\
         <rect class=\"{class}\" opacity=\"{opacity}\" x=\"{:.1}\" y=\"4\" width=\"{:.1}\" height=\"10\"/>\
         <line class=\"axis\" x1=\"{middle}\" x2=\"{middle}\" y1=\"0\" y2=\"18\"/>{whisker}</svg>",
        x(lost.repeated_ns.min(0.0)),
        (x(lost.repeated_ns) - middle).abs().max(0.5)
    )
}

/// Draws a part of the longest bar, to the left if it is negative.
fn lost_bar(part: f64, is_significant: bool) -> String {
    const WIDTH: f64 = 120.0;
    let middle = WIDTH / 2.0;
    let length = (middle * part.abs()).max(1.0);
    let (class, from) = if part > 0.0 { ("up", middle) } else { ("down", middle - length) };
    let opacity = if is_significant { 1.0 } else { 0.45 };
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

#[cfg(test)]
mod tests {
    use super::{format_durations, format_with_reach};

    #[test]
    fn different_times_look_different() {
        assert_eq!(format_durations(9e3, 9.9e3), "9.00 µs → 9.90 µs");
        assert_eq!(format_durations(1_728_000.0, 1_734_900.0), "1.7280 ms → 1.7349 ms");
        assert_eq!(format_durations(1_730_000.0, 1_730_001.0), "1.7300000 ms → 1.7300010 ms");
        assert_eq!(format_durations(1.73e6, 1.73e6), "1.73 ms");
        assert_eq!(format_durations(500.0, 500.4), "500.00 ns → 500.40 ns");
    }

    #[test]
    fn a_time_and_its_reach_have_one_unit() {
        assert_eq!(format_with_reach(5.64e6, Some(648e3)), "5.64 ± 0.65 ms");
        assert_eq!(format_with_reach(808.0, Some(339e3)), "1 ± 339 µs");
        assert_eq!(format_with_reach(-2.16e4, Some(11.0)), "-21.6 ± 0.0 µs");
        assert_eq!(format_with_reach(-273.0, Some(308e3)), "0 ± 308 µs");
        assert_eq!(format_with_reach(0.0, Some(0.0)), "0 ± 0 ns");
        assert_eq!(format_with_reach(-2.16e4, None), "-21.6 µs");
    }
}
