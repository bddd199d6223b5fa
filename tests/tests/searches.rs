//! Searches with the real programs: a tuner tries schedules through TVM's workers, is killed, and continues without
//! repetition. Its best schedules are measured again, and unsupported searches give one clear error.
#![allow(missing_docs)]

use datasets::{Choose, Key, Record};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tests::{Bench, Ran, processes, run, start, stores};

const PRODUCT: &str = "--modelsource simple --modelname matmul:m=16,n=32,k=16 --config quick.toml --store store";
const SPACE: &str = "--modelsource simple --modelname matmul:m=16,n=32,k=16";

fn counted(ran: &Ran) -> u64 {
    ran.json()["outcomes"]["counts"].as_object().expect("counts").values().filter_map(Value::as_u64).sum()
}

fn measured(bench: &Bench) -> BTreeMap<Key, usize> {
    let mut counts = BTreeMap::new();
    // Experiments that were built but not run are not measured.
    let all = stores::chosen(&bench.path("store"), Choose::All).into_iter();
    for record in all.filter(|record| record.outcome != datasets::Outcome::PassedOver) {
        *counts.entry(record.key).or_default() += 1;
    }
    counts
}

#[test]
fn a_killed_search_continues_without_repetition() {
    let bench = Bench::new();
    let command = format!("{PRODUCT} --iftune true --trials 24 --patience 0 --json");
    // The time budget does not change the identity of the search.
    let mut running = start(bench.opcollect(&format!("{command} --budget 1000")));
    let store = bench.path("store");
    running.until(|_| (stores::journal_lines(&store).len() >= 6).then_some(())).expect("it goes on after six trials");
    let workers = processes::children(running.pid());
    processes::send(running.pid(), Signal::SIGKILL);
    assert!(processes::have_ended(&workers), "workers end with their orchestrator");
    running.finish();
    let before = measured(&bench);
    assert!((6..24).contains(&before.len()), "{}", before.len());

    let ended = run(bench.opcollect(&command)).expect(0);
    let after = measured(&bench);
    assert_eq!(after.len(), 24, "trials are schedules, and those of the killed process count: {ended}");
    assert_eq!(ended.json()["known_before"].as_u64(), Some(before.len() as u64));
    let (search, again) = (&ended.json()["searches"][0], after.values().filter(|count| **count > 1).count());
    assert_eq!(search["trials"], 24, "{search}");
    assert_eq!(search["stop"], "trials", "{search}");
    assert_eq!(search["final"]["measured_again"].as_u64(), Some(again as u64), "{search}");
    assert!((1..=8).contains(&again), "the best few are measured again: {after:?}");
    assert_eq!(counted(&ended) as usize, after.values().sum::<usize>() - before.len(), "{ended}");
    let curve = search["curve"].as_array().expect("a curve");
    let bests: Vec<f64> = curve.iter().filter_map(|point| point["best_ns"].as_f64()).collect();
    assert!(!bests.is_empty() && bests.is_sorted_by(|one, other| one >= other), "{curve:?}");
    // Search, table and store agree on the winner, unless the last rounds did not tell it from another schedule.
    let best = run(bench.opcollect("dataset best --store store --json")).expect(0);
    assert_eq!(best.json()["tasks"].as_array().map(Vec::len), Some(1), "{best}");
    let is_told = ["equals", "undecided"].iter().all(|count| search["final"][*count] == 0);
    assert!(!is_told || best.json()["tasks"][0]["schedule"] == search["schedule"], "{best}\n{ended}");
    let row = &ended.json()["models"][0]["rows"][0];
    assert!(row["attempts"].as_u64() >= Some(4), "its first time and three rounds: {row}");

    let third = run(bench.opcollect(&command)).expect(0);
    assert_eq!((counted(&third), measured(&bench)), (0, after), "all of it is known: {third}");
    let shown = run(bench.opcollect(&command.replace(" --json", ""))).expect(0);
    assert!(shown.stdout.contains("no more trials") && shown.stdout.contains("24 known before"), "{shown}");
}

fn store_of(bench: &Bench, name: &str, records: &[Record]) {
    let store = datasets::Store::create(&bench.path(name)).expect("a new store");
    let origin = datasets::Origin { host: "here".to_owned(), program: "test".to_owned(), command: "none".to_owned() };
    let mut journal = store.start_journal(origin).expect("a journal");
    records.iter().for_each(|record| journal.append(record).expect("the row is sound"));
    journal.seal().expect("the journal is sound");
}

fn of_older_version(record: Record) -> Record {
    let halved = |ns: Option<f64>| ns.map(|ns| ns / 2.0);
    let older = Record {
        tvm_version: Some("0.0.1".to_owned()),
        median_ns: halved(record.median_ns),
        mean_ns: halved(record.mean_ns),
        min_ns: halved(record.min_ns),
        p95_ns: halved(record.p95_ns),
        median_interval_ns: halved(record.median_interval_ns),
        median_low_ns: halved(record.median_low_ns),
        median_high_ns: halved(record.median_high_ns),
        ..record
    };
    Record { key: older.experiment_key(), ..older }
}

#[test]
fn times_of_another_version_do_not_count() {
    let bench = Bench::new();
    let command = format!("{PRODUCT} --iftune true --tuner random --trials 6 --patience 0 --json");
    run(bench.opcollect(&command)).expect(0);
    let older: Vec<Record> =
        stores::chosen(&bench.path("store"), Choose::All).into_iter().map(of_older_version).collect();
    store_of(&bench, "older", &older);

    let only = run(bench.opcollect("dataset best --store older")).expect(2);
    assert!(only.stderr.contains("matching times, measured with other versions than this machine's"), "{only}");
    assert!(only.stderr.contains("--all-versions"), "{only}");
    let all = run(bench.opcollect("dataset best --store older --all-versions --json")).expect(0);
    assert_eq!(all.json()["tasks"][0]["tvm_version"], "0.0.1", "{all}");
    let shown = run(bench.opcollect("dataset best --store older --all-versions")).expect(0);
    assert!(shown.stdout.contains("TVM 0.0.1"), "{shown}");

    let searched = run(bench.opcollect(&command.replace("--store store", "--store older"))).expect(0);
    let json = searched.json();
    assert_eq!((&json["known_before"], &json["searches"][0]["trials"]), (&0.into(), &6.into()), "{searched}");
    let fastest = stores::records(&bench.path("older"))
        .into_iter()
        .filter(|record| record.tvm_version.as_deref() != Some("0.0.1"));
    let fastest = fastest.filter_map(|record| record.min_ns).fold(f64::INFINITY, f64::min);
    assert!(json["searches"][0]["best_ns"].as_f64() >= Some(fastest), "{searched}");
    let best = run(bench.opcollect("dataset best --store older --json")).expect(0);
    assert_eq!(best.json()["tasks"][0]["schedule"], json["searches"][0]["schedule"], "{best}\n{searched}");
    assert_eq!(best.json()["left_out"].as_u64(), Some(older.len() as u64), "{best}");
    assert!(best.stderr.contains("of other versions; `--all-versions` includes them"), "{best}");
}

#[test]
fn built_code_decides_what_is_run() {
    let bench = Bench::new();
    let product = "--modelsource simple --modelname matmul:m=64,n=96,k=64 --config quick.toml --store store --json";
    let command = format!("{product} --iftune --trials 60 --patience 0");
    let ran = run(bench.opcollect(&command)).expect(0);
    let passed_over = || {
        let mut records = stores::chosen(&bench.path("store"), Choose::All);
        records.retain(|record| record.outcome == datasets::Outcome::PassedOver);
        records
    };
    let (search, before) = (&ran.json()["searches"][0], passed_over());
    let count = |name: &str| search[name].as_u64().map(|count| count as usize);
    assert_eq!((count("trials"), count("passed_over")), (Some(60), Some(before.len())), "{ran}");
    assert!((1..=60).contains(&before.len()), "{}", before.len());
    assert_eq!(ran.json()["outcomes"]["passed_over"].as_u64(), Some(before.len() as u64), "{ran}");
    for record in &before {
        assert!(record.median_ns.is_none() && record.reason.as_ref().is_some_and(|why| why.contains("cost model")));
        assert!(record.features.as_ref().is_some_and(|features| features.as_text().contains("code_cycles")));
    }
    let again = run(bench.opcollect(&command)).expect(0);
    assert_eq!((counted(&again), passed_over().len()), (0, before.len()), "nothing is built again: {again}");
    assert_eq!(again.json()["searches"][0]["passed_over"], search["passed_over"], "{again}");
    let shown = run(bench.opcollect(&command.replace(" --json", ""))).expect(0);
    assert!(shown.stdout.contains("more were built but rejected by the cost model and not run"), "{shown}");
    // A schedule that was only built can still be measured on request.
    let key = before[0].key;
    let settings = before[0].schedule.as_ref().expect("a schedule").parse_as::<Value>().expect("JSON");
    let knobs = settings["knobs"].as_object().expect("knobs").iter();
    let only: Vec<String> =
        knobs.map(|(name, value)| format!("--only {name}={}", value.to_string().trim_matches('"'))).collect();
    let wanted = format!("{product} --iftune --tuner gridsearch --trials 4 {}", only.join(" "));
    run(bench.opcollect(&wanted)).expect(0);
    let times = stores::chosen(&bench.path("store"), Choose::All);
    assert!(times.iter().any(|record| record.key == key && record.median_ns.is_some()), "{wanted}");
}

#[test]
fn trials_of_a_model_are_shared_by_its_tasks_and_capped_for_each() {
    let bench = Bench::new();
    let two = "--modelsource simple --modelname matmul:m=16,n=32,k=16 --modelname relu:shape=1x64 --config quick.toml \
               --iftune --json";
    let ran = run(bench.opcollect(&format!("{two} --trials 8 --trials-per-task 6 --tuner ga --store store"))).expect(0);
    let searches = ran.json()["searches"].as_array().expect("searches").clone();
    let trials: Vec<u64> = searches.iter().filter_map(|search| search["trials"].as_u64()).collect();
    assert_eq!(trials, [6, 6], "{ran}");
    assert!(searches.iter().all(|search| search["stop"] == "trials_per_task"), "{ran}");
    let schedules: Vec<Record> = stores::records(&bench.path("store"));
    assert!(schedules.iter().any(|record| record.schedule_source == Some(datasets::ScheduleSource::Default)));
    // A small space ends the search before the number of trials is reached.
    let small = "--modelsource simple --modelname relu:shape=1x64 --config quick.toml --store whole --json";
    let ran = run(bench.opcollect(&format!("{small} --iftune --trials 20 --tuner random"))).expect(0);
    assert_eq!(ran.json()["searches"][0]["stop"], "exhausted", "{ran}");
}

#[test]
fn winners_are_timed_in_the_whole_model() {
    let bench = Bench::new();
    let command = "--modelsource local --modelname mlp --config quick.toml --iftune --trials 60 --patience 0 --store store --json";
    let ran = run(bench.opcollect(command)).expect(0);
    let of_places = |store: &str| {
        let all = stores::chosen(&bench.path(store), Choose::All);
        all.into_iter().filter(|record| record.network_hash.is_some()).collect::<Vec<Record>>()
    };
    let (timed, seen) = (of_places("store"), &ran.json()["in_place"]);
    let searches = ran.json()["searches"].as_array().expect("searches").clone();
    if searches.iter().all(|search| search["difference"] == "default") {
        assert!(timed.is_empty() && seen.is_null(), "there was nothing to decide: {ran}");
        return;
    }
    let [one] = seen.as_array().expect("a model on one number of threads").as_slice() else { panic!("{ran}") };
    let [default, alone, best] = ["default_ns", "alone_ns", "best_ns"].map(|name| one[name].as_f64().expect("a time"));
    assert!(default > 0.0 && alone > 0.0 && best > 0.0 && best < 1.05 * default.min(alone), "{one}");
    let sources: Vec<_> = timed.iter().filter_map(|record| record.schedule_source).collect();
    assert!(
        sources.contains(&datasets::ScheduleSource::Default) && sources.contains(&datasets::ScheduleSource::Template)
    );
    assert!(timed.iter().all(|record| record.outcome == datasets::Outcome::Ok && record.n > 0), "{ran}");
    let runs: BTreeSet<String> =
        stores::chosen(&bench.path("store"), Choose::All).into_iter().map(|record| record.run_id).collect();
    assert_eq!(runs.len(), 1, "they are of the run that searched: {runs:?}");
    // A decided contest is not repeated, and `best` uses its result.
    let again = run(bench.opcollect(command)).expect(0);
    assert_eq!((counted(&again), of_places("store").len()), (0, timed.len()), "{again}");
    let compared = "model compare --modelsource local --modelname mlp --threads 1 --variant default --variant best --store store --rounds 2";
    let shown = run(bench.opcollect(compared)).expect(0);
    assert!(shown.stdout.contains("best"), "{shown}");
    bench.write("plain.toml", &format!("{}[tune]\nin_place = false\n", tests::QUICK));
    let off = run(bench.opcollect(&command.replace("store store", "store other").replace("quick", "plain"))).expect(0);
    assert!(off.json()["in_place"].is_null() && of_places("other").is_empty(), "{off}");
}

#[test]
fn a_signal_after_the_last_trial_loses_no_report() {
    let bench = Bench::new();
    let command =
        "--modelsource local --modelname mlp --config quick.toml --iftune --ifcompare --trials 30 --patience 0 --json";
    let mut interrupted = 0;
    // The time at which whole models run is unknown, so the signal comes after several delays: as soon as journals are
    // empty, and later.
    for (number, pause) in [0, 300, 1_000, 2_000].map(Duration::from_millis).into_iter().enumerate() {
        let name = format!("store-{number}");
        let mut running = start(bench.opcollect(&format!("{command} --store {name}")));
        let store = bench.path(&name);
        let is_sealed = |_| {
            let records = datasets::Store::open(&store).ok()?.select_records(Choose::All).ok()?;
            (records.count() >= 30 && stores::journal_lines(&store).is_empty()).then_some(())
        };
        running.until(is_sealed);
        std::thread::sleep(pause);
        if running.is_alive() {
            processes::send(running.pid(), Signal::SIGTERM);
        }
        let ran = running.finish();
        assert!([0, 143].contains(&ran.code()), "{ran}");
        assert!(counted(&ran) >= 30, "{ran}");
        interrupted += usize::from(ran.code() == 143);
    }
    assert!(interrupted > 0, "no signal met a run");
}

/// The other process may end before it has made the trials that it claimed.
#[test]
fn trials_that_another_process_holds_are_left() {
    let bench = Bench::new();
    let command = format!("{PRODUCT} --iftune true --trials 40 --patience 0 --json");
    let mut first = start(bench.opcollect(&command));
    let store = bench.path("store");
    let has_begun = |_| (store.exists() && !stores::journal_lines(&store).is_empty()).then_some(());
    first.until(has_begun).expect("it measures");
    processes::send(first.pid(), Signal::SIGSTOP);
    let locks = tempfile::tempdir().expect("a folder");
    let mut second = bench.opcollect(&command);
    second.env("OPCOLLECT_LOCKS", locks.path());
    let ran = run(second).expect(1);
    let outcomes = &ran.json()["outcomes"];
    let (held, left) = (outcomes["held"].as_u64(), outcomes["left"].as_u64());
    assert!(held > Some(0) && left >= held, "{ran}");
    processes::send(first.pid(), Signal::SIGCONT);
    first.finish().expect(0);
}

#[test]
fn tvms_space_is_sampled_and_mutated() {
    let bench = Bench::new();
    let command = format!("{PRODUCT} --iftune true --tuner metaschedule --trials 72 --patience 0 --json");
    let ran = run(bench.opcollect(&command)).expect(0);
    let records: BTreeMap<Key, Record> =
        stores::records(&bench.path("store")).into_iter().map(|record| (record.key, record)).collect();
    let is_of_tvm = |record: &&Record| record.schedule_source == Some(datasets::ScheduleSource::MetaSchedule);
    assert_eq!((records.len(), records.values().filter(is_of_tvm).count()), (72, 71), "{ran}");
    let schedules = records.values().filter_map(|record| record.schedule.as_ref());
    let bred = schedules.filter(|schedule| schedule.as_text().starts_with(r#"{"from":"trace""#)).count();
    assert!((1..=8).contains(&bred), "after 64 of TVM's own, children are tried: {bred}");
    let again = run(bench.opcollect(&command)).expect(0);
    assert_eq!(counted(&again), 0, "all of it is known: {again}");
}

#[test]
fn invalid_searches_give_one_error() {
    let bench = Bench::new();
    let refused = |arguments: &str, message: &str, hint: &str| {
        let ran = run(bench.opcollect(&format!("{PRODUCT} {arguments}"))).expect(2);
        assert!(ran.stderr.starts_with(&format!("error: {message}")), "{arguments}: {ran}");
        assert!(ran.stderr.contains(hint), "{arguments}: {ran}");
        assert!(!bench.path("store").exists(), "{arguments}: a refusal leaves no store behind");
    };
    refused("--iftune true --trials 0", "`trials` is 0; allowed are 1 to 1000000", "");
    refused("--trials 5", "`--trials` needs a search, which `--iftune true` enables", "hint: add `--iftune true`");
    refused("--tuner ga --iftune false", "`--tuner` needs a search", "hint: add `--iftune true`");
    refused(
        "--iftune true --schedules 5",
        "`--schedules` applies to a sweep, not to a search",
        "hint: give `--trials`",
    );
    refused(
        "--iftune true --again",
        "`--again`, `--keys` and `--unless-agree` apply to a sweep",
        "give another `--store`",
    );
    refused("--iftune true --executor vm", "`tuner` is draft; a search needs static sizes", "");
    refused(
        "--iftune true --target cuda --arch sm_80 --tuner xgb_itervar",
        "`tuner` is xgb_itervar; `xgb_itervar` learns from loops of CPU templates",
        "",
    );
    refused(
        "--iftune true --backend torch",
        "`tuner` is draft; `draft` searches schedules, but a library has none",
        "",
    );
    refused("--only tile_x=4", "`--only` needs a search, which `--iftune true` enables", "hint: add `--iftune true`");
    refused("--iftune true --only tile_x", "`--only tile_x` is not an axis with settings", "write it as `tile_x=4,8`");
    refused(
        "--iftune true --tuner metaschedule --only tile_x=4",
        "`only` is tile_x; TVM's own space has no such axes",
        "",
    );
    let ran = run(bench.opcollect(&format!("{PRODUCT} --iftune true --tuner oracle"))).expect(2);
    assert!(ran.stderr.contains("invalid value 'oracle' for '--tuner <TUNER>'"), "{ran}");
}

#[test]
fn an_empty_space_is_rejected_with_its_settings() {
    let bench = Bench::new();
    let refused = |arguments: &str, message: &str, hint: &str| {
        for command in [format!("{PRODUCT} --iftune true {arguments}"), format!("space {SPACE} {arguments}")] {
            let ran = run(bench.opcollect(&command)).expect(2);
            assert!(ran.stderr.contains(&format!("error: {message}")), "{command}: {ran}");
            assert!(ran.stderr.contains(hint), "{command}: {ran}");
        }
    };
    refused("--only tile_z=4", "`only` names the axis `tile_z`, which no task of these models has", "hint: axes are ");
    for (only, absent) in [("tile_x=999", "999"), ("tile_x=4,abc", "abc"), ("tile_x=4 --only tile_x=3.5", "3.5")] {
        let message = format!("`only` names the setting `{absent}` of `tile_x`, which no task of these models has");
        refused(&format!("--only {only}"), &message, "hint: settings of `tile_x` are 1, 2, ");
    }
    refused("--only tile_x=4,", "`--only tile_x=4,` is not an axis with settings", "write it as `tile_x=4,8`");
    refused(
        "--only tile_x=16 --only tile_c=16 --only block=32",
        "`only` leaves no schedule of `matmul",
        "for example the rule `registers`",
    );
    let shown = run(bench.opcollect(&format!("space {SPACE} --only tile_x=4 --sample 3"))).expect(0);
    assert!(shown.stdout.contains("rule `registers`: "), "{shown}");
    assert!(shown.stdout.lines().filter(|line| line.contains("tile_x=4 ")).count() == 3, "{shown}");
    // The table `[tune]` of a configuration restricts the space as the flags do, which override the table.
    bench.write("tuned.toml", "[tune]\nonly = { tile_x = [8] }\n");
    let shown = run(bench.opcollect(&format!("space {SPACE} --config tuned.toml --sample 3"))).expect(0);
    assert!(shown.stdout.lines().filter(|line| line.contains("tile_x=8 ")).count() == 3, "{shown}");
    let shown =
        run(bench.opcollect(&format!("space {SPACE} --config tuned.toml --only tile_x=4 --sample 3"))).expect(0);
    assert!(shown.stdout.lines().filter(|line| line.contains("tile_x=4 ")).count() == 3, "{shown}");
    let built = run(bench.opcollect(&format!("build {SPACE} --config tuned.toml --out built"))).expect(2);
    assert!(built.stderr.contains("the configuration has a table `[tune]`"), "{built}");
    let spaces = run(bench.opcollect(&format!("space {SPACE} --json"))).expect(0).json();
    assert_eq!(spaces[0]["version"], job::space::VERSION, "{spaces}");
    assert!(spaces[0]["rules"].as_array().is_some_and(|rules| rules.len() >= 3), "{spaces}");
}

#[test]
fn searches_of_other_spaces_are_not_continued() {
    let bench = Bench::new();
    let command = format!("{PRODUCT} --iftune true --trials 2");
    run(bench.opcollect(&command)).expect(0);
    let store = datasets::Store::open(&bench.path("store")).expect("a store");
    let texts = store.config_texts().expect("its configurations");
    let version = format!(r#""spaces":{}"#, job::space::VERSION);
    assert!(texts.iter().any(|text| text.contains(&version)), "{texts:?}");
    for text in texts {
        store.keep_config(&text.replace(&version, r#""spaces":1"#)).expect("kept");
    }
    let ran = run(bench.opcollect(&command)).expect(2);
    let message = format!(
        "error: the store `store` has this search with version 1 of the schedule spaces, but this program has version {}",
        job::space::VERSION
    );
    assert!(ran.stderr.contains(&message) && ran.stderr.contains("hint: give another `--store`"), "{ran}");
    run(bench.opcollect(&command.replace("--trials 2", "--trials 3"))).expect(0);
}
