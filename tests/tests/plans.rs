//! Stage plans from end to end: planned by `oppredict`, run by `opcollect`, with the results of sequential execution.
#![allow(missing_docs)]

use datasets::{CacheState, Choose, Json, Origin, Outcome, Record, ScheduleSource, Source, Store};
use measure::host::Facts;
use models::{Fuse, Parallel, StagePlan};
use serde_json::Value;
use std::path::Path;
use tests::{Bench, Ran, program, run, stores};

const SQUEEZENET: &str = "--modelsource local --modelname squeezenet-1.1:hw=32";
const BERT: &str = "--modelsource transformers --sequence 8 --modelname \
    bert-base-uncased:num_hidden_layers=1,hidden_size=32,num_attention_heads=2,intermediate_size=64,vocab_size=50";

fn outputs(bench: &Bench, folder: &str) -> Vec<Vec<u8>> {
    let mut files = stores::files(&bench.path(folder));
    files.sort();
    assert!(!files.is_empty(), "{folder} has outputs");
    files.iter().map(|file| std::fs::read(file).expect("an output")).collect()
}

fn cpus() -> usize {
    measure::affinity::allowed_cpus().expect("this process runs somewhere").len()
}

#[track_caller]
fn refused(ran: Ran, wanted: &str) {
    let ran = ran.expect(2);
    assert!(ran.stderr.contains(wanted), "`{wanted}` is said\n{ran}");
}

#[test]
fn concurrent_stages_give_the_same_bits() {
    for (model, types) in [(SQUEEZENET, ["stream", "full"]), (BERT, ["sequential", "stream"])] {
        // Output files are named after the model's outputs.
        let bench = Bench::new();
        let once = "--no-check --precision 0.5 --json";
        run(bench.opcollect(&format!("model run {model} {once} --output plain"))).expect(0);
        let plain = outputs(&bench, "plain");
        for parallel in types {
            let ran =
                run(bench.opcollect(&format!("model run {model} {once} --parallel {parallel} --output {parallel}")));
            let report = ran.expect(0).json();
            assert_eq!(report["parallel"], parallel);
            let width = report["width"].as_u64().expect("a number");
            assert!((parallel == "sequential") == (width == 1) || cpus() == 1, "{report}");
            assert_eq!(outputs(&bench, parallel), plain, "{model} {parallel}");
        }
    }
}

fn cut() -> (models::Graph, models::Plan) {
    let graph = zoo::build_model("squeezenet-1.1:hw=32", 1).expect("a network");
    let graph = passes::simplify_graph(&graph).expect("a simple network");
    let cut = models::plan_calls(&graph, Fuse::Epilogue).expect("calls");
    (graph, cut)
}

/// Writes a store in which every operator takes equal time on every number of threads up to `cores`.
fn store(path: &Path, host_class: &str, cores: usize) {
    let (_, cut) = cut();
    let origin = Origin { host: "bench-1".into(), program: "test 0".into(), command: "test".into() };
    let mut journal = Store::create(path).expect("a store").start_journal(origin).expect("a journal");
    for one in &cut.tasks {
        for threads in 1..=cores {
            let time_ns = 10_000.0;
            let mut record = Record {
                outcome: Outcome::Ok,
                source: Source::Measured,
                cache_state: Some(CacheState::Warm),
                schedule_source: Some(ScheduleSource::Default),
                schedule: Some(Json::parse("{}").expect("JSON")),
                task_hash: one.task.hash(),
                op_kind: one.task.anchor_kind().to_owned(),
                op_name: one.task.name(),
                op_text: one.task.describe(),
                host_class: host_class.to_owned(),
                threads: i64::try_from(threads).ok(),
                n: 3,
                attempt: 1,
                run_id: "run".to_owned(),
                host: "bench-1".to_owned(),
                program_version: "0.1.0".to_owned(),
                started_at_us: 1,
                median_ns: Some(time_ns),
                min_ns: Some(time_ns),
                mean_ns: Some(time_ns),
                p95_ns: Some(time_ns),
                median_interval_ns: Some(time_ns * 0.01),
                ..Record::default()
            };
            record.key = record.experiment_key();
            journal.append(&record).expect("a row");
        }
    }
    journal.seal().expect("parts");
    let read = Store::open(path).expect("a store").select_records(Choose::Middle).expect("records").count();
    assert_eq!(read, cores * cut.tasks.len());
}

#[test]
fn only_valid_plans_are_run() {
    let bench = Bench::new();
    let cores = cpus().clamp(1, 2);
    store(&bench.path("times"), &Facts::read_facts().host_class(), cores);
    let oppredict = |arguments: &str| run(bench.command(&program("oppredict"), arguments));
    let asked = format!("--model squeezenet-1.1:hw=32 --data times --threads {cores}");
    let report = oppredict(&format!("plan {asked} --out net.plan --html lanes.html --json")).expect(0).json();
    let promise = &report["plan"]["promise"];
    let (time, sequential) =
        (promise["time_ns"].as_f64().expect("a time"), promise["sequential_ns"].as_f64().expect("one"));
    if cores > 1 {
        assert_eq!(report["plan"]["parallel"], "stream");
        assert!(time < 0.95 * sequential, "expands of fire modules run side by side: {report}");
    }
    let page = std::fs::read_to_string(bench.path("lanes.html")).expect("a page");
    assert!(page.contains("core 0") && page.contains("<rect"), "the page has lanes");
    let listed = oppredict(&format!("stages {asked}")).expect(0);
    assert!(listed.stdout.contains("conv2d") && listed.stdout.contains("critical path"), "{listed}");

    let opcollect = |arguments: &str| run(bench.opcollect(arguments));
    let once = format!("{SQUEEZENET} --threads {cores} --precision 0.5 --json");
    let ran = opcollect(&format!("model run {once} --plan net.plan --store kept")).expect(0).json();
    assert_eq!(ran["check"]["is_right"], true, "{ran}");
    assert_eq!(ran["promised"]["time_ns"], promise["time_ns"]);
    bench.write("ran.json", &ran.to_string());
    let drawn = oppredict(&format!("plan {asked} --html lanes.html --measured ran.json")).expect(0);
    assert!(!drawn.stderr.contains("not of this machine"), "{drawn}");
    for (field, value) in [("/promised/time_ns", 7.0.into()), ("/threads", 9.into()), ("/promised", Value::Null)] {
        let mut other = ran.clone();
        *other.pointer_mut(field).expect("a field") = value;
        bench.write("other.json", &other.to_string());
        let drawn = oppredict(&format!("plan {asked} --html other.html --measured other.json"));
        refused(drawn, "not this plan for");
        assert!(!bench.path("other.html").exists(), "{field}");
    }
    let kept = stores::records(&bench.path("kept"));
    assert_eq!(kept[0].parallel_type.as_deref(), report["plan"]["parallel"].as_str());

    let other = "model run --no-check --plan net.plan --modelsource local --modelname mlp";
    refused(
        opcollect(&format!("{other} --threads {cores}")),
        "the plan is for another graph: the calls of `squeezenet-1.1",
    );
    let more = format!("model run {SQUEEZENET} --no-check --plan net.plan --threads 1");
    if cores > 1 {
        refused(opcollect(&more), "the plan is for 2 cores, but 1 is given");
    }
    let (graph, plan) = cut();
    let elsewhere = StagePlan {
        host_class: Some("another-cpu".to_owned()),
        ..StagePlan::by_rule(&graph, &plan, cores, Parallel::Stream)
    };
    bench.write("elsewhere.plan", &serde_json::to_string(&elsewhere).expect("JSON"));
    let run_of = |file: &str| opcollect(&format!("model run {SQUEEZENET} --no-check --threads {cores} --plan {file}"));
    refused(run_of("elsewhere.plan"), "the plan is for another machine: another-cpu");
    bench.write("broken.plan", "{\"format\": 1");
    refused(run_of("broken.plan"), "cannot read the plan `broken.plan`");
    refused(run_of("missing.plan"), "cannot read the plan `missing.plan`");
    refused(opcollect(&format!("model compare {SQUEEZENET} --variant plan")), "`--variant plan` needs a plan");

    refused(oppredict("plan --model mlp --data times --threads 1"), "no time of `");
    refused(oppredict(&format!("plan {asked} --hardware elsewhere")), "unknown hardware `elsewhere`");
    refused(
        oppredict(&format!("plan --model squeezenet-1.1:hw=32 --data times --threads {}", cores + 1)),
        "no time of `",
    );
}

#[test]
fn operators_are_placed_with_reasons() {
    let bench = Bench::new();
    let oppredict = |arguments: &str| run(bench.command(&program("oppredict"), arguments));
    bench.write("times.csv", "operator,cpu,gpu\nconv,1000000,9000000\nsoftmax,9000000,1000000\n");
    let ran = oppredict("place --times times.csv --off 10 --html place.html --json").expect(0);
    let output = oppredict("place --times times.csv --off 10").expect(0);
    assert!(output.stdout.contains("no operator gains by moving alone") && output.stdout.contains("1.222"), "{output}");
    let report = ran.json();
    assert_eq!(report["placement"]["makespan_ns"], 1e6);
    assert_eq!(report["is_equilibrium"], true);
    assert_eq!(report["times_ns"], serde_json::json!([[1e6, 9e6], [9e6, 1e6]]));
    assert_eq!((&report["makespan_ends"], &report["lower_bounds"]), (&serde_json::Value::Null, &0.into()));
    let page = std::fs::read_to_string(bench.path("place.html")).expect("a page");
    for part in [
        "<title>softmax: 1.00 ms from 0</title>",
        "<td>softmax</td><td class=\"text two\">gpu</td><td><b>1.00 ms</b></td><td class=\"two\">+9.00 ms on cpu</td>",
    ] {
        assert!(page.contains(part), "boxes and table agree: {page}");
    }
    assert!(output.stdout.contains("10.00 times as fast as all operators on "), "the gain of two devices: {output}");
    let words = ["Makespan", "ptim", "quilibrium", "Times: from times.csv"];
    let shown = output.stdout.lines().filter(|line| words.iter().any(|word| line.contains(word)));
    assert_eq!(shown.clone().count(), 6, "{output}");
    // The page keeps numbers and percent signs on the same line, and emphasizes the answer.
    let page = page.replace('\u{a0}', " ").replace("<b>", "").replace("</b>", "");
    shown.for_each(|line| assert!(page.contains(line), "{line} in {page}"));
    let frugal = oppredict("place --times times.csv --watts cpu=1 --watts gpu=1000 --price-us-per-j 1e6 --json");
    assert_eq!(frugal.expect(0).json()["placement"]["devices"], serde_json::json!([0, 0]));
    refused(oppredict("place --times times.csv --watts cpu=1"), "--watts for `gpu` is missing");
    refused(oppredict("place --times times.csv --off 100"), "is out of range");
    refused(oppredict("place"), "nothing to place");
    refused(oppredict("cotune --op relu:shape=8x8 --data times --threads 2"), "1 operator; give two to four");
    let predicted = "place --model resnet-18 --device A100-SXM4-40GB --device T4";
    // The predictor lacks two operators, whose times are lower bounds.
    let (text, report) = (oppredict(predicted).expect(1).stdout, oppredict(&format!("{predicted} --json")).expect(1));
    let report = report.json();
    let ends = &report["makespan_ends"];
    let end = |name: &str| report::format_duration(ends[name].as_f64().expect("a time"));
    assert!(text.contains(&end("low_ns")) && text.contains(&end("high_ns")), "{ends} in {text}");
    let bounds = report["lower_bounds"].as_u64().expect("a count");
    assert!(bounds > 0 && text.contains(&format!("{bounds} of ")), "{text}");
    assert_eq!(report["intervals_ns"].as_array().map(Vec::len), report["times_ns"].as_array().map(Vec::len));
    bench.write("bad.csv", "operator,cpu\nconv,fast\n");
    refused(oppredict("place --times bad.csv"), "line 2: `fast` is not a valid time of `conv`");
}

#[test]
fn plans_say_that_a_store_is_damaged_or_of_another_machine() {
    let bench = Bench::new();
    store(&bench.path("times"), "other-machine", 2);
    let plan =
        || run(bench.command(&program("oppredict"), "plan --model squeezenet-1.1:hw=32 --data times --threads 2"));
    let sound = plan().expect(0);
    assert!(
        sound.stderr.contains("times are those of `other-machine`, which the store has, not of this machine"),
        "{sound}"
    );
    let part = |store: &str| {
        let mut parts = stores::files(&bench.path(store).join("dataset")).into_iter();
        parts.find(|part| part.extension().is_some_and(|ending| ending == "parquet")).expect("a part")
    };
    let first = part("times");
    let bytes = std::fs::read(&first).expect("a part");
    // A second, sound part, so that times are left.
    store(&bench.path("more"), "other-machine", 3);
    let second = part("more");
    std::fs::copy(&second, first.with_file_name(second.file_name().expect("a name"))).expect("a folder to write to");
    std::fs::write(&first, &bytes[..bytes.len() / 2]).expect("a folder to write to");
    let damaged = plan().expect(1);
    assert!(damaged.stderr.contains("skipped `"), "{damaged}");
}
