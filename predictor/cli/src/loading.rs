//! Samples and predictors from files, with notes about what was left out.

use crate::options::{Data, TimesFlags};
use learn::predictor::Predictor;
use predictor::origin::Origin;
use predictor::planning::{Host, KnownTimes, RecordChoice};
use predictor::{Result, bundle, queries};
use report::terminal::print_notes;
use samples::Samples;
use samples::records::{self, Policy};
use samples::table::{self, Mapping};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Reports why rows were left out, the reason of most rows first.
pub fn print_reasons(left_out: &BTreeMap<String, u64>) {
    let mut reasons: Vec<_> = left_out.iter().collect();
    reasons.sort_by_key(|(_, count)| Reverse(**count));
    print_notes("note", reasons.into_iter().map(|(reason, count)| format!("{count} rows left out: {reason}")));
}

/// Reports the number of records that were left out because of their versions.
pub fn print_left_out(count: usize) {
    if count > 0 {
        eprintln!("note: {count} records of other versions are left out; `--all-versions` uses them, too");
    }
}

/// Reads what to learn from, and says what was left out.
pub fn load_samples(data: &Data) -> Result<Samples> {
    load_samples_from(&data.data, data.mapping.as_deref(), data.filter.policy()?)
}

/// Reads what to learn from, with devices described by what is known of them before any of these rows was measured.
pub fn load_unmeasured_samples(data: &Data) -> Result<Samples> {
    let policy = Policy { has_reached_peaks: false, ..data.filter.policy()? };
    load_samples_from(&data.data, data.mapping.as_deref(), policy)
}

/// Reads records, or a table of others through a mapping, and says what was left out.
pub fn load_samples_from(paths: &[PathBuf], mapping: Option<&Path>, policy: Policy) -> Result<Samples> {
    let samples = match mapping {
        Some(mapping) => table::samples(paths, &Mapping::read(mapping)?)?,
        None => records::samples(paths, &policy)?,
    };
    print_reasons(&samples.left_out);
    print_notes("warning", &samples.warnings);
    let hints = samples.filter_hints.iter();
    print_notes("warning", hints.map(|hints| format!("{hints}; on a quieter machine medians are better known")));
    Ok(samples)
}

/// Reads a predictor that answers, and says where it learned from other code than these programs make.
pub fn read_predictor(path: &Path) -> Result<Predictor> {
    let predictor = bundle::read(path)?;
    print_notes("note", Origin::of(&predictor.about).note());
    Ok(predictor)
}

/// Reads a predictor and a mapping, whose devices can then be asked about.
pub fn read_described(path: &Path, mapping: Option<&Path>) -> Result<(Predictor, Option<Mapping>)> {
    let mut predictor = read_predictor(path)?;
    let mapping = mapping.map(Mapping::read).transpose()?;
    if let Some(mapping) = &mapping {
        queries::describe_devices(&mut predictor, mapping);
    }
    Ok((predictor, mapping))
}

/// Reads times of operators from records, a predictor or both, and says what was left out.
pub fn read_times(flags: &TimesFlags, any_schedule: bool) -> Result<KnownTimes> {
    let choice = RecordChoice { class: flags.hardware.as_deref(), any_schedule, all_versions: flags.all_versions };
    let host = flags.data.as_ref().map(|path| Host::read(path, choice)).transpose()?;
    print_left_out(host.as_ref().map_or(0, |host| host.left_out));
    let predictor = flags.predictor.as_ref().map(|path| read_predictor(path)).transpose()?;
    let device = if host.is_none() { flags.hardware.clone() } else { flags.device.clone() };
    KnownTimes::new(host, predictor, device)
}
