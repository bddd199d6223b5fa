//! Whole campaigns: known experiments are skipped, killed runs leave valid stores, equal requests give equal attempts.
#![allow(missing_docs, clippy::print_stderr)]

use datasets::{Choose, Key, Outcome, Record, ScheduleSource};
use nix::sys::signal::Signal;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tests::{Bench, Ran, Running, install_with_worker, processes, run, start, stores};

/// Two small operators with ten attempts in total.
const FEW: &str = "--modelsource simple --modelname relu:shape=1x64 --modelname softmax:shape=3x17 \
                   --schedules 5 --config quick.toml";

fn collect(bench: &Bench, arguments: &str) -> Command {
    bench.opcollect(&format!("{arguments} --json"))
}

#[track_caller]
fn count(ran: &Ran, field: &str) -> u64 {
    let document = ran.json();
    document[field].as_u64().unwrap_or_else(|| panic!("`{field}` is no count in {document}"))
}

fn made(ran: &Ran) -> u64 {
    ran.json()["outcomes"]["counts"]["ok"].as_u64().unwrap_or(0)
}

/// Returns the keys of a store as a set, which does not depend on the order of shards or runs.
fn key_set(path: &Path) -> BTreeSet<Key> {
    stores::keys(&stores::records(path)).into_iter().collect()
}

#[track_caller]
fn check_sound(bench: &Bench, store: &str) -> serde_json::Value {
    let report = run(bench.opcollect(&format!("dataset verify --store {store} --json"))).expect(0).json();
    assert_eq!(report["problems"], serde_json::json!([]), "{report}");
    report
}

#[test]
fn known_experiments_are_not_measured_again() {
    let bench = Bench::new();
    let arguments = format!("{FEW} --store store");
    let first = run(collect(&bench, &arguments)).expect(0);
    assert_eq!((count(&first, "attempts"), count(&first, "known_before"), made(&first)), (10, 0, 10));
    let records = stores::records(&bench.path("store"));
    assert_eq!(records.len(), 10);

    let second = run(collect(&bench, &arguments)).expect(0);
    assert_eq!((count(&second, "attempts"), count(&second, "known_before"), made(&second)), (10, 10, 0));
    assert_eq!(stores::records(&bench.path("store")), records, "nothing was written");
    let third = run(bench.opcollect(&arguments)).expect(0);
    assert!(third.stdout.contains("10 attempts: nothing new, 10 known before"), "{third}");

    let again = run(collect(&bench, &format!("{arguments} --again"))).expect(0);
    assert_eq!((count(&again, "known_before"), made(&again)), (0, 10));
    let stats = run(bench.opcollect("dataset stats --store store --json")).expect(0).json();
    let counted = ["rows", "experiments", "measurements", "duplicates"].map(|field| stats[field].as_u64());
    assert_eq!(counted, [10, 10, 20, 0].map(Some), "{stats}");
    let all = stores::chosen(&bench.path("store"), Choose::All);
    assert_eq!(all[..10], records, "what was measured first stays as it is");
    assert!(all[10..].iter().all(|record| record.attempt == 2), "and the others are the second");
    for (choose, wanted) in [("all", 20), ("middle", 10), ("latest", 10)] {
        let export = format!("dataset export --store store --out {choose}.csv --choose {choose} --json");
        assert_eq!(count(&run(bench.opcollect(&export)).expect(0), "rows"), wanted, "{choose}");
    }
    assert_eq!(stores::chosen(&bench.path("store"), Choose::Latest), all[10..]);
    check_sound(&bench, "store");
}

/// Every experiment is visited three times, in different processes, and a killed campaign continues with the rest.
#[test]
fn experiments_are_visited_again_later_and_elsewhere() {
    let bench = Bench::new();
    // Batches are far smaller than a quarter of the campaign, as in real ones.
    let quick = tests::QUICK.replace("visits = 1", "visits = 3").replace("build_batch = 4", "build_batch = 1");
    bench.write("visits.toml", &quick);
    let arguments = "--modelsource simple --modelname relu:shape=1x64 --modelname softmax:shape=3x17 --schedules 5 \
                     --config visits.toml --store store --json";
    let first = run(bench.opcollect(arguments)).expect(0);
    assert_eq!((count(&first, "attempts"), count(&first, "known_before"), made(&first)), (10, 0, 10));
    let mut all = stores::chosen(&bench.path("store"), Choose::All);
    all.sort_by_key(|record| record.started_at_us);
    assert_eq!(all.len(), 30);
    let mut of_each: BTreeMap<Key, Vec<(usize, &Record)>> = BTreeMap::new();
    for (place, record) in all.iter().enumerate() {
        of_each.entry(record.key).or_default().push((place, record));
    }
    let process_of = |record: &Record| {
        let placement: serde_json::Value =
            record.placement.as_ref().expect("a placement").parse_as().expect("a document");
        placement["process"].as_u64().expect("a number")
    };
    for visits in of_each.values() {
        let numbers: Vec<i64> = visits.iter().map(|(_, record)| record.attempt).collect();
        assert_eq!(numbers, [1, 2, 3]);
        assert!(visits.windows(2).all(|pair| process_of(pair[0].1) < process_of(pair[1].1)), "each in another process");
        assert!(visits.windows(2).all(|pair| pair[0].0 + 1 < pair[1].0), "others come between");
        assert!(visits.iter().all(|(_, record)| record.max_abs_error.is_some()));
    }
    let placements: HashSet<&str> =
        all.iter().filter_map(|record| Some(record.placement.as_ref()?.as_text())).collect();
    assert!(placements.len() > 20, "{placements:?}");
    for record in stores::chosen(&bench.path("store"), Choose::Middle) {
        let visits: Vec<f64> = record.visits_ns.as_ref().expect("three visits").parse_as().expect("numbers");
        assert_eq!((visits.len(), record.interval_covers), (3, Some(datasets::Covers::Visits)), "{record:?}");
    }

    // In the killed campaign's store, one experiment lacks a visit, another one two.
    let (one, other) =
        (all[0].key, all.iter().map(|record| record.key).find(|key| *key != all[0].key).expect("others"));
    let lacking =
        |record: &Record| record.key == one && record.attempt == 3 || record.key == other && record.attempt > 1;
    let kept: Vec<Record> = all.iter().filter(|record| !lacking(record)).cloned().collect();
    stores::write(&bench.path("rest"), &kept);
    let rest = run(bench.opcollect(&arguments.replace("store store", "store rest"))).expect(0);
    assert_eq!((count(&rest, "known_before"), made(&rest)), (8, 2), "{rest}");
    let mut after = stores::chosen(&bench.path("rest"), Choose::All);
    after.sort_by_key(|record| record.started_at_us);
    assert_eq!((after.len(), &after[..27]), (30, &kept[..]), "nothing is repeated");
    let again = run(bench.opcollect(&arguments.replace("store store", "store rest"))).expect(0);
    assert_eq!((count(&again, "known_before"), made(&again)), (10, 0), "{again}");
}

/// If two stores agree about an experiment, a third store need not measure it.
#[test]
fn experiments_with_disagreeing_times_are_measured_again() {
    let bench = Bench::new();
    for store in ["first", "second"] {
        run(collect(&bench, &format!("{FEW} --store {store}"))).expect(0);
    }
    let medians = |store: &str| -> BTreeMap<Key, f64> {
        let records = stores::records(&bench.path(store));
        records.into_iter().map(|record| (record.key, record.median_ns.expect("a time"))).collect()
    };
    let (first, second) = (medians("first"), medians("second"));
    assert!(first.len() == 10 && first.keys().eq(second.keys()));
    let is_apart = |key: &&Key| {
        let (one, other) = (first[key], second[key]);
        one.max(other) > 1.02 * one.min(other)
    };
    let apart: BTreeSet<Key> = first.keys().filter(is_apart).copied().collect();

    let third = run(collect(&bench, &format!("{FEW} --store third --unless-agree first second"))).expect(0);
    assert_eq!(made(&third), apart.len() as u64);
    assert_eq!(key_set(&bench.path("third")), apart);
    // A store agrees with itself about all of its experiments, and with an empty one about none.
    let same = run(collect(&bench, &format!("{FEW} --store fourth --unless-agree first first"))).expect(0);
    assert_eq!((count(&same, "attempts"), made(&same)), (0, 0));
    let lacking = run(collect(&bench, &format!("{FEW} --store fifth --unless-agree first fourth"))).expect(0);
    assert_eq!(made(&lacking), 10);

    for (stores, problem) in [("first", "unless-agree"), ("first nowhere", "nowhere")] {
        let refused = run(collect(&bench, &format!("{FEW} --store sixth --unless-agree {stores}"))).expect(2);
        assert!(refused.stderr.contains(problem), "{refused}");
        assert!(!bench.path("sixth").exists(), "a refusal leaves no store behind");
    }
}

/// Variations are measured like other tasks, but do not belong to the model.
#[test]
fn variations_are_measured_with_a_model() {
    let bench = Bench::new();
    let model = "--modelsource local --modelname mlp --config quick.toml --schedules 1 --threads 1 --store store";
    let plain = run(collect(&bench, model)).expect(0);
    let varied = run(collect(&bench, &format!("{model} --variations 2"))).expect(0);
    assert_eq!((made(&plain), count(&varied, "known_before")), (4, 4));
    let records = stores::records(&bench.path("store"));
    let of = |source: &str| records.iter().filter(|record| record.model_source.as_deref() == Some(source)).count();
    assert_eq!(of("local"), 4);
    assert!(of("simple") as u64 == made(&varied) && of("simple") >= 6, "{varied}");
}

/// A transformer with two lengths: code that is compiled once is measured at both, with correct results.
#[test]
fn several_sizes_are_compiled_once() {
    let bench = Bench::new();
    let small = "num_hidden_layers=1,hidden_size=32,num_attention_heads=2,intermediate_size=48,vocab_size=40";
    let model =
        format!("--modelsource transformers --modelname bert-base-uncased:{small} --sequence 5,12 --executor vm");
    let sweep = "--schedules 1 --threads 1 --config quick.toml --store store";
    let ran = run(collect(&bench, &format!("{model} {sweep}"))).expect(0);
    let records = stores::records(&bench.path("store"));
    assert_eq!(made(&ran), records.len() as u64);
    let mut lengths: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for record in &records {
        if let (Some(task), Some(sizes)) = (&record.symbolic_task, &record.sizes) {
            lengths.entry(task).or_default().push(sizes.as_text().to_owned());
        }
    }
    assert!(lengths.len() >= 8, "{lengths:?}");
    for (task, mut sizes) in lengths {
        sizes.sort();
        sizes.dedup();
        assert_eq!(sizes.len(), 2, "{task}: {sizes:?}");
    }
    // Tasks with fixed sizes are different experiments.
    let one = model.replace(" --executor vm", "");
    let default = run(collect(&bench, &format!("{one} {sweep}"))).expect(0);
    assert!(made(&default) > 0, "{default}");
}

#[test]
fn the_report_has_its_fields() {
    let bench = Bench::new();
    let arguments = "--modelsource local --modelname mlp --schedules 2 --config quick.toml --store store";
    let ran = run(collect(&bench, arguments)).expect(0);
    assert_eq!(ran.stdout.lines().count(), 1, "one document and nothing else\n{ran}");
    let is_told = |line: &&str| !line.starts_with("note: this machine is busy: ");
    assert_eq!(ran.stderr.lines().find(is_told), None, "progress is for people who watch");
    let report = ran.json();
    let fields = |value: &serde_json::Value| {
        let object = value.as_object().unwrap_or_else(|| panic!("{value} is no object"));
        object.keys().cloned().collect::<Vec<_>>().join(" ")
    };
    expect_test::expect![
        "attempts config_hash host host_class known_before load losses models outcomes peaks seconds source store target visits"
    ]
    .assert_eq(&fields(&report));
    expect_test::expect!["broken build_ms counts elsewhere held left passed_over run_ms"]
        .assert_eq(&fields(&report["outcomes"]));
    expect_test::expect!["batch missing model rows total_ns total_spread uncertain_share"]
        .assert_eq(&fields(&report["models"][0]));
    expect_test::expect!["attempts count default_over_best difference gflops measured median_ns roofline saves_products schedule share share_spread spread task task_hash threads visits_ns"].assert_eq(&fields(&report["models"][0]["rows"][0]));
    let rows = report["models"][0]["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 4, "one row per task of the model");
    let total: f64 = rows.iter().map(|row| row["median_ns"].as_f64().expect("a time")).sum();
    let reported = report["models"][0]["total_ns"].as_f64().expect("a time");
    assert!((total - reported).abs() <= 1e-9 * reported, "{total} {reported}");
    for record in stores::records(&bench.path("store")) {
        assert_eq!(
            (record.model_name.as_deref(), record.host_class.as_str()),
            (Some("mlp"), report["host_class"].as_str().expect("a text"))
        );
        assert_eq!(record.config_hash.as_deref(), report["config_hash"].as_str());
    }
}

/// Peak rates belong to the host: the same record has the same roofline in every table, also in a merged store.
#[test]
fn peaks_stay_with_the_store() {
    let bench = Bench::new();
    bench.measure_peaks();
    let first = run(collect(&bench, &format!("{FEW} --store store"))).expect(0).json();
    let peaks = &first["peaks"];
    assert!(peaks["compute"].as_array().is_some_and(|compute| !compute.is_empty()), "{peaks}");
    let again = run(collect(&bench, &format!("{FEW} --store store"))).expect(0).json();
    run(bench.opcollect("dataset merge --store merged store")).expect(0);
    let merged = run(collect(&bench, &format!("{FEW} --store merged"))).expect(0).json();
    for (store, other) in [("store", again), ("merged", merged)] {
        match stores::files(&bench.path(store).join("hosts")).len() {
            1 => assert_eq!((&other["peaks"], &other["models"]), (peaks, &first["models"]), "{store}"),
            // After some minutes, the peaks are measured again.
            count => assert!(count == 2 && other["peaks"]["compute"][0]["measurements"] == 2, "{other}"),
        }
    }
    check_sound(&bench, "store");
    let rows =
        first["models"].as_array().expect("models").iter().flat_map(|model| model["rows"].as_array().expect("rows"));
    let certain = rows.filter(|row| row["spread"].as_f64().is_some_and(|spread| spread <= 0.02));
    for row in certain {
        assert!(row["roofline"].as_f64().is_none_or(|part| part <= 1.0 + 1e-9), "{row}");
    }
}

#[test]
fn the_same_seed_proposes_the_same_schedules() {
    let bench = Bench::new();
    let arguments = "--modelsource simple --modelname matmul:m=32,n=48,k=64 --schedules 6 --config quick.toml";
    let schedules = |store: &str, seed: u64| {
        run(collect(&bench, &format!("{arguments} --seed {seed} --store {store}"))).expect(0);
        let records = stores::records(&bench.path(store));
        let (default, drawn): (Vec<Record>, Vec<Record>) =
            records.into_iter().partition(|record| record.schedule_source == Some(ScheduleSource::Default));
        let hashes = |records: Vec<Record>| records.into_iter().map(|record| record.schedule_hash).collect::<Vec<_>>();
        (hashes(default), hashes(drawn))
    };
    let first = schedules("first", 1);
    assert_eq!((first.0.len(), first.1.len()), (1, 5));
    assert_eq!(schedules("again", 1), first, "in the same order, too");
    let other = schedules("other", 2);
    assert_eq!(other.0, first.0, "the default schedule depends on no seed");
    assert_ne!(other.1, first.1);
    assert_eq!(key_set(&bench.path("again")), key_set(&bench.path("first")));
}

#[test]
fn shards_on_different_cpus_are_a_partition() {
    let cpus = measure::affinity::allowed_cpus().expect("CPUs of this process");
    let [first, .., last] = cpus.as_slice() else { return eprintln!("skipped: there is one CPU") };
    let bench = Bench::new();
    let few = "--modelsource simple --modelname matmul:m=8,n=16,k=8 --schedules 24 --config quick.toml";
    // A process inherits the affinity of the thread that starts it.
    let on = |cpu: usize, command: Command| {
        let pinned = std::thread::spawn(move || {
            measure::affinity::pin_thread(&[cpu]).expect("the CPU is allowed");
            run(command)
        });
        pinned.join().expect("the thread ends").expect(0)
    };
    let shard = |cpu: usize, shard: &str| on(cpu, collect(&bench, &format!("{few} --store store --shard {shard}")));
    let (one, two) = (shard(*first, "1/2"), shard(*last, "2/2"));
    assert_eq!(made(&one) + made(&two), 24, "{one}\n{two}");
    let schedules: BTreeSet<_> =
        stores::records(&bench.path("store")).into_iter().filter_map(|record| record.schedule_hash).collect();
    assert_eq!(schedules.len(), 24);
}

/// Counters are not part of the key, so a known experiment may lack requested counters.
#[test]
fn experiments_without_a_requested_counter_are_measured_again() {
    let bench = Bench::new();
    let counted = |counters: &str| run(collect(&bench, &format!("{FEW} --store store {counters}"))).expect(0);
    assert_eq!(made(&counted("")), 10);
    let first = counted("--counters minor_faults");
    assert_eq!((count(&first, "known_before"), made(&first)), (0, 10), "{first}");
    assert!(first.stderr.contains("10 known experiments were measured without the counters `minor_faults`"), "{first}");
    for known in ["--counters minor_faults", "", "--counters none"] {
        let again = counted(known);
        assert_eq!((count(&again, "known_before"), made(&again)), (10, 0), "{known}: {again}");
    }
    let both = counted("--counters minor_faults,voluntary_switches");
    assert_eq!(made(&both), 10, "{both}");
    let has = |name: &str| {
        let all = stores::chosen(&bench.path("store"), Choose::All).into_iter();
        all.filter(|record| {
            let output = [&record.counters, &record.counters_refused];
            output.into_iter().flatten().any(|json| json.as_text().contains(name))
        })
        .count()
    };
    assert_eq!((has("minor_faults"), has("voluntary_switches")), (20, 10));
}

#[test]
fn repeated_elements_of_lists_are_measured_once() {
    let bench = Bench::new();
    let repeated = "--modelsource simple --modelname relu:shape=1x64 --modelname relu:shape=1x64 --schedules 2 \
                    --config quick.toml --threads 1,1 --cache warm,warm --sampler template,template --store store";
    let first = run(bench.opcollect(repeated)).expect(0);
    assert!(first.stdout.contains("\n2 attempts: 2 ok"), "{first}");
    assert_eq!(first.stdout.matches("total of 1 operator with its best schedule:").count(), 1, "{first}");
    let again = run(collect(&bench, repeated)).expect(0);
    assert_eq!((count(&again, "attempts"), count(&again, "known_before")), (2, 2));
}

#[test]
fn counters_that_cannot_be_read_are_reported() {
    let bench = Bench::new();
    let wanted = format!("{FEW} --store store --counters minor_faults,papi:NO_SUCH_EVENT");
    let first = run(bench.opcollect(&wanted)).expect(0);
    assert!(first.stdout.contains("not counted: papi:NO_SUCH_EVENT in 10 experiments: "), "{first}");
    assert!(!first.stdout.contains("not counted: minor_faults"), "{first}");
    let report = run(collect(&bench, &wanted)).expect(0).json();
    let missing = &report["not_counted"][0];
    assert_eq!((missing["name"].as_str(), missing["experiments"].as_u64()), (Some("papi:NO_SUCH_EVENT"), Some(10)));
    // Counters that are requested by default are not reported.
    let default = run(collect(&bench, &format!("{FEW} --store other"))).expect(0).json();
    assert!(default.get("not_counted").is_none(), "{default}");
}

#[test]
fn shards_are_a_partition() {
    let bench = Bench::new();
    let shard =
        |store: &str, shard: &str| run(collect(&bench, &format!("{FEW} --store {store} --shard {shard}"))).expect(0);
    let (one, two) = (shard("one", "1/2"), shard("two", "2/2"));
    assert_eq!(count(&one, "attempts") + count(&two, "attempts"), 10);
    assert!(key_set(&bench.path("one")).is_disjoint(&key_set(&bench.path("two"))));

    // The environment of a job array has the same effect as the flag.
    let mut array = collect(&bench, &format!("{FEW} --store two"));
    array.env("SLURM_ARRAY_TASK_ID", "8").env("SLURM_ARRAY_TASK_MIN", "7").env("SLURM_ARRAY_TASK_COUNT", "2");
    let array = run(array).expect(0);
    assert_eq!(
        (count(&array, "attempts"), count(&array, "known_before")),
        (count(&two, "attempts"), count(&two, "attempts"))
    );

    let merge = |into: &str, stores: &str| {
        run(bench.opcollect(&format!("dataset merge --store {into} {stores}"))).expect(0);
        run(bench.opcollect(&format!("dataset compact --store {into}"))).expect(0);
        check_sound(&bench, into);
        stores::parts(&bench.path(into))
    };
    let (forth, back) = (merge("forth", "one two"), merge("back", "two one"));
    assert_eq!(forth.len(), 1);
    assert!(forth == back, "the order of merging leaves no trace");

    let whole = run(collect(&bench, &format!("{FEW} --store forth"))).expect(0);
    assert_eq!((count(&whole, "known_before"), made(&whole)), (10, 0), "the parts are the whole");
}

#[test]
fn exports_survive_a_round_trip() {
    let bench = Bench::new();
    run(collect(&bench, &format!("{FEW} --store store"))).expect(0);
    let records = stores::records(&bench.path("store"));
    for format in ["csv", "parquet", "jsonl"] {
        let output = run(bench.opcollect(&format!("dataset export --store store --out rows.{format}"))).expect(0);
        assert!(output.stdout.starts_with("10 records"), "{output}");
        run(bench.opcollect(&format!("dataset import --store {format} rows.{format}"))).expect(0);
        assert_eq!(stores::records(&bench.path(format)), records, "by {format}");
        // Without a journal, all records are in one part.
        run(bench.opcollect(&format!("dataset compact --store {format}"))).expect(0);
        check_sound(&bench, format);
    }
    run(bench.opcollect("dataset compact --store store")).expect(0);
    for format in ["csv", "parquet", "jsonl"] {
        assert!(stores::parts(&bench.path(format)) == stores::parts(&bench.path("store")), "by {format}");
    }
}

#[test]
fn prebuilt_artifacts_give_the_same_experiments() {
    let bench = Bench::new();
    let models = FEW.replace("--config quick.toml", "");
    run(bench.opcollect(&format!("build {models} --config quick.toml --out artifacts"))).expect(0);
    let ran = run(bench.opcollect("run artifacts --store store --json")).expect(0);
    assert_eq!((count(&ran, "attempts"), made(&ran)), (10, 10));
    let known = run(collect(&bench, &format!("{FEW} --store store"))).expect(0);
    assert_eq!((count(&known, "known_before"), made(&known)), (10, 0));
    check_sound(&bench, "store");
}

#[test]
fn an_operator_too_large_for_its_worker_is_an_outcome() {
    let bench = Bench::new();
    bench.write("small.toml", &format!("{}run_memory_mib = 64\n", tests::QUICK));
    let arguments = "--modelsource simple --modelname relu:shape=1000x1000x100 --modelname relu:shape=64 \
                     --schedules 1 --config small.toml --store store";
    let ran = run(collect(&bench, arguments)).expect(1);
    assert_eq!(made(&ran), 1);
    let records = stores::records(&bench.path("store"));
    // Records are written in the order in which attempts end: a crash may take longer than a small operator.
    let (failed, others): (Vec<_>, Vec<_>) = records.iter().partition(|record| record.outcome.name() != "ok");
    assert_eq!((failed.len(), others.len()), (1, 1));
    assert!(["crashed", "run_failed"].contains(&failed[0].outcome.name()), "{}", failed[0].outcome.name());
    assert!(failed[0].op_text.contains("1000") && failed[0].reason.is_some(), "a failure has a reason");
    let again = run(collect(&bench, &format!("{arguments} --retry-faults 0"))).expect(1);
    assert_eq!((count(&again, "known_before"), made(&again)), (2, 0), "losses are known too");
}

#[track_caller]
fn start_and_wait(command: Command, store: &Path, lines: usize) -> Running {
    let mut running = start(command);
    let seen = running.until(|_| (stores::journal_lines(store).len() >= lines).then_some(()));
    if seen.is_none() {
        panic!("ended before {lines} records\n{}", running.finish());
    }
    running
}

const MANY: &str = "--modelsource local --modelname mlp --schedules 16 --config quick.toml";

#[test]
fn an_interrupted_campaign_keeps_its_records() {
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        let bench = Bench::new();
        let running = start_and_wait(collect(&bench, &format!("{MANY} --store store")), &bench.path("store"), 1);
        let workers = processes::children(running.pid());
        assert!(!workers.is_empty(), "builders and runner");
        // Some schedulers send a termination signal to every process of a job, and to the first one again.
        [workers.as_slice(), &[running.pid(), running.pid()]]
            .concat()
            .into_iter()
            .for_each(|pid| processes::send(pid, signal));
        let ran = running.finish().expect(code);
        let report = ran.json();
        let records = stores::records(&bench.path("store"));
        let crashed: Vec<_> = records.iter().filter(|record| record.outcome == Outcome::Crashed).collect();
        assert!(crashed.is_empty(), "what was asked to end is no operator that crashed: {crashed:?}");
        assert!(!records.is_empty() && report["outcomes"]["left"].as_u64() > Some(0), "{ran}");
        assert_eq!(made(&ran), records.len() as u64);
        assert_eq!(stores::files(&bench.path("store/journal")).len(), 0, "everything is sealed");
        assert!(processes::have_ended(&workers), "no worker is left");
        check_sound(&bench, "store");
    }
}

#[test]
fn an_interrupted_campaign_counts_the_visits_that_are_left() {
    let bench = Bench::new();
    let command = || collect(&bench, &format!("{MANY} --visits 3 --store store"));
    let mut rows = 0;
    for number in 1..=2 {
        let running = start_and_wait(command(), &bench.path("store"), 1);
        processes::send(running.pid(), Signal::SIGTERM);
        let ran = running.finish().expect(143);
        let before = rows;
        rows = stores::chosen(&bench.path("store"), datasets::Choose::All).len() as u64;
        let planned = count(&ran, "visits");
        assert_eq!(planned, 3 * count(&ran, "attempts"), "{ran}");
        assert_eq!(ran.json()["outcomes"]["left"].as_u64(), Some(planned - rows), "start {number}\n{ran}");
        assert!(rows > before, "start {number}\n{ran}");
    }
}

#[test]
fn a_campaign_interrupted_while_it_builds_ends_soon() {
    let bench = Bench::new();
    // A single batch, so that nothing is measured before everything is built.
    let one_batch = tests::QUICK.replace("build_batch = 4", "build_batch = 1024\nbuilders = 2");
    bench.write("quick.toml", &one_batch);
    let mut running = start(collect(&bench, &format!("{MANY} --store store")));
    // The first worker reports versions earlier; the second one only builds.
    let has_begun = |pid: i32| Some(processes::children(pid)).filter(|workers| workers.len() == 2);
    let workers = running.until(has_begun).expect("the campaign builds");
    processes::send(running.pid(), Signal::SIGTERM);
    let ran = running.finish().expect(143);
    assert_eq!(ran.json()["outcomes"]["left"].as_u64(), Some(count(&ran, "attempts")), "not one was measured\n{ran}");
    assert!(processes::have_ended(&workers), "no builder is left");
    check_sound(&bench, "store");
}

#[test]
fn a_budget_ends_a_campaign_cleanly() {
    let bench = Bench::new();
    let ran = run(collect(&bench, &format!("{MANY} --store store --budget 0.001"))).expect(0);
    let left = ran.json()["outcomes"]["left"].as_u64().expect("a count");
    assert_eq!(left + made(&ran), count(&ran, "attempts"));
    assert!(left > 0, "{ran}");
    check_sound(&bench, "store");
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

const MORE: &str = "--modelsource local --modelname mlp --schedules 28 --config quick.toml";

fn first_records(running: &mut Running, store: &Path, known: &HashSet<Key>) -> HashSet<Key> {
    let news = running.until(|_| {
        let journaled: HashSet<Key> = stores::journal_lines(store).iter().map(|line| key_of(line)).collect();
        (!journaled.is_subset(known)).then_some(journaled)
    });
    news.expect("the campaign goes on: more attempts are needed")
}

/// Waits until a file of the store is created or removed; returns no keys, because no record is journaled then.
fn first_change(running: &mut Running, store: &Path) -> HashSet<Key> {
    let before = stores::files(store);
    running.until(|_| (stores::files(store) != before).then_some(()));
    HashSet::new()
}

fn kill_all(running: &mut Running, dice: &mut Dice) {
    let pid = running.pid();
    let workers = processes::children(pid);
    let victims: Vec<i32> = match dice.roll(3) {
        0 => vec![pid],
        1 => [vec![pid], workers.clone()].concat(),
        _ => [workers.clone(), vec![pid]].concat(),
    };
    victims.iter().for_each(|&victim| processes::send(victim, Signal::SIGKILL));
    assert!(processes::have_ended(&workers), "workers end with their orchestrator");
}

#[test]
fn a_campaign_killed_at_any_time_continues() {
    const KILLS: usize = 24;
    let bench = Bench::new();
    let store = bench.path("store");
    run(collect(&bench, &format!("{MORE} --store reference"))).expect(0);
    let planned = stores::keys(&stores::records(&bench.path("reference")));

    let mut dice = Dice(20);
    let mut known: HashSet<Key> = HashSet::new();
    for kill in 1..=KILLS {
        let mut running = start(collect(&bench, &format!("{MORE} --store store")));
        let moment = dice.roll(4);
        let journaled = match moment {
            // During start-up or building.
            0 => HashSet::new(),
            // At the start of sealing what the previous run left.
            1 => first_change(&mut running, &store),
            // After a new record, the most frequent state.
            _ => first_records(&mut running, &store, &known),
        };
        // An arbitrary state, so the pause is a fixed time.
        std::thread::sleep(Duration::from_micros(dice.roll([400_000, 5_000, 60_000, 60_000][moment as usize])));
        assert!(running.is_alive(), "the campaign ended before kill {kill}: more attempts are needed");
        kill_all(&mut running, &mut dice);
        running.finish();
        if !store.join("opcollect-store.json").exists() {
            continue;
        }
        let there: HashSet<Key> = stores::keys(&stores::records(&store)).into_iter().collect();
        assert!(known.is_subset(&there) && journaled.is_subset(&there), "kill {kill}: a record is lost");
        let expected: HashSet<Key> = planned[..there.len()].iter().copied().collect();
        assert!(there == expected, "kill {kill}: attempts are made one after the other, so there is no gap");
        known = there;
        if kill % 6 == 0 {
            check_sound(&bench, "store");
        }
    }
    assert!(known.len() > KILLS / 3, "{} records: most runs got as far as a record", known.len());
    let last = run(collect(&bench, &format!("{MORE} --store store"))).expect(0);
    assert_eq!(count(&last, "known_before"), known.len() as u64);
    assert_eq!(count(&last, "known_before") + made(&last), planned.len() as u64);
    check_sound(&bench, "store");
    run(bench.opcollect("dataset compact --store store")).expect(0);
    let stats = run(bench.opcollect("dataset stats --store store --json")).expect(0).json();
    assert_eq!((stats["rows"].as_u64(), stats["duplicates"].as_u64()), (Some(planned.len() as u64), Some(0)));
    assert_eq!(key_set(&store), planned.into_iter().collect());
    let swept = check_sound(&bench, "store");
    assert_eq!((&swept["leftovers"], &swept["journals"]), (&serde_json::json!([]), &serde_json::json!(0)), "{swept}");
}

fn key_of(line: &str) -> Key {
    let record: serde_json::Value = serde_json::from_str(line).expect("a complete line is JSON");
    record["key"].as_str().and_then(|key| key.parse().ok()).expect("a record has a key")
}

#[test]
fn a_full_disk_loses_no_complete_record() {
    let bench = Bench::new();
    // The limit applies to the orchestrator's files only; its workers write objects.
    let program = install_with_worker(&bench, "ulimit -S -f unlimited; exec REAL $@");
    let script = format!("trap '' XFSZ; ulimit -S -f 24; exec {} {FEW} --store store --json", program.display());
    let mut command = bench.command(Path::new("sh"), "-c");
    command.arg(script);
    let ran = run(command).expect(3);
    let error = ran.stderr.lines().find(|line| !line.starts_with("note: this machine is busy: ")).unwrap_or_default();
    assert!(error.starts_with("error: no space left while") && ran.stderr.contains("\nhint: free space"), "{ran}");
    let kept = stores::records(&bench.path("store"));
    assert!(!kept.is_empty() && kept.len() < 10, "{} records\n{ran}", kept.len());
    check_sound(&bench, "store");
    let rest = run(collect(&bench, &format!("{FEW} --store store"))).expect(0);
    assert_eq!((count(&rest, "known_before"), made(&rest)), (kept.len() as u64, 10 - kept.len() as u64));
    let all: Vec<Record> = stores::records(&bench.path("store"));
    assert_eq!(all[..kept.len()], kept, "what was kept is as it was");
}

#[test]
fn a_record_can_be_measured_again() {
    let bench = Bench::new();
    run(collect(&bench, &format!("{FEW} --store store"))).expect(0);
    let record = stores::records(&bench.path("store")).remove(3);
    let ran = run(bench.opcollect(&format!("replay --key {} --store store --json", record.key))).expect(0);
    let replayed = ran.json();
    assert_eq!(replayed["key"].as_str(), Some(record.key.to_hex().as_str()));
    assert_eq!(replayed["recorded_median_ns"].as_f64(), record.median_ns);
    assert!(replayed["median_ns"].as_f64().is_some(), "{ran}");
}

#[test]
fn a_damaged_part_is_reported() {
    let bench = Bench::new();
    run(collect(&bench, &format!("{FEW} --store store"))).expect(0);
    let (part, mut content) = stores::parts(&bench.path("store")).remove(0);
    let middle = content.len() / 2;
    content[middle] ^= 0x55;
    let path = bench.path("store").join(&part);
    std::fs::write(&path, content).expect("a part can be damaged");
    let verified = run(bench.opcollect("dataset verify --store store")).expect(1);
    assert!(verified.stdout.contains(&part.display().to_string()), "{verified}");
    // A damaged part is skipped, and the other parts are processed.
    for command in ["stats", "export --out rows.csv", "compact", "seal"] {
        let ran = run(bench.opcollect(&format!("dataset {command} --store store")));
        let is_seal = command == "seal";
        let ran = ran.expect(if is_seal { 0 } else { 1 });
        assert!(is_seal || ran.stderr.contains(&part.display().to_string()), "{ran}");
    }
    run(bench.opcollect("dataset merge --store other store")).expect(1);
    let again = run(collect(&bench, &format!("{FEW} --store store"))).expect(0);
    assert_eq!(made(&again), 10, "what is lost is measured again: {again}");
    let compacted = run(bench.opcollect("dataset compact --store store")).expect(1);
    assert!(compacted.stdout.contains("with 10 rows; 1 damaged part left unchanged"), "{compacted}");
    let aside = run(bench.opcollect("dataset verify --store store --quarantine")).expect(1);
    assert!(aside.stdout.contains("rows lost") && aside.stdout.contains(": sound\n"), "{aside}");
    assert!(!path.exists());
    check_sound(&bench, "store");
    let later = run(bench.opcollect("dataset verify --store store")).expect(0).stdout;
    assert!(later.contains("has 1 damaged file, which no command reads") && !later.contains("moved"), "{later}");
}
