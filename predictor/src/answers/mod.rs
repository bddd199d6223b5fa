//! Predictions as reports, for single operators, whole networks, rows of a table, and schedules of a space.

mod kernels;
mod schedules;
mod table;

pub use kernels::{KernelDefaults, answer_kernel_table, lists_kernels};
pub use schedules::{RankedSchedule, RankedSchedules, rank_schedules};
pub use table::{RowAnswer, TableAnswers, answer_table};

use crate::error::Result;
use crate::queries::{
    self, AssumedThreads, HeldOutErrors, InPlaceTotal, NetworkQuestion, Operator, OperatorPrediction, Run, Setting,
    Total, WidestKind,
};
use learn::predictor::Predictor;
use serde::Serialize;

/// A predictor and the setting of its queries, with the thread count filled in if the user gave none.
pub struct Conditions<'a> {
    predictor: &'a Predictor,
    setting: Setting,
    pub threads: AssumedThreads,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    pub operator: String,
    pub reason: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct NetworkAnswer {
    pub model: String,
    pub batch: i64,
    /// Predictions of the distinct operators, in the order of the graph.
    pub layers: Vec<OperatorPrediction>,
    /// Operators of the file that the total lacks, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    pub total: Total,
    /// Total with operator times in the network; None if the predictor was trained without in-network measurements.
    pub in_place: Option<InPlaceTotal>,
    pub held_out: Option<HeldOutErrors>,
    /// The operator kind that contributes most to the width of the total's interval; None if a layer has no interval.
    pub widest: Option<WidestKind>,
}

impl<'a> Conditions<'a> {
    pub fn new(predictor: &'a Predictor, setting: Setting) -> Result<Conditions<'a>> {
        let threads = queries::assumed_threads(predictor, &setting)?;
        let setting = Setting { threads: Some(threads.count), ..setting };
        Ok(Conditions { predictor, setting, threads })
    }
}

pub fn predict_operators(
    conditions: &Conditions<'_>,
    operators: Vec<Operator>,
) -> (Vec<OperatorPrediction>, Vec<Refusal>) {
    let questions: Vec<_> = operators.into_iter().map(|operator| (operator, conditions.setting.clone())).collect();
    let (mut answered, mut refused) = (Vec::new(), Vec::new());
    for (prediction, (operator, _)) in
        queries::predict_each(conditions.predictor, &questions).into_iter().zip(&questions)
    {
        let text = operator.text.clone();
        match prediction {
            Ok(prediction) => answered.push(OperatorPrediction { operator: text, count: operator.count, prediction }),
            Err(error) => refused.push(Refusal { operator: text, reason: error.to_string() }),
        }
    }
    (answered, refused)
}

pub fn predict_network(
    conditions: &Conditions<'_>,
    question: &NetworkQuestion<'_>,
    run: &Run,
) -> Result<NetworkAnswer> {
    let Conditions { predictor, setting, .. } = conditions;
    let (operators, left_out) = question.operators_with_losses()?;
    let layers = queries::predict_model(predictor, &operators, setting)?;
    Ok(NetworkAnswer {
        model: question.name.to_owned(),
        batch: question.batch,
        total: queries::total_time(&operators, &layers, run),
        in_place: queries::in_place_total(predictor, &operators, &layers, setting)?,
        held_out: queries::held_out_errors(&operators, &layers),
        widest: queries::widest_kind(&operators, &layers),
        layers,
        left_out,
    })
}
