//! Fills records step by step: the columns of machine and target, task, attempt, artifact, and result. All records
//! that this program measures are filled here.

use super::module::PlannedModule;
use super::planned::{Attempt, Code, PlannedTask, PlanningError};
use bench::Versions;
use datasets::{CacheState, Covers, Json, Outcome, OverVisits, Record, RowError, Source};
use job::space::Schedule;
use job::{Artifact, Check, Measured, RunReply, Simulated};
use measure::Measurement;
use measure::counters::CounterValue;
use measure::counters::gpu::ENERGY;
use measure::counters::names::{DRAM_ENERGY, PACKAGE_ENERGY};
use measure::host::{Facts, Topology};
use models::{Class, Op, Task, TensorType};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};
use targets::Target;
use worker::Fault;

/// Returns a record with the columns of run, target, host and versions.
pub fn machine_record(target: &Target, facts: &Facts, versions: &Versions, run_id: &str) -> Result<Record, String> {
    let mut record = Record {
        run_id: run_id.to_owned(),
        target: target.kind.record_word(),
        target_text: Some(target.text.clone()),
        source: target.kind.time_source(),
        thread_mode: Some("one CPU per thread".to_owned()),
        device: versions.get("device").cloned(),
        driver_version: versions.get("driver").cloned(),
        tvm_version: versions.get("tvm").cloned(),
        llvm_version: versions.get("llvm").cloned(),
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        ..host_record(facts)
    };
    target.kind.fill_columns(&target.text, &mut record)?;
    Ok(record)
}

/// Returns a record with only the columns of the host.
pub fn host_record(facts: &Facts) -> Record {
    let count = |number: Option<u64>| number.and_then(|number| i64::try_from(number).ok());
    let cache = |level: u32| count(facts.cache_bytes(level));
    Record {
        host: facts.hostname.clone().unwrap_or_else(|| "unknown".to_owned()),
        host_class: facts.host_class(),
        cpu_model: facts.cpu_model.clone(),
        cpu_arch: Some(facts.architecture.clone()),
        logical_cpus: Some(i64::from(facts.logical_cpus)),
        physical_cores: facts.physical_cores.map(i64::from),
        l1d_bytes: cache(1),
        l2_bytes: cache(2),
        l3_bytes: cache(3),
        memory_bytes: count(facts.memory_bytes),
        clock_policy: facts.clock_policy(),
        is_virtual_machine: Some(facts.hypervisor.is_some()),
        os: facts.os.clone(),
        kernel: facts.kernel.clone(),
        ..Record::default()
    }
}

/// Replaces the host columns by those of the board with the FPGA accelerator, because its CPU influences the times.
pub fn set_host_columns(record: &mut Record, facts: &Facts) {
    let host = host_record(facts);
    *record = Record {
        host: host.host,
        host_class: host.host_class,
        cpu_model: host.cpu_model,
        cpu_arch: host.cpu_arch,
        logical_cpus: host.logical_cpus,
        physical_cores: host.physical_cores,
        l1d_bytes: host.l1d_bytes,
        l2_bytes: host.l2_bytes,
        l3_bytes: host.l3_bytes,
        memory_bytes: host.memory_bytes,
        clock_policy: host.clock_policy,
        is_virtual_machine: host.is_virtual_machine,
        kernel: host.kernel,
        ..record.clone()
    };
}

/// Returns the base record of tasks that a library computes: no TVM version, and threads that share the CPUs.
pub fn library_record(compiled: &Record, target: &Target) -> Record {
    Record {
        target: target.kind.record_word(),
        target_text: Some(target.text.clone()),
        spin_count: Some(0),
        thread_mode: Some("threads share the CPUs".to_owned()),
        tvm_version: None,
        llvm_version: None,
        ..compiled.clone()
    }
}

/// Adds the columns of model, operator and work to a base record.
pub fn task_record(planned: &PlannedTask, base: &Record) -> Result<Record, PlanningError> {
    let task = &planned.task;
    let mut record = base.clone();
    record.model_source = Some(planned.model.source.clone());
    record.model_name = Some(planned.model.label());
    record.batch = planned.model.batch;
    record.place = planned.places.first().filter(|place| !place.is_empty()).cloned();
    record.place_count = i64::try_from(planned.places.len()).ok();
    record.places = Some(Json::new(&planned.places)?);
    record.task_hash = task.hash();
    record.op_kind = task.anchor_kind().to_owned();
    record.op_name = task.name();
    record.op_text = task.describe();
    record.task = Some(Json::parse(&planned.json)?);
    record.symbolic_task = planned.symbolic.as_ref().map(|symbolic| symbolic.task.to_text());
    record.sizes = planned.symbolic.as_ref().map(|symbolic| Json::new(&symbolic.sizes)).transpose()?;
    let extents: Vec<_> = task.parameters.iter().map(|parameter| parameter.ty.extents()).collect();
    record.input_shapes = Some(Json::new(&extents)?);
    record.output_shape = Some(Json::new(&task.steps.last().map(|step| step.output.extents()))?);
    record.layout = anchor_layout(task).map(str::to_owned);
    record.dtype = task.parameters.first().map(|parameter| parameter.ty.dtype.name().to_owned());
    let failed = |source| PlanningError::Model { name: planned.model.name.clone(), source };
    let work = task.work().map_err(failed)?;
    let count = |number: u64| i64::try_from(number).ok();
    record.flops = count(work.flops);
    record.macs = count(work.macs);
    record.bytes_in = count(work.bytes_in);
    record.bytes_out = count(work.bytes_out);
    record.bytes_weights = count(work.bytes_weights);
    let moved = work.total_bytes();
    record.arithmetic_intensity = (moved > 0).then(|| work.flops as f64 / moved as f64);
    Ok(record)
}

/// Returns the data layout, such as NCHW, of convolutions and pooling; None for other anchors.
fn anchor_layout(task: &Task) -> Option<&'static str> {
    let anchor = &task.steps[0];
    let is_spatial =
        matches!(anchor.op.class(), Class::Pool) || matches!(anchor.op, Op::Conv(_) | Op::ConvTranspose(_));
    match (is_spatial, anchor.output.rank()) {
        (true, 3) => Some("NCW"),
        (true, 4) => Some("NCHW"),
        (true, 5) => Some("NCDHW"),
        _ => None,
    }
}

/// Adds the columns of a whole program to a base record; its amount of work is unknown.
pub fn module_record(module: &PlannedModule, base: &Record) -> Result<Record, RowError> {
    let extents: Vec<_> = module.inputs.iter().map(TensorType::extents).collect();
    Ok(Record {
        model_source: Some(module.model.source.clone()),
        model_name: Some(module.model.label()),
        batch: module.model.batch,
        place_count: Some(1),
        task_hash: module.content_hash(),
        op_kind: "module".to_owned(),
        op_name: "torchscript".to_owned(),
        op_text: module.describe(),
        input_shapes: Some(Json::new(&extents)?),
        dtype: module.inputs.first().map(|ty| ty.dtype.name().to_owned()),
        ..base.clone()
    })
}

/// Adds the remaining columns that are known before the run to the record of the task.
pub fn attempt_record(attempt: &Attempt) -> Result<Record, RowError> {
    let mut record = Record::clone(&attempt.with_task);
    if let Code::Compiled { schedule, source, revision } = &attempt.code {
        record.code_revision = Some(revision.to_string());
        record.schedule_hash = Some(schedule.stable_hash());
        record.schedule_source = Some(*source);
        record.schedule = Some(Json::parse(&schedule.to_json())?);
    }
    describe_cpus(&mut record, &attempt.cpus)?;
    record.cache_state = Some(attempt.state);
    record.plan = Some(Json::new(&attempt.method)?);
    record.key = record.experiment_key();
    Ok(record)
}

/// Fills the columns of CPUs (one thread on each) and of their NUMA nodes, if the CPUs belong to this machine.
pub fn describe_cpus(record: &mut Record, cpus: &[usize]) -> Result<(), RowError> {
    static TOPOLOGY: OnceLock<Topology> = OnceLock::new();
    record.threads = i64::try_from(cpus.len()).ok();
    record.cpus = Some(Json::new(cpus)?);
    if record.transport.is_none() && record.source == Source::Measured {
        let topology =
            TOPOLOGY.get_or_init(|| Topology::read_topology(&measure::affinity::allowed_cpus().unwrap_or_default()));
        let nodes = topology.numa_nodes(cpus);
        record.numa_nodes = if nodes.is_empty() { None } else { Some(Json::new(&nodes)?) };
    }
    Ok(())
}

/// Fills the columns that describe the built artifact and its schedule.
pub fn describe_artifact(record: &mut Record, schedule: &Schedule, artifact: &Artifact) -> Result<(), RowError> {
    record.code_bytes = i64::try_from(artifact.code_bytes).ok();
    record.build_ms = Some(artifact.schedule_ms + artifact.lower_ms + artifact.codegen_ms);
    let mut features = BTreeMap::from([
        ("schedule_ms", artifact.schedule_ms),
        ("lower_ms", artifact.lower_ms),
        ("codegen_ms", artifact.codegen_ms),
    ]);
    // Launches are the same for all architectures, so the features of the first one are recorded.
    let cubin = artifact.device.as_ref().and_then(|code| code.cubins.first());
    features.extend(cubin.map(|cubin| cubin.static_features()).into_iter().flatten());
    features.extend(artifact.features.iter().map(|(name, value)| (name.as_str(), *value)));
    record.features = Some(Json::new(&features)?);
    if let (Schedule::MetaSchedule { space, seed, .. }, Some(trace)) = (schedule, &artifact.trace) {
        let trace = Json::parse(trace)?.parse_as()?;
        let drawn = Schedule::MetaSchedule { space: *space, seed: *seed, trace: Some(trace) };
        record.moves_hash = drawn.moves_hash();
        record.schedule = Some(Json::parse(&drawn.to_json())?);
    }
    Ok(())
}

/// Fills the columns that describe the result of a run, or the fault that ended it.
pub fn describe_reply(record: &mut Record, reply: &Result<RunReply, Fault>) -> Result<(), RowError> {
    match reply {
        Ok(RunReply::Measured(measured)) => describe_measured(record, measured)?,
        Ok(RunReply::Simulated(simulated)) => describe_simulated(record, simulated)?,
        Ok(RunReply::WrongResult(check)) => wrong_result(record, check),
        Ok(RunReply::Failed(why)) => mark_failed(record, Outcome::RunFailed, why.clone()),
        Ok(RunReply::Unsupported(why)) => mark_failed(record, Outcome::Skipped, format!("unsupported: {why}")),
        Ok(RunReply::Together(_)) => {
            mark_failed(record, Outcome::RunFailed, "the runner returned a co-run instead of a time".to_owned())
        }
        Ok(RunReply::Profiled(_)) => {
            mark_failed(record, Outcome::RunFailed, "the runner returned a profile instead of a time".to_owned())
        }
        Err(fault) => mark_failed(record, fault_outcome(fault, Outcome::RunFailed), format!("run: {fault}")),
    }
    Ok(())
}

/// Fills the columns of a simulated result. A simulator is deterministic, so the interval is empty.
fn describe_simulated(record: &mut Record, simulated: &Simulated) -> Result<(), RowError> {
    if record.source != Source::Simulated {
        mark_failed(record, Outcome::RunFailed, format!("a simulated time cannot have the source `{}`", record.source));
        return Ok(());
    }
    let time = simulated.time_ns;
    record.outcome = Outcome::Ok;
    record.n = 1;
    (record.median_ns, record.mean_ns, record.min_ns, record.p95_ns) = (Some(time), Some(time), Some(time), Some(time));
    record.median_interval_ns = Some(0.0);
    record.interval_covers = Some(Covers::Visits);
    record.samples_ns = vec![time];
    record.counters = Some(Json::new(&simulated.counts)?);
    describe_check(record, &simulated.check);
    Ok(())
}

fn describe_measured(record: &mut Record, measured: &Measured) -> Result<(), RowError> {
    // An emulated board measures its own times.
    if !matches!(record.source, Source::Measured | Source::Emulated) {
        mark_failed(record, Outcome::RunFailed, format!("a measured time cannot have the source `{}`", record.source));
        return Ok(());
    }
    describe_measurement(record, &measured.measurement)?;
    record.peak_memory_bytes = i64::try_from(measured.peak_memory_bytes).ok();
    if let Some(check) = &measured.check {
        describe_check(record, check);
    }
    Ok(())
}

/// Fills the columns of times and counters.
pub fn describe_measurement(record: &mut Record, m: &Measurement) -> Result<(), RowError> {
    record.outcome = Outcome::Ok;
    record.n = i64::from(m.n);
    record.median_ns = Some(m.median_ns);
    record.mean_ns = Some(m.mean_ns);
    record.min_ns = Some(m.min_ns);
    record.p95_ns = Some(m.p95_ns);
    record.std_ns = m.std_ns;
    record.cv = m.cv;
    record.first_run_ns = Some(m.first_run_ns as f64).filter(|time| *time > 0.0);
    record.batch_size = Some(i64::from(m.batch_size));
    record.median_interval_ns = m.median_interval_ns.map(|(low, high)| (high - low) / 2.0);
    record.median_low_ns = m.median_interval_ns.map(|(low, _)| low);
    record.median_high_ns = m.median_interval_ns.map(|(_, high)| high);
    record.interval_covers = m.median_interval_ns.map(|_| Covers::Visit);
    if !m.visits_ns.is_empty() {
        record.state_over_visits(&OverVisits::of_medians(m.median_ns, &m.visits_ns));
    }
    record.samples_ns = m.samples_ns.clone();
    record.clock_probe_ns = m.clock_probe_ns;
    record.cpu_time_ns = Some(m.cpu_time_ns).filter(|time| *time > 0.0);
    let counters: BTreeMap<&str, f64> = m.counters.iter().map(|c| (c.name.as_str(), c.per_run)).collect();
    let steps: BTreeSet<&str> = m.counters.iter().map(|c| c.step.source_name()).collect();
    // A counter that one source rejected and a later source delivered does not count as rejected.
    let refused = m.refusals.iter().filter(|refusal| !counters.contains_key(refusal.event.as_str()));
    let mut refused_by: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for refusal in refused {
        let why = format!("{}: {}", refusal.step.source_name(), refusal.why);
        refused_by.entry(&refusal.event).or_default().push(why);
    }
    let refused: BTreeMap<&str, String> = refused_by.into_iter().map(|(name, whys)| (name, whys.join("; "))).collect();
    let origins: BTreeMap<&str, CounterOrigin<'_>> = m.counters.iter().map(|c| (c.name.as_str(), c.into())).collect();
    record.counters = (!counters.is_empty()).then(|| Json::new(&counters)).transpose()?;
    record.counter_origins = (!origins.is_empty()).then(|| Json::new(&origins)).transpose()?;
    record.counters_refused = (!refused.is_empty()).then(|| Json::new(&refused)).transpose()?;
    record.counter_source = (!steps.is_empty()).then(|| steps.into_iter().collect::<Vec<_>>().join("+"));
    record.energy_joules = energy_joules(m, record.cache_state);
    let warnings: Vec<String> = m.warnings.iter().map(ToString::to_string).collect();
    record.warnings = (!warnings.is_empty()).then(|| Json::new(&warnings)).transpose()?;
    Ok(())
}

/// Returns the energy of one run in joules: of the GPU board, or else of the CPU packages and their memory if the
/// meters covered all timed runs. Unless caches are warm, board energy is not used: its separate runs have warm caches.
fn energy_joules(m: &Measurement, caches: Option<CacheState>) -> Option<f64> {
    const MILLIJOULE: f64 = 1e-3;
    const MICROJOULE: f64 = 1e-6;
    let counted = |name: &str| m.counters.iter().find(|counter| counter.name == name && counter.per_run > 0.0);
    let over_all = |name: &str| {
        let counter = counted(name).filter(|counter| counter.runs == m.timed_runs && counter.running_ratio >= 1.0)?;
        Some(counter.per_run * MICROJOULE)
    };
    let of_board = counted(ENERGY).filter(|_| caches.is_none_or(|state| state == CacheState::Warm));
    match of_board {
        Some(counter) => Some(counter.per_run * MILLIJOULE),
        None => Some(over_all(PACKAGE_ENERGY)? + over_all(DRAM_ENERGY).unwrap_or(0.0)),
    }
}

#[derive(Serialize)]
pub(crate) struct CounterOrigin<'a> {
    pub source: &'a str,
    /// Name of the counter in the library or interface that counts it.
    pub native: &'a str,
    pub unit: &'a str,
    /// Threads or processes whose events are counted.
    pub coverage: &'a str,
    pub runs: u64,
    /// Share of the time in which the counter was active.
    pub running_share: f64,
}

impl<'a> From<&'a CounterValue> for CounterOrigin<'a> {
    fn from(value: &'a CounterValue) -> Self {
        let CounterValue { step, native, unit, coverage, runs, running_ratio, .. } = value;
        let (source, running_share) = (step.source_name(), *running_ratio);
        CounterOrigin { source, native, unit, coverage: coverage.name(), runs: *runs, running_share }
    }
}

/// Fills the columns of the error against the reference.
pub fn describe_check(record: &mut Record, check: &Check) {
    record.max_abs_error = Some(check.max_abs_error).filter(|error| error.is_finite());
    record.max_rel_error = Some(check.max_rel_error).filter(|error| error.is_finite());
}

/// Marks a record whose result differs from the reference.
pub fn wrong_result(record: &mut Record, check: &Check) {
    describe_check(record, check);
    let why = format!(
        "differs from the reference by up to {:.3e} (relative {:.3e})",
        check.max_abs_error, check.max_rel_error
    );
    mark_failed(record, Outcome::WrongResult, why);
}

/// Marks a record without a time, with the reason.
pub fn mark_failed(record: &mut Record, outcome: Outcome, why: String) {
    record.outcome = outcome;
    record.reason = Some(if why.is_empty() { "no reason was given".to_owned() } else { why });
}

/// Returns `Crashed` if the process or connection ended, `TimedOut` for a timeout, and `other` for other faults.
pub fn fault_outcome(fault: &Fault, other: Outcome) -> Outcome {
    match fault {
        Fault::Crashed { .. } | Fault::Exited { .. } | Fault::Lost { .. } => Outcome::Crashed,
        Fault::TimedOut { .. } => Outcome::TimedOut,
        Fault::Corrupt { .. } | Fault::HandlerFailed { .. } | Fault::CannotStart { .. } | Fault::Unsendable { .. } => {
            other
        }
    }
}

/// Returns a moment in microseconds since 1970.
pub fn unix_microseconds(moment: SystemTime) -> i64 {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// Returns the current time in microseconds since 1970.
pub fn now_us() -> i64 {
    unix_microseconds(SystemTime::now())
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::counters::{Coverage, Step};
    use measure::{HostClock, Plan, sample_runs};

    /// Medians of three visits, recorded on an AMD EPYC with AVX-512: ResNet-18's first convolution
    /// on one thread with its default schedule, and the whole model on two threads.
    const RECORDED: [[f64; 3]; 2] = [[1_147_536.5, 1_053_361.0, 1_074_703.0], [6_523_009.0, 6_592_052.0, 6_623_073.0]];

    #[test]
    fn operators_and_whole_models_have_equal_statistics() {
        for visits_ns in RECORDED {
            let visit = |median_ns: &f64| Measurement { median_ns: *median_ns, ..measured(&[]) };
            let visits: Vec<Measurement> = visits_ns.iter().map(visit).collect();
            // An operator of a campaign has a row for each visit, a whole model one row for all.
            let row = |(place, visit): (usize, &Measurement)| {
                let mut record = Record { started_at_us: place as i64, ..Record::default() };
                describe_measurement(&mut record, visit).unwrap();
                record
            };
            let rows: Vec<Record> = visits.iter().enumerate().map(row).collect();
            let of_rows = datasets::median_record(&rows.iter().collect::<Vec<_>>()).unwrap();
            let mut whole = Record::default();
            describe_measurement(&mut whole, &Measurement::of_visits(visits).unwrap()).unwrap();
            let columns = |record: &Record| {
                let interval = (record.median_low_ns, record.median_high_ns, record.interval_covers);
                (record.median_ns, interval, record.visit_spread, record.visits_ns.clone())
            };
            assert_eq!(columns(&of_rows), columns(&whole));
            assert_eq!(whole.interval_covers, Some(Covers::Visits));
        }
    }

    /// `counters`: name, value per run, number of counted runs, and whether all runs were counted.
    fn measured(counters: &[(&str, f64, u64, bool)]) -> Measurement {
        let plan = Plan { samples_min: 1, time_budget_ns: 0, warm_up_time_ns: 0, ..Plan::default() };
        let mut run = |_| Ok::<(), std::convert::Infallible>(());
        let Ok(bare) = sample_runs(&mut run, &plan, &mut HostClock::new(), &mut measure::counters::NoCounters);
        let value = |(name, per_run, runs, is_whole): &(&str, f64, u64, bool)| CounterValue {
            name: (*name).to_owned(),
            unit: "microjoule".to_owned(),
            step: Step::Powercap,
            native: "package".to_owned(),
            coverage: Coverage::Machine,
            per_run: *per_run,
            runs: *runs,
            running_ratio: if *is_whole { 1.0 } else { 0.5 },
        };
        Measurement { timed_runs: 100, counters: counters.iter().map(value).collect(), ..bare }
    }

    #[test]
    fn energy_covers_all_timed_runs() {
        let check = |counters: &[(&str, f64, u64, bool)], caches: CacheState, joules: Option<f64>| {
            let mut record = Record { cache_state: Some(caches), ..Record::default() };
            describe_measurement(&mut record, &measured(counters)).expect("sound");
            let is_near = |found: f64| joules.is_some_and(|joules| (found / joules - 1.0).abs() < 1e-12);
            assert!(record.energy_joules.map_or(joules.is_none(), is_near), "{:?}", record.energy_joules);
        };
        let (package, dram) = ((PACKAGE_ENERGY, 2500.0, 100, true), (DRAM_ENERGY, 500.0, 100, true));
        check(&[package, dram], CacheState::Warm, Some(3e-3));
        check(&[package], CacheState::Cold, Some(2.5e-3));
        check(&[dram], CacheState::Warm, None);
        check(&[(PACKAGE_ENERGY, 2500.0, 60, true), dram], CacheState::Warm, None);
        check(&[(PACKAGE_ENERGY, 2500.0, 100, false)], CacheState::Warm, None);
        check(&[(PACKAGE_ENERGY, 0.0, 100, true)], CacheState::Warm, None);
        // Board energy comes from separate runs, half a second long.
        check(&[(ENERGY, 40.0, 7, true), package], CacheState::Warm, Some(40e-3));
        check(&[(ENERGY, 40.0, 7, true)], CacheState::Cold, None);
        check(&[], CacheState::Warm, None);
    }

    #[test]
    fn numa_nodes_are_those_of_this_machine() {
        let cpus = measure::affinity::allowed_cpus().unwrap();
        let expected = Topology::read_topology(&cpus).numa_nodes(&cpus);
        let nodes = |base: Record| {
            let mut record = base;
            describe_cpus(&mut record, &cpus).unwrap();
            assert_eq!(record.threads, i64::try_from(cpus.len()).ok());
            record.numa_nodes.map(|nodes| nodes.parse_as::<Vec<usize>>().unwrap())
        };
        assert_eq!(nodes(Record::default()).unwrap_or_default(), expected);
        assert_eq!(nodes(Record { transport: Some("rpc".to_owned()), ..Record::default() }), None);
        assert_eq!(nodes(Record { source: Source::Simulated, ..Record::default() }), None);
    }
}
