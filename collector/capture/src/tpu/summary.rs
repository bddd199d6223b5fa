//! Summary table: one row per core, and an overall row.

use super::chip::Engine;
use super::core::Core;
use super::event::Event;
use super::event::{dma, tiu};
use super::timeline::Timeline;
use rayon::prelude::*;
use report::{Table, format_duration, number_column};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moved {
    pub bytes: u64,
    pub cycles: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CoreSums {
    /// Sum of the cycles of all TIU records except system commands.
    pub tiu_cycles: i64,
    pub asked: u128,
    pub done: u128,
    /// Cycles of GDMA records, except for system commands.
    pub gdma_cycles: i64,
    pub gdma_ddr: Moved,
    pub gdma_l2: Moved,
    /// Cycles of SDMA records, except for waits.
    pub sdma_cycles: i64,
    pub sdma_ddr: Moved,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CaptureSummary {
    pub cores: Vec<CoreSums>,
    /// Time in nanoseconds from the first start to the last end of a record.
    pub total_ns: i64,
    tiu_mhz: f64,
    dma_mhz: f64,
}

/// Returns the totals of a timeline; `None` if it has no events.
pub fn sum_timeline(timeline: &Timeline) -> Option<CaptureSummary> {
    let start = timeline.all_records().map(|record| record.start).min()?;
    let end = timeline.all_records().map(|record| record.end).max()?;
    let cores = timeline.cores.par_iter().map(|core| core_sums(timeline, core)).collect();
    let settings = &timeline.settings;
    Some(CaptureSummary {
        cores,
        total_ns: end - start,
        tiu_mhz: settings.clock_mhz(Engine::Tiu),
        dma_mhz: settings.clock_mhz(Engine::Gdma),
    })
}

fn core_sums(timeline: &Timeline, core: &Core) -> CoreSums {
    let mut sums = CoreSums::default();
    for event in timeline.core_events(core, Engine::Tiu) {
        if !event.is_system() {
            sums.tiu_cycles += event.record.cycles;
        }
        let work = tiu::event_work(&event);
        sums.asked += work.asked;
        sums.done += work.done;
    }
    for event in timeline.core_events(core, Engine::Gdma) {
        add_gdma(&mut sums, &event);
    }
    for event in timeline.core_events(core, Engine::Sdma) {
        let (op, sub) = event.operation_codes();
        if !event.is_rvt() && (op, sub) == (Some(Engine::Sdma.system_op()), WAIT) {
            continue;
        }
        sums.sdma_cycles += event.record.cycles;
        let traffic = dma::event_traffic(&event);
        if traffic.touches_ddr() {
            sums.sdma_ddr.bytes += traffic.bytes;
            sums.sdma_ddr.cycles += event.record.cycles;
        }
    }
    sums
}

const WAIT: u32 = 4;

fn add_gdma(sums: &mut CoreSums, event: &Event<'_>) {
    if event.is_system() {
        return;
    }
    sums.gdma_cycles += event.record.cycles;
    let traffic = dma::event_traffic(event);
    if traffic.bytes == 0 {
        return;
    }
    let moved = if traffic.touches_ddr() {
        &mut sums.gdma_ddr
    } else if traffic.touches_l2() {
        &mut sums.gdma_l2
    } else {
        return;
    };
    moved.bytes += traffic.bytes;
    moved.cycles += event.record.cycles;
}

const HEADER: [(&str, usize); 11] = [
    ("CoreId", 7),
    ("Parallelism(%)", 14),
    ("totalTime(us)", 14),
    ("TiuWorkingRatio", 15),
    ("totalTiuCycle", 14),
    ("uArchURate", 10),
    ("totalGdmaCycle", 16),
    ("GdmaDdrAvgBW(GB/s)", 18),
    ("GdmaL2AvgBW(GB/s)", 18),
    ("totalSdmaCycle", 16),
    ("SdmaDdrAvgBW(GB/s)", 18),
];
const WIDTH: usize = 190;

impl CaptureSummary {
    pub fn vendor_text(&self) -> String {
        let line = |cells: &[String]| {
            let padded = cells.iter().zip(HEADER).map(|(cell, (_, width))| format!("{cell:>width$}"));
            padded.collect::<Vec<_>>().join(" | ") + "\n"
        };
        let (double, single) = ("=".repeat(WIDTH) + "\n", "-".repeat(WIDTH) + "\n");
        let mut text = format!("{double}Summary\n{double}");
        text += &line(&CaptureSummary::column_headers().map(str::to_owned));
        text += &single;
        let rows = self.text_rows();
        for (index, row) in rows.iter().enumerate() {
            if index + 1 == rows.len() {
                text += &single;
            }
            text += &line(row);
        }
        text + &double
    }

    /// Headings of the terminal's table and of the page: the columns of [`CaptureSummary::column_headers`], and the
    /// shares of time in which GDMA and SDMA were busy.
    pub const TITLES: [&'static str; 13] = [
        "core",
        "busy",
        "total time",
        "TIU busy",
        "TIU time",
        "uArch rate",
        "GDMA busy",
        "GDMA time",
        "GDMA DDR GB/s",
        "GDMA L2 GB/s",
        "SDMA busy",
        "SDMA time",
        "SDMA DDR GB/s",
    ];

    pub fn to_table(&self) -> Table {
        let orders =
            [None, None, None, None, Some(9), Some(1), Some(6), Some(8), Some(2), Some(4), Some(5), Some(7), Some(3)];
        let column = |(heading, order): (&str, Option<u8>)| match order {
            Some(order) => number_column(heading).drop_order(order),
            None => number_column(heading),
        };
        let mut table = Table::new(CaptureSummary::TITLES.into_iter().zip(orders).map(column));
        self.readable_rows().into_iter().for_each(|row| table.add_row(row));
        table
    }

    /// Returns the rows with units as in all tables of the terminal: times instead of cycles, and means over the cores
    /// in the last row, where the vendor's table mixes means and maxima.
    pub fn readable_rows(&self) -> Vec<[String; 13]> {
        let times_ns = self.cores.iter().map(|core| self.engine_times_ns(core)).chain(Some(self.mean_times_ns()));
        let row = |(row, times_ns): ([String; 11], [f64; 3])| {
            let [core, busy, _, tiu_busy, _, rate, _, ddr, l2, _, sdma_ddr] = row.map(|cell| cell.replace('%', " %"));
            let [tiu, gdma, sdma] = times_ns.map(format_duration);
            let share = |time_ns: f64| format_percent(time_ns, self.total_ns as f64).replace('%', " %");
            let [_, gdma_busy, sdma_busy] = times_ns.map(share);
            let total = format_duration(self.total_ns as f64);
            [core, busy, total, tiu_busy, tiu, rate, gdma_busy, gdma, ddr, l2, sdma_busy, sdma, sdma_ddr]
        };
        let mut rows: Vec<[String; 13]> = self.text_rows().into_iter().zip(times_ns).map(row).collect();
        if let Some(last) = rows.last_mut() {
            last[0] = "mean".to_owned();
        }
        rows
    }

    /// Returns the busy times of TIU, GDMA and SDMA.
    fn engine_times_ns(&self, core: &CoreSums) -> [f64; 3] {
        [self.tiu_ns(core.tiu_cycles), self.dma_ns(core.gdma_cycles), self.dma_ns(core.sdma_cycles)]
            .map(|time_ns| time_ns as f64)
    }

    fn mean_times_ns(&self) -> [f64; 3] {
        let count = self.cores.len().max(1) as f64;
        let times_ns = self.cores.iter().map(|core| self.engine_times_ns(core));
        times_ns.fold([0.0; 3], |sums, times_ns| [0, 1, 2].map(|at| sums[at] + times_ns[at] / count))
    }

    /// Returns the engines with the shares of the time in which they were busy, as means over the cores, the busiest
    /// engine first.
    pub fn engine_shares(&self) -> [(&'static str, f64); 3] {
        let total_ns = self.total_ns.max(1) as f64;
        let times_ns = self.mean_times_ns();
        let mut shares = [0, 1, 2].map(|at| (["TIU", "GDMA", "SDMA"][at], times_ns[at] / total_ns));
        shares.sort_by(|one, other| other.1.total_cmp(&one.1));
        shares
    }

    /// Describes the busiest engine and how long the others were busy.
    pub fn describe_engines(&self) -> String {
        let shares = self.engine_shares();
        let others: Vec<String> =
            shares[1..].iter().map(|(name, share)| format!("{name} {}", report::format_percent(*share))).collect();
        let (name, share) = shares[0];
        format!(
            "The busiest engine is {name}: {} of the time (mean over cores), {}.",
            report::format_percent(share),
            others.join(", ")
        )
    }

    pub fn column_headers() -> [&'static str; 11] {
        HEADER.map(|(name, _)| name)
    }

    /// Returns one row per core, followed by the overall row.
    pub fn text_rows(&self) -> Vec<[String; 11]> {
        let cores = self.cores.iter().enumerate().map(|(id, core)| self.core_row(id, core));
        cores.chain(std::iter::once(self.overall_row())).collect()
    }

    fn tiu_ns(&self, cycles: i64) -> i64 {
        time_ns(cycles, self.tiu_mhz)
    }

    fn dma_ns(&self, cycles: i64) -> i64 {
        time_ns(cycles, self.dma_mhz)
    }

    fn format_speed(&self, moved: Moved) -> String {
        let time = self.dma_ns(moved.cycles);
        if time == 0 { "0.00".to_owned() } else { format!("{:.2}", moved.bytes as f64 / time as f64) }
    }

    fn core_row(&self, id: usize, core: &CoreSums) -> [String; 11] {
        let total = self.total_ns as f64;
        [
            id.to_string(),
            format_percent(self.busy_ns(core) as f64, total),
            format!("{:.3}", total / 1000.0),
            format_percent(self.tiu_ns(core.tiu_cycles) as f64, total),
            core.tiu_cycles.to_string(),
            format_percent(core.asked as f64, core.done as f64),
            core.gdma_cycles.to_string(),
            self.format_speed(core.gdma_ddr),
            self.format_speed(core.gdma_l2),
            core.sdma_cycles.to_string(),
            self.format_speed(core.sdma_ddr),
        ]
    }

    fn busy_ns(&self, core: &CoreSums) -> i64 {
        let sdma = if self.cores.len() == 1 { 0 } else { self.dma_ns(core.sdma_cycles) };
        self.tiu_ns(core.tiu_cycles) + self.dma_ns(core.gdma_cycles) + sdma
    }

    fn overall_row(&self) -> [String; 11] {
        let total = self.total_ns as f64;
        let all = total * self.cores.len() as f64;
        let sum = |of: fn(&CoreSums) -> Moved| {
            self.cores.iter().map(of).fold(Moved::default(), |sum, moved| Moved {
                bytes: sum.bytes + moved.bytes,
                cycles: sum.cycles + moved.cycles,
            })
        };
        let longest = |of: fn(&CoreSums) -> i64, mhz: f64| {
            let cycles = self.cores.iter().map(of).max().unwrap_or(0);
            format!("{:.3}(us)", cycles as f64 / mhz)
        };
        let busy: i64 = self.cores.iter().map(|core| self.busy_ns(core)).sum();
        let tiu: i64 = self.cores.iter().map(|core| self.tiu_ns(core.tiu_cycles)).sum();
        let asked: u128 = self.cores.iter().map(|core| core.asked).sum();
        let done: u128 = self.cores.iter().map(|core| core.done).sum();
        [
            "Overall".to_owned(),
            format_percent(busy as f64, all),
            format!("{:.3}", total / 1000.0),
            format_percent(tiu as f64, all),
            longest(|core| core.tiu_cycles, self.tiu_mhz),
            format_percent(asked as f64, done as f64),
            longest(|core| core.gdma_cycles, self.dma_mhz),
            self.format_speed(sum(|core| core.gdma_ddr)),
            self.format_speed(sum(|core| core.gdma_l2)),
            longest(|core| core.sdma_cycles, self.dma_mhz),
            self.format_speed(sum(|core| core.sdma_ddr)),
        ]
    }
}

/// Converts cycles to nanoseconds, rounded to two decimals and then truncated, as in the vendor's tool.
pub fn time_ns(cycles: i64, mhz: f64) -> i64 {
    let time = cycles as f64 / mhz * 1000.0;
    format!("{time:.2}").parse::<f64>().unwrap_or(time) as i64
}

fn format_percent(part: f64, whole: f64) -> String {
    if whole == 0.0 { "0.00%".to_owned() } else { format!("{:.2}%", part / whole * 100.0) }
}
