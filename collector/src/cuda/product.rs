//! What tensor cores multiply.

use models::DType;

/// Rows and columns of a fragment, the unit in which a warp multiplies.
pub const FRAGMENT: i64 = 16;

/// Which element types are multiplied, and so in what they are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Product {
    F16,
    BF16,
    I8,
    U8,
}

impl Product {
    /// The product of operands of these types, where devices of this capability (in tens) have it.
    pub fn of(left: DType, right: DType, capability: u32) -> Option<Product> {
        let (product, since) = match (left, right) {
            (DType::F16, DType::F16) => (Product::F16, 70),
            (DType::BF16, DType::BF16) => (Product::BF16, 80),
            (DType::I8, DType::I8) => (Product::I8, 72),
            (DType::U8, DType::U8) => (Product::U8, 72),
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
        }
    }

    /// Type of the sums.
    pub fn sum(self) -> DType {
        match self {
            Product::F16 | Product::BF16 => DType::F32,
            Product::I8 | Product::U8 => DType::I32,
        }
    }
}
