//! Self-contained HTML report of a capture. Numbers are stored in columns of base64-encoded little-endian arrays, which
//! browsers load without parsing individual numbers.

use super::chip::Engine;
use super::event::{Event, dma, tiu};
use super::summary::{COLUMNS, CaptureSummary, Figure, SummaryColumn, SummaryRow, format_speed};
use super::timeline::Timeline;
use super::trace::kernel::{self, Call};
use super::{Result, names, output};
use report::{format_count, format_duration, format_number, format_percent, format_plain, page};
use serde_json::json;
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

pub const FOLDER: &str = "PerfWeb";
pub const FILE: &str = "result.html";
const NO_BATCH: u32 = u32::MAX;

pub fn write_page(timeline: &Timeline, summary: Option<&CaptureSummary>, directory: &Path) -> Result<()> {
    output::write_file(&directory.join(FOLDER).join(FILE), |file| {
        file.write_all(page::page_head("TPU capture", include_str!("style.css")).as_bytes())?;
        file.write_all(include_bytes!("body.html"))?;
        write_data(timeline, summary, file)?;
        file.write_all(include_bytes!("script.html"))?;
        file.write_all(page::page_footer().as_bytes())?;
        file.write_all(b"</body>\n</html>\n")
    })
}

#[derive(Default)]
struct Lists {
    names: Vec<[&'static str; 3]>,
    by_name: HashMap<(*const u8, *const u8, Engine), u16>,
    directions: Vec<&'static str>,
    dtypes: Vec<&'static str>,
    kernels: Vec<String>,
    by_kernel: HashMap<String, usize>,
}

fn index_or_push<T: PartialEq>(list: &mut Vec<T>, value: T) -> usize {
    list.iter().position(|known| *known == value).unwrap_or_else(|| {
        list.push(value);
        list.len() - 1
    })
}

impl Lists {
    fn intern_name(&mut self, event: &Event<'_>) -> u16 {
        let names = event.operation_names();
        let next = self.names.len() as u16;
        let key = (names.kind.as_ptr(), names.name.as_ptr(), event.engine);
        *self.by_name.entry(key).or_insert_with(|| {
            self.names.push([names.name, names.kind, event.engine.name()]);
            next
        })
    }

    fn intern_kernel(&mut self, name: &str) -> usize {
        if let Some(known) = self.by_kernel.get(name) {
            return *known;
        }
        self.by_kernel.insert(name.to_owned(), self.kernels.len());
        self.kernels.push(name.to_owned());
        self.kernels.len() - 1
    }
}

fn write_data(timeline: &Timeline, summary: Option<&CaptureSummary>, out: &mut impl Write) -> std::io::Result<()> {
    let mut lists = Lists::default();
    let groups: Vec<String> = timeline
        .cores
        .iter()
        .map(|core| format!("Core {}", core.id))
        .chain(timeline.ports.iter().map(|port| format!("CDMA port {}", port.number)))
        .collect();
    out.write_all(b"{\"lanes\":[")?;
    let mut first = true;
    for (index, core) in timeline.cores.iter().enumerate() {
        for engine in timeline.engines_of(core) {
            let lane = PageLane { group: &groups[index], label: engine.name(), engine };
            lane.write_lane(timeline, timeline.core_events(core, engine), &mut lists, &mut first, out)?;
        }
    }
    for (index, port) in timeline.ports.iter().enumerate().filter(|(_, port)| !port.stream.records.is_empty()) {
        let lane = PageLane { group: &groups[timeline.cores.len() + index], label: "records", engine: Engine::Cdma };
        lane.write_lane(timeline, timeline.port_events(port), &mut lists, &mut first, out)?;
    }
    let calls = kernel_calls(timeline, &mut lists);
    let settings = &timeline.settings;
    let text =
        |name: &std::path::Path| name.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
    let rest = json!({
        "calls": calls,
        "groups": groups,
        "names": lists.names,
        "directions": lists.directions,
        "dtypes": lists.dtypes,
        "kernels": lists.kernels,
        "chip": settings.chip.facts().name,
        "directory": text(&timeline.directory),
        "parameters": chip_parameters(settings.chip.report_parameters(settings.tiu_mhz)),
        "total_ns": timeline.all_records().map(|record| record.end).max().unwrap_or(0),
        "summary": summary.map(summary_table),
        "answer": summary.map_or(String::new(), |summary| describe_capture(timeline, summary)),
        "cards": summary_cards(timeline, summary),
    });
    out.write_all(b"],")?;
    // A `<` in a text could end the element that holds the data.
    let rest = page::escape_json(&rest.to_string());
    out.write_all(rest.trim_start_matches('{').as_bytes())
}

/// Returns the columns of the summary, the cells of each core, and those of the mean. A cell has a text, the number for
/// comparisons, and for shares the name of the engine, which is empty for several engines.
fn summary_table(summary: &CaptureSummary) -> serde_json::Value {
    let heading = |column: &SummaryColumn| {
        let SummaryColumn { title, vendor_name, meaning, .. } = column;
        json!({ "title": title, "vendorName": vendor_name, "meaning": meaning })
    };
    let cell = |figure: Figure| {
        let text = figure.format_text();
        match figure {
            Figure::Name(_) => json!({ "text": text }),
            Figure::Time(value) | Figure::Bandwidth(value) => json!({ "text": text, "value": value }),
            Figure::Share(value) => json!({ "text": text, "value": value, "engine": "" }),
            Figure::Busy(engine, value) => json!({ "text": text, "value": value, "engine": engine.name() }),
        }
    };
    let cells = |row: SummaryRow| COLUMNS.iter().map(|column| cell((column.figure)(&row))).collect::<Vec<_>>();
    json!({
        "columns": COLUMNS.iter().map(heading).collect::<Vec<_>>(),
        "cores": summary.core_rows().map(cells).collect::<Vec<_>>(),
        "mean": cells(summary.mean_row()),
    })
}

/// Describes the busiest engine, what limits the capture, and the use of the memory's bandwidth.
fn describe_capture(timeline: &Timeline, summary: &CaptureSummary) -> String {
    /// Share of time above which an engine that is busy limits the capture.
    const LIMITING: f64 = 0.8;
    let limit = match summary.engine_shares()[0] {
        (Engine::Tiu, share) if share >= LIMITING => "So arithmetic limits the capture.".to_owned(),
        (_, share) if share >= LIMITING => "So data movement limits the capture, not arithmetic.".to_owned(),
        _ => format!(
            "No engine was busy for {} % of the time, so waits between engines or for the host limit the capture.",
            format_plain(LIMITING * 100.0)
        ),
    };
    let (speed, peak) = (summary.mean_row().gdma_ddr, timeline.settings.chip.facts().ddr_gb_per_s);
    format!(
        "{} {limit} While it moved data from and to DDR, the GDMA reached {} of {} GB/s per core ({}).",
        summary.describe_engines(),
        format_speed(speed),
        format_number(peak),
        format_percent(speed / peak)
    )
}

fn summary_cards(timeline: &Timeline, summary: Option<&CaptureSummary>) -> Vec<[String; 2]> {
    let Some(summary) = summary else { return Vec::new() };
    let card = |value: String, label: &str| [value, label.to_owned()];
    let busy = summary.engine_shares().map(|(engine, share)| {
        card(format_percent(share), &format!("of the time {} was busy, mean over cores", engine.name()))
    });
    let mut cards = vec![card(format_duration(summary.total_ns as f64), "from the first record to the last")];
    cards.extend(busy);
    cards.extend([
        card(format!("{} GB/s", format_speed(summary.mean_row().gdma_ddr)), "mean GDMA bandwidth from and to DDR"),
        card(
            timeline.record_count().to_string(),
            &format!(
                "records of {}",
                format_count(timeline.cores.iter().filter(|core| !core.bytes.is_empty()).count(), "core")
            ),
        ),
    ]);
    cards
}

/// Returns each parameter as its name in words with the unit in brackets, the vendor's name, and the value.
fn chip_parameters(parameters: Vec<(&'static str, String)>) -> Vec<[String; 3]> {
    const WORDS: [(&str, &str); 14] = [
        ("Arch", "architecture"),
        ("Num", "count"),
        ("Lmem", "local memory"),
        ("Addr", "address"),
        ("BW", "bandwidth"),
        ("Tpu", "TPU"),
        ("IC", "input channel"),
        ("OHOW", "output pixel"),
        ("Max", "maximum"),
        ("Core", "core"),
        ("Unit", "unit"),
        ("Number", "count"),
        ("Align", "alignment"),
        ("Freq", "frequency"),
    ];
    let word = |word: &str| match WORDS.iter().find(|(short, _)| *short == word) {
        Some((_, long)) => (*long).to_owned(),
        None if word.chars().skip(1).all(|letter| letter.is_lowercase()) => word.to_lowercase(),
        None => word.to_owned(),
    };
    let title = |name: &str| {
        if name == "Bus Bandwidth" {
            return "bus bandwidth (the vendor gives no unit)".to_owned();
        }
        let (words, unit) = name.split_once('(').map_or((name, None), |(words, unit)| (words, Some(unit)));
        let words: Vec<String> = words.split_whitespace().map(word).collect();
        // `8bits`, but not `bits`.
        let digits = |unit: &str| unit.starts_with(|sign: char| sign.is_ascii_digit());
        let unit = unit
            .map(|unit| if digits(unit) { unit.replace("bits", " bits") } else { unit.replace("/Core", " per core") });
        words.join(" ") + &unit.map_or(String::new(), |unit| format!(" ({unit}"))
    };
    parameters.into_iter().map(|(name, value)| [title(name), name.to_owned(), value]).collect()
}

/// Returns kernel calls as lists: kernel, start, end, group, scope (-1 if unknown), number of records, mode.
fn kernel_calls(timeline: &Timeline, lists: &mut Lists) -> Vec<serde_json::Value> {
    let cores = timeline.cores.len();
    let mut result = Vec::new();
    let mut add = |calls: Vec<Call<'_>>, group: usize| {
        for call in calls {
            let scope = call.scope.map_or(-1, i64::from);
            let kernel = lists.intern_kernel(call.function);
            result.push(json!([kernel, call.start, call.end, group, scope, call.count, call.origin_names()]));
        }
    };
    for (index, core) in timeline.cores.iter().enumerate() {
        let events = super::core::ENGINES.into_iter().flat_map(|engine| timeline.core_events(core, engine));
        add(kernel::collect_calls(events), index);
    }
    for (index, port) in timeline.ports.iter().enumerate() {
        add(kernel::collect_calls(timeline.port_events(port)), cores + index);
    }
    result
}

struct PageLane<'a> {
    group: &'a str,
    label: &'a str,
    engine: Engine,
}

#[derive(Default)]
struct PageColumns {
    start: Vec<f64>,
    duration: Vec<f64>,
    cycles: Vec<u32>,
    name: Vec<u16>,
    id: Vec<u32>,
    value: Vec<f32>,
    dtype: Vec<u8>,
    kernel: Vec<u16>,
    batch: Vec<u32>,
    direction: Vec<u8>,
    bytes: Vec<f64>,
    stall: Vec<u32>,
}

impl PageLane<'_> {
    fn write_lane<'a>(
        &self,
        timeline: &'a Timeline,
        events: impl Iterator<Item = Event<'a>>,
        lists: &mut Lists,
        first: &mut bool,
        out: &mut impl Write,
    ) -> std::io::Result<()> {
        let mut events: Vec<Event<'a>> = events.collect();
        events.sort_by_key(|event| (event.record.start, event.record.end));
        let mut columns = PageColumns::default();
        let mut kernel: (Option<&str>, u16) = (None, 0);
        for event in &events {
            columns.add_event(event, lists, &mut kernel);
        }
        let facts = timeline.settings.chip.facts();
        let limit = if self.engine == Engine::Tiu { 100.0 } else { facts.ddr_gb_per_s };
        let head = json!({ "group": self.group, "label": self.label, "engine": self.engine.name(), "limit": limit });
        let head = head.to_string();
        write!(out, "{}{},\"columns\":{{", if *first { "" } else { "," }, head.trim_end_matches('}'))?;
        *first = false;
        columns.write_columns(self.engine, out)?;
        out.write_all(b"}}")
    }
}

macro_rules! columns {
    ($out:expr, $columns:expr, $( $name:ident : $kind:literal ),+) => {
        let mut comma = "";
        $(
            write!($out, "{comma}")?;
            column($out, stringify!($name), $kind, $columns.$name.iter().flat_map(|value| value.to_le_bytes()))?;
            comma = ",";
        )+
        let _ = comma;
    };
}

impl PageColumns {
    fn write_columns(&self, engine: Engine, out: &mut impl Write) -> std::io::Result<()> {
        columns!(
            out, self, start: "f64", duration: "f64", cycles: "u32", name: "u16", id: "u32", value: "f32", dtype: "u8",
            kernel: "u16", batch: "u32"
        );
        if engine != Engine::Tiu {
            write!(out, ",")?;
            columns!(out, self, direction: "u8", bytes: "f64", stall: "u32");
        }
        Ok(())
    }

    fn add_event<'a>(&mut self, event: &Event<'a>, lists: &mut Lists, last: &mut (Option<&'a str>, u16)) {
        self.start.push(event.record.start as f64);
        self.duration.push((event.record.end - event.record.start) as f64);
        self.cycles.push(u32::try_from(event.record.cycles).unwrap_or(u32::MAX));
        self.name.push(lists.intern_name(event));
        self.id.push(u32::try_from(event.command_id()).unwrap_or(u32::MAX));
        let place = event.stream_place();
        let function = place.and_then(|place| place.function);
        if function != last.0 {
            *last = (function, function.map_or(0, |name| lists.intern_kernel(name) as u16 + 1));
        }
        self.kernel.push(last.1);
        self.batch.push(place.and_then(|place| place.batch).unwrap_or(NO_BATCH));
        if event.engine == Engine::Tiu {
            let dtype = tiu::result_type(event).map_or("", names::dtype_name);
            self.dtype.push(self::index_or_push(&mut lists.dtypes, dtype) as u8);
            self.value.push((tiu::utilisation_rate(event, &tiu::event_work(event)) * 100.0) as f32);
            return;
        }
        let traffic = dma::event_traffic(event);
        self.dtype.push(self::index_or_push(&mut lists.dtypes, dma::known_dtype(event)) as u8);
        self.value.push(traffic.ddr.unwrap_or(0.0).max(traffic.l2.unwrap_or(0.0)) as f32);
        self.direction.push(self::index_or_push(&mut lists.directions, traffic.direction()) as u8);
        self.bytes.push(traffic.bytes as f64);
        self.stall.push(u32::try_from(traffic.stall).unwrap_or(u32::MAX));
    }
}

fn column(out: &mut impl Write, name: &str, kind: &str, bytes: impl Iterator<Item = u8>) -> std::io::Result<()> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const PIECE: usize = 1 << 14;
    write!(out, "\"{name}\":[\"{kind}\",\"")?;
    let mut text = Vec::with_capacity(PIECE + 4);
    let mut bytes = bytes.fuse();
    while let Some(first) = bytes.next() {
        let (second, third) = (bytes.next(), bytes.next());
        let group = u32::from(first) << 16 | u32::from(second.unwrap_or(0)) << 8 | u32::from(third.unwrap_or(0));
        let digit = |shift: u32| DIGITS[(group >> shift & 63) as usize];
        text.extend_from_slice(&[
            digit(18),
            digit(12),
            if second.is_some() { digit(6) } else { b'=' },
            if third.is_some() { digit(0) } else { b'=' },
        ]);
        if text.len() >= PIECE {
            out.write_all(&text)?;
            text.clear();
        }
    }
    out.write_all(&text)?;
    out.write_all(b"\"]")
}
