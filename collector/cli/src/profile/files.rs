//! Files of a profile, all that are wanted.

use super::super::Result;
use super::pictures::Pictures;
use super::styled::Styled;
use crate::profile::arguments::ProfileRun;
use datasets::output::Output;
use engine::failure::{Failure, chain};
use profile::Profile;
use profile::summary::{Row, comma};
use std::io::Write;
use std::path::PathBuf;

/// Files that are wanted, tried before the work.
pub struct Files {
    out: Option<Output>,
    csv: Option<Output>,
    pictures: Pictures,
}

impl Files {
    /// Begins those that are wanted.
    pub fn create(arguments: &ProfileRun) -> Result<Files> {
        let create = |path: &Option<PathBuf>| {
            path.as_deref().map(Output::create).transpose().map_err(|error| Failure::usage(chain(&error)))
        };
        let pictures = Pictures::create(&arguments.pictures)?;
        Ok(Files { out: create(&arguments.out)?, csv: create(&arguments.table.csv)?, pictures })
    }

    /// Writes them.
    pub fn keep(self, profile: &Profile, rows: &[Row], styled: Option<&Styled>) -> Result<()> {
        if let Some(mut file) = self.out {
            serde_json::to_writer(&mut file, profile).map_err(Failure::environment)?;
            file.keep().map_err(Failure::environment)?;
        }
        if let Some(mut file) = self.csv {
            match styled {
                Some(styled) => file.write_all(&styled.csv()?).map_err(Failure::environment)?,
                None => comma::write(rows, &mut file).map_err(Failure::environment)?,
            }
            file.keep().map_err(Failure::environment)?;
        }
        self.pictures.keep(profile)
    }
}
