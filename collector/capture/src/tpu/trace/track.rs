//! Tracks of a trace, their order, and additional lanes for overlapping records.

use crate::tpu::chip::Engine;
use crate::tpu::record::Record;
use crate::tpu::timeline::Timeline;
use crate::writer::{Sort, WrittenTrack};

/// Maximum number of lanes. Further slices share the last one.
const MAX_LANES: usize = 64;

#[derive(Clone, Debug, Default)]
pub struct CoreTracks {
    pub kernels: Lanes,
    /// Tracks of TIU, GDMA and SDMA.
    pub engines: [Lanes; 3],
    pub utilisation: usize,
    pub bandwidth: usize,
}

#[derive(Clone, Debug, Default)]
pub struct PortTracks {
    pub kernels: Lanes,
    /// Track of records other than sends and receives.
    pub other: Lanes,
    pub sends: Lanes,
    pub receives: Lanes,
}

#[derive(Clone, Debug, Default)]
pub struct Lanes {
    pub first: usize,
    pub more: Vec<usize>,
}

impl Lanes {
    pub fn track_of(&self, lane: u8) -> usize {
        match lane {
            0 => self.first,
            lane => self.more[usize::from(lane) - 1],
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Tracks {
    pub list: Vec<WrittenTrack>,
    pub cores: Vec<CoreTracks>,
    /// Tracks of the ports by port index; `None` for ports without records.
    pub ports: Vec<Option<PortTracks>>,
    pub total: Option<usize>,
}

impl Tracks {
    pub fn add_track(&mut self, name: impl Into<String>, parent: Option<usize>, rank: Option<i64>) -> usize {
        self.list.push(WrittenTrack { name: name.into(), parent, rank, ..WrittenTrack::default() });
        self.list.len() - 1
    }

    fn add_counter(&mut self, name: &str, parent: Option<usize>, rank: Option<i64>) -> usize {
        let track = self.add_track(name, parent, rank);
        self.list[track].sort = Sort::Counter("");
        track
    }

    pub fn add_lanes(&mut self, lanes: &mut Lanes, count: usize) {
        let (name, parent) = (self.list[lanes.first].name.clone(), self.list[lanes.first].parent);
        for number in lanes.more.len() + 2..=count {
            let track = self.add_track(format!("{name} #{number}"), parent, None);
            lanes.more.push(track);
        }
    }

    fn add_lane_track(&mut self, name: &str, parent: Option<usize>, rank: Option<i64>) -> Lanes {
        Lanes { first: self.add_track(name, parent, rank), more: Vec::new() }
    }
}

pub fn capture_tracks(timeline: &Timeline) -> Tracks {
    let mut tracks = Tracks::default();
    for core in &timeline.cores {
        let root = tracks.add_track(format!("Core {}", core.id), None, None);
        tracks.list[root].orders_children = true;
        let root = Some(root);
        let kernels = tracks.add_lane_track("Kernel Function", root, Some(5));
        let tiu = tracks.add_lane_track("TIU", root, Some(4));
        let utilisation = tracks.add_counter("TIU Utilization", root, Some(3));
        let gdma = tracks.add_lane_track("GDMA", root, Some(2));
        let bandwidth = tracks.add_counter("GDMA Bandwidth", root, Some(1));
        let has_sdma = timeline.engines_of(core).any(|engine| engine == Engine::Sdma);
        let sdma = if has_sdma { tracks.add_lane_track("SDMA", root, Some(0)) } else { Lanes::default() };
        tracks.cores.push(CoreTracks { kernels, engines: [tiu, gdma, sdma], utilisation, bandwidth });
    }
    let mut root = None;
    for port in &timeline.ports {
        if port.stream.records.is_empty() {
            tracks.ports.push(None);
            continue;
        }
        let root = *root.get_or_insert_with(|| tracks.add_track("CDMA", None, None));
        let name = format!("CDMA port{}", port.number);
        let own = tracks.add_track(&*name, Some(root), None);
        tracks.list[own].orders_children = true;
        let sends = tracks.add_lane_track(&format!("{name} TX"), Some(own), Some(1));
        let receives = tracks.add_lane_track(&format!("{name} RX"), Some(own), Some(0));
        let kernels = tracks.add_lane_track(&format!("{name} Kernel Function"), Some(root), Some(1));
        let other = Lanes { first: own, more: Vec::new() };
        tracks.ports.push(Some(PortTracks { kernels, other, sends, receives }));
    }
    let total = tracks.add_counter("DDR Bandwidth (all engines)", None, None);
    tracks.total = Some(total);
    tracks
}

/// Returns the chronological order, or `None` if the records are already sorted.
pub fn sort_records(records: &[Record]) -> Option<Vec<u32>> {
    if records.is_sorted_by_key(|record| (record.start, record.end)) {
        return None;
    }
    let mut order: Vec<u32> = (0..records.len() as u32).collect();
    order.sort_by_key(|&index| (records[index as usize].start, records[index as usize].end));
    Some(order)
}

/// Assigns each slice the first free lane; slices must be in chronological order. Returns `None` if one lane suffices.
pub fn first_free_lanes(spans: impl Iterator<Item = (i64, i64)> + Clone) -> Option<Vec<u8>> {
    let mut last = i64::MIN;
    let overlap = spans.clone().any(|(start, end)| {
        let overlaps = start < last;
        last = last.max(end);
        overlaps
    });
    if !overlap {
        return None;
    }
    let mut ends: Vec<i64> = Vec::new();
    let choose = |(start, end): (i64, i64)| {
        let free = ends.iter().position(|last| *last <= start);
        let lane = free.unwrap_or(ends.len()).min(MAX_LANES - 1);
        if lane == ends.len() {
            ends.push(end);
        } else {
            ends[lane] = ends[lane].max(end);
        }
        lane as u8
    };
    Some(spans.map(choose).collect())
}
