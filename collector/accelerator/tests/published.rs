//! Comparison of simulated with published times.
//! The parameters were fitted to every second row of tables A and B, starting with the first. The rows between are held
//! out. Table C, whose boards had slower ALU operations, was used only to fit that parameter.

#![allow(clippy::print_stdout, clippy::print_stderr)]

#[path = "common/published.rs"]
#[allow(dead_code)]
mod published;

use accelerator::{Core, Knobs, Layer, Program, Timing, TimingSet, simulate_program};
use published::{Row, cycles, measured_steps, rows};

fn set(name: &str) -> Timing {
    TimingSet::find_set(name).unwrap().timing
}

/// Returns the mean and the maximum relative error of the simulated times.
fn errors(rows: &[&Row], timing: &Timing) -> (f64, f64) {
    let errors: Vec<f64> = rows
        .iter()
        .map(|row| {
            let program: Program = row.program().unwrap_or_else(|why| panic!("{row:?}: {why}"));
            (row.ratio(&program, timing, 100.0) - 1.0).abs()
        })
        .collect();
    (errors.iter().sum::<f64>() / errors.len() as f64, errors.iter().copied().fold(0.0, f64::max))
}

#[test]
fn simulated_times_match_published_times() {
    let Some(rows) = rows() else { return };
    let (c, ab): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.table == 'C');
    let fitted: Vec<&Row> = ab.iter().copied().step_by(2).collect();
    let held_out: Vec<&Row> = ab.iter().copied().skip(1).step_by(2).collect();
    let timing = set("pynq-hls-100");
    let slow_sums = Timing { alu_step: 26, ..timing };
    for (what, rows, timing, most) in
        [("fitted", fitted, timing, 0.06), ("held out", held_out, timing, 0.10), ("C", c, slow_sums, 0.08)]
    {
        let (mean, worst) = errors(&rows, &timing);
        println!("{what}: {} rows, mean error {:.1} %, worst {:.1} %", rows.len(), 100.0 * mean, 100.0 * worst);
        assert!(mean <= most, "{what}: {mean}");
    }
}

fn occurrences(layer: &Layer, network: &str) -> f64 {
    let deep = network.starts_with("resnet34");
    match (layer.kernel[0], layer.strides[0], layer.channels_in) {
        (3, 1, 64) => {
            if deep {
                6.0
            } else {
                4.0
            }
        }
        (3, 1, 128) => {
            if deep {
                7.0
            } else {
                3.0
            }
        }
        (3, 1, 256) => {
            if deep {
                11.0
            } else {
                3.0
            }
        }
        (3, 1, 512) => {
            if deep {
                5.0
            } else {
                3.0
            }
        }
        _ => 1.0,
    }
}

#[test]
fn cycles_match_the_published_rtl_simulation() {
    let (Some(rows), Some(cycles)) = (rows(), cycles()) else { return };
    let a: Vec<&Row> = rows.iter().filter(|row| row.table == 'A').collect();
    let rtl = set("rtl-64");
    assert_eq!(cycles.networks.len(), 2);
    for (network, published) in &cycles.networks {
        for (step, published) in [4, 1].into_iter().zip(published) {
            let timing = Timing { multiply_step: step, ..rtl };
            let of = |row: &&Row| {
                let timed = simulate_program(&row.program().unwrap(), &timing).unwrap();
                timed.cycles as f64 * occurrences(&row.layer, network)
            };
            let ratio = a.iter().map(of).sum::<f64>() / published;
            println!("{network}, {step} cycles per product: {ratio:.3} of the published cycles");
            assert!((0.9..=1.1).contains(&ratio), "{network} {step}: {ratio}");
        }
    }
    // Number of runs that the published sum of this layer covers.
    const RUNS: f64 = 5.0;
    let c2 = a.iter().find(|row| row.layer.channels_in == 64 && row.layer.channels_out == 64).unwrap();
    // The RTL has no minimum distance between products into the same sum, and all tiles are 1.
    let core = Core { distance: 1, ..Core::find_published("1x16").unwrap() };
    let layer = Layer { post: measured_steps(), ..c2.layer.clone() };
    let program = accelerator::generate_program(&core, &layer, &Knobs::LEAST).unwrap();
    for (bits, published) in cycles.widths {
        let timed = simulate_program(&program, &Timing { beat_bytes: bits / 8, ..rtl }).unwrap();
        let ratio = RUNS * timed.cycles as f64 / published;
        println!("a port of {bits} bits: {ratio:.3} of the published cycles");
        assert!((0.9..=1.1).contains(&ratio), "{bits} bits: {ratio}");
    }
}
