//! Tests of all tuners on synthetic times, and comparisons of the tuners with random search.

use super::*;
use crate::synthetic::{billion_points, childless_evolution, parse_problem, run_trials, synthetic_time};
use job::space::Knobs;
use models::Choice;
use std::collections::BTreeSet;

const CONV: &str = "conv2d:ci=16,hw=14,co=32,k=5,p=2";

fn best(tried: &[Schedule]) -> f64 {
    tried.iter().map(synthetic_time).fold(f64::INFINITY, f64::min)
}

fn templates() -> impl Iterator<Item = TunerName> {
    TunerName::ALL.iter().copied().filter(|name| *name != TunerName::Metaschedule)
}

#[test]
fn the_same_seed_and_news_give_the_same_proposals_and_another_seed_others() {
    for name in templates() {
        let tried = |seed: u64| {
            let mut tuner = create_tuner(name, &parse_problem(CONV), seed, childless_evolution).expect("a tuner");
            run_trials(&mut *tuner, 60, 8, synthetic_time)
        };
        let first = tried(1);
        assert_eq!(tried(1), first, "{name:?}");
        assert_eq!(tried(2) == first, name == TunerName::Gridsearch, "{name:?}");
    }
}

#[test]
fn what_was_heard_of_is_not_proposed() {
    for name in TunerName::ALL.iter().copied() {
        let problem = parse_problem(CONV);
        let fresh = || create_tuner(name, &problem, 3, childless_evolution).expect("a tuner");
        let before = fresh().propose_schedules(20).expect("a proposal");
        assert!(!before.is_empty(), "{name:?}");
        let mut resumed = fresh();
        before.iter().for_each(|schedule| resumed.observe_result(schedule, None, TrialResult::Failed));
        let after = resumed.propose_schedules(20).expect("a proposal");
        assert!(!after.is_empty() && after.iter().all(|schedule| !before.contains(schedule)), "{name:?}");
    }
}

#[test]
fn proposals_are_points_of_the_space_and_end_with_it() {
    let small = parse_problem("relu:shape=2x6");
    let points = (0..small.space.point_count()).map(|place| job::space::nth_point(&small.space, place));
    let allowed: BTreeSet<Knobs> = points.filter(|knobs| small.space.allows_point(knobs)).collect();
    for name in templates() {
        let mut tuner = create_tuner(name, &small, 5, childless_evolution).expect("a tuner");
        let tried = run_trials(&mut *tuner, 1000, 8, synthetic_time);
        assert_eq!(tried.len(), allowed.len(), "{name:?}");
        for schedule in &tried {
            let Schedule::Template { knobs } = schedule else { panic!("{schedule:?}") };
            assert!(small.space.allows_point(knobs), "{name:?}: {knobs:?}");
        }
        assert_eq!(tuner.propose_schedules(8).expect("nothing"), [], "{name:?}");
    }
}

#[test]
fn who_learns_is_better_than_chance_at_equal_trials() {
    // The median of three runs varies too much.
    const RUNS: u64 = 7;
    for space in [billion_points(), parse_problem(CONV)] {
        let reached = |name: TunerName| {
            let runs = (0..RUNS).map(|seed| {
                let mut tuner = create_tuner(name, &space, seed, childless_evolution).expect("a tuner");
                best(&run_trials(&mut *tuner, 120, 8, synthetic_time))
            });
            let mut runs: Vec<f64> = runs.collect();
            runs.sort_by(f64::total_cmp);
            runs[runs.len() / 2]
        };
        let chance = reached(TunerName::Random);
        // Four generations are too few where chance nearly sees all.
        let is_large = space.space.point_count() > 1 << 20;
        let learners = [TunerName::Draft, TunerName::Xgb, TunerName::XgbKnob, TunerName::XgbRank];
        for name in learners.into_iter().chain(is_large.then_some(TunerName::Ga)) {
            let own = reached(name);
            assert!(own < chance, "{name:?} reaches {own}, chance {chance}, in {} points", space.space.point_count());
        }
    }
}

#[test]
fn no_kind_of_schedule_is_forgotten() {
    let problem = parse_problem("conv2d:ci=64,hw=7,co=64,k=3,p=1");
    let of = |schedule: &Schedule| {
        let Schedule::Template { knobs } = schedule else { panic!("{schedule:?}") };
        (knobs.choice("algorithm").map(str::to_owned), knobs.choice("layout").map(str::to_owned))
    };
    let default = of(&Schedule::Template { knobs: problem.space.default.clone() });
    let drawn = (0..200).flat_map(|seed| job::space::sample_points(&problem.space, seed, 2));
    let kinds: BTreeSet<_> = drawn.map(|knobs| of(&Schedule::Template { knobs })).collect();
    assert!(kinds.len() > 2, "{kinds:?}");
    let mut tuner = create_tuner(TunerName::Draft, &problem, 1, childless_evolution).expect("a tuner");
    let tried = run_trials(&mut *tuner, 64, 4, |schedule| if of(schedule) == default { 1000.0 } else { 1500.0 });
    for kind in kinds {
        let times = tried.iter().filter(|schedule| of(schedule) == kind).count();
        assert!(times >= 4, "{kind:?} was tried {times} times of 64");
    }
}

#[test]
fn what_other_sizes_taught_is_used_at_once() {
    let (own, other) = (parse_problem(CONV), parse_problem("conv2d:ci=32,hw=28,co=32,k=5,p=2"));
    let default = |problem: &Problem| synthetic_time(&Schedule::Template { knobs: problem.space.default.clone() });
    // One search may be lucky without having been taught.
    let gains = (1..=4).map(|seed| {
        let mut taught = create_tuner(TunerName::Draft, &own, seed, childless_evolution).expect("a tuner");
        let mut teacher = create_tuner(TunerName::Random, &other, seed, childless_evolution).expect("a tuner");
        for schedule in run_trials(&mut *teacher, 150, 10, synthetic_time) {
            taught.learn_from_other(&other, &schedule, None, synthetic_time(&schedule) / default(&other));
        }
        let mut untaught = create_tuner(TunerName::Draft, &own, seed, childless_evolution).expect("a tuner");
        let (taught, untaught) =
            (run_trials(&mut *taught, 16, 8, synthetic_time), run_trials(&mut *untaught, 16, 8, synthetic_time));
        best(&untaught) / best(&taught)
    });
    let gain: f64 = gains.product();
    assert!(gain > 2.0, "{gain}");
}

#[test]
fn what_an_equal_problem_gained_is_tried_next_and_no_other_s_gain() {
    let of = |name: &str| parse_problem(name);
    let (own, other) = (of(CONV), of("conv2d:ci=32,hw=28,co=32,k=5,p=2"));
    let default = Schedule::Template { knobs: own.space.default.clone() };
    let mut teacher = create_tuner(TunerName::Random, &own, 1, childless_evolution).expect("a tuner");
    let drawn: Vec<Schedule> =
        teacher.propose_schedules(20).expect("points").into_iter().filter(|one| *one != default).collect();
    let begun = || {
        let mut tuner = create_tuner(TunerName::Draft, &own, 1, childless_evolution).expect("a tuner");
        tuner.observe_result(&default, None, TrialResult::Time(100.0));
        tuner
    };
    let mut taught = begun();
    for (place, schedule) in drawn.iter().enumerate() {
        // The faster, the later it is heard of.
        taught.learn_from_other(&own, schedule, None, 0.9 - 0.01 * place as f64);
    }
    let fastest = drawn.last().expect("points");
    assert!(taught.best_hint() < Some(0.8));
    assert_eq!(&taught.propose_schedules(4).expect("points")[0], fastest);
    taught.observe_result(fastest, None, TrialResult::Time(70.0));
    assert_eq!(taught.best_hint(), None, "nothing else promises as much");
    let mut followed = begun();
    drawn.iter().for_each(|schedule| followed.learn_from_other(&own, schedule, None, 0.5));
    let proposed: Vec<Schedule> = (0..12).flat_map(|_| followed.propose_schedules(1).expect("a point")).collect();
    assert!(proposed[..6].iter().all(|one| drawn.contains(one)));
    assert_eq!(followed.best_hint(), None, "who promised too often is not believed");
    let mut elsewhere = begun();
    drawn.iter().for_each(|schedule| elsewhere.learn_from_other(&other, schedule, None, 0.5));
    assert_eq!(elsewhere.best_hint(), None, "another size");
    let mut slower = begun();
    drawn.iter().for_each(|schedule| slower.learn_from_other(&own, schedule, None, 1.1));
    assert_eq!(slower.best_hint(), None);
}

#[test]
fn tuners_have_names_and_fit_targets() {
    let names: Vec<String> = TunerName::ALL.iter().map(|name| name.name().to_owned()).collect();
    let written = TunerName::ALL.iter().map(|name| serde_json::to_value(name).expect("a word"));
    assert_eq!(written.map(|value| value.as_str().expect("a word").to_owned()).collect::<Vec<_>>(), names);
    let fits = |name: &str| {
        let kind = targets::find_kind(name).expect("a kind");
        TunerName::ALL.iter().filter(|tuner| tuner.why_unsupported(kind).is_none()).count()
    };
    assert_eq!(
        [fits("llvm"), fits("pynq"), fits("cuda"), fits("mali")],
        [TunerName::ALL.len(), TunerName::ALL.len(), 6, 0]
    );
    assert!(TunerName::ALL.iter().all(|tuner| tuner.why_unsupported(targets::library_kind()).is_some()));
}
