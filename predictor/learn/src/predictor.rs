//! The predictor: trained ensembles, their metadata, and single or batched queries.

use super::boosted::BoostingParameters;
use super::cross_validation::{CrossValidatedError, CrossValidatedErrors};
use super::ensemble::Ensemble;
use super::host_translation::HostTranslation;
use super::in_place::InPlace;
use super::operator::OperatorEnsemble;
use super::operator_statistics::OperatorStatistics;
use crate::error::{Error, Result};
use crate::split::PARTS;
use samples::features::{self, Derived, Device, FEATURES, Form, Matrix, Origin, Revision, View, Work};
use samples::provenance::Provenance;
use samples::stand_in::{self, StandIn};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct About {
    pub program_version: String,
    pub xgboost_version: String,
    pub data_hash: String,
    pub rows: usize,
    pub left_out: BTreeMap<String, u64>,
    pub names: Vec<String>,
    pub devices: BTreeMap<String, Device>,
    pub seed: u64,
    pub min_split_loss: f64,
    /// Tuned hyperparameters by operator; other operators use the defaults.
    pub parameters: BTreeMap<String, BoostingParameters>,
    /// Number of shapes of each operator with too few shapes for training.
    pub not_learned: BTreeMap<String, usize>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub in_place: BTreeMap<String, InPlace>,
    /// Operators of foreign tables that replace a network's operators in queries, by task name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stand_ins: BTreeMap<String, Vec<StandIn>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub held_out: CrossValidatedErrors,
    /// Origin of the training records; None in older files and for foreign tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
}

impl About {
    fn feature_revision(&self) -> Revision {
        Revision::from_names(self.names.iter().map(String::as_str))
    }
}

#[derive(Clone, Debug)]
pub struct Predictor {
    pub about: About,
    pub learned: Ensemble,
    /// Translation of times to this machine, for queries without a device; None for the training device's times.
    pub this_host: Option<HostTranslation>,
}

const LIMITED: &str = "limited to the time on ";

/// Largest number of threads of a query, unless the device has more units.
pub const MOST_THREADS: i64 = 4096;

#[derive(Clone, Debug)]
pub struct Query<'a> {
    pub operator: &'a str,
    pub work: &'a Work,
    pub device: &'a str,
    /// Thread count; None for [`Predictor::default_threads`].
    pub threads: Option<f64>,
    pub extras: &'a BTreeMap<String, f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    Learned,
    Extrapolated,
    /// Roofline bound only, a lower bound of the time: the operator has no training data.
    Bound,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    pub time_ns: f64,
    pub low_ns: f64,
    /// Upper end of the 90 % interval; NaN without calibrated intervals.
    pub high_ns: f64,
    pub attainable_ns: f64,
    pub overhead_ns: f64,
    /// Known schedule information: `sizes` (default schedule), `knobs` or `code`.
    pub known: View,
    /// Time that the predicted ratio refers to: bound, or instruction estimate if the code is known, plus overhead.
    pub reference_ns: f64,
    /// Largest term of the attainable time: `arithmetic`, `memory` or `overhead`.
    pub bound: &'static str,
    pub choice: Option<String>,
    pub learned_as: Option<String>,
    pub threads: f64,
    /// Cross-validated error of the operator; None for lower bounds, for unseen devices, for times
    /// translated to another machine, and if the file has none.
    pub held_out: Option<CrossValidatedError>,
    pub basis: Basis,
    pub outside: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wide: Option<String>,
    /// Host class of the machine that times were translated to; None for times of the training device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub this_host: Option<String>,
}

/// Ratio of upper to lower end above which an interval is marked and explained.
pub const WIDE: f64 = 4.0;

impl Prediction {
    /// Limits the prediction to that for `device`, a trained device that the queried device surpasses.
    fn bound_by(&mut self, other: &Prediction, device: &str) {
        let factor = other.time_ns / self.time_ns;
        if factor.is_finite() && factor < 1.0 {
            let times = [&mut self.time_ns, &mut self.low_ns, &mut self.high_ns, &mut self.reference_ns];
            times.into_iter().for_each(|time| *time *= factor);
            self.overhead_ns = self.overhead_ns.min(other.overhead_ns);
            self.outside.retain(|reason| !reason.starts_with(LIMITED));
            self.outside.push(format!("{LIMITED}`{device}`, which is no newer and no faster by its figures"));
        }
    }

    /// Returns remarks for people: what the prediction was learned as, and why it is uncertain.
    pub fn remarks(&self) -> Vec<String> {
        /// Maximum length of a displayed kernel name, which may be a whole C++ signature.
        const MOST: usize = 60;
        let short = |name: &String| match name.char_indices().nth(MOST) {
            Some((end, _)) => format!("by `{}…`", &name[..end]),
            None => format!("by `{name}`"),
        };
        let learned_as = self.learned_as.iter().map(|name| format!("as `{name}`"));
        let outside = (!self.outside.is_empty()).then(|| match self.basis {
            Basis::Learned => format!("outside: {}", self.outside.join("; ")),
            Basis::Extrapolated => format!("extrapolated: {}", self.outside.join("; ")),
            Basis::Bound => self.outside.join("; "),
        });
        let ratio = self.high_ns / self.low_ns;
        let wide =
            self.wide.iter().filter(|_| ratio > WIDE).map(|reason| format!("interval {ratio:.0}× wide: {reason}"));
        let is_beyond = self.time_ns < self.attainable_ns;
        let beyond = is_beyond.then(|| "faster than the roofline, like measured operators of this kind".to_owned());
        learned_as.chain(self.choice.iter().map(short)).chain(outside).chain(wide).chain(beyond).collect()
    }

    pub fn rescale_interval(&mut self, ratio: f64) {
        self.low_ns = self.time_ns * (self.low_ns / self.time_ns).powf(ratio);
        self.high_ns = self.time_ns * (self.high_ns / self.time_ns).powf(ratio);
    }

    /// Returns the ratio of the attainable time on another machine to this one; 1 if the peak rates there are unknown.
    pub fn scale_to_host(&self, host: &HostTranslation, work: &Work) -> f64 {
        let here = host.roofline_ns(work, self.threads).filter(|_| self.attainable_ns > 0.0);
        here.map_or(1.0, |(arithmetic_ns, memory_ns)| arithmetic_ns.max(memory_ns) / self.attainable_ns)
    }

    /// Converts a time of the training machine for `work` of an operator kind into one of another machine.
    pub fn translate_to_host(&mut self, host: &HostTranslation, kind: &str, work: &Work) {
        let here = host.roofline_ns(work, self.threads);
        let (time, low, high) = (self.time_ns, self.low_ns, self.high_ns);
        if self.basis != Basis::Bound {
            self.low_ns = time * (-host.widen_half_width((time / low).ln())).exp();
            self.high_ns = time * host.widen_half_width((high / time).ln()).exp();
        }
        if self.high_ns / self.low_ns > WIDE && self.wide.is_none() {
            self.wide = Some("the sentinel operators measured on this machine differ by this much".to_owned());
        }
        let factor = match (self.basis, here) {
            // With a mean factor, a lower bound would exceed the times of about half of the operators.
            (Basis::Bound, Some(_)) => 1.0,
            (Basis::Bound, None) => host.factors.find_factor(kind, self.bound).min(host.distance.low),
            (Basis::Learned | Basis::Extrapolated, _) => host.factors.find_factor(kind, self.bound),
        };
        let scale = self.scale_to_host(host, work);
        // Without peaks of its own, the machine has those of the training machine, converted like the times.
        let of_bounds = if here.is_some() { scale } else { factor };
        let times = [&mut self.time_ns, &mut self.low_ns, &mut self.high_ns];
        times.into_iter().for_each(|time| *time *= scale * factor);
        let bounds = [&mut self.attainable_ns, &mut self.overhead_ns, &mut self.reference_ns];
        bounds.into_iter().for_each(|time| *time *= of_bounds);
        if let Some((arithmetic_ns, memory_ns)) = here {
            self.attainable_ns = arithmetic_ns.max(memory_ns);
            self.bound = bound_of(memory_ns, self.attainable_ns, self.overhead_ns);
        }
        // The error on held-out shapes is that on the training device.
        self.held_out = None;
        self.this_host = Some(host.host_class.clone());
    }
}

impl Predictor {
    pub fn predict(&self, query: &Query<'_>) -> Result<Prediction> {
        self.predict_all(std::slice::from_ref(query)).pop().expect("a query has an answer")
    }

    pub fn feature_row(&self, query: &Query<'_>) -> Result<Vec<f32>> {
        let mut resolved = self.resolve_query(query)?;
        self.fill_choices(&mut [&mut resolved]);
        Ok(resolved.features)
    }

    /// Predicts each query. The time on a device without measurements is limited to that on any trained device of which
    /// it is a successor, if the query is for the whole device.
    pub fn predict_all(&self, queries: &[Query<'_>]) -> Vec<Result<Prediction>> {
        let mut predictions = self.predict_unbounded(queries);
        for (name, device) in &self.about.devices {
            let is_exceeded = |place: &usize| {
                let query = &queries[*place];
                let learned = self.learned.operators.get(query.operator);
                let has_seen = |device: &str| learned.is_some_and(|of| of.statistics.has_seen(device));
                let own = self.about.devices.get(query.device);
                predictions[*place].is_ok()
                    && !has_seen(query.device)
                    && !learned.is_some_and(|of| of.corrections.contains_key(query.device))
                    && has_seen(name)
                    && own.is_some_and(|own| {
                        query.threads.is_none_or(|threads| threads >= own.units) && own.is_successor_of(device)
                    })
            };
            let places: Vec<usize> = (0..queries.len()).filter(is_exceeded).collect();
            let others: Vec<Query<'_>> =
                places.iter().map(|&place| Query { device: name, threads: None, ..queries[place].clone() }).collect();
            for (place, other) in places.into_iter().zip(self.predict_unbounded(&others)) {
                if let (Ok(own), Ok(other)) = (&mut predictions[place], other) {
                    own.bound_by(&other, name);
                }
            }
        }
        predictions
    }

    /// Predicts each query from the training data alone, not limited by other devices.
    fn predict_unbounded(&self, queries: &[Query<'_>]) -> Vec<Result<Prediction>> {
        let mut resolved: Vec<Result<ResolvedQuery<'_>>> =
            queries.iter().map(|query| self.resolve_query(query)).collect();
        let mut groups: BTreeMap<(&str, bool), Vec<(usize, &mut ResolvedQuery<'_>)>> = BTreeMap::new();
        for (place, resolved) in resolved.iter_mut().enumerate() {
            if let Ok(resolved) = resolved {
                groups.entry((queries[place].operator, resolved.is_known)).or_default().push((place, resolved));
            }
        }
        let mut log_ratios = vec![0.0; queries.len()];
        for group in groups.into_values() {
            let (places, mut group): (Vec<usize>, Vec<&mut ResolvedQuery<'_>>) = group.into_iter().unzip();
            self.fill_choices(&mut group);
            let Some(first) = group.first() else { continue };
            let found = first.operator.log_ratios(&group_matrix(&group), first.is_known);
            places.into_iter().zip(found).for_each(|(place, log)| log_ratios[place] = log);
        }
        resolved
            .into_iter()
            .zip(log_ratios)
            .map(|(resolved, log)| resolved.map(|mut one| one.take_prediction(log)))
            .collect()
    }

    /// Returns the trained operator and its sizes: the operator itself, or its counterpart in a foreign table.
    pub fn learned_as<'a>(&'a self, operator: &'a str, work: &'a Work) -> Option<(&'a str, Cow<'a, Work>)> {
        let (name, work) = match self.about.stand_ins.get(operator) {
            Some(stand_ins) => {
                let (found, work) = stand_in::best_stand_in(stand_ins, work)?;
                (found.operator.as_str(), Cow::Owned(work))
            }
            None => (operator, Cow::Borrowed(work)),
        };
        self.learned.operators.contains_key(name).then_some((name, work))
    }

    /// Returns the roofline bound plus the smallest known overhead, for an operator without training data.
    pub fn bound_prediction(&self, query: &Query<'_>) -> Result<Prediction> {
        let (device, threads) = self.resolve_device(query)?;
        let starts = self.learned.operators.values().map(|of| of.statistics.overhead_ns(query.device, threads));
        let overhead_ns = starts.reduce(f64::min).unwrap_or(0.0);
        let (arithmetic_ns, memory_ns) = features::roofline_ns(query.work, device, threads);
        let attainable_ns = arithmetic_ns.max(memory_ns);
        let time_ns = attainable_ns + overhead_ns;
        let few = self.about.not_learned.get(query.operator);
        let few = few.map_or(String::new(), |shapes| format!(" ({shapes} of {PARTS} required shapes)"));
        Ok(Prediction {
            time_ns,
            low_ns: time_ns,
            high_ns: f64::NAN,
            attainable_ns,
            overhead_ns,
            known: View::Sizes,
            reference_ns: time_ns,
            bound: bound_of(memory_ns, attainable_ns, overhead_ns),
            choice: None,
            learned_as: None,
            threads,
            held_out: None,
            basis: Basis::Bound,
            outside: vec![match self.about.stand_ins.get(query.operator) {
                Some(stand_ins) => {
                    let names: Vec<String> = stand_ins.iter().map(|one| format!("`{}`", one.operator)).collect();
                    let names = names.join(" and ");
                    format!("the training data of {names} lacks these sizes: the time is a lower bound")
                }
                None => {
                    format!("the training data lacks `{}`{few}: the time is a lower bound", query.operator)
                }
            }],
            wide: None,
            this_host: None,
        })
    }

    /// Returns the number of the device's units, limited to the largest thread count in the training data.
    pub fn default_threads(&self, device: &str) -> Option<f64> {
        let units = self.about.devices.get(device)?.units;
        Some(self.learned_threads(device).map_or(units, |(_, most)| units.min(most)))
    }

    /// Returns the range of thread counts, on any device, of all operators that were measured on this device.
    pub fn learned_threads(&self, device: &str) -> Option<(f64, f64)> {
        let seen = self.learned.operators.values().filter(|of| of.statistics.has_seen(device));
        let ranges = seen.filter_map(|of| of.statistics.thread_range());
        ranges.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    }

    /// Returns whether the operators of this device were measured on all of its units only, as on GPUs. A device without
    /// measurements is like the measured ones.
    pub fn has_fixed_threads(&self, device: &str) -> bool {
        let knows = |of: &&OperatorEnsemble| of.statistics.has_seen(device) || of.corrections.contains_key(device);
        let all = || self.learned.operators.values();
        let is_measured = all().any(|of| knows(&of));
        let mut alike = all().filter(|of| !is_measured || knows(of)).peekable();
        alike.peek().is_some() && alike.all(|of| of.statistics.has_whole_devices())
    }

    fn resolve_device(&self, query: &Query<'_>) -> Result<(&Device, f64)> {
        let device = self.about.devices.get(query.device).ok_or_else(|| {
            let known: Vec<_> = self.about.devices.keys().map(String::as_str).collect();
            Error::Query(format!("unknown device `{}`; known devices: {}", query.device, known.join(", ")))
        })?;
        if !query.work.is_sound() {
            return Err(Error::Query("the operator's sizes must be positive numbers".to_owned()));
        }
        let threads = query.threads.or_else(|| self.default_threads(query.device)).unwrap_or(device.units);
        // The units of foreign devices, such as GPUs, may be more.
        let most = device.units.max(MOST_THREADS as f64);
        if !((1.0..=most).contains(&threads) && threads.fract() == 0.0) {
            let problem = format!("invalid number of threads {threads}: use a whole number from 1 to {most}");
            return Err(Error::Query(problem));
        }
        Ok((device, threads))
    }

    pub fn find_operator(&self, name: &str) -> Result<&OperatorEnsemble> {
        self.learned.operators.get(name).ok_or_else(|| {
            let hint = models::names::name_hint(name, self.learned.operators.keys().map(String::as_str));
            Error::Query(format!("the training data lacks the operator `{name}`; {hint}"))
        })
    }

    fn resolve_query<'a>(&'a self, query: &Query<'a>) -> Result<ResolvedQuery<'a>> {
        let operator = self.find_operator(query.operator)?;
        let (device, threads) = self.resolve_device(query)?;
        let is_known = operator.statistics.has_seen(query.device);
        let correction = operator.corrections.get(query.device);
        let mut extras = Cow::Borrowed(query.extras);
        let Derived { busy_threads, estimated_ns } = match query.extras.is_empty() {
            true => Derived { busy_threads: threads, estimated_ns: None },
            false => {
                features::derive_features(query.work, device, threads, self.about.feature_revision(), extras.to_mut())
            }
        };
        let view = View::from_extras(query.extras);
        let usual_ns = || operator.statistics.overhead_ns(query.device, busy_threads);
        let overhead_ns = correction.map_or_else(usual_ns, |correction| correction.overhead_ns);
        let (arithmetic_ns, memory_ns) = features::roofline_ns(query.work, device, threads);
        let roofline_ns = arithmetic_ns.max(memory_ns);
        let mut row = Vec::with_capacity(self.about.names.len() + 1);
        features::push_features(query.work, device, threads, &mut row);
        let extra = |name: &String| match name.as_str() {
            features::KNOWN => view.number(),
            features::CHOICE => 0.0,
            name => extras.get(name).map_or(f32::NAN, |value| *value as f32),
        };
        row.extend(self.about.names[FEATURES.len()..].iter().map(extra));
        row.push((roofline_ns / overhead_ns).log2() as f32);
        let mut outside = outside_reasons(&operator.statistics, query.work.form, &row, is_known);
        if device.generation > 0.0 && threads != device.units && operator.statistics.has_whole_devices() {
            outside.push(format!("threads: {threads}, training data only for all units, here {}", device.units));
        }
        let basis = if outside.is_empty() { Basis::Learned } else { Basis::Extrapolated };
        if !is_known && correction.is_none() {
            outside.insert(0, "the training data lacks the device".to_owned());
        }
        let half_width = operator.statistics.half_width(query.device, view);
        let widening = operator.statistics.widening_factor(&row);
        let bound = bound_of(memory_ns, roofline_ns, overhead_ns);
        let corrected = |correction| operator.corrected_by(correction, &Matrix::from_rows(row.len(), row.clone()))[0];
        let correction = correction.map_or(0.0, corrected);
        let held_out = self.about.held_out.get(query.operator).and_then(|by_view| by_view.get(&view));
        Ok(ResolvedQuery {
            threads,
            held_out: held_out.filter(|_| is_known).copied(),
            correction,
            operator,
            device: query.device,
            features: row,
            reference_ns: estimated_ns.unwrap_or(roofline_ns) + overhead_ns,
            roofline_ns,
            least_ns: operator.statistics.least_ns(roofline_ns, overhead_ns, query.work.may_skip_products()),
            overhead_ns,
            view,
            is_known,
            basis,
            outside,
            half_width: half_width.map(|half_width| widening * half_width),
            widening,
            bound,
            choice: None,
        })
    }

    fn fill_choices(&self, group: &mut [&mut ResolvedQuery<'_>]) {
        let (Some(column), Some(operator)) = (self.choice_column(), group.first().map(|first| first.operator)) else {
            return;
        };
        if operator.choice_classifiers.is_empty() {
            return;
        }
        let devices: Vec<&str> = group.iter().map(|resolved| resolved.device).collect();
        let mut matrix = group_matrix(group);
        operator.fill_choices(&mut matrix, column, &devices);
        for (row, resolved) in group.iter_mut().enumerate() {
            let choice = matrix.row(row)[column];
            resolved.features[column] = choice;
            let place = (choice as usize).checked_sub(1);
            resolved.choice = place.and_then(|place| operator.statistics.choices.get(place).cloned());
        }
    }

    pub fn choice_column(&self) -> Option<usize> {
        self.about.names.iter().rposition(|name| name == features::CHOICE)
    }
}

struct ResolvedQuery<'a> {
    operator: &'a OperatorEnsemble,
    device: &'a str,
    features: Vec<f32>,
    reference_ns: f64,
    roofline_ns: f64,
    least_ns: f64,
    overhead_ns: f64,
    view: View,
    is_known: bool,
    basis: Basis,
    outside: Vec<String>,
    half_width: Option<f64>,
    widening: f64,
    correction: f64,
    threads: f64,
    held_out: Option<CrossValidatedError>,
    bound: &'static str,
    choice: Option<String>,
}

fn group_matrix(group: &[&mut ResolvedQuery<'_>]) -> Matrix {
    let mut matrix = Matrix::with_capacity(group.first().map_or(1, |first| first.features.len()), group.len());
    group.iter().for_each(|resolved| matrix.push_row(&resolved.features));
    matrix
}

impl ResolvedQuery<'_> {
    fn take_prediction(&mut self, log: f64) -> Prediction {
        let time_ns = (self.reference_ns * (log + self.correction).exp()).max(self.least_ns);
        let wide = self.half_width.map_or(f64::NAN, f64::exp);
        // The width for sizes far from the training data applies to slow times only: the bound holds for all sizes.
        let usual_wide = self.half_width.map_or(f64::NAN, |half_width| (half_width / self.widening).exp());
        Prediction {
            time_ns,
            low_ns: (time_ns / wide).max(self.least_ns / usual_wide),
            high_ns: time_ns * wide,
            attainable_ns: self.roofline_ns,
            overhead_ns: self.overhead_ns,
            known: self.view,
            reference_ns: self.reference_ns,
            bound: self.bound,
            choice: self.choice.take(),
            learned_as: None,
            threads: self.threads,
            held_out: self.held_out,
            basis: self.basis,
            outside: std::mem::take(&mut self.outside),
            wide: (wide * wide > WIDE).then(|| self.reason_of_width()),
            this_host: None,
        }
    }

    fn reason_of_width(&self) -> String {
        let usual = self.half_width.map_or(f64::NAN, |half_width| (2.0 * half_width / self.widening).exp());
        let shapes = self.held_out.map_or(String::new(), |error| format!(" (of {} shapes)", error.shapes));
        match usual > WIDE {
            true => format!("a tenth of the held-out shapes{shapes} had larger errors"),
            false => "the sizes are far from the training data".to_owned(),
        }
    }
}

fn bound_of(memory_ns: f64, roofline_ns: f64, overhead_ns: f64) -> &'static str {
    match () {
        () if overhead_ns > roofline_ns => "overhead",
        () if memory_ns >= roofline_ns => "memory",
        () => "arithmetic",
    }
}

/// Returns why a row is outside of training ranges; ignores device features, and settings on unseen devices.
fn outside_reasons(statistics: &OperatorStatistics, form: Form, row: &[f32], is_known: bool) -> Vec<String> {
    let mut reasons = Vec::new();
    for (feature, (range, value)) in FEATURES.iter().zip(statistics.ranges.iter().zip(row)) {
        // Features in plain counts duplicate the logarithmic sizes, except for `taps`.
        let counts = match feature.origin {
            Origin::Sizes => feature.unit != "count" || feature.name == "taps",
            origin => is_known && origin == Origin::Setting,
        };
        // Values up to half a doubling beyond the range still count as inside.
        let slack = if feature.unit.starts_with("log2") { 0.5 } else { 0.0 };
        if let Some((low, high)) = range.filter(|(low, high)| counts && (*value < low - slack || *value > high + slack))
        {
            // Messages show sizes and not their logarithms.
            let said = |value: f32| f64::from(if slack > 0.0 { value.exp2().round() } else { value });
            let (value, low, high) = (said(*value), said(low), said(high));
            let name =
                statistics.size_names.get(feature.name).map_or(features::in_words(form, feature.name), String::as_str);
            let learned = if low == high { format!("only {low}") } else { format!("{low} to {high}") };
            let reason = format!("{name}: {value}, training range {learned}");
            // Grouped operators repeat their sizes.
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
    }
    reasons
}
