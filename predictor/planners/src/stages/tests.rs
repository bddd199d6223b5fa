//! Compares stages with brute force and checks invariants.

use super::*;
use crate::interference::{Lane, Learned, Machine, simulate_lanes};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn costs(cores: usize, bytes_per_ns: f64, barrier_ns: f64) -> Costs {
    Costs {
        machine: Machine { cores, bytes_per_ns, cache_bytes: f64::INFINITY, learned: Learned::default() },
        barrier_ns,
    }
}

fn drawn(draws: &mut ChaCha8Rng, count: usize, cores: usize, density: f64) -> Graph {
    let demand = |draws: &mut ChaCha8Rng| {
        let (one, part) = (draws.random_range(10.0..100.0), draws.random_range(0.0..1.0));
        // Some operators gain nothing from more cores.
        let alone_ns = (1..=cores).map(|cores| one * (part + (1.0 - part) / cores as f64)).collect();
        Demand {
            alone_ns,
            bytes: draws.random_range(0.0..100.0),
            footprint_bytes: 0.0,
            reused_bytes: 0.0,
            profile: None,
        }
    };
    let demands = (0..count).map(|_| demand(draws)).collect();
    let before = (0..count).map(|to| (0..to).filter(|_| draws.random_bool(density)).collect()).collect();
    Graph { demands, before }
}

fn stage_ns(graph: &Graph, set: u32, costs: &Costs) -> f64 {
    let members: Vec<usize> = (0..graph.demands.len()).filter(|place| set >> place & 1 == 1).collect();
    let mut component: Vec<usize> = (0..members.len()).collect();
    for (place, &one) in members.iter().enumerate() {
        for (other_place, &other) in members.iter().enumerate().take(place) {
            if graph.before[one].contains(&other) {
                let (from, to) = (component[place], component[other_place]);
                component.iter_mut().filter(|own| **own == from).for_each(|own| *own = to);
            }
        }
    }
    let cores = costs.machine.cores;
    let mut best = f64::INFINITY;
    if component.iter().all(|own| *own == component[0]) {
        best = members.iter().map(|&one| graph.demands[one].best_cores(cores).1).sum();
    }
    // Covers every number of groups up to the cores, and every assignment of components to groups.
    for groups in 2..=cores {
        for number in 0..groups.pow(members.len() as u32) {
            let group_of = |component: usize| number / groups.pow(component as u32) % groups;
            let lane = |group: usize| -> Vec<&Demand> {
                let own = members.iter().zip(&component).filter(|(_, component)| group_of(**component) == group);
                own.map(|(&one, _)| &graph.demands[one]).collect()
            };
            let lanes: Vec<Vec<&Demand>> = (0..groups).map(lane).collect();
            if lanes.iter().any(Vec::is_empty) {
                continue;
            }
            for split in cost::all_splits(groups, cores, usize::MAX).expect("all of them") {
                let lanes = lanes.iter().zip(&split);
                let lanes: Vec<Lane<'_>> =
                    lanes.map(|(operators, &cores)| Lane { cores, operators: operators.clone() }).collect();
                best = best.min(simulate_lanes(&costs.machine, &lanes).total_ns + costs.barrier_ns);
            }
        }
    }
    best
}

fn brute(graph: &Graph, done: u32, costs: &Costs) -> f64 {
    let all = (1u32 << graph.demands.len()) - 1;
    if done == all {
        return 0.0;
    }
    let mut best = f64::INFINITY;
    for set in 1..=all {
        let is_new = set & done == 0;
        let holds =
            |place: usize| set >> place & 1 == 0 || graph.before[place].iter().all(|one| (set | done) >> one & 1 == 1);
        if is_new && (0..graph.demands.len()).all(holds) {
            best = best.min(stage_ns(graph, set, costs) + brute(graph, done | set, costs));
        }
    }
    best
}

#[test]
fn stages_are_as_good_as_brute_force() {
    let mut draws = ChaCha8Rng::seed_from_u64(60);
    for case in 0..60 {
        let count = 2 + case % 5;
        let cores = if count < 5 { 3 } else { 2 };
        let density = draws.random_range(0.1..0.6);
        let graph = drawn(&mut draws, count, cores, density);
        let costs = costs(cores, 2.0, if case % 2 == 0 { 0.0 } else { 3.0 });
        let found = plan_stages(&graph, &costs, &SearchLimits::default()).expect("stages");
        let best = brute(&graph, 0, &costs);
        assert!(found.is_exact && (found.time_ns - best).abs() <= best * 1e-9, "{case}: {} {best}", found.time_ns);
        laws(&graph, &found, &costs);
    }
}

#[track_caller]
fn laws(graph: &Graph, found: &Stages, costs: &Costs) {
    assert!(found.time_ns <= found.sequential_ns * (1.0 + 1e-9), "{} {}", found.time_ns, found.sequential_ns);
    assert!(found.time_ns >= found.critical_ns * (1.0 - 1e-9), "{} {}", found.time_ns, found.critical_ns);
    let mut done = vec![false; graph.demands.len()];
    for stage in &found.stages {
        assert!(stage.groups.iter().map(|group| group.cores).sum::<usize>() <= costs.machine.cores);
        for group in &stage.groups {
            let mut own = Vec::new();
            for &operator in &group.operators {
                let is_there = |one: &usize| done[*one] || own.contains(one);
                assert!(!done[operator] && graph.before[operator].iter().all(is_there), "{operator}");
                own.push(operator);
            }
        }
        stage.groups.iter().flat_map(|group| &group.operators).for_each(|&operator| done[operator] = true);
    }
    assert!(done.iter().all(|done| *done));
}

#[test]
fn chains_have_as_many_states_as_they_must() {
    for (chains, length) in [(1usize, 4usize), (2, 3), (3, 3), (4, 2)] {
        let demand =
            || Demand { alone_ns: vec![10.0, 6.0], bytes: 0.0, footprint_bytes: 0.0, reused_bytes: 0.0, profile: None };
        let count = chains * length;
        let before = (0..count).map(|place| if place % length == 0 { vec![] } else { vec![place - 1] }).collect();
        let graph = Graph { demands: (0..count).map(|_| demand()).collect(), before };
        let costs = costs(2, f64::INFINITY, 0.0);
        let limits = SearchLimits { tries: usize::MAX / 2, beam: usize::MAX, ..SearchLimits::default() };
        let part = Part::from_operators(&graph, (0..count).collect(), &costs, &limits).search_sets();
        assert_eq!(part.states, (length + 1).pow(chains as u32), "{chains} chains of {length}");
    }
}

#[test]
fn what_gains_by_cores_runs_alone_and_what_does_not_beside() {
    let of = |alone_ns: [f64; 2]| Demand {
        alone_ns: alone_ns.to_vec(),
        bytes: 0.0,
        footprint_bytes: 0.0,
        reused_bytes: 0.0,
        profile: None,
    };
    // 0 → (1, 2) → 3, where operators 1 and 2 gain nothing from a second core.
    let graph = Graph {
        demands: vec![of([10.0, 5.0]), of([8.0, 8.0]), of([8.0, 8.0]), of([10.0, 5.0])],
        before: vec![vec![], vec![0], vec![0], vec![1, 2]],
    };
    let found = plan_stages(&graph, &costs(2, f64::INFINITY, 1.0), &SearchLimits::default()).expect("stages");
    assert_eq!((found.time_ns, found.sequential_ns, found.critical_ns), (19.0, 26.0, 18.0));
    let cores: Vec<Vec<usize>> =
        found.stages.iter().map(|stage| stage.groups.iter().map(|group| group.cores).collect()).collect();
    assert_eq!(cores, [vec![2], vec![1, 1], vec![2]]);
    // A barrier that costs more than the concurrency gains is not used.
    let dear = plan_stages(&graph, &costs(2, f64::INFINITY, 9.0), &SearchLimits::default()).expect("stages");
    assert_eq!((dear.time_ns, dear.stages.len()), (26.0, 1));
}

#[test]
fn wide_and_long_graphs_are_planned_along_a_beam() {
    let mut draws = ChaCha8Rng::seed_from_u64(7);
    for (count, density) in [(200, 0.02), (300, 0.0), (200, 0.2), (40, 0.0)] {
        let graph = drawn(&mut draws, count, 4, density);
        let costs = costs(4, 4.0, 1.0);
        let found = plan_stages(&graph, &costs, &SearchLimits::default()).expect("stages");
        laws(&graph, &found, &costs);
        assert!(!found.is_exact || density > 0.1, "{count} {density}");
    }
}

#[test]
fn nonsense_is_refused() {
    let refused = |graph: &Graph, cores| {
        plan_stages(graph, &costs(cores, 1.0, 0.0), &SearchLimits::default()).expect_err("nonsense")
    };
    let nothing = Graph { demands: vec![], before: vec![] };
    assert_eq!(refused(&nothing, 1).to_string(), "no operators to plan for");
    let machine = costs(1, 1.0, 0.0).machine;
    let circle = Graph { demands: vec![Demand::roofline_demand(1.0, 1.0, &machine)], before: vec![vec![0]] };
    assert!(refused(&circle, 1).to_string().contains("dependency cycle"));
    assert_eq!(refused(&circle, 0).to_string(), "no cores to plan for");
}

#[test]
fn long_chains_beside_each_other_are_planned_in_time() {
    // Like a recurrent network: many operators are ready early, and one chain passes through all steps.
    let mut draws = ChaCha8Rng::seed_from_u64(16);
    let mut graph = drawn(&mut draws, 120, 2, 0.0);
    for one in 5..120 {
        graph.before[one] = match one % 5 {
            0 => vec![],
            4 => vec![one - 1, one - 4, one - 5],
            _ => vec![one - 1],
        };
    }
    let costs = costs(2, 4.0, 1.0);
    let found = plan_stages(&graph, &costs, &SearchLimits::default()).expect("stages");
    laws(&graph, &found, &costs);
}

fn blocks(draws: &mut ChaCha8Rng, count: usize, cores: usize) -> Graph {
    let mut graph = drawn(draws, count, cores, 0.0);
    let mut last = 0;
    let mut next = 1;
    while next + 8 < count {
        let mut ends = Vec::new();
        for length in [1, 2, 3, 1] {
            let mut before = last;
            for _ in 0..length {
                graph.before[next] = vec![before];
                before = next;
                next += 1;
            }
            ends.push(before);
        }
        graph.before[next] = ends;
        last = next;
        next += 1;
    }
    (next..count).for_each(|one| graph.before[one] = vec![one - 1]);
    graph
}

#[test]
fn networks_of_blocks_are_planned_exactly() {
    let mut draws = ChaCha8Rng::seed_from_u64(200);
    for cores in [2, 4] {
        let graph = blocks(&mut draws, 200, cores);
        let costs = costs(cores, 4.0, 1.0);
        let found = plan_stages(&graph, &costs, &SearchLimits::default()).expect("stages");
        laws(&graph, &found, &costs);
        assert!(found.is_exact && found.time_ns < found.sequential_ns, "{} {}", found.time_ns, found.sequential_ns);
    }
}
