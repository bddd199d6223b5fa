//! From measurement to prediction with both real programs: a predictor is trained on collected records, built
//! candidates are ranked before they run, and candidates with uncertain predictions are measured.
#![allow(missing_docs)]

use tests::{Bench, Ran, program, run, skip};

fn trained(bench: &Bench) {
    let sizes: Vec<String> = [(16, 16), (24, 32), (32, 64), (48, 48), (64, 64), (64, 96), (96, 64), (96, 96)]
        .iter()
        .map(|(m, n)| format!("--modelname matmul:m={m},n={n},k={}", m + n))
        .collect();
    let arguments =
        format!("--modelsource simple {} --schedules 4 --threads 1 --config quick.toml --store store", sizes.join(" "));
    run(bench.opcollect(&arguments)).expect(0);
    predict(bench, "train --data store --max-uncertainty inf --out products.opp").expect(0);
}

fn predict(bench: &Bench, arguments: &str) -> Ran {
    run(bench.command(&program("oppredict"), arguments))
}

#[test]
fn collected_records_are_learned_and_candidates_ranked() {
    let bench = Bench::new();
    trained(&bench);
    let operator = "matmul:m=80,n=80,k=144";
    let asked =
        predict(&bench, &format!("predict --predictor products.opp --op {operator} --threads 1 --json")).expect(0);
    let answer = &asked.json()["operators"][0];
    assert_eq!(answer["known"], "sizes", "{asked}");
    let default_ns = answer["time_ns"].as_f64().expect("a time");
    assert!(default_ns >= answer["attainable_ns"].as_f64().expect("a bound") / 10.0, "{asked}");

    run(bench.opcollect(&format!(
        "build --modelsource simple --modelname {operator} --schedules 6 --threads 1 --config quick.toml --out built"
    )))
    .expect(0);
    let arguments =
        format!("predict --predictor products.opp --op {operator} --threads 1 --space built/plan.json --json");
    let ranked = predict(&bench, &arguments).expect(0);
    let best = ranked.json()["best"].as_array().expect("a list").clone();
    let times: Vec<f64> = best.iter().map(|one| one["time_ns"].as_f64().expect("a time")).collect();
    assert!(times.len() > 1 && times.is_sorted() && times[0] < times[times.len() - 1], "{ranked}");
    assert!(best.iter().all(|one| one["knobs"]["tile_x"].is_u64()), "{ranked}");

    let other = predict(&bench, "predict --predictor products.opp --op matmul:m=8,n=8,k=8 --space built/plan.json");
    assert_eq!(other.code(), 2, "{other}");
    assert!(other.stderr.contains("no schedule of"), "{other}");
}

#[test]
fn uncertain_candidates_are_measured() {
    if std::thread::available_parallelism().is_ok_and(|count| count.get() < 2) {
        return skip("a curve over threads needs two CPUs");
    }
    let bench = Bench::new();
    trained(&bench);
    let opcollect = program("opcollect");
    let arguments = format!(
        "knee --predictor products.opp --op matmul:m=64,n=64,k=128 --most-threads 2 --extrapolate --probe --opcollect {} --json",
        opcollect.display()
    );
    let found = predict(&bench, &arguments).expect(0);
    let knee = &found.json()["knees"][0];
    let probes = knee["probes"].as_array().expect("a list");
    assert!((1..=2).contains(&probes.len()), "{found}");
    // At measured points with a certain median, the curve passes through the measurement.
    for probe in probes.iter().filter(|probe| probe["uncertainty"].as_f64().is_some_and(|half| half < 0.01)) {
        let curve = knee["curve"].as_array().expect("a list");
        let point = curve.iter().find(|point| point["at"] == probe["at"]).expect("a point of the curve");
        let ratio = point["time_ns"].as_f64().expect("a time") / probe["measured_ns"].as_f64().expect("a time");
        assert!((0.8..1.25).contains(&ratio), "{found}");
    }
}

#[test]
fn omitted_knobs_have_default_values() {
    let bench = Bench::new();
    trained(&bench);
    let operator = "matmul:m=64,n=64,k=128";
    let shown = run(bench.opcollect(&format!("space --modelsource simple --modelname {operator} --json"))).expect(0);
    let space = shown.json()[0].clone();
    let ask = |knobs: &str| {
        predict(&bench, &format!("predict --predictor products.opp --op {operator} --threads 1 --json {knobs}"))
    };
    let time = |knobs: &str| ask(knobs).expect(0).json()["operators"][0]["time_ns"].as_f64().expect("a time");
    let default: Vec<(String, String)> = space["default"]
        .as_object()
        .expect("knobs")
        .iter()
        .map(|(name, value)| (name.clone(), value.to_string().replace('"', "")))
        .collect();
    let usual = time("");
    for (name, value) in &default {
        assert_eq!(time(&format!("--knob {name}={value}")), usual, "{name}={value} is what is meant without it");
    }
    let all: Vec<String> = default.iter().map(|(name, value)| format!("--knob {name}={value}")).collect();
    assert_eq!(time(&all.join(" ")), usual);

    let axis = |name: &str| {
        let axes = space["axes"].as_array().expect("axes");
        axes.iter().find(|axis| axis["name"] == name).expect("an axis")["settings"].clone()
    };
    let over = format!("knee --predictor products.opp --op {operator} --threads 1 --over tile_x --json");
    let found = predict(&bench, &over).expect(0);
    let curve = found.json()["knees"][0]["curve"].as_array().expect("points").clone();
    assert!(curve.len() > 1, "{found}");
    for point in &curve {
        let at = point["at"].as_f64().expect("a setting");
        assert!(
            axis("tile_x").as_array().expect("settings").iter().any(|one| one.as_f64() == Some(at)),
            "{at} {space}"
        );
    }
    // Changing one setting affects the result; all other settings stay at the default.
    let others =
        default.iter().filter(|(name, _)| name != "tile_x").map(|(name, value)| format!("--knob {name}={value}"));
    let others = others.collect::<Vec<_>>().join(" ");
    for point in &curve {
        let at = format!("--knob tile_x={}", point["at"]);
        assert_eq!(time(&at), time(&format!("{at} {others}")), "{at}");
    }

    for (knob, part) in [
        ("tile_x=nan", "known settings: "),
        ("tile_x=9999", "known settings: "),
        ("tile_x=24", "known settings: "),
        ("tile_x=wide", "known settings: "),
        ("vectorize=maybe", "yes"),
        ("tile_q=4", "the knobs of this operator are block, "),
        ("from=default", "the knobs of this operator are block, "),
    ] {
        let refused = ask(&format!("--knob {knob}")).expect(2);
        assert!(refused.stderr.contains(part), "{knob}: {refused}");
    }
}

#[test]
fn models_are_predicted_as_far_as_learned() {
    let bench = Bench::new();
    trained(&bench);
    // Its dense layers were not learned.
    let ran = predict(&bench, "predict --predictor products.opp --model mlp --threads 1 --json").expect(1);
    let total = &ran.json()["models"][0]["total"];
    assert!(total["bounds_ns"].as_f64().expect("a time") > 0.0 && total["high_ns"].is_null(), "{ran}");
    let output = predict(&bench, "predict --predictor products.opp mlp --threads 1").expect(1);
    assert!(output.stdout.contains("the training data lacks") && output.stdout.contains("lower bound"), "{output}");
    // The same applies to a single operator.
    let alone = predict(&bench, "predict --predictor products.opp softmax:shape=64x10 --threads 1 --json").expect(1);
    assert_eq!(alone.stdout.lines().count(), 1, "{alone}");
    assert_eq!(alone.json()["operators"][0]["basis"], "bound", "{alone}");

    let both = "--op matmul:m=64,n=64,k=128 --op matmul:m=4096,n=64,k=128";
    let ran = predict(&bench, &format!("predict --predictor products.opp {both} --threads 1 --json")).expect(1);
    assert_eq!(ran.json()["operators"].as_array().map(Vec::len), Some(1), "{ran}");
    assert!(ran.json()["refused"][0]["reason"].as_str().expect("a text").contains("rows of the result: 4096"), "{ran}");
    assert!(ran.stderr.contains("rows of the result: 4096, training range 16 to 96"), "{ran}");
}

#[test]
fn output_files_are_checked_before_the_work() {
    let bench = Bench::new();
    bench.write("empty.jsonl", "");
    bench.write("no.opp", "no predictor");
    for arguments in [
        "train --data empty.jsonl --out nowhere/p.opp",
        "adapt --predictor no.opp --data empty.jsonl --out nowhere/p.opp",
        "eval --data empty.jsonl --html nowhere/p.html",
        "correlate --data empty.jsonl --html nowhere/p.html",
        "correlate --data empty.jsonl --csv nowhere/p.csv",
        "explain --predictor no.opp --data empty.jsonl --html nowhere/p.html",
        "knee --predictor no.opp --op relu:shape=64 --html nowhere/p.html",
        "xgboost --predictor no.opp --read . --out nowhere/p.opp",
    ] {
        let ran = predict(&bench, arguments).expect(2);
        assert!(ran.stderr.contains("nowhere"), "{arguments}: {ran}");
    }
    // A failed training does not change an existing file.
    bench.write("kept.opp", "as it was");
    let ran = predict(&bench, "train --data empty.jsonl --out kept.opp").expect(2);
    assert_eq!(std::fs::read_to_string(bench.path("kept.opp")).expect("the file"), "as it was", "{ran}");
    assert_eq!(bench.entries(), ["empty.jsonl", "kept.opp", "no.opp", "quick.toml"]);
}

/// First use: without records or training, the prediction states its source; then ten measurements are added.
#[test]
fn shipped_predictors_predict_and_adapt() {
    let bench = Bench::new();
    let ask = |arguments: &str| {
        let mut command = bench.command(&program("oppredict"), arguments);
        command.env("XDG_CACHE_HOME", bench.path("cache")).env("OPCOLLECT_LOCKS", bench.locks());
        run(command)
    };
    let first = ask("predict --model resnet-18 --threads 1 --json");
    assert!([0, 1].contains(&first.code()), "{first}");
    assert!(first.stderr.contains("the built-in predictor was trained"), "{first}");
    let total = &first.json()["models"][0]["total"];
    let time = |key: &str| total[key].as_f64().unwrap_or_default();
    assert!(time("low_ns") > 0.0 && time("low_ns") < time("time_ns") && time("time_ns") < time("high_ns"), "{first}");
    assert!((1e6..1e9).contains(&time("time_ns")), "milliseconds, not {}\n{first}", time("time_ns"));
    let refused = ask("plan --model resnet-18 --threads 1024").expect(2);
    assert!(refused.stderr.contains("--threads 1024 is outside of the training range"), "{refused}");

    let adapted = ask("adapt --this-host --json");
    if adapted.code() == 3 && adapted.stderr.contains("the machine is busy") {
        return skip("this machine is too busy to say how far it is");
    }
    let report = adapted.expect(0).json();
    let factor = report["distance"]["factor"].as_f64().expect("a factor");
    assert!(
        factor > 0.0 && report["calibration"]["sentinels"].as_array().is_some_and(|all| all.len() >= 4),
        "{report}"
    );
    let second = ask("predict --model resnet-18 --threads 1 --json");
    assert!(second.stderr.contains("times are translated to this machine"), "{second}");
    let calibrated = second.json();
    assert_eq!(calibrated["this_host"]["distance"]["factor"].as_f64(), Some(factor), "{second}");
    let ratio = calibrated["models"][0]["total"]["time_ns"].as_f64().expect("a time") / time("time_ns");
    assert!(ratio / factor > 0.3 && ratio / factor < 3.0, "{ratio} and {factor}");

    // Planners use the same times, and state their source.
    let planned = ask("plan --model resnet-18 --threads 1 --json").expect(0).json();
    assert_eq!(planned["this_host"], calibrated["this_host"], "{planned}");
    let layers = calibrated["models"][0]["total"]["operators_ns"].as_f64().expect("a time");
    let sequential = planned["plan"]["promise"]["sequential_ns"].as_f64().expect("a time");
    assert!((sequential / layers - 1.0).abs() < 0.05, "{sequential} and {layers}");

    bench.write("other.json", "{}");
    let refused = ask("predict --model resnet-18 --calibration other.json").expect(2);
    assert!(refused.stderr.contains("adapt --this-host` creates a new one"), "{refused}");
    ask("adapt --this-host --data x.csv --out y").expect(2);
    ask("adapt --out y").expect(2);
}
