//! Parser of `global.profile`, the text file with the metadata of a capture.

use super::chip::Chip;
use super::declared::Declared;
use super::loss::Losses;
use super::{Error, Result};
use std::io::Read;
use std::path::Path;

const MAX_BYTES: u64 = 1 << 20;
/// Maximum number of cores, since every core becomes a row of the reports.
const MAX_CORES: u32 = 64;
/// Maximum host time after the last record, so that sums of times fit into 64 bits.
const MAX_TAIL_NS: u64 = 31_536_000_000_000_000;

#[derive(Clone, Debug, PartialEq)]
pub struct Global {
    pub chip: Chip,
    /// Whether the profiled program is a compiled model, whose commands are static.
    pub is_bmodel: bool,
    pub tiu_mhz: Option<f64>,
    pub cores: u32,
    /// Host time in nanoseconds between the end of the last record and the end of `disable_profile`.
    pub tail_offset_ns: Option<i64>,
    pub declared: Declared,
}

pub fn read_metadata(directory: &Path, losses: &mut Losses) -> Result<Global> {
    let path = directory.join("global.profile");
    let failed = |source| Error::Read { path: path.clone(), source };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(&path).map_err(failed)?;
    file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    parse_metadata(&path, &String::from_utf8_lossy(&bytes), losses)
}

fn parse_metadata(path: &Path, text: &str, losses: &mut Losses) -> Result<Global> {
    let (mut arch, mut is_bmodel, mut tiu_mhz, mut cores, mut tail) = (None, false, None, 0, None);
    let (mut limit, mut declared) = (0, Declared::default());
    for line in text.lines().map(str::trim) {
        if line.contains("bmodel") {
            is_bmodel = true;
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let (key, value) = (key.trim(), value.trim());
        let number = value.parse::<i64>();
        let refuse = |losses: &mut Losses| {
            losses.skip_part(path, None, format!("ignored `{key}`: `{value}` is not a valid number"));
        };
        match key {
            "arch" => arch = Some(value.to_owned()),
            "tpu_freq" => match value.parse::<f64>() {
                Ok(mhz) if (1.0..=100_000.0).contains(&mhz) => tiu_mhz = Some(mhz),
                _ => refuse(losses),
            },
            "core_num" => match number {
                Ok(count) if (0..=i64::from(MAX_CORES)).contains(&count) => cores = count as u32,
                _ => refuse(losses),
            },
            "max_record_num" => limit = number.unwrap_or(0),
            "tail_offset_ns" => match number {
                Ok(offset) if offset.unsigned_abs() <= MAX_TAIL_NS => tail = Some(offset),
                _ => refuse(losses),
            },
            key if key.ends_with("_record") => match number.map(|count| (count, u64::try_from(count))) {
                Ok((count, Ok(records))) => {
                    declared.add_count(key, records);
                    if limit != 0 && count >= limit {
                        losses.add_note(format!("`{key}` reached max_record_num ({limit}): the capture ends early"));
                    }
                }
                _ => refuse(losses),
            },
            _ => {}
        }
    }
    declared.set_limit(u64::try_from(limit).unwrap_or(0));
    let name = arch.ok_or_else(|| Error::NoArch { path: path.to_owned() })?;
    let chip = Chip::from_name(&name).ok_or_else(|| Error::UnknownArch { path: path.to_owned(), name })?;
    Ok(Global { chip, is_bmodel, tiu_mhz, cores, tail_offset_ns: tail, declared })
}
