//! `doctor --noise`: how much this machine's times scatter from visit to visit.

use super::{DONE, Result, paper, print, print_json};
use datasets::OverVisits;
use engine::failure::Failure;
use engine::machine;
use measure::host::{FLOOR_ROUNDS, Facts, FloorVisits, floor_visits};
use measure::statistics::median;
use report::{Table, figures, or_unknown, percent, words};
use serde::Serialize;
use std::time::Duration;

/// How long it takes.
const DURATION: Duration = Duration::from_secs(60);

/// What visits of one piece of work showed.
#[derive(Serialize)]
struct Floor {
    work: String,
    threads: usize,
    visits: usize,
    /// Half-width of the interval within a visit over its median, in the middle.
    within_visit: Option<f64>,
    /// Standard deviation of the logarithms of the visits' medians.
    between_visits: Option<f64>,
    /// Half-width of the interval for the median of three visits.
    three_visits: Option<f64>,
    largest_over_smallest: f64,
}

/// Everything `--json` prints.
#[derive(Serialize)]
struct Report {
    host: String,
    host_class: String,
    seconds: u64,
    floors: Vec<Floor>,
}

/// Visits fixed pieces of work for a minute.
pub fn run(as_json: bool) -> Result<u8> {
    let (facts, cpus) = (Facts::read(), machine::allowed_cpus()?);
    let _exclusive = crate::exclusive(0)?;
    let mut told = |round: u32| {
        if round.is_multiple_of(FLOOR_ROUNDS / 4) {
            super::tell(&[format!("round {round} of {FLOOR_ROUNDS}")]);
        }
    };
    let visits = floor_visits(DURATION, &facts, &cpus, &mut told).map_err(Failure::environment)?;
    let report = Report {
        host: facts.hostname.clone().unwrap_or_else(|| "this host".to_owned()),
        host_class: facts.host_class(),
        seconds: DURATION.as_secs(),
        floors: visits.iter().map(floor).collect(),
    };
    if as_json {
        print_json(&report)?
    } else {
        print(&describe(&report))?
    }
    Ok(DONE)
}

fn floor(of: &FloorVisits) -> Floor {
    let medians: Vec<f64> = of.visits.iter().map(|visit| visit.median_ns).collect();
    let within =
        |visit: &measure::Measurement| visit.median_interval_ns.map(|(low, high)| (high - low) / 2.0 / visit.median_ns);
    let mut widths: Vec<f64> = of.visits.iter().filter_map(within).collect();
    widths.sort_by(f64::total_cmp);
    let known = OverVisits::of_medians(1.0, &medians);
    let least = medians.iter().copied().fold(f64::INFINITY, f64::min);
    Floor {
        work: of.load.to_string(),
        threads: of.threads,
        visits: medians.len(),
        within_visit: (!widths.is_empty()).then(|| median(&widths)),
        between_visits: known.spread,
        three_visits: OverVisits::expected(known.spread, 3),
        largest_over_smallest: medians.iter().copied().fold(0.0, f64::max) / least,
    }
}

fn describe(report: &Report) -> String {
    let mut table = Table::new([
        words("work"),
        figures("threads"),
        figures("visits").drops(2),
        figures("within a visit"),
        figures("between visits"),
        figures("± of 3 visits"),
        figures("largest / smallest").drops(1),
    ]);
    for floor in &report.floors {
        table.row([
            floor.work.clone(),
            floor.threads.to_string(),
            floor.visits.to_string(),
            or_unknown(floor.within_visit, percent),
            or_unknown(floor.between_visits, percent),
            or_unknown(floor.three_visits, percent),
            format!("{:.2}", floor.largest_over_smallest),
        ]);
    }
    let worst = report.floors.iter().filter_map(|floor| floor.three_visits).fold(0.0, f64::max);
    format!(
        "noise floor of {} over {} s\n{}\nwithin a visit: half-width of the interval that samples of one visit give; between visits: \
         standard deviation of their medians\ndifferences below {} between two measurements of three visits each are noise here; \
         docs/guide/measuring.md says how to lower it",
        report.host,
        report.seconds,
        table.on(&paper()),
        percent(worst),
    )
}
