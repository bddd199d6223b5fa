//! Looks up weights by name: in safetensors files, or random ones if there are no files.

use crate::safetensors::{self, Entry};
use models::error::{Error, Result};
use models::graph::Const;
use models::operators::{Cast, Op, Transpose};
use models::types::TensorType;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Prefixes with which published files may store a weight, other than the prefix of the model's family.
const PREFIXES: &[&str] = &["", "model.", "transformer.", "base_model."];

pub(super) enum Weights {
    Random { seed: u64 },
    Stored { folder: String, entries: BTreeMap<String, Entry>, prefix: String, used: BTreeSet<String> },
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stored {
    AsUsed,
    Transposed,
}

impl Weights {
    pub fn with_random() -> Weights {
        Weights::Random { seed: 0 }
    }

    pub fn open_folder(folder: &Path, prefix: &str) -> Result<Option<Weights>> {
        let Some(entries) = safetensors::list_folder(folder)? else { return Ok(None) };
        let (folder, prefix) = (folder.display().to_string(), prefix.to_owned());
        Ok(Some(Weights::Stored { folder, entries, prefix, used: BTreeSet::new() }))
    }

    pub fn find_weight(&mut self, name: &str, ty: &TensorType, stored: Stored) -> Result<Const> {
        match self {
            Weights::Random { seed } => {
                *seed += 1;
                Ok(Const::Random { seed: *seed })
            }
            Weights::Stored { folder, entries, prefix, used } => {
                let Some(spelling) = stored_name(entries, prefix, name) else {
                    let reason = "the safetensors files contain no tensor of that name".to_owned();
                    return Err(Error::Malformed { file: folder.clone(), place: format!("tensor `{name}`"), reason });
                };
                let entry = &entries[&spelling];
                let data = convert_weight(entry, ty, stored).map_err(|reason| Error::Malformed {
                    file: folder.clone(),
                    place: format!("tensor `{spelling}`"),
                    reason,
                })?;
                used.insert(spelling);
                Ok(data)
            }
        }
    }

    /// Returns the number of unused tensors in the files and the name of the first; None if all are used.
    pub fn first_unused(&self) -> Option<(usize, String)> {
        let Weights::Stored { entries, used, .. } = self else { return None };
        let mut unused = entries.keys().filter(|name| !used.contains(*name));
        let first = unused.next()?;
        Some((1 + unused.count(), first.clone()))
    }
}

/// Finds the name under which the files contain a weight, with or without prefix, including names of old formats.
fn stored_name(entries: &BTreeMap<String, Entry>, prefix: &str, name: &str) -> Option<String> {
    let old = name
        .strip_suffix("LayerNorm.weight")
        .map(|start| format!("{start}LayerNorm.gamma"))
        .or_else(|| name.strip_suffix("LayerNorm.bias").map(|start| format!("{start}LayerNorm.beta")));
    let names = std::iter::once(name.to_owned()).chain(old);
    names
        .flat_map(|name| {
            let own = format!("{prefix}{name}");
            PREFIXES.iter().map(move |prefix| format!("{prefix}{name}")).chain([own])
        })
        .find(|spelling| entries.contains_key(spelling))
}

fn convert_weight(entry: &Entry, ty: &TensorType, stored: Stored) -> Result<Const, String> {
    let mut wanted = ty.clone();
    if stored == Stored::Transposed {
        wanted.shape.reverse();
    }
    if entry.ty.shape != wanted.shape {
        return Err(format!("the tensor is {}, but the configuration implies {wanted}", entry.ty));
    }
    if !entry.ty.dtype.is_float() {
        return Err(format!("the tensor is {}, but a weight must have a floating-point type", entry.ty));
    }
    let mut data = entry.lazy_data();
    if entry.ty.dtype != ty.dtype {
        data = Const::from_operator(Op::Cast(Cast { to: ty.dtype }), vec![(entry.ty.clone(), data)]);
    }
    if stored == Stored::Transposed {
        data = Const::from_operator(Op::Transpose(Transpose { permutation: vec![1, 0] }), vec![(wanted, data)]);
    }
    Ok(data)
}
