//! Metadata in a program's folder, with which it runs without the compiler or the model: name, required processor,
//! distributions of inputs, and expected outputs for the inputs generated from its seed.
//!
//! `model.json` is written last, so a folder without it is incomplete. It begins with the hash of its own text, and
//! contains the hashes of the expected outputs and of the program's description; the description contains the hashes of
//! all other files.

use super::{NetworkError, Result};
use bench::Versions;
use executor::{Program, folder, sealed};
use reference::{Draw, Tensor};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

const MODEL: &str = "model.json";
const EXPECTED: &str = "expected.bin";
/// Version of the metadata format; version 2 added the hash of the metadata.
const FORMAT: u32 = 2;
const MODEL_BYTES_MAX: u64 = 16 << 20;

/// Metadata of a program in a folder, stored as `model.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Portable {
    /// Version of the folder's format; new folders have the current version.
    pub format: u32,
    /// Version of the program that built the folder.
    pub program_version: String,
    /// Versions of the libraries that built the folder.
    pub versions: Versions,
    /// Name of the model.
    pub model: String,
    /// Batch size of the model, if it has one.
    pub batch: Option<i64>,
    /// Target for which the code was compiled.
    pub target: String,
    /// Processor architecture of the code.
    pub architecture: String,
    /// Instruction set extensions that the code uses, spelled as in the Linux kernel.
    pub instruction_sets: Vec<String>,
    /// Seed of the inputs for which the expected outputs were computed.
    pub seed: u64,
    /// Distribution of random numbers for each input.
    pub draws: Vec<Draw>,
    /// Tolerated error as a share of the largest output.
    pub tolerance: f64,
    /// Hash of the program's description, computed when the metadata are written.
    pub program_hash: String,
    /// Hash of the expected outputs, computed when the metadata are written.
    pub expected_hash: Option<String>,
}

/// Contents of a program's folder.
#[derive(Debug)]
pub struct ProgramFolder {
    /// Metadata of the program.
    pub portable: Portable,
    /// Program of the model.
    pub program: Program,
    /// Expected outputs for the inputs generated from the seed, if they were computed.
    pub expected: Option<Vec<Tensor>>,
}

impl Default for Portable {
    fn default() -> Portable {
        Portable {
            format: FORMAT,
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            versions: Versions::new(),
            model: String::new(),
            batch: None,
            target: String::new(),
            architecture: String::new(),
            instruction_sets: Vec::new(),
            seed: 0,
            draws: Vec::new(),
            tolerance: 0.0,
            program_hash: String::new(),
            expected_hash: None,
        }
    }
}

impl Portable {
    /// Returns why the code cannot run on a processor with this architecture and these extensions; None if it can.
    pub fn describe_lacking(&self, architecture: &str, flags: &dyn Fn(&str) -> bool) -> Option<String> {
        if self.architecture != architecture {
            return Some(format!("the code is for {}, but this machine is {architecture}", self.architecture));
        }
        let lacking: Vec<&str> = self.instruction_sets.iter().map(String::as_str).filter(|name| !flags(name)).collect();
        (!lacking.is_empty()).then(|| format!("the code uses {}, which this processor lacks", lacking.join(", ")))
    }

    /// Returns a description of the processor that the code requires.
    pub fn required_processor(&self) -> String {
        match self.instruction_sets.as_slice() {
            [] => self.architecture.clone(),
            names => format!("{} with {}", self.architecture, names.join(", ")),
        }
    }
}

/// Returns the architecture of an object file, in the spelling of [`std::env::consts::ARCH`].
pub fn object_architecture(object: &[u8]) -> String {
    match object.get(18..20) {
        Some([62, 0]) => "x86_64".to_owned(),
        Some([183, 0]) => "aarch64".to_owned(),
        Some([243, 0]) => "riscv64".to_owned(),
        other => format!("ELF machine {other:?}"),
    }
}

/// Returns the path of the metadata file in a program's folder.
pub fn metadata_path(folder: &Path) -> PathBuf {
    folder.join(MODEL)
}

/// Writes the metadata into the folder of a program.
pub fn write_metadata(folder: &Path, portable: Portable, expected: Option<&[Tensor]>) -> Result<()> {
    let keep = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, bytes).map_err(|error| portable_error(&path, &error))
    };
    let description = folder::description_path(folder);
    let description = fs::read(&description).map_err(|error| portable_error(&description, &error))?;
    let expected: Option<Vec<u8>> =
        expected.map(|tensors| tensors.iter().flat_map(|tensor| tensor.as_bytes().iter().copied()).collect());
    if let Some(bytes) = &expected {
        keep(EXPECTED, bytes)?;
    }
    let portable = Portable {
        program_hash: hash_bytes(&description),
        expected_hash: expected.as_deref().map(hash_bytes),
        ..portable
    };
    keep(MODEL, sealed::seal_json(&portable).expect("metadata hold only JSON values").as_bytes())
}

/// Reads and validates the folder of a program.
pub fn read_folder(folder: &Path) -> Result<ProgramFolder> {
    let path = metadata_path(folder);
    let portable = read_metadata(&path)?;
    // Only the hashes of code and constants are checked here; the runner reads them.
    let program = folder::read_program(folder)?.program;
    let description = folder::description_path(folder);
    if hash_bytes(&fs::read(&description).map_err(|error| portable_error(&description, &error))?)
        != portable.program_hash
    {
        return Err(portable_error(&description, &sealed::CHANGED));
    }
    if portable.draws.len() != program.inputs.len() {
        let why =
            format!("the file describes {} inputs, but the program has {}", portable.draws.len(), program.inputs.len());
        return Err(portable_error(&path, &why));
    }
    let expected = match &portable.expected_hash {
        None => None,
        Some(wanted) => {
            let path = folder.join(EXPECTED);
            let types = program.outputs.iter().map(|port| &port.ty);
            let bytes =
                read_bounded(&path, types.clone().map(|ty| ty.size_bytes().unwrap_or(0)).fold(0, u64::saturating_add))?;
            if hash_bytes(&bytes) != *wanted {
                return Err(portable_error(&path, &sealed::CHANGED));
            }
            Some(super::parse_tensors(types, &bytes)?)
        }
    };
    Ok(ProgramFolder { portable, program, expected })
}

fn read_metadata(path: &Path) -> Result<Portable> {
    let text = String::from_utf8(read_bounded(path, MODEL_BYTES_MAX)?).map_err(|error| portable_error(path, &error))?;
    let text = sealed::open_sealed(text, FORMAT).map_err(|why| portable_error(path, &why))?;
    serde_json::from_str(&text).map_err(|error| portable_error(path, &error))
}

fn hash_bytes(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

fn portable_error(path: &Path, why: &dyn std::fmt::Display) -> NetworkError {
    NetworkError::Portable { path: path.to_owned(), why: why.to_string() }
}

fn read_bounded(path: &Path, most: u64) -> Result<Vec<u8>> {
    models::files::read_regular(path, most).map_err(|error| portable_error(path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_instruction_sets_are_named() {
        let portable = Portable {
            architecture: "x86_64".to_owned(),
            instruction_sets: ["avx2", "fma", "avx512f"].map(str::to_owned).to_vec(),
            ..Portable::default()
        };
        assert_eq!(portable.describe_lacking("x86_64", &|_| true), None);
        let why = portable.describe_lacking("x86_64", &|name| name == "avx2").expect("two missing extensions");
        assert_eq!(why, "the code uses fma, avx512f, which this processor lacks");
        let why = portable.describe_lacking("aarch64", &|_| true).expect("another architecture");
        assert_eq!(why, "the code is for x86_64, but this machine is aarch64");
        assert_eq!(portable.required_processor(), "x86_64 with avx2, fma, avx512f");
    }
}
