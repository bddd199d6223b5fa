//! The cost of a stage: the best grouping of its components and the best distribution of cores.

use super::{Group, Stage};
use crate::interference::{Demand, Lane, Machine, simulate_lanes};

#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    pub machine: Machine,
    /// Cost of starting groups concurrently and of the barrier at the end of a stage.
    pub barrier_ns: f64,
}

/// Maximum number of core distributions that are all tried. For more, only distributions near that by work are tried.
const SPLITS_MOST: usize = 64;
/// Maximum number of groupings that are all tried. For more, only balanced groupings are tried.
const PARTITIONS_MOST: usize = 40;

pub(super) fn lone_stage(demands: &[Demand], operator: usize, costs: &Costs) -> Stage {
    let all = costs.machine.cores;
    let (fewest, least_ns) = demands[operator].best_cores(all);
    // Uses all cores if this is no slower, so that neighbouring stages can be joined.
    let cores = if demands[operator].time_alone(all) <= least_ns { all } else { fewest };
    Stage { groups: vec![Group { cores, operators: vec![operator] }], time_ns: least_ns }
}

/// Returns the best stage that runs components concurrently; None for fewer than two components or too few cores.
pub(super) fn side_by_side(
    demands: &[Demand],
    components: &[Vec<usize>],
    costs: &Costs,
    (groups, operators): (usize, usize),
) -> Option<Stage> {
    let most = groups.min(costs.machine.cores).min(components.len());
    let mut best: Option<Stage> = None;
    for partition in list_partitions(demands, components, most) {
        if partition.iter().any(|group| group.len() > operators) {
            continue;
        }
        for split in core_splits(demands, &partition, costs.machine.cores) {
            let lane = |(group, cores): (&Vec<usize>, &usize)| Lane {
                cores: *cores,
                operators: group.iter().map(|&operator| &demands[operator]).collect(),
            };
            let lanes: Vec<Lane<'_>> = partition.iter().zip(&split).map(lane).collect();
            let time_ns = simulate_lanes(&costs.machine, &lanes).total_ns + costs.barrier_ns;
            if best.as_ref().is_none_or(|best| time_ns < best.time_ns) {
                let groups = partition.iter().zip(&split);
                let groups = groups.map(|(group, &cores)| Group { cores, operators: group.clone() }).collect();
                best = Some(Stage { groups, time_ns });
            }
        }
    }
    best
}

/// Returns all groupings into two to `most` groups, or only balanced ones above [`PARTITIONS_MOST`].
fn list_partitions(demands: &[Demand], components: &[Vec<usize>], most: usize) -> Vec<Vec<Vec<usize>>> {
    fn add_component(
        components: &[Vec<usize>],
        groups: &mut Vec<Vec<usize>>,
        most: usize,
        found: &mut Vec<Vec<Vec<usize>>>,
    ) -> bool {
        let Some((first, rest)) = components.split_first() else {
            if groups.len() >= 2 {
                found.push(groups.iter().map(|group| sort_operators(group.clone())).collect());
            }
            return found.len() <= PARTITIONS_MOST;
        };
        for place in 0..groups.len() {
            let length = groups[place].len();
            groups[place].extend(first);
            let goes_on = add_component(rest, groups, most, found);
            groups[place].truncate(length);
            if !goes_on {
                return false;
            }
        }
        if groups.len() == most {
            return true;
        }
        groups.push(first.clone());
        let goes_on = add_component(rest, groups, most, found);
        groups.pop();
        goes_on
    }
    let mut found = Vec::new();
    if add_component(components, &mut Vec::new(), most, &mut found) {
        return found;
    }
    (2..=most).map(|count| by_length(demands, components, count)).collect()
}

fn sort_operators(mut operators: Vec<usize>) -> Vec<usize> {
    operators.sort_unstable();
    operators
}

/// Distributes components over `count` groups, the longest first, each to the group with the shortest total time.
fn by_length(demands: &[Demand], components: &[Vec<usize>], count: usize) -> Vec<Vec<usize>> {
    let length = |component: &Vec<usize>| component.iter().map(|&one| demands[one].time_alone(1)).sum::<f64>();
    let mut order: Vec<(f64, &Vec<usize>)> =
        components.iter().map(|component| (length(component), component)).collect();
    order.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let mut groups: Vec<(f64, Vec<usize>)> = vec![(0.0, Vec::new()); count];
    for (length, component) in order {
        let least = groups.iter_mut().min_by(|(one, _), (other, _)| one.total_cmp(other)).expect("there are groups");
        least.0 += length;
        least.1.extend(component);
    }
    groups.into_iter().map(|(_, group)| sort_operators(group)).collect()
}

fn core_splits(demands: &[Demand], groups: &[Vec<usize>], cores: usize) -> Vec<Vec<usize>> {
    if let Some(all) = all_splits(groups.len(), cores, SPLITS_MOST) {
        return all;
    }
    // Starts from a distribution by work, and adds its neighbours with one core moved.
    let work: Vec<f64> = groups.iter().map(|group| group.iter().map(|&one| demands[one].time_alone(1)).sum()).collect();
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

/// Returns all core distributions, at least one core per group; None if there are more than `most`.
pub(crate) fn all_splits(groups: usize, cores: usize, most: usize) -> Option<Vec<Vec<usize>>> {
    fn give_cores(
        groups: usize,
        cores: usize,
        given: &mut Vec<usize>,
        found: &mut Vec<Vec<usize>>,
        most: usize,
    ) -> bool {
        if groups == 1 {
            given.push(cores);
            found.push(given.clone());
            given.pop();
            return found.len() <= most;
        }
        (1..=cores + 1 - groups).all(|own| {
            given.push(own);
            let goes_on = give_cores(groups - 1, cores - own, given, found, most);
            given.pop();
            goes_on
        })
    }
    let mut found = Vec::new();
    if groups == 0 || cores < groups {
        return Some(found);
    }
    give_cores(groups, cores, &mut Vec::new(), &mut found, most).then_some(found)
}
