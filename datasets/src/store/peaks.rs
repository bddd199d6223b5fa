//! Stores peak rates of hosts: each measurement is an immutable file named after its content, which tools may copy.

use super::damage::is_unreadable;
use super::names::encode_name;
use super::{Problem, Store};
use crate::error::{Error, IoContext, Result};
use crate::files::{Scratch, list_matching, make_folder};
use crate::peaks::PeaksMeasured;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

const MAX_BYTES: u64 = 1 << 20;

const NOT_ITS_HASH: &str = "the content does not match the hash in the file name, so the peaks are skipped; `dataset verify --quarantine` moves the file to quarantine, and the next campaign measures the peaks again";
const UNUSABLE: &str = "not a usable measurement of peaks, so it is skipped; remove the file, or update the program";
const FOREIGN: &str = "not a measurement of peaks, so it is ignored; remove the file";

impl Store {
    /// Stores a measurement of a host's peaks.
    pub fn keep_peaks(&self, measured: &PeaksMeasured) -> Result<()> {
        let folder = self.hosts_folder().join(encode_name(&measured.host));
        make_folder(&folder)?;
        let text =
            serde_json::to_string_pretty(measured).map_err(|error| Error::damaged(&folder, error.to_string()))?;
        write_named(&folder, text.as_bytes())
    }

    /// Returns all measurements by host and time. Skips damaged measurements and those of newer formats.
    pub fn peaks(&self) -> Result<Vec<PeaksMeasured>> {
        let mut all: Vec<PeaksMeasured> = Vec::new();
        for path in self.peak_files()? {
            all.extend(sound_text(&path)?.and_then(|text| parse_measurement(&text)));
        }
        all.sort_by(|left, right| (&left.host, left.taken_at_us).cmp(&(&right.host, right.taken_at_us)));
        // Copies in folders of other hosts are the same measurement.
        all.dedup();
        Ok(all)
    }

    pub(super) fn merge_peaks(&self, other: &Store) -> Result<()> {
        for path in other.peak_files()? {
            let to = self.root().join(path.strip_prefix(other.root()).unwrap_or(&path));
            let is_here = to.exists() && sound_text(&to)?.is_some();
            if let (Some(folder), false, Some(text)) = (to.parent(), is_here, sound_text(&path)?) {
                make_folder(folder)?;
                write_named(folder, &text)?;
            }
        }
        Ok(())
    }

    pub(super) fn damaged_peaks(&self) -> Result<Vec<Problem>> {
        let mut problems = Vec::new();
        for path in self.peak_files()? {
            if sound_text(&path)?.is_none() {
                problems.push(Problem { file: path, problem: NOT_ITS_HASH.to_owned() });
            }
        }
        Ok(problems)
    }

    pub(super) fn foreign_peaks(&self) -> Result<Vec<Problem>> {
        let problem = |file: PathBuf, problem: String| Problem { file, problem };
        let foreign = |file| problem(file, FOREIGN.to_owned());
        let is_shown = |name: &str| !name.starts_with('.');
        let mut problems: Vec<Problem> = list_matching(&self.hosts_folder(), is_shown)?
            .into_iter()
            .filter(|path| !path.is_dir())
            .map(foreign)
            .collect();
        for folder in self.host_folders()? {
            let measured = list_matching(&folder, |name| is_shown(name) && is_measurement(name))?;
            problems.extend(
                list_matching(&folder, is_shown)?.into_iter().filter(|path| !measured.contains(path)).map(foreign),
            );
            for path in measured {
                let Some(text) = sound_text(&path)? else { continue };
                match parse_measurement(&text) {
                    None => problems.push(problem(path, UNUSABLE.to_owned())),
                    Some(found) if folder.file_name().is_none_or(|name| name != encode_name(&found.host).as_str()) => {
                        let place = self.hosts_folder().join(encode_name(&found.host));
                        problems
                            .push(problem(path, format!("the file must be in `{}`; move it there", place.display())));
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(problems)
    }

    pub(super) fn host_folders(&self) -> Result<Vec<PathBuf>> {
        let mut folders = list_matching(&self.hosts_folder(), |name| !name.starts_with('.'))?;
        folders.retain(|folder| folder.is_dir());
        Ok(folders)
    }

    fn hosts_folder(&self) -> PathBuf {
        self.root().join("hosts")
    }

    fn peak_files(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for folder in self.host_folders()? {
            files.extend(list_matching(&folder, is_measurement)?);
        }
        Ok(files)
    }
}

fn is_measurement(name: &str) -> bool {
    name.starts_with("peaks-") && name.ends_with(".json")
}

/// Parses a measurement; None if this program cannot use it.
fn parse_measurement(text: &[u8]) -> Option<PeaksMeasured> {
    serde_json::from_slice(text).ok().filter(PeaksMeasured::is_sound)
}

fn write_named(folder: &Path, text: &[u8]) -> Result<()> {
    let mut scratch = Scratch::new(folder)?;
    scratch.write_all(text).context("writing", folder)?;
    scratch.keep(name_of(text)).map(|_| ())
}

fn name_of(text: &[u8]) -> String {
    format!("peaks-{}.json", blake3::hash(text).to_hex())
}

/// Reads a file and returns its text, or None if the content does not match the hash in the name.
fn sound_text(path: &Path) -> Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    let file = File::open(path).context("opening", path)?;
    match file.take(MAX_BYTES).read_to_end(&mut text) {
        Err(error) if is_unreadable(&error) => return Ok(None),
        read => read.context("reading", path)?,
    };
    Ok(Some(text).filter(|text| path.file_name().is_some_and(|name| name == name_of(text).as_str())))
}
