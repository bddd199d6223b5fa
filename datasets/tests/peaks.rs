//! Tests of the peak rates of hosts.
#![allow(missing_docs)]

use datasets::peaks::{ComputeRate, MemoryRate};
use datasets::{CacheState, Json, Key, NETWORK, Outcome, Peaks, PeaksMeasured, Reached, Record, Store};

const MINUTE_US: i64 = 60_000_000;

/// Returns rates of one thread: operations, and bandwidth for 32 KiB and for 16 MiB.
fn measured(minute: i64, flops: f64, near: f64, far: f64) -> PeaksMeasured {
    let memory = |working_set_bytes, bytes_per_second| rate(working_set_bytes, "triad", bytes_per_second);
    PeaksMeasured {
        compute: vec![ComputeRate { threads: 1, flops_per_second: flops }],
        memory: vec![memory(1 << 15, near), memory(1 << 24, far)],
        ..PeaksMeasured::new("bench-1", "class", "0.1.0", minute * MINUTE_US)
    }
}

fn rate(working_set_bytes: u64, kind: &str, bytes_per_second: f64) -> MemoryRate {
    MemoryRate {
        threads: 1,
        working_set_bytes,
        level: Some("L1".to_owned()),
        kind: Some(kind.to_owned()),
        bytes_per_second,
    }
}

fn best(measured: &[PeaksMeasured]) -> (f64, Option<f64>) {
    let peak = Peaks::from_measurements(measured).compute[0];
    (peak.flops_per_second, peak.certainty.spread)
}

/// Returns a record of a 64 × 64 × 64 product on one thread.
fn product(median_ns: f64, half_width_ns: Option<f64>) -> Record {
    Record {
        outcome: Outcome::Ok,
        op_kind: "matmul".to_owned(),
        op_name: "matmul".to_owned(),
        dtype: Some("f32".to_owned()),
        flops: Some(524288),
        macs: Some(262144),
        bytes_in: Some(32768),
        bytes_out: Some(16384),
        threads: Some(1),
        median_ns: Some(median_ns),
        median_interval_ns: half_width_ns,
        ..Record::default()
    }
}

#[test]
fn the_best_that_lasts_is_the_peak() {
    let of = |rates: &[(i64, f64)]| {
        let all: Vec<PeaksMeasured> =
            rates.iter().map(|(minute, flops)| measured(*minute, *flops, 2e10, 1e10)).collect();
        best(&all)
    };
    assert_eq!(of(&[(0, 155e9)]), (155e9, None), "one measurement has no spread");
    assert_eq!(
        of(&[(0, 155e9), (5, 228e9), (9, 225e9)]),
        (228e9, Some(73e9 / 2.0 / 228e9)),
        "beside other load it was less"
    );
    assert_eq!(of(&[(0, 400e9), (3, 228e9), (9, 225e9)]).0, 228e9, "nothing confirms the first");
    assert_eq!(of(&[(0, 100e9), (9, 228e9)]).0, 228e9, "other load only lowers");
    assert_eq!(of(&[(0, 400e9), (0, 399e9), (3, 228e9), (9, 225e9)]).0, 228e9, "twice at once is once");
}

fn attempt(experiment: u8, started_at_us: i64, record: Record) -> Record {
    Record { key: Key([experiment; 16]), started_at_us, ..record }
}

#[test]
fn no_peak_is_below_what_two_visits_of_an_operator_reached() {
    let mut peaks = Peaks::from_measurements(&[measured(0, 100e9, 2e10, 1e10)]);
    let mut reached = Reached::default();
    // 524288 operations in 4 µs are 131 GFLOP/s; the record with the wide interval would be 524.
    let all = [
        product(4000.0, Some(10.0)),
        product(1000.0, Some(2000.0)),
        product(1000.0, None),
        Record { co_run: Some(Json::new(&["other"]).expect("JSON")), ..product(1000.0, Some(1.0)) },
    ];
    for (experiment, record) in (0..).zip(all) {
        reached.add_record(&attempt(experiment, 1, record.clone()));
        reached.add_record(&attempt(experiment, 2, record));
    }
    peaks.raise_peaks(&reached);
    let peak = peaks.compute[0];
    assert_eq!((peak.flops_per_second, peak.certainty.is_reached), (524288.0 / 4e-6, true));
    let attainable = |threads| peaks.attainable_ns(threads, 524288.0, 49152.0, CacheState::Warm);
    let one = attainable(1).expect("one thread is known");
    assert!((one - 4000.0).abs() < 1e-6, "{one}");
    assert_eq!(attainable(2), None, "of two threads nothing was measured");
}

#[test]
fn one_visit_raises_no_peak() {
    let peak = |attempts: &[(u8, i64, f64)]| {
        let mut peaks = Peaks::from_measurements(&[measured(0, 100e9, 2e10, 1e10)]);
        let mut reached = Reached::default();
        let of = |(experiment, at, ns): &(u8, i64, f64)| attempt(*experiment, *at, product(*ns, Some(0.0)));
        attempts.iter().map(of).for_each(|record| reached.add_record(&record));
        peaks.raise_peaks(&reached);
        (peaks.compute[0].flops_per_second, peaks.compute[0].certainty.is_reached)
    };
    let gflops = |ns: f64| 524288.0 / ns * 1e9;
    assert_eq!(peak(&[(1, 1, 4000.0)]), (100e9, false), "once");
    assert_eq!(peak(&[(1, 1, 4000.0), (1, 1, 4000.0)]), (100e9, false), "one attempt, read twice");
    assert_eq!(peak(&[(1, 1, 4000.0), (2, 2, 4000.0)]), (100e9, false), "two experiments");
    assert_eq!(peak(&[(1, 1, 4000.0), (1, 2, 4100.0)]), (gflops(4100.0), true), "what both reached");
    assert_eq!(peak(&[(1, 1, 4100.0), (1, 2, 1000.0), (1, 3, 4000.0)]), (gflops(4000.0), true), "one was lucky");
    assert_eq!(peak(&[(1, 1, 4000.0), (1, 2, 9000.0)]), (100e9, false), "the other one did not get so far");
}

/// Bytes that may not have been moved must not raise the bandwidth, nor integer operations the floating-point peak.
#[test]
fn only_what_surely_is_moved_counts() {
    let of = |record: Record| {
        let mut reached = Reached::default();
        for started_at_us in [1, 2] {
            let known = Record { median_ns: Some(10.0), median_interval_ns: Some(0.0), ..record.clone() };
            reached.add_record(&Record { started_at_us, ..known });
        }
        (usize::from(reached.flops_per_second(1).is_some()), reached.bytes_per_second().count())
    };
    let plain = |kind: &str, flops: i64| Record {
        op_kind: kind.to_owned(),
        op_name: kind.to_owned(),
        flops: Some(flops),
        macs: Some(0),
        ..product(10.0, Some(0.0))
    };
    assert_eq!(of(product(10.0, None)), (1, 1));
    assert_eq!(of(Record { dtype: Some("i8".to_owned()), ..product(10.0, None) }), (0, 1));
    assert_eq!(
        of(Record { op_kind: "conv2d".to_owned(), ..product(10.0, None) }),
        (1, 0),
        "steps may leave pixels out"
    );
    let saving = serde_json::json!({"from": "template", "knobs": {"algorithm": "winograd4", "block": 32, "tile_p": 7}});
    let saving = Json::new(&saving).expect("JSON");
    assert_eq!(
        of(Record { op_kind: "conv2d".to_owned(), schedule: Some(saving), ..product(10.0, None) }),
        (0, 0),
        "fewer products than are counted"
    );
    assert_eq!(
        of(Record { op_kind: "attention".to_owned(), ..product(10.0, None) }),
        (0, 0),
        "earlier versions counted pairs that are skipped"
    );
    assert_eq!(of(plain("relu", 8192)), (0, 1));
    let cold = |record| Record { cache_state: Some(CacheState::Cold), ..record };
    assert_eq!(
        (of(cold(plain("relu", 8192))), of(cold(product(10.0, None)))),
        ((0, 0), (1, 0)),
        "not from its footprint"
    );
    assert_eq!(of(plain("slice", 0)), (0, 0));
    assert_eq!(of(plain("max_pool", 100)), (0, 0), "fewer operations than elements");
    assert_eq!(of(Record { op_name: "slice+relu".to_owned(), ..plain("slice", 8192) }), (0, 0));
    assert_eq!(of(Record { outcome: Outcome::WrongResult, ..product(10.0, None) }), (0, 0));
    assert_eq!(of(Record { op_kind: NETWORK.to_owned(), ..product(10.0, None) }), (0, 0), "many operators");
}

#[test]
fn memory_is_slower_the_more_is_moved() {
    let peaks = Peaks::from_measurements(&[measured(0, 1e9, 1e10, 3e10)]);
    assert_eq!(peaks.bytes_per_second(1.0, 4096.0), Some(3e10), "a disturbed measurement of little memory");
    let peaks = Peaks::from_measurements(&[measured(0, 1e9, 9e10, 1e10)]);
    let rates = [1e3, 4e4, 1.6e7, 1e9].map(|bytes| peaks.bytes_per_second(1.0, bytes).expect("known"));
    assert_eq!(rates, [9e10, 9e10, 9e10, 1e10]);
}

#[test]
fn cold_operands_come_from_the_last_level() {
    let peaks = Peaks::from_measurements(&[measured(0, 1e9, 9e10, 1e10)]);
    let attainable = |caches| peaks.attainable_ns(1, 0.0, 9000.0, caches).expect("known");
    assert_eq!([CacheState::Warm, CacheState::Cold].map(attainable), [100.0, 900.0]);
}

#[test]
fn the_fastest_kind_of_stream_is_the_peak_of_a_working_set() {
    let with_kinds = |minute, kinds: &[(&str, f64)]| {
        let memory = kinds.iter().map(|(kind, bytes_per_second)| rate(1 << 15, kind, *bytes_per_second));
        PeaksMeasured { memory: memory.collect(), ..measured(minute, 1e9, 0.0, 0.0) }
    };
    let measured = [with_kinds(0, &[("read", 5e10), ("copy", 8e10)]), with_kinds(5, &[("read", 5e10), ("copy", 4e10)])];
    let peak = &Peaks::from_measurements(&measured).memory[0];
    // The first copy is unconfirmed; the read was measured twice.
    assert_eq!((peak.bytes_per_second, peak.certainty.measurements), (8e10, 2));
    let measured = [&measured[..], &[with_kinds(9, &[("read", 5e10), ("copy", 4.1e10)])]].concat();
    assert_eq!(Peaks::from_measurements(&measured).memory[0].bytes_per_second, 5e10, "of copies the lower rate lasts");
}

/// Bandwidths of version 1 come from other loops and working sets, so they count only without newer bandwidths.
#[test]
fn earlier_versions_are_read_and_count_where_there_is_no_other() {
    let text = r#"{"version": 1, "host": "bench-1", "host_class": "class", "program_version": "0.1.0", "taken_at_us": 1,
        "compute": [{"threads": 1, "flops_per_second": 1e9}],
        "memory": [{"threads": 1, "working_set_bytes": 32768, "bytes_per_second": 9e10},
                   {"threads": 2, "working_set_bytes": 32768, "bytes_per_second": 8e10}]}"#;
    let old: PeaksMeasured = serde_json::from_str(text).expect("a file of version 1");
    assert!(!old.is_current() && measured(5, 1e9, 2e10, 1e10).is_current());
    let rates = |measured: &[PeaksMeasured], threads| Peaks::from_measurements(measured).bytes_per_second(threads, 1e9);
    assert_eq!(rates(std::slice::from_ref(&old), 1.0), Some(9e10));
    let both = [old, measured(5, 1e9, 2e10, 1e10)];
    assert_eq!((rates(&both, 1.0), rates(&both, 2.0)), (Some(1e10), Some(8e10)));
    assert_eq!(
        Peaks::from_measurements(&both).compute[0].certainty.measurements,
        2,
        "arithmetic is measured as before"
    );
}

#[test]
fn threads_between_are_in_proportion() {
    let mut two = measured(0, 100e9, 2e10, 1e10);
    two.compute.push(ComputeRate { threads: 4, flops_per_second: 160e9 });
    let peaks = Peaks::from_measurements(&[two]);
    let rates = [1.0, 2.0, 4.0, 8.0].map(|threads| peaks.flops_per_second(threads).expect("known"));
    assert_eq!(rates, [100e9, 120e9, 160e9, 160e9]);
    assert_eq!(Peaks::default().flops_per_second(1.0), None);
}

#[test]
fn measurements_stay_with_their_store_and_are_merged() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = |name: &str| Store::create(&folder.path().join(name)).expect("a store");
    let (one, two) = (store("one"), store("two"));
    let (first, second) = (measured(0, 1e9, 2e9, 1e9), measured(7, 2e9, 2e9, 1e9));
    one.keep_peaks(&first).expect("kept");
    one.keep_peaks(&first).expect("the same again is one");
    two.keep_peaks(&second).expect("kept");
    assert_eq!(one.peaks().expect("read"), std::slice::from_ref(&first));
    for _ in 0..2 {
        one.merge_with(&two, &|_| None).expect("merged");
        assert_eq!(one.peaks().expect("read"), [first.clone(), second.clone()]);
    }
    assert!(one.verify().expect("looked at").problems.is_empty());

    // A flipped bit makes the file invalid; a host name may contain anything.
    let other = PeaksMeasured { host: "../../etc".to_owned(), ..second.clone() };
    two.keep_peaks(&other).expect("kept");
    let files = |store: &Store| walk(&store.root().join("hosts"));
    assert_eq!((files(&one).len(), files(&two).len()), (2, 2));
    for path in files(&two) {
        let text = std::fs::read_to_string(&path).expect("text");
        std::fs::write(&path, text.replace("2000000000", "9000000000")).expect("written");
    }
    assert_eq!(two.peaks().expect("read"), []);
}

#[test]
fn what_is_wrong_among_measurements_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::create(&folder.path().join("store")).expect("a store");
    let (first, second) = (measured(0, 1e9, 2e9, 1e9), measured(7, 2e9, 2e9, 1e9));
    store.keep_peaks(&first).expect("kept");
    let hosts = store.root().join("hosts");
    let [path] = walk(&hosts).try_into().expect("one file");
    let named = || {
        let problems = store.verify().expect("looked at").problems;
        problems.into_iter().map(|problem| (problem.file, problem.problem)).collect::<Vec<_>>()
    };
    let sound = std::fs::read(&path).expect("text");
    // Flipped bits, empty content, an additional byte.
    let mut damaged: Vec<Vec<u8>> = (0..sound.len()).step_by(97).map(|at| flipped(&sound, at)).collect();
    damaged.extend([Vec::new(), [&sound[..], b" "].concat()]);
    for content in damaged {
        std::fs::write(&path, content).expect("written");
        let [(file, problem)] = named().try_into().expect("one problem");
        assert_eq!(file, path);
        assert!(problem.contains("does not match the hash in the file name"), "{problem}");
        assert_eq!(store.peaks().expect("the rest goes on"), []);
    }
    // A store with an intact copy repairs this one.
    let other = Store::create(&folder.path().join("other")).expect("a store");
    other.keep_peaks(&first).expect("kept");
    let damaged = std::fs::read(&path).expect("text");
    store.merge_with(&other, &|_| None).expect("merged");
    assert_eq!((store.peaks().expect("read"), named()), (vec![first.clone()], Vec::new()));
    std::fs::write(&path, damaged).expect("written");
    let aside = store.quarantine().expect("set aside").files;
    assert!(aside.len() == 1 && aside[0].file == path && aside[0].to.exists(), "{aside:?}");
    assert_eq!(named(), []);

    // Foreign files are reported and do no harm.
    store.keep_peaks(&first).expect("kept");
    store.keep_peaks(&second).expect("kept");
    let host = path.parent().expect("a host");
    let copy = hosts.join("other").join(path.file_name().expect("a name"));
    std::fs::create_dir(hosts.join("other")).expect("made");
    std::fs::copy(&path, &copy).expect("copied");
    let stray_folder = host.join("peaks-0.json");
    std::fs::create_dir(&stray_folder).expect("made");
    let strays = [hosts.join("notes.txt"), host.join("notes.txt"), host.join("peaks.json")];
    strays.iter().for_each(|stray| std::fs::write(stray, "mine").expect("written"));
    assert_eq!(store.peaks().expect("read"), [first, second]);
    let wrong = b"{}";
    let unusable = host.join(format!("peaks-{}.json", blake3::hash(wrong).to_hex()));
    std::fs::write(&unusable, wrong).expect("written");
    let says = [
        (&stray_folder, "does not match the hash"),
        (&copy, "the file must be in"),
        (&unusable, "not a usable measurement"),
        (&strays[0], "is ignored"),
        (&strays[1], "is ignored"),
        (&strays[2], "is ignored"),
    ];
    let found = named();
    assert_eq!(found.len(), says.len(), "{found:?}");
    for (file, words) in says {
        assert!(found.iter().any(|(named, problem)| named == file && problem.contains(words)), "{file:?} in {found:?}");
    }
}

fn flipped(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 1;
    bytes
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let folders = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    folders
        .flat_map(|host| std::fs::read_dir(host).expect("a folder").map(|file| file.expect("a file").path()))
        .collect()
}
