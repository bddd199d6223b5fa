//! Stage plans: which calls of a model run concurrently, on which cores. A planner or a rule makes them.
//!
//! A stage begins when the previous one has ended. Its groups run concurrently; the calls of a group run sequentially
//! on the group's cores. There are three kinds: *sequential* has one group on all cores, *stream* gives each group
//! cores of its own, and in *full* every group uses all cores. On a GPU, streams replace cores, one per group. A plan
//! refers to the model's calls by index and records model, machine and number of cores; it is rejected for any others.

mod rules;

use crate::{Class, Graph, Plan, ValueId, choice};
use serde::{Deserialize, Deserializer, Serialize};

choice! {
    /// How operators share the cores, or the streams of a GPU.
    pub enum Parallel {
        /// One operator after the other on all cores
        Sequential = "sequential",
        /// Ready operators concurrently, each group on separate cores or streams
        Stream = "stream",
        /// Ready operators concurrently, each on all cores or its own stream
        Full = "full",
    }
}

/// Calls of tasks that run sequentially on the same cores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// CPU cores of the group, one thread each, as indices into the available cores; on a GPU, the stream's index.
    pub cores: Vec<usize>,
    /// Indices of the model's calls, in order of execution.
    pub calls: Vec<usize>,
}

/// Groups of calls that run concurrently.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// The groups, each with its calls and cores.
    pub groups: Vec<Group>,
    /// Duration of the stage as predicted by the planner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ns: Option<f64>,
}

/// A planner's prediction for a plan.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Promise {
    /// Predicted time of the plan.
    pub time_ns: f64,
    /// Lower bound of the 90 % prediction interval; NaN if the interval is unknown.
    #[serde(deserialize_with = "number_or_nan")]
    pub low_ns: f64,
    /// Upper bound of the 90 % prediction interval; NaN if the interval is unknown or the time is only a lower bound.
    #[serde(deserialize_with = "number_or_nan")]
    pub high_ns: f64,
    /// Predicted time of sequential execution on all cores.
    pub sequential_ns: f64,
}

/// Reads `null`, which JSON has for NaN, as NaN.
fn number_or_nan<'de, D: Deserializer<'de>>(reader: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(reader)?.unwrap_or(f64::NAN))
}

/// A complete stage plan of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StagePlan {
    /// Version of the file format.
    pub format: u32,
    /// Name of the model, for human readers; not checked.
    pub model: String,
    /// Hash of the model's calls as returned by [`calls_hash`].
    pub calls_hash: String,
    /// Host class on which the planner's times were measured; None if the plan is valid for any host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_class: Option<String>,
    /// Number of cores that the plan requires; on a GPU, of streams.
    pub cores: usize,
    /// How operators share the cores.
    pub parallel: Parallel,
    /// The stages in order of execution.
    pub stages: Vec<Stage>,
    /// The planner's prediction, if it made one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promise: Option<Promise>,
}

/// Reason why a plan is rejected for a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum StageError {
    #[error("the plan has the format version {found}, this program reads version {FORMAT}")]
    Format { found: u32 },
    #[error("the plan is for another graph: the calls of `{model}` have the hash {found}, not {wanted}")]
    OtherGraph { model: String, found: String, wanted: String },
    #[error("the plan is for another machine: {found}; this machine is {wanted}")]
    OtherMachine { found: String, wanted: String },
    #[error("the plan is for {wanted} cores, but {found} {} given", if *.found == 1 { "is" } else { "are" })]
    Cores { wanted: usize, found: usize },
    #[error("stage {stage}: {why}")]
    Stage { stage: usize, why: String },
    #[error("call {call} is not in any stage")]
    Missing { call: usize },
}

/// Version of the file format.
pub const FORMAT: u32 = 1;

/// Maximum number of streams of a GPU, limited by its hardware queues.
pub const STREAMS_MOST: usize = 32;

/// Returns, for each call, the calls that produce its inputs, directly or through views.
pub fn call_dependencies(graph: &Graph, plan: &Plan) -> Vec<Vec<usize>> {
    let mut roots: Vec<ValueId> = (0..).map(ValueId).take(graph.values.len()).collect();
    for node in graph.nodes.iter().filter(|node| node.op.class() == Class::View) {
        roots[node.outputs[0].0 as usize] = roots[node.inputs[0].0 as usize];
    }
    let root = |id: &ValueId| roots[id.0 as usize];
    let mut makers = std::collections::HashMap::new();
    let mut before = Vec::with_capacity(plan.calls.len());
    for (place, call) in plan.calls.iter().enumerate() {
        let mut own: Vec<usize> = call.arguments.iter().filter_map(|id| makers.get(&root(id)).copied()).collect();
        own.sort_unstable();
        own.dedup();
        before.push(own);
        makers.insert(root(&call.result), place);
    }
    before
}

/// Hashes the tasks and calls of a model, independent of its weights.
pub fn calls_hash(graph: &Graph, plan: &Plan) -> String {
    let ids = |ids: &[ValueId]| ids.iter().map(|id| format!(" {}", id.0)).collect::<String>();
    let hashes: Vec<String> = plan.tasks.iter().map(|one| one.task.hash()).collect();
    let mut hasher = blake3::Hasher::new();
    for call in &plan.calls {
        let line = format!("{}{} = {}\n", hashes[call.task], ids(&call.arguments), call.result.0);
        hasher.update(line.as_bytes());
    }
    hasher.update(format!("{} -> {}\n", ids(&graph.inputs), ids(&graph.outputs)).as_bytes());
    hasher.finalize().to_hex()[..32].to_owned()
}

impl StagePlan {
    /// Returns a plan without stages.
    pub fn without_stages(graph: &Graph, plan: &Plan, cores: usize, parallel: Parallel) -> StagePlan {
        StagePlan {
            format: FORMAT,
            model: graph.name.clone(),
            calls_hash: calls_hash(graph, plan),
            host_class: None,
            cores,
            parallel,
            stages: Vec::new(),
            promise: None,
        }
    }

    /// Rejects a plan of another format, or for other calls, cores or hosts, or with invalid stages.
    pub fn check_matches(&self, graph: &Graph, plan: &Plan, cores: usize, host_class: &str) -> Result<(), StageError> {
        if self.format != FORMAT {
            return Err(StageError::Format { found: self.format });
        }
        let wanted = calls_hash(graph, plan);
        if self.calls_hash != wanted {
            return Err(StageError::OtherGraph { model: self.model.clone(), found: self.calls_hash.clone(), wanted });
        }
        if let Some(found) = self.host_class.as_ref().filter(|found| *found != host_class) {
            return Err(StageError::OtherMachine { found: found.clone(), wanted: host_class.to_owned() });
        }
        if self.cores != cores {
            return Err(StageError::Cores { wanted: self.cores, found: cores });
        }
        self.check_stages(&call_dependencies(graph, plan))
    }

    fn check_stages(&self, before: &[Vec<usize>]) -> Result<(), StageError> {
        // Stage and group of each call.
        let mut places: Vec<Option<(usize, usize)>> = vec![None; before.len()];
        for (stage, one) in self.stages.iter().enumerate() {
            let wrong = |why: String| Err(StageError::Stage { stage, why });
            let mut taken: Vec<usize> = Vec::new();
            for (number, group) in one.groups.iter().enumerate() {
                if group.cores.is_empty() {
                    return wrong(format!("group {number} has no core"));
                }
                if let Some(core) = group.cores.iter().find(|core| **core >= self.cores) {
                    return wrong(format!("group {number} uses core {core}, but the plan is for {} cores", self.cores));
                }
                let mut own = group.cores.clone();
                own.sort_unstable();
                own.dedup();
                let is_shared = self.parallel != Parallel::Full && own.iter().any(|core| taken.contains(core));
                if own.len() < group.cores.len() || is_shared {
                    return wrong(format!("group {number} uses a core twice, or one that another group uses"));
                }
                taken.extend(own);
                for &call in &group.calls {
                    let Some(waits) = before.get(call) else {
                        return wrong(format!("call {call} does not exist"));
                    };
                    if places[call].is_some() {
                        return wrong(format!("call {call} occurs twice"));
                    }
                    let is_done =
                        |wait: &&usize| places[**wait].is_some_and(|(other, beside)| other < stage || beside == number);
                    if let Some(wait) = waits.iter().find(|wait| !is_done(wait)) {
                        return wrong(format!("call {call} reads a result that call {wait} has not computed yet"));
                    }
                    places[call] = Some((stage, number));
                }
            }
        }
        match places.iter().position(Option::is_none) {
            Some(call) => Err(StageError::Missing { call }),
            None => Ok(()),
        }
    }

    /// Converts the plan for a GPU: one stream per group; groups beyond the limit reuse the streams of earlier groups.
    #[must_use]
    pub fn on_streams(mut self, most: usize) -> StagePlan {
        let streams = most.clamp(1, STREAMS_MOST);
        for stage in &mut self.stages {
            for (number, group) in stage.groups.iter_mut().enumerate() {
                group.cores = vec![number % streams];
            }
        }
        self.cores = self.max_groups().min(streams);
        self
    }

    /// Returns the largest number of parallel groups in any stage.
    pub fn max_groups(&self) -> usize {
        self.stages.iter().map(|stage| stage.groups.len()).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
