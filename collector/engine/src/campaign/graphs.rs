//! Loads models as graphs and cuts them into tasks according to a configuration.

use super::choices::{AttentionChoice, Backend};
use super::config::{Config, ModelRequest, SIMPLE, TRANSFORMERS};
use super::module;
use super::planned::PlanningError;
use crate::failure::format_chain;
use accelerator::CpuReason;
use models::fuse::plan_with;
use models::partner::{CPU_VENDOR, find_partner};
use models::{Graph, Plan, TaskUse, ValueId};
use passes::partition::find_claims;
use readers::{Imported, Options, Skipped, onnx, tflite, torch};
use report::format_count;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use targets::{HOST, TaskForm};
use zoo::transformers;

/// A graph with notes about the file from which it was read.
#[derive(Clone, Debug)]
pub struct LoadedGraph {
    /// Graph of the model.
    pub graph: Graph,
    /// Notes about the file, such as its hash and the operators that were skipped.
    pub notes: Vec<String>,
    /// Reason why the file cannot be run with the requested batch size, if it cannot.
    pub batch_refusal: Option<String>,
}

/// Cache of the models of one command, so that each is read once.
#[derive(Debug, Default)]
pub struct LoadedModels {
    known: RefCell<Vec<(ModelRequest, Rc<LoadedGraph>)>>,
    reads: Cell<usize>,
}

impl LoadedModels {
    /// Returns the graph of a model and its notes.
    pub fn load(&self, request: &ModelRequest) -> Result<Rc<LoadedGraph>, PlanningError> {
        let known = self.known.borrow().iter().find(|(known, _)| known == request).map(|(_, loaded)| Rc::clone(loaded));
        if let Some(loaded) = known {
            return Ok(loaded);
        }
        let loaded = Rc::new(read_uncached(request)?);
        self.reads.set(self.reads.get() + 1);
        self.known.borrow_mut().push((request.clone(), Rc::clone(&loaded)));
        Ok(loaded)
    }

    /// Returns the number of models that were read.
    pub fn read_count(&self) -> usize {
        self.reads.get()
    }

    /// Returns the batch size of a model file, and caches the loaded model under a request with that batch size.
    fn batch_of_file(&self, request: &ModelRequest) -> Result<Option<i64>, PlanningError> {
        let loaded = self.load(request)?;
        let batch = batch_of(&loaded.graph);
        if batch != request.batch {
            self.known.borrow_mut().push((ModelRequest { batch, ..request.clone() }, loaded));
        }
        Ok(batch)
    }
}

fn read_uncached(request: &ModelRequest) -> Result<LoadedGraph, PlanningError> {
    let without_notes = |graph| LoadedGraph { graph, notes: Vec::new(), batch_refusal: None };
    let loaded = match request.source.as_str() {
        "local" => zoo::build_model(&request.name, request.batch.unwrap_or(1)).map(without_notes),
        SIMPLE => zoo::simple::build_operator(&request.name).map(without_notes),
        "onnx" => load_file(request, Path::new(&request.name), onnx::load_file),
        "remoteonnx" => load_file(request, &local_path(&request.name)?, onnx::load_file),
        "tflite" => load_file(request, Path::new(&request.name), tflite::load_file),
        "torch" => load_file(request, Path::new(&request.name), torch::load_file),
        TRANSFORMERS => load_transformer(request),
        other => return Err(PlanningError::UnknownSource(other.to_owned())),
    };
    loaded.map_err(|source| PlanningError::Model { name: request.name.clone(), source })
}

/// Returns notes about the loaded models, such as skipped operators, for the user.
pub fn model_notes(config: &Config, models: &LoadedModels) -> Result<Vec<String>, PlanningError> {
    let has_notes =
        |model: &&ModelRequest| !matches!(model.source.as_str(), "local" | SIMPLE) && !module::is_whole(model, config);
    let mut notes = fabric_notes(config, models)?;
    for model in config.models.iter().filter(has_notes) {
        for note in &models.load(model)?.notes {
            if !notes.contains(note) {
                notes.push(note.clone());
            }
        }
    }
    Ok(notes)
}

fn load_file(
    request: &ModelRequest,
    path: &Path,
    reader: fn(&Path, &Options) -> models::Result<Imported>,
) -> Result<LoadedGraph, models::Error> {
    let options = Options {
        batch: request.batch.unwrap_or(1),
        sequence: request.sequence,
        shapes: request.shapes.clone(),
        values: request.values.clone(),
        skip_unsupported: request.skip_unsupported,
        ..Options::default()
    };
    let mut imported = reader(path, &options)?;
    let mut notes = vec![format!("read `{}`: {} bytes, BLAKE3 hash {}", path.display(), imported.bytes, imported.hash)];
    let mut batch_refusal = None;
    if let (Some(has), Some(wanted)) = (batch_of(&imported.graph), request.batch)
        && has != wanted
        && request.shapes.is_empty()
    {
        let changed = match passes::batch::change_batch(&imported.graph, wanted) {
            Ok(graph) => {
                imported.graph = graph;
                Ok(())
            }
            Err(of_graph) => {
                let mut read = |shapes| reader(path, &Options { shapes, ..options.clone() });
                read_with_batch(&imported.graph, (has, wanted), &mut read)
                    .map(|again| imported = again)
                    .map_err(|why| format!("{why}; rewriting the graph for this batch failed, too: {of_graph}"))
            }
        };
        match changed {
            Ok(()) => notes.push(format!(
                "`{}` was exported for a batch of {has} and is used with a batch of {wanted}",
                path.display()
            )),
            Err(why) => batch_refusal = Some(why),
        }
    }
    notes.extend(imported.notes.iter().cloned());
    for skipped in &imported.skipped {
        let Skipped { place, operator, reason } = skipped;
        notes.push(format!("skipped node `{place}` (`{operator}`): {reason}"));
    }
    Ok(LoadedGraph { graph: imported.graph, notes, batch_refusal })
}

/// Reads the model again with another batch size. Returns the reason if the model cannot be resized.
fn read_with_batch(
    graph: &Graph,
    (has, wanted): (i64, i64),
    read: &mut dyn FnMut(BTreeMap<String, Vec<i64>>) -> models::Result<Imported>,
) -> Result<Imported, String> {
    let with_batch = |id: &ValueId| {
        let value = graph.value(*id)?;
        let mut extents = value.ty.extents()?;
        if let Some(first) = extents.first_mut().filter(|first| **first == has) {
            *first = wanted;
        }
        Some((value, extents))
    };
    let shapes = graph.inputs.iter().filter_map(with_batch).map(|(value, extents)| (value.name.clone(), extents));
    let recast =
        read(shapes.collect()).map_err(|error| format!("with a batch of {wanted}, {}", format_chain(&error)))?;
    for (before, now) in graph.outputs.iter().zip(&recast.graph.outputs) {
        let (Some((value, expected)), Some(found)) = (with_batch(before), recast.graph.value(*now)) else { continue };
        if found.ty.extents().as_ref() != Some(&expected) {
            return Err(format!(
                "with a batch of {wanted}, its output `{}` would have the type {}, not the shape {expected:?}",
                value.name, found.ty
            ));
        }
    }
    Ok(recast)
}

fn load_transformer(request: &ModelRequest) -> Result<LoadedGraph, models::Error> {
    let mut options = transformers::Options { batch: request.batch.unwrap_or(1), ..transformers::Options::default() };
    if let Some(tokens) = request.tokens {
        (options.sequence, options.phase) = (tokens.sequence, tokens.phase);
    }
    let steps = request.tokens.and_then(|tokens| tokens.steps).unwrap_or(1);
    let transformers::LoadedTransformer { graph, notes } = transformers::load_steps(&request.name, &options, steps)?;
    Ok(LoadedGraph { graph, notes, batch_refusal: None })
}

/// Returns the path that a name denotes: the name itself, or the part after `file://`.
fn local_path(name: &str) -> Result<PathBuf, PlanningError> {
    match name.split_once("://") {
        None => Ok(PathBuf::from(name)),
        Some(("file", path)) if path.starts_with('/') => Ok(PathBuf::from(path)),
        Some(_) => Err(PlanningError::NotLocal(name.to_owned())),
    }
}

impl ModelRequest {
    /// Returns the ONNX file of the model, if it has one.
    pub fn onnx_file(&self) -> Result<Option<PathBuf>, PlanningError> {
        match self.source.as_str() {
            "onnx" => Ok(Some(PathBuf::from(&self.name))),
            "remoteonnx" => local_path(&self.name).map(Some),
            _ => Ok(None),
        }
    }
}

/// Replaces requested batch sizes by those of the loaded models. Fails if a requested batch size is not possible.
pub fn settle_batches(config: &mut Config, models: &LoadedModels) -> Result<(), PlanningError> {
    let is_whole: Vec<bool> = config.models.iter().map(|model| module::is_whole(model, config)).collect();
    for (request, is_whole) in config.models.iter_mut().zip(is_whole) {
        let has = match request.source.as_str() {
            SIMPLE => None,
            "local" | TRANSFORMERS => Some(request.batch.unwrap_or(1)),
            _ if is_whole => common_value(request.shapes.values().map(|extents| extents.first().copied())),
            _ => models.batch_of_file(request)?,
        };
        if request.batch.is_some() && request.batch != has {
            let why = models.load(request)?.batch_refusal.clone();
            return Err(PlanningError::Batch { name: request.name.clone(), has, why });
        }
        request.batch = has;
    }
    Ok(())
}

/// Returns the batch size of a graph: the first extent of its inputs, or None if the inputs differ.
fn batch_of(graph: &Graph) -> Option<i64> {
    let types = graph.inputs.iter().filter_map(|&input| graph.value(input)).map(|value| &value.ty);
    let extents = types.filter(|ty| ty.rank() > 0).map(|ty| ty.extents());
    common_value(extents.map(|extents| extents.and_then(|extents| extents.first().copied())))
}

fn common_value(mut numbers: impl Iterator<Item = Option<i64>>) -> Option<i64> {
    let first = numbers.next()??;
    numbers.all(|number| number == Some(first)).then_some(first)
}

pub(super) fn tasks_of(graph: &Graph, config: &Config) -> Result<Vec<TaskUse>, models::Error> {
    let mut tasks: Vec<TaskUse> = Vec::new();
    for (_, plan) in cut_graph(graph, config)? {
        let is_known = |found: &TaskUse, tasks: &[TaskUse]| {
            tasks.iter().any(|known| known.task == found.task && known.partner == found.partner)
        };
        let new: Vec<TaskUse> = plan.tasks.into_iter().filter(|found| !is_known(found, &tasks)).collect();
        tasks.extend(new);
    }
    Ok(match config.target_kind().task_form() {
        Some(form) => convert_to_form(tasks, form).0,
        None => tasks,
    })
}

/// Converts tasks to the form that a target supports, and merges tasks that become equal. Also returns the tasks that
/// the CPU must compute, with reasons.
fn convert_to_form(tasks: Vec<TaskUse>, form: TaskForm) -> (Vec<TaskUse>, Vec<(TaskUse, CpuReason)>) {
    let (mut computed, mut left): (Vec<TaskUse>, _) = (Vec::new(), Vec::new());
    for found in tasks {
        match form(&found.task) {
            Ok(task) => match computed.iter_mut().find(|known| known.task == task) {
                Some(known) => known.places.extend(found.places),
                None => computed.push(TaskUse { task, ..found }),
            },
            Err(why) => left.push((found, why)),
        }
    }
    (computed, left)
}

/// Returns a note on the meaning of the target's simulated times; None for targets without simulated times.
pub fn simulated_note(config: &Config) -> Option<String> {
    config.target_kind().timing_note(&config.target)
}

fn fabric_notes(config: &Config, models: &LoadedModels) -> Result<Vec<String>, PlanningError> {
    let Some(form) = config.target_kind().task_form() else { return Ok(Vec::new()) };
    let mut notes = Vec::new();
    for model in config.models.iter().filter(|model| !module::is_whole(model, config)) {
        let failed = |source| PlanningError::Model { name: model.name.clone(), source };
        let all = Config { target: HOST.to_owned(), ..config.clone() };
        let (computed, left) = convert_to_form(tasks_of(&models.load(model)?.graph, &all).map_err(failed)?, form);
        notes.push(format!(
            "`{}`: {} on the FPGA accelerator, in 8 bits with power-of-two scales and with unknown accuracy; {} on the \
             CPU, not in the sum",
            model.label(),
            format_count(computed.len(), "task"),
            format_count(left.len(), "task")
        ));
        notes.extend(left.iter().map(|(found, why)| format!("runs on the CPU: {}: {why}", found.task.describe())));
    }
    Ok(notes)
}

/// Cuts a graph into calls, once for each requested representation of attention. Returns each graph with its plan.
pub fn cut_graph(graph: &Graph, config: &Config) -> Result<Vec<(Graph, Plan)>, models::Error> {
    let graph = passes::simplify_graph(graph)?;
    let partners: Vec<_> = config.partners.iter().filter_map(|name| find_partner(name)).collect();
    let cut = |graph: Graph| {
        let mut plan = plan_with(&graph, config.fuse, &find_claims(&graph, &partners))?;
        match config.backend {
            Backend::Tvm => {}
            // The library gets the same tasks as the compiler, so that their times can be compared.
            Backend::Torch => plan.tasks.iter_mut().for_each(|found| found.partner = Some(CPU_VENDOR.to_owned())),
        }
        Ok((graph, plan))
    };
    match config.attention {
        AttentionChoice::Fused => Ok(vec![cut(graph)?]),
        AttentionChoice::Split => Ok(vec![cut(passes::split_attention(&graph)?)?]),
        AttentionChoice::Both => {
            let split = passes::split_attention(&graph)?;
            Ok(vec![cut(graph)?, cut(split)?])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::Settings;

    fn settled(model: &str, settings: &str) -> Result<Vec<Option<i64>>, String> {
        let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/readers/tests");
        let text = format!("models = [{{ {} }}]\n{settings}", model.replace("MODELS", models));
        let mut config = Settings::parse(&text)?.check(1).map_err(|error| error.to_string())?;
        settle_batches(&mut config, &LoadedModels::default()).map_err(|error| error.to_string())?;
        Ok(config.models.iter().map(|model| model.batch).collect())
    }

    const FIXED: &str = "source = 'onnx', name = 'MODELS/tflite-cases/one_layer_int8/qdq.onnx'";

    #[test]
    fn batches_follow_the_model_file() {
        assert_eq!(settled(FIXED, ""), Ok(vec![Some(1)]));
        assert_eq!(settled(FIXED, "batch = [1]"), Ok(vec![Some(1)]));
        assert_eq!(settled(FIXED, "batch = [1, 8]"), Ok(vec![Some(1), Some(8)]), "nothing in it forbids another one");
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
        let image = "source = 'torch', name = 'MODELS/torch/small_image.pt2', shapes = { x = [2, 3, 8, 8] }";
        assert!(settled(image, "batch = [4]").unwrap_err().contains("runs with a batch of 2"));
    }

    #[test]
    fn each_model_is_read_once() {
        let image = "source = 'torch', name = 'MODELS/torch/small_image.pt2', shapes = { x = [2, 3, 8, 8] }";
        for (model, executor) in [(FIXED, "default"), (image, "default"), ("source = 'local', name = 'mlp'", "vm")] {
            let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/readers/tests");
            let model = model.replace("MODELS", models);
            let text = format!("models = [{{ {model} }}]\nthreads = [1]\nexecutor = '{executor}'");
            let mut config = Settings::parse(&text).unwrap().check(1).unwrap();
            let loaded = LoadedModels::default();
            settle_batches(&mut config, &loaded).unwrap();
            let tasks = crate::campaign::planned_tasks(&config, &loaded).unwrap();
            model_notes(&config, &loaded).unwrap();
            let graph = loaded.load(&config.models[0]).unwrap();
            assert!(!tasks.is_empty() && !graph.graph.nodes.is_empty());
            assert_eq!(loaded.read_count(), 1, "{model}");
        }
    }
}
