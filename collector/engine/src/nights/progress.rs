//! Saved progress of a nightly run. A run that was killed resumes from it and keeps its original deadline.

use crate::state::StateFile;
use datasets::Key;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NightProgress {
    /// Name of the nightly run, with the prefix `night-`.
    pub id: String,
    /// Hash that identifies the request: configuration, store and duration.
    #[serde(rename = "asked")]
    pub request: String,
    /// Deadline, in microseconds since 1970.
    pub end_us: i64,
    /// Planned duration of the whole run in seconds.
    pub seconds: f64,
    pub done: Vec<String>,
    /// Time spent in each phase so far, in seconds.
    pub spent: BTreeMap<String, f64>,
    /// Last run of the sentinels: its end in microseconds since 1970, and its duration in seconds.
    #[serde(rename = "looked")]
    pub last_sentinels: Option<(i64, f64)>,
}

impl NightProgress {
    /// Returns the name of the nightly run without the prefix `night-`.
    pub fn label(&self) -> &str {
        self.id.trim_start_matches("night-")
    }

    /// Returns the progress of a killed run with the same request, unless its deadline has passed.
    pub fn resume(file: &StateFile, request: &str, now_us: i64) -> Option<NightProgress> {
        file.read::<NightProgress>().filter(|progress| progress.request == request && progress.end_us > now_us)
    }

    pub fn request_hash(config: &str, store: &Path, minutes: f64) -> String {
        let text = format!("{config}\n{}\n{minutes}", store.display());
        Key::of_bytes(text.as_bytes()).to_hex()
    }

    pub fn has_done(&self, phase: &str) -> bool {
        self.done.iter().any(|done| done == phase)
    }

    /// Returns the seconds spent in a phase so far, including those of killed processes.
    pub fn phase_seconds(&self, phase: &str) -> f64 {
        self.spent.get(phase).copied().unwrap_or(0.0)
    }

    pub fn add_seconds(&mut self, phase: &str, seconds: f64) {
        *self.spent.entry(phase.to_owned()).or_default() += seconds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_request_resumes_before_its_deadline() {
        let folder = tempfile::tempdir().unwrap();
        let file = StateFile::new(folder.path(), "nights", folder.path());
        assert_eq!(NightProgress::resume(&file, "a", 5), None);
        let progress =
            NightProgress { request: "a".to_owned(), end_us: 10, id: "night-1".to_owned(), ..NightProgress::default() };
        file.write(&progress).unwrap();
        assert_eq!(NightProgress::resume(&file, "a", 5), Some(progress));
        assert_eq!((NightProgress::resume(&file, "a", 10), NightProgress::resume(&file, "b", 5)), (None, None));
        file.remove_file();
        assert_eq!(NightProgress::resume(&file, "a", 5), None);
    }
}
