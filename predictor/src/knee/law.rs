//! Gunther's scaling law: time(n) = time(1) · (1 + contention · (n - 1) + coherence · n · (n - 1)) / n.
//!
//! The law is fitted by least squares on logarithms, over a grid that is refined around the best parameters. Breaks,
//! such as at the second socket, are factors on all larger thread counts, added where they explain most of the error.

use super::Point;
use serde::Serialize;

const MOST_BREAKS: usize = 3;
/// A break is accepted only if at most this share of the squared error remains.
const EXPLAINED: f64 = 0.4;
/// Smallest factor of a break; its reciprocal for a decrease.
const SMALLEST: f64 = 1.04;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Law {
    /// Contention parameter: serial share of the work.
    pub contention: f64,
    /// Coherence parameter: cost per pair of threads.
    pub coherence: f64,
    pub breaks: Vec<Break>,
    /// Median absolute deviation of the law from the curve, in percent.
    pub error: f64,
    /// Fitted time at every point, including breaks, in nanoseconds; NaN for points that the law does not cover.
    pub times_ns: Vec<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Break {
    /// First thread count at which the factor applies.
    pub at: f64,
    pub factor: f64,
}

pub fn fit_with_breaks(curve: &[Point]) -> Law {
    let mut starts = vec![0];
    let mut best = fit_segments(curve, &starts);
    while starts.len() <= MOST_BREAKS {
        // Each side of a break must have enough points for fitting the law.
        let candidates =
            (2..curve.len().saturating_sub(1)).filter(|start| starts.iter().all(|other| start.abs_diff(*other) >= 2));
        let tried = candidates.map(|start| {
            let mut tried = starts.clone();
            tried.push(start);
            tried.sort_unstable();
            (fit_segments(curve, &tried), tried)
        });
        let Some((fitted, tried)) = tried.min_by(|one, two| one.0.squares.total_cmp(&two.0.squares)) else { break };
        let is_step = |pair: &[f64]| (pair[1] - pair[0]).abs() >= SMALLEST.ln();
        if fitted.squares > EXPLAINED * best.squares || !fitted.levels.windows(2).all(is_step) {
            break;
        }
        (best, starts) = (fitted, tried);
    }
    let level = |place: usize| best.levels[starts.iter().rposition(|start| *start <= place).unwrap_or(0)];
    let times_ns: Vec<f64> = curve
        .iter()
        .enumerate()
        .map(|(place, point)| relative_time(point.at, best.contention, best.coherence) * level(place).exp())
        .collect();
    let mut errors: Vec<f64> =
        curve.iter().zip(&times_ns).map(|(point, time)| 100.0 * (point.time_ns / time - 1.0).abs()).collect();
    let step = |(place, start): (usize, &usize)| Break {
        at: curve[*start].at,
        factor: (best.levels[place + 1] - best.levels[place]).exp(),
    };
    Law {
        contention: best.contention,
        coherence: best.coherence,
        breaks: starts[1..].iter().enumerate().map(step).collect(),
        error: samples::statistics::median(&mut errors),
        times_ns,
    }
}

fn relative_time(threads: f64, contention: f64, coherence: f64) -> f64 {
    (1.0 + contention * (threads - 1.0) + coherence * threads * (threads - 1.0)) / threads
}

/// Returns the logarithm of the time relative to that of one thread.
pub(crate) fn log_shape(threads: f64, contention: f64, coherence: f64) -> f64 {
    relative_time(threads, contention, coherence).ln()
}

pub(crate) fn fit_law(points: &[(f64, f64)]) -> (f64, f64) {
    let point = |(at, time_ns): &(f64, f64)| Point { at: *at, time_ns: *time_ns, low_ns: *time_ns, high_ns: *time_ns };
    let curve: Vec<Point> = points.iter().map(point).collect();
    let fitted = fit_segments(&curve, &[0]);
    (fitted.contention, fitted.coherence)
}

struct Fit {
    contention: f64,
    coherence: f64,
    /// Logarithm of the time on one thread, for each segment between breaks.
    levels: Vec<f64>,
    squares: f64,
}

fn fit_segments(curve: &[Point], starts: &[usize]) -> Fit {
    let fit_at = |contention: f64, coherence: f64| {
        let logs: Vec<f64> =
            curve.iter().map(|point| (point.time_ns / relative_time(point.at, contention, coherence)).ln()).collect();
        // The best-fitting time of one thread is the mean of the logarithms in each segment.
        let (mut levels, mut squares) = (Vec::new(), 0.0);
        for (piece, start) in starts.iter().enumerate() {
            let end = starts.get(piece + 1).copied().unwrap_or(curve.len());
            let mean = logs[*start..end].iter().sum::<f64>() / (end - start) as f64;
            squares += logs[*start..end].iter().map(|log| (log - mean).powi(2)).sum::<f64>();
            levels.push(mean);
        }
        Fit { contention, coherence, levels, squares }
    };
    let mut best = fit_at(0.0, 0.0);
    let (mut center, mut step) = ((0.5, 0.1), (0.1, 0.02));
    for _ in 0..8 {
        for across in -5..=5 {
            for up in -5..=5 {
                let contention = (center.0 + f64::from(across) * step.0).clamp(0.0, 1.0);
                let tried = fit_at(contention, (center.1 + f64::from(up) * step.1).clamp(0.0, 1.0));
                if tried.squares < best.squares {
                    best = tried;
                }
            }
        }
        center = (best.contention, best.coherence);
        step = (step.0 / 3.0, step.1 / 3.0);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::super::{knee_of_curve, tests::curve};
    use super::*;

    #[test]
    fn finds_the_law_it_was_made_from() {
        let times: Vec<f64> = (1..=16).map(|threads| 1e6 * relative_time(f64::from(threads), 0.1, 0.01)).collect();
        let knee = knee_of_curve("threads", curve(&times)).expect("a curve of many points");
        let law = knee.law.expect("a law of threads");
        assert!((law.contention - 0.1).abs() < 0.01 && (law.coherence - 0.01).abs() < 0.002, "{law:?}");
        assert_eq!(law.breaks, []);
        // The fastest of the law is at sqrt((1 - contention) / coherence) = 9.5.
        assert!((9.0..=10.0).contains(&knee.fastest) && knee.knee < knee.fastest, "{:?}", knee.fastest);
    }

    #[test]
    fn a_second_socket_stays_a_step() {
        let time =
            |threads: i32| 1e6 * relative_time(f64::from(threads), 0.05, 0.0005) * if threads > 16 { 1.4 } else { 1.0 };
        let law = fit_with_breaks(&curve(&(1..=32).map(time).collect::<Vec<_>>()));
        let [only] = law.breaks[..] else { panic!("one break: {law:?}") };
        assert_eq!(only.at, 17.0);
        assert!((only.factor - 1.4).abs() < 0.02 && (law.contention - 0.05).abs() < 0.01 && law.error < 0.5, "{law:?}");
    }
}
