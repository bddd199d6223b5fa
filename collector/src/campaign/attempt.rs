//! From models to the list of attempts, each with the key of its experiment.
//!
//! A pure function of the configuration, the target and the host's facts: the same in, the same attempts in the same
//! order out, so that a list can be cut into shards and resumed without talking to anyone.

use super::config::{AttentionChoice, Backend, Config, Executor, ModelRequest, SIMPLE, Sampler, TRANSFORMERS};
use super::module::{self, ModuleError, PlannedModule};
use super::record;
use super::sizes;
use super::variations::variations;
use datasets::{CacheState, Key, Record, RowError, ScheduleSource};
use job::revision::Revisions;
use job::space::{self, Schedule};
use job::target::Target;
use measure::{Cache, Method};
use models::fuse::plan_with;
use models::partition::{CPU_VENDOR, claims, partner};
use models::reader::{Imported, Options, Skipped};
use models::symbolic::{Family, Sizes};
use models::{Graph, Plan, Task, TaskUse, onnx, tflite, torch, transformers};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A task of the campaign with where it was found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlannedTask {
    /// The task.
    pub task: Task,
    /// Its text.
    pub json: String,
    /// The model it was first found in.
    pub model: ModelRequest,
    /// Its places in that model.
    pub places: Vec<String>,
    /// Places in all models of the campaign, by index of the model.
    pub counts: Vec<(usize, usize)>,
    /// The library that would compute it, when it is not the target's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partner: Option<String>,
    /// The task it is compiled as, when that serves other sizes too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbolic: Option<Symbolic>,
    /// Why it is compiled for its own size although several were to be served at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_because: Option<String>,
}

/// A task with symbols, and what they stand for in one of its sizes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Symbolic {
    /// The task with symbols.
    pub task: Task,
    /// Its text.
    pub json: String,
    /// The numbers of this size.
    pub sizes: Sizes,
}

impl Symbolic {
    /// One size of a family.
    pub(super) fn of(family: &Family, place: usize) -> Symbolic {
        Symbolic { task: family.task.clone(), json: json(&family.task), sizes: family.sizes[place].clone() }
    }
}

pub(super) fn json(task: &Task) -> String {
    serde_json::to_string(task).expect("a task holds only JSON values")
}

/// One thing to be measured.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Index of the task; modules are counted after the tasks.
    pub task: usize,
    /// Index of the first task that is compiled together with it.
    pub family: usize,
    /// What computes it.
    pub code: Code,
    /// One thread on each of these CPUs.
    pub cpus: Vec<usize>,
    /// How to measure.
    pub method: Method,
    /// The key of the experiment.
    pub key: Key,
    /// What all attempts of the task share. A campaign has many attempts, and a record is large.
    pub(super) with_task: Arc<Record>,
    /// What caches hold.
    pub(super) state: CacheState,
}

/// What computes a task.
#[derive(Clone, Debug, PartialEq)]
pub enum Code {
    /// Code that is built by a schedule.
    Compiled {
        /// The schedule.
        schedule: Arc<Schedule>,
        /// What proposed it.
        source: ScheduleSource,
        /// Which code it makes of the task.
        revision: Arc<str>,
    },
    /// A library; nothing is built.
    Library,
    /// A program of the library's own.
    Module(Arc<PlannedModule>),
}

/// Records with the columns of host, target and run filled, from which those of attempts are made.
#[derive(Clone, Debug)]
pub struct Bases {
    /// For code that is built.
    pub compiled: Record,
    /// For tasks of a library.
    pub library: Record,
    /// Which code the program makes that builds.
    pub revisions: Revisions,
}

impl Attempt {
    /// The record, all columns filled that are known before the run.
    pub fn record(&self) -> Result<Record, RowError> {
        record::of_attempt(self)
    }

    /// Whether one build serves both.
    pub fn shares_build_with(&self, other: &Attempt) -> bool {
        self.family == other.family && self.code == other.code
    }
}

/// What cannot be turned into attempts.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum PlanningError {
    #[error("cannot use model `{name}`")]
    Model { name: String, source: models::Error },
    #[error(
        "unknown model source `{0}`; this version has `local`, `simple`, `onnx`, `remoteonnx`, `tflite`, `torch` and \
         `transformers`"
    )]
    UnknownSource(String),
    #[error(
        "`{0}` would have to be downloaded, which this program does not do; fetch it first and give the file's path"
    )]
    NotLocal(String),
    #[error("`{name}` {}, whatever batch size is asked for; leave it out, or give `--shape` where the file leaves dimensions open", fixed(*has))]
    Batch { name: String, has: Option<i64> },
    #[error("cannot run `{name}` as a whole")]
    Module { name: String, source: ModuleError },
    #[error("cannot describe the attempt")]
    Record(#[from] datasets::RowError),
}

fn fixed(batch: Option<i64>) -> String {
    match batch {
        Some(batch) => format!("runs with a batch of {batch}"),
        None => "has inputs whose first extents are not one batch size".to_owned(),
    }
}

/// A graph, and what a person should know about where it came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The graph.
    pub graph: Graph,
    /// Sentences: what the file was, what of it was left out.
    pub notes: Vec<String>,
}

/// The graph of a model.
pub fn load(request: &ModelRequest) -> Result<Graph, PlanningError> {
    Ok(load_with_notes(request)?.graph)
}

/// The graph of a model, and what to know about it.
pub fn load_with_notes(request: &ModelRequest) -> Result<Loaded, PlanningError> {
    let without_notes = |graph| Loaded { graph, notes: Vec::new() };
    let loaded = match request.source.as_str() {
        "local" => models::zoo::build(&request.name, request.batch.unwrap_or(1)).map(without_notes),
        SIMPLE => models::simple::build(&request.name).map(without_notes),
        "onnx" => load_file(request, Path::new(&request.name), onnx::load),
        "remoteonnx" => load_file(request, &local_path(&request.name)?, onnx::load),
        "tflite" => load_file(request, Path::new(&request.name), tflite::load),
        "torch" => load_file(request, Path::new(&request.name), torch::load),
        TRANSFORMERS => load_transformer(request),
        other => return Err(PlanningError::UnknownSource(other.to_owned())),
    };
    loaded.map_err(|source| PlanningError::Model { name: request.name.clone(), source })
}

/// What to know about the models of a configuration.
pub fn notes(config: &Config) -> Result<Vec<String>, PlanningError> {
    let has_notes =
        |model: &&ModelRequest| !matches!(model.source.as_str(), "local" | SIMPLE) && !module::is_whole(model, config);
    let mut notes = Vec::new();
    for model in config.models.iter().filter(has_notes) {
        for note in load_with_notes(model)?.notes {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    Ok(notes)
}

fn load_file(
    request: &ModelRequest,
    path: &Path,
    reader: fn(&Path, &Options) -> models::Result<Imported>,
) -> Result<Loaded, models::Error> {
    let options = Options {
        batch: request.batch.unwrap_or(1),
        shapes: request.shapes.clone(),
        skip_unsupported: request.skip_unsupported,
        ..Options::default()
    };
    let imported = reader(path, &options)?;
    let hash = &imported.hash;
    let mut notes = vec![format!("`{}` is {} bytes with the BLAKE3 hash {hash}", path.display(), imported.bytes)];
    for skipped in &imported.skipped {
        let Skipped { place, operator, reason } = skipped;
        notes.push(format!("left out node `{place}` (`{operator}`): {reason}"));
    }
    Ok(Loaded { graph: imported.graph, notes })
}

fn load_transformer(request: &ModelRequest) -> Result<Loaded, models::Error> {
    let mut options = transformers::Options { batch: request.batch.unwrap_or(1), ..transformers::Options::default() };
    if let Some(tokens) = request.tokens {
        (options.sequence, options.phase) = (tokens.sequence, tokens.phase);
    }
    let transformers::Loaded { graph, notes } = transformers::load(&request.name, &options)?;
    Ok(Loaded { graph, notes })
}

/// The path a name stands for: itself, or what follows `file://`.
fn local_path(name: &str) -> Result<PathBuf, PlanningError> {
    match name.split_once("://") {
        None => Ok(PathBuf::from(name)),
        Some(("file", path)) if path.starts_with('/') => Ok(PathBuf::from(path)),
        Some(_) => Err(PlanningError::NotLocal(name.to_owned())),
    }
}

/// Replaces the batch sizes that were asked for by those the models have. A file may have another, whatever was asked.
pub fn settle_batches(config: &mut Config) -> Result<(), PlanningError> {
    let is_whole: Vec<bool> = config.models.iter().map(|model| module::is_whole(model, config)).collect();
    for (request, is_whole) in config.models.iter_mut().zip(is_whole) {
        let has = match request.source.as_str() {
            SIMPLE => None,
            "local" | TRANSFORMERS => Some(request.batch.unwrap_or(1)),
            _ if is_whole => common(request.shapes.values().map(|extents| extents.first().copied())),
            _ => batch_of(&load(request)?),
        };
        if request.batch.is_some() && request.batch != has {
            return Err(PlanningError::Batch { name: request.name.clone(), has });
        }
        request.batch = has;
    }
    Ok(())
}

/// The first extent of all inputs, where they agree about it.
fn batch_of(graph: &Graph) -> Option<i64> {
    let types = graph.inputs.iter().filter_map(|&input| graph.value(input)).map(|value| &value.ty);
    let extents = types.filter(|ty| ty.rank() > 0).map(|ty| ty.extents());
    common(extents.map(|extents| extents.and_then(|extents| extents.first().copied())))
}

/// What all of some numbers are.
fn common(mut numbers: impl Iterator<Item = Option<i64>>) -> Option<i64> {
    let first = numbers.next()??;
    numbers.all(|number| number == Some(first)).then_some(first)
}

/// The distinct tasks of all models, in the order of their first place; those compiled together are neighbours.
pub fn planned_tasks(config: &Config) -> Result<Vec<PlannedTask>, PlanningError> {
    let mut planned: Vec<PlannedTask> = Vec::new();
    let mut index_of = HashMap::new();
    let mut add = |found: TaskUse, model: usize, symbolic: Option<Symbolic>, bound_because: Option<String>| {
        let compiled = symbolic.as_ref().map(|symbolic| symbolic.task.hash());
        let index = *index_of.entry((found.task.hash(), found.partner.clone(), compiled)).or_insert_with(|| {
            planned.push(PlannedTask {
                json: json(&found.task),
                task: found.task,
                model: config.models[model].clone(),
                places: found.places.clone(),
                counts: Vec::new(),
                partner: found.partner,
                symbolic,
                bound_because,
            });
            planned.len() - 1
        });
        planned[index].counts.push((model, found.places.len()));
    };
    match config.executor {
        Executor::Default => {
            let with_graph = config.models.iter().enumerate().filter(|(_, model)| !module::is_whole(model, config));
            for (index, model) in with_graph {
                let failed = |source| PlanningError::Model { name: model.name.clone(), source };
                for found in tasks_of(&load(model)?, config).map_err(failed)? {
                    add(found, index, None, None);
                }
            }
        }
        Executor::Vm => sizes::plan(config, &mut add)?,
    }
    planned.extend(variations(&planned, config));
    Ok(planned)
}

/// The models that are run as a whole.
pub fn planned_modules(config: &Config) -> Result<Vec<PlannedModule>, PlanningError> {
    let whole = config.models.iter().enumerate().filter(|(_, model)| module::is_whole(model, config));
    let plan = |(index, model): (usize, &ModelRequest)| {
        module::plan(index, model).map_err(|source| PlanningError::Module { name: model.name.clone(), source })
    };
    whole.map(plan).collect()
}

/// The distinct tasks of one graph as the configuration wants them cut.
fn tasks_of(graph: &Graph, config: &Config) -> Result<Vec<TaskUse>, models::Error> {
    let mut tasks: Vec<TaskUse> = Vec::new();
    for (_, plan) in cuts(graph, config)? {
        let is_known = |found: &TaskUse, tasks: &[TaskUse]| {
            tasks.iter().any(|known| known.task == found.task && known.partner == found.partner)
        };
        let new: Vec<TaskUse> = plan.tasks.into_iter().filter(|found| !is_known(found, &tasks)).collect();
        tasks.extend(new);
    }
    Ok(tasks)
}

/// The ways to cut a graph into calls that the configuration asks for, each with the graph that is cut.
pub(super) fn cuts(graph: &Graph, config: &Config) -> Result<Vec<(Graph, Plan)>, models::Error> {
    let graph = models::passes::simplify(graph)?;
    let partners: Vec<_> = config.partners.iter().filter_map(|name| partner(name)).collect();
    let cut = |graph: Graph| {
        let mut plan = plan_with(&graph, config.fuse.into(), &claims(&graph, &partners))?;
        match config.backend {
            Backend::Tvm => {}
            // The same tasks as the compiler's, so that times can be compared.
            Backend::Torch => plan.tasks.iter_mut().for_each(|found| found.partner = Some(CPU_VENDOR.to_owned())),
        }
        Ok((graph, plan))
    };
    match config.attention {
        AttentionChoice::Fused => Ok(vec![cut(graph)?]),
        AttentionChoice::Split => Ok(vec![cut(models::passes::split_attention(&graph)?)?]),
        AttentionChoice::Both => {
            let split = models::passes::split_attention(&graph)?;
            Ok(vec![cut(graph)?, cut(split)?])
        }
    }
}

/// The schedules of a task, the default first.
pub fn schedules(task: &Task, target: &Target, config: &Config) -> Vec<Schedule> {
    // The seed is mixed with the task, so that equal axes of two tasks are not sampled alike.
    let digest = blake3::hash(format!("{} {}", config.seed, task.hash()).as_bytes());
    let seed = u64::from_le_bytes(digest.as_bytes()[..8].try_into().expect("a hash has 32 bytes"));
    let mut schedules = Vec::new();
    for sampler in &config.samplers {
        match sampler {
            Sampler::Template => {
                let space = space::space(task, &target.machine);
                let points = space::sample(&space, seed, config.schedules);
                schedules.extend(points.into_iter().map(|knobs| Schedule::Template { knobs }));
            }
            Sampler::MetaSchedule => {
                // TVM's seeds are positive 31-bit numbers.
                let first = i64::try_from(seed >> 34).expect("30 bits");
                schedules.extend((0..config.schedules).map(|draw| Schedule::MetaSchedule {
                    space: draw,
                    seed: first + 1 + i64::try_from(draw).expect("a count of schedules is small"),
                    trace: None,
                }));
            }
        }
    }
    schedules
}

/// All attempts, in order: by task, by schedule, by size where it is compiled for several, by cache state, by threads.
///
/// A task that a library computes has one attempt in place of those of its schedules. `cpus` are those that may be used;
/// a cold cache is made by writing `flush_bytes`.
pub fn attempts(
    tasks: &[PlannedTask],
    modules: &[PlannedModule],
    target: &Target,
    config: &Config,
    bases: &Bases,
    cpus: &[usize],
    flush_bytes: u64,
) -> Result<Vec<Attempt>, PlanningError> {
    let mut attempts = Vec::new();
    let mut first = 0;
    for family in tasks.chunk_by(|left, right| left.is_compiled_with(right)) {
        let compiled = family[0].scheduled();
        let base = if family[0].partner.is_some() { &bases.library } else { &bases.compiled };
        let records = family.iter().map(|planned| Ok(Arc::new(record::of_task(planned, base)?)));
        let records = records.collect::<Result<Vec<Arc<Record>>, PlanningError>>()?;
        for code in codes(&family[0], compiled, target, config, &bases.revisions) {
            for (place, with_task) in records.iter().enumerate() {
                for run in runs(config, flush_bytes) {
                    attempts.push(attempt((first + place, first), code.clone(), run, with_task, cpus)?);
                }
            }
        }
        first += family.len();
    }
    for module in modules {
        let (record, code) =
            (Arc::new(record::of_module(module, &bases.library)?), Code::Module(Arc::new(module.clone())));
        for run in runs(config, flush_bytes) {
            attempts.push(attempt((first, first), code.clone(), run, &record, cpus)?);
        }
        first += 1;
    }
    Ok(attempts)
}

/// One attempt, its key computed.
pub(super) fn attempt(
    (task, family): (usize, usize),
    code: Code,
    (state, method, threads): (CacheState, Method, usize),
    with_task: &Arc<Record>,
    cpus: &[usize],
) -> Result<Attempt, PlanningError> {
    let with_task = Arc::clone(with_task);
    let cpus = cpus[..threads].to_vec();
    let mut attempt = Attempt { task, family, code, cpus, method, key: Key::default(), with_task, state };
    attempt.key = attempt.record()?.key;
    Ok(attempt)
}

/// What computes a task: the library it belongs to, or code of each of its schedules.
fn codes(planned: &PlannedTask, compiled: &Task, target: &Target, config: &Config, revisions: &Revisions) -> Vec<Code> {
    if planned.partner.is_some() {
        return vec![Code::Library];
    }
    let default = Schedule::Template { knobs: space::space(compiled, &target.machine).default };
    let schedules = schedules(compiled, target, config).into_iter();
    let code = |schedule: Schedule| Code::Compiled {
        revision: revisions.of(compiled, target.kind, &schedule),
        source: source_of(&schedule, &default),
        schedule: Arc::new(schedule),
    };
    schedules.map(code).collect()
}

/// The ways to run one schedule: in every cache state, on every number of threads.
fn runs(config: &Config, flush_bytes: u64) -> impl Iterator<Item = (CacheState, Method, usize)> {
    config.cache.iter().flat_map(move |&cache| {
        let mut plan = config.measure.clone();
        let state = CacheState::from(cache);
        if state == CacheState::Cold {
            plan.cache = Cache::Cold { flush_bytes };
        }
        config.threads.iter().map(move |&threads| (state, Method::Sample(plan.clone()), threads))
    })
}

fn source_of(schedule: &Schedule, default: &Schedule) -> ScheduleSource {
    match schedule {
        schedule if schedule == default => ScheduleSource::Default,
        Schedule::Template { .. } => ScheduleSource::Template,
        Schedule::MetaSchedule { .. } => ScheduleSource::MetaSchedule,
        Schedule::Trace { .. } => ScheduleSource::Trace,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::RawConfig;

    /// The batch sizes of a model once it was looked at.
    fn settled(model: &str, settings: &str) -> Result<Vec<Option<i64>>, String> {
        let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tests");
        let text = format!("models = [{{ {} }}]\n{settings}", model.replace("MODELS", models));
        let mut config = RawConfig::parse(&text)?.check(1).map_err(|error| error.to_string())?;
        settle_batches(&mut config).map_err(|error| error.to_string())?;
        Ok(config.models.iter().map(|model| model.batch).collect())
    }

    const FIXED: &str = "source = 'onnx', name = 'MODELS/tflite-cases/one_layer_int8/qdq.onnx'";

    #[test]
    fn a_record_has_the_batch_that_ran() {
        assert_eq!(settled(FIXED, ""), Ok(vec![Some(1)]));
        assert_eq!(settled(FIXED, "batch = [1]"), Ok(vec![Some(1)]));
        for (shape, batch) in [("[2, 3, 8, 8]", 2), ("[4, 3, 8, 8]", 4)] {
            let image = format!("source = 'torch', name = 'MODELS/torch/small_image.pt2', shapes = {{ x = {shape} }}");
            assert_eq!(settled(&image, ""), Ok(vec![Some(batch)]));
        }
        assert_eq!(settled("source = 'local', name = 'mlp'", ""), Ok(vec![Some(1)]));
        assert_eq!(settled("source = 'local', name = 'mlp'", "batch = [1, 8]"), Ok(vec![Some(1), Some(8)]));
        let moves = "source = 'torch', name = 'MODELS/torch/small_moves.pt2'";
        assert_eq!(settled(moves, ""), Ok(vec![None]), "its inputs begin with different extents");
        assert_eq!(settled("source = 'simple', name = 'relu:shape=8x3'", ""), Ok(vec![None]));
    }

    #[test]
    fn a_batch_that_a_file_does_not_have_is_refused() {
        let refused = settled(FIXED, "batch = [1, 8]").unwrap_err();
        assert!(refused.contains("runs with a batch of 1, whatever batch size is asked for"), "{refused}");
        let image = "source = 'torch', name = 'MODELS/torch/small_image.pt2', shapes = { x = [2, 3, 8, 8] }";
        assert!(settled(image, "batch = [4]").unwrap_err().contains("runs with a batch of 2"));
    }
}
