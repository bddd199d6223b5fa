//! Models are profiled operator by operator, through the real worker.
#![allow(missing_docs)]

use datasets::{Choose, Outcome, Record, Store};
use profile::Profile;
use profile::data::{Kind, Pool};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use tests::workspace::root;
use tests::{Bench, run, skip};

struct ProfileRun {
    report: Value,
    profile: Profile,
}

impl ProfileRun {
    #[track_caller]
    fn of(bench: &Bench, arguments: &str) -> ProfileRun {
        ProfileRun::check(bench, bench.profile(&ProfileRun::options(arguments)))
    }

    #[track_caller]
    fn with_peaks(bench: &Bench, arguments: &str) -> ProfileRun {
        ProfileRun::check(bench, bench.opcollect(&format!("profile {}", ProfileRun::options(arguments))))
    }

    fn options(arguments: &str) -> String {
        let seconds = if arguments.contains("--seconds") { "" } else { "--seconds 0.05" };
        format!("{seconds} --json --wait 300 --out profile.json --csv rows.csv {arguments}")
    }

    /// Profiles a model and checks that all sums are consistent.
    #[track_caller]
    fn check(bench: &Bench, command: Command) -> ProfileRun {
        let ran = run(command).expect(0);
        let report = ran.json();
        let text = fs::read_to_string(bench.path("profile.json")).expect("the profile was written");
        let profile: Profile = serde_json::from_str(&text).expect("it is one");
        profile.check().expect("it fits together");
        let seen = ProfileRun { report, profile };
        seen.adds_up();
        let lines = fs::read_to_string(bench.path("rows.csv")).expect("the rows were written");
        assert!(lines.lines().count() == 1 + seen.rows().len() && lines.starts_with("name,text,scope,"), "{lines}");
        seen
    }

    fn rows(&self) -> &[Value] {
        self.report["rows"].as_array().expect("rows")
    }

    #[track_caller]
    fn number(&self, name: &str) -> u64 {
        self.report[name].as_u64().unwrap_or_else(|| panic!("no `{name}`: {}", self.report))
    }

    #[track_caller]
    fn adds_up(&self) {
        let ProfileRun { report, profile } = self;
        let of_rows = |name: &str| self.rows().iter().map(|row| row[name].as_u64().expect("a count")).sum::<u64>();
        let (steps, calls) = (self.number("steps"), self.number("calls"));
        assert_eq!(of_rows("self_total_ns"), self.number("sum_ns"), "{report}");
        assert_eq!(of_rows("calls"), steps * calls, "{report}");
        assert_eq!(self.number("sum_ns") + self.number("not_attributed_ns"), self.number("total_ns"), "{report}");
        assert!(report["profiler_slowdown"].as_f64().is_some_and(|ratio| ratio > 0.0), "{report}");
        assert_eq!(report["check"]["is_right"], true, "{report}");
        let operators = profile.spans.iter().filter(|span| span.kind == Kind::Operator).count();
        assert_eq!((profile.steps.len() as u64, operators as u64), (steps, steps * calls));
        let activations = profile.memory.iter().filter(|event| event.pool == Pool::Activations);
        let live: Vec<u64> = activations.map(|event| event.live_bytes).collect();
        assert_eq!(live.iter().max().copied().unwrap_or(0), self.number("least_activation_bytes"), "{report}");
        assert_eq!(live.last().copied().unwrap_or(0), 0, "all is given back");
        assert!(self.rows().iter().all(|row| row["workspace_bytes"].is_u64()), "{report}");
        let weights = profile.memory.iter().find(|event| event.pool == Pool::Weights);
        assert_eq!(weights.map(|event| event.live_bytes), Some(self.number("constant_bytes")));
    }
}

const GPT: &str =
    "--modelsource transformers --modelname gpt2:n_layer=2,n_embd=64,n_head=4,vocab_size=300 --sequence 9";

#[test]
fn operators_add_up_to_the_model() {
    let bench = Bench::new();
    let mlp = "--modelsource local --modelname mlp --threads 1 --group-by call --sort-by order";
    let mlp = ProfileRun::with_peaks(&bench, mlp);
    let names: Vec<&str> = mlp.rows().iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names, ["dense+bias+relu", "dense+bias+relu", "dense+bias", "softmax"]);
    assert_eq!(mlp.rows()[0]["flops"].as_f64(), Some(2.0 * 784.0 * 128.0 + 2.0 * 128.0), "{}", mlp.report);
    assert!(mlp.rows().iter().all(|row| row["roofline_share"].as_f64().is_some_and(|share| share > 0.0)));
    let by_name = ProfileRun::of(&bench, &format!("{GPT} --group-by name"));
    let layers = by_name.rows().iter().find(|row| row["name"] == "layer_norm").expect("a transformer has some");
    assert_eq!(layers["calls_per_step"].as_f64(), Some(5.0));
    let by_scope = ProfileRun::of(&bench, &format!("{GPT} --phase decode --group-by scope --levels 1"));
    assert!(by_scope.rows().len() < by_name.rows().len() && by_scope.report["group_by"] == "scope");
}

#[test]
fn quantised_models_and_joined_tensors_are_profiled() {
    let bench = Bench::new();
    let quantised = root().join("models/readers/tests/tflite-cases/one_layer_int8/qdq.onnx");
    ProfileRun::of(&bench, &format!("--modelsource onnx --modelname {}", quantised.display()));
    // The concatenations need no calls, and their operands stay in memory.
    let fire = ProfileRun::of(&bench, "--modelsource local --modelname squeezenet-1.1:hw=64 --threads 1");
    assert!(fire.rows().iter().all(|row| row["name"] != "concat"), "{}", fire.report);
}

#[test]
fn the_steps_of_a_schedule_match_torch() {
    let bench = Bench::new();
    let schedule = "--schedule skip_first=10,wait=5,warmup=1,active=3,repeat=2 --seconds 60";
    let seen = ProfileRun::of(&bench, &format!("--modelsource local --modelname mlp {schedule}"));
    let steps: Vec<(u64, u32)> = seen.profile.steps.iter().map(|step| (step.number, step.cycle)).collect();
    assert_eq!(steps, [(16, 0), (17, 0), (18, 0), (25, 1), (26, 1), (27, 1)]);
}

#[test]
fn counters_cover_each_operator_or_have_a_reason() {
    let bench = Bench::new();
    let counters = "papi:sde:::opcollect::calls,minor_faults,cycles,papi:no_such::EVENT";
    let seen = ProfileRun::of(&bench, &format!("{GPT} --threads 1 --group-by call --counters {counters}"));
    let faults = |row: &Value| row["counters"]["minor_faults"].as_f64();
    assert!(seen.rows().iter().all(|row| faults(row).is_some_and(|mean| mean < 1.0)), "{}", seen.report);
    let given: Vec<&str> = seen.profile.counters.iter().map(|counter| counter.name.as_str()).collect();
    let why = |name: &str| {
        let refusals = seen.profile.refusals.iter().filter(|refusal| refusal.counter == name);
        refusals.map(|refusal| refusal.why.as_str()).collect::<Vec<_>>()
    };
    assert!(why("papi:no_such::EVENT").iter().all(|why| why.len() > 5) && !why("papi:no_such::EVENT").is_empty());
    assert!(given.contains(&"cycles") || !why("cycles").is_empty(), "absent is not zero: {}", seen.report);
    if !given.contains(&"papi:sde:::opcollect::calls") {
        return skip(&format!("no PAPI with software-defined events: {:?}", why("papi:sde:::opcollect::calls")));
    }
    let once = |row: &Value| row["counters"]["papi:sde:::opcollect::calls"].as_f64() == Some(1.0);
    assert!(seen.rows().iter().all(once), "PAPI sees each call once: {}", seen.report);
    let misspelled =
        "--modelsource local --modelname mlp --seconds 0.05 --no-check --counters papi:sde:::opcollect::cals";
    let output = run(bench.profile(&format!("--wait 300 {misspelled}"))).expect(0).stdout;
    assert!(output.contains("not counted") && output.contains("did you mean `sde:::opcollect::calls`?"), "{output}");
}

#[test]
fn operators_in_the_network_are_recorded_separately() {
    let bench = Bench::new();
    let mlp = "--modelsource local --modelname mlp --threads 1";
    run(bench.opcollect(&format!("model run --precision 0.5 --wait 300 {mlp} --store store"))).expect(0);
    let counters = "--counters minor_faults,papi:no_such::EVENT";
    let seen = ProfileRun::of(&bench, &format!("{mlp} --store store {counters}"));
    let store = Store::open(&bench.path("store")).expect("a store");
    let records: Vec<Record> =
        store.select_records(Choose::All).expect("rows").collect::<Result<_, _>>().expect("all can be read");
    let (networks, inside): (Vec<&Record>, Vec<&Record>) = records.iter().partition(|record| record.is_network());
    assert_eq!((networks.len(), inside.len()), (1, 4), "{}", seen.report);
    for record in &inside {
        assert_eq!(record.network_hash.as_ref(), Some(&networks[0].task_hash));
        assert!(!record.is_alone() && record.outcome == Outcome::Ok && record.median_ns > Some(0.0), "{record:?}");
        assert_eq!(record.n as u64, seen.number("steps"), "one call of each in a run");
        let text =
            |json: &Option<datasets::Json>| json.as_ref().map(|json| json.as_text().to_owned()).unwrap_or_default();
        assert!(text(&record.counters).contains("minor_faults"), "{record:?}");
        assert!(text(&record.counters_refused).contains("no_such"), "{record:?}");
    }
    let keys: BTreeSet<String> = records.iter().map(|record| record.key.to_hex()).collect();
    assert_eq!(keys.len(), 5, "each is an experiment of its own");
    let again = run(bench.opcollect(&format!("replay --store store --key {}", inside[0].key.to_hex()))).expect(2);
    assert!(again.stderr.contains("inside a running model"), "{again}");
    let verified = run(bench.opcollect("dataset verify --store store")).expect(0);
    assert!(verified.stderr.is_empty(), "{verified}");
}

#[test]
fn pool_threads_appear_within_their_operators() {
    if measure::affinity::allowed_cpus().expect("the system tells the CPUs").len() < 2 {
        return skip("one CPU has no pool of threads");
    }
    let bench = Bench::new();
    let seen = ProfileRun::of(&bench, "--modelsource local --modelname squeezenet-1.1:hw=64 --threads 2");
    let threads = seen.report["threads_of_pool"].as_array().expect("threads");
    let tasks: u64 = threads.iter().map(|thread| thread["tasks"].as_u64().expect("a count")).sum();
    assert!(threads.len() == 2 && tasks >= 2 * seen.number("steps"), "{}", seen.report);
    let ids: BTreeSet<u64> = seen.profile.tracks.iter().skip(1).map(|track| track.id).collect();
    assert!(ids.len() == 2 && ids.contains(&seen.profile.tracks[0].id), "the caller is one of them");
    assert!(threads.iter().all(|thread| thread["polling_ns"].is_u64()), "{}", seen.report);
    let convolution = seen.rows().iter().find(|row| row["tasks_per_call"] == 2.0).expect("some have a task a thread");
    assert!(convolution["imbalance"].as_f64().is_some_and(|ratio| (1.0..=2.0).contains(&ratio)), "{convolution}");
}

#[test]
fn a_model_written_as_an_onnx_file_is_profiled_like_itself() {
    let bench = Bench::new();
    run(bench.opcollect("graph --modelsource local --modelname mlp --onnx mlp.onnx")).expect(0);
    let file = ProfileRun::of(&bench, "--modelsource onnx --modelname mlp.onnx --threads 1");
    assert_eq!((file.number("calls"), file.number("tasks")), (4, 4), "{}", file.report);
    let several =
        run(bench.opcollect("graph --modelsource local --modelname mlp --batchsize 1,2 --onnx x.onnx")).expect(2);
    assert!(several.stderr.contains("needs exactly one model with one batch size"), "{several}");
}

#[test]
fn two_profiles_are_compared() {
    let bench = Bench::new();
    let mlp = "--modelsource local --modelname mlp --threads 1";
    ProfileRun::of(&bench, mlp);
    fs::rename(bench.path("profile.json"), bench.path("before.json")).expect("it was written");
    ProfileRun::of(&bench, &format!("{mlp} --batchsize 64"));
    let same = run(bench.opcollect("profile diff before.json before.json --json")).expect(0).json();
    let changes = same["changes"].as_array().expect("rows");
    assert!(changes.len() == 4 && changes.iter().all(|change| change["verdict"] == "same"), "{same}");
    let other = run(bench.opcollect("profile diff before.json profile.json --group-by name --json")).expect(0).json();
    let dense = other["changes"].as_array().expect("rows").iter().find(|change| change["name"] == "dense+bias+relu");
    assert!(dense.is_some_and(|change| change["verdict"] == "slower"), "64 images take longer than one: {other}");
    bench.write("broken.json", r#"{"model":"x","spans":[{"operator":9}]}"#);
    for (files, wanted) in [("before.json missing.json", "missing.json"), ("broken.json before.json", "broken.json")] {
        let ran = run(bench.opcollect(&format!("profile diff {files}"))).expect(2);
        assert!(ran.stderr.contains(wanted) && ran.stderr.contains("hint: "), "{ran}");
    }
}

#[test]
fn an_operator_is_shown_down_to_its_machine_code() {
    let bench = Bench::new();
    let mlp = "--modelsource local --modelname mlp --batchsize 16 --threads 1 --group-by call";
    let seen = ProfileRun::of(&bench, &format!("{mlp} --annotate fc1 --annotate-to code --perf-map"));
    let shown = &seen.report["annotation"];
    assert_eq!((&shown["places"], &shown["is_code_that_ran"]), (&json!(["fc1"]), &json!(true)), "{shown}");
    let text = |name: &str| fs::read_to_string(bench.path(&format!("code/{name}"))).expect("the file was written");
    for (name, wanted) in [
        ("schedule.json", "template"),
        ("scheduled.tir.py", "T.sblock"),
        ("lowered.tir.py", "T.tvm_struct_get"),
        ("code.ll", "define "),
        ("code.s", "main"),
    ] {
        assert!(text(name).contains(wanted), "{name}: {}", text(name));
    }
    let functions = shown["functions"].as_array().expect("functions");
    let loops = || functions.iter().flat_map(|function| function["loops"].as_array().expect("loops"));
    let shares: f64 = loops().map(|one| one["share"].as_f64().expect("a share")).sum();
    assert!(loops().count() > 0 && shares <= 1.0 + 1e-9, "{shares}");
    let map = seen.report["perf_map"].as_str().expect("a map was asked for").to_owned();
    let names = fs::read_to_string(&map).expect("it is still there");
    assert!(names.lines().any(|line| line.contains(" opcollect:fc1:") && line.contains("main")), "{names}");
    fs::remove_file(map).expect("it is ours");
    if seen.report["annotation"]["samples"].is_null() {
        let refusal = seen.profile.refusals.iter().find(|refusal| refusal.counter == "cpu-clock");
        assert!(shown["basis"] == "estimated", "what was not sampled is not called so: {shown}");
        return skip(&format!("the kernel samples nothing here: {:?}", refusal.expect("the reason is given").why));
    }
    let lines = || functions.iter().flat_map(|function| function["lines"].as_array().expect("lines"));
    let found: u64 = lines().map(|line| line["samples"].as_u64().expect("a count")).sum();
    let count = |name: &str| shown["samples"][name].as_u64().expect("a count");
    assert_eq!(found + count("in_glue"), count("own"), "each sample is at an instruction");
    assert_eq!(shown["basis"] == "sampled", count("own") >= 30, "{}", shown["samples"]);
    let unknown = run(bench.opcollect("profile --modelsource local --modelname mlp --annotate sofmax")).expect(2);
    assert!(unknown.stderr.contains("did you mean `softmax`"), "{unknown}");
}

#[test]
fn thread_counts_cover_their_tasks_only() {
    if measure::affinity::allowed_cpus().expect("the system tells the CPUs").len() < 2 {
        return skip("one CPU has no pool of threads");
    }
    let bench = Bench::new();
    let fire = "--modelsource local --modelname squeezenet-1.1:hw=64 --threads 2";
    let counters = "--counters thread_cpu_ns,minor_faults";
    let seen = ProfileRun::of(&bench, &format!("{fire} {counters} --store store"));
    assert!(
        seen.profile.counters.iter().all(|counter| counter.name != "minor_faults_in_tasks"),
        "they are the process's"
    );
    let store = Store::open(&bench.path("store")).expect("a store");
    for record in store.select_records(Choose::All).expect("rows") {
        let record = record.expect("it can be read");
        assert!((record.n as u64).is_multiple_of(seen.number("steps")), "parts are no calls: {record:?}");
    }
    let name = "thread_cpu_ns_in_tasks";
    if seen.profile.counters.iter().all(|counter| counter.name != name) {
        return skip(&format!("threads count nothing here: {:?}", seen.profile.refusals));
    }
    let convolution = seen.rows().iter().find(|row| row["tasks_per_call"] == 2.0).expect("some have a task a thread");
    assert!(convolution["counters"][name].as_f64().is_some_and(|ns| ns > 0.0), "{convolution}");
    let threads = seen.report["threads_of_pool"].as_array().expect("threads");
    assert!(threads.iter().all(|thread| thread["counters"][name].as_f64() > Some(0.0)), "{threads:?}");
}

#[test]
fn tables_of_other_tools_agree() {
    let bench = Bench::new();
    let mlp =
        "--modelsource local --modelname mlp --threads 1 --seconds 0.05 --wait 300 --out profile.json --csv t.csv";
    let torch = run(bench.profile(&format!("{mlp} --style torch --group-by name --json"))).expect(0).json();
    let text = fs::read_to_string(bench.path("profile.json")).expect("the profile was written");
    let profile: Profile = serde_json::from_str(&text).expect("it is one");
    let totals = profile::summary::compute_totals(&profile);
    assert_eq!(torch["self_cpu_time_total_ns"].as_u64(), Some(totals.sum_ns));
    let dense = torch["rows"].as_array().expect("rows").iter().find(|row| row["name"] == "dense+bias+relu");
    assert_eq!(dense.and_then(|row| row["count"].as_u64()), Some(2 * totals.steps as u64), "{torch}");
    let tvm = run(bench.profile(&format!("{mlp} --style tvm"))).expect(0);
    for wanted in ["Duration (us)", "Argument Shapes", "Sum", "Total", "Number of threads: 1", "not attributed"] {
        assert!(tvm.stdout.contains(wanted), "{wanted}: {tvm}");
    }
    let csv = fs::read_to_string(bench.path("t.csv")).expect("the rows were written");
    assert!(csv.starts_with("Name,Duration (us),Percent,Device,Count,Argument Shapes,Hash"), "{csv}");
}

#[test]
fn each_cycle_is_handed_over_when_its_trace_is_ready() {
    let bench = Bench::new();
    let mlp = "--modelsource local --modelname mlp --threads 1 --wait 300 --json";
    bench.write("keep.sh", "echo to be seen\ncp \"$1\" \"kept-$(basename \"$1\")\"\n");
    let schedule = "--schedule wait=1,warmup=1,active=2,repeat=2 --seconds 60";
    let ready = ["--on-trace-ready", "sh keep.sh"];
    let mut command = bench.profile(&format!("{mlp} {schedule}"));
    command.args(ready);
    let ran = run(command).expect(0);
    assert!(ran.stderr.contains("to be seen") && ran.json()["steps"] == 4, "{ran}");
    for cycle in ["kept-cycle-0.json", "kept-cycle-1.json"] {
        let top = run(bench.opcollect(&format!("trace top {cycle} --json"))).expect(0).json();
        let softmax = top["rows"].as_array().expect("rows").iter().find(|row| row["name"] == "softmax");
        assert_eq!(softmax.and_then(|row| row["count"].as_u64()), Some(2), "two steps of a cycle: {top}");
    }
    let failed = run(bench.profile(&format!("{mlp} {schedule} --on-trace-ready false"))).expect(1);
    let notes = failed.json()["notes"].to_string();
    assert!(notes.contains("failed for cycle 0: exit status: 1; 1 more cycles"), "{notes}");
    let sampled = run(bench.profile(&format!("{mlp} --sample 4 --seconds 0.05 --out sampled.json"))).expect(0);
    let text = fs::read_to_string(bench.path("sampled.json")).expect("the profile was written");
    let profile: Profile = serde_json::from_str(&text).expect("it is one");
    assert!(profile.steps.iter().all(|step| step.number % 4 == 2), "one of four: {sampled}");
}

#[test]
fn unprofilable_runs_are_reported() {
    let bench = Bench::new();
    for (arguments, code, wanted) in [
        ("--schedule wait=1", 2, "nothing would be recorded"),
        ("--counters cycels", 2, "cycles"),
        ("--target cuda --annotate fc1", 2, "`--annotate` needs a target with CPU code"),
        ("--target cuda --counters cachegrind", 2, "`--counters cachegrind` needs a target with CPU code"),
        ("--batchsize 1,2", 2, "exactly one model with one size is needed, 2 were given"),
        ("--csv missing/rows.csv", 2, "missing"),
    ] {
        let ran =
            run(bench.opcollect(&format!("profile --modelsource local --modelname mlp {arguments}"))).expect(code);
        assert!(ran.stderr.starts_with("error: ") && ran.stderr.contains(wanted), "{arguments}: {ran}");
    }
}

#[test]
fn simulated_counts_are_separate() {
    let bench = Bench::new();
    let mlp = "--modelsource local --modelname mlp --threads 1 --wait 300 --seconds 0.05";
    let mut lacking = bench.profile(&format!("{mlp} --counters cachegrind"));
    lacking.env("PATH", bench.path("."));
    let lacking = run(lacking).expect(3);
    assert!(lacking.stderr.contains("valgrind` is not installed") && lacking.stderr.contains("hint: "), "{lacking}");
    if Command::new("valgrind").arg("--version").output().is_err() || cfg!(not(target_arch = "x86_64")) {
        return skip("there is no valgrind to simulate a processor");
    }
    let seen =
        ProfileRun::of(&bench, "--modelsource local --modelname mlp --threads 1 --counters cachegrind,minor_faults");
    let simulated = &seen.report["simulated"];
    let tasks = simulated["tasks"].as_array().unwrap_or_else(|| panic!("{}", seen.report));
    assert_eq!(tasks.len(), 4, "{}", seen.report["notes"]);
    let dense = tasks.iter().find(|task| task["flops"] == 2 * 784 * 128 + 2 * 128).expect("the first layer");
    let instructions = dense["counts"]["instructions"].as_f64().expect("a count");
    // A vector instruction computes eight multiply-adds; loads and loops add some more instructions.
    assert!((784.0 * 128.0 / 8.0..784.0 * 128.0 * 4.0).contains(&instructions), "{dense}");
    assert!(dense["counts"]["data_reads"].as_f64() > Some(0.0), "{dense}");
    assert!(
        seen.profile.counters.iter().all(|counter| counter.source != "cachegrind" && counter.name != "instructions")
    );
    assert!(
        seen.rows().iter().all(|row| row["counters"].get("instructions").is_none()),
        "apart from what was measured"
    );
    assert!(
        simulated["simulator"].as_str().is_some_and(|name| name.starts_with("cachegrind of valgrind")),
        "{simulated}"
    );
}
