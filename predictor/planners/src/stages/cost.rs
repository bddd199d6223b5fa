//! What a stage takes: its parts put into groups, and cores given to those, as it takes least.

use super::{Group, Stage};
use crate::interference::{Demand, Lane, Machine, run};

/// What stages cost beside their operators, and on what they run.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// What is shared.
    pub machine: Machine,
    /// What it takes to start groups side by side and to wait for all of them.
    pub barrier_ns: f64,
}

/// More ways to part cores than this are not all tried.
const SPLITS_MOST: usize = 64;
/// More ways to put components into groups than this are not all tried.
const PARTITIONS_MOST: usize = 40;

/// One operator alone on as many cores as suit it.
pub(super) fn alone(demands: &[Demand], operator: usize, costs: &Costs) -> Stage {
    let all = costs.machine.cores;
    let (fewest, least_ns) = demands[operator].best(all);
    // All cores where they are as good, so that neighbours share a stage.
    let cores = if demands[operator].alone(all) <= least_ns { all } else { fewest };
    Stage { groups: vec![Group { cores, operators: vec![operator] }], time_ns: least_ns }
}

/// What hangs together, side by side; nothing where there are fewer than two, or no way to part cores among them.
pub(super) fn side_by_side(
    demands: &[Demand],
    components: &[Vec<usize>],
    costs: &Costs,
    (groups, operators): (usize, usize),
) -> Option<Stage> {
    let most = groups.min(costs.machine.cores).min(components.len());
    let mut best: Option<Stage> = None;
    for partition in partitions(demands, components, most) {
        if partition.iter().any(|group| group.len() > operators) {
            continue;
        }
        for split in splits(demands, &partition, costs.machine.cores) {
            let lane = |(group, cores): (&Vec<usize>, &usize)| Lane {
                cores: *cores,
                operators: group.iter().map(|&operator| &demands[operator]).collect(),
            };
            let lanes: Vec<Lane<'_>> = partition.iter().zip(&split).map(lane).collect();
            let time_ns = run(&costs.machine, &lanes).total_ns + costs.barrier_ns;
            if best.as_ref().is_none_or(|best| time_ns < best.time_ns) {
                let groups = partition.iter().zip(&split);
                let groups = groups.map(|(group, &cores)| Group { cores, operators: group.clone() }).collect();
                best = Some(Stage { groups, time_ns });
            }
        }
    }
    best
}

/// Ways to put components into two groups or more, up to so many: all of them, or where that is too many, by length.
fn partitions(demands: &[Demand], components: &[Vec<usize>], most: usize) -> Vec<Vec<Vec<usize>>> {
    fn add(
        components: &[Vec<usize>],
        groups: &mut Vec<Vec<usize>>,
        most: usize,
        found: &mut Vec<Vec<Vec<usize>>>,
    ) -> bool {
        let Some((first, rest)) = components.split_first() else {
            if groups.len() >= 2 {
                found.push(groups.iter().map(|group| sorted(group.clone())).collect());
            }
            return found.len() <= PARTITIONS_MOST;
        };
        for place in 0..groups.len() {
            let length = groups[place].len();
            groups[place].extend(first);
            let goes_on = add(rest, groups, most, found);
            groups[place].truncate(length);
            if !goes_on {
                return false;
            }
        }
        if groups.len() == most {
            return true;
        }
        groups.push(first.clone());
        let goes_on = add(rest, groups, most, found);
        groups.pop();
        goes_on
    }
    let mut found = Vec::new();
    if add(components, &mut Vec::new(), most, &mut found) {
        return found;
    }
    (2..=most).map(|count| by_length(demands, components, count)).collect()
}

fn sorted(mut operators: Vec<usize>) -> Vec<usize> {
    operators.sort_unstable();
    operators
}

/// Components in so many groups, the longest first, each where least is yet.
fn by_length(demands: &[Demand], components: &[Vec<usize>], count: usize) -> Vec<Vec<usize>> {
    let length = |component: &Vec<usize>| component.iter().map(|&one| demands[one].alone(1)).sum::<f64>();
    let mut order: Vec<(f64, &Vec<usize>)> =
        components.iter().map(|component| (length(component), component)).collect();
    order.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let mut groups: Vec<(f64, Vec<usize>)> = vec![(0.0, Vec::new()); count];
    for (length, component) in order {
        let least = groups.iter_mut().min_by(|(one, _), (other, _)| one.total_cmp(other)).expect("there are groups");
        least.0 += length;
        least.1.extend(component);
    }
    groups.into_iter().map(|(_, group)| sorted(group)).collect()
}

/// Ways to part cores among groups, at least one for each.
fn splits(demands: &[Demand], groups: &[Vec<usize>], cores: usize) -> Vec<Vec<usize>> {
    if let Some(all) = all_splits(groups.len(), cores, SPLITS_MOST) {
        return all;
    }
    // By what each has to do, and one core from each to each.
    let work: Vec<f64> = groups.iter().map(|group| group.iter().map(|&one| demands[one].alone(1)).sum()).collect();
    let mut split = vec![1; groups.len()];
    for _ in groups.len()..cores {
        let longest = |&one: &usize, &other: &usize| {
            (work[one] / split[one] as f64).total_cmp(&(work[other] / split[other] as f64))
        };
        let next = (0..groups.len()).max_by(longest).expect("there are groups");
        split[next] += 1;
    }
    let mut found = vec![split.clone()];
    for from in (0..groups.len()).filter(|&from| split[from] > 1) {
        for to in (0..groups.len()).filter(|&to| to != from) {
            let mut other = split.clone();
            other[from] -= 1;
            other[to] += 1;
            found.push(other);
        }
    }
    found
}

/// All ways to give so many cores to so many groups, where there are at most so many.
pub(crate) fn all_splits(groups: usize, cores: usize, most: usize) -> Option<Vec<Vec<usize>>> {
    fn give(groups: usize, cores: usize, given: &mut Vec<usize>, found: &mut Vec<Vec<usize>>, most: usize) -> bool {
        if groups == 1 {
            given.push(cores);
            found.push(given.clone());
            given.pop();
            return found.len() <= most;
        }
        (1..=cores + 1 - groups).all(|own| {
            given.push(own);
            let goes_on = give(groups - 1, cores - own, given, found, most);
            given.pop();
            goes_on
        })
    }
    let mut found = Vec::new();
    if groups == 0 || cores < groups {
        return Some(found);
    }
    give(groups, cores, &mut Vec::new(), &mut found, most).then_some(found)
}
