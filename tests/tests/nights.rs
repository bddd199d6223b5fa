//! Nightly operation: dying workers, other processes on the same store or CPUs, another build of the program, and
//! reports on the next morning.
#![allow(missing_docs)]

use datasets::{Key, Origin, Outcome, Record, Store};
use measure::host::Exclusive;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;
use tests::{Bench, Ran, change_sealed, install_with_worker, processes, run, start, stores};

/// Two small operators with ten attempts in total.
const FEW: &str = "--modelsource simple --modelname relu:shape=1x64 --modelname softmax:shape=3x17 \
                   --schedules 5 --config quick.toml";

fn collect(bench: &Bench, arguments: &str) -> Command {
    bench.opcollect(&format!("{arguments} --json"))
}

fn count(ran: &Ran, field: &str) -> u64 {
    ran.json()[field].as_u64().unwrap_or_else(|| panic!("`{field}` is no count\n{ran}"))
}

fn ended(ran: &Ran, outcome: &str) -> u64 {
    ran.json()["outcomes"]["counts"][outcome].as_u64().unwrap_or(0)
}

fn elsewhere(ran: &Ran) -> u64 {
    ran.json()["outcomes"]["elsewhere"].as_u64().unwrap_or(0)
}

#[test]
fn crashes_are_retried_a_fixed_number_of_times() {
    let bench = Bench::new();
    // Runners with too little memory crash when tensors are allocated; the limit is not part of the experiment.
    bench.write("starved.toml", &format!("{}run_memory_mib = 64\n", tests::QUICK));
    let one = "--modelsource simple --modelname relu:shape=16x1024x1024 --schedules 1 --store store";
    let starved = format!("{one} --config starved.toml");
    for number in 1..=2 {
        let ran = run(collect(&bench, &starved)).expect(1);
        assert_eq!((count(&ran, "known_before"), ended(&ran, "crashed")), (0, 1), "try {number}\n{ran}");
        assert_eq!(ran.json()["losses"][0]["outcome"], "crashed", "{ran}");
    }
    let ran = run(bench.opcollect(&format!("{starved} --retry-faults 1"))).expect(1);
    assert!(ran.stdout.contains("1 attempt: nothing new, 1 known before"), "{ran}");
    assert!(ran.stdout.contains("1 crashed: run: worker crashed with SIG"), "{ran}");
    let ran = run(collect(&bench, &format!("{one} --config quick.toml"))).expect(0);
    assert_eq!((count(&ran, "known_before"), ended(&ran, "ok")), (0, 1), "the third try is not starved\n{ran}");
    let ran = run(collect(&bench, &starved)).expect(0);
    assert_eq!(count(&ran, "known_before"), 1, "what has a time is known");
    let records = stores::records(&bench.path("store"));
    let with_time = records.iter().find(|record| record.outcome == Outcome::Ok).expect("a time");
    assert_eq!(with_time.attempt, 3);
}

#[test]
fn a_runner_killed_at_start_does_not_end_a_campaign() {
    let bench = Bench::new();
    let program =
        install_with_worker(&bench, "[ \"$1\" = run ] && mkdir killed 2>/dev/null && kill -9 $$; exec REAL $@");
    let ran = run(bench.command(&program, &format!("{FEW} --store store --json"))).expect(0);
    assert!(bench.path("killed").exists());
    assert_eq!(ended(&ran, "ok"), 10, "{ran}");
}

#[test]
fn two_do_not_measure_on_one_cpu() {
    let bench = Bench::new();
    let cpus = measure::affinity::allowed_cpus().expect("the system tells the CPUs");
    let take =
        || Exclusive::lock_cpus(bench.locks(), &cpus[..1], Duration::ZERO, &mut |_| ()).expect("the CPU is free");
    let held = take();
    let refused = run(bench.opcollect(&format!("{FEW} --store store"))).expect(3);
    let begins = format!("error: another process measures on CPU {}: {} (", cpus[0], std::process::id());
    assert!(refused.stderr.contains(&begins), "{refused}");
    assert!(refused.stderr.contains("\nhint: wait for it with `--wait SECONDS`"), "{refused}");
    assert!(!bench.path("store").exists(), "a refusal leaves no store behind");
    let waiting = start(collect(&bench, &format!("{FEW} --store store --wait 200")));
    std::thread::sleep(Duration::from_millis(500));
    drop(held);
    let ran = waiting.finish().expect(0);
    assert_eq!(ended(&ran, "ok"), 10, "{ran}");
    take();
}

/// A signal lets the current attempt finish. Here, the process waits and has no attempt, so it ends at once.
#[test]
fn a_signal_ends_the_wait_for_another_process() {
    let bench = Bench::new();
    let cpus = measure::affinity::allowed_cpus().expect("the system tells the CPUs");
    let _held = Exclusive::lock_cpus(bench.locks(), &cpus[..1], Duration::ZERO, &mut |_| ()).expect("the CPU is free");
    let mut waiting = start(collect(&bench, &format!("{FEW} --store store --wait 86400")));
    // Workers start before the CPUs are locked.
    waiting.until(|pid| Some(processes::children(pid)).filter(|workers| !workers.is_empty())).expect("it waits");
    processes::send(waiting.pid(), nix::sys::signal::Signal::SIGTERM);
    let ended = waiting.finish();
    assert_eq!(ended.status.signal(), Some(nix::sys::signal::Signal::SIGTERM as i32), "{ended}");
    assert!(!bench.path("store").exists(), "nothing was begun");
}

fn keys_of_few(bench: &Bench) -> Vec<Key> {
    run(collect(bench, &format!("{FEW} --store first"))).expect(0);
    stores::keys(&stores::records(&bench.path("first")))
}

/// A process waits for experiments that other processes have claimed, and measures them if those processes end before.
#[test]
fn claims_of_other_processes_are_awaited() {
    let bench = Bench::new();
    let keys = keys_of_few(&bench);
    let store = Store::create(&bench.path("store")).expect("a new store");
    let mut claims = store.create_claims().expect("a new store takes claims");
    claims.claim_free(&keys[..4]).expect("no other process claims");
    // A campaign without remaining time reports what is missing, and which processes have claimed it.
    let ran = run(collect(&bench, &format!("{FEW} --store store --budget 8"))).expect(1);
    assert_eq!((ended(&ran, "ok"), elsewhere(&ran), ran.json()["outcomes"]["left"].as_u64()), (6, 0, Some(4)), "{ran}");
    assert!(ran.stderr.contains("the remaining work is claimed by other processes, which may have ended: `"), "{ran}");
    let mut waiting = start(bench.opcollect(&format!("{FEW} --store store --json")));
    let standing = || store.read_statuses().ok()?.into_iter().find_map(|seen| seen.status.standing);
    let standing =
        waiting.until(|_| standing().filter(|words| words.contains("waiting"))).expect("it says that it waits");
    assert_eq!(standing, "waiting for 4 attempts of other processes");
    drop(claims);
    let ran = waiting.finish().expect(0);
    assert_eq!((ended(&ran, "ok"), elsewhere(&ran), count(&ran, "known_before")), (4, 0, 6), "{ran}");
}

/// The claims of a process that was killed on another machine stay valid until it has been silent for some minutes.
#[test]
fn claims_of_a_dead_machine_expire() {
    let bench = Bench::new();
    let keys = keys_of_few(&bench);
    let store = Store::create(&bench.path("store")).expect("a new store");
    std::fs::create_dir_all(store.root().join("claims")).expect("a folder");
    let claim = store.root().join("claims/1-2-otherboot.txt");
    std::fs::write(&claim, keys[..4].iter().map(|key| format!("{key}\n")).collect::<String>()).expect("a file");
    let ran = run(collect(&bench, &format!("{FEW} --store store --budget 8"))).expect(1);
    assert!(ran.stderr.contains("1-2-otherboot.txt"), "{ran}");
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
    let file = std::fs::File::options().append(true).open(&claim).expect("it is there");
    file.set_modified(long_ago).expect("a time");
    let ran = run(collect(&bench, &format!("{FEW} --store store"))).expect(0);
    assert_eq!((ended(&ran, "ok"), elsewhere(&ran), count(&ran, "known_before")), (4, 0, 6), "{ran}");
}

/// Network file systems may lock only files that are opened for writing, or no files. In all cases, a killed process's
/// work is repeated at once, without waiting for others.
#[test]
fn killed_work_is_repeated_with_and_without_locks() {
    // Locks of CPUs are on another file system and work.
    let source = "#define _GNU_SOURCE\n#include <errno.h>\n#include <fcntl.h>\n#include <stdio.h>\n#include <stdlib.h>\n\
                  #include <string.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n\
                  int flock(int file, int what) {\n\
                    const char *kind = getenv(\"BAD_LOCKS\");\n\
                    char link[64], path[4096] = \"\";\n\
                    snprintf(link, sizeof link, \"/proc/self/fd/%d\", file);\n\
                    if (readlink(link, path, sizeof path - 1) < 0) path[0] = 0;\n\
                    int is_of_store = kind && strstr(path, \"/store-\");\n\
                    int is_read = (fcntl(file, F_GETFL) & O_ACCMODE) == O_RDONLY;\n\
                    if (is_of_store && *kind == 'n') { errno = ENOLCK; return -1; }\n\
                    if (is_of_store && is_read && (what & 2)) { errno = EBADF; return -1; }\n\
                    return syscall(SYS_flock, file, what);\n}\n";
    let bench = Bench::new();
    bench.write("flock.c", source);
    let library = bench.path("flock.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(bench.path("flock.c"));
    assert!(compiler.status().expect("there is a C compiler").success());
    for kind in ["write", "none"] {
        let store = format!("store-{kind}");
        let command = || {
            let mut command = collect(&bench, &format!("{FEW} --store {store}"));
            command.env("LD_PRELOAD", &library).env("BAD_LOCKS", kind);
            command
        };
        let mut killed = start(command());
        let made = killed.until(|_| Some(stores::journal_lines(&bench.path(&store))).filter(|lines| lines.len() > 1));
        assert!(made.is_some(), "it was killed too late");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(killed.pid()), nix::sys::signal::Signal::SIGKILL)
            .expect("it runs");
        killed.finish();
        let ran = run(command()).expect(0);
        assert_eq!((ended(&ran, "ok") + count(&ran, "known_before"), elsewhere(&ran)), (10, 0), "{kind}: {ran}");
    }
    // Without locks of CPUs, two processes could measure on the same CPU.
    let mut unlocked = collect(&bench, &format!("{FEW} --store new"));
    std::fs::create_dir(bench.path("store-locks")).expect("a new folder");
    unlocked.env("LD_PRELOAD", &library).env("BAD_LOCKS", "none").env("OPCOLLECT_LOCKS", bench.path("store-locks"));
    let refused = run(unlocked).expect(3);
    assert!(refused.stderr.contains("cannot keep locks in"), "{refused}");
}

#[test]
fn processes_on_one_store_share_the_work() {
    let bench = Bench::new();
    let others = tempfile::tempdir().expect("a temporary folder can be made");
    let arguments = format!("{FEW} --schedules 8 --store store").replace("--schedules 5 ", "");
    let one = start(collect(&bench, &arguments));
    let mut other = collect(&bench, &arguments);
    // Simulates another host, which has other locks.
    other.env("OPCOLLECT_LOCKS", others.path());
    let other = run(other).expect(0);
    let one = one.finish().expect(0);
    let records = stores::records(&bench.path("store"));
    assert_eq!(ended(&one, "ok") + ended(&other, "ok"), records.len() as u64, "{one}\n{other}");
    let keys: BTreeSet<Key> = stores::keys(&records).into_iter().collect();
    assert_eq!(keys.len(), records.len());
    let rest = run(collect(&bench, &arguments)).expect(0);
    assert_eq!((ended(&rest, "ok"), count(&rest, "known_before")), (0, keys.len() as u64), "{rest}");
}

/// Tests a store of another build of the program, and a store of a build that did not record code revisions yet.
#[test]
fn times_of_other_code_do_not_count() {
    let bench = Bench::new();
    run(collect(&bench, &format!("{FEW} --store now"))).expect(0);
    let records = stores::records(&bench.path("now"));
    assert!(records.iter().all(|record| record.code_revision.as_ref().is_some_and(|text| text.len() == 16)));
    for (name, revision, version) in [("other", Some("0123456789abcdef"), 3), ("old", None, 2)] {
        let store = Store::create(&bench.path(name)).expect("a new store");
        let origin = Origin { host: "h".to_owned(), program: "p".to_owned(), command: "c".to_owned() };
        let mut journal = store.start_journal(origin).expect("a new store takes journals");
        for record in &records {
            let code_revision = revision.map(str::to_owned);
            let mut record = Record { code_revision, schema_version: version, ..record.clone() };
            record.key = record.experiment_key();
            journal.append(&record).expect("the row is sound");
        }
        journal.seal().expect("the journal is sound");
        let ran = run(collect(&bench, &format!("{FEW} --store {name}"))).expect(0);
        assert_eq!((count(&ran, "known_before"), ended(&ran, "ok")), (0, 10), "{name}\n{ran}");
        assert_eq!(stores::records(&bench.path(name)).len(), 20, "old rows stay, and stay readable");
    }
}

#[test]
fn the_configuration_of_a_record_is_kept() {
    let bench = Bench::new();
    run(collect(&bench, &format!("{FEW} --store store"))).expect(0);
    let record = stores::records(&bench.path("store")).remove(0);
    let hash = record.config_hash.expect("records say what was asked for");
    let text = Store::open(&bench.path("store")).expect("a store").read_config(&hash).expect("sound").expect("kept");
    let config: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&config["schedules"], &config["threads"]), (&serde_json::json!(5), &serde_json::json!([1])));
}

#[test]
fn a_store_may_have_any_name() {
    let bench = Bench::new();
    let mut command = collect(&bench, FEW);
    command.arg("--store").arg(OsString::from_vec(b"st\xffre".to_vec()));
    let ran = run(command).expect(0);
    assert_eq!(ended(&ran, "ok"), 10, "{ran}");
    assert!(ran.json()["store"].as_str().is_some_and(|name| name.contains("st\u{fffd}re")), "{ran}");
}

#[test]
fn a_log_shows_the_progress() {
    let bench = Bench::new();
    // The first run waits for its worker for longer than until the first progress line.
    let program = install_with_worker(&bench, "[ \"$1\" = run ] && sleep 3; exec REAL $@");
    let ran = run(bench.command(&program, &format!("{FEW} --store store --progress 1"))).expect(0);
    let lines: Vec<&str> = ran.stderr.lines().filter(|line| line.starts_with("progress: ")).collect();
    assert!(!lines.is_empty() && lines[0].contains(" of 10 attempts after "), "{ran}");
    let quiet = run(bench.command(&program, &format!("{FEW} --store other --progress 0"))).expect(0);
    assert!(!quiet.stderr.contains("progress: "), "{quiet}");
}

#[test]
fn workers_without_memory_are_refused_before_they_start() {
    let bench = Bench::new();
    bench.write("starved.toml", &format!("{}run_memory_mib = 1\n", tests::QUICK));
    let ran = run(bench.opcollect("--modelsource simple --modelname relu:shape=64 --config starved.toml")).expect(2);
    assert!(ran.stderr.contains("`limits.run_memory_mib` is 1; allowed are 64 to 16777216"), "{ran}");
}

#[test]
fn a_plan_is_checked_as_a_configuration_is() {
    let bench = Bench::new();
    run(bench.opcollect(
        "build --modelsource simple --modelname relu:shape=64 --schedules 1 --config quick.toml --out built",
    ))
    .expect(0);
    let path = bench.path("built/plan.json");
    let text = std::fs::read_to_string(&path).expect("a plan");
    let cases = [
        ("/config/limits/build_batch", serde_json::json!(0), "`limits.build_batch` is 0"),
        ("/config/limits/run_seconds", serde_json::json!(1e300), "`limits.run_seconds` is 1e+300"),
        ("/config/threads", serde_json::json!([]), "`threads` is empty"),
        ("/config/budget_seconds", serde_json::json!(-1), "`budget_seconds` is -1.0"),
    ];
    for (place, value, problem) in cases {
        std::fs::write(&path, &text).expect("it can be written");
        change_sealed(&path, &|plan| *plan.pointer_mut(place).expect("the setting is there") = value.clone());
        let ran = run(bench.opcollect("run built --store store")).expect(2);
        assert!(ran.stderr.contains(problem), "{ran}");
    }
    std::fs::write(&path, text.replacen("\"seed\": 0", "\"seed\": 1", 1)).expect("it can be written");
    let ran = run(bench.opcollect("run built --store store")).expect(2);
    assert!(ran.stderr.contains("plan.json`: the content of the file changed: its hash differs"), "{ran}");
    std::fs::write(&path, text).expect("it can be written");
    let ran = run(bench.opcollect("run built --store store --json")).expect(0);
    assert_eq!(ended(&ran, "ok"), 1, "{ran}");
    let known = run(bench.opcollect(
        "--modelsource simple --modelname relu:shape=64 --schedules 1 --config quick.toml --store store --json",
    ));
    assert_eq!(count(&known.expect(0), "attempts"), 1);
}

#[test]
fn a_replay_reports_unreadable_lines() {
    let bench = Bench::new();
    run(collect(&bench, &format!("{FEW} --store store"))).expect(0);
    let record = stores::records(&bench.path("store")).remove(9);
    let (part, mut content) = stores::parts(&bench.path("store")).remove(0);
    let middle = content.len() / 2;
    content[middle] ^= 0x55;
    std::fs::write(bench.path("store").join(&part), content).expect("a part can be damaged");
    let ran = run(bench.opcollect(&format!("replay --key {} --store store", record.key))).expect(2);
    assert!(ran.stderr.contains("part-") && ran.stderr.contains("hint: part of the store is damaged"), "{ran}");
}

#[test]
fn artifacts_for_another_architecture_are_refused_at_once() {
    let bench = Bench::new();
    let (here, other) = (std::env::consts::ARCH, if cfg!(target_arch = "aarch64") { "x86_64" } else { "aarch64" });
    let target = format!(r#"{{"kind":"llvm","mtriple":"{other}-linux-gnu"}}"#);
    let task = "--modelsource simple --modelname relu:shape=64 --schedules 1 --config quick.toml";
    run(bench.opcollect(&format!("build {task} --target {target} --out built"))).expect(0);
    let ran = run(bench.opcollect("run built --store store")).expect(3);
    assert!(ran.stderr.contains(&format!("the code is for {other}, and this machine is {here}")), "{ran}");
    assert!(!bench.path("store").exists(), "no failure is stored");
}

#[test]
fn a_check_names_unfinished_journals() {
    let bench = Bench::new();
    stores::write(&bench.path("store"), &[]);
    bench.write("store/journal/bench-1-2-4294967295.jsonl", "{\"schema_ver");
    let ran = run(bench.opcollect("dataset verify --store store")).expect(1);
    assert!(ran.stdout.contains("4294967295.jsonl` ended with an unfinished line of 12 bytes"), "{ran}");
    assert!(ran.stdout.contains("no header") && ran.stdout.contains("1 journal: 1 problem"), "{ran}");
}

#[test]
fn a_replay_of_a_record_refuses_flags_of_traces() {
    let bench = Bench::new();
    let flags = ["--threads 2", "--evaluator 1,1,0", "--builders 1", "--no-overlap", "--limit 1"];
    for flag in flags.into_iter().chain(["--evaluator 1,1,0 --compare-evaluator"]) {
        let key = "00000000000000000000000000000001";
        let ran = run(bench.opcollect(&format!("replay --key {key} {flag}"))).expect(2);
        assert!(ran.stderr.contains("cannot be used with") && ran.stderr.contains(&flag[..8]), "{ran}");
    }
    let ran = run(bench.opcollect("replay")).expect(2);
    assert!(ran.stderr.contains("--traces") && ran.stderr.contains("--key"), "{ran}");
}

/// Code that was compiled for several sizes is compiled so again, and run at the record's size.
#[test]
fn a_replay_has_the_sizes_of_its_record() {
    let bench = Bench::new();
    let small = "num_hidden_layers=1,hidden_size=32,num_attention_heads=2,intermediate_size=48,vocab_size=40";
    let model = format!("--modelsource transformers --modelname bert-base-uncased:{small} --sequence 5,12");
    run(collect(&bench, &format!("{model} --executor vm --schedules 1 --config quick.toml --store store"))).expect(0);
    let records = stores::records(&bench.path("store"));
    let open = records.iter().find(|record| record.sizes.is_some()).expect("a record of several sizes");
    let ran = run(bench.opcollect(&format!("replay --key {} --store store --json", open.key))).expect(0);
    let replayed = ran.json();
    assert_eq!(replayed["differs_in"], serde_json::json!([]), "{ran}");
    assert!(replayed["ratio"].as_f64().is_some(), "{ran}");
}
