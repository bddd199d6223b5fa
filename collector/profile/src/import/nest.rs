//! Ordering and nesting of spans.
//! As in torch.profiler, the parent of a span is the latest span on its track that started before it and ends no
//! sooner; a span that ends after all open spans has no parent. An only child with its parent's name is merged into the
//! parent.

use crate::data::{Kind, Operator, Span, Step, Track};
use std::collections::HashMap;

#[derive(Clone, Copy, Debug)]
pub struct Raw {
    pub kind: Kind,
    pub operator: u32,
    /// Number by which a trace connects a call with the device work that it launched; None if it has none.
    pub external: Option<u64>,
    pub track: u32,
    pub start_ns: i64,
    pub end_ns: i64,
}

const NONE: u32 = u32::MAX;

/// Orders spans, assigns parents and converts; `lift` merges an only child into a parent of equal name.
pub fn nest_spans(
    mut raw: Vec<Raw>,
    tracks: &[Track],
    operators: &[Operator],
    zero: i64,
    steps: &[Step],
    lift: bool,
) -> Vec<Span> {
    let is_device = |span: &Raw| tracks[span.track as usize].is_device;
    // The sort is stable: spans with equal times keep the order of the trace. Device work comes last, since with
    // imperfectly synchronised clocks it can start before the call that launched it.
    raw.sort_by_key(|span| (is_device(span), span.start_ns, std::cmp::Reverse(span.end_ns)));
    let hosts = raw.partition_point(|span| !is_device(span));
    let mut parents = find_parents(&raw[..hosts], tracks.len());
    let mut same: Vec<u32> = (0..raw.len() as u32).collect();
    if lift {
        lift_single(&raw[..hosts], operators, &mut parents, &mut same);
    }
    let mut callers = HashMap::new();
    if hosts < raw.len() {
        let calls = (0..hosts).filter(|at| raw[*at].kind == Kind::Operator);
        callers.extend(calls.filter_map(|at| Some((raw[at].external?, same[at]))));
    }
    parents.extend(
        raw[hosts..]
            .iter()
            .map(|span| span.external.and_then(|external| callers.get(&external)).copied().unwrap_or(NONE)),
    );
    // Index of each span among the kept ones.
    let mut places = vec![NONE; raw.len()];
    let kept = (0..raw.len()).filter(|at| same[*at] == *at as u32);
    kept.enumerate().for_each(|(place, at)| places[at] = place as u32);
    let mut spans = Vec::with_capacity(raw.len());
    for (at, span) in raw.iter().enumerate().filter(|(at, _)| same[*at] == *at as u32) {
        let parent = parents[at];
        let start_ns = span.start_ns.abs_diff(zero);
        spans.push(Span {
            kind: span.kind,
            operator: span.operator,
            step: step_of(steps, start_ns),
            parent: (parent != NONE).then(|| places[parent as usize]),
            track: span.track,
            start_ns,
            duration_ns: span.end_ns.abs_diff(span.start_ns),
            cpu_ns: None,
        });
    }
    spans
}

fn find_parents(spans: &[Raw], tracks: usize) -> Vec<u32> {
    let mut open: Vec<Vec<u32>> = vec![Vec::new(); tracks];
    let mut parents = vec![NONE; spans.len()];
    for (at, span) in spans.iter().enumerate() {
        let open = &mut open[span.track as usize];
        while let Some(last) = open.last() {
            let whole = &spans[*last as usize];
            if span.start_ns < whole.end_ns && span.end_ns <= whole.end_ns {
                parents[at] = *last;
                break;
            }
            open.pop();
        }
        open.push(at as u32);
    }
    parents
}

/// Merges only children into parents of the same name: `same` maps each span to the span that replaces it.
fn lift_single(spans: &[Raw], operators: &[Operator], parents: &mut [u32], same: &mut [u32]) {
    let mut parts = vec![0_u32; spans.len()];
    parents.iter().filter(|parent| **parent != NONE).for_each(|parent| parts[*parent as usize] += 1);
    let name = |at: u32| &operators[spans[at as usize].operator as usize].name;
    // Parents precede their children, so a parent is already resolved here.
    for at in 0..spans.len() {
        if parents[at] == NONE || spans[at].kind == Kind::Task {
            continue;
        }
        let whole = same[parents[at] as usize];
        parents[at] = whole;
        if parts[whole as usize] == 1 && name(whole) == name(at as u32) {
            same[at] = whole;
            parts[whole as usize] = parts[at];
        }
    }
}

fn step_of(steps: &[Step], at_ns: u64) -> Option<u32> {
    let after = steps.partition_point(|step| step.start_ns <= at_ns);
    let place = after.checked_sub(1)?;
    (at_ns < steps[place].end_ns()).then_some(place as u32)
}
