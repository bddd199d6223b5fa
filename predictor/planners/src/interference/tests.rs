//! Tests of the invariants of the interference model.

use super::*;
use proptest::prelude::*;

fn machine(cores: usize, bytes_per_ns: f64) -> Machine {
    Machine { cores, bytes_per_ns, cache_bytes: f64::INFINITY, learned: Learned::default() }
}

#[test]
fn two_that_memory_bounds_take_twice_as_long() {
    let machine = machine(2, 10.0);
    let one = Demand::roofline_demand(1.0, 20.0, &machine);
    assert_eq!(steady_slowdowns(&machine, &[(1, &one), (1, &one)]), [2.0, 2.0]);
    let lane = || Lane { cores: 1, operators: vec![&one] };
    assert_eq!(simulate_lanes(&machine, &[lane(), lane()]).total_ns, 4.0);
    assert_eq!(simulate_lanes(&machine, &[lane()]).total_ns, 2.0);
}

#[test]
fn arithmetic_hides_behind_memory() {
    let machine = machine(8, 10.0);
    let (arithmetic, memory) =
        (Demand::roofline_demand(8.0, 2.0, &machine), Demand::roofline_demand(1.0, 20.0, &machine));
    let lanes = [Lane { cores: 4, operators: vec![&arithmetic] }, Lane { cores: 4, operators: vec![&memory] }];
    let course = simulate_lanes(&machine, &lanes);
    assert_eq!(course.ends_ns[0], [2.0]);
    assert!((course.total_ns - 2.2).abs() < 1e-12, "{course:?}");
    assert_eq!(arithmetic.time_alone(8) + memory.time_alone(8), 3.0);
}

#[test]
fn a_cache_too_small_for_all_is_shared() {
    let machine = Machine { cores: 2, bytes_per_ns: 1.0, cache_bytes: 100.0, learned: Learned::default() };
    let of = |footprint_bytes: f64| Demand {
        alone_ns: vec![100.0],
        bytes: 20.0,
        footprint_bytes,
        reused_bytes: 160.0,
        profile: None,
    };
    assert_eq!(steady_slowdowns(&machine, &[(1, &of(40.0)), (1, &of(60.0))]), [1.0, 1.0], "both find room");
    let crowded = steady_slowdowns(&machine, &[(1, &of(100.0)), (1, &of(100.0))]);
    // Half of the cached bytes are fetched again: each operator needs a bandwidth of 1, and 1 is available in total.
    assert_eq!(crowded, [2.0, 2.0]);
    assert_eq!(steady_slowdowns(&machine, &[(1, &of(400.0))]), [1.0], "alone is alone, however large");
}

#[test]
fn rules_know_classes() {
    let machine = machine(4, 10.0);
    let (arithmetic, memory) =
        (Demand::roofline_demand(40.0, 2.0, &machine), Demand::roofline_demand(1.0, 20.0, &machine));
    let running = [(2, &arithmetic), (1, &memory), (1, &memory)];
    let of = |rule| rule_slowdowns(rule, &machine, &running);
    assert_eq!(of(Baseline::None), [1.0, 1.0, 1.0]);
    assert_eq!(of(Baseline::Class), [1.0, 2.0, 2.0]);
    assert_eq!(of(Baseline::Maximum), [2.0, 2.0, 2.0]);
    assert_eq!(of(Baseline::Sum)[0], 3.0);
}

fn demand() -> impl Strategy<Value = Demand> {
    (1.0f64..1e3, 0.0f64..1e4, 0.0f64..1e4, 0.0f64..1e4).prop_map(|(time_ns, bytes, footprint_bytes, reused_bytes)| {
        Demand { alone_ns: vec![time_ns, time_ns / 1.7], bytes, footprint_bytes, reused_bytes, profile: None }
    })
}

fn pairs(demands: &[Demand], rule: impl Fn(&Demand, &Demand) -> f64) -> Vec<(usize, usize, f64)> {
    let count = demands.len();
    let both = (0..count * count).map(|pair| (pair / count, pair % count));
    both.map(|(own, other)| (own, other, rule(&demands[own], &demands[other]))).collect()
}

#[test]
fn what_pairs_show_is_learned_and_asked_of_others() {
    let machine = machine(2, 10.0);
    let of = |place: usize| {
        let pressure = vec![0.1 * (place % 5) as f64, 0.05 * (place % 3) as f64];
        let sensitivity = vec![0.07 * (place % 4) as f64, 0.1 * (place % 2) as f64];
        Demand {
            profile: Some(Profile { sensitivity, pressure }),
            ..Demand::roofline_demand(10.0 + place as f64, place as f64, &machine)
        }
    };
    let demands: Vec<Demand> = (0..16).map(of).collect();
    let rule = |own: &Demand, other: &Demand| {
        let (own, other) = (own.profile.as_ref().expect("it has one"), other.profile.as_ref().expect("it has one"));
        1.04 + 3.0 * own.sensitivity[0] * other.pressure[0]
    };
    let known = pairs(&demands[..10], rule);
    let seen: Vec<CoRunMeasurement<'_>> = known
        .iter()
        .map(|&(own, other, slowdown)| CoRunMeasurement {
            own: (1, &demands[own]),
            others: vec![(1, &demands[other])],
            slowdown,
        })
        .collect();
    let learned = Machine { learned: Learned::fit_model(&machine, &seen), ..machine.clone() };
    assert!(!learned.learned.is_physical());
    for (own, other, wanted) in pairs(&demands[10..], rule) {
        let found = steady_slowdowns(&learned, &[(1, &demands[10 + own]), (1, &demands[10 + other])])[0];
        let physical = steady_slowdowns(&machine, &[(1, &demands[10 + own]), (1, &demands[10 + other])])[0];
        // The ridge penalty keeps the prediction slightly below the measurement.
        assert!((found / wanted - 1.0).abs() < 0.03, "{found} {wanted}, by bandwidth alone {physical}");
    }
    assert_eq!(steady_slowdowns(&learned, &[(2, &demands[3])]), [1.0], "alone is alone");
    assert_eq!(Learned::fit_model(&machine, &[]), Learned::default());
}

proptest! {
    #[test]
    fn whatever_is_learned_keeps_the_laws(
        demands in prop::collection::vec(demand(), 2..4), slowdowns_seen in prop::collection::vec(1.0f64..3.0, 6), more in 1.0f64..4.0,
        bandwidth in 0.1f64..50.0,
    ) {
        let machine = Machine { cores: 8, bytes_per_ns: bandwidth, cache_bytes: f64::INFINITY, learned: Learned::default() };
        let seen: Vec<CoRunMeasurement<'_>> = slowdowns_seen
            .iter()
            .enumerate()
            .map(|(place, &slowdown)| CoRunMeasurement {
                own: (1, &demands[place % demands.len()]), others: vec![(1, &demands[(place + 1) % demands.len()])], slowdown,
            })
            .collect();
        let machine = Machine { learned: Learned::fit_model(&machine, &seen), ..machine };
        let of = |demands: &[Demand]| steady_slowdowns(&machine, &demands.iter().map(|one| (2, one)).collect::<Vec<_>>());
        let before = of(&demands);
        prop_assert!(before.iter().all(|slowdown| *slowdown >= 1.0), "{before:?}");
        let mut larger = demands.clone();
        let last = larger.len() - 1;
        larger[last].bytes *= more;
        for (was, is) in before[..last].iter().zip(&of(&larger)) {
            prop_assert!(*is >= was * (1.0 - 1e-9), "{was} {is}");
        }
        let mut turned = demands.clone();
        turned.reverse();
        let mut other = of(&turned);
        other.reverse();
        for (was, is) in before.iter().zip(&other) {
            prop_assert!((was - is).abs() <= was * 1e-9, "{was} {is}");
        }
    }

    #[test]
    fn shares_are_fair(wanted in prop::collection::vec(0.0f64..100.0, 1..6), capacity in 0.1f64..200.0) {
        let shares = max_min(&wanted, capacity);
        let sum: f64 = shares.iter().sum();
        prop_assert!(sum <= capacity * (1.0 + 1e-9));
        let most = shares.iter().copied().fold(0.0, f64::max);
        for (share, wanted) in shares.iter().zip(&wanted) {
            prop_assert!(share <= wanted);
            prop_assert!(share >= &(wanted * (1.0 - 1e-9)) || *share >= most * (1.0 - 1e-9), "who wants more has as much");
        }
    }

    #[test]
    fn nobody_gains_and_more_demand_never_helps(
        demands in prop::collection::vec(demand(), 2..4), more in 1.0f64..4.0, bandwidth in 0.1f64..50.0,
        cache_bytes in 1.0f64..1e4, which in 0..3usize,
    ) {
        let machine = Machine { cores: 8, bytes_per_ns: bandwidth, cache_bytes, learned: Learned::default() };
        let of = |demands: &[Demand]| {
            steady_slowdowns(&machine, &demands.iter().map(|one| (2, one)).collect::<Vec<_>>())
        };
        let before = of(&demands);
        prop_assert!(before.iter().all(|slowdown| *slowdown >= 1.0), "{before:?}");
        let mut larger = demands.clone();
        let last = larger.len() - 1;
        match which {
            0 => larger[last].bytes *= more,
            1 => larger[last].footprint_bytes *= more,
            _ => larger[last].reused_bytes *= more,
        }
        // A larger footprint costs the partners cache. It does not reduce their bandwidth, because cached data is not
        // fetched.
        if which != 1 {
            for (was, is) in before[..last].iter().zip(&of(&larger)) {
                prop_assert!(*is >= was * (1.0 - 1e-9), "{was} {is}");
            }
        }
        // The order of operators does not matter.
        let mut turned = demands.clone();
        turned.reverse();
        let mut other = of(&turned);
        other.reverse();
        for (was, is) in before.iter().zip(&other) {
            prop_assert!((was - is).abs() <= was * 1e-9, "{was} {is}");
        }
    }

    #[test]
    fn where_nothing_is_scarce_cores_are_only_parted(lanes in prop::collection::vec(prop::collection::vec(demand(), 1..4), 1..4)) {
        let machine = Machine { cores: 8, bytes_per_ns: f64::INFINITY, cache_bytes: f64::INFINITY, learned: Learned::default() };
        let lanes: Vec<Lane<'_>> = lanes.iter().map(|lane| Lane { cores: 2, operators: lane.iter().collect() }).collect();
        let alone = |lane: &Lane<'_>| lane.operators.iter().map(|one| one.time_alone(2)).sum::<f64>();
        let longest = lanes.iter().map(alone).fold(0.0, f64::max);
        let total = simulate_lanes(&machine, &lanes).total_ns;
        prop_assert!((total - longest).abs() <= longest * 1e-9, "{total} {longest}");
    }

    #[test]
    fn side_by_side_is_no_shorter_than_the_longest_lane(
        lanes in prop::collection::vec(prop::collection::vec(demand(), 1..4), 1..4), bandwidth in 0.1f64..50.0,
    ) {
        let machine = Machine { cores: 8, bytes_per_ns: bandwidth, cache_bytes: 1e3, learned: Learned::default() };
        let lanes: Vec<Lane<'_>> = lanes.iter().map(|lane| Lane { cores: 1, operators: lane.iter().collect() }).collect();
        let longest = lanes.iter().map(|lane| lane.operators.iter().map(|one| one.time_alone(1)).sum()).fold(0.0, f64::max);
        let course = simulate_lanes(&machine, &lanes);
        prop_assert!(course.total_ns >= longest * (1.0 - 1e-9));
        prop_assert!(course.ends_ns.iter().zip(&lanes).all(|(ends, lane)| ends.len() == lane.operators.len()));
    }
}
