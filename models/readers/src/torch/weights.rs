//! Weights and constants of an archive, by their names in the model.
//! A tensor is a view of stored elements: an offset and a stride per dimension. A view that permutes a contiguous
//! tensor becomes a lazy transposition, a view that repeats elements a lazy expansion, and a view with gaps a lazy slice.

use super::schema::{Meta, Payload, Payloads, dtype_of_code, known_integer};
use crate::archive::Archive;
use models::graph::Const;
use models::operators::{Expand, Op, Pad, Reshape, Slice, Transpose};
use models::shapes::check_type;
use models::types::{DType, TensorType};
use std::collections::BTreeMap;

const MAX_LIST_BYTES: u64 = 64 << 20;

pub(super) struct Weights<'a> {
    archive: &'a Archive,
    payloads: BTreeMap<String, (String, Payload)>,
    seed: u64,
}

impl<'a> Weights<'a> {
    pub fn read_lists(archive: &'a Archive, program: &str) -> Result<Weights<'a>, String> {
        let (top, name) = match program.rsplit_once("models/") {
            Some((top, name)) => (top, name.trim_end_matches(".json")),
            None => ("", ""),
        };
        let mut payloads = BTreeMap::new();
        for kind in ["weights", "constants"] {
            let folder = format!("{top}data/{kind}/");
            let list = format!("{folder}{name}_{kind}_config.json");
            if archive.entry_length(&list).is_none() {
                continue;
            }
            let text = archive.read_entry(&list, MAX_LIST_BYTES)?;
            let listed: Payloads = serde_json::from_slice(&text)
                .map_err(|error| format!("`{list}` is not a list of tensors ({error})"))?;
            payloads.extend(listed.config.into_iter().map(|(name, payload)| (name, (folder.clone(), payload))));
        }
        Ok(Weights { archive, payloads, seed: 0 })
    }

    /// Returns type, contents and a key that all aliases have in common. Pickled weights of older archives are never
    /// read: `stated` then gives the type, and the values are random.
    pub fn find_tensor(&mut self, name: &str, stated: Option<&Meta>) -> Result<(TensorType, Const, String), String> {
        let Some((folder, payload)) = self.payloads.get(name) else {
            let meta = stated.ok_or("the file does not state the type of the tensor")?;
            let ty = type_of(meta)?;
            self.seed += 1;
            return Ok((ty, Const::Random { seed: self.seed }, format!("random {}", self.seed)));
        };
        if payload.use_pickle {
            return Err(
                "the tensor is pickled; pickles are not read because they can run code. If it is a weight that \
                        torchao has quantised, export the model after `run_decompositions()`"
                    .to_owned(),
            );
        }
        let meta = payload.tensor_meta.as_ref().or(stated).ok_or("the file does not state the type of the tensor")?;
        let Some(strides) = meta.strides.iter().map(known_integer).collect::<Option<Vec<i64>>>() else {
            return Err("a stride is not a number".to_owned());
        };
        let tensor = StoredTensor {
            entry: format!("{folder}{}", payload.path_name),
            dtype: dtype_of_code(meta.dtype)?,
            is_complex: meta.is_complex(),
            extents: meta.known_extents().ok_or("an extent is not a number")?,
            strides,
            offset: meta.storage_offset.as_ref().and_then(known_integer).unwrap_or(0),
        };
        tensor.load_contents(self.archive)
    }
}

#[derive(Clone, Debug)]
pub(super) struct StoredTensor {
    pub entry: String,
    pub dtype: DType,
    pub is_complex: bool,
    pub extents: Vec<i64>,
    pub strides: Vec<i64>,
    pub offset: i64,
}

impl Default for StoredTensor {
    fn default() -> StoredTensor {
        let (extents, strides) = (Vec::new(), Vec::new());
        StoredTensor { entry: String::new(), dtype: DType::F32, is_complex: false, extents, strides, offset: 0 }
    }
}

impl StoredTensor {
    /// Returns the type; complex numbers get an additional last dimension of two.
    pub fn tensor_type(&self) -> Result<TensorType, String> {
        let mut extents = self.extents.clone();
        if self.is_complex {
            extents.push(2);
        }
        let ty = TensorType::new(self.dtype, &extents);
        check_type(&ty)?;
        Ok(ty)
    }

    /// Returns type, contents and a key that all aliases have in common.
    pub fn load_contents(&self, archive: &Archive) -> Result<(TensorType, Const, String), String> {
        let ty = self.tensor_type()?;
        let size = ty.dtype.size_bytes() * if self.is_complex { 2 } else { 1 };
        let start = u64::try_from(self.offset).ok().and_then(|offset| offset.checked_mul(size));
        let start = start.ok_or_else(|| format!("the offset {} of the elements is out of range", self.offset))?;
        if let Some(packed) = self.without_repetition() {
            let (packed, data, same) = packed.load_contents(archive)?;
            let shape = ty.extents().unwrap_or_default();
            let data = Const::from_operator(Op::Expand(Expand { shape }), vec![(packed, data)]);
            return Ok((ty.clone(), data, format!("{same} as {ty}")));
        }
        let order = self.memory_order(&ty)?;
        let same = format!("{} {start} {ty} {:?} {order:?}", self.entry, self.strides);
        if let Some(stored) = self.enclosing_extents(&ty, &order) {
            let data = self.load_part(archive, &ty, (start, &stored), &order)?;
            return Ok((ty, data, same));
        }
        let length = ty.size_bytes().ok_or_else(|| format!("the size of {ty} is unknown"))?;
        let data = archive.entry_contents(&self.entry, start, length)?;
        Ok((ty.clone(), permute_contents(&ty, &order, data), same))
    }

    /// Returns whether the elements lie in memory in the order of the dimensions, without gaps.
    pub fn is_row_major(&self) -> bool {
        self.tensor_type().and_then(|ty| {
            let order = self.memory_order(&ty)?;
            Ok(self.enclosing_extents(&ty, &order).is_none() && order.is_sorted())
        }) == Ok(true)
    }

    /// Returns the extents of the dense tensor that this tensor is a part of, in memory order and with an extent for the
    /// distance of elements as the last one; None for a tensor without gaps.
    fn enclosing_extents(&self, ty: &TensorType, order: &[usize]) -> Option<Vec<i64>> {
        let (extents, strides) = (ty.extents()?, self.number_strides());
        if strides.is_empty() || ty.element_count() == Some(0) {
            return None;
        }
        let wide: Vec<usize> = order.iter().copied().filter(|&axis| extents[axis] > 1).collect();
        let steps: Vec<i64> = wide.iter().map(|&axis| strides[axis]).chain([1]).collect();
        let stored: Vec<i64> = steps.windows(2).map(|pair| pair[0] / pair[1]).collect();
        let is_dense = wide.iter().skip(1).map(|&axis| extents[axis]).chain([1]).eq(stored.iter().copied());
        let first = extents[*wide.first()?];
        (!is_dense).then(|| [first].into_iter().chain(stored).collect())
    }

    /// Loads a part of a dense tensor: pads the stored elements to whole rows and slices them.
    fn load_part(
        &self,
        archive: &Archive,
        ty: &TensorType,
        (start, stored): (u64, &[i64]),
        order: &[usize],
    ) -> Result<Const, String> {
        let too_large = || format!("the strides {:?} are too large", self.strides);
        let (extents, strides) = (ty.extents().unwrap_or_default(), self.number_strides());
        let reach = extents
            .iter()
            .zip(&strides)
            .try_fold(1i64, |reach, (&extent, &stride)| reach.checked_add((extent - 1).checked_mul(stride)?));
        let reach = reach.ok_or_else(too_large)?;
        let full = stored.iter().try_fold(1i64, |all, &extent| all.checked_mul(extent)).ok_or_else(too_large)?;
        let bytes = u64::try_from(reach).ok().and_then(|reach| reach.checked_mul(ty.dtype.size_bytes()));
        let data = archive.entry_contents(&self.entry, start, bytes.ok_or_else(too_large)?)?;
        let of = |extents: &[i64]| TensorType::new(ty.dtype, extents);
        [of(&[full]), of(stored)].iter().try_for_each(check_type)?;
        let pad = Op::Pad(Pad { pads: vec![0, full - reach], value: 0.0 });
        let data = Const::from_operator(pad, vec![(of(&[reach]), data)]);
        let data = Const::from_operator(Op::Reshape(Reshape { shape: stored.to_vec() }), vec![(of(&[full]), data)]);
        let wide: Vec<i64> = order.iter().map(|&axis| extents[axis]).filter(|&extent| extent > 1).collect();
        let stops = [wide.as_slice(), &[1]].concat();
        let axes = (0..stops.len() as i64).collect();
        let (starts, steps) = (vec![0; stops.len()], vec![1; stops.len()]);
        let slice = Op::Slice(Slice { axes, starts, stops: stops.clone(), steps });
        let data = Const::from_operator(slice, vec![(of(stored), data)]);
        let shape: Vec<i64> = order.iter().map(|&axis| extents[axis]).collect();
        let data = Const::from_operator(Op::Reshape(Reshape { shape }), vec![(of(&stops), data)]);
        Ok(permute_contents(ty, order, data))
    }

    /// Returns the strides in numbers; a complex number is two of them.
    fn number_strides(&self) -> Vec<i64> {
        match self.is_complex && !self.strides.is_empty() {
            true => self.strides.iter().map(|stride| stride.saturating_mul(2)).chain([1]).collect(),
            false => self.strides.clone(),
        }
    }

    /// Returns the tensor without its repeated dimensions (stride zero), or None if no dimension is repeated.
    fn without_repetition(&self) -> Option<StoredTensor> {
        let is_repeated = |axis: usize| self.extents[axis] > 1 && self.strides.get(axis) == Some(&0);
        let axes = 0..self.extents.len();
        if !axes.clone().any(is_repeated) {
            return None;
        }
        let extents = axes.map(|axis| if is_repeated(axis) { 1 } else { self.extents[axis] }).collect();
        Some(StoredTensor { extents, ..self.clone() })
    }

    /// Returns the dimensions in memory order, from the largest stride to the smallest. A stride must be a multiple of
    /// the next one, and rows must not overlap.
    fn memory_order(&self, ty: &TensorType) -> Result<Vec<usize>, String> {
        let extents = ty.extents().unwrap_or_default();
        let mut order: Vec<usize> = (0..extents.len()).collect();
        let strides = self.number_strides();
        if strides.is_empty() || ty.element_count() == Some(0) {
            return Ok(order);
        }
        if strides.len() != extents.len() {
            return Err(format!("{ty} has {} strides", strides.len()));
        }
        // The stride of a dimension of extent 1 is arbitrary.
        order.sort_by_key(|&axis| (extents[axis] > 1, std::cmp::Reverse(strides[axis])));
        let (mut inner, mut span) = (1i64, 1i64);
        for &axis in order.iter().rev().filter(|&&axis| extents[axis] > 1) {
            if strides[axis] < span || strides[axis] % inner != 0 {
                return Err(format!("the strides {strides:?} do not describe a part of a dense tensor"));
            }
            inner = strides[axis];
            span = inner.checked_mul(extents[axis]).ok_or("the strides are too large")?;
        }
        // Dimensions of extent 1 may have any position: prefer the identity if the other dimensions allow it.
        let large =
            |order: &[usize]| -> Vec<usize> { order.iter().copied().filter(|&axis| extents[axis] > 1).collect() };
        let usual: Vec<usize> = (0..extents.len()).collect();
        Ok(if large(&order) == large(&usual) { usual } else { order })
    }
}

/// Returns the dimensions of a tensor in memory order, or None if its memory has gaps or begins after an offset.
pub(super) fn dense_order(meta: &Meta) -> Option<Vec<usize>> {
    let strides = meta.strides.iter().map(known_integer).collect::<Option<Vec<i64>>>()?;
    if meta.storage_offset.as_ref().and_then(known_integer).unwrap_or(0) != 0 {
        return None;
    }
    let extents = meta.known_extents()?;
    let tensor = StoredTensor { strides, extents: extents.clone(), ..StoredTensor::default() };
    let ty = TensorType::new(DType::F32, &extents);
    let order = tensor.memory_order(&ty).ok()?;
    tensor.enclosing_extents(&ty, &order).is_none().then_some(order)
}

/// Returns the stated type, with checked extents. Complex numbers get an additional last dimension of two.
pub(super) fn type_of(meta: &Meta) -> Result<TensorType, String> {
    let mut extents = meta.known_extents().ok_or("an extent is not a number")?;
    if meta.is_complex() {
        extents.push(2);
    }
    let ty = TensorType::new(dtype_of_code(meta.dtype)?, &extents);
    check_type(&ty)?;
    Ok(ty)
}

fn permute_contents(ty: &TensorType, order: &[usize], data: Const) -> Const {
    if order.iter().enumerate().all(|(index, &axis)| index == axis) {
        return data;
    }
    let stored = TensorType { dtype: ty.dtype, shape: order.iter().map(|&axis| ty.shape[axis].clone()).collect() };
    let permutation =
        (0..order.len()).map(|axis| order.iter().position(|&at| at == axis).unwrap_or(0) as i64).collect();
    Const::from_operator(Op::Transpose(Transpose { permutation }), vec![(stored, data)])
}
