//! `oppredict devices`.

use crate::installation::shipped_predictors;
use crate::{DONE, paper, print, print_json};
use clap::Args;
use predictor::devices::{KnownDevice, known_devices};
use predictor::{Result, bundle, queries};
use report::{Table, figures, number, size, words};
use samples::table::Mapping;
use serde_json::json;
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
        print_json(&json!({ "devices": listed.iter().map(device).collect::<Vec<_>>() }))?;
        return Ok(DONE);
    }
    print(&table(&listed).on(&paper()))?;
    Ok(DONE)
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
