//! Memory that is allocated during calls, computed from running totals of the memory events.

use super::{AverageRow, Grouping, is_device};
use crate::data::{Pool, Profile, Span};

pub(super) struct Memory {
    at_ns: Vec<u64>,
    sums: Vec<[i64; 2]>,
}

impl Memory {
    pub(super) fn from_profile(profile: &Profile) -> Memory {
        let mut sum = [0; 2];
        let sums = profile.memory.iter().map(|event| {
            sum[usize::from(event.pool == Pool::Device)] += event.bytes;
            sum
        });
        let sums = std::iter::once([0; 2]).chain(sums).collect();
        Memory { at_ns: profile.memory.iter().map(|event| event.at_ns).collect(), sums }
    }

    pub(super) fn is_known(&self) -> bool {
        !self.at_ns.is_empty()
    }

    /// Returns the net host and device allocation during a span, including events at both ends of the span.
    pub(super) fn bytes_during(&self, span: &Span) -> [i64; 2] {
        if is_device(span) {
            return [0; 2];
        }
        let from = self.at_ns.partition_point(|at| *at < span.start_ns);
        let to = self.at_ns.partition_point(|at| *at <= span.end_ns()).max(from);
        let (before, after) = (self.sums[from], self.sums[to]);
        [after[0] - before[0], after[1] - before[1]]
    }

    pub(super) fn row_outside_calls(&self, profile: &Profile, grouping: Grouping) -> Option<AverageRow> {
        let none = grouping.by_input_shape.then(Vec::new);
        let mut row = AverageRow { name: "[memory]".to_owned(), input_shapes: none, ..AverageRow::default() };
        let (mut spans, mut end) = (profile.spans.iter().filter(|span| !is_device(span)).peekable(), None);
        for (place, at) in self.at_ns.iter().enumerate() {
            while let Some(span) = spans.next_if(|span| span.start_ns <= *at) {
                end = end.max(Some(span.end_ns()));
            }
            if end.is_none_or(|end| end < *at) {
                let [host, device] = [0, 1].map(|pool| self.sums[place + 1][pool] - self.sums[place][pool]);
                row.count += 1;
                row.cpu_memory_usage_bytes += host;
                row.self_cpu_memory_usage_bytes += host;
                row.device_memory_usage_bytes += device;
                row.self_device_memory_usage_bytes += device;
            }
        }
        (row.count > 0).then_some(row)
    }
}
