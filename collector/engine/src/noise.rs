//! Noise floor of this machine: scatter of the times of fixed workloads between visits (repeated measurements).

use crate::failure::Failure;
use crate::observer::Observer;
use crate::{Result, machine};
use datasets::OverVisits;
use measure::host::{FLOOR_ROUNDS, Facts, FloorVisits, floor_visits};
use measure::statistics::median;
use report::{Paper, Table, format_percent, number_column, or_unknown, text_column};
use serde::Serialize;
use std::time::Duration;

const DURATION: Duration = Duration::from_secs(60);

#[derive(Serialize)]
struct Floor {
    work: String,
    threads: usize,
    visits: usize,
    /// Relative half-width of the confidence interval within a visit; median over all visits.
    within_visit: Option<f64>,
    /// Standard deviation of the logarithms of the visits' medians.
    between_visits: Option<f64>,
    /// Expected half-width of the confidence interval for the median of three visits, relative to the median.
    three_visits: Option<f64>,
    largest_over_smallest: f64,
}

/// The noise floor of a machine.
#[derive(Serialize)]
pub struct NoiseReport {
    host: String,
    host_class: String,
    seconds: u64,
    floors: Vec<Floor>,
}

/// Measures fixed workloads repeatedly for a minute, while no other process measures.
pub fn measure_noise(observer: &dyn Observer) -> Result<NoiseReport> {
    let (facts, cpus) = (Facts::read_facts(), machine::allowed_cpus()?);
    let _exclusive = machine::lock_cpus(0, observer)?;
    let mut note_round = |round: u32| {
        if round.is_multiple_of(FLOOR_ROUNDS / 4) {
            observer.note(format!("round {round} of {FLOOR_ROUNDS}"));
        }
    };
    let visits = floor_visits(DURATION, &facts, &cpus, &mut note_round).map_err(Failure::environment)?;
    Ok(NoiseReport {
        host: facts.hostname.clone().unwrap_or_else(|| "this host".to_owned()),
        host_class: facts.host_class(),
        seconds: DURATION.as_secs(),
        floors: visits.iter().map(compute_floor).collect(),
    })
}

fn compute_floor(of: &FloorVisits) -> Floor {
    let medians: Vec<f64> = of.visits.iter().map(|visit| visit.median_ns).collect();
    let within =
        |visit: &measure::Measurement| visit.median_interval_ns.map(|(low, high)| (high - low) / 2.0 / visit.median_ns);
    let widths: Vec<f64> = of.visits.iter().filter_map(within).collect();
    let known = OverVisits::of_medians(1.0, &medians);
    let least = medians.iter().copied().fold(f64::INFINITY, f64::min);
    Floor {
        work: of.load.to_string(),
        threads: of.threads,
        visits: medians.len(),
        within_visit: median(&widths),
        between_visits: known.spread,
        three_visits: OverVisits::expected_half_width(known.spread, 3),
        largest_over_smallest: medians.iter().copied().fold(0.0, f64::max) / least,
    }
}

impl NoiseReport {
    /// Formats the noise floor, and the smallest difference that can be distinguished from noise.
    pub fn text(&self, paper: &Paper) -> String {
        let mut table = Table::new([
            text_column("work"),
            number_column("threads"),
            number_column("visits").drop_order(2),
            number_column("within a visit"),
            number_column("between visits"),
            number_column("± of 3 visits"),
            number_column("largest / smallest").drop_order(1),
        ]);
        for floor in &self.floors {
            table.add_row([
                floor.work.clone(),
                floor.threads.to_string(),
                floor.visits.to_string(),
                or_unknown(floor.within_visit, format_percent),
                or_unknown(floor.between_visits, format_percent),
                or_unknown(floor.three_visits, format_percent),
                format!("{:.2}", floor.largest_over_smallest),
            ]);
        }
        let worst = self.floors.iter().filter_map(|floor| floor.three_visits).fold(0.0, f64::max);
        format!(
            "noise floor of {} over {} s\n{}\nwithin a visit: half-width of the confidence interval from the samples \
             of one visit; between visits: standard deviation of their medians\ndifferences below {} between two \
             measurements of three visits each are noise here; docs/guide/measuring.md describes how to lower it",
            self.host,
            self.seconds,
            table.format_for(paper),
            format_percent(worst),
        )
    }
}
