//! Simulates lanes of operators: lanes start together and run concurrently, the operators of a lane sequentially.

use super::{Demand, Machine, relative_speeds};

#[derive(Clone, Debug)]
pub struct Lane<'a> {
    pub cores: usize,
    pub operators: Vec<&'a Demand>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LaneEnds {
    pub ends_ns: Vec<Vec<f64>>,
    pub total_ns: f64,
}

pub fn simulate_lanes(machine: &Machine, lanes: &[Lane<'_>]) -> LaneEnds {
    let mut ends_ns: Vec<Vec<f64>> = lanes.iter().map(|lane| Vec::with_capacity(lane.operators.len())).collect();
    // Remaining time alone of each lane's current operator.
    let alone = |lane: &Lane<'_>, place: usize| lane.operators.get(place).map(|one| one.time_alone(lane.cores));
    let mut left_ns: Vec<Option<f64>> = lanes.iter().map(|lane| alone(lane, 0)).collect();
    let mut now_ns = 0.0;
    loop {
        let active: Vec<usize> = (0..lanes.len()).filter(|&lane| left_ns[lane].is_some()).collect();
        if active.is_empty() {
            return LaneEnds { ends_ns, total_ns: now_ns };
        }
        let running: Vec<(usize, &Demand)> =
            active.iter().map(|&lane| (lanes[lane].cores, lanes[lane].operators[ends_ns[lane].len()])).collect();
        let speeds = relative_speeds(machine, &running);
        let until_end = |(&lane, speed): (&usize, &f64)| left_ns[lane].map_or(f64::INFINITY, |left| left / speed);
        let waits: Vec<f64> = active.iter().zip(&speeds).map(until_end).collect();
        let phase_ns = waits.iter().copied().fold(f64::INFINITY, f64::min);
        now_ns += phase_ns;
        for ((&lane, speed), wait) in active.iter().zip(&speeds).zip(&waits) {
            // Operators that end within rounding error of this phase end with it.
            if *wait <= phase_ns * (1.0 + 1e-12) {
                ends_ns[lane].push(now_ns);
                left_ns[lane] = alone(&lanes[lane], ends_ns[lane].len());
            } else {
                left_ns[lane] = left_ns[lane].map(|left| left - phase_ns * speed);
            }
        }
    }
}
