//! Times how long each tuner takes to propose 64 schedules from a space of a billion points, 256 of which have results.
//! Prints a line of JSON for each tuner; run by `cargo bench -p search`.
#![allow(missing_docs, clippy::print_stdout)]

use job::space::{Axis, Knobs, Schedule, Setting, Space, Template};
use models::Choice;
use models::Task;
use search::{Problem, TrialResult, TunerName, create_tuner};
use std::time::Instant;
use targets::llvm_target;

const KNOWN: usize = 256;
const PROPOSED: usize = 64;
const TURNS: u64 = 15;

fn main() {
    let problem = billion();
    for name in TunerName::ALL.iter().copied().filter(|name| *name != TunerName::Metaschedule) {
        let mut times: Vec<f64> = (0..TURNS).map(|seed| milliseconds(&problem, name, seed)).collect();
        times.sort_by(f64::total_cmp);
        let (middle, most) = (times[times.len() / 2], times[times.len() - 1]);
        println!(
            "{{\"benchmark\":\"propose\",\"tuner\":\"{}\",\"points\":{},\"heard\":{KNOWN},\"proposed\":{PROPOSED},\
             \"median_ms\":{middle:.2},\"max_ms\":{most:.2}}}",
            name.name(),
            problem.space.point_count()
        );
    }
}

fn billion() -> Problem {
    const NAMES: [&str; 10] =
        ["block", "tile_c", "tile_y", "tile_x", "split_r", "cache_c", "cache_y", "cache_x", "parallel", "grain"];
    let task = "mat_mul(f32[512,512], f32[512,512]) transpose_a=false transpose_b=false";
    let target = llvm_target("x86-64-v4", &["avx512f".to_owned()], 2);
    let axis = |name| Axis { name, meaning: "made up", settings: (1..=8).map(Setting::Number).collect() };
    let default = Knobs(NAMES.iter().take(5).map(|name| ((*name).to_owned(), Setting::Number(1))).collect());
    let mut problem = Problem::of_task(&Task::from_text(task).expect("a task"), &target, 1);
    problem.space = Space::without_limits(Template::Contraction, NAMES.map(axis).to_vec(), default);
    problem
}

fn milliseconds(problem: &Problem, name: TunerName, seed: u64) -> f64 {
    let mut teacher =
        create_tuner(TunerName::Random, problem, seed + 100, || unreachable!("it draws")).expect("a tuner");
    let mut own = create_tuner(name, problem, seed, || unreachable!("it knows our spaces")).expect("a tuner");
    for schedule in teacher.propose_schedules(KNOWN).expect("points") {
        own.observe_result(&schedule, None, TrialResult::Time(time(&schedule)));
    }
    let began = Instant::now();
    let proposed = own.propose_schedules(PROPOSED).expect("a proposal");
    let ms = began.elapsed().as_secs_f64() * 1e3;
    // A generation has as many as it has.
    assert!(proposed.len() == PROPOSED || name == TunerName::Ga, "{name:?}: {}", proposed.len());
    ms
}

fn time(schedule: &Schedule) -> f64 {
    let Schedule::Template { knobs } = schedule else { return 1.0 };
    let cost = |(place, setting): (usize, &Setting)| match setting {
        Setting::Number(number) => 1.0 + 0.2 * (number - 1 - (place as i64 * 3) % 8).abs() as f64,
        Setting::Choice(_) => 1.0,
    };
    1000.0 * knobs.0.values().enumerate().map(cost).product::<f64>()
}
