//! Collections, measurements of whole models, and profiles. Results are the engine's reports as JSON, and the text
//! output of the commands.

use crate::engine_thread::{self, Callbacks};
use crate::settings::{self, Configuration};
use crate::store::Records;
use crate::{refusal_error, to_json};
use ::profile::SortBy;
use ::profile::summary::{GroupBy, GroupName};
use datasets::Shard;
use engine::campaign::Settings;
use engine::campaign::settings::ResolvedConfig;
use engine::collection_report::{CollectionReport, describe_collection};
use engine::failure::Failure;
use engine::input_files::InputFiles;
use engine::model_run::{self, ModelRunOptions, write_outputs};
use engine::observer::Observer;
use engine::profile::{
    self as profiles, CodeOptions, DEFAULT_SAMPLE_HERTZ, DEFAULT_TRACE_MIB, FileOptions, ProfileOptions,
};
use engine::repeat::RepeatOptions;
use engine::report::profile::ProfileView;
use engine::session::{Session, SessionOptions};
use models::{Choice, Parallel, names};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use report::Paper;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

/// Options of a collection in addition to its settings.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct CollectOptions {
    store: PathBuf,
    again: bool,
    retry_faults: i64,
    shard: Option<String>,
    compare: bool,
    wait: u64,
    width: usize,
}

struct Collection {
    report: String,
    text: String,
    records: Records,
}

/// Options of a run of a whole model in addition to its settings.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct RunOptions {
    threads: Option<usize>,
    input: Vec<String>,
    inputs: Option<PathBuf>,
    output: Option<PathBuf>,
    check: bool,
    plan: Option<PathBuf>,
    parallel: Option<String>,
    store: Option<PathBuf>,
    wait: u64,
}

/// Options of a profile in addition to its settings.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct ProfilingOptions {
    threads: Option<usize>,
    input: Vec<String>,
    inputs: Option<PathBuf>,
    check: bool,
    schedule: Option<String>,
    sample: Option<NonZeroU64>,
    seconds: Option<f64>,
    counters: Vec<String>,
    group_by: String,
    levels: usize,
    annotate: Option<String>,
    out: Option<PathBuf>,
    csv: Option<PathBuf>,
    perfetto: Option<PathBuf>,
    chrome_trace: Option<PathBuf>,
    html: Option<PathBuf>,
    store: Option<PathBuf>,
    wait: u64,
    row_limit: usize,
    width: usize,
}

/// Collects records into a store. Returns the report as JSON, the text and the records.
#[pyfunction]
pub fn collect(
    py: Python<'_>,
    configuration: Option<Configuration<'_>>,
    settings: &Bound<'_, PyDict>,
    options: CollectOptions,
    callbacks: Callbacks,
) -> PyResult<(String, String, Records)> {
    let start = Instant::now();
    let settings = settings::read_settings(configuration, settings)?;
    let shard = options.shard.as_deref().map(str::parse).transpose().map_err(refusal_error)?;
    let done = engine_thread::run_on_thread(py, &callbacks, move |observer, signal| {
        collect_records(settings, (&options, shard), start, observer, signal)
    })?;
    Ok((done.report, done.text, done.records))
}

fn collect_records(
    settings: Settings,
    (options, shard): (&CollectOptions, Option<Shard>),
    start: Instant,
    observer: Rc<dyn Observer>,
    signal: Arc<AtomicUsize>,
) -> engine::Result<Collection> {
    let session = SessionOptions {
        board: None,
        store: Some(options.store.clone()),
        shard,
        repeat: RepeatOptions {
            again: options.again,
            retry_faults: options.retry_faults,
            keys: None,
            unless_agree: &[],
        },
        night: None,
        compares: options.compare,
        wait_seconds: options.wait,
        start,
        signal,
    };
    let session = Session::open(resolve_settings(settings)?, session, observer)?;
    let done = session.collect()?;
    let (seconds, paper) = (session.elapsed_seconds(), Paper::without_colours(options.width));
    let mut text = describe_collection(&session, &done, seconds, &paper);
    let in_network = session.time_in_network(&done);
    let comparisons = session.compare_models(&done);
    for one in &in_network {
        text.push_str(&format!("\n\n{}", one.describe()));
    }
    for compared in comparisons.iter().flatten() {
        text.push_str(&format!("\n\n{}", compared.describe(&paper)));
    }
    let report = to_json(&CollectionReport::new(&session, &done, seconds, &in_network, comparisons))?;
    Ok(Collection { report, text, records: Records::new(done.records) })
}

/// Runs a whole model. Returns the report as JSON and the text.
#[pyfunction]
pub fn run_model(
    py: Python<'_>,
    configuration: Option<Configuration<'_>>,
    settings: &Bound<'_, PyDict>,
    options: RunOptions,
    callbacks: Callbacks,
) -> PyResult<(String, String)> {
    let settings = without_search(settings::read_settings(configuration, settings)?, options.threads);
    let parallel = options.parallel.as_deref().map(parallel_of).transpose()?;
    engine_thread::run_on_thread(py, &callbacks, move |observer, signal| {
        let inputs = InputFiles { input: options.input, inputs: options.inputs };
        let run = ModelRunOptions {
            board: None,
            threads: options.threads,
            inputs: &inputs,
            is_checked: options.check,
            plan: options.plan.as_deref(),
            parallel,
            store: options.store.as_deref(),
            wait_seconds: options.wait,
            signal,
        };
        let done = model_run::run_model(&run, resolve_settings(settings)?, observer)?;
        if let Some(folder) = &options.output {
            write_outputs(&done.program, &done.outputs, folder)?;
        }
        Ok((to_json(&done.report)?, done.report.text()))
    })
}

/// Profiles a model. Returns the report as JSON and the text.
#[pyfunction]
pub fn profile(
    py: Python<'_>,
    configuration: Option<Configuration<'_>>,
    settings: &Bound<'_, PyDict>,
    options: ProfilingOptions,
    callbacks: Callbacks,
) -> PyResult<(String, String)> {
    let mut settings = without_search(settings::read_settings(configuration, settings)?, options.threads);
    settings.request_counters(&profiles::requested_counters(&options.counters));
    let group_by = group_of(&options.group_by, options.levels)?;
    let schedule =
        options.schedule.as_deref().map(str::parse::<::profile::ProfileSchedule>).transpose().map_err(refusal_error)?;
    engine_thread::run_on_thread(py, &callbacks, move |observer, signal| {
        let inputs = InputFiles { input: options.input.clone(), inputs: options.inputs.clone() };
        let profiling = ProfileOptions { schedule, group_by, signal, ..profile_options(&options, &inputs) };
        let ResolvedConfig { config, loaded } = resolve_settings(settings)?;
        let profiled = profiles::profile_model(&profiling, config, &loaded, &observer)?;
        let view = ProfileView { row_limit: options.row_limit, has_memory: false };
        Ok((to_json(&profiled.report)?, profiled.text(view, &Paper::without_colours(options.width))))
    })
}

fn profile_options<'a>(options: &'a ProfilingOptions, inputs: &'a InputFiles) -> ProfileOptions<'a> {
    ProfileOptions {
        threads: options.threads,
        inputs,
        is_checked: options.check,
        schedule: None,
        sample: options.sample.map(NonZeroU64::get),
        seconds: options.seconds,
        counters: &options.counters,
        on_trace_ready: None,
        wait_seconds: options.wait,
        store: options.store.as_deref(),
        code: CodeOptions {
            annotate: options.annotate.as_deref(),
            folder: None,
            sample_hertz: DEFAULT_SAMPLE_HERTZ,
            has_perf_map: false,
        },
        group_by: GroupBy::default(),
        sort_by: SortBy::default(),
        style: None,
        files: FileOptions {
            profile: options.out.as_deref(),
            csv: options.csv.as_deref(),
            perfetto: options.perfetto.as_deref(),
            chrome_trace: options.chrome_trace.as_deref(),
            page: options.html.as_deref(),
            trace_mib: DEFAULT_TRACE_MIB,
        },
        signal: Arc::default(),
    }
}

/// Returns the settings of a run without a search, optionally with another number of threads.
fn without_search(settings: Settings, threads: Option<usize>) -> Settings {
    let mut settings = Settings { tune: None, ..settings };
    settings.sweep.threads = threads.map(|count| vec![count]).or(settings.sweep.threads);
    settings
}

fn resolve_settings(settings: Settings) -> engine::Result<ResolvedConfig> {
    let (target, unit) = (settings.model.target.as_deref(), settings.model.unit.as_deref());
    let kind = target.and_then(|target| targets::find_unit(target, unit));
    if kind.is_some_and(|kind| kind.default_board().is_some()) {
        return Err(Failure::usage("`pynq` needs a board, which only the command line supports")
            .with_hint("collect with `opcollect --target pynq --host`, or use a simulated core with `unit=\"fpga\"`"));
    }
    settings.resolve_here()
}

fn parallel_of(name: &str) -> PyResult<Parallel> {
    let known = || Parallel::ALL.iter().map(|parallel| parallel.name());
    Parallel::from_name(name)
        .ok_or_else(|| refusal_error(format!("unknown rule `{name}`; {}", names::name_hint(name, known()))))
}

fn group_of(name: &str, levels: usize) -> PyResult<GroupBy> {
    let known = || GroupName::ALL.iter().map(|group| group.name());
    let unknown = || refusal_error(format!("unknown grouping `{name}`; {}", names::name_hint(name, known())));
    GroupName::from_name(name).map(|group| group.with_levels(levels)).ok_or_else(unknown)
}
