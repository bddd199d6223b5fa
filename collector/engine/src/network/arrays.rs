//! Reads named tensors from `.npz` archives, `.safetensors` files, and `.npy` files, which contain one unnamed array.
//! The extension selects the format. The expected type is known before anything is read, so no more bytes than this
//! type needs are unpacked from an archive, whatever size the archive claims.

use super::npy;
use models::TensorType;
use readers::archive::{Archive, ArchiveBytes};
use reference::Tensor;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

enum ArrayFormat {
    Npy,
    Npz,
    SafeTensors,
}

fn detect_format(path: &Path) -> ArrayFormat {
    match path.extension().and_then(|end| end.to_str()) {
        Some("npz") => ArrayFormat::Npz,
        Some("safetensors") => ArrayFormat::SafeTensors,
        _ => ArrayFormat::Npy,
    }
}

/// Reads the tensor called `name`, which must have the expected type.
pub fn read_tensor(path: &Path, name: &str, wanted: &TensorType) -> Result<Tensor, String> {
    let failed = |why: String| format!("cannot use `{}`: {why}", path.display());
    match detect_format(path) {
        ArrayFormat::Npy => open_file(path).and_then(|file| npy::read_tensor(file, wanted)).map_err(failed),
        ArrayFormat::Npz => open_archive(path).and_then(|archive| read_member(&archive, name, wanted)).map_err(failed),
        ArrayFormat::SafeTensors => {
            let entries = zoo::safetensors::list_tensors(path).map_err(|error| error.to_string())?;
            let entry = entries.get(name);
            let entry = entry.ok_or_else(|| failed(describe_missing(name, entries.keys().cloned().collect())))?;
            if entry.ty != *wanted {
                return Err(failed(format!("`{name}` is {}, but the model expects {wanted}", entry.ty)));
            }
            reference::constant_tensor(&entry.ty, &entry.lazy_data()).map_err(|error| failed(error.to_string()))
        }
    }
}

/// Returns the names of all tensors in a file.
pub fn tensor_names(path: &Path) -> Result<Vec<String>, String> {
    let failed = |why: String| format!("cannot use `{}`: {why}", path.display());
    match detect_format(path) {
        ArrayFormat::Npy => {
            Err(failed("the file contains one array without a name; pass it with `--input NAME=FILE`".to_owned()))
        }
        ArrayFormat::Npz => open_archive(path).map(|archive| member_names(&archive)).map_err(failed),
        ArrayFormat::SafeTensors => {
            let entries = zoo::safetensors::list_tensors(path).map_err(|error| error.to_string())?;
            Ok(entries.into_keys().collect())
        }
    }
}

fn open_file(path: &Path) -> Result<BufReader<File>, String> {
    File::open(path).map(BufReader::new).map_err(|error| error.to_string())
}

fn open_archive(path: &Path) -> Result<Archive, String> {
    let bytes = ArchiveBytes::open(path).map_err(|error| error.to_string())?;
    Archive::read(bytes).map_err(|error| format!("the file is not an archive of arrays ({error})"))
}

fn member_names(archive: &Archive) -> Vec<String> {
    archive.entry_names().map(|name| name.strip_suffix(".npy").unwrap_or(name).to_owned()).collect()
}

fn read_member(archive: &Archive, name: &str, wanted: &TensorType) -> Result<Tensor, String> {
    let entry = format!("{name}.npy");
    if archive.entry_length(&entry).is_none() {
        return Err(describe_missing(name, member_names(archive)));
    }
    archive
        .stream_entry(&entry)
        .and_then(|stream| npy::read_tensor(stream, wanted))
        .map_err(|why| format!("`{name}`: {why}"))
}

fn describe_missing(name: &str, mut names: Vec<String>) -> String {
    const SHOWN: usize = 10;
    names.sort_unstable();
    let more = names.len().saturating_sub(SHOWN);
    names.truncate(SHOWN);
    let shown: Vec<String> = names.iter().map(|name| name.chars().take(60).collect()).collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("the file has no tensor `{name}`; it has {}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Cursor, Write};
    use zip::write::SimpleFileOptions;
    use zip::{CompressionMethod, ZipWriter};

    fn tensor() -> Tensor {
        Tensor::from_numbers(TensorType::f32(&[2, 3]), &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).expect("a tensor")
    }

    fn member(bytes: Vec<u8>, name: &str, wanted: &TensorType) -> Result<Tensor, String> {
        super::read_member(&Archive::read(ArchiveBytes::Memory(bytes.into()))?, name, wanted)
    }

    fn npz(method: CompressionMethod) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default().compression_method(method);
        for (name, content) in [("other.npy", npy::tensor_bytes(&tensor())), ("x.npy", npy::tensor_bytes(&tensor()))] {
            writer.start_file(name, options).expect("a member");
            writer.write_all(&content).expect("written bytes");
        }
        writer.finish().expect("an archive").into_inner()
    }

    #[test]
    fn members_of_archives_are_read() {
        for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
            let bytes = npz(method);
            let read = |name: &str, wanted: &str| member(bytes.clone(), name, &wanted.parse().expect("a type"));
            assert_eq!(read("x", "f32[2,3]").expect("the array exists"), tensor());
            assert_eq!(read("y", "f32[2,3]").unwrap_err(), "the file has no tensor `y`; it has other, x");
            assert_eq!(read("x", "f32[6]").unwrap_err(), "`x`: the array is f32[2,3], but the model expects f32[6]");
        }
    }

    #[test]
    fn members_larger_than_wanted_are_refused() {
        let mut content = npy::tensor_bytes(&tensor());
        content.resize(content.len() + (1 << 20), 0);
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        writer.start_file("x.npy", SimpleFileOptions::default()).expect("a member");
        writer.write_all(&content).expect("written bytes");
        let bytes = writer.finish().expect("an archive").into_inner();
        assert!(bytes.len() < 10_000, "zeros are deflated well");
        member(bytes, "x", tensor().tensor_type()).expect_err("it is longer than it says");
    }

    #[test]
    fn damaged_archives_give_no_other_numbers() {
        for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
            let bytes = npz(method);
            let read = |bytes: &[u8]| member(bytes.to_vec(), "x", tensor().tensor_type());
            for length in 0..bytes.len() {
                read(&bytes[..length]).expect_err("it is cut off");
            }
            let mut refused = 0;
            for place in 0..bytes.len() {
                for bit in 0..8 {
                    let mut damaged = bytes.clone();
                    damaged[place] ^= 1 << bit;
                    match read(&damaged) {
                        Ok(found) => assert_eq!(found, tensor(), "{method:?}: bit {bit} at {place}"),
                        Err(_) => refused += 1,
                    }
                }
            }
            assert!(refused > bytes.len(), "{method:?}: {refused} of {} damages are seen", 8 * bytes.len());
        }
    }

    #[test]
    fn damaged_safetensors_are_refused_or_of_the_same_type() {
        let header = br#"{"x":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}"#;
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header, tensor().as_bytes()].concat();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("one.safetensors");
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).expect("a file");
            read_tensor(&path, "x", tensor().tensor_type())
        };
        assert_eq!(read(&bytes).expect("an undamaged file"), tensor());
        assert_eq!(tensor_names(&path).expect("an undamaged file"), ["x"]);
        for length in 0..bytes.len() {
            read(&bytes[..length]).expect_err("it is cut off");
        }
        for place in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[place] ^= 1 << (place % 8);
            if let Ok(found) = read(&damaged) {
                assert_eq!(found.tensor_type(), tensor().tensor_type(), "{place}");
            }
        }
    }
}
