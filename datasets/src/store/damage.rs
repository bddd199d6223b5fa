//! Detects damaged content, which readers skip and report.

use super::Store;
use super::hashing::hash_file;
use super::names::{is_part, part_name};
use crate::error::{Error, IoContext, Result};
use crate::files::{list_matching, make_folder, sync_folder};
use rayon::prelude::*;
use serde::Serialize;
use std::path::{Path, PathBuf};

const QUARANTINE: &str = "quarantine";

pub(super) const PART_HINT: &str =
    "`dataset verify --quarantine` moves the part to quarantine; merging a store with the same part restores it";

/// Damaged content of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// The file.
    pub file: PathBuf,
    /// Number of lines left out; None for the whole file.
    pub lines: Option<u64>,
    /// Description of the problem, with the number of the first damaged line.
    pub problem: String,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.lines {
            Some(1) => write!(f, "skipped a line of `{}`: {}", self.file.display(), self.problem),
            Some(lines) => write!(f, "skipped {lines} lines of `{}`: {}", self.file.display(), self.problem),
            None => write!(f, "skipped `{}`: {}", self.file.display(), self.problem),
        }
    }
}

pub(super) type Parts = (Vec<PathBuf>, Vec<Damage>);

impl Store {
    /// Lists the parts whose content matches the hash in their names. Other parts must not be read.
    pub(super) fn sound_parts(&self) -> Result<Parts> {
        split_sound(self.list_parts()?)
    }

    pub(super) fn set_aside(&self, file: &Path) -> Result<PathBuf> {
        let place = self.root.join(QUARANTINE).join(file.strip_prefix(&self.root).unwrap_or(file));
        let folder = place.parent().unwrap_or(&self.root);
        make_folder(folder)?;
        let name = place.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_free = |place: &PathBuf| !place.exists();
        let mut places = (1..).map(|number| folder.join(format!("{name}.{number}")));
        let place = if is_free(&place) { place.clone() } else { places.find(is_free).unwrap_or(place.clone()) };
        std::fs::rename(file, &place).context("quarantining", file)?;
        sync_folder(folder)?;
        sync_folder(file.parent().unwrap_or(&self.root))?;
        Ok(place)
    }

    /// Returns the files in quarantine.
    pub fn quarantined_files(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        let mut folders = vec![self.root.join(QUARANTINE)];
        while let Some(folder) = folders.pop() {
            let (below, here) =
                list_matching(&folder, |_| true)?.into_iter().partition::<Vec<_>, _>(|path| path.is_dir());
            folders.extend(below);
            files.extend(here);
        }
        files.sort();
        Ok(files)
    }
}

pub(super) fn split_sound(parts: Vec<PathBuf>) -> Result<Parts> {
    let found: Vec<_> = parts.par_iter().with_max_len(1).map(|part| part_damage(part)).collect();
    let (mut sound, mut damage) = (Vec::new(), Vec::new());
    for (part, found) in parts.into_iter().zip(found) {
        match found? {
            None => sound.push(part),
            Some(found) => damage.push(found),
        }
    }
    Ok((sound, damage))
}

pub(super) fn part_damage(part: &Path) -> Result<Option<Damage>> {
    let name = part.file_name().and_then(|name| name.to_str()).filter(|name| is_part(name));
    let problem = match hash_file(part) {
        Ok(hash) if name == Some(part_name(&hash).as_str()) => return Ok(None),
        Ok(_) => format!("the content does not match the hash in the file name; {PART_HINT}"),
        // Unreadable content counts as damage.
        Err(Error::Io { source, .. }) if is_unreadable(&source) => format!("{source}; {PART_HINT}"),
        Err(error) => return Err(error),
    };
    Ok(Some(Damage { file: part.to_owned(), lines: None, problem }))
}

/// Returns whether an error is a disk error, or means that the path is a folder.
pub(super) fn is_unreadable(error: &std::io::Error) -> bool {
    use nix::errno::Errno;
    [Errno::EIO, Errno::EISDIR].iter().any(|errno| error.raw_os_error() == Some(*errno as i32))
}
