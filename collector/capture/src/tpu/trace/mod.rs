//! Perfetto trace of a capture: records as slices, kernels above them, counters, and the host's calls.
//! Names of tracks and annotations match the vendor's tool, so that existing queries work; speeds are always
//! floating-point. Pieces of the trace are encoded on all threads and written in order, so the output is deterministic.

pub mod host;
pub mod kernel;
pub mod key;
pub mod slice;
pub mod track;

use super::chip::Engine;
use super::core::{ENGINES, Stream};
use super::event::{Event, dma};
use super::timeline::Timeline;
use super::{Result, output};
use crate::writer::{self, Packets};
use host::HostTrace;
use kernel::Call;
use rayon::prelude::*;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use track::{Lanes, Tracks};

const PIECE: usize = 1 << 14;
const HELD: usize = 16;

pub fn write_trace(timeline: &Timeline, host: Option<&HostTrace>, path: &Path) -> Result<()> {
    let plan = TracePlan::plan_trace(timeline, host);
    output::write_file(path, |file| write_in_order(plan.pieces.len(), |index| plan.encode_piece(index), file))
}

fn write_in_order(count: usize, make: impl Fn(usize) -> Vec<u8> + Sync, out: &mut impl Write) -> std::io::Result<()> {
    for start in (0..count).step_by(HELD) {
        let made: Vec<Vec<u8>> = (start..count.min(start + HELD)).into_par_iter().map(&make).collect();
        made.iter().try_for_each(|piece| out.write_all(piece))?;
    }
    Ok(())
}

/// Chronological order and lanes of a stream's records. `None` if already ordered, or if one lane suffices.
#[derive(Default)]
struct TraceOrder {
    order: Option<Vec<u32>>,
    lanes: Option<Vec<u8>>,
}

impl TraceOrder {
    fn for_stream(stream: &Stream) -> TraceOrder {
        let records = &stream.records;
        let order = track::sort_records(records);
        let place = |index: usize| order.as_ref().map_or(index, |order| order[index] as usize);
        let spans = (0..records.len()).map(|index| (records[place(index)].start, records[place(index)].end));
        let lanes = track::first_free_lanes(spans);
        TraceOrder { order, lanes }
    }

    fn lane_count(&self) -> usize {
        self.lanes.as_ref().and_then(|lanes| lanes.iter().max()).map_or(1, |lane| usize::from(*lane) + 1)
    }

    fn record_index(&self, index: usize) -> usize {
        self.order.as_ref().map_or(index, |order| order[index] as usize)
    }

    fn lane_at(&self, index: usize) -> u8 {
        self.lanes.as_ref().map_or(0, |lanes| lanes[index])
    }
}

enum TracePiece {
    Tracks,
    Total,
    Core { core: usize, slot: usize, range: Range<usize> },
    CoreKernels(usize),
    Port(usize),
    Host { library: bool },
}

struct TracePlan<'a> {
    timeline: &'a Timeline,
    host: Option<&'a HostTrace>,
    tracks: Tracks,
    orders: Vec<[TraceOrder; 3]>,
    kernels: Vec<Vec<Call<'a>>>,
    host_lanes: [(Lanes, Vec<u8>); 2],
    pieces: Vec<TracePiece>,
    offset_ns: i64,
    host_offset_ns: i64,
}

impl<'a> TracePlan<'a> {
    fn plan_trace(timeline: &'a Timeline, host: Option<&'a HostTrace>) -> TracePlan<'a> {
        let mut tracks = track::capture_tracks(timeline);
        let cores = &timeline.cores;
        let orders: Vec<[TraceOrder; 3]> =
            cores.par_iter().map(|core| core.streams.each_ref().map(TraceOrder::for_stream)).collect();
        let calls =
            |core| kernel::collect_calls(ENGINES.into_iter().flat_map(|engine| timeline.core_events(core, engine)));
        let kernels: Vec<Vec<Call<'_>>> = cores.par_iter().map(calls).collect();
        let mut pieces = vec![TracePiece::Tracks, TracePiece::Total];
        let mut core_tracks = std::mem::take(&mut tracks.cores);
        for (core, own) in core_tracks.iter_mut().enumerate() {
            widen_for_calls(&mut tracks, &mut own.kernels, &kernels[core]);
            pieces.push(TracePiece::CoreKernels(core));
            for (slot, order) in orders[core].iter().enumerate() {
                let records = timeline.cores[core].streams[slot].records.len();
                if order.lane_count() > 1 {
                    tracks.add_lanes(&mut own.engines[slot], order.lane_count());
                }
                let starts = (0..records).step_by(PIECE);
                pieces.extend(starts.map(|start| TracePiece::Core {
                    core,
                    slot,
                    range: start..(start + PIECE).min(records),
                }));
            }
        }
        tracks.cores = core_tracks;
        widen_ports(&mut tracks, timeline);
        pieces.extend((0..timeline.ports.len()).filter(|port| tracks.ports[*port].is_some()).map(TracePiece::Port));
        let host_lanes = host_lanes(&mut tracks, host);
        if host.is_some_and(|host| !host.slices.is_empty()) {
            pieces.extend([TracePiece::Host { library: false }, TracePiece::Host { library: true }]);
        }
        // Shifts everything such that no time is negative.
        let zero = host.and_then(|host| host.zero_ns).unwrap_or(0);
        let first_host = host.and_then(|host| host.slices.first()).map_or(0, |slice| slice.start);
        let back = -zero.min(first_host).min(0);
        let (offset_ns, host_offset_ns) = (zero + back, back);
        TracePlan { timeline, host, tracks, orders, kernels, host_lanes, pieces, offset_ns, host_offset_ns }
    }

    fn encode_piece(&self, index: usize) -> Vec<u8> {
        let mut packets = Packets::new(&key::KEYS);
        match &self.pieces[index] {
            TracePiece::Tracks => return writer::encode_descriptors(&self.tracks.list),
            TracePiece::Total => self.encode_total(&mut packets),
            TracePiece::Core { core, slot, range } => self.encode_core(&mut packets, *core, *slot, range.clone()),
            TracePiece::CoreKernels(core) => {
                let lanes = &self.tracks.cores[*core].kernels;
                kernel::write_calls(&mut packets, lanes, &self.kernels[*core], self.offset_ns);
            }
            TracePiece::Port(port) => self.encode_port(&mut packets, *port),
            TracePiece::Host { library } => {
                let (lanes, places) = &self.host_lanes[usize::from(*library)];
                let slices = host_slices(self.host, *library);
                host::write_slices(&mut packets, lanes, &slices, places, self.host_offset_ns);
            }
        }
        packets.take_bytes()
    }

    fn encode_core(&self, packets: &mut Packets, core: usize, slot: usize, range: Range<usize>) {
        let (tracks, order) = (&self.tracks.cores[core], &self.orders[core][slot]);
        let core = &self.timeline.cores[core];
        let engine = ENGINES[slot];
        for place in range {
            let event = self.timeline.core_event(core, engine, order.record_index(place));
            let record = event.record;
            let track = tracks.engines[slot].track_of(order.lane_at(place));
            let level = slice::write_slice(packets, track, &event, self.offset_ns);
            let (counter, value) = match engine {
                Engine::Tiu => (tracks.utilisation, level.utilisation),
                Engine::Gdma => (tracks.bandwidth, level.ddr),
                Engine::Sdma | Engine::Cdma => continue,
            };
            packets.write_count(counter, record.start + self.offset_ns, value);
            packets.write_count(counter, record.end + self.offset_ns, 0.0);
        }
    }

    fn encode_port(&self, packets: &mut Packets, port: usize) {
        let Some(tracks) = &self.tracks.ports[port] else { return };
        let port = &self.timeline.ports[port];
        let calls = kernel::collect_calls(self.timeline.port_events(port));
        kernel::write_calls(packets, &tracks.kernels, &calls, self.offset_ns);
        for way in [PortDirection::Other, PortDirection::Sends, PortDirection::Receives] {
            let events = way.sorted_events(self.timeline, port);
            let lanes = track::first_free_lanes(events.iter().map(|event| (event.record.start, event.record.end)));
            for (place, event) in events.iter().enumerate() {
                let lane = lanes.as_ref().map_or(0, |lanes| lanes[place]);
                slice::write_slice(packets, way.lanes_of(tracks).track_of(lane), event, self.offset_ns);
            }
        }
    }

    fn encode_total(&self, packets: &mut Packets) {
        let Some(track) = self.tracks.total else { return };
        let mut edges: Vec<(i64, i64)> = Vec::new();
        for core in &self.timeline.cores {
            for engine in [Engine::Gdma, Engine::Sdma] {
                self.timeline.core_events(core, engine).for_each(|event| add_edges(&mut edges, &event));
            }
        }
        for port in &self.timeline.ports {
            self.timeline.port_events(port).for_each(|event| add_edges(&mut edges, &event));
        }
        edges.sort_unstable();
        let mut level = 0;
        for (index, (at, change)) in edges.iter().enumerate() {
            level += change;
            if edges.get(index + 1).is_none_or(|(next, _)| next != at) {
                packets.write_count(track, at + self.offset_ns, level as f64 / EDGE_UNITS);
            }
        }
    }
}

/// Number of integer units per GB/s. Bandwidths are summed as integers, so that the total returns to exactly zero.
const EDGE_UNITS: f64 = 1e4;

fn add_edges(edges: &mut Vec<(i64, i64)>, event: &Event<'_>) {
    if event.is_system() {
        return;
    }
    let speed = (dma::event_traffic(event).ddr.unwrap_or(0.0) * EDGE_UNITS).round() as i64;
    if speed > 0 {
        edges.push((event.record.start, speed));
        edges.push((event.record.end.max(event.record.start + 1), -speed));
    }
}

fn widen_for_calls(tracks: &mut Tracks, lanes: &mut Lanes, calls: &[Call<'_>]) {
    if let Some(places) = track::first_free_lanes(calls.iter().map(|call| (call.start, call.end))) {
        tracks.add_lanes(lanes, usize::from(places.into_iter().max().unwrap_or(0)) + 1);
    }
}

fn widen_ports(tracks: &mut Tracks, timeline: &Timeline) {
    let mut all = std::mem::take(&mut tracks.ports);
    for (own, port) in all.iter_mut().zip(&timeline.ports) {
        let Some(own) = own else { continue };
        widen_for_calls(tracks, &mut own.kernels, &kernel::collect_calls(timeline.port_events(port)));
        for way in [PortDirection::Other, PortDirection::Sends, PortDirection::Receives] {
            let events = way.sorted_events(timeline, port);
            if let Some(lanes) =
                track::first_free_lanes(events.iter().map(|event| (event.record.start, event.record.end)))
            {
                tracks.add_lanes(way.tracks_mut(own), usize::from(lanes.into_iter().max().unwrap_or(0)) + 1);
            }
        }
    }
    tracks.ports = all;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PortDirection {
    Other,
    Sends,
    Receives,
}

impl PortDirection {
    fn from_name(name: &str) -> PortDirection {
        match name {
            "send" | "sys_msg_tx_send" | "sys_msg_tx_wait" | "tcp_send" => PortDirection::Sends,
            "receive" | "sys_msg_rx_send" | "sys_msg_rx_wait" | "tcp_receive" | "read" => PortDirection::Receives,
            _ => PortDirection::Other,
        }
    }

    fn sorted_events<'a>(self, timeline: &'a Timeline, port: &'a super::cdma::Port) -> Vec<Event<'a>> {
        let own =
            timeline.port_events(port).filter(|event| PortDirection::from_name(event.operation_names().name) == self);
        let mut events: Vec<Event<'a>> = own.collect();
        events.sort_by_key(|event| (event.record.start, event.record.end));
        events
    }

    fn lanes_of(self, tracks: &track::PortTracks) -> &Lanes {
        match self {
            PortDirection::Other => &tracks.other,
            PortDirection::Sends => &tracks.sends,
            PortDirection::Receives => &tracks.receives,
        }
    }

    fn tracks_mut(self, tracks: &mut track::PortTracks) -> &mut Lanes {
        match self {
            PortDirection::Other => &mut tracks.other,
            PortDirection::Sends => &mut tracks.sends,
            PortDirection::Receives => &mut tracks.receives,
        }
    }
}

fn host_slices(host: Option<&HostTrace>, library: bool) -> Vec<&host::HostSlice> {
    let all = host.map_or(&[][..], |host| &host.slices);
    all.iter().filter(|slice| (slice.category == host::LIBRARY) == library).collect()
}

fn host_lanes(tracks: &mut Tracks, host: Option<&HostTrace>) -> [(Lanes, Vec<u8>); 2] {
    let mut result = [(Lanes::default(), Vec::new()), (Lanes::default(), Vec::new())];
    if host.is_none_or(|host| host.slices.is_empty()) {
        return result;
    }
    for (library, name) in [(false, "cpu op"), (true, "tpudnn op")] {
        let places = host::assign_lanes(&host_slices(host, library));
        let mut lanes = Lanes { first: tracks.add_track(name, None, None), more: Vec::new() };
        tracks.add_lanes(&mut lanes, places.iter().max().map_or(1, |lane| usize::from(*lane) + 1));
        result[usize::from(library)] = (lanes, places);
    }
    result
}
