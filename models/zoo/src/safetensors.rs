//! Reads the headers of safetensors files; elements are read on demand.
//! A file consists of the header length (eight bytes), the header (JSON: element type, shape and position of each
//! tensor) and the elements. The format's crate parses the header and checks that tensors are contiguous and have the
//! size of their shape. This module checks that they fit the file.

use models::error::{Error, Result};
use models::graph::Const;
use models::names::shorten_text;
use models::shapes::check_type;
use models::types::{DType, TensorType};
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

const MAX_HEADER_BYTES: u64 = 16 << 20;
const MAX_INDEX_BYTES: u64 = 16 << 20;
const MAX_FILES: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub ty: TensorType,
    pub path: PathBuf,
    pub offset: u64,
    pub length: u64,
}

impl Entry {
    pub fn lazy_data(&self) -> Const {
        Const::File { path: self.path.clone(), offset: self.offset, length: self.length }
    }
}

/// Lists the tensors of `model.safetensors`, or of the files in its index; None if a folder has neither.
pub fn list_folder(folder: &Path) -> Result<Option<BTreeMap<String, Entry>>> {
    let single = folder.join("model.safetensors");
    if single.is_file() {
        return list_tensors(&single).map(Some);
    }
    let index = folder.join("model.safetensors.index.json");
    if index.is_file() { read_index(folder, &index).map(Some) } else { Ok(None) }
}

pub fn list_tensors(path: &Path) -> Result<BTreeMap<String, Entry>> {
    let name = path.display().to_string();
    let unreadable = |error: std::io::Error| Error::Unreadable { file: name.clone(), reason: error.to_string() };
    let mut file = models::files::open_regular(path).map_err(unreadable)?;
    let size = file.metadata().map_err(unreadable)?.len();
    let malformed = |reason: String| Error::Malformed { file: name.clone(), place: "header".to_owned(), reason };
    let mut start = [0; 8];
    file.read_exact(&mut start).map_err(|_| malformed(format!("{size} bytes are too few for a header")))?;
    let length = u64::from_le_bytes(start);
    if length > MAX_HEADER_BYTES || length > size - 8 {
        let reason =
            format!("the header claims {length} bytes; the file has {size} bytes, and the limit is {MAX_HEADER_BYTES}");
        return Err(malformed(reason));
    }
    let mut header = Vec::new();
    file.take(length).read_to_end(&mut header).map_err(unreadable)?;
    let first = 8 + length;
    let places = parse_header(&header, size - first).map_err(malformed)?;
    let entry = |(name, place): (String, Place)| {
        (name, Entry { ty: place.ty, path: path.to_owned(), offset: first + place.start, length: place.length })
    };
    Ok(places.into_iter().map(entry).collect())
}

/// A tensor's type and byte range within the data section of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub ty: TensorType,
    pub start: u64,
    pub length: u64,
}

pub fn parse_header(header: &[u8], bytes: u64) -> Result<BTreeMap<String, Place>, String> {
    let header: Metadata =
        serde_json::from_slice(header).map_err(|error| format!("the header is invalid ({error})"))?;
    let length = header.data_len() as u64;
    if length != bytes {
        return Err(format!("the tensors take {length} bytes, but the file has {bytes} bytes of data"));
    }
    let mut places = BTreeMap::new();
    for name in header.offset_keys() {
        let info = header.info(&name).ok_or_else(|| format!("tensor `{name}` has no offsets"))?;
        let place = tensor_place(info).map_err(|reason| format!("tensor `{name}`: {reason}"))?;
        places.insert(name, place);
    }
    Ok(places)
}

fn tensor_place(info: &TensorInfo) -> Result<Place, String> {
    let extent = |&extent: &usize| i64::try_from(extent).map_err(|_| format!("an extent of {extent} is too large"));
    let shape = info.shape.iter().map(extent).collect::<Result<Vec<i64>, String>>()?;
    let ty = TensorType::new(convert_dtype(info.dtype)?, &shape);
    check_type(&ty)?;
    let (start, stop) = info.data_offsets;
    Ok(Place { ty, start: start as u64, length: (stop - start) as u64 })
}

fn convert_dtype(dtype: Dtype) -> Result<DType, String> {
    Ok(match dtype {
        Dtype::F64 => DType::F64,
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::I64 => DType::I64,
        Dtype::I32 => DType::I32,
        Dtype::I16 => DType::I16,
        Dtype::I8 => DType::I8,
        Dtype::U64 => DType::U64,
        Dtype::U32 => DType::U32,
        Dtype::U16 => DType::U16,
        Dtype::U8 => DType::U8,
        Dtype::BOOL => DType::Bool,
        other => return Err(format!("elements of type `{other}` are not supported")),
    })
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

fn read_index(folder: &Path, index: &Path) -> Result<BTreeMap<String, Entry>> {
    let name = index.display().to_string();
    let malformed = |place: String, reason: String| Error::Malformed { file: name.clone(), place, reason };
    let text = crate::files::read_text(index, MAX_INDEX_BYTES)?;
    let index: Index = serde_json::from_str(&text)
        .map_err(|error| malformed(String::new(), format!("the file is not a tensor index ({error})")))?;
    let mut files: BTreeMap<&str, BTreeMap<String, Entry>> = BTreeMap::new();
    let mut entries = BTreeMap::new();
    for (tensor, file) in &index.weight_map {
        if !files.contains_key(file.as_str()) {
            let mut parts = Path::new(file).components();
            let is_plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
            if !is_plain || files.len() == MAX_FILES {
                let reason = format!(
                    "the tensor is in `{}`, but at most {MAX_FILES} files are read, all in the folder of the index",
                    shorten_text(file)
                );
                return Err(malformed(format!("tensor `{tensor}`"), reason));
            }
            files.insert(file, list_tensors(&folder.join(file))?);
        }
        let found = files[file.as_str()].get(tensor).cloned();
        let missing = || {
            malformed(format!("tensor `{tensor}`"), format!("the tensor is not in the file `{}`", shorten_text(file)))
        };
        entries.insert(tensor.clone(), found.ok_or_else(missing)?);
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_refused(header: &str, bytes: u64, says: &str) {
        let error = parse_header(header.as_bytes(), bytes).unwrap_err();
        assert!(error.contains(says), "{error}");
    }

    #[test]
    fn places_are_compared_with_the_file() {
        let one = |dtype: &str, shape: &str, start: u64, stop: u64| {
            format!(
                r#"{{"__metadata__":{{"shape":"x"}},"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{start},{stop}]}}}}"#
            )
        };
        let read = parse_header(one("BF16", "[2,3]", 0, 12).as_bytes(), 12).unwrap();
        assert_eq!(read["a"], Place { ty: "bf16[2,3]".parse().unwrap(), start: 0, length: 12 });
        check_refused("[]", 0, "the header is invalid");
        check_refused(&one("F32", "[2,3]", 0, 24), 23, "the tensors take 24 bytes, but the file has 23 bytes of data");
        check_refused(&one("F32", "[2,3]", 0, 24), 25, "the tensors take 24 bytes, but the file has 25 bytes of data");
        check_refused(&one("F32", "[2,3]", 0, 16), 16, "the header is invalid");
        check_refused(&one("F32", "[2,3]", 8, 32), 32, "`a`");
        check_refused(&one("F32", "[2,3]", 24, 0), 24, "`a`");
        check_refused(&one("F32", "[-2,3]", 0, 24), 24, "the header is invalid");
        check_refused(&one("F32", "[4611686018427387904,4]", 0, 24), 24, "the header is invalid");
        check_refused(&one("F32", "[9223372036854775808,0]", 0, 0), 0, "`a`: an extent of 9223372036854775808");
        check_refused(&one("F8_E4M3", "[1]", 0, 1), 1, "`F8_E4M3` are not supported");
        let two = r#"{"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"I8","shape":[4],"data_offsets":[3,7]}}"#;
        check_refused(two, 7, "`b`");
    }

    #[test]
    fn files_of_hostile_lengths_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let refusal = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            list_tensors(&path).unwrap_err().to_string()
        };
        assert!(refusal(b"12").contains("2 bytes are too few"));
        assert!(refusal(&u64::MAX.to_le_bytes()).contains("the header claims 18446744073709551615 bytes"));
        let index = folder.path().join("model.safetensors.index.json");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&index, r#"{"weight_map":{"a":"../model.safetensors"}}"#).unwrap();
        let error = super::list_folder(folder.path()).unwrap_err().to_string();
        assert!(error.contains("at most 4096 files are read, all in the folder of the index"), "{error}");
    }
}
