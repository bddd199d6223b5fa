//! Where samples come from, as far as it decides what they say of another machine or another version of the programs.

use datasets::Record;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What the records that were learned from have in common, and which code they ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// By device, the settings that all its records share, by column.
    pub settings: BTreeMap<String, BTreeMap<String, String>>,
    pub host_classes: BTreeSet<String>,
    pub tvm_versions: BTreeSet<String>,
    /// When the first of them was measured, in microseconds since 1970.
    pub first_us: i64,
    /// When the last one was.
    pub last_us: i64,
    /// Their code, by what it was made of.
    pub code: Vec<CodeOrigin>,
}

/// The code of records whose operators are compiled alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CodeOrigin {
    /// Kind of the anchor operator, as records have it.
    pub op_kind: String,
    pub target: String,
    /// The operators of the task without their attributes, the anchor first: what its revision follows from.
    pub steps: Vec<String>,
    /// Whether TVM's own space was drawn from.
    pub is_drawn: bool,
    /// Which code the program made of them; nothing where that is not recorded.
    pub revision: Option<String>,
    pub rows: usize,
}

/// What is read of a task and of a schedule.
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
    /// Of records that are learned from, whose devices have these settings.
    pub(crate) fn of(records: &[&Record], settings: BTreeMap<String, BTreeMap<String, String>>) -> Provenance {
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

    /// Operators whose records are of several revisions of code, with their records: of the one with most, and of all others.
    pub fn mixed(&self) -> BTreeMap<&str, (usize, usize)> {
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

/// Empty for operators of a library, which are not compiled.
fn code_origin(record: &Record) -> Option<CodeOrigin> {
    let target = match targets::of_record(record) {
        Some(kind) if kind.is_library() => return None,
        Some(kind) => kind.code_name(),
        None => record.target.name(),
    };
    let task: Steps = record.task.as_ref()?.to().ok()?;
    let schedule: Option<Proposal> = record.schedule.as_ref().and_then(|schedule| schedule.to().ok());
    Some(CodeOrigin {
        op_kind: record.op_kind.clone(),
        target: target.to_owned(),
        steps: task.steps.into_iter().map(|step| step.op.kind).collect(),
        is_drawn: schedule.is_some_and(|schedule| schedule.from == "metaschedule"),
        revision: record.code_revision.clone(),
        rows: 0,
    })
}
