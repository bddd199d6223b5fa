//! Small instances with known optima, and random instances compared with exhaustive search.

use super::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn of(times: &[&[f64]]) -> Instance {
    Instance { times_ns: times.iter().map(|times| times.to_vec()).collect(), ..Instance::default() }
}

#[test]
fn each_goes_where_it_is_fast() {
    let found = place_operators(&of(&[&[1.0, 9.0], &[9.0, 1.0]])).expect("an answer");
    assert_eq!((found.makespan_ns, found.devices.as_slice()), (1.0, &[0, 1][..]));
    assert_eq!(found.pays_ns, [[1.0, 10.0], [10.0, 1.0]]);
    let of_jobs = place_operators(&of(&[&[4.0, 9.0], &[9.0, 2.0], &[9.0, 1.0]])).expect("an answer");
    assert_eq!(of_jobs.devices, [0, 1, 1]);
    assert_eq!(of_jobs.objective_changes_ns, [[0.0, 8.0], [9.0, 0.0], [9.0, 0.0]]);
    assert!(found.is_equilibrium() && found.is_exact && found.ratio_most() == 1.0);
    // Both operators on the wrong devices is an equilibrium, too: moving alone would not help.
    assert_eq!(found.anarchy, Some(9.0));
}

#[test]
fn the_best_equilibrium_is_chosen() {
    let jobs = of(&[&[2.0, 2.0], &[2.0, 2.0], &[1.0, 1.0], &[1.0, 1.0]]);
    for found in [place_operators(&jobs).expect("an answer"), search_locally(&jobs).expect("an answer")] {
        assert_eq!(found.makespan_ns, 3.0, "{found:?}");
        assert_eq!(found.ends_ns.iter().copied().fold(0.0, f64::max), 3.0, "the last operator ends at the makespan");
        assert!(found.is_equilibrium() && found.least_ns <= 3.0);
        assert_eq!(found.anarchy_most, Some(2.0 - 2.0 / 3.0));
    }
    assert_eq!(place_operators(&jobs).expect("an answer").anarchy, Some(4.0 / 3.0), "both large ones on one device");
}

#[test]
fn moves_come_close_to_the_best_of_all() {
    let mut draws = ChaCha8Rng::seed_from_u64(23);
    let mut ratios: Vec<f64> = (0..200)
        .map(|_| {
            let times_ns = (0..8).map(|_| (0..3).map(|_| draws.random_range(1.0..100.0)).collect()).collect();
            let instance = Instance { times_ns, ..Instance::default() };
            let (best, found) =
                (place_operators(&instance).expect("an answer"), search_locally(&instance).expect("an answer"));
            assert!(best.is_exact && best.is_equilibrium() && found.is_equilibrium(), "{found:?}");
            assert!(found.least_ns <= best.makespan_ns * (1.0 + 1e-9), "the bound holds: {found:?}");
            assert!(best.anarchy.expect("an equilibrium") >= 1.0);
            found.makespan_ns / best.makespan_ns
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    let mean = ratios.iter().sum::<f64>() / 200.0;
    assert!(mean <= 1.002 && ratios[189] <= 1.01 && ratios[199] <= 1.05, "{mean} {} {}", ratios[189], ratios[199]);
}

#[test]
fn transfers_keep_chains_together() {
    let chain = |ns_per_byte| Instance {
        edges: vec![Edge { from: 0, to: 1, bytes: 100.0 }],
        links: vec![vec![Link { latency_ns: 1.0, ns_per_byte }; 2]; 2],
        ..of(&[&[10.0, 20.0], &[20.0, 10.0]])
    };
    let (cheap, dear) =
        (place_operators(&chain(0.01)).expect("an answer"), place_operators(&chain(1.0)).expect("an answer"));
    assert_eq!((cheap.devices.as_slice(), cheap.makespan_ns), (&[0, 1][..], 22.0));
    assert_eq!(dear.makespan_ns, 30.0);
    assert_eq!(dear.devices[0], dear.devices[1]);
    assert!(dear.least_ns == 30.0 && dear.is_equilibrium());
    let own = dear.devices[0];
    assert_eq!(dear.objective_changes_ns[0][own], 0.0);
}

#[test]
fn energy_has_a_price() {
    let priced = |price_ns_per_j| Instance { energies_j: vec![vec![5.0, 1.0]], price_ns_per_j, ..of(&[&[1.0, 3.0]]) };
    assert_eq!(place_operators(&priced(0.0)).expect("an answer").devices, [0]);
    let frugal = place_operators(&priced(1.0)).expect("an answer");
    assert_eq!((frugal.devices.as_slice(), frugal.objective_ns, frugal.energy_j), (&[1][..], 4.0, 1.0));
    assert!(frugal.is_equilibrium());
}

#[test]
fn large_graphs_have_certified_answers() {
    let mut draws = ChaCha8Rng::seed_from_u64(5);
    let times_ns = (0..60).map(|_| (0..3).map(|_| draws.random_range(1.0..50.0)).collect()).collect();
    let edge = |to: usize, draws: &mut ChaCha8Rng| Edge { from: draws.random_range(0..to), to, bytes: 10.0 };
    let edges = (1..60).map(|to| edge(to, &mut draws)).collect();
    let links = vec![vec![Link { latency_ns: 0.5, ns_per_byte: 0.1 }; 3]; 3];
    let found = place_operators(&Instance { times_ns, edges, links, ..Instance::default() }).expect("an answer");
    assert!(!found.is_exact && found.is_equilibrium(), "gain {}", found.largest_gain_ns);
    assert!(found.ratio_most() >= 1.0 && found.ratio_most() < 2.0, "{}", found.ratio_most());
}

#[test]
fn nonsense_is_refused() {
    let refused = |instance: &Instance| place_operators(instance).expect_err("nonsense").to_string();
    assert_eq!(refused(&Instance::default()), "no operators to plan for");
    assert_eq!(refused(&of(&[&[]])), "no devices to plan for");
    assert_eq!(refused(&of(&[&[1.0], &[1.0, 2.0]])), "operator 1 has 2 values for 1 devices");
    assert!(refused(&of(&[&[f64::NAN]])).contains("not a positive number"));
    let circle = vec![Edge { from: 0, to: 1, bytes: 0.0 }, Edge { from: 1, to: 0, bytes: 0.0 }];
    let circle = Instance { edges: circle, ..of(&[&[1.0], &[1.0]]) };
    assert!(refused(&circle).contains("dependency cycle"));
    let beyond = Instance { edges: vec![Edge { from: 7, to: 0, bytes: 0.0 }], ..of(&[&[1.0]]) };
    assert_eq!(refused(&beyond), "operator 0 depends on operator 7, which does not exist");
}

fn drawn_times(draws: &mut ChaCha8Rng, operators: usize) -> Vec<Vec<f64>> {
    (0..operators).map(|_| (0..3).map(|_| draws.random_range(1.0..100.0)).collect()).collect()
}

#[test]
fn promises_hold_for_the_returned_plan_when_every_time_is_off() {
    const OFF: f64 = 0.2;
    let mut draws = ChaCha8Rng::seed_from_u64(41);
    for case in 0..60 {
        let edges = (1..7).map(|to| Edge { from: draws.random_range(0..to), to, bytes: 10.0 });
        let edges: Vec<Edge> = edges.filter(|_| case % 2 == 0).collect();
        let links = vec![vec![Link { latency_ns: 5.0, ns_per_byte: 0.1 }; 3]; 3];
        let given = Instance { times_ns: drawn_times(&mut draws, 7), edges, links, ..Instance::default() };
        let mut true_times = given.clone();
        let times = true_times.times_ns.iter_mut().flatten();
        times.for_each(|time| *time *= if draws.random::<bool>() { 1.0 + OFF } else { 1.0 - OFF });
        let best_ns = place_operators(&true_times).expect("an answer").makespan_ns;
        for found in [place_operators(&given).expect("an answer"), search_locally(&given).expect("an answer")] {
            // The plan keeps the list order, which the given times determine.
            let order = Game::from_instance(&given).expect("an instance");
            let taken_ns = order.with_times(&true_times).makespan(&found.devices);
            let most = found.robust_ratio(OFF).expect("a share");
            assert!(taken_ns <= most * best_ns * (1.0 + 1e-9), "{taken_ns} after {most} times {best_ns}: {found:?}");
        }
    }
}

#[test]
fn promises_are_those_of_the_plan_that_is_returned() {
    let found = place_operators(&of(&[&[1.0, 9.0], &[9.0, 1.0]])).expect("an answer");
    assert_eq!(found.robust_ratio(0.0), Some(1.0), "the best of all");
    assert!((found.robust_ratio(0.1).expect("a promise") - 1.1 / 0.9).abs() < 1e-12);
    assert_eq!(found.robust_ratio(1.0), None);
    // There are too many assignments for exhaustive search, so the plan is above the bound even with exact times.
    let mut draws = ChaCha8Rng::seed_from_u64(7);
    let large = Instance { times_ns: drawn_times(&mut draws, 14), ..Instance::default() };
    let found = place_operators(&large).expect("an answer");
    assert!(!found.is_exact && found.ratio_most() > 1.0, "{}", found.ratio_most());
    assert!((found.robust_ratio(0.1).expect("a promise") - found.ratio_most() * 1.1 / 0.9).abs() < 1e-12);
}
