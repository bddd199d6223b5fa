//! Exhaustive search over all assignments, if there are few enough.

use super::Game;

pub const EXACT_MOST: u64 = 1_000_000;

pub(super) struct Exact {
    pub devices: Vec<usize>,
    pub least_ns: f64,
    pub anarchy: Option<f64>,
}

pub fn count_assignments(operators: usize, devices: usize) -> Option<u64> {
    (devices as u64).checked_pow(u32::try_from(operators).ok()?)
}

/// Returns the assignment with the smallest objective; ties go to the first. None if there are too many assignments.
pub(super) fn best_assignment(game: &Game<'_>) -> Option<Exact> {
    let (operators, count) = (game.instance.times_ns.len(), game.instance.device_count());
    let all = count_assignments(operators, count).filter(|all| *all <= EXACT_MOST)?;
    let mut devices = vec![0; operators];
    let (mut best, mut least_ns) = (devices.clone(), f64::INFINITY);
    let mut worst_ns = f64::NEG_INFINITY;
    for number in 0..all {
        let mut rest = number;
        for device in &mut devices {
            *device = usize::try_from(rest % count as u64).expect("a device");
            rest /= count as u64;
        }
        let objective = game.objective(&devices);
        if objective < least_ns {
            (best, least_ns) = (devices.clone(), objective);
        }
        if objective > worst_ns && is_equilibrium(game, &devices) {
            worst_ns = objective;
        }
    }
    let anarchy = (worst_ns > 0.0 && least_ns > 0.0).then(|| worst_ns / least_ns);
    Some(Exact { devices: best, least_ns, anarchy })
}

fn is_equilibrium(game: &Game<'_>, devices: &[usize]) -> bool {
    let (gain, ..) = Game::largest_gain(&game.unilateral_costs(devices), devices);
    gain <= game.objective(devices).abs() * 1e-12
}
