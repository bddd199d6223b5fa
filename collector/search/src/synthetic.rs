//! Spaces with synthetic times, for comparisons of tuners without a compiler.

use crate::{Evolution, Problem, TrialResult, Tuner};
use job::space::{Axis, Knobs, Schedule, Setting, Space, Template};
use models::Fuse;
use std::collections::BTreeSet;
use targets::{Target, llvm_target};

pub fn example_machine() -> Target {
    llvm_target("x86-64-v4", &["avx512f".to_owned()], 2)
}

pub fn parse_problem(operator: &str) -> Problem {
    let graph = zoo::simple::build_operator(operator).expect("an operator");
    let plan = models::plan_calls(&graph, Fuse::Epilogue).expect("tasks");
    Problem::of_task(&plan.tasks[0].task, &example_machine(), 1)
}

/// Creates a space of 10 axes with 8 settings; time is a product of axis costs and one interaction.
pub fn billion_points() -> Problem {
    const NAMES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let axis = |name| Axis { name, meaning: "made up", settings: (0..8).map(Setting::Number).collect() };
    let axes: Vec<Axis> = NAMES.into_iter().map(axis).collect();
    let default = Knobs(NAMES.iter().map(|name| ((*name).to_owned(), Setting::Number(0))).collect());
    Problem {
        space: Space::without_limits(Template::Contraction, axes, default),
        ..parse_problem("matmul:m=64,n=64,k=64")
    }
}

pub fn synthetic_time(schedule: &Schedule) -> f64 {
    let Schedule::Template { knobs } = schedule else { panic!("not a point of a synthetic space") };
    let mut time = 1000.0;
    for (place, (name, setting)) in knobs.0.iter().enumerate() {
        let cost = match setting {
            Setting::Number(number) => {
                let best = [16.0, 4.0, 8.0, 2.0, 5.0][place % 5];
                let away = ((1 + number) as f64 / best).log2().abs();
                1.0 + 0.2 * away
            }
            Setting::Choice(word) => {
                if word.len() % 2 == name.len() % 2 {
                    1.0
                } else {
                    1.3
                }
            }
        };
        time *= cost;
    }
    let together = knobs.number("tile_x").unwrap_or(1) * knobs.number("tile_c").unwrap_or(1);
    if together > 64 { time * 2.0 } else { time }
}

/// Tunes in batches and returns the proposed schedules. Panics if a schedule is proposed twice.
pub fn run_trials(
    tuner: &mut dyn Tuner,
    trials: usize,
    batch: usize,
    time: impl Fn(&Schedule) -> f64,
) -> Vec<Schedule> {
    let (mut tried, mut texts) = (Vec::new(), BTreeSet::new());
    while tried.len() < trials {
        let proposed = tuner.propose_schedules(batch.min(trials - tried.len())).expect("a proposal");
        if proposed.is_empty() {
            break;
        }
        for schedule in proposed {
            assert!(texts.insert(schedule.to_json()), "{} was proposed twice", schedule.to_json());
            tuner.observe_result(&schedule, None, TrialResult::Time(time(&schedule)));
            tried.push(schedule);
        }
    }
    tried
}

pub fn childless_evolution() -> Box<dyn Evolution> {
    struct Childless;
    impl Evolution for Childless {
        fn breed_schedules(
            &mut self,
            _: &[(Schedule, f64)],
            _: usize,
            _: i64,
        ) -> std::result::Result<Vec<Schedule>, String> {
            Ok(Vec::new())
        }
    }
    Box::new(Childless)
}
