//! Reads `torch.export` archives (`.pt2`) and TorchScript files, without PyTorch and without executing their code. A
//! `torch.export` archive is a zip file of raw weights and a JSON program of ATen operators with named arguments.
//! Weights stay in the archive until they are needed. A write to a tensor is propagated to all tensors that share its
//! memory, or refused.

mod arguments;
mod call;
mod import;
mod inline;
mod loops;
mod memory;
mod rules;
mod schema;
mod script;
#[cfg(test)]
mod tests;
mod weights;

use crate::archive::{self, Archive, ArchiveBytes};
use crate::{Imported, Options};
use bytes::Bytes;
use models::error::{Error, Result};
use schema::ExportedProgram;
use std::path::Path;

/// Limit on the size of the JSON program, enough for a hundred thousand nodes.
const MAX_PROGRAM_BYTES: u64 = 256 << 20;
/// Memory limit: a number of bytes per byte of the program file, plus a fixed number.
const MEMORY_PER_BYTE: u64 = 60;
const MEMORY_BYTES_FIXED: u64 = 224 << 20;
const MAJOR: i64 = 8;
const ARCHIVE_VERSION: &str = "0";

pub fn load_file(path: &Path, options: &Options) -> Result<Imported> {
    let file = path.display().to_string();
    let store = ArchiveBytes::open(path)
        .map_err(|error| Error::Unreadable { file: file.clone(), reason: error.to_string() })?;
    from_store(store, &file, options)
}

pub fn import_bytes(bytes: Bytes, file: &str, options: &Options) -> Result<Imported> {
    from_store(ArchiveBytes::Memory(bytes), file, options)
}

pub fn is_torchscript(path: &Path) -> bool {
    ArchiveBytes::open(path).is_ok_and(|store| holds_torchscript(&store))
}

fn holds_torchscript(store: &ArchiveBytes) -> bool {
    let names = archive::list_entry_names(store).unwrap_or_default();
    let has = |part: &str| names.iter().any(|name| name.split('/').nth(1) == Some(part));
    has("data.pkl") && has("code")
}

fn from_store(store: ArchiveBytes, file: &str, options: &Options) -> Result<Imported> {
    let malformed =
        |place: &str, reason: String| Error::Malformed { file: file.to_owned(), place: place.to_owned(), reason };
    let is_script = holds_torchscript(&store);
    let archive = Archive::read(store).map_err(|reason| malformed("", reason))?;
    check_byte_order(&archive, file)?;
    if is_script {
        return script::import_archive(&archive, file, options);
    }
    check_version(&archive, file)?;
    archive
        .check_stored()
        .map_err(|reason| malformed("", format!("{reason}; `torch.export.save` never compresses entries")))?;
    let name = program_name(&archive).map_err(|reason| malformed("", reason))?.to_owned();
    let text = archive.read_entry(&name, MAX_PROGRAM_BYTES).map_err(|reason| malformed("", reason))?;
    let memory_bytes = json_memory_bytes(&text);
    if memory_bytes > MEMORY_BYTES_FIXED.saturating_add(MEMORY_PER_BYTE.saturating_mul(archive.file_length())) {
        let reason = format!("the {} bytes of JSON would take {memory_bytes} bytes of memory", text.len());
        return Err(malformed(&format!("entry `{name}`"), reason));
    }
    let mut program: ExportedProgram = serde_json::from_slice(&text).map_err(|error| {
        malformed(&format!("entry `{name}`"), format!("the entry is not an exported program ({error})"))
    })?;
    if program.schema_version.major != MAJOR {
        let (major, minor) = (program.schema_version.major, program.schema_version.minor);
        let reason =
            format!("the format version is {major}.{minor}, this program reads {MAJOR}.x; export the model again");
        return Err(Error::Unsupported { file: file.to_owned(), place: format!("entry `{name}`"), reason });
    }
    inline::inline_parts(&mut program.graph_module.graph)
        .map_err(|reason| malformed(&format!("entry `{name}`"), reason))?;
    let weights = weights::Weights::read_lists(&archive, &name).map_err(|reason| malformed("weights", reason))?;
    let (graph, skipped, notes) = import::import_program(&program, weights, file, options)?;
    let hash = archive.hash_entries(&[&name]).map_err(|reason| malformed("", reason))?;
    Ok(Imported { graph, skipped, notes, bytes: archive.file_length(), hash })
}

fn check_byte_order(archive: &Archive, file: &str) -> Result<()> {
    let place = String::new();
    let Some(order) = archive.entry_names().find(|name| *name == "byteorder" || name.ends_with("/byteorder")) else {
        return Ok(());
    };
    match archive.read_entry(order, 64) {
        Err(reason) => Err(Error::Malformed { file: file.to_owned(), place, reason }),
        Ok(bytes) if bytes == "little" => Ok(()),
        Ok(_) => {
            let reason = "the weights are not stored in little-endian order".to_owned();
            Err(Error::Unsupported { file: file.to_owned(), place, reason })
        }
    }
}

fn check_version(archive: &Archive, file: &str) -> Result<()> {
    let is_version = |name: &&str| *name == "archive_version" || name.ends_with("/archive_version");
    let Some(entry) = archive.entry_names().find(is_version) else { return Ok(()) };
    let place = format!("entry `{entry}`");
    let bytes = archive.read_entry(entry, 64).map_err(|reason| Error::Malformed {
        file: file.to_owned(),
        place: place.clone(),
        reason,
    })?;
    let version = String::from_utf8_lossy(&bytes).trim().to_owned();
    if version == ARCHIVE_VERSION {
        return Ok(());
    }
    let reason =
        format!("the archive version is {version}, this program reads {ARCHIVE_VERSION}; export the model again");
    Err(Error::Unsupported { file: file.to_owned(), place, reason })
}

/// Returns an upper bound of the memory of a parsed JSON text. A non-empty map has nodes with room for 11 entries; a
/// list has room for 4 elements, or up to three times its length while growing.
fn json_memory_bytes(text: &[u8]) -> u64 {
    let of_sign = |sign: &u8| match sign {
        b'{' => 800,
        b'[' => 160,
        b',' => 96,
        _ => 1,
    };
    text.iter().map(of_sign).sum()
}

fn program_name(archive: &Archive) -> Result<&str, String> {
    let is_program = |name: &&str| {
        let mut parts = name.rsplit('/');
        let (last, folder) = (parts.next().unwrap_or(""), parts.next());
        (last.ends_with(".json") && folder == Some("models")) || last == "serialized_exported_program.json"
    };
    let mut programs = archive.entry_names().filter(is_program);
    match (programs.next(), programs.next()) {
        (Some(name), None) => Ok(name),
        (Some(_), Some(_)) => Err("the archive contains several programs".to_owned()),
        (None, _) if archive.entry_names().any(|name| name.ends_with("/data.pkl") || name == "data.pkl") => {
            Err("the archive contains pickled weights instead of an exported program; export the model with `torch.export.save` or \
             `torch.onnx.export`"
                .to_owned())
        }
        (None, _) => Err("the archive contains no exported program".to_owned()),
    }
}
