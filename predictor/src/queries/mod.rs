//! Parses queries (an operator, a network, or a row of a table) into operator sizes, for which times are predicted.

mod networks;
mod threads;
mod totals;

pub use networks::{ModelSource, NetworkQuestion, is_network, is_operator};
pub use threads::{AssumedThreads, ThreadsOrigin, assumed_threads};
pub use totals::{
    HeldOutErrors, InPlaceTotal, MAX_BOUND_SHARE, Run, Total, WidestKind, held_out_errors, in_place_total, total_time,
    widest_kind,
};

use crate::devices;
use crate::error::{Error, Result};
use learn::host_translation::HostTranslation;
use learn::predictor::{Basis, Prediction, Predictor, Query};
use models::Fuse;
use rayon::prelude::*;
use samples::features::Work;
use samples::records::work_of;
use samples::schedules::CompleteSchedule;
use samples::table::Mapping;
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub struct Operator {
    pub name: String,
    pub text: String,
    pub work: Work,
    pub count: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// Device name; optional if the predictor has only one device.
    pub device: Option<String>,
    /// Number of threads; None for [`threads::default_threads`].
    pub threads: Option<f64>,
    /// Schedule knobs by feature name; missing knobs take the value of the default schedule.
    pub extras: BTreeMap<String, f64>,
    pub extrapolate: bool,
    /// Interval level in percent, one of [`learn::levels::LEVELS`]; None for 90 %.
    pub level: Option<u8>,
}

impl Setting {
    /// Returns the machine that times are converted to: this one, if it is calibrated and no other device is named.
    pub fn this_host<'a>(&self, predictor: &'a Predictor) -> Option<&'a HostTranslation> {
        predictor.this_host.as_ref().filter(|_| self.device.is_none())
    }
}

impl Operator {
    /// Returns the operator under the name and sizes of a trained foreign table, or unchanged if no table contains it.
    pub fn as_learned<'a>(&'a self, predictor: &'a Predictor) -> Cow<'a, Operator> {
        self.if_learned(predictor).unwrap_or(Cow::Borrowed(self))
    }

    /// Like `as_learned`, but None if the predictor has no training data for the operator.
    fn if_learned<'a>(&'a self, predictor: &'a Predictor) -> Option<Cow<'a, Operator>> {
        Some(match predictor.learned_as(&self.name, &self.work)? {
            (_, Cow::Borrowed(_)) => Cow::Borrowed(self),
            (name, Cow::Owned(work)) => Cow::Owned(Operator { name: name.to_owned(), work, ..self.clone() }),
        })
    }
}

/// An operator of the training data, and its setting without the knobs of its default schedule.
type Asked<'a> = (&'a Operator, Cow<'a, Setting>);

#[derive(Clone, Debug, Serialize)]
pub struct OperatorPrediction {
    pub operator: String,
    pub count: u64,
    #[serde(flatten, serialize_with = "serialize_with_remarks")]
    pub prediction: Prediction,
}

fn serialize_with_remarks<S: Serializer>(
    prediction: &Prediction,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct WithRemarks<'a> {
        #[serde(flatten)]
        prediction: &'a Prediction,
        remarks: Vec<String>,
    }
    WithRemarks { prediction, remarks: prediction.remarks() }.serialize(serializer)
}

#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Absent,
    Number(f64),
    Word(String),
}

impl Cell {
    /// Returns a number if the text is one, else a word.
    pub fn from_text(text: &str) -> Cell {
        text.parse().map_or_else(|_| Cell::Word(text.to_owned()), Cell::Number)
    }
}

/// Parses a row with the columns `operator`, `device`, `threads` and `knob.NAME`, or with the columns of a mapping.
/// Missing cells take the values of `usual`.
pub fn parse_row(cells: &[(String, Cell)], usual: &Setting, mapping: Option<&Mapping>) -> Result<(Operator, Setting)> {
    let known = mapping.map(Mapping::mapped_columns);
    let (operator_column, device_column) = key_columns(mapping);
    let mut setting = usual.clone();
    let mut sizes = BTreeMap::new();
    for (name, cell) in cells {
        let wrong = |kind: &str| Error::Query(format!("the column `{name}` must contain {kind}"));
        match (name.as_str(), cell) {
            (_, Cell::Absent) => {}
            (name, Cell::Word(_)) if [operator_column, "operator"].contains(&name) => {}
            (name, Cell::Word(word)) if [device_column, "device"].contains(&name) => {
                setting.device = Some(word.clone());
            }
            (name, Cell::Number(number)) if [device_column, "device"].contains(&name) => {
                setting.device = Some(number.to_string());
            }
            (name, _) if [operator_column, "operator"].contains(&name) => {
                return Err(wrong("names"));
            }
            ("threads", Cell::Number(number)) => setting.threads = Some(*number),
            ("threads", _) => return Err(wrong("numbers")),
            (name, cell) if name.starts_with("knob.") => setting.set_extra(name, cell),
            (name, cell) if known.as_ref().is_some_and(|known| known.contains(name)) => {
                if let Cell::Number(number) = cell {
                    sizes.insert(name, *number);
                }
            }
            (name, _) => {
                let others = match mapping {
                    None => "`operator`, `device`, `threads` and `knob.NAME`".to_owned(),
                    Some(_) => "the columns of the mapping, `threads` and `knob.NAME`".to_owned(),
                };
                let problem = format!("unknown column `{}`; known: {others}", excerpt_text(name));
                return Err(Error::Query(problem));
            }
        }
    }
    let text =
        operator_text(cells, mapping).ok_or_else(|| Error::Query(format!("the row has no `{operator_column}`")))?;
    match mapping.filter(|_| !text.contains(':')) {
        Some(mapping) => {
            let work = mapping.work_from_columns(text, &sizes).map_err(|problem| unreadable_operator(text, problem))?;
            let columns = mapping.columns_of(text);
            let sizes = sizes.iter().filter(|(name, _)| columns.contains(name));
            let sizes: Vec<String> = sizes.map(|(name, value)| format!("{name}={value}")).collect();
            let text_whole = format!("{text}:{}", sizes.join(","));
            Ok((Operator { name: text.to_owned(), text: text_whole, work, count: 1 }, setting))
        }
        None => Ok((parse_operator(text, mapping)?, setting)),
    }
}

/// Returns the text of a row's operator, if the row has one.
pub(crate) fn operator_text<'a>(cells: &'a [(String, Cell)], mapping: Option<&Mapping>) -> Option<&'a str> {
    let (operator_column, _) = key_columns(mapping);
    cells.iter().rev().find_map(|(name, cell)| match cell {
        Cell::Word(word) if [operator_column, "operator"].contains(&name.as_str()) => Some(word.as_str()),
        _ => None,
    })
}

/// Returns the columns that name the operator and the device.
fn key_columns(mapping: Option<&Mapping>) -> (&str, &str) {
    mapping.map_or(("operator", "device"), Mapping::key_columns)
}

impl Setting {
    /// Sets a schedule knob by feature name; a text value becomes an indicator feature.
    pub fn set_extra(&mut self, name: &str, cell: &Cell) {
        match cell {
            Cell::Absent => None,
            Cell::Number(number) => self.extras.insert(name.to_owned(), *number),
            Cell::Word(word) => self.extras.insert(format!("{name}={word}"), 1.0),
        };
    }

    pub fn set_knobs(&mut self, knobs: &[String]) -> Result<()> {
        for knob in knobs {
            let (name, value) =
                knob.split_once('=').ok_or_else(|| Error::Query(format!("`--knob {knob}` is not NAME=VALUE")))?;
            let is_same = |other: &&String| other.split_once('=').is_some_and(|(other, _)| other == name);
            if knobs.iter().filter(is_same).count() > 1 {
                return Err(Error::Query(format!("duplicate knob `{name}`")));
            }
            self.set_extra(&format!("knob.{name}"), &Cell::from_text(value));
        }
        Ok(())
    }

    pub fn complete_knobs(&self, predictor: &Predictor, operator: &Operator) -> Result<Setting> {
        Ok(Setting { extras: self.complete_schedule(predictor, operator)?.knobs, ..self.clone() })
    }

    fn complete_schedule(&self, predictor: &Predictor, operator: &Operator) -> Result<CompleteSchedule> {
        let device = find_device(predictor, self)?;
        let schedules = &predictor.find_operator(&operator.name)?.statistics.schedules;
        let refused = |problem: String| Error::Query(format!("`{}`: {problem}", operator.text));
        schedules.complete_schedule(&operator.work, device, &self.extras).map_err(refused)
    }

    /// Removes all schedule knobs if they equal the default schedule, for which most training data exist.
    pub fn without_default_knobs(&self, predictor: &Predictor, operator: &Operator) -> Result<Cow<'_, Setting>> {
        if self.extras.is_empty() {
            return Ok(Cow::Borrowed(self));
        }
        let extras = self.complete_schedule(predictor, operator)?.knobs_to_query();
        Ok(Cow::Owned(Setting { extras, ..self.clone() }))
    }
}

fn unreadable_operator(text: &str, problem: String) -> Error {
    Error::Query(format!("cannot read the operator `{}`: {problem}", excerpt_text(text)))
}

/// Parses an operator such as `conv2d:ci=64,hw=56,co=64,k=3,p=1`, or one with the names of a mapping.
pub fn parse_operator(text: &str, mapping: Option<&Mapping>) -> Result<Operator> {
    let wrong = |problem: String| unreadable_operator(text, problem);
    if let Some(mapping) = mapping {
        let (name, sizes) = text.split_once(':').unwrap_or((text, ""));
        let work = parse_numbers(sizes).and_then(|sizes| mapping.work_from_sizes(name, &sizes)).map_err(wrong)?;
        return Ok(Operator { name: name.to_owned(), text: text.to_owned(), work, count: 1 });
    }
    let graph = zoo::simple::build_operator(text).map_err(|error| wrong(error.to_string()))?;
    let mut operators = graph_operators(&graph)?;
    match operators.len() {
        1 => Ok(operators.remove(0)),
        count => Err(wrong(format!("the text describes {count} tasks, expected one"))),
    }
}

fn graph_operators(graph: &models::Graph) -> Result<Vec<Operator>> {
    let refused = |error: models::Error| Error::Query(error.to_string());
    let graph = passes::simplify_graph(graph).map_err(refused)?;
    models::distinct_tasks(&graph, Fuse::Epilogue).map_err(refused)?.iter().map(task_operator).collect()
}

pub fn task_operator(found: &models::TaskUse) -> Result<Operator> {
    let work = work_of(&found.task).map_err(Error::Query)?;
    Ok(Operator {
        name: found.task.anchor_kind().to_owned(),
        text: found.task.describe(),
        work,
        count: found.places.len() as u64,
    })
}

fn parse_numbers(pairs: &str) -> std::result::Result<BTreeMap<&str, f64>, String> {
    let mut numbers = BTreeMap::new();
    for pair in pairs.split(',').filter(|pair| !pair.trim().is_empty()) {
        let (name, value) = pair.split_once('=').ok_or_else(|| format!("`{pair}` is not NAME=NUMBER"))?;
        let value = value.trim().parse().map_err(|_| format!("`{value}` is not a number"))?;
        if numbers.insert(name.trim(), value).is_some() {
            return Err(format!("`{}` is given twice", name.trim()));
        }
    }
    Ok(numbers)
}

/// Predicts operators in one setting, in order; fails on the first error.
pub fn predict_operators(
    predictor: &Predictor,
    operators: &[Operator],
    setting: &Setting,
) -> Result<Vec<OperatorPrediction>> {
    let parts = in_parts(operators, |part| predict_part(predictor, part, setting));
    Ok(parts.into_iter().collect::<Result<Vec<_>>>()?.concat())
}

/// Like [`predict_operators`], on this thread.
pub fn predict_part(
    predictor: &Predictor,
    operators: &[Operator],
    setting: &Setting,
) -> Result<Vec<OperatorPrediction>> {
    let questions: Vec<(&Operator, &Setting)> = operators.iter().map(|operator| (operator, setting)).collect();
    let answered = |(operator, prediction): (&Operator, Result<Prediction>)| {
        let prediction = prediction?;
        Ok(OperatorPrediction { operator: operator.text.clone(), count: operator.count, prediction })
    };
    operators.iter().zip(predict_chunk(predictor, &questions)).map(answered).collect()
}

/// Answers parts of a list on all threads, in order.
pub fn in_parts<T: Sync, R: Send>(items: &[T], answer: impl Fn(&[T]) -> R + Send + Sync) -> Vec<R> {
    /// Smallest number of queries that one thread answers. Shorter lists are not worth waking another thread.
    const LEAST: usize = 128;
    // Each part prunes the trees once.
    let part = items.len().div_ceil(rayon::current_num_threads()).max(LEAST);
    match items.len() {
        ..=LEAST => vec![answer(items)],
        _ => items.par_chunks(part).map(answer).collect(),
    }
}

/// Predicts operators with default schedules. Operators outside of the trained range are extrapolated and marked.
pub fn predict_model(
    predictor: &Predictor,
    operators: &[Operator],
    setting: &Setting,
) -> Result<Vec<OperatorPrediction>> {
    if !setting.extras.is_empty() {
        let problem = "knobs apply to a single operator; the operators of a model use default schedules";
        return Err(Error::Query(problem.to_owned()));
    }
    predict_operators(predictor, operators, &Setting { extrapolate: true, ..setting.clone() })
}

/// Predicts each query and returns errors per query. Missing knobs are taken from the default schedule. For an operator
/// without training data, the result is a lower bound of its time, marked as such.
pub fn predict_each(predictor: &Predictor, questions: &[(Operator, Setting)]) -> Vec<Result<Prediction>> {
    let answer = |part: &[(Operator, Setting)]| {
        let questions: Vec<_> = part.iter().map(|(operator, setting)| (operator, setting)).collect();
        predict_chunk(predictor, &questions)
    };
    in_parts(questions, answer).into_iter().flatten().collect()
}

fn predict_chunk(predictor: &Predictor, questions: &[(&Operator, &Setting)]) -> Vec<Result<Prediction>> {
    let learned: Vec<Option<Cow<'_, Operator>>> =
        questions.iter().map(|(operator, _)| operator.if_learned(predictor)).collect();
    let mut asked = Vec::with_capacity(questions.len());
    for ((operator, setting), learned) in questions.iter().zip(&learned) {
        if !has_bound_only(setting, learned.as_deref()) {
            let operator = learned.as_deref().unwrap_or(operator);
            asked.push(setting.without_default_knobs(predictor, operator).map(|setting| (operator, setting)));
        }
    }
    let mut predictions = predict_some(predictor, asked).into_iter();
    let mut answers = Vec::with_capacity(questions.len());
    for ((operator, setting), learned) in questions.iter().zip(&learned) {
        let answer = match has_bound_only(setting, learned.as_deref()) {
            true => bound_prediction(predictor, operator, setting),
            false => predictions.next().expect("one prediction per query"),
        };
        let learned_as = learned.as_ref().map(|learned| &learned.name).filter(|name| **name != operator.name);
        answers.push(answer.map(|answer| Prediction { learned_as: learned_as.cloned(), ..answer }));
    }
    answers
}

/// Returns whether the answer is a lower bound of the time: the operator has no training data, which a query with knobs
/// needs.
fn has_bound_only(setting: &Setting, learned: Option<&Operator>) -> bool {
    learned.is_none() && setting.extras.is_empty()
}

fn bound_prediction(predictor: &Predictor, operator: &Operator, setting: &Setting) -> Result<Prediction> {
    let bound = predictor.bound_prediction(&to_query(predictor, operator, setting)?)?;
    Ok(translate_to_host(predictor, setting, operator, bound))
}

/// Converts a prediction to this machine, if the machine is calibrated and the user named no other device.
pub(crate) fn translate_to_host(
    predictor: &Predictor,
    setting: &Setting,
    operator: &Operator,
    mut prediction: Prediction,
) -> Prediction {
    if let Some(host) = setting.this_host(predictor) {
        prediction.translate_to_host(host, &operator.name, &operator.work);
    }
    prediction
}

/// Predicts schedules. Default schedules are also predicted from their knobs, so that all times are comparable.
pub fn predict_schedules(predictor: &Predictor, questions: &[(Operator, Setting)]) -> Vec<Result<Prediction>> {
    let asked = questions.iter().map(|(operator, setting)| {
        setting.complete_knobs(predictor, operator).map(|setting| (operator, Cow::Owned(setting)))
    });
    predict_some(predictor, asked.collect())
}

/// End of the message about an operator outside of the training range. Each interface has its own name of the setting.
pub const OR_EXTRAPOLATE: &str = "or extrapolate";

fn predict_some(predictor: &Predictor, questions: Vec<Result<Asked<'_>>>) -> Vec<Result<Prediction>> {
    let queries = to_queries(predictor, &questions);
    let sound: Vec<Query<'_>> = queries.iter().flatten().flatten().cloned().collect();
    let mut predictions = predictor.predict_all(&sound).into_iter();
    let mut prediction = |query: Result<Query<'_>>| {
        query.and_then(|_| Ok(predictions.next().expect("one prediction per valid query")?))
    };
    let answered: Vec<Option<Result<Prediction>>> =
        queries.into_iter().map(|query| query.map(&mut prediction)).collect();
    let result = |(question, prediction): (Result<Asked<'_>>, Option<Result<Prediction>>)| {
        let (operator, setting) = question?;
        let prediction = prediction.expect("valid queries were predicted")?;
        match prediction.outside.first().filter(|_| prediction.basis != Basis::Learned && !setting.extrapolate) {
            None => {
                let prediction = translate_to_host(predictor, &setting, operator, prediction);
                at_level(predictor, &setting, operator, prediction)
            }
            Some(_) => Err(Error::Outside(format!(
                "`{}` is outside of the training range ({}); measure similar operators, {OR_EXTRAPOLATE}",
                operator.text,
                prediction.outside.join("; ")
            ))),
        }
    };
    questions.into_iter().zip(answered).map(result).collect()
}

fn at_level(
    predictor: &Predictor,
    setting: &Setting,
    operator: &Operator,
    mut prediction: Prediction,
) -> Result<Prediction> {
    if let Some(level) = setting.level {
        let levels = predictor.find_operator(&operator.name)?.statistics.levels_on(find_device(predictor, setting)?);
        let ratio =
            levels.and_then(|levels| levels.ratio_at(level)).or((level == 90).then_some(1.0)).ok_or_else(|| {
                Error::Query(format!("the predictor has no intervals at {level} %; train it again, or omit --level"))
            })?;
        prediction.rescale_interval(ratio);
    }
    Ok(prediction)
}

/// Returns the query of each question that is no error. Successive questions with equal settings, as in a list for one
/// device, share the search for the device and the number of threads.
fn to_queries<'a>(predictor: &'a Predictor, questions: &'a [Result<Asked<'a>>]) -> Vec<Option<Result<Query<'a>>>> {
    let mut before: Option<(&Setting, Query<'a>)> = None;
    let mut query = |(operator, setting): &'a Asked<'a>| {
        let setting: &'a Setting = setting;
        let shares = |other: &Setting| (&other.device, other.threads) == (&setting.device, setting.threads);
        let query = match before.take().filter(|(other, _)| shares(other)) {
            Some((_, query)) => {
                Query { operator: &operator.name, work: &operator.work, extras: &setting.extras, ..query }
            }
            None => to_query(predictor, operator, setting)?,
        };
        before = Some((setting, query.clone()));
        Ok(query)
    };
    questions.iter().map(|question| question.as_ref().ok().map(&mut query)).collect()
}

pub(crate) fn to_query<'a>(
    predictor: &'a Predictor,
    operator: &'a Operator,
    setting: &'a Setting,
) -> Result<Query<'a>> {
    Ok(Query {
        operator: &operator.name,
        work: &operator.work,
        device: find_device(predictor, setting)?,
        threads: setting.threads.or_else(|| threads::default_threads(predictor, setting)),
        extras: &setting.extras,
    })
}

pub fn describe_devices(predictor: &mut Predictor, mapping: &Mapping) {
    for (name, device) in mapping.described_devices() {
        predictor.about.devices.entry(name.clone()).or_insert_with(|| device.clone());
    }
}

/// Returns the device of the setting, in any spelling, or the only device of the predictor.
pub fn find_device<'a>(predictor: &'a Predictor, setting: &Setting) -> Result<&'a str> {
    if let Some(device) = &setting.device {
        let known = &predictor.about.devices;
        return match known.get_key_value(device) {
            Some((device, _)) => Ok(device),
            None => devices::resolve_device(known.keys().map(String::as_str), device),
        };
    }
    let mut known: Vec<&String> =
        predictor.learned.operators.values().flat_map(|operator| operator.statistics.overheads_ns.keys()).collect();
    known.sort_unstable();
    known.dedup();
    match known[..] {
        [one] => Ok(one),
        _ => Err(Error::Query(format!(
            "give a device; the training data has {}",
            known.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ")
        ))),
    }
}

/// Names the machine that times are predicted for: this one, if it is calibrated, or a device of the predictor.
pub fn find_machine<'a>(predictor: &'a Predictor, setting: &Setting) -> Result<&'a str> {
    match setting.this_host(predictor) {
        Some(host) => Ok(&host.host_class),
        None => find_device(predictor, setting),
    }
}

pub(crate) fn excerpt_text(text: &str) -> String {
    text.chars().take(120).collect()
}
