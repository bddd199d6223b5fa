//! What was skipped while reading, and what a reader of the result should know.

use std::fmt;
use std::path::PathBuf;

/// Losses beyond this number are counted but not described: a broken file may hold a million.
pub const DESCRIBED: usize = 50;

/// One thing that was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The file it stood in.
    pub path: PathBuf,
    /// Where in the file.
    pub offset: Option<u64>,
    /// What it was and what is missing because of it.
    pub what: String,
    /// How many like it followed at once, and where the last of them stood.
    pub followed: Option<(usize, Option<u64>)>,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(offset) = self.offset {
            write!(f, ", byte {offset}")?;
        }
        write!(f, ": {}", self.what)?;
        match self.followed {
            None => Ok(()),
            Some((count, None)) => write!(f, ", and {count} more like it"),
            Some((count, Some(offset))) => write!(f, ", and {count} more like it up to byte {offset}"),
        }
    }
}

/// Everything that was skipped, and remarks that cost nothing.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    /// How many things were skipped.
    pub count: usize,
    /// The first of them.
    pub described: Vec<Loss>,
    /// Remarks.
    pub notes: Vec<String>,
}

impl Losses {
    /// Counts something that was skipped.
    pub fn skip(&mut self, path: &std::path::Path, offset: Option<u64>, what: impl Into<String>) {
        self.count += 1;
        let (what, has_room) = (what.into(), self.described.len() < DESCRIBED);
        match self.described.last_mut() {
            Some(last) if last.what == what && last.path == path => {
                let (count, _) = last.followed.unwrap_or_default();
                last.followed = Some((count + 1, offset));
            }
            _ if has_room => {
                self.described.push(Loss { path: path.to_owned(), offset, what, followed: None });
            }
            _ => {}
        }
    }

    /// Remarks something.
    pub fn note(&mut self, text: impl Into<String>) {
        if self.notes.len() < DESCRIBED {
            self.notes.push(text.into());
        }
    }

    /// Takes over what another part of the reader found.
    pub fn extend(&mut self, other: Losses) {
        self.count += other.count;
        self.described.extend(other.described);
        self.described.truncate(DESCRIBED);
        self.notes.extend(other.notes);
        self.notes.truncate(DESCRIBED);
    }
}
