//! Draws curves over threads or a knob: times with intervals, the knee, the scaling law and the measurements.

use super::{emphasize_start, escape, styled_page, wider_note};
use crate::knee::{Knee, Point};
use report::page::chart::{Scale, decades_between, draw_for_windows, round_ticks, svg_start};
use report::{format_count, format_duration, format_plain, format_range, time_unit};
use std::fmt::Write;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 30.0;
/// Space above the axes, with one or two rows of the legend.
const TOP: f64 = 46.0;
const NARROW_TOP: f64 = 68.0;
const BOTTOM: f64 = 52.0;
/// Ratio of the longest to the shortest time above which the scale is logarithmic.
const FLAT: f64 = 40.0;
/// Ratio of the largest to the smallest number of threads above which the scale is logarithmic.
const WIDE: f64 = 8.0;
/// Maximum number of points with large dots and intervals of their own.
const MOST_MARKED: usize = 40;

/// Returns a page of curves, given notes on all of them.
pub fn curves_page(operator: &str, device: &str, knees: &[Knee], notes: &[String]) -> String {
    let mut body = format!("<p class=\"soft\">{} on {}</p>{}", escape(operator), escape(device), summary(knees));
    for knee in knees {
        let _ =
            write!(body, "<h2>Time over {}</h2><p>{}</p>", escape(&knee.over), emphasize_start(&describe_knee(knee)));
        let curve = draw_for_windows(WIDTH, |width| draw_curve(knee, width));
        let _ = write!(body, "<figure>{curve}</figure>{}", points_table(knee));
    }
    if !notes.is_empty() {
        let items: String = notes.iter().map(|note| format!("<li>{}</li>", escape(note))).collect();
        let _ = write!(body, "<ul class=\"facts\">{items}</ul>");
    }
    styled_page("Knee: point of diminishing returns", &body)
}

/// What a curve shows: only a fastest value if the times fall up to the last one, or if the fastest is isolated.
enum Finding {
    Falls,
    Isolated,
    Knee,
}

impl Finding {
    fn from_knee(knee: &Knee) -> Finding {
        match (knee.falls_to_the_end(), knee.is_isolated) {
            (true, _) => Finding::Falls,
            (false, true) => Finding::Isolated,
            (false, false) => Finding::Knee,
        }
    }
}

/// Lists the knees of several curves.
fn summary(knees: &[Knee]) -> String {
    if knees.len() < 2 {
        return String::new();
    }
    let named = knees.iter().map(|knee| {
        let (at, time) = (format_plain(knee.knee), time_at(knee, knee.knee));
        let found = match Finding::from_knee(knee) {
            Finding::Falls => format!("no knee up to {at}{time}"),
            Finding::Isolated => format!("no clear knee; fastest at {at}{time}"),
            Finding::Knee => format!("knee at {at}{time}"),
        };
        let doubt = if knee.overlaps_all() { "; uncertain" } else { "" };
        format!("<li><b>{}</b>: {}{doubt}</li>", escape(&knee.over), escape(&found))
    });
    format!("<ul class=\"facts\">{}</ul>", named.collect::<String>())
}

fn points_table(knee: &Knee) -> String {
    // Remarks need the space of a narrow window.
    let mut text = format!(
        "<div class=\"wide\"><table class=\"answers curve\"><tr><th>{}</th><th>time</th><th>90 % \
         between</th><th class=\"rest\">relative to the fastest</th><th class=\"text\">remarks</th></tr>",
        escape(&knee.over)
    );
    let fastest_ns = knee.curve.iter().map(|point| point.time_ns).fold(f64::INFINITY, f64::min);
    for point in &knee.curve {
        let _ = write!(
            text,
            "<tr{}><td>{}</td><td>{}</td><td>{}</td><td class=\"rest\">{:.2}×</td><td class=\"text\">{}</td></tr>",
            if point.at == knee.knee { " class=\"ours\"" } else { "" },
            point.at,
            format_duration(point.time_ns),
            format_range(point.low_ns, point.high_ns),
            point.time_ns / fastest_ns,
            escape(&point_remark(knee, point))
        );
    }
    format!("{text}</table></div>{}", wider_note(&["the times relative to the fastest"]))
}

/// Describes a point of a curve for terminal and page: the knee, and a measurement.
pub fn point_remark(knee: &Knee, point: &Point) -> String {
    let probe = knee.probes.iter().find(|probe| probe.at == point.at);
    let remark = probe.map_or(String::new(), |probe| {
        let known = probe
            .uncertainty
            .map_or(String::new(), |half| format!(", uncertainty of the median {:.1} %", 100.0 * half));
        let spread = probe.cv.map_or(String::new(), |cv| format!(" (CV {:.0} %{known})", 100.0 * cv));
        let predicted = match probe.predicted_ns.is_finite() {
            true => format!(", predicted {}", format_duration(probe.predicted_ns)),
            false => String::new(),
        };
        format!("measured {}{spread}{predicted}", format_duration(probe.measured_ns))
    });
    let name = (point.at == knee.knee).then(|| name_knee(knee));
    let unseen = knee.unseen.contains(&point.at).then(|| "outside of the training range".to_owned());
    let parts = [name, Some(remark).filter(|remark| !remark.is_empty()), unseen];
    parts.into_iter().flatten().collect::<Vec<String>>().join(", ")
}

/// Names the value of the knee for tables.
fn name_knee(knee: &Knee) -> String {
    let name = match Finding::from_knee(knee) {
        Finding::Falls => "fastest",
        Finding::Isolated => "fastest, isolated",
        Finding::Knee => "knee",
    };
    if knee.overlaps_all() { format!("{name}; uncertain") } else { name.to_owned() }
}

/// States how many other values have intervals that overlap the interval of the knee.
fn describe_overlap(knee: &Knee) -> Option<String> {
    let count = knee.count_overlaps()?;
    let smallest = format_plain(knee.knee);
    let all = knee.considered_points().count() - 1;
    (count > 0).then(|| {
        let whose = match (count == all, all) {
            (true, 1) => "the other value".to_owned(),
            (true, _) => "all other values".to_owned(),
            (false, _) => format!("{count} of {all} other values"),
        };
        format!(" The 90 % interval of {smallest} overlaps that of {whose}: a measurement may rank them differently.")
    })
}

/// Describes the time at a value of the curve, with its interval.
fn time_at(knee: &Knee, at: f64) -> String {
    let point = knee.curve.iter().find(|point| point.at == at);
    point.map_or(String::new(), |point| match point.has_interval() {
        true => {
            let range = format_range(point.low_ns, point.high_ns);
            format!(" ({}, 90 % between {range})", format_duration(point.time_ns))
        }
        false => format!(" ({})", format_duration(point.time_ns)),
    })
}

pub fn describe_knee(knee: &Knee) -> String {
    let what = &knee.over;
    let (fastest, smallest) = (format_plain(knee.fastest), format_plain(knee.knee));
    let time = time_at(knee, knee.knee);
    let finding = Finding::from_knee(knee);
    let source = match knee.probes.len() {
        0 => " Times are predicted.".to_owned(),
        count => format!(" Times are predicted, then updated with {}.", format_count(count, "measurement")),
    };
    let mut text = match (&finding, knee.knee == knee.fastest) {
        (Finding::Falls, _) => {
            format!("No knee up to {what} = {smallest}{time}: the time still falls at this last value.")
        }
        (Finding::Isolated, _) => {
            let ratio = knee.ratio_to_neighbours().unwrap_or(1.0);
            format!(
                "No clear knee: {what} = {smallest}{time} is fastest, but isolated: the values next to it take at \
                 least {ratio:.2} times as long."
            )
        }
        (Finding::Knee, true) => {
            format!("Knee: {what} = {smallest}{time}, the fastest time; no smaller value is within 5 % of it.")
        }
        (Finding::Knee, false) => format!(
            "Knee: {what} = {smallest}{time}, the smallest value within 5 % of the fastest time. Fastest: {what} = \
             {fastest}{}.",
            time_at(knee, knee.fastest)
        ),
    };
    match knee.turns_at {
        Some(at) => {
            let _ = write!(text, " From {} on, the time does not fall.", format_plain(at));
        }
        None if matches!(finding, Finding::Falls) => {}
        None => text += " The time falls at the last point.",
    }
    text += &describe_overlap(knee).unwrap_or_default();
    text += &describe_unseen(knee);
    if let Some(law) = &knee.law {
        let _ = write!(
            text,
            " Scaling law: contention {:.3}, coherence {:.5}, median error {:.1} %",
            law.contention, law.coherence, law.error
        );
        for step in &law.breaks {
            let _ = write!(text, ", a step of × {:.2} at {}", step.factor, format_plain(step.at));
        }
        text += ".";
    }
    if !knee.fixed.is_empty() {
        let _ = write!(text, " Fixed: {}.", knee.fixed.join(", "));
    }
    text + &source
}

/// Lists the values outside of the training range.
fn describe_unseen(knee: &Knee) -> String {
    let is_unseen = |point: &Point| knee.unseen.contains(&point.at);
    let runs = knee.curve.chunk_by(|one, other| is_unseen(one) == is_unseen(other));
    let range = |run: &[Point]| match run {
        [one] => format_plain(one.at),
        run => format!("{} to {}", format_plain(run[0].at), format_plain(run[run.len() - 1].at)),
    };
    let ranges: Vec<String> = runs.filter(|run| is_unseen(&run[0])).map(range).collect();
    if ranges.is_empty() {
        return String::new();
    }
    let (verb, them) = if knee.unseen.len() == 1 { ("is", "it") } else { ("are", "them") };
    let is_ignored = knee.considered_points().count() < knee.curve.len();
    let ignored = if is_ignored { format!("; the knee does not depend on {them}") } else { String::new() };
    format!(" {} {verb} outside of the training range{ignored}.", ranges.join(" and "))
}

struct CurveTimes {
    scale: Scale,
    marks: Vec<(f64, String)>,
    unit_ns: f64,
    /// Name of the unit; empty if each mark of the scale has its own unit.
    name: &'static str,
}

impl CurveTimes {
    fn from_knee(knee: &Knee, top: f64) -> CurveTimes {
        let probes = || knee.probes.iter().map(|probe| probe.measured_ns);
        let highs =
            knee.curve.iter().map(|point| if point.high_ns.is_finite() { point.high_ns } else { point.time_ns });
        let lows = knee.curve.iter().map(|point| if point.low_ns > 0.0 { point.low_ns } else { point.time_ns });
        let most = highs.chain(probes()).fold(0.0, f64::max);
        let least = lows.chain(probes()).fold(f64::INFINITY, f64::min);
        let shortest = knee.curve.iter().map(|point| point.time_ns).fold(f64::INFINITY, f64::min);
        let (unit_ns, name) = time_unit(most);
        let places = (HEIGHT - BOTTOM, top);
        if least > 0.0 && most > FLAT * shortest {
            let (low, high) = (0.8 * least, 1.25 * most);
            let marks =
                decades_between(low, high).into_iter().map(|time| (time / unit_ns, format_duration(time))).collect();
            let scale = Scale { range: (low / unit_ns, high / unit_ns), places, is_log: true };
            return CurveTimes { scale, marks, unit_ns, name: "" };
        }
        let scale = Scale { range: (0.0, 1.04 * most / unit_ns), places, is_log: false };
        let marks =
            round_ticks(scale.range.0, scale.range.1, 6).into_iter().map(|tick| (tick, format_plain(tick))).collect();
        CurveTimes { scale, marks, unit_ns, name }
    }

    fn place_time(&self, time_ns: f64) -> f64 {
        self.scale.coordinate_of(time_ns / self.unit_ns)
    }

    fn draw_grid(&self, width: f64) -> String {
        let mut svg = String::new();
        for (tick, text) in &self.marks {
            let place = self.scale.coordinate_of(*tick);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{place:.1}\" y2=\"{place:.1}\"/>\
                 <text class=\"soft\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
                width - RIGHT,
                LEFT - 8.0,
                place + 4.0
            );
        }
        svg
    }
}

fn draw_curve(knee: &Knee, width: f64) -> String {
    let top = if width < WIDTH { NARROW_TOP } else { TOP };
    let (first, last) =
        (knee.curve.first().map_or(0.0, |point| point.at), knee.curve.last().map_or(1.0, |point| point.at));
    // The scale of knobs is logarithmic, the scale of threads only if the range is wide.
    let is_log = first > 0.0 && (knee.over != "threads" || last > WIDE * first);
    let across = Scale { range: (first, last), places: (LEFT + 14.0, width - RIGHT - 14.0), is_log };
    let times = CurveTimes::from_knee(knee, top);
    let (x, y) = (|at: f64| across.coordinate_of(at), |time_ns: f64| times.place_time(time_ns));
    let mut svg = svg_start(width, HEIGHT, &format!("time over {}", knee.over));
    svg += &times.draw_grid(width);
    svg += &draw_value_axis(knee, &across, width);
    let name = if times.name.is_empty() { "time (log scale)".to_owned() } else { format!("time, {}", times.name) };
    let _ = write!(svg, "<text class=\"soft\" x=\"10\" y=\"{}\">{name}</text>", top - 14.0);
    let line = |time_ns: &dyn Fn(usize) -> f64| {
        let points = knee.curve.iter().enumerate().map(|(place, point)| (point.at, time_ns(place)));
        let known = points.filter(|(_, time_ns)| time_ns.is_finite());
        known.map(|(at, time_ns)| format!("{:.1},{:.1}", x(at), y(time_ns))).collect::<Vec<_>>()
    };
    if knee.curve.iter().all(|point| point.high_ns.is_finite()) {
        let mut band = line(&|place| knee.curve[place].high_ns);
        band.extend(line(&|place| knee.curve[place].low_ns).into_iter().rev());
        let _ = write!(svg, "<polygon class=\"down\" fill-opacity=\".16\" points=\"{}\"/>", band.join(" "));
    }
    if let Some(law) = &knee.law {
        let _ = write!(svg, "<polyline class=\"law\" points=\"{}\"/>", line(&|place| law.times_ns[place]).join(" "));
        for step in &law.breaks {
            let _ = write!(
                svg,
                "<text class=\"soft\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">step × {:.2}</text>",
                x(step.at),
                HEIGHT - BOTTOM - 8.0,
                step.factor
            );
        }
    }
    let _ = write!(svg, "<polyline class=\"line\" points=\"{}\"/>", line(&|place| knee.curve[place].time_ns).join(" "));
    svg += &draw_whiskers(knee, x, y);
    svg += &draw_knee(knee, x(knee.knee), width, top);
    for point in &knee.curve {
        let _ = write!(
            svg,
            "<circle class=\"dot\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"{}\"><title>{} = {}{}</title></circle>",
            x(point.at),
            y(point.time_ns),
            if knee.curve.len() > MOST_MARKED { 2.0 } else { 3.4 },
            escape(&knee.over),
            format_plain(point.at),
            time_at(knee, point.at)
        );
    }
    for probe in &knee.probes {
        let _ = write!(
            svg,
            "<rect class=\"probe\" width=\"9\" height=\"9\" transform=\"translate({:.1} {:.1}) rotate(45) \
             translate(-4.5 -4.5)\"><title>measured: {}</title></rect>",
            x(probe.at),
            y(probe.measured_ns),
            format_duration(probe.measured_ns)
        );
    }
    svg + &draw_legend(knee, width) + "</svg>"
}

/// Draws the axis of threads or of the knob, with labels of the points that have space.
fn draw_value_axis(knee: &Knee, across: &Scale, width: f64) -> String {
    let mut svg = String::new();
    let mut free = f64::NEG_INFINITY;
    for point in &knee.curve {
        let (place, text) = (across.coordinate_of(point.at), format_plain(point.at));
        let half = 3.5 * text.len() as f64;
        if place - half < free {
            continue;
        }
        free = place + half + 8.0;
        let y = HEIGHT - BOTTOM + 18.0;
        let _ = write!(svg, "<text class=\"soft\" x=\"{place:.1}\" y=\"{y}\" text-anchor=\"middle\">{text}</text>");
    }
    let floor = HEIGHT - BOTTOM;
    let _ = write!(
        svg,
        "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{floor}\" y2=\"{floor}\"/>\
         <text class=\"soft\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}{}</text>",
        width - RIGHT,
        (LEFT + width - RIGHT) / 2.0,
        HEIGHT - 12.0,
        escape(&knee.over),
        if across.is_log { " (log scale)" } else { "" }
    );
    svg
}

/// Marks the knee, or the fastest value of a curve that has none.
fn draw_knee(knee: &Knee, at: f64, width: f64, top: f64) -> String {
    let (anchor, aside) = if at > width / 2.0 { ("end", -6.0) } else { ("start", 6.0) };
    let name = match Finding::from_knee(knee) {
        Finding::Falls | Finding::Isolated => "fastest",
        Finding::Knee => "knee",
    };
    let doubt = if knee.overlaps_all() { " (uncertain)" } else { "" };
    format!(
        "<line class=\"at\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{}\"/>\
         <text class=\"mark\" x=\"{:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{name}: {}{doubt}</text>",
        HEIGHT - BOTTOM,
        at + aside,
        top + 10.0,
        format_plain(knee.knee)
    )
}

/// Draws the interval of each point, unless there are too many.
fn draw_whiskers(knee: &Knee, x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64) -> String {
    if knee.curve.len() > MOST_MARKED {
        return String::new();
    }
    let mut svg = String::new();
    for point in knee.curve.iter().filter(|point| point.has_interval()) {
        let (x, low, high) = (x(point.at), y(point.low_ns), y(point.high_ns));
        let _ = write!(
            svg,
            "<path class=\"interval\" d=\"M{x:.1} {low:.1}V{high:.1}M{:.1} {low:.1}h8M{:.1} {high:.1}h8\"/>",
            x - 4.0,
            x - 4.0
        );
    }
    svg
}

fn draw_legend(knee: &Knee, width: f64) -> String {
    const START: f64 = 10.0;
    const ROW: f64 = 20.0;
    let mut svg = String::new();
    let (mut place, mut row) = (START, 12.0);
    let mut entry = |sign: &str, text: &str| {
        let taken = 46.0 + 6.6 * text.chars().count() as f64;
        if place + taken > width {
            (place, row) = (START, row + ROW);
        }
        let _ = write!(
            svg,
            "<g transform=\"translate({place:.0} {row:.0})\">{sign}<text class=\"soft\" x=\"28\" \
             y=\"4\">{text}</text></g>"
        );
        place += taken;
    };
    entry("<line class=\"line\" x2=\"22\"/><circle class=\"dot\" cx=\"11\" r=\"3.4\"/>", "expected");
    if knee.curve.iter().all(|point| point.high_ns.is_finite()) {
        entry("<rect class=\"down\" fill-opacity=\".16\" y=\"-6\" width=\"22\" height=\"12\"/>", "90 % interval");
    }
    if knee.law.is_some() {
        entry("<line class=\"law\" x2=\"22\"/>", "scaling law");
    }
    if !knee.probes.is_empty() {
        entry(
            "<rect class=\"probe\" width=\"9\" height=\"9\" transform=\"translate(11 0) rotate(45) \
             translate(-4.5 -4.5)\"/>",
            "measured",
        );
    }
    svg
}

#[cfg(test)]
mod tests {
    use super::{describe_knee, draw_curve, point_remark};
    use crate::knee::{Point, knee_of_curve};

    fn curve(times_ns: &[f64]) -> Vec<Point> {
        let point = |(place, time_ns): (usize, &f64)| Point {
            at: place as f64 + 1.0,
            time_ns: *time_ns,
            low_ns: time_ns / 1.5,
            high_ns: time_ns * 1.5,
        };
        times_ns.iter().enumerate().map(point).collect()
    }

    #[test]
    fn a_dip_of_one_uncertain_point_is_no_knee() {
        let times_ns = [469e3, 348e3, 367e3, 223e3, 337e3, 301e3];
        let found = knee_of_curve("tile_p", curve(&times_ns)).expect("a curve");
        let text = describe_knee(&found);
        assert!(text.starts_with("No clear knee: tile_p = 4 (223 µs, 90 % between"), "{text}");
        assert!(text.contains("at least 1.51 times as long") && text.contains("all other values"), "{text}");
        assert!(draw_curve(&found, 440.0).contains(">fastest: 4 (uncertain)</text>"));
        let smooth = [469e3, 348e3, 260e3, 223e3, 240e3, 301e3];
        let text = describe_knee(&knee_of_curve("tile_p", curve(&smooth)).expect("a curve"));
        assert!(text.starts_with("Knee: tile_p = 4"), "{text}");
    }

    #[test]
    fn a_curve_that_falls_to_its_end_has_no_knee() {
        let falling = knee_of_curve("threads", curve(&[432e3, 224e3])).expect("a curve");
        let text = describe_knee(&falling);
        assert!(text.starts_with("No knee up to threads = 2 (224 µs, 90 % between"), "{text}");
        assert!(text.contains("the time still falls") && text.contains("overlaps that of the other value:"), "{text}");
        assert!(text.ends_with(" Times are predicted."), "{text}");
        let svg = draw_curve(&falling, 440.0);
        assert!(svg.contains(">fastest: 2 (uncertain)</text>") && !svg.contains("knee:"), "{svg}");
        assert_eq!(point_remark(&falling, &falling.curve[1]), "fastest; uncertain");
        let clear = knee_of_curve("threads", curve(&[900e3, 224e3])).expect("a curve");
        assert!(draw_curve(&clear, 440.0).contains(">fastest: 2</text>"), "the intervals do not overlap");
        assert_eq!(point_remark(&clear, &clear.curve[1]), "fastest");
        let turning = knee_of_curve("threads", curve(&[900e3, 224e3, 300e3])).expect("a curve");
        let text = describe_knee(&turning);
        assert!(
            text.starts_with("Knee: threads = 2") && text.contains("overlaps that of 1 of 2 other values"),
            "{text}"
        );
    }
}
