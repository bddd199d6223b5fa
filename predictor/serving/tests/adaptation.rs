//! Tests corrections of held-out devices on the public tables.
#![allow(missing_docs, clippy::print_stderr)]

use serving::adaptation::{adapt_learned, choose_kernels};
use serving::device::find_device;
use serving::learned::Distance;
use serving::train::{TrainOptions, sample_rows, train_kernels};
use serving::{GpuFacts, Kernel, Learned, Mapping, Measurements};
use std::path::Path;

const ROWS_PER_DEVICE: usize = 800;
const CHOSEN: usize = 50;

fn public_products() -> Option<Measurements> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = root.join("../shared/data/public-ops/aic");
    if !folder.is_dir() {
        eprintln!("skipped: `{}` is absent", folder.display());
        return None;
    }
    let path = root.join("configs/mappings/aiconfigurator.toml");
    let mut mapping =
        Mapping::parse_mapping(&std::fs::read_to_string(&path).expect("the mapping"), &path).expect("a mapping");
    mapping.tables.retain(|table| table.file == "gemm.parquet");
    let mut all = Measurements::read_tables(&folder, &mapping).expect("rows");
    let mut kept = Vec::new();
    for device in 0..all.devices.len() as u16 {
        let of_device = all.rows.iter().filter(|row| row.device == device && row.kernel.format_key() == "bf16");
        // The framework with the most rows.
        let count = |framework: u16| of_device.clone().filter(|row| row.framework == framework).count();
        let usual = (0..all.frameworks.len() as u16).max_by_key(|framework| count(*framework)).unwrap_or(0);
        let is_usual = |place: &usize| {
            let row = &all.rows[*place];
            row.device == device && row.framework == usual && row.kernel.format_key() == "bf16"
        };
        let places: Vec<usize> = (0..all.rows.len()).filter(is_usual).collect();
        kept.extend(sample_rows(&all, places, ROWS_PER_DEVICE, 0));
    }
    all.rows = kept.into_iter().map(|place| all.rows[place]).collect();
    Some(all)
}

fn select_rows(all: &Measurements, is_kept: impl Fn(usize) -> bool) -> Measurements {
    let rows = all.rows.iter().enumerate().filter(|(place, _)| is_kept(*place)).map(|(_, row)| *row).collect();
    Measurements { rows, ..all.clone() }
}

fn score(learned: &Learned, rows: &Measurements, device: &GpuFacts, distance: Distance) -> (f64, f64) {
    let (mut off, mut inside) = (0.0, 0);
    for row in &rows.rows {
        let answer = learned.predict_kernel(&row.kernel, device).expect("an answer");
        assert_eq!(answer.distance, distance, "{}", row.kernel);
        off += 100.0 * (answer.time.seconds / row.seconds - 1.0).abs();
        inside += usize::from((answer.time.low..=answer.time.high).contains(&row.seconds));
    }
    (off / rows.rows.len() as f64, inside as f64 / rows.rows.len() as f64)
}

#[test]
fn a_held_out_device_is_corrected_by_fifty_measurements() {
    let Some(all) = public_products() else { return };
    for (system, distance, most) in
        [("h200_sxm", Distance::SiblingDevice, 1.0), ("rtx_pro_6000_server", Distance::NewGeneration, 0.75)]
    {
        let device = find_device(system).expect("a device");
        let is_new = |place: usize| all.devices[usize::from(all.rows[place].device)].name == device.name;
        let others = select_rows(&all, |place| !is_new(place));
        let options = TrainOptions { rounds: 80, calibrates: false, ..TrainOptions::default() };
        let mut learned = train_kernels(&others, &options).expect("it is learned");
        let own = select_rows(&all, is_new);
        let kernels: Vec<Kernel> = own.rows.iter().map(|row| row.kernel).collect();
        let chosen = choose_kernels(&learned.times, &kernels, device, CHOSEN).expect("a choice");
        let measured = select_rows(&own, |place| chosen.contains(&place));
        let scored = select_rows(&own, |place| !chosen.contains(&place));
        let (before, _) = score(&learned, &scored, device, distance);
        let (changes, unused) = adapt_learned(&mut learned, &measured).expect("a correction");
        assert_eq!((changes.len(), unused.len()), (1, 0), "{changes:?} {unused:?}");
        let (after, held) = score(&learned, &scored, device, Distance::Corrected);
        eprintln!("{system}: {before:.1} % before, {after:.1} % after; intervals hold {held:.2}");
        assert!(after < most * before, "{system}: {before} {after}");
        assert!((0.8..=0.99).contains(&held), "{system}: {held}");
    }
}
