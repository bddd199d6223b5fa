//! Tests of imported traces of other profilers, compared with the tables of those profilers.
#![allow(missing_docs)]

use datasets::Target;
use flate2::read::GzDecoder;
use profile::averages::{AverageRow, Averages, Grouping, compute_averages};
use profile::data::{Kind, Pool, Source};
use profile::import::{self, ImportBounds, Imported};
use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};

fn case(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(name)
}

fn unpacked(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(case(name)).expect("the case is there");
    GzDecoder::new(file).read_to_end(&mut bytes).expect("it is packed");
    bytes
}

fn read(path: &Path) -> Imported {
    let imported = import::read_profile(path, &ImportBounds::of_memory(64)).expect("it is a trace");
    imported.profile.check().expect("it fits together");
    imported
}

fn read_text(text: &str) -> Imported {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace.json");
    std::fs::write(&path, text).expect("it can be written");
    read(&path)
}

fn read_failure(text: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace.json");
    std::fs::write(&path, text).expect("it can be written");
    import::read_profile(&path, &ImportBounds::of_memory(1)).expect_err("there is no profile").to_string()
}

fn row<'a>(averages: &'a Averages, name: &str) -> &'a AverageRow {
    averages.rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no row `{name}`"))
}

fn comparable(row: &AverageRow, with_shapes: bool) -> String {
    let shapes =
        if with_shapes { format!("{:?}", row.input_shapes.as_deref().unwrap_or_default()) } else { "[]".to_owned() };
    let sums = [row.cpu_time_total_ns as i64, row.self_cpu_time_total_ns as i64, row.cpu_memory_usage_bytes];
    format!("{} {shapes} {} {sums:?} {}", row.name, row.count, row.self_cpu_memory_usage_bytes)
}

#[test]
fn averages_of_a_torch_trace_match_torch() {
    let Imported { profile, found } = read(&case("torch.json.gz"));
    assert_eq!((found.malformed, profile.format.as_str(), profile.source), (0, "torch.profiler", Source::Imported));
    assert_eq!(profile.steps.iter().map(|step| step.number).collect::<Vec<_>>(), [1, 2]);
    let expected: Value = serde_json::from_slice(&unpacked("torch.averages.json.gz")).expect("rows");
    for (key, by_input_shape) in [("name", false), ("shape", true)] {
        let ours = compute_averages(&profile, Grouping { by_input_shape, by_scope: None });
        let mut ours: Vec<String> = ours.rows.iter().map(|row| comparable(row, by_input_shape)).collect();
        let theirs = expected[key].as_array().expect("rows").iter().map(|row| {
            let number = |name: &str| row[name].as_i64().expect("a number");
            let shapes = row["input_shapes"].to_string().replace(',', ", ");
            let sums = ["cpu_time_total_ns", "self_cpu_time_total_ns", "cpu_memory_usage_bytes"].map(number);
            let name = row["name"].as_str().expect("a name");
            format!("{name} {shapes} {} {sums:?} {}", number("count"), number("self_cpu_memory_usage_bytes"))
        });
        let mut theirs: Vec<String> = theirs.collect();
        ours.sort();
        theirs.sort();
        assert_eq!(ours, theirs, "{key}");
    }
}

#[test]
fn an_onnxruntime_profile_is_summed_by_operator() {
    let Imported { profile, .. } = read(&case("onnxruntime.json.gz"));
    let ours = compute_averages(&profile, Grouping::default());
    let expected: Value = serde_json::from_slice(&unpacked("onnxruntime.averages.json.gz")).expect("rows");
    for expected in expected.as_array().expect("rows") {
        let row = row(&ours, expected["name"].as_str().expect("a name"));
        assert_eq!(expected["count"], row.count, "{row:?}");
        assert_eq!(expected["cpu_time_total_ns"], row.cpu_time_total_ns, "{row:?}");
    }
    let convolution = profile.operators.iter().find(|operator| operator.name == "Conv").expect("a convolution");
    assert_eq!(
        (convolution.input_shapes[0].as_slice(), convolution.input_dtypes[0].as_str()),
        (&[1, 3, 8, 8][..], "f32")
    );
    assert_eq!((convolution.output_shapes.len(), convolution.scope.as_str()), (1, "sums_nchwc"));
    let apart = compute_averages(&profile, Grouping { by_scope: Some(0), by_input_shape: false });
    assert_eq!(row(&apart, "Softmax").scope.as_deref(), Some("second"));
}

#[test]
fn device_work_belongs_to_its_launching_call() {
    let imported = read_text(
        r#"{"traceEvents": [
        {"ph":"M","name":"thread_name","pid":0,"tid":7,"args":{"name":"stream 7"}},
        {"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":0,"dur":20,"args":{"External id":5}},
        {"ph":"X","cat":"cpu_op","name":"aten::linear","pid":1,"tid":1,"ts":-10,"dur":40,"args":{"External id":4}},
        {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":5,"dur":4,"args":{"correlation":9}},
        {"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":12,"dur":100.5,"args":{"External id":5,"correlation":9}},
        {"ph":"X","cat":"gpu_memcpy","name":"copy","pid":0,"tid":7,"ts":200,"dur":1,"args":{"External id":99}}
        ]}"#,
    );
    let sums = compute_averages(&imported.profile, Grouping::default());
    let times = |name| {
        let row = row(&sums, name);
        [row.self_cpu_time_total_ns, row.cpu_time_total_ns, row.self_device_time_total_ns, row.device_time_total_ns]
    };
    assert_eq!(times("aten::linear"), [20_000, 40_000, 0, 100_500]);
    assert_eq!(times("aten::mm"), [16_000, 20_000, 100_500, 100_500]);
    assert_eq!(times("cudaLaunchKernel"), [4_000, 4_000, 0, 0]);
    assert_eq!(times("gemm"), [0, 0, 100_500, 100_500]);
    assert_eq!(row(&sums, "gemm").kind, Kind::Kernel);
    // A copy without a launching call still counts in the device total.
    assert_eq!((sums.self_cpu_time_total_ns, sums.self_device_time_total_ns), (40_000, 101_500));
}

#[test]
fn memory_counts_for_every_open_call() {
    let imported = read_text(
        r#"[{"ph":"X","cat":"cpu_op","name":"outer","pid":1,"tid":1,"ts":0,"dur":100},
        {"ph":"X","cat":"cpu_op","name":"inner","pid":1,"tid":1,"ts":10,"dur":10},
        {"ph":"i","name":"[memory]","pid":1,"tid":1,"ts":20,"args":{"Bytes":64,"Device Type":0,"Total Allocated":64}},
        {"ph":"i","name":"[memory]","pid":1,"tid":1,"ts":50,"args":{"Bytes":-16,"Device Type":1}},
        {"ph":"i","name":"[memory]","pid":1,"tid":1,"ts":150,"args":{"Bytes":-64,"Device Type":0}}]"#,
    );
    let sums = compute_averages(&imported.profile, Grouping::default());
    let used = |name| {
        let row = row(&sums, name);
        [row.cpu_memory_usage_bytes, row.self_cpu_memory_usage_bytes, row.self_device_memory_usage_bytes]
    };
    assert_eq!((used("outer"), used("inner"), used("[memory]")), ([64, 0, -16], [64, 64, 0], [-64, -64, 0]));
    assert_eq!(imported.profile.memory[1].pool, Pool::Device);
}

#[test]
fn only_children_of_the_same_name_are_merged() {
    let imported = read_text(
        r#"[{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":0,"dur":100},
        {"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":10,"dur":50},
        {"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":20,"dur":30},
        {"ph":"X","cat":"cpu_op","name":"b","pid":1,"tid":1,"ts":25,"dur":5},
        {"ph":"X","cat":"cpu_op","name":"c","pid":1,"tid":1,"ts":35,"dur":5}]"#,
    );
    let sums = compute_averages(&imported.profile, Grouping::default());
    assert_eq!((row(&sums, "a").count, row(&sums, "a").self_cpu_time_total_ns), (1, 90_000));
}

#[test]
fn unreadable_events_are_counted_and_others_are_kept() {
    let text = "[{\"ph\":\"X\",\"name\":\"good\",\"ts\":1,\"dur\":2},
        {\"ph\":\"X\",\"name\":\"no length\",\"ts\":1},
        {\"ph\":\"X\",\"name\":\"no time\",\"dur\":1},
        {\"ph\":\"X\",\"name\":\"a \u{1} control character\",\"ts\":1,\"dur\":2},
        {\"ph\":\"X\",\"name\":\"nan\",\"ts\":NaN,\"dur\":2},
        {\"ph\":\"X\",\"name\":\"too far\",\"ts\":9e15,\"dur\":9e15},
        7, \"text\", null, {},
        {\"ph\":\"B\",\"name\":\"begun\",\"ts\":5,\"pid\":\"p\",\"tid\":{}},
        {\"ph\":\"E\",\"ts\":9.5,\"pid\":\"p\",\"tid\":{}},
        {\"ph\":\"b\",\"name\":\"asynchronous\",\"ts\":5},
        {\"ph\":\"X\",\"name\":\"cut";
    let imported = read_text(text);
    let names = imported.profile.operators.iter().map(|operator| operator.name.as_str());
    assert_eq!(names.collect::<Vec<_>>(), ["good", "begun"]);
    let found = &imported.found;
    assert_eq!((found.malformed, found.ignored, found.is_cut), (10, 1, true), "{:?}", found.examples);
    let at = |part: &str| text.find(part).expect("the text has the record");
    let expected = [
        format!("at byte {}: slice without a valid duration", at("{\"ph\":\"X\",\"name\":\"no length")),
        format!("at byte {}: event without a valid time `ts`", at("{\"ph\":\"X\",\"name\":\"no time")),
        format!("at byte {}: the event is not valid JSON", at("{\"ph\":\"X\",\"name\":\"a \u{1}")),
    ];
    assert_eq!(found.examples[..3], expected);
    let none = read_failure("[\n 42,{\"ts\":1,\"ts\":2}]");
    assert!(none.ends_with("; at byte 3: the event is not a JSON object"), "{none}");
    let none = read_failure("[{\"ts\":1,\"ts\":2}]");
    assert!(none.ends_with("; at byte 1: event with several `ts`"), "{none}");
}

#[test]
fn traces_without_slices_are_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    for (text, part) in [
        ("", "the file is empty"),
        ("hello", "neither like JSON"),
        ("[]", "0 events, but none with a start and an end"),
        ("{\"traceEvents\":[{\"ph\":\"X\"}]}", "; at byte "),
    ] {
        let path = folder.path().join("trace");
        std::fs::write(&path, text).expect("it can be written");
        let error =
            import::read_profile(&path, &ImportBounds::of_memory(1)).expect_err("there is no profile").to_string();
        assert!(error.contains(part), "{error}");
    }
    let path = folder.path().join("long.json");
    let slice = "{\"ph\":\"X\",\"name\":\"a\",\"ts\":1,\"dur\":2},\n";
    std::fs::write(&path, format!("[{}", slice.repeat(20))).expect("it can be written");
    let error = import::read_profile(&path, &ImportBounds { spans: 10 }).expect_err("there is no room").to_string();
    assert!(error.contains("has more than 10 spans"), "{error}");
}

#[test]
fn a_report_of_tvm_is_read_and_summed_up() {
    let text = r#"{"calls":[
        {"Name":{"string":"conv"},"Duration (us)":{"microseconds":10.5},"Percent":{"percent":50},"Device":{"string":"cpu0"},
         "Count":{"count":1},"Argument Shapes":{"string":"float32[1, 64]"},"Hash":{"string":"h"},"rate":{"ratio":1}},
        {"Name":{"string":"conv2"},"Duration (us)":{"microseconds":4.5},"Percent":{"percent":20},"Device":{"string":"cpu0"},
         "Count":{"count":2},"Argument Shapes":{"string":"float32[1, 64]"},"Hash":{"string":"h"},"rate":{"ratio":2}},
        {"Name":{"string":"add, \"b\""},"Duration (us)":{"microseconds":20},"Device":{"string":"cpu0"},"Count":{"count":1}},
        {"Name":{"wrong":"x"}}],
        "device_metrics":{"cpu0":{"Duration (us)":{"microseconds":40},"Percent":{"percent":100}}},
        "configuration":{"Number of threads":{"count":2}}}"#;
    let (report, found) = import::tvm::parse_report(text.as_bytes()).expect("memory can be read");
    assert_eq!((report.calls.len(), found.malformed), (3, 1));
    let csv = String::from_utf8(report.to_csv().expect("rows")).expect("text");
    assert_eq!(
        csv,
        "Name,Duration (us),Percent,Device,Count,Argument Shapes,Hash,rate\n\
         \"add, \"\"b\"\"\",20,,cpu0,1,,,\n,15,70,cpu0,3,\"float32[1, 64]\",h,1.5\n"
    );
    let again = serde_json::to_string(&report).expect("text");
    assert_eq!(import::tvm::parse_report(again.as_bytes()).expect("memory").0, report);
    assert!(import::tvm::is_report(text.as_bytes()) && !import::tvm::is_report(b"{\"traceEvents\":[]}"));
}

#[test]
fn a_profile_has_the_rows_of_tvms_report() {
    let Imported { profile, .. } = read(&case("torch.json.gz"));
    let report = profile::averages::tvm::tvm_report(&profile);
    let total: f64 = report.grouped_rows().iter().filter_map(|row| row["Duration (us)"].as_number()).sum();
    let own: u64 = profile.self_ns().iter().sum();
    assert!((total * 1e3 - own as f64).abs() < 1.0, "{total} {own}");
    assert!(report.device_metrics["cpu0"]["Duration (us)"].as_number() >= Some(total), "{:?}", report.device_metrics);
}

#[test]
fn operators_of_a_trace_are_rows_of_the_dataset() {
    let Imported { profile, .. } = read(&case("onnxruntime.json.gz"));
    let provenance = import::rows::Provenance {
        taken_at_us: 1,
        host: "elsewhere".to_owned(),
        threads: Some(1),
        model: "small".to_owned(),
        run_id: "run".to_owned(),
        program_version: "0".to_owned(),
        trace_hash: "0123".to_owned(),
    };
    let records = import::rows::to_records(&profile, &provenance).expect("they are rows");
    assert!(records.iter().all(|record| record.source == datasets::Source::Imported && record.target == Target::Other));
    let softmax = records.iter().find(|record| record.op_name == "Softmax").expect("it is there");
    assert_eq!((softmax.op_kind.as_str(), softmax.op_text.as_str()), ("onnxruntime.Softmax", "Softmax f32[1,4,6,6]"));
    assert_eq!((softmax.place.as_deref(), softmax.n, softmax.samples_ns.len()), (Some("second"), 3, 3));
    let total: f64 = softmax.samples_ns.iter().sum();
    let sums = compute_averages(&profile, Grouping::default());
    assert_eq!(total, row(&sums, "Softmax").cpu_time_total_ns as f64);
    let again = import::rows::to_records(&profile, &provenance).expect("they are rows");
    assert_eq!(records, again, "the same trace gives the same records");
}

#[test]
fn slices_that_end_before_they_start_are_skipped() {
    let imported = read_text(
        r#"{"traceEvents": [
        {"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":5e15,"dur":-3},
        {"ph":"B","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":9},
        {"ph":"E","pid":1,"tid":1,"ts":8},
        {"ph":"X","cat":"cpu_op","name":"aten::add","pid":1,"tid":1,"ts":10,"dur":2}
        ]}"#,
    );
    assert_eq!(imported.profile.notes, ["skipped 2 slices with an end before the start"]);
    assert_eq!(compute_averages(&imported.profile, Grouping::default()).rows.len(), 1);
}

/// Two events of 146 years each exceed the limit of sums.
#[test]
fn times_beyond_the_limit_are_omitted() {
    let event =
        |name: &str| format!(r#"{{"ph":"X","name":"{name}","cat":"cpu_op","pid":1,"tid":1,"ts":0,"dur":4.5e15}}"#);
    let imported = read_text(&format!("[{},{}]", event("a"), event("b")));
    assert_eq!(imported.profile.spans.len(), 1);
    assert_eq!(imported.profile.notes, ["skipped 1 time or size beyond the limit"]);
    compute_averages(&imported.profile, Grouping { by_input_shape: false, by_scope: None });
}
