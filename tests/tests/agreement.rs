//! Checks that tables, JSON documents, pages and the server give the same numbers, field by field.
#![allow(missing_docs)]

use predictor::serve::{Service, answer_query};
use predictor::{bundle, published};
use report::{format_duration, format_percent, format_range};
use serde_json::{Value, json};
use std::time::Duration;
use tests::{Bench, Ran, program, run};

const MODEL: &str = "squeezenet-1.1";

fn oppredict(bench: &Bench, arguments: &str) -> Ran {
    run(bench.command(&program("oppredict"), arguments)).expect(0)
}

#[track_caller]
fn number(value: &Value, field: &str) -> f64 {
    value[field].as_f64().unwrap_or_else(|| panic!("no number `{field}`: {value}"))
}

/// Compares numbers, whose last digit may change when they are written and read.
#[track_caller]
fn check_same(one: &Value, other: &Value, field: &str) {
    let are_near = |(one, other): (f64, f64)| (one - other).abs() <= 1e-12 * one.abs();
    let is_same = one.as_f64().zip(other.as_f64()).map_or(one == other, are_near);
    assert!(is_same, "{field}: {one} and {other}");
}

#[track_caller]
fn has(text: &str, wanted: &str) {
    assert!(text.contains(wanted), "no `{wanted}` in {text}");
}

fn served(question: &Value) -> Value {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets/published").join(published::CPU);
    let predictor = bundle::read_bundle(&path).expect("the predictor ships");
    let service = Service { predictor, mapping: None, patience: Duration::from_secs(60), known: None };
    let (status, document) = answer_query(question.to_string().as_bytes(), &service);
    assert_eq!(status, 200, "{document}");
    serde_json::from_str(&document).expect("a JSON document")
}

#[test]
fn a_prediction_is_the_same_in_table_document_and_server() {
    let bench = Bench::new();
    let asked = format!("predict {MODEL} --threads 2");
    let document = oppredict(&bench, &format!("{asked} --json")).json();
    let (table, served) = (oppredict(&bench, &asked).stdout, served(&json!({ "model": MODEL, "threads": 2 })));
    let (layers, total) = (&document["models"][0]["layers"], &document["models"][0]["total"]);
    let (layers, others) = (layers.as_array().expect("layers"), served["operators"].as_array().expect("operators"));
    assert_eq!(layers.len(), others.len());
    for (layer, other) in layers.iter().zip(others) {
        for field in ["operator", "count", "time_ns", "low_ns", "high_ns", "bound", "basis", "overhead_ns"] {
            check_same(&layer[field], &other[field], field);
        }
        has(&table, &format_duration(number(layer, "time_ns")));
        has(&table, &format_range(number(layer, "low_ns"), number(layer, "high_ns")));
    }
    for field in ["time_ns", "low_ns", "high_ns", "operators_ns", "dispatch_ns", "calls"] {
        check_same(&total[field], &served["total"][field], field);
    }
    let (low_ns, high_ns) = (number(total, "low_ns"), number(total, "high_ns"));
    let line = format!(
        "total: {} (90 % between {})",
        format_duration(number(total, "time_ns")),
        format_range(low_ns, high_ns)
    );
    has(&table, &line);
}

#[test]
fn a_plan_is_the_prediction_and_its_page_shows_it() {
    let bench = Bench::new();
    let of_prediction = oppredict(&bench, &format!("predict {MODEL} --threads 2 --json")).json();
    let total = &of_prediction["models"][0]["total"];
    let asked = format!("--model {MODEL} --threads 2");
    let document = oppredict(&bench, &format!("plan {asked} --json --html plan.html")).json();
    let (plan, promise) = (&document["plan"], &document["plan"]["promise"]);
    assert_eq!(plan["parallel"], "sequential", "{plan}");
    for field in ["time_ns", "low_ns", "high_ns"] {
        let (planned, predicted) = (number(promise, field), number(total, field));
        assert!((planned / predicted - 1.0).abs() < 1e-6, "{field}: planned {planned}, predicted {predicted}");
    }
    let all = plan["alternatives"].as_array().expect("operators");
    let calls = |one: &Value| one["calls"].as_array().map_or(0, Vec::len) as f64;
    let on = |one: &Value, cores: usize| one["alone_ns"][cores - 1].as_f64().expect("a time");
    let sum_ns: f64 = all.iter().map(|one| calls(one) * on(one, 2)).sum();
    assert!((sum_ns / number(promise, "sequential_ns") - 1.0).abs() < 1e-6, "the table's sum is the plan's time");
    let slower = all.iter().filter(|one| on(one, 2) > on(one, 1)).count();
    assert_eq!(plan["slower_on_all"].as_u64(), Some(slower as u64));
    assert!(slower == 0 || plan["why"].as_str().is_some_and(|why| why.contains("take longer")), "{plan}");
    let stages: f64 = document["stages"].as_array().expect("stages").iter().map(|one| number(one, "time_ns")).sum();
    assert!((stages / number(promise, "time_ns") - 1.0).abs() < 1e-6, "the stages take as long as the plan");

    let (text, stages) = (oppredict(&bench, &format!("plan {asked}")), oppredict(&bench, &format!("stages {asked}")));
    let page = std::fs::read_to_string(bench.path("plan.html")).expect("it was written");
    let interval = format_range(number(promise, "low_ns"), number(promise, "high_ns"));
    for shown in [&text.stdout, &stages.stdout, &page] {
        has(shown, &format_duration(number(promise, "time_ns")));
        has(shown, &interval);
        has(shown, plan["why"].as_str().expect("a reason"));
    }
    has(&page, &format!("<th>all {} calls</th>", all.iter().map(calls).sum::<f64>()));
    for one in all {
        let interval = &one["intervals_ns"][1];
        let (low, high) = (interval[0].as_f64().expect("a low end"), interval[1].as_f64().expect("a high end"));
        let range = format_range(low, high);
        let time = format_duration(on(one, 2));
        has(&page, &format!("<b>{time}</b> <span class=\"soft under\">({range})</span></td>"));
    }
}

#[test]
fn a_curve_passes_through_the_predictions() {
    let bench = Bench::new();
    let operator = "conv2d:ci=64,hw=56,co=64,k=3,p=1";
    let knee = oppredict(&bench, &format!("knee --op {operator} --over threads --json --html knee.html")).json();
    let curve = knee["knees"][0]["curve"].as_array().expect("a curve").clone();
    let table = oppredict(&bench, &format!("knee --op {operator} --over threads")).stdout;
    let page = std::fs::read_to_string(bench.path("knee.html")).expect("it was written");
    for point in &curve {
        let threads = number(point, "at");
        let asked = format!("predict --op {operator} --threads {threads} --json");
        let one = &oppredict(&bench, &asked).json()["operators"][0];
        let other = &served(&json!({ "operators": [operator], "threads": threads }))["operators"][0];
        for field in ["time_ns", "low_ns", "high_ns"] {
            let wanted = number(point, field);
            assert!((number(one, field) / wanted - 1.0).abs() < 1e-6, "{field} at {threads}: {one} and {point}");
            assert!((number(other, field) / wanted - 1.0).abs() < 1e-6, "{field} at {threads}: {other} and {point}");
        }
        has(&table, &format_duration(number(point, "time_ns")));
        has(&table, &format_range(number(point, "low_ns"), number(point, "high_ns")));
        let range = format_range(number(point, "low_ns"), number(point, "high_ns"));
        has(
            &page,
            &format!("<td>{threads}</td><td>{}</td><td>{range}</td>", format_duration(number(point, "time_ns"))),
        );
    }
}

#[test]
fn a_profile_is_the_same_in_document_file_and_page() {
    let bench = Bench::new();
    let files = "--out p.json --csv p.csv --html p.html --json";
    let ran = run(bench.opcollect(&format!("profile mlp --threads 1 --seconds 0.05 --no-check --wait 300 {files}")));
    let document = ran.expect(0).json();
    let rows = document["rows"].as_array().expect("rows");
    let page = std::fs::read_to_string(bench.path("p.html")).expect("it was written");
    let (_, data) = page.split_once("id=\"data\">").expect("data");
    let data: Value = serde_json::from_str(data.split_once("</script>").expect("an end").0).expect("JSON");
    let mut csv = csv::Reader::from_path(bench.path("p.csv")).expect("it was written");
    let names = csv.headers().expect("names").clone();
    let cells: Vec<csv::StringRecord> = csv.records().map(|row| row.expect("a row")).collect();
    let cell = |row: usize, name: &str| -> f64 {
        let column = names.iter().position(|one| one == name).unwrap_or_else(|| panic!("no column `{name}`"));
        cells[row][column].parse().expect("a number")
    };
    assert_eq!(rows.len(), cells.len());
    let shares: f64 = rows.iter().map(|row| number(row, "share")).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
    for (place, row) in rows.iter().enumerate() {
        let shown = &data["rows"][place];
        for (field, of_page) in
            [("share", "share"), ("total_share", "total_share"), ("median_ns", "median"), ("self_total_ns", "self")]
        {
            let wanted = number(row, field);
            assert!((number(shown, of_page) - wanted).abs() <= 1e-9 * wanted.abs(), "{field}: {shown} and {row}");
            assert!((cell(place, field) - wanted).abs() <= 1e-9 * wanted.abs(), "{field} of {row}");
        }
        // The boxes of the flame graph have the shares of the table, in whole nanoseconds.
        let name = row["name"].as_str().expect("a name");
        let of_name = |value: &Value| value["name"] == name;
        let share: f64 = rows.iter().filter(|row| of_name(row)).map(|row| number(row, "share")).sum();
        let whole = number(&data["flame"], "v");
        let found = boxes(&data["flame"], name) / whole;
        assert!(
            (found - share).abs() < 1e-2,
            "{name}: {} in the flame graph, {} in the table",
            format_percent(found),
            format_percent(share)
        );
    }
}

/// Returns the time of all boxes with a name; a box inside another box of the same name is not added again.
fn boxes(node: &Value, name: &str) -> f64 {
    if node["n"] == name {
        return number(node, "v");
    }
    node["c"].as_array().map_or(0.0, |parts| parts.iter().map(|part| boxes(part, name)).sum())
}
