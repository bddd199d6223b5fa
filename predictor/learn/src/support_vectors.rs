//! Support vector regression of the log time per operator, with a Gaussian kernel.
//!
//! The dual is solved by coordinate descent. Centred targets and a constant in the kernel remove the bias term, so
//! each multiplier has a closed-form optimum. Memory and time grow with the square of the rows, so large operators are
//! subsampled evenly.

use super::linear::{Standardisation, soft_threshold};
use super::{Fitted, by_operator, predict_by_operator};
use samples::Samples;
use std::collections::BTreeMap;

const MOST: usize = 1500;
/// Half-width of the insensitive zone in log space, about the measurement noise.
const EPSILON: f64 = 0.02;
/// Upper bound of the multipliers: the cost of a unit residual.
const C: f64 = 10.0;
const SWEEPS: usize = 100;
/// Convergence criterion: largest change of a prediction in the last sweep.
const TOLERANCE: f64 = 1e-3;

struct Regression {
    standard: Standardisation,
    vectors: Vec<(Vec<f64>, f64)>,
}

struct SupportVectors(BTreeMap<u32, Regression>);

pub(super) fn fit_regressions(samples: &Samples, train: &[usize]) -> impl Fitted + use<> {
    let groups = by_operator(samples, train).into_iter();
    SupportVectors(groups.map(|(operator, rows)| (operator, fit_regression(samples, &rows))).collect())
}

fn fit_regression(samples: &Samples, rows: &[usize]) -> Regression {
    let standard = Standardisation::from_rows(samples, rows);
    let step = rows.len().div_ceil(MOST).max(1);
    let rows: Vec<usize> = rows.iter().copied().step_by(step).collect();
    let places: Vec<Vec<f64>> = rows.iter().map(|row| standard.standardised_row(samples, *row)).collect();
    let logs: Vec<f64> = rows.iter().map(|row| standard.centred_log(samples, *row)).collect();
    let kernel = kernel_matrix(&places);
    let multipliers = solve_dual(&kernel, &logs, SWEEPS);
    let vectors = places.into_iter().zip(multipliers).filter(|(_, multiplier)| *multiplier != 0.0).collect();
    Regression { standard, vectors }
}

fn gaussian_kernel(one: &[f64], two: &[f64]) -> f64 {
    let distance: f64 = one.iter().zip(two).map(|(one, two)| (one - two) * (one - two)).sum();
    // Features have variance 1, so the expected squared distance grows with their number.
    1.0 + (-distance / one.len().max(1) as f64).exp()
}

fn kernel_matrix(places: &[Vec<f64>]) -> Vec<f64> {
    let width = places.len();
    let mut matrix = vec![0.0; width * width];
    for (row, one) in places.iter().enumerate() {
        for (column, two) in places.iter().enumerate().take(row + 1) {
            let value = gaussian_kernel(one, two);
            matrix[row * width + column] = value;
            matrix[column * width + row] = value;
        }
    }
    matrix
}

fn solve_dual(kernel: &[f64], logs: &[f64], sweeps: usize) -> Vec<f64> {
    let width = logs.len();
    let mut multipliers = vec![0.0f64; width];
    let mut residuals = logs.to_vec();
    for _ in 0..sweeps {
        let mut moved = 0.0f64;
        for place in 0..width {
            let row = &kernel[place * width..][..width];
            let own = row[place];
            let best = (soft_threshold(residuals[place] + own * multipliers[place], EPSILON) / own).clamp(-C, C);
            let step = best - multipliers[place];
            if step != 0.0 {
                residuals.iter_mut().zip(row).for_each(|(residual, value)| *residual -= step * value);
                multipliers[place] = best;
                moved = moved.max((step * own).abs());
            }
        }
        if moved < TOLERANCE {
            break;
        }
    }
    multipliers
}

impl Fitted for SupportVectors {
    fn predict(&self, samples: &Samples, rows: &[usize]) -> Vec<f64> {
        predict_by_operator(samples, rows, |operator, rows| {
            let regression = self.0.get(&operator)?;
            let log = |row: &usize| {
                let place = regression.standard.standardised_row(samples, *row);
                let parts =
                    regression.vectors.iter().map(|(other, multiplier)| multiplier * gaussian_kernel(other, &place));
                regression.standard.mean_log + parts.sum::<f64>()
            };
            Some(rows.iter().map(|row| log(row).exp()).collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::synthetic;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Multipliers are 0 inside the insensitive zone and largest outside; rows in between lie on its edge.
        #[test]
        fn multipliers_are_those_of_an_optimum(points in prop::collection::vec((-2.0f64..2.0, -1.0f64..1.0), 2..30)) {
            let places: Vec<Vec<f64>> = points.iter().map(|(place, _)| vec![*place]).collect();
            let logs: Vec<f64> = points.iter().map(|(_, log)| *log).collect();
            let kernel = kernel_matrix(&places);
            // Nearly equal points need many sweeps. Stopping early hardly changes predictions, but this test checks the
            // multipliers.
            let found = solve_dual(&kernel, &logs, 20_000);
            let width = logs.len();
            // The stopping rule leaves some distance to the optimum.
            let slack = 0.05;
            for place in 0..width {
                let answer: f64 = found.iter().zip(&kernel[place * width..]).map(|(one, two)| one * two).sum();
                let residual = logs[place] - answer;
                prop_assert!(found[place].abs() <= C);
                if found[place] == 0.0 {
                    prop_assert!(residual.abs() <= EPSILON + slack, "{residual}");
                } else if found[place].abs() < C {
                    prop_assert!((residual - EPSILON * found[place].signum()).abs() <= slack, "{residual}");
                } else {
                    prop_assert!(residual * found[place].signum() >= EPSILON - slack, "{residual}");
                }
            }
        }
    }

    #[test]
    fn support_vectors_answer_as_smartcores_do() {
        use smartcore::svm::Kernels;
        use smartcore::svm::svr::{SVR, SVRParameters};
        let (samples, learned, asked) = synthetic::synthetic_samples();
        let standard = Standardisation::from_rows(&samples, &learned);
        let rows =
            |rows: &[usize]| rows.iter().map(|row| standard.standardised_row(&samples, *row)).collect::<Vec<_>>();
        let logs: Vec<f64> = learned.iter().map(|row| standard.centred_log(&samples, *row)).collect();
        let width = standard.standardised_row(&samples, 0).len() as f64;
        let parameters = SVRParameters::default()
            .with_eps(EPSILON)
            .with_c(C)
            .with_tol(1e-3)
            .with_kernel(Kernels::rbf().with_gamma(1.0 / width));
        let places = synthetic::dense_matrix(&rows(&learned));
        let theirs = SVR::fit(&places, &logs, &parameters).expect("support vectors");
        let theirs: Vec<f64> = theirs.predict(&synthetic::dense_matrix(&rows(&asked))).expect("answers");
        let theirs: Vec<f64> = theirs.iter().map(|log| log + standard.mean_log).collect();
        let ours = synthetic::log_times(&fit_regressions(&samples, &learned).predict(&samples, &asked));
        // The other library has a bias term, ours a constant in the kernel; both stop within the insensitive zone.
        let (mean, most) = synthetic::mean_max_difference(&ours, &theirs);
        assert!(mean < EPSILON && most < 5.0 * EPSILON, "{mean} {most}");
    }
}
