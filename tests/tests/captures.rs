//! Captures of TPU cards and their traces, through the command line.
#![allow(missing_docs)]

#[allow(dead_code, reason = "the tests of the reader use all of it")]
#[path = "../../collector/capture/tests/tpu/card.rs"]
mod card;

use card::{File, small_core};
use tests::{Bench, run};

fn captures(bench: &Bench, cores: [File; 2]) {
    for (name, core) in ["before", "after"].into_iter().zip(cores) {
        let written = card::write(&bench.path(name), &[(0, core)]);
        std::fs::rename(written, bench.path(&format!("{name}-0"))).expect("renamed");
    }
}

fn product_of(cycles: [u32; 3]) -> File {
    let (mut tiu, gdma, mut nodes) = card::preamble();
    nodes.extend(card::kernel("mm"));
    nodes.push(card::reset(0));
    for (at, cycles) in [2000, 12_000, 22_000].into_iter().zip(cycles) {
        tiu.push([at, at + cycles - 1, tiu.len() as u32 - 2, 0]);
        nodes.push(card::node(0, 2, 4, 1));
    }
    // An equal last record, so that all captures have the same duration.
    tiu.push([40_000, 40_499, 3, 0]);
    nodes.push(card::node(0, 3, 14, 1));
    File::default().tiu(&tiu).gdma(&gdma).nodes(&nodes)
}

#[test]
fn equal_captures_are_reported() {
    let bench = Bench::new();
    captures(&bench, [small_core(0), small_core(0)]);
    let ran = run(bench.opcollect("tpu compare before-0 after-0 --fail-on slower")).expect(0);
    assert_eq!(
        ran.stdout, "no differences: 4 operators with equal counts and times in both captures of 1.21 µs\n",
        "{ran}"
    );
    let ran = run(bench.opcollect("tpu compare before-0 after-0 --json")).expect(0);
    let json: serde_json::Value = serde_json::from_str(ran.stdout.trim()).expect("JSON");
    assert_eq!((&json["equal"], &json["slower"]), (&true.into(), &false.into()));
    assert_eq!(json["changes"].as_array().map(Vec::len), Some(4), "scripts get them all");
}

#[test]
fn a_slower_capture_fails_on_request() {
    let bench = Bench::new();
    captures(&bench, [product_of([1000, 1010, 990]), product_of([1200, 1210, 1190])]);
    let ran = run(bench.opcollect("tpu compare before-0 after-0")).expect(0);
    assert!(ran.stdout.contains("MM2_NN") && ran.stdout.contains("1.200"), "{ran}");
    assert!(!ran.stdout.contains("data_convert"), "equal operators are not listed\n{ran}");
    let verdict =
        "of 2 operators in both captures, 1 became significantly slower and 0 faster by more than 5 %; 1 are equal";
    assert!(ran.stdout.contains(verdict), "{ran}");
    run(bench.opcollect("tpu compare before-0 after-0 --fail-on slower")).expect(4);
    run(bench.opcollect("tpu compare before-0 after-0 --fail-on slower --json")).expect(4);
    run(bench.opcollect("tpu compare before-0 after-0 --fail-on slower --threshold 30")).expect(0);
    run(bench.opcollect("tpu compare after-0 before-0 --fail-on slower")).expect(0);
    run(bench.opcollect("tpu compare before-0 after-0 --fail-on slower --threshold=-1")).expect(2);
    // The same growth of the mean is not significant if runs differ by as much.
    let bench = Bench::new();
    captures(&bench, [product_of([500, 1000, 1500]), product_of([700, 1200, 1700])]);
    run(bench.opcollect("tpu compare before-0 after-0 --fail-on slower")).expect(0);
}

#[test]
fn an_import_reports_as_text_and_json() {
    let bench = Bench::new();
    captures(&bench, [small_core(0), small_core(5)]);
    let ran = run(bench.opcollect("tpu import before-0 --store store")).expect(0);
    assert_eq!(ran.stdout, "the store `store` has 4 rows of `before-0`, one per operator and core\n");
    let ran = run(bench.opcollect("tpu import before-0 --store store --commands --json")).expect(0);
    let json: serde_json::Value = serde_json::from_str(ran.stdout.trim()).expect("JSON");
    assert_eq!((&json["rows"], &json["new_rows"]), (&4.into(), &4.into()), "{ran}");
    for flags in ["", "--commands"] {
        let again = run(bench.opcollect(&format!("tpu import before-0 --store store --json {flags}"))).expect(0).json();
        assert_eq!((&again["rows"], &again["new_rows"]), (&4.into(), &0.into()), "repeated rows");
    }
    // A core with nothing but messages.
    let (tiu, _, nodes) = card::preamble();
    let sends = [0, 1, 2, 3, 4, 5].map(|id| [900 + 150 * id, 911 + 150 * id, id, 0, 0, 0]);
    let idle = File::default().tiu(&tiu).gdma(&sends).nodes(&nodes);
    let bench = Bench::new();
    captures(&bench, [idle.clone(), idle]);
    let ran = run(bench.opcollect("tpu import before-0 --store store")).expect(0);
    assert!(ran.stdout.starts_with("`before-0` contains no commands of the card"), "{ran}");
}

#[test]
fn a_view_reports_outputs_and_losses() {
    let bench = Bench::new();
    captures(&bench, [small_core(0), small_core(5)]);
    let ran = run(bench.opcollect("tpu view before-0 out")).expect(0);
    assert_eq!(
        ran.stdout.lines().last(),
        Some(
            "wrote into `out`: summary.txt, perfetto.pftrace, 2 register reports (*RegInfo_*.txt), \
             PerfDoc/PerfAI_output.xlsx, PerfDoc/PerfAI_output.csv, PerfWeb/result.html"
        ),
        "{ran}"
    );
    for name in ["summary.txt", "perfetto.pftrace", "PerfDoc/PerfAI_output.xlsx", "PerfWeb/result.html"] {
        assert!(bench.path("out").join(name).is_file(), "{name}");
    }
    let nothing = "tpu view before-0 none --disable_summary --disable_perfetto --disable_doc --disable_web";
    assert_eq!(run(bench.opcollect(nothing)).expect(0).stdout, "wrote nothing: all outputs are disabled\n");
    // Wrong paths are refused before anything is written or run.
    bench.write("file", "");
    bench.write("text.json", "no trace");
    bench.write("broken.json", r#"{"traceEvents": [1]}"#);
    let views = [
        ("file", "`file` is not a folder"),
        ("file/below", "`file` is not a folder"),
        ("new --trace_file none.json", "cannot read `none.json`"),
        ("new --trace_file text.json", "cannot read the host trace `text.json`"),
        ("new --trace_file broken.json", "cannot read the host trace `broken.json`"),
    ];
    for (arguments, why) in views {
        let ran = run(bench.opcollect(&format!("tpu view before-0 {arguments}"))).expect(2);
        assert!(ran.stderr.contains(why) && ran.stdout.is_empty() && !bench.path("new").exists(), "{ran}");
    }
    let ran = run(bench.opcollect("tpu capture --out file -- touch ran")).expect(2);
    assert!(ran.stderr.contains("is not a folder") && !bench.path("ran").exists(), "{ran}");
    // Every command reports a core whose file is empty while another core's is not.
    let both = card::write(&bench.path(""), &[(0, small_core(0)), (1, small_core(5))]);
    std::fs::write(both.join("cdmlib0_1.profile"), "").expect("writable");
    let name = both.file_name().expect("a name").to_string_lossy();
    for command in [
        format!("tpu view {name} out"),
        format!("tpu import {name} --store store"),
        format!("tpu compare before-0 {name}"),
    ] {
        let ran = run(bench.opcollect(&command)).expect(1);
        assert!(ran.stderr.contains("none of the 4 TIU records that global.profile declares"), "{ran}");
        assert!(ran.stderr.contains("2 parts of the capture were skipped"), "{ran}");
    }
}

#[test]
fn queries_are_bounded_in_time_and_memory() {
    let bench = Bench::new();
    captures(&bench, [small_core(0), small_core(5)]);
    run(bench.opcollect("tpu view before-0 out --disable_doc --disable_web")).expect(0);
    let ask = |question: &str, flags: &[&str]| {
        let mut command = bench.opcollect("trace query out/perfetto.pftrace");
        command.arg(question).args(flags);
        run(command)
    };
    let count = ask("select count(*) from slice", &[]).expect(0).stdout;
    let plain = std::fs::read(bench.path("out/perfetto.pftrace")).expect("it was written");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &plain).expect("memory can be written");
    std::fs::write(bench.path("packed.pftrace.gz"), packed.finish().expect("memory can be written")).expect("writable");
    let mut command = bench.opcollect("trace query packed.pftrace.gz");
    command.arg("select count(*) from slice");
    assert_eq!(run(command).expect(0).stdout, count, "compressed traces are read, too");
    let endless = "with recursive t(x) as (select 1 union all select x + 1 from t) select max(x) from t";
    let ran = ask(endless, &["--seconds", "0.2"]).expect(2);
    assert!(ran.stderr.starts_with("error: the query did not finish within 0.2 s\nhint: "), "{ran}");
    // A single step of SQLite that would take hours.
    let search = "select instr(hex(zeroblob(20000000)), hex(zeroblob(5000000)) || '1')";
    let ran = ask(search, &["--seconds", "0.2"]).expect(2);
    assert!(ran.stderr.starts_with("error: the query did not finish within 0.2 s"), "{ran}");
    let growing = "with recursive t(x) as (select 1 union select x + 1 from t) select max(x) from t";
    let ran = ask(growing, &["--memory-mib", "16"]).expect(2);
    assert!(ran.stderr.starts_with("error: tables and result of the query need more than 16 MiB of memory"), "{ran}");
    let long =
        "with recursive t(x) as (select 1 union all select x + 1 from t limit 20000) select printf('%1000d', x) from t";
    let ran = ask(long, &["--memory-mib", "16"]).expect(2);
    assert!(ran.stderr.starts_with("error: the result of the query has more than 1000000 rows or 16 MiB"), "{ran}");
    let ran = ask("attach 'other.db' as other", &[]).expect(2);
    assert!(ran.stderr.starts_with("error: query rejected: attaching another database"), "{ran}");
    assert!(!bench.path("other.db").exists());
    for seconds in ["0", "-1", "nan", "1e300"] {
        ask("select 1", &["--seconds", seconds]).expect(2);
    }
}
