//! `oppredict devices`.

use crate::installation::shipped_predictors;
use crate::{DONE, paper, print, print_json};
use clap::Args;
use predictor::devices::{KnownDevice, known_devices};
use predictor::{Result, bundle, queries};
use report::{Table, figures, number, or_unknown, size, words};
use samples::table::Mapping;
use serde_json::json;
use serving::device::{self, GpuFacts};
use serving::server::shipped_overheads;
use std::path::PathBuf;

#[derive(Clone, Debug, Args)]
pub struct Devices {
    /// Predictor file of `train` [default: both built-in predictors]
    #[arg(long, value_name = "FILE")]
    pub predictor: Option<PathBuf>,
    /// Mapping with additional devices
    #[arg(long, value_name = "FILE")]
    pub mapping: Option<PathBuf>,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
}

pub fn run(arguments: &Devices) -> Result<u8> {
    let files = arguments.predictor.clone().map_or_else(shipped_predictors, |file| Ok(vec![file]))?;
    let mapping = arguments.mapping.as_deref().map(Mapping::read).transpose()?;
    let mut listed: Vec<(String, KnownDevice)> = Vec::new();
    for file in files {
        let mut predictor = bundle::read(&file)?;
        if let Some(mapping) = &mapping {
            queries::describe_devices(&mut predictor, mapping);
        }
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        listed.extend(known_devices(&predictor).into_iter().map(|device| (name.clone(), device)));
    }
    if arguments.json {
        let device = |(predictor, device): &(String, KnownDevice)| json!({ "predictor": predictor, "known": device });
        let gpus = device::all().iter().map(|gpu| json!({ "facts": gpu, "measured_servers": measured_servers(gpu) }));
        let devices: Vec<_> = listed.iter().map(device).collect();
        print_json(&json!({ "devices": devices, "gpus_of_language_models": gpus.collect::<Vec<_>>() }))?;
        return Ok(DONE);
    }
    print(&table(&listed).on(&paper()))?;
    print("\nGPUs of language models, by their data sheets, and how many whole servers were measured on them:")?;
    print(&gpu_table().on(&paper()))?;
    Ok(DONE)
}

/// Returns the number of measured servers on a GPU that overheads were learned from.
fn measured_servers(gpu: &GpuFacts) -> usize {
    shipped_overheads().count_on(&gpu.system)
}

fn gpu_table() -> Table {
    let mut table = Table::new([
        words("device").least(20),
        words("or").least(6),
        figures("bf16 TFLOP/s"),
        figures("fp8"),
        figures("fp4"),
        figures("GB/s"),
        figures("GB"),
        figures("W").drops(1),
        figures("servers").drops(2),
    ]);
    for gpu in device::all() {
        let tera = |rate: Option<f64>| or_unknown(rate, |rate| number(rate / 1e12));
        table.row([
            gpu.name.clone(),
            gpu.system.clone(),
            tera(Some(gpu.bf16_flops)),
            tera(gpu.fp8_flops),
            tera(gpu.fp4_flops),
            number(gpu.bandwidth_bytes_per_s / 1e9),
            number(gpu.memory_bytes / 1e9),
            number(gpu.power_limit_w),
            measured_servers(gpu).to_string(),
        ]);
    }
    table
}

fn table(listed: &[(String, KnownDevice)]) -> Table {
    let mut table = Table::new([
        words("device").least(20),
        words("or").least(6),
        figures("units"),
        figures("GFLOP/s"),
        figures("GB/s"),
        figures("cache").drops(2),
        words("known").least(10),
        words("predictor").least(8).drops(1),
    ]);
    for (predictor, device) in listed {
        let known = match device.learned_operators {
            0 => "its figures".to_owned(),
            count => format!("{count} operators"),
        };
        table.row([
            device.device.clone(),
            device.aliases.join(", "),
            number(device.units),
            number(device.gflops),
            number(device.bandwidth_gb_per_s),
            size(device.cache_bytes as u64),
            known,
            predictor.clone(),
        ]);
    }
    table
}
