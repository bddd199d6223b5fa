//! Tables through their mapping, checked against the rows.

use super::mapping::{Mapping, in_table, numbers};
use super::plausible::PlausibleRows;
use super::repeats;
use crate::error::Result;
use crate::samples::{Samples, SamplesBuilder, Timing};
use std::path::PathBuf;

/// The samples in tables that share a mapping.
pub fn samples(paths: &[PathBuf], mapping: &Mapping) -> Result<Samples> {
    let devices = mapping.devices.iter().map(|(name, device)| (name.clone(), device.clone())).collect();
    let mut builder = SamplesBuilder::new(devices);
    mapping.operators.iter().for_each(|(name, shape)| builder.set_size_names(name, shape.size_names()));
    builder.set_stand_ins(mapping.stand_ins());
    for path in paths {
        let table = super::read(path)?;
        let times = numbers(path, &table, &mapping.time.column)?;
        let cvs = mapping.cv.as_ref().map(|name| numbers(path, &table, name)).transpose()?;
        let questions = in_table(path, &table, mapping)?;
        repeats::check(path, &table, mapping, &questions)?.into_iter().for_each(|warning| builder.warn(warning));
        let times_ns: Vec<f64> = times.iter().map(|time| time * mapping.time.unit.nanoseconds()).collect();
        let rows = PlausibleRows { path, table: &table, mapping, questions: &questions, times_ns: &times_ns };
        rows.check()?.into_iter().for_each(|warning| builder.warn(warning));
        for (row, question) in questions.into_iter().enumerate() {
            builder.push(question, Timing::once(times_ns[row], cvs.map(|cvs| cvs[row])));
        }
    }
    builder.finish()
}
