//! Revisions of generated code, which are part of the key of an experiment: a change of lowering, templates or passes
//! makes old times invalid. A revision hashes generated programs, not source text, of a fixed set of tasks for each
//! operator and kind of target. A test compares the table with new code, so the table cannot be forgotten.

use crate::space::Schedule;
use models::{Op, Task};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use targets::Kind;

/// Revision table of this program, which `tests/revisions.rs` writes.
const OWN: &str = include_str!("revisions.txt");

/// Name, in place of an operator, of the table's lines for TVM's own schedule space and its sampling.
const TVM_SPACE: &str = "metaschedule";

/// Hashes of generated code; a key is the target and the operator, separated by a space.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revisions(pub BTreeMap<String, String>);

impl Revisions {
    pub fn embedded_table() -> &'static Revisions {
        static REVISIONS: OnceLock<Revisions> = OnceLock::new();
        REVISIONS.get_or_init(|| Revisions::parse_table(OWN))
    }

    /// Parses a table with one entry per line, whose last word is the hash.
    fn parse_table(text: &str) -> Revisions {
        let lines = text.lines().filter_map(|line| line.rsplit_once(' '));
        Revisions(lines.map(|(name, hash)| (name.to_owned(), hash.to_owned())).collect())
    }

    pub fn format_table(&self) -> String {
        self.0.iter().map(|(name, hash)| format!("{name} {hash}\n")).collect()
    }

    /// Returns the revision of the code generated for a task, as 16 hexadecimal digits.
    pub fn revision_of(&self, task: &Task, target: Kind, schedule: &Schedule) -> Arc<str> {
        let operators: Vec<String> = task.steps.iter().map(|step| operator_name(&step.op)).collect();
        self.combined_revision(target.code_name(), &operators, matches!(schedule, Schedule::MetaSchedule { .. }))
    }

    /// Returns the combined revision of several operators. `is_from_tvm_space`: the schedule is from TVM's own space.
    pub fn combined_revision(&self, target: &str, operators: &[String], is_from_tvm_space: bool) -> Arc<str> {
        let mut hasher = blake3::Hasher::new();
        for operator in operators.iter().map(String::as_str).chain(is_from_tvm_space.then_some(TVM_SPACE)) {
            let name = format!("{target} {operator}");
            let hash = self.0.get(&name).map_or("", String::as_str);
            hasher.update(format!("{name} {hash}\n").as_bytes());
        }
        hasher.finalize().to_hex()[..16].into()
    }
}

pub fn operator_name(op: &Op) -> String {
    let value = serde_json::to_value(op).expect("an operator holds only JSON values");
    value["kind"].as_str().expect("operators have distinct kinds").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Knobs;

    fn task(text: &str) -> Task {
        Task::from_text(text).unwrap()
    }

    fn template() -> Schedule {
        Schedule::Template { knobs: Knobs::default() }
    }

    #[test]
    fn a_revision_follows_the_operators_of_its_task_alone() {
        let (plain, fused) = (
            task("dense(f32[4,8], const f32[6,8])"),
            task(r#"dense(f32[4,8], const f32[6,8]) | unary(_) function="relu""#),
        );
        let own = Revisions::embedded_table();
        let with = |name: &str| {
            let mut other = own.clone();
            other.0.insert(name.to_owned(), "0".to_owned());
            other
        };
        let of = |revisions: &Revisions, task: &Task| revisions.revision_of(task, targets::host_kind(), &template());
        assert_ne!(of(own, &plain), of(own, &fused));
        assert_ne!(of(&with("llvm unary"), &fused), of(own, &fused));
        assert_eq!(of(&with("llvm unary"), &plain), of(own, &plain));
        assert_ne!(of(&with("llvm dense"), &plain), of(own, &plain));
        assert_eq!(of(&with("cuda dense"), &plain), of(own, &plain));
        assert_eq!(of(&with("llvm metaschedule"), &plain), of(own, &plain));
        let drawn = Schedule::MetaSchedule { space: 0, seed: 1, trace: None };
        assert_ne!(
            with("llvm metaschedule").revision_of(&plain, targets::host_kind(), &drawn),
            own.revision_of(&plain, targets::host_kind(), &drawn)
        );
    }

    #[test]
    fn the_table_reads_back() {
        assert_eq!(Revisions::embedded_table().format_table(), OWN);
        assert!(Revisions::embedded_table().0.values().all(|hash| hash.len() == 16), "{OWN}");
    }
}
