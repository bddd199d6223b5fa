//! Throughput of the timing simulation in cycles per second on one host core: `cargo bench -p accelerator`.
//! The sum of cycles is printed, so that the compiler cannot remove the work.

#![allow(clippy::print_stdout)]

use accelerator::{
    AluOp, Core, Kind, Knobs, Layer, Post, Program, Tensors, TimingSet, default_knobs, generate_program,
    simulate_program,
};
use std::time::{Duration, Instant};

fn layer(channels: u32, size: u32, kernel: u32) -> Layer {
    Layer {
        kind: Kind::Convolution,
        tensors: Tensors::Images,
        images: 1,
        channels_in: channels,
        height: size,
        width: size,
        channels_out: channels,
        kernel: [kernel; 2],
        strides: [1, 1],
        pads: [kernel / 2; 4],
        post: vec![Post::Immediate(AluOp::ShiftRight, 8)],
    }
}

fn main() {
    let core = Core::find_published("1x16").expect("a published core");
    let program = |layer: &Layer, knobs: &Knobs| generate_program(&core, layer, knobs).expect("a cut that fits");
    let usual = |layer: &Layer| default_knobs(&core, layer).expect("a cut that fits");
    let (wide, narrow, deep) = (layer(64, 56, 3), layer(512, 7, 3), layer(256, 14, 1));
    let cases: [(&str, Program); 4] = [
        ("64 channels, 56 x 56, 3 x 3, by the default cut", program(&wide, &usual(&wide))),
        ("512 channels, 7 x 7, 3 x 3, by the default cut", program(&narrow, &usual(&narrow))),
        ("256 channels, 14 x 14, 1 x 1, by the default cut", program(&deep, &usual(&deep))),
        ("64 channels, 56 x 56, 3 x 3, all tiles 1", program(&wide, &Knobs::LEAST)),
    ];
    let timing = TimingSet::find_set("pynq-hls-100").expect("a known set").timing;
    for (name, program) in &cases {
        let mut speeds = Vec::new();
        let mut cycles = 0;
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(1) || speeds.len() < 3 {
            let round = Instant::now();
            let timed = simulate_program(program, &timing).expect("a generated program ends");
            cycles = timed.cycles;
            speeds.push(timed.cycles as f64 / round.elapsed().as_secs_f64() / 1e6);
        }
        speeds.sort_by(f64::total_cmp);
        let (least, median, most) = (speeds[0], speeds[speeds.len() / 2], speeds[speeds.len() - 1]);
        println!(
            "{name}: {median:.0} M simulated cycles per second ({least:.0} to {most:.0}, {} rounds of {cycles})",
            speeds.len()
        );
    }
}
