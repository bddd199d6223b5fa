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
        ("predict --model llama-3.1-8b --device h100_sxm --power-limit 200", "--power-limit cannot be used with"),
        ("predict --op relu:shape=8 --dtype fp8", "servers are predicted for --model alone"),
        ("predict --model llama-3.1-8b", "a server needs a GPU: name one with --device"),
        (
            "knee --model llama-3.1-8b --device h100_sxm --over threads",
            "unknown quantity of a server's curve `threads`",
        ),
    ] {
        let (code, text, error) = oppredict(line);
        assert_eq!((code, text.as_str()), (2, ""), "{line}: {error}");
        assert!(error.contains(reason) && error.starts_with("error: "), "{line}: {error}");
    }
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
    let (_, text, _) = oppredict("devices --json");
    let document: Value = serde_json::from_str(&text).expect("one document");
    let gpus = document["gpus_of_language_models"].as_array().expect("GPUs");
    assert!(
        gpus.iter().any(|gpu| gpu["facts"]["system"] == "b200_sxm" && gpu["measured_servers"].as_u64() > Some(100))
    );
}
