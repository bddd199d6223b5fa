//! A predictor in one file: a text header, the trees as columns of numbers (compressed), and a hash over everything.
//!
//! Files may come from untrusted sources: every length is checked before memory is allocated, every tree is checked
//! before it is evaluated, and nothing in a file is executed. A file of another format, or with features other than
//! those of this program, is rejected.
//!
//! Format 7 has two sections: the predictor (possibly empty, with its length and hash) and the kernels' models.

use crate::error::{Error, Result};
use learn::choice_classifier::ChoiceClassifier;
use learn::ensemble::Ensemble;
use learn::gaussian_process::Correction;
use learn::operator::OperatorEnsemble;
use learn::operator_statistics::OperatorStatistics;
use learn::predictor::{About, Predictor};
use learn::trees::Trees;
use learn::trees::columns::{Reader, TreeWriter};
use samples::features::FEATURES;
use serde::{Deserialize, Serialize};
use serving::{Learned, describe_unpack_error};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

const MAGIC: &[u8; 8] = b"oppred\r\n";
const FORMAT: u32 = 6;
const FORMAT_WITH_KERNELS: u32 = 7;
const DAMAGED: &str = "the file is damaged: its content does not match its hash";
const MAX_BYTES: u64 = 1 << 29;
const MAX_HEADER_BYTES: usize = 64 << 20;
const HASH_BYTES: usize = 32;
/// Compression level: slow but small, because training takes minutes anyway.
const LEVEL: i32 = 22;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    about: About,
    operators: BTreeMap<String, Operator>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Operator {
    statistics: OperatorStatistics,
    known: usize,
    transfer: usize,
    per_device: usize,
    corrections: BTreeMap<String, Correction>,
    choice_classifiers: BTreeMap<String, Vec<u32>>,
}

/// Writes a predictor to a file, atomically.
pub fn write_bundle(predictor: &Predictor, path: &Path) -> Result<()> {
    Ok(datasets::output::write_file(path, to_bytes(predictor))?)
}

pub fn read_bundle(path: &Path) -> Result<Predictor> {
    from_bytes(&read_content(path)?).map_err(|problem| Error::bundle_error(path, problem))
}

fn read_content(path: &Path) -> Result<Vec<u8>> {
    let file = std::fs::File::open(path).map_err(|error| Error::io_error("open", path, error))?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| Error::io_error("read", path, error))?;
    Ok(bytes)
}

/// Reads the facts of a predictor without reading its trees or checking the hash; None if the bundle contains only models
/// of language-model kernels.
pub fn read_about(path: &Path) -> Result<Option<About>> {
    let about = |bytes: &[u8]| -> std::result::Result<Option<About>, String> {
        let mut body = match split_sections(bytes)?.packed {
            [] => return Ok(None),
            packed => decompress_predictor(packed)?,
        };
        let mut length = [0; 4];
        body.read_exact(&mut length).map_err(describe_unpack_error)?;
        let length = header_bytes(length)?;
        let mut header = Vec::new();
        body.take(length as u64).read_to_end(&mut header).map_err(describe_unpack_error)?;
        Ok(Some(read_header(&header)?.about))
    };
    about(&read_content(path)?).map_err(|problem| Error::bundle_error(path, problem))
}

pub fn to_bytes(predictor: &Predictor) -> Vec<u8> {
    let packed = zstd::bulk::compress(&encode_body(predictor), LEVEL).expect("compression into memory");
    let mut bytes = [&MAGIC[..], &FORMAT.to_le_bytes(), &packed].concat();
    bytes.extend_from_slice(blake3::hash(&bytes).as_bytes());
    bytes
}

fn encode_body(predictor: &Predictor) -> Vec<u8> {
    let operator = |ensemble: &OperatorEnsemble| Operator {
        statistics: ensemble.statistics.clone(),
        known: ensemble.known.len(),
        transfer: ensemble.transfer.len(),
        per_device: ensemble.per_device.len(),
        corrections: ensemble.corrections.clone(),
        choice_classifiers: ensemble
            .choice_classifiers
            .iter()
            .map(|(device, classifier)| (device.clone(), classifier.choice_values().collect()))
            .collect(),
    };
    let operators = predictor.learned.operators.iter().map(|(name, of)| (name.clone(), operator(of))).collect();
    let header = Header { about: predictor.about.clone(), operators };
    let header = serde_json::to_vec(&header).expect("numbers and texts have a JSON form");
    let mut bytes = (header.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&header);
    let mut writer = TreeWriter::default();
    predictor
        .learned
        .operators
        .values()
        .flat_map(OperatorEnsemble::all_trees)
        .for_each(|trees| writer.write_trees(trees));
    bytes.extend(writer.into_bytes());
    bytes
}

pub fn from_bytes(bytes: &[u8]) -> std::result::Result<Predictor, String> {
    let Sections { hashed, hash, packed, .. } = split_sections(bytes)?;
    if blake3::hash(hashed).as_bytes() != hash {
        return Err(DAMAGED.to_owned());
    }
    if packed.is_empty() {
        return Err("it contains only models of language-model kernels; query it with a kernel, such as `--op gemm:m=16,n=64,k=64`".to_owned());
    }
    let mut body = Vec::new();
    decompress_predictor(packed)?.take(MAX_BYTES + 1).read_to_end(&mut body).map_err(describe_unpack_error)?;
    if body.len() as u64 > MAX_BYTES {
        return Err(format!("the file decompresses to more than {MAX_BYTES} bytes"));
    }
    let (length, rest) = body.split_first_chunk::<4>().ok_or("the file ends early")?;
    let (header, rest) = rest.split_at_checked(header_bytes(*length)?).ok_or("the header is longer than the file")?;
    let header = read_header(header)?;
    let mut trees = Reader::new(rest)?;
    let predictor = decode_predictor(header, &mut trees)?;
    trees.check_finished()?;
    Ok(predictor)
}

/// Reads the models of language-model kernels from a bundle; None if it has no such section.
pub fn read_kernels(path: &Path) -> Result<Option<Learned>> {
    kernels_from_bytes(&read_content(path)?).map_err(|problem| Error::bundle_error(path, problem))
}

fn kernels_from_bytes(bytes: &[u8]) -> std::result::Result<Option<Learned>, String> {
    split_sections(bytes)?.kernels.map(serving::store::from_bytes).transpose()
}

pub fn with_kernels(base: Option<&Path>, kernels: &Learned) -> Result<Vec<u8>> {
    let base_bytes = base.map(read_content).transpose()?.unwrap_or_default();
    let packed = match base {
        Some(path) => {
            let Sections { hashed, hash, packed, .. } =
                split_sections(&base_bytes).map_err(|problem| Error::bundle_error(path, problem))?;
            if blake3::hash(hashed).as_bytes() != hash {
                return Err(Error::bundle_error(path, DAMAGED.to_owned()));
            }
            packed
        }
        None => &[],
    };
    let length = (packed.len() as u64).to_le_bytes();
    let mut bytes = [&MAGIC[..], &FORMAT_WITH_KERNELS.to_le_bytes(), &length, packed].concat();
    bytes.extend_from_slice(blake3::hash(&bytes).as_bytes());
    bytes.extend(serving::store::to_bytes(kernels).map_err(Error::Data)?);
    Ok(bytes)
}

struct Sections<'a> {
    hashed: &'a [u8],
    hash: &'a [u8],
    packed: &'a [u8],
    kernels: Option<&'a [u8]>,
}

fn split_sections(bytes: &[u8]) -> std::result::Result<Sections<'_>, String> {
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("the file has more than {MAX_BYTES} bytes"));
    }
    let rest = bytes.strip_prefix(MAGIC).ok_or("not a predictor file of this program")?;
    let (format, rest) = rest.split_first_chunk::<4>().ok_or("the file ends early")?;
    let format = u32::from_le_bytes(*format);
    if format == FORMAT_WITH_KERNELS {
        let (length, rest) = rest.split_first_chunk::<8>().ok_or("the file ends early")?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| "the file ends early")?;
        let (packed, rest) = rest.split_at_checked(length).ok_or("the file ends early")?;
        let (hash, kernels) = rest.split_at_checked(HASH_BYTES).ok_or("the file ends early")?;
        let hashed = &bytes[..bytes.len() - rest.len()];
        return Ok(Sections { hashed, hash, packed, kernels: Some(kernels) });
    }
    if format != FORMAT {
        return Err(match format > FORMAT {
            true => format!(
                "its format {format} is newer than the format {FORMAT_WITH_KERNELS} of this program; update the program"
            ),
            false => format!("its format {format} is older than the supported format {FORMAT}; train it again"),
        });
    }
    let (packed, hash) = rest.split_last_chunk::<HASH_BYTES>().ok_or("the file ends early")?;
    Ok(Sections { hashed: &bytes[..bytes.len() - HASH_BYTES], hash, packed, kernels: None })
}

fn decompress_predictor(packed: &[u8]) -> std::result::Result<impl Read, String> {
    zstd::stream::read::Decoder::new(packed).map_err(|error| error.to_string())
}

fn header_bytes(length: [u8; 4]) -> std::result::Result<usize, String> {
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_HEADER_BYTES { Err("the header exceeds the size limit".to_owned()) } else { Ok(length) }
}

fn read_header(bytes: &[u8]) -> std::result::Result<Header, String> {
    serde_json::from_slice(bytes).map_err(|error| format!("invalid header: {error}"))
}

fn decode_predictor(header: Header, reader: &mut Reader<'_>) -> std::result::Result<Predictor, String> {
    let about = header.about;
    let ours = FEATURES.iter().map(|feature| feature.name);
    if about.names.len() < FEATURES.len() || !ours.zip(&about.names).all(|(ours, theirs)| ours == theirs) {
        return Err("its features differ from those of this program; train it again".to_owned());
    }
    if about.devices.values().any(|device| !device.is_sound()) {
        return Err("a device property is not a positive number".to_owned());
    }
    if about.in_place.values().any(|learned| !learned.is_sound()) {
        return Err("a parameter of the model of in-network times is not a number".to_owned());
    }
    let errors = about.held_out.values().flat_map(BTreeMap::values);
    if errors.into_iter().any(|error| !(error.median_percent.is_finite() && error.median_percent >= 0.0)) {
        return Err("a held-out error is not a non-negative number".to_owned());
    }
    let width = about.names.len() + 1;
    let mut operators = BTreeMap::new();
    for (name, operator) in header.operators {
        operator.statistics.check_values(width).map_err(|problem| format!("operator `{name}`: {problem}"))?;
        let mut read = |count: usize| {
            let trees = (0..count).map(|_| reader.read_trees().and_then(|trees| check_width(trees, width)));
            trees.collect::<std::result::Result<Vec<Trees>, String>>()
        };
        let known = read(operator.known)?;
        let transfer = read(operator.transfer)?;
        let per_device = read(operator.per_device)?;
        let mut choice_classifiers = BTreeMap::new();
        for (device, choices) in operator.choice_classifiers {
            let is_one = |choice: &u32| (1..=operator.statistics.choices.len()).contains(&(*choice as usize));
            if !choices.iter().all(is_one) {
                return Err(format!("operator `{name}`: a choice on `{device}` has no name"));
            }
            let trees = read(choices.len())?;
            choice_classifiers.insert(device, ChoiceClassifier { classes: choices.into_iter().zip(trees).collect() });
        }
        if operator.corrections.values().any(|correction| !correction.is_sound()) {
            return Err(format!("operator `{name}`: the corrections are inconsistent"));
        }
        let (statistics, corrections) = (operator.statistics, operator.corrections);
        operators.insert(
            name,
            OperatorEnsemble { statistics, known, transfer, per_device, choice_classifiers, corrections },
        );
    }
    Ok(Predictor { about, learned: Ensemble { operators }, this_host: None })
}

fn check_width(trees: Trees, width: usize) -> std::result::Result<Trees, String> {
    match trees.features == width {
        true => Ok(trees),
        false => Err(format!("the trees have {} features, expected {width}", trees.features)),
    }
}
