//! Operators measured in a network, compared with the same operators in isolation.
//!
//! In a network, an operator's inputs may be in the caches; in isolation, caches hold its own data of the previous run.
//! Both are compared for the same task, schedule, threads, device and code.

use super::comparable::{Comparable, Scope};
use super::{Policy, USUAL_LIMITS, device_name, experiment_uncertainty, refuse_uncertainty, repeat_uncertainties};
use crate::placed::{OperatorInNetwork, PlacedNetwork};
use crate::statistics::median;
use datasets::{CacheState, Outcome, Record, ScheduleSource};
use std::collections::BTreeMap;

/// Common properties of both measurements: device, target, task, schedule, threads.
type Experiment<'a> = (String, &'static str, &'a str, &'a str, i64);

/// Device, target, network hash and threads of a network run.
type NetworkRun<'a> = (String, &'static str, &'a str, i64);

type InNetworkRecords<'a> = BTreeMap<Experiment<'a>, Vec<&'a Record>>;

/// Returns all networks with timed operators, and the counts of rejected operator rows by reason.
pub fn placed_in_records(records: &[Record], policy: &Policy) -> (Vec<PlacedNetwork>, BTreeMap<String, u64>) {
    let mut alone: BTreeMap<Experiment<'_>, Vec<f64>> = BTreeMap::new();
    let mut wholes: BTreeMap<Experiment<'_>, Vec<f64>> = BTreeMap::new();
    let mut inside: BTreeMap<NetworkRun<'_>, InNetworkRecords<'_>> = BTreeMap::new();
    let mut left_out: BTreeMap<String, u64> = BTreeMap::new();
    let taken: Vec<&Record> = records.iter().filter(|record| is_taken(record, policy)).collect();
    let max_uncertainty = policy.max_uncertainty.unwrap_or(USUAL_LIMITS[0]);
    let uncertainties = repeat_uncertainties(taken.iter().copied());
    let is_known =
        |record: &Record| refuse_uncertainty(experiment_uncertainty(&uncertainties, record), max_uncertainty).is_none();
    let known: Vec<&Record> = taken.iter().copied().filter(|record| is_known(record)).collect();
    let comparable = Comparable::from_records(&known, policy, Scope::Networks);
    for record in taken {
        let (Some(median_ns), Some(experiment)) = (record.median_ns, experiment_of(record)) else { continue };
        let vague = || Some("median too uncertain".to_owned()).filter(|_| !is_known(record));
        if let Some(reason) = vague().or_else(|| comparable.refusal_reason(record)) {
            if record.network_hash.is_some() {
                *left_out.entry(format!("in the network, {reason}")).or_default() += 1;
            }
            continue;
        }
        match &record.network_hash {
            Some(network) => {
                let key = (device_name(record), record.target.name(), network.as_str(), record.threads.unwrap_or(1));
                inside.entry(key).or_default().entry(experiment).or_default().push(record);
            }
            None if record.is_network() => {
                let is_default = record.schedule_source == Some(ScheduleSource::Default);
                wholes.entry(experiment).or_default().extend(is_default.then_some(median_ns));
            }
            None => alone.entry(experiment).or_default().push(median_ns),
        }
    }
    let network = |((device, target, network, threads), operators): (NetworkRun<'_>, InNetworkRecords<'_>)| {
        let is_own = |known: &&Experiment<'_>| {
            known.0 == device && known.1 == target && known.2 == network && known.4 == threads
        };
        // Only operators with default schedules are used in networks.
        let whole: Vec<f64> = wholes.keys().filter(is_own).flat_map(|known| wholes[known].iter().copied()).collect();
        let placed = |(experiment, records): (&Experiment<'_>, &Vec<&Record>)| OperatorInNetwork {
            operator: records[0].op_kind.clone(),
            text: records[0].op_text.clone(),
            task: records[0].task_hash.clone(),
            count: records[0].place_count.unwrap_or(1) as f64,
            is_default: records[0].schedule_source == Some(ScheduleSource::Default),
            in_place_ns: median(&mut records.iter().filter_map(|record| record.median_ns).collect::<Vec<f64>>()),
            alone_ns: alone.get(experiment).and_then(|times| median_of(times)),
        };
        let name = operators.values().next().and_then(|records| records[0].model_name.clone()).unwrap_or_default();
        PlacedNetwork {
            name,
            device,
            threads,
            operators: operators.iter().map(placed).collect(),
            whole_ns: median_of(&whole),
        }
    };
    (inside.into_iter().map(network).collect(), left_out)
}

fn median_of(times: &[f64]) -> Option<f64> {
    (!times.is_empty()).then(|| median(&mut times.to_vec()))
}

fn experiment_of(record: &Record) -> Option<Experiment<'_>> {
    let schedule = record.schedule_hash.as_deref()?;
    let threads = record.threads.unwrap_or(1);
    Some((device_name(record), record.target.name(), &record.task_hash, schedule, threads))
}

fn is_taken(record: &Record, policy: &Policy) -> bool {
    let is_warm = record.cache_state.unwrap_or_default() == CacheState::Warm;
    record.outcome == Outcome::Ok && record.source == policy.source && record.co_run.is_none() && is_warm
}

#[cfg(test)]
mod tests {
    use super::*;
    use datasets::Source;

    fn record(task: &str, network: Option<&str>, median_ns: f64) -> Record {
        Record {
            outcome: Outcome::Ok,
            host_class: "box".to_owned(),
            op_kind: "dense".to_owned(),
            task_hash: task.to_owned(),
            network_hash: network.map(str::to_owned),
            schedule_hash: Some("s".to_owned()),
            schedule_source: Some(ScheduleSource::Default),
            threads: Some(1),
            place_count: Some(2),
            median_ns: Some(median_ns),
            median_interval_ns: Some(median_ns / 1000.0),
            schema_version: 5,
            ..Record::default()
        }
    }

    #[test]
    fn operators_meet_those_alone_by_the_same_schedule() {
        let whole = Record { op_kind: datasets::NETWORK.to_owned(), ..record("n", None, 500.0) };
        let other = Record { schedule_hash: Some("other".to_owned()), ..record("b", None, 1.0) };
        let drawn = Record {
            schedule_hash: Some("drawn".to_owned()),
            schedule_source: Some(ScheduleSource::Template),
            ..record("a", Some("n"), 70.0)
        };
        let simulated = Record { source: Source::Simulated, ..record("a", None, 1.0) };
        let vague = Record { median_interval_ns: Some(300.0), ..record("a", Some("n"), 900.0) };
        let cold = Record { cache_state: Some(CacheState::Cold), ..record("a", None, 700.0) };
        let slow_clock = Record { clock_policy: Some("powersave".to_owned()), ..record("a", None, 300.0) };
        let older = Record { code_revision: Some("0".to_owned()), started_at_us: -1, ..record("a", None, 900.0) };
        let older_inside =
            Record { started_at_us: -1, tvm_version: Some("0".to_owned()), ..record("b", Some("n"), 9.0) };
        let records = [
            record("a", Some("n"), 110.0),
            record("a", None, 100.0),
            record("b", Some("n"), 50.0),
            whole,
            other,
            drawn,
            simulated,
            vague,
            cold,
            slow_clock,
            older,
            older_inside,
        ];
        let (networks, left_out) = placed_in_records(&records, &Policy::default());
        let [network] = &networks[..] else { panic!("{networks:?}") };
        assert_eq!((network.whole_ns, network.in_place_ns(), network.total_calls()), (Some(500.0), 320.0, 4.0));
        assert_eq!(network.operators.len(), 3, "what else was timed in its place is there to learn from");
        assert_eq!(network.both_ns(), (220.0, 200.0), "of `b` nothing is known by that schedule");
        assert_eq!(left_out.values().sum::<u64>(), 2, "{left_out:?}");
    }

    /// The noise floor is known after the first visit only, so that visit has no uncertainty of its own.
    #[test]
    fn the_uncertainty_is_that_of_all_visits() {
        let visits = |key: u8, network: Option<&str>, medians: [f64; 3]| {
            let visit = |(at, median_ns): (i64, f64)| Record {
                key: datasets::Key([key; 16]),
                schema_version: datasets::SCHEMA_VERSION,
                started_at_us: at,
                noise_floor: (at > 0).then_some(0.002),
                ..record("a", network, median_ns)
            };
            (0..).zip(medians).map(visit).collect::<Vec<Record>>()
        };
        let placed = |alone: [f64; 3]| {
            let records = [visits(1, Some("n"), [110.0, 110.2, 110.1]), visits(2, None, alone)].concat();
            let (networks, left_out) = placed_in_records(&records, &Policy::default());
            (networks[0].operators[0].alone_ns, left_out.len())
        };
        assert_eq!(placed([100.0, 100.2, 100.1]), (Some(100.1), 0));
        assert_eq!(placed([100.0, 170.0, 130.0]), (None, 0));
    }
}
