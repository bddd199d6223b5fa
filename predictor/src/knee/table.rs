//! Finds the knee of an operator on a device from measurements in the rows of a table.

use super::{Knee, Probe, ScalingPosterior, ScalingPrior, knee_of_curve};
use crate::error::{Error, Result};
use samples::statistics::median;
use samples::table::ThreadCurve;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TableKnee {
    #[serde(flatten)]
    pub knee: Knee,
    pub machines: usize,
    /// Thread count to measure next; None if all were measured.
    pub next_probe: Option<f64>,
    /// Slowdown in percent of the chosen thread count, relative to the fastest row; None if all rows were probes.
    pub regret_percent: Option<f64>,
    /// Measured thread counts whose rows contradict each other.
    pub contradictions: Vec<Contradiction>,
}

/// Rows of one thread count whose times differ by more than measurements do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Contradiction {
    pub at: f64,
    pub rows: usize,
    pub low_ns: f64,
    pub high_ns: f64,
}

/// Ratio of two times of one thread count from which they contradict each other.
const CONTRADICTORY: f64 = 1.25;

/// Finds a knee from all rows, or from `most_probes` rows chosen one by one, optionally up to `most_threads`.
pub fn find_table_knee(
    curves: &[ThreadCurve],
    operator: &str,
    device: &str,
    most_probes: Option<usize>,
    most_threads: Option<u32>,
) -> Result<TableKnee> {
    let known: BTreeSet<&str> =
        curves.iter().filter(|curve| curve.operator == operator).map(|curve| curve.device.as_str()).collect();
    let device = match models::names::resolve_device(known.iter().copied(), device) {
        Ok(found) => found,
        // A new device is answered up to a stated number of threads.
        Err(problem) if most_threads.is_none() && !known.is_empty() => return Err(Error::Query(problem)),
        Err(_) => device,
    };
    let times = measured_times(curves, operator, device)?;
    let mut rows: BTreeMap<u32, f64> = times.iter().map(|(at, times)| (*at, median(&mut times.clone()))).collect();
    let mut threads: Vec<f64> = rows.keys().map(|count| f64::from(*count)).collect();
    if let Some(most) = most_threads {
        rows.retain(|count, _| *count <= most);
        threads.extend(thread_counts_up_to(most).into_iter().map(f64::from));
        threads.retain(|count| *count <= f64::from(most));
        threads.sort_by(f64::total_cmp);
        threads.dedup();
    }
    if threads.len() < 2 {
        let hint = match most_threads {
            Some(_) => "give a larger --most-threads",
            None => "measure it with more threads",
        };
        let problem = format!("`{operator}` on `{device}` has fewer than two thread counts; {hint}");
        return Err(Error::Query(problem));
    }
    let prior = ScalingPrior::learn_prior(curves, device);
    let mut posterior = ScalingPosterior::from_prior(&prior, &threads);
    let time_ns = |at: f64| rows.get(&(at as u32)).copied();
    let mut probes = Vec::new();
    while probes.len() < most_probes.unwrap_or(rows.len()) {
        let open = |at: &f64| time_ns(*at).is_some() && !probes.iter().any(|probe: &Probe| probe.at == *at);
        let best = posterior.by_probability().into_iter().find(open);
        let Some((at, measured_ns)) = best.and_then(|at| Some((at, time_ns(at)?))) else { break };
        let predicted_ns = match probes.is_empty() {
            true => f64::NAN,
            false => {
                posterior.expected_curve().iter().find(|point| point.at == at).map_or(f64::NAN, |point| point.time_ns)
            }
        };
        posterior.condition_on(at, measured_ns);
        probes.push(Probe { at, predicted_ns, measured_ns, cv: None, uncertainty: None });
    }
    let next_probe = posterior.next_probe();
    if probes.is_empty() {
        let at = next_probe.unwrap_or(1.0);
        let problem =
            format!("the table has no row of `{operator}` on `{device}`; measure it with {at} threads and add the row");
        return Err(Error::Query(problem));
    }
    let mut curve = posterior.expected_curve();
    let mut contradictions = Vec::new();
    for point in curve.iter_mut().filter(|point| probes.iter().any(|probe| probe.at == point.at)) {
        let own = times.get(&(point.at as u32)).map_or(&[][..], Vec::as_slice);
        let (low_ns, high_ns) =
            own.iter().fold((f64::INFINITY, 0.0f64), |(low, high), time| (low.min(*time), high.max(*time)));
        if high_ns > CONTRADICTORY * low_ns {
            // The time is somewhere between the rows, which no posterior of their median knows.
            (point.low_ns, point.high_ns) = (point.low_ns.min(low_ns), point.high_ns.max(high_ns));
            contradictions.push(Contradiction { at: point.at, rows: own.len(), low_ns, high_ns });
        }
    }
    let found =
        knee_of_curve("threads", curve).ok_or_else(|| Error::Query("the curve has only one point".to_owned()))?;
    let fastest_ns = rows.values().copied().fold(f64::INFINITY, f64::min);
    let regret = time_ns(found.fastest).map(|time| 100.0 * (time / fastest_ns - 1.0));
    Ok(TableKnee {
        machines: prior.machines.len(),
        next_probe,
        regret_percent: regret.filter(|_| probes.len() < rows.len()),
        contradictions,
        knee: Knee { probes, ..found },
    })
}

/// Returns the thread counts 1, 2, 3, 4, 6, 8, 12, … below `most`, and `most`.
fn thread_counts_up_to(most: u32) -> Vec<u32> {
    let powers = (0..31).flat_map(|power| [1 << power, 3 << power]);
    let mut counts: Vec<u32> = powers.filter(|count: &u32| *count < most).chain([most]).collect();
    counts.sort_unstable();
    counts
}

fn measured_times(curves: &[ThreadCurve], operator: &str, device: &str) -> Result<BTreeMap<u32, Vec<f64>>> {
    if !curves.iter().any(|curve| curve.operator == operator) {
        return Err(Error::unknown_name("operator", operator, curves.iter().map(|curve| curve.operator.as_str())));
    }
    let mut times: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for curve in curves.iter().filter(|curve| curve.operator == operator && curve.device == device) {
        curve.points.iter().for_each(|(at, time_ns)| times.entry(*at as u32).or_default().push(*time_ns));
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(operator: &str, device: &str, points: &[(f64, f64)]) -> ThreadCurve {
        ThreadCurve { operator: operator.to_owned(), device: device.to_owned(), points: points.to_vec() }
    }

    #[test]
    fn counts_end_at_the_largest() {
        assert_eq!(thread_counts_up_to(1), [1]);
        assert_eq!(thread_counts_up_to(12), [1, 2, 3, 4, 6, 8, 12]);
        assert_eq!(thread_counts_up_to(10), [1, 2, 3, 4, 6, 8, 10]);
    }

    #[test]
    fn a_new_machine_is_answered_from_its_rows_alone() {
        let other = [(1.0, 8e6), (2.0, 4.2e6), (4.0, 2.4e6), (8.0, 1.6e6), (16.0, 1.5e6), (32.0, 1.9e6)];
        let curves = [
            curve("net", "known", &other),
            curve("net", "new", &[(16.0, 1e6), (8.0, 1.1e6)]),
            curve("net", "new", &[(16.0, 1.2e6)]),
        ];
        let found = find_table_knee(&curves, "net", "new", None, Some(32)).expect("an answer");
        assert_eq!((found.machines, found.knee.probes.len()), (1, 2));
        assert_eq!(found.knee.probes[0].measured_ns.max(found.knee.probes[1].measured_ns), 1.1e6);
        let next = found.next_probe.expect("open counts");
        assert!(next != 16.0 && next != 8.0, "{next}");
        let first = find_table_knee(&curves, "net", "newer", None, Some(32)).expect_err("no row").to_string();
        assert!(first.contains("measure it with"), "{first}");
        let unknown = find_table_knee(&curves, "net", "newer", None, None).expect_err("no device").to_string();
        assert!(unknown.contains("unknown device `newer`"), "{unknown}");
        let named = [curve("net", "Vendor 7260 (x64 cores)", &other), curve("net", "Vendor 5220", &other)];
        let by_word = find_table_knee(&named, "net", "7260", None, None).expect("a word of one device");
        let by_name = find_table_knee(&named, "net", "Vendor 7260 (x64 cores)", None, None).expect("its name");
        assert_eq!(format!("{by_word:?}"), format!("{by_name:?}"));
        let several = find_table_knee(&named, "net", "vendor", None, None).expect_err("two devices").to_string();
        assert!(several.contains("matches several devices"), "{several}");
        let unknown = find_table_knee(&curves, "nets", "new", None, None).expect_err("no operator").to_string();
        assert!(unknown.contains("net"), "{unknown}");
    }

    #[test]
    fn rows_that_contradict_each_other_widen_the_interval() {
        let curves = [
            curve("net", "one", &[(1.0, 10e6), (2.0, 5.2e6), (4.0, 3e6), (8.0, 4e6)]),
            curve("net", "one", &[(2.0, 5.3e6), (4.0, 9e6)]),
        ];
        let found = find_table_knee(&curves, "net", "one", None, None).expect("an answer");
        assert_eq!(found.contradictions, [Contradiction { at: 4.0, rows: 2, low_ns: 3e6, high_ns: 9e6 }]);
        let point = found.knee.curve.iter().find(|point| point.at == 4.0).expect("a point");
        assert!(point.low_ns <= 3e6 && point.high_ns >= 9e6, "{point:?}");
    }

    #[test]
    fn fewer_probes_than_rows_say_what_they_lose() {
        let times = [(1.0, 8e6), (2.0, 4.2e6), (4.0, 2.4e6), (8.0, 1.6e6), (16.0, 1.5e6), (32.0, 1.9e6)];
        let curves = [curve("net", "one", &times), curve("net", "two", &times.map(|(at, time)| (at, 2.0 * time)))];
        let found = find_table_knee(&curves, "net", "two", Some(3), None).expect("an answer");
        assert_eq!(found.knee.probes.len(), 3);
        assert_eq!((found.knee.fastest, found.regret_percent), (16.0, Some(0.0)));
        assert_eq!(find_table_knee(&curves, "net", "two", None, None).expect("an answer").regret_percent, None);
    }
}
