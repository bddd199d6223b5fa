//! The command `oppredict devices`.

use crate::held_out::print_held_out;
use crate::installation::shipped_predictors;
use crate::{DONE, print_json, print_line, stdout_paper};
use clap::Args;
use predictor::devices::{KnownDevice, known_devices};
use predictor::{Result, bundle, queries};
use report::{Table, format_count, format_number, format_size, number_column, or_unknown, text_column};
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
    /// TOML file that maps another project's table and lists its devices
    #[arg(long, value_name = "FILE")]
    pub mapping: Option<PathBuf>,
    /// List held-out errors by operator, number format and device instead
    #[arg(long, conflicts_with = "mapping")]
    pub held_out: bool,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
}

pub fn run(arguments: &Devices) -> Result<u8> {
    let mapping = arguments.mapping.as_deref().map(Mapping::read_file).transpose()?;
    let files = arguments.predictor.clone().map_or_else(shipped_predictors, |file| Ok(vec![file]))?;
    if arguments.held_out {
        return print_held_out(&files, arguments.json);
    }
    let mut listed: Vec<(String, KnownDevice)> = Vec::new();
    for file in files {
        let mut predictor = bundle::read_bundle(&file)?;
        if let Some(mapping) = &mapping {
            queries::describe_devices(&mut predictor, mapping);
        }
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        listed.extend(known_devices(&predictor).into_iter().map(|device| (name.clone(), device)));
    }
    if arguments.json {
        let device = |(predictor, device): &(String, KnownDevice)| json!({ "predictor": predictor, "known": device });
        let gpus =
            device::list_devices().iter().map(|gpu| json!({ "facts": gpu, "measured_servers": measured_servers(gpu) }));
        let devices: Vec<_> = listed.iter().map(device).collect();
        print_json(&json!({ "devices": devices, "gpus_of_language_models": gpus.collect::<Vec<_>>() }))?;
        return Ok(DONE);
    }
    print_line(&device_table(&listed).format_for(&stdout_paper()))?;
    print_line("\nGPUs for language models (data-sheet figures), with the number of measured servers:")?;
    print_line(&gpu_table().format_for(&stdout_paper()))?;
    Ok(DONE)
}

/// Returns the number of measured servers on a GPU in the training data of the overheads.
fn measured_servers(gpu: &GpuFacts) -> usize {
    shipped_overheads().count_on(&gpu.system)
}

fn gpu_table() -> Table {
    let mut table = Table::new([
        text_column("device").min_width(20),
        text_column("or").min_width(6),
        number_column("bf16 TFLOP/s"),
        number_column("fp8"),
        number_column("fp4"),
        number_column("GB/s"),
        number_column("GB"),
        number_column("W").drop_order(1),
        number_column("servers").drop_order(2),
    ]);
    for gpu in device::list_devices() {
        let tera = |rate: Option<f64>| or_unknown(rate, |rate| format_number(rate / 1e12));
        table.add_row([
            gpu.name.clone(),
            gpu.system.clone(),
            tera(Some(gpu.bf16_flops)),
            tera(gpu.fp8_flops),
            tera(gpu.fp4_flops),
            format_number(gpu.bandwidth_bytes_per_s / 1e9),
            format_number(gpu.memory_bytes / 1e9),
            format_number(gpu.power_limit_w),
            measured_servers(gpu).to_string(),
        ]);
    }
    table
}

fn device_table(listed: &[(String, KnownDevice)]) -> Table {
    let mut table = Table::new([
        text_column("device").min_width(20),
        text_column("or").min_width(6),
        number_column("units"),
        number_column("GFLOP/s"),
        number_column("GB/s"),
        number_column("cache").drop_order(2),
        text_column("known").min_width(10),
        text_column("predictor").min_width(8).drop_order(1),
    ]);
    for (predictor, device) in listed {
        let known = match (device.learned_operators, device.corrected_operators) {
            (0, 0) => "data sheet".to_owned(),
            (0, corrected) => format!("corrections of {}", format_count(corrected, "operator")),
            (learned, _) => format_count(learned, "operator"),
        };
        table.add_row([
            device.device.clone(),
            device.aliases.join(", "),
            format_number(device.units),
            format_number(device.gflops),
            format_number(device.bandwidth_gb_per_s),
            format_size(device.cache_bytes as u64),
            known,
            predictor.clone(),
        ]);
    }
    table
}
