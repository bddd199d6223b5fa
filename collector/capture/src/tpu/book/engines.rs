//! First sheet of the workbook: one row per core with totals of all engines.

use super::sheet::{Cell, Sheet, Style};
use super::sums::{DmaSums, TiuSums};
use super::zip::Packed;
use crate::tpu::chip::Engine;
use crate::tpu::summary::{Moved, time_ns};
use crate::tpu::timeline::Timeline;

#[derive(Clone, Copy, Debug, Default)]
pub struct CoreTotals {
    pub tiu: TiuSums,
    /// Totals of GDMA, SDMA and the ports. Of the ports, only records of this core's commands are included.
    pub dma: [DmaSums; 3],
}

const COLUMNS: [&str; 23] = [
    "CoreId",
    "TiuWorkingRatio",
    "Parallelism",
    "Concurrency",
    "totalTime(us)",
    "totalTiuCycle",
    "totalAlgCycle",
    "totalAlgOps",
    "totalUArchOps",
    "uArchURate",
    "totalGdmaCycle",
    "totalDdrDataSize",
    "totalL2DataSize",
    "ddrAvgBandwidth",
    "l2AvgBandwidth",
    "totalSdmaCycle",
    "totalDdrDataSize",
    "ddrAvgBandwidth",
    "totalcdmaCycle",
    "totalDdrDataSize",
    "totalL2DataSize",
    "ddrAvgBandwidth",
    "l2AvgBandwidth",
];

/// Headers of column groups, one per engine, with their numbers of columns.
const BANDS: [(&str, usize); 5] = [("", 5), ("TIU", 5), ("GDMA", 5), ("SDMA", 3), ("CDMA", 5)];

const NOTES: [[&str; 2]; 7] = [
    ["Tiu Working Ratio", "totalTiuCycle / totalTime: share of the time in which the tensor unit was busy."],
    ["Parallelism(%)", "(TIU time + GDMA time + SDMA time) / totalTime: average number of busy engines."],
    [
        "Concurrency(%)",
        "(TIU time + GDMA time - totalTime) / the smaller of TIU time and GDMA time: minimum overlap of the two \
         engines.",
    ],
    ["Total Alg Cycle", "Cycles that the algorithm's operations need at the full rate."],
    ["Total Alg Ops", "Number of operations of the algorithm."],
    ["Total uArch Ops", "Number of operations that the hardware executes, including padding."],
    ["uArch URate", "Total Alg Ops / Total uArch Ops."],
];

pub fn overall_totals(timeline: &Timeline, cores: &[CoreTotals], total_ns: i64) -> Overall {
    let times = EngineTimes { timeline, total_ns };
    let tiu = times.tiu_ns(cores.iter().map(|core| core.tiu.cycles).max().unwrap_or(0));
    let gdma = times.dma_ns(cores.iter().map(|core| core.dma[0].working_cycles()).max().unwrap_or(0));
    let total = total_ns as f64;
    let shorter = tiu.min(gdma);
    let concurrency = if shorter == 0.0 { 0.0 } else { (tiu + gdma - total) / shorter * 100.0 };
    Overall { total_us: total / 1000.0, concurrency: (concurrency * 100.0).round() / 100.0 }
}

pub fn pack_engines(timeline: &Timeline, cores: &[CoreTotals], total_ns: i64, number_of_sheet: usize) -> Packed {
    let widths: Vec<f64> = COLUMNS.iter().map(|name| (name.len() as f64 * 1.05).max(9.0)).collect();
    let mut sheet = Sheet::begin(number_of_sheet, "FFC7CE", 0, &widths);
    let platform = format!("Platform: {}", timeline.settings.chip.facts().name);
    sheet.write_row(&[(platform.into(), Style::Title)]);
    sheet.merge_cells("A1:B1");
    sheet.write_row(&[]);
    sheet.write_row(&[]);
    let bands = BANDS.iter().flat_map(|(name, width)| {
        std::iter::once((Cell::from(*name), Style::Head)).chain((1..*width).map(|_| ("".into(), Style::Head)))
    });
    sheet.write_row(&bands.collect::<Vec<_>>());
    sheet.write_row(&COLUMNS.map(|name| (name.into(), Style::Column)));
    let times = EngineTimes { timeline, total_ns };
    for (id, core) in cores.iter().enumerate() {
        sheet.write_row(&times.core_row(id, core, cores.len()).map(|cell| (cell, Style::Data)));
    }
    sheet.write_row(&times.overall_row(cores).map(|cell| (cell, Style::Figure)));
    while sheet.row_count() < cores.len() + 9 {
        sheet.write_row(&[]);
    }
    sheet.write_row(&[("Field".into(), Style::Head), ("Description".into(), Style::Head)]);
    for [field, text] in NOTES {
        sheet.write_row(&[(field.into(), Style::Figure), (text.into(), Style::Plain)]);
    }
    sheet.finish()
}

struct EngineTimes<'a> {
    timeline: &'a Timeline,
    total_ns: i64,
}

#[derive(Clone, Copy, Debug)]
pub struct Overall {
    pub total_us: f64,
    pub concurrency: f64,
}

pub fn percent_cell(part: f64, whole: f64) -> Cell {
    if whole == 0.0 { "0.00%".into() } else { format!("{:.2}%", part / whole * 100.0).into() }
}

pub fn number_cell(value: impl Into<i128>) -> Cell {
    Cell::Number(value.into() as f64)
}

pub fn speed_cell(timeline: &Timeline, moved: Moved) -> Cell {
    let time = time_ns(moved.cycles, timeline.settings.clock_mhz(Engine::Gdma));
    let speed = if time == 0 { 0.0 } else { moved.bytes as f64 / time as f64 };
    Cell::Number(format!("{speed:.2}").parse().unwrap_or(speed))
}

fn mebibyte_cell(bytes: u64) -> Cell {
    format!("{:.2}MiB", bytes as f64 / (1u64 << 20) as f64).into()
}

/// Formats a number that exceeds the exact range of a cell as text.
fn large_cell(value: u128) -> Cell {
    if value < 1 << 53 { Cell::Number(value as f64) } else { value.to_string().into() }
}

impl EngineTimes<'_> {
    fn tiu_ns(&self, cycles: i64) -> f64 {
        time_ns(cycles, self.timeline.settings.clock_mhz(Engine::Tiu)) as f64
    }

    fn dma_ns(&self, cycles: i64) -> f64 {
        time_ns(cycles, self.timeline.settings.clock_mhz(Engine::Gdma)) as f64
    }

    fn ratio_cells(&self, tiu: f64, gdma: f64, sdma: f64) -> [Cell; 3] {
        let total = self.total_ns as f64;
        [
            percent_cell(tiu, total),
            percent_cell(tiu + gdma + sdma, total),
            percent_cell(tiu + gdma - total, tiu.min(gdma)),
        ]
    }

    fn core_row(&self, id: usize, core: &CoreTotals, cores: usize) -> [Cell; 23] {
        let [gdma, sdma, cdma] = core.dma;
        let sdma_ns = if cores == 1 { 0.0 } else { self.dma_ns(sdma.working_cycles()) };
        let [working, parallel, concurrent] =
            self.ratio_cells(self.tiu_ns(core.tiu.cycles), self.dma_ns(gdma.working_cycles()), sdma_ns);
        let speed = |moved| speed_cell(self.timeline, moved);
        [
            number_cell(id as i64),
            working,
            parallel,
            concurrent,
            Cell::Number(self.total_ns as f64 / 1000.0),
            number_cell(core.tiu.cycles),
            large_cell(core.tiu.algorithm),
            large_cell(core.tiu.asked),
            large_cell(core.tiu.done),
            percent_cell(core.tiu.asked as f64, core.tiu.done as f64),
            number_cell(gdma.working_cycles()),
            number_cell(gdma.ddr.bytes),
            number_cell(gdma.l2.bytes),
            speed(gdma.ddr),
            speed(gdma.l2),
            number_cell(sdma.working_cycles()),
            number_cell(sdma.ddr.bytes),
            speed(sdma.ddr),
            number_cell(cdma.working_cycles()),
            number_cell(cdma.ddr.bytes),
            number_cell(cdma.l2.bytes),
            speed(cdma.ddr),
            speed(cdma.l2),
        ]
    }

    fn overall_row(&self, cores: &[CoreTotals]) -> [Cell; 23] {
        let sum = |engine: usize| cores.iter().map(|core| core.dma[engine]).fold(DmaSums::default(), DmaSums::plus);
        let [gdma, sdma, cdma] = [sum(0), sum(1), sum(2)];
        let longest = |engine: usize| cores.iter().map(|core| core.dma[engine].working_cycles()).max().unwrap_or(0);
        let tiu = cores.iter().map(|core| core.tiu.cycles).max().unwrap_or(0);
        let algorithm = cores.iter().map(|core| core.tiu.algorithm).max().unwrap_or(0);
        let asked: u128 = cores.iter().map(|core| core.tiu.asked).sum();
        let done: u128 = cores.iter().map(|core| core.tiu.done).sum();
        let micros = |ns: f64| Cell::from(format!("{:.3}(us)", ns / 1000.0));
        let speed = |moved| speed_cell(self.timeline, moved);
        let sdma_ns = if cores.len() == 1 { 0.0 } else { self.dma_ns(longest(1)) };
        let [working, parallel, concurrent] = self.ratio_cells(self.tiu_ns(tiu), self.dma_ns(longest(0)), sdma_ns);
        [
            "Overall".into(),
            working,
            parallel,
            concurrent,
            Cell::Number(self.total_ns as f64 / 1000.0),
            micros(self.tiu_ns(tiu)),
            micros(self.tiu_ns(algorithm as i64)),
            large_cell(asked),
            large_cell(done),
            percent_cell(asked as f64, done as f64),
            micros(self.dma_ns(longest(0))),
            mebibyte_cell(gdma.ddr.bytes),
            mebibyte_cell(gdma.l2.bytes),
            speed(gdma.ddr),
            speed(gdma.l2),
            micros(self.dma_ns(longest(1))),
            mebibyte_cell(sdma.ddr.bytes),
            speed(sdma.ddr),
            micros(self.dma_ns(longest(2))),
            mebibyte_cell(cdma.ddr.bytes),
            mebibyte_cell(cdma.l2.bytes),
            speed(cdma.ddr),
            speed(cdma.l2),
        ]
    }
}
