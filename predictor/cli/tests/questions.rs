//! Questions of users: rows of a table, files that leave shapes open, and gates that must compare something.
#![allow(missing_docs)]

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

fn published() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../datasets/published/cpu.opp")
}

/// Runs a command in a folder. Returns its exit code, standard output and standard error.
fn oppredict(folder: &Path, command: &[&str]) -> (i32, String, String) {
    let ran = Command::new(env!("CARGO_BIN_EXE_oppredict")).args(command).current_dir(folder).output();
    let ran = ran.expect("the program runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (ran.status.code().unwrap_or(-1), text(&ran.stdout), text(&ran.stderr))
}

#[test]
fn rows_that_are_no_query_state_the_reason_and_the_others_are_answered() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let predictor = published().display().to_string();
    let ask = |rows: &str| {
        std::fs::write(folder.join("rows.csv"), format!("operator,threads\n{rows}")).expect("a table");
        oppredict(folder, &["predict", "--predictor", &predictor, "--data", "rows.csv"])
    };
    let (code, text, notes) = ask("\"dense:m=1,n=1000,k=512\",1\n\"dense:m=0,n=1000,k=512\",1\n,1\n");
    assert_eq!(code, 1, "{notes}");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].starts_with("1,\"dense f32[1,512] w[1000,512]\",") && !lines[1].contains(",,,"), "{text}");
    assert!(lines[2].starts_with("2,\"dense:m=0,n=1000,k=512\",,,,") && lines[2].contains("`m` is 0"), "{text}");
    assert!(lines[3].starts_with("3,,,,,") && lines[3].contains("the row has no `operator`"), "{text}");
    assert!(notes.contains("2 of 3 rows were not predicted"), "{notes}");
    let (code, _, notes) = ask("\"dense:m=0,n=1000,k=512\",1\nbanana,1\n");
    assert!(code == 2 && notes.contains("cannot read `rows.csv`: row 1: "), "{code} {notes}");
    let (code, text, notes) = ask("");
    assert!(notes.ends_with("warning: the table has no rows\n"), "{notes}");
    assert_eq!((code, text.lines().count()), (0, 1), "{text}");
}

#[test]
fn files_that_leave_shapes_open_are_predicted_with_given_shapes() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/readers/tests/torchscript");
    let predictor = published().display().to_string();
    let ask = |flags: &[&str]| {
        oppredict(
            &cases,
            &[&["predict", "layers_scripted.pt", "--predictor", &predictor, "--extrapolate"], flags].concat(),
        )
    };
    let (code, _, notes) = ask(&[]);
    assert!(code == 2 && notes.contains("give those of x with `--shape`"), "{code} {notes}");
    let (code, text, notes) = ask(&["--shape", "x=2x5x16"]);
    assert!([0, 1].contains(&code) && text.contains("dense f32[2,5,16]"), "{code} {text} {notes}");
    for (flags, expected) in [
        (&["--shape", "x=1xN"][..], "`--shape x=1xN` is not a name and a shape; write it as `x=1x3x224x224`"),
        (
            &["--shape", "x=1x3x8x8", "--shape", "x=1x3x9x9"],
            "`--shape` gives `x` 2 shapes, but a prediction is for one",
        ),
        (&["--bind", "n=many"], "`--bind n=many` is not a name and numbers"),
    ] {
        let (code, _, notes) = ask(flags);
        assert!(code == 2 && notes.contains(expected), "{flags:?}: {code} {notes}");
    }
    let (code, _, notes) =
        oppredict(&cases, &["predict", "--predictor", &predictor, "--op", "dense:m=1,n=8,k=8", "--skip-unsupported"]);
    assert!(code == 2 && notes.contains("cannot be used with operators alone"), "{code} {notes}");
}

#[test]
fn only_the_learned_part_of_dispatch_is_attributed_to_the_training_data() {
    let predictor = published().display().to_string();
    let ask =
        |time: &str| oppredict(Path::new("."), &["predict", "mlp", "--predictor", &predictor, "--dispatch-us", time]);
    let (code, text, notes) = ask("500");
    assert!([0, 1].contains(&code) && !text.contains("learned dispatch"), "{code} {text} {notes}");
    let (code, _, notes) = ask("1e300");
    assert!(code == 2 && notes.contains("--dispatch-us must be at most 1000000"), "{code} {notes}");
}

const MAPPING: &str = "operator = \"op\"\ndevice = \"device\"\ntime = { column = \"time_us\", unit = \"us\" }\n[operators]\n\
product = { form = \"contraction\", batch = \"b\", rows = \"m\", columns = \"n\", depth = \"k\" }\n[devices.here]\nunits = 4\n\
flops_per_cycle = 32\nclock_ghz = 2\nbandwidth_gb_per_s = 40\ncache_bytes = 4e6\n";

#[test]
fn a_gate_that_compares_nothing_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    std::fs::write(folder.join("map.toml"), MAPPING).expect("a mapping");
    let sizes = [32, 48, 64, 96, 128];
    let rows = sizes.iter().flat_map(|m| sizes.map(|n| format!("product,here,{},1,{m},{n},64\n", 5 + m * n / 50)));
    std::fs::write(folder.join("times.csv"), format!("op,device,time_us,b,m,n,k\n{}", rows.collect::<String>()))
        .expect("a table");
    let eval = |flags: &[&str]| {
        let command = ["eval", "--data", "times.csv", "--mapping", "map.toml", "--folds", "2"];
        oppredict(folder, &[&command, flags].concat())
    };
    let (code, document, notes) = eval(&["--learners", "ours", "--json"]);
    assert_eq!(code, 0, "{notes}");
    std::fs::write(folder.join("before.json"), document).expect("an evaluation");
    let (code, _, notes) = eval(&["--learners", "ours", "--gate", "before.json"]);
    assert!(code == 0 && !notes.contains("not compared"), "{code} {notes}");
    let foreign = published().display().to_string();
    for (learners, gate, expected) in [
        ("roofline", "before.json", "--gate compares nothing"),
        ("ours", foreign.as_str(), "operators; now: product, by ours"),
    ] {
        let (code, _, notes) = eval(&["--learners", learners, "--gate", gate]);
        assert!(code == 2 && notes.contains(expected), "{learners} {gate}: {code} {notes}");
    }
}

#[test]
fn operators_outside_of_the_training_range_are_refused_with_the_flag() {
    let predictor = published().display().to_string();
    let far = "conv2d:ci=1,hw=4,co=1,k=3,p=1";
    for operators in [&["--op", far][..], &["--op", far, "--op", "dense:m=1,n=1000,k=512"]] {
        let command = [&["predict", "--predictor", &predictor], operators].concat();
        let (code, _, notes) = oppredict(Path::new("."), &command);
        assert!(
            [1, 2].contains(&code) && notes.contains("; measure similar operators, or give `--extrapolate`\n"),
            "{notes}"
        );
    }
}

/// A calibration for a machine whose second thread quadruples the rates of caches, and doubles all others.
fn calibration() -> Value {
    let shipped = predictor::bundle::read_bundle(&published()).expect("a predictor of this program");
    let sentinel = |threads: u32| {
        json!({ "operator": format!("relu:shape={threads}"), "kind": "conv2d", "threads": threads, "bound": "arithmetic",
            "measured_ns": 2e5, "uncertainty": 0.01, "predicted_ns": 1e5, "scale": 2.0, "half_width": 0.1 })
    };
    let compute = |threads: u32| {
        json!({ "threads": threads, "flops_per_second": 5e10 * f64::from(threads), "measurements": 2, "spread": 0.0,
            "is_reached": false })
    };
    let memory = |threads: u32| {
        json!({ "threads": threads, "working_set_bytes": 16384, "level": "L2", "bytes_per_second": 1e10 * f64::from(threads * threads),
            "measurements": 2, "spread": 0.0, "is_reached": false })
    };
    let peaks =
        json!({ "compute": Value::from_iter([1, 2].map(compute)), "memory": Value::from_iter([1, 2].map(memory)) });
    json!({
        "program_version": "0.1.0", "host_class": "here", "learned_on": "there", "data_hash": shipped.about.data_hash,
        "sentinels": Value::from_iter([1, 1, 2, 2].map(sentinel)), "peaks": peaks,
    })
}

#[test]
fn a_calibrated_predictor_explains_the_times_that_it_predicts() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("here.json"), calibration().to_string()).expect("written");
    let predictor = published().display().to_string();
    let ask = |flags: &[&str]| {
        let given = ["--predictor", &predictor, "--calibration", "here.json", "--json"];
        let (code, text, notes) = oppredict(folder.path(), &[flags, &given].concat());
        assert_eq!(code, 0, "{notes}");
        serde_json::from_str::<Value>(text.lines().last().unwrap_or_default()).expect("JSON")
    };
    let operator = "dense:m=1,n=1000,k=1024";
    let time_ns = |threads: &str| {
        let answer = ask(&["predict", "--op", operator, "--threads", threads]);
        answer["operators"][0]["time_ns"].as_f64().expect("a time")
    };
    let explained = ask(&["explain", "--op", operator, "--threads", "1", "--vary", "threads"]);
    let answer = &explained["explanation"]["answer"];
    assert!((answer["time_ns"].as_f64().expect("a time") / time_ns("1") - 1.0).abs() < 1e-9, "{explained}");
    let bound_ns = |name: &str| answer[name].as_f64().expect("a time");
    assert!(
        (bound_ns("reference_ns") / (bound_ns("attainable_ns") + bound_ns("overhead_ns")) - 1.0).abs() < 1e-6,
        "{answer}"
    );
    let varied = explained["varied"].as_array().expect("changes").last().expect("two threads");
    let ratio = time_ns("2") / time_ns("1");
    assert!(
        ratio < 0.4 && (varied["factor"].as_f64().expect("a factor") / ratio - 1.0).abs() < 1e-6,
        "{varied} {ratio}"
    );
    let knee = ask(&["knee", "--op", operator]);
    assert_eq!(knee["device"], "here");
}

#[test]
fn a_query_with_a_knob_is_explained() {
    let predictor = published().display().to_string();
    let op = "conv2d:ci=256,hw=14,co=512,k=1";
    let ask = ["explain", "--op", op, "--knob", "tile_x=7", "--predictor", &predictor];
    let (code, text, notes) = oppredict(Path::new("."), &ask);
    assert!(code == 0 && text.contains("predicted time"), "{code} {notes}");
}
