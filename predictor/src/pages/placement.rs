//! A placement for the browser: what each operator pays on each device.

use super::{escape, page};
use crate::planning::tables::TimesTable;
use planners::placement::{Instance, Placement};
use report::duration;
use std::fmt::Write;

/// The page of a placement.
pub fn placement(table: &TimesTable, instance: &Instance, found: &Placement) -> String {
    let mut body = format!(
        "<p>makespan {}; {}; the largest gain of any single move is {}.</p><table><tr><th>operator</th>",
        duration(found.makespan_ns),
        if found.is_exact {
            "the best of all assignments".to_owned()
        } else {
            format!("at most {:.3} times the best", found.ratio_most())
        },
        duration(found.largest_gain_ns.max(0.0)),
    );
    for device in &table.devices {
        let _ = write!(body, "<th>{}</th>", escape(device));
    }
    body.push_str("</tr>");
    for (operator, name) in table.operators.iter().enumerate() {
        let _ = write!(body, "<tr><td>{}</td>", escape(name));
        for (device, pays) in found.pays_ns[operator].iter().enumerate() {
            let own = duration(instance.times_ns[operator][device]);
            let text = format!("{} <span class=\"soft\">(alone {own})</span>", duration(*pays));
            let text = if device == found.devices[operator] { format!("<b>{text}</b>") } else { text };
            let _ = write!(body, "<td>{text}</td>");
        }
        body.push_str("</tr>");
    }
    body.push_str("</table><p class=\"soft\">Bold: where it is. Other columns: what it would pay there while all others stay.</p>");
    page("Operators on devices", &body)
}
