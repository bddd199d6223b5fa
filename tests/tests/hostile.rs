//! Untrusted stores, traces and configurations never become code: every command rejects them with an error.
#![allow(missing_docs)]

#[path = "../damage.rs"]
mod damage;

use datasets::store::{Status, StatusFile};
use datasets::{COLUMNS, Choose, Format, Json, Key, Kind, KnownWhen, Origin, Outcome, PeaksMeasured, Record, Store};
use measure::host::{Streaming, allowed_cpus};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tests::{Bench, Ran, run, stores, workspace};

/// Returns assembly that TVM accepts as an annotation and that runs a shell command when the library is loaded.
fn assembly(mark: &Path) -> String {
    let lines = [
        ".text".to_owned(),
        "stranger: lea stranger_command(%rip), %rdi".to_owned(),
        "jmp system@PLT".to_owned(),
        ".section .rodata".to_owned(),
        format!("stranger_command: .asciz \\22touch {}\\22", mark.display()),
        ".section .init_array,\\22aw\\22,@init_array".to_owned(),
        ".quad stranger".to_owned(),
        ".text".to_owned(),
    ];
    lines.map(|line| format!("module asm \"{line}\"\n")).concat()
}

fn moves(mark: &Path) -> Value {
    json!([
        [
            ["GetSBlock", [], ["T_matmul", "main"], ["b0"]],
            ["GetLoops", ["b0"], [], ["l1", "l2", "l3"]],
            ["Annotate", ["l1", format!("\"{}\"", assembly(mark))], ["pragma_import_llvm"], []],
        ],
        []
    ])
}

const MODEL: &str = "--modelsource simple --modelname matmul:m=32,n=32,k=32";

/// Creates a store in which an untrusted schedule is by far the fastest of a matrix product; all other data is valid.
fn stranger(bench: &Bench, name: &str, schedule: &Value) -> Record {
    run(bench.opcollect(&format!("{MODEL} --schedules 2 --threads 1 --config quick.toml --store sound"))).expect(0);
    let mut records = stores::records(&bench.path("sound"));
    let fast = records.iter().find(|record| record.outcome == Outcome::Ok).expect("a time").clone();
    let mut fast = Record {
        schedule: Some(Json::new(schedule).expect("JSON")),
        schedule_hash: Some("0".repeat(32)),
        median_ns: fast.median_ns.map(|ns| ns / 1000.0),
        min_ns: fast.min_ns.map(|ns| ns / 1000.0),
        median_low_ns: fast.median_low_ns.map(|ns| ns / 1000.0),
        samples_ns: fast.samples_ns.iter().map(|ns| ns / 1000.0).collect(),
        ..fast
    };
    fast.key = fast.experiment_key();
    records.push(fast.clone());
    stores::write(&bench.path(name), &records);
    fast
}

#[track_caller]
fn nothing_ran(mark: &Path, ran: &Ran) {
    assert!(!mark.exists(), "a stranger's command ran: {ran}");
}

#[test]
fn moves_with_code_are_rejected_by_every_command() {
    let bench = Bench::new();
    let mark = bench.path("ran");
    let trace = moves(&mark);

    let lines = [json!({"op": "matmul:m=32,n=32,k=32"}), json!({"i": 0, "run_ms": 1.0, "trace": trace})];
    bench.write("tuned.jsonl", &lines.map(|line| format!("{line}\n")).concat());
    let ran = run(bench.opcollect("replay --traces tuned.jsonl --json"));
    nothing_ran(&mark, &ran);
    assert!(
        ran.code() == 2 && ran.stderr.contains("`tuned.jsonl`, line 2: move 2 of the schedule is not allowed"),
        "{ran}"
    );
    assert!(ran.stderr.contains("pragma_import_llvm"), "{ran}");

    let schedules = [
        json!({"from": "trace", "trace": trace}),
        json!({"from": "metaschedule", "space": 0, "seed": 7, "trace": trace}),
    ];
    for (number, schedule) in schedules.iter().enumerate() {
        let store = format!("stranger-{number}");
        let fast = stranger(&bench, &store, schedule);
        let ran = run(bench.opcollect(&format!("dataset verify --store {store}"))).expect(1);
        assert!(ran.stdout.contains("move 2 of the schedule is not allowed"), "{ran}");

        let ran = run(bench.opcollect(&format!("replay --store {store} --key {}", fast.key)));
        nothing_ran(&mark, &ran);
        assert!(ran.code() == 2 && ran.stderr.contains("move 2 of the schedule is not allowed"), "{ran}");

        let compare =
            format!("model compare {MODEL} --threads 1 --rounds 1 --variant default --variant best --store {store}");
        let ran = run(bench.opcollect(&compare));
        nothing_ran(&mark, &ran);

        let tune = "--iftune true --tuner metaschedule --trials 8 --threads 1 --config quick.toml";
        let ran = run(bench.opcollect(&format!("{MODEL} {tune} --store {store}")));
        nothing_ran(&mark, &ran);
        assert!(ran.code() <= 1, "{ran}");

        let ran = run(bench.opcollect(&format!("dataset best --store {store}")));
        nothing_ran(&mark, &ran);
        let ran = run(bench.opcollect(&format!("dataset verify --store {store} --quarantine"))).expect(1);
        nothing_ran(&mark, &ran);
        run(bench.opcollect(&format!("dataset verify --store {store}"))).expect(0);
    }
}

#[test]
fn an_untrusted_target_sets_no_option() {
    let bench = Bench::new();
    let written = bench.path("written");
    let option = format!("-info-output-file:string={}", written.display());
    let target = json!({"kind": "llvm", "mcpu": "x86-64-v3", "cl-opt": [option]}).to_string();
    bench.write(
        "hostile.toml",
        &format!("target = '{target}'\nmodels = [{{ source = \"simple\", name = \"relu:shape=8x8\" }}]\n"),
    );
    let ran = run(bench.opcollect("--config hostile.toml --store store"));
    assert!(ran.code() == 2 && ran.stderr.contains("unknown target field `cl-opt`"), "{ran}");

    let fast = stranger(&bench, "sound-schedule", &json!({"from": "template", "knobs": {}}));
    let mut record = Record { target_text: Some(target), ..fast };
    record.key = record.experiment_key();
    stores::write(&bench.path("hostile"), std::slice::from_ref(&record));
    let ran = run(bench.opcollect(&format!("replay --store hostile --key {}", record.key)));
    assert!(ran.code() == 2 && ran.stderr.contains("`cl-opt`"), "{ran}");
    assert!(!written.exists());
}

#[test]
fn a_configuration_cannot_load_a_library() {
    let bench = Bench::new();
    let text =
        "models = [{ source = \"simple\", name = \"relu:shape=8x8\" }]\n[counters]\npapi_library = \"./evil.so\"\n";
    bench.write("hostile.toml", text);
    let ran = run(bench.opcollect("--config hostile.toml --store store"));
    assert!(ran.code() == 2 && ran.stderr.contains("papi_library"), "{ran}");
}

/// Control characters in file names are displayed as a replacement character.
#[test]
fn untrusted_names_do_not_control_the_terminal() {
    let bench = Bench::new();
    let name = "x\u{1b}]0;owned\u{7}\u{1b}[2J.onnx";
    std::fs::write(bench.path(name), "nothing").expect("a file");
    let mut command = bench.opcollect("graph --modelsource onnx --modelname");
    command.arg(name);
    let ran = run(command);
    assert!(ran.code() != 0 && !ran.stderr.contains('\u{1b}') && ran.stderr.contains("]0;owned"), "{ran}");
}

/// Maximum memory of a command that reads a store of these tests, one of which has about 60 MiB of long texts.
const STRINGS_BYTES: u64 = 768 << 20;
const FILES_BYTES: u64 = 256 << 20;
/// Memory for measuring peak rates that the limits include; it suffices for caches of 32 MiB.
const PEAKS_BYTES: u64 = 128 << 20;

/// Returns the limit of a command that measures the peak rates of this host, whose caches may be larger than usual.
fn measuring_bytes(max_bytes: u64) -> u64 {
    let streaming = Streaming::for_cpus(&allowed_cpus().expect("CPUs"), u64::MAX);
    let needed_bytes = streaming.working_sets.last().copied().unwrap_or(0);
    max_bytes + needed_bytes.saturating_sub(PEAKS_BYTES)
}
const SCRIPT: &str = "<script>document.title=";
const PRODUCT: &str = "--modelsource simple --modelname matmul:m=16,n=16,k=32";

/// A folder in which commands open a hostile store, so deep that `../../../..` stays in the test's folder.
struct HostileBench {
    bench: Bench,
    folder: PathBuf,
    mark: PathBuf,
    passwords: Vec<u8>,
}

impl HostileBench {
    fn new() -> HostileBench {
        let bench = Bench::new();
        bench.measure_peaks();
        let folder = bench.path("a/b/c/d");
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        std::fs::copy(bench.path("quick.toml"), folder.join("quick.toml")).expect("a file can be copied");
        let passwords = std::fs::read("/etc/passwd").unwrap_or_default();
        HostileBench { mark: bench.path("ran"), bench, folder, passwords }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Runs a command; checks exit code, memory and time, and that nothing ran or was written outside of the folder.
    #[track_caller]
    fn open(&self, command: &str, max_bytes: u64) -> Ran {
        let (program, arguments) = command.split_once(' ').expect("a program and its arguments");
        let mut command = self.bench.command(&tests::program(program), arguments);
        command.current_dir(&self.folder);
        let ran = run(command);
        if let Err(why) = ran.check_hostile(max_bytes) {
            panic!("{why}");
        }
        nothing_ran(&self.mark, &ran);
        let outside = stores::files(&self.bench.path("")).into_iter().find(|file| !file.starts_with(&self.folder));
        assert_eq!(outside, Some(self.bench.path("quick.toml")), "{}", ran.what);
        assert!(std::fs::read("/etc/passwd").unwrap_or_default() == self.passwords, "{}", ran.what);
        ran
    }
}

/// Texts with an effect if they are interpreted as code, a path or a terminal sequence; the last one is only long.
fn texts(mark: &Path) -> Vec<String> {
    vec![
        format!("$(touch {})", mark.display()),
        "\"><script>document.title='x'</script>".to_owned(),
        "../../../../ran".to_owned(),
        format!("`touch {}`", mark.display()),
        "'; DROP TABLE records; --".to_owned(),
        "/etc/passwd".to_owned(),
        "\u{1b}]0;title\u{7}\n\r\n".to_owned(),
        String::new(),
        "x".repeat(1 << 20),
    ]
}

/// Returns copies of a record, in each of which one text column, or one text or name in its JSON, is replaced.
fn with_texts(record: &Value, texts: &[String]) -> Vec<String> {
    let mut next = texts.iter().cycle();
    let mut copies = Vec::new();
    for column in COLUMNS {
        let values: Vec<String> = match (column.kind, record.get(column.name)) {
            (Kind::Text | Kind::Label, _) => texts.iter().map(|text| json!(text).to_string()).collect(),
            (Kind::Json, None) => texts.iter().map(|text| json!([text]).to_string()).collect(),
            (Kind::Json, Some(value)) => {
                let written = value.to_string();
                let pieces: Vec<&str> = written.split('"').collect();
                let replace = |place: usize| {
                    let text = json!(next.next()).to_string();
                    [&pieces[..place], &[text.trim_matches('"')], &pieces[place + 1..]].concat().join("\"")
                };
                // The long text occurs once per column.
                let places = if texts.len() == 1 { 1 } else { pieces.len() };
                (1..pieces.len()).step_by(2).take(places).map(replace).collect()
            }
            _ => continue,
        };
        let mut others = record.clone();
        others.as_object_mut().expect("a record is an object").remove(column.name);
        let others = others.to_string();
        copies.extend(values.iter().map(|value| format!("{{\"{}\":{value},{}", column.name, &others[1..])));
    }
    copies
}

fn failed(mut record: Value) -> Value {
    let fields = record.as_object_mut().expect("a record is an object");
    COLUMNS.iter().filter(|column| column.known == KnownWhen::After).for_each(|column| {
        fields.remove(column.name);
    });
    let rest = json!({"outcome": "crashed", "reason": "it crashed", "n": 0, "samples_ns": []});
    fields.extend(rest.as_object().expect("an object").clone());
    record
}

/// Writes a store with hostile texts. Returns this host's class, and status files that claim running processes.
fn write_strings(bench: &HostileBench) -> (String, Vec<StatusFile>) {
    let sizes = ["16,n=16", "24,n=32", "32,n=64", "48,n=48", "64,n=64"];
    let models: String = sizes.iter().map(|sizes| format!(" --modelname matmul:m={sizes},k=32")).collect();
    let models = format!("--modelsource simple{models} --store sound");
    bench.open(
        &format!("opcollect {models} --schedules 2 --threads 1 --config quick.toml"),
        measuring_bytes(STRINGS_BYTES),
    );
    let pairs = "[corun]\nsizes = [2]\nparallel = ['full']\npasses = 1\npartners = ['arithmetic']\n\
                 [corun.measure]\nrounds = 6\nphase_ns = 200_000\nsamples_min = 2\n";
    std::fs::write(bench.path("pairs.toml"), pairs).expect("a file");
    bench.open(&format!("opcollect corun --config pairs.toml {models}"), measuring_bytes(STRINGS_BYTES));
    let json = |record: &Record| serde_json::to_value(record).expect("a record has a JSON form");
    let sound: Vec<Value> = stores::records(&bench.path("sound")).iter().map(json).collect();
    let published = Store::open(&workspace::root().join("datasets/published/cpu")).expect("a store");
    let published = published.select_records(Choose::All).expect("rows").take(1);
    let mut changed: Vec<Value> = published.map(|record| json(&record.expect("a sound row"))).collect();
    changed.extend([sound[0].clone(), failed(sound[1].clone())]);
    let texts = texts(&bench.mark);
    let (long, short) = texts.split_last().expect("texts");
    let mut copies = with_texts(&changed[0], std::slice::from_ref(long));
    copies.extend(changed.iter().flat_map(|record| with_texts(record, short)));
    // Columns that name groups of records are replaced in all records of a group.
    for column in ["op_kind", "op_text", "model_name", "host", "host_class", "tvm_version"] {
        for (text, record) in short[..3].iter().flat_map(|text| sound.iter().map(move |record| (text, record))) {
            let mut copy = record.clone();
            copy[column] = json!(text);
            if column == "op_kind" {
                copy["task_hash"] = json!(Key::of_bytes(format!("{text} {}", record["task_hash"]).as_bytes()));
            }
            copies.push(copy.to_string());
        }
    }
    let records = copies.iter().filter_map(|copy| Record::from_json(copy.as_bytes()).ok());
    let records = records.map(|record| Record { key: record.experiment_key(), ..record });
    let records: Vec<Value> = records.filter(|record| record.check().is_ok()).map(|record| json(&record)).collect();
    let refused = copies.len() - records.len();
    assert!(records.len() > 1000 && refused > 100, "{} records, {refused} refused", records.len());
    let lines: String = sound.iter().chain(&records).map(|record| format!("{record}\n")).collect();
    std::fs::write(bench.path("strings.jsonl"), lines).expect("a file");
    // The program refuses schedules that do not match their hashes; a foreign store may contain them.
    bench.open("opcollect dataset import strings.jsonl --store strings", STRINGS_BYTES).expect(2);
    Store::import(&bench.path("strings"), &bench.path("strings.jsonl"), Format::JsonLines).expect("sound rows");
    let store = Store::open(&bench.path("strings")).expect("a store");
    let peaks = Store::open(&bench.path("sound")).and_then(|sound| sound.peaks()).expect("peaks");
    let mut status_files = Vec::new();
    for text in texts {
        store
            .keep_peaks(&PeaksMeasured { host: text.clone(), host_class: text.clone(), ..peaks[0].clone() })
            .expect("peaks");
        store.keep_config(&json!({"models": [text]}).to_string()).expect("a configuration");
        let file = store.create_status_file().expect("a status");
        let status = Status { host: text.clone(), command: text.clone(), standing: Some(text), ..Status::default() };
        file.write_status(&status).expect("a status");
        status_files.push(file);
    }
    (sound[0]["host_class"].as_str().expect("a text").to_owned(), status_files)
}

/// Commands that read the store `strings`, in order: later ones read files that earlier ones write.
const READERS: &str = "
    opcollect dataset stats --store strings
    opcollect dataset stats --store strings --choose all --json
    opcollect dataset verify --store strings
    opcollect dataset revisions --store strings
    opcollect dataset best --store strings --all-versions
    opcollect dataset best --store strings --host ../../../../ran
    opcollect dataset query --store strings --sql select*from'records'limit(200)
    opcollect dataset schema
    opcollect dataset export --store strings --out strings.csv
    opcollect dataset export --store strings --out strings.jsonl
    opcollect dataset export --store strings --out strings.parquet
    opcollect dataset import strings.csv --store from-csv
    opcollect dataset import strings.parquet --store from-parquet
    opcollect dataset merge strings --store merged
    opcollect dataset seal --store merged
    opcollect dataset compact --store merged
    opcollect dataset verify --store merged --quarantine
    opcollect dataset push file://FOLDER/pushed --store strings
    opcollect dataset pull file://FOLDER/pushed --store pulled
    opcollect status strings
    opcollect drift strings --html nights.html --markdown nights.md
    opcollect drift sound strings --by task --html drift.html --markdown drift.md
    opcollect drift strings@tvm_version=../../../../ran strings
    opcollect replay --store strings --key 00000000000000000000000000000001
    opcollect graph PRODUCT --store strings --html graph.html
    opcollect PRODUCT --schedules 3 --config quick.toml --store strings
    opcollect model compare PRODUCT --threads 1 --rounds 1 --variant default --variant best --store strings
    opcollect profile PRODUCT --seconds 0.2 --config quick.toml --store strings --html profile.html
    oppredict train DATA --out strings.opp
    oppredict eval DATA --learners ours,median --folds 2 --html eval.html
    oppredict correlate DATA --html correlate.html --csv correlate.csv
    oppredict explain DATA
    oppredict explain DATA --predictor strings.opp --html effects.html
    oppredict inplace DATA --operators
    oppredict suggest DATA --predictor strings.opp
    oppredict adapt DATA --predictor strings.opp --out adapted.opp
    oppredict interference --data strings --hardware CLASS --all-versions --html interference.html
    oppredict plan --model mlp TIMES --predictor strings.opp --device CLASS --out mlp.plan --html plan.html
    oppredict stages --model mlp TIMES --predictor strings.opp --device CLASS --html stages.html
    oppredict cotune --op matmul:m=16,n=16,k=32 --op matmul:m=24,n=32,k=32 TIMES --predictor strings.opp --device CLASS
    oppredict place --model mlp --predictor strings.opp --html place.html
    oppredict knee --predictor strings.opp --op matmul:m=32,n=32,k=32 --device CLASS --threads 1 --over tile_x --html knee.html
    oppredict xgboost --predictor strings.opp --write trees
    oppredict serve --predictor strings.opp --store strings --address no-port";

#[test]
fn no_text_of_a_store_becomes_a_command_a_path_or_a_script() {
    let bench = HostileBench::new();
    let (class, _status_files) = write_strings(&bench);
    let (mut done, mut with_title) = (0, BTreeSet::new());
    for command in READERS.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let command = command
            .replace("FOLDER", &bench.folder.display().to_string())
            .replace("PRODUCT", PRODUCT)
            .replace("DATA", "--data strings --max-uncertainty inf --all-versions")
            .replace("TIMES", "--data strings --hardware CLASS --threads 1 --all-versions")
            .replace("CLASS", &class);
        // Commands of `oppredict` do not measure.
        let max_bytes = if command.starts_with("oppredict") { STRINGS_BYTES } else { measuring_bytes(STRINGS_BYTES) };
        let ran = bench.open(&command, max_bytes);
        done += usize::from(ran.code() <= 1);
        for page in stores::files(&bench.folder) {
            if page.extension().is_some_and(|end| end == "html" || end == "md") {
                let text = std::fs::read_to_string(&page).expect("a page is text");
                assert!(!text.contains(SCRIPT), "`{}` has a script of the store\n{ran}", page.display());
                with_title.extend(text.contains("document.title=").then_some(page));
            }
        }
    }
    assert!(done > 35 && with_title.len() > 4, "{done} commands did their work; texts are in {with_title:?}");
}

fn write_files(bench: &HostileBench) -> [PathBuf; 2] {
    bench.open(
        &format!("opcollect {PRODUCT} --schedules 3 --config quick.toml --store made"),
        measuring_bytes(FILES_BYTES),
    );
    bench.open("opcollect dataset compact --store made", FILES_BYTES);
    let made = Store::open(&bench.path("made")).expect("a store");
    let records = stores::records(made.root());
    let origin = Origin { host: "elsewhere".to_owned(), program: "test".to_owned(), command: String::new() };
    let mut journal = made.start_journal(origin).expect("a store takes journals");
    records.iter().for_each(|record| journal.append(record).expect("a sound record"));
    drop(journal);
    let (mut claims, status_file) =
        (made.create_claims().expect("claims"), made.create_status_file().expect("a status"));
    claims.claim_free(&stores::keys(&records)).expect("claims");
    status_file.write_status(&Status::default()).expect("a status");
    let copies = ["checked", "unchecked"].map(|name| bench.path(name));
    copies.iter().for_each(|copy| stores::copy(made.root(), copy));
    let marker = json!({"store": "opcollect dataset", "schema_version": datasets::SCHEMA_VERSION});
    std::fs::write(copies[1].join("opcollect-store.json"), marker.to_string()).expect("a file");
    for file in stores::files(&copies[1].join("journal")) {
        let text = std::fs::read_to_string(&file).expect("a journal is text");
        let lines = text.lines().map(|line| line.split_once(",\"checksum\":").expect("a checksum").0);
        let lines: String = lines.map(|line| format!("{line}}}\n")).collect();
        std::fs::write(&file, lines.replace("\"has_checksums\":true", "\"has_checksums\":false")).expect("a file");
    }
    copies
}

/// Renames a file that is named after the hash of its content, according to its current content.
fn rename_after_content(file: &Path) {
    let name = file.file_name().expect("a file has a name").to_string_lossy().into_owned();
    let mut parts = name.split(['-', '.']);
    let hash = blake3::hash(&std::fs::read(file).expect("a file")).to_hex();
    if let Some(old) = parts.find(|part| part.len() >= 32 && part.bytes().all(|digit| digit.is_ascii_hexdigit())) {
        std::fs::rename(file, file.with_file_name(name.replace(old, &hash[..old.len()]))).expect("a new name");
    }
}

#[test]
fn damaged_files_of_a_store_are_handled() {
    let bench = HostileBench::new();
    let mut runner = TestRunner::deterministic();
    let words = ["\u{0}", "\n", "{\"", "[[[[[[[[", "-1", "99999999999", "../../../../ran", SCRIPT];
    let damages = prop::collection::vec(damage::with_words(&words), 1..6);
    let (mut kinds, mut losses) = (BTreeSet::new(), 0);
    for (is_unchecked, sound) in [false, true].into_iter().zip(write_files(&bench)) {
        let files =
            stores::files(&sound).into_iter().map(|file| file.strip_prefix(&sound).expect("it is there").to_owned());
        // Six damages per file with checksums, and six without.
        for (name, _) in files.flat_map(|name| (0..6).map(move |number| (name.clone(), number))) {
            let store = bench.path("damaged");
            let _ = std::fs::remove_dir_all(&store);
            stores::copy(&sound, &store);
            let mut bytes = std::fs::read(store.join(&name)).expect("a file");
            let damages = damages.new_tree(&mut runner).expect("damages").current();
            damages.iter().for_each(|damage| damage.apply(&mut bytes));
            std::fs::write(store.join(&name), bytes).expect("a file");
            if is_unchecked {
                rename_after_content(&store.join(&name));
            }
            kinds.extend(name.iter().next().map(ToOwned::to_owned));
            for command in [
                "opcollect dataset stats --store damaged",
                "opcollect dataset verify --store damaged",
                "opcollect dataset best --store damaged",
                "opcollect dataset query --store damaged --sql select(count(*))from'records'",
                "opcollect status damaged",
            ] {
                losses += usize::from(bench.open(command, FILES_BYTES).code() != 0);
            }
        }
    }
    assert!(kinds.len() == 9 && losses > 60, "{kinds:?}, {losses} losses");
}
