//! Matrix products that tensor cores support.

use models::DType;

/// Rows and columns of an accumulator fragment, which a warp computes at once.
pub const FRAGMENT: i64 = 16;

pub const WARP_THREADS: u32 = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Product {
    F16,
    BF16,
    I8,
    U8,
    /// TF32: 32-bit floats, multiplied with the ten highest fraction bits.
    TF32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum OperandSide {
    Left,
    Right,
    Sum,
}

impl Product {
    /// Returns the product of these operand types. None unless the compute capability (times ten) supports it.
    pub fn for_operands(left: DType, right: DType, capability: u32) -> Option<Product> {
        let (product, since) = match (left, right) {
            (DType::F16, DType::F16) => (Product::F16, 70),
            (DType::BF16, DType::BF16) => (Product::BF16, 80),
            (DType::I8, DType::I8) => (Product::I8, 72),
            (DType::U8, DType::U8) => (Product::U8, 72),
            (DType::F32, DType::F32) => (Product::TF32, 80),
            _ => return None,
        };
        (capability >= since).then_some(product)
    }

    pub fn input_dtype(self) -> DType {
        match self {
            Product::F16 => DType::F16,
            Product::BF16 => DType::BF16,
            Product::I8 => DType::I8,
            Product::U8 => DType::U8,
            Product::TF32 => DType::F32,
        }
    }

    /// Returns the depth of a product of fragments: columns of the left, rows of the right fragment.
    pub fn fragment_depth(self) -> i64 {
        if self == Product::TF32 { 8 } else { 16 }
    }

    pub fn fragment_extents(self, side: OperandSide, is_transposed: bool) -> [i64; 2] {
        let [rows, columns] = match side {
            OperandSide::Left => [FRAGMENT, self.fragment_depth()],
            OperandSide::Right => [self.fragment_depth(), FRAGMENT],
            OperandSide::Sum => [FRAGMENT, FRAGMENT],
        };
        if is_transposed { [columns, rows] } else { [rows, columns] }
    }

    pub fn sum_dtype(self) -> DType {
        match self {
            Product::F16 | Product::BF16 | Product::TF32 => DType::F32,
            Product::I8 | Product::U8 => DType::I32,
        }
    }
}
