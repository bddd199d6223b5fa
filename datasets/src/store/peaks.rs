//! Peaks of hosts, beside the records: each measurement is a file of its own, named after its content and never changed, so
//! that any number of hosts may write and any tool may copy them, as it may parts.

use super::Store;
use super::files::{Scratch, list, make_folder};
use super::names::encode;
use crate::error::{Error, IoContext, Result};
use crate::peaks::PeaksMeasured;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Larger files are none of ours.
const MAX_BYTES: u64 = 1 << 20;

impl Store {
    /// Keeps a measurement of a host's peaks.
    pub fn keep_peaks(&self, measured: &PeaksMeasured) -> Result<()> {
        let folder = self.hosts_folder().join(encode(&measured.host));
        make_folder(&folder)?;
        let text =
            serde_json::to_string_pretty(measured).map_err(|error| Error::damaged(&folder, error.to_string()))?;
        write_named(&folder, text.as_bytes())
    }

    /// All measurements of peaks, by host and time. One whose content does not have the hash that its name says, or that a newer
    /// program wrote, is left out: peaks can be measured again.
    pub fn peaks(&self) -> Result<Vec<PeaksMeasured>> {
        let mut all: Vec<PeaksMeasured> = Vec::new();
        for path in self.peak_files()? {
            all.extend(
                sound_text(&path)?.and_then(|text| serde_json::from_slice(&text).ok()).filter(PeaksMeasured::is_sound),
            );
        }
        all.sort_by(|left, right| (&left.host, left.taken_at_us).cmp(&(&right.host, right.taken_at_us)));
        Ok(all)
    }

    /// Takes over another store's measurements of peaks.
    pub(super) fn merge_peaks(&self, other: &Store) -> Result<()> {
        for path in other.peak_files()? {
            let to = self.root().join(path.strip_prefix(other.root()).unwrap_or(&path));
            if let (Some(folder), false, Some(text)) = (to.parent(), to.exists(), sound_text(&path)?) {
                make_folder(folder)?;
                write_named(folder, &text)?;
            }
        }
        Ok(())
    }

    fn hosts_folder(&self) -> PathBuf {
        self.root().join("hosts")
    }

    fn peak_files(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for folder in list(&self.hosts_folder(), |name| !name.starts_with('.'))? {
            files.extend(list(&folder, |name| name.starts_with("peaks-") && name.ends_with(".json"))?);
        }
        Ok(files)
    }
}

fn write_named(folder: &Path, text: &[u8]) -> Result<()> {
    let mut scratch = Scratch::new(folder)?;
    scratch.write_all(text).context("writing", folder)?;
    scratch.keep(name_of(text)).map(|_| ())
}

fn name_of(text: &[u8]) -> String {
    format!("peaks-{}.json", blake3::hash(text).to_hex())
}

/// The text of a file whose name says its hash; nothing where it is another.
fn sound_text(path: &Path) -> Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    let file = File::open(path).context("opening", path)?;
    file.take(MAX_BYTES).read_to_end(&mut text).context("reading", path)?;
    Ok(Some(text).filter(|text| path.file_name().is_some_and(|name| name == name_of(text).as_str())))
}
