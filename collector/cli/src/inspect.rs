//! `list`, `graph`, `tasks`, `space`: the stages before compilation.

use super::{DONE, Result, best, print_json, print_note_lines, print_text, settings, stdout_paper};
use crate::options::{Models, Sweep};
use clap::ValueEnum;
use datasets::best::Question;
use engine::campaign::choices::Executor;
use engine::campaign::graphs::{model_notes, simulated_note};
use engine::campaign::settings::ResolvedConfig;
use engine::campaign::{Config, PlannedTask, planned_tasks};
use engine::drawing::{MeasuredMedian, render_graph};
use engine::failure::{Failure, format_chain};
use engine::machine;
use job::space::{self, Space};
use models::partner::find_partner;
use models::{Graph, Work};
use passes::partition::find_claims;
use report::{Table, format_count, format_number, format_percent, number_column, or_unknown, text_column};
use serde::Serialize;
use serde_json::json;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use zoo::transformers;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GraphFormat {
    /// One operator per line, in a form that can be parsed
    Text,
    Dot,
    Json,
}

#[derive(Serialize)]
struct ListedModel {
    name: &'static str,
    source: &'static str,
    aliases: &'static [&'static str],
    /// Shape of the first input without the batch dimension.
    input: Vec<i64>,
    parameters: u64,
    macs: u64,
}

impl ListedModel {
    fn from_graph(
        source: &'static str,
        name: &'static str,
        aliases: &'static [&'static str],
        graph: &Graph,
    ) -> models::Result<ListedModel> {
        let first = graph.inputs.first().and_then(|id| graph.value(*id)?.ty.extents()).unwrap_or_default();
        let (parameters, macs) = (graph.count_parameters().learned, graph.work()?.macs);
        Ok(ListedModel { name, source, aliases, input: first.into_iter().skip(1).collect(), parameters, macs })
    }
}

pub fn list_models(as_json: bool) -> Result<u8> {
    let networks = zoo::list_models()
        .iter()
        .map(|entry| ListedModel::from_graph("local", entry.name, entry.aliases, &entry.build_graph(1)?));
    let options = transformers::Options::default();
    let shipped = transformers::list_entries().iter().map(|entry| {
        let options = transformers::Options { sequence: entry.usual_sequence(), ..options };
        ListedModel::from_graph("transformers", entry.name, entry.aliases, &entry.build_random(&options)?)
    });
    let rows = networks.chain(shipped).collect::<models::Result<Vec<ListedModel>>>();
    let rows = rows.map_err(|error| Failure::usage(format_chain(&error)))?;
    if as_json {
        print_json(&rows)?;
        return Ok(DONE);
    }
    let columns = [
        text_column("source"),
        text_column("model"),
        text_column("input"),
        number_column("parameters"),
        number_column("GMACs"),
    ];
    let mut table = Table::new(columns);
    for row in rows {
        let input: Vec<String> = row.input.iter().map(ToString::to_string).collect();
        let millions = format!("{:.2} M", row.parameters as f64 / 1e6);
        table.add_row([
            row.source.to_owned(),
            row.name.to_owned(),
            input.join("x"),
            millions,
            format_number(row.macs as f64 / 1e9),
        ]);
    }
    print_text(&table.format_for(&stdout_paper()))?;
    Ok(DONE)
}

pub fn print_graph(
    arguments: &Models,
    raw: bool,
    format: GraphFormat,
    html: Option<&Path>,
    store: Option<&Path>,
) -> Result<u8> {
    let ResolvedConfig { config, loaded } = checked_config(arguments)?;
    if let (Some(path), 2..) = (html, config.models.len()) {
        return Err(Failure::usage(format!("`--html {}` needs exactly one model with one batch size", path.display())));
    }
    for request in &config.models {
        let model = loaded.load(request).map_err(|error| Failure::usage(format_chain(&error)))?;
        print_note_lines(&model.notes);
        let mut graph = model.graph.clone();
        if !raw {
            graph = passes::simplify_graph(&graph).map_err(|error| Failure::usage(format_chain(&error)))?;
        }
        if let Some(path) = html {
            let partners: Vec<_> = config.partners.iter().filter_map(|name| find_partner(name)).collect();
            let times = store.map(measured_medians).transpose()?.unwrap_or_default();
            let page = render_graph(&graph, config.fuse, &find_claims(&graph, &partners), &times);
            let page = page.map_err(|error| Failure::usage(format_chain(&error)))?;
            std::fs::write(path, page)
                .map_err(|error| Failure::usage(format!("cannot write `{}`: {error}", path.display())))?;
            print_note_lines(&[format!("wrote `{}`; open it in a browser", path.display())]);
            continue;
        }
        match format {
            GraphFormat::Text => print_text(graph.to_text().trim_end())?,
            GraphFormat::Dot => print_text(graph.to_dot().trim_end())?,
            GraphFormat::Json => print_json(&graph)?,
        }
    }
    Ok(DONE)
}

/// Writes the loaded graph as ONNX or, if ONNX cannot represent it and `raw` is false, the simplified graph.
pub fn write_onnx(arguments: &Models, raw: bool, path: &Path) -> Result<u8> {
    let ResolvedConfig { config, loaded } = checked_config(arguments)?;
    let [request] = config.models.as_slice() else {
        return Err(Failure::usage(format!("`--onnx {}` needs exactly one model with one batch size", path.display())));
    };
    let model = loaded.load(request).map_err(|error| Failure::usage(format_chain(&error)))?;
    print_note_lines(&model.notes);
    let bytes = readers::onnx::write_graph(&model.graph).or_else(|error| match raw {
        true => Err(format_chain(&error)),
        false => {
            let simple = passes::simplify_graph(&model.graph).map_err(|error| format_chain(&error))?;
            readers::onnx::write_graph(&simple).map_err(|error| format_chain(&error))
        }
    });
    let bytes = bytes.map_err(|why| Failure::usage(format!("this model has no ONNX representation: {why}")))?;
    datasets::output::write_file(path, bytes).map_err(|error| Failure::usage(format_chain(&error)))?;
    print_note_lines(&[format!("wrote `{}`", path.display())]);
    Ok(DONE)
}

/// Returns the best measured median of each task, by task hash.
fn measured_medians(store: &Path) -> Result<HashMap<String, MeasuredMedian>> {
    let mut times: HashMap<String, MeasuredMedian> = HashMap::new();
    // Sorted by falling time, so the best of a task overwrites the others.
    for best in best::best_times(store, &Question::default())? {
        let known = or_unknown(best.interval_ns, |(low, high)| format_percent((high - low) / 2.0 / best.median_ns));
        let threads = or_unknown(best.threads, |threads| threads.to_string());
        let remark = format!("± {known}, threads: {threads}, {} on {}", best.target, best.host);
        times.insert(best.task_hash, MeasuredMedian { time_ns: best.median_ns, remark });
    }
    Ok(times)
}

pub fn print_tasks(arguments: &Models, as_json: bool) -> Result<u8> {
    let ResolvedConfig { config, loaded } = checked_config(arguments)?;
    let planned = planned_tasks(&config, &loaded).map_err(|error| Failure::usage(format_chain(&error)))?;
    print_note_lines(&simulated_note(&config).into_iter().collect::<Vec<_>>());
    print_note_lines(&model_notes(&config, &loaded).map_err(|error| Failure::usage(format_chain(&error)))?);
    let mut rows = Vec::new();
    for planned in &planned {
        let work = planned.task.work().map_err(|error| Failure::usage(format_chain(&error)))?;
        rows.push((planned, work));
    }
    if as_json {
        let tasks: Vec<_> = rows
            .iter()
            .map(|(planned, work)| {
                json!({ "hash": planned.task.hash(), "kind": planned.task.anchor_kind(), "name": planned.task.name(),
                        "text": planned.task.describe(), "model": planned.model.label(), "places": planned.places,
                        "flops": work.flops, "macs": work.macs, "bytes_in": work.bytes_in,
                        "bytes_out": work.bytes_out, "bytes_weights": work.bytes_weights, "task": planned.task,
                        "partner": planned.partner,
                        "symbolic": planned.symbolic.as_ref().map(|symbolic| symbolic.task.to_text()),
                        "sizes": planned.symbolic.as_ref().map(|symbolic| &symbolic.sizes),
                        "bound_because": planned.bound_because })
            })
            .collect();
        print_json(&tasks)?;
        return Ok(DONE);
    }
    for (index, model) in config.models.iter().enumerate() {
        let count =
            |planned: &PlannedTask| planned.counts.iter().find(|(model, _)| *model == index).map(|(_, count)| *count);
        let batch = model.batch.map_or_else(String::new, |batch| format!(" (batch {batch})"));
        print_text(&format_tasks(&format!("{}{batch}", model.label()), &rows, count, &config))?;
    }
    if rows.iter().any(|(planned, _)| planned.counts.is_empty()) {
        let count = |planned: &PlannedTask| planned.counts.is_empty().then_some(planned.places.len());
        print_text(&format_tasks("resized variants, which belong to no model", &rows, count, &config))?;
    }
    if config.models.len() > 1 {
        print_text(&format!("all models: {}", format_count(rows.len(), "distinct task")))?;
    }
    if config.executor == Executor::Vm {
        print_text(&describe_compiled(&planned))?;
    }
    Ok(DONE)
}

fn format_tasks(
    title: &str,
    rows: &[(&PlannedTask, Work)],
    count: impl Fn(&PlannedTask) -> Option<usize>,
    config: &Config,
) -> String {
    let mut columns = vec![
        text_column("task").min_width(24),
        number_column("count"),
        text_column("first call").drop_order(4),
        number_column("MFLOP"),
        number_column("MB moved").drop_order(1),
        number_column("FLOP/byte").drop_order(3),
        text_column("hash").min_width(8).drop_order(2),
    ];
    if !config.partners.is_empty() {
        columns.push(text_column("computed by"));
    }
    let mut table = Table::new(columns);
    let (mut tasks, mut calls, mut flops) = (0, 0, 0.0);
    for (planned, work) in rows {
        let Some(count) = count(planned) else { continue };
        (tasks, calls, flops) = (tasks + 1, calls + count, flops + work.flops as f64 * count as f64);
        let moved = work.total_bytes() as f64;
        let mut row = vec![
            planned.task.describe(),
            count.to_string(),
            planned.places.first().cloned().unwrap_or_default(),
            format_number(work.flops as f64 / 1e6),
            format_number(moved / 1e6),
            format_number(work.flops as f64 / moved),
            planned.task.hash()[..8].to_owned(),
        ];
        if !config.partners.is_empty() {
            row.push(planned.partner.clone().unwrap_or_else(|| config.target.clone()));
        }
        table.add_row(row);
    }
    let (tasks, calls) = (format_count(tasks, "task"), format_count(calls, "call"));
    let sum = format!("{tasks}, {calls}, {} GFLOP", format_number(flops / 1e9));
    format!("{title}\n{}\n{sum}\n", table.format_for(&stdout_paper()))
}

/// Describes how many tasks share a build for several sizes, and why other tasks do not.
fn describe_compiled(planned: &[PlannedTask]) -> String {
    let (open, bound): (Vec<_>, Vec<_>) = planned.iter().partition(|planned| planned.symbolic.is_some());
    let once: HashSet<&str> = open.iter().map(|planned| planned.compiled_json()).collect();
    let mut text = format!("{} tasks share {} builds with dynamic sizes", open.len(), once.len());
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in bound.iter().filter_map(|planned| planned.bound_because.as_deref()) {
        *reasons.entry(reason).or_default() += 1;
    }
    for (reason, count) in reasons {
        text.push_str(&format!("\n{count} are compiled for each size: {reason}"));
    }
    text
}

pub fn print_space(arguments: &Models, only: &[String], sample: usize, seed: u64, as_json: bool) -> Result<u8> {
    let filter = settings::space_filter(arguments, only)?;
    let arguments = &settings::models_with_file(arguments)?;
    let ResolvedConfig { config, loaded } = checked_config(arguments)?;
    let machine = machine::guess_machine(&config.target, arguments.settings.board.as_deref())?;
    let planned = planned_tasks(&config, &loaded).map_err(|error| Failure::usage(format_chain(&error)))?;
    let spaces = engine::space_filter::filter_spaces(&planned, &machine, &filter)?;
    let mut documents = Vec::new();
    for (planned, space) in planned.iter().zip(spaces) {
        let rules = space.rules();
        let samples = if sample > 0 { space::sample_points(&space, seed, sample) } else { Vec::new() };
        if as_json {
            let axes: Vec<_> = space
                .axes
                .iter()
                .map(|axis| json!({ "name": axis.name, "meaning": axis.meaning, "settings": axis.settings }))
                .collect();
            let rules: Vec<_> = rules.iter().map(|rule| json!({ "name": rule.name, "text": rule.text })).collect();
            documents.push(json!({ "task": planned.task.hash(), "text": planned.task.describe(), "axes": axes,
                                   "version": space::VERSION, "size": space.point_count(), "rules": rules,
                                   "default": space.default, "sample": samples }));
            continue;
        }
        print_text(&format!("{}\n  {} points before limits", planned.task.describe(), space.point_count()))?;
        let columns = [
            text_column("axis"),
            text_column("meaning").drop_order(1),
            text_column("settings"),
            text_column("default"),
        ];
        let mut table = Table::new(columns);
        for axis in &space.axes {
            let settings: Vec<String> = axis.settings.iter().map(ToString::to_string).collect();
            let default = space.default.0.get(axis.name).cloned().or_else(|| Space::neutral_setting(axis.name));
            let default = default.map(|setting| setting.to_string()).unwrap_or_default();
            table.add_row([axis.name.to_owned(), axis.meaning.to_owned(), settings.join(" "), default]);
        }
        print_text(&table.format_for(&stdout_paper()))?;
        for rule in rules {
            print_text(&format!("  rule `{}`: {}", rule.name, rule.text))?;
        }
        for knobs in samples {
            let parts: Vec<String> = knobs.0.iter().map(|(name, setting)| format!("{name}={setting}")).collect();
            print_text(&format!("  {}", parts.join(" ")))?;
        }
        print_text("")?;
    }
    if as_json {
        print_json(&documents)?;
    }
    Ok(DONE)
}

fn checked_config(arguments: &Models) -> Result<ResolvedConfig> {
    settings::resolve_config(arguments, &Sweep::default())
}
