//! Requested hardware counters that no attempt at an experiment has read.

use datasets::{Json, Key, Outcome, Record};
use report::format_count;
use serde::Serialize;
use serde::de::IgnoredAny;
use std::collections::{BTreeMap, BTreeSet};

const NO_REASON: &str = "these measurements do not read counters";

/// A requested counter that some experiments lack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UncountedCounter {
    /// Name of the counter.
    pub name: String,
    /// Number of experiments with a time but without the counter.
    pub experiments: usize,
    /// Reason at the last of these experiments.
    pub why: String,
}

/// Gathers the attempts at experiments, and finds the requested counters that none of them has read.
#[derive(Debug)]
pub struct CounterReadings<'a> {
    names: &'a [String],
    /// Experiments with a time.
    timed: BTreeSet<Key>,
    /// Experiments that have each counter.
    read: BTreeMap<&'a str, BTreeSet<Key>>,
    /// Last reason why each counter was not read.
    reasons: BTreeMap<&'a str, String>,
}

impl<'a> CounterReadings<'a> {
    /// Creates the readings of the counters that a campaign requests by name.
    pub fn new(names: &'a [String]) -> CounterReadings<'a> {
        CounterReadings { names, timed: BTreeSet::new(), read: BTreeMap::new(), reasons: BTreeMap::new() }
    }

    /// Adds an attempt.
    pub fn add_record(&mut self, record: &Record) {
        if self.names.is_empty() || record.outcome != Outcome::Ok {
            return;
        }
        self.timed.insert(record.key);
        let read: BTreeMap<String, IgnoredAny> = parse_map(record.counters.as_ref());
        let mut refused: BTreeMap<String, String> = parse_map(record.counters_refused.as_ref());
        for name in self.names {
            if read.contains_key(name) {
                self.read.entry(name).or_default().insert(record.key);
            } else if let Some(why) = refused.remove(name) {
                self.reasons.insert(name, why);
            }
        }
    }

    /// Returns the counters that some experiments lack, in the order of the request.
    pub fn find_uncounted(mut self) -> Vec<UncountedCounter> {
        let of_name = |name: &'a String| {
            let experiments = self.timed.len() - self.read.get(name.as_str()).map_or(0, BTreeSet::len);
            let why = self.reasons.remove(name.as_str()).unwrap_or_else(|| NO_REASON.to_owned());
            (experiments > 0).then(|| UncountedCounter { name: name.clone(), experiments, why })
        };
        self.names.iter().filter_map(of_name).collect()
    }
}

fn parse_map<T: serde::de::DeserializeOwned>(json: Option<&Json>) -> BTreeMap<String, T> {
    json.and_then(|json| json.parse_as().ok()).unwrap_or_default()
}

/// Formats the counters as text, one line each; empty if there are none.
pub fn describe_uncounted(uncounted: &[UncountedCounter]) -> String {
    let line = |one: &UncountedCounter| {
        format!("not counted: {} in {}: {}\n", one.name, format_count(one.experiments, "experiment"), one.why)
    };
    uncounted.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn attempt(key: u8, read: &str, refused: &str) -> Record {
        let json = |text: &str| (!text.is_empty()).then(|| Json::parse(text).expect("JSON"));
        Record {
            key: Key([key; 16]),
            outcome: Outcome::Ok,
            counters: json(read),
            counters_refused: json(refused),
            ..Record::default()
        }
    }

    #[test]
    fn a_counter_is_missing_if_no_attempt_has_it() {
        let names = ["cycles", "papi:NOSUCH", "faults"].map(str::to_owned);
        let mut readings = CounterReadings::new(&names);
        let refused = r#"{"papi:NOSUCH":"papi: no such event","cycles":"perf: not permitted"}"#;
        readings.add_record(&attempt(1, "", refused));
        readings.add_record(&attempt(1, r#"{"cycles":5.0}"#, r#"{"papi:NOSUCH":"papi: no such event"}"#));
        readings.add_record(&attempt(2, r#"{"cycles":5.0,"faults":0.0}"#, r#"{"papi:NOSUCH":"papi: gone"}"#));
        readings.add_record(&Record { outcome: Outcome::Crashed, ..attempt(3, "", "") });
        expect![[r#"
            not counted: papi:NOSUCH in 2 experiments: papi: gone
            not counted: faults in 1 experiment: these measurements do not read counters
        "#]]
        .assert_eq(&describe_uncounted(&readings.find_uncounted()));
        let mut none = CounterReadings::new(&[]);
        none.add_record(&attempt(1, "", refused));
        assert_eq!(none.find_uncounted(), []);
    }
}
