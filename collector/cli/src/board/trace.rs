//! One operator on a simulated core: its modules as lanes of a trace, and a table of what they did.

use super::super::{DONE, Result, packing, paper, print, print_json, settings};
use crate::options::{Models, Sweep};
use accelerator::{Instruction, Knobs, Lane, Program, Span, Timed, check, decode, generate, layer_of, simulate_with};
use capture::writer::sink::{Argument, Format, Heading, Shown, Sink, Written};
use capture::writer::{Sort, Track};
use clap::Args;
use datasets::output::Output;
use engine::campaign::config::PYNQ;
use engine::campaign::planned_tasks;
use engine::campaign::settings::Resolved;
use engine::failure::{Failure, chain};
use job::space::{core_knobs, space};
use job::target::{Fabric, fabric};
use report::{Table, duration, figures, percent, words};
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;

pub const BOARD_TRACE_EXAMPLES: &str = "\
Examples:
  opcollect board trace --modelsource simple --modelname conv2d:ci=64,hw=56,co=64,k=3,p=1 --out layer.pftrace
  opcollect board trace --modelsource local --modelname resnet-18 --task 5 --knobs tile_h=7,tile_ci=4 --out layer.pftrace";

/// What is simulated, and where the trace goes.
#[derive(Clone, Debug, Args)]
pub struct BoardTrace {
    #[command(flatten)]
    pub models: Models,
    /// Which of the models' tasks, from 1, in the order of `opcollect tasks --target pynq --unit fpga`
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub task: usize,
    /// Knobs that are not as the default schedule has them, as in tile_h=7,tile_ci=4
    #[arg(long, value_name = "NAME=N,…", value_delimiter = ',')]
    pub knobs: Vec<String>,
    /// Write the trace to this file, for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Write at most about so many MiB
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub trace_mib: u32,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Simulates it.
pub fn run(wanted: &BoardTrace) -> Result<u8> {
    let mut models = wanted.models.clone();
    models.settings.target.get_or_insert_with(|| PYNQ.to_owned());
    models.settings.unit.get_or_insert_with(|| "fpga".to_owned());
    let Resolved { config, loaded } = settings::config(&models, &Sweep::default())?;
    let target = fabric(&config.target).map_err(Failure::usage)?;
    let fabric = Fabric::read(&config.target).map_err(Failure::usage)?;
    let tasks = planned_tasks(&config, &loaded).map_err(|error| Failure::usage(chain(&error)))?;
    let Some(planned) = wanted.task.checked_sub(1).and_then(|place| tasks.get(place)) else {
        let message = format!("there is no task {} of these models that the core computes", wanted.task);
        return Err(Failure::usage(message).with_hint(format!("they have {}", tasks.len())));
    };
    let layer = layer_of(&planned.task).map_err(Failure::usage)?;
    let default = space(&planned.task, &target.machine).default;
    let default = core_knobs(&default).ok_or_else(|| Failure::usage("no cut of this task fits the core"))?;
    let knobs = changed(default, &wanted.knobs)?;
    let program = generate(&fabric.core(), &layer, &knobs)
        .map_err(|why| Failure::usage(format!("this schedule does not fit: {why}")))?;
    check(&program).map_err(Failure::environment)?;
    let file = Output::create(&wanted.out).map_err(|error| Failure::usage(chain(&error)))?;
    let path = file.path().display().to_string();
    let mut spans = Vec::new();
    let timed = simulate_with(&program, &fabric.timing().timing, &mut |span| spans.push(span));
    let timed = timed.map_err(Failure::environment)?;
    let limit = u64::from(wanted.trace_mib) << 20;
    let what = format!("{}: {}", fabric.describe(), planned.task.describe());
    let written = packing::write(file, |out| Ok(write(&what, &program, &spans, fabric.clock_mhz, out, limit)?.0))?;
    if written.left_out > 0 {
        let left_out = written.left_out;
        eprintln!("note: `{path}` is as long as `--trace-mib` allows; {left_out} events are left out");
    }
    tell(wanted, &what, &knobs, &timed, &fabric, &path)
}

/// The schedule with other numbers for some knobs.
fn changed(default: Knobs, given: &[String]) -> Result<Knobs> {
    let mut numbers = default.numbers();
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
    Ok(Knobs::of(numbers))
}

fn tell(wanted: &BoardTrace, what: &str, knobs: &Knobs, timed: &Timed, fabric: &Fabric, path: &str) -> Result<u8> {
    let time_ns = |cycles: u64| cycles as f64 * 1e3 / f64::from(fabric.clock_mhz);
    let share = |cycles: u64| cycles as f64 / timed.cycles.max(1) as f64;
    if wanted.json {
        let lanes = Lane::ALL.map(|lane| {
            let (busy, waited) = (timed.busy[lane as usize], timed.waited[lane as usize]);
            json!({ "lane": lane.name(), "busy_cycles": busy, "port_wait_cycles": waited })
        });
        let knobs: serde_json::Map<String, serde_json::Value> = Knobs::NAMES
            .into_iter()
            .zip(knobs.numbers())
            .map(|(name, number)| (name.to_owned(), number.into()))
            .collect();
        print_json(&json!({
            "source": "simulated", "what": what, "calibrated": fabric.calibrated, "knobs": knobs,
            "cycles": timed.cycles, "simulated_ns": time_ns(timed.cycles), "bound": timed.bound().name(),
            "port_bytes": timed.bytes, "instructions": timed.instructions, "lanes": lanes, "trace": path,
        }))?;
        return Ok(DONE);
    }
    let mut table = Table::new([words("module"), figures("simulated"), figures("share"), figures("waits for memory")]);
    for lane in Lane::ALL {
        let (busy, waited) = (timed.busy[lane as usize], timed.waited[lane as usize]);
        table.row([lane.name().to_owned(), duration(time_ns(busy)), percent(share(busy)), percent(share(waited))]);
    }
    print(&format!("{what}\n{}", table.on(&paper())))?;
    print(&format!(
        "simulated {} ({} cycles), bound by {}; {} instructions, {} bytes of memory\ntrace in `{path}`; open it at ui.perfetto.dev",
        duration(time_ns(timed.cycles)),
        timed.cycles,
        timed.bound().name(),
        timed.instructions,
        timed.bytes
    ))?;
    Ok(DONE)
}

const KEYS: [&str; 3] = ["instruction", "cycles", "port_wait_cycles"];

/// Writes the lanes, each in the order of time.
fn write<W: Write>(
    what: &str,
    program: &Program,
    spans: &[Span],
    clock_mhz: u32,
    out: W,
    limit: u64,
) -> std::io::Result<(Written, W)> {
    let modules = [Lane::Load, Lane::Compute, Lane::Store];
    let mut tracks = vec![Track { name: what.to_owned(), orders_children: true, ..Track::default() }];
    for (rank, lane) in (0..).zip(modules) {
        let (name, parent) = (lane.name().to_owned(), Some(0));
        tracks.push(Track { name, parent, rank: Some(-rank), sort: Sort::Slices, orders_children: false });
    }
    let heading = Heading { tracks: &tracks, keys: &KEYS, members: &[] };
    let mut sink = Sink::new(Format::Perfetto, heading, out, limit)?;
    let time = |cycles: u64| i64::try_from(cycles.saturating_mul(1000) / u64::from(clock_mhz)).unwrap_or(i64::MAX);
    let whole = |number: u64| Argument::Whole(i64::try_from(number).unwrap_or(i64::MAX));
    let mut ordered: Vec<&Span> = spans.iter().collect();
    ordered.sort_by_key(|span| (span.begin, span.end));
    for span in ordered {
        let Some(track) = modules.iter().position(|lane| *lane == span.lane) else { continue };
        let name = program.instructions.get(span.place).map_or("", |bits| name(program, *bits));
        let arguments = [(0, whole(span.place as u64)), (1, whole(span.end - span.begin)), (2, whole(span.waited))];
        sink.slice(&Shown {
            track: track + 1,
            start_ns: time(span.begin),
            end_ns: Some(time(span.end)),
            name,
            category: "simulated",
            flows: &[],
            arguments: &arguments,
        })?;
    }
    sink.finish()
}

/// What an instruction does, in words.
fn name(program: &Program, bits: [u64; 2]) -> &'static str {
    match decode(&program.core, bits) {
        Ok(Instruction::Load(memory) | Instruction::Store(memory)) if memory.columns == 0 => "wait",
        Ok(Instruction::Load(memory)) => memory.buffer.name(),
        Ok(Instruction::Store(_)) => "results",
        Ok(Instruction::Multiply(multiply)) if multiply.is_reset => "reset",
        Ok(Instruction::Multiply(_)) => "multiply",
        Ok(Instruction::Alu(alu)) => alu.op.name(),
        Ok(Instruction::Finish) | Err(_) => "end",
    }
}
