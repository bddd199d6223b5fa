//! Shipped predictors come from records of the current code, and state their errors.
#![allow(missing_docs)]

use datasets::{Covers, Format, Record, Writer};
use serde_json::Value;
use std::fs::File;
use tests::{Bench, Ran, program, run, stores, workspace};

fn publish(bench: &Bench, store: &str) -> Ran {
    let programs = program("opcollect");
    let programs = programs.parent().expect("programs lie in a folder").display();
    let (python, script) = (workspace::root().join(".venv/bin/python"), workspace::root().join("scripts/publish"));
    let arguments = format!("{} make {store} --out out --programs {programs}", script.display());
    run(bench.command(&python, &arguments))
}

fn import(bench: &Bench, store: &str, records: impl IntoIterator<Item = Record>) {
    let path = bench.path(&format!("{store}.jsonl"));
    let mut writer = Writer::new(&path, Format::JsonLines, File::create(&path).expect("a file")).expect("a writer");
    for record in records {
        let record = Record { key: record.experiment_key(), ..record };
        writer.write(&record).expect("a sound record");
    }
    writer.finish().expect("a file");
    run(bench.opcollect(&format!("dataset import --store {store} {store}.jsonl"))).expect(0);
}

#[test]
fn records_of_older_code_are_rejected() {
    let bench = Bench::new();
    let sizes: Vec<String> = (0..8).map(|step| format!("--modelname matmul:m=16,n={},k=24", 16 + 8 * step)).collect();
    let arguments =
        format!("--modelsource simple {} --schedules 3 --threads 1 --config quick.toml --store store", sizes.join(" "));
    run(bench.opcollect(&arguments)).expect(0);
    // One visit with two samples has no interval; the certainty of times is not tested here.
    let known = |record: Record| {
        let end = |share: f64| record.median_ns.map(|ns| ns * (1.0 + share));
        Record {
            median_interval_ns: record.median_ns.map(|ns| ns / 500.0),
            median_low_ns: end(-1.0 / 500.0),
            median_high_ns: end(1.0 / 500.0),
            interval_covers: Some(Covers::Visits),
            ..record
        }
    };
    let now: Vec<Record> = stores::records(&bench.path("store")).into_iter().map(known).collect();
    let older = |record: &Record| Record { code_revision: Some("0123456789abcdef".to_owned()), ..record.clone() };
    import(&bench, "both", now.iter().cloned().chain(now.iter().take(5).map(older)));
    let counted = run(bench.opcollect("dataset revisions --store both --json")).expect(1).json();
    assert_eq!((&counted["current"], &counted["other"]), (&now.len().into(), &5.into()), "{counted}");
    assert_eq!(counted["other_by_operator"]["matmul"], 5, "{counted}");

    let made = publish(&bench, "both").expect(0);
    assert!(made.stderr.contains("records are refused: the programs make other code now (matmul 5)"), "{made}");
    let text = |name: &str| std::fs::read_to_string(bench.path("out").join(name)).expect("a file");
    let manifest: Value = serde_json::from_str(&text("manifest.json")).expect("JSON");
    assert_eq!((&manifest["kept"], &manifest["older_code"]["matmul"]), (&now.len().into(), &5.into()), "{manifest}");
    let error = &manifest["predictors"]["cpu.opp"]["held_out"]["matmul"]["sizes"];
    assert_eq!(error["shapes"], 8, "{manifest}");
    let card = text("README.md");
    let line = format!("| matmul | {:.1} % | 8 |", error["median_percent"].as_f64().expect("a number"));
    assert!(
        card.contains(&line) && card.contains("rows of older code generators: 5, excluded") && !card.contains('@'),
        "{line}\n{card}"
    );
    let left = stores::records(&bench.path("out/cpu"));
    assert!(left.iter().all(|record| record.code_revision.as_deref() != Some("0123456789abcdef")));

    let ask = "predict --predictor out/cpu.opp --op matmul:m=16,n=40,k=24 --json";
    let asked = run(bench.command(&program("oppredict"), ask)).expect(0);
    let document = asked.json();
    assert_eq!(&document["operators"][0]["held_out"], error, "{asked}");
    assert_eq!(document["threads"]["count"], 1.0, "the most that were learned from: {asked}");
    assert_eq!(document["learned_from"]["other_code"], serde_json::json!({}), "{asked}");
    assert!(document["threads"]["from"] == "default" && !asked.stderr.contains("no longer generate"), "{asked}");

    import(&bench, "older", now.iter().map(older));
    let refused = publish(&bench, "older");
    assert!(refused.code() != 0 && refused.stderr.contains("collect again by these programs"), "{refused}");
    // A predictor that was trained on such records reports this.
    run(bench.command(&program("oppredict"), "train --data older --out older.opp")).expect(0);
    let asked = run(bench.command(&program("oppredict"), &ask.replace("out/cpu.opp", "older.opp"))).expect(0);
    let note = format!("{0} of {0} records have another code revision (matmul {0})", now.len());
    assert!(asked.stderr.contains(&note), "{asked}");
}
