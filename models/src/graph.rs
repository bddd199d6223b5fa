//! A graph: the operators and tensors of one model, in topological order.

use crate::contents::Contents;
use crate::operators::{Binary, BinaryOp, CumSum, Op};
use crate::types::{DType, TensorType};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Index of a value in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ValueId(pub u32);

/// The operators and tensors of one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// Name of the model.
    pub name: String,
    /// All tensors.
    pub values: Vec<Value>,
    /// All operators in topological order.
    pub nodes: Vec<Node>,
    /// Values that the caller provides at every run.
    pub inputs: Vec<ValueId>,
    /// Results of the model.
    pub outputs: Vec<ValueId>,
}

/// One tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// Name, kept from the source file.
    pub name: String,
    /// Element type and shape.
    pub ty: TensorType,
    /// Contents, if the tensor is a constant.
    pub data: Option<Const>,
}

/// Contents of a constant, never copied on import.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Const {
    /// Random values, generated on demand.
    Random {
        /// Seed of the random generator.
        seed: u64,
    },
    /// Every element is this number.
    Fill(f64),
    /// Small tensors (shapes, indices), as numbers.
    Small(Vec<f64>),
    /// A slice of the file that contained the model.
    Bytes(Contents),
    /// Elements in another file, little-endian and without gaps, read on demand.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Offset of the first element in the file, in bytes.
        offset: u64,
        /// Size of all elements in bytes.
        length: u64,
    },
    /// Result of an operator over other constants, computed on demand to save memory.
    Computed(Box<Computed>),
}

/// A constant that is the result of an operator, all of whose inputs are constants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Computed {
    /// The operator that computes the constant.
    pub op: Op,
    /// Types and contents of the operator's inputs.
    pub inputs: Vec<(TensorType, Const)>,
}

impl Const {
    /// Counts the operators and leaf constants of a computed constant: a bound of its nesting depth, and its cost.
    pub fn part_count(&self) -> usize {
        match self {
            Const::Computed(computed) => 1 + computed.inputs.iter().map(|(_, data)| data.part_count()).sum::<usize>(),
            Const::Random { .. } | Const::Fill(_) | Const::Small(_) | Const::Bytes(_) | Const::File { .. } => 1,
        }
    }

    /// Creates a constant that is the result of an operator over other constants.
    pub fn from_operator(op: Op, inputs: Vec<(TensorType, Const)>) -> Const {
        Const::Computed(Box::new(Computed { op, inputs }))
    }

    /// Creates a constant that counts up from `first` along one dimension; all other extents are 1.
    pub fn range_along(dtype: DType, extents: &[i64], axis: i64, first: i64) -> Const {
        let ty = TensorType::new(dtype, extents);
        let ones = vec![(ty.clone(), Const::Fill(1.0))];
        let places = Const::from_operator(Op::CumSum(CumSum { axis, exclusive: true, reverse: false }), ones);
        let first = (TensorType::new(dtype, &[]), Const::Fill(first as f64));
        Const::from_operator(Op::Binary(Binary { function: BinaryOp::Add }), vec![(ty, places), first])
    }

    /// Returns whether the constant is computed from plain numbers only (masks, angles), so that it is not learned.
    pub fn is_formula(&self) -> bool {
        match self {
            Const::Computed(computed) => computed.inputs.iter().all(|(_, data)| match data {
                Const::Fill(_) | Const::Small(_) => true,
                data => data.is_formula(),
            }),
            Const::Random { .. } | Const::Fill(_) | Const::Small(_) | Const::Bytes(_) | Const::File { .. } => false,
        }
    }

    /// Returns the seed of a random constant, or of a random one that the constant is computed from.
    pub fn random_seed(&self) -> Option<u64> {
        match self {
            Const::Random { seed } => Some(*seed),
            Const::Computed(computed) => computed.inputs.iter().find_map(|(_, data)| data.random_seed()),
            Const::Fill(_) | Const::Small(_) | Const::Bytes(_) | Const::File { .. } => None,
        }
    }
}

/// One operator with its inputs and output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// The operator with its attributes.
    pub op: Op,
    /// Values that the operator reads, in the order that the operator defines.
    pub inputs: Vec<ValueId>,
    /// Values that the operator computes.
    pub outputs: Vec<ValueId>,
    /// Location of the operator in the model file.
    pub origin: Origin,
}

/// Source location of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Name of the operator in the model file, such as `Conv`.
    pub source_op: String,
    /// Name of the module that contains the operator, such as `layer3.0.conv1`.
    pub scope: String,
}

/// Parameter counts of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParameterCount {
    /// Trainable parameters, the usual parameter count.
    pub learned: u64,
    /// Running means and variances of batch normalisations, which are not trained.
    pub statistics: u64,
}

impl Graph {
    /// Returns the value with this index, if it exists.
    pub fn value(&self, id: ValueId) -> Option<&Value> {
        self.values.get(id.0 as usize)
    }

    /// Counts the elements of floating-point constants. Call it before constant folding, which changes the count.
    pub fn count_parameters(&self) -> ParameterCount {
        let mut is_statistic = vec![false; self.values.len()];
        for node in self.nodes.iter().filter(|node| matches!(node.op, Op::BatchNorm(_))) {
            for id in node.inputs.iter().skip(3) {
                if let Some(is_statistic) = is_statistic.get_mut(id.0 as usize) {
                    *is_statistic = true;
                }
            }
        }
        let mut count = ParameterCount::default();
        for (value, is_statistic) in self.values.iter().zip(is_statistic) {
            // A uniform scalar is a factor or an epsilon that the file stores as a tensor, not a parameter.
            let is_number = value.ty.rank() == 0 && matches!(value.data, Some(Const::Fill(_)));
            let is_counted = value.data.as_ref().is_some_and(|data| !data.is_formula()) && !is_number;
            if is_counted && value.ty.dtype.is_float() {
                let sum = if is_statistic { &mut count.statistics } else { &mut count.learned };
                *sum = sum.saturating_add(value.ty.element_count().unwrap_or(0));
            }
        }
        count
    }
}
