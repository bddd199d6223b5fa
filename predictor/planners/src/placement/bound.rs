//! A lower bound of the makespan over all assignments.
//!
//! For any device weights that sum to one, the makespan is at least the sum over operators of the smallest weighted
//! time (Lagrangian dual of the assignment). A subgradient method moves the weights towards overloaded devices. With
//! edges, the critical path at the fastest times is a bound, too.

use super::Game;
use crate::topological_order;

const STEPS: usize = 400;

pub(super) fn lower_bound(game: &Game<'_>) -> f64 {
    let instance = game.instance;
    let fastest = |times: &Vec<f64>| times.iter().copied().fold(f64::INFINITY, f64::min);
    let longest = instance.times_ns.iter().map(fastest).fold(0.0, f64::max);
    let frugal: f64 = (0..instance.times_ns.len())
        .map(|operator| {
            let energies = (0..instance.device_count()).map(|device| game.energy_on(operator, device));
            energies.fold(f64::INFINITY, f64::min)
        })
        .sum();
    longest.max(critical_path(game)).max(weighted_load_bound(game)) + instance.price_ns_per_j * frugal
}

fn weighted_load_bound(game: &Game<'_>) -> f64 {
    let times = &game.instance.times_ns;
    let count = game.instance.device_count();
    let mut weights = vec![1.0 / count as f64; count];
    let mut most = 0.0f64;
    for step in 0..STEPS {
        let (mut value, mut loads) = (0.0, vec![0.0; count]);
        for times in times {
            let weigh = |device: &usize| weights[*device] * times[*device];
            let chosen = (0..count).min_by(|one, other| weigh(one).total_cmp(&weigh(other))).expect("a device");
            value += weigh(&chosen);
            loads[chosen] += times[chosen];
        }
        most = most.max(value);
        let all: f64 = loads.iter().sum();
        let pace = 1.0 / (1.0 + step as f64).sqrt();
        for (weight, load) in weights.iter_mut().zip(&loads) {
            *weight *= (pace * (load / all - 1.0 / count as f64)).exp();
        }
        let sum: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|weight| *weight /= sum);
    }
    most
}

fn critical_path(game: &Game<'_>) -> f64 {
    let times = &game.instance.times_ns;
    let mut before = vec![Vec::new(); times.len()];
    for edge in &game.instance.edges {
        before[edge.to].push(edge.from);
    }
    let order = topological_order(&before).expect("the instance was checked");
    let mut ends = vec![0.0f64; times.len()];
    for operator in order {
        let begins = before[operator].iter().map(|&from| ends[from]).fold(0.0, f64::max);
        ends[operator] = begins + times[operator].iter().copied().fold(f64::INFINITY, f64::min);
    }
    ends.into_iter().fold(0.0, f64::max)
}
