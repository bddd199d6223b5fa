//! From measuring to predicting with both real programs: what was collected is learned from, what is built is ranked before it
//! runs, and what is uncertain is measured.
#![allow(missing_docs)]

use tests::{Bench, Ran, program, run, skip};

/// A predictor of products, learned from what the collector measured just now.
fn trained(bench: &Bench) {
    let sizes: Vec<String> = [(16, 16), (24, 32), (32, 64), (48, 48), (64, 64), (64, 96), (96, 64), (96, 96)]
        .iter()
        .map(|(m, n)| format!("--modelname matmul:m={m},n={n},k={}", m + n))
        .collect();
    let arguments =
        format!("--modelsource simple {} --schedules 4 --threads 1 --config quick.toml --store store", sizes.join(" "));
    run(bench.opcollect(&arguments)).expect(0);
    predict(bench, "train --data store --max-cv 1000 --out products.opp").expect(0);
}

fn predict(bench: &Bench, arguments: &str) -> Ran {
    run(bench.command(&program("oppredict"), arguments))
}

#[test]
fn what_is_collected_is_learned_and_what_is_built_is_ranked_before_it_runs() {
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
fn what_is_uncertain_is_measured() {
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
    // Where it was measured and the median is known, the curve goes through.
    for probe in probes.iter().filter(|probe| probe["uncertainty"].as_f64().is_some_and(|half| half < 0.01)) {
        let curve = knee["curve"].as_array().expect("a list");
        let point = curve.iter().find(|point| point["at"] == probe["at"]).expect("a point of the curve");
        let ratio = point["time_ns"].as_f64().expect("a time") / probe["measured_ns"].as_f64().expect("a time");
        assert!((0.8..1.25).contains(&ratio), "{found}");
    }
}
