//! Determines the bottleneck of an operator: the roofline, overhead, caches, or the distribution over threads.

use crate::error::Result;
use learn::host_translation::HostTranslation;
use learn::predictor::{Prediction, Predictor, Query};
use samples::features;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// Bottleneck: `overhead`, `arithmetic`, `memory`, `threads`, `cache` or `code`.
    pub limit: &'static str,
    pub reason: String,
    /// Arithmetic time at the device's peak with the query's threads.
    pub arithmetic_ns: f64,
    /// Transfer time of the compulsory bytes at the device's bandwidth.
    pub memory_ns: f64,
    /// Ratio of the roofline bound to the predicted time; above 1 only if measured operators exceed the roofline.
    pub utilisation: f64,
    /// Ratio of the compulsory bytes to the size of the shared cache.
    pub bytes_of_cache: f64,
    /// Speed-up over one thread, divided by the number of threads; None if only one thread count was trained.
    pub parallel_efficiency: Option<f64>,
}

/// Finds the bottleneck of a prediction, which was translated to `host`, if any.
pub fn find_limits(
    predictor: &Predictor,
    query: &Query<'_>,
    prediction: &Prediction,
    host: Option<&HostTranslation>,
) -> Result<Limits> {
    let device = &predictor.about.devices[query.device];
    let threads = query.threads.unwrap_or(device.units);
    let here = host.and_then(|host| host.roofline_ns(query.work, threads));
    let (arithmetic_ns, memory_ns) = here.unwrap_or_else(|| features::roofline_ns(query.work, device, threads));
    // Without peaks of its own, the host has those of the training machine, converted like the times.
    let scale = Some(prediction.attainable_ns / arithmetic_ns.max(memory_ns)).filter(|scale| scale.is_finite());
    let scale = scale.unwrap_or(1.0);
    let (arithmetic_ns, memory_ns) = (scale * arithmetic_ns, scale * memory_ns);
    let overhead_ns = prediction.overhead_ns;
    let cache_bytes = host.and_then(HostTranslation::cache_bytes).unwrap_or(device.cache_bytes);
    let bytes_of_cache = query.work.bytes() / cache_bytes;
    let utilisation = prediction.attainable_ns / prediction.time_ns;
    let parallel_efficiency = match threads > 1.0 && has_learned_threads(predictor, query.operator) {
        true => {
            let mut alone = predictor.predict(&Query { threads: Some(1.0), ..query.clone() })?;
            host.into_iter().for_each(|host| alone.translate_to_host(host, query.operator, query.work));
            Some(alone.time_ns / (prediction.time_ns * threads))
        }
        false => None,
    };
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let (limit, reason) = match parallel_efficiency {
        _ if overhead_ns > prediction.time_ns => {
            let reason = "the time is shorter than the usual launch overhead of this kind, as for work on one thread";
            ("overhead", reason.to_owned())
        }
        _ if overhead_ns > 0.5 * prediction.time_ns => {
            ("overhead", format!("the launch overhead is {} of the time", percent(overhead_ns / prediction.time_ns)))
        }
        _ if utilisation > 1.0 => {
            let side = if memory_ns >= arithmetic_ns { "memory" } else { "arithmetic" };
            (side, explain_excess(predictor, query, prediction, &percent(utilisation)))
        }
        _ if utilisation > 0.5 && memory_ns >= arithmetic_ns => {
            ("memory", format!("the operator reaches {} of the bandwidth", percent(utilisation)))
        }
        _ if utilisation > 0.5 => {
            ("arithmetic", format!("the operator reaches {} of the arithmetic peak", percent(utilisation)))
        }
        Some(efficiency) if efficiency < 0.6 => {
            ("threads", format!("{threads} threads are only {:.2} times as fast as one thread", efficiency * threads))
        }
        _ if bytes_of_cache > 1.0 && memory_ns >= arithmetic_ns => {
            ("cache", format!("the operands are {bytes_of_cache:.1} times as large as the cache"))
        }
        _ => {
            let reason = format!(
                "the operator reaches {} of the roofline; overhead, threads and cache do not explain the rest",
                percent(utilisation)
            );
            ("code", reason)
        }
    };
    Ok(Limits { limit, reason, arithmetic_ns, memory_ns, utilisation, bytes_of_cache, parallel_efficiency })
}

fn explain_excess(predictor: &Predictor, query: &Query<'_>, prediction: &Prediction, utilisation: &str) -> String {
    let statistics = &predictor.learned.operators[query.operator].statistics;
    let Prediction { attainable_ns, overhead_ns, .. } = *prediction;
    let best = 100.0 * attainable_ns / statistics.least_ns(attainable_ns, overhead_ns, query.work.may_skip_products());
    format!(
        "the operator reaches {utilisation} of the roofline of the device, and measured operators of this kind up to {best:.0} %: part of the counted work is unnecessary, or the peaks of the device are too low"
    )
}

fn has_learned_threads(predictor: &Predictor, operator: &str) -> bool {
    let column = predictor.about.names.iter().position(|name| name == "threads");
    let range = column.and_then(|column| predictor.learned.operators[operator].statistics.ranges[column]);
    // Devices with a fixed thread count always use all units, so one thread was never measured.
    range.is_some_and(|(low, high)| low <= 1.0 && high > 1.0)
}
