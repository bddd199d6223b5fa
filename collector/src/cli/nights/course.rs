//! Keeps how far a night is, so that a killed one goes on where it stopped, within the time that it was given at first.

use super::super::kept::Kept;
use datasets::Key;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// How far a night is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Course {
    /// Its name.
    pub id: String,
    /// What it was asked to do.
    pub asked: String,
    /// When it has to be over, in microseconds since 1970.
    pub end_us: i64,
    /// How long it was given, in seconds.
    pub seconds: f64,
    /// Phases that have come to their end.
    pub done: Vec<String>,
    /// Seconds that each phase has taken.
    pub spent: BTreeMap<String, f64>,
    /// When the sentinels ran last, and how long that took.
    pub looked: Option<(i64, f64)>,
}

impl Course {
    /// Returns the course of a killed night, if it was asked to do the same and its time is not over.
    pub fn resumed(kept: &Kept, asked: &str, now_us: i64) -> Option<Course> {
        kept.read::<Course>().filter(|course| course.asked == asked && course.end_us > now_us)
    }

    /// What a night was asked to do, as one word: its configuration, its store and its time.
    pub fn asked(config: &str, store: &Path, minutes: f64) -> String {
        let text = format!("{config}\n{}\n{minutes}", store.display());
        Key::of_bytes(text.as_bytes()).hex()
    }

    /// Whether a phase has come to its end.
    pub fn has_done(&self, phase: &str) -> bool {
        self.done.iter().any(|done| done == phase)
    }

    /// Seconds that a phase has taken, those of killed processes included.
    pub fn spent(&self, phase: &str) -> f64 {
        self.spent.get(phase).copied().unwrap_or(0.0)
    }

    /// Adds the seconds of a slice to those of its phase.
    pub fn spend(&mut self, phase: &str, seconds: f64) {
        *self.spent.entry(phase.to_owned()).or_default() += seconds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_night_goes_on_and_only_before_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::within(folder.path(), "night");
        assert_eq!(Course::resumed(&kept, "a", 5), None);
        let course = Course { asked: "a".to_owned(), end_us: 10, id: "night-1".to_owned(), ..Course::default() };
        kept.write(&course).unwrap();
        assert_eq!(Course::resumed(&kept, "a", 5), Some(course));
        assert_eq!((Course::resumed(&kept, "a", 10), Course::resumed(&kept, "b", 5)), (None, None));
        kept.forget();
        assert_eq!(Course::resumed(&kept, "a", 5), None);
    }
}
