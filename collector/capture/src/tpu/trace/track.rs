//! The tracks of a trace: which there are, in what order, and which record lies on which when records overlap.

use crate::tpu::chip::Engine;
use crate::tpu::record::Record;
use crate::tpu::timeline::Timeline;
use crate::writer::{Sort, Track};

/// More lanes than this hide more than they show; later slices share the last one.
const MAX_LANES: usize = 64;

/// Tracks of a core.
#[derive(Clone, Debug, Default)]
pub struct CoreTracks {
    /// Kernel calls.
    pub kernels: Lanes,
    /// TIU, GDMA and SDMA.
    pub engines: [Lanes; 3],
    /// How well the tensor unit was used.
    pub utilisation: usize,
    /// How fast GDMA moved data.
    pub bandwidth: usize,
}

/// Tracks of a port.
#[derive(Clone, Debug, Default)]
pub struct PortTracks {
    /// Kernel calls.
    pub kernels: Lanes,
    /// What neither sends nor receives.
    pub other: Lanes,
    /// What sends.
    pub sends: Lanes,
    /// What receives.
    pub receives: Lanes,
}

/// A track and its siblings for slices that overlap.
#[derive(Clone, Debug, Default)]
pub struct Lanes {
    /// The first track.
    pub first: usize,
    /// The others.
    pub more: Vec<usize>,
}

impl Lanes {
    /// The track of a lane.
    pub fn track(&self, lane: u8) -> usize {
        match lane {
            0 => self.first,
            lane => self.more[usize::from(lane) - 1],
        }
    }
}

/// All tracks.
#[derive(Clone, Debug, Default)]
pub struct Tracks {
    /// In order of definition.
    pub list: Vec<Track>,
    /// By core; `None` for cores without records.
    pub cores: Vec<CoreTracks>,
    /// By place in the list of ports.
    pub ports: Vec<Option<PortTracks>>,
    /// What all engines together moved from and to DDR.
    pub total: Option<usize>,
}

impl Tracks {
    /// Adds a track.
    pub fn add(&mut self, name: impl Into<String>, parent: Option<usize>, rank: Option<i64>) -> usize {
        self.list.push(Track { name: name.into(), parent, rank, ..Track::default() });
        self.list.len() - 1
    }

    fn add_counter(&mut self, name: &str, parent: Option<usize>, rank: Option<i64>) -> usize {
        let track = self.add(name, parent, rank);
        self.list[track].sort = Sort::Counter("");
        track
    }

    /// Adds lanes for slices that overlap.
    pub fn widen(&mut self, lanes: &mut Lanes, count: usize) {
        let (name, parent) = (self.list[lanes.first].name.clone(), self.list[lanes.first].parent);
        for number in lanes.more.len() + 2..=count {
            let track = self.add(format!("{name} #{number}"), parent, None);
            lanes.more.push(track);
        }
    }

    fn lanes(&mut self, name: &str, parent: Option<usize>, rank: Option<i64>) -> Lanes {
        Lanes { first: self.add(name, parent, rank), more: Vec::new() }
    }
}

/// The tracks of a capture, one lane each.
pub fn of(timeline: &Timeline) -> Tracks {
    let mut tracks = Tracks::default();
    for core in &timeline.cores {
        let root = tracks.add(format!("Core {}", core.id), None, None);
        tracks.list[root].orders_children = true;
        let root = Some(root);
        let kernels = tracks.lanes("Kernel Function", root, Some(5));
        let tiu = tracks.lanes("TIU", root, Some(4));
        let utilisation = tracks.add_counter("TIU Utilization", root, Some(3));
        let gdma = tracks.lanes("GDMA", root, Some(2));
        let bandwidth = tracks.add_counter("GDMA Bandwidth", root, Some(1));
        let has_sdma = timeline.engines_of(core).any(|engine| engine == Engine::Sdma);
        let sdma = if has_sdma { tracks.lanes("SDMA", root, Some(0)) } else { Lanes::default() };
        tracks.cores.push(CoreTracks { kernels, engines: [tiu, gdma, sdma], utilisation, bandwidth });
    }
    let mut root = None;
    for port in &timeline.ports {
        if port.stream.records.is_empty() {
            tracks.ports.push(None);
            continue;
        }
        let root = *root.get_or_insert_with(|| tracks.add("CDMA", None, None));
        let name = format!("CDMA port{}", port.number);
        let own = tracks.add(&*name, Some(root), None);
        tracks.list[own].orders_children = true;
        let sends = tracks.lanes(&format!("{name} TX"), Some(own), Some(1));
        let receives = tracks.lanes(&format!("{name} RX"), Some(own), Some(0));
        let kernels = tracks.lanes(&format!("{name} Kernel Function"), Some(root), Some(1));
        let other = Lanes { first: own, more: Vec::new() };
        tracks.ports.push(Some(PortTracks { kernels, other, sends, receives }));
    }
    let total = tracks.add_counter("DDR Bandwidth (all engines)", None, None);
    tracks.total = Some(total);
    tracks
}

/// The order of records by time, when it is not the order they are in.
pub fn order(records: &[Record]) -> Option<Vec<u32>> {
    if records.is_sorted_by_key(|record| (record.start, record.end)) {
        return None;
    }
    let mut order: Vec<u32> = (0..records.len() as u32).collect();
    order.sort_by_key(|&index| (records[index as usize].start, records[index as usize].end));
    Some(order)
}

/// A lane for each slice, in order of time: the first that is free. `None` when one is enough.
pub fn lanes(spans: impl Iterator<Item = (i64, i64)> + Clone) -> Option<Vec<u8>> {
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
