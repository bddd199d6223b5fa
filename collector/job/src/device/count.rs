//! Integers in launches: constants, or expressions of tensor extents.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Count {
    Known(i64),
    /// Extent of a dimension. `tensor` is the index of a parameter, or, for the output, the number of parameters.
    Extent {
        tensor: usize,
        dimension: usize,
    },
    Made {
        operator: Operator,
        of: Box<[Count; 2]>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Operator {
    Add,
    Subtract,
    Multiply,
    /// Integer division, rounded down.
    Divide,
    /// Remainder with the sign of the divisor.
    Remainder,
    Least,
    Most,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum CountError {
    #[error("tensor {tensor} has no dimension {dimension}")]
    Unknown { tensor: usize, dimension: usize },
    #[error("a size or integer argument of a kernel launch is out of range")]
    OutOfRange,
}

impl Operator {
    fn apply_to(self, left: i64, right: i64) -> Option<i64> {
        match self {
            Operator::Add => left.checked_add(right),
            Operator::Subtract => left.checked_sub(right),
            Operator::Multiply => left.checked_mul(right),
            Operator::Divide => {
                let (quotient, rest) = (left.checked_div(right)?, left.checked_rem(right)?);
                Some(if rest != 0 && (rest < 0) != (right < 0) { quotient - 1 } else { quotient })
            }
            Operator::Remainder => {
                let rest = left.checked_rem(right)?;
                Some(if rest != 0 && (rest < 0) != (right < 0) { rest + right } else { rest })
            }
            Operator::Least => Some(left.min(right)),
            Operator::Most => Some(left.max(right)),
        }
    }
}

impl Count {
    /// Creates the expression of an operation, or its value if both operands are constants.
    pub fn from_operation(operator: Operator, left: Count, right: Count) -> Result<Count, CountError> {
        match (&left, &right) {
            (Count::Known(left), Count::Known(right)) => {
                operator.apply_to(*left, *right).map(Count::Known).ok_or(CountError::OutOfRange)
            }
            _ => Ok(Count::Made { operator, of: Box::new([left, right]) }),
        }
    }

    pub fn known_value(&self) -> Option<i64> {
        match self {
            Count::Known(number) => Some(*number),
            Count::Extent { .. } | Count::Made { .. } => None,
        }
    }

    pub fn evaluate_at(&self, extents: &[Vec<i64>]) -> Result<i64, CountError> {
        match self {
            Count::Known(number) => Ok(*number),
            &Count::Extent { tensor, dimension } => {
                let found = extents.get(tensor).and_then(|tensor| tensor.get(dimension));
                found.copied().ok_or(CountError::Unknown { tensor, dimension })
            }
            Count::Made { operator, of } => {
                let (left, right) = (of[0].evaluate_at(extents)?, of[1].evaluate_at(extents)?);
                operator.apply_to(left, right).ok_or(CountError::OutOfRange)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn blocks() -> Count {
        let rows = Count::Extent { tensor: 0, dimension: 1 };
        let rounded = Count::from_operation(Operator::Add, rows, Count::Known(31)).expect("a number");
        Count::from_operation(Operator::Divide, rounded, Count::Known(32)).expect("a number")
    }

    #[test]
    fn numbers_follow_from_extents() {
        for (rows, wanted) in [(1, 1), (32, 1), (33, 2), (1000, 32)] {
            assert_eq!(blocks().evaluate_at(&[vec![4, rows]]), Ok(wanted));
        }
        assert_eq!(blocks().evaluate_at(&[vec![4]]), Err(CountError::Unknown { tensor: 0, dimension: 1 }));
        assert_eq!(blocks().evaluate_at(&[vec![4, i64::MAX]]), Err(CountError::OutOfRange));
        assert_eq!(
            Count::from_operation(Operator::Divide, Count::Known(1), Count::Known(0)),
            Err(CountError::OutOfRange)
        );
    }

    #[test]
    fn dividing_rounds_down() {
        let made = |operator, left, right| Count::from_operation(operator, Count::Known(left), Count::Known(right));
        for (left, right) in [(7, 2), (-7, 2), (7, -2), (-7, -2), (6, 3), (-6, 3)] {
            let quotient = (left as f64 / right as f64).floor() as i64;
            assert_eq!(made(Operator::Divide, left, right), Ok(Count::Known(quotient)));
            assert_eq!(made(Operator::Remainder, left, right), Ok(Count::Known(left - quotient * right)));
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let text = serde_json::to_string(&[Count::Known(64), blocks()]).expect("JSON");
        expect![[r#"[{"known":64},{"made":{"operator":"divide","of":[{"made":{"operator":"add","of":[{"extent":{"tensor":0,"dimension":1}},{"known":31}]}},{"known":32}]}}]"#]]
            .assert_eq(&text);
        let read: [Count; 2] = serde_json::from_str(&text).expect("reads");
        assert_eq!(read, [Count::Known(64), blocks()]);
    }
}
