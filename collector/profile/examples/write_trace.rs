//! Writes a synthetic profile with the given number of spans as a trace, for `scripts/bench/trace`.
//!
//! usage: write_trace FILE SPANS

use capture::writer::sink::Format;
use profile::data::{Kind, Operator, Profile, Span, Step, Track};
use profile::export;
use std::fs::File;
use std::io::BufWriter;

/// Operators per run. Each has one task on a second thread.
const OPERATORS: u64 = 50;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, spans] = arguments.as_slice() else { panic!("usage: write_trace FILE SPANS") };
    let spans: u64 = spans.parse().expect("a number of spans");
    let format = if path.ends_with(".json") { Format::Chrome } else { Format::Perfetto };
    let file = File::create(path).expect("the file can be made");
    export::write_trace(&profile(spans), format, BufWriter::with_capacity(1 << 18, file), u64::MAX)
        .expect("it is written");
}

fn profile(spans: u64) -> Profile {
    let operator = |number: u64| Operator {
        name: format!("conv2d +bias +relu {number}"),
        input_shapes: vec![vec![1, 64, 56, 56], vec![64, 64, 3, 3]],
        input_dtypes: vec!["f32".to_owned(), "f32".to_owned()],
        flops: Some(231_211_008),
        ..Operator::default()
    };
    let span = |number: u64| {
        let (call, is_part) = (number / 2, number % 2 == 1);
        Span {
            kind: if is_part { Kind::Task } else { Kind::Operator },
            operator: (call % OPERATORS) as u32,
            step: Some((call / OPERATORS) as u32),
            parent: is_part.then_some((number - 1) as u32),
            track: u32::from(is_part),
            start_ns: call * 1000 + 10 * u64::from(is_part),
            duration_ns: 900 - 100 * u64::from(is_part),
            cpu_ns: None,
        }
    };
    let track = |id| Track { name: format!("thread {id}"), process: 1, id, ..Track::default() };
    let step =
        |number| Step { number, start_ns: number * OPERATORS * 1000, duration_ns: OPERATORS * 1000, ..Step::default() };
    Profile {
        model: "a million spans".to_owned(),
        tracks: vec![track(1), track(2)],
        operators: (0..OPERATORS).map(operator).collect(),
        steps: (0..(spans / 2).div_ceil(OPERATORS)).map(step).collect(),
        spans: (0..spans).map(span).collect(),
        ..Profile::default()
    }
}
