//! HTML page of a placement: when each device runs which operator, and what each operator costs on every device.

use super::{break_name, emphasize_start, escape, fold_narrow, styled_page, wider_note};
use crate::planning::placing::{MakespanEnds, count_lower_bounds, fastest_device, makespan_ends, speed_up};
use crate::planning::tables::TimesTable;
use planners::placement::{Instance, Placement};
use report::page::chart::{Scale, draw_for_windows, draw_ticks, format_tick, label_width, round_ticks, svg_start};
use report::{UNKNOWN, format_bound, format_count, format_duration, format_number, format_percent, format_range};
use std::fmt::Write;

/// Returns the page of a placement of `subject`, such as a network, given notes for terminal and page.
pub fn placement_page(
    subject: &str,
    table: &TimesTable,
    instance: &Instance,
    found: &Placement,
    notes: &[String],
) -> String {
    let chart = DeviceLanes { table, instance, found };
    let mut body = format!(
        "<p class=\"soft\">{} of {} on {}</p><p>{}.</p><ul class=\"facts\">",
        format_count(table.operators.len(), "operator"),
        escape(subject),
        format_count(table.devices.len(), "device"),
        notes.first().map_or(String::new(), |note| emphasize_start(note))
    );
    notes.iter().skip(1).for_each(|note| body += &format!("<li>{}</li>", escape(note)));
    let _ = write!(
        body,
        "</ul><h2>Timeline of devices</h2><figure>{}</figure><p class=\"soft\">Each box is an operator; its start and \
         time are in the table. Light and dark alternate between consecutive operators. The makespan \
         is the end of the last operator. {}</p>",
        draw_for_windows(WIDTH, |width| chart.draw_lanes(width)),
        match instance.edges.is_empty() {
            true => "Operators are independent.",
            false => "In gaps, the device waits for results of earlier operators or for a transfer.",
        }
    );
    body += &chart.costs_table();
    styled_page("Placement of operators on devices", &body)
}

/// Describes a placement for terminal and page: makespan with and without other devices, energy, stability, distance
/// from the optimum, and the sources of the times. `promised` is an error of times in percent and the largest distance
/// with it.
pub fn describe_placement(
    table: &TimesTable,
    instance: &Instance,
    found: &Placement,
    promised: Option<(f64, f64)>,
) -> Vec<String> {
    let ends = makespan_ends(table, instance, found);
    let mut lines = vec![describe_makespan(table, instance, found, ends.as_ref())];
    lines.extend(ends.and_then(|ends| explain_ends(&ends, speed_up(instance, found.makespan_ns))));
    let bounds = count_lower_bounds(table, found);
    if bounds > 0 {
        lines.push(format!(
            "{bounds} of {} operators count with a lower bound of their time only (≥), because the training data lacks \
             them; they may take longer",
            table.operators.len()
        ));
    }
    if found.energy_j > 0.0 {
        let objective = format_duration(found.objective_ns);
        lines.push(format!("Energy {} J, objective {objective}", format_number(found.energy_j)));
    }
    lines.push(match found.is_equilibrium() {
        true => "Equilibrium: no operator gains by moving alone".to_owned(),
        false => format!("Not an equilibrium: a single move gains up to {}", format_duration(found.largest_gain_ns)),
    });
    let at_expected = if is_predicted(table) { " at the expected times" } else { "" };
    lines.push(match found.is_exact {
        true => format!("Optimal among all assignments{at_expected}"),
        false => format!(
            "At most {:.3} times the optimum: no assignment takes less than {}{at_expected}",
            found.ratio_most(),
            format_duration(found.least_ns)
        ),
    });
    if let Some(anarchy) = found.anarchy {
        lines.push(format!("Worst equilibrium: {anarchy:.3} times the time of the optimum (price of anarchy)"));
    }
    if let Some(most) = found.anarchy_most {
        lines.push(format!("For identical devices, any equilibrium takes at most {most:.3} times the optimum"));
    }
    if let Some((off, ratio)) = promised {
        lines.push(format!("If times are off by up to {off} %: at most {ratio:.3} times the optimum"));
    }
    lines.push(describe_sources(table, instance));
    lines
}

/// Returns whether the times are predictions, which have intervals or are lower bounds.
fn is_predicted(table: &TimesTable) -> bool {
    !table.intervals_ns.is_empty()
}

/// Describes the makespan and the speed-up over the fastest single device, expected and at the ends of the intervals.
fn describe_makespan(
    table: &TimesTable,
    instance: &Instance,
    found: &Placement,
    ends: Option<&MakespanEnds>,
) -> String {
    const ENDS: &str = "all times at the low or all at the high ends of their 90 % intervals";
    let has_others = table.devices.len() > 1;
    let mut limits: Vec<String> = ends.map(|ends| format_range(ends.low_ns, ends.high_ns)).into_iter().collect();
    if !has_others && ends.is_some() {
        limits.push(format!("with {ENDS}"));
    }
    let bounds = count_lower_bounds(table, found);
    if bounds > 0 {
        let verb = if bounds == 1 { "counts" } else { "count" };
        let operators = format_count(bounds, "operator");
        limits.push(format!("{operators} {verb} with a lower bound of the time only"));
    }
    let limits = if limits.is_empty() { String::new() } else { format!(" ({})", limits.join("; ")) };
    let expected = if is_predicted(table) { " expected" } else { "" };
    let mut text = format!("Makespan {}{expected}{limits}", format_duration(found.makespan_ns));
    let Some((device, alone_ns)) = fastest_device(instance).filter(|_| has_others) else { return text };
    let gain = speed_up(instance, found.makespan_ns);
    let has_bound = (0..table.operators.len()).any(|operator| table.is_lower_bound(operator, device));
    // A price of energy may make the placement slower than one device.
    let is_slower = gain < 1.0;
    let compared = match is_slower {
        true => format!("{:.2} times the time of", 1.0 / gain),
        false => format!("{gain:.2} times as fast as"),
    };
    let _ = write!(
        text,
        ", {compared} all operators on {} ({}), the fastest single device",
        table.devices[device],
        format_bound(alone_ns, has_bound)
    );
    if let Some(MakespanEnds { speed_ups: (low, high), .. }) = ends {
        if is_slower {
            let _ = write!(text, ", and {:.2} or {:.2} times with {ENDS}", 1.0 / low, 1.0 / high);
            return text;
        }
        let only = if gain > low.max(*high) { "but only" } else { "and" };
        let _ = write!(text, ", {only} {low:.2} or {high:.2} times with {ENDS}");
    }
    text
}

/// Explains a speed-up that is larger, or smaller, at the expected times than at both ends of their intervals.
fn explain_ends(ends: &MakespanEnds, expected: f64) -> Option<String> {
    let (low, high) = ends.speed_ups;
    if expected > low.max(high) {
        return Some(
            "The speed-up is smaller at the ends of the intervals, because the operators were placed for the expected \
             times"
                .to_owned(),
        );
    }
    (expected < low.min(high)).then(|| "The speed-up is larger at both ends of the intervals".to_owned())
}

/// States where the times come from, and what a transfer between devices costs.
fn describe_sources(table: &TimesTable, instance: &Instance) -> String {
    let transfer = match instance.links.first().and_then(|row| row.get(1)) {
        Some(link) if !instance.edges.is_empty() => format!(
            "; assumed link between devices: {} per transfer and {} GB/s",
            format_duration(link.latency_ns),
            format_number(1.0 / link.ns_per_byte)
        ),
        _ if instance.edges.is_empty() => "; operators are independent, so nothing is transferred".to_owned(),
        _ => String::new(),
    };
    format!("Times: {}{transfer}", table.source)
}

/// Formats the time of an operator on a device, for terminal and page.
pub fn describe_time(table: &TimesTable, operator: usize, device: usize) -> String {
    format_bound(table.times_ns[operator][device], table.is_lower_bound(operator, device))
}

/// Describes the change of the objective by a move of an operator, for terminal and page. Its own device has none.
pub fn describe_move(found: &Placement, operator: usize, device: usize) -> String {
    let change_ns = found.objective_changes_ns[operator][device];
    match change_ns {
        _ if device == found.devices[operator] => UNKNOWN.to_owned(),
        // Rounding errors of sums.
        change_ns if change_ns.abs() <= 1e-9 * found.objective_ns.abs() => "0".to_owned(),
        change_ns if change_ns < 0.0 => format!("-{}", format_duration(-change_ns)),
        change_ns => format!("+{}", format_duration(change_ns)),
    }
}

const WIDTH: f64 = 1120.0;
const RIGHT: f64 = 40.0;
const TOP: f64 = 24.0;
const LANE: f64 = 48.0;
/// Height of the texts above a lane in narrow images.
const LANE_TEXT: f64 = 18.0;
/// Width of a letter inside of a box.
const LETTER: f64 = 6.8;

struct DeviceLanes<'a> {
    table: &'a TimesTable,
    instance: &'a Instance,
    found: &'a Placement,
}

impl DeviceLanes<'_> {
    fn time_ns(&self, operator: usize) -> f64 {
        self.instance.times_ns[operator][self.found.devices[operator]]
    }

    fn start_ns(&self, operator: usize) -> f64 {
        (self.found.ends_ns[operator] - self.time_ns(operator)).max(0.0)
    }

    /// Returns the operators of a device in the order of their start.
    fn of_device(&self, device: usize) -> Vec<usize> {
        let all = 0..self.table.operators.len();
        let mut own: Vec<usize> = all.filter(|&operator| self.found.devices[operator] == device).collect();
        own.sort_by(|one, two| self.found.ends_ns[*one].total_cmp(&self.found.ends_ns[*two]));
        own
    }

    fn describe_load(&self, device: usize) -> String {
        let own = self.of_device(device);
        let busy_ns: f64 = own.iter().map(|&operator| self.time_ns(operator)).sum();
        let share = format_percent(busy_ns / self.found.makespan_ns);
        format!("{}, busy {share}", format_count(own.len(), "operator"))
    }

    /// Narrow images have the names of devices above their lanes.
    fn draw_lanes(&self, width: f64) -> String {
        let is_narrow = width < WIDTH;
        let loads: Vec<String> = (0..self.table.devices.len()).map(|device| self.describe_load(device)).collect();
        let texts = self.table.devices.iter().chain(&loads).map(String::as_str);
        let left = if is_narrow { 10.0 } else { 20.0 + label_width(texts) };
        let lane = if is_narrow { LANE + LANE_TEXT } else { LANE };
        let makespan_ns = self.found.makespan_ns;
        let scale = Scale { range: (0.0, makespan_ns), places: (left, width - RIGHT), is_log: false };
        let floor = TOP + lane * self.table.devices.len() as f64;
        let mut picture = svg_start(width, floor + 42.0, "timeline of devices");
        let ticks = round_ticks(0.0, makespan_ns, (width / 110.0) as usize);
        picture += &draw_ticks(&scale, &ticks, (TOP, floor), format_tick);
        for (device, (name, load)) in self.table.devices.iter().zip(&loads).enumerate() {
            let (top, name) = (TOP + lane * device as f64, escape(name));
            picture += &match is_narrow {
                true => format!(
                    "<text x=\"{left}\" y=\"{:.1}\">{name}: <tspan class=\"soft\">{load}</tspan></text>",
                    top + 16.0
                ),
                false => format!(
                    "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>\
                     <text class=\"soft\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"end\">{load}</text>",
                    top + LANE / 2.0 - 3.0,
                    top + LANE / 2.0 + 12.0,
                    x = left - 10.0
                ),
            };
            picture += &self.draw_boxes(device, &scale, top + lane - LANE);
        }
        let (end, middle) = (scale.coordinate_of(makespan_ns), (scale.places.0 + scale.places.1) / 2.0);
        let _ = write!(
            picture,
            "<line class=\"at\" x1=\"{end:.1}\" x2=\"{end:.1}\" y1=\"{}\" y2=\"{floor}\"/>\
             <text class=\"mark\" x=\"{end:.1}\" y=\"{}\" text-anchor=\"end\">makespan {}{}</text>\
             <text class=\"soft\" x=\"{middle:.1}\" y=\"{}\" text-anchor=\"middle\">time</text>",
            TOP - 6.0,
            TOP - 10.0,
            format_duration(makespan_ns),
            if is_predicted(self.table) { " expected" } else { "" },
            floor + 36.0
        );
        picture + "</svg>"
    }

    fn draw_boxes(&self, device: usize, scale: &Scale, top: f64) -> String {
        let mut picture = String::new();
        for (place, operator) in self.of_device(device).into_iter().enumerate() {
            let from = scale.coordinate_of(self.start_ns(operator));
            let to = scale.coordinate_of(self.found.ends_ns[operator]);
            let (name, depth) = (&self.table.operators[operator], if place % 2 == 0 { 0.45 } else { 0.3 });
            let _ = write!(
                picture,
                "<rect class=\"down\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\" \
                 fill-opacity=\"{depth}\"><title>{}: {} from {}</title></rect>",
                top + 4.0,
                (to - from - 0.6).max(0.6),
                LANE - 8.0,
                escape(name),
                describe_time(self.table, operator, device),
                format_tick(self.start_ns(operator))
            );
            if let Some(label) = fitting_label(name, to - from - 5.0) {
                let (x, y) = (from + 3.0, top + LANE / 2.0 + 4.0);
                let _ = write!(picture, "<text class=\"inside\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(label));
            }
        }
        picture
    }

    /// Returns a table of the operators on their devices, and a folded table of all devices.
    fn costs_table(&self) -> String {
        let mut text = format!(
            "<h2>Operators</h2><p class=\"soft\">Time: of the operator alone on its device{}. Cheapest move: to the \
             device with the smallest change of {}, if all other operators stay.</p>",
            self.describe_bounds(),
            self.describe_costs()
        );
        text += &fold_narrow("operators", self.table.operators.len(), &self.operators_table());
        format!("{text}{}{}", wider_note(&["the start"]), self.devices_table())
    }

    fn operators_table(&self) -> String {
        let mut text = "<div class=\"wide\"><table class=\"answers figures\"><tr><th>operator</th><th class=\"text \
            two\">device</th><th>time</th><th class=\"two\">cheapest move</th><th class=\"rest\">start</th></tr>"
            .to_owned();
        for (operator, name) in self.table.operators.iter().enumerate() {
            let device = self.found.devices[operator];
            let _ = write!(
                text,
                "<tr><td>{}</td><td class=\"text two\">{}</td><td><b>{}</b></td><td class=\"two\">{}</td><td \
                 class=\"rest\">{}</td></tr>",
                break_name(name),
                escape(&self.table.devices[device]),
                describe_time(self.table, operator, device),
                self.cheapest_move(operator),
                format_tick(self.start_ns(operator)),
            );
        }
        text + "</table></div>"
    }

    /// Returns a folded table with the times and moves of each operator on all devices; empty for a single device.
    /// Devices have numbers, so that their columns are narrow.
    fn devices_table(&self) -> String {
        let devices = &self.table.devices;
        if devices.len() < 2 {
            return String::new();
        }
        let numbered = |(place, name): (usize, &String)| format!("<dt>{}</dt><dd>{}</dd>", place + 1, escape(name));
        let mut text = format!(
            "<details><summary>Times and moves on all devices</summary><p class=\"soft\">Bold: the device of the \
             operator. Below each time: the change of {} if only this operator moves there.</p><dl class=\"named\">{}</dl>\
             <div class=\"wide\"><table class=\"answers figures\"><tr><th>operator</th>",
            self.describe_costs(),
            devices.iter().enumerate().map(numbered).collect::<String>()
        );
        (1..=devices.len()).for_each(|number| {
            let _ = write!(text, "<th>on {number}</th>");
        });
        text.push_str("</tr>");
        for (operator, name) in self.table.operators.iter().enumerate() {
            let _ = write!(text, "<tr><td>{}</td>", break_name(name));
            for place in 0..devices.len() {
                let time = describe_time(self.table, operator, place);
                let _ = match place == self.found.devices[operator] {
                    true => write!(text, "<td><b>{time}</b></td>"),
                    false => {
                        write!(text, "<td>{time}<br><small>{}</small></td>", describe_move(self.found, operator, place))
                    }
                };
            }
            text.push_str("</tr>");
        }
        text + "</table></div></details>"
    }

    /// Describes the move of an operator to another device that costs least.
    fn cheapest_move(&self, operator: usize) -> String {
        let (moves_ns, own) = (&self.found.objective_changes_ns[operator], self.found.devices[operator]);
        let others = (0..self.table.devices.len()).filter(|device| *device != own);
        let cheapest = others.min_by(|one, two| moves_ns[*one].total_cmp(&moves_ns[*two]));
        cheapest.map_or(UNKNOWN.to_owned(), |device| {
            format!("{} on {}", describe_move(self.found, operator, device), escape(&self.table.devices[device]))
        })
    }

    fn describe_bounds(&self) -> &'static str {
        let devices = 0..self.table.devices.len();
        let has_bound = |operator| devices.clone().any(|device| self.table.is_lower_bound(operator, device));
        if (0..self.table.operators.len()).any(has_bound) { "; ≥: at least, a lower bound" } else { "" }
    }

    fn describe_costs(&self) -> &'static str {
        match self.instance.price_ns_per_j > 0.0 {
            true => "the makespan plus that of the cost of energy",
            false => "the makespan",
        }
    }
}

/// Returns the longest label of an operator that fits into a box: its name, its kind with its number, or its number.
fn fitting_label(name: &str, width: f64) -> Option<&str> {
    let number = name.split(':').next().unwrap_or(name);
    let kind = name.match_indices(' ').nth(1).map_or(name, |(at, _)| &name[..at]);
    [name, kind, number].into_iter().find(|label| LETTER * label.chars().count() as f64 <= width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use planners::placement::{Edge, Link};

    /// Returns a table of two operators and two devices with given intervals, and the lines about its placement.
    fn describe(intervals_ns: [[(f64, f64); 2]; 2]) -> (TimesTable, Vec<String>) {
        let table = TimesTable {
            operators: vec!["a".to_owned(), "b".to_owned()],
            devices: vec!["one".to_owned(), "two".to_owned()],
            times_ns: vec![vec![10.0, 12.0], vec![12.0, 10.0]],
            intervals_ns: intervals_ns.map(|row| row.to_vec()).to_vec(),
            source: "predicted by gpu.opp".to_owned(),
        };
        let instance = Instance { times_ns: table.times_ns.clone(), ..Instance::default() };
        let found = planners::placement::place_operators(&instance).expect("a placement");
        let lines = describe_placement(&table, &instance, &found, None);
        (table, lines)
    }

    #[test]
    fn the_first_line_has_the_speed_ups_at_the_ends_of_the_intervals() {
        let (_, lines) = describe([[(9.9, 30.0), (1.0, 12.1)], [(1.0, 12.1), (9.9, 10.1)]]);
        assert!(lines[0].starts_with("Makespan 10.0 ns expected (9.90 ns … 30.0 ns), 2.20 times as fast"), "{lines:?}");
        assert!(lines[0].contains("device, but only 1.10 or 0.74 times with all times at the low"), "{lines:?}");
        assert!(lines[1].contains("because the operators were placed for the expected times"), "{lines:?}");
        assert_eq!(lines.last().expect("sources").split(';').next(), Some("Times: predicted by gpu.opp"));
        let (_, lines) = describe([[(9.0, 11.0), (11.0, 13.0)], [(11.0, 13.0), (9.0, 11.0)]]);
        assert!(lines[0].contains("and 2.22 or 2.18 times") && !lines[1].contains("speed-up"), "{lines:?}");
        assert!(lines.contains(&"Optimal among all assignments at the expected times".to_owned()), "{lines:?}");
    }

    #[test]
    fn a_placement_slower_than_one_device_is_not_called_fast() {
        let (table, _) = describe([[(9.0, 11.0), (11.0, 13.0)], [(11.0, 13.0), (9.0, 11.0)]]);
        let instance = Instance {
            times_ns: table.times_ns.clone(),
            energies_j: vec![vec![1.0, 0.0], vec![1.0, 0.0]],
            price_ns_per_j: 1e3,
            ..Instance::default()
        };
        let instance = Instance { times_ns: vec![vec![10.0, 12.0], vec![10.0, 12.0]], ..instance };
        let found = planners::placement::place_operators(&instance).expect("a placement");
        let table = TimesTable { times_ns: instance.times_ns.clone(), intervals_ns: Vec::new(), ..table };
        let lines = describe_placement(&table, &instance, &found, None);
        assert!(lines[0].contains("24.0 ns, 1.20 times the time of all operators on one"), "{lines:?}");
    }

    #[test]
    fn lower_bounds_are_counted_and_the_makespan_is_not_called_a_bound() {
        let (table, lines) = describe([[(10.0, f64::NAN), (11.0, 13.0)], [(11.0, 13.0), (9.0, 11.0)]]);
        assert!(
            lines[0].starts_with(
                "Makespan 10.0 ns expected (10.0 ns … 11.0 ns; 1 operator counts with a lower bound of the time only)"
            ),
            "{lines:?}"
        );
        assert!(lines.iter().all(|line| !line.contains("at least")), "{lines:?}");
        let counted = "1 of 2 operators count with a lower bound of their time only (≥)";
        assert!(lines.iter().any(|line| line.starts_with(counted)), "{lines:?}");
        assert_eq!((describe_time(&table, 0, 0), describe_time(&table, 0, 1)), ("≥ 10.0 ns".into(), "12.0 ns".into()));
    }

    #[test]
    fn measured_times_and_the_link_are_named() {
        let (table, _) = describe([[(9.0, 11.0), (11.0, 13.0)], [(11.0, 13.0), (9.0, 11.0)]]);
        let table = TimesTable { intervals_ns: Vec::new(), source: "from times.csv".to_owned(), ..table };
        let link = Link { latency_ns: 1e4, ns_per_byte: 1.0 / 12.0 };
        let instance = Instance {
            times_ns: table.times_ns.clone(),
            edges: vec![Edge { from: 0, to: 1, bytes: 12.0 }],
            links: vec![vec![link; 2]; 2],
            ..Instance::default()
        };
        let found = planners::placement::place_operators(&instance).expect("a placement");
        let text = describe_placement(&table, &instance, &found, None).join("\n");
        assert!(!text.contains("expected"), "{text}");
        let sources = "Times: from times.csv; assumed link between devices: 10.0 µs per transfer and 12.0 GB/s";
        assert!(text.ends_with(sources), "{text}");
    }

    #[test]
    fn labels_fit() {
        let name = "12: conv2d f32[1,64,56,56] w[64,64,1,1] +bias +relu";
        assert_eq!(fitting_label(name, 900.0), Some(name));
        assert_eq!(fitting_label(name, 100.0), Some("12: conv2d"));
        assert_eq!(fitting_label(name, 20.0), Some("12"));
        assert_eq!(fitting_label(name, 8.0), None);
        assert_eq!(fitting_label("softmax", 20.0), None);
    }
}
