//! Nightly runs, comparison with the preceding one, status of a fleet, best known schedules, and sharing of records.
#![allow(missing_docs)]

use datasets::{Origin, Outcome, Record, Store};
use serde_json::Value;
use std::process::Command;
use tests::{Bench, QUICK, processes, run, skip, start, stores};

const FEW: &str = "--modelsource simple --modelname relu:shape=1x64 --modelname softmax:shape=3x17 \
                   --schedules 5 --config quick.toml";

/// Two small models with minimal measurements. A run takes far less than two minutes.
fn night_config(bench: &Bench, more: &str) {
    let models = "models = [{ source = 'simple', name = 'relu:shape=1x64' }, { source = 'simple', name = 'softmax:shape=3x17' }]\n\
                  schedules = 3\n";
    bench.write("night.toml", &format!("{models}{QUICK}[night]\nminutes = 4\nsentinel_minutes = 1\n{more}"));
}

fn copied(bench: &Bench, name: &str, records: &[Record]) {
    let store = Store::create(&bench.path(name)).expect("a new store");
    let origin = Origin { host: "h".to_owned(), program: "p".to_owned(), command: "c".to_owned() };
    let mut journal = store.start_journal(origin).expect("a new store takes journals");
    records.iter().for_each(|record| journal.append(record).expect("the row is sound"));
    journal.seal().expect("the journal is sound");
}

#[test]
fn two_nights_are_compared() {
    let bench = Bench::new();
    night_config(&bench, "again_share = 0.5\n");
    let night = "night --config night.toml --store store --json --minutes 3";
    let first = run(bench.opcollect(&format!("{night} --html night.html --markdown night.md")));
    assert!([0, 1].contains(&first.code()), "{first}");
    let report = first.json();
    let phases: Vec<&str> =
        report["phases"].as_array().expect("phases").iter().filter_map(|phase| phase["name"].as_str()).collect();
    assert_eq!((phases[0], phases.last()), ("default schedules again", Some(&"new work")), "{first}");
    assert!(report["sentinels"].as_u64() >= Some(2), "before and after\n{first}");
    let all = stores::chosen(&bench.path("store"), datasets::Choose::All);
    assert!(
        all.iter().all(|record| record.run_id == format!("night-{}", report["night"].as_str().unwrap_or_default()))
    );
    let looks = all.iter().filter(|record| drift::aspect_of(record).is_some()).count() as u64;
    assert_eq!(looks, 4 * report["sentinels"].as_u64().unwrap_or_default(), "each of the sentinels each time");
    assert!(std::fs::read_to_string(bench.path("night.md")).is_ok_and(|text| text.starts_with("## night ")));
    assert!(std::fs::read_to_string(bench.path("night.html")).is_ok_and(|page| page.contains("Work of this night")));
    let second = run(bench.opcollect(night)).json();
    let nights = second["drift"]["nights"].as_array().expect("nights");
    assert_eq!(nights.len(), 2, "{second}");
    // The default schedules are measured again, two tasks on one thread, and all uncertain lines, possibly all of them.
    assert!(second["drift"]["changes"].as_array().is_some_and(|changes| changes.len() >= 2), "{second}");
    let output = run(bench.opcollect("drift store --html drift.html --json")).expect(0);
    assert_eq!(output.json()["nights"].as_array().map(Vec::len), Some(2));
    assert!(std::fs::read_to_string(bench.path("drift.html")).is_ok_and(|page| page.contains("What changed")));
    let store = Store::open(&bench.path("store")).expect("a store");
    assert!(store.verify().expect("readable").problems.is_empty());
    // A night without time measures nothing again.
    let empty = run(bench.opcollect("night --config night.toml --store store --minutes 0.01 --fail-on regression"));
    assert!(empty.stderr.contains("`--fail-on` has nothing to judge"), "{}", empty.expect(2));
}

#[test]
fn a_night_keeps_its_deadline_and_seals() {
    let bench = Bench::new();
    let big = "models = [{ source = 'local', name = 'resnet-50' }]\nschedules = 64\n";
    bench.write("night.toml", &format!("{big}{QUICK}[night]\nminutes = 0.4\nsentinel_minutes = 1\n"));
    let start = std::time::Instant::now();
    let ran = run(bench.opcollect("night --config night.toml --store store --json"));
    assert!([0, 1].contains(&ran.code()), "{ran}");
    // Planning and the final report are not part of the budget, and the machine may be slow.
    assert!(start.elapsed().as_secs() < 300, "{ran}");
    assert!(stores::journal_lines(&bench.path("store")).is_empty(), "all is sealed");
}

/// A killed nightly run continues under its name until its original end; a changed sentinel's machine code is not run.
#[test]
fn a_killed_night_continues() {
    let bench = Bench::new();
    let big = "models = [{ source = 'local', name = 'squeezenet-1.1' }]\nschedules = 400\n";
    // New work only, in slices of 20 minutes: even a slow machine completes none.
    bench.write("night.toml", &format!("{big}{QUICK}[night]\nminutes = 30\nsentinel_minutes = 20\nagain_share = 0\n"));
    let command = || bench.opcollect("night --config night.toml --store store --json");
    let made = || {
        if bench.path("store/opcollect-store.json").exists() {
            stores::chosen(&bench.path("store"), datasets::Choose::All).len()
        } else {
            0
        }
    };
    let mut before = 0;
    for number in 1..=3 {
        let mut night = start(command());
        let has_progressed = night.until(|_| Some(made()).filter(|made| *made > before + 20));
        assert!(has_progressed.is_some(), "start {number} ended with {before} records");
        let below = processes::children(night.pid());
        let all: Vec<i32> = below.iter().flat_map(|child| processes::children(*child)).chain(below.clone()).collect();
        processes::send(night.pid(), nix::sys::signal::Signal::SIGKILL);
        let killed = night.finish();
        assert!(processes::have_ended(&all), "children measure on\n{killed}");
        assert_eq!(killed.stderr.contains("was killed and continues"), number > 1, "{killed}");
        before = made();
    }
    let records = stores::chosen(&bench.path("store"), datasets::Choose::All);
    let names: std::collections::BTreeSet<&str> = records.iter().map(|record| record.run_id.as_str()).collect();
    assert_eq!(names.len(), 1, "one night: {names:?}");
    let looks = records.iter().filter(|record| drift::aspect_of(record).is_some()).count();
    assert_eq!(looks, 4, "sentinels run at the start and after each completed slice, not at each start");

    let is_set_aside = || {
        std::fs::read_dir(bench.path("store/sentinels"))
            .ok()?
            .flatten()
            .find(|entry| entry.file_name().to_string_lossy().starts_with("set-aside-"))
    };
    assert!(is_set_aside().is_none(), "sentinels that this machine built are kept");

    // Another nightly run finds machine code that was not built on this machine.
    std::fs::remove_dir_all(bench.locks().join("state/nights")).expect("a killed night's state");
    let entries = std::fs::read_dir(bench.path("store/sentinels")).expect("sentinels").flatten();
    let mut folders = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    std::fs::write(folders.next().expect("one").path().join("more"), "x").expect("a file");
    let mut night = start(command());
    assert!(night.until(|_| is_set_aside()).is_some());
    night.until(|_| Some(made()).filter(|made| *made > before + 4));
    processes::send(night.pid(), nix::sys::signal::Signal::SIGTERM);
    let ended = night.finish();
    assert!(ended.stderr.contains("were not built on this machine, or were changed"), "{ended}");
}

#[test]
fn invalid_nights_are_rejected() {
    let bench = Bench::new();
    let refused = |arguments: &str, code: i32, why: &str| {
        let ran = run(bench.opcollect(arguments)).expect(code);
        assert!(ran.stderr.contains(why), "{ran}");
    };
    refused("night --config quick.toml", 2, "has no table `[night]`");
    bench.write("none.toml", "[night]\nminutes = 1\n");
    refused("night --config none.toml", 2, "names no models");
    night_config(&bench, "deadline = '25:00'\n");
    refused("night --config night.toml", 2, "`night.deadline` is `25:00`");
    night_config(&bench, "nigths = 3\n");
    refused("night --config night.toml", 2, "did you mean `nights`?");
    night_config(&bench, "");
    let _night =
        measure::host::Exclusive::lock_night(bench.locks(), std::time::Duration::ZERO, &mut |_| ()).expect("no other");
    refused("night --config night.toml", 3, "another nightly run is in progress on this machine: ");
    assert!(!bench.path("opcollect-data").exists(), "a refusal leaves no store behind");
}

/// A nightly run that fails because another process measures must not advise to remove the stored sentinels.
#[test]
fn a_night_on_a_busy_cpu_does_not_advise_to_remove_its_sentinels() {
    let bench = Bench::new();
    night_config(&bench, "");
    let cpus = measure::affinity::allowed_cpus().expect("the system tells the CPUs");
    let _held = measure::host::Exclusive::lock_cpus(bench.locks(), &cpus, std::time::Duration::ZERO, &mut |_| ())
        .expect("free");
    let ran = run(bench.opcollect("night --config night.toml --store busy")).expect(3);
    assert!(ran.stderr.contains("another process measures on CPU "), "{ran}");
    assert!(
        ran.stderr.contains("did not run; the error is above") && !ran.stderr.contains("remove that folder"),
        "{ran}"
    );
}

#[test]
fn drift_reports_slower_lines() {
    let bench = Bench::new();
    run(bench.opcollect(&format!("{FEW} --store store --json"))).expect(0);
    let certain = |record: Record| Record { median_interval_ns: record.median_ns.map(|ns| 0.005 * ns), ..record };
    let records: Vec<Record> = stores::records(&bench.path("store")).into_iter().map(certain).collect();
    // One of ten lines: without sentinels, most lines are assumed to be unchanged.
    let slow = records.iter().find(|record| record.op_kind == "softmax").map(|record| record.key);
    let slower = |record: &Record| {
        let factor = if Some(record.key) == slow { 1.5 } else { 1.0 };
        let scaled = |ns: Option<f64>| ns.map(|ns| factor * ns);
        Record {
            median_ns: scaled(record.median_ns),
            mean_ns: scaled(record.mean_ns),
            min_ns: scaled(record.min_ns),
            p95_ns: scaled(record.p95_ns),
            std_ns: scaled(record.std_ns),
            samples_ns: record.samples_ns.iter().map(|ns| factor * ns).collect(),
            median_interval_ns: scaled(record.median_interval_ns),
            median_low_ns: scaled(record.median_low_ns),
            median_high_ns: scaled(record.median_high_ns),
            started_at_us: record.started_at_us + 86_400_000_000,
            tvm_version: Some("9.9".to_owned()),
            ..record.clone()
        }
    };
    copied(&bench, "before", &records);
    datasets::Store::create(&bench.path("nothing")).expect("an empty store can be made");
    copied(&bench, "after", &records.iter().map(slower).collect::<Vec<_>>());
    let ran = run(bench.opcollect("drift before after --json --fail-on regression")).expect(4);
    let report = ran.json();
    let verdicts: Vec<(&str, &str)> = report["changes"]
        .as_array()
        .expect("changes")
        .iter()
        .map(|change| (change["op_kind"].as_str().unwrap_or_default(), change["verdict"].as_str().unwrap_or_default()))
        .collect();
    assert!(verdicts.contains(&("softmax", "slower")) && !verdicts.contains(&("relu", "slower")), "{ran}");
    let causes: Vec<&str> =
        report["causes"].as_array().expect("causes").iter().filter_map(|cause| cause["name"].as_str()).collect();
    assert_eq!(causes, ["tvm_version"]);
    run(bench.opcollect("drift before before --fail-on regression")).expect(0);
    run(bench.opcollect("drift before after@op_kind=relu --fail-on regression")).expect(0);
    let wrong = run(bench.opcollect("drift before after@tvm_versoin=1")).expect(2);
    assert!(wrong.stderr.contains("did you mean `tvm_version`"), "{wrong}");
    let one = run(bench.opcollect("drift before")).expect(2);
    assert!(one.stderr.contains("has only one nightly run"), "{one}");
    for (sides, empty) in [
        ("before@night=1970-01-01 after", "before@night=1970-01-01"),
        ("before after@tvm_version=9.8", "after@tvm_version=9.8"),
        ("before@tvm_version=9.8", "before@tvm_version=9.8"),
        ("before nothing", "nothing"),
    ] {
        for options in ["", " --fail-on regression"] {
            let refused = run(bench.opcollect(&format!("drift {sides}{options}"))).expect(2);
            assert!(refused.stderr.starts_with(&format!("error: `{empty}` selects no record\nhint: ")), "{refused}");
            assert!(!refused.stderr.contains("nightly") && refused.stdout.is_empty(), "{refused}");
        }
    }
    // Both sides have records, but of different operators.
    let apart = "drift before@op_kind=relu after@op_kind=softmax";
    run(bench.opcollect(apart)).expect(0);
    let refused = run(bench.opcollect(&format!("{apart} --fail-on regression"))).expect(2);
    assert!(refused.stderr.contains("`--fail-on` has nothing to judge"), "{refused}");
    let none = run(bench.opcollect("drift before none")).expect(2);
    assert!(none.stderr.contains("is not a dataset store"), "{none}");
}

#[test]
fn only_named_experiments_are_measured() {
    let bench = Bench::new();
    run(bench.opcollect(&format!("{FEW} --store store --json"))).expect(0);
    let keys = stores::keys(&stores::records(&bench.path("store")));
    bench.write("keys.txt", &format!("{}\n{}\n\n", keys[1], keys[3]));
    let ran = run(bench.opcollect(&format!("{FEW} --store store --keys keys.txt --again --json"))).expect(0);
    assert_eq!(ran.json()["outcomes"]["counts"]["ok"], 2, "{ran}");
    bench.write("keys.txt", "x\n");
    let ran = run(bench.opcollect(&format!("{FEW} --keys keys.txt"))).expect(2);
    assert!(ran.stderr.contains("`x` is not a key of 32 hexadecimal digits"), "{ran}");
}

#[test]
fn status_shows_running_processes() {
    let bench = Bench::new();
    let status = |bench: &Bench| run(bench.opcollect("status store")).expect(0);
    let mut running = start(
        bench.opcollect(&format!("{FEW} --schedules 40 --store store --progress json").replace("--schedules 5 ", "")),
    );
    let store = bench.path("store");
    let seen = running.until(|_| {
        Some(Store::open(&store).ok()?.read_statuses().ok()?).filter(|seen| seen.iter().any(|one| one.status.done > 0))
    });
    let seen = seen.expect("it tells before it ends");
    assert!(
        seen[0].is_running
            && seen[0].status.total > seen[0].status.done
            && seen[0].status.command.contains("--progress json")
    );
    let ran = running.finish();
    let documents: Vec<Value> = ran.stderr.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let last = documents.last().unwrap_or_else(|| panic!("there are documents\n{ran}"));
    assert_eq!(last["done"], last["total"], "{ran}");
    assert!(status(&bench).stdout.starts_with("no process is working on `store`"));
}

#[test]
fn best_schedules_and_sql_queries() {
    let bench = Bench::new();
    run(bench.opcollect(&format!("{FEW} --store store --json"))).expect(0);
    let records = stores::records(&bench.path("store"));
    let ran = run(bench.opcollect("dataset best --store store --operator softmax --json")).expect(0);
    let best = &ran.json()["tasks"][0];
    let softmax: Vec<&Record> = records.iter().filter(|record| record.op_kind == "softmax").collect();
    assert_eq!(best["schedules"].as_u64(), Some(softmax.len() as u64), "{ran}");
    assert!(softmax.iter().any(|record| Some(record.key.to_hex().as_str()) == best["key"].as_str()), "{ran}");
    // The sum is of the whole model, not of some of its tasks.
    let model = softmax[0].model_name.as_deref().expect("the records are of a model");
    let total =
        |rest: &str| run(bench.opcollect(&format!("dataset best --store store --model {model} {rest}"))).expect(0);
    let whole = total("");
    assert!(
        whole.stdout.lines().any(|text| text.ends_with("the sum of the fastest times of the 1 task in the store")),
        "{whole}"
    );
    assert!(total("--json").json()["total_ns"].as_f64() > Some(0.0));
    assert!(!total("--operator softmax").stdout.contains("the sum of"));
    assert!(total("--operator softmax --json").json()["total_ns"].is_null());
    let ran = run(bench.opcollect("dataset best --store store --host nowhere")).expect(2);
    assert!(ran.stderr.contains("has no record of the host `nowhere`"), "{ran}");
    let sql = |sql: &str| {
        let mut command = bench.opcollect("dataset query --store store --json --sql");
        command.arg(sql);
        run(command)
    };
    let ran = sql("select op_kind, count(*) as n from records where outcome = 'ok' group by 1 order by 1").expect(0);
    assert_eq!(
        ran.json()[0]["n"].as_u64(),
        Some(
            records
                .iter()
                .filter(|record| record.op_kind == ran.json()[0]["op_kind"].as_str().unwrap_or_default())
                .count() as u64
        )
    );
    assert_eq!(sql("select count(*) as n from records").expect(0).json()[0]["n"].as_u64(), Some(records.len() as u64));
    for (wrong, why) in [
        ("drop table records", "query rejected: only reading is allowed"),
        ("select * from no_such", "no such table"),
        ("select 1; select 2", "one SQL statement"),
    ] {
        let ran = sql(wrong).expect(2);
        assert!(ran.stderr.contains(why), "{ran}");
    }
}

#[test]
fn a_folder_stores_parts_once_and_returns_them() {
    let bench = Bench::new();
    run(bench.opcollect(&format!("{FEW} --store store --json"))).expect(0);
    let address = format!("file://{}", bench.path("shared").display());
    let push = |address: &str| run(bench.opcollect(&format!("dataset push --store store {address} --json")));
    let first = push(&address).expect(0).json();
    assert!(first["parts"].as_u64() > Some(0) && first["known"] == 0, "{first}");
    assert_eq!(push(&address).expect(0).json()["parts"], 0, "what is there is not brought again");
    // A part that was truncated during the transfer is copied again.
    let (part, content) = stores::parts(&bench.path("shared")).remove(0);
    std::fs::write(bench.path("shared").join(&part), &content[..content.len() / 2]).expect("a part can be damaged");
    assert_eq!(push(&address).expect(0).json()["parts"], 1);
    let again = run(bench.opcollect(&format!("dataset push --store store {address}"))).expect(0);
    assert!(again.stdout.contains(": 0 parts pushed, "), "{again}");
    let pulled = run(bench.opcollect(&format!("dataset pull --store other {address}"))).expect(0);
    assert!(pulled.stdout.contains(" pulled, 0 already present"), "{pulled}");
    assert_eq!(
        stores::keys(&stores::records(&bench.path("other"))),
        stores::keys(&stores::records(&bench.path("store")))
    );
    for wrong in ["s3://UPPER", "file://relative", "nowhere"] {
        assert!(push(wrong).expect(2).stderr.contains("is not a valid destination"), "{wrong}");
    }
    bench.write("file", "");
    push(&format!("file://{}", bench.path("file").display())).expect(2);
}

/// The file in the path of the folder is a failure that needs no other program.
#[test]
fn a_failed_sink_is_a_warning() {
    let bench = Bench::new();
    bench.write("file", "");
    let address = format!("file://{}", bench.path("file/inside").display());
    let few = "--modelsource simple --modelname relu:shape=1x64 --schedules 1 --threads 1 --config quick.toml";
    let ran = run(bench.opcollect(&format!("{few} --store store --sink {address}"))).expect(1);
    assert!(ran.stderr.contains("warning: the records were not pushed: ") && !ran.stderr.contains("error: "), "{ran}");
}

/// An unavailable database delays records and loses none.
#[test]
fn an_unavailable_sink_is_reported() {
    if Command::new("psql").arg("--version").output().is_err() {
        return skip("there is no `psql`");
    }
    let bench = Bench::new();
    let address = "postgres://nobody@127.0.0.1:1/none";
    let ran = run(bench.opcollect(&format!("{FEW} --store store --sink {address} --json"))).expect(1);
    assert!(ran.stderr.contains("cannot push records to `postgres://nobody@127.0.0.1:1/none`: "), "{ran}");
    assert!(stores::records(&bench.path("store")).iter().all(|record| record.outcome == Outcome::Ok));
    run(bench.opcollect("dataset push --store store postgres://nobody@127.0.0.1:1/none")).expect(3);
}
