//! Iterated local search from several assignments: moves, exchanges, random kicks, then moves to an equilibrium.

use super::{Game, Instance, Placement};
use crate::Result;

const DRAWN: usize = 6;
/// Kicks per initial assignment; each moves a few operators at random and is kept if the result is no worse.
const KICKS: usize = 40;
/// Maximum number of evaluated assignments, so that large instances get fewer kicks.
const EVALUATIONS_MOST: usize = 2_000_000;

pub fn search_locally(instance: &Instance) -> Result<Placement> {
    let game = Game::from_instance(instance)?;
    let (operators, devices) = (instance.times_ns.len(), instance.device_count());
    let mut draws = Draws(0x9e37_79b9_7f4a_7c15);
    let mut beginnings = vec![fastest_devices(instance), assign_greedily(&game, true), assign_greedily(&game, false)];
    beginnings.extend((0..DRAWN).map(|_| (0..operators).map(|_| draws.draw_below(devices)).collect()));
    let mut budget = EVALUATIONS_MOST / if game.is_graph() { operators } else { 1 };
    let mut best: Option<(f64, Vec<usize>)> = None;
    for mut current in beginnings {
        let mut cost = descend_cost(&game, &mut current, &mut budget);
        for _ in 0..KICKS {
            if budget == 0 {
                break;
            }
            let mut other = current.clone();
            for _ in 0..2 + draws.draw_below(2) {
                other[draws.draw_below(operators)] = draws.draw_below(devices);
            }
            let found = descend_cost(&game, &mut other, &mut budget);
            if found <= cost {
                (cost, current) = (found, other);
            }
        }
        if best.as_ref().is_none_or(|(least, _)| cost < *least) {
            best = Some((cost, current));
        }
    }
    let (_, devices) = best.expect("there are beginnings");
    Ok(game.settle_moves(devices, None))
}

fn fastest_devices(instance: &Instance) -> Vec<usize> {
    let least = |times: &Vec<f64>| (0..times.len()).min_by(|&one, &other| times[one].total_cmp(&times[other]));
    instance.times_ns.iter().map(|times| least(times).expect("there is a device")).collect()
}

/// Assigns operators one by one, longest or shortest first, each to the device that then finishes first.
fn assign_greedily(game: &Game<'_>, is_longest_first: bool) -> Vec<usize> {
    let times = &game.instance.times_ns;
    let least = |operator: usize| times[operator].iter().copied().fold(f64::INFINITY, f64::min);
    let mut order: Vec<usize> = (0..times.len()).collect();
    order.sort_by(|&one, &other| least(other).total_cmp(&least(one)));
    if !is_longest_first {
        order.reverse();
    }
    let (mut loads, mut devices) = (vec![0.0; game.instance.device_count()], vec![0; times.len()]);
    for operator in order {
        let ends = |device: usize| loads[device] + times[operator][device];
        let device = (0..loads.len()).min_by(|&one, &other| ends(one).total_cmp(&ends(other))).expect("a device");
        loads[device] += times[operator][device];
        devices[operator] = device;
    }
    devices
}

/// Moves or exchanges operators while the cost falls; among equal costs, prefers the smaller sum of squared loads.
fn descend_cost(game: &Game<'_>, devices: &mut [usize], budget: &mut usize) -> f64 {
    let mut now = assignment_cost(game, devices);
    loop {
        let mut is_better = false;
        for one in 0..devices.len() {
            for device in 0..game.instance.device_count() {
                let own = devices[one];
                if device == own || *budget == 0 {
                    continue;
                }
                devices[one] = device;
                is_better |= keep_if_better(game, devices, &mut now, budget, |devices| devices[one] = own);
            }
            for other in one + 1..devices.len() {
                if devices[one] == devices[other] || *budget == 0 {
                    continue;
                }
                devices.swap(one, other);
                is_better |= keep_if_better(game, devices, &mut now, budget, |devices| devices.swap(one, other));
            }
        }
        if !is_better {
            return now.0;
        }
    }
}

fn assignment_cost(game: &Game<'_>, devices: &[usize]) -> (f64, f64) {
    let squares = game.device_loads(devices).into_iter().map(|load| load * load).sum();
    (game.objective(devices), squares)
}

fn keep_if_better(
    game: &Game<'_>,
    devices: &mut [usize],
    now: &mut (f64, f64),
    budget: &mut usize,
    undo: impl FnOnce(&mut [usize]),
) -> bool {
    *budget -= 1;
    let found = assignment_cost(game, devices);
    let is_less = |one: f64, other: f64| one < other - other.abs() * 1e-12;
    let is_better = is_less(found.0, now.0) || (!is_less(now.0, found.0) && is_less(found.1, now.1));
    if is_better {
        *now = found;
    } else {
        undo(devices);
    }
    is_better
}

/// A deterministic pseudo-random generator (SplitMix64).
struct Draws(u64);

impl Draws {
    fn draw_below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % most as u64).expect("below a number of this machine")
    }
}
