//! Checks whether a predictor was trained on code that the current programs still generate, with the same TVM version.

use job::revision::Revisions;
use learn::predictor::About;
use samples::provenance::Provenance;
use serde::Serialize;
use std::collections::BTreeMap;

const REQUIREMENTS: &str = include_str!("../../requirements.txt");

pub fn tvm_version() -> &'static str {
    let line = REQUIREMENTS.lines().find_map(|line| line.strip_prefix("apache-tvm=="));
    line.expect("the requirements name a version of TVM").trim()
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Origin {
    pub program_version: String,
    /// Provenance that all records have in common; None if not recorded.
    pub provenance: Option<Provenance>,
    /// Number of records whose generated code differs from the code of the current programs, by operator.
    pub other_code: BTreeMap<String, usize>,
    pub compiled: usize,
    /// TVM versions of records that differ from the current version.
    pub other_tvm: Vec<String>,
    #[serde(skip)]
    is_of_records: bool,
}

impl Origin {
    pub fn from_predictor(about: &About) -> Origin {
        // Only devices of records have peaks.
        let is_of_records = about.provenance.is_some() || about.devices.values().any(|device| device.peaks.is_some());
        let own = Revisions::embedded_table();
        let (mut other_code, mut compiled, mut other_tvm) = (BTreeMap::new(), 0, Vec::new());
        if let Some(provenance) = &about.provenance {
            for origin in &provenance.code {
                compiled += origin.rows;
                let now = own.combined_revision(&origin.target, &origin.steps, origin.is_drawn);
                if origin.revision.as_deref() != Some(&*now) {
                    *other_code.entry(origin.op_kind.clone()).or_default() += origin.rows;
                }
            }
            other_tvm.extend(provenance.tvm_versions.iter().filter(|version| *version != tvm_version()).cloned());
        }
        Origin {
            program_version: about.program_version.clone(),
            provenance: about.provenance.clone(),
            other_code,
            compiled,
            other_tvm,
            is_of_records,
        }
    }

    pub fn mismatch_note(&self) -> Option<String> {
        if !self.is_of_records {
            return None;
        }
        if self.provenance.is_none() {
            let problem = "the predictor file does not record code revision and TVM version of its training data";
            return Some(format!("{problem}; train it again with this version"));
        }
        let mut differs = Vec::new();
        if !self.other_code.is_empty() {
            let rows: usize = self.other_code.values().sum();
            let kinds: Vec<String> = self.other_code.iter().map(|(kind, rows)| format!("{kind} {rows}")).collect();
            differs.push(format!(
                "{rows} of {} records have another code revision ({})",
                self.compiled,
                kinds.join(", ")
            ));
        }
        if !self.other_tvm.is_empty() {
            differs.push(format!("compiled by TVM {}, not {}", self.other_tvm.join(" and "), tvm_version()));
        }
        (!differs.is_empty()).then(|| {
            format!("the predictor was trained on code that these programs no longer generate: {}", differs.join("; "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use samples::provenance::CodeOrigin;

    fn about(provenance: Option<Provenance>) -> About {
        About {
            program_version: "0.0".to_owned(),
            xgboost_version: String::new(),
            data_hash: String::new(),
            rows: 0,
            left_out: BTreeMap::new(),
            names: Vec::new(),
            devices: BTreeMap::new(),
            seed: 0,
            min_split_loss: 0.0,
            parameters: BTreeMap::new(),
            not_learned: BTreeMap::new(),
            in_place: BTreeMap::new(),
            stand_ins: BTreeMap::new(),
            held_out: BTreeMap::new(),
            provenance,
        }
    }

    fn learned_from(revision: Option<String>, tvm: &str) -> Option<Provenance> {
        let steps = ["dense", "bias_add"].map(str::to_owned).to_vec();
        let origin = CodeOrigin {
            op_kind: "dense".to_owned(),
            target: "llvm".to_owned(),
            steps,
            is_drawn: false,
            revision,
            rows: 7,
        };
        let tvm_versions = [tvm.to_owned()].into();
        Some(Provenance { tvm_versions, code: vec![origin], ..Provenance::default() })
    }

    #[test]
    fn other_code_and_another_tvm_are_told_and_the_same_is_not() {
        let note = |provenance| Origin::from_predictor(&about(provenance)).mismatch_note();
        let steps = ["dense", "bias_add"].map(str::to_owned);
        let now = Revisions::embedded_table().combined_revision("llvm", &steps, false).to_string();
        assert_eq!(note(learned_from(Some(now.clone()), tvm_version())), None);
        for revision in [Some("0123456789abcdef".to_owned()), None] {
            let other = note(learned_from(revision, tvm_version())).expect("other code");
            assert!(
                other.contains("7 of 7 records have another code revision (dense 7)") && !other.contains("TVM"),
                "{other}"
            );
        }
        let other = note(learned_from(Some(now), "0.1")).expect("another TVM");
        assert!(other.contains(&format!("TVM 0.1, not {}", tvm_version())) && !other.contains("other code"), "{other}");
        assert_eq!(note(None), None, "tables of others are no code of ours");
    }

    #[test]
    fn the_version_of_tvm_is_the_one_that_is_installed() {
        assert!(tvm_version().starts_with(|sign: char| sign.is_ascii_digit()), "{}", tvm_version());
    }
}
