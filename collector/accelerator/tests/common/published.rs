//! Published board times, read from an external file; the project contains no copy of them.

use accelerator::{
    AluOp, Core, Kind, Knobs, Layer, Misfit, Post, Program, Tensors, TimedProgram, Timing, generate_program,
    simulate_program,
};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug)]
pub struct Row {
    pub table: char,
    pub core: Core,
    pub layer: Layer,
    pub knobs: Knobs,
    /// Measured time in milliseconds, including the work of the host.
    pub ms: f64,
}

/// Published cycle counts of an RTL simulation.
pub struct Cycles {
    /// Cycles of the convolutions of each network, at four cycles per product and at one cycle per product.
    pub networks: Vec<(String, [f64; 2])>,
    /// Cycles of one layer, each with the width of the memory port in bits.
    pub widths: Vec<(u64, f64)>,
}

pub fn cycles() -> Option<Cycles> {
    let text = text()?;
    let networks = text.lines().filter(|line| line.starts_with("| resnet"));
    let networks = networks.map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let name = cells[1].split([',', ' ']).next().expect("a name").to_owned();
        let numbers: Vec<f64> = cells[2].split('/').map(|n| n.trim().replace(',', "").parse().unwrap()).collect();
        (name, [numbers[0], numbers[1]])
    });
    let line = text
        .lines()
        .find(|line| line.starts_with("| layer C2"))
        .expect("the line of the layer whose port width was varied");
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let millions = cells[2].trim_end_matches(" M").split('/').map(|n| n.trim().parse::<f64>().unwrap() * 1e6);
    let widths = [64, 128, 256, 512].into_iter().zip(millions).collect();
    Some(Cycles { networks: networks.collect(), widths })
}

pub fn rows() -> Option<Vec<Row>> {
    let text = text()?;
    let (_, tables) = text.split_once("### 4.3").expect("the section of published times");
    let block = tables.split("```").nth(1).expect("the tables of the section");
    let mut table = ' ';
    let mut rows = Vec::new();
    for line in block.lines() {
        if let Some((name, _)) = line.split_once(':') {
            table = name.chars().next().expect("a name");
            continue;
        }
        rows.extend(line.split_whitespace().map(|text| row(table, text)));
    }
    assert_eq!(rows.len(), 75, "rows");
    Some(rows)
}

fn text() -> Option<String> {
    let default_path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/specs/pynq.md");
    let path = std::env::var_os("OPCOLLECT_PYNQ_TIMES").map_or(default_path, PathBuf::from);
    let text = std::fs::read_to_string(&path).ok();
    if text.is_none() {
        eprintln!("skipped: published times are not at {}", path.display());
    }
    text
}

fn row(table: char, text: &str) -> Row {
    let numbers: Vec<&str> = text.split(',').collect();
    let at = |place: usize| numbers[place].parse::<u32>().unwrap_or_else(|error| panic!("{text}: {error}"));
    let core = Core::find_published(if table == 'B' { "4x8" } else { "1x16" }).unwrap();
    let layer = Layer {
        kind: Kind::Convolution,
        tensors: Tensors::Images,
        images: core.batch,
        channels_in: at(1),
        height: at(0),
        width: at(0),
        channels_out: at(2),
        kernel: [at(3); 2],
        strides: [at(4); 2],
        pads: [at(5); 4],
        post: measured_steps(),
    };
    let knobs = Knobs {
        tile_b: 1,
        tile_h: at(6),
        tile_w: at(7),
        tile_ci: at(8),
        tile_co: at(9),
        oc_threads: at(10),
        h_threads: at(11),
    };
    Row { table, core, layer, knobs, ms: numbers[12].parse().unwrap() }
}

pub fn measured_steps() -> Vec<Post> {
    vec![Post::Immediate(AluOp::ShiftRight, 8), Post::Immediate(AluOp::Max, -127), Post::Immediate(AluOp::Min, 127)]
}

impl Row {
    pub fn program(&self) -> Result<Program, Misfit> {
        generate_program(&self.core, &self.layer, &self.knobs)
    }

    pub fn ratio(&self, program: &Program, timing: &Timing, mhz: f64) -> f64 {
        milliseconds(&simulate_program(program, timing).unwrap(), timing, mhz) / self.ms
    }
}

pub fn milliseconds(timed: &TimedProgram, timing: &Timing, mhz: f64) -> f64 {
    let host = timing.host_call_ns + timing.host_instruction_ns * timed.instructions;
    timed.cycles as f64 / mhz / 1e3 + host as f64 / 1e6
}
