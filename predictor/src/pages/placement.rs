//! HTML page of a placement: the cost of each operator on its device and on every other device.

use super::{escape, styled_page};
use crate::planning::tables::TimesTable;
use planners::placement::{Instance, Placement};
use report::format_duration;
use report::page::chart::{Scale, format_tick, label_width, round_ticks, svg_start};
use std::fmt::Write;

pub fn placement_page(table: &TimesTable, instance: &Instance, found: &Placement) -> String {
    let mut body = format!(
        "<p>Makespan {}; {}; largest gain of a single move: {}.</p><figure>{}</figure>\
         <p class=\"soft\">Total work of each device; waits and transfers are not drawn.</p>\
         <div class=\"wide\"><table><tr><th>operator</th>",
        format_duration(found.makespan_ns),
        if found.is_exact {
            "the optimal assignment".to_owned()
        } else {
            format!("at most {:.3} times the optimum", found.ratio_most())
        },
        format_duration(found.largest_gain_ns.max(0.0)),
        draw_devices(table, instance, found),
    );
    for device in &table.devices {
        let _ = write!(body, "<th>{}</th>", escape(device));
    }
    body.push_str("</tr>");
    for (operator, name) in table.operators.iter().enumerate() {
        let _ = write!(body, "<tr><td>{}</td>", escape(name));
        for (device, pays) in found.pays_ns[operator].iter().enumerate() {
            let own = format_duration(instance.times_ns[operator][device]);
            let text = format!("{} <span class=\"soft\">(isolated {own})</span>", format_duration(*pays));
            let text = if device == found.devices[operator] { format!("<b>{text}</b>") } else { text };
            let _ = write!(body, "<td>{text}</td>");
        }
        body.push_str("</tr>");
    }
    body.push_str("</table></div><p class=\"soft\">Bold: cost on the assigned device. Other columns: cost on that device if all other operators stay.</p>");
    styled_page("Operators on devices", &body)
}

const WIDTH: f64 = 900.0;
const LANE: f64 = 40.0;

fn draw_devices(table: &TimesTable, instance: &Instance, found: &Placement) -> String {
    const LETTER: f64 = 6.3;
    let left = 20.0 + label_width(table.devices.iter().map(String::as_str)).min(WIDTH / 3.0);
    let of_device =
        |device: usize| (0..table.operators.len()).filter(move |&operator| found.devices[operator] == device);
    let busy_ns = |device: usize| of_device(device).map(|operator| instance.times_ns[operator][device]).sum::<f64>();
    let longest_ns = (0..table.devices.len()).map(busy_ns).fold(1.0, f64::max);
    let scale = Scale { range: (0.0, longest_ns), places: (left, WIDTH - 40.0), is_log: false };
    let height = LANE * table.devices.len() as f64;
    let mut picture = svg_start(WIDTH, height + 24.0, "operators of each device");
    for tick in round_ticks(0.0, longest_ns, 6) {
        let (x, y) = (scale.coordinate_of(tick), height + 16.0);
        let time = format_tick(tick);
        let _ = write!(picture, "<text class=\"soft\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{time}</text>");
    }
    for (device, name) in table.devices.iter().enumerate() {
        let (top, x) = (LANE * device as f64, left - 8.0);
        let y = top + LANE / 2.0 + 2.0;
        let _ = write!(picture, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>", escape(name));
        let mut begin_ns = 0.0;
        for (place, operator) in of_device(device).enumerate() {
            let end_ns = begin_ns + instance.times_ns[operator][device];
            let (from, to) = (scale.coordinate_of(begin_ns), scale.coordinate_of(end_ns));
            let (label, depth) = (&table.operators[operator], if place % 2 == 0 { 0.75 } else { 0.5 });
            let _ = write!(
                picture,
                "<rect class=\"down\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\" \
                 fill-opacity=\"{depth}\"><title>{}: {}</title></rect>",
                top + 3.0,
                (to - from - 0.6).max(0.6),
                LANE - 8.0,
                escape(label),
                format_duration(end_ns - begin_ns)
            );
            if to - from > LETTER * (label.chars().count() + 1) as f64 {
                let _ = write!(
                    picture,
                    "<text class=\"inside\" x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
                    from + 4.0,
                    escape(label)
                );
            }
            begin_ns = end_ns;
        }
    }
    picture + "</svg>"
}
