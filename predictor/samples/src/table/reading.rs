//! Reads foreign tables through their mapping, and checks the mapping against the rows.

use super::mapping::{Mapping, in_table, number_column};
use super::plausible::PlausibleRows;
use super::repeats;
use crate::error::Result;
use crate::samples::{Samples, SamplesBuilder, Timing};
use std::path::PathBuf;

pub fn read_samples(paths: &[PathBuf], mapping: &Mapping) -> Result<Samples> {
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
        let rows = PlausibleRows { path, table: &table, mapping, questions: &questions, times_ns: &times_ns };
        rows.check_plausible()?.into_iter().for_each(|warning| builder.add_warning(warning));
        for (row, question) in questions.into_iter().enumerate() {
            builder.push_sample(question, Timing::single_timing(times_ns[row], cvs.map(|cvs| cvs[row])));
        }
    }
    builder.finish_samples()
}
