//! Pages a browser shows without help: evaluations, heat maps, curves. Text, inline SVG, no scripts.

mod curve;
mod evaluation;
mod evaluation_charts;
mod heat_map;
mod lanes;
mod placement;
mod slowdowns;
mod swarm;

pub use curve::{curves, summary};
pub use evaluation::evaluation;
pub use heat_map::{SIGNIFICANT, heat_map};
pub use lanes::{Lane, MeasuredLanes, lanes};
pub use placement::placement;
pub use slowdowns::slowdowns;
pub use swarm::swarms;

use report::page::escaped as escape;

/// A share of measurements inside of intervals, in percent, below which those break their promise of 90 %.
pub const KEPT: f64 = 85.0;

/// In narrow windows names wrap, so that figures stay in sight.
const NARROW: &str = "@media (max-width: 600px) {
  th, td { padding: .2rem .4rem; white-space: nowrap; }
  td:first-child { white-space: normal; min-width: 11rem; overflow-wrap: anywhere; }
}
";

fn page(title: &str, body: &str) -> String {
    let style = format!("{}{NARROW}", report::page::chart::STYLE);
    report::page::page(title, &style, &format!("<main><h1>{}</h1>\n{body}</main>", escape(title)))
}
