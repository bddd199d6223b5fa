//! Pages a browser shows without help: evaluations, heat maps, curves. Text, inline SVG, no scripts.

mod chart;
mod curve;
mod evaluation;
mod evaluation_charts;
mod heat_map;
mod swarm;

pub use curve::{curves, summary};
pub use evaluation::evaluation;
pub use heat_map::{SIGNIFICANT, heat_map};
pub use swarm::swarms;

/// A share of measurements inside of intervals, in percent, below which those break their promise of 90 %.
pub const KEPT: f64 = 85.0;

const STYLE: &str = include_str!("style.css");

fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
        <title>{title}</title><style>{STYLE}</style>\n<h1>{title}</h1>\n{body}\n</html>\n"
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
