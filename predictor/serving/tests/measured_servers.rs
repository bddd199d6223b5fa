//! Tests the overheads that are learned from the public table of whole servers.
#![allow(clippy::print_stderr, missing_docs)]

use serving::measured_servers::MeasuredServers;
use serving::server::shipped_overheads;
use serving::server_evaluation::{HeldOutServers, ServerLearner, TARGET_NAMES, evaluate_overheads};
use std::path::Path;

fn measured() -> Option<MeasuredServers> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let table = root.join("../shared/data/public-ops/aic/llm_end_to_end.parquet");
    if !table.is_file() {
        eprintln!("skipped: there is no `{}`", table.display());
        return None;
    }
    Some(MeasuredServers::read_table(&table).expect("a sound table"))
}

#[test]
fn held_out_servers_are_predicted_within_the_bars() {
    let Some(measured) = measured() else { return };
    let errors = evaluate_overheads(&measured, &[HeldOutServers::Configurations], &[0, 1, 2]).expect("an evaluation");
    let of = |target: usize, learner: ServerLearner| {
        let is_wanted = |one: &&serving::server_evaluation::ServerErrors| {
            one.group == "all" && one.target == TARGET_NAMES[target] && one.learner == learner
        };
        errors.iter().find(is_wanted).expect("errors of all")
    };
    for (target, bar) in [(0, 20.0), (1, 12.0)] {
        let ours = of(target, ServerLearner::Overheads);
        assert!(ours.median <= bar, "{ours:?}");
        for other in [ServerLearner::DeviceFactor, ServerLearner::Roofline] {
            assert!(ours.median < of(target, other).median, "{other:?}");
        }
        for interval in &ours.intervals {
            let off = (interval.held - f64::from(interval.promised)).abs();
            assert!(off <= 6.0, "{interval:?}");
        }
    }
}

#[test]
fn the_shipped_overheads_are_those_of_the_table() {
    let Some(measured) = measured() else { return };
    assert_eq!(shipped_overheads().len(), measured.servers.len());
    let llama = |server: &&serving::measured_servers::MeasuredServer| server.deployment.model.name == "llama-3.1-70b";
    let mut errors: Vec<f64> = measured
        .servers
        .iter()
        .filter(llama)
        .map(|server| {
            let sample = server.overhead_sample().expect("a server");
            let [_, per_token] = shipped_overheads().predict_ratios(&sample.features);
            (per_token.log - sample.ratios[1]).abs()
        })
        .collect();
    errors.sort_by(f64::total_cmp);
    // Servers that were learned from; a file of an older plan would be far off.
    assert!(errors[errors.len() / 2] < 0.05, "{}", errors[errors.len() / 2]);
}
