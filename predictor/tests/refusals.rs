//! Tests that impossible evaluations and unusable predictor files are rejected with a reason.

mod common;

use learn::Learner;
use models::Choice;
use predictor::bundle;
use predictor::evaluate::{Plan, Protocol, evaluate};
use samples::features::FEATURES;
use samples::table::Mapping;

#[test]
fn folds_with_nothing_in_them_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mapping, _) = common::write(folder.path());
    let table = folder.path().join("one-shape.csv");
    let rows = "product,small,100,1,64,64,64,a\nproduct,small,101,1,64,64,64,a\n";
    std::fs::write(&table, format!("op,device,time_us,b,m,n,k,kernel\n{rows}")).expect("a file");
    let mapping = Mapping::read_file(&mapping).expect("the mapping");
    let samples = samples::table::read_samples(&[table], &mapping).expect("two samples of one shape");
    for protocol in [Protocol::P1, Protocol::P1x, Protocol::P2, Protocol::P2f, Protocol::P3, Protocol::P4, Protocol::P5]
    {
        let plan = Plan::for_protocol(protocol, &[Learner::Roofline]);
        let error = evaluate(&samples, &plan).expect_err(protocol.name()).to_string();
        assert!(
            error.contains("the training or the test set is empty")
                || error.contains("at least two")
                || error.contains("fewer than two"),
            "{}: {error}",
            protocol.name()
        );
    }
}

#[test]
fn a_predictor_for_other_features_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut predictor = bundle::from_bytes(common::trained()).expect("the file");
    let path = folder.path().join("other.opp");
    predictor.about.names[3] = format!("not_{}", FEATURES[3].name);
    bundle::write_bundle(&predictor, &path).expect("a file");
    let error = bundle::read_bundle(&path).expect_err("other features").to_string();
    assert!(error.contains("its features differ") && error.contains("other.opp"), "{error}");
}
