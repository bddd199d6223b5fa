//! Consistency checks of a profile, and self times of its spans.

use crate::data::{Kind, Profile, Span};

/// Limit of summed durations in nanoseconds (146 years) and of summed memory sizes, so that sums cannot overflow.
pub(crate) const SUM_MAX: u64 = 1 << 62;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{list} {index}: {why}")]
pub struct DataError {
    /// Name of the invalid list: `span`, `step`, `count`, `visit`, `memory` or `operator`.
    pub list: &'static str,
    pub index: usize,
    pub why: &'static str,
}

impl Profile {
    /// Checks that all indices are in range, steps do not overlap, and children lie inside their parents.
    pub fn check(&self) -> Result<(), DataError> {
        let fail = |list, index, why| Err(DataError { list, index, why });
        let sums = [
            ("span", first_beyond(self.spans.iter().map(|span| span.duration_ns))),
            ("step", first_beyond(self.steps.iter().map(|step| step.duration_ns))),
            ("visit", first_beyond(self.visits.iter().flatten().copied())),
            ("memory", first_beyond(self.memory.iter().map(|event| event.bytes.unsigned_abs()))),
        ];
        if let Some((list, index)) = sums.into_iter().find_map(|(list, index)| Some((list, index?))) {
            return fail(list, index, "makes the list's sum exceed the limit");
        }
        for (index, one) in self.operators.iter().enumerate() {
            if one.input_dtypes.len() != one.input_shapes.len() {
                return fail("operator", index, "has different numbers of element types and shapes");
            }
        }
        for (index, visit) in self.visits.iter().enumerate() {
            if visit.len() != self.operators.len() {
                return fail("visit", index, "has different numbers of times and operators");
            }
        }
        for (index, pair) in self.steps.windows(2).enumerate() {
            if pair[1].start_ns < pair[0].end_ns() {
                return fail("step", index + 1, "starts before the end of the preceding step");
            }
        }
        for (index, span) in self.spans.iter().enumerate() {
            if let Err(why) = self.check_span(index, span) {
                return fail("span", index, why);
            }
        }
        for (index, count) in self.counts.iter().enumerate() {
            if count.span as usize >= self.spans.len() || count.counter as usize >= self.counters.len() {
                return fail("count", index, "refers to a span or counter that does not exist");
            }
            if !(count.running_ratio > 0.0 && count.running_ratio <= 1.0) {
                return fail("count", index, "has a running ratio outside of (0, 1]");
            }
        }
        for (index, event) in self.memory.iter().enumerate() {
            if event.span.is_some_and(|span| span as usize >= self.spans.len()) {
                return fail("memory", index, "refers to a span that does not exist");
            }
        }
        Ok(())
    }

    fn check_span(&self, index: usize, span: &Span) -> Result<(), &'static str> {
        if span.operator as usize >= self.operators.len() || span.track as usize >= self.tracks.len() {
            return Err("refers to an operator or track that does not exist");
        }
        if let Some(step) = span.step
            && step as usize >= self.steps.len()
        {
            return Err("refers to a step that does not exist");
        }
        let Some(parent) = span.parent else { return Ok(()) };
        let Some(parent) = self.spans.get(parent as usize).filter(|_| (parent as usize) < index) else {
            return Err("does not follow its parent in the list");
        };
        // Device work starts after the call that launched it, and may end after it.
        let is_inside = span.start_ns >= parent.start_ns && span.end_ns() <= parent.end_ns();
        if span.track == parent.track && !is_inside { Err("is not inside its parent") } else { Ok(()) }
    }

    /// Returns the kind that other profilers would assign: an operator on a device queue is a kernel.
    pub fn external_kind(&self, span: &Span) -> Kind {
        match span.kind {
            Kind::Operator if self.tracks[span.track as usize].is_device => Kind::Kernel,
            kind => kind,
        }
    }

    /// Returns the self time of each span: its duration minus its children on the same track, at least zero. Tasks are
    /// parts of a call, not children.
    pub fn self_ns(&self) -> Vec<u64> {
        let mut own: Vec<u64> = self.spans.iter().map(|span| span.duration_ns).collect();
        for span in &self.spans {
            if let Some(parent) = span.parent
                && span.kind != Kind::Task
                && self.spans[parent as usize].track == span.track
            {
                own[parent as usize] = own[parent as usize].saturating_sub(span.duration_ns);
            }
        }
        own
    }
}

fn first_beyond(mut numbers: impl Iterator<Item = u64>) -> Option<usize> {
    let mut sum = 0u64;
    numbers.position(|number| {
        sum = sum.saturating_add(number);
        sum > SUM_MAX
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Count, MemoryEvent, Operator, Step, Track};

    fn small() -> Profile {
        let span =
            |parent, start_ns, duration_ns| Span { step: Some(0), parent, start_ns, duration_ns, ..Span::default() };
        Profile {
            tracks: vec![Track::default()],
            operators: vec![Operator::default()],
            steps: vec![Step { duration_ns: 100, ..Step::default() }],
            spans: vec![span(None, 10, 80), span(Some(0), 20, 30)],
            ..Profile::default()
        }
    }

    #[test]
    fn consistent_profiles_survive_a_round_trip() {
        let profile = small();
        profile.check().expect("it fits");
        assert_eq!(profile.self_ns(), [50, 30]);
        let text = serde_json::to_string(&profile).expect("it is text");
        assert_eq!(serde_json::from_str::<Profile>(&text).expect("that is read"), profile);
    }

    #[test]
    fn inconsistencies_are_reported() {
        let refused = |change: fn(&mut Profile)| {
            let mut profile = small();
            change(&mut profile);
            profile.check().expect_err("it does not fit").to_string()
        };
        assert_eq!(refused(|p| p.spans[1].operator = 7), "span 1: refers to an operator or track that does not exist");
        assert_eq!(refused(|p| p.spans[1].start_ns = 90), "span 1: is not inside its parent");
        assert_eq!(refused(|p| p.spans[0].parent = Some(1)), "span 0: does not follow its parent in the list");
        assert_eq!(
            refused(|p| p.counts.push(Count::default())),
            "count 0: refers to a span or counter that does not exist"
        );
        assert_eq!(refused(|p| p.steps.push(Step::default())), "step 1: starts before the end of the preceding step");
        let too_large = |list: &str| format!("{list}: makes the list's sum exceed the limit");
        assert_eq!(refused(|p| p.spans[0].duration_ns = u64::MAX), too_large("span 0"));
        assert_eq!(
            refused(|p| p.steps.push(Step { start_ns: 100, duration_ns: SUM_MAX, ..Step::default() })),
            too_large("step 1")
        );
        assert_eq!(
            refused(|p| p.memory.push(MemoryEvent { bytes: i64::MIN, ..MemoryEvent::default() })),
            too_large("memory 0")
        );
    }
}
