//! Times of language-model servers over batch size or context length, and their knees.

use super::question::{ServerQuestion, answer_warnings, predict_server};
use crate::error::{Error, Result};
use report::format_count;
use serde::Serialize;
use serving::KernelTimes;
use serving::server::ServerAnswer;
use serving::warnings::{ServerWarning, WarningCause};

const MAX_BATCH: u64 = 1024;
const MAX_CONTEXT: u64 = 131_072;
const LEAST_CONTEXT: u64 = 512;
/// Minimum ratio of throughputs at which doubling the batch size is worthwhile.
const LEAST_GAIN: f64 = 1.2;
/// Ratio of the time per token to that at the shortest context, from which the context dominates.
const LONGEST: f64 = 1.5;

#[derive(Clone, Debug, Serialize)]
pub struct ServerPoint {
    pub at: u64,
    pub first_token_s: f64,
    pub per_token_s: f64,
    pub tokens_per_s_per_user: f64,
    pub tokens_per_s_per_gpu: f64,
    pub fits: bool,
    #[serde(skip)]
    pub warnings: Vec<ServerWarning>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ServerCurve {
    pub over: String,
    pub knee: Option<u64>,
    pub points: Vec<ServerPoint>,
}

impl ServerCurve {
    /// Predicts the times of a server over `batch` or `context`.
    pub fn compute_curve(question: &ServerQuestion, over: &str, times: &dyn KernelTimes) -> Result<ServerCurve> {
        let doubled = |first: u64, most: u64| {
            std::iter::successors(Some(first), |at| Some(2 * at)).take_while(move |at| *at <= most)
        };
        let places: Vec<u64> = match over {
            "batch" => doubled(1, MAX_BATCH).collect(),
            "context" => doubled(LEAST_CONTEXT, MAX_CONTEXT).collect(),
            other => return Err(Error::unknown_name("quantity of a server's curve", other, ["batch", "context"])),
        };
        let mut points = Vec::new();
        for at in places {
            let mut load = question.load;
            match over {
                "batch" => load.concurrency = at,
                _ => load.input_tokens = at,
            }
            let question = ServerQuestion { deployment: question.deployment.clone(), load };
            let answer = predict_server(&question, times)?;
            points.push(curve_point(at, &answer, answer_warnings(&question, &answer)));
        }
        let knee = if over == "batch" { batch_knee(&points) } else { context_knee(&points) };
        Ok(ServerCurve { over: over.to_owned(), knee, points })
    }

    /// States what the knee means.
    pub fn describe_knee(&self) -> String {
        match (self.over.as_str(), self.knee) {
            (_, None) => "no knee among the points that fit in memory".to_owned(),
            ("batch", Some(at)) => {
                let least = 100.0 * (LEAST_GAIN - 1.0);
                format!(
                    "from a batch of {at} on, doubling the batch gains less than {least:.0} % throughput or does not fit in memory"
                )
            }
            (_, Some(at)) => {
                let longer = 100.0 * (LONGEST - 1.0);
                format!(
                    "from a context of {at} on, a token takes at least {longer:.0} % longer than at the shortest context"
                )
            }
        }
    }
}

fn curve_point(at: u64, answer: &ServerAnswer, warnings: Vec<ServerWarning>) -> ServerPoint {
    ServerPoint {
        at,
        first_token_s: answer.first_token.seconds,
        per_token_s: answer.per_token.seconds,
        tokens_per_s_per_user: answer.tokens_per_s_per_user,
        tokens_per_s_per_gpu: answer.tokens_per_s_per_gpu,
        fits: answer.memory.is_sufficient(),
        warnings,
    }
}

/// Returns the warnings of all curves, each cause once per curve. Points that do not fit in memory are marked in the
/// table instead.
pub fn merge_warnings(curves: &[ServerCurve]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for note in curves.iter().flat_map(curve_warnings) {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes
}

fn curve_warnings(curve: &ServerCurve) -> Vec<String> {
    let mut by_cause: Vec<Vec<(u64, &ServerWarning)>> = Vec::new();
    for point in &curve.points {
        for warning in point.warnings.iter().filter(|warning| warning.cause != WarningCause::Memory) {
            match by_cause.iter_mut().find(|alike| alike[0].1.cause == warning.cause) {
                Some(alike) => alike.push((point.at, warning)),
                None => by_cause.push(vec![(point.at, warning)]),
            }
        }
    }
    by_cause.iter().map(|alike| describe_warnings(alike, curve)).collect()
}

/// Describes the warnings of one cause in the words of the first. Names its point, unless the same holds for all points.
fn describe_warnings(alike: &[(u64, &ServerWarning)], curve: &ServerCurve) -> String {
    let (at, first) = alike[0];
    if alike.len() == curve.points.len() && alike.iter().all(|(_, warning)| *warning == first) {
        return first.text.clone();
    }
    let others = match alike.len() - 1 {
        0 => String::new(),
        count => format!(" and {} of the curve", format_count(count, "other point")),
    };
    format!("at {} {at}{others}: {}", curve.over, first.text)
}

/// Returns the first batch size from which no doubling fits in memory and increases the throughput enough.
fn batch_knee(points: &[ServerPoint]) -> Option<u64> {
    let pays = |one: &ServerPoint, two: &ServerPoint| {
        two.fits && two.tokens_per_s_per_gpu >= LEAST_GAIN * one.tokens_per_s_per_gpu
    };
    let fitting = points.iter().take_while(|point| point.fits).count();
    let last_gain = points.windows(2).take(fitting).rposition(|pair| pays(&pair[0], &pair[1]));
    let knee = last_gain.map_or(0, |place| place + 1);
    // Beyond the last point nothing is known.
    points.get(knee).filter(|_| knee < fitting && knee + 1 < points.len()).map(|point| point.at)
}

/// Returns the first context length at which a token takes much longer than at the shortest context.
fn context_knee(points: &[ServerPoint]) -> Option<u64> {
    let first = points.first()?;
    points.iter().find(|point| point.fits && point.per_token_s >= LONGEST * first.per_token_s).map(|point| point.at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(gains: &[(f64, f64, bool)]) -> Vec<ServerPoint> {
        let point = |(place, (per_token_s, tokens_per_s_per_gpu, fits)): (usize, &(f64, f64, bool))| ServerPoint {
            at: 1 << place,
            first_token_s: 1.0,
            per_token_s: *per_token_s,
            tokens_per_s_per_user: 1.0,
            tokens_per_s_per_gpu: *tokens_per_s_per_gpu,
            fits: *fits,
            warnings: Vec::new(),
        };
        gains.iter().enumerate().map(point).collect()
    }

    #[test]
    fn knees_are_where_more_stops_to_pay() {
        let flat = points(&[(1.0, 10.0, true), (1.0, 19.0, true), (1.6, 20.0, true), (2.0, 21.0, true)]);
        assert_eq!((batch_knee(&flat), context_knee(&flat)), (Some(2), Some(4)));
        let full = points(&[(1.0, 10.0, true), (1.0, 19.0, true), (1.0, 38.0, false)]);
        assert_eq!((batch_knee(&full), context_knee(&full)), (Some(2), None));
        assert_eq!(batch_knee(&points(&[(1.0, 1.0, false)])), None);
        let dip = [10.0, 9.0, 14.0, 20.0, 21.0, 22.0].map(|throughput| (1.0, throughput, true));
        assert_eq!(batch_knee(&points(&dip)), Some(8), "later doublings pay");
        assert_eq!(batch_knee(&points(&dip[..4])), None, "the last doubling pays");
    }

    #[test]
    fn each_cause_is_one_warning() {
        let warning = |cause, text: &str| ServerWarning { cause, text: text.to_owned() };
        let parts = || warning(WarningCause::UncountedParts, "no vision");
        let mut points = points(&[(1.0, 1.0, true); 3]);
        points[0].warnings = vec![parts()];
        points[1].warnings = vec![warning(WarningCause::PerToken, "1 ms"), parts()];
        points[2].warnings = vec![
            warning(WarningCause::Memory, "does not fit"),
            warning(WarningCause::PerToken, "2 ms"),
            parts(),
            warning(WarningCause::MaxTokens, "5 tokens"),
        ];
        let curve = |over: &str| ServerCurve { over: over.to_owned(), knee: None, points: points.clone() };
        assert_eq!(
            merge_warnings(&[curve("batch"), curve("context")]),
            [
                "no vision",
                "at batch 2 and 1 other point of the curve: 1 ms",
                "at batch 4: 5 tokens",
                "at context 2 and 1 other point of the curve: 1 ms",
                "at context 4: 5 tokens",
            ]
        );
    }
}
