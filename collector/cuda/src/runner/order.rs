//! Orders the kernels of a program whose calls run concurrently on several streams. At the start of a stage, all other
//! streams wait for an event of the first stream; at its end, the first stream waits for an event of each other stream.

use crate::driver::Step;
use anyhow::{Result, ensure};
use executor::Program;
use models::stages::{Group, STREAMS_MOST, Stage};
use std::collections::BTreeSet;
use std::ops::Range;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) steps: Vec<Step>,
    pub(super) streams: usize,
    pub(super) events: usize,
    /// Indices of the start and end events of each group of each stage; empty unless groups are timed.
    pub(super) marks: Vec<Vec<[usize; 2]>>,
}

/// Returns the stages of a program. A program without stages becomes one stage with one group on the first stream.
pub(super) fn program_stages(program: &Program) -> Result<Vec<Stage>> {
    if program.stages.is_empty() {
        let all = Group { cores: vec![FIRST], calls: (0..program.calls.len()).collect() };
        return Ok(vec![Stage { groups: vec![all], time_ns: None }]);
    }
    let mut groups = program.stages.iter().flat_map(|stage| &stage.groups);
    let is_on_one = |group: &Group| matches!(group.cores[..], [stream] if stream < STREAMS_MOST);
    ensure!(groups.all(is_on_one), "each group of a stage must be on one stream, with a number below {STREAMS_MOST}");
    Ok(program.stages.clone())
}

pub(super) fn streams_of(stages: &[Stage], calls: usize) -> Vec<usize> {
    let mut streams = vec![FIRST; calls];
    for group in stages.iter().flat_map(|stage| &stage.groups) {
        group.calls.iter().for_each(|&call| streams[call] = stream_of(group));
    }
    streams
}

const FIRST: usize = 0;

fn stream_of(group: &Group) -> usize {
    group.cores[0]
}

/// Orders calls, each of which consists of a range of kernels. Groups are timed if `is_watched`.
pub(super) fn order_calls(stages: &[Stage], kernels: &[Range<usize>], is_watched: bool) -> Order {
    let streams = stages.iter().flat_map(|stage| &stage.groups).map(stream_of).max().unwrap_or(FIRST) + 1;
    let mut order = Order { steps: Vec::new(), streams, events: streams, marks: Vec::new() };
    for stage in stages {
        let others: BTreeSet<usize> = stage.groups.iter().map(stream_of).filter(|&stream| stream != FIRST).collect();
        if !others.is_empty() {
            order.steps.push(Step::Mark { event: FIRST, stream: FIRST });
        }
        order.steps.extend(others.iter().map(|&stream| Step::Wait { event: FIRST, stream }));
        let marks: Vec<Option<[usize; 2]>> =
            stage.groups.iter().map(|group| order.add_group(group, kernels, is_watched)).collect();
        order.marks.push(marks.into_iter().flatten().collect());
        for &stream in &others {
            let event = stream;
            order.steps.extend([Step::Mark { event, stream }, Step::Wait { event, stream: FIRST }]);
        }
    }
    order
}

impl Order {
    fn add_group(&mut self, group: &Group, kernels: &[Range<usize>], is_watched: bool) -> Option<[usize; 2]> {
        let stream = stream_of(group);
        let marks = is_watched.then_some([self.events, self.events + 1]);
        let launches = group.calls.iter().flat_map(|&call| kernels[call].clone());
        self.events += marks.iter().flatten().count();
        self.steps.extend(marks.map(|[before, _]| Step::Mark { event: before, stream }));
        self.steps.extend(launches.map(|kernel| Step::Launch { kernel, stream }));
        self.steps.extend(marks.map(|[_, behind]| Step::Mark { event: behind, stream }));
        marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(groups: &[(usize, &[usize])]) -> Stage {
        let group = |&(stream, calls): &(usize, &[usize])| Group { cores: vec![stream], calls: calls.to_vec() };
        Stage { groups: groups.iter().map(group).collect(), time_ns: None }
    }

    fn launch(kernel: usize, stream: usize) -> Step {
        Step::Launch { kernel, stream }
    }

    fn mark(event: usize, stream: usize) -> Step {
        Step::Mark { event, stream }
    }

    fn wait(event: usize, stream: usize) -> Step {
        Step::Wait { event, stream }
    }

    #[test]
    fn stages_fork_and_join() {
        let stages = [stage(&[(0, &[0])]), stage(&[(0, &[1]), (1, &[2, 3])]), stage(&[(0, &[4])])];
        let kernels = [0..1, 1..2, 2..4, 4..4, 4..5];
        let wanted = [
            launch(0, 0),
            mark(0, 0),
            wait(0, 1),
            launch(1, 0),
            launch(2, 1),
            launch(3, 1),
            mark(1, 1),
            wait(1, 0),
            launch(4, 0),
        ];
        let found = order_calls(&stages, &kernels, false);
        assert_eq!((&found.steps[..], found.streams, found.events), (&wanted[..], 2, 2));
        assert_eq!(streams_of(&stages, 5), [0, 0, 1, 1, 0]);
        let watched = order_calls(&stages, &kernels, true);
        assert_eq!(watched.marks, [vec![[2, 3]], vec![[4, 5], [6, 7]], vec![[8, 9]]]);
        assert_eq!((watched.events, watched.steps.len()), (10, wanted.len() + 8));
        assert_eq!(watched.steps[5..8], [mark(4, 0), launch(1, 0), mark(5, 0)]);
    }

    #[test]
    fn one_group_needs_no_marks() {
        let found = order_calls(&[stage(&[(0, &[0, 1])])], &[0..2, 2..3], false);
        assert_eq!(found.steps, [launch(0, 0), launch(1, 0), launch(2, 0)]);
    }
}
