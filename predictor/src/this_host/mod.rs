//! Calibrates a predictor for this machine, by measuring a few operators (*sentinels*) in several rounds.
//!
//! Each round measures all sentinels in one process, and the peak rates of the machine. Predictions are converted by the
//! ratio of the attainable times, and the ratio of a sentinel's median to its converted prediction gives a factor for
//! each kind of operator and bottleneck, shrunk towards the common factor. The error is estimated by leaving sentinels
//! out; if it exceeds the predictor's intervals, all intervals are widened. On a machine with other work the measurement
//! can be repeated until its rounds agree.

mod rounds;

use crate::error::{Error, Result};
use crate::probe;
use crate::queries::{self, Setting};
use datasets::Peaks;
use learn::host_translation::{Distance, Factors, HostTranslation};
use learn::predictor::Predictor;
use samples::statistics::median;
use samples::text::read_bounded;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::{Duration, Instant};

/// Sentinels, measured on one and two threads: convolutions and products of high and low intensity, streams of weights
/// that fit into caches and of some that do not, pooling.
pub const SENTINELS: [&str; 9] = [
    "conv2d:ci=64,hw=56,co=64,k=3,p=1",
    "conv2d:ci=256,hw=14,co=512,k=1",
    "conv2d:ci=3,hw=224,co=64,k=7,s=2,p=3",
    "dense:m=1,n=1000,k=1024,bias=1",
    "dense:m=1,n=4096,k=4096,bias=1",
    "dense:m=128,n=512,k=512,bias=1",
    "depthwise_conv2d:c=144,hw=56,k=3,p=1",
    "depthwise_conv2d:c=384,hw=14,k=3,p=1",
    "max_pool2d:c=64,hw=112,k=3,s=2,p=1",
];
/// Weight of the common factor when other factors are shrunk towards it, in number of measurements.
const TOWARDS_COMMON: f64 = 1.0;
const FEWEST: usize = 4;
/// Maximum relative half-width of the interval of a usable median.
const UNCERTAINTY_MOST: f64 = 0.1;
/// Regular number of rounds. Extra rounds, up to `MOST_ROUNDS`, run while the factors of the rounds disagree.
const ROUNDS: usize = 3;
const MOST_ROUNDS: usize = 7;
/// Maximum relative spread between the factors of rounds that agree.
const AGREEMENT: f64 = 0.03;
/// Limit for outliers, as a multiple of the median absolute deviation: three standard deviations.
const OUTLIER: f64 = 3.0 * 1.4826;
/// Minimum share of usable sentinels in a measurement that need not be repeated.
const USABLE_LEAST: f64 = 0.75;
/// Pause before a measurement is repeated.
const PAUSE: Duration = Duration::from_secs(30);
const MOST_BYTES: u64 = 1 << 20;
/// Plausible times of sentinels: up to a quarter of an hour.
const TIMES_NS: RangeInclusive<f64> = 1e-3..=1e12;
/// Plausible ratios of times between machines.
const RATIOS: RangeInclusive<f64> = 1e-4..=1e4;
/// Plausible peak rates per second.
const RATES: RangeInclusive<f64> = 1e6..=1e18;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sentinel {
    pub operator: String,
    /// Operator kind in the predictor; empty in older files.
    #[serde(default)]
    pub kind: String,
    pub threads: u32,
    pub bound: String,
    /// Median time over the rounds on this machine.
    pub measured_ns: f64,
    /// Median time of each round, in order; None for a round that is not usable. Empty in older files.
    #[serde(default)]
    pub rounds_ns: Vec<Option<f64>>,
    /// Relative half-width of the median's 95 % confidence interval, if known; at least half the range of the rounds.
    pub uncertainty: Option<f64>,
    /// Predicted time on the machine of the training data.
    pub predicted_ns: f64,
    /// Ratio of the attainable time on this machine to that on the machine of the training data; 1 if unknown, as in
    /// older files.
    #[serde(default = "unscaled")]
    pub scale: f64,
    /// Half-width of the prediction's 90 % interval, as a logarithm.
    pub half_width: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    pub program_version: String,
    pub host_class: String,
    pub learned_on: String,
    pub data_hash: String,
    pub sentinels: Vec<Sentinel>,
    /// Peak rates of this machine; None if they could not be measured, and in older files.
    #[serde(default)]
    pub peaks: Option<Peaks>,
}

fn unscaled() -> f64 {
    1.0
}

impl Sentinel {
    pub fn is_known(&self) -> bool {
        self.uncertainty.is_some_and(|share| share <= UNCERTAINTY_MOST)
    }

    /// Returns the predicted time on this machine, by peak rates alone.
    pub fn scaled_ns(&self) -> f64 {
        self.scale * self.predicted_ns
    }

    fn log_ratio(&self) -> f64 {
        (self.measured_ns / self.scaled_ns()).ln()
    }
}

impl Calibration {
    /// Measures the sentinels, and again for up to `wait` until the result is settled; returns the best measurement.
    /// `note` gets the reason of each repetition.
    pub fn measure_until_settled(
        wait: Duration,
        measure: impl FnMut() -> Result<Calibration>,
        note: impl FnMut(&str),
    ) -> Result<Calibration> {
        repeat_until_settled(wait, PAUSE, measure, note)
    }

    pub fn measure_sentinels(
        program: &Path,
        predictor: &Predictor,
        host_class: &str,
        deadline: Duration,
    ) -> Result<Calibration> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: &[u32] = if cpus > 1 { &[1, 2] } else { &[1] };
        let mut known = Calibration {
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            host_class: host_class.to_owned(),
            learned_on: learned_on(predictor).map_err(|_| {
                let devices: Vec<&str> = predictor.about.devices.keys().map(String::as_str).collect();
                let problem = "this machine can be calibrated only for a predictor of one machine, a CPU; this one was trained on";
                Error::Query(format!("{problem} {}", devices.join(", ")))
            })?,
            data_hash: predictor.about.data_hash.clone(),
            sentinels: Vec::new(),
            peaks: None,
        };
        let there = predictor.about.devices.get(&known.learned_on).and_then(|device| device.peaks.as_ref());
        let (mut rounds, mut longest, end) = (Vec::new(), Duration::ZERO, Instant::now() + deadline);
        while rounds.len() < MOST_ROUNDS {
            let begun = Instant::now();
            let left = end.saturating_duration_since(begun);
            if !rounds.is_empty() && left < longest {
                break;
            }
            match probe::measure_all(program, &SENTINELS, threads, left) {
                Ok(measured) => rounds.push(measured),
                // A failed extra round is ignored, because the earlier rounds suffice.
                Err(_) if !rounds.is_empty() => break,
                Err(error) => return Err(error),
            }
            longest = longest.max(begun.elapsed());
            known.peaks = rounds::combine_peaks(&rounds, there);
            known.sentinels = rounds::combine_sentinels(predictor, &rounds, known.peaks.as_ref())?;
            if rounds.len() >= ROUNDS && known.do_rounds_agree() {
                break;
            }
        }
        let count = known.usable_sentinels().count();
        if count < FEWEST {
            return Err(Error::Probe(format!(
                "only {count} of {} sentinel operators have an uncertainty below {:.0} %, and {FEWEST} are required: the machine is busy; try again when it is idle",
                SENTINELS.len() * threads.len(),
                100.0 * UNCERTAINTY_MOST
            )));
        }
        Ok(known)
    }

    /// Returns the largest relative difference between the common factors of two rounds, by the sentinels that are usable in
    /// both; None if no two rounds share four.
    pub fn repeats_within(&self) -> Option<f64> {
        let rounds = self.usable_sentinels().map(|one| one.rounds_ns.len()).max()?;
        let in_round = |one: &Sentinel, round: usize| one.rounds_ns.get(round).copied().flatten();
        let difference = |(first, second): (usize, usize)| {
            let log_ratio = |one: &Sentinel| Some((in_round(one, first)? / in_round(one, second)?).ln());
            let mut found: Vec<f64> = self.usable_sentinels().filter_map(log_ratio).collect();
            (found.len() >= FEWEST).then(|| median(&mut found).abs())
        };
        let pairs = (0..rounds).flat_map(|first| (first + 1..rounds).map(move |second| (first, second)));
        let largest = pairs.filter_map(difference).reduce(f64::max);
        largest.map(|difference| difference.exp() - 1.0)
    }

    pub fn do_rounds_agree(&self) -> bool {
        self.repeats_within().is_some_and(|range| range <= AGREEMENT)
    }

    fn has_enough_sentinels(&self) -> bool {
        self.usable_sentinels().count() as f64 >= USABLE_LEAST * self.sentinels.len() as f64
    }

    fn is_settled(&self) -> bool {
        self.do_rounds_agree() && self.has_enough_sentinels()
    }

    /// Returns whether `other` (same predictor) is not settled, and this calibration has enough sentinels where `other` has
    /// not, or its rounds agree better.
    pub fn is_better_than(&self, other: &Calibration) -> bool {
        let rank = |one: &Calibration| (!one.has_enough_sentinels(), one.repeats_within().unwrap_or(f64::INFINITY));
        self.data_hash == other.data_hash && !other.is_settled() && rank(self) < rank(other)
    }

    /// Reads a calibration; fails if it was made for another predictor.
    pub fn read_for(path: &Path, predictor: &Predictor) -> Result<Calibration> {
        let known = Calibration::read_file(path)?;
        if known.data_hash != predictor.about.data_hash {
            let problem = format!("the calibration `{}` was made for another predictor", path.display());
            return Err(Error::Query(format!("{problem}; `oppredict adapt --this-host` creates one")));
        }
        Ok(known)
    }

    pub fn read_file(path: &Path) -> Result<Calibration> {
        let refuse = |problem: String| {
            Error::Query(format!(
                "cannot use the calibration `{}`: {problem}; `oppredict adapt --this-host` creates a new one",
                path.display()
            ))
        };
        let text = read_bounded(path, MOST_BYTES)?;
        let known: Calibration = serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))?;
        let is_sound = |one: &Sentinel| {
            TIMES_NS.contains(&one.measured_ns)
                && TIMES_NS.contains(&one.predicted_ns)
                && RATIOS.contains(&one.scale)
                && (0.0..=RATIOS.end().ln()).contains(&one.half_width)
                && one.uncertainty.is_none_or(|share| share >= 0.0)
        };
        let has_sound_peaks = match &known.peaks {
            Some(peaks) => {
                let compute = peaks.compute.iter().map(|peak| peak.flops_per_second);
                let mut rates = compute.chain(peaks.memory.iter().map(|peak| peak.bytes_per_second));
                let is_complete = !peaks.compute.is_empty() && !peaks.memory.is_empty();
                is_complete && peaks.is_sound() && rates.all(|rate| RATES.contains(&rate))
            }
            None => known.sentinels.iter().all(|one| one.scale == unscaled()),
        };
        match known.usable_sentinels().count() >= FEWEST && known.sentinels.iter().all(is_sound) && has_sound_peaks {
            true => Ok(known),
            false => Err(refuse("a value is out of range".to_owned())),
        }
    }

    pub fn usable_sentinels(&self) -> impl Iterator<Item = &Sentinel> {
        self.sentinels.iter().filter(|one| one.is_known())
    }

    pub fn overall_distance(&self) -> Distance {
        let factor = mean_of(self.usable_sentinels().map(Sentinel::log_ratio));
        let width = self.log_half_width();
        Distance { factor: factor.exp(), low: (factor - width).exp(), high: (factor + width).exp() }
    }

    pub fn host_translation(&self, cpus: usize) -> HostTranslation {
        HostTranslation {
            host_class: self.host_class.clone(),
            learned_on: self.learned_on.clone(),
            distance: self.overall_distance(),
            sentinels: self.usable_sentinels().count(),
            cpus,
            peaks: self.peaks.clone(),
            factors: self.factors(None),
            extra_variance: self.extra_variance(),
        }
    }

    /// Returns the factors of the sentinels, without those of one operator.
    fn factors(&self, without: Option<&str>) -> Factors {
        let taken: Vec<&Sentinel> =
            self.usable_sentinels().filter(|one| Some(one.operator.as_str()) != without).collect();
        let common = mean_of(taken.iter().map(|one| one.log_ratio()));
        let shrunk = |is_alike: &dyn Fn(&Sentinel) -> bool| {
            let alike: Vec<f64> = taken.iter().filter(|one| is_alike(one)).map(|one| one.log_ratio()).collect();
            ((alike.iter().sum::<f64>() + TOWARDS_COMMON * common) / (alike.len() as f64 + TOWARDS_COMMON)).exp()
        };
        let mut factors = Factors { common: common.exp(), ..Factors::default() };
        for Sentinel { kind, bound, .. } in &taken {
            factors.bounds.entry(bound.clone()).or_insert_with(|| shrunk(&|one| one.bound == *bound));
            // Older files state no kind.
            if !kind.is_empty() {
                let of_kind = factors.kinds.entry(kind.clone()).or_default();
                of_kind.all = shrunk(&|one| one.kind == *kind);
                of_kind.bounds.insert(bound.clone(), shrunk(&|one| one.kind == *kind && one.bound == *bound));
            }
        }
        factors
    }

    /// Returns the log factor of a sentinel as predicted from the other operators.
    fn log_ratio_of_others(&self, one: &Sentinel) -> f64 {
        self.factors(Some(&one.operator)).find_factor(&one.kind, &one.bound).ln()
    }

    /// Returns the half-width of a 90 % interval in log space, from the leave-one-out errors of the sentinels. Errors beyond
    /// three standard deviations, estimated from the median error, count as three.
    fn log_half_width(&self) -> f64 {
        /// Student's t, two-sided 90 %, by degrees of freedom.
        const STUDENT: [f64; 10] = [6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83, 1.81];
        let operators: BTreeSet<&str> = self.usable_sentinels().map(|one| one.operator.as_str()).collect();
        let mut errors: Vec<f64> =
            self.usable_sentinels().map(|one| (one.log_ratio() - self.log_ratio_of_others(one)).abs()).collect();
        let most = OUTLIER * median(&mut errors);
        let square = mean_of(errors.iter().map(|error| error.min(most).powi(2)));
        STUDENT[(operators.len().max(2) - 1).min(STUDENT.len()) - 1] * square.sqrt()
    }

    /// Returns the variance to add to squared half-widths of predictions, so that intervals match the observed errors.
    fn extra_variance(&self) -> f64 {
        // Kinds with wide intervals must not keep those of the others narrow.
        let own = median(&mut self.usable_sentinels().map(|one| one.half_width * one.half_width).collect::<Vec<f64>>());
        (self.log_half_width().powi(2) - own).max(0.0)
    }
}

fn repeat_until_settled(
    wait: Duration,
    pause: Duration,
    mut measure: impl FnMut() -> Result<Calibration>,
    mut note: impl FnMut(&str),
) -> Result<Calibration> {
    let end = Instant::now() + wait;
    let mut best: Option<Calibration> = None;
    loop {
        let problem = match measure() {
            Ok(known) if known.is_settled() => return Ok(known),
            Ok(known) => {
                let problem = match known.has_enough_sentinels() {
                    true => format!("the rounds do not agree within {:.0} %", 100.0 * AGREEMENT),
                    false => format!("more than {:.0} % of the sentinels are noisy", 100.0 * (1.0 - USABLE_LEAST)),
                };
                if best.as_ref().is_none_or(|best| known.is_better_than(best)) {
                    best = Some(known);
                }
                problem
            }
            // The machine may be in use; other errors do not pass with time.
            Err(error @ Error::Probe(_)) if Instant::now() < end || best.is_some() => error.to_string(),
            Err(error) => return Err(error),
        };
        let left = end.saturating_duration_since(Instant::now());
        if let Some(best) = best.take_if(|_| left.is_zero()) {
            return Ok(best);
        }
        note(&format!("{problem}; measuring again (the last repetition begins within {:.0} s)", left.as_secs_f64()));
        std::thread::sleep(pause.min(left));
    }
}

/// Returns the device of the training data; fails if there are several.
pub fn learned_on(predictor: &Predictor) -> Result<String> {
    queries::find_device(predictor, &Setting::default()).map(str::to_owned)
}

fn mean_of(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, count), value| (sum + value, count + 1));
    sum / count.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use learn::predictor::{Basis, Prediction};
    use samples::features::{View, Work};
    use serde_json::json;

    fn known(ratios: &[(&str, f64)], half_width: f64) -> Calibration {
        let sentinel = |(place, (bound, ratio)): (usize, &(&str, f64))| Sentinel {
            operator: format!("relu:shape={place}"),
            kind: String::new(),
            threads: 1,
            bound: (*bound).to_owned(),
            measured_ns: 1e5 * ratio,
            rounds_ns: Vec::new(),
            uncertainty: Some(0.01),
            predicted_ns: 1e5,
            scale: 1.0,
            half_width,
        };
        Calibration {
            program_version: "0".to_owned(),
            host_class: "here".to_owned(),
            learned_on: "there".to_owned(),
            data_hash: "0".to_owned(),
            sentinels: ratios.iter().enumerate().map(sentinel).collect(),
            peaks: None,
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
            wide: None,
            this_host: None,
        }
    }

    fn small_work() -> Work {
        queries::parse_operator("relu:shape=10", None).expect("an operator").work
    }

    #[test]
    fn a_machine_twice_as_slow_takes_twice_as_long_and_no_interval_grows() {
        let known = known(&[("arithmetic", 2.0); 10], 0.1);
        let distance = known.overall_distance();
        assert!([distance.factor, distance.low, distance.high].iter().all(|one| (one - 2.0).abs() < 1e-9));
        let mut prediction = answer("memory");
        prediction.translate_to_host(&known.host_translation(1), "relu", &small_work());
        assert!((prediction.time_ns - 2000.0).abs() < 1e-6 && (prediction.low_ns - 1800.0).abs() < 1e-6);
        assert!((prediction.attainable_ns - 1000.0).abs() < 1e-6);
    }

    /// 1,000 operations per nanosecond, 100 bytes per nanosecond up to 1 MiB and 10 above.
    fn peaks() -> Peaks {
        let of_set = |(working_set_bytes, bytes_per_second)| {
            json!({ "threads": 1, "working_set_bytes": working_set_bytes, "bytes_per_second": bytes_per_second,
                "measurements": 2, "spread": 0.0, "is_reached": false })
        };
        let compute = json!([{ "threads": 1, "flops_per_second": 1e12, "measurements": 2, "spread": 0.0,
            "is_reached": false }]);
        let memory = [(1024, 1e11), (1 << 20, 1e10)].map(of_set);
        serde_json::from_value(json!({ "compute": compute, "memory": memory })).expect("peaks")
    }

    #[test]
    fn times_follow_the_peak_rates_of_the_level_that_holds_the_data() {
        let mut known = known(&[("memory", 1.0); 10], 0.1);
        known.peaks = Some(peaks());
        let work = |bytes: f64, flops: f64| Work {
            bytes_in: bytes,
            bytes_out: 0.0,
            bytes_weights: 0.0,
            flops,
            ..small_work()
        };
        let converted = |known: &Calibration, basis: Basis, work: &Work| {
            let mut prediction = Prediction { basis, ..answer("memory") };
            prediction.translate_to_host(&known.host_translation(1), "relu", work);
            prediction
        };
        // Its attainable time was 500 ns on the machine of the training data.
        for (work, attainable_ns, bound) in
            [(work(5e4, 1e3), 500.0, "memory"), (work(5e6, 1e3), 5e5, "memory"), (work(5e4, 2e6), 2000.0, "arithmetic")]
        {
            let prediction = converted(&known, Basis::Learned, &work);
            assert!((prediction.attainable_ns / attainable_ns - 1.0).abs() < 1e-9, "{prediction:?}");
            assert!((prediction.time_ns / (2.0 * attainable_ns) - 1.0).abs() < 1e-9, "{prediction:?}");
            assert_eq!(prediction.bound, bound);
        }
        known.sentinels.iter_mut().for_each(|one| one.measured_ns *= 3.0);
        let bound = converted(&known, Basis::Bound, &work(5e6, 1e3));
        assert!((bound.time_ns - 1e6).abs() < 1e-3, "a bound by the peaks of this machine needs no factor: {bound:?}");
        known.sentinels.iter_mut().for_each(|one| one.scale = 3.0);
        assert!((known.overall_distance().factor - 1.0).abs() < 1e-9, "the peaks explain the difference");
    }

    #[test]
    fn the_error_of_one_operator_unlike_the_others_is_capped() {
        let ratio = |place: usize| if place.is_multiple_of(2) { 0.95 } else { 1.05 };
        let width = |last: f64| {
            let mut ratios: Vec<(&str, f64)> = (0..9).map(|place| ("memory", ratio(place))).collect();
            ratios.push(("memory", last));
            known(&ratios, 0.0).log_half_width()
        };
        let (usual, with_outlier) = (width(1.0), width(0.2));
        // The root of the mean square of all errors would give 1.1.
        assert!(usual < 0.15 && with_outlier < 0.7, "{usual} {with_outlier}");
    }

    #[test]
    fn what_is_bound_alike_has_a_factor_of_its_own() {
        let mut ratios = vec![("arithmetic", 1.0); 5];
        ratios.extend([("memory", 3.0); 5]);
        let known = known(&ratios, 0.1);
        let time = |bound: &'static str| {
            let mut prediction = answer(bound);
            prediction.translate_to_host(&known.host_translation(1), "relu", &small_work());
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
        prediction.translate_to_host(&known(&ratios, 0.1).host_translation(1), "relu", &small_work());
        assert!(prediction.low_ns < 0.4 * prediction.time_ns && prediction.high_ns > 2.5 * prediction.time_ns);
        let mut bound = Prediction { basis: Basis::Bound, high_ns: f64::NAN, ..answer("memory") };
        bound.translate_to_host(&known(&ratios, 0.1).host_translation(1), "relu", &small_work());
        assert!(bound.high_ns.is_nan() && bound.low_ns > 0.0, "what is no more than a bound stays one");
        let low = known(&ratios, 0.1).overall_distance().low;
        assert!(low < 0.6 && (bound.time_ns - 1000.0 * low).abs() < 1e-6, "the mean factor is no bound: {bound:?}");
    }

    #[test]
    fn a_kind_that_was_measured_has_a_factor_of_its_own() {
        let mut known =
            known(&[("arithmetic", 1.0), ("arithmetic", 1.1), ("arithmetic", 3.0), ("arithmetic", 3.3)], 0.1);
        known.sentinels[2..].iter_mut().for_each(|one| one.kind = "conv2d".to_owned());
        let time = |kind: &str| {
            let mut prediction = answer("arithmetic");
            prediction.translate_to_host(&known.host_translation(1), kind, &small_work());
            prediction.time_ns / 1000.0
        };
        assert!(time("conv2d") > 2.5 && time("relu") < 2.2, "{} {}", time("conv2d"), time("relu"));
    }

    /// A weight stream is limited by memory, large products of the same kind by arithmetic.
    #[test]
    fn a_kind_has_a_factor_for_each_bottleneck() {
        let mut known = known(&[("memory", 1.0), ("memory", 1.0), ("arithmetic", 2.0), ("arithmetic", 2.0)], 0.1);
        known.sentinels[..2].iter_mut().for_each(|one| one.kind = "dense".to_owned());
        let time = |known: &Calibration, bound: &'static str| {
            let mut prediction = answer(bound);
            prediction.translate_to_host(&known.host_translation(1), "dense", &small_work());
            prediction.time_ns / 1000.0
        };
        let (memory, arithmetic) = (time(&known, "memory"), time(&known, "arithmetic"));
        assert!(memory < 1.2 && arithmetic > 1.3 && arithmetic < 1.6, "both count alike: {memory} {arithmetic}");
        known.sentinels[2..].iter_mut().for_each(|one| one.kind = "dense".to_owned());
        let (memory, arithmetic) = (time(&known, "memory"), time(&known, "arithmetic"));
        assert!(memory < 1.2 && arithmetic > 1.7, "{memory} {arithmetic}");
    }

    #[test]
    fn kinds_with_wide_intervals_do_not_keep_those_of_others_narrow() {
        let ratios: Vec<(&str, f64)> =
            (0..10).map(|place| ("memory", if place % 2 == 0 { 0.7 } else { 1.4 })).collect();
        let mut known = known(&ratios, 0.1);
        known.sentinels[..3].iter_mut().for_each(|one| one.half_width = 3.0);
        let mut prediction = answer("memory");
        prediction.translate_to_host(&known.host_translation(1), "relu", &small_work());
        assert!(prediction.high_ns > 1.4 * prediction.time_ns, "{prediction:?}");
    }

    #[test]
    fn the_calibration_whose_rounds_agree_is_the_better_one() {
        let in_rounds = |spread: f64| {
            let mut known = known(&[("memory", 1.0), ("memory", 1.1), ("memory", 1.2), ("memory", 1.3)], 0.1);
            for one in &mut known.sentinels {
                one.rounds_ns = vec![Some(one.measured_ns), None, Some(one.measured_ns * (1.0 + spread))];
            }
            known
        };
        let (quiet, busy) = (in_rounds(0.01), in_rounds(0.2));
        assert!((busy.repeats_within().expect("two rounds") - 0.2).abs() < 1e-9);
        assert!(
            quiet.is_better_than(&busy) && !busy.is_better_than(&quiet) && !in_rounds(0.005).is_better_than(&quiet)
        );
        assert!(!Calibration { data_hash: "other".to_owned(), ..quiet.clone() }.is_better_than(&busy));
        let of_older_version = known(&[("memory", 1.0); 4], 0.1);
        assert!(quiet.repeats_within().is_some() && !of_older_version.is_better_than(&busy));
        let mut one_round = quiet.clone();
        one_round.sentinels.iter_mut().for_each(|one| one.rounds_ns[0] = None);
        assert_eq!(one_round.repeats_within(), None, "a single round agrees with itself");
        let mut noisy = quiet.clone();
        let unknown = Sentinel { uncertainty: Some(0.7), ..quiet.sentinels[0].clone() };
        noisy.sentinels.extend(vec![unknown; 4]);
        assert!(in_rounds(0.02).is_better_than(&noisy) && !noisy.is_better_than(&in_rounds(0.02)));
    }

    #[test]
    fn a_measurement_is_repeated_until_it_is_settled() {
        let in_rounds = |spread: f64| {
            let mut known = known(&[("memory", 1.0); 4], 0.1);
            for one in &mut known.sentinels {
                one.rounds_ns = vec![Some(one.measured_ns), Some(one.measured_ns * (1.0 + spread))];
            }
            known
        };
        let repeat = |wait_ms: u64, spreads: &[Option<f64>]| {
            let (mut spreads, mut notes) = (spreads.iter(), Vec::new());
            let measure = || match spreads.next() {
                Some(Some(spread)) => Ok(in_rounds(*spread)),
                Some(None) => Err(Error::Probe("the CPUs are in use".to_owned())),
                None => {
                    std::thread::sleep(Duration::from_millis(wait_ms));
                    Ok(in_rounds(0.5))
                }
            };
            let wait = Duration::from_millis(wait_ms);
            let known = repeat_until_settled(wait, Duration::ZERO, measure, |note| notes.push(note.to_owned()));
            (known.map(|known| known.repeats_within().expect("two rounds")), notes)
        };
        let near = |found: Result<f64>, spread: f64| (found.expect("a calibration") - spread).abs() < 1e-9;
        let (found, notes) = repeat(60_000, &[None, Some(0.2), Some(0.01)]);
        assert!(near(found, 0.01) && notes.len() == 2, "{notes:?}");
        assert!(notes[0].contains("in use") && notes[1].contains("do not agree within 3 %"), "{notes:?}");
        assert!(near(repeat(20, &[Some(0.2), Some(0.1), Some(0.3)]).0, 0.1), "the best one remains");
        assert!(near(repeat(0, &[Some(0.2), Some(0.01)]).0, 0.2), "without patience there is one measurement");
        assert!(repeat(0, &[None, Some(0.01)]).0.is_err());
    }

    #[test]
    fn what_others_disturbed_does_not_count() {
        let mut known = known(&[("memory", 2.0); 6], 0.1);
        let disturbed = Sentinel { measured_ns: 1e9, uncertainty: Some(0.7), ..known.sentinels[0].clone() };
        known.sentinels.push(disturbed);
        let without_interval = Sentinel { measured_ns: 1e9, uncertainty: None, ..known.sentinels[0].clone() };
        known.sentinels.push(without_interval);
        assert!((known.overall_distance().factor - 2.0).abs() < 1e-9);
        known.sentinels.iter_mut().for_each(|one| one.uncertainty = None);
        assert_eq!(known.usable_sentinels().count(), 0, "too few runs say nothing of how well a median is known");
    }

    #[test]
    fn files_that_make_no_sense_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c.json");
        let mut sound = known(&[("memory", 1.0); 10], 0.1);
        std::fs::write(&path, serde_json::to_vec(&sound).expect("JSON")).expect("written");
        assert_eq!(Calibration::read_file(&path).expect("sound"), sound);
        sound.peaks = Some(peaks());
        let text = serde_json::to_value(&sound).expect("JSON");
        let changed = |(place, value): (&str, serde_json::Value)| {
            let mut text = text.clone();
            *text.pointer_mut(place).expect("a value") = value;
            text.to_string()
        };
        let implausible = [
            ("/sentinels/3/measured_ns", json!(-1)),
            ("/sentinels/3/predicted_ns", json!(1e300)),
            ("/sentinels/3/scale", json!(1e300)),
            ("/sentinels/3/uncertainty", json!(-1)),
            ("/sentinels/3/half_width", json!(-1)),
            ("/peaks/memory/0/bytes_per_second", json!(1e-300)),
            ("/peaks/memory", json!([])),
        ];
        sound.peaks = None;
        sound.sentinels[3].scale = 2.0;
        let unscaled = serde_json::to_string(&sound).expect("JSON");
        for text in implausible.map(changed).into_iter().chain([unscaled, "{}".to_owned(), String::new()]) {
            std::fs::write(&path, text).expect("written");
            let refused = Calibration::read_file(&path).expect_err("it makes no sense").to_string();
            assert!(refused.contains("adapt --this-host"), "{refused}");
        }
    }
}
