//! Places operators on devices, by predicted times of a network and the costs of transfers and energy.

use super::tables::{TimesTable, repeated_device};
use crate::devices::resolve_device;
use crate::error::{Error, Result};
use crate::queries::{self, Setting};
use learn::predictor::Predictor;
use models::{Fuse, Graph, stages};
use planners::placement::{self, Edge, Instance, Link, Placement};
use serde::Serialize;

#[derive(Clone, Debug)]
pub struct PlacementOptions {
    pub link_us: f64,
    pub link_gb_per_s: f64,
    /// Power under load as DEVICE=WATTS, either for all devices or for none.
    pub watts: Vec<String>,
    pub price_us_per_j: f64,
}

pub fn place_operators(
    table: &TimesTable,
    edges: Vec<Edge>,
    options: &PlacementOptions,
) -> Result<(Instance, Placement)> {
    let instance = planner_instance(options, table, edges)?;
    let found = placement::place_operators(&instance).map_err(|error| Error::Query(error.to_string()))?;
    Ok((instance, found))
}

/// Predicts the times of a network's operators on devices, with the predictor of the file `source`.
pub fn times_of_network(
    (predictor, source): (&Predictor, &str),
    graph: &Graph,
    devices: &[String],
) -> Result<(TimesTable, Vec<Edge>)> {
    let known = || predictor.about.devices.keys().map(String::as_str);
    let devices: Vec<String> = match devices.is_empty() {
        true => known().map(str::to_owned).collect(),
        false => {
            let named = devices.iter().map(|name| resolve_device(known(), name).map(str::to_owned));
            named.collect::<Result<_>>()?
        }
    };
    if let Some(device) = repeated_device(&devices) {
        return Err(Error::Query(format!("--device names `{device}` twice")));
    }
    let refused = |error: models::Error| Error::Query(error.to_string());
    let graph = passes::simplify_graph(graph).map_err(refused)?;
    let cut = models::plan_calls(&graph, Fuse::Epilogue).map_err(refused)?;
    let operators: Vec<_> = cut.tasks.iter().map(queries::task_operator).collect::<Result<_>>()?;
    let mut times_ns = vec![Vec::with_capacity(devices.len()); cut.calls.len()];
    let mut intervals_ns = vec![Vec::with_capacity(devices.len()); cut.calls.len()];
    for device in &devices {
        let setting = Setting { device: Some(device.clone()), ..Setting::default() };
        let of_tasks = queries::predict_model(predictor, &operators, &setting)?;
        for (call, (times, intervals)) in cut.calls.iter().zip(times_ns.iter_mut().zip(&mut intervals_ns)) {
            let prediction = &of_tasks[call.task].prediction;
            times.push(prediction.time_ns);
            intervals.push((prediction.low_ns, prediction.high_ns));
        }
    }
    let bytes = |call: usize| graph.values[cut.calls[call].result.0 as usize].ty.size_bytes().unwrap_or(0) as f64;
    let edges = stages::call_dependencies(&graph, &cut).into_iter().enumerate();
    let edges = edges.flat_map(|(to, from)| from.into_iter().map(move |from| (from, to))).map(|(from, to)| Edge {
        from,
        to,
        bytes: bytes(from),
    });
    let operators =
        cut.calls.iter().enumerate().map(|(call, one)| format!("{call}: {}", cut.tasks[one.task].task.describe()));
    let (operators, source) = (operators.collect(), format!("predicted by {source}"));
    Ok((TimesTable { operators, devices, times_ns, intervals_ns, source }, edges.collect()))
}

/// Returns the number of operators that are placed where only a lower bound of their time is known.
pub fn count_lower_bounds(table: &TimesTable, found: &Placement) -> usize {
    found.devices.iter().enumerate().filter(|(operator, device)| table.is_lower_bound(*operator, **device)).count()
}

/// Makespan, and speed-up over the fastest single device, with all times at the low and all at the high ends of their
/// 90 % intervals. Lower bounds of times, which have no upper end, are kept.
#[derive(Serialize)]
pub struct MakespanEnds {
    pub low_ns: f64,
    pub high_ns: f64,
    pub speed_ups: (f64, f64),
}

/// Returns the makespan at the ends of the intervals; None if no interval is known.
pub fn makespan_ends(table: &TimesTable, instance: &Instance, found: &Placement) -> Option<MakespanEnds> {
    let is_known = |interval: &(f64, f64)| interval.0 > 0.0 && interval.1.is_finite();
    if !table.intervals_ns.iter().flatten().any(is_known) {
        return None;
    }
    let with = |end: fn(&(f64, f64)) -> f64| {
        let rows = table.times_ns.iter().zip(&table.intervals_ns);
        let row = |(times, intervals): (&Vec<f64>, &Vec<(f64, f64)>)| {
            let ends = times.iter().zip(intervals);
            ends.map(|(time, interval)| if is_known(interval) { end(interval) } else { *time }).collect()
        };
        let instance = Instance { times_ns: rows.map(row).collect(), ..instance.clone() };
        let makespan_ns = instance.makespan_of(&found.devices).ok()?;
        Some((makespan_ns, speed_up(&instance, makespan_ns)))
    };
    let ((low_ns, low), (high_ns, high)) = (with(|(low, _)| *low)?, with(|(_, high)| *high)?);
    Some(MakespanEnds { low_ns, high_ns, speed_ups: (low, high) })
}

/// Returns the ratio of the time of all operators on the fastest single device to a makespan, in hundredths, as it is
/// printed: smaller differences may be rounding errors of sums.
pub fn speed_up(instance: &Instance, makespan_ns: f64) -> f64 {
    let ratio = fastest_device(instance).map_or(f64::NAN, |(_, alone_ns)| alone_ns / makespan_ns);
    (100.0 * ratio).round() / 100.0
}

/// Returns the device on which all operators together take least time, and that time. On one device, operators run one
/// after the other without transfers.
pub fn fastest_device(instance: &Instance) -> Option<(usize, f64)> {
    let devices = 0..instance.times_ns.first().map_or(0, Vec::len);
    let sums_ns = devices.map(|device| (device, instance.times_ns.iter().map(|times| times[device]).sum::<f64>()));
    sums_ns.min_by(|one, two| one.1.total_cmp(&two.1))
}

fn planner_instance(options: &PlacementOptions, table: &TimesTable, edges: Vec<Edge>) -> Result<Instance> {
    let count = table.devices.len();
    let link = Link { latency_ns: options.link_us * 1e3, ns_per_byte: 1.0 / options.link_gb_per_s };
    if options.link_gb_per_s.is_nan() || options.link_gb_per_s <= 0.0 {
        return Err(Error::Query(format!("--link-gb-per-s {} is not a positive number", options.link_gb_per_s)));
    }
    let mut energies_j = Vec::new();
    if !options.watts.is_empty() {
        let mut watts = vec![None; count];
        for text in &options.watts {
            let wrong = || Error::Query(format!("--watts `{text}` is not DEVICE=NUMBER with a device of the query"));
            let (name, value) = text.rsplit_once('=').ok_or_else(wrong)?;
            let device = resolve_device(table.devices.iter().map(String::as_str), name)?;
            let device = table.devices.iter().position(|known| known == device).ok_or_else(wrong)?;
            watts[device] = Some(value.parse::<f64>().ok().filter(|watts| *watts >= 0.0).ok_or_else(wrong)?);
        }
        let lacking = watts.iter().position(Option::is_none);
        if let Some(device) = lacking {
            return Err(Error::Query(format!("--watts for `{}` is missing", table.devices[device])));
        }
        let energies =
            |times: &Vec<f64>| times.iter().zip(&watts).map(|(ns, watts)| ns * 1e-9 * watts.unwrap_or(0.0)).collect();
        energies_j = table.times_ns.iter().map(energies).collect();
    }
    Ok(Instance {
        times_ns: table.times_ns.clone(),
        edges,
        links: vec![vec![link; count]; count],
        energies_j,
        price_ns_per_j: options.price_us_per_j * 1e3,
    })
}
