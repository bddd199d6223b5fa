//! A session: a configuration with its models, its machine and its store, ready to collect.

use crate::Result;
use crate::artifacts::Artifacts;
use crate::boards::{self, BoardOptions, MeasuredMachine};
use crate::campaign::choices::Backend;
use crate::campaign::graphs::{LoadedModels, model_notes, simulated_note};
use crate::campaign::settings::ResolvedConfig;
use crate::campaign::{Campaign, Config, PlannedModule, PlannedTask, planned_modules, planned_tasks};
use crate::failure::{Failure, format_chain};
use crate::ifcompare;
use crate::observer::Observer;
use crate::repeat::{Repeat, RepeatOptions, WantedCounters};
use crate::stores::open_store;
use crate::{machine, space_filter, spaces};
use bench::{Access, Bench, Boards, Prebuilt, Simulator, Versions};
use datasets::{Shard, Store};
use job::BuildJob;
use job::revision::Revisions;
use measure::host::Exclusive;
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use targets::{BenchKind, Fabric, Target};

/// Options of a session in addition to its configuration.
pub struct SessionOptions<'a> {
    /// The board that code runs on; None for this machine.
    pub board: Option<(&'a Access, BoardOptions<'a>)>,
    /// Folder of the store; None for the default one.
    pub store: Option<PathBuf>,
    /// Shard of this process, if the work is divided.
    pub shard: Option<Shard>,
    /// Selection of already measured experiments to repeat.
    pub repeat: RepeatOptions<'a>,
    /// Name of the nightly run that the session belongs to.
    pub night: Option<String>,
    /// Whether whole models are also run, with default schedules and with the best schedules found.
    pub compares: bool,
    /// Longest wait for another process that measures on the same CPUs, in seconds.
    pub wait_seconds: u64,
    /// Start time of the `opcollect` command; the time budget counts from here.
    pub start: Instant,
    /// Set to the number of a received signal; the collection then ends after the current attempt.
    pub signal: Arc<AtomicUsize>,
}

/// A configuration with all resources that a collection needs: target, store, machine and bench.
pub struct Session {
    /// Checked configuration.
    pub config: Config,
    /// Target that code is compiled for.
    pub target: Target,
    /// The store that records are written to.
    pub store: Store,
    /// The machine that code runs on.
    pub on: MeasuredMachine,
    /// Selection of already measured experiments to repeat.
    pub repeat: Repeat,
    pub(crate) loaded: LoadedModels,
    pub(crate) tasks: Vec<PlannedTask>,
    pub(crate) modules: Vec<PlannedModule>,
    pub(crate) versions: Versions,
    pub(crate) revisions: Revisions,
    pub(crate) shard: Option<Shard>,
    pub(crate) night: Option<String>,
    pub(crate) compares: bool,
    pub(crate) start: Instant,
    pub(crate) signal: Arc<AtomicUsize>,
    pub(crate) observer: Rc<dyn Observer>,
    pub(crate) bench: RefCell<Box<dyn Bench>>,
    _exclusive: Option<Exclusive>,
}

struct OpenedSession {
    target: Target,
    on: MeasuredMachine,
    versions: Versions,
    bench: Box<dyn Bench>,
    exclusive: Option<Exclusive>,
}

impl Session {
    /// Opens a session: plans tasks, starts workers or connects to the board. Opens the store last, so that a failure
    /// leaves no new store behind.
    pub fn open(resolved: ResolvedConfig, options: SessionOptions<'_>, observer: Rc<dyn Observer>) -> Result<Session> {
        let ResolvedConfig { config, loaded } = resolved;
        let chooses = options.repeat.again || !options.repeat.unless_agree.is_empty() || options.repeat.keys.is_some();
        if config.tune.is_some() && chooses {
            return Err(Failure::usage("`--again`, `--keys` and `--unless-agree` apply to a sweep, not to a search")
                .with_hint(
                    "a search measures its best schedules again by itself; to start again, give another `--store`",
                ));
        }
        let mut repeat = Repeat { counters: WantedCounters::from_config(&config), ..Repeat::new(&options.repeat)? };
        let tasks = planned_tasks(&config, &loaded).map_err(|error| Failure::usage(format_chain(&error)))?;
        let modules = planned_modules(&config).map_err(|error| Failure::usage(format_chain(&error)))?;
        let opened = match config.target_kind().bench_kind() {
            BenchKind::Core => open_core(&config, &tasks, &loaded, &options, observer.as_ref())?,
            BenchKind::Workers => open_machine(&config, (&tasks, &modules), &loaded, &options, observer.as_ref())?,
        };
        let store = open_store(options.store.as_deref())?;
        repeat.exclude_measured(&store, options.night.as_deref())?;
        spaces::refuse_other_versions(&config, &store)?;
        Ok(Session {
            target: opened.target,
            store,
            on: opened.on,
            repeat,
            loaded,
            tasks,
            modules,
            versions: opened.versions,
            revisions: Revisions::embedded_table().clone(),
            shard: options.shard,
            night: options.night,
            compares: options.compares,
            start: options.start,
            signal: options.signal,
            observer,
            bench: RefCell::new(opened.bench),
            _exclusive: opened.exclusive,
            config,
        })
    }

    /// Opens a session that measures prebuilt artifacts here. Options for boards and for comparisons are ignored.
    pub fn open_artifacts(
        artifacts: Artifacts,
        options: SessionOptions<'_>,
        observer: Rc<dyn Observer>,
    ) -> Result<Session> {
        let mut workers = machine::create_workers(&artifacts.config().limits)?;
        let versions = artifacts.query_versions(&mut workers)?;
        let exclusive = machine::lock_cpus(options.wait_seconds, observer.as_ref())?;
        let repeat = Repeat::new(&options.repeat)?;
        let Campaign { tasks, target, config, .. } = artifacts.campaign();
        Ok(Session {
            config: config.clone(),
            target: target.clone(),
            store: open_store(options.store.as_deref())?,
            on: MeasuredMachine::this_machine()?,
            repeat,
            loaded: LoadedModels::default(),
            tasks: tasks.to_vec(),
            modules: Vec::new(),
            versions,
            revisions: artifacts.revisions().clone(),
            shard: options.shard,
            night: options.night,
            compares: false,
            start: options.start,
            signal: options.signal,
            observer,
            bench: RefCell::new(Box::new(Prebuilt::new(workers, move |job: &BuildJob| artifacts.read_build(job)))),
            _exclusive: Some(exclusive),
        })
    }

    /// Returns the seconds since the start of the `opcollect` command.
    pub fn elapsed_seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Returns the number of the signal that stops the session, or 0.
    pub fn signal_number(&self) -> usize {
        self.signal.load(Ordering::Relaxed)
    }
}

fn open_machine(
    config: &Config,
    (tasks, modules): (&[PlannedTask], &[PlannedModule]),
    loaded: &LoadedModels,
    options: &SessionOptions<'_>,
    observer: &dyn Observer,
) -> Result<OpenedSession> {
    let mut workers = machine::create_workers(&config.limits)?;
    if options.compares {
        ifcompare::reject_campaign(config, tasks, modules, options.shard.is_some())?;
    }
    let library = machine::library_versions(tasks, modules, &mut workers)?;
    observer.receive_notes(&model_notes(config, loaded).map_err(|error| Failure::usage(format_chain(&error)))?);
    let (target, on) = match (options.board, config.backend) {
        (Some(_), _) if options.compares => {
            return Err(Failure::usage("`--ifcompare` runs whole models on this machine, not on a board")
                .with_hint("remove it; `opcollect model run` supports boards"));
        }
        (Some((access, wanted)), _) => boards::connect_board(access, wanted, config, &mut workers)?,
        (None, Backend::Tvm) => {
            (machine::resolve_target(&config.target, &mut workers)?, MeasuredMachine::this_machine()?)
        }
        (None, Backend::Torch) => (machine::library_target(&library)?, MeasuredMachine::this_machine()?),
    };
    let versions = machine::collect_versions(&target, library, &mut workers)?;
    let exclusive = match on.board {
        Some(_) => None,
        None => Some(machine::lock_cpus(options.wait_seconds, observer)?),
    };
    if let Some(tune) = &config.tune {
        space_filter::filter_spaces(tasks, &target.machine, &tune.only)?;
    }
    let bench: Box<dyn Bench> = match &on.board {
        Some(board) => Box::new(Boards::new(workers, &board.fleet).map_err(Failure::environment)?),
        None => Box::new(workers),
    };
    Ok(OpenedSession { target, on, versions, bench, exclusive })
}

/// Connects to the accelerator in a board's FPGA, or simulates it. Locks no CPU: nothing is measured here.
fn open_core(
    config: &Config,
    tasks: &[PlannedTask],
    loaded: &LoadedModels,
    options: &SessionOptions<'_>,
    observer: &dyn Observer,
) -> Result<OpenedSession> {
    if options.compares {
        return Err(Failure::usage("`--ifcompare` runs whole models, and a simulated core only runs operators"));
    }
    let target = config.target_kind().parse(&config.target).map_err(Failure::usage)?;
    let fabric = Fabric::parse_text(&config.target).map_err(Failure::usage)?;
    if tasks.is_empty() {
        return Err(Failure::usage("the FPGA accelerator supports no task of these models")
            .with_hint("`opcollect tasks` without `--target pynq` lists them"));
    }
    let (bench, on): (Box<dyn Bench>, MeasuredMachine) = match options.board {
        Some((access, wanted)) => {
            let (bench, on) = boards::connect_core(access, wanted, &fabric, config.limits.runner_jobs)?;
            (Box::new(bench), on)
        }
        None => (Box::new(Simulator::new(fabric)), MeasuredMachine::this_machine()?),
    };
    if on.board.as_ref().is_none_or(|board| board.time_source() == datasets::Source::Simulated) {
        observer.receive_notes(&simulated_note(config).into_iter().collect::<Vec<_>>());
    }
    observer.receive_notes(&model_notes(config, loaded).map_err(|error| Failure::usage(format_chain(&error)))?);
    Ok(OpenedSession { target, on, versions: Versions::new(), bench, exclusive: None })
}
