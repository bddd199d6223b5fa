//! Conditions of a measurement made now on this machine by this program, for comparison with those of records.

use super::planned::Bases;
use datasets::{Likeness, Record, stands_for};
use job::revision::Revisions;
use job::space::Schedule;
use models::Task;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

/// Conditions under which a measurement made now would take place: machine, versions and code revisions.
pub struct CurrentConditions {
    /// Base records with the columns of machine and versions, one per kind of target.
    bases: Vec<Record>,
    revisions: Revisions,
    /// Cache of computed code revisions, because a store has many records of few tasks.
    known: RefCell<HashMap<CodeOf, Option<Arc<str>>>>,
}

/// Identity of code: task hash, symbolic task, kind of target, and whether the schedule comes from TVM's own space.
type CodeOf = (String, Option<String>, &'static str, bool);

impl CurrentConditions {
    /// Creates conditions from base records and a table of code revisions.
    pub fn new(bases: Vec<Record>, revisions: Revisions) -> CurrentConditions {
        CurrentConditions { bases, revisions, known: RefCell::default() }
    }

    /// Creates the conditions of a campaign.
    pub fn from_bases(bases: &Bases) -> CurrentConditions {
        CurrentConditions::new(vec![bases.compiled.clone(), bases.library.clone()], bases.revisions.clone())
    }

    /// Returns whether a record was measured under these conditions, with code that this program would generate.
    pub fn match_record(&self, record: &Record) -> bool {
        self.bases.iter().any(|base| stands_for(record, base, Likeness::Conditions)) && self.match_code(record)
    }

    /// Returns whether this program would generate a record's code. Needs the columns `task` and `schedule`.
    fn match_code(&self, record: &Record) -> bool {
        let Some(text) = &record.schedule else { return record.code_revision.is_none() };
        let (Some(kind), Ok(schedule)) = (targets::kind_of_record(record), Schedule::from_json(text.as_text())) else {
            return false;
        };
        let is_drawn = matches!(schedule, Schedule::MetaSchedule { .. });
        let code = (record.task_hash.clone(), record.symbolic_task.clone(), kind.code_name(), is_drawn);
        let mut known = self.known.borrow_mut();
        let revision = known.entry(code).or_insert_with(|| {
            let task = match &record.symbolic_task {
                Some(text) => Task::from_text(text).ok(),
                None => record.task.as_ref().and_then(|task| task.parse_as().ok()),
            };
            Some(self.revisions.revision_of(&task?, kind, &schedule))
        });
        revision.is_some() && record.code_revision.as_deref() == revision.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datasets::{Json, Target};

    #[test]
    fn records_of_other_conditions_do_not_match() {
        let task = Task::from_text("dense(f32[4,8], const f32[6,8])").expect("a task");
        let schedule = Schedule::from_json(r#"{"from":"template","knobs":{}}"#).expect("a schedule");
        let base = Record {
            host_class: "here".to_owned(),
            clock_policy: Some("performance".to_owned()),
            tvm_version: Some("0.27".to_owned()),
            llvm_version: Some("20".to_owned()),
            ..Record::default()
        };
        let library = Record {
            target: Target::Torch,
            target_text: Some("2.9".to_owned()),
            tvm_version: None,
            llvm_version: None,
            ..base.clone()
        };
        let now = CurrentConditions::new(vec![base.clone(), library.clone()], Revisions::embedded_table().clone());
        let measured = Record {
            task_hash: task.hash(),
            task: Some(Json::new(&task).expect("JSON")),
            schedule: Some(Json::parse(&schedule.to_json()).expect("JSON")),
            code_revision: Some(
                Revisions::embedded_table().revision_of(&task, targets::host_kind(), &schedule).to_string(),
            ),
            threads: Some(2),
            ..base
        };
        let text = |text: &str| Some(text.to_owned());
        assert!(now.match_record(&measured) && now.match_record(&library));
        let others = [
            Record { host_class: "there".to_owned(), ..measured.clone() },
            Record { clock_policy: text("powersave"), ..measured.clone() },
            Record { tvm_version: text("0.26"), ..measured.clone() },
            Record { llvm_version: None, ..measured.clone() },
            Record { driver_version: text("1"), ..measured.clone() },
            Record { source: datasets::Source::Imported, ..measured.clone() },
            Record { code_revision: text("0123456789abcdef"), ..measured.clone() },
            Record { code_revision: None, ..measured.clone() },
            Record { task_hash: "another".to_owned(), task: None, ..measured.clone() },
            Record { target_text: text("2.8"), ..library },
        ];
        for (number, other) in others.iter().enumerate() {
            assert!(!now.match_record(other), "{number}");
        }
    }
}
