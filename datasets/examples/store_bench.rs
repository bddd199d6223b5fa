//! Benchmarks one step of the store in a separate process, so that the peak memory of the step can be measured.
//! `store_bench STEP FOLDER ROWS` prints a step, its seconds and its peak memory; `scripts/bench/store` runs all steps.
#![allow(clippy::print_stdout)]

use datasets::{
    CacheState, Choose, Format, Json, Key, Origin, Outcome, Record, ScheduleSource, SealOptions, Source, Store,
};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use serde_json::json;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::time::Instant;

/// Number of rows of a synthetic journal, as many as a real process writes before it seals its journal.
const JOURNAL_ROWS: u64 = 50_000;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [step, folder, rows] = arguments.as_slice() else {
        return Err("usage: store_bench append|sync|make|grow|seal|compact|stats|keys|export FOLDER ROWS".into());
    };
    let (folder, rows) = (Path::new(folder), rows.parse::<u64>()?);
    let store = Store::create(&folder.join("store"))?;
    let begin = Instant::now();
    let result = run(step, &store, folder, rows)?;
    let seconds = result.seconds.unwrap_or(begin.elapsed().as_secs_f64());
    let note = result.note;
    println!(
        "{}",
        json!({ "step": step, "seconds": seconds, "cpu_seconds": cpu_seconds()?, "peak_bytes": peak_bytes(), "rows": result.rows, "note": note })
    );
    Ok(())
}

#[derive(Default)]
struct StepResult {
    rows: u64,
    /// Time of the measured part in seconds; None if the time of the whole step counts.
    seconds: Option<f64>,
    note: String,
}

fn run(step: &str, store: &Store, folder: &Path, rows: u64) -> Result<StepResult> {
    let rows_result = |rows| StepResult { rows, ..StepResult::default() };
    Ok(match step {
        "append" => append(folder, rows)?,
        "sync" => sync(folder, rows)?,
        "make" => make(store, rows)?,
        "grow" => grow(store, rows)?,
        "seal" => rows_result(store.seal_journals(SealOptions::default())?.rows),
        "compact" => rows_result(store.compact()?.rows),
        "stats" => {
            let stats = store.stats(Choose::Middle)?;
            StepResult {
                note: format!("{} bytes in {} parts", stats.parts.bytes, stats.parts.count),
                ..rows_result(stats.rows)
            }
        }
        "keys" => rows_result(store.read_keys()?.len() as u64),
        "export" => rows_result(store.export(&folder.join("export.csv"), Format::Csv, Choose::All)?.rows),
        _ => return Err(format!("unknown step `{step}`").into()),
    })
}

fn origin() -> Origin {
    Origin { host: "bench".into(), program: "store_bench".into(), command: "store_bench".into() }
}

/// Appends records one by one, each with a sync. The time to create the records is excluded.
fn append(folder: &Path, rows: u64) -> Result<StepResult> {
    let store = Store::create(&folder.join("append"))?;
    let records: Vec<Record> = (0..rows).map(record).collect();
    let mut journal = store.start_journal(origin())?;
    let begin = Instant::now();
    for record in &records {
        journal.append(record)?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    Ok(StepResult { rows, seconds: Some(seconds), note: String::new() })
}

/// Writes and syncs the same bytes line by line without the store, as a baseline.
fn sync(folder: &Path, rows: u64) -> Result<StepResult> {
    let lines = (0..rows).map(|number| serde_json::to_vec(&record(number)).map(|line| [line, b"\n".to_vec()].concat()));
    let lines = lines.collect::<std::result::Result<Vec<_>, _>>()?;
    let path = folder.join("sync");
    let mut file = File::create(&path)?;
    let begin = Instant::now();
    for line in &lines {
        file.write_all(line)?;
        file.sync_data()?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    std::fs::remove_file(path)?;
    Ok(StepResult { rows, seconds: Some(seconds), note: String::new() })
}

/// Writes journals as ended processes leave them, without a sync per record.
fn make(store: &Store, rows: u64) -> Result<StepResult> {
    let mut bytes = 0;
    for first in (0..rows).step_by(usize::try_from(JOURNAL_ROWS)?) {
        let path = store.start_journal(origin())?.path().to_owned();
        let mut file = BufWriter::with_capacity(1 << 20, OpenOptions::new().append(true).open(path)?);
        for number in first..rows.min(first + JOURNAL_ROWS) {
            let mut line = serde_json::to_string(&record(shuffled(number, rows)))?;
            line.pop();
            let checksum = blake3::hash(line.as_bytes()).to_hex();
            write!(line, ",\"checksum\":\"{}\"}}", &checksum[..16])?;
            bytes += line.len() as u64 + 1;
            writeln!(file, "{line}")?;
        }
        file.flush()?;
    }
    Ok(StepResult { rows, note: format!("{} bytes per row", bytes / rows.max(1)), seconds: None })
}

/// Fills a store journal by journal, as a fleet does over weeks. Samples are omitted, because resuming reads none.
fn grow(store: &Store, rows: u64) -> Result<StepResult> {
    let mut sealed = 0;
    for first in (0..rows).step_by(usize::try_from(JOURNAL_ROWS)?) {
        let path = store.start_journal(origin())?.path().to_owned();
        let mut file = BufWriter::with_capacity(1 << 20, OpenOptions::new().append(true).open(path)?);
        for number in first..rows.min(first + JOURNAL_ROWS) {
            let record = Record { samples_ns: Vec::new(), ..record(shuffled(number, rows)) };
            let mut line = serde_json::to_string(&record)?;
            line.pop();
            let checksum = blake3::hash(line.as_bytes()).to_hex();
            writeln!(file, "{line},\"checksum\":\"{}\"}}", &checksum[..16])?;
        }
        file.flush()?;
        drop(file);
        sealed += store.seal_journals(SealOptions::default())?.rows;
    }
    if sealed != rows {
        return Err(format!("only {sealed} of {rows} records were sealed").into());
    }
    Ok(StepResult { rows, ..StepResult::default() })
}

/// Permutes the numbers below `rows`: neighbours become far apart and journals overlap, like journals of many hosts.
fn shuffled(number: u64, rows: u64) -> u64 {
    let step = (rows * 618 / 1000..).find(|step| greatest_divisor(*step, rows) == 1).unwrap_or(1);
    (number as u128 * u128::from(step) % u128::from(rows)) as u64
}

fn greatest_divisor(left: u64, right: u64) -> u64 {
    if right == 0 { left } else { greatest_divisor(right, left % right) }
}

struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Returns a record as a sweep writes it: many schedules per task, some failures, all columns of a CPU run.
fn record(number: u64) -> Record {
    let task = number / 500;
    let mut of_task = Numbers(task);
    let mut of_row = Numbers(number ^ 0x5555_0000_0000);
    let kind = ["conv2d", "dense", "depthwise_conv2d", "softmax", "pool", "matmul"][of_task.below(6) as usize];
    let (channels, side) = (8 << of_task.below(6), 7 << of_task.below(5));
    let flops = 2 * channels * channels * side * side * 9;
    let bytes = 4 * channels * side * side;
    let mut record = Record {
        run_id: format!("2026-11-{:02}-night", 1 + number % 28),
        started_at_us: 1_790_000_000_000_000 + number as i64 * 137_000,
        model_source: Some("onnx".into()),
        model_name: Some(format!("model-{}", task % 40)),
        batch: Some(1),
        place: Some(format!("/features/block{}/conv{}", task % 17, task % 3)),
        place_count: Some(2),
        places: json(&json!([format!("/features/block{}/conv{}", task % 17, task % 3), "/head/conv"])),
        task_hash: Key::of_bytes(&task.to_le_bytes()).to_hex(),
        op_kind: kind.into(),
        op_name: format!("{kind}+bias+relu"),
        op_text: format!("{kind} f32[1,{channels},{side},{side}] k=3 s=1 p=1 +bias +relu"),
        task: json(&task_json(channels, side)),
        layout: Some("NCHW".into()),
        input_shapes: json(&json!([[1, channels, side, side], [channels, channels, 3, 3], [channels]])),
        output_shape: json(&json!([1, channels, side, side])),
        dtype: Some("f32".into()),
        flops: Some(flops as i64),
        macs: Some(flops as i64 / 2),
        bytes_in: Some(bytes as i64),
        bytes_out: Some(bytes as i64),
        bytes_weights: Some(36 * (channels * channels) as i64),
        arithmetic_intensity: Some(flops as f64 / bytes as f64),
        schedule_hash: Some(Key::of_bytes(&number.to_be_bytes()).to_hex()),
        schedule_source: Some(ScheduleSource::Template),
        schedule: json(&json!({
            "tile_y": [of_row.below(16), 1 << of_row.below(5)], "tile_x": [of_row.below(16), 1 << of_row.below(5)],
            "tile_k": 1 << of_row.below(6), "vectorize": 8, "unroll": of_row.below(512), "compute_at": "inner",
        })),
        code_bytes: Some(of_row.below(60_000) as i64),
        build_ms: Some(60.0 + 140.0 * of_row.unit()),
        features: json(&features(&mut of_row)),
        target_text: Some("{\"kind\":\"llvm\",\"mcpu\":\"znver3\",\"num-cores\":16}".into()),
        threads: Some(1 << of_row.below(5)),
        cpus: json(&json!([0, 1, 2, 3])),
        thread_mode: Some("pinned".into()),
        spin_count: Some(1000),
        parallel_type: Some("full".into()),
        ..Record::default()
    };
    add_host(&mut record, number);
    add_result(&mut record, &mut of_row);
    record.key = record.experiment_key();
    record
}

fn json(value: &serde_json::Value) -> Option<Json> {
    Some(Json::from(value.clone()))
}

fn task_json(channels: u64, side: u64) -> serde_json::Value {
    json!({
        "parameters": [
            { "ty": { "dtype": "f32", "shape": [1, channels, side, side] }, "is_constant": false },
            { "ty": { "dtype": "f32", "shape": [channels, channels, 3, 3] }, "is_constant": true },
        ],
        "steps": [
            { "op": { "kind": "conv", "strides": [1, 1], "pads": [1, 1, 1, 1], "dilations": [1, 1], "groups": 1 },
              "inputs": [{ "parameter": 0 }, { "parameter": 1 }],
              "output": { "dtype": "f32", "shape": [1, channels, side, side] } },
            { "op": { "kind": "unary", "function": "relu" }, "inputs": [{ "step": 0 }],
              "output": { "dtype": "f32", "shape": [1, channels, side, side] } },
        ],
    })
}

fn features(numbers: &mut Numbers) -> serde_json::Value {
    let names =
        ["loads", "stores", "fma", "branches", "vector_share", "live_registers", "spills", "depth", "innermost_bytes"];
    names
        .iter()
        .map(|name| ((*name).to_owned(), json!(numbers.below(100_000))))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn add_host(record: &mut Record, number: u64) {
    record.host = format!("bench-{}", number % 3);
    record.host_class = "epyc-7543-16".into();
    record.cpu_model = Some("AMD EPYC 7543 32-Core Processor".into());
    record.cpu_arch = Some("x86_64".into());
    record.logical_cpus = Some(32);
    record.physical_cores = Some(16);
    record.l1d_bytes = Some(32 << 10);
    record.l2_bytes = Some(512 << 10);
    record.l3_bytes = Some(256 << 20);
    record.memory_bytes = Some(128 << 30);
    record.clock_policy = Some("performance 2800-2800 MHz".into());
    record.is_virtual_machine = Some(false);
    record.os = Some("Debian GNU/Linux 13".into());
    record.kernel = Some("6.12.48".into());
    record.tvm_version = Some("0.27.0".into());
    record.llvm_version = Some("20.1.8".into());
    record.source = Source::Measured;
    record.program_version = "0.1.0".into();
    record.config_hash = Some("5f2b7c0e9a41d386".into());
    record.seed = Some(1);
    record.plan = json(&json!({ "warmup": 3, "interval": 0.01, "budget_ms": 500, "cache": "warm" }));
}

fn add_result(record: &mut Record, numbers: &mut Numbers) {
    if numbers.below(25) == 0 {
        record.outcome = Outcome::TimedOut;
        record.reason = Some(format!("no answer within {} s", 5 + numbers.below(10)));
        return;
    }
    let base = 10_000.0 + 5e6 * numbers.unit();
    let mut samples: Vec<f64> = (0..20).map(|_| (base * (1.0 + 0.02 * numbers.unit()) * 10.0).round() / 10.0).collect();
    record.samples_ns.clone_from(&samples);
    samples.sort_by(f64::total_cmp);
    let mean = samples.iter().sum::<f64>() / 20.0;
    let std = (samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / 19.0).sqrt();
    record.n = 20;
    record.median_ns = Some((samples[9] + samples[10]) / 2.0);
    record.mean_ns = Some(mean);
    record.min_ns = Some(samples[0]);
    record.p95_ns = Some(samples[18]);
    record.std_ns = Some(std);
    record.cv = Some(std / mean);
    record.first_run_ns = Some(base * 1.7);
    record.batch_size = Some(1 + numbers.below(100) as i64);
    record.median_interval_ns = Some(std / 4.0);
    record.cache_state = Some(CacheState::Warm);
    record.max_abs_error = Some(1e-6 * numbers.unit());
    record.max_rel_error = Some(1e-5 * numbers.unit());
    let names = ["cycles", "instructions", "l1d_misses", "l2_misses", "l3_misses", "branch_misses"];
    let mut counters = String::from("{");
    for name in names {
        let _ = write!(counters, "\"{name}\":{},", numbers.below(1 << 32));
    }
    counters.replace_range(counters.len() - 1.., "}");
    record.counters = Json::parse(&counters).ok();
    record.counter_source = Some("perf".into());
    record.cpu_time_ns = Some(base * 3.9);
    record.peak_memory_bytes = Some(numbers.below(1 << 30) as i64);
    record.workspace_bytes = Some(numbers.below(1 << 24) as i64);
    record.energy_joules = Some(base * 6.5e-8);
    record.warnings = json(&json!([]));
}

/// Returns the CPU time of this process. Other load on the machine affects it less than the elapsed time.
fn cpu_seconds() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) * 1024
}
