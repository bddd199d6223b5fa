//! Counts the records of a store whose code this program still generates.

use crate::Result;
use crate::observer::Observer;
use crate::stores::{note_damage, open_existing, store_failure};
use datasets::{Choose, Record};
use job::revision::Revisions;
use job::space::Schedule;
use models::Task;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Numbers of records by whether this program still generates their code.
#[derive(Debug, Default, Serialize)]
pub struct CodeCounts {
    /// Records of single operators whose code this program generates.
    pub current: usize,
    /// Records of single operators whose code this program no longer generates.
    pub other: usize,
    /// Records without generated code of one operator: whole networks, libraries, and records without task or schedule.
    pub without: usize,
    /// Records of single operators whose code this program no longer generates, by operator.
    pub other_by_operator: BTreeMap<String, usize>,
    /// Code revisions that occur in records and that this program still generates.
    pub current_revisions: BTreeSet<String>,
    /// Whether a part of the store could not be read.
    #[serde(skip)]
    pub is_damaged: bool,
}

/// Counts the records of a store by whether this program still generates their code.
pub fn count_revisions(store: &Path, observer: &dyn Observer) -> Result<CodeCounts> {
    let records = open_existing(store)?.select_records(Choose::All).map_err(store_failure)?;
    note_damage(records.damage(), observer);
    let mut counts = CodeCounts { is_damaged: !records.damage().is_empty(), ..CodeCounts::default() };
    for record in records {
        counts.count_record(&record.map_err(store_failure)?);
    }
    Ok(counts)
}

impl CodeCounts {
    fn count_record(&mut self, record: &Record) {
        let Some(now) = current_revision(record) else {
            self.without += 1;
            return;
        };
        if record.code_revision.as_deref() == Some(&*now) {
            self.current += 1;
            self.current_revisions.insert(now);
        } else {
            self.other += 1;
            *self.other_by_operator.entry(record.op_kind.clone()).or_default() += 1;
        }
    }
}

fn current_revision(record: &Record) -> Option<String> {
    let kind = targets::kind_of_record(record).filter(|kind| !kind.is_library())?;
    let task: Task = record.task.as_ref().filter(|_| !record.is_network())?.parse_as().ok()?;
    let schedule = Schedule::from_json(record.schedule.as_ref()?.as_text()).ok()?;
    Some(Revisions::embedded_table().revision_of(&task, kind, &schedule).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use datasets::{Json, NETWORK};

    #[test]
    fn records_of_other_code_are_counted_by_operator() {
        let task = Task::from_text("dense(f32[4,8], const f32[6,8])").expect("a task");
        let schedule = Schedule::Template { knobs: Default::default() };
        let record = |code_revision: Option<&str>| Record {
            op_kind: "dense".to_owned(),
            task: Some(Json::new(&task).expect("JSON")),
            schedule: Some(Json::parse(&schedule.to_json()).expect("JSON")),
            code_revision: code_revision.map(str::to_owned),
            ..Record::default()
        };
        let now = Revisions::embedded_table().revision_of(&task, targets::host_kind(), &schedule).to_string();
        let network = Record { op_kind: NETWORK.to_owned(), ..record(None) };
        let library = Record { target: datasets::Target::Torch, ..record(None) };
        let mut counts = CodeCounts::default();
        for record in [record(Some(&now)), record(Some("0123456789abcdef")), record(None), network, library] {
            counts.count_record(&record);
        }
        assert_eq!((counts.current, counts.other, counts.without), (1, 2, 2));
        assert_eq!(counts.other_by_operator, BTreeMap::from([("dense".to_owned(), 2)]));
        assert_eq!(counts.current_revisions, BTreeSet::from([now]));
    }
}
