//! Tests that the loops described by the crate `schedules` are the loops that TVM has after a schedule's moves.
#![allow(missing_docs)]

mod common;

use job::space::axes::POOL;
use job::space::choices::YesNo;
use job::space::{self, Domain, Knobs, LoopNest, Mark, NestLoop, Schedule};
use kernel::apply::{SpaceCache, apply_schedule};
use kernel::lower::{Form, Part, lower_task};
use kernel::tvm::compile::{CompileTarget, module_text};
use kernel::tvm::library;
use kernel::tvm::names::NameRole;
use models::Task;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use schedules::tiles::tile_count;
use targets::{Target, llvm_target};

const POINTS: usize = 8;

/// A loop: its kind in TVM's script, and its trip count, which is at least 2.
type Written = (&'static str, i64);

fn written(module: &str, block: &str) -> Vec<Written> {
    let mut around: Vec<(usize, Vec<Written>)> = Vec::new();
    for line in module.lines() {
        let indent = line.len() - line.trim_start().len();
        around.retain(|(own, _)| *own < indent);
        let line = line.trim();
        if line.starts_with("with T.sblock(") && line.contains(&format!("\"{block}\"")) {
            let all = around.into_iter().flat_map(|(_, loops)| loops);
            return all.filter(|(_, extent)| *extent > 1).collect();
        }
        let Some((_, range)) = line.strip_prefix("for ").and_then(|rest| rest.split_once(" in ")) else { continue };
        let (kind, arguments) = range.split_once('(').expect("a loop has a range");
        let kind = match kind {
            "T.parallel" => "parallel",
            "T.unroll" => "unroll",
            "T.vectorized" => "vector",
            _ => "serial",
        };
        let arguments = arguments.replace("T.int64(", "").replace([')', ':'], "");
        let extents = arguments.split(", ");
        let extents = extents.take_while(|part| !part.contains('=')).map(|part| part.parse().unwrap_or(-1));
        around.push((indent, extents.map(|extent| (kind, extent)).collect()));
    }
    panic!("there is no block `{block}` in\n{module}")
}

fn described(task: &Task, knobs: &Knobs) -> Vec<Written> {
    let nest = LoopNest::of_point(&Domain::on_cpu(task), knobs);
    let loops = nest.all_loops();
    let (shared, others): (Vec<&NestLoop>, Vec<&NestLoop>) = loops.iter().partition(|one| one.mark == Mark::Parallel);
    let steps: i64 = shared.iter().map(|one| one.extent).product();
    let on_pool = if POOL.is_set_to(knobs, YesNo::No) { "serial" } else { "parallel" };
    let pieces = [(on_pool, tile_count(steps, nest.grain)), ("serial", nest.grain)];
    let others = others.into_iter().map(|one| match one.mark {
        Mark::Plain | Mark::Parallel => ("serial", one.extent),
        Mark::Unrolled => ("unroll", one.extent),
        Mark::Vector => ("vector", one.extent),
    });
    pieces.into_iter().chain(others).filter(|(_, extent)| *extent > 1).collect()
}

fn compare(target: &Target, task: &Task, seed: u64) {
    let compiled = CompileTarget::from_json(&target.text).expect("TVM knows the target");
    let space = space::task_space(task, &target.machine);
    for knobs in space::sample_points(&space, seed, POINTS) {
        let schedule = Schedule::Template { knobs: knobs.clone() };
        let lowered = lower_task(task, Form::for_schedule(&schedule, &compiled)).expect("a program");
        let moves = apply_schedule(&lowered, &schedule, &compiled, &mut SpaceCache::default())
            .unwrap_or_else(|error| panic!("{}: {error}", schedule.describe_knobs()));
        let anchor = lowered.blocks.iter().find(|block| block.part == Part::Anchor).expect("an anchor");
        let module = module_text(&moves.current_module().expect("a module")).expect("its text");
        let loops = written(&module, &format!("{}_update", anchor.name));
        assert_eq!(described(task, &knobs), loops, "{}\n{}\n{module}", task.to_text(), schedule.describe_knobs());
    }
}

fn operators() -> impl Strategy<Value = String> {
    let conv = (1..=40i64, 5..=33i64, 1..=70i64, prop::sample::select(vec![(1, 0), (3, 0), (3, 1), (5, 2)]), 1..=2i64)
        .prop_map(|(ci, hw, co, (k, p), s)| format!("conv2d:ci={ci},hw={hw},co={co},k={k},p={p},s={s}"));
    let filters = (1..=4i64, 5..=40i64, 1..=70i64)
        .prop_map(|(ci, hw, co)| format!("conv2d:ci={},hw={hw},co={co},k=3,p=1", 16 * ci));
    let depthwise =
        (1..=40i64, 5..=33i64, 1..=2i64).prop_map(|(c, hw, s)| format!("depthwise_conv2d:c={c},hw={hw},k=3,p=1,s={s}"));
    let dense = (1..=70i64, 1..=150i64, 1..=600i64).prop_map(|(m, n, k)| format!("dense:m={m},n={n},k={k}"));
    let product = (1..=3i64, 2..=70i64, 2..=150i64, 1..=200i64, 0..=1i64)
        .prop_map(|(b, m, n, k, tb)| format!("matmul:b={b},m={m},n={n},k={k},tb={tb}"));
    let bytes = (1..=40i64, 3..=20i64, 1..=40i64, prop::sample::select(vec![(1, 0), (3, 1)])).prop_map(
        |(ci, hw, co, (k, p))| {
            format!(
                "q_conv(u8[1,{ci},{hw},{hw}], const i8[{co},{ci},{k},{k}]) strides=[1,1] pads=[{p},{p},{p},{p}] \
                 dilations=[1,1] groups=1 x_zero=0 w_zero=0"
            )
        },
    );
    let quads = (1..=40i64, 1..=90i64, 1..=90i64)
        .prop_map(|(m, n, k)| format!("q_dense(u8[{m},{k}], const i8[{n},{k}]) x_zero=0 w_zero=0"));
    prop_oneof![3 => conv, 2 => filters, 2 => depthwise, 2 => dense, 2 => product, 1 => bytes, 1 => quads]
}

#[test]
fn described_loops_are_those_of_the_compiler() {
    library::open_libraries(NameRole::Builder).expect("TVM's library");
    let wide = llvm_target("x86-64-v4", &["avx512f".to_owned()], 2);
    let narrow = llvm_target("x86-64-v3", &["avx2".to_owned()], 4);
    let mut runner = TestRunner::new_with_rng(
        Config { cases: 48, failure_persistence: None, max_shrink_iters: 0, ..Config::default() },
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let cases = (operators(), any::<bool>(), 0..1000u64);
    let result = runner.run(&cases, |(operator, is_wide, seed)| {
        compare(if is_wide { &wide } else { &narrow }, &common::task(&operator), seed);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}
