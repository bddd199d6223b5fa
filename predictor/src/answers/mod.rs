//! Predictions as reports: single operators, whole networks, rows of a table, and schedules of a space.

mod schedules;
mod table;

pub use schedules::{RankedSchedule, RankedSchedules, rank_schedules};
pub use table::{RowAnswer, TableAnswers, answer_table};

use crate::error::Result;
use crate::queries::{
    self, AssumedThreads, HeldOutErrors, InPlaceTotal, NetworkQuestion, Operator, OperatorPrediction, Run, Setting,
    Total,
};
use crate::this_host::Calibration;
use learn::predictor::Predictor;
use serde::Serialize;

/// A predictor, the setting that questions are asked in, and the distance of this machine from the one that was learned from.
pub struct Conditions<'a> {
    predictor: &'a Predictor,
    setting: Setting,
    calibration: Option<&'a Calibration>,
    /// How many threads answers are for.
    pub threads: AssumedThreads,
}

/// An operator that has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// The question as a person reads it.
    pub operator: String,
    /// Why it has none.
    pub reason: String,
}

/// A network's operators and their total.
#[derive(Clone, Debug, Serialize)]
pub struct NetworkAnswer {
    /// The network's name.
    pub model: String,
    /// Batch size.
    pub batch: i64,
    /// Its operators, those that are alike once, in the order of the graph.
    pub layers: Vec<OperatorPrediction>,
    /// What all of them take.
    pub total: Total,
    /// What the sum misses; None where nothing was learned of operators in networks.
    pub in_place: Option<InPlaceTotal>,
    /// Errors of the layers on held-out shapes; None where they are not recorded.
    pub held_out: Option<HeldOutErrors>,
}

impl<'a> Conditions<'a> {
    /// Completes a setting with the threads that answers are for. Where times are those of this machine, threads are at most its CPUs.
    pub fn new(
        predictor: &'a Predictor,
        setting: Setting,
        calibration: Option<&'a Calibration>,
    ) -> Result<Conditions<'a>> {
        let cpus_here = calibration.and_then(|_| std::thread::available_parallelism().ok()).map(usize::from);
        let threads = queries::assumed_threads(predictor, &setting, cpus_here)?;
        let setting = Setting { threads: Some(threads.count), ..setting };
        Ok(Conditions { predictor, setting, calibration, threads })
    }

    /// Turns times of the machine that was learned from into times of this one.
    fn translate(&self, predictions: &mut [OperatorPrediction]) {
        let Some(calibration) = self.calibration else { return };
        predictions.iter_mut().for_each(|one| calibration.translate(&mut one.prediction));
    }
}

/// Predicts single operators. Returns the answers, and those operators that have none.
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
    conditions.translate(&mut answered);
    (answered, refused)
}

/// Predicts a whole network at the default schedules of its operators.
pub fn predict_network(
    conditions: &Conditions<'_>,
    question: &NetworkQuestion<'_>,
    run: &Run,
) -> Result<NetworkAnswer> {
    let Conditions { predictor, setting, .. } = conditions;
    let operators = question.operators()?;
    let mut layers = queries::predict_model(predictor, &operators, setting)?;
    conditions.translate(&mut layers);
    Ok(NetworkAnswer {
        model: question.name.to_owned(),
        batch: question.batch,
        total: queries::total(&operators, &layers, run),
        in_place: queries::in_place_total(predictor, &operators, &layers, setting)?,
        held_out: queries::held_out_errors(&operators, &layers),
        layers,
    })
}
