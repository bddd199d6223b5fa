//! Properties of cycle counts that hold for all parameters.

#[allow(dead_code)]
mod common;

use accelerator::{
    AluOp, Core, Kind, Knobs, Layer, Post, Tensors, Timing, TimingSet, check_fit, default_knobs, generate_program,
    knob_choices, simulate_program, simulate_with,
};
use common::count_macs;

fn layer(channels: u32, size: u32) -> Layer {
    Layer {
        kind: Kind::Convolution,
        tensors: Tensors::Images,
        images: 1,
        channels_in: channels,
        height: size,
        width: size,
        channels_out: channels,
        kernel: [3, 3],
        strides: [1, 1],
        pads: [1; 4],
        post: vec![Post::Immediate(AluOp::ShiftRight, 8)],
    }
}

fn timing() -> Timing {
    TimingSet::find_set("pynq-hls-100").unwrap().timing
}

#[test]
fn a_layer_is_never_faster_than_its_products_or_any_module() {
    let core = Core::find_published("1x16").unwrap();
    for (channels, size) in [(16, 8), (64, 14), (128, 7)] {
        let layer = layer(channels, size);
        let knobs = default_knobs(&core, &layer).unwrap();
        let program = generate_program(&core, &layer, &knobs).unwrap();
        let timed = simulate_program(&program, &timing()).unwrap();
        assert!(timed.cycles >= count_macs(&layer) / core.macs_per_cycle());
        assert!(timed.busy.iter().all(|busy| timed.cycles >= *busy || *busy == timed.busy[3]));
        assert!(timed.cycles <= timed.busy.iter().sum());
    }
}

#[test]
fn cheaper_parts_are_never_slower_and_two_threads_hide_loads() {
    let core = Core::find_published("1x16").unwrap();
    let layer = layer(64, 14);
    let one = Knobs { tile_h: 7, tile_w: 14, tile_co: 2, ..Knobs::LEAST };
    let two = Knobs { oc_threads: 2, ..one };
    let [one, two] = [one, two].map(|knobs| generate_program(&core, &layer, &knobs).unwrap());
    let cycles = |program, timing: &Timing| simulate_program(program, timing).unwrap().cycles;
    assert!(cycles(&two, &timing()) < cycles(&one, &timing()));
    for cheaper in [
        Timing { beat_bytes: 16, ..timing() },
        Timing { alu_step: 1, ..timing() },
        Timing { burst: 0, next_burst: 0, ..timing() },
        Timing { row: 0, store_row: 0, ..timing() },
    ] {
        assert!(cycles(&one, &cheaper) < cycles(&one, &timing()), "{cheaper:?}");
    }
}

#[test]
fn lanes_are_sequential_and_wait_for_tokens() {
    let core = Core::find_published("1x16").unwrap();
    let layer = layer(64, 14);
    let program = generate_program(&core, &layer, &default_knobs(&core, &layer).unwrap()).unwrap();
    let mut ends = [0u64; 4];
    let mut seen = 0;
    let timed = simulate_with(&program, &timing(), &mut |span| {
        assert!(span.begin >= ends[span.lane as usize] && span.end >= span.begin, "{span:?}");
        assert!(span.waited <= span.end - span.begin);
        ends[span.lane as usize] = span.end;
        seen += 1;
    });
    assert_eq!(seen, program.instructions.len() - 1, "all instructions except `finish`");
    assert_eq!(timed.unwrap().cycles, ends.into_iter().max().unwrap());
}

/// A change of programs or cycles requires a new `REVISION`, since it invalidates earlier times.
#[test]
fn programs_and_cycles_match_the_revision() {
    let mut digest = 0xcbf2_9ce4_8422_2325u64;
    let mut add = |number: u64| digest = (digest ^ number).wrapping_mul(0x0100_0000_01b3);
    for name in Core::NAMES {
        let core = Core::find_published(name).unwrap();
        for kind in [Kind::Convolution, Kind::Depthwise, Kind::Elementwise] {
            let plain = Layer { kind, ..layer(32, 12) };
            let walk = Layer { kernel: [1, 1], pads: [0; 4], ..plain.clone() };
            let layer = if kind == Kind::Elementwise { walk } else { plain };
            let all = knob_choices(&core, &layer).map(|settings| *settings.last().unwrap());
            let cuts = [Knobs::LEAST, default_knobs(&core, &layer).unwrap(), Knobs::from_array(all)];
            for knobs in cuts.into_iter().filter(|knobs| check_fit(&core, &layer, knobs).is_ok()) {
                let program = generate_program(&core, &layer, &knobs).unwrap();
                program.instructions.iter().flatten().for_each(|half| add(*half));
                program.micro_ops.iter().for_each(|bits| add(u64::from(*bits)));
                for set in accelerator::timing_sets() {
                    add(simulate_program(&program, &set.timing).unwrap().cycles);
                }
            }
        }
    }
    assert_eq!((accelerator::REVISION, digest), (1, 0xbf05_780d_bde5_6903), "raise the revision and add its digest");
}
