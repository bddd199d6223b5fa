//! The command `oppredict eval`.

use crate::kernels;
use crate::language_models::evaluate_servers;
use crate::loading::{load_samples, load_unmeasured_samples};
use crate::options::{Data, parse_choice, parse_not_negative, parse_share};
use crate::{DONE, WORSE, create_output, print_json, print_text, stdout_paper, write_output};
use clap::Args;
use learn::Learner;
use learn::ensemble::Purpose;
use models::Choice;
use predictor::evaluate::metrics::Metrics;
use predictor::evaluate::{
    CURVES_PROTOCOL, EndToEnd, Evaluation, Gate, Plan, Point, Protocol, evaluate, evaluate_curves, learning_curve,
};
use predictor::{Error, Result, pages};
use report::terminal::print_notes;
use report::{
    Cell, Column, Table, UNKNOWN, format_duration, format_percentage, number_column, or_unknown, text_column,
};
use samples::table::CurveMapping;
use serving::evaluate::Plan as KernelPlan;
use serving::train::TrainOptions;
use std::convert::identity;
use std::path::{Path, PathBuf};

pub const EVAL_EXAMPLES: &str = "\
Examples:
  oppredict eval --data opcollect-data --max-uncertainty 0.2 --learners ours,forest
  oppredict eval --data opcollect-data --protocol P2 --default-only --learners ours --json
  oppredict eval --data bmm.csv.gz --mapping configs/gpu-ops.toml --protocol P3
  oppredict eval --data ncnn_cpu_threads.parquet --mapping configs/mappings/ncnn-threads.toml --protocol K
  oppredict eval --data opcollect-data --gate cpu.opp";

#[derive(Clone, Debug, Args)]
pub struct Eval {
    #[command(flatten)]
    pub data: Data,
    /// Protocol (held-out data): P0, P1, P1x, P1m, P2, P2f, P3, P4, P5 or K
    ///
    /// P0: nothing (repeatability of measurements). P1: shapes. P1x: the largest shapes. P1m: shapes that occur in
    /// models. P2: models. P2f: families of models. P3: devices. P4: devices except a few measurements. P5: shapes,
    /// scored by the ranking of schedules. K: machines, scored by the thread count found with three and four probes.
    #[arg(long, default_value = "P1", value_name = "NAME")]
    pub protocol: String,
    /// Evaluate predictions for language-model servers
    ///
    /// --data is one table of whole servers. Half of its configurations are held out.
    #[arg(long, conflicts_with_all = ["mapping", "protocol", "gate", "html"])]
    pub servers: bool,
    /// Property by which language-model kernels are held out [default: site]
    ///
    /// `site` or `configuration` (layers at any number of tokens), `shape`, `device` or `generation`; with a mapping of
    /// such kernels.
    #[arg(long, value_name = "NAME", requires = "mapping", conflicts_with = "protocol")]
    pub hold_out: Option<String>,
    /// With --hold-out, operator such as `gemm`; repeatable [default: all]
    #[arg(long, value_name = "NAME", requires = "hold_out")]
    pub operator: Vec<String>,
    /// With --hold-out, maximum number of training rows [default: all]
    ///
    /// The limit is for each operator, format and device.
    #[arg(long, value_name = "COUNT", requires = "hold_out")]
    pub most_rows: Option<usize>,
    /// Learners to compare, separated by commas
    #[arg(
        long,
        default_value = "ours,xgboost,forest,linear,lasso,svr,neighbours,median,roofline",
        value_delimiter = ','
    )]
    pub learners: Vec<String>,
    /// Number of random partitions of the data, with seeds 0, 1, …
    #[arg(long, default_value_t = 1)]
    pub seeds: u64,
    /// Number of folds of shapes, networks or families [default: 5 folds of shapes, one per network or family]
    #[arg(long)]
    pub folds: Option<usize>,
    /// Also evaluate prediction intervals; takes about three times as long
    #[arg(long)]
    pub intervals: bool,
    /// Score only rows with at most this coefficient of variation, as in 0.03
    ///
    /// All rows are used for training.
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pub score_cv: Option<f64>,
    /// Score only experiments whose repetitions agree within this share
    ///
    /// Scored experiments have several measurements, all within this share of their median, such as 0.03. All
    /// experiments are used for training.
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pub score_apart: Option<f64>,
    /// Score only default schedules; all schedules are used for training
    #[arg(long)]
    pub score_default: bool,
    /// Score only operators of networks; variations are only for training
    #[arg(long)]
    pub score_networks: bool,
    /// Known properties of schedules: sizes, knobs or code
    ///
    /// `sizes`: only sizes, with default schedules. `knobs`: also schedule knobs. `code`: also features of the
    /// generated code, which require a build but no run.
    #[arg(long, default_value = "code", value_name = "NAME")]
    pub know: String,
    /// Minimum loss reduction of a split of our trees, as in `train`
    #[arg(long, default_value_t = 0.0, value_name = "SAVED", value_parser = parse_not_negative)]
    pub min_split_loss: f64,
    /// Show the learning curve over the number of training shapes
    ///
    /// This takes about twice as long as our learner alone.
    #[arg(long)]
    pub curve: bool,
    /// Fail if an error exceeds that of this file by more than its interval
    ///
    /// FILE is an earlier JSON document, or a predictor of `train`, which contains its error on held-out shapes. The
    /// exit code is then 4.
    #[arg(long, value_name = "FILE")]
    pub gate: Option<PathBuf>,
    /// Write an HTML page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
}

pub fn run(eval: &Eval) -> Result<u8> {
    if eval.seeds == 0 {
        return Err(Error::Query("--seeds must be at least 1".to_owned()));
    }
    if eval.servers {
        return evaluate_servers(&eval.data.data, eval.seeds, eval.json);
    }
    if eval.protocol.eq_ignore_ascii_case(CURVES_PROTOCOL) {
        refuse_shapes_only(eval, &format!("--protocol {CURVES_PROTOCOL}"))?;
        return run_curves(eval);
    }
    if let Some(mapping) = eval.data.mapping.as_deref().map(predictor::kernels::read_mapping).transpose()?.flatten() {
        refuse_shapes_only(eval, "a mapping of language-model kernels")?;
        return kernels::run_eval(&eval.data.data, &mapping, &kernel_plan(eval)?, eval.json);
    }
    if eval.hold_out.is_some() {
        return Err(Error::Query(
            "--hold-out needs a mapping of language-model kernels; use --protocol for other data".to_owned(),
        ));
    }
    let view = parse_choice("view", &eval.know)?;
    let plan = evaluation_plan(eval)?;
    let gate = eval.gate.as_deref().map(|path| Gate::read_baseline(path, plan.protocol)).transpose()?;
    let page = create_output(eval.html.as_deref())?;
    // The peaks of a held-out device must not be derived from its own rows.
    let samples = match plan.protocol.purpose() {
        Purpose::Transfer => load_unmeasured_samples(&eval.data)?,
        Purpose::Known | Purpose::Both => load_samples(&eval.data)?,
    };
    let samples = samples.restrict_view(view)?;
    let mut evaluation = evaluate(&samples, &plan)?;
    if eval.curve {
        evaluation.curve = learning_curve(&samples, &plan)?;
    }
    print_text(eval.json, &format_overview(&evaluation))?;
    write_output(page, || pages::evaluation_tables(&evaluation).into_bytes())?;
    if eval.json {
        print_json(&evaluation)?;
    }
    let is_worse = match (&eval.gate, gate) {
        (Some(file), Some(gate)) => is_worse_than(file, &gate, &evaluation)?,
        _ => false,
    };
    Ok(if is_worse { WORSE } else { DONE })
}

/// Returns whether an error exceeds that of the file, and prints which and what was not compared.
fn is_worse_than(file: &Path, gate: &Gate, evaluation: &Evaluation) -> Result<bool> {
    let compared = gate.compare(evaluation)?;
    let file = file.display();
    let absent = (!compared.not_compared.is_empty()).then(|| {
        let names = compared.not_compared.join(", ");
        format!("not compared with `{file}`, because only one side has an error: {names}")
    });
    let worse = (!compared.worse.is_empty()).then(|| format!("worse than `{file}`: {}", compared.worse.join("; ")));
    print_notes("warning", absent.into_iter().chain(worse));
    Ok(!compared.worse.is_empty())
}

/// Fails if the user asks for what only evaluations by shapes have: a page or a gate.
fn refuse_shapes_only(eval: &Eval, cause: &str) -> Result<()> {
    let refused = [("--html", &eval.html), ("--gate", &eval.gate)];
    match refused.into_iter().find(|(_, file)| file.is_some()) {
        Some((flag, _)) => {
            Err(Error::Query(format!("{flag} cannot be used with {cause}; use --json or the printed table")))
        }
        None => Ok(()),
    }
}

/// Evaluates predictions of the fastest thread count and prints their regret.
fn run_curves(eval: &Eval) -> Result<u8> {
    let Some(mapping) = eval.data.mapping.as_deref() else {
        let problem =
            format!("--protocol {CURVES_PROTOCOL} needs --mapping, which names the columns of thread counts and times");
        return Err(Error::Query(problem));
    };
    let curves = CurveMapping::read_file(mapping)?.read_curves(&eval.data.data)?;
    let evaluation = evaluate_curves(&curves)?;
    let mut table = Table::new([
        text_column("machine").min_width(20),
        text_column("method"),
        number_column("curves").drop_order(1),
        number_column("mean regret %"),
        number_column("p90 %"),
        number_column("fastest found %").drop_order(2),
    ]);
    let all = [("all", &evaluation.methods)];
    for (machine, methods) in evaluation.machines.iter().map(|(name, methods)| (name.as_str(), methods)).chain(all) {
        for (method, one) in methods {
            table.add_row([
                machine.to_owned(),
                method.clone(),
                one.curves.to_string(),
                format_percentage(one.mean_percent, 1),
                format_percentage(one.p90_percent, 1),
                format_percentage(one.found_percent, 1),
            ]);
        }
    }
    let note = format!("{} curves were skipped because they have too few thread counts", evaluation.left_out);
    print_text(eval.json, &format!("{}\n{note}", table.format_for(&stdout_paper())))?;
    if eval.json {
        print_json(&evaluation)?;
    }
    Ok(DONE)
}

fn kernel_plan(eval: &Eval) -> Result<KernelPlan> {
    let hold_out = parse_choice("protocol", eval.hold_out.as_deref().unwrap_or("site"))?;
    let options =
        TrainOptions { min_split_loss: eval.min_split_loss, most_rows: eval.most_rows, ..TrainOptions::default() };
    let seeds = (0..eval.seeds).collect();
    Ok(KernelPlan { hold_out, seeds, options, operators: eval.operator.clone() })
}

fn evaluation_plan(eval: &Eval) -> Result<Plan> {
    let names = Protocol::ALL.iter().map(|one| one.name()).chain([CURVES_PROTOCOL]);
    let protocol =
        Protocol::from_name(&eval.protocol).ok_or_else(|| Error::unknown_name("protocol", &eval.protocol, names))?;
    let learners = eval.learners.iter().map(|name| parse_choice("learner", name));
    if eval.folds.is_some_and(|folds| folds < 2) {
        return Err(Error::Query("--folds must be at least 2".to_owned()));
    }
    Ok(Plan {
        seeds: (0..eval.seeds).collect(),
        folds: eval.folds,
        intervals: eval.intervals,
        score_cv: eval.score_cv,
        score_apart: eval.score_apart,
        score_default: eval.score_default,
        score_networks: eval.score_networks,
        min_split_loss: eval.min_split_loss,
        ..Plan::for_protocol(protocol, &learners.collect::<Result<Vec<_>>>()?)
    })
}

fn format_overview(evaluation: &Evaluation) -> String {
    let mut tables = pages::describe_repeats(evaluation);
    if !evaluation.learners.is_empty() {
        tables.push(error_table(evaluation));
    }
    if !evaluation.ranking.is_empty() {
        tables.push(ranking_table(evaluation));
    }
    if !evaluation.curve.is_empty() {
        tables.push(curve_table(&evaluation.curve));
    }
    if let Some(found) = &evaluation.end_to_end {
        tables.push(network_table(found));
    }
    tables.join("\n\n")
}

fn error_table(evaluation: &Evaluation) -> String {
    let mut table = Table::new([
        text_column("operator"),
        text_column("learner").min_width(8),
        number_column("rows").drop_order(1),
        number_column("MAPE %"),
        number_column("95 % interval").drop_order(4),
        number_column("median %").drop_order(2),
        number_column("p90 %").drop_order(5),
        number_column("RMSPE %").drop_order(10),
        number_column("hit@5 %").drop_order(9),
        number_column("hit@10 %"),
        number_column("hit@20 %").drop_order(8),
        number_column("weighted %").drop_order(7),
        number_column("bias %").drop_order(6),
        number_column("90 % coverage").drop_order(3),
        number_column("half-width").drop_order(4),
        number_column("50/80/95 % coverage").drop_order(3),
    ]);
    // With a single operator, the row for all operators would repeat it.
    let all = (evaluation.operators.len() != 1).then(|| ("all".to_owned(), evaluation.learners.clone()));
    for (operator, learners) in evaluation.operators.clone().into_iter().chain(all) {
        for (place, (learner, one)) in pages::sort_learners(&learners).into_iter().enumerate() {
            let mut cells: Vec<Cell> =
                vec![operator.as_str().into(), pages::learner_label(learner).into(), one.rows.to_string().into()];
            let mape = Cell::from(pages::format_error(one.mape, 1));
            cells.push(if place == 0 { mape.mark_best() } else { mape });
            cells.push(or_unknown(pages::format_error_interval(one, " "), identity).into());
            let errors = [one.median, one.p90, one.rmspe];
            cells.extend(errors.map(|number| pages::format_error(number, 1).into()));
            cells.extend([one.hit5, one.hit10, one.hit20].map(|number| format_percentage(number, 1).into()));
            cells.push(pages::format_error(one.weighted_mape, 1).into());
            cells.push(pages::format_signed_error(one.bias, 1).into());
            cells.extend(match &one.interval {
                None => [UNKNOWN.into(), UNKNOWN.into(), UNKNOWN.into()],
                Some(interval) => [
                    coverage_cell(one),
                    format!("± {} %", format_percentage(interval.half_width, 1)).into(),
                    pages::other_coverage(one).into(),
                ],
            });
            table.add_row(cells);
        }
    }
    table.format_for(&stdout_paper())
}

/// Formats the coverage of 90 % intervals, marked if it is too low.
fn coverage_cell(one: &Metrics) -> Cell {
    let (coverage, is_bad) = pages::format_coverage(one);
    let cell = Cell::from(coverage);
    if is_bad { cell.mark_bad() } else { cell }
}

fn curve_table(points: &[Point]) -> String {
    let of_share = |point: &Point| number_column(format!("{:.3} of the shapes", point.share));
    let columns: Vec<Column> = [text_column("our MAPE %")].into_iter().chain(points.iter().map(of_share)).collect();
    let mut table = Table::new(columns);
    for operator in points.iter().flat_map(|point| point.mape.keys()).collect::<std::collections::BTreeSet<_>>() {
        let mape = |point: &Point| or_unknown(point.mape.get(operator), |mape| format_percentage(*mape, 1));
        table.add_row([operator.clone()].into_iter().chain(points.iter().map(mape)));
    }
    table.format_for(&stdout_paper())
}

fn ranking_table(evaluation: &Evaluation) -> String {
    let mut table = Table::new([
        text_column("learner").min_width(8),
        number_column("tasks").drop_order(1),
        number_column("schedules per task").drop_order(1),
        number_column("top-1"),
        number_column("95 % interval").drop_order(3),
        number_column("top-5"),
        number_column("top-1 by time").drop_order(1),
        number_column("top-5 by time").drop_order(1),
        number_column("regret@10 %"),
        number_column("Kendall"),
        number_column("Spearman").drop_order(2),
    ]);
    for (learner, one) in pages::sort_ranking(&evaluation.ranking) {
        let mut cells = vec![pages::learner_label(learner), one.tasks.to_string()];
        cells.push(or_unknown(pages::format_schedules(one, " "), identity));
        cells.push(format!("{:.3}", one.top1));
        cells.push(or_unknown(pages::format_top1_interval(one, " "), identity));
        cells.extend([one.top5, one.top1_by_time, one.top5_by_time].map(|number| format!("{number:.3}")));
        cells.push(format_percentage(one.regret10, 2));
        cells.extend([one.kendall, one.spearman].map(pages::format_rank));
        table.add_row(cells);
    }
    table.format_for(&stdout_paper())
}

fn network_table(found: &EndToEnd) -> String {
    let ours = Learner::Ensemble.name();
    let mut table = Table::new([
        text_column("network"),
        text_column("setting").drop_order(2),
        text_column("operators measured").drop_order(1),
        number_column("measured"),
        number_column("ours"),
        number_column("error %"),
    ]);
    for one in &found.networks {
        let predicted = or_unknown(one.predicted_ns.get(ours), |time| format_duration(*time));
        let error = or_unknown(one.error_percent(ours), |error| pages::format_signed_error(error, 1));
        let share =
            format!("{} of {}{}", one.measured, one.operators, if one.is_measured() { "" } else { ", not scored" });
        table.add_row([
            one.name.clone(),
            one.setting.clone(),
            share,
            format_duration(one.measured_ns),
            predicted,
            error,
        ]);
    }
    let mut scores = Table::new([
        text_column("learner").min_width(8),
        number_column("networks"),
        number_column("MAPE %"),
        number_column("95 % interval").drop_order(1),
        number_column("within 5 %"),
        number_column("within 10 %"),
    ]);
    for (learner, one) in &found.learners {
        let mape = pages::format_error(one.mape, 1);
        let hits = [one.hit5, one.hit10].map(|number| format_percentage(number, 1));
        let interval = or_unknown(pages::format_network_interval(one, " "), identity);
        let own = [pages::learner_label(learner), one.networks.to_string(), mape];
        scores.add_row(own.into_iter().chain([interval]).chain(hits));
    }
    format!("{}\n\n{}", table.format_for(&stdout_paper()), scores.format_for(&stdout_paper()))
}
