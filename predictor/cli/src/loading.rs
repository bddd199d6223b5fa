//! Reads samples and predictors from files, and prints notes about skipped rows.

use crate::installation::{cache_folder, predictor_file};
use crate::options::{Data, PredictorFlags, TimesFlags};
use learn::predictor::Predictor;
use predictor::origin::Origin;
use predictor::planning::{Host, KnownTimes, RecordChoice};
use predictor::this_host::{self, Calibration};
use predictor::{Error, Result, bundle, published, queries};
use report::terminal::print_notes;
use report::{activity, format_count};
use samples::Samples;
use samples::records::{self, Policy};
use samples::table::{self, Mapping};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub fn print_reasons(left_out: &BTreeMap<String, u64>) {
    let mut reasons: Vec<_> = left_out.iter().collect();
    reasons.sort_by_key(|(_, count)| Reverse(**count));
    print_notes(
        "note",
        reasons.into_iter().map(|(reason, count)| format!("skipped {}: {reason}", format_count(*count, "row"))),
    );
}

pub fn print_left_out(count: usize) {
    if count > 0 {
        let records = format_count(count, "record");
        let note = format!("skipped {records} of other versions; `--all-versions` includes them");
        print_notes("note", [note]);
    }
}

/// Reads training data and prints the numbers of skipped rows with reasons.
pub fn load_samples(data: &Data) -> Result<Samples> {
    load_samples_from(&data.data, data.mapping.as_deref(), data.filter.policy()?)
}

/// Reads training data without raising a device's peaks to the rates that its own rows reached.
pub fn load_unmeasured_samples(data: &Data) -> Result<Samples> {
    let policy = Policy { has_reached_peaks: false, ..data.filter.policy()? };
    load_samples_from(&data.data, data.mapping.as_deref(), policy)
}

/// Reads records, or a foreign table through a mapping, and prints the numbers of skipped rows with reasons.
pub fn load_samples_from(paths: &[PathBuf], mapping: Option<&Path>, policy: Policy) -> Result<Samples> {
    let names: Vec<String> = paths.iter().map(|path| format!("`{}`", path.display())).collect();
    activity::begin_activity(format!("reading {}", names.join(", ")));
    let samples = match mapping {
        Some(mapping) => table::read_samples(paths, &Mapping::read_file(mapping)?)?,
        None => records::read_samples(paths, &policy)?,
    };
    print_reasons(&samples.left_out);
    print_notes("warning", &samples.warnings);
    let hints = samples.filter_hints.iter();
    print_notes(
        "warning",
        hints.map(|hints| format!("{hints}; measurements on an idle machine have a smaller uncertainty")),
    );
    activity::begin_activity(format!("processing {} samples", samples.rows.len()));
    Ok(samples)
}

/// Reads the predictor and the mapping. Without a device, times are translated to this machine, if it is calibrated.
pub fn read_predictor(
    flags: &PredictorFlags,
    device: Option<&str>,
    mapping: Option<&Path>,
) -> Result<(Predictor, Option<Mapping>)> {
    let file = predictor_file(flags.predictor.as_deref(), device, mapping.is_some())?;
    let mut predictor = bundle::read_bundle(&file)?;
    print_notes("note", Origin::from_predictor(&predictor.about).mismatch_note());
    let mapping = mapping.map(Mapping::read_file).transpose()?;
    if let Some(mapping) = &mapping {
        queries::describe_devices(&mut predictor, mapping);
    }
    apply_calibration(&mut predictor, flags, device)?;
    Ok((predictor, mapping))
}

/// Applies the calibration of this machine, if any, and prints for which machine times are predicted.
fn apply_calibration(predictor: &mut Predictor, flags: &PredictorFlags, device: Option<&str>) -> Result<()> {
    if device.is_some() {
        return match flags.calibration {
            Some(_) => Err(Error::Query(
                "--device and --calibration exclude each other: a calibration is for predictions on this machine"
                    .to_owned(),
            )),
            None => Ok(()),
        };
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let here = measure::host::Facts::read_facts().host_class();
    match &flags.calibration {
        Some(path) => predictor.this_host = Some(Calibration::read_for(path, predictor)?.host_translation(cpus)),
        None => published::apply_calibration(predictor, cache_folder().as_deref(), &here, cpus)?,
    }
    let note = match (&predictor.this_host, this_host::learned_on(predictor)) {
        (Some(known), _) => known.distance_note(&here),
        // No note for a predictor given by the user, or trained on several devices.
        (None, _) if flags.predictor.is_some() => return Ok(()),
        (None, Err(_)) => return Ok(()),
        (None, Ok(learned_on)) if here == learned_on => format!(
            "the built-in predictor was trained on machines of this class, `{learned_on}`; `oppredict adapt --this-host` calibrates it in about a minute"
        ),
        (None, Ok(learned_on)) => format!(
            "times are for `{learned_on}`, on which the built-in predictor was trained, not for this machine, `{here}`; `oppredict adapt --this-host` calibrates the predictor in about a minute"
        ),
    };
    print_notes("note", [note]);
    Ok(())
}

/// Reads times of operators from records, a predictor or both. Prints how many records were skipped, what is damaged,
/// and that the only measured machine is another one.
pub fn read_times(flags: &TimesFlags, any_schedule: bool) -> Result<KnownTimes> {
    let choice = RecordChoice { class: flags.hardware.as_deref(), any_schedule, all_versions: flags.all_versions };
    let host = flags.data.as_ref().map(|path| Host::read_host(path, choice)).transpose()?;
    if let Some(host) = &host {
        print_left_out(host.left_out);
        print_notes("warning", &host.damage);
        let here = measure::host::Facts::read_facts().host_class();
        let is_other = flags.hardware.is_none() && host.class != here;
        let note =
            || format!("times are those of `{}`, which the store has, not of this machine, `{here}`", host.class);
        print_notes("note", is_other.then(note));
    }
    let mut device = if host.is_none() { flags.hardware.clone() } else { flags.device.clone() };
    // Predictions for another machine are only added to measured times on request.
    let predictor = match (&host, &flags.predictor) {
        (Some(_), None) => None,
        (host, file) => {
            // Times are predicted for the measured machine, if the predictor was trained on it.
            if let (Some(host), Some(file), None) = (host, file, &device) {
                device = host.device_of_predictor(file)?;
            }
            let flags = PredictorFlags { predictor: file.clone(), calibration: None };
            Some(read_predictor(&flags, device.as_deref(), None)?.0)
        }
    };
    let known = KnownTimes::new(host, predictor, device)?;
    print_notes("warning", known.mixed_machines_warning());
    Ok(known)
}
