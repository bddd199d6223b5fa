//! Stored configurations, which the hash in a record refers to.
//!
//! ```text
//! store/configs/<hash>.json    the resolved configuration of records with this `config_hash`
//! ```

use super::damage::is_unreadable;
use super::{Problem, Store};
use crate::error::{Error, IoContext, Result};
use crate::files::{Scratch, list_matching, make_folder};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

const MOST_BYTES: u64 = 64 << 20;

const DIGITS: usize = 32;

/// Returns the name of a configuration: the first digits of its hash.
pub fn config_hash(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..DIGITS].to_owned()
}

impl Store {
    pub(super) fn config_folder(&self) -> PathBuf {
        self.root().join("configs")
    }

    fn config_path(&self, hash: &str) -> PathBuf {
        self.config_folder().join(format!("{hash}.json"))
    }

    /// Stores a configuration under its hash and returns the hash. An intact file is not rewritten.
    pub fn keep_config(&self, text: &str) -> Result<String> {
        let hash = config_hash(text);
        let is_sound = read_config_text(&self.config_path(&hash)).is_ok_and(|kept| kept.as_deref() == Some(text));
        if !is_sound {
            make_folder(&self.config_folder())?;
            let mut scratch = Scratch::new(&self.config_folder())?;
            scratch.write_all(text.as_bytes()).context("writing", &self.config_path(&hash))?;
            scratch.keep(format!("{hash}.json"))?;
        }
        Ok(hash)
    }

    /// Returns the configuration with a hash; None if the store lacks it. Fails if the content does not match the hash.
    pub fn read_config(&self, hash: &str) -> Result<Option<String>> {
        if hash.len() != DIGITS || !hash.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Ok(None);
        }
        let path = self.config_path(hash);
        match read_config_text(&path)? {
            Some(text) if config_hash(&text) != hash => Err(Error::damaged(&path, NOT_ITS_HASH)),
            text => Ok(text),
        }
    }

    /// Returns all intact configurations.
    pub fn config_texts(&self) -> Result<Vec<String>> {
        let mut texts = Vec::new();
        for path in self.config_files()? {
            texts.extend(read_config_text(&path)?.filter(|text| is_named_after(&path, text)));
        }
        Ok(texts)
    }

    pub(super) fn merge_configs(&self, other: &Store) -> Result<()> {
        for path in other.config_files()? {
            match read_config_text(&path) {
                Ok(Some(text)) if is_named_after(&path, &text) => self.keep_config(&text).map(drop)?,
                Err(Error::Io { source, .. }) if is_unreadable(&source) => {}
                read => read.map(drop)?,
            }
        }
        Ok(())
    }

    pub(super) fn verify_configs(&self) -> Result<Vec<Problem>> {
        let problem = |file: PathBuf| Problem { file, problem: NOT_ITS_HASH.to_owned() };
        let paths = self.config_files()?.into_iter();
        Ok(paths
            .filter(|path| !matches!(read_config_text(path), Ok(Some(text)) if is_named_after(path, &text)))
            .map(problem)
            .collect())
    }

    fn config_files(&self) -> Result<Vec<PathBuf>> {
        list_matching(&self.config_folder(), |name| name.ends_with(".json") && !name.starts_with('.'))
    }
}

const NOT_ITS_HASH: &str =
    "the content does not match the hash in the file name; the text of the configuration is lost";

fn is_named_after(path: &Path, text: &str) -> bool {
    path.file_stem().is_some_and(|name| name == config_hash(text).as_str())
}

fn read_config_text(path: &Path) -> Result<Option<String>> {
    let file = match std::fs::File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.context("opening", path)?,
    };
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes).context("reading", path)?;
    // Invalid UTF-8 changes the text, so the hash check fails.
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}
