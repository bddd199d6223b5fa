//! Reads arbitrary bytes as a predictor file or as a query of the server.
//!
//! An input that starts with `{` is a query to the published CPU predictor. Other inputs are a predictor file without
//! its hash, which is appended here; a readable predictor is queried. Useful seeds are a query, and a file of
//! `oppredict train` without its last 32 bytes.

use learn::predictor::Query;
use predictor::bundle;
use predictor::serve::{PATIENCE, Service, answer_query};
use samples::features::Work;
use std::collections::BTreeMap;
use std::sync::OnceLock;

const PUBLISHED: &[u8] = include_bytes!("../../../datasets/published/cpu.opp");

fn service() -> &'static Service {
    static SERVICE: OnceLock<Service> = OnceLock::new();
    SERVICE.get_or_init(|| Service {
        predictor: bundle::from_bytes(PUBLISHED).expect("our own file"),
        mapping: None,
        patience: PATIENCE,
        known: None,
    })
}

pub fn run(bytes: &[u8]) {
    if bytes.first() == Some(&b'{') {
        let _ = answer_query(bytes, service());
        return;
    }
    let mut file = bytes.to_vec();
    file.extend_from_slice(blake3::hash(bytes).as_bytes());
    let Ok(predictor) = bundle::from_bytes(&file) else { return };
    let work = Work::contraction_work(3.0, 200.0, 300.0, 100.0, false);
    let extras = BTreeMap::from([("knob.tile_x".to_owned(), 4.0)]);
    for operator in predictor.learned.operators.keys() {
        for device in predictor.about.devices.keys() {
            let query = Query { operator, work: &work, device, threads: None, extras: &extras };
            let _ = predictor.predict(&query);
            let _ = predictor::explain::explain_prediction(&predictor, &query);
        }
    }
}
