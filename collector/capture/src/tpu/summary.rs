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

/// How long an engine was busy: of one core, or as the mean over all cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineUse {
    pub time_ns: f64,
    /// Share of the total time.
    pub share: f64,
}

/// Figures of one core or of all cores. Over all cores, times and shares are means, while the rate and the bandwidths
/// are those of all cores' work together.
#[derive(Clone, Debug, PartialEq)]
pub struct SummaryRow {
    pub name: String,
    /// Sum of the engines' busy times over the total time.
    pub busy: f64,
    pub total_ns: f64,
    pub tiu: EngineUse,
    pub gdma: EngineUse,
    pub sdma: EngineUse,
    /// Useful share of the operations that the tensor unit performed.
    pub rate: f64,
    /// Bandwidths in GB/s.
    pub gdma_ddr: f64,
    pub gdma_l2: f64,
    pub sdma_ddr: f64,
}

/// A cell of the terminal's table and of the page.
#[derive(Clone, Debug, PartialEq)]
pub enum Figure {
    Name(String),
    Time(f64),
    Share(f64),
    /// Share of time in which an engine was busy.
    Busy(Engine, f64),
    Bandwidth(f64),
}

impl Figure {
    pub fn format_text(&self) -> String {
        match self {
            Figure::Name(name) => name.clone(),
            Figure::Time(time_ns) => format_duration(*time_ns),
            Figure::Share(share) | Figure::Busy(_, share) => format!("{:.2} %", share * 100.0),
            Figure::Bandwidth(speed) => format_speed(*speed),
        }
    }
}

/// A column of the terminal's table and of the page.
pub struct SummaryColumn {
    pub title: &'static str,
    /// Name of the column in the vendor's table; empty if that has no such column.
    pub vendor_name: &'static str,
    pub meaning: &'static str,
    /// Place in the order in which narrow terminals drop columns; `None` if they keep it.
    drop_order: Option<u8>,
    pub figure: fn(&SummaryRow) -> Figure,
}

const fn column(
    title: &'static str,
    vendor_name: &'static str,
    meaning: &'static str,
    drop_order: Option<u8>,
    figure: fn(&SummaryRow) -> Figure,
) -> SummaryColumn {
    SummaryColumn { title, vendor_name, meaning, drop_order, figure }
}

pub const COLUMNS: [SummaryColumn; 13] = [
    column("core", "CoreId", "number of the core", None, |row| Figure::Name(row.name.clone())),
    column(
        "busy",
        "Parallelism(%)",
        "busy times of all engines over the time; above 100 %, engines worked at the same time",
        None,
        |row| Figure::Share(row.busy),
    ),
    column("total time", "totalTime(us)", "time from the first record to the last", None, |row| {
        Figure::Time(row.total_ns)
    }),
    column("TIU busy", "TiuWorkingRatio", "share of time in which the tensor unit was busy", None, |row| {
        Figure::Busy(Engine::Tiu, row.tiu.share)
    }),
    column("TIU time", "totalTiuCycle", "time in which the tensor unit was busy", Some(9), |row| {
        Figure::Time(row.tiu.time_ns)
    }),
    column(
        "uArch rate",
        "uArchURate",
        "useful share of the operations that the tensor unit performed",
        Some(1),
        |row| Figure::Share(row.rate),
    ),
    column("GDMA busy", "", "share of time in which the GDMA was busy", Some(6), |row| {
        Figure::Busy(Engine::Gdma, row.gdma.share)
    }),
    column("GDMA time", "totalGdmaCycle", "time in which the GDMA was busy", Some(8), |row| {
        Figure::Time(row.gdma.time_ns)
    }),
    column("GDMA DDR GB/s", "GdmaDdrAvgBW(GB/s)", "mean GDMA bandwidth from and to DDR", Some(2), |row| {
        Figure::Bandwidth(row.gdma_ddr)
    }),
    column("GDMA L2 GB/s", "GdmaL2AvgBW(GB/s)", "mean GDMA bandwidth from and to L2", Some(4), |row| {
        Figure::Bandwidth(row.gdma_l2)
    }),
    column("SDMA busy", "", "share of time in which the SDMA was busy", Some(5), |row| {
        Figure::Busy(Engine::Sdma, row.sdma.share)
    }),
    column("SDMA time", "totalSdmaCycle", "time in which the SDMA was busy", Some(7), |row| {
        Figure::Time(row.sdma.time_ns)
    }),
    column("SDMA DDR GB/s", "SdmaDdrAvgBW(GB/s)", "mean SDMA bandwidth from and to DDR", Some(3), |row| {
        Figure::Bandwidth(row.sdma_ddr)
    }),
];

impl CaptureSummary {
    pub fn vendor_text(&self) -> String {
        let line = |cells: &[String]| {
            let padded = cells.iter().zip(HEADER).map(|(cell, (_, width))| format!("{cell:>width$}"));
            padded.collect::<Vec<_>>().join(" | ") + "\n"
        };
        let (double, single) = ("=".repeat(WIDTH) + "\n", "-".repeat(WIDTH) + "\n");
        let mut text = format!("{double}Summary\n{double}");
        text += &line(&HEADER.map(|(name, _)| name.to_owned()));
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

    pub fn to_table(&self) -> Table {
        let heading = |column: &SummaryColumn| match column.drop_order {
            Some(order) => number_column(column.title).drop_order(order),
            None => number_column(column.title),
        };
        let mut table = Table::new(COLUMNS.iter().map(heading));
        for row in self.core_rows().chain(Some(self.mean_row())) {
            table.add_row(COLUMNS.iter().map(|column| (column.figure)(&row).format_text()));
        }
        table
    }

    pub fn core_rows(&self) -> impl Iterator<Item = SummaryRow> + '_ {
        let row = |(id, core): (usize, &CoreSums)| self.summary_row(id.to_string(), std::slice::from_ref(core));
        self.cores.iter().enumerate().map(row)
    }

    pub fn mean_row(&self) -> SummaryRow {
        self.summary_row("mean".to_owned(), &self.cores)
    }

    fn summary_row(&self, name: String, cores: &[CoreSums]) -> SummaryRow {
        let (count, total_ns) = (cores.len(), self.total_ns as f64);
        let all_ns = total_ns * count as f64;
        let usage = |time_ns: i64| EngineUse {
            time_ns: time_ns as f64 / count.max(1) as f64,
            share: part_of(time_ns as f64, all_ns),
        };
        let speed = |of: fn(&CoreSums) -> Moved| {
            let bytes: u64 = cores.iter().map(|core| of(core).bytes).sum();
            part_of(bytes as f64, self.dma_ns(cores.iter().map(|core| of(core).cycles).sum()) as f64)
        };
        let asked: u128 = cores.iter().map(|core| core.asked).sum();
        let done: u128 = cores.iter().map(|core| core.done).sum();
        SummaryRow {
            name,
            busy: part_of(cores.iter().map(|core| self.busy_ns(core)).sum::<i64>() as f64, all_ns),
            total_ns,
            tiu: usage(cores.iter().map(|core| self.tiu_ns(core.tiu_cycles)).sum()),
            gdma: usage(cores.iter().map(|core| self.dma_ns(core.gdma_cycles)).sum()),
            sdma: usage(cores.iter().map(|core| self.dma_ns(core.sdma_cycles)).sum()),
            rate: part_of(asked as f64, done as f64),
            gdma_ddr: speed(|core| core.gdma_ddr),
            gdma_l2: speed(|core| core.gdma_l2),
            sdma_ddr: speed(|core| core.sdma_ddr),
        }
    }

    /// Returns the engines with the shares of the time in which they were busy, as means over the cores, the busiest
    /// engine first.
    pub fn engine_shares(&self) -> [(Engine, f64); 3] {
        let SummaryRow { tiu, gdma, sdma, .. } = self.mean_row();
        let mut shares = [(Engine::Tiu, tiu.share), (Engine::Gdma, gdma.share), (Engine::Sdma, sdma.share)];
        shares.sort_by(|one, other| other.1.total_cmp(&one.1));
        shares
    }

    /// Describes the busiest engine and how long the others were busy.
    pub fn describe_engines(&self) -> String {
        let [(busiest, share), others @ ..] = self.engine_shares();
        let others = others.map(|(engine, share)| format!("{} {}", engine.name(), report::format_percent(share)));
        format!(
            "The busiest engine is {}: {} of the time (mean over cores), {}.",
            busiest.name(),
            report::format_percent(share),
            others.join(", ")
        )
    }

    /// Returns the rows of the vendor's table: one per core, and the overall row, which mixes means and maxima.
    pub fn text_rows(&self) -> Vec<[String; 11]> {
        let core_row = |(row, core): (SummaryRow, &CoreSums)| {
            vendor_row(row, [core.tiu_cycles, core.gdma_cycles, core.sdma_cycles].map(|cycles| cycles.to_string()))
        };
        let longest = |of: fn(&CoreSums) -> i64, mhz: f64| {
            let cycles = self.cores.iter().map(of).max().unwrap_or(0);
            format!("{:.3}(us)", cycles as f64 / mhz)
        };
        let overall = vendor_row(
            SummaryRow { name: "Overall".to_owned(), ..self.mean_row() },
            [
                longest(|core| core.tiu_cycles, self.tiu_mhz),
                longest(|core| core.gdma_cycles, self.dma_mhz),
                longest(|core| core.sdma_cycles, self.dma_mhz),
            ],
        );
        self.core_rows().zip(&self.cores).map(core_row).chain(Some(overall)).collect()
    }

    fn tiu_ns(&self, cycles: i64) -> i64 {
        time_ns(cycles, self.tiu_mhz)
    }

    fn dma_ns(&self, cycles: i64) -> i64 {
        time_ns(cycles, self.dma_mhz)
    }

    fn busy_ns(&self, core: &CoreSums) -> i64 {
        let sdma = if self.cores.len() == 1 { 0 } else { self.dma_ns(core.sdma_cycles) };
        self.tiu_ns(core.tiu_cycles) + self.dma_ns(core.gdma_cycles) + sdma
    }
}

/// Converts cycles to nanoseconds, rounded to two decimals and then truncated, as in the vendor's tool.
pub fn time_ns(cycles: i64, mhz: f64) -> i64 {
    let time = cycles as f64 / mhz * 1000.0;
    format!("{time:.2}").parse::<f64>().unwrap_or(time) as i64
}

/// Returns the cells of a row in the order of [`HEADER`], given the cells about cycles of TIU, GDMA and SDMA.
fn vendor_row(row: SummaryRow, [tiu, gdma, sdma]: [String; 3]) -> [String; 11] {
    let percent = |share: f64| format!("{:.2}%", share * 100.0);
    [
        row.name,
        percent(row.busy),
        format!("{:.3}", row.total_ns / 1000.0),
        percent(row.tiu.share),
        tiu,
        percent(row.rate),
        gdma,
        format_speed(row.gdma_ddr),
        format_speed(row.gdma_l2),
        sdma,
        format_speed(row.sdma_ddr),
    ]
}

/// Formats a bandwidth in GB/s without its unit.
pub fn format_speed(gb_per_s: f64) -> String {
    format!("{gb_per_s:.2}")
}

/// Returns a quotient, or 0 if the divisor is 0.
fn part_of(part: f64, whole: f64) -> f64 {
    if whole == 0.0 { 0.0 } else { part / whole }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_the_names_of_the_vendors_table() {
        let named: Vec<&str> =
            COLUMNS.iter().map(|column| column.vendor_name).filter(|name| !name.is_empty()).collect();
        assert_eq!(named, HEADER.map(|(name, _)| name));
    }
}
