//! How far this machine is from the one that a predictor learned from: ten measurements, and what they say of all other times.
//!
//! A predictor of one machine speaks of that machine. Here a few fixed operators, *sentinels*, are measured, and the ratios to
//! what was predicted become a factor for each kind of bound (arithmetic, memory, starting), drawn towards their common one
//! where few measurements stand behind it. What a sentinel would have been answered by the other nine says how wide intervals
//! have to be: as far as that scatters more than the predictor's own intervals say, theirs are widened.

use crate::error::{Error, Result};
use crate::probe::{self, Timed};
use crate::queries::{self, Setting};
use learn::host_translation::{Distance, HostTranslation};
use learn::predictor::Predictor;
use samples::text::read_bounded;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// What is measured, on one thread and on two: convolutions with many products and with few, a layer that reads its weights
/// once, and windows, which move more than they compute.
pub const SENTINELS: [&str; 5] = [
    "conv2d:ci=64,hw=56,co=64,k=3,p=1",
    "conv2d:ci=256,hw=14,co=512,k=1",
    "dense:m=1,n=1000,k=1024,bias=1",
    "depthwise_conv2d:c=144,hw=56,k=3,p=1",
    "max_pool2d:c=64,hw=112,k=3,s=2,p=1",
];
/// Weight of the common factor, in measurements.
const TOWARDS_COMMON: f64 = 1.0;
/// Fewer say nothing of how far a machine is.
const FEWEST: usize = 4;
/// Medians not known to this share of themselves say how busy the machine is, not how fast.
const UNCERTAINTY_MOST: f64 = 0.1;
/// No file of a calibration is longer.
const MOST_BYTES: u64 = 1 << 20;

/// One sentinel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sentinel {
    /// The operator.
    pub operator: String,
    /// Threads.
    pub threads: u32,
    /// What bounds it, as the predictor sees it.
    pub bound: String,
    /// Measured here, median.
    pub measured_ns: f64,
    /// Half of the median's 95 % interval over the median, where it is known.
    pub uncertainty: Option<f64>,
    /// What was predicted for the machine that was learned from.
    pub predicted_ns: f64,
    /// How wide that is: half of the 90 % interval, as a logarithm.
    pub half_width: f64,
}

/// What is known of this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Version of the program that measured.
    pub program_version: String,
    /// The class of hosts that was measured.
    pub host_class: String,
    /// The device that was learned from.
    pub learned_on: String,
    /// What the predictor learned from.
    pub data_hash: String,
    /// What was measured.
    pub sentinels: Vec<Sentinel>,
}

impl Sentinel {
    /// Whether its time says something. A median without an interval may be anything.
    pub fn is_known(&self) -> bool {
        self.uncertainty.is_some_and(|share| share <= UNCERTAINTY_MOST)
    }

    fn log_ratio(&self) -> f64 {
        (self.measured_ns / self.predicted_ns).ln()
    }
}

impl Calibration {
    /// Measures the sentinels with `opcollect`, within a deadline.
    pub fn measure(program: &Path, predictor: &Predictor, host_class: &str, deadline: Duration) -> Result<Calibration> {
        let learned_on = learned_on(predictor)?;
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: &[u32] = if cpus > 1 { &[1, 2] } else { &[1] };
        let measured = probe::measure_all(program, &SENTINELS, threads, deadline)?;
        let sentinels = measured.into_iter().map(|one| predicted(predictor, one)).collect::<Result<Vec<_>>>()?;
        let sentinels: Vec<Sentinel> = sentinels.into_iter().flatten().collect();
        let known = sentinels.iter().filter(|one| one.is_known()).count();
        if known < FEWEST {
            return Err(Error::Probe(format!(
                "only {known} of {} sentinels have an uncertainty below {:.0} %, and {FEWEST} are needed: the machine is busy; try again when it is quieter",
                SENTINELS.len() * threads.len(),
                100.0 * UNCERTAINTY_MOST
            )));
        }
        let program_version = env!("CARGO_PKG_VERSION").to_owned();
        let data_hash = predictor.about.data_hash.clone();
        Ok(Calibration { program_version, host_class: host_class.to_owned(), learned_on, data_hash, sentinels })
    }

    /// Reads what was written for this very predictor.
    pub fn read_for(path: &Path, predictor: &Predictor) -> Result<Calibration> {
        let known = Calibration::read(path)?;
        if known.data_hash != predictor.about.data_hash {
            let problem = format!("the calibration `{}` was made for another predictor", path.display());
            return Err(Error::Query(format!("{problem}; `oppredict adapt --this-host` creates one")));
        }
        Ok(known)
    }

    /// Reads what was written.
    pub fn read(path: &Path) -> Result<Calibration> {
        let refuse = |problem: String| {
            Error::Query(format!(
                "cannot use the calibration `{}`: {problem}; `oppredict adapt --this-host` creates a new one",
                path.display()
            ))
        };
        let text = read_bounded(path, MOST_BYTES)?;
        let known: Calibration = serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))?;
        let is_sound = |one: &Sentinel| {
            let times = [one.measured_ns, one.predicted_ns];
            times.iter().all(|time| time.is_finite() && *time > 0.0) && one.half_width.is_finite()
        };
        match known.known().count() >= FEWEST && known.sentinels.iter().all(is_sound) {
            true => Ok(known),
            false => Err(refuse("its numbers are out of range".to_owned())),
        }
    }

    /// The sentinels that count.
    pub fn known(&self) -> impl Iterator<Item = &Sentinel> {
        self.sentinels.iter().filter(|one| one.is_known())
    }

    /// How far this machine is as a whole.
    pub fn distance(&self) -> Distance {
        let factor = mean(self.known().map(Sentinel::log_ratio));
        let width = self.scatter();
        Distance { factor: factor.exp(), low: (factor - width).exp(), high: (factor + width).exp() }
    }

    /// Returns what turns answers into those of this machine, which has so many CPUs.
    pub fn translation(&self, cpus: usize) -> HostTranslation {
        let factor = |bound: &str| self.log_factor(bound, None).exp();
        let bounds: BTreeSet<&str> = self.known().map(|one| one.bound.as_str()).collect();
        HostTranslation {
            host_class: self.host_class.clone(),
            learned_on: self.learned_on.clone(),
            distance: self.distance(),
            sentinels: self.known().count(),
            cpus,
            factors: bounds.into_iter().map(|bound| (bound.to_owned(), factor(bound))).collect(),
            common_factor: factor(""),
            extra_variance: self.extra_variance(),
        }
    }

    /// The factor for what is bound alike, without one of the sentinels.
    fn log_factor(&self, bound: &str, without: Option<usize>) -> f64 {
        let others = || self.known().enumerate().filter(|(place, _)| Some(*place) != without);
        let common = mean(others().map(|(_, one)| one.log_ratio()));
        let alike: Vec<f64> = others().filter(|(_, one)| one.bound == bound).map(|(_, one)| one.log_ratio()).collect();
        (alike.iter().sum::<f64>() + TOWARDS_COMMON * common) / (alike.len() as f64 + TOWARDS_COMMON)
    }

    /// What half of a 90 % interval is, as a logarithm, by how far each sentinel is from what the others say of it.
    fn scatter(&self) -> f64 {
        /// Student's, two-sided 90 %, by degrees of freedom: a few measurements scatter more than they show.
        const STUDENT: [f64; 10] = [6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83, 1.81];
        let count = self.known().count();
        let error = |(place, one): (usize, &Sentinel)| one.log_ratio() - self.log_factor(&one.bound, Some(place));
        let square = mean(self.known().enumerate().map(error).map(|error| error * error));
        STUDENT[(count - 1).clamp(1, STUDENT.len()) - 1] * square.sqrt()
    }

    /// By how much the squares of half-widths grow.
    fn extra_variance(&self) -> f64 {
        let own = mean(self.known().map(|one| one.half_width * one.half_width));
        (self.scatter().powi(2) - own).max(0.0)
    }
}

/// The device that it learned from: there is one, since times of several would need saying which.
pub fn learned_on(predictor: &Predictor) -> Result<String> {
    queries::device(predictor, &Setting::default()).map(str::to_owned)
}

/// A measurement beside what was predicted; nothing where nothing was learned of such an operator.
fn predicted(predictor: &Predictor, timed: Timed) -> Result<Option<Sentinel>> {
    let operator = queries::operator(&timed.operator, None)?;
    if !predictor.learned.operators.contains_key(&operator.name) {
        return Ok(None);
    }
    let setting = Setting { threads: Some(f64::from(timed.threads)), extrapolate: true, ..Setting::default() };
    let answer = queries::predict(predictor, std::slice::from_ref(&operator), &setting)?;
    let prediction = &answer[0].prediction;
    Ok(Some(Sentinel {
        operator: timed.operator,
        threads: timed.threads,
        bound: prediction.bound.to_owned(),
        measured_ns: timed.time_ns,
        uncertainty: timed.uncertainty,
        predicted_ns: prediction.time_ns,
        half_width: 0.5 * (prediction.high_ns / prediction.low_ns).ln(),
    }))
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, count), value| (sum + value, count + 1));
    sum / count.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use learn::predictor::{Basis, Prediction};
    use samples::features::View;

    fn known(ratios: &[(&str, f64)], half_width: f64) -> Calibration {
        let sentinel = |(bound, ratio): &(&str, f64)| Sentinel {
            operator: "relu:shape=1".to_owned(),
            threads: 1,
            bound: (*bound).to_owned(),
            measured_ns: 1e5 * ratio,
            uncertainty: Some(0.01),
            predicted_ns: 1e5,
            half_width,
        };
        Calibration {
            program_version: "0".to_owned(),
            host_class: "here".to_owned(),
            learned_on: "there".to_owned(),
            data_hash: "0".to_owned(),
            sentinels: ratios.iter().map(sentinel).collect(),
        }
    }

    fn answer(bound: &'static str) -> Prediction {
        Prediction {
            time_ns: 1000.0,
            low_ns: 900.0,
            high_ns: 1100.0,
            attainable_ns: 500.0,
            overhead_ns: 10.0,
            known: View::Sizes,
            reference_ns: 500.0,
            bound,
            choice: None,
            learned_as: None,
            threads: 1.0,
            held_out: None,
            basis: Basis::Learned,
            outside: Vec::new(),
            this_host: None,
        }
    }

    #[test]
    fn a_machine_twice_as_slow_takes_twice_as_long_and_no_interval_grows() {
        let known = known(&[("arithmetic", 2.0); 10], 0.1);
        let distance = known.distance();
        assert!([distance.factor, distance.low, distance.high].iter().all(|one| (one - 2.0).abs() < 1e-9));
        let mut prediction = answer("memory");
        prediction.translate(&known.translation(1));
        assert!((prediction.time_ns - 2000.0).abs() < 1e-6 && (prediction.low_ns - 1800.0).abs() < 1e-6);
        assert!((prediction.attainable_ns - 1000.0).abs() < 1e-6);
    }

    #[test]
    fn what_is_bound_alike_has_a_factor_of_its_own() {
        let mut ratios = vec![("arithmetic", 1.0); 5];
        ratios.extend([("memory", 3.0); 5]);
        let known = known(&ratios, 0.1);
        let time = |bound: &'static str| {
            let mut prediction = answer(bound);
            prediction.translate(&known.translation(1));
            prediction.time_ns / 1000.0
        };
        assert!(time("arithmetic") < 1.2 && time("memory") > 2.4);
        assert!((time("overhead") - 3f64.sqrt()).abs() < 1e-6, "of what none was measured the common factor holds");
    }

    #[test]
    fn sentinels_that_disagree_widen_intervals_beyond_their_own() {
        let ratios: Vec<(&str, f64)> =
            (0..10).map(|place| ("memory", if place % 2 == 0 { 0.5 } else { 2.0 })).collect();
        let mut prediction = answer("memory");
        prediction.translate(&known(&ratios, 0.1).translation(1));
        assert!(prediction.low_ns < 0.4 * prediction.time_ns && prediction.high_ns > 2.5 * prediction.time_ns);
        let mut bound = Prediction { basis: Basis::Bound, high_ns: f64::NAN, ..answer("memory") };
        bound.translate(&known(&ratios, 0.1).translation(1));
        assert!(bound.high_ns.is_nan() && bound.low_ns > 0.0, "what is no more than a bound stays one");
    }

    #[test]
    fn what_others_disturbed_does_not_count() {
        let mut known = known(&[("memory", 2.0); 6], 0.1);
        let disturbed = Sentinel { measured_ns: 1e9, uncertainty: Some(0.7), ..known.sentinels[0].clone() };
        known.sentinels.push(disturbed);
        let without_interval = Sentinel { measured_ns: 1e9, uncertainty: None, ..known.sentinels[0].clone() };
        known.sentinels.push(without_interval);
        assert!((known.distance().factor - 2.0).abs() < 1e-9);
        known.sentinels.iter_mut().for_each(|one| one.uncertainty = None);
        assert_eq!(known.known().count(), 0, "too few runs say nothing of how well a median is known");
    }

    #[test]
    fn files_that_make_no_sense_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c.json");
        let mut sound = known(&[("memory", 1.0); 10], 0.1);
        std::fs::write(&path, serde_json::to_vec(&sound).expect("JSON")).expect("written");
        assert_eq!(Calibration::read(&path).expect("sound"), sound);
        sound.sentinels[3].measured_ns = -1.0;
        for text in [serde_json::to_string(&sound).expect("JSON"), "{}".to_owned(), String::new()] {
            std::fs::write(&path, text).expect("written");
            let refused = Calibration::read(&path).expect_err("it makes no sense").to_string();
            assert!(refused.contains("adapt --this-host"), "{refused}");
        }
    }
}
