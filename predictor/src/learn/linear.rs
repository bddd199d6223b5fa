//! Ridge regression of the logarithm of the time, per operator, on sizes, work and device.

use super::{Fitted, by_operator, columns_of, predict_by_operator};
use crate::features::Origin;
use crate::samples::Samples;
use std::collections::BTreeMap;

/// Penalty on each standardised coefficient, in rows.
const PENALTY: f64 = 1.0;

struct Line {
    means: Vec<f64>,
    scales: Vec<f64>,
    coefficients: Vec<f64>,
    mean_log: f64,
}

struct Lines {
    columns: Vec<usize>,
    lines: BTreeMap<u32, Line>,
}

/// Fits one line per operator.
pub(super) fn fit(samples: &Samples, train: &[usize]) -> impl Fitted + use<> {
    let columns =
        columns_of(samples, &[Origin::Sizes, Origin::Work, Origin::Device, Origin::Setting, Origin::Schedule]);
    let groups = by_operator(samples, train).into_iter();
    let lines = groups.map(|(operator, rows)| (operator, fit_line(samples, &rows, &columns))).collect();
    Lines { columns, lines }
}

fn value(samples: &Samples, row: usize, column: usize) -> f64 {
    let value = f64::from(samples.features.row(row)[column]);
    if value.is_finite() { value } else { 0.0 }
}

fn fit_line(samples: &Samples, rows: &[usize], columns: &[usize]) -> Line {
    let count = rows.len() as f64;
    let mean = |of: &dyn Fn(usize) -> f64| rows.iter().map(|row| of(*row)).sum::<f64>() / count;
    let means: Vec<f64> = columns.iter().map(|column| mean(&|row| value(samples, row, *column))).collect();
    let scales: Vec<f64> = columns
        .iter()
        .zip(&means)
        .map(|(column, center)| mean(&|row| (value(samples, row, *column) - center).powi(2)).sqrt())
        .collect();
    let mean_log = mean(&|row| samples.rows[row].time_ns.ln());
    let width = columns.len();
    let mut products = vec![0.0; width * width];
    let mut targets = vec![0.0; width];
    for row in rows {
        let standard: Vec<f64> = (0..width)
            .map(|place| standardise(value(samples, *row, columns[place]), means[place], scales[place]))
            .collect();
        let log = samples.rows[*row].time_ns.ln() - mean_log;
        for (place, one) in standard.iter().enumerate() {
            targets[place] += one * log;
            for (other, two) in standard.iter().enumerate().take(place + 1) {
                products[place * width + other] += one * two;
            }
        }
    }
    for place in 0..width {
        products[place * width + place] += PENALTY;
    }
    Line { means, scales, coefficients: Cholesky::of(products, width).solve(targets), mean_log }
}

fn standardise(value: f64, mean: f64, scale: f64) -> f64 {
    if scale > 1e-9 { (value - mean) / scale } else { 0.0 }
}

/// A symmetric positive matrix as the product of a lower half with itself, by Cholesky's method.
pub(crate) struct Cholesky {
    lower: Vec<f64>,
    width: usize,
}

impl Cholesky {
    /// Factors a matrix that is given by its lower half, row after row.
    pub fn of(mut lower: Vec<f64>, width: usize) -> Cholesky {
        for column in 0..width {
            for row in column..width {
                let known: f64 = (0..column).map(|k| lower[row * width + k] * lower[column * width + k]).sum();
                let rest = lower[row * width + column] - known;
                lower[row * width + column] =
                    if row == column { rest.max(1e-12).sqrt() } else { rest / lower[column * width + column] };
            }
        }
        Cholesky { lower, width }
    }

    /// What the matrix makes this right side of.
    pub fn solve(&self, mut right: Vec<f64>) -> Vec<f64> {
        let (lower, width) = (&self.lower, self.width);
        for row in 0..width {
            let known: f64 = (0..row).map(|k| lower[row * width + k] * right[k]).sum();
            right[row] = (right[row] - known) / lower[row * width + row];
        }
        for row in (0..width).rev() {
            let known: f64 = (row + 1..width).map(|k| lower[k * width + row] * right[k]).sum();
            right[row] = (right[row] - known) / lower[row * width + row];
        }
        right
    }

    /// The logarithm of the matrix's determinant.
    pub fn log_determinant(&self) -> f64 {
        (0..self.width).map(|row| 2.0 * self.lower[row * self.width + row].ln()).sum()
    }
}

impl Fitted for Lines {
    fn predict(&self, samples: &Samples, rows: &[usize]) -> Vec<f64> {
        predict_by_operator(samples, rows, |operator, rows| {
            let line = self.lines.get(&operator)?;
            let log = |row: &usize| {
                let parts = self.columns.iter().enumerate().map(|(place, column)| {
                    let standard = standardise(value(samples, *row, *column), line.means[place], line.scales[place]);
                    standard * line.coefficients[place]
                });
                line.mean_log + parts.sum::<f64>()
            };
            Some(rows.iter().map(|row| log(row).exp()).collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn solves_what_it_is_given(entries in prop::collection::vec(-2.0f64..2.0, 9), wanted in prop::collection::vec(-5.0f64..5.0, 3)) {
            // A Aᵀ + I is symmetric and positive.
            let at = |row: usize, column: usize| {
                (0..3).map(|k| entries[row * 3 + k] * entries[column * 3 + k]).sum::<f64>() + f64::from(row == column)
            };
            let system: Vec<f64> = (0..9).map(|place| at(place / 3, place % 3)).collect();
            let right = (0..3).map(|row| (0..3).map(|column| at(row, column) * wanted[column]).sum()).collect();
            for (found, wanted) in Cholesky::of(system, 3).solve(right).iter().zip(&wanted) {
                prop_assert!((found - wanted).abs() < 1e-6, "{found} {wanted}");
            }
        }
    }
}
