//! Co-runs of operators from end to end: records, rejected requests, continuation after a kill, both parts of a race.
#![allow(missing_docs)]

use datasets::{Choose, Outcome, Record};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use tests::{Bench, Ran, processes, program, run, skip, start, stores};

/// Two operators of one task each, and partners, with short phases, since no slowdowns are evaluated.
const CONFIG: &str = r#"
models = [
    { source = "simple", name = "matmul:m=64,n=64,k=64" },
    { source = "simple", name = "softmax:shape=64x100" },
]
[corun]
sizes = [2]
passes = 1
partners = ["arithmetic", "cache=1MiB"]
[corun.measure]
rounds = 6
phase_ns = 200_000
samples_min = 2
"#;

/// Uses separate cores for the members if there are two, and the same core otherwise.
fn config(more: &str) -> String {
    let cpus = measure::affinity::allowed_cpus().expect("this process runs somewhere").len();
    let parallel = if cpus > 1 { "" } else { "parallel = [\"full\"]" };
    CONFIG.replace("sizes = [2]\n", &format!("sizes = [2]\n{parallel}\n{more}\n"))
}

fn counted(record: &Record) -> BTreeMap<String, f64> {
    record.counters.as_ref().expect("it was counted").parse_as().expect("numbers by name")
}

#[track_caller]
fn refused(ran: Ran, wanted: &str) {
    let ran = ran.expect(2);
    assert!(ran.stderr.contains(wanted), "`{wanted}` is said\n{ran}");
}

#[test]
fn members_have_records_with_slowdowns_without_repetition() {
    let bench = Bench::new();
    bench.write("corun.toml", &config("cache_share = 0.25"));
    let report = run(bench.opcollect("corun --config corun.toml --store store --json")).expect(0).json();
    assert_eq!(report["left_out"]["combinations"].as_u64(), Some(0), "{report}");
    // Three pairs of operators, and each operator with each partner: two records each.
    assert_eq!((report["combinations"].as_u64(), report["known_before"].as_u64()), (Some(7), Some(0)), "{report}");
    let records = stores::records(&bench.path("store"));
    assert_eq!(records.len(), 14);
    for record in &records {
        assert!(record.outcome == Outcome::Ok && !record.is_alone() && record.median_ns > Some(0.0), "{record:?}");
        let counted = counted(record);
        let (slowdown, low, high) = (counted["slowdown"], counted["slowdown_low"], counted["slowdown_high"]);
        assert!(counted["alone_ns"] > 0.0 && low <= slowdown && slowdown <= high, "{counted:?}");
        let others: Vec<String> = record.co_run.as_ref().expect("others").parse_as().expect("hashes");
        assert!(others.len() == 1 && records.iter().any(|other| other.task_hash == others[0]));
        let warnings = record.warnings.as_ref().map(|json| json.as_text().to_owned()).unwrap_or_default();
        let is_controlled = record.cache_share == Some(0.25);
        assert!(
            is_controlled || warnings.contains("the share of the last-level cache was not controlled"),
            "{warnings}"
        );
        assert_eq!(record.max_abs_error.is_none(), record.op_kind == "synthetic", "results of operators are compared");
    }
    let again = run(bench.opcollect("corun --config corun.toml --store store --json")).expect(0).json();
    assert_eq!(again["known_before"].as_u64(), Some(7), "{again}");
    assert_eq!(stores::records(&bench.path("store")).len(), 14);
    // Counters beyond the default ones are read, or refused, in one more measurement of each combination.
    let counting = "corun --config corun.toml --store store --json --counters branches";
    let more = run(bench.opcollect(counting)).expect(0).json();
    assert_eq!(more["known_before"].as_u64(), Some(0), "{more}");
    assert_eq!(stores::chosen(&bench.path("store"), Choose::All).len(), 28);
    let again = run(bench.opcollect(counting)).expect(0).json();
    assert_eq!(again["known_before"].as_u64(), Some(7), "{again}");
    // Times of co-runs are not used as times of single operators.
    let learned = run(bench.command(&program("oppredict"), "train --data store --out none.opp"));
    assert_ne!(learned.code(), 0, "{learned}");
    let table = run(bench.opcollect("corun --config corun.toml --store store")).expect(0).stdout;
    for wanted in ["with arithmetic", "slows cache=1MiB", "matmul", "7 combinations"] {
        assert!(table.contains(wanted), "`{wanted}` is missing\n{table}");
    }
}

/// Equal members on the same cores are experiments of their own, so that one run measures all of them.
#[test]
fn members_on_shared_cores_are_measured_once() {
    let bench = Bench::new();
    bench.write("corun.toml", &CONFIG.replace("sizes = [2]\n", "sizes = [2]\nparallel = [\"full\"]\n"));
    let report = run(bench.opcollect("corun --config corun.toml --store store --json")).expect(0).json();
    let (outcomes, known) = (&report["outcomes"], &report["known_before"]);
    assert_eq!([known, &outcomes["counts"]["ok"], &outcomes["elsewhere"]], [0, 14, 0], "{report}");
    let records = stores::records(&bench.path("store"));
    let keys: BTreeSet<_> = records.iter().map(|record| record.key).collect();
    assert_eq!((records.len(), keys.len()), (14, 14));
    // A sample lasts several time slices of the scheduler.
    let plan: Value = records[0].plan.as_ref().expect("a plan").parse_as().expect("JSON");
    assert!(plan["span_ns"].as_u64() >= Some(20_000_000), "{plan}");
    let report = run(bench.opcollect("corun --config corun.toml --store store --json")).expect(0).json();
    assert_eq!(report["known_before"], 7, "{report}");
}

#[test]
fn a_kill_loses_only_work_in_flight() {
    let bench = Bench::new();
    bench.write("corun.toml", &config("").replace("200_000", "20_000_000"));
    let mut running = start(bench.opcollect("corun --config corun.toml --store store"));
    let store = bench.path("store");
    let some = running.until(|_| {
        let lines = if store.exists() { stores::journal_lines(&store).len() } else { 0 };
        (lines > 2).then_some(lines)
    });
    let seen = some.map(|_| run(bench.opcollect("status store --json")).expect(0).json());
    processes::send(running.pid(), nix::sys::signal::Signal::SIGKILL);
    let killed = running.finish();
    let Some(seen) = seen else { panic!("it ended before it could be killed\n{killed}") };
    assert!(seen[0]["is_running"] == true && seen[0]["total"] == 14, "`status` lists it\n{seen}");
    let before = stores::keys(&stores::records(&store));
    assert!(!before.is_empty() && before.len() < 14, "{}", before.len());
    run(bench.opcollect("corun --config corun.toml --store store")).expect(0);
    let records = stores::records(&store);
    assert_eq!(records.len(), 14, "what was known is not made again");
    assert!(records.iter().all(|record| record.attempt == 1));
    assert!(before.iter().all(|key| records.iter().any(|record| record.key == *key)));
    // Further passes add only what is missing.
    bench.write("corun.toml", &config("").replace("200_000", "20_000_000").replace("passes = 1", "passes = 3"));
    let report = run(bench.opcollect("corun --config corun.toml --store store --json")).expect(0).json();
    assert_eq!((report["known_before"].as_u64(), report["outcomes"]["counts"]["ok"].as_u64()), (Some(0), Some(28)));
    assert_eq!(report["members"].as_array().map(Vec::len), Some(14), "the middle of three each\n{report}");
    let mut records = stores::chosen(&store, Choose::All);
    records.sort_by_key(|record| record.started_at_us);
    let attempts: Vec<i64> = records.iter().map(|record| record.attempt).collect();
    assert_eq!(attempts, [[1; 14], [2; 14], [3; 14]].concat());
    // `--again` measures everything once more.
    run(bench.opcollect("corun --config corun.toml --store store --again")).expect(0);
    assert_eq!(stores::chosen(&store, Choose::All).len(), 56);
}

#[test]
fn impossible_coruns_are_rejected() {
    let bench = Bench::new();
    let cases = [
        ("threads = 4096", "`corun.threads` is 4096; allowed are 1 to"),
        ("operators = 0", "`corun.operators` is 0"),
        ("cache_share = 0.9", "`corun.cache_share` is 0.9"),
        ("colour = 1", "unknown field `colour`"),
    ];
    for (setting, wanted) in cases {
        bench.write("corun.toml", &config(setting));
        refused(run(bench.opcollect("corun --config corun.toml --store store")), wanted);
    }
    bench.write("corun.toml", &config("").replace("passes = 1", "passes = 0"));
    refused(
        run(bench.opcollect("corun --config corun.toml --store store")),
        "`corun.passes` is 0; allowed are 1 to 100",
    );
    bench.write("corun.toml", &config("").replace("cache=1MiB", "cache=much"));
    refused(run(bench.opcollect("corun --config corun.toml --store store")), "`corun.partners` is `cache=much`");
    bench.write("corun.toml", &config("").replace("sizes = [2]", "sizes = [1]"));
    refused(run(bench.opcollect("corun --config corun.toml --store store")), "`corun.sizes` is 1; allowed are 2 to 8");
    bench.write("corun.toml", &config(""));
    refused(
        run(bench.opcollect("corun --config corun.toml --store store --threads 2")),
        "`--threads` has no effect on co-runs",
    );
    bench.write("plain.toml", "models = [{ source = \"local\", name = \"mlp\" }]");
    refused(run(bench.opcollect("corun --config plain.toml --store store")), "has no table `[corun]`");
    assert!(!bench.path("store").exists(), "nothing is left behind");
    let ran = run(bench.command(&program("oppredict"), "interference --data store"));
    assert_ne!(ran.code(), 0, "{ran}");
}

#[test]
fn both_sides_of_a_race_run_interleaved() {
    let bench = Bench::new();
    let cpus = measure::affinity::allowed_cpus().expect("this process runs somewhere").len();
    if cpus < 2 {
        return skip("one CPU: nothing runs side by side on cores of its own");
    }
    for operator in ["matmul:m=64,n=64,k=64", "softmax:shape=64x100"] {
        let options = "--schedules 2 --threads 1,2 --precision 0.5 --counters none --store times";
        run(bench.opcollect(&format!("--modelsource simple --modelname {operator} {options}")));
    }
    let both = "--op matmul:m=64,n=64,k=64 --op softmax:shape=64x100 --data times --threads 2";
    let ran = run(bench.command(
        &program("oppredict"),
        &format!(
            "cotune {both} --measure --rounds 6 --choice choice.json --json --opcollect {}",
            program("opcollect").display()
        ),
    ));
    let report = ran.expect(0).json();
    let (measured, cotuned) = (&report["measured"], &report["cotuned"]);
    let ratio = measured["ratio"]["median"].as_f64().expect("a ratio");
    let kept = if ratio < 1.0 { "concurrent" } else { "sequential" };
    assert_eq!(measured["kept"], kept, "{measured}");
    let is_right = cotuned["is_together"].as_bool() == Some(ratio < 1.0);
    assert_eq!(measured["regret"].as_f64() == Some(0.0), is_right, "{measured} {cotuned}");
    assert_eq!(report["promised"]["affinity"], serde_json::json!([[0], [1]]));
    let choice: Value =
        serde_json::from_slice(&std::fs::read(bench.path("choice.json")).expect("a file")).expect("JSON");
    let seen = run(bench.opcollect("race choice.json --rounds 6 --json")).expect(0).json();
    assert!(seen["together_ns"].as_f64() > Some(0.0) && seen["in_turns_ns"].as_f64() > Some(0.0), "{seen}");

    let listed = run(bench.opcollect("tasks --modelsource simple --modelname matmul:m=64,n=64,k=64 --json"));
    let mut of_tasks = choice.clone();
    of_tasks["together"][0]["operator"] = listed.expect(0).json()[0]["task"].clone();
    bench.write("tasks.json", &of_tasks.to_string());
    let seen = run(bench.opcollect("race tasks.json --rounds 6 --json")).expect(0).json();
    assert!(seen["together_ns"].as_f64() > Some(0.0), "{seen}");

    let wrong = |change: &dyn Fn(&mut Value), wanted: &str| {
        let mut choice = choice.clone();
        change(&mut choice);
        bench.write("wrong.json", &choice.to_string());
        refused(run(bench.opcollect("race wrong.json")), wanted);
    };
    wrong(&|choice| choice["threads"] = 4096.into(), "it needs 4096 cores");
    wrong(&|choice| choice["together"][0]["cores"] = 7.into(), "need 8 of 2 cores");
    wrong(&|choice| choice["together"] = Value::Array(vec![]), "0 and 2 operators");
    wrong(&|choice| choice["in_turns"][0]["cores"] = 1.into(), "has 1 of 2 cores, but each has all");
    wrong(&|choice| choice["in_turns"][0]["operator"] = "matmul:m=128,n=64,k=64".into(), "different operators");
    wrong(&|choice| choice["in_turns"][0]["operator"] = "conv9d".into(), "conv9d");
    wrong(&|choice| choice["in_turns"][0]["schedule"] = 1.into(), "has no valid schedule");
    // Code for such a setting would read beyond its tensors.
    wrong(&|choice| choice["in_turns"][0]["schedule"]["knobs"]["unroll"] = 7.into(), "the knob `unroll` cannot be 7");
    wrong(&|choice| choice["in_turns"][0]["schedule"]["knobs"]["colour"] = 7.into(), "has no knob `colour`");
    wrong(&|choice| choice["together"][0]["operator"] = 1.into(), "expected an operator in its short form, or a task");
    wrong(
        &|choice| choice["together"][0]["operator"] = of_tasks["together"][0].clone(),
        "in its short form, or a task",
    );
    refused(run(bench.opcollect("race missing.json")), "cannot read the choice file `missing.json`");
}
