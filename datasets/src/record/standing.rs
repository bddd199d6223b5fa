//! Decides whether a stored record can replace a new measurement. A tuner's trial requires the same experiment; a query
//! for the fastest schedule accepts records measured under the same conditions, or under the newest ones if the current
//! conditions are unknown, for example on another host.

use super::cell::Cell;
use super::experiment::EXPERIMENT;
use super::table::{ColumnId, Record};
use super::words::Target;
use serde::Deserialize;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// The columns of `EXPERIMENT` that describe machine, versions and source. The code revision differs between tasks.
pub const CONDITIONS: &[ColumnId] = &[
    ColumnId::target,
    ColumnId::board,
    ColumnId::device,
    ColumnId::host_class,
    ColumnId::clock_policy,
    ColumnId::tvm_version,
    ColumnId::llvm_version,
    ColumnId::driver_version,
    ColumnId::source,
];

/// The columns in which a record must agree with an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Likeness {
    /// All columns of `EXPERIMENT`.
    Experiment,
    /// The columns of `CONDITIONS`.
    Conditions,
}

impl Likeness {
    fn cells(self, record: &Record) -> impl Iterator<Item = Cell<'_>> {
        let columns = match self {
            Likeness::Experiment => EXPERIMENT,
            Likeness::Conditions => CONDITIONS,
        };
        // The target text of a library contains its version.
        let library = (record.target == Target::Torch).then_some(ColumnId::target_text);
        columns.iter().copied().chain(library).map(|id| record.cell(id))
    }
}

/// Returns whether a record can replace an attempt; `now` has the attempt's columns that are known before the run.
pub fn stands_for(record: &Record, now: &Record, likeness: Likeness) -> bool {
    likeness.cells(record).eq(likeness.cells(now))
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Conditions(Vec<Option<String>>);

impl Conditions {
    fn from_record(record: &Record) -> Conditions {
        let text = |cell: Cell<'_>| match cell {
            Cell::Text(text) => Some(text.to_owned()),
            _ => None,
        };
        Conditions(Likeness::Conditions.cells(record).map(text).collect())
    }
}

/// Keeps records with their machine's newest conditions and their task's newest code; also returns the number removed.
pub fn keep_newest_conditions<R: Borrow<Record>, M: Ord>(
    records: Vec<R>,
    machine: impl Fn(&Record) -> M,
) -> (Vec<R>, usize) {
    let all = records.len();
    let records = keep_newest(records, &machine, Conditions::from_record);
    let code_of = |record: &Record| {
        (machine(record), record.task_hash.clone(), record.symbolic_task.clone(), kind_of_schedule(record))
    };
    let records = keep_newest(records, code_of, |record| record.code_revision.clone());
    let left_out = all - records.len();
    (records, left_out)
}

/// Keeps, for each `place`, only the records of the `group` that was measured last.
fn keep_newest<R: Borrow<Record>, P: Ord, G: Ord>(
    mut records: Vec<R>,
    place: impl Fn(&Record) -> P,
    group: impl Fn(&Record) -> G,
) -> Vec<R> {
    let mut newest: BTreeMap<P, (i64, G)> = BTreeMap::new();
    for record in &records {
        let record: &Record = record.borrow();
        let found = (record.started_at_us, group(record));
        match newest.entry(place(record)) {
            Entry::Vacant(entry) => drop(entry.insert(found)),
            Entry::Occupied(mut entry) if *entry.get() < found => drop(entry.insert(found)),
            Entry::Occupied(_) => {}
        }
    }
    records.retain(|record| newest.get(&place(record.borrow())).is_some_and(|(_, own)| *own == group(record.borrow())));
    records
}

/// Returns the origin of the schedule, because schedules sampled from TVM's own space have their own code revision.
fn kind_of_schedule(record: &Record) -> Option<String> {
    #[derive(Deserialize)]
    struct WrittenStanding {
        from: String,
    }
    record.schedule.as_ref()?.parse_as::<WrittenStanding>().ok().map(|written| written.from)
}

impl Record {
    /// Returns the versions that a time depends on, as text.
    pub fn version_text(&self) -> String {
        let named = [
            ("TVM", &self.tvm_version),
            ("LLVM", &self.llvm_version),
            ("driver", &self.driver_version),
            ("clock", &self.clock_policy),
        ];
        let known = named.iter().filter_map(|(name, version)| Some(format!("{name} {}", version.as_ref()?)));
        let known: Vec<String> = known.collect();
        if known.is_empty() { "no versions".to_owned() } else { known.join(", ") }
    }

    /// Returns the versions and the code revision, as text.
    pub fn versions_and_code(&self) -> String {
        let code = self.code_revision.as_ref().map(|code| format!(", code {code}"));
        self.version_text() + &code.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::column::Kind;
    use crate::record::json::Json;

    fn record(tvm: &str, moment: i64) -> Record {
        Record {
            host_class: "here".to_owned(),
            task_hash: "task".to_owned(),
            tvm_version: Some(tvm.to_owned()),
            code_revision: Some("new".to_owned()),
            schedule: Some(Json::parse(r#"{"from":"template","knobs":{}}"#).expect("JSON")),
            started_at_us: moment,
            ..Record::default()
        }
    }

    #[test]
    fn every_column_that_names_an_experiment_counts() {
        let base = record("0.27", 1);
        assert!(stands_for(
            &Record { started_at_us: 9, median_ns: Some(1.0), ..base.clone() },
            &base,
            Likeness::Experiment
        ));
        for &id in EXPERIMENT {
            let mut other = base.clone();
            let changed = match id {
                ColumnId::target => Cell::Text("cuda"),
                ColumnId::source => Cell::Text("imported"),
                ColumnId::cache_state => Cell::Text("cold"),
                _ if id.column_metadata().kind == Kind::Integer => Cell::Integer(77),
                _ if id.column_metadata().kind == Kind::Float => Cell::Float(0.5),
                _ => Cell::Text("7"),
            };
            other.set(id, changed).expect("a value of the column");
            assert!(!stands_for(&other, &base, Likeness::Experiment), "{}", id.name());
            assert_ne!(other.experiment_key(), base.experiment_key(), "{}", id.name());
            assert_eq!(stands_for(&other, &base, Likeness::Conditions), !CONDITIONS.contains(&id), "{}", id.name());
        }
    }

    #[test]
    fn conditions_are_part_of_an_experiment() {
        assert!(CONDITIONS.iter().all(|id| EXPERIMENT.contains(id)));
    }

    #[test]
    fn the_version_of_a_library_is_a_condition() {
        let of = |text: &str| Record { target: Target::Torch, target_text: Some(text.to_owned()), ..record("none", 1) };
        assert!(stands_for(&of("2.9"), &of("2.9"), Likeness::Conditions));
        assert!(!stands_for(&of("2.8"), &of("2.9"), Likeness::Conditions));
    }

    fn check_newest(records: &[Record], wanted: &[i64]) {
        let (kept, left_out) = keep_newest_conditions(records.iter().collect(), |record| record.host_class.clone());
        let moments: Vec<i64> = kept.iter().map(|record| record.started_at_us).collect();
        assert_eq!((moments.as_slice(), left_out), (wanted, records.len() - wanted.len()));
    }

    #[test]
    fn newest_conditions_and_newest_code_are_kept() {
        let code = |code: Option<&str>, record: Record| Record { code_revision: code.map(str::to_owned), ..record };
        check_newest(&[], &[]);
        check_newest(&[record("0.27", 1), record("0.26", 2), record("0.27", 3)], &[1, 3]);
        let there = |record: Record| Record { host_class: "there".to_owned(), ..record };
        check_newest(&[record("0.27", 5), there(record("0.26", 2)), there(record("0.27", 1))], &[5, 2]);
        let slow = Record { clock_policy: Some("powersave".to_owned()), ..record("0.27", 1) };
        check_newest(&[slow, record("0.27", 2)], &[2]);
        // Rows of old schema versions have no code revision.
        check_newest(&[code(None, record("0.27", 1)), code(Some("new"), record("0.27", 2))], &[2]);
        let other = Record { task_hash: "other".to_owned(), ..code(Some("old"), record("0.27", 1)) };
        check_newest(&[other, record("0.27", 2)], &[1, 2]);
        // Samples of TVM's own space have a code revision of their own.
        let drawn = Json::parse(r#"{"from":"metaschedule","space":0,"seed":1}"#).expect("JSON");
        let drawn = Record { schedule: Some(drawn), ..code(Some("drawn"), record("0.27", 1)) };
        check_newest(&[drawn, record("0.27", 2)], &[1, 2]);
    }

    #[test]
    fn versions_as_text() {
        assert_eq!(record("0.27", 1).version_text(), "TVM 0.27");
        assert_eq!(record("0.27", 1).versions_and_code(), "TVM 0.27, code new");
        assert_eq!(Record::default().versions_and_code(), "no versions");
    }
}
