//! `dataset revisions`: which records were measured by code that this program still makes.

use super::{DONE, DONE_WITH_LOSSES, Result, paper, print, print_json, tell_damage};
use datasets::{Choose, Record};
use engine::stores::{failed, open};
use job::revision::Revisions;
use job::space::Schedule;
use job::target::Kind;
use models::Task;
use report::{Table, figures, words};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What became of the code of a store's records.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// Records of single operators whose code this program makes.
    current: usize,
    /// Those whose code it makes no more.
    other: usize,
    /// Records that have no such code: of whole networks, of libraries, or without task or schedule.
    without: usize,
    /// The above that are `other`, by operator.
    other_by_operator: BTreeMap<String, usize>,
    /// Revisions, as records have them, of code that this program makes.
    current_revisions: BTreeSet<String>,
}

/// Counts them.
pub fn run(path: &Path, as_json: bool) -> Result<u8> {
    let records = open(path)?.records(Choose::All).map_err(failed)?;
    let code = tell_damage(records.damage());
    let mut report = Report::default();
    for record in records {
        report.take(&record.map_err(failed)?);
    }
    if as_json {
        print_json(&report)?;
    } else {
        let mut table = Table::new([words("operator"), figures("records of other code")]);
        report.other_by_operator.iter().for_each(|(kind, count)| table.row([kind.clone(), count.to_string()]));
        let Report { current, other, without, .. } = report;
        if other > 0 {
            print(&table.on(&paper()))?;
        }
        print(&format!(
            "{current} records of code that this program makes, {other} of other code, {without} without code"
        ))?;
    }
    Ok(code.max(if report.other > 0 { DONE_WITH_LOSSES } else { DONE }))
}

impl Report {
    fn take(&mut self, record: &Record) {
        let Some(now) = revision_now(record) else {
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

/// The revision of the code that this program makes of a record's task by its schedule.
fn revision_now(record: &Record) -> Option<String> {
    let kind = match record.target {
        datasets::Target::Llvm => Kind::Llvm,
        datasets::Target::Cuda => Kind::Cuda,
        datasets::Target::Pynq => Kind::Pynq,
        datasets::Target::Other => Kind::Opencl,
        datasets::Target::Torch | datasets::Target::Tpu => return None,
    };
    let task: Task = record.task.as_ref().filter(|_| !record.is_network())?.to().ok()?;
    let schedule = Schedule::from_json(record.schedule.as_ref()?.text()).ok()?;
    Some(Revisions::own().of(&task, kind, &schedule).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use datasets::{Json, NETWORK};

    #[test]
    fn records_of_other_code_are_told_by_operator() {
        let task = Task::from_text("dense(f32[4,8], const f32[6,8])").expect("a task");
        let schedule = Schedule::Template { knobs: Default::default() };
        let record = |code_revision: Option<&str>| Record {
            op_kind: "dense".to_owned(),
            task: Some(Json::new(&task).expect("JSON")),
            schedule: Some(Json::parse(&schedule.to_json()).expect("JSON")),
            code_revision: code_revision.map(str::to_owned),
            ..Record::default()
        };
        let now = Revisions::own().of(&task, Kind::Llvm, &schedule).to_string();
        let network = Record { op_kind: NETWORK.to_owned(), ..record(None) };
        let library = Record { target: datasets::Target::Torch, ..record(None) };
        let mut report = Report::default();
        for record in [record(Some(&now)), record(Some("0123456789abcdef")), record(None), network, library] {
            report.take(&record);
        }
        assert_eq!((report.current, report.other, report.without), (1, 2, 2));
        assert_eq!(report.other_by_operator, BTreeMap::from([("dense".to_owned(), 2)]));
        assert_eq!(report.current_revisions, BTreeSet::from([now]));
    }
}
