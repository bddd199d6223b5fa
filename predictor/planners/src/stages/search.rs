//! Dynamic programming over the down-sets of one part of a graph.

use super::cost::{self, Costs};
use super::{Graph, SearchLimits, Set, Stage};
use crate::interference::Demand;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Minimum number of down-sets kept for each number of operators, regardless of the budget.
const LEAST_SETS: usize = 4;
const LEAST_ENDINGS: usize = 8;
const VISITS: usize = 16;

pub(super) struct Part<'a> {
    demands: &'a [Demand],
    /// Operators in topological order; a `Set` contains indices into this list.
    operators: Vec<usize>,
    before: Vec<Set>,
    beside: Vec<Set>,
    costs: &'a Costs,
    limits: &'a SearchLimits,
    known: HashMap<Set, Option<Stage>>,
    is_exact: bool,
}

pub(super) struct SearchResult {
    pub stages: Vec<Stage>,
    pub states: usize,
    pub is_exact: bool,
}

struct SearchState {
    time_ns: f64,
    /// Previous down-set and the stage between it and this one; None for the empty set.
    last: Option<(Set, Set)>,
}

impl<'a> Part<'a> {
    pub fn from_operators(
        graph: &'a Graph,
        operators: Vec<usize>,
        costs: &'a Costs,
        limits: &'a SearchLimits,
    ) -> Part<'a> {
        let place: HashMap<usize, usize> = operators.iter().enumerate().map(|(place, &one)| (one, place)).collect();
        let of_part = |waits: &[usize]| {
            waits.iter().filter_map(|one| place.get(one)).fold(Set::default(), |set, &place| set.with_place(place))
        };
        let before: Vec<Set> = operators.iter().map(|&one| of_part(&graph.before[one])).collect();
        let mut beside = before.clone();
        for (place, waits) in before.iter().enumerate() {
            waits.iter_places().for_each(|other| beside[other] = beside[other].with_place(place));
        }
        Part {
            demands: &graph.demands,
            operators,
            before,
            beside,
            costs,
            limits,
            known: HashMap::new(),
            is_exact: true,
        }
    }

    pub fn search_sets(mut self) -> SearchResult {
        let count = self.operators.len();
        let sequential: Vec<f64> =
            self.operators.iter().map(|&one| self.demands[one].time_alone(self.costs.machine.cores)).collect();
        // Sets by size; a stage always leads to a larger set.
        let mut levels: Vec<BTreeMap<Set, SearchState>> = (0..=count).map(|_| BTreeMap::new()).collect();
        levels[0].insert(Set::default(), SearchState { time_ns: 0.0, last: None });
        for size in 0..count {
            // Budget that earlier levels did not use goes to later levels.
            let allowed = self.limits.tries.saturating_sub(self.known.len()) / (count - size);
            self.narrow_level(
                &mut levels[size],
                self.limits.beam.min(allowed / LEAST_ENDINGS).max(LEAST_SETS),
                &sequential,
            );
            let now: Vec<(Set, f64)> = levels[size].iter().map(|(set, reached)| (*set, reached.time_ns)).collect();
            let endings = (allowed / now.len().max(1)).max(LEAST_ENDINGS);
            for (set, time_ns) in now {
                for ending in self.stage_candidates(set, endings) {
                    let Some(stage_ns) = self.cached_stage(ending).as_ref().map(|stage| stage.time_ns) else {
                        continue;
                    };
                    let (next, time_ns) = (set.union_with(ending), time_ns + stage_ns);
                    let entry = levels[next.len()].entry(next);
                    let reached = entry.or_insert(SearchState { time_ns: f64::INFINITY, last: None });
                    if time_ns < reached.time_ns {
                        *reached = SearchState { time_ns, last: Some((set, ending)) };
                    }
                }
            }
        }
        let states = levels.iter().map(BTreeMap::len).sum();
        let mut set = (0..count).fold(Set::default(), Set::with_place);
        let mut stages = Vec::new();
        while let Some((before, ending)) = levels[set.len()][&set].last {
            stages.push(self.cached_stage(ending).clone().expect("the stage was cached"));
            set = before;
        }
        stages.reverse();
        SearchResult { stages, states, is_exact: self.is_exact }
    }

    fn narrow_level(&mut self, level: &mut BTreeMap<Set, SearchState>, most: usize, sequential: &[f64]) {
        if level.len() <= most {
            return;
        }
        self.is_exact = false;
        let score = |(set, reached): (&Set, &SearchState)| {
            (reached.time_ns - set.iter_places().map(|place| sequential[place]).sum::<f64>(), *set)
        };
        let mut scores: Vec<(f64, Set)> = level.iter().map(score).collect();
        scores.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        for (_, set) in &scores[most..] {
            level.remove(set);
        }
    }

    /// Returns candidates for the next stage: single operators and disconnected sets; if too many, only small sets.
    fn stage_candidates(&mut self, done: Set, most: usize) -> Vec<Set> {
        let is_ready = |&place: &usize| !done.has_place(place) && self.before[place].is_in(done);
        let ready: Vec<usize> = (0..self.operators.len()).filter(is_ready).collect();
        let (found, is_complete) = self.endings_of(done, &ready, most);
        if is_complete {
            return found;
        }
        self.is_exact = false;
        // `first` ready operators have about `most` pairs.
        let first = (2 * most).isqrt().saturating_sub(1).max(2);
        if ready.len() <= first { found } else { self.endings_of(done, &ready[..first], most).0 }
    }

    /// Returns the candidates that start at ready operators, smallest first, and whether the list is complete.
    fn endings_of(&self, done: Set, ready: &[usize], most: usize) -> (Vec<Set>, bool) {
        let mut grown: VecDeque<(Set, usize)> =
            ready.iter().map(|&place| (Set::default().with_place(place), place + 1)).collect();
        let mut found: Vec<Set> = Vec::new();
        // Connected sets are not candidates, but may grow into candidates.
        let mut visits = most.saturating_mul(VISITS);
        while let Some((set, from)) = grown.pop_front() {
            if found.len() == most || visits == 0 {
                return (found, false);
            }
            visits -= 1;
            // A connected stage is no better than its operators in sequence.
            if set.len() == 1 || self.component_of(set, set.first_place()) != set {
                found.push(set);
            }
            if set.len() == self.limits.groups * self.limits.operators {
                continue;
            }
            let done = done.union_with(set);
            for place in
                (from..self.operators.len()).filter(|&place| !done.has_place(place) && self.before[place].is_in(done))
            {
                let next = set.with_place(place);
                if self.component_of(next, place).len() <= self.limits.operators {
                    grown.push_back((next, place + 1));
                }
            }
        }
        (found, true)
    }

    fn component_of(&self, set: Set, place: usize) -> Set {
        let mut component = Set::default().with_place(place);
        loop {
            let grown =
                component.iter_places().fold(component, |all, one| all.union_with(Set(self.beside[one].0 & set.0)));
            if grown == component {
                return component;
            }
            component = grown;
        }
    }

    fn cached_stage(&mut self, ending: Set) -> &Option<Stage> {
        if !self.known.contains_key(&ending) {
            let stage = self.build_stage(ending);
            self.known.insert(ending, stage);
        }
        &self.known[&ending]
    }

    fn build_stage(&self, ending: Set) -> Option<Stage> {
        if ending.len() == 1 {
            let place = ending.first_place();
            return Some(cost::lone_stage(self.demands, self.operators[place], self.costs));
        }
        let (mut components, mut seen) = (Vec::new(), Set::default());
        for place in ending.iter_places() {
            if !seen.intersects_with(Set::default().with_place(place)) {
                let component = self.component_of(ending, place);
                seen = seen.union_with(component);
                components.push(component.iter_places().map(|place| self.operators[place]).collect::<Vec<usize>>());
            }
        }
        let limits = (self.limits.groups, self.limits.operators);
        cost::side_by_side(self.demands, &components, self.costs, limits)
    }
}
