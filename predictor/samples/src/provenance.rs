//! Origin of samples: settings and versions that determine whether they apply to another machine or program.

use datasets::Record;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    pub settings: BTreeMap<String, BTreeMap<String, String>>,
    pub host_classes: BTreeSet<String>,
    pub tvm_versions: BTreeSet<String>,
    /// Earliest measurement, in microseconds since 1970.
    pub first_us: i64,
    pub last_us: i64,
    pub code: Vec<CodeOrigin>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CodeOrigin {
    pub op_kind: String,
    pub target: String,
    /// Operators of the task without attributes, anchor first, which determine the code revision that applies.
    pub steps: Vec<String>,
    /// Whether schedules were sampled by TVM's MetaSchedule.
    pub is_drawn: bool,
    pub revision: Option<String>,
    pub rows: usize,
}

#[derive(Deserialize)]
struct Steps {
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    op: Kind,
}

#[derive(Deserialize)]
struct Kind {
    kind: String,
}

#[derive(Deserialize)]
struct Proposal {
    from: String,
}

impl Provenance {
    pub(crate) fn from_records(
        records: &[&Record],
        settings: BTreeMap<String, BTreeMap<String, String>>,
    ) -> Provenance {
        let mut code: BTreeMap<CodeOrigin, usize> = BTreeMap::new();
        for origin in records.iter().filter_map(|record| code_origin(record)) {
            *code.entry(origin).or_default() += 1;
        }
        let times = || records.iter().map(|record| record.started_at_us);
        Provenance {
            settings,
            host_classes: records.iter().map(|record| record.host_class.clone()).collect(),
            tvm_versions: records.iter().filter_map(|record| record.tvm_version.clone()).collect(),
            first_us: times().min().unwrap_or_default(),
            last_us: times().max().unwrap_or_default(),
            code: code.into_iter().map(|(origin, rows)| CodeOrigin { rows, ..origin }).collect(),
        }
    }

    /// Returns operators with several code revisions, with the record counts of the most frequent revision and of all
    /// other revisions.
    pub fn mixed_revisions(&self) -> BTreeMap<&str, (usize, usize)> {
        let mut alike: BTreeMap<CodeOrigin, Vec<&CodeOrigin>> = BTreeMap::new();
        for origin in &self.code {
            alike.entry(CodeOrigin { revision: None, rows: 0, ..origin.clone() }).or_default().push(origin);
        }
        let mut mixed: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for origins in alike.into_values().filter(|origins| origins.len() > 1) {
            let (rows, most) = origins.iter().fold((0, 0), |(rows, most), one| (rows + one.rows, most.max(one.rows)));
            let of_kind = mixed.entry(&origins[0].op_kind).or_default();
            *of_kind = (of_kind.0 + most, of_kind.1 + rows - most);
        }
        mixed
    }
}

/// Returns the origin of a record's code; None for library operators, which are not compiled.
fn code_origin(record: &Record) -> Option<CodeOrigin> {
    let target = match targets::kind_of_record(record) {
        Some(kind) if kind.is_library() => return None,
        Some(kind) => kind.code_name(),
        None => record.target.name(),
    };
    let task: Steps = record.task.as_ref()?.parse_as().ok()?;
    let schedule: Option<Proposal> = record.schedule.as_ref().and_then(|schedule| schedule.parse_as().ok());
    Some(CodeOrigin {
        op_kind: record.op_kind.clone(),
        target: target.to_owned(),
        steps: task.steps.into_iter().map(|step| step.op.kind).collect(),
        is_drawn: schedule.is_some_and(|schedule| schedule.from == "metaschedule"),
        revision: record.code_revision.clone(),
        rows: 0,
    })
}
