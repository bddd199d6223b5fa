//! Corrections of language-model kernels on a new device: what to measure, the corrected file, and its answers.
#![allow(missing_docs)]

use serde_json::Value;
use serving::device::find_device;
use serving::features::kernel_features;
use serving::{Gemm, Kernel, Scheme};
use std::path::Path;

const MAPPING: &str = r#"
source = "somewhere"
licence = "MIT, (c) somebody"
[[tables]]
file = "gemm.csv"
kernel = "gemm"
device = "system"
framework = "framework"
time = { column = "latency_us", unit = "us" }
sizes = { m = "m", n = "n", k = "k" }
formats = { dtype = "dtype" }
"#;
const LEARNED: [&str; 4] = ["a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm"];
const NEW: &str = "l40s";

/// Returns the bound times a factor that depends on the device and, on the new device, on the shape.
fn seconds(kernel: &Kernel, system: &str) -> f64 {
    let device = find_device(system).expect(system);
    let facts = kernel_features(kernel, device, 0.0).expect("features");
    let share = facts.compute_seconds / facts.reference_seconds;
    let factor = if system == NEW { 2.6 - 0.8 * share } else { 1.3 };
    facts.warm_seconds() * factor
}

fn kernels() -> Vec<Kernel> {
    let sizes = [512, 1024, 2048, 4096, 8192];
    let layers = sizes.into_iter().flat_map(|n| sizes.map(|k| (n, k)));
    let tokens = [1, 4, 16, 64, 128, 256, 512, 1024, 4096];
    layers.flat_map(|(n, k)| tokens.map(|m| Kernel::Gemm(Gemm { m, n, k, scheme: Scheme::Bf16 }))).collect()
}

fn write_table(path: &Path, rows: &[(&str, &str, Kernel)]) {
    let line = |(system, framework, kernel): &(&str, &str, Kernel)| match kernel {
        Kernel::Gemm(Gemm { m, n, k, .. }) => {
            format!("{system},{framework},bf16,{m},{n},{k},{}\n", 1e6 * seconds(kernel, system))
        }
        _ => panic!("a matrix product"),
    };
    let lines: String = rows.iter().map(line).collect();
    std::fs::write(path, format!("system,framework,dtype,m,n,k,latency_us\n{lines}")).expect("a table");
}

/// Runs the program in a folder; returns its exit code, standard output and standard error.
fn oppredict(folder: &Path, line: &str) -> (i32, String, String) {
    let program = std::process::Command::new(env!("CARGO_BIN_EXE_oppredict"))
        .args(line.split_whitespace())
        .current_dir(folder)
        .env("COLUMNS", "120")
        .output()
        .expect("the program");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (program.status.code().unwrap_or(-1), text(&program.stdout), text(&program.stderr))
}

fn document(folder: &Path, line: &str) -> Value {
    let (code, text, notes) = oppredict(folder, line);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line}: {code} {error}: {text}{notes}"))
}

#[test]
fn a_new_device_is_corrected_by_the_suggested_kernels() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    std::fs::write(folder.join("m.toml"), MAPPING).expect("a mapping");
    std::fs::create_dir(folder.join("public")).expect("a folder");
    let rows: Vec<_> =
        LEARNED.into_iter().flat_map(|system| kernels().into_iter().map(move |one| (system, "vllm", one))).collect();
    write_table(&folder.join("public/gemm.csv"), &rows);
    let (code, _, notes) = oppredict(folder, "train --data public --mapping m.toml --out public.opp");
    assert_eq!(code, 0, "{notes}");

    let suggest = "suggest --predictor public.opp --data public --mapping m.toml --count 20";
    let (code, _, notes) = oppredict(folder, suggest);
    assert!(code == 2 && notes.contains("need --device"), "{notes}");
    let suggested = document(folder, &format!("{suggest} --device {NEW} --json"));
    let suggested: Vec<Kernel> = suggested["suggestions"]
        .as_array()
        .expect("kernels")
        .iter()
        .map(|text| text.as_str().expect("a text").parse().expect("a kernel"))
        .collect();
    assert_eq!(suggested.len(), 20);
    let (code, _, notes) = oppredict(folder, &format!("{suggest} --device h100_sxm"));
    assert!(code == 2 && notes.contains("no kernel to measure on NVIDIA H100"), "{notes}");

    // A single file of any name, whose columns are those of the mapping's table.
    let measured: Vec<_> = suggested.iter().map(|kernel| (NEW, "vllm", *kernel)).collect();
    write_table(&folder.join("own.csv"), &measured);
    let adapt = "adapt --predictor public.opp --mapping m.toml --out new.opp";
    let changed = document(folder, &format!("{adapt} --data own.csv --json"));
    let change = &changed["changes"][0];
    let off = |when: &str| change[when]["mape"].as_f64().expect("an error");
    assert_eq!((change["rows"].as_u64(), change["target"].as_str()), (Some(20), Some("time")), "{change}");
    assert!(off("after") < 0.5 * off("before"), "{change}");

    let (mut before, mut after, mut inside, mut scored) = (0.0, 0.0, 0, 0);
    for kernel in kernels().into_iter().filter(|kernel| !suggested.contains(kernel)).step_by(17) {
        let answer = |file: &str| {
            let asked = format!("predict --predictor {file} --op {kernel} --device {NEW} --json");
            document(folder, &asked)["kernels"][0].clone()
        };
        let truth = seconds(&kernel, NEW);
        let part = |answer: &Value, end: &str| answer["time"][end].as_f64().expect("a time");
        let (old, new) = (answer("public.opp"), answer("new.opp"));
        before += (part(&old, "seconds") / truth).ln().abs();
        after += (part(&new, "seconds") / truth).ln().abs();
        inside += usize::from((part(&new, "low")..=part(&new, "high")).contains(&truth));
        scored += 1;
        assert_eq!((&new["distance"], &new["corrected_by"]), (&"corrected".into(), &20.into()), "{new}");
    }
    assert!(after < 0.5 * before, "{before} {after}");
    assert!(inside as f64 >= 0.75 * f64::from(scored), "{inside} of {scored}");
    let (_, text, _) = oppredict(folder, &format!("predict --predictor new.opp --op {} --device {NEW}", kernels()[9]));
    assert!(text.contains("corrected by 20 measured kernels of this device"), "{text}");
    assert!(text.contains("20 measured kernels, each left out"), "{text}");

    // Nanoseconds in a column of microseconds.
    let table = std::fs::read_to_string(folder.join("own.csv")).expect("a table");
    for (factor, expected) in [
        (1000.0, "times the roofline; check the sizes and the unit"),
        (100.0, "times the predicted time in the median; check the sizes and the unit"),
        (0.001, "check the sizes and the unit"),
    ] {
        // A row without a number is the header.
        let scaled = |line: &str| match line.rsplit_once(',').map(|(row, time)| (row, time.parse::<f64>())) {
            Some((row, Ok(time))) => format!("{row},{}\n", factor * time),
            _ => format!("{line}\n"),
        };
        std::fs::write(folder.join("wrong.csv"), table.lines().map(scaled).collect::<String>()).expect("a table");
        let (code, _, notes) = oppredict(folder, &format!("{adapt} --data wrong.csv"));
        assert!(code == 2 && notes.contains(expected), "{factor}: {notes}");
    }
    let (code, _, notes) = oppredict(folder, &format!("{adapt} --data absent.csv"));
    assert!(code == 2 && notes.contains("cannot open `absent.csv`"), "{notes}");
    // A folder may have the tables of a mapping as CSV.
    std::fs::write(folder.join("p.toml"), MAPPING.replace("gemm.csv", "gemm.parquet")).expect("a mapping");
    std::fs::create_dir(folder.join("own")).expect("a folder");
    std::fs::copy(folder.join("own.csv"), folder.join("own/gemm.csv")).expect("a table");
    let of_folder = "adapt --predictor public.opp --mapping p.toml --out other.opp --data own";
    let (code, _, notes) = oppredict(folder, of_folder);
    assert_eq!(code, 0, "{notes}");
    // Nothing is left to learn from.
    let of_layer: Vec<_> = rows[..1].to_vec();
    write_table(&folder.join("one.csv"), &of_layer);
    let (code, _, notes) = oppredict(folder, "eval --data one.csv --mapping m.toml --hold-out device");
    assert!(code == 2 && notes.contains("no row could be scored with held-out devices"), "{code} {notes}");

    // Measurements that cannot correct anything.
    for (rows, reason) in [
        (rows[..9].to_vec(), "already in the training data; train again with all measurements"),
        (measured[..3].to_vec(), "fewer than 5 kernels were measured"),
        (
            measured.iter().enumerate().map(|(place, row)| (NEW, ["vllm", "sglang"][place % 2], row.2)).collect(),
            "a correction is for one framework",
        ),
    ] {
        write_table(&folder.join("wrong.csv"), &rows);
        let (code, _, notes) = oppredict(folder, &format!("{adapt} --data wrong.csv"));
        assert!(code == 2 && notes.contains(reason), "{code} {notes}");
    }
}
