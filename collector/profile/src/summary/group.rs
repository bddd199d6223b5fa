//! Accumulation of spans into one row of the summary.

use super::threads::{Part, Spread};
use super::{Derived, GroupBy, Row, common_scope, outermost_names, sorted_copy};
use crate::data::{IN_TASKS, Operator, Profile};
use measure::counters::names::CPU_TIME;
use measure::statistics::{median_of_sorted, summarise_samples};
use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct SpanGroup {
    pub first: usize,
    pub operators: BTreeMap<u32, Vec<f64>>,
    pub own: BTreeMap<u32, Vec<f64>>,
    pub total_ns: u64,
    pub self_total_ns: u64,
    pub allocated_bytes: Option<u64>,
    pub live_bytes: Option<u64>,
    pub workspace_bytes: Option<u64>,
    pub parts: Vec<Part>,
}

pub(super) struct Sums {
    pub total_ns: u64,
    pub typical_ns: f64,
}

impl Sums {
    fn row_shares(&self, typical_ns: f64, total_ns: u64) -> (f64, f64) {
        let of = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        (of(typical_ns, self.typical_ns), of(total_ns as f64, self.total_ns as f64))
    }
}

impl SpanGroup {
    /// Returns the median self time of a call times the calls of a run, summed over the operators.
    pub(super) fn typical_ns(&self, profile: &Profile) -> f64 {
        let steps = profile.steps.len().max(1) as f64;
        self.own.values().map(|times| median_of_sorted(&sorted_copy(times)) * times.len() as f64 / steps).sum()
    }

    fn visits_ns(&self, profile: &Profile, typical_ns: f64) -> Vec<f64> {
        if profile.visits.is_empty() {
            return Vec::new();
        }
        let steps = profile.steps.len().max(1) as f64;
        let of_visit = |medians_ns: &Vec<u64>| -> f64 {
            let of = |(operator, times): (&u32, &Vec<f64>)| medians_ns[*operator as usize] as f64 * times.len() as f64;
            self.own.iter().map(of).sum::<f64>() / steps
        };
        std::iter::once(typical_ns).chain(profile.visits.iter().map(of_visit)).collect()
    }

    pub(super) fn build_row(
        &self,
        profile: &Profile,
        counted: &BTreeMap<(u32, u32), (f64, u64)>,
        sums: &Sums,
        group_by: GroupBy,
    ) -> Row {
        let members: Vec<&Operator> = self.operators.keys().map(|place| &profile.operators[*place as usize]).collect();
        let first = members[0];
        let scope = members.iter().skip(1).fold(first.scope.as_str(), |all, one| common_scope(all, &one.scope));
        let times = sorted_copy(&self.operators.values().flatten().copied().collect::<Vec<f64>>());
        let numbers = summarise_samples(&times).expect("a group has at least one span");
        let calls = times.len() as u64;
        let typical_ns = self.typical_ns(profile);
        let (share, total_share) = sums.row_shares(typical_ns, self.self_total_ns);
        let works = Works::from_group(self, profile);
        let counters = self.mean_counters(profile, counted);
        let of_all = |is_same: fn(&Operator, &Operator) -> bool| members.iter().all(|one| is_same(one, first));
        let has_one_task = of_all(|one, first| one.task == first.task && one.text == first.text);
        Row {
            name: match group_by {
                GroupBy::Scope(levels) => outermost_names(&first.scope, levels).to_owned(),
                GroupBy::Name | GroupBy::InputShape | GroupBy::Call => first.name.clone(),
            },
            operators: self.operators.keys().copied().collect(),
            text: if has_one_task { first.text.clone() } else { String::new() },
            scope: scope.to_owned(),
            task: first.task.clone().filter(|_| has_one_task),
            schedule: first.schedule.clone().filter(|_| of_all(|one, first| one.schedule == first.schedule)),
            input_shapes: match of_all(|one, first| one.input_shapes == first.input_shapes) {
                true => first.input_shapes.clone(),
                false => Vec::new(),
            },
            has_mixed_shapes: !of_all(|one, first| one.input_shapes == first.input_shapes),
            input_dtypes: match of_all(|one, first| one.input_dtypes == first.input_dtypes) {
                true => first.input_dtypes.clone(),
                false => Vec::new(),
            },
            layout: first.layout.clone().filter(|_| of_all(|one, first| one.layout == first.layout)),
            calls,
            calls_per_step: calls as f64 / profile.steps.len().max(1) as f64,
            total_ns: self.total_ns,
            self_total_ns: self.self_total_ns,
            min_ns: numbers.min,
            median_ns: numbers.median,
            median_interval_ns: numbers.median_interval,
            mean_ns: numbers.mean,
            p95_ns: numbers.p95,
            cpu_ns: cpu_ns(&counters),
            typical_ns,
            share,
            total_share,
            visits_ns: self.visits_ns(profile, typical_ns),
            flops: works.flops.map(|flops| flops / calls as f64),
            bytes: works.bytes.map(|bytes| bytes / calls as f64),
            gflops_per_second: works.flops.map(|flops| flops / works.typical_ns),
            gbytes_per_second: works.bytes.map(|bytes| bytes / works.typical_ns),
            roofline_share: works.roofline_ns.map(|best_ns| best_ns / works.typical_ns),
            allocated_bytes: self.allocated_bytes,
            live_bytes: self.live_bytes,
            workspace_bytes: self.workspace_bytes,
            derived: Derived::from_counters(&counters, works.flops.map(|flops| flops / calls as f64), numbers.median),
            counters,
            spread: Spread::from_parts(&self.parts, times.len()),
        }
    }

    fn mean_counters(&self, profile: &Profile, counted: &BTreeMap<(u32, u32), (f64, u64)>) -> BTreeMap<String, f64> {
        let mut sums: BTreeMap<u32, (f64, u64)> = BTreeMap::new();
        for operator in self.operators.keys() {
            let calls = self.operators[operator].len() as u64;
            for ((_, counter), (sum, spans)) in counted.range((*operator, 0)..=(*operator, u32::MAX)) {
                let all = sums.entry(*counter).or_default();
                // Counts of threads cover all their tasks of a call together.
                let is_of_parts = profile.counters[*counter as usize].coverage == "task";
                *all = (all.0 + sum, all.1 + if is_of_parts { calls } else { *spans });
            }
        }
        let mean = |(counter, (sum, spans)): (u32, (f64, u64))| {
            (profile.counters[counter as usize].name.clone(), sum / spans as f64)
        };
        sums.into_iter().map(mean).collect()
    }
}

/// Returns the mean processor time of a call, preferably from tasks, since the calling thread polls while it waits.
fn cpu_ns(counters: &BTreeMap<String, f64>) -> Option<f64> {
    let in_tasks = counters.get(&format!("{CPU_TIME}{IN_TASKS}")).filter(|ns| **ns > 0.0);
    in_tasks.or(counters.get(CPU_TIME)).copied()
}

impl Derived {
    fn from_counters(counters: &BTreeMap<String, f64>, flops: Option<f64>, median_ns: f64) -> Derived {
        const LINE_BYTES: f64 = 64.0;
        let count = |name: &str| counters.get(name).copied();
        let over = |part: Option<f64>, whole: Option<f64>| {
            part.zip(whole.filter(|whole| *whole > 0.0)).map(|(part, whole)| part / whole)
        };
        let misses = count("llc_load_misses");
        Derived {
            instructions_per_cycle: over(count("instructions"), count("cycles")),
            llc_misses_per_kflop: over(misses, flops.map(|flops| flops / 1000.0)),
            llc_gbytes_per_second: over(misses.map(|misses| misses * LINE_BYTES), Some(median_ns)),
            ghz: over(count("cycles"), count(CPU_TIME)),
        }
    }
}

/// Total work of a row. A quantity that is unknown for one operator of the row is unknown for the row.
struct Works {
    typical_ns: f64,
    flops: Option<f64>,
    bytes: Option<f64>,
    roofline_ns: Option<f64>,
}

impl Works {
    fn from_group(group: &SpanGroup, profile: &Profile) -> Works {
        let mut all = Works { typical_ns: 0.0, flops: Some(0.0), bytes: Some(0.0), roofline_ns: Some(0.0) };
        for (place, times) in &group.operators {
            let (operator, calls) = (&profile.operators[*place as usize], times.len() as f64);
            let add = |sum: Option<f64>, one: Option<f64>| sum.zip(one).map(|(sum, one)| sum + calls * one);
            // A time of zero would make every rate infinite.
            all.typical_ns += calls * median_of_sorted(&sorted_copy(times)).max(1.0);
            all.flops = add(all.flops, operator.flops.map(|flops| flops as f64));
            all.bytes = add(all.bytes, operator.bytes.map(|bytes| bytes as f64));
            all.roofline_ns = add(all.roofline_ns, operator.roofline_ns);
        }
        all
    }
}
