//! Reads foreign tables through their mapping, and checks the mapping against the rows.

use super::mapping::{Mapping, in_table, number_column};
use super::plausible::PlausibleRows;
use super::repeats;
use crate::error::{Error, Result};
use crate::samples::{Samples, SamplesBuilder, Timing};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Refuses a file that is given twice, whose rows would count twice.
pub(super) fn check_distinct(paths: &[PathBuf]) -> Result<()> {
    let mut files = BTreeSet::new();
    let is_repeat = |path: &&PathBuf| !files.insert(path.canonicalize().unwrap_or_else(|_| (*path).clone()));
    match paths.iter().find(is_repeat) {
        Some(path) => Err(Error::Data(format!("`{}` is given twice as --data; give each table once", path.display()))),
        None => Ok(()),
    }
}

pub fn read_samples(paths: &[PathBuf], mapping: &Mapping) -> Result<Samples> {
    check_distinct(paths)?;
    let devices = mapping.devices.iter().map(|(name, device)| (name.clone(), device.clone())).collect();
    let mut builder = SamplesBuilder::new(devices);
    mapping.operators.iter().for_each(|(name, shape)| builder.set_size_names(name, shape.size_names()));
    builder.set_stand_ins(mapping.stand_ins());
    for path in paths {
        let table = super::read_table(path)?;
        let times = number_column(path, &table, &mapping.time.column)?;
        let cvs = mapping.cv.as_ref().map(|name| number_column(path, &table, name)).transpose()?;
        let questions = in_table(path, &table, mapping)?;
        repeats::check_repeats(path, &table, mapping, &questions)?
            .into_iter()
            .for_each(|warning| builder.add_warning(warning));
        let times_ns: Vec<f64> = times.iter().map(|time| time * mapping.time.unit.to_nanoseconds()).collect();
        repeats::warn_of_contradictions(path, &questions, &times_ns)
            .into_iter()
            .for_each(|warning| builder.add_warning(warning));
        let rows = PlausibleRows { path, table: &table, mapping, questions: &questions, times_ns: &times_ns };
        rows.check_plausible()?.into_iter().for_each(|warning| builder.add_warning(warning));
        for (row, question) in questions.into_iter().enumerate() {
            builder.push_sample(question, Timing::single_timing(times_ns[row], cvs.map(|cvs| cvs[row])));
        }
    }
    builder.finish_samples()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_given_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.csv");
        std::fs::write(&path, "").expect("a file");
        let again = folder.path().join(".").join("a.csv");
        assert!(check_distinct(&[path.clone(), folder.path().join("b.csv")]).is_ok());
        let error = check_distinct(&[path, again]).expect_err("twice").to_string();
        assert!(error.ends_with("is given twice as --data; give each table once"), "{error}");
    }
}
