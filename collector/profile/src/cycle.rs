//! Extraction of one cycle of a schedule from a profile.

use crate::data::{Count, MemoryEvent, Profile, Span};

pub fn list_cycles(profile: &Profile) -> Vec<u32> {
    let mut all: Vec<u32> = profile.steps.iter().map(|step| step.cycle).collect();
    all.dedup();
    all
}

/// Returns the part of a profile in one cycle, without the threads' processor times, which cover all cycles.
pub fn cut_cycle(profile: &Profile, cycle: u32) -> Profile {
    let is_of_cycle = |step: Option<u32>| step.is_some_and(|step| profile.steps[step as usize].cycle == cycle);
    let steps = new_indices(profile.steps.iter().map(|step| step.cycle == cycle));
    let spans = new_indices(profile.spans.iter().map(|span| is_of_cycle(span.step)));
    let place = |places: &[Option<u32>], old: u32| places[old as usize];
    let span = |one: &Span| Span {
        step: one.step.and_then(|step| place(&steps, step)),
        parent: one.parent.and_then(|parent| place(&spans, parent)),
        ..*one
    };
    let count = |one: &Count| Some(Count { span: place(&spans, one.span)?, ..*one });
    let times = profile.steps.iter().filter(|step| step.cycle == cycle);
    let ends = times.clone().map(|step| step.start_ns).min().zip(times.map(|step| step.end_ns()).max());
    let event = |one: &MemoryEvent| match one.span {
        Some(old) => place(&spans, old).map(|new| MemoryEvent { span: Some(new), ..*one }),
        None => ends.filter(|(first, last)| (*first..=*last).contains(&one.at_ns)).map(|_| *one),
    };
    let bare = profile.bare_ns.iter().zip(&steps).filter(|(_, new)| new.is_some());
    let mut tracks = profile.tracks.clone();
    tracks.iter_mut().for_each(|track| track.cpu_ns = None);
    Profile {
        tracks,
        steps: profile.steps.iter().filter(|step| step.cycle == cycle).cloned().collect(),
        spans: profile.spans.iter().zip(&spans).filter(|(_, new)| new.is_some()).map(|(one, _)| span(one)).collect(),
        counts: profile.counts.iter().filter_map(count).collect(),
        memory: profile.memory.iter().filter_map(event).collect(),
        bare_ns: bare.map(|(ns, _)| *ns).collect(),
        // A cycle is a part of the recorded visit.
        visits: Vec::new(),
        model: profile.model.clone(),
        source: profile.source,
        format: profile.format.clone(),
        target: profile.target.clone(),
        operators: profile.operators.clone(),
        counters: profile.counters.clone(),
        refusals: profile.refusals.clone(),
        notes: profile.notes.clone(),
        energy: profile.energy.clone(),
        simulation: profile.simulation.clone(),
        memory_roofs: profile.memory_roofs.clone(),
        wall_clock_start_ns: profile.wall_clock_start_ns,
    }
}

fn new_indices(is_kept: impl Iterator<Item = bool>) -> Vec<Option<u32>> {
    let mut next = 0;
    let place = |is_kept: bool| {
        is_kept.then(|| {
            next += 1;
            next - 1
        })
    };
    is_kept.map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Counter, Operator, Step, Track};

    #[test]
    fn a_cycle_keeps_its_own_data() {
        let step = |number: u64, cycle| Step { number, cycle, start_ns: 100 * number, duration_ns: 90 };
        let span = |step: u32, parent| Span {
            step: Some(step),
            parent,
            start_ns: 100 * u64::from(step),
            duration_ns: 50,
            ..Span::default()
        };
        let profile = Profile {
            tracks: vec![Track { cpu_ns: Some(7), ..Track::default() }],
            operators: vec![Operator::default()],
            counters: vec![Counter::default()],
            steps: vec![step(0, 0), step(1, 0), step(2, 1)],
            spans: vec![span(0, None), span(1, None), span(2, None), span(2, Some(2))],
            counts: vec![0, 2, 3]
                .into_iter()
                .map(|span| Count { span, running_ratio: 1.0, ..Count::default() })
                .collect(),
            bare_ns: vec![1, 2, 3],
            ..Profile::default()
        };
        profile.check().expect("it fits");
        assert_eq!(list_cycles(&profile), [0, 1]);
        let last = cut_cycle(&profile, 1);
        last.check().expect("a part fits, too");
        assert_eq!((last.steps.len(), last.spans.len(), last.counts.len()), (1, 2, 2));
        assert_eq!((last.spans[1].parent, last.counts[1].span, last.bare_ns), (Some(0), 1, vec![3]));
        assert_eq!(cut_cycle(&profile, 0).spans.len() + 2, profile.spans.len());
    }
}
