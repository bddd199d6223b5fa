//! What tensor cores multiply.

use models::DType;

/// Rows and columns of a fragment of sums, the unit in which a warp multiplies.
pub const FRAGMENT: i64 = 16;

/// Threads that go in step.
pub const WARP_THREADS: u32 = 32;

/// Which element types are multiplied, and so in what they are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Product {
    F16,
    BF16,
    I8,
    U8,
    /// 32-bit floats, of whose fractions the ten highest bits are multiplied.
    TF32,
}

/// A matrix of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum OperandSide {
    Left,
    Right,
    Sum,
}

impl Product {
    /// The product of operands of these types, where devices of this capability (in tens) have it.
    pub fn of(left: DType, right: DType, capability: u32) -> Option<Product> {
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

    /// Type of the operands.
    pub fn input(self) -> DType {
        match self {
            Product::F16 => DType::F16,
            Product::BF16 => DType::BF16,
            Product::I8 => DType::I8,
            Product::U8 => DType::U8,
            Product::TF32 => DType::F32,
        }
    }

    /// Columns of a fragment of the left operand, and rows of one of the right.
    pub fn depth(self) -> i64 {
        if self == Product::TF32 { 8 } else { 16 }
    }

    /// Rows and columns of a fragment, as its matrix is stored.
    pub fn fragment(self, side: OperandSide, is_transposed: bool) -> [i64; 2] {
        let [rows, columns] = match side {
            OperandSide::Left => [FRAGMENT, self.depth()],
            OperandSide::Right => [self.depth(), FRAGMENT],
            OperandSide::Sum => [FRAGMENT, FRAGMENT],
        };
        if is_transposed { [columns, rows] } else { [rows, columns] }
    }

    pub fn sum(self) -> DType {
        match self {
            Product::F16 | Product::BF16 | Product::TF32 => DType::F32,
            Product::I8 | Product::U8 => DType::I32,
        }
    }
}
