//! Concurrent calls of a model on the streams of an emulated GPU, with results that equal those of sequential execution
//! bit for bit.
//!
//! The emulated device executes commands as late as it may: a call that does not wait for its inputs reads wrong data.

// Skipped tests print a message.
#![allow(clippy::print_stderr)]

#[path = "../../collector/kernel/tests/common/mod.rs"]
mod common;

use bench::{Bench as _, Workers};
use engine::network::{self, BuiltModel};
use executor::program::Numbers;
use job::listing::CodeRequests;
use job::space::{self, Schedule, Setting};
use job::{Engine, Measured, NetworkJob, RunReply};
use measure::counters::{Backend, CounterRequest};
use models::operators::{Concat, Conv, Dense, GlobalPool, Pool, PoolMode, Unary};
use models::stages::{Group, STREAMS_MOST, Stage};
use models::{
    Choice, Const, Fuse, Graph, GraphBuilder, Op, Parallel, Plan, StagePlan, Task, TensorType, UnaryOp, ValueId,
};
use readers::{Options, onnx};
use reference::Tensor;
use std::fs;
use std::path::{Path, PathBuf};
use targets::Target;
use tests::emulator::{Behaviour, Emulator};
use tests::{Bench, Ran, run, stores};

fn emulator() -> Option<Emulator> {
    let found = Emulator::new();
    if found.is_none() {
        eprintln!("skipped: no NVRTC with headers, or no g++");
    }
    found
}

/// Returns a convolution with this many channels, followed by a ReLU.
fn conv(builder: &mut GraphBuilder, x: ValueId, out: i64, kernel: i64) -> ValueId {
    let channels = builder.value_type(x).expect("a value").extents().expect("numbers")[1];
    let weight = TensorType::f32(&[out, channels, kernel, kernel]);
    let seed = u64::from(builder.next_id().0);
    let weight = builder.add_constant(&format!("weight{seed}"), weight, Const::Random { seed }).expect("a weight");
    let pads = vec![(kernel - 1) / 2; 4];
    let op = Op::Conv(Conv { strides: vec![1; 2], pads, dilations: vec![1; 2], groups: 1 });
    let y = builder.push(op, &[x, weight]).expect("a convolution");
    builder.push(Op::Unary(Unary { function: UnaryOp::Relu }), &[y]).expect("an activation")
}

/// Returns two blocks of four branches with different lengths, concatenated as in Inception.
fn inception() -> Graph {
    let mut builder = GraphBuilder::new("inception");
    let mut x = builder.add_input("x", TensorType::f32(&[1, 4, 6, 6])).expect("an input");
    for _ in 0..2 {
        let pool = Op::Pool(Pool {
            mode: PoolMode::Max,
            kernel: vec![3; 2],
            strides: vec![1; 2],
            pads: vec![1; 4],
            dilations: vec![1; 2],
            ceil: false,
            count_pad: false,
        });
        let short = conv(&mut builder, x, 4, 1);
        let narrow = conv(&mut builder, x, 6, 1);
        let middle = conv(&mut builder, narrow, 4, 3);
        let narrow = conv(&mut builder, x, 2, 1);
        let wide = conv(&mut builder, narrow, 3, 3);
        let long = conv(&mut builder, wide, 5, 3);
        let pooled = builder.push(pool, &[x]).expect("a pool");
        let pooled = conv(&mut builder, pooled, 3, 1);
        x = builder.push(Op::Concat(Concat { axis: 1 }), &[short, middle, long, pooled]).expect("joined branches");
    }
    let mean = builder.push(Op::GlobalPool(GlobalPool { mode: PoolMode::Average }), &[x]).expect("means");
    builder.finish(&[x, mean]).expect("a graph")
}

/// Returns concurrent products with sums so long that several thread blocks compute each sum.
fn products() -> Graph {
    let mut builder = GraphBuilder::new("products");
    let x = builder.add_input("x", TensorType::f32(&[4, 256])).expect("an input");
    let product = |seed: u64| {
        let weight = TensorType::f32(&[24, 256]);
        let weight = builder.add_constant(&format!("weight{seed}"), weight, Const::Random { seed }).expect("a weight");
        builder.push(Op::Dense(Dense {}), &[x, weight]).expect("a product")
    };
    let products: Vec<ValueId> = (1..=4).map(product).collect();
    builder.finish(&products).expect("a graph")
}

fn model(graph: &Graph, file: &Path) -> (Graph, Plan) {
    fs::write(file, onnx::write_graph(graph).expect("a file")).expect("it can be written");
    let graph = onnx::load_file(file, &Options::default()).expect("the file is read").graph;
    let graph = passes::simplify_graph(&graph).expect("a simple model");
    let plan = models::plan_calls(&graph, Fuse::Epilogue).expect("calls");
    (graph, plan)
}

struct Rig {
    emulator: Emulator,
    workers: Workers,
    target: Target,
    graph: Graph,
    plan: Plan,
    inputs: Vec<Tensor>,
}

impl Rig {
    fn of(emulator: Emulator, graph: &Graph) -> Rig {
        let (graph, plan) = model(graph, &emulator.path().join("model.onnx"));
        let inputs = reference::graph_inputs(&graph, 0).expect("numbers");
        let bytes: Vec<u8> = inputs.iter().flat_map(|input| input.as_bytes().iter().copied()).collect();
        fs::write(emulator.path().join("inputs.bin"), bytes).expect("inputs can be written");
        let workers = Workers::new(&emulator.worker(&common::worker()), &common::limits());
        let target =
            targets::parse_cuda(&targets::cuda_text(&["sm_80".to_owned()])).expect("the architecture has a name");
        Rig { emulator, workers, target, graph, plan, inputs }
    }

    fn by_rule(&self, parallel: Parallel) -> StagePlan {
        let made = StagePlan::by_rule(&self.graph, &self.plan, 4, parallel);
        assert_eq!(made.check_matches(&self.graph, &self.plan, 4, "here"), Ok(()));
        made.on_streams(STREAMS_MOST)
    }

    /// Builds the folder of a program with these stages, with default schedules.
    fn make(&mut self, name: &str, stages: Option<&StagePlan>) -> PathBuf {
        let target = self.target.clone();
        self.make_by(name, stages, &|task| network::default_schedule(task, &target)).0
    }

    fn make_by(
        &mut self,
        name: &str,
        stages: Option<&StagePlan>,
        choose: &dyn Fn(&Task) -> Schedule,
    ) -> (PathBuf, BuiltModel) {
        let folder = self.emulator.path().join(name);
        fs::create_dir(&folder).expect("a new folder");
        let constants = reference::graph_constants(&self.graph).expect("small constants");
        let mut numbers = Numbers::from_constants(&self.graph, &constants);
        let Rig { workers, target, plan, .. } = self;
        let made = network::build_model(&mut numbers, (plan, stages), target, choose, workers, &mut || true, &folder);
        (folder, made.expect("a program"))
    }

    fn job(&self, program: &Path) -> NetworkJob {
        NetworkJob {
            engine: Engine::Cuda,
            program: program.to_owned(),
            inputs: self.emulator.path().join("inputs.bin"),
            outputs: self.emulator.path().join("outputs.bin"),
            cpus: vec![0],
            method: common::one_run(),
            placement: measure::Placement::default(),
            counters: CounterRequest { backend: Backend::None, ..CounterRequest::default() },
            profile: None,
            code: CodeRequests::default(),
        }
    }

    fn answer(&mut self, program: &Path) -> (Vec<u8>, Measured) {
        let job = self.job(program);
        match self.workers.run_network(&job, common::PATIENCE) {
            Ok(RunReply::Measured(measured)) => (fs::read(&job.outputs).expect("outputs"), *measured),
            other => panic!("{other:?}"),
        }
    }

    fn is_right(&self, outputs: &[u8]) -> bool {
        let wanted = reference::evaluate_graph(&self.graph, &self.inputs).expect("the reference");
        let types = self.graph.outputs.iter().map(|id| &self.graph.values[id.0 as usize].ty);
        let found = network::parse_tensors(types, outputs).expect("tensors");
        let compared = network::compare_outputs(network::error_tolerance(&self.graph), &found, &wanted);
        compared.is_right && compared.largest_output > 0.0
    }
}

/// Behaviours of the emulator that make either kernel launches or CUDA graphs the slower way to run a model.
const WAYS: [&str; 2] = ["slow-launches", "slow-graphs"];

/// Behaviours that set the order in which the device executes ready commands; by default, the latest is first.
const ORDERS: [Option<&str>; 3] = [None, Some("ahead-order"), Some("drawn-order")];

#[test]
fn concurrent_streams_give_the_same_bits() {
    let Some(emulator) = emulator() else { return };
    let mut rig = Rig::of(emulator, &inception());
    let folder = rig.make("plain", None);
    let (plain, measured) = rig.answer(&folder);
    assert!(rig.is_right(&plain) && measured.stages_ns.is_empty(), "{measured:?}");
    for parallel in [Parallel::Sequential, Parallel::Stream, Parallel::Full] {
        let stages = rig.by_rule(parallel);
        assert_eq!(stages.max_groups() > 1, parallel != Parallel::Sequential);
        let folder = rig.make(parallel.name(), Some(&stages));
        for way in WAYS {
            // Sequential stages have only one order.
            let orders = if stages.max_groups() > 1 { &ORDERS[..] } else { &ORDERS[..1] };
            for &order in orders {
                let path = rig.emulator.path().to_owned();
                let _behaviours = [Some(way), order].map(|word| word.map(|word| Behaviour::new(&path, word)));
                let (outputs, measured) = rig.answer(&folder);
                assert_eq!(outputs, plain, "{} {way} {order:?}", parallel.name());
                let seen: Vec<usize> = measured.stages_ns.iter().map(Vec::len).collect();
                let wanted: Vec<usize> = program(&folder).stages.iter().map(|stage| stage.groups.len()).collect();
                assert_eq!(seen, wanted, "every group was seen");
                assert!(measured.stages_ns.iter().flatten().all(|(begin, end)| begin <= end), "{measured:?}");
            }
        }
    }
}

fn program(folder: &Path) -> executor::Program {
    executor::folder::read_program(folder).expect("a program").program
}

/// If two stages are merged, the second reads missing data, so every barrier between stages is necessary.
#[test]
fn a_stage_without_waits_gives_other_results() {
    let Some(emulator) = emulator() else { return };
    let mut rig = Rig::of(emulator, &inception());
    let _slow = Behaviour::new(rig.emulator.path(), WAYS[1]);
    let right = rig.by_rule(Parallel::Stream);
    for first in 0..right.stages.len() - 1 {
        let mut wrong = right.clone();
        let second = wrong.stages.remove(first + 1);
        wrong.stages[first].groups.extend(second.groups);
        assert!(wrong.check_matches(&rig.graph, &rig.plan, wrong.cores, "here").is_err(), "it is no plan");
        let folder = rig.make(&format!("wrong{first}"), Some(&wrong.on_streams(STREAMS_MOST)));
        let (outputs, _) = rig.answer(&folder);
        assert!(!rig.is_right(&outputs), "stages {first} and {}", first + 1);
    }
}

/// Kernels of a call exchange data in memory that no other stream writes.
#[test]
fn workspaces_belong_to_a_stream() {
    let Some(emulator) = emulator() else { return };
    let mut rig = Rig::of(emulator, &products());
    let target = rig.target.clone();
    let split = |task: &Task| {
        let mut knobs = space::task_space(task, &target.machine).default;
        knobs.0.insert("split_k".to_owned(), Setting::Number(4));
        Schedule::Template { knobs }
    };
    let stages = rig.by_rule(Parallel::Stream);
    assert_eq!(stages.max_groups(), 4);
    let (folder, made) = rig.make_by("split", Some(&stages), &split);
    let code = made.artifacts[0].device.as_ref().expect("it is for a device");
    assert!(code.launches.len() == 2 && !code.workspaces.is_empty(), "{:?}", code.launches);
    let _drawn = Behaviour::new(rig.emulator.path(), "drawn-order");
    let (outputs, _) = rig.answer(&folder);
    assert!(rig.is_right(&outputs));
}

#[test]
fn programs_for_cores_do_not_run_on_streams() {
    let Some(emulator) = emulator() else { return };
    let mut rig = Rig::of(emulator, &products());
    for (name, cores) in [("two", vec![0, 1]), ("far", vec![STREAMS_MOST])] {
        let calls = (0..rig.plan.calls.len()).collect();
        let stages = vec![Stage { groups: vec![Group { cores, calls }], time_ns: None }];
        let plan = StagePlan { stages, ..StagePlan::without_stages(&rig.graph, &rig.plan, 2, Parallel::Stream) };
        let program = rig.make(name, Some(&plan));
        let job = rig.job(&program);
        match rig.workers.run_network(&job, common::PATIENCE) {
            Ok(RunReply::Failed(why)) => {
                assert!(why.contains("must be on one stream, with a number below 32"), "{why}")
            }
            other => panic!("{other:?}"),
        }
    }
}

fn outputs(bench: &Bench, folder: &str) -> Vec<Vec<u8>> {
    let mut files = stores::files(&bench.path(folder));
    files.sort();
    assert!(!files.is_empty(), "{folder} has outputs");
    files.iter().map(|file| fs::read(file).expect("an output")).collect()
}

#[track_caller]
fn refused(ran: Ran, wanted: &str) {
    let ran = ran.expect(2);
    assert!(ran.stderr.contains(wanted), "`{wanted}` is said\n{ran}");
}

#[test]
fn a_model_is_run_on_streams_by_the_command() {
    let Some(emulator) = emulator() else { return };
    let bench = Bench::new();
    let (graph, plan) = model(&inception(), &bench.path("model.onnx"));
    let asked = "model run --modelsource onnx --modelname model.onnx --target cuda --precision 0.5";
    let opcollect = |arguments: &str| {
        let mut command = bench.opcollect(&format!("{asked} {arguments}"));
        emulator.lend(&mut command);
        run(command)
    };
    let plain = opcollect("--json --output plain").expect(0).json();
    assert!(plain["check"]["is_right"] == true && plain["parallel"].is_null(), "{plain}");
    for parallel in ["sequential", "stream", "full"] {
        let flags = format!("--json --output {parallel} --parallel {parallel} --store {parallel}-kept");
        let report = opcollect(&flags).expect(0).json();
        assert!(report["check"]["is_right"] == true && report["parallel"] == parallel, "{report}");
        assert_eq!(report["width"].as_u64(), Some(if parallel == "sequential" { 1 } else { 4 }), "{report}");
        let lanes = report["lanes"].as_array().expect("groups");
        let streams: Vec<u64> = lanes.iter().filter_map(|lane| lane["stream"].as_u64()).collect();
        assert_eq!(streams.iter().max(), Some(&(report["width"].as_u64().expect("a width") - 1)), "{report}");
        assert!(streams.len() == lanes.len() && lanes.iter().all(|lane| lane["cores"].is_null()), "{report}");
        assert_eq!(outputs(&bench, parallel), outputs(&bench, "plain"), "{parallel}");
        let kept = stores::records(&bench.path(&format!("{parallel}-kept")));
        assert_eq!(kept[0].parallel_type.as_deref(), Some(parallel));
    }
    let by_rule = StagePlan::by_rule(&graph, &plan, 3, Parallel::Stream);
    let write = |name: &str, plan: &StagePlan| bench.write(name, &serde_json::to_string(plan).expect("JSON"));
    write("three.plan", &by_rule);
    let report = opcollect("--json --output three --plan three.plan").expect(0).json();
    assert!(report["check"]["is_right"] == true && report["width"] == 3, "{report}");
    assert_eq!(outputs(&bench, "three"), outputs(&bench, "plain"));

    write("cpu.plan", &StagePlan { host_class: Some("some-cpu".to_owned()), ..by_rule.clone() });
    refused(opcollect("--plan cpu.plan"), "the plan is for another machine: some-cpu; this machine is a GPU");
    write("other.plan", &StagePlan { calls_hash: "0".to_owned(), ..by_rule.clone() });
    refused(opcollect("--plan other.plan"), "the plan is for another graph");
    let mut hasty = by_rule;
    hasty.stages.swap(0, 1);
    write("hasty.plan", &hasty);
    refused(opcollect("--plan hasty.plan"), "has not computed yet");
}
