//! Tests the files that `scripts/publish` ships: the dataset is valid and matches its manifest, the predictor was
//! trained on it, and training again gives the same figures.
#![allow(clippy::print_stderr, missing_docs)]

use datasets::{Choose, KNOWN_WELL, Outcome, Source, Store};
use learn::Fitted;
use learn::train::{TrainOptions, data_hash, train_predictor};
use predictor::bundle;
use samples::Samples;
use samples::records::{Policy, read_samples};
use samples::table::Mapping;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Maximum bytes of the shipped parts together; `PREDICTOR_MOST` is the limit of each predictor.
const PARTS_MOST: u64 = 15_000_000;
const PREDICTOR_MOST: u64 = 25_000_000;

fn published(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../datasets/published").join(name)
}

fn manifest() -> Value {
    serde_json::from_slice(&std::fs::read(published("manifest.json")).expect("a manifest")).expect("JSON")
}

fn learned_from() -> Samples {
    // As `scripts/publish` learns.
    let policy = Policy { max_uncertainty: Some(KNOWN_WELL), ..Policy::default() };
    read_samples(&[published("cpu")], &policy).expect("samples")
}

/// A copy of the program with the shipped files where it searches for them.
struct Installed(tempfile::TempDir);

impl Installed {
    fn new() -> Installed {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("bin")).expect("a folder of programs");
        let program = folder.path().join("bin/oppredict");
        let built = env!("CARGO_BIN_EXE_oppredict");
        // A copy cannot be run while a process that another test forked has it open for writing.
        if std::fs::hard_link(built, &program).is_err() {
            std::fs::copy(built, &program).expect("the program");
        }
        std::os::unix::fs::symlink(published("").canonicalize().expect("what ships"), folder.path().join("published"))
            .expect("a link");
        Installed(folder)
    }

    fn command(&self) -> std::process::Command {
        std::process::Command::new(self.0.path().join("bin/oppredict"))
    }
}

#[test]
fn the_dataset_is_as_its_manifest_and_card_say() {
    let manifest = manifest();
    let store = Store::open(&published("cpu")).expect("a store");
    assert!(store.verify().expect("readable").problems.is_empty());
    let records: Vec<_> =
        store.select_records(Choose::All).expect("readable").collect::<datasets::Result<_>>().expect("records");
    assert_eq!(manifest["kept"].as_u64(), Some(records.len() as u64));
    let most = manifest["uncertainty_most"].as_f64().expect("a share");
    for record in &records {
        assert_eq!((record.outcome, record.source), (Outcome::Ok, Source::Measured));
        let (median, half) = (record.median_ns.expect("a time"), record.median_interval_ns.expect("an interval"));
        assert!(half <= most * median, "{}", record.op_text);
        assert_eq!(Some(record.host_class.as_str()), manifest["host_class"].as_str());
    }
    let files = manifest["files"].as_object().expect("files");
    let mut parts = 0;
    for (name, about) in files {
        let bytes = std::fs::metadata(published(name)).expect("a file").len();
        assert_eq!(about["bytes"].as_u64(), Some(bytes), "{name}");
        match name.ends_with(".opp") {
            true => assert!(bytes <= PREDICTOR_MOST, "{name} has {bytes} bytes"),
            false => parts += bytes,
        }
    }
    assert!(parts <= PARTS_MOST && files.contains_key("cpu.opp"), "{parts} bytes");
    let card = std::fs::read_to_string(published("README.md")).expect("a card");
    for (operator, views) in manifest["predictors"]["cpu.opp"]["held_out"].as_object().into_iter().flatten() {
        let off = views["sizes"]["median_percent"].as_f64();
        let line = off.map_or_else(|| format!("| {operator} | "), |off| format!("| {off:.1} %"));
        assert!(card.contains(&line), "the card does not say how far off answers for `{operator}` are");
    }
    for said in ["host_class", "tvm_version", "kept", "measured", "tasks"] {
        let value = &manifest[said];
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        assert!(card.contains(&text), "the card does not say that `{said}` is {text}");
    }
}

#[test]
fn the_predictor_was_learned_from_the_dataset() {
    let shipped = bundle::read_bundle(&published("cpu.opp")).expect("a predictor of this program");
    let samples = learned_from();
    assert_eq!(shipped.about.data_hash, data_hash(&samples), "make it anew: `scripts/publish learn`");
    assert_eq!(shipped.about.devices.len(), 1);
}

/// A predictor that was trained before errors were recorded has none, which its answers state.
#[test]
fn answers_say_how_many_threads_they_assume_and_how_far_off_they_are() {
    let installed = Installed::new();
    let cache = tempfile::tempdir().expect("a folder");
    let ask = |flags: &[&str]| {
        let command = ["predict", "--op", "max_pool2d:c=64,hw=56,k=3,s=2,p=1", "--json"];
        let asked = installed.command().args(command).args(flags).env("XDG_CACHE_HOME", cache.path()).output();
        let asked = asked.expect("the program runs");
        let (said, noted) =
            (String::from_utf8_lossy(&asked.stdout), String::from_utf8_lossy(&asked.stderr).into_owned());
        let last = said.lines().last().unwrap_or_default();
        let document: Value = serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {said}{noted}"));
        (document, said.into_owned(), noted)
    };
    let host_class = manifest()["host_class"].as_str().expect("a class of hosts").to_owned();
    let text = |flags: &[&str]| {
        let command = ["predict", "--op", "max_pool2d:c=64,hw=56,k=3,s=2,p=1"];
        let asked = installed.command().args(command).args(flags).env("XDG_CACHE_HOME", cache.path()).output();
        String::from_utf8_lossy(&asked.expect("the program runs").stdout).into_owned()
    };
    let (document, said, noted) = ask(&[]);
    assert_eq!(said.lines().count(), 1, "with --json there is nothing else: {said}");
    let said = text(&[]);
    let threads = &document["threads"];
    assert_eq!((&threads["count"], &threads["from"]), (&2.0.into(), &"default".into()), "{document}");
    assert!(said.contains(&format!("on 2 threads (default: all of `{host_class}`)")), "{said}");
    assert_eq!(document["operators"][0]["threads"], 2.0, "{document}");
    let held_out = &manifest()["predictors"]["cpu.opp"]["held_out"]["max_pool"]["sizes"];
    assert_eq!(&document["operators"][0]["held_out"], held_out, "{document}");
    assert_eq!(held_out.is_null(), noted.contains("does not record code revision"), "{noted}");
    let (document, _, _) = ask(&["--threads", "1"]);
    let said = text(&["--threads", "1"]);
    assert_eq!((&document["threads"]["from"], &document["operators"][0]["threads"]), (&"flag".into(), &1.0.into()));
    assert!(said.contains("on 1 thread (--threads)"), "{said}");
}

/// The smallest operators run on one thread, in less than the launch overhead of two.
#[test]
fn explanations_state_no_overhead_of_more_than_the_time() {
    let installed = Installed::new();
    let cache = tempfile::tempdir().expect("a folder");
    let explain = |operator: &str| {
        let asked =
            installed.command().args(["explain", "--op", operator]).env("XDG_CACHE_HOME", cache.path()).output();
        String::from_utf8_lossy(&asked.expect("the program runs").stdout).into_owned()
    };
    let tiny = explain("conv2d:ci=1,hw=8,co=1,k=1");
    assert!(tiny.contains("the time is shorter than the usual launch overhead"), "{tiny}");
    let row = |said: &str| said.lines().find(|line| line.starts_with("launch overhead")).map(str::to_owned);
    assert!(row(&tiny).is_some_and(|row| row.ends_with("longer")), "{tiny}");
    let usual = explain("conv2d:ci=64,hw=28,co=64,k=3,p=1");
    assert!(row(&usual).is_some_and(|row| row.ends_with(" %")), "{usual}");
}

#[test]
fn the_predictor_for_gpus_answers_for_each_of_its_devices() {
    let (path, mapping) = (published("gpu.opp"), published("../../configs/gpu-ops.toml"));
    let about = bundle::read_about(&path).expect("a predictor of this program").expect("operators, not only kernels");
    let shipped = bundle::read_bundle(&path).expect("a predictor of this program");
    assert_eq!(about.devices, shipped.about.devices);
    let devices: Vec<String> = about.devices.into_keys().collect();
    assert!(devices.len() >= 7, "{devices:?}");
    assert_eq!(
        shipped.about.stand_ins,
        Mapping::read_file(&mapping).expect("a mapping").stand_ins(),
        "make it anew: `scripts/publish learn`"
    );
    let installed = Installed::new();
    for device in &devices {
        // Without a predictor named, the device decides which of those that ship is asked.
        let asked = installed
            .command()
            .args(["predict", "--op", "linear:B=1,M=512,N=768,K=3072"])
            .args(["--device", device, "--json", "--mapping"])
            .arg(&mapping)
            .output()
            .expect("the program runs");
        let said = String::from_utf8_lossy(&asked.stdout).into_owned() + &String::from_utf8_lossy(&asked.stderr);
        let document: Value = said.lines().rev().find_map(|line| serde_json::from_str(line).ok()).unwrap_or_default();
        let time_ns = document["operators"][0]["time_ns"].as_f64();
        assert!(time_ns.is_some_and(|time_ns| (1e3..1e8).contains(&time_ns)), "{device}: {said}");
    }
}

#[test]
fn whole_networks_on_gpus_are_answered_by_what_tables_have_for_their_operators() {
    let installed = Installed::new();
    let asked = |flags: &[&str]| {
        let asked = installed.command().args(["predict", "--device", "Tesla T4", "--json"]).args(flags).output();
        let asked = asked.expect("the program runs");
        let last = String::from_utf8_lossy(&asked.stdout).lines().last().unwrap_or_default().to_owned();
        serde_json::from_str::<Value>(&last).unwrap_or_else(|error| panic!("{error}: {asked:?}"))["models"][0].clone()
    };
    let bert = ["--modelsource", "transformers", "--model", "bert-base", "--sequence", "128"];
    for (flags, stand_ins, most) in
        [(&["--model", "resnet-18"][..], &["conv", "linear"][..], 0.05), (&bert[..], &["linear", "ln"][..], 0.2)]
    {
        let model = asked(flags);
        let total = |name: &str| model["total"][name].as_f64().expect("a time");
        let layers = model["layers"].as_array().expect("layers");
        let learned_as: Vec<&str> = layers.iter().filter_map(|layer| layer["learned_as"].as_str()).collect();
        assert!(stand_ins.iter().all(|name| learned_as.contains(name)), "{flags:?}: {learned_as:?}");
        assert!(total("bounds_ns") <= most * total("time_ns"), "{flags:?}: {}", model["total"]);
    }
}

#[test]
fn devices_are_listed_and_found_by_words_of_their_names() {
    let installed = Installed::new();
    let listed = installed.command().args(["devices", "--json"]).output().expect("the program runs");
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("one document");
    let names: Vec<&str> = listed["devices"]
        .as_array()
        .expect("devices")
        .iter()
        .filter_map(|one| one["known"]["device"].as_str())
        .collect();
    assert!(names.contains(&"Tesla T4") && names.len() >= 8, "{names:?}");
    let ask = |device: &str| {
        let words = ["predict", "--model", "mlp", "--json", "--device", device];
        installed.command().args(words).output().expect("the program runs")
    };
    assert_eq!(ask("t4").stdout, ask("Tesla T4").stdout);
    let refused = String::from_utf8_lossy(&ask("NVIDIA").stderr).into_owned();
    assert!(refused.starts_with("error: ") && !refused.contains("described"), "{refused}");
}

#[test]
fn a_device_that_nobody_knows_has_the_nearest_names() {
    let asked = Installed::new()
        .command()
        .args(["predict", "--op", "max_pool2d:c=64,hw=56,k=3,s=2,p=1", "--device", "Tesla T5"])
        .output()
        .expect("the program runs");
    let said = String::from_utf8_lossy(&asked.stderr);
    assert!(!asked.status.success() && said.contains("did you mean `Tesla T4`"), "{said}");
}

/// A few operators suffice to compare retraining with the shipped predictor, and take seconds.
#[test]
fn learning_again_gives_the_same_figures() {
    let shipped = bundle::read_bundle(&published("cpu.opp")).expect("a predictor of this program");
    let all = learned_from();
    let is_wanted = |row: &usize| {
        ["layer_norm", "average_pool"].contains(&all.operators[all.rows[*row].operator as usize].as_str())
    };
    let rows: Vec<usize> = (0..all.rows.len()).filter(is_wanted).collect();
    let some = all.select_rows(&rows);
    let again = train_predictor(&some, &TrainOptions { seed: shipped.about.seed, ..TrainOptions::default() })
        .expect("XGBoost's library");
    let every: Vec<usize> = (0..some.rows.len()).collect();
    let figures = [&again, &shipped].map(|predictor| predictor.learned.predict(&some, &every));
    // What is drawn at random depends on which operators are learned together, so single rows differ by what trees do not know.
    let off = figures[0].iter().zip(&figures[1]).map(|(again, shipped)| (again / shipped).ln().abs()).sum::<f64>();
    let off = off / every.len() as f64;
    eprintln!("note: learned again, answers differ by {:.2} % from those that ship", 100.0 * off);
    assert!(off < 0.05, "answers differ by {off} from those that ship");
    assert!(every.len() > 20, "{}", every.len());
}
