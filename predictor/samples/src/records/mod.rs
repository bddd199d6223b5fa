//! Converts records to samples, by an explicit policy that selects records.
//!
//! The peaks of a device come from measurements of its hosts in the stores, and from the records themselves.

mod comparable;
mod device;
pub mod in_place;

use crate::error::{Error, Result};
use crate::features::movement::Movement;
use crate::features::{Device, Form, Work};
use crate::placed::PlacedNetwork;
use crate::provenance::Provenance;
use crate::samples::{FilterHints, Network, RawSample, Samples, SamplesBuilder, Timing, shape_hash};
pub use comparable::check_setting;
use comparable::{Comparable, Scope};
use datasets::store::Damage;
use datasets::{
    Choose, Format, KNOWN_WELL, Key, Outcome, PeaksMeasured, Record, ScheduleSource, Source, Store, choose_records,
};
use models::{Class, ConvWindow, Fuse, Graph, Op, Task, TensorType};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use zoo::transformers;

/// Limits of the uncertainty of medians that are used without a requested limit, ascending.
pub const USUAL_LIMITS: [f64; 4] = [KNOWN_WELL, 0.2, 0.5, f64::INFINITY];

#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub source: Source,
    /// Maximum half-width of the median's 95 % interval, as a share; if infinite, medians without one are accepted.
    /// None for the tightest of [`USUAL_LIMITS`] that at least half of the measurements meet; for operators in
    /// networks, the first of these limits.
    pub max_uncertainty: Option<f64>,
    /// Maximum coefficient of variation of the samples of a measurement; None for no limit.
    pub max_cv: Option<f64>,
    /// Whether to accept all TVM versions and older code, not only the most frequent version and the newest code.
    pub all_versions: bool,
    pub default_only: bool,
    /// Requested values of setting columns; for other columns, each device's most frequent value is used.
    pub settings: BTreeMap<String, String>,
    /// Whether peaks are raised to the rates that records reached; must be false if a device is held out.
    pub has_reached_peaks: bool,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            source: Source::Measured,
            max_uncertainty: None,
            max_cv: None,
            all_versions: false,
            default_only: false,
            settings: BTreeMap::new(),
            has_reached_peaks: true,
        }
    }
}

pub fn read_samples(paths: &[PathBuf], policy: &Policy) -> Result<Samples> {
    let mut hosts = Vec::new();
    for path in paths.iter().filter(|path| path.is_dir()) {
        hosts.extend(Store::open(path)?.peaks()?);
    }
    let ReadRecords { records, left_out } = read_tables(paths)?;
    gather_without(&records, &hosts, left_out, policy)
}

pub fn placed_networks(paths: &[PathBuf], policy: &Policy) -> Result<(Vec<PlacedNetwork>, BTreeMap<String, u64>)> {
    Ok(in_place::placed_in_records(&read_tables(paths)?.records, policy))
}

struct ReadRecords {
    records: Vec<Record>,
    /// Numbers of rows that were left out, by reason.
    left_out: BTreeMap<String, u64>,
}

/// Reads several stores and tables. Rows that more than one of them contains, as after a merge, are read once.
fn read_tables(paths: &[PathBuf]) -> Result<ReadRecords> {
    let (mut records, mut damage) = (Vec::new(), Vec::new());
    for path in paths {
        records.extend(read_records(path, &mut damage)?);
    }
    let mut left_out: BTreeMap<String, u64> = BTreeMap::new();
    for damage in damage {
        let (what, count) = damage.lines.map_or(("part, counted as one row", 1), |lines| ("line", lines));
        *left_out.entry(format!("damaged {what}")).or_default() += count;
    }
    // A single store contains no copies.
    if !matches!(paths, [store] if store.is_dir()) {
        let rows = records.len();
        records = choose_records(records, Choose::All);
        if records.len() < rows {
            left_out.insert("copy of another row".to_owned(), (rows - records.len()) as u64);
        }
    }
    Ok(ReadRecords { records, left_out })
}

fn read_records(path: &Path, damage: &mut Vec<Damage>) -> Result<Vec<Record>> {
    if path.is_dir() {
        let records = Store::open(path)?.select_records(Choose::All)?;
        damage.extend_from_slice(records.damage());
        return Ok(records.collect::<datasets::Result<_>>()?);
    }
    std::fs::metadata(path).map_err(|error| Error::io_error("open", path, error))?;
    let format = Format::of_path(path).ok_or_else(|| {
        let problem = "the file name does not end in .csv, .parquet or .jsonl; a foreign table needs --mapping";
        Error::table_error(path, problem)
    })?;
    Ok(datasets::read_records(path, format)?.collect::<datasets::Result<_>>()?)
}

pub fn gather_samples(records: &[Record], hosts: &[PeaksMeasured], policy: &Policy) -> Result<Samples> {
    gather_without(records, hosts, BTreeMap::new(), policy)
}

fn gather_without(
    records: &[Record],
    hosts: &[PeaksMeasured],
    mut left_out: BTreeMap<String, u64>,
    policy: &Policy,
) -> Result<Samples> {
    let filter = RecordFilter::from_records(records, policy);
    let mut taken = Vec::new();
    for record in records {
        match filter.refusal_reason(record) {
            Some(reason) => *left_out.entry(reason).or_default() += 1,
            None => taken.push(record),
        }
    }
    let devices = describe_devices(&taken, hosts, policy);
    let mut builder = SamplesBuilder::new(devices.clone());
    builder.set_provenance(
        Provenance::from_records(&taken, filter.comparable.recorded_settings()),
        policy.has_reached_peaks,
    );
    builder.set_networks(recorded_networks(records));
    // These rows are already counted as not measured in isolation.
    builder.set_placed(in_place::placed_in_records(records, policy).0);
    for (reason, count) in left_out {
        (0..count).for_each(|_| builder.leave_out(&reason));
    }
    default_schedules(records, &filter, &devices).iter().for_each(|question| builder.add_default_schedule(question));
    for records in group_experiments(&taken) {
        let record = records[0];
        let name = device_name(record);
        let place = devices.iter().position(|(known, _)| *known == name).unwrap_or(0);
        match raw_sample(record, place as u32) {
            Ok(question) => builder.push_sample(question, merge_timing(&records)),
            Err(reason) => records.iter().for_each(|_| builder.leave_out(&reason)),
        }
    }
    builder.set_filter_hints(filter_hints(records, &filter));
    filter.raised_limit_warning().into_iter().for_each(|warning| builder.add_warning(warning));
    builder.finish_samples()
}

struct RecordFilter<'a> {
    policy: &'a Policy,
    max_uncertainty: f64,
    uncertainties: HashMap<Key, Option<f64>>,
    /// The most frequent TVM version.
    usual: Option<&'a str>,
    comparable: Comparable<'a>,
}

impl<'a> RecordFilter<'a> {
    fn from_records(records: &'a [Record], policy: &'a Policy) -> RecordFilter<'a> {
        let (usual, uncertainties) =
            (usual_version(records), repeat_uncertainties(records.iter().filter(|record| record.is_alone())));
        let of_kind: Vec<&Record> =
            records.iter().filter(|record| refuse_kind(record, policy, usual).is_none()).collect();
        let uncertainty = |record: &Record| experiment_uncertainty(&uncertainties, record);
        let max_uncertainty = resolve_limit(policy, of_kind.iter().map(|record| uncertainty(record)));
        let mut could_be = of_kind;
        could_be.retain(|record| refuse_uncertainty(uncertainty(record), max_uncertainty).is_none());
        let comparable = Comparable::from_records(&could_be, policy, Scope::Operators);
        RecordFilter { policy, max_uncertainty, uncertainties, usual, comparable }
    }

    fn refusal_reason(&self, record: &Record) -> Option<String> {
        refuse_kind(record, self.policy, self.usual)
            .or_else(|| refuse_uncertainty(experiment_uncertainty(&self.uncertainties, record), self.max_uncertainty))
            .or_else(|| self.comparable.refusal_reason(record))
    }

    /// Warns if the limit is above the tightest of the usual limits without a request.
    fn raised_limit_warning(&self) -> Option<String> {
        let is_raised = self.policy.max_uncertainty.is_none() && self.max_uncertainty > USUAL_LIMITS[0];
        is_raised.then(|| {
            let usual = format_percent(USUAL_LIMITS[0]);
            let used = match self.max_uncertainty {
                most if most.is_finite() => format!("medians with an uncertainty of up to {}", format_percent(most)),
                _ => "all medians".to_owned(),
            };
            format!(
                "{used} are used, because less than half of the measurements have at most {usual}; a quieter machine \
                 or more `--visits` reduce it"
            )
        })
    }
}

/// Returns the requested limit of the uncertainty, or the tightest usual limit that half of the measurements meet.
fn resolve_limit(policy: &Policy, uncertainties: impl Iterator<Item = Option<f64>>) -> f64 {
    let uncertainties: Vec<Option<f64>> = uncertainties.collect();
    let is_met = |limit: &f64| {
        let met = uncertainties.iter().filter(|known| refuse_uncertainty(**known, *limit).is_none()).count();
        2 * met >= uncertainties.len()
    };
    policy.max_uncertainty.or_else(|| USUAL_LIMITS.into_iter().find(is_met)).unwrap_or(f64::INFINITY)
}

fn refuse_uncertainty(uncertainty: Option<f64>, most: f64) -> Option<String> {
    match uncertainty {
        _ if most.is_infinite() => None,
        None => Some("too few runs or visits to estimate the uncertainty of the median".to_owned()),
        Some(half) if half <= most => None,
        Some(_) => Some(format!("median with an uncertainty above {}", format_percent(most))),
    }
}

/// Returns the uncertainty of each experiment with several visits.
fn repeat_uncertainties<'a>(records: impl Iterator<Item = &'a Record>) -> HashMap<Key, Option<f64>> {
    let of_visits: Vec<&Record> = records.filter(|record| record.schema_version >= SCHEMA_OF_VISITS).collect();
    let several = group_experiments(&of_visits).into_iter().filter(|visits| visits.len() > 1);
    several
        .map(|mut visits| {
            visits.sort_by_key(|record| record.started_at_us);
            let measured = datasets::median_record(&visits);
            (visits[0].key, measured.and_then(|measured| measured.uncertainty()))
        })
        .collect()
}

fn experiment_uncertainty(uncertainties: &HashMap<Key, Option<f64>>, record: &Record) -> Option<f64> {
    uncertainties.get(&record.key).copied().unwrap_or_else(|| uncertainty(record))
}

/// Returns the devices by name, in order of first appearance.
fn describe_devices(records: &[&Record], hosts: &[PeaksMeasured], policy: &Policy) -> Vec<(String, Device)> {
    let mut of_device: Vec<(String, Vec<&Record>)> = Vec::new();
    for record in records {
        let name = device_name(record);
        match of_device.iter_mut().find(|(known, _)| *known == name) {
            Some((_, records)) => records.push(record),
            None => of_device.push((name, vec![record])),
        }
    }
    let describe = |records: &[&Record]| device::device_of_records(records, hosts, policy.has_reached_peaks);
    of_device.into_iter().map(|(name, records)| (name, describe(&records))).collect()
}

/// Suggests options that would accept more records, if more than half of the measurements were rejected.
fn filter_hints(records: &[Record], filter: &RecordFilter<'_>) -> Option<FilterHints> {
    const MOST_SETTINGS: usize = 8;
    let policy = filter.policy;
    let is_measured = |record: &&Record| record.outcome == Outcome::Ok && record.is_alone();
    let measured: Vec<&Record> = records.iter().filter(is_measured).collect();
    let left_out: Vec<&Record> =
        measured.iter().filter(|record| filter.refusal_reason(record).is_some()).copied().collect();
    if 2 * left_out.len() <= measured.len() {
        return None;
    }
    let looser = std::iter::once(0.05).chain(USUAL_LIMITS).filter(|most| *most > filter.max_uncertainty);
    let with_limit = |most: f64| Policy { max_uncertainty: Some(most), ..policy.clone() };
    let mut others: Vec<(String, Policy)> =
        looser.map(|most| (format!("--max-uncertainty {most}"), with_limit(most))).collect();
    let differs = |flag: &str, other: Policy| (other != *policy).then(|| (flag.to_owned(), other));
    others.extend(differs("--max-cv inf", Policy { max_cv: None, ..policy.clone() }));
    others.extend(differs("--all-versions", Policy { all_versions: true, ..policy.clone() }));
    others.extend(differs("no --default-only", Policy { default_only: false, ..policy.clone() }));
    for source in Source::ALL {
        others.extend(differs(&format!("--source {}", source.name()), Policy { source: *source, ..policy.clone() }));
    }
    let settings = comparable::differing_settings(left_out.iter().copied(), &filter.comparable);
    for (column, value) in settings.into_iter().take(MOST_SETTINGS) {
        let flag = format!("--setting {column}={value}");
        let settings = policy.settings.iter().map(|(column, value)| (column.clone(), value.clone()));
        let settings = settings.chain([(column.to_owned(), value)]).collect();
        others.push((flag, Policy { settings, ..policy.clone() }));
    }
    let mut found: Vec<(String, usize)> = Vec::new();
    for (flag, other) in others {
        let other = RecordFilter::from_records(records, &other);
        let brings = left_out.iter().filter(|record| other.refusal_reason(record).is_none()).count();
        // If several limits accept equally many records, the tightest is suggested.
        if brings > 0 && !found.iter().any(|(known, rows)| *rows == brings && known.starts_with("--max-uncertainty")) {
            found.push((flag, brings));
        }
    }
    Some(FilterHints { measured: measured.len(), left_out: left_out.len(), flags: found })
}

/// Returns the newest default schedule of each task and device, including those whose times are rejected.
fn default_schedules(records: &[Record], filter: &RecordFilter<'_>, devices: &[(String, Device)]) -> Vec<RawSample> {
    let is_of_group = |record: &&Record| filter.comparable.other_setting(record).is_none();
    let is_default = |record: &&Record| record.schedule_source == Some(ScheduleSource::Default);
    let mut defaults: Vec<&Record> = records.iter().filter(is_default).filter(is_of_group).collect();
    defaults.sort_by_key(|record| std::cmp::Reverse(record.started_at_us));
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for record in defaults {
        let name = device_name(record);
        let Some(place) = devices.iter().position(|(known, _)| *known == name) else { continue };
        if seen.insert((place, record.task_hash.as_str())) {
            found.extend(raw_sample(record, place as u32));
        }
    }
    found
}

/// Groups records by experiment; repeats become one sample, because a machine's speed drifts over minutes.
fn group_experiments<'a>(records: &[&'a Record]) -> Vec<Vec<&'a Record>> {
    let mut places: HashMap<Key, usize> = HashMap::new();
    let mut experiments: Vec<Vec<&Record>> = Vec::new();
    for record in records {
        let place = *places.entry(record.key).or_insert(experiments.len());
        match experiments.get_mut(place) {
            Some(known) => known.push(record),
            None => experiments.push(vec![record]),
        }
    }
    experiments
}

/// Merges repeats: the time is that of the record that the store would choose, and all medians are kept.
fn merge_timing(records: &[&Record]) -> Timing {
    let timing = |record: &Record| Timing::single_timing(record.median_ns.unwrap_or(f64::NAN), record.cv);
    if let [only] = records {
        return timing(only);
    }
    let chosen = choose_records(records.iter().copied().cloned().collect(), Choose::Middle);
    let mut measured_ns: Vec<f64> = records.iter().filter_map(|record| record.median_ns).collect();
    measured_ns.sort_unstable_by(f64::total_cmp);
    Timing { measured_ns, ..chosen.first().map_or_else(Timing::default, timing) }
}

/// Returns the tasks of each network. Rebuilds networks if possible, because a task is recorded for one network only.
fn recorded_networks(records: &[Record]) -> Vec<Network> {
    let mut recorded: BTreeMap<(&str, i64, &str), BTreeMap<&str, &Record>> = BTreeMap::new();
    for record in records.iter().filter(|record| !record.is_network() && record.co_run.is_none()) {
        let (Some(name), Some(source)) = (record.model_name.as_deref(), record.model_source.as_deref()) else {
            continue;
        };
        let tasks = recorded.entry((name, record.batch.unwrap_or(1), source)).or_default();
        tasks.entry(&record.task_hash).or_insert(record);
    }
    // A single operator does not count as a network.
    recorded.retain(|(_, _, source), _| *source != "simple");
    let network = |((name, batch, source), tasks): ((&str, i64, &str), BTreeMap<&str, &Record>)| Network {
        name: name.to_owned(),
        setting: format!("batch {batch}"),
        uses: rebuild_graph(source, name, batch).and_then(uses_in).unwrap_or_else(|| uses_recorded(&tasks)),
    };
    recorded.into_iter().map(network).collect()
}

/// Rebuilds the graph of a recorded network; None if the network was read from a file.
fn rebuild_graph(source: &str, name: &str, batch: i64) -> Option<Graph> {
    match source {
        "local" => zoo::build_model(name, batch).ok(),
        "transformers" => {
            let (name, phase, sequence) = transformers::parse_label(name)?;
            let options = transformers::Options { batch, sequence, phase };
            // A name with a slash is a folder, not a known network.
            (!name.contains('/')).then(|| transformers::load_model(name, &options).ok())?.map(|loaded| loaded.graph)
        }
        _ => None,
    }
}

fn uses_in(graph: Graph) -> Option<BTreeMap<u64, f64>> {
    let graph = passes::simplify_graph(&graph).ok()?;
    let mut uses = BTreeMap::new();
    for found in models::distinct_tasks(&graph, Fuse::Epilogue).ok()? {
        let shape = shape_hash(&found.task.anchor_kind(), &found.task.name(), &work_of(&found.task).ok()?);
        *uses.entry(shape).or_default() += found.places.len() as f64;
    }
    Some(uses)
}

fn uses_recorded(tasks: &BTreeMap<&str, &Record>) -> BTreeMap<u64, f64> {
    let mut uses = BTreeMap::new();
    for record in tasks.values() {
        let task: Option<Task> = record.task.as_ref().and_then(|json| json.parse_as().ok());
        if let Some(work) = task.and_then(|task| work_of(&task).ok()) {
            let shape = shape_hash(&record.op_kind, &record.op_name, &work);
            *uses.entry(shape).or_default() += record.place_count.unwrap_or(1) as f64;
        }
    }
    uses
}

fn usual_version(records: &[Record]) -> Option<&str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for version in records.iter().filter_map(|record| record.tvm_version.as_deref()) {
        *counts.entry(version).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(version, _)| version)
}

/// Returns why a record is not used, whatever its uncertainty and the settings of the others.
fn refuse_kind(record: &Record, policy: &Policy, usual: Option<&str>) -> Option<String> {
    if record.is_network() {
        return Some("whole network, not an operator".to_owned());
    }
    if record.co_run.is_some() {
        return Some("other operators ran concurrently".to_owned());
    }
    if !record.is_alone() {
        return Some("measured in a network, not in isolation".to_owned());
    }
    if record.outcome != Outcome::Ok {
        return Some(format!("outcome `{}`", record.outcome));
    }
    if record.source != policy.source {
        return Some(format!("source `{}`, not `{}`", record.source, policy.source));
    }
    if let Some(most) = policy.max_cv.filter(|most| record.cv.is_some_and(|cv| cv > *most)) {
        return Some(format!("spread (CV) above {}", format_percent(most)));
    }
    if !policy.all_versions && record.tvm_version.as_deref() != usual {
        return Some(format!("not the most frequent TVM version, {}", usual.unwrap_or("none")));
    }
    if policy.default_only && record.schedule_source != Some(ScheduleSource::Default) {
        return Some("not the default schedule".to_owned());
    }
    None
}

fn format_percent(share: f64) -> String {
    format!("{} %", (1e4 * share).round() / 100.0)
}

const SCHEMA_OF_VISITS: i64 = 6;

/// Returns half of the median's relative 95 % interval over visits (processes); within one visit for older and
/// in-network records.
pub fn uncertainty(record: &Record) -> Option<f64> {
    let knows_one_visit = record.schema_version < SCHEMA_OF_VISITS || !record.is_alone();
    if knows_one_visit { record.uncertainty_within_visit() } else { record.uncertainty() }
}

pub fn device_name(record: &Record) -> String {
    let name = record.device.clone().or_else(|| record.board.clone()).unwrap_or_else(|| record.host_class.clone());
    // A CPU library counts as a device of its own, separate from compiled code on the same CPU.
    match targets::kind_of_record(record).filter(|kind| kind.is_library()) {
        Some(library) => format!("{name} through {}", library.name()),
        None => name,
    }
}

fn raw_sample(record: &Record, device: u32) -> std::result::Result<RawSample, String> {
    let task: Task = record
        .task
        .as_ref()
        .ok_or("the record has no task")?
        .parse_as()
        .map_err(|_| "the task cannot be read".to_owned())?;
    let work = work_of(&task)?;
    Ok(RawSample {
        operator: record.op_kind.clone(),
        device,
        model: record.model_name.clone().unwrap_or_default(),
        detail: record.op_name.clone(),
        work,
        threads: record.threads.unwrap_or(1).max(1) as f64,
        is_default: record.schedule_source == Some(ScheduleSource::Default),
        extras: schedule_features(record),
        choice: None,
        text: task.to_text(),
    })
}

pub fn work_of(task: &Task) -> std::result::Result<Work, String> {
    task.check().map_err(|error| format!("the task is invalid: {error}"))?;
    let counted = task.work().map_err(|error| format!("the work cannot be counted: {error}"))?;
    let anchor = task.steps.first().ok_or("the task has no steps")?;
    let extents = anchor.output.extents().ok_or("the task has symbolic sizes")?;
    let elements: f64 = extents.iter().map(|extent| *extent as f64).product();
    let last = extents.last().copied().unwrap_or(1) as f64;
    let mut work = Work {
        columns: last,
        rows: elements / last.max(1.0),
        epilogue: (task.steps.len() - 1) as f64,
        flops: counted.flops as f64,
        bytes_in: counted.bytes_in as f64,
        bytes_weights: counted.bytes_weights as f64,
        bytes_out: counted.bytes_out as f64,
        element_bytes: anchor.output.dtype.size_bytes() as f64,
        input_element_bytes: task.parameters.first().map_or(4.0, |parameter| parameter.ty.dtype.size_bytes() as f64),
        ..Work::with_unit_sizes(operator_form(&anchor.op))
    }
    .with_output(&extents.iter().map(|extent| *extent as f64).collect::<Vec<f64>>());
    if counted.macs > 0 && elements > 0.0 {
        work.depth = (counted.macs as f64 / elements).max(1.0);
    }
    let input = task.parameters.first().and_then(|parameter| parameter.ty.extents()).unwrap_or_default();
    work = work.with_input(&input.iter().map(|extent| *extent as f64).collect::<Vec<f64>>());
    let op = &anchor.op;
    match op.class() {
        Class::Contraction => match op.window() {
            Some(windows) => set_convolution(&mut work, &windows, task, &extents),
            None if matches!(op, Op::MatMul(_) | Op::QMatMul(_)) => {
                let rows = extents.iter().rev().nth(1).copied().unwrap_or(1) as f64;
                work.batch = (work.rows / rows.max(1.0)).max(1.0);
                work.rows = rows;
            }
            None => {}
        },
        Class::Normalisation => {
            if matches!(op, Op::Softmax(_) | Op::LayerNorm(_) | Op::RmsNorm(_)) {
                work.depth = last;
            }
        }
        Class::Pool => {
            // Without a given window, the window is the number of input elements per output element.
            work.taps = share_of_input(&input, elements);
            if let Some(windows) = op.window() {
                set_windows(&mut work, &windows);
            }
            if !matches!(op, Op::GlobalPool(_)) {
                work.width = last;
            }
        }
        Class::Reduction => work.depth = share_of_input(&input, elements),
        Class::Movement => {
            // Only the selected elements are read.
            if matches!(op, Op::Slice(_)) {
                work.bytes_in = work.bytes_in.min(work.bytes_out);
            }
            if let Some(movement) = Movement::from_operator(op, &input, &extents) {
                work.set_movement(&movement);
            }
        }
        // Rows and columns describe the operator completely.
        Class::Pointwise | Class::View => {}
    }
    match work.is_sound() {
        true => Ok(work),
        false => Err("the sizes are not positive".to_owned()),
    }
}

/// Sets the sizes of a convolution in its work, but not operations and bytes.
fn set_convolution(work: &mut Work, windows: &ConvWindow<'_>, task: &Task, extents: &[i64]) {
    let elements: f64 = extents.iter().map(|extent| *extent as f64).product();
    let channels = extents.get(1).copied().unwrap_or(1).max(1) as f64;
    set_windows(work, windows);
    work.groups = windows.groups as f64;
    work.batch = work.groups;
    work.columns = channels / work.groups;
    work.rows = elements / channels;
    work.width = extents.last().copied().unwrap_or(1) as f64;
    work.taps = kernel_taps(task.parameters.get(1).map(|weight| &weight.ty));
}

fn set_windows(work: &mut Work, windows: &ConvWindow<'_>) {
    // Windows of a transposed convolution advance by less than one input, so fewer inputs contribute to an output.
    work.stride = if windows.is_transposed { 1.0 } else { windows.strides.first().copied().unwrap_or(1) as f64 };
    work.pad = last_head(windows.pads);
    work.taps = windows.kernel.iter().map(|extent| *extent as f64).product();
}

fn share_of_input(input: &[i64], elements: f64) -> f64 {
    (input.iter().map(|extent| *extent as f64).product::<f64>() / elements.max(1.0)).max(1.0)
}

fn operator_form(op: &Op) -> Form {
    match op.class() {
        Class::Contraction if op.window().is_some() => Form::Convolution,
        Class::Contraction => Form::Contraction,
        Class::Normalisation => Form::Rows,
        Class::Pointwise => Form::Pointwise,
        Class::Pool | Class::Reduction | Class::Movement | Class::View => Form::Other,
    }
}

/// Returns the padding before the last spatial axis; `pads` contains all leading pads, then all trailing pads.
fn last_head(pads: &[i64]) -> f64 {
    pads.get((pads.len() / 2).saturating_sub(1)).copied().unwrap_or(0) as f64
}

fn kernel_taps(weight: Option<&TensorType>) -> f64 {
    let extents = weight.and_then(TensorType::extents).unwrap_or_default();
    extents.iter().skip(2).map(|extent| *extent as f64).product::<f64>().max(1.0)
}

pub fn knob_features(knobs: &Map<String, Value>) -> BTreeMap<String, f64> {
    named_features(Some(ScheduleSource::Template.name()), Some(knobs))
}

pub fn features_of_schedule(schedule: &Value) -> BTreeMap<String, f64> {
    named_features(schedule.get("from").and_then(Value::as_str), knobs_of(schedule))
}

fn knobs_of(schedule: &Value) -> Option<&Map<String, Value>> {
    schedule.get("knobs").and_then(Value::as_object)
}

fn named_features(source: Option<&str>, knobs: Option<&Map<String, Value>>) -> BTreeMap<String, f64> {
    let mut extras: BTreeMap<String, f64> =
        source.map(|source| (format!("knob.from={source}"), 1.0)).into_iter().collect();
    for (name, value) in knobs.into_iter().flatten() {
        number_feature(format!("knob.{name}"), value, &mut extras);
    }
    extras
}

pub fn add_figures(figures: &Value, extras: &mut BTreeMap<String, f64>) {
    for (name, value) in figures.as_object().into_iter().flatten() {
        // Build times depend more on the host than on the code.
        if !name.ends_with("_ms") {
            number_feature(format!("code.{name}"), value, extras);
        }
    }
}

fn schedule_features(record: &Record) -> BTreeMap<String, f64> {
    let schedule: Value = record.schedule.as_ref().and_then(|json| json.parse_as().ok()).unwrap_or_default();
    // A record states whether its schedule is the default one of the template.
    let mut extras = named_features(record.schedule_source.map(ScheduleSource::name), knobs_of(&schedule));
    if let Some(bytes) = record.code_bytes {
        extras.insert("code.bytes".to_owned(), bytes as f64);
    }
    if let Some(bytes) = record.workspace_bytes {
        extras.insert("code.workspace_bytes".to_owned(), bytes as f64);
    }
    let figures: Value = record.features.as_ref().and_then(|json| json.parse_as().ok()).unwrap_or_default();
    add_figures(&figures, &mut extras);
    extras
}

/// Adds a number under its name, or a word as a feature `name=word` with the value 1.
fn number_feature(name: String, value: &Value, extras: &mut BTreeMap<String, f64>) {
    /// Maximum number of features of a row; further features are dropped. Names come from untrusted files.
    const MOST_NAMES: usize = 512;
    if extras.len() >= MOST_NAMES {
        return;
    }
    match value {
        Value::Number(number) => {
            extras.insert(name, number.as_f64().unwrap_or(f64::NAN));
        }
        Value::Bool(claim) => {
            extras.insert(name, f64::from(u8::from(*claim)));
        }
        Value::String(word) if word.len() <= 64 => {
            extras.insert(format!("{name}={word}"), 1.0);
        }
        _ => {}
    }
}
