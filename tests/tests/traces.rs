//! Traces of other profilers and of this project, through the command line.
#![allow(missing_docs)]

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use tests::workspace::root;
use tests::{Bench, browser, run, skip, stores};

fn case(name: &str) -> PathBuf {
    root().join("collector/profile/tests/traces").join(name)
}

fn venv() -> PathBuf {
    root().join(".venv/bin/python")
}

fn has(python: &Path, module: &str) -> bool {
    let asked = Command::new(python).args(["-c", &format!("import {module}")]).output();
    asked.is_ok_and(|asked| asked.status.success())
}

/// Returns the rows of `trace top` as texts: name, shapes, number of calls, and the values of `keys`.
fn sums(rows: &Value, keys: [&str; 2]) -> BTreeSet<String> {
    let row = |row: &Value| {
        let shapes = row.get("input_shapes").unwrap_or(&Value::Null);
        format!("{} {shapes} {} {:?}", row["name"], row["count"], keys.map(|key| &row[key]))
    };
    rows.as_array().expect("rows").iter().map(row).collect()
}

fn fresh(bench: &Bench, python: &Path, which: &str) -> Value {
    let mut command = Command::new(python);
    command.arg(root().join("scripts/trace_cases.py")).arg(which).arg(bench.path("."));
    let done = command.output().expect("Python runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut text = Vec::new();
    let packed = std::fs::File::open(bench.path(&format!("{which}.averages.json.gz"))).expect("it was written");
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(packed), &mut text).expect("it is packed");
    serde_json::from_slice(&text).expect("rows")
}

#[test]
fn a_fresh_torch_trace_matches_torch() {
    let python = Path::new("python3");
    if !has(python, "torch") {
        return skip("there is no Python with PyTorch to write a fresh trace; one that it wrote is read all the same");
    }
    let bench = Bench::new();
    let theirs = fresh(&bench, python, "torch");
    let keys = ["self_cpu_time_total_ns", "cpu_time_total_ns"];
    let mut top = run(bench.opcollect("trace top torch.json.gz --json --row-limit 1000")).expect(0).json();
    let mut expected = theirs["name"].clone();
    for row in expected.as_array_mut().expect("rows") {
        row.as_object_mut().expect("a row").remove("input_shapes");
    }
    assert_eq!(sums(&top["rows"], keys), sums(&expected, keys));
    top =
        run(bench.opcollect("trace top torch.json.gz --json --row-limit 1000 --group-by-input-shape")).expect(0).json();
    assert_eq!(sums(&top["rows"], keys), sums(&theirs["shape"], keys));
}

#[test]
fn a_fresh_onnxruntime_trace_is_summed_by_operator() {
    if !has(&venv(), "onnxruntime") {
        return skip("there is no ONNX Runtime to write a fresh trace; one that it wrote is read all the same");
    }
    let bench = Bench::new();
    let theirs = fresh(&bench, &venv(), "onnxruntime");
    let top = run(bench.opcollect("trace top onnxruntime.json.gz --json")).expect(0).json();
    let keys = ["cpu_time_total_ns", "count"];
    let ours = sums(&top["rows"], keys);
    assert!(sums(&theirs, keys).is_subset(&ours), "{theirs} in {top}");
}

#[test]
fn tables_csv_and_limits() {
    let bench = Bench::new();
    let trace = case("torch.json.gz");
    let text = run(bench.opcollect(&format!(
        "trace top {} --sort-by count --row-limit 2 --csv rows.csv --html page.html",
        trace.display()
    )));
    let text = text.expect(0).stdout;
    assert!(text.contains("Self CPU %") && text.contains("Self CPU time total: "), "{text}");
    // A heading, a rule, two rows and the footer.
    assert_eq!(text.lines().count(), 5, "{text}");
    let csv = std::fs::read_to_string(bench.path("rows.csv")).expect("it was written");
    assert!(
        csv.starts_with("name,kind,scope,input_shapes,count,self_cpu_time_total_ns") && csv.lines().count() > 20,
        "{csv}"
    );
    let tvm = run(bench.opcollect(&format!("trace top {} --style tvm", trace.display()))).expect(0).stdout;
    assert!(tvm.contains("Duration (us)") && tvm.contains("\nSum ") && tvm.contains("\nTotal "), "{tvm}");
    let refused = run(bench.opcollect(&format!("trace top {} --sort-by slowness", trace.display()))).expect(2);
    assert!(refused.stderr.contains("self_cpu_time_total"), "{refused:?}");
    let small = run(bench.opcollect("trace top nothing.json")).expect(2);
    assert!(small.stderr.contains("cannot read the trace `nothing.json`"), "{small:?}");
}

#[test]
fn faults_of_a_trace_are_counted() {
    let bench = Bench::new();
    bench.write(
        "broken.json",
        r#"{"traceEvents":[
        {"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":0,"dur":10},
        {"ph":"X","cat":"cpu_op","name":"b","pid":1,"tid":1,"ts":5,"dur":10},
        {"ph":"X","cat":"cpu_op","name":"c","pid":1,"tid":1,"ts":20,"dur":-3},
        {"ph":"s","id":1,"cat":"ac2g","name":"ac2g","pid":1,"tid":1,"ts":1},
        {"ph":"f","id":2,"cat":"ac2g","name":"ac2g","pid":9,"tid":9,"ts":1},
        {"ph":"X","cat":"cuda_runtime","name":"launch","pid":1,"tid":2,"ts":50,"dur":5,"args":{"correlation":7}},
        {"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":40,"dur":5,"args":{"correlation":7}},
        {"ph":"X","cat":"kernel","name":"l","pid":0,"tid":7,"ts":42,"dur":5,"args":{"correlation":8}},
        {"ph":"X","name":"ProfilerStep#3","pid":1,"tid":3,"ts":0,"dur":5},
        {"ph":"X","name":"ProfilerStep#3","pid":1,"tid":3,"ts":6,"dur":5},
        {"ph":"E","pid":1,"tid":4,"ts":9},
        {"ph":"B","name":"open","pid":1,"tid":5,"ts":9},
        {"ph":"X","name":"no time","pid":1,"tid":1}
        ]"#,
    );
    let ran = run(bench.opcollect("trace check broken.json --json")).expect(1);
    let faults = ran.json()["faults"].clone();
    let found: Vec<String> = faults
        .as_array()
        .expect("faults")
        .iter()
        .map(|fault| format!("{} {}", fault["kind"].as_str().expect("a word"), fault["count"]))
        .collect();
    assert_eq!(
        found,
        [
            "cut 1",
            "malformed 1",
            "negative_duration 1",
            "end_without_begin 1",
            "begin_without_end 1",
            "not_nested 2",
            "flow_without_end 1",
            "flow_without_start 1",
            "flow_unbound 1",
            "kernel_before_launch 1",
            "stream_overlap 1",
            "steps 1",
        ]
    );
    let shown = run(bench.opcollect("trace check broken.json")).expect(1).stdout;
    assert!(shown.contains("device work starts before its launch"), "{shown}");
    run(bench.opcollect("trace top broken.json")).expect(1);
    bench.write("text.json", "not a trace");
    run(bench.opcollect("trace check text.json")).expect(2);
}

/// A script that decodes a trace with Perfetto's own classes, rejects unknown fields, and prints a summary.
const DECODE: &str = "
import json, sys
from google.protobuf import unknown_fields
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
trace = Trace()
trace.ParseFromString(open(sys.argv[1], 'rb').read())
def known(message):
    assert len(unknown_fields.UnknownFieldSet(message)) == 0, message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for one in value if field.is_repeated else [value]:
                known(one)
known(trace)
tracks, begun, flows, names, values, last = {}, {}, set(), {}, 0, {}
slices = 0
for packet in trace.packet:
    if packet.HasField('track_descriptor'):
        tracks[packet.track_descriptor.uuid] = packet.track_descriptor
    if packet.sequence_flags & 1:
        names = {}
    for name in packet.interned_data.event_names:
        names[name.iid] = name.name
    if packet.HasField('track_event'):
        event = packet.track_event
        assert event.track_uuid in tracks
        flows.update(event.flow_ids, event.terminating_flow_ids)
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            assert names[event.name_iid] and packet.timestamp >= last.get(event.track_uuid, 0)
            begun[event.track_uuid] = begun.get(event.track_uuid, 0) + 1
            slices += 1
        elif event.type == TrackEvent.TYPE_SLICE_END:
            begun[event.track_uuid] -= 1
            assert begun[event.track_uuid] >= 0 and packet.timestamp >= last.get(event.track_uuid, 0)
        elif event.type == TrackEvent.TYPE_COUNTER:
            values += 1
        if event.type in (TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END):
            last[event.track_uuid] = packet.timestamp
assert not any(begun.values()), begun
threads = sum(track.HasField('thread') for track in tracks.values())
print(json.dumps({'slices': slices, 'values': values, 'flows': len(flows), 'threads': threads, 'tracks': len(tracks)}))
";

/// Returns the content of a trace by Perfetto's own classes; None with a message if these are not installed.
fn decoded(path: &Path) -> Option<Value> {
    if !has(&venv(), "perfetto") {
        skip("Perfetto's own classes are not installed; scripts/setup --test does that");
        return None;
    }
    let done = Command::new(venv()).args(["-c", DECODE]).arg(path).output().expect("Python runs");
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{error}");
    Some(serde_json::from_slice(&done.stdout).expect("one document"))
}

#[test]
fn a_trace_in_another_format_is_the_same_trace() {
    let bench = Bench::new();
    let convert =
        |from: &str, to: &str| run(bench.opcollect(&format!("trace convert {from} {to} --json"))).expect(0).json();
    let shown = convert(&case("torch.json.gz").display().to_string(), "a.pftrace");
    convert("a.pftrace", "b.json.gz");
    convert("b.json.gz", "c.pftrace");
    let rows = |trace: &str| {
        let top = run(bench.opcollect(&format!("trace top {trace} --json --row-limit 1000 --group-by-input-shape")));
        let mut top = top.expect(0).json();
        top["rows"].as_array_mut().expect("rows").sort_by_key(ToString::to_string);
        top["rows"].clone()
    };
    let first = rows(&case("torch.json.gz").display().to_string());
    for trace in ["a.pftrace", "b.json.gz", "c.pftrace"] {
        run(bench.opcollect(&format!("trace check {trace}"))).expect(0);
        let (rows, first) = (rows(trace).to_string(), first.to_string());
        assert!(rows == first, "{trace}: {} and {} letters", rows.len(), first.len());
    }
    let short = run(bench.opcollect(&format!("trace convert {} d.txt", case("torch.json.gz").display()))).expect(2);
    assert!(short.stderr.contains("use the extension `.json`"), "{short:?}");
    let Some(seen) = decoded(&bench.path("a.pftrace")) else { return };
    let checked = run(bench.opcollect("trace check a.pftrace --json")).expect(0).json();
    assert_eq!((&seen["flows"], &seen["tracks"]), (&checked["flows"], &checked["tracks"]));
    assert!(
        seen["slices"].as_u64() > Some(100) && shown["events"].as_u64() > seen["slices"].as_u64(),
        "{seen} {shown}"
    );
}

#[test]
fn times_that_are_not_written_as_read_are_noted() {
    let bench = Bench::new();
    let event =
        |ph: &str, ts: i64, dur: i64| format!(r#"{{"ph":"{ph}","name":"a","pid":1,"tid":1,"ts":{ts},"dur":{dur}}}"#);
    let trace = |events: &[String]| format!("[{}]", events.join(","));
    bench.write("odd.json", &trace(&[event("X", 5, -10), event("E", 6, 0), event("X", 20, 3)]));
    bench.write("good.json", &trace(&[event("X", 5, 10)]));
    for command in ["convert odd.json out.pftrace", "merge good.json odd.json merged.json --align keep"] {
        let ran = run(bench.opcollect(&format!("trace {command}"))).expect(1);
        assert!(
            ran.stderr.contains("note: 1 slice with a duration of 0 ns instead of an end before the start"),
            "{ran}"
        );
        assert!(ran.stderr.contains("note: 1 slice omitted, of which the file has only the end"), "{ran}");
    }
    run(bench.opcollect("trace convert good.json good.pftrace")).expect(0);
}

#[test]
fn two_outputs_to_one_file_are_refused() {
    let bench = Bench::new();
    let model = "--modelsource local --modelname mlp --threads 1";
    for command in [
        format!("trace top {} --html x --csv ./x", case("torch.json.gz").display()),
        format!("profile {model} --html x --csv x"),
        format!("profile {model} --perfetto x --chrome-trace x"),
    ] {
        let ran = run(bench.opcollect(&command)).expect(2);
        assert!(ran.stderr.contains("name the same file") && !bench.path("x").exists(), "{ran}");
    }
}

#[test]
fn traces_without_events_are_refused() {
    let bench = Bench::new();
    bench.write("report.json", r#"{"calls":[{"Name":{"string":"dense"},"Duration (us)":{"microseconds":3}}]}"#);
    bench.write("empty.json", r#"{"traceEvents": []}"#);
    bench.write("full.json", r#"[{"ph":"X","name":"a","pid":1,"tid":1,"ts":5,"dur":10}]"#);
    for (file, why) in [("report.json", "is a report of TVM"), ("empty.json", "has no slice and no counter value")] {
        for command in ["check FILE", "convert FILE out.pftrace", "merge full.json FILE out.pftrace --align keep"] {
            let refused = run(bench.opcollect(&format!("trace {}", command.replace("FILE", file)))).expect(2);
            assert!(refused.stderr.contains(why) && !bench.path("out.pftrace").exists(), "{refused}");
        }
    }
    // The check names the reason if no record can be read.
    bench.write("cut.json", r#"{"traceEvents": [{"ph":"X","#);
    run(bench.opcollect("trace check cut.json")).expect(1);
    let mut query = bench.opcollect("trace query full.pftrace --json");
    run(bench.opcollect("trace convert full.json full.pftrace")).expect(0);
    query.arg("select name, dur as name from slice");
    let refused = run(query).expect(2);
    assert!(refused.stderr.contains("two columns of the result are named `name`"), "{refused}");
    assert!(refused.stderr.contains("with `as`"), "{refused}");
}

#[test]
fn merged_traces_state_their_clock_offsets() {
    let bench = Bench::new();
    let slice = |name: &str, ts: u32| format!(r#"{{"ph":"X","name":"{name}","pid":1,"tid":1,"ts":{ts},"dur":10}}"#);
    bench.write("a.json", &format!(r#"{{"baseTimeNanoseconds": 1000000, "traceEvents": [{}]}}"#, slice("a", 5)));
    bench.write("b.json", &format!(r#"{{"baseTimeNanoseconds": 3500000, "traceEvents": [{}]}}"#, slice("b", 5)));
    bench.write("c.json", &format!("[{}]", slice("c", 100)));
    let starts = |flags: &str| {
        run(bench.opcollect(&format!("trace merge {flags} --json --force"))).expect(0);
        let mut query = bench.opcollect("trace query all.pftrace");
        query.args([
            "select s.name, ts, t.name as track from slice s join track t on s.track_id = t.id order by ts",
            "--json",
        ]);
        let rows = run(query).expect(0).json();
        let row = |row: &Value| format!("{} {}", row["name"].as_str().expect("a name"), row["ts"]);
        rows.as_array().expect("rows").iter().map(row).collect::<Vec<_>>()
    };
    assert_eq!(starts("a.json b.json all.pftrace"), ["a 5000", "b 2505000"]);
    assert_eq!(starts("a.json c.json all.pftrace --align start"), ["a 5000", "c 5000"]);
    assert_eq!(starts("c.json a.json all.pftrace --align start"), ["c 5000", "a 5000"]);
    assert_eq!(starts("a.json c.json all.pftrace --offset-ns 0,-90000"), ["a 5000", "c 10000"]);
    // Perfetto's format has no negative times, so all traces are shifted; Chrome's format has them.
    assert_eq!(starts("a.json c.json all.pftrace --offset-ns 0,-99999999"), ["c 0", "a 99904999"]);
    let chrome = run(bench.opcollect("trace merge a.json c.json all.json --offset-ns -8000,0 --json")).expect(0).json();
    assert_eq!(chrome["inputs"][0]["offset_ns"], -8000, "{chrome}");
    let text = std::fs::read_to_string(bench.path("all.json")).expect("it was written");
    assert!(text.contains(r#""ts":-3.000"#) && text.contains(r#""baseTimeNanoseconds":1008000"#), "{text}");
    let shifted = run(bench.opcollect("trace convert all.json one.pftrace")).expect(0).stdout;
    assert!(shifted.contains("`all.json`: added 3000 ns to its times"), "{shifted}");
    let far = "trace merge a.json c.json far.pftrace --offset-ns 0,9223372036854775807";
    let refused = run(bench.opcollect(far)).expect(2);
    assert!(refused.stderr.contains("range of 64-bit nanoseconds") && !bench.path("far.pftrace").exists(), "{refused}");
    let shown = run(bench.opcollect("trace merge a.json b.json all.json --force")).expect(0).stdout;
    assert!(shown.contains("`b.json`: added 2500000 ns to its times"), "{shown}");
    let refused = run(bench.opcollect("trace merge a.json c.json none.pftrace")).expect(2);
    assert!(refused.stderr.contains("(`baseTimeNanoseconds`) is missing in `c.json`\n"), "{refused:?}");
    assert!(refused.stderr.contains("--align start") && !bench.path("none.pftrace").exists(), "{refused:?}");
    let refused = run(bench.opcollect("trace merge a.json c.json none.pftrace --offset-ns 1")).expect(2);
    assert!(refused.stderr.contains("1 number for 2 traces"), "{refused:?}");
}

/// The output of `merge` and `convert` is the last argument, so a forgotten one must not overwrite a trace.
#[test]
fn inputs_and_existing_traces_are_not_overwritten() {
    let bench = Bench::new();
    let slice = r#"[{"ph":"X","name":"a","pid":1,"tid":1,"ts":5,"dur":10}]"#;
    for name in ["r0.json", "r1.json", "r2.json"] {
        bench.write(name, slice);
    }
    std::os::unix::fs::symlink("r0.json", bench.path("link.json")).expect("a link can be made");
    for (command, why) in [
        ("merge r0.json r1.json r2.json --align keep", "`r2.json` already exists"),
        ("convert r0.json r2.json", "`r2.json` already exists"),
        ("merge r0.json r1.json ./r0.json --align keep --force", "`./r0.json` is also an input"),
        ("convert r0.json link.json --force", "`link.json` is also an input"),
    ] {
        let refused = run(bench.opcollect(&format!("trace {command}"))).expect(2);
        assert!(refused.stderr.contains(why), "{refused}");
        for name in ["r0.json", "r1.json", "r2.json"] {
            assert_eq!(std::fs::read_to_string(bench.path(name)).expect("it is there"), slice, "{command}");
        }
    }
    run(bench.opcollect("trace merge r0.json r1.json r2.json --align keep --force")).expect(0);
}

#[test]
fn a_trace_becomes_rows_that_are_imported() {
    let bench = Bench::new();
    let trace = case("onnxruntime.json.gz");
    let import = format!("trace import {} --store store --host elsewhere --json", trace.display());
    run(bench.opcollect(&import)).expect(0);
    let records = stores::chosen(&bench.path("store"), datasets::Choose::All);
    assert!(records.iter().all(|record| record.source == datasets::Source::Imported && record.host == "elsewhere"));
    assert!(records.iter().any(|record| record.op_kind == "onnxruntime.Conv" && record.n == 3));
    // Importing the same trace again adds no records.
    assert_eq!(run(bench.opcollect(&import)).expect(0).json()["new_rows"], 0);
    let again = stores::chosen(&bench.path("store"), datasets::Choose::All);
    assert_eq!(again.len(), records.len());
    let report = r#"{"calls":[{"Name":{"string":"fused_dense"},"Duration (us)":{"microseconds":3},"Count":{"count":2},
        "Device":{"string":"cpu0"},"Argument Shapes":{"string":"float32[1, 64]"},"PAPI_TOT_INS":{"count":900}}]}"#;
    bench.write("report.json", report);
    let shown = run(bench.opcollect("trace import report.json --store former --host elsewhere")).expect(0);
    assert!(shown.stderr.contains("only sums"), "{shown:?}");
    let former = stores::chosen(&bench.path("former"), datasets::Choose::All);
    let [row] = &former[..] else { panic!("{former:?}") };
    assert_eq!(
        (row.source, row.op_kind.as_str(), row.median_ns),
        (datasets::Source::Imported, "tvm.fused_dense", Some(1500.0))
    );
    let counters: Value = row.counters.as_ref().expect("it counted").parse_as().expect("an object");
    assert_eq!(counters["PAPI_TOT_INS"], 450.0, "of one call");
    bench.write("empty.json", r#"{"calls":[]}"#);
    let refused = run(bench.opcollect("trace import empty.json --store former")).expect(2);
    assert!(refused.stderr.contains("no call with a time"), "{refused:?}");
}

#[test]
fn the_page_of_a_profile_works() {
    let bench = Bench::new();
    let pictures = "--perfetto p.pftrace --chrome-trace c.json.gz --html page.html";
    let model = "--modelsource local --modelname mlp --threads 1 --seconds 0.05 --wait 300";
    run(bench.profile(&format!("{model} {pictures}"))).expect(0);
    for trace in ["p.pftrace", "c.json.gz"] {
        run(bench.opcollect(&format!("trace check {trace}"))).expect(0);
        let top = run(bench.opcollect(&format!("trace top {trace} --json"))).expect(0).json();
        assert!(top["rows"].to_string().contains("dense"), "{top}");
    }
    if let Some(seen) = decoded(&bench.path("p.pftrace")) {
        assert!(seen["slices"].as_u64() > Some(0) && seen["values"].as_u64() > Some(0), "{seen}");
    }
    looks_right(&bench, "page.html", "dense");
    let short = format!("profile {model} --perfetto short.pftrace --trace-mib 1");
    run(bench.opcollect(&short)).expect(0);
}

#[test]
fn the_page_of_an_imported_trace_works() {
    let bench = Bench::new();
    run(bench.opcollect(&format!("trace top {} --html page.html", case("torch.json.gz").display()))).expect(0);
    looks_right(&bench, "page.html", "aten::addmm");
}

/// Sorts, searches and marks an operator, selects a step and a call; nothing may fail or exceed the window.
fn looks_right(bench: &Bench, page: &str, operator: &str) {
    let click = format!(
        "<script>addEventListener('load', () => {{
            const shown = [], rows = () => document.querySelectorAll('#rows tbody tr');
            shown.push(rows().length > 1);
            document.querySelectorAll('#rows th button')[2].click();
            shown.push(document.querySelectorAll('#rows th')[2].getAttribute('aria-sort') === 'descending');
            const find = document.getElementById('find'); find.value = '{operator}'; find.oninput();
            shown.push(rows().length >= 1 && rows()[0].textContent.includes('{operator}'));
            rows()[0].click();
            shown.push(rows()[0].classList.contains('kept'));
            document.getElementById('whole').click();
            const before = document.getElementById('window').textContent;
            document.getElementById('typical-step').click();
            shown.push(document.getElementById('window').textContent !== before);
            const boxes = document.querySelectorAll('#flame div'); shown.push(boxes.length > 1);
            const name = boxes[1].textContent.replace(/ [0-9.]+ %$/, '');
            boxes[1].click(); shown.push(document.getElementById('path').textContent.includes(name));
            const line = document.getElementById('line');
            const pixels = line.getContext('2d').getImageData(0, 0, line.width, line.height).data;
            shown.push(new Set(new Uint32Array(pixels.buffer)).size > 3);
            document.documentElement.dataset.shown = shown.join(' ');
        }});</script>"
    );
    let text = std::fs::read_to_string(bench.path(page)).expect("it was written");
    bench.write("clicked.html", &(text + &click));
    let Some(seen) = browser::open(&bench.path("clicked.html")) else { return };
    assert_eq!(seen.complaints, Vec::<String>::new());
    assert!(seen.text.contains("data-shown=\"true true true true true true true true\""), "{}", &seen.text[..2000]);
    assert_eq!(browser::overflow(&bench.path(page), ""), Some(Vec::new()));
}
