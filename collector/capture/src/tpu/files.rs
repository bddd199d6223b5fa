//! Search for the files of a capture.

use super::loss::Losses;
use super::{Error, Result};
use std::path::{Path, PathBuf};

const MAX_NUMBER: u32 = 63;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureFiles {
    pub cores: Vec<(u32, PathBuf)>,
    pub ports: Vec<(u32, PathBuf)>,
}

/// Returns a capture's files by core or port, the last number in their names: `cdmlib0_3.profile` is core 3's.
pub fn find_files(directory: &Path, ports: u32, losses: &mut Losses) -> Result<CaptureFiles> {
    let failed = |source| Error::Read { path: directory.to_owned(), source };
    let mut files = CaptureFiles::default();
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.sort();
    for path in paths {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let Some(stem) = name.strip_suffix(".profile") else { continue };
        let is_core = stem.starts_with("cdmlib");
        if !is_core && !stem.starts_with("cdma") {
            continue;
        }
        if !path.is_file() {
            losses.skip_part(&path, None, "not a regular file");
            continue;
        }
        let limit = if is_core { MAX_NUMBER + 1 } else { ports };
        match last_number(stem) {
            Some(number) if number < limit => {
                let list = if is_core { &mut files.cores } else { &mut files.ports };
                if list.iter().any(|(known, _)| *known == number) {
                    losses.skip_part(&path, None, format!("second file with the number {number}"));
                } else {
                    list.push((number, path.clone()));
                }
            }
            _ => losses.skip_part(&path, None, format!("the name does not end in a number below {limit}")),
        }
    }
    files.cores.sort_by_key(|(number, _)| *number);
    files.ports.sort_by_key(|(number, _)| *number);
    Ok(files)
}

fn last_number(stem: &str) -> Option<u32> {
    let (_, digits) = stem.rsplit_once('_')?;
    digits.parse().ok()
}
