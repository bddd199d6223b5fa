//! List of skipped parts of the input, and of notes for the user.

use std::fmt;
use std::path::PathBuf;

/// Maximum number of losses that are described, since a broken file may cause many.
pub const DESCRIBED: usize = 50;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    pub path: PathBuf,
    pub offset: Option<u64>,
    pub what: String,
    /// Number of equal losses that directly followed this one, and the file offset of the last of them.
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
            Some((count, None)) => write!(f, ", and {count} more of this kind"),
            Some((count, Some(offset))) => write!(f, ", and {count} more of this kind up to byte {offset}"),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Losses {
    pub count: usize,
    pub described: Vec<Loss>,
    pub notes: Vec<String>,
}

impl Losses {
    pub fn skip_part(&mut self, path: &std::path::Path, offset: Option<u64>, what: impl Into<String>) {
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

    pub fn add_note(&mut self, text: impl Into<String>) {
        if self.notes.len() < DESCRIBED {
            self.notes.push(text.into());
        }
    }

    pub fn extend(&mut self, other: Losses) {
        self.count += other.count;
        self.described.extend(other.described);
        self.described.truncate(DESCRIBED);
        self.notes.extend(other.notes);
        self.notes.truncate(DESCRIBED);
    }
}
