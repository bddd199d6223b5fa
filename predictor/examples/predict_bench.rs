//! Benchmarks of `scripts/bench/predict`: runs the named experiment and prints one JSON line with its times.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use learn::boosted::{self, BoostingParameters};
use learn::predictor::{Predictor, Query};
use predictor::bundle;
use predictor::serve::{PATIENCE, Service, answer_query};
use samples::features::{Matrix, Work};
use samples::table;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// As in `oppredict`, whose speed is measured.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let document = match words[..] {
        ["load", path] => load(Path::new(path))?,
        ["ask", path] => query(&bundle::read_bundle(Path::new(path))?)?,
        ["serve", path] => serve(bundle::read_bundle(Path::new(path))?)?,
        ["grow", rows, columns, trees] => grow(rows.parse()?, columns.parse()?, trees.parse()?)?,
        _ => {
            return Err(
                "usage: predict_bench load FILE | ask PREDICTOR | serve PREDICTOR | grow ROWS COLUMNS TREES".into()
            );
        }
    };
    println!("{document}");
    Ok(())
}

fn load(path: &Path) -> Result<serde_json::Value, Box<dyn std::error::Error>> {
    let mut seconds = Vec::new();
    let mut rows = 0;
    for _ in 0..5 {
        let begun = Instant::now();
        rows = table::read_table(path)?.rows;
        seconds.push(begun.elapsed().as_secs_f64());
    }
    Ok(json!({ "rows": rows, "seconds": seconds }))
}

/// Times predictions for many sizes, one by one and batched.
fn query(predictor: &Predictor) -> Result<serde_json::Value, Box<dyn std::error::Error>> {
    let operator = predictor.learned.operators.keys().next().ok_or("the predictor has no operators")?;
    let statistics = &predictor.learned.operators[operator].statistics;
    let device = statistics.overheads_ns.keys().next().ok_or("the predictor has no devices")?;
    let works: Vec<Work> = (0..20_000u64)
        .map(|step| {
            let size = |salt: u64| (16 + (step * 7919 + salt * 104_729) % 1000) as f64;
            Work::contraction_work(1.0 + (step % 64) as f64, size(1), size(2), size(3), false)
        })
        .collect();
    let extras = BTreeMap::new();
    let question = |work| Query { operator, work, device, threads: None, extras: &extras };
    let queries: Vec<Query<'_>> = works.iter().map(question).collect();
    let begun = Instant::now();
    let together = predictor.predict_all(&queries);
    let batch_us = 1e6 * begun.elapsed().as_secs_f64() / queries.len() as f64;
    let mut single_us = Vec::new();
    let mut sum = 0.0;
    for one in queries.iter().take(2000) {
        let begun = Instant::now();
        sum += predictor.predict(one)?.time_ns;
        single_us.push(1e6 * begun.elapsed().as_secs_f64());
    }
    single_us.sort_by(f64::total_cmp);
    let first: f64 = together.iter().take(2000).flatten().map(|answer| answer.time_ns).sum();
    // Uses all results, so that no work is optimised away; both ways must agree.
    if (first - sum).abs() > 1e-6 * sum {
        return Err("batched and single predictions differ".into());
    }
    let trees: usize = predictor.learned.operators[operator].known.iter().map(learn::trees::Trees::len).sum();
    Ok(
        json!({ "trees": trees, "batch_us_per_row": batch_us, "single_us_median": single_us[single_us.len() / 2], "checksum": sum }),
    )
}

/// Times requests to the server of 1,000 different convolutions each, without the connection.
fn serve(predictor: Predictor) -> Result<serde_json::Value, Box<dyn std::error::Error>> {
    let service = Service { predictor, mapping: None, patience: PATIENCE, known: None };
    let operator = |step: usize| {
        let (channels, size, filters) = (8 * (1 + step % 16), 7 * (1 + step / 16 % 8), 16 * (1 + step / 128));
        format!("conv2d:ci={channels},hw={size},co={filters},k=3,p=1")
    };
    let operators: Vec<String> = (0..1000).map(operator).collect();
    let body = serde_json::to_vec(&json!({ "operators": operators, "extrapolate": true }))?;
    let mut times_ms = Vec::new();
    for _ in 0..30 {
        let begun = Instant::now();
        let (status, answer) = answer_query(&body, &service);
        times_ms.push(1e3 * begun.elapsed().as_secs_f64());
        if status != 200 {
            return Err(format!("the server answered {status}: {answer}").into());
        }
    }
    times_ms.sort_by(f64::total_cmp);
    Ok(json!({ "operators": operators.len(), "request_ms": times_ms[times_ms.len() / 2], "best_ms": times_ms[0] }))
}

fn grow(rows: usize, columns: usize, trees: usize) -> Result<serde_json::Value, Box<dyn std::error::Error>> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    let values: Vec<f32> = (0..rows * columns).map(|_| next()).collect();
    let matrix = Matrix::from_rows(columns, values);
    let labels: Vec<f32> =
        (0..rows).map(|row| matrix.row(row)[0] + (6.0 * matrix.row(row)[1]).sin() + 0.1 * next()).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let parameters =
        BoostingParameters { rounds: trees, max_depth: 6, threads, ..BoostingParameters::default_parameters() };
    let begun = Instant::now();
    let grown = boosted::fit_trees(&matrix, &labels, &parameters, 0)?;
    Ok(json!({ "trees": grown.len(), "threads": threads, "seconds": begun.elapsed().as_secs_f64() }))
}
