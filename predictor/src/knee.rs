//! Where more threads stop to pay: the fastest count, the smallest within 5 % of it, and the law between.
//!
//! The law is Gunther's: time(n) = time(1) · (1 + contention · (n - 1) + coherence · n · (n - 1)) / n. It is fitted to the
//! curve by least squares on the logarithm, over a grid that is refined around the best; breaks of the topology stay in
//! the curve, which is given whole.

use serde::Serialize;

/// How much slower than the fastest still counts as as fast.
const NEAR: f64 = 1.05;

/// One point of the curve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Threads.
    pub threads: f64,
    /// Time.
    pub time_ns: f64,
    /// 90 % of measurements should lie between this …
    pub low_ns: f64,
    /// … and this.
    pub high_ns: f64,
}

/// The turning point of a curve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Knee {
    /// Threads of the fastest point.
    pub fastest: f64,
    /// Fewest threads within 5 % of it.
    pub knee: f64,
    /// Where the curve turns from falling to rising for good; nothing if it falls to its end.
    pub turns_at: Option<f64>,
    /// Share of the work that is done one after the other.
    pub contention: f64,
    /// Cost of every pair of threads.
    pub coherence: f64,
    /// Middle distance of the law from the curve, in percent.
    pub law_error: f64,
    /// The whole curve.
    pub curve: Vec<Point>,
}

/// The knee of a curve of at least two points, in order of threads.
pub fn knee(curve: Vec<Point>) -> Option<Knee> {
    let fastest = curve.iter().min_by(|one, two| one.time_ns.total_cmp(&two.time_ns))?.clone();
    let knee = curve.iter().find(|point| point.time_ns <= NEAR * fastest.time_ns)?.threads;
    if curve.len() < 2 {
        return None;
    }
    let last_fall = curve.windows(2).rposition(|pair| pair[1].time_ns < pair[0].time_ns);
    let turn = last_fall.map_or(0, |place| place + 1);
    let turns_at = (turn + 1 < curve.len()).then(|| curve[turn].threads);
    let (contention, coherence, law_error) = law(&curve);
    Some(Knee { fastest: fastest.threads, knee, turns_at, contention, coherence, law_error, curve })
}

fn shape(threads: f64, contention: f64, coherence: f64) -> f64 {
    (1.0 + contention * (threads - 1.0) + coherence * threads * (threads - 1.0)) / threads
}

fn law(curve: &[Point]) -> (f64, f64, f64) {
    // The time of one thread is whatever fits best: the mean distance of the logarithms.
    let distances = |contention: f64, coherence: f64| {
        let logs: Vec<f64> =
            curve.iter().map(|point| (point.time_ns / shape(point.threads, contention, coherence)).ln()).collect();
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        logs.into_iter().map(|log| log - mean).collect::<Vec<f64>>()
    };
    let badness =
        |contention: f64, coherence: f64| distances(contention, coherence).iter().map(|one| one * one).sum::<f64>();
    let (mut best, mut step) = ((0.0, 0.0), (0.1, 0.02));
    let mut center = (0.5, 0.1);
    for _ in 0..8 {
        for across in -5..=5 {
            for up in -5..=5 {
                let tried = (
                    (center.0 + f64::from(across) * step.0).clamp(0.0, 1.0),
                    (center.1 + f64::from(up) * step.1).clamp(0.0, 1.0),
                );
                if badness(tried.0, tried.1) < badness(best.0, best.1) {
                    best = tried;
                }
            }
        }
        center = best;
        step = (step.0 / 3.0, step.1 / 3.0);
    }
    let mut errors: Vec<f64> =
        distances(best.0, best.1).into_iter().map(|log| 100.0 * (log.exp() - 1.0).abs()).collect();
    (best.0, best.1, crate::learn::median(&mut errors))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(times: &[f64]) -> Vec<Point> {
        let point = |(place, time): (usize, &f64)| Point {
            threads: place as f64 + 1.0,
            time_ns: *time,
            low_ns: *time,
            high_ns: *time,
        };
        times.iter().enumerate().map(point).collect()
    }

    #[test]
    fn finds_the_law_it_was_made_from() {
        let times: Vec<f64> = (1..=16).map(|threads| 1e6 * shape(f64::from(threads), 0.1, 0.01)).collect();
        let knee = knee(curve(&times)).expect("a curve of many points");
        assert!((knee.contention - 0.1).abs() < 0.01 && (knee.coherence - 0.01).abs() < 0.002, "{knee:?}");
        // The fastest of the law is at sqrt((1 - contention) / coherence) = 9.5.
        assert!((9.0..=10.0).contains(&knee.fastest) && knee.knee < knee.fastest, "{knee:?}");
    }

    #[test]
    fn a_curve_that_only_falls_does_not_turn() {
        let knee = knee(curve(&[8.0, 4.0, 2.7, 2.0])).expect("a curve");
        assert_eq!((knee.fastest, knee.turns_at), (4.0, None));
    }
}
