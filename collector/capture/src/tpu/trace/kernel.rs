//! Kernel calls as slices that cover the time of their records, identified by their numbers. Consecutive records of a
//! kernel without a number form one call.

use super::key;
use super::track;
use crate::tpu::event::{Event, Place};
use crate::tpu::record::Origin;
use crate::writer::Packets;
use std::collections::{BTreeSet, HashMap};

#[derive(Clone, Debug, PartialEq)]
pub struct Call<'a> {
    pub function: &'a str,
    pub scope: Option<u32>,
    pub batches: BTreeSet<u32>,
    /// Whether the call contains TDI, RVT and DES commands, in this order.
    pub modes: [bool; 3],
    pub start: i64,
    pub end: i64,
    pub count: usize,
}

/// Returns the kernel calls in chronological order.
pub fn collect_calls<'a>(events: impl Iterator<Item = Event<'a>>) -> Vec<Call<'a>> {
    let mut calls: Vec<Call<'a>> = Vec::new();
    let mut by_scope: HashMap<u32, usize> = HashMap::new();
    let mut current: Option<(Place<'a>, usize)> = None;
    for event in events {
        let Some(place) = event.stream_place() else { continue };
        let Some(function) = place.function else { continue };
        let known = match (current, place.scope) {
            (Some((last, index)), _) if last == place => Some(index),
            (_, Some(scope)) => by_scope.get(&scope).copied(),
            (Some((last, index)), None) if last.scope.is_none() && last.function == place.function => Some(index),
            _ => None,
        };
        let index = known.unwrap_or_else(|| {
            let (start, end) = (event.record.start, event.record.end);
            calls.push(Call {
                function,
                scope: place.scope,
                batches: BTreeSet::new(),
                modes: [false; 3],
                start,
                end,
                count: 0,
            });
            calls.len() - 1
        });
        if let Some(scope) = place.scope {
            by_scope.insert(scope, index);
        }
        current = Some((place, index));
        calls[index].add_event(&event, &place);
    }
    calls.sort_by_key(|call| (call.start, call.end));
    calls
}

impl Call<'_> {
    fn add_event(&mut self, event: &Event<'_>, place: &Place<'_>) {
        self.start = self.start.min(event.record.start);
        self.end = self.end.max(event.record.end);
        self.count += 1;
        self.batches.extend(place.batch);
        match place.mode {
            Origin::Tdi => self.modes[0] = true,
            Origin::Rvt => self.modes[1] = true,
            Origin::Des => self.modes[2] = true,
            Origin::Static => {}
        }
    }

    pub fn origin_names(&self) -> &'static str {
        // The printed order is RVT, TDI, DES.
        match self.modes {
            [false, false, false] => "",
            [true, false, false] => "TDI",
            [false, true, false] => "RVT",
            [true, true, false] => "RVT/TDI",
            [false, false, true] => "DES",
            [true, false, true] => "TDI/DES",
            [false, true, true] => "RVT/DES",
            [true, true, true] => "RVT/TDI/DES",
        }
    }
}

pub fn write_calls(packets: &mut Packets, lanes: &track::Lanes, calls: &[Call<'_>], offset_ns: i64) {
    let places = track::first_free_lanes(calls.iter().map(|call| (call.start, call.end)));
    for (index, call) in calls.iter().enumerate() {
        let track = lanes.track_of(places.as_ref().map_or(0, |places| places[index]));
        let span = (call.start + offset_ns, call.end + offset_ns);
        packets.write_slice(track, span, call.origin_names(), call.function, |annotations| {
            annotations.add_text(key::KERNEL, call.function);
            if let Some(scope) = call.scope {
                annotations.add_int(key::SCOPE, u64::from(scope));
            }
            match (call.batches.first(), call.batches.len()) {
                (None, _) => {}
                (Some(batch), 1) => annotations.add_int(key::BATCH, u64::from(*batch)),
                _ => {
                    let texts: Vec<_> = call.batches.iter().map(u32::to_string).collect();
                    annotations.add_plain_text(key::BATCH, &texts.join("/"));
                }
            }
            annotations.add_text(key::MODE, call.origin_names());
        });
    }
}
