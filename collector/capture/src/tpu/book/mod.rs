//! Workbook of a capture: a summary of all engines, a sheet per engine with all records, and one CSV table of all
//! records. If the layers of a compiled model are known, two sheets about them come first.
//!
//! Sheets and columns match the vendor's tool. Sheets are rendered and compressed on all threads, row by row. The XML
//! is written directly, since a general-purpose writer is much slower (docs/decisions/0007-own-sheets.md).

mod columns;
mod engines;
mod layers;
mod row;
mod sheet;
mod sums;
mod table;
mod zip;

use super::chip::Engine;
use super::core::{Core, ENGINES};
use super::event::Event;
use super::timeline::Timeline;
use super::{Result, cdma::Port, output};
use engines::{CoreTotals, number, percent, speed};
use rayon::prelude::*;
use row::Rows;
use sheet::{Cell, MAX_ROWS, Sheet, Style};
use std::path::Path;
use sums::{DmaSums, TiuSums};
use zip::{Packed, ZipMember};

pub const FOLDER: &str = "PerfDoc";
/// File name of the workbook.
pub const BOOK: &str = "PerfAI_output.xlsx";
pub const TABLE: &str = "PerfAI_output.csv";
/// Number of highlighted columns.
const KEYS: usize = 20;

#[derive(Clone, Copy)]
enum Owner<'a> {
    Core(&'a Core, Engine),
    Port(&'a Port),
}

impl Owner<'_> {
    fn engine(&self) -> Engine {
        match self {
            Owner::Core(_, engine) => *engine,
            Owner::Port(_) => Engine::Cdma,
        }
    }

    fn name(&self) -> String {
        match self {
            Owner::Core(core, engine) => format!("{}_{}", engine.name(), core.id),
            Owner::Port(port) => format!("CDMA_{}", port.number),
        }
    }
}

impl<'a> Owner<'a> {
    fn events(self, timeline: &'a Timeline) -> Box<dyn Iterator<Item = Event<'a>> + 'a> {
        match self {
            Owner::Core(core, engine) => Box::new(timeline.core_events(core, engine)),
            Owner::Port(port) => Box::new(timeline.port_events(port)),
        }
    }
}

/// Writes workbook and table. `cores` limits the cores in the workbook.
pub fn write(timeline: &Timeline, directory: &Path, cores: Option<u32>) -> Result<()> {
    let folder = directory.join(FOLDER);
    let owners = owners(timeline, cores);
    let totals = totals(timeline);
    let total_ns = super::summary::summarise(timeline).map_or(0, |summary| summary.total_ns);
    let layers = timeline.layers.as_ref().map(|layers| layers::LayerFigures::new(timeline, layers));
    // Number of sheets before those of the engines.
    let before = 1 + if layers.is_some() { layers::SHEETS.len() } else { 0 };
    // Started first, since writing the table takes longest.
    let table = || output::write(&folder.join(TABLE), |file| table::write(timeline, file));
    let sheets =
        || owners.par_iter().enumerate().map(|(index, owner)| sheet(timeline, *owner, before + index + 1)).collect();
    let (table, sheets): (Result<()>, Vec<Packed>) = rayon::join(table, sheets);
    table?;
    let mut members = parts(&owners, layers.is_some());
    if let Some(shown) = &layers {
        let overall = engines::overall(timeline, &totals, total_ns);
        members.extend([layers::summary(shown, overall, 1), layers::details(shown, 2)]);
    }
    members.push(engines::write(timeline, &totals, total_ns, before));
    members.extend(sheets);
    output::write(&folder.join(BOOK), |file| zip::write(&members, file))
}

fn owners(timeline: &Timeline, cores: Option<u32>) -> Vec<Owner<'_>> {
    let shown = timeline.cores.iter().filter(|core| cores.is_none_or(|count| core.id < count));
    let mut owners: Vec<Owner<'_>> =
        shown.flat_map(|core| timeline.engines_of(core).map(move |engine| Owner::Core(core, engine))).collect();
    owners.extend(timeline.ports.iter().filter(|port| !port.stream.records.is_empty()).map(Owner::Port));
    owners
}

fn totals(timeline: &Timeline) -> Vec<CoreTotals> {
    let of_core = |core: &Core| {
        let [_, gdma, sdma] = ENGINES.map(|engine| match engine {
            Engine::Tiu => DmaSums::default(),
            engine => sums::dma(timeline.core_events(core, engine)),
        });
        let (tiu, _) = sums::tiu(timeline.core_events(core, Engine::Tiu));
        CoreTotals { tiu, dma: [gdma, sdma, DmaSums::default()] }
    };
    let mut totals: Vec<CoreTotals> = timeline.cores.par_iter().map(of_core).collect();
    let last = totals.len().saturating_sub(1);
    for event in timeline.ports.iter().flat_map(|port| timeline.port_events(port)) {
        let core = event.core.map_or(last, |core| core as usize);
        if let Some(totals) = totals.get_mut(core) {
            totals.dma[2].add(&event);
        }
    }
    totals
}

fn sheet(timeline: &Timeline, owner: Owner<'_>, number: usize) -> Packed {
    match owner.engine() {
        Engine::Tiu => tiu_sheet(timeline, owner, number),
        _ => dma_sheet(timeline, owner, number),
    }
}

fn widths(names: &[String]) -> Vec<f64> {
    names.iter().map(|name| (name.len() as f64 * 1.05).max(7.0)).collect()
}

fn records(timeline: &Timeline, owner: Owner<'_>, names: &[String], sheet: &mut Sheet) {
    let heads: Vec<(Cell, Style)> = names.iter().map(|name| (name.as_str().into(), Style::Column)).collect();
    sheet.row(&heads);
    let hexadecimal: Vec<bool> = names.iter().map(|name| columns::is_hexadecimal(name)).collect();
    let mut rows = Rows::new(names, timeline.layers.as_ref());
    for event in owner.events(timeline).take(MAX_ROWS - sheet.rows()) {
        sheet.record(rows.of(&event), &hexadecimal, KEYS);
    }
}

fn heads<const N: usize>(title: &str, gap: usize, names: [&str; N]) -> Vec<(Cell, Style)> {
    let mut row = vec![(title.into(), Style::Title)];
    row.extend((0..gap).map(|_| (Cell::Empty, Style::Plain)));
    row.extend(names.map(|name| (Cell::from(name), Style::Head)));
    row
}

fn figures(title: &str, gap: usize, cells: impl IntoIterator<Item = Cell>) -> Vec<(Cell, Style)> {
    let mut row = vec![(title.into(), Style::Title)];
    row.extend((0..gap).map(|_| (Cell::Empty, Style::Plain)));
    row.extend(cells.into_iter().map(|cell| (cell, Style::Figure)));
    row
}

/// Inserts cells into a row, starting at a column (0 is A).
fn beside(mut row: Vec<(Cell, Style)>, column: usize, cells: Vec<(Cell, Style)>) -> Vec<(Cell, Style)> {
    while row.len() < column {
        row.push((Cell::Empty, Style::Plain));
    }
    row.extend(cells);
    row
}

const SPECIFICATION: [&str; 11] = [
    "Platform",
    "CHIP ARCH",
    "Core Num",
    "NPU Num",
    "Cube IC Align(8bits)",
    "Cube OHOW Align",
    "Vector OHOW Align(8bits)",
    "TIU Frequency(MHz)",
    "DMA Frequency(MHz)",
    "DDR Frequency(MHz)",
    "TPU Lmem Size(MiB)",
];

const FIELDS: [[&str; 2]; 3] = [
    [
        "uArch Rate",
        "Alg Ops / uArch Ops: the array works on aligned shapes, so it does more than the algorithm asks for. Closer to 100% is better.",
    ],
    ["Data Type", "Element type of the first operand -> that of the result."],
    [
        "Avg Cycle Last 200",
        "Mean time from one command to the next over the last 200. Many short commands in a row burden the PMU and cost speed.",
    ],
];

const STATISTICS: [&str; 11] = [
    "Function Name",
    "Instr Num",
    "Alg Ops",
    "Alg Ops Ratio",
    "Alg Cycle",
    "Alg Cycle Ratio",
    "uArch Ops",
    "uArch URate",
    "uArch Ops Ratio",
    "Asic Cycle",
    "Asic Cycle Ratio",
];

fn tiu_sheet(timeline: &Timeline, owner: Owner<'_>, number_of_sheet: usize) -> Packed {
    const BOX: usize = 14;
    let names = row::columns(columns::tiu(), owner.events(timeline));
    let (total, kinds) = sums::tiu(owner.events(timeline));
    let mut sheet = Sheet::begin(number_of_sheet, "008000", 0, &widths(&names));
    let parameters = timeline.settings.chip.parameters(timeline.settings.tiu_mhz);
    let parameter = |name: &str| {
        let label = match name {
            "CHIP ARCH" => "Chip Arch",
            "Cube OHOW Align" => "Cube OHOW Align(8bits)",
            name => name,
        };
        parameters.iter().find(|(key, _)| *key == label).map_or(Cell::Empty, |(_, value)| value.as_str().into())
    };
    let row = heads(
        "Performance",
        0,
        ["totalTiuCycle", "totalAlgCycle", "algTotalOps", "totalUArchOps", "uArchURate", "waitMsgTotalTime"],
    );
    sheet.row(&beside(row, BOX, heads("Detail Spec", 0, SPECIFICATION)));
    let whole = |value: u128| Cell::Number(value as f64);
    let row = figures(
        "Summary",
        0,
        [
            number(total.cycles),
            whole(total.algorithm),
            whole(total.asked),
            whole(total.done),
            percent(total.asked as f64, total.done as f64),
            number(total.waits),
        ],
    );
    let values = SPECIFICATION.iter().map(|name| (parameter(name), Style::Figure)).collect();
    sheet.row(&beside(row, BOX + 1, values));
    sheet.row(&[]);
    sheet.row(&beside(Vec::new(), BOX, heads("Description", 0, ["Field", "Description"])));
    let mut lines: Vec<Vec<(Cell, Style)>> = vec![Vec::new(), heads("Statistics", 0, STATISTICS)];
    // Rows of types contain all cycles; the overall row excludes waits, like the box above.
    let overall = std::iter::once(("Overall", TiuSums { waits: 0, ..total }));
    lines.extend(kinds.into_iter().chain(overall).map(|(name, sums)| statistics(name, &sums, &total)));
    for (index, line) in lines.into_iter().enumerate() {
        let field = FIELDS.get(index).map(|field| field.map(|text| (Cell::from(text), Style::Figure)).to_vec());
        sheet.row(&beside(line, BOX + 1, field.unwrap_or_default()));
    }
    (5..8).for_each(|row| sheet.merge(format!("Q{row}:AD{row}")));
    sheet.row(&[]);
    records(timeline, owner, &names, &mut sheet);
    sheet.finish()
}

fn statistics(name: &str, sums: &TiuSums, total: &TiuSums) -> Vec<(Cell, Style)> {
    let whole = |value: u128| Cell::Number(value as f64);
    let part = |part: u128, all: u128| {
        if name == "Overall" { "100.00%".into() } else { percent(part as f64, all as f64) }
    };
    let cycles = sums.cycles + sums.waits;
    let cells = [
        Cell::Empty,
        name.into(),
        number(sums.count),
        whole(sums.asked),
        part(sums.asked, total.asked),
        whole(sums.algorithm),
        part(sums.algorithm, total.algorithm),
        whole(sums.done),
        percent(sums.asked as f64, sums.done as f64),
        part(sums.done, total.done),
        number(cycles),
        percent(cycles as f64, total.cycles as f64),
    ];
    cells.into_iter().map(|cell| (cell, Style::Figure)).collect()
}

fn dma_sheet(timeline: &Timeline, owner: Owner<'_>, number_of_sheet: usize) -> Packed {
    let names = match owner {
        // Both DMA engines of a core have the same columns, so that their sheets can be compared.
        Owner::Core(core, _) => {
            let both = [Engine::Gdma, Engine::Sdma].map(|engine| timeline.core_events(core, engine));
            row::columns(columns::dma(), both.into_iter().flatten())
        }
        Owner::Port(_) => row::columns(columns::dma(), owner.events(timeline)),
    };
    let sums = sums::dma(owner.events(timeline));
    let colour = match owner.engine() {
        Engine::Gdma => "FFA500",
        Engine::Sdma => "D0CECE",
        Engine::Tiu | Engine::Cdma => "C0504D",
    };
    let mut sheet = Sheet::begin(number_of_sheet, colour, 6, &widths(&names));
    sheet.row(&heads(
        "Performance",
        1,
        [
            "totalDmaCycle",
            "workingCycle",
            "totalStallCycle",
            "stallCycleRatio",
            "totalDdrDataSize(B)",
            "totalL2DataSize(B)",
            "ddrAvgBandwidth(GB/s)",
            "l2AvgBandwidth(GB/s)",
            "waitMsgTotalTime",
        ],
    ));
    let all = if timeline.settings.compat { sums.working() } else { sums.cycles };
    sheet.row(&figures(
        "Summary",
        1,
        [
            number(all),
            number(sums.working()),
            number(sums.stalls),
            percent(sums.stalls as f64, sums.cycles as f64),
            number(sums.ddr.bytes),
            number(sums.l2.bytes),
            speed(timeline, sums.ddr),
            speed(timeline, sums.l2),
            number(sums.waits),
        ],
    ));
    sheet.row(&[]);
    sheet.row(&[]);
    let note =
        "*Stall Cycle: the time lost when the tensor unit and this engine wanted the same bank of memory at once.";
    sheet.row(&[(note.into(), Style::Plain)]);
    records(timeline, owner, &names, &mut sheet);
    sheet.finish()
}

fn parts(owners: &[Owner<'_>], has_layers: bool) -> Vec<Packed> {
    const HEAD: &str = r#"<?xml version="1.0" encoding="UTF-8" standalone="yes"?>"#;
    const MAIN: &str = "http://schemas.openxmlformats.org/spreadsheetml/2006/main";
    const RELATIONS: &str = "http://schemas.openxmlformats.org/package/2006/relationships";
    const OFFICE: &str = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
    const TYPES: &str = "application/vnd.openxmlformats-officedocument.spreadsheetml";
    let first = layers::SHEETS.into_iter().filter(|_| has_layers).chain(["Engine Summary"]);
    let names: Vec<String> = first.map(str::to_owned).chain(owners.iter().map(Owner::name)).collect();
    let each = |text: &dyn Fn(usize, &str) -> String| -> String {
        names.iter().enumerate().map(|(index, name)| text(index + 1, name)).collect()
    };
    let sheets = each(&|number, name| format!(r#"<sheet name="{name}" sheetId="{number}" r:id="rId{number}"/>"#));
    let overrides = each(&|number, _| {
        format!(r#"<Override PartName="/xl/worksheets/sheet{number}.xml" ContentType="{TYPES}.worksheet+xml"/>"#)
    });
    let relations = each(&|number, _| {
        format!(r#"<Relationship Id="rId{number}" Type="{OFFICE}/worksheet" Target="worksheets/sheet{number}.xml"/>"#)
    });
    let styles = names.len() + 1;
    let texts = [
        (
            "[Content_Types].xml",
            format!(
                r#"{HEAD}<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/><Override PartName="/xl/workbook.xml" ContentType="{TYPES}.sheet.main+xml"/><Override PartName="/xl/styles.xml" ContentType="{TYPES}.styles+xml"/>{overrides}</Types>"#
            ),
        ),
        (
            "_rels/.rels",
            format!(
                r#"{HEAD}<Relationships xmlns="{RELATIONS}"><Relationship Id="rId1" Type="{OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>"#
            ),
        ),
        (
            "xl/workbook.xml",
            format!(r#"{HEAD}<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}"><sheets>{sheets}</sheets></workbook>"#),
        ),
        (
            "xl/_rels/workbook.xml.rels",
            format!(
                r#"{HEAD}<Relationships xmlns="{RELATIONS}">{relations}<Relationship Id="rId{styles}" Type="{OFFICE}/styles" Target="styles.xml"/></Relationships>"#
            ),
        ),
        ("xl/styles.xml", sheet::STYLES.to_owned()),
    ];
    texts
        .into_iter()
        .map(|(name, text)| {
            let mut member = ZipMember::new(name);
            member.add(text.as_bytes());
            member.finish()
        })
        .collect()
}
