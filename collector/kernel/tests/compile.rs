//! Tests that TVM compiles every template of the tasks in ResNet-18 and an MLP.

use job::space::{self, Layout, Schedule};
use kernel::apply::SpaceCache;
use kernel::lower::{Form, lower_task};
use kernel::tvm::names::NameRole;
use kernel::tvm::{compile, library, object, trace};
use models::operators::{BiasAdd, Conv, Dense, GlobalPool, MatMul, Pool, Softmax, Unary};
use models::{DType, Op, Operand, Parameter, PoolMode, Step, Task, TensorType, UnaryOp};
use targets::{Cpu, Machine, Target};

fn parameter(extents: &[i64], is_constant: bool) -> Parameter {
    Parameter { ty: TensorType::new(DType::F32, extents), is_constant }
}

fn conv_bias_relu() -> Task {
    let output = TensorType::f32(&[1, 64, 56, 56]);
    Task {
        parameters: vec![parameter(&[1, 64, 56, 56], false), parameter(&[64, 64, 3, 3], true), parameter(&[64], true)],
        steps: vec![
            Step {
                op: Op::Conv(Conv { strides: vec![1, 1], pads: vec![1, 1, 1, 1], dilations: vec![1, 1], groups: 1 }),
                inputs: vec![Operand::Parameter(0), Operand::Parameter(1)],
                output: output.clone(),
            },
            Step {
                op: Op::BiasAdd(BiasAdd { axis: 1 }),
                inputs: vec![Operand::Step(0), Operand::Parameter(2)],
                output: output.clone(),
            },
            Step { op: Op::Unary(Unary { function: UnaryOp::Relu }), inputs: vec![Operand::Step(1)], output },
        ],
    }
}

fn one_step(op: Op, parameters: Vec<Parameter>, output: &[i64]) -> Task {
    let inputs = (0..parameters.len()).map(Operand::Parameter).collect();
    Task { parameters, steps: vec![Step { op, inputs, output: TensorType::f32(output) }] }
}

fn tasks() -> Vec<Task> {
    let pool = |mode| {
        Op::Pool(Pool {
            mode,
            kernel: vec![3, 3],
            strides: vec![2, 2],
            pads: vec![1, 1, 1, 1],
            dilations: vec![1, 1],
            ceil: false,
            count_pad: false,
        })
    };
    vec![
        conv_bias_relu(),
        one_step(
            Op::MatMul(MatMul { transpose_a: false, transpose_b: false }),
            vec![parameter(&[64, 96], false), parameter(&[96, 32], false)],
            &[64, 32],
        ),
        one_step(Op::Dense(Dense {}), vec![parameter(&[1, 512], false), parameter(&[1000, 512], true)], &[1, 1000]),
        one_step(Op::Dense(Dense {}), vec![parameter(&[4, 64], false), parameter(&[10, 64], true)], &[4, 10]),
        one_step(pool(PoolMode::Max), vec![parameter(&[1, 8, 14, 14], false)], &[1, 8, 7, 7]),
        one_step(pool(PoolMode::Average), vec![parameter(&[1, 8, 14, 14], false)], &[1, 8, 7, 7]),
        one_step(
            Op::GlobalPool(GlobalPool { mode: PoolMode::Average }),
            vec![parameter(&[1, 16, 7, 7], false)],
            &[1, 16, 1, 1],
        ),
        one_step(Op::Softmax(Softmax { axis: 1, log: false }), vec![parameter(&[4, 100], false)], &[4, 100]),
        one_step(Op::Unary(Unary { function: UnaryOp::Gelu }), vec![parameter(&[4, 100], false)], &[4, 100]),
    ]
}

fn target() -> (Target, compile::CompileTarget) {
    let target = targets::llvm_target(&compile::system_cpu().unwrap(), &["avx2".to_owned()], 2);
    let compiled = compile::CompileTarget::from_json(&target.text).unwrap();
    (target, compiled)
}

fn bytes_on(target: &str, machine: Cpu, text: &str) -> Vec<u8> {
    let task = Task::from_text(text).unwrap();
    let schedule = Schedule::Template { knobs: space::task_space(&task, &Machine::Cpu(machine)).default };
    let target = compile::CompileTarget::from_json(target).unwrap();
    let lowered = lower_task(&task, Form::for_schedule(&schedule, &target)).unwrap();
    let moves = kernel::apply::apply_schedule(&lowered, &schedule, &target, &mut SpaceCache::default()).unwrap();
    compile::compile_module(&moves.current_module().unwrap(), &target, schedule.function_variants(), false)
        .unwrap()
        .bytes
}

#[test]
fn bytes_are_multiplied_by_the_instruction_that_a_processor_has() {
    library::open_libraries(NameRole::Builder).unwrap();
    let sets = |bytes: &[u8]| {
        let functions = object::object_functions(bytes).unwrap();
        kernel::code::instruction_sets(functions.iter().map(|(_, code)| code.as_slice()))
    };
    let wide = Cpu { vector_lanes: 16, vector_registers: 32, cores: 2, is_halved: false, is_intel: false };
    let half = Cpu { vector_lanes: 8, vector_registers: 16, cores: 2, is_halved: false, is_intel: false };
    for text in [
        "q_conv(u8[1,24,9,9], const i8[16,24,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1 x_zero=5 w_zero=0",
        "q_dense(u8[24,64], const i8[96,64]) x_zero=5 w_zero=0",
    ] {
        let server = sets(&bytes_on(r#"{"kind": "llvm", "mcpu": "cascadelake"}"#, wide, text));
        assert!(server.iter().any(|set| set == "avx512_vnni"), "{text}: {server:?}");
        let client = sets(&bytes_on(r#"{"kind": "llvm", "mcpu": "alderlake"}"#, half, text));
        assert!(client.iter().any(|set| set == "avx_vnni"), "{text}: {client:?}");
        let old = sets(&bytes_on(r#"{"kind": "llvm", "mcpu": "haswell"}"#, half, text));
        assert!(old.iter().all(|set| !set.ends_with("vnni")), "{text}: {old:?}");
        // `sdot v, v, v` of Arm's processors, wherever its registers are.
        let arm = r#"{"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1"}"#;
        let object = bytes_on(
            arm,
            Cpu { vector_lanes: 4, vector_registers: 32, cores: 2, is_halved: false, is_intel: false },
            text,
        );
        let words = object.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
        assert!(words.filter(|word| word & 0xffe0_fc00 == 0x4e80_9400).count() > 4, "{text}");
    }
}

#[test]
fn operators_without_a_lowering_are_named() {
    library::open_libraries(NameRole::Builder).unwrap();
    let (target, compile_target) = target();
    let is_lowered = |text: &str| {
        let task = Task::from_text(text).expect("an example is a task");
        let schedule = Schedule::Template {
            knobs: space::sample_points(&space::task_space(&task, &target.machine), 3, 1).remove(0),
        };
        lower_task(&task, Form::for_schedule(&schedule, &compile_target)).is_ok()
    };
    let missing = models::operators::EXAMPLES.iter().filter(|(_, texts)| !texts.iter().all(|text| is_lowered(text)));
    assert_eq!(missing.map(|(name, _)| *name).collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn code_for_any_number_of_images_has_odd_widths_and_steps_of_two() {
    library::open_libraries(NameRole::Builder).unwrap();
    let (target, compile_target) = target();
    let window = "pads=[1,1,1,1] dilations=[1,1]";
    for text in [
        format!("conv(f32[n,5,9,33], const f32[5,1,3,3]) strides=[2,2] {window} groups=5"),
        format!("conv(f32[n,5,9,33], const f32[5,1,3,3]) strides=[1,1] {window} groups=5"),
        format!("conv(f32[n,5,9,37], const f32[20,5,3,3]) strides=[1,1] {window} groups=1"),
    ] {
        let task = Task::from_text(&text).unwrap();
        let space = space::task_space(&task.with_sizes(|_| 2), &target.machine);
        for knobs in space::sample_points(&space, 3, 3) {
            let schedule = Schedule::Template { knobs };
            if matches!(schedule.data_layout(), Layout::Winograd { .. }) {
                continue;
            }
            let lowered = lower_task(&task, Form::for_schedule(&schedule, &compile_target))
                .unwrap_or_else(|e| panic!("{text}: {e}"));
            let moves = kernel::apply::apply_schedule(&lowered, &schedule, &compile_target, &mut SpaceCache::default());
            let moves = moves.unwrap_or_else(|error| panic!("{text}, {}: {error}", schedule.describe_knobs()));
            compile::compile_module(
                &moves.current_module().unwrap(),
                &compile_target,
                schedule.function_variants(),
                false,
            )
            .unwrap();
        }
    }
}

#[test]
fn every_template_compiles_and_its_trace_replays() {
    library::open_libraries(NameRole::Builder).unwrap();
    let (target, compile_target) = target();
    let mut failures = Vec::new();
    for task in tasks() {
        let space = space::task_space(&task, &target.machine);
        for knobs in space::sample_points(&space, 7, 6) {
            let schedule = Schedule::Template { knobs };
            let result = (|| -> Result<usize, String> {
                let lowered = lower_task(&task, Form::for_schedule(&schedule, &compile_target))
                    .map_err(|e| format!("lower: {e}"))?;
                let moves =
                    kernel::apply::apply_schedule(&lowered, &schedule, &compile_target, &mut SpaceCache::default())
                        .map_err(|e| format!("apply: {e}"))?;
                let trace = trace::schedule_moves(&moves).map_err(|e| format!("trace: {e}"))?;
                let functions = schedule.function_variants();
                let module = moves.current_module().map_err(|e| e.to_string())?;
                let object = compile::compile_module(&module, &compile_target, functions, false)
                    .map_err(|e| format!("compile: {e}"))?;
                // Conditions of loops are no moves, so no trace has them.
                if lowered.window.is_some() {
                    return Ok(object.bytes.len());
                }
                let again = kernel::apply::apply_schedule(
                    &lowered,
                    &Schedule::Trace { trace },
                    &compile_target,
                    &mut SpaceCache::default(),
                )
                .map_err(|e| format!("replay: {e}"))?;
                let module = again.current_module().map_err(|e| e.to_string())?;
                let second = compile::compile_module(&module, &compile_target, functions, false)
                    .map_err(|e| format!("recompile: {e}"))?;
                if second.bytes != object.bytes {
                    return Err("the replayed trace gives other code".to_owned());
                }
                Ok(object.bytes.len())
            })();
            if let Err(why) = result {
                failures.push(format!("{:?}\n  {}\n  {why}", task.steps[0].op, schedule.describe_knobs()));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
