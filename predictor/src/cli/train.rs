//! `oppredict train` and `oppredict xgboost`.

use super::arguments::{Train, Xgboost};
use super::{begin, finish, load, paper, print, tell};
use crate::error::Result;
use crate::{bundle, exchange as trees};
use learn::predictor::Predictor;
use learn::train::{TrainOptions, few_shapes};
use report::{Table, figures, or_unknown, words};
use samples::features::View;
use serde_json::json;

/// Learns and writes the predictor.
pub fn run(train: &Train) -> Result<u8> {
    let out = begin(Some(&train.out))?;
    let samples = load(&train.data)?;
    let min_split_loss = train.min_split_loss;
    let predictor =
        learn::train::train(&samples, &TrainOptions { seed: train.seed, is_tuned: train.tune, min_split_loss })?;
    finish(out, || bundle::to_bytes(&predictor))?;
    let operators: Vec<_> = predictor.learned.operators.keys().cloned().collect();
    print(&format!(
        "learned {} operators from {} samples ({} features); wrote `{}`",
        operators.len(),
        predictor.about.rows,
        samples.names.len(),
        train.out.display()
    ))?;
    for (device, learned) in &predictor.about.in_place {
        let use_of_it = if learned.is_worth_it() { "" } else { ", so it is not used" };
        print(&format!(
            "in their places, {} operators of {} networks on {device}: held out, {:.1} % off where times alone are {:.1} % off{use_of_it}",
            learned.operators,
            learned.networks,
            100.0 * learned.error_learned,
            100.0 * learned.error_alone
        ))?;
    }
    print(&held_out(&predictor))?;
    let not_learned = &predictor.about.not_learned;
    if !not_learned.is_empty() {
        let warning = format!(
            "{} operators have too few shapes to be learned and judged: {}; more models, or `--variations` of the same, have more",
            not_learned.len(),
            few_shapes(not_learned)
        );
        tell("warning", [warning]);
    }
    if train.json {
        let document = json!({
            "out": train.out, "rows": predictor.about.rows, "left_out": samples.left_out, "operators": operators,
            "not_learned": not_learned, "in_place": predictor.about.in_place, "data_hash": predictor.about.data_hash,
            "held_out": predictor.about.held_out, "provenance": predictor.about.provenance,
        });
        print(&document.to_string())?;
    }
    Ok(u8::from(!not_learned.is_empty()))
}

/// How far off answers are for shapes that were held out, by operator and by what is known of the schedule.
fn held_out(predictor: &Predictor) -> String {
    let mut table = Table::new([
        words("held out"),
        figures("shapes"),
        figures("sizes known, off by"),
        figures("knobs known").drops(1),
        figures("code known"),
    ]);
    for (operator, by_view) in &predictor.about.held_out {
        let shapes = by_view.values().map(|error| error.shapes).max().unwrap_or(0);
        let off = |view: View| or_unknown(by_view.get(&view), |error| format!("{:.1} %", error.median_percent));
        table.row([operator.clone(), shapes.to_string()].into_iter().chain(View::ALL.map(off)));
    }
    table.on(&paper())
}

/// Writes the trees, or a predictor with trees that were read.
pub fn exchange(arguments: &Xgboost) -> Result<u8> {
    let file = begin(arguments.out.as_deref().filter(|_| arguments.read.is_some()))?;
    let mut predictor = bundle::read(&arguments.predictor)?;
    if let (Some(folder), Some(out)) = (&arguments.read, &arguments.out) {
        let replaced = trees::read(&mut predictor, folder)?;
        finish(file, || bundle::to_bytes(&predictor))?;
        print(&format!(
            "took the trees of {} from `{}`; wrote `{}`",
            replaced.join(", "),
            folder.display(),
            out.display()
        ))?;
    }
    if let Some(folder) = &arguments.write {
        let written = trees::write(&predictor, folder)?;
        print(&format!("wrote {} files into `{}`", written.len(), folder.display()))?;
    }
    Ok(0)
}
