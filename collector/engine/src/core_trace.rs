//! Simulates one operator on the FPGA accelerator, and writes a trace and a table of the activity of its modules.

use crate::Result;
use crate::campaign::config::Config;
use crate::campaign::graphs::LoadedModels;
use crate::campaign::planned_tasks;
use crate::failure::{Failure, format_chain};
use crate::observer::Observer;
use crate::packing;
use accelerator::{
    Instruction, Knobs, ModuleSpan, Program, TimedProgram, TimingLane, check_program, decode_instruction,
    generate_program, layer_of, simulate_with,
};
use capture::writer::sink::{Format, Heading, ShownArgument, ShownSlice, Sink, Written};
use capture::writer::{Sort, WrittenTrack};
use datasets::output::Output;
use job::space::{core_knobs, task_space};
use report::{Paper, Table, format_duration, format_percent, number_column, text_column};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use targets::{Fabric, parse_fabric};

/// Options of a simulation and of its trace file.
pub struct CoreTraceOptions<'a> {
    /// Number of the task among the tasks of the models, from 1.
    pub task: usize,
    /// Knobs that differ from the default schedule, as `NAME=N`.
    pub knobs: &'a [String],
    /// Trace file to write.
    pub out: &'a Path,
    /// Largest size of the trace in MiB.
    pub trace_mib: u32,
}

/// Result of the simulation of one operator; all times are simulated.
#[derive(Serialize)]
pub struct CoreTrace {
    bound: &'static str,
    calibrated: bool,
    cycles: u64,
    instructions: u64,
    knobs: BTreeMap<&'static str, u32>,
    lanes: Vec<LaneTimes>,
    port_bytes: u64,
    simulated_ns: f64,
    source: &'static str,
    trace: String,
    what: String,
}

#[derive(Serialize)]
struct LaneTimes {
    busy_cycles: u64,
    #[serde(skip)]
    busy_ns: f64,
    lane: &'static str,
    port_wait_cycles: u64,
}

/// Simulates one task of the models and writes its trace.
pub fn trace_core(
    options: &CoreTraceOptions<'_>,
    config: &Config,
    models: &LoadedModels,
    observer: &dyn Observer,
) -> Result<CoreTrace> {
    let target = parse_fabric(&config.target).map_err(Failure::usage)?;
    let fabric = Fabric::parse_text(&config.target).map_err(Failure::usage)?;
    let tasks = planned_tasks(config, models).map_err(|error| Failure::usage(format_chain(&error)))?;
    let Some(planned) = options.task.checked_sub(1).and_then(|place| tasks.get(place)) else {
        let message = format!("these models have no task {} for the accelerator", options.task);
        return Err(Failure::usage(message).with_hint(format!("tasks are numbered from 1 to {}", tasks.len())));
    };
    let layer = layer_of(&planned.task).map_err(Failure::usage)?;
    let default = task_space(&planned.task, &target.machine).default;
    let default = core_knobs(&default).ok_or_else(|| Failure::usage("no tiling of this task fits the accelerator"))?;
    let knobs = replace_knobs(default, options.knobs)?;
    let program = generate_program(&fabric.core(), &layer, &knobs)
        .map_err(|why| Failure::usage(format!("this schedule does not fit the accelerator: {why}")))?;
    check_program(&program).map_err(Failure::environment)?;
    let file = Output::create(options.out).map_err(|error| Failure::usage(format_chain(&error)))?;
    let trace = file.path().display().to_string();
    let mut spans = Vec::new();
    let timed = simulate_with(&program, &fabric.timing_set().timing, &mut |span| spans.push(span));
    let timed = timed.map_err(Failure::environment)?;
    let limit = u64::from(options.trace_mib) << 20;
    let what = format!("{}: {}", fabric.describe(), planned.task.describe());
    let fill = |out: &mut dyn Write| Ok(write_lanes(&what, &program, &spans, fabric.clock_mhz, out, limit)?.0);
    packing::write_trace(file, observer, fill)?;
    Ok(CoreTrace::new(&fabric, &knobs, &timed, trace, what))
}

impl CoreTrace {
    fn new(fabric: &Fabric, knobs: &Knobs, timed: &TimedProgram, trace: String, what: String) -> CoreTrace {
        let lane = |lane: TimingLane| LaneTimes {
            busy_cycles: timed.busy[lane as usize],
            busy_ns: fabric.time_ns(timed.busy[lane as usize]),
            lane: lane.name(),
            port_wait_cycles: timed.waited[lane as usize],
        };
        CoreTrace {
            bound: timed.busiest_lane().name(),
            calibrated: fabric.calibrated,
            cycles: timed.cycles,
            instructions: timed.instructions,
            knobs: Knobs::NAMES.into_iter().zip(knobs.as_array()).collect(),
            lanes: TimingLane::ALL.into_iter().map(lane).collect(),
            port_bytes: timed.bytes,
            simulated_ns: fabric.time_ns(timed.cycles),
            source: datasets::Source::Simulated.name(),
            trace,
            what,
        }
    }

    /// Formats the table of modules and totals.
    pub fn format_table(&self, paper: &Paper) -> String {
        let share = |cycles: u64| format_percent(cycles as f64 / self.cycles.max(1) as f64);
        let mut table = Table::new([
            text_column("module"),
            number_column("simulated"),
            number_column("share"),
            number_column("waits for memory"),
        ]);
        for LaneTimes { busy_cycles, busy_ns, lane, port_wait_cycles } in &self.lanes {
            table.add_row([
                (*lane).to_owned(),
                format_duration(*busy_ns),
                share(*busy_cycles),
                share(*port_wait_cycles),
            ]);
        }
        format!(
            "{}\n{}\nsimulated {} ({} cycles), bound by {}; {} instructions, {} bytes of memory\ntrace in `{}`; open \
             it at ui.perfetto.dev",
            self.what,
            table.format_for(paper),
            format_duration(self.simulated_ns),
            self.cycles,
            self.bound,
            self.instructions,
            self.port_bytes,
            self.trace
        )
    }
}

fn replace_knobs(default: Knobs, given: &[String]) -> Result<Knobs> {
    let mut numbers = default.as_array();
    for text in given {
        let parsed = text.split_once('=').and_then(|(name, number)| {
            let place = Knobs::NAMES.iter().position(|known| *known == name.trim())?;
            Some((place, number.trim().parse().ok()?))
        });
        let (place, number) = parsed.ok_or_else(|| {
            Failure::usage(format!("`--knobs {text}` is not a knob and a number"))
                .with_hint(format!("the knobs are {}", Knobs::NAMES.join(", ")))
        })?;
        numbers[place] = number;
    }
    Ok(Knobs::from_array(numbers))
}

const KEYS: [&str; 3] = ["instruction", "cycles", "port_wait_cycles"];

fn write_lanes<W: Write>(
    what: &str,
    program: &Program,
    spans: &[ModuleSpan],
    clock_mhz: u32,
    out: W,
    limit: u64,
) -> std::io::Result<(Written, W)> {
    let modules = [TimingLane::Load, TimingLane::Compute, TimingLane::Store];
    let mut tracks = vec![WrittenTrack { name: what.to_owned(), orders_children: true, ..WrittenTrack::default() }];
    for (rank, lane) in (0..).zip(modules) {
        let (name, parent) = (lane.name().to_owned(), Some(0));
        tracks.push(WrittenTrack { name, parent, rank: Some(-rank), sort: Sort::Slices, orders_children: false });
    }
    let heading = Heading { tracks: &tracks, keys: &KEYS, members: &[] };
    let mut sink = Sink::new(Format::Perfetto, heading, out, limit)?;
    let time = |cycles: u64| i64::try_from(cycles.saturating_mul(1000) / u64::from(clock_mhz)).unwrap_or(i64::MAX);
    let integer = |number: u64| ShownArgument::Whole(i64::try_from(number).unwrap_or(i64::MAX));
    let mut ordered: Vec<&ModuleSpan> = spans.iter().collect();
    ordered.sort_by_key(|span| (span.begin, span.end));
    for span in ordered {
        let Some(track) = modules.iter().position(|lane| *lane == span.lane) else { continue };
        let name = program.instructions.get(span.place).map_or("", |bits| instruction_name(program, *bits));
        let arguments =
            [(0, integer(span.place as u64)), (1, integer(span.end - span.begin)), (2, integer(span.waited))];
        sink.write_slice(&ShownSlice {
            track: track + 1,
            start_ns: time(span.begin),
            end_ns: Some(time(span.end)),
            name,
            category: "simulated",
            flows: &[],
            arguments: &arguments,
        })?;
    }
    sink.finish_trace()
}

fn instruction_name(program: &Program, bits: [u64; 2]) -> &'static str {
    match decode_instruction(&program.core, bits) {
        Ok(Instruction::Load(memory) | Instruction::Store(memory)) if memory.columns == 0 => "wait",
        Ok(Instruction::Load(memory)) => memory.buffer.name(),
        Ok(Instruction::Store(_)) => "results",
        Ok(Instruction::Multiply(multiply)) if multiply.is_reset => "reset",
        Ok(Instruction::Multiply(_)) => "multiply",
        Ok(Instruction::Alu(alu)) => alu.op.name(),
        Ok(Instruction::Finish) | Err(_) => "end",
    }
}
