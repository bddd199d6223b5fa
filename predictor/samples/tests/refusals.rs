//! Tests that each kind of bad input gives one clear sentence, and that nothing is dropped silently.
#![allow(missing_docs)]

use samples::Samples;
use samples::records::{Policy, gather_samples};
use samples::table::{Mapping, read_samples};
use std::fmt::Write;

const MAPPING: &str = include_str!("made-up.toml");
const TABLE: &str = "op,device,time_us,b,m,n,k,kernel\n";

fn read(mapping: &str, table: &str) -> samples::Result<Samples> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mapping_path, table_path) = (folder.path().join("mapping.toml"), folder.path().join("table.csv"));
    let device = "\n[devices.here]\nunits = 4\nflops_per_cycle = 16\nclock_ghz = 1\nbandwidth_gb_per_s = 10\ncache_bytes = 1e6\n";
    std::fs::write(&mapping_path, format!("{mapping}{device}")).expect("a file");
    std::fs::write(&table_path, table).expect("a file");
    read_samples(&[table_path], &Mapping::read_file(&mapping_path)?)
}

#[test]
fn tables_that_cannot_be_trusted_are_refused_with_a_reason() {
    let row = "product,here,100,1,64,64,64,a\n";
    let good = format!("{TABLE}{row}");
    assert_eq!(read(MAPPING, &good).expect("a sample").rows.len(), 1);
    let seconds = MAPPING.replace("unit = \"us\"", "unit = \"ms\"");
    for (mapping, table, reason) in [
        (MAPPING, good.replace("kernel", "grid"), "the mapping lacks the column `grid`"),
        (MAPPING, good.replace(",k,", ",").replace(",64,64,64", ",64,64"), "the table lacks the column `k`"),
        (
            "operator = \"op\"\ntime = ]",
            good.clone(),
            "is not a mapping of operators and devices: TOML parse error at line 2",
        ),
        (MAPPING, good.replace("here", "there"), "the mapping does not describe the device `there`"),
        (MAPPING, good.replace("product", "conv"), "the mapping does not describe the operator `conv`"),
        (MAPPING, good.replace(",100,", ",fast,"), "the column `time_us` must contain numbers, but contains `fast`"),
        (MAPPING, good.replace(",100,", ",NaN,"), "no training data (1 row: time is not a positive number)"),
        (MAPPING, good.replace(",100,", ",inf,"), "no training data (1 row: time is not a positive number)"),
        (
            &*MAPPING.replace("after_run = [\"kernel\"]", "after_run = [\"kernel\", \"k\"]"),
            good.clone(),
            "the column `k` is known only after the run and cannot be the size `depth` of `product`",
        ),
        (
            &*MAPPING.replacen("form = \"contraction\"", "form = \"contraction\", kinds = [\"densee\"]", 1),
            good.clone(),
            "`kinds` of `product` has `densee`, which no operator is; did you mean `dense` or `q_dense`?",
        ),
        (MAPPING, good.replace(",100,", ",-3,"), "no training data (1 row: time is not a positive number)"),
        (MAPPING, good.replace(",64,64,64", ",64,,64"), "no training data (1 row: sizes are not positive"),
        (MAPPING, good.replace(",100,", ",0.0001,"), "the unit of `time_us` is probably not `us`"),
        (&*seconds, good.clone(), "the column `time_us` ends in `us`, but its unit is given as `ms`"),
    ] {
        let error = read(mapping, &table).expect_err(reason).to_string();
        assert!(error.contains(reason), "{error}\nwithout: {reason}");
    }
}

#[test]
fn names_may_be_numbers_and_a_choice_may_be_empty() {
    let row = "product,4090,100,1,64,64,64,\n";
    let device = "units = 4\nflops_per_cycle = 16\nclock_ghz = 1\nbandwidth_gb_per_s = 10\ncache_bytes = 1e6\n";
    let mapping = MAPPING.replace("after_run = [\"kernel\"]", "choice = \"kernel\"");
    let samples =
        read(&format!("{mapping}\n[devices.4090]\n{device}"), &format!("{TABLE}{row}{row}")).expect("samples");
    assert_eq!(samples.rows.len(), 2);
}

/// Rows that differ in the data type, a column under `after_run`, must not be averaged as repeats.
#[test]
fn rows_that_differ_only_in_an_unused_column_are_no_repeats() {
    let table = format!("{TABLE}product,here,100,1,64,64,64,bf16\nproduct,here,50,1,64,64,64,fp8\n");
    let refused = read(MAPPING, &table).expect_err("two data types").to_string();
    assert!(
        refused.contains("the column `kernel` is not a feature, but it alone distinguishes 1 row from others"),
        "{refused}"
    );
    assert!(refused.contains("(first: rows 1 and 2)"), "{refused}");
    let choice = MAPPING.replace("after_run = [\"kernel\"]", "choice = \"kernel\"");
    read(&choice, &table).expect_err("two choices");
    let same = table.replace("fp8", "bf16");
    assert_eq!(read(MAPPING, &same).expect("repeats").rows.len(), 2);
}

#[test]
fn repeats_whose_times_contradict_each_other_are_a_warning() {
    let table = format!("{TABLE}product,here,100,1,64,64,64,a\nproduct,here,250,1,64,64,64,a\n");
    let warnings = read(MAPPING, &table).expect("repeats").warnings;
    assert_eq!(warnings, [""; 0]);
    let table = format!("{table}product,here,2000,1,64,64,64,a\nproduct,here,90,2,64,64,64,a\n");
    let warnings = read(MAPPING, &table).expect("contradicting repeats").warnings;
    let expected = "the rows of 1 of 1 repeated experiments contradict each other";
    assert!(warnings[0].contains(expected) && warnings[0].contains("up to 20.0"), "{warnings:?}");
}

#[test]
fn few_rows_that_differ_so_are_a_warning() {
    let mut table = format!("{TABLE}product,here,100,1,64,64,64,a\nproduct,here,100,1,64,64,64,b\n");
    for depth in 65..1165 {
        writeln!(table, "product,here,1000,1,64,64,{depth},a").expect("a text takes any line");
    }
    let samples = read(MAPPING, &table).expect("mostly sound");
    assert!(
        samples.warnings.iter().any(|warning| warning.contains("the column `kernel` is not a feature")),
        "{:?}",
        samples.warnings
    );
}

/// Times in milliseconds under the unit of microseconds.
#[test]
fn times_far_above_the_bound_are_a_warning() {
    let table = |time: u64| {
        let row = |depth: u64| format!("product,here,{time},1,1024,1024,{depth},a\n");
        format!("{TABLE}{}", (1000..1100).map(row).collect::<String>())
    };
    let warnings = |time| read(MAPPING, &table(time)).expect("sound rows").warnings;
    // The bound is 33 ms.
    assert_eq!(warnings(3_300_000), [""; 0]);
    let long = warnings(100_000_000);
    assert!(long[0].contains("lower bound of its device; check that the unit of `time_us` is `us`"), "{long:?}");
}

#[test]
fn rows_without_a_time_are_counted() {
    let table = format!("{TABLE}product,here,100,1,64,64,64,a\nproduct,here,,1,64,64,64,a\n");
    let samples = read(MAPPING, &table).expect("one sample");
    assert_eq!((samples.rows.len(), samples.left_out["time is not a positive number"]), (1, 1));
}

#[test]
fn impossible_times_are_counted() {
    let mut table = format!("{TABLE}product,here,1e-300,1,64,64,64,a\nproduct,here,1e300,1,64,64,65,a\n");
    for depth in 66..166 {
        writeln!(table, "product,here,1000,1,64,64,{depth},a").expect("a text takes any line");
    }
    let samples = read(MAPPING, &table).expect("one sample");
    let left_out: Vec<(&str, u64)> = samples.left_out.iter().map(|(reason, count)| (reason.as_str(), *count)).collect();
    assert_eq!(samples.rows.len(), 100);
    assert_eq!(left_out, [("time is under a millionth or over a million times of the bound", 2)]);
}

#[test]
fn records_of_other_sources_and_versions_are_counted_not_mixed() {
    let record = |version: &str, source| datasets::Record {
        outcome: datasets::Outcome::Ok,
        tvm_version: Some(version.to_owned()),
        source,
        median_ns: Some(1000.0),
        schema_version: 5,
        median_interval_ns: Some(1.0),
        host_class: "here".to_owned(),
        task: None,
        ..datasets::Record::default()
    };
    use datasets::Source::{Measured, Simulated};
    let records = [record("2", Measured), record("2", Measured), record("1", Measured), record("2", Simulated)];
    let error = gather_samples(&records, &[], &Policy::default()).expect_err("no record has a task").to_string();
    for reason in
        ["1 row: not the most frequent TVM version, 2", "1 row: source `simulated`", "2 rows: the record has no task"]
    {
        assert!(error.contains(reason), "{error}");
    }
}

fn launched_products() -> String {
    let mut table = "op,device,time_us,b,m,n,k,kernel,grid_x,grid_y,grid_z,block_x\n".to_owned();
    for step in 0..300u64 {
        let size = |salt: u64, most: u64| 1 + (step * 7919 + salt * 104_729) % most;
        let (b, m, n, k) = (size(4, 9), size(1, 900), size(2, 700), size(3, 500));
        let time_us = 10.0 + (2 * b * m * n * k) as f64 / 40e3 + (4 * b * (m * n + n * k + m * k)) as f64 / 9e3;
        let (across, down) = (n.div_ceil(64), m.div_ceil(64));
        let _ = writeln!(table, "product,here,{time_us:.3},{b},{m},{n},{k},a,{across},{down},{b},256");
    }
    table
}

fn with_launches() -> String {
    let launch = r#"after_run = ["kernel", "grid_x", "grid_y", "grid_z", "block_x"]"#;
    MAPPING.replace(r#"after_run = ["kernel"]"#, launch)
}

#[test]
fn a_mapping_that_exchanges_sizes_is_refused_by_the_launch_grids() {
    let (right, table) = (with_launches(), launched_products());
    let samples = read(&right, &table).expect("the right mapping");
    assert!(samples.rows.len() == 300 && samples.warnings.is_empty(), "{:?}", samples.warnings);
    for (own, wrong, hint) in [
        (r#"columns = "n", depth = "k""#, r#"columns = "k", depth = "n""#, r#"columns = "n", depth = "k""#),
        (
            r#"rows = "m", columns = "n", depth = "k""#,
            r#"rows = "k", columns = "n", depth = "m""#,
            r#"rows = "m", depth = "k""#,
        ),
        (
            r#"batch = "b", rows = "m", columns = "n", depth = "k""#,
            r#"batch = "k", rows = "m", columns = "n", depth = "b""#,
            r#"batch = "b", depth = "k""#,
        ),
    ] {
        let error = read(&right.replace(own, wrong), &table).expect_err(wrong).to_string();
        for said in ["launch grids of `product`", hint, "correct the mapping"] {
            assert!(error.contains(said), "{error}\nwithout: {said}");
        }
    }
}

#[test]
fn grids_that_say_nothing_refuse_nothing() {
    // As many blocks as the device has units, each of which takes many tiles: the grids go with no size.
    let persistent: String = launched_products()
        .lines()
        .map(|line| match line.starts_with("op") {
            true => format!("{line}\n"),
            false => format!("{},4,1,1,256\n", line.splitn(9, ',').take(8).collect::<Vec<_>>().join(",")),
        })
        .collect();
    let warnings = read(&with_launches(), &persistent).expect("the right mapping").warnings;
    assert!(warnings.len() == 1 && warnings[0].contains("than a thread has registers"), "{warnings:?}");
}

#[test]
fn rows_that_cannot_be_are_doubted_and_many_of_them_refused() {
    let with_memory = with_launches()
        + "\n[devices.large]\nunits = 4\nflops_per_cycle = 16\nclock_ghz = 1\nbandwidth_gb_per_s = 10\ncache_bytes = 1e6\nmemory_bytes = 1e6\n";
    let table = launched_products();
    // So many of the rows get something else.
    let changed = |count: usize, change: &dyn Fn(&str) -> String| -> String {
        let line = |(place, line): (usize, &str)| match (1..=count).contains(&place) {
            true => format!("{}\n", change(line)),
            false => format!("{line}\n"),
        };
        table.lines().enumerate().map(line).collect()
    };
    let cell = |place: usize, with: &'static str| {
        move |line: &str| {
            let mut cells: Vec<&str> = line.split(',').collect();
            cells[place] = with;
            cells.join(",")
        }
    };
    for (change, what) in [
        (&cell(2, "0.9") as &dyn Fn(&str) -> String, "are faster than the peak of their device"),
        (&cell(1, "large"), "larger than the memory of their device"),
        (&|line: &str| line.replacen(",a,", ".5,a,", 1), "sizes that are not whole numbers"),
    ] {
        let warnings = read(&with_memory, &changed(2, change)).expect(what).warnings;
        assert!(warnings.iter().any(|warning| warning.contains(what) && warning.contains("first row")), "{warnings:?}");
        let error = read(&with_memory, &changed(60, change)).expect_err(what).to_string();
        assert!(error.contains(what) && error.contains("depth = \"k\"") && error.contains("`time_us`"), "{error}");
    }
}

#[test]
fn rows_of_queries_have_whole_sizes() {
    let mapping = Mapping::parse_text(&format!("{MAPPING}\n[devices]\n"), std::path::Path::new("m.toml"));
    let mapping = mapping.expect("a mapping");
    let sizes = |rows: f64| [("b", 1.0), ("m", rows), ("n", 64.0), ("k", 64.0), ("time_us", 3.5)].into();
    assert!(mapping.work_from_columns("product", &sizes(64.0)).is_ok());
    let refused = mapping.work_from_columns("product", &sizes(64.5)).expect_err("half a row");
    assert_eq!(refused, "`m` is 64.5, not a whole number");
    assert!(!mapping.columns_of("product").contains(&"time_us"));
}
