//! Tests the peaks of devices in records: measured on their hosts, and at least the rates that operators reached.
#![allow(missing_docs)]

use datasets::peaks::{ComputeRate, MemoryRate};
use datasets::{Json, Outcome, PeaksMeasured, Record, ScheduleSource, Target};
use samples::Samples;
use samples::features::Device;
use samples::records::{Policy, gather_samples};

fn product(size: i64, threads: i64, median_ns: f64) -> Record {
    let graph = zoo::simple::build_operator(&format!("matmul:m={size},n={size},k={size}")).expect("a product");
    let task = models::distinct_tasks(&graph, models::Fuse::Epilogue).expect("tasks").remove(0).task;
    let work = task.work().expect("sizes are known");
    let count = |number: u64| i64::try_from(number).ok();
    let record = Record {
        task_hash: task.hash(),
        outcome: Outcome::Ok,
        schedule_source: Some(ScheduleSource::Default),
        host: "bench-1".to_owned(),
        host_class: "class".to_owned(),
        logical_cpus: Some(2),
        target_text: Some("emeraldrapids".to_owned()),
        op_kind: task.anchor_kind(),
        op_name: task.name(),
        dtype: Some("f32".to_owned()),
        flops: count(work.flops),
        macs: count(work.macs),
        bytes_in: count(work.bytes_in),
        bytes_out: count(work.bytes_out),
        bytes_weights: count(work.bytes_weights),
        task: Some(Json::from(serde_json::to_value(&task).expect("tasks have a JSON form"))),
        threads: Some(threads),
        median_ns: Some(median_ns),
        schema_version: 5,
        median_interval_ns: Some(median_ns / 200.0),
        cv: Some(0.01),
        ..Record::default()
    };
    Record { key: record.experiment_key(), ..record }
}

/// Two CPUs of one core: two threads are hardly faster than one.
fn measured() -> PeaksMeasured {
    let compute = |threads, flops_per_second| ComputeRate { threads, flops_per_second };
    let memory = |threads, working_set_bytes| MemoryRate {
        threads,
        working_set_bytes,
        level: None,
        kind: None,
        bytes_per_second: 5e10,
    };
    PeaksMeasured {
        compute: vec![compute(1, 120e9), compute(2, 150e9)],
        memory: vec![memory(1, 1 << 15), memory(1, 1 << 24), memory(2, 1 << 15), memory(2, 1 << 24)],
        ..PeaksMeasured::new("bench-1", "class", "0.1.0", 0)
    }
}

fn over_best(samples: &Samples) -> Vec<f64> {
    samples.rows.iter().map(|row| row.time_ns / row.attainable_ns).collect()
}

fn device(samples: &Samples) -> &Device {
    &samples.devices[0].1
}

#[test]
fn peaks_of_a_store_bound_what_is_learned() {
    // 2 × 256³ operations: at 120 GFLOP/s 279.6 µs, at 150 223.7 µs.
    let records = [product(256, 1, 300e3), product(256, 2, 250e3)];
    let here = gather_samples(&records, &[measured()], &Policy::default()).expect("samples");
    assert_eq!(device(&here).flops_per_ns_on(1.0), 120.0);
    assert_eq!(device(&here).flops_per_ns_on(2.0), 150.0, "not twice as much");
    assert!(over_best(&here).iter().all(|ratio| (1.0..1.2).contains(ratio)), "{:?}", over_best(&here));
    let other = PeaksMeasured { host: "bench-2".to_owned(), ..measured() };
    let elsewhere = gather_samples(&records, &[other], &Policy::default()).expect("samples");
    assert_eq!(device(&elsewhere).flops_per_ns_on(2.0), 320.0, "as much again");
    assert_eq!(device(&elsewhere).flops_per_ns_on(1.0), 160.0, "of this host nothing was measured: 2.5 GHz × 64");
}

fn twice(record: Record) -> [Record; 2] {
    [record.clone(), Record { started_at_us: 1, ..record }]
}

#[test]
fn no_operator_beats_its_device() {
    // One thread beats what was measured; both beat what is assumed of a CPU.
    let fast = [product(256, 1, 100e3), product(256, 2, 60e3), product(32, 2, 100.0)].map(twice).concat();
    for hosts in [vec![measured()], vec![]] {
        let samples = gather_samples(&fast, &hosts, &Policy::default()).expect("samples");
        assert!(over_best(&samples).iter().all(|ratio| *ratio >= 1.0 - 1e-9), "{:?}", over_best(&samples));
    }
    // What was seen once proves nothing, and neither does what is hardly known.
    let once = gather_samples(&[product(256, 1, 100e3), product(256, 2, 250e3)], &[measured()], &Policy::default());
    assert_eq!(device(&once.expect("samples")).flops_per_ns_on(1.0), 120.0);
    let loose = Record { median_interval_ns: None, ..product(256, 1, 100e3) };
    let all = Policy { max_uncertainty: Some(f64::INFINITY), ..Policy::default() };
    let samples =
        gather_samples(&[twice(loose), twice(product(256, 2, 250e3))].concat(), &[measured()], &all).expect("samples");
    assert_eq!(device(&samples).flops_per_ns_on(1.0), 120.0);
}

#[test]
fn a_gpu_is_not_the_cpu_that_feeds_it() {
    let on_gpu = |record: Record| Record { target: Target::Cuda, device: Some("NVIDIA H100".to_owned()), ..record };
    let records = [on_gpu(product(1024, 1, 100e3)), on_gpu(product(512, 1, 30e3))];
    let samples = gather_samples(&records, &[measured()], &Policy::default()).expect("samples");
    let teraflops = device(&samples).flops_per_ns_on(1.0) / 1e3;
    assert!((teraflops - 21.47).abs() < 0.01, "the best that was reached: {teraflops}");
    assert_eq!(device(&samples).units, 1.0, "not the host's processors");
    assert!(over_best(&samples).iter().all(|ratio| *ratio >= 1.0 - 1e-9), "{:?}", over_best(&samples));
}

#[test]
fn a_device_whose_records_are_held_out_is_described_without_them() {
    let before = Policy { has_reached_peaks: false, ..Policy::default() };
    let on_gpu = |record: Record| Record { target: Target::Cuda, device: Some("NVIDIA H100".to_owned()), ..record };
    let thousandth = |ns: Option<f64>| ns.map(|ns| ns / 1000.0);
    let faster = |record: &Record| Record {
        median_ns: thousandth(record.median_ns),
        median_interval_ns: thousandth(record.median_interval_ns),
        ..record.clone()
    };
    let on_cpu = vec![product(256, 1, 100e3), product(256, 2, 60e3), product(32, 2, 100.0)];
    let on_gpu: Vec<Record> = on_cpu.iter().cloned().map(on_gpu).collect();
    for records in [on_cpu, on_gpu] {
        let faster: Vec<Record> = records.iter().map(faster).collect();
        for hosts in [vec![measured()], vec![]] {
            let of = |records: &[Record]| gather_samples(records, &hosts, &before).expect("samples");
            let (one, other) = (of(&records), of(&faster));
            assert_eq!(one.devices, other.devices, "its times say nothing of it");
            assert!(!one.has_reached_peaks);
        }
    }
    // What its host was measured at is known before.
    let samples = gather_samples(&[product(256, 1, 300.0)], &[measured()], &before).expect("samples");
    assert_eq!(device(&samples).flops_per_ns_on(1.0), 120.0);
}
