//! Linear regression (ridge and lasso) of the log time per operator, on sizes, work and device features.

use super::{BASIC, Fitted, by_operator, columns_of, predict_by_operator};
use crate::split;
use samples::Samples;
use std::collections::BTreeMap;

/// Ridge penalty of a squared standardised coefficient, added to the sum of squared errors over rows.
const RIDGE_PENALTY: f64 = 1.0;
/// Candidate lasso penalties, relative to the smallest penalty at which all coefficients are zero.
const LASSO_PENALTIES: &[f64] = &[1e-1, 1e-2, 1e-3, 1e-4];
/// Sweep limit; nearly collinear features need thousands of sweeps at small penalties.
const SWEEPS: usize = 10_000;
/// Largest coefficient step at convergence, relative to the largest product of a feature with the target. It is small,
/// because convergence is slow and monotone.
const CONVERGED: f64 = 1e-11;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Penalty {
    L2,
    L1,
}

struct LinearRegression {
    standard: Standardisation,
    coefficients: Vec<f64>,
}

struct LinearRegressions(BTreeMap<u32, LinearRegression>);

pub(super) fn fit_regressions(samples: &Samples, train: &[usize], penalty: Penalty) -> impl Fitted + use<> {
    let groups = by_operator(samples, train).into_iter();
    let line = |rows: Vec<usize>| match penalty {
        Penalty::L2 => {
            let equations = NormalEquations::from_rows(samples, &rows);
            LinearRegression { coefficients: equations.solve_ridge(), standard: equations.standard }
        }
        Penalty::L1 => {
            let share = lasso_share(samples, &rows);
            let equations = NormalEquations::from_rows(samples, &rows);
            LinearRegression {
                coefficients: equations.solve_lasso(share * equations.largest_penalty()),
                standard: equations.standard,
            }
        }
    };
    LinearRegressions(groups.map(|(operator, rows)| (operator, line(rows))).collect())
}

fn lasso_share(samples: &Samples, rows: &[usize]) -> f64 {
    let (learned, held_out) = split::held_out_fifth(samples, rows, 0);
    if learned.is_empty() {
        return LASSO_PENALTIES[0];
    }
    let equations = NormalEquations::from_rows(samples, &learned);
    let error = |share: f64| {
        let line = LinearRegression {
            coefficients: equations.solve_lasso(share * equations.largest_penalty()),
            standard: equations.standard.clone(),
        };
        held_out
            .iter()
            .map(|row| (line.predict_log(samples, *row) - samples.rows[*row].time_ns.ln()).abs())
            .sum::<f64>()
    };
    LASSO_PENALTIES.iter().copied().min_by(|one, two| error(*one).total_cmp(&error(*two))).unwrap_or(LASSO_PENALTIES[0])
}

#[derive(Clone, Debug)]
pub(super) struct Standardisation {
    columns: Vec<usize>,
    means: Vec<f64>,
    scales: Vec<f64>,
    pub mean_log: f64,
}

impl Standardisation {
    pub fn from_rows(samples: &Samples, rows: &[usize]) -> Standardisation {
        let count = rows.len() as f64;
        let mean = |of: &dyn Fn(usize) -> f64| rows.iter().map(|row| of(*row)).sum::<f64>() / count;
        let columns = columns_of(samples, BASIC);
        let means: Vec<f64> = columns.iter().map(|column| mean(&|row| feature_value(samples, row, *column))).collect();
        let deviation = |(column, center): (&usize, &f64)| {
            mean(&|row| (feature_value(samples, row, *column) - center).powi(2)).sqrt()
        };
        let scales = columns.iter().zip(&means).map(deviation).collect();
        Standardisation { means, scales, mean_log: mean(&|row| samples.rows[row].time_ns.ln()), columns }
    }

    pub fn standardised_row(&self, samples: &Samples, row: usize) -> Vec<f64> {
        let places = self.columns.iter().zip(self.means.iter().zip(&self.scales));
        let standard = |(column, (mean, scale)): (&usize, (&f64, &f64))| {
            if *scale > 1e-9 { (feature_value(samples, row, *column) - mean) / scale } else { 0.0 }
        };
        places.map(standard).collect()
    }

    pub fn centred_log(&self, samples: &Samples, row: usize) -> f64 {
        samples.rows[row].time_ns.ln() - self.mean_log
    }
}

fn feature_value(samples: &Samples, row: usize, column: usize) -> f64 {
    let value = f64::from(samples.features.row(row)[column]);
    if value.is_finite() { value } else { 0.0 }
}

struct NormalEquations {
    standard: Standardisation,
    /// Lower triangle of the Gram matrix, row-major.
    gram: Vec<f64>,
    targets: Vec<f64>,
}

impl NormalEquations {
    fn from_rows(samples: &Samples, rows: &[usize]) -> NormalEquations {
        let standard = Standardisation::from_rows(samples, rows);
        let width = standard.columns.len();
        let mut equations = NormalEquations { gram: vec![0.0; width * width], targets: vec![0.0; width], standard };
        for row in rows {
            let (features, log) =
                (equations.standard.standardised_row(samples, *row), equations.standard.centred_log(samples, *row));
            for (place, one) in features.iter().enumerate() {
                equations.targets[place] += one * log;
                let gram = equations.gram[place * width..].iter_mut().zip(&features).take(place + 1);
                gram.for_each(|(sum, two)| *sum += one * two);
            }
        }
        equations
    }

    fn solve_ridge(&self) -> Vec<f64> {
        let width = self.targets.len();
        let mut gram = self.gram.clone();
        (0..width).for_each(|place| gram[place * width + place] += RIDGE_PENALTY);
        Cholesky::factor_matrix(gram, width).solve(self.targets.clone())
    }

    /// Returns the smallest lasso penalty at which all coefficients are zero.
    fn largest_penalty(&self) -> f64 {
        self.targets.iter().fold(0.0, |largest, target| target.abs().max(largest))
    }

    fn solve_lasso(&self, penalty: f64) -> Vec<f64> {
        let width = self.targets.len();
        let product = |one: usize, two: usize| self.gram[one.max(two) * width + one.min(two)];
        let mut coefficients = vec![0.0f64; width];
        // Products of each feature with the residual.
        let mut residual = self.targets.clone();
        for _ in 0..SWEEPS {
            let mut moved = 0.0f64;
            for place in 0..width {
                let own = product(place, place);
                if own <= 1e-9 {
                    continue;
                }
                let best = soft_threshold(residual[place] + own * coefficients[place], penalty) / own;
                let step = best - coefficients[place];
                if step != 0.0 {
                    residual.iter_mut().enumerate().for_each(|(other, left)| *left -= step * product(place, other));
                    coefficients[place] = best;
                    moved = moved.max((step * own).abs());
                }
            }
            if moved <= CONVERGED * self.largest_penalty() {
                break;
            }
        }
        coefficients
    }
}

pub(super) fn soft_threshold(number: f64, by: f64) -> f64 {
    number.signum() * (number.abs() - by).max(0.0)
}

impl LinearRegression {
    fn predict_log(&self, samples: &Samples, row: usize) -> f64 {
        let features = self.standard.standardised_row(samples, row);
        let parts = features.iter().zip(&self.coefficients).map(|(feature, coefficient)| feature * coefficient);
        self.standard.mean_log + parts.sum::<f64>()
    }
}

impl Fitted for LinearRegressions {
    fn predict(&self, samples: &Samples, rows: &[usize]) -> Vec<f64> {
        predict_by_operator(samples, rows, |operator, rows| {
            let line = self.0.get(&operator)?;
            Some(rows.iter().map(|row| line.predict_log(samples, *row).exp()).collect())
        })
    }
}

pub struct Cholesky {
    lower: Vec<f64>,
    width: usize,
}

impl Cholesky {
    pub fn factor_matrix(mut lower: Vec<f64>, width: usize) -> Cholesky {
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

    pub fn inverse_diagonal(&self) -> Vec<f64> {
        let entry = |place: usize| {
            let mut unit = vec![0.0; self.width];
            unit[place] = 1.0;
            self.solve(unit)[place]
        };
        (0..self.width).map(entry).collect()
    }

    pub fn log_determinant(&self) -> f64 {
        (0..self.width).map(|row| 2.0 * self.lower[row * self.width + row].ln()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::synthetic;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn solves_what_it_is_given(entries in prop::collection::vec(-2.0f64..2.0, 9), wanted in prop::collection::vec(-5.0f64..5.0, 3)) {
            // A Aᵀ + I is symmetric positive definite.
            let at = |row: usize, column: usize| {
                (0..3).map(|k| entries[row * 3 + k] * entries[column * 3 + k]).sum::<f64>() + f64::from(row == column)
            };
            let system: Vec<f64> = (0..9).map(|place| at(place / 3, place % 3)).collect();
            let right = (0..3).map(|row| (0..3).map(|column| at(row, column) * wanted[column]).sum()).collect();
            for (found, wanted) in Cholesky::factor_matrix(system, 3).solve(right).iter().zip(&wanted) {
                prop_assert!((found - wanted).abs() < 1e-6, "{found} {wanted}");
            }
        }

        /// No feature correlates with the residual by more than the penalty, and active features by exactly that.
        #[test]
        fn no_coefficient_of_a_lasso_can_be_better(
            rows in prop::collection::vec((prop::collection::vec(-2.0f64..2.0, 4), -3.0f64..3.0), 8..40),
            share in 0.01f64..0.9,
        ) {
            let width = 4;
            let mut equations = NormalEquations {
                standard: Standardisation { columns: Vec::new(), means: Vec::new(), scales: Vec::new(), mean_log: 0.0 },
                gram: vec![0.0; width * width],
                targets: vec![0.0; width],
            };
            for (features, log) in &rows {
                for place in 0..width {
                    equations.targets[place] += features[place] * log;
                    (0..=place).for_each(|other| equations.gram[place * width + other] += features[place] * features[other]);
                }
            }
            let penalty = share * equations.largest_penalty();
            let found = equations.solve_lasso(penalty);
            let slack = 1e-3 * equations.largest_penalty() + 1e-9;
            for place in 0..width {
                let answers = rows.iter().map(|(features, log)| {
                    let line: f64 = features.iter().zip(&found).map(|(one, two)| one * two).sum();
                    features[place] * (log - line)
                });
                let common: f64 = answers.sum();
                prop_assert!(common.abs() <= penalty + slack, "{place}: {common} {penalty}");
                prop_assert!(found[place] == 0.0 || (common - penalty * found[place].signum()).abs() <= slack);
            }
        }
    }

    fn standardised(samples: &Samples, standard: &Standardisation, rows: &[usize]) -> Vec<Vec<f64>> {
        rows.iter().map(|row| standard.standardised_row(samples, *row)).collect()
    }

    #[test]
    fn ridge_answers_as_smartcores_does() {
        use smartcore::linear::ridge_regression::{RidgeRegression, RidgeRegressionParameters};
        let (samples, learned, asked) = synthetic::synthetic_samples();
        let equations = NormalEquations::from_rows(&samples, &learned);
        let logs: Vec<f64> = learned.iter().map(|row| equations.standard.centred_log(&samples, *row)).collect();
        let parameters = RidgeRegressionParameters::default().with_alpha(RIDGE_PENALTY).with_normalize(false);
        let rows = synthetic::dense_matrix(&standardised(&samples, &equations.standard, &learned));
        let theirs = RidgeRegression::fit(&rows, &logs, parameters).expect("a line");
        let theirs = theirs
            .predict(&synthetic::dense_matrix(&standardised(&samples, &equations.standard, &asked)))
            .expect("answers");
        let theirs: Vec<f64> = theirs.iter().map(|log: &f64| log + equations.standard.mean_log).collect();
        let ours = synthetic::log_times(&fit_regressions(&samples, &learned, Penalty::L2).predict(&samples, &asked));
        assert!(
            synthetic::mean_max_difference(&ours, &theirs).1 < 1e-6,
            "{:?}",
            synthetic::mean_max_difference(&ours, &theirs)
        );
    }

    #[test]
    fn lasso_answers_as_smartcores_does() {
        use smartcore::linear::lasso::{Lasso, LassoParameters};
        let (samples, learned, asked) = synthetic::synthetic_samples();
        let equations = NormalEquations::from_rows(&samples, &learned);
        let standard = &equations.standard;
        let logs: Vec<f64> = learned.iter().map(|row| standard.centred_log(&samples, *row)).collect();
        // Constant features have no coefficient here; in the other library they would make the matrix singular.
        let used: Vec<usize> = (0..equations.targets.len()).filter(|place| standard.scales[*place] > 1e-9).collect();
        let chosen = |rows: &[usize]| {
            let of = |row: Vec<f64>| used.iter().map(|place| row[*place]).collect();
            synthetic::dense_matrix(&standardised(&samples, standard, rows).into_iter().map(of).collect::<Vec<_>>())
        };
        for share in LASSO_PENALTIES {
            let penalty = share * equations.largest_penalty();
            // The other library minimises the squared error plus `alpha` times the number of rows; ours minimises half
            // the squared error plus the penalty.
            let alpha = 2.0 * penalty / learned.len() as f64;
            // The other library fails without an intercept. For centred logarithms the intercept is 0.
            let parameters =
                LassoParameters { fit_intercept: true, normalize: false, tol: 1e-8, max_iter: 5000, alpha };
            let theirs = Lasso::fit(&chosen(&learned), &logs, parameters).expect("a line");
            let theirs: Vec<f64> = theirs.predict(&chosen(&asked)).expect("answers");
            let line = LinearRegression { coefficients: equations.solve_lasso(penalty), standard: standard.clone() };
            let ours: Vec<f64> = asked.iter().map(|row| line.predict_log(&samples, *row) - standard.mean_log).collect();
            let (_, most) = synthetic::mean_max_difference(&ours, &theirs);
            // The optimum is so flat at the smallest penalty that the last sweeps still move the coefficients.
            let slack = if *share < 1e-3 { 2e-3 } else { 1e-5 };
            assert!(most < slack, "penalty {share}: {most} apart");
        }
    }
}
