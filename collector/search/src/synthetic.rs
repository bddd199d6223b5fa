//! Spaces with synthetic times, for comparisons of tuners without a compiler.

use crate::{Evolution, Problem, TrialResult, Tuner};
use job::space::{Axis, Knobs, Schedule, Setting, Space, Template};
use models::Fuse;
use std::collections::BTreeSet;
use targets::{Target, llvm};

pub fn machine() -> Target {
    llvm("x86-64-v4", &["avx512f".to_owned()], 2)
}

pub fn problem(operator: &str) -> Problem {
    let graph = zoo::simple::build(operator).expect("an operator");
    let plan = models::plan(&graph, Fuse::Epilogue).expect("tasks");
    Problem::of(&plan.tasks[0].task, &machine(), 1)
}

/// Creates a space of 10 axes with 8 settings each, that is a billion points. The time is a product of costs of axes
/// and of one interaction.
pub fn billion() -> Problem {
    const NAMES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let axis = |name| Axis { name, meaning: "made up", settings: (0..8).map(Setting::Number).collect() };
    let axes: Vec<Axis> = NAMES.into_iter().map(axis).collect();
    let default = Knobs(NAMES.iter().map(|name| ((*name).to_owned(), Setting::Number(0))).collect());
    Problem { space: Space::free(Template::Contraction, axes, default), ..problem("matmul:m=64,n=64,k=64") }
}

/// Returns the time of a point: every knob has a best setting, and its neighbours are slightly worse.
pub fn time(schedule: &Schedule) -> f64 {
    let Schedule::Template { knobs } = schedule else { panic!("a point of a made-up space") };
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

/// Runs a tuner for `trials` trials in batches and returns them. Panics if a schedule is proposed twice.
pub fn tune(tuner: &mut dyn Tuner, trials: usize, batch: usize, time: impl Fn(&Schedule) -> f64) -> Vec<Schedule> {
    let (mut tried, mut texts) = (Vec::new(), BTreeSet::new());
    while tried.len() < trials {
        let proposed = tuner.propose(batch.min(trials - tried.len())).expect("a proposal");
        if proposed.is_empty() {
            break;
        }
        for schedule in proposed {
            assert!(texts.insert(schedule.to_json()), "{} came twice", schedule.to_json());
            tuner.observe(&schedule, None, TrialResult::Time(time(&schedule)));
            tried.push(schedule);
        }
    }
    tried
}

/// Returns an evolution without children, for tuners that do not use one.
pub fn childless() -> Box<dyn Evolution> {
    struct Childless;
    impl Evolution for Childless {
        fn breed(&mut self, _: &[(Schedule, f64)], _: usize, _: i64) -> std::result::Result<Vec<Schedule>, String> {
            Ok(Vec::new())
        }
    }
    Box::new(Childless)
}
