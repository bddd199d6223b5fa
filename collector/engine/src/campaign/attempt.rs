//! Plans the attempts of models. Each attempt contains the key of its experiment. The plan is a pure function of the
//! configuration, the target and the facts of the host: equal inputs give equal attempts in equal order. So processes
//! can divide the list into shards, or resume it, without communication.

use super::choices::{Executor, SamplerName};
use super::config::{Config, ModelRequest};
use super::graphs::{LoadedModels, tasks_of};
use super::module::{self, PlannedModule};
use super::planned::{Attempt, Bases, Code, PlannedTask, PlanningError, Symbolic, task_json};
use super::record;
use super::sizes;
use super::variations::resize_tasks;
use datasets::{CacheState, Key, Record, ScheduleSource, Source};
use job::revision::Revisions;
use job::space::{self, Schedule};
use measure::{Cache, Method, Plan};
use models::{Task, TaskUse};
use std::collections::HashMap;
use std::sync::Arc;
use targets::Target;

/// Returns the distinct tasks in the order of first occurrence; tasks that are compiled together are adjacent.
pub fn planned_tasks(config: &Config, models: &LoadedModels) -> Result<Vec<PlannedTask>, PlanningError> {
    let mut planned: Vec<PlannedTask> = Vec::new();
    let mut index_of = HashMap::new();
    let mut add = |found: TaskUse, model: usize, symbolic: Option<Symbolic>, bound_because: Option<String>| {
        let compiled = symbolic.as_ref().map(|symbolic| symbolic.task.hash());
        let index = *index_of.entry((found.task.hash(), found.partner.clone(), compiled)).or_insert_with(|| {
            planned.push(PlannedTask {
                json: task_json(&found.task),
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
                for found in tasks_of(&models.load(model)?.graph, config).map_err(failed)? {
                    add(found, index, None, None);
                }
            }
        }
        Executor::Vm => sizes::plan_tasks(config, models, &mut add)?,
    }
    planned.extend(resize_tasks(&planned, config));
    Ok(planned)
}

/// Returns the models that are run as whole programs.
pub fn planned_modules(config: &Config) -> Result<Vec<PlannedModule>, PlanningError> {
    let modules = config.models.iter().enumerate().filter(|(_, model)| module::is_whole(model, config));
    let plan = |(index, model): (usize, &ModelRequest)| {
        module::plan_module(index, model).map_err(|source| PlanningError::Module { name: model.name.clone(), source })
    };
    modules.map(plan).collect()
}

/// Returns the schedules of a task, the default first.
pub fn task_schedules(task: &Task, target: &Target, config: &Config) -> Vec<Schedule> {
    // The task's hash is part of the seed, so that two tasks with equal axes get different samples.
    let digest = blake3::hash(format!("{} {}", config.seed, task.hash()).as_bytes());
    let seed = u64::from_le_bytes(digest.as_bytes()[..8].try_into().expect("a hash has 32 bytes"));
    let mut schedules = Vec::new();
    for sampler in &config.samplers {
        match sampler {
            SamplerName::Template => {
                let space = space::task_space(task, &target.machine);
                let points = space::sample_points(&space, seed, config.schedules);
                schedules.extend(points.into_iter().map(|knobs| Schedule::Template { knobs }));
            }
            SamplerName::MetaSchedule => {
                // TVM requires positive 31-bit seeds.
                let first = i64::try_from(seed >> 34).expect("a shifted seed has 30 bits");
                schedules.extend((0..config.schedules).map(|draw| Schedule::MetaSchedule {
                    space: draw,
                    seed: first + 1 + i64::try_from(draw).expect("the number of schedules fits 63 bits"),
                    trace: None,
                }));
            }
        }
    }
    schedules
}

/// Returns all attempts. Builds are in the order of experiment hashes, which spreads slow attempts, failures and drift
/// of the machine over all tasks; builds of a task with large data stay adjacent. The attempts of a build are ordered
/// by size, cache state and threads. A library task has one implementation instead of several schedules. Writing
/// `flush_bytes` bytes makes caches cold.
pub fn plan_attempts(
    tasks: &[PlannedTask],
    modules: &[PlannedModule],
    target: &Target,
    config: &Config,
    bases: &Bases,
    cpus: &[usize],
    flush_bytes: u64,
) -> Result<Vec<Attempt>, PlanningError> {
    let between_bytes = models_bytes(tasks);
    let of_model = |planned: &PlannedTask| between_bytes.get(&planned.counts.first()?.0).copied();
    let mut attempts = Vec::new();
    let mut first = 0;
    for family in tasks.chunk_by(|left, right| left.is_compiled_with(right)) {
        let compiled = family[0].scheduled_task();
        let base = if family[0].partner.is_some() { &bases.library } else { &bases.compiled };
        let records = family.iter().map(|planned| Ok(Arc::new(record::task_record(planned, base)?)));
        let records = records.collect::<Result<Vec<Arc<Record>>, PlanningError>>()?;
        for code in task_implementations(&family[0], compiled, target, config, &bases.revisions) {
            for (place, (planned, with_task)) in family.iter().zip(&records).enumerate() {
                let bytes = CacheBytes { flush: flush_bytes, between: of_model(planned) };
                for run in run_variants(config, base.source, bytes) {
                    attempts.push(create_attempt((first + place, first), code.clone(), run, with_task, cpus)?);
                }
            }
        }
        first += family.len();
    }
    for module in modules {
        let (record, code) =
            (Arc::new(record::module_record(module, &bases.library)?), Code::Module(Arc::new(module.clone())));
        let bytes = CacheBytes { flush: flush_bytes, between: None };
        for run in run_variants(config, bases.library.source, bytes) {
            attempts.push(create_attempt((first, first), code.clone(), run, &record, cpus)?);
        }
        first += 1;
    }
    Ok(shuffle_attempts(attempts, tasks))
}

/// Total size of a task's data in bytes above which runners do not cache the data for long.
const LARGE_BYTES: u64 = 32 << 20;

/// Orders builds by the hash of their first experiment. Attempts of one build stay adjacent, and so do all attempts of
/// a family with large data.
fn shuffle_attempts(attempts: Vec<Attempt>, tasks: &[PlannedTask]) -> Vec<Attempt> {
    let is_large = |attempt: &Attempt| {
        let parameters = tasks.get(attempt.task).map(|planned| planned.task.parameters.as_slice()).unwrap_or_default();
        parameters.iter().filter_map(|parameter| parameter.ty.size_bytes()).fold(0, u64::saturating_add) > LARGE_BYTES
    };
    let mut builds: Vec<(Key, &[Attempt])> = Vec::new();
    for family in attempts.chunk_by(|one, other| one.family == other.family) {
        let of_family = family[0].key;
        let is_large = family.iter().any(is_large);
        let shared = family.chunk_by(Attempt::shares_build_with);
        builds.extend(shared.map(|build| (if is_large { of_family } else { build[0].key }, build)));
    }
    builds.sort_by_key(|(key, _)| *key);
    builds.into_iter().flat_map(|(_, build)| build.iter().cloned()).collect()
}

pub(super) fn create_attempt(
    (task, family): (usize, usize),
    code: Code,
    (state, method, threads): (CacheState, Method, usize),
    with_task: &Arc<Record>,
    cpus: &[usize],
) -> Result<Attempt, PlanningError> {
    let with_task = Arc::clone(with_task);
    let cpus = cpus[..threads].to_vec();
    let mut attempt = Attempt {
        task,
        family,
        code,
        cpus,
        method,
        key: Key::default(),
        with_task,
        state,
        visit: 0,
        is_first: true,
        process: 0,
    };
    attempt.key = record::attempt_record(&attempt)?.key;
    Ok(attempt)
}

fn task_implementations(
    planned: &PlannedTask,
    compiled: &Task,
    target: &Target,
    config: &Config,
    revisions: &Revisions,
) -> Vec<Code> {
    if planned.partner.is_some() {
        return vec![Code::Library];
    }
    let default = Schedule::Template { knobs: space::task_space(compiled, &target.machine).default };
    let schedules = task_schedules(compiled, target, config).into_iter();
    let code = |schedule: Schedule| Code::Compiled {
        revision: revisions.revision_of(compiled, target.kind, &schedule),
        source: source_of(&schedule, &default),
        schedule: Arc::new(schedule),
    };
    schedules.map(code).collect()
}

/// Numbers of bytes that put caches into a state.
#[derive(Clone, Copy)]
struct CacheBytes {
    /// Bytes that make caches cold.
    flush: u64,
    /// Bytes that the model touches between two runs of an operator; None outside of models.
    between: Option<u64>,
}

/// Returns the bytes that a run of each model touches, by its index: all weights, and the activations of its largest
/// task, because memory of activations is used again.
fn models_bytes(tasks: &[PlannedTask]) -> HashMap<usize, u64> {
    let mut touched: HashMap<usize, (u64, u64)> = HashMap::new();
    for planned in tasks {
        let Ok(work) = planned.task.work() else { continue };
        for (model, count) in &planned.counts {
            let (weights, activations) = touched.entry(*model).or_default();
            *weights = weights.saturating_add(work.bytes_weights.saturating_mul(*count as u64));
            *activations = (*activations).max(work.bytes_in.saturating_add(work.bytes_out));
        }
    }
    touched.into_iter().map(|(model, (weights, activations))| (model, weights.saturating_add(activations))).collect()
}

fn run_variants(
    config: &Config,
    source: Source,
    bytes: CacheBytes,
) -> impl Iterator<Item = (CacheState, Method, usize)> {
    config.cache.iter().flat_map(move |&state| {
        let cache = match state {
            CacheState::Warm => Cache::Warm,
            CacheState::Cold => Cache::Cold { flush_bytes: bytes.flush },
            // More than the caches hold makes no difference, and a plan needs at least one byte.
            CacheState::Network => Cache::Network { between_bytes: bytes.between.unwrap_or(0).min(bytes.flush).max(1) },
        };
        // A simulator is deterministic, so one visit is enough.
        let visits = if source == Source::Simulated { 1 } else { config.measure.visits };
        let plan = Plan { cache, visits, ..config.measure.clone() };
        config.threads.iter().map(move |&threads| (state, Method::Sample(plan.clone()), threads))
    })
}

pub(super) fn source_of(schedule: &Schedule, default: &Schedule) -> ScheduleSource {
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
    use crate::campaign::settings::Settings;

    #[test]
    fn between_two_runs_of_an_operator_a_network_touches_all_weights_and_its_largest_activations() {
        let text =
            "models = [{ source = 'local', name = 'squeezenet-1.1' }, { source = 'simple', name = 'relu:shape=100' }]";
        let config = Settings::parse(text).expect("a configuration").check(1).expect("it fits");
        let tasks = planned_tasks(&config, &LoadedModels::default()).expect("tasks");
        let (mut weights, mut activations) = (0, 0);
        for planned in tasks.iter().filter(|planned| planned.counts[0].0 == 0) {
            let work = planned.task.work().expect("work");
            weights += work.bytes_weights * planned.counts[0].1 as u64;
            activations = activations.max(work.bytes_in + work.bytes_out);
        }
        assert!(weights > 0 && activations > 0, "{weights} {activations}");
        assert_eq!(models_bytes(&tasks), HashMap::from([(0, weights + activations), (1, 800)]));
        let network = Config { cache: vec![CacheState::Network], ..config };
        let plans = |flush| -> Vec<Method> {
            run_variants(&network, Source::Measured, CacheBytes { flush, between: Some(800) })
                .map(|run| run.1)
                .collect()
        };
        let cache_of = |method: &Method| match method {
            Method::Sample(plan) => plan.cache,
            Method::Evaluate(rule) => rule.cache,
        };
        let between = |flush| plans(flush).iter().map(cache_of).collect::<Vec<Cache>>();
        assert!(between(1 << 20).iter().all(|cache| *cache == Cache::Network { between_bytes: 800 }));
        assert!(
            between(500).iter().all(|cache| *cache == Cache::Network { between_bytes: 500 }),
            "the caches are full"
        );
    }
}
