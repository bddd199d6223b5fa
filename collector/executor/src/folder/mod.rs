//! On-disk format of a compiled program: `program.json` describes the calls, the code of each task is a separate file,
//! and one more file contains all constants in the layouts that the code expects. All files are verified by their
//! hashes. Code is executed unchecked, so only trusted folders may be run.

use crate::memory::ALIGNMENT_BYTES;
use crate::program::{CallArgument, Place, Program};
use models::{TensorType, files};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

const PROGRAM: &str = "program.json";
const CONSTANTS: &str = "constants.bin";
const FORMAT: u32 = 1;
const DESCRIPTION_BYTES_MAX: u64 = 256 << 20;
const CODE_BYTES_MAX: u64 = 256 << 20;

/// Returns the path of `program.json`, which contains hashes of the other files, so that any change changes this file.
pub fn description_path(folder: &Path) -> PathBuf {
    folder.join(PROGRAM)
}

#[derive(Debug, Serialize, Deserialize)]
struct Description {
    format: u32,
    program: Program,
    codes: Vec<String>,
    offsets: Vec<u64>,
    constants: String,
    constant_bytes: u64,
}

#[derive(Debug)]
pub struct Content {
    pub program: Program,
    /// Code by the index that calls contain: object files, or tasks as JSON for libraries that need no compilation.
    pub codes: Vec<Vec<u8>>,
    pub offsets: Vec<u64>,
    pub constants: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum FolderError {
    #[error("cannot write `{}`: {source}", path.display())]
    Unwritable { path: PathBuf, source: io::Error },
    #[error("cannot read `{}`: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("`{}` is not a compiled program of this version: {why}", path.display())]
    NotAProgram { path: PathBuf, why: String },
    #[error("`{}` was modified: its hash differs from the recorded one", path.display())]
    Damaged { path: PathBuf },
}

type Result<T> = std::result::Result<T, FolderError>;

/// Writes a program into an existing folder. `constant` returns the stored bytes of a constant by index.
pub fn write_program<E: From<FolderError>>(
    folder: &Path,
    program: &Program,
    codes: &[&[u8]],
    mut constant: impl FnMut(usize) -> std::result::Result<Vec<u8>, E>,
) -> std::result::Result<(), E> {
    let path = folder.join(CONSTANTS);
    let failed = |source| FolderError::Unwritable { path: path.clone(), source };
    let mut file = BufWriter::new(File::create(&path).map_err(failed)?);
    let (mut hasher, mut offsets, mut end) = (blake3::Hasher::new(), Vec::new(), 0u64);
    for place in 0..program.constants.len() {
        let bytes = constant(place)?;
        let gap = end.next_multiple_of(ALIGNMENT_BYTES) - end;
        let padding = vec![0; usize::try_from(gap).expect("a gap is small")];
        offsets.push(end + gap);
        end += gap + bytes.len() as u64;
        for part in [&padding, &bytes] {
            hasher.update(part);
            file.write_all(part).map_err(failed)?;
        }
    }
    file.into_inner().map_err(|error| failed(error.into_error()))?.sync_all().map_err(failed)?;
    for (place, code) in codes.iter().enumerate() {
        write_file(&folder.join(code_name(place)), code)?;
    }
    let description = Description {
        format: FORMAT,
        program: program.clone(),
        codes: codes.iter().map(|code| blake3::hash(code).to_hex().to_string()).collect(),
        offsets,
        constants: hasher.finalize().to_hex().to_string(),
        constant_bytes: end,
    };
    let text = serde_json::to_vec(&description).expect("a description holds only JSON values");
    // Written last, so that an incomplete folder is recognised by its absence.
    Ok(write_file(&folder.join(PROGRAM), &text)?)
}

pub fn read_program(folder: &Path) -> Result<Content> {
    let path = folder.join(PROGRAM);
    let text = read_file(&path, DESCRIPTION_BYTES_MAX)?;
    let refused = |why: String| FolderError::NotAProgram { path: path.clone(), why };
    let description: Description = serde_json::from_slice(&text).map_err(|error| refused(error.to_string()))?;
    let Description { format, program, codes: hashes, offsets, constants: hash, constant_bytes } = description;
    if format != FORMAT {
        return Err(refused(format!("the format is {format}, expected {FORMAT}")));
    }
    check_program(&program, &offsets, constant_bytes, hashes.len()).map_err(refused)?;
    let mut codes = Vec::with_capacity(hashes.len());
    for (place, hash) in hashes.iter().enumerate() {
        codes.push(read_intact(&folder.join(code_name(place)), CODE_BYTES_MAX, hash)?);
    }
    let constants = read_intact(&folder.join(CONSTANTS), constant_bytes, &hash)?;
    if constants.len() as u64 != constant_bytes {
        return Err(FolderError::Damaged { path: folder.join(CONSTANTS) });
    }
    Ok(Content { program, codes, offsets, constants })
}

fn code_name(place: usize) -> String {
    format!("code-{place}.o")
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).map_err(|source| FolderError::Unwritable { path: path.to_owned(), source })
}

fn read_file(path: &Path, most: u64) -> Result<Vec<u8>> {
    files::read_regular(path, most).map_err(|source| match source.kind() {
        io::ErrorKind::FileTooLarge => FolderError::NotAProgram { path: path.to_owned(), why: source.to_string() },
        _ => FolderError::Unreadable { path: path.to_owned(), source },
    })
}

fn read_intact(path: &Path, most: u64, hash: &str) -> Result<Vec<u8>> {
    let bytes = read_file(path, most)?;
    if blake3::hash(&bytes).to_hex().as_str() != hash {
        return Err(FolderError::Damaged { path: path.to_owned() });
    }
    Ok(bytes)
}

/// Limit on core indices, larger than the number of cores of any machine.
const CORES_MAX: usize = 1 << 16;

const BYTES_MAX: u64 = 1 << 46;

fn check_program(
    program: &Program,
    offsets: &[u64],
    constant_bytes: u64,
    codes: usize,
) -> std::result::Result<(), String> {
    if program.codes != codes || program.constants.len() != offsets.len() {
        return Err("the description lists other codes or constants than the folder contains".to_owned());
    }
    if program.activation_bytes > BYTES_MAX || constant_bytes > BYTES_MAX {
        return Err("the program needs more memory than the limit".to_owned());
    }
    let ports = program.inputs.iter().chain(&program.outputs);
    if let Some(port) = ports.clone().find(|port| bytes_of(&port.ty).is_none()) {
        return Err(format!("the size of `{}` is unknown or too large", port.name));
    }
    for output in &program.outputs {
        if let Some(place) = output.same_as {
            let extents = output.ty.extents().unwrap_or_default();
            check_tensor_fits(
                program,
                offsets,
                constant_bytes,
                &CallArgument { place, dtype: output.ty.dtype, extents },
            )?;
        }
    }
    for call in &program.calls {
        if call.code >= codes || call.arguments.is_empty() {
            return Err(format!("the call at `{}` has no code or no result", call.scope));
        }
        for argument in &call.arguments {
            check_tensor_fits(program, offsets, constant_bytes, argument)
                .map_err(|why| format!("at `{}` {why}", call.scope))?;
        }
        if let Some(Place::Constant(_) | Place::Input(_)) = call.arguments.last().map(|result| result.place) {
            return Err(format!("the call at `{}` writes a read-only tensor", call.scope));
        }
    }
    check_stages(program)
}

/// Checks that the stages run each call exactly once, on valid cores.
fn check_stages(program: &Program) -> std::result::Result<(), String> {
    if program.stages.is_empty() {
        return Ok(());
    }
    let groups = || program.stages.iter().flat_map(|stage| &stage.groups);
    let is_wrong = |cores: &[usize]| {
        let mut cores = cores.to_vec();
        cores.sort_unstable();
        cores.last().is_none_or(|last| *last >= CORES_MAX) || cores.windows(2).any(|pair| pair[0] == pair[1])
    };
    if groups().any(|group| is_wrong(&group.cores)) {
        return Err(format!("a group has no core, a core twice, or a core above {CORES_MAX}"));
    }
    let mut calls: Vec<usize> = groups().flat_map(|group| &group.calls).copied().collect();
    calls.sort_unstable();
    match calls.into_iter().eq(0..program.calls.len()) {
        true => Ok(()),
        false => Err("the stages do not run each call exactly once".to_owned()),
    }
}

fn check_tensor_fits(
    program: &Program,
    offsets: &[u64],
    constant_bytes: u64,
    argument: &CallArgument,
) -> std::result::Result<(), String> {
    let wanted = bytes_of(&TensorType::new(argument.dtype, &argument.extents));
    let wanted = wanted.ok_or_else(|| format!("a tensor has the invalid extents {:?}", argument.extents))?;
    let port =
        |ports: &[crate::program::ProgramPort], index: usize| ports.get(index).and_then(|port| bytes_of(&port.ty));
    let (begins, room) = match argument.place {
        Place::Activation(offset) => (offset, Some(program.activation_bytes)),
        Place::Input(index) => (0, port(&program.inputs, index)),
        Place::Output(index) => (0, port(&program.outputs, index)),
        Place::Constant(index) => (offsets.get(index).copied().unwrap_or(u64::MAX), Some(constant_bytes)),
    };
    let ends = begins.checked_add(wanted);
    let is_inside = room.zip(ends).is_some_and(|(room, ends)| ends <= room);
    if !begins.is_multiple_of(ALIGNMENT_BYTES) || !is_inside {
        return Err(format!("a tensor of {wanted} bytes does not fit its memory range {:?}", argument.place));
    }
    Ok(())
}

/// Returns the size of a tensor in bytes; `None` if it is above the limit.
fn bytes_of(ty: &TensorType) -> Option<u64> {
    let extents = ty.extents()?;
    let elements = extents.iter().try_fold(1u64, |all, &extent| all.checked_mul(u64::try_from(extent).ok()?))?;
    elements.checked_mul(ty.dtype.size_bytes()).filter(|bytes| *bytes <= BYTES_MAX)
}

#[cfg(test)]
mod tests;
