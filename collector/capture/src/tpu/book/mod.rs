//! Workbook of a capture, with the sheets and columns of the vendor's tool, and one CSV table of all records. Sheets
//! are rendered and compressed on all threads. The XML is written directly, since a general-purpose writer is much
//! slower (docs/decisions/0007-own-sheets.md).

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
use engines::{CoreTotals, number_cell, percent_cell, speed_cell};
use rayon::prelude::*;
use row::Rows;
use sheet::{Cell, MAX_ROWS, Sheet, Style};
use std::path::Path;
use sums::{DmaSums, TiuSums};
use zip::{Packed, ZipMember};

pub const FOLDER: &str = "PerfDoc";
pub const BOOK: &str = "PerfAI_output.xlsx";
pub const TABLE: &str = "PerfAI_output.csv";
/// Number of highlighted columns at the start of a sheet.
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

/// Writes the workbook and the table; `cores` limits the cores in the workbook.
pub fn write_book(timeline: &Timeline, directory: &Path, cores: Option<u32>) -> Result<()> {
    let folder = directory.join(FOLDER);
    let owners = list_owners(timeline, cores);
    let totals = core_totals(timeline);
    let total_ns = super::summary::sum_timeline(timeline).map_or(0, |summary| summary.total_ns);
    let layers = timeline.layers.as_ref().map(|layers| layers::LayerFigures::new(timeline, layers));
    // Number of sheets before those of the engines.
    let before = 1 + if layers.is_some() { layers::SHEETS.len() } else { 0 };
    // Started first, since writing the table takes longest.
    let table = || output::write_file(&folder.join(TABLE), |file| table::write_table(timeline, file));
    let sheets = || {
        owners.par_iter().enumerate().map(|(index, owner)| pack_sheet(timeline, *owner, before + index + 1)).collect()
    };
    let (table, sheets): (Result<()>, Vec<Packed>) = rayon::join(table, sheets);
    table?;
    let mut members = package_members(&owners, layers.is_some());
    if let Some(shown) = &layers {
        let overall = engines::overall_totals(timeline, &totals, total_ns);
        members.extend([layers::pack_summary(shown, overall, 1), layers::pack_details(shown, 2)]);
    }
    members.push(engines::pack_engines(timeline, &totals, total_ns, before));
    members.extend(sheets);
    output::write_file(&folder.join(BOOK), |file| zip::write_archive(&members, file))
}

fn list_owners(timeline: &Timeline, cores: Option<u32>) -> Vec<Owner<'_>> {
    let shown = timeline.cores.iter().filter(|core| cores.is_none_or(|count| core.id < count));
    let mut owners: Vec<Owner<'_>> =
        shown.flat_map(|core| timeline.engines_of(core).map(move |engine| Owner::Core(core, engine))).collect();
    owners.extend(timeline.ports.iter().filter(|port| !port.stream.records.is_empty()).map(Owner::Port));
    owners
}

fn core_totals(timeline: &Timeline) -> Vec<CoreTotals> {
    let of_core = |core: &Core| {
        let [_, gdma, sdma] = ENGINES.map(|engine| match engine {
            Engine::Tiu => DmaSums::default(),
            engine => sums::sum_dma(timeline.core_events(core, engine)),
        });
        let (tiu, _) = sums::sum_tiu(timeline.core_events(core, Engine::Tiu));
        CoreTotals { tiu, dma: [gdma, sdma, DmaSums::default()] }
    };
    let mut totals: Vec<CoreTotals> = timeline.cores.par_iter().map(of_core).collect();
    let last = totals.len().saturating_sub(1);
    for event in timeline.ports.iter().flat_map(|port| timeline.port_events(port)) {
        let core = event.core.map_or(last, |core| core as usize);
        if let Some(totals) = totals.get_mut(core) {
            totals.dma[2].add_event(&event);
        }
    }
    totals
}

fn pack_sheet(timeline: &Timeline, owner: Owner<'_>, number: usize) -> Packed {
    match owner.engine() {
        Engine::Tiu => tiu_sheet(timeline, owner, number),
        _ => dma_sheet(timeline, owner, number),
    }
}

fn column_widths(names: &[String]) -> Vec<f64> {
    names.iter().map(|name| (name.len() as f64 * 1.05).max(7.0)).collect()
}

fn write_records(timeline: &Timeline, owner: Owner<'_>, names: &[String], sheet: &mut Sheet) {
    let heads: Vec<(Cell, Style)> = names.iter().map(|name| (name.as_str().into(), Style::Column)).collect();
    sheet.write_row(&heads);
    let hexadecimal: Vec<bool> = names.iter().map(|name| columns::is_hexadecimal(name)).collect();
    let mut rows = Rows::new(names, timeline.layers.as_ref());
    for event in owner.events(timeline).take(MAX_ROWS - sheet.row_count()) {
        sheet.write_record(rows.event_cells(&event), &hexadecimal, KEYS);
    }
}

fn head_cells<const N: usize>(title: &str, gap: usize, names: [&str; N]) -> Vec<(Cell, Style)> {
    let mut row = vec![(title.into(), Style::Title)];
    row.extend((0..gap).map(|_| (Cell::Empty, Style::Plain)));
    row.extend(names.map(|name| (Cell::from(name), Style::Head)));
    row
}

fn figure_cells(title: &str, gap: usize, cells: impl IntoIterator<Item = Cell>) -> Vec<(Cell, Style)> {
    let mut row = vec![(title.into(), Style::Title)];
    row.extend((0..gap).map(|_| (Cell::Empty, Style::Plain)));
    row.extend(cells.into_iter().map(|cell| (cell, Style::Figure)));
    row
}

/// Inserts cells into a row, starting at a column (0 is A).
fn insert_cells(mut row: Vec<(Cell, Style)>, column: usize, cells: Vec<(Cell, Style)>) -> Vec<(Cell, Style)> {
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
        "Alg Ops / uArch Ops: the hardware works on aligned shapes, so it executes more operations than the algorithm \
         needs. Closer to 100% is better.",
    ],
    ["Data Type", "Element types of the first operand and of the result."],
    [
        "Avg Cycle Last 200",
        "Mean time from one command to the next over the last 200 commands. Many short commands in a row overload the \
         PMU and reduce performance.",
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
    let names = row::used_columns(columns::tiu_columns(), owner.events(timeline));
    let (total, kinds) = sums::sum_tiu(owner.events(timeline));
    let mut sheet = Sheet::begin(number_of_sheet, "008000", 0, &column_widths(&names));
    let parameters = timeline.settings.chip.report_parameters(timeline.settings.tiu_mhz);
    let parameter = |name: &str| {
        let label = match name {
            "CHIP ARCH" => "Chip Arch",
            "Cube OHOW Align" => "Cube OHOW Align(8bits)",
            name => name,
        };
        parameters.iter().find(|(key, _)| *key == label).map_or(Cell::Empty, |(_, value)| value.as_str().into())
    };
    let row = head_cells(
        "Performance",
        0,
        ["totalTiuCycle", "totalAlgCycle", "algTotalOps", "totalUArchOps", "uArchURate", "waitMsgTotalTime"],
    );
    sheet.write_row(&insert_cells(row, BOX, head_cells("Detail Spec", 0, SPECIFICATION)));
    let whole = |value: u128| Cell::Number(value as f64);
    let row = figure_cells(
        "Summary",
        0,
        [
            number_cell(total.cycles),
            whole(total.algorithm),
            whole(total.asked),
            whole(total.done),
            percent_cell(total.asked as f64, total.done as f64),
            number_cell(total.waits),
        ],
    );
    let values = SPECIFICATION.iter().map(|name| (parameter(name), Style::Figure)).collect();
    sheet.write_row(&insert_cells(row, BOX + 1, values));
    sheet.write_row(&[]);
    sheet.write_row(&insert_cells(Vec::new(), BOX, head_cells("Description", 0, ["Field", "Description"])));
    let mut lines: Vec<Vec<(Cell, Style)>> = vec![Vec::new(), head_cells("Statistics", 0, STATISTICS)];
    // Rows of types contain all cycles; the overall row excludes waits, like the box above.
    let overall = std::iter::once(("Overall", TiuSums { waits: 0, ..total }));
    lines.extend(kinds.into_iter().chain(overall).map(|(name, sums)| statistics_row(name, &sums, &total)));
    for (index, line) in lines.into_iter().enumerate() {
        let field = FIELDS.get(index).map(|field| field.map(|text| (Cell::from(text), Style::Figure)).to_vec());
        sheet.write_row(&insert_cells(line, BOX + 1, field.unwrap_or_default()));
    }
    (5..8).for_each(|row| sheet.merge_cells(format!("Q{row}:AD{row}")));
    sheet.write_row(&[]);
    write_records(timeline, owner, &names, &mut sheet);
    sheet.finish()
}

fn statistics_row(name: &str, sums: &TiuSums, total: &TiuSums) -> Vec<(Cell, Style)> {
    let whole = |value: u128| Cell::Number(value as f64);
    let part = |part: u128, all: u128| {
        if name == "Overall" { "100.00%".into() } else { percent_cell(part as f64, all as f64) }
    };
    let cycles = sums.cycles + sums.waits;
    let cells = [
        Cell::Empty,
        name.into(),
        number_cell(sums.count),
        whole(sums.asked),
        part(sums.asked, total.asked),
        whole(sums.algorithm),
        part(sums.algorithm, total.algorithm),
        whole(sums.done),
        percent_cell(sums.asked as f64, sums.done as f64),
        part(sums.done, total.done),
        number_cell(cycles),
        percent_cell(cycles as f64, total.cycles as f64),
    ];
    cells.into_iter().map(|cell| (cell, Style::Figure)).collect()
}

fn dma_sheet(timeline: &Timeline, owner: Owner<'_>, number_of_sheet: usize) -> Packed {
    let names = match owner {
        // Both DMA engines of a core have the same columns, so that their sheets can be compared.
        Owner::Core(core, _) => {
            let both = [Engine::Gdma, Engine::Sdma].map(|engine| timeline.core_events(core, engine));
            row::used_columns(columns::dma_columns(), both.into_iter().flatten())
        }
        Owner::Port(_) => row::used_columns(columns::dma_columns(), owner.events(timeline)),
    };
    let sums = sums::sum_dma(owner.events(timeline));
    let colour = match owner.engine() {
        Engine::Gdma => "FFA500",
        Engine::Sdma => "D0CECE",
        Engine::Tiu | Engine::Cdma => "C0504D",
    };
    let mut sheet = Sheet::begin(number_of_sheet, colour, 6, &column_widths(&names));
    sheet.write_row(&head_cells(
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
    let all = if timeline.settings.compat { sums.working_cycles() } else { sums.cycles };
    sheet.write_row(&figure_cells(
        "Summary",
        1,
        [
            number_cell(all),
            number_cell(sums.working_cycles()),
            number_cell(sums.stalls),
            percent_cell(sums.stalls as f64, sums.cycles as f64),
            number_cell(sums.ddr.bytes),
            number_cell(sums.l2.bytes),
            speed_cell(timeline, sums.ddr),
            speed_cell(timeline, sums.l2),
            number_cell(sums.waits),
        ],
    ));
    sheet.write_row(&[]);
    sheet.write_row(&[]);
    let note = "*Stall Cycle: the time lost when the tensor unit and this engine accessed the same memory bank at the \
                same time.";
    sheet.write_row(&[(note.into(), Style::Plain)]);
    write_records(timeline, owner, &names, &mut sheet);
    sheet.finish()
}

fn package_members(owners: &[Owner<'_>], has_layers: bool) -> Vec<Packed> {
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
