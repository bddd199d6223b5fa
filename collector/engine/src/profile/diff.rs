//! Compares two profiles in files.

use crate::Result;
use crate::failure::Failure;
use crate::report::profile::changes;
use profile::Profile;
use profile::compare::{ProfileComparison, compare_profiles};
use profile::summary::GroupBy;
use report::{Paper, format_count};
use serde_json::error::Category;
use std::path::Path;

/// Largest size of a profile's file in bytes. No profile is larger, because the number of its spans is limited.
const MAX_BYTES: u64 = 1 << 30;

/// Changes between two profiles, with a title.
pub struct ProfileDiff {
    /// Change of each row, and the change common to all rows.
    pub changes: ProfileComparison,
    title: String,
}

impl ProfileDiff {
    /// Formats the changes with at most `row_limit` rows.
    pub fn text(&self, row_limit: usize, paper: &Paper) -> String {
        format!("{}\n{}", self.title, changes::describe_comparison(&self.changes, row_limit, paper))
    }
}

/// Compares the profiles in two files.
pub fn compare_files(before: &Path, after: &Path, group_by: GroupBy) -> Result<ProfileDiff> {
    let (before, after) = (read_profile(before)?, read_profile(after)?);
    if before.source != after.source {
        return Err(Failure::usage("the profiles have different sources of times and cannot be compared"));
    }
    let describe = |profile: &Profile| format!("{} ({})", profile.model, format_count(profile.steps.len(), "run"));
    let title = format!("{} → {}", describe(&before), describe(&after));
    Ok(ProfileDiff { changes: compare_profiles(&before, &after, group_by), title })
}

/// Reads a profile from a file.
pub fn read_profile(path: &Path) -> Result<Profile> {
    let failed = |why: &dyn std::fmt::Display| {
        Failure::usage(format!("cannot read the profile `{}`: {why}", path.display()))
            .with_hint("`opcollect profile --out FILE` writes profiles")
    };
    let text = models::files::read_regular(path, MAX_BYTES).map_err(|error| failed(&error))?;
    let profile: Profile = serde_json::from_slice(&text).map_err(|error| match error.classify() {
        Category::Eof => failed(&"the file is empty or truncated"),
        _ => failed(&"the file is not a profile that `--out` has written"),
    })?;
    profile.check().map_err(|error| failed(&error))?;
    Ok(profile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_no_profiles() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        for (text, wanted) in [
            ("name,text\nconv2d,1\n", "the file is not a profile that `--out` has written"),
            ("{\"traceEvents\":[]}", "the file is not a profile that `--out` has written"),
            ("{\"model\":\"resnet", "the file is empty or truncated"),
            ("", "the file is empty or truncated"),
        ] {
            std::fs::write(&path, text).expect("it can be written");
            let failure = read_profile(&path).expect_err("it is no profile");
            assert_eq!(failure.message(), format!("cannot read the profile `{}`: {wanted}", path.display()));
        }
    }
}
