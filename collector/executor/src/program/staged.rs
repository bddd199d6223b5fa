//! Order of calls by the stages of a plan, and which calls run concurrently.

use models::Plan;
use models::stages::{Group, Stage, StagePlan};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StageSpan {
    pub first: usize,
    pub last: usize,
}

pub(super) fn sequential_spans(plan: &Plan) -> Vec<StageSpan> {
    (0..plan.calls.len()).map(|place| StageSpan { first: place, last: place }).collect()
}

pub(super) struct Staged<'a> {
    pub plan: Plan,
    pub spans: Vec<StageSpan>,
    stages: &'a [Stage],
}

impl<'a> Staged<'a> {
    pub fn from_plan(plan: &Plan, stages: &'a StagePlan) -> Staged<'a> {
        let stages = stages.stages.as_slice();
        let (mut calls, mut spans) = (Vec::with_capacity(plan.calls.len()), Vec::with_capacity(plan.calls.len()));
        for stage in stages {
            let first = calls.len();
            calls.extend(stage.groups.iter().flat_map(|group| &group.calls).map(|&call| plan.calls[call].clone()));
            let last = calls.len().max(1) - 1;
            // A single group runs its calls sequentially.
            let span = |place| {
                if stage.groups.len() > 1 { StageSpan { first, last } } else { StageSpan { first: place, last: place } }
            };
            spans.extend((first..calls.len()).map(span));
        }
        Staged { plan: Plan { tasks: plan.tasks.clone(), calls }, spans, stages }
    }

    /// Returns the stages with the program's call indices, without calls that need no work.
    pub fn program_stages(&self, place_of: &[Option<usize>]) -> Vec<Stage> {
        let mut places = place_of.iter().copied();
        let mut group = |group: &Group| {
            let calls: Vec<usize> = places.by_ref().take(group.calls.len()).flatten().collect();
            (!calls.is_empty()).then(|| Group { cores: group.cores.clone(), calls })
        };
        let stages = self.stages.iter().map(|stage| {
            let groups: Vec<Group> = stage.groups.iter().filter_map(&mut group).collect();
            Stage { groups, time_ns: stage.time_ns }
        });
        stages.filter(|stage| !stage.groups.is_empty()).collect()
    }
}
