//! Evaluates whole neural networks: compares the sums of their operators' predicted and measured times.
//!
//! Each operator is counted as often as it occurs, with its default schedule. Both sums only cover operators that were
//! measured. A network with too few measured operators is listed, but not scored.

use super::HeldOutPredictions;
use super::metrics::bootstrap_interval;
use samples::statistics::median;
use samples::{Network, Samples};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Share of a network's operators that must be measured for the network to be scored.
const WHOLE: f64 = 0.9;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndToEnd {
    pub networks: Vec<NetworkResult>,
    pub learners: BTreeMap<String, NetworkScores>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NetworkResult {
    pub name: String,
    /// Device and number of threads.
    pub setting: String,
    /// Number of operators, counting repetitions.
    pub operators: f64,
    pub measured: f64,
    pub measured_ns: f64,
    pub predicted_ns: BTreeMap<String, f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NetworkScores {
    pub networks: usize,
    pub mape: f64,
    /// 95 % confidence interval of the MAPE, by resampling networks with all their settings.
    #[serde(default)]
    pub mape_interval: (f64, f64),
    pub hit5: f64,
    pub hit10: f64,
}

impl NetworkResult {
    pub fn is_measured(&self) -> bool {
        self.measured >= WHOLE * self.operators
    }

    pub fn error_percent(&self, learner: &str) -> Option<f64> {
        self.predicted_ns.get(learner).map(|predicted| 100.0 * (predicted / self.measured_ns - 1.0))
    }
}

/// Index of a device, and the bits of a thread count as a float; these have the same order as the number.
type Setting = (u32, u64);

/// Sums predictions over the held-out networks of each split; None if no networks were held out.
pub(super) fn end_to_end(
    samples: &Samples,
    answers: &BTreeMap<String, HeldOutPredictions>,
    held: &[&[usize]],
) -> Option<EndToEnd> {
    let mut networks: BTreeMap<(usize, Setting), NetworkResult> = BTreeMap::new();
    for (learner, known) in answers {
        for (split, range) in &known.splits {
            let by_setting = default_times(samples, &known.rows[range.clone()], &known.predicted[range.clone()]);
            for place in held.get(*split).copied().unwrap_or_default() {
                for (setting, times) in &by_setting {
                    let entry = networks
                        .entry((*place, *setting))
                        .or_insert_with(|| network_result(samples, &samples.networks[*place], *setting, times));
                    let uses = samples.networks[*place].uses.iter();
                    let predicted = uses.filter_map(|(shape, count)| Some(count * times.get(shape)?.1));
                    entry.predicted_ns.insert(learner.clone(), predicted.sum());
                }
            }
        }
    }
    let networks: Vec<NetworkResult> = networks.into_values().filter(|network| network.measured > 0.0).collect();
    let learners =
        answers.keys().filter_map(|learner| Some((learner.clone(), network_scores(&networks, learner)?))).collect();
    (!networks.is_empty()).then_some(EndToEnd { networks, learners })
}

fn network_result(
    samples: &Samples,
    network: &Network,
    setting: Setting,
    times: &BTreeMap<u64, (f64, f64)>,
) -> NetworkResult {
    let measured: Vec<(f64, f64)> =
        network.uses.iter().filter_map(|(shape, count)| Some((*count, count * times.get(shape)?.0))).collect();
    let (device, threads) = (&samples.devices[setting.0 as usize].0, f64::from_bits(setting.1));
    let own = if network.setting.is_empty() { String::new() } else { format!("{}, ", network.setting) };
    NetworkResult {
        name: network.name.clone(),
        setting: format!("{own}{}, {device}", report::format_count(threads, "thread")),
        operators: network.uses.values().sum(),
        measured: measured.iter().map(|(count, _)| count).sum(),
        measured_ns: measured.iter().map(|(_, time)| time).sum(),
        predicted_ns: BTreeMap::new(),
    }
}

/// Returns, for each setting and shape, the median measured and predicted time with the default schedule.
fn default_times(samples: &Samples, rows: &[usize], predicted: &[f64]) -> BTreeMap<Setting, BTreeMap<u64, (f64, f64)>> {
    type Times = (Vec<f64>, Vec<f64>);
    let mut all: BTreeMap<Setting, BTreeMap<u64, Times>> = BTreeMap::new();
    for (row, prediction) in rows.iter().zip(predicted) {
        let sample = &samples.rows[*row];
        if sample.is_default {
            let of_setting = all.entry((sample.device, sample.threads.to_bits())).or_default();
            let (measured, predictions) = of_setting.entry(sample.shape).or_default();
            measured.push(sample.time_ns);
            predictions.push(*prediction);
        }
    }
    let middle = |(shape, (mut measured, mut predictions)): (u64, Times)| {
        (shape, (median(&mut measured), median(&mut predictions)))
    };
    all.into_iter().map(|(setting, shapes)| (setting, shapes.into_iter().map(middle).collect())).collect()
}

fn network_scores(networks: &[NetworkResult], learner: &str) -> Option<NetworkScores> {
    let counted = networks.iter().filter(|network| network.is_measured());
    let with_error = counted.filter_map(|network| Some((network.name.as_str(), network.error_percent(learner)?.abs())));
    let (names, errors): (Vec<&str>, Vec<f64>) = with_error.unzip();
    let count = errors.len() as f64;
    let within = |most: f64| 100.0 * errors.iter().filter(|error| **error <= most).count() as f64 / count;
    (!errors.is_empty()).then(|| NetworkScores {
        networks: errors.len(),
        mape: errors.iter().sum::<f64>() / count,
        mape_interval: bootstrap_interval(&errors, &names),
        hit5: within(5.0),
        hit10: within(10.0),
    })
}
