//! Creates test records: a plain record, and arbitrary valid records.
#![allow(dead_code, missing_docs)] // each test file uses its own part

use datasets::{COLUMNS, CacheState, Cell, ColumnId, Json, Key, Kind, Outcome, Record, Source};
use proptest::prelude::*;
use tempfile::TempDir;

/// Creates a temporary folder in memory where possible, because stores wait for each sync of a disk.
pub fn memory_folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Returns a measured record; `number` determines its key and task.
pub fn measured(number: u64) -> Record {
    let mut record = Record {
        run_id: "run-1".to_owned(),
        started_at_us: 1_700_000_000_000_000 + number as i64,
        task_hash: format!("{:016x}", number / 7),
        op_kind: if number.is_multiple_of(3) { "conv2d" } else { "dense" }.to_owned(),
        op_name: "conv2d+bias+relu".to_owned(),
        op_text: "conv2d f32[1,3,8,8] k=3 +bias +relu".to_owned(),
        input_shapes: Some(Json::parse("[[1,3,8,8],[4,3,3,3]]").unwrap()),
        schedule_hash: Some(format!("{number:016x}")),
        threads: Some(2),
        host: "bench-1".to_owned(),
        host_class: "epyc-2".to_owned(),
        source: Source::Measured,
        n: 3,
        median_ns: Some(1000.5),
        mean_ns: Some(1003.25),
        min_ns: Some(990.0),
        p95_ns: Some(1020.0),
        std_ns: Some(12.125),
        cache_state: Some(CacheState::Warm),
        samples_ns: vec![990.0, 1000.5, 1019.25],
        program_version: "0.1.0".to_owned(),
        seed: Some(7),
        ..Record::default()
    };
    record.key = record.experiment_key();
    record
}

pub fn failed(number: u64) -> Record {
    let empty = Record::default();
    Record {
        outcome: Outcome::TimedOut,
        reason: Some("no answer within 10 s".to_owned()),
        n: 0,
        median_ns: None,
        mean_ns: None,
        min_ns: None,
        p95_ns: None,
        std_ns: None,
        samples_ns: empty.samples_ns,
        ..measured(number)
    }
}

pub fn any_record() -> impl Strategy<Value = Record> {
    let cells = proptest::collection::vec(any_cell(), COLUMNS.len());
    (cells, any::<[u8; 16]>(), 0..Outcome::ALL.len(), 1i64..=i64::MAX, text()).prop_map(
        |(cells, key, outcome, started_at_us, reason)| {
            let mut record = measured(0);
            for (column, cell) in COLUMNS.iter().zip(&cells) {
                if let Some(cell) = cell.as_kind(column.kind, column.nullable) {
                    // Closed word sets reject free text and keep their value.
                    let _ = record.set(column.id, cell);
                }
            }
            record.schema_version = 1;
            record.key = Key(key.map(|byte| byte | 1));
            record.attempt = record.attempt.max(1);
            record.started_at_us = started_at_us;
            record.cache_share = record.cache_share.map(|share| share.min(1.0));
            record.outcome = Outcome::ALL[outcome];
            if record.outcome == Outcome::Ok {
                make_ok(&mut record)
            } else {
                make_failed(&mut record, reason)
            }
            record
        },
    )
}

fn make_ok(record: &mut Record) {
    record.reason = None;
    let mut times = [record.min_ns, record.median_ns, record.p95_ns].map(|time| time.unwrap_or(1.5));
    times.sort_by(f64::total_cmp);
    [record.min_ns, record.median_ns, record.p95_ns] = times.map(Some);
    record.mean_ns = Some(record.mean_ns.unwrap_or(2.5).max(times[0]));
    record.median_low_ns = record.median_low_ns.map(|low| low.min(times[1]));
    record.median_high_ns = record.median_high_ns.map(|high| high.max(times[1]));
    record.n = if record.samples_ns.is_empty() { record.n.max(1) } else { record.samples_ns.len() as i64 };
}

fn make_failed(record: &mut Record, reason: String) {
    record.reason = Some(reason);
    record.n = 0;
    record.samples_ns = Vec::new();
    let times = [ColumnId::median_ns, ColumnId::mean_ns, ColumnId::min_ns, ColumnId::p95_ns, ColumnId::std_ns];
    let spreads = [ColumnId::cv, ColumnId::first_run_ns, ColumnId::median_interval_ns, ColumnId::visit_spread];
    let ends = [ColumnId::median_low_ns, ColumnId::median_high_ns];
    for id in times.into_iter().chain(spreads).chain(ends) {
        record.set(id, Cell::Null).unwrap();
    }
}

/// One value of each storage kind, of which a column takes the value of its own kind.
#[derive(Clone, Debug)]
struct AnyCell {
    is_absent: bool,
    flag: bool,
    integer: i64,
    float: f64,
    text: String,
    json: String,
    list: Vec<f64>,
}

impl AnyCell {
    fn as_kind(&self, kind: Kind, nullable: bool) -> Option<Cell<'_>> {
        if nullable && self.is_absent {
            return Some(Cell::Null);
        }
        match kind {
            Kind::Bool => Some(Cell::Bool(self.flag)),
            Kind::Integer | Kind::Time => Some(Cell::Integer(self.integer)),
            Kind::Float => Some(Cell::Float(self.float)),
            Kind::Text | Kind::Label => Some(Cell::Text(&self.text)),
            Kind::Json => Some(Cell::Text(&self.json)),
            Kind::List => Some(Cell::List(&self.list)),
            Kind::Key => None,
        }
    }
}

fn any_cell() -> impl Strategy<Value = AnyCell> {
    let list = proptest::collection::vec(float(), 0..4);
    (proptest::bool::weighted(0.3), any::<bool>(), 0..=i64::MAX, float(), text(), json(), list).prop_map(
        |(is_absent, flag, integer, float, text, json, list)| AnyCell {
            is_absent,
            flag,
            integer,
            float,
            text,
            json,
            list,
        },
    )
}

fn float() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => (0..=f64::MAX.to_bits()).prop_map(f64::from_bits),
        1 => prop_oneof![Just(0.0), Just(f64::MIN_POSITIVE), Just(5e-324), Just(f64::MAX), Just(0.1)],
        4 => 0.0..1e9f64,
    ]
}

/// Returns a strategy for texts that are hard to store: quotes, separators, line ends, spaces, control characters.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => proptest::collection::vec(any::<char>(), 1..8).prop_map(String::from_iter),
        4 => "[a-z,;\"'\\\\ \\r\\n\\t=+@-]{1,8}",
        1 => Just("Ünïcødé 測定 \u{1F9EA}".to_owned()),
    ]
}

fn json() -> impl Strategy<Value = String> {
    prop_oneof![
        text().prop_map(|text| serde_json::to_string(&text).unwrap()),
        (text(), float()).prop_map(|(name, value)| serde_json::json!({ name: value, "list": [] }).to_string()),
        Just("[]".to_owned()),
        Just("{ \"spaced\" : [1, 2.50, -1e-7, 123456789012345678901234567890] }".to_owned()),
    ]
}
