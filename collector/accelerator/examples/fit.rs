//! Fits the parameters of the timing model to published times and prints the remaining errors.

#![allow(clippy::print_stdout, clippy::print_stderr)]

#[path = "../tests/common/published.rs"]
#[allow(dead_code)]
mod published;

use accelerator::{Program, Timing, TimingSet};
use published::Row;

const NAMES: [&str; 10] = [
    "instruction",
    "row",
    "store_row",
    "burst",
    "pad",
    "multiply_fill",
    "alu_fill",
    "alu_step",
    "host_instruction_ns",
    "host_call_ns",
];

fn get(timing: &Timing) -> [u64; 10] {
    let t = timing;
    [
        t.instruction,
        t.row,
        t.store_row,
        t.burst,
        t.pad,
        t.multiply_fill,
        t.alu_fill,
        t.alu_step,
        t.host_instruction_ns,
        t.host_call_ns,
    ]
}

fn set(base: Timing, n: [u64; 10]) -> Timing {
    Timing {
        instruction: n[0],
        row: n[1],
        store_row: n[2],
        burst: n[3],
        next_burst: n[3],
        pad: n[4],
        multiply_fill: n[5],
        alu_fill: n[6],
        alu_step: n[7],
        host_instruction_ns: n[8],
        host_call_ns: n[9],
        ..base
    }
}

fn mean(rows: &[(Row, Program)], timing: &Timing) -> f64 {
    let errors: Vec<f64> = rows.iter().map(|(row, program)| (row.ratio(program, timing, 100.0) - 1.0).abs()).collect();
    errors.iter().sum::<f64>() / errors.len() as f64
}

fn main() {
    let rows: Vec<(Row, Program)> = published::rows()
        .expect("published times")
        .into_iter()
        .map(|row| {
            let p = row.program().unwrap();
            (row, p)
        })
        .collect();
    let is_c = |row: &Row| row.table == 'C';
    let ab: Vec<(Row, Program)> = rows.iter().filter(|(row, _)| !is_c(row)).cloned().collect();
    let c: Vec<(Row, Program)> = rows.iter().filter(|(row, _)| is_c(row)).cloned().collect();
    let fit_on: Vec<(Row, Program)> = ab.iter().step_by(2).cloned().collect();
    let held: Vec<(Row, Program)> = ab.iter().skip(1).step_by(2).cloned().collect();
    let mut timing = TimingSet::find_set("pynq-hls-100").unwrap().timing;
    println!("start: fit {:.4} held {:.4}", mean(&fit_on, &timing), mean(&held, &timing));
    if std::env::args().any(|a| a == "--fit") {
        let mut best = mean(&fit_on, &timing);
        for _ in 0..6 {
            let before = best;
            for place in 0..NAMES.len() {
                let now = get(&timing)[place];
                for other in [
                    now / 2,
                    now * 3 / 4,
                    now * 9 / 10,
                    now.saturating_sub(1),
                    now + 1,
                    now * 11 / 10,
                    now * 5 / 4,
                    now * 3 / 2,
                    now * 2,
                ] {
                    let mut numbers = get(&timing);
                    numbers[place] = other;
                    let tried = set(timing, numbers);
                    let error = mean(&fit_on, &tried);
                    if error < best - 1e-5 {
                        (best, timing) = (error, tried);
                    }
                }
            }
            println!(
                "fit {best:.4} held {:.4} {:?}",
                mean(&held, &timing),
                NAMES.iter().zip(get(&timing)).collect::<Vec<_>>()
            );
            if before - best < 1e-4 {
                break;
            }
        }
    }
    let c_best = (1..50)
        .map(|step| (mean(&c, &Timing { alu_step: step, ..timing }), step))
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .unwrap();
    println!("C: best alu {} error {:.4}", c_best.1, c_best.0);
    for (row, program) in &rows {
        let timing = if is_c(row) { Timing { alu_step: c_best.1, ..timing } } else { timing };
        let timed = accelerator::simulate_program(program, &timing).unwrap();
        println!(
            "{} {:3} {:?} {:.3} {:.2} busy {:?} of {}",
            row.table,
            row.layer.height,
            row.knobs.as_array(),
            row.ms,
            row.ratio(program, &timing, 100.0),
            timed.busy,
            timed.cycles
        );
    }
}
