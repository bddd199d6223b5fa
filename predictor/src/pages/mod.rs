//! HTML pages that need no server: evaluations, heat maps and curves, as text and inline SVG without scripts.

mod curve;
mod evaluation;
mod evaluation_charts;
mod evaluation_errors;
mod evaluation_ranking;
mod evaluation_verdict;
mod heat_map;
mod lanes;
mod placement;
mod plan_times;
mod slowdowns;
mod swarm;

pub use curve::{curves_page, describe_knee, point_remark};
pub use evaluation::{evaluation_tables, other_coverage};
pub use evaluation_errors::{
    describe_repeats, format_bias, format_coverage, format_error, format_error_interval, format_network_interval,
    learner_label, sort_learners,
};
pub use evaluation_ranking::{format_rank, format_top1_interval, sort_ranking};
pub use heat_map::{SIGNIFICANT, format_q_value, heat_map};
pub use lanes::{Lane, MeasuredLanes, plan_page};
pub use placement::{describe_move, describe_placement, placement_page};
pub use plan_times::{PlanFacts, describe_plan};
pub use slowdowns::slowdowns_page;
pub use swarm::swarm_page;

use report::page::{break_name, escape_html as escape, wider_note};

/// Minimum acceptable actual coverage of 90 % intervals, in percent.
pub const KEPT: f64 = 85.0;

const STYLE: &str = include_str!("pages.css");

/// Keeps numbers and percent signs on the same line.
fn keep_percent(body: &str) -> String {
    body.replace(" %", "\u{a0}%")
}

fn styled_page(title: &str, body: &str) -> String {
    let style = format!("{}{STYLE}", report::page::chart::STYLE);
    report::page::whole_page(title, &style, &format!("<main><h1>{}</h1>\n{body}</main>", escape(title)))
}
