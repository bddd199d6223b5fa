//! Tests predictions for language-model servers through the command line.
#![allow(missing_docs)]

use serde_json::Value;

/// Runs the program; returns its exit code, standard output and standard error.
fn oppredict(line: &str) -> (i32, String, String) {
    let program = std::process::Command::new(env!("CARGO_BIN_EXE_oppredict"))
        .args(line.split_whitespace())
        .env("COLUMNS", "80")
        .output()
        .expect("the program");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (program.status.code().unwrap_or(-1), text(&program.stdout), text(&program.stderr))
}

const LLAMA: &str = "predict --model llama-3.1-70b --device h100_sxm --dtype fp8 --tensor-parallel 4 --batch 32";

#[test]
fn a_server_is_answered_with_the_kernels_behind_it() {
    let (code, text, notes) = oppredict(&format!("{LLAMA} --context 4096"));
    assert_eq!((code, notes.as_str()), (0, ""), "{text}");
    for part in
        ["time to first token", "time per token", "tokens per second", "memory of each GPU", "all-reduce", "bound"]
    {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let (code, text, _) = oppredict(&format!("{LLAMA} --context 4096 --json"));
    let document: Value = serde_json::from_str(&text).expect("one document");
    let answer = &document["models"][0]["answer"];
    let number = |place: &str| answer.pointer(place).and_then(Value::as_f64).unwrap_or(f64::NAN);
    assert_eq!(code, 0);
    assert!((0.005..0.1).contains(&number("/per_token/seconds")), "{answer}");
    for time in ["first_token", "per_token", "decode", "prefill"] {
        let part = |end: &str| number(&format!("/{time}/{end}"));
        assert!(part("low") < part("seconds") && part("seconds") < part("high"), "{time}");
    }
    assert_eq!(document["models"][0]["fits"], true);
}

#[test]
fn a_model_that_does_not_fit_is_answered_with_a_warning() {
    let (code, text, notes) = oppredict("predict --model llama-3.1-70b --device h100_sxm --dtype bf16 --json");
    assert!(notes.contains("does not fit in memory: ") && notes.contains("no request fits"), "{notes}");
    let document: Value = serde_json::from_str(&text).expect("one document");
    assert_eq!((code, &document["models"][0]["fits"]), (1, &Value::Bool(false)));
    let calls = document.pointer("/models/0/answer/decode/calls").and_then(Value::as_array);
    assert!(calls.is_some_and(|calls| calls.len() > 5));
    let (_, _, notes) =
        oppredict("predict --model llama-3.1-70b --device h100_sxm --dtype fp8 --batch 4096 --tensor-parallel 8");
    assert!(notes.contains("at most ") && notes.contains(" requests fit"), "{notes}");
}

#[test]
fn a_folder_is_answered_like_the_configuration_in_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config.json");
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/transformers/llama-3.2-1b.json");
    std::fs::copy(shipped, &file).expect("a copy");
    let answer = |model: &std::path::Path| {
        let (code, text, notes) = oppredict(&format!("predict --model {} --device h100_sxm --json", model.display()));
        assert_eq!(code, 0, "{notes}");
        let document: Value = serde_json::from_str(&text).expect("one document");
        document["models"][0]["answer"].clone()
    };
    let of_file = answer(&file);
    assert!(of_file["per_token"]["seconds"].is_number(), "{of_file}");
    assert_eq!(answer(folder.path()), of_file);
    // Only the zoo reads encoders.
    let encoder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/transformers/bert-base-uncased.json");
    std::fs::copy(encoder, &file).expect("a copy");
    let (code, text, notes) = oppredict(&format!("predict --model {}", folder.path().display()));
    assert!(code == 0 && text.contains("operators"), "{text}{notes}");
}

#[test]
fn kernels_that_contradict_measured_servers_are_named() {
    let (code, text, notes) = oppredict("predict --model llama-3.1-8b --device b200_sxm --dtype fp8_block");
    assert_eq!(code, 0, "{text}{notes}");
    let warning = "the kernels of one decoding step are predicted to take";
    assert!(notes.contains(warning) && notes.contains("one of the two is wrong"), "{notes}");
    // A language model needs no further flag.
    let (code, text, _) = oppredict("predict llama-3.1-8b --device h100_sxm");
    assert!(code == 0 && text.contains("time per token"), "{text}");
}

#[test]
fn wrong_questions_are_refused_with_a_way_out() {
    for (line, reason) in [
        ("eval --data absent --mapping absent.toml --hold-out site --seeds 0", "--seeds must be at least 1"),
        ("eval --data absent --protocol K --html absent.html", "--html cannot be used with --protocol K"),
        ("predict --model llama-3.1-71b --device h100_sxm --dtype fp8", "did you mean `llama-3.1-70b`"),
        (
            "predict --model llama-3.1-70b --device h100_sxm --dtype fp8 --tensor-parallel 3",
            "3 GPUs cannot divide 64 heads",
        ),
        ("predict --model llama-3.1-70b --device mi300x --dtype fp8", "unknown device `mi300x`"),
        ("predict --model llama-3.1-70b --dtype fp8", "name one with --device"),
        ("predict --model llama-3.1-70b --device a100_sxm --dtype fp8", "does not support fp8 products"),
        ("predict --model llama-3.1-70b --device h100_sxm --dtype fp9", "did you mean `fp8`"),
        (
            "predict --model llama-3.1-70b --device h100_sxm --dtype fp8 --kv-dtype int8",
            "the cache format int8 is not supported",
        ),
        ("predict --model llama-3.1-70b --device h100_sxm --dtype fp8 --batch 0", "--batch must be from 1"),
        ("predict --model llama-3.1-70b --device h100_sxm --dtype fp8 --framework vlm", "did you mean `vllm`"),
        // Flags that the question does not use.
        ("predict --op gemm:m=1,n=64,k=64 --device h100_sxm --dtype fp8", "whose text states all"),
        ("predict --op gemm:m=1,n=64,k=64 --device h100_sxm --model llama-3.1-8b", "--model cannot be used with"),
        ("predict --op gemm:m=1,n=64,k=64 --device h100_sxm --threads 4", "--threads cannot be used with kernels"),
        ("predict --op gemm:m=1,n=64,k=64 --device h100_sxm --space s.json", "--space cannot be used with kernels"),
        ("predict --model llama-3.1-8b --device h100_sxm --power-limit 200", "--power-limit cannot be used with"),
        ("predict --op relu:shape=8 --dtype fp8", "servers are predicted for --model alone"),
        ("predict --model llama-3.1-8b", "a server needs a GPU: name one with --device"),
        ("predict --model llama-3.1-8b --device h100_sxm --mapping m.toml", "--mapping cannot be used with language"),
        ("predict --model absent.json --dtype fp8", "`absent.json`: no such file\nhint: check the path"),
        ("predict --model llama-3.1-8b --device h100_sxm --batch -1", "--batch must be from 1"),
        (
            "knee --model llama-3.1-8b --device h100_sxm --over threads",
            "unknown quantity of a server's curve `threads`",
        ),
        ("knee --model llama-3.1-8b --device h100_sxm --batch 4", "--batch cannot be used with curves over the batch"),
        (
            "knee --model llama-3.1-8b --device h100_sxm --over context --context 4096",
            "--context cannot be used with curves over the context",
        ),
        ("knee --model llama-3.1-8b --device h100_sxm --extrapolate", "cannot be used with '--extrapolate'"),
        ("knee --op relu:shape=8 --dtype fp8", "cannot be used with --op; servers are predicted for --model"),
    ] {
        check_refused(line, reason);
    }
}

#[track_caller]
fn check_refused(line: &str, reason: &str) {
    let (code, text, error) = oppredict(line);
    assert_eq!((code, text.as_str()), (2, ""), "{line}: {error}");
    assert!(error.contains(reason) && error.starts_with("error: "), "{line}: {error}");
    assert!(!error.contains("-- -"), "a negative number is no name: {error}");
}

#[test]
fn unused_flags_and_wrong_numbers_are_refused() {
    for (line, reason) in [
        ("predict --op relu:shape=8 --batchsize 4", "--batchsize cannot be used with operators alone"),
        ("predict --model resnet-18 --sequence 64", "--sequence applies only to transformers"),
        ("plan --model resnet-18 --threads 2 --sequence 64", "--sequence applies only to transformers"),
        ("place --model resnet-18 --sequence 64", "--sequence applies only to transformers"),
        ("knee --op relu:shape=8 --threads 2", "--threads cannot be used with curves over threads"),
        (
            "knee --op relu:shape=8 --over tile_x --most-threads 2",
            "--most-threads cannot be used with curves over knobs",
        ),
        ("predict --op relu:shape=8 --threads -1", "-1 is not in 1..=4096"),
        ("predict --model resnet-18 --dispatch-us -1", "give a number of at least 0"),
        ("plan --model resnet-18 --threads 2 --barrier-us -1.5", "give a number of at least 0"),
        ("place --times absent.csv --watts a=1 --price-us-per-j -1", "give a number of at least 0"),
        ("eval --data absent --seeds -1", "hint: give a whole number of at least 0"),
        ("eval --data absent --score-cv -0.1", "must be larger than 0"),
        ("adapt --this-host --seconds -30s", "hint: negative numbers are not accepted here"),
    ] {
        check_refused(line, reason);
    }
    for flag in ["modelsource local", "sequence 8", "batchsize 2", "device cpu", "link-us 1", "link-gb-per-s 1"] {
        let name = flag.split(' ').next().expect("a name");
        check_refused(&format!("place --times absent.csv --{flag}"), &format!("cannot be used with '--{name} <"));
    }
}

#[test]
fn unreadable_files_are_named_with_a_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("broken");
    std::fs::write(&file, "operator = \"op\"\ndevice = \n").expect("a file");
    let file = file.display();
    let mapping = format!("`{file}` is not a mapping of operators and devices: TOML parse error at line 2");
    let (code, _, error) = oppredict(&format!("devices --predictor absent.opp --mapping {file}"));
    assert_eq!(code, 2, "{error}");
    assert!(error.starts_with(&format!("error: {mapping}")), "{error}");
    assert!(error.contains("hint: compare it with `configs/gpu-ops.toml`"), "{error}");
    // A file of no known format is read as a configuration.
    check_refused(&format!("predict {file} --threads 1"), &format!("`{file}`: invalid configuration"));
}

#[test]
fn rows_of_a_table_are_kernels_on_devices() {
    let folder = tempfile::tempdir().expect("a folder");
    let check = |text: &str, flags: &str| {
        let file = folder.path().join("kernels.csv");
        std::fs::write(&file, text).expect("a file");
        oppredict(&format!("predict --data {} {flags}", file.display()))
    };
    let gemm = r#""gemm:m=64,n=4096,k=4096,dtype=fp8""#;
    let table = format!("operator,device\n{gemm},h100_sxm\n{gemm},\n\"gemm:m=64\",h100_sxm\n{gemm},none\n");
    let (code, text, notes) = check(&table, "--device l40s");
    assert_eq!((code, notes.as_str()), (1, "note: 2 of 4 rows were not predicted; the column `reasons` states why\n"));
    let rows: Vec<&str> = text.lines().collect();
    assert_eq!(rows[0], "row,operator,device,time_ns,low_ns,high_ns,power_w,energy_j,source,reasons");
    assert!(rows[1].contains(",NVIDIA H100 80GB HBM3,") && rows[2].contains(",NVIDIA L40S,"), "{text}");
    assert!(rows[3].ends_with("`n` is missing") && rows[4].contains("unknown device `none`"), "{text}");
    // The same answer as without a table.
    let (_, text, _) = check(&table, "--device l40s --json");
    let of_table: Value = serde_json::from_str(&text).expect("one document");
    let (_, text, _) = oppredict("predict --op gemm:m=64,n=4096,k=4096,dtype=fp8 --device l40s --json");
    let alone: Value = serde_json::from_str(&text).expect("one document");
    assert_eq!((&of_table["rows"][1]["answer"], &of_table["refused"]), (&alone["kernels"][0], &Value::from(2)));
    let threads = format!("operator,threads\n{gemm},2\n");
    for (table, flags, reason) in [
        (threads.as_str(), "--device l40s", "unknown column `threads`; tables of kernels have `operator` and `device`"),
        (table.as_str(), "--threads 2", "--threads cannot be used with kernels"),
        (&format!("operator\n{gemm}\n"), "", "row 1: the row has no `device`; give --device"),
    ] {
        let (code, text, error) = check(table, flags);
        assert_eq!((code, text.as_str()), (2, ""), "{error}");
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn curves_have_the_warnings_of_their_points() {
    let (code, text, notes) = oppredict("knee --model llama-3.1-8b --device b200_sxm --dtype fp8_block --json");
    assert_eq!(code, 0, "{notes}");
    assert!(notes.contains("the kernels of one decoding step are predicted to take"), "{notes}");
    let document: Value = serde_json::from_str(&text).expect("one document");
    assert_eq!(document["notes"].as_array().map(Vec::len), Some(notes.lines().count()), "{document}");
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("config.json");
    let text = include_str!("../../../configs/transformers/qwen3-0.6b.json");
    let mut fields: Value = serde_json::from_str(text).expect("a configuration");
    (fields["vision_config"], fields["max_position_embeddings"]) = (serde_json::json!({}), 40_960.into());
    std::fs::write(&config, fields.to_string()).expect("a file");
    let line = format!("knee --model {} --device h100_sxm --over batch --over context --batch 2", config.display());
    let (code, _, notes) = oppredict(&line);
    assert_eq!(code, 0, "{notes}");
    assert_eq!(notes.matches("only the text model is counted").count(), 1, "{notes}");
    assert!(notes.contains("warning: at context 65536 and 1 other point of the curve: 66560 tokens"), "{notes}");
}

#[test]
fn knees_and_devices_are_listed() {
    let line = "knee --model llama-3.1-8b --device h200_sxm --dtype fp8 --over batch --over context";
    let (code, text, _) = oppredict(line);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("doubling the batch gains less than 20 % throughput"), "{text}");
    let (_, text, _) = oppredict(&format!("{line} --json"));
    let document: Value = serde_json::from_str(&text).expect("one document");
    let points = document.pointer("/curves/0/points").and_then(Value::as_array).expect("a curve");
    let rates: Vec<f64> = points.iter().filter_map(|point| point["tokens_per_s_per_gpu"].as_f64()).collect();
    assert!(rates.first() < rates.last(), "{rates:?}");
    let (code, text, _) = oppredict("devices --held-out");
    assert!(code == 0 && text.contains("`cpu.opp`") && text.contains("new, other"), "{code} {text}");
    let (_, text, _) = oppredict("devices --held-out --json");
    let document: Value = serde_json::from_str(&text).expect("one document");
    assert!(document["predictors"][0]["operators"]["conv2d"]["sizes"]["shapes"].as_u64() > Some(100), "{text}");
    let kernels = document["predictors"][1]["kernels"].as_array().expect("kernels of gpu.opp");
    let of_h200 =
        |one: &&Value| one["device"] == "NVIDIA H200" && one["target"] == "power" && one["operator"] == "gemm";
    let errors = kernels.iter().find(of_h200).unwrap_or_else(|| panic!("{text}"));
    assert!(errors["held_out"]["median"].as_f64().is_some_and(|percent| percent > 0.0 && percent < 20.0), "{errors}");
    let (_, text, _) = oppredict("devices --json");
    let document: Value = serde_json::from_str(&text).expect("one document");
    let gpus = document["gpus_of_language_models"].as_array().expect("GPUs");
    assert!(
        gpus.iter().any(|gpu| gpu["facts"]["system"] == "b200_sxm" && gpu["measured_servers"].as_u64() > Some(100))
    );
}
