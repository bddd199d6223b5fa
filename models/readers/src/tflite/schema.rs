//! The tables of a TFLite model, with their field numbers.

use super::flatbuffer::{Buffer, FlatTable, Read};
use super::stored::Sparsity;
use bytes::Bytes;
use models::types::DType;
use std::ops::Range;

pub(super) struct Model<'a> {
    /// The main graph comes first. Other graphs belong to loops and branches.
    pub graphs: Vec<Subgraph<'a>>,
    bytes: Bytes,
}

pub(super) struct Subgraph<'a> {
    pub name: String,
    pub tensors: Vec<Tensor>,
    pub inputs: Vec<i32>,
    pub outputs: Vec<i32>,
    pub operators: Vec<Operator<'a>>,
}

pub(super) struct Tensor {
    pub name: String,
    pub shape: Vec<i32>,
    /// Extents as in `shape`, with -1 for unspecified ones; empty if all are specified.
    pub signature: Vec<i32>,
    pub code: i8,
    /// Byte range in the file; None for a tensor computed at run time.
    pub data: Option<Range<usize>>,
    pub quantisation: Option<Quantisation>,
    pub is_variable: bool,
    pub sparsity: Option<Sparsity>,
}

/// Quantisation parameters: `real = scale · (stored - zero)`, with one scale or one per index of an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Quantisation {
    pub scales: Vec<f32>,
    pub zeros: Vec<i64>,
    pub axis: i32,
}

pub(super) struct Operator<'a> {
    pub code: i32,
    pub custom: String,
    /// Tensor indices; -1 for an omitted optional input.
    pub inputs: Vec<i32>,
    pub outputs: Vec<i32>,
    /// Table of attributes; None if all have their defaults.
    pub options: Option<FlatTable<'a>>,
}

impl<'a> Model<'a> {
    pub(super) fn parse_model(buffer: &'a Buffer<'a>, bytes: &Bytes) -> Read<Model<'a>> {
        let root = buffer.root_table(b"TFL3")?;
        let codes = root.tables(1)?.iter().map(operator_code).collect::<Read<Vec<_>>>()?;
        let buffers = root.tables(4)?.iter().map(|table| buffer_range(table, bytes.len())).collect::<Read<Vec<_>>>()?;
        let graphs = root.tables(2)?;
        let graphs = graphs.iter().map(|table| Subgraph::parse_graph(table, &codes, &buffers));
        let graphs = graphs.collect::<Read<Vec<_>>>()?;
        if graphs.is_empty() {
            return Err("the file contains no graph".to_owned());
        }
        Ok(Model { graphs, bytes: bytes.clone() })
    }

    pub(super) fn file_length(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn file_bytes(&self, range: Range<usize>) -> Bytes {
        self.bytes.slice(range)
    }
}

impl<'a> Subgraph<'a> {
    fn parse_graph(
        graph: &FlatTable<'a>,
        codes: &[(i32, String)],
        buffers: &[Option<Range<usize>>],
    ) -> Read<Subgraph<'a>> {
        let mut tensors = Vec::new();
        for table in graph.tables(0)? {
            tensors.push(Tensor::parse_tensor(&table, buffers)?);
        }
        let mut operators = Vec::new();
        for table in graph.tables(3)? {
            let index = table.u32(0)? as usize;
            let (code, custom) =
                codes.get(index).cloned().ok_or_else(|| format!("operator code {index} does not exist"))?;
            let (inputs, outputs, options) = (table.i32s(1)?, table.i32s(2)?, table.table(4)?);
            operators.push(Operator { code, custom, inputs, outputs, options });
        }
        Ok(Subgraph { name: graph.text(4)?, tensors, inputs: graph.i32s(1)?, outputs: graph.i32s(2)?, operators })
    }
}

/// Returns the operator's code (8-bit field in old files, 32-bit in new ones), and its name if it is custom.
fn operator_code(table: &FlatTable<'_>) -> Read<(i32, String)> {
    let code = i32::from(table.i8(0, 0)?).max(table.i32(3, 0)?);
    Ok((code, table.text(1)?))
}

/// Returns the byte range of a buffer: in the flatbuffer, or behind it in files over 2 GiB.
fn buffer_range(table: &FlatTable<'_>, length: usize) -> Read<Option<Range<usize>>> {
    let (offset, size) = (table.u64(1)?, table.u64(2)?);
    if offset > 1 {
        let end = offset.checked_add(size).filter(|&end| end <= length as u64);
        let end = end.ok_or_else(|| format!("a buffer of {size} bytes at offset {offset} lies outside of the file"))?;
        return Ok(Some(offset as usize..end as usize));
    }
    Ok(table.byte_range(0)?.filter(|range| !range.is_empty()))
}

impl Tensor {
    fn parse_tensor(table: &FlatTable<'_>, buffers: &[Option<Range<usize>>]) -> Read<Tensor> {
        let buffer = table.u32(2)? as usize;
        let data = match buffers.get(buffer) {
            // Buffer 0 stands for a tensor without data.
            Some(data) if buffer > 0 => data.clone(),
            Some(_) => None,
            None => return Err(format!("buffer {buffer} does not exist")),
        };
        Ok(Tensor {
            shape: table.i32s(0)?,
            code: table.i8(1, 0)?,
            name: table.text(3)?,
            data,
            quantisation: table.table(4)?.map_or(Ok(None), |table| Quantisation::parse_quantisation(&table))?,
            is_variable: table.bool(5)?,
            sparsity: table.table(6)?.map(|table| Sparsity::parse_sparsity(&table)).transpose()?,
            signature: table.i32s(7)?,
        })
    }

    /// Returns the bits per element and the type after unpacking to bytes, or None if elements are not packed.
    pub(super) fn packed_format(&self) -> Option<(u32, DType)> {
        match self.code {
            17 => Some((4, DType::I8)),
            19 => Some((2, DType::I8)),
            20 => Some((4, DType::U8)),
            _ => None,
        }
    }

    pub(super) fn dtype(&self) -> Read<DType> {
        Ok(match self.code {
            0 => DType::F32,
            1 => DType::F16,
            2 => DType::I32,
            3 => DType::U8,
            4 => DType::I64,
            6 => DType::Bool,
            7 => DType::I16,
            9 => DType::I8,
            10 => DType::F64,
            12 => DType::U64,
            15 => DType::U32,
            16 => DType::U16,
            18 => DType::BF16,
            5 => return Err("elements are strings".to_owned()),
            8 | 11 => return Err("elements are complex numbers".to_owned()),
            13 | 14 => return Err("the value is a resource or a variant, not a tensor".to_owned()),
            17 | 19 | 20 => return Err("elements have fewer than 8 bits".to_owned()),
            other => return Err(format!("element type {other} is unknown")),
        })
    }
}

impl Quantisation {
    /// Reads the quantisation of a tensor; None if there is only a range that was recorded in training.
    fn parse_quantisation(table: &FlatTable<'_>) -> Read<Option<Quantisation>> {
        let scales = table.f32s(2)?;
        if scales.is_empty() {
            return Ok(None);
        }
        let mut zeros = table.i64s(3)?;
        if zeros.is_empty() {
            zeros = vec![0; scales.len()];
        }
        if zeros.len() != scales.len() && zeros.len() != 1 {
            return Err(format!("a tensor has {} scales and {} zero points", scales.len(), zeros.len()));
        }
        if let Some(scale) = scales.iter().find(|scale| !(scale.is_finite() && **scale >= 0.0)) {
            return Err(format!("scale {scale} must be finite and not negative"));
        }
        Ok(Some(Quantisation { scales, zeros, axis: table.i32(6, 0)? }))
    }
}
