//! `oppredict plan` and `oppredict stages`.

use super::arguments::{PlanOf, TimesOf};
use super::{begin, finish, paper, print, read_predictor, tell_left_out};
use crate::error::{Error, Result};
use crate::pages;
use crate::pages::{Lane, MeasuredLanes};
use crate::planning::network::BARRIER_NS;
use crate::planning::{Host, Planned, RecordChoice, Times, plan as planned};
use crate::queries::{self, Setting};
use learn::predictor::Predictor;
use planners::interference::{Learned, Machine};
use report::{Table, between, duration, figures, percent, words};
use serde_json::json;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Times as they were asked for.
pub struct Known {
    pub host: Option<Host>,
    predictor: Option<Predictor>,
    setting: Setting,
}

impl Known {
    /// Reads what the arguments name.
    pub fn read(arguments: &TimesOf, any_schedule: bool) -> Result<Known> {
        if arguments.data.is_none() && arguments.predictor.is_none() {
            let problem = "no times: give --data STORE with records of this machine, or --predictor FILE, or both";
            return Err(Error::Query(problem.to_owned()));
        }
        let (class, all_versions) = (arguments.hardware.as_deref(), arguments.all_versions);
        let choice = RecordChoice { class, any_schedule, all_versions };
        let host = arguments.data.as_ref().map(|path| Host::read(path, choice)).transpose()?;
        tell_left_out(host.as_ref().map_or(0, |host| host.left_out));
        let predictor = arguments.predictor.as_ref().map(|path| read_predictor(path)).transpose()?;
        let device = if host.is_none() { arguments.hardware.clone() } else { arguments.device.clone() };
        Ok(Known { host, predictor, setting: Setting { device, ..Setting::default() } })
    }

    pub fn times(&self) -> Times<'_> {
        let predictor = self.predictor.as_ref().map(|predictor| (predictor, &self.setting));
        Times { host: self.host.as_ref(), predictor }
    }

    /// What operators share, as far as that is known.
    pub fn machine(&self, cores: usize) -> Result<Machine> {
        if let Some(host) = &self.host {
            return Ok(host.machine(cores));
        }
        let predictor = self.predictor.as_ref().expect("one of both was given");
        let name = queries::device(predictor, &self.setting)?;
        let known = predictor.about.devices.keys().map(String::as_str);
        let device = predictor.about.devices.get(name).ok_or_else(|| Error::unknown("device", name, known))?;
        let bytes_per_ns = device.bandwidth_gb_per_s.max(f64::MIN_POSITIVE);
        let cache_bytes = device.cache_bytes * cores as f64;
        Ok(Machine { cores, bytes_per_ns, cache_bytes, learned: Learned::default() })
    }
}

/// One answer for a model.
pub fn plan(arguments: &PlanOf) -> Result<u8> {
    let page = begin(arguments.html.as_deref())?;
    let out = begin(arguments.out.as_deref())?;
    let (found, versions) = of(arguments)?;
    print(&answer(&found, &versions))?;
    keep(arguments, (&found, &versions), page, out)
}

/// The stages of a model, one a line.
pub fn stages(arguments: &PlanOf) -> Result<u8> {
    let page = begin(arguments.html.as_deref())?;
    let out = begin(arguments.out.as_deref())?;
    let (found, versions) = of(arguments)?;
    print(&list(&found, &versions))?;
    keep(arguments, (&found, &versions), page, out)
}

type Page = Option<datasets::output::Output>;

fn keep(arguments: &PlanOf, (found, versions): (&Planned, &[String]), page: Page, out: Page) -> Result<u8> {
    let measured = arguments.measured.as_deref().map(measured).transpose()?;
    finish(page, || pages::lanes(found, measured.as_ref()).into_bytes())?;
    finish(out, || serde_json::to_vec_pretty(&found.stages).expect("a plan holds only JSON values"))?;
    if arguments.json {
        print(&json!({ "plan": found, "stages": found.stages.stages, "versions": versions }).to_string())?;
    }
    Ok(0)
}

/// The answer of `opcollect model run --plan … --json`.
fn measured(path: &Path) -> Result<MeasuredLanes> {
    /// More than the lanes of any model take.
    const BYTES_MAX: u64 = 64 << 20;
    let mut text = String::new();
    let file = File::open(path).map_err(|error| Error::io("read", path, error))?;
    file.take(BYTES_MAX).read_to_string(&mut text).map_err(|error| Error::io("read", path, error))?;
    let last = text.lines().last().unwrap_or_default();
    let found: MeasuredLanes = serde_json::from_str(last).map_err(|error| {
        Error::table(path, format!("it does not end in what `opcollect model run --plan FILE --json` prints: {error}"))
    })?;
    let is_time = |time: f64| time.is_finite() && time >= 0.0;
    let is_lane =
        |lane: &Lane| is_time(lane.begin_ns) && is_time(lane.end_ns) && lane.cores.iter().all(|core| *core < 1024);
    if !is_time(found.median_ns) || !found.lanes.iter().all(is_lane) {
        return Err(Error::table(path, "its lanes have times that are none, or cores that no plan has".to_owned()));
    }
    Ok(found)
}

/// Returns the plan and the versions of the measured times.
fn of(arguments: &PlanOf) -> Result<(Planned, Vec<String>)> {
    let cores = arguments.threads as usize;
    let known = Known::read(&arguments.times, false)?;
    let machine = known.machine(cores)?;
    let graph = queries::graph_of(arguments.modelsource, &arguments.model, arguments.batchsize, arguments.sequence)?;
    let found = planned(&graph, &known.times(), &machine, arguments.barrier_us.map_or(BARRIER_NS, |us| us * 1e3))?;
    Ok((found, known.host.into_iter().flat_map(|host| host.versions).collect()))
}

fn answer(found: &Planned, versions: &[String]) -> String {
    let Planned { promise, model, parallel, cores, .. } = found;
    let mut lines = vec![format!(
        "{model}: {} on {cores} core{}, {} expected ({})",
        match parallel {
            models::Parallel::Sequential => "one operator after the other",
            models::Parallel::Stream | models::Parallel::Full => "groups side by side",
        },
        if *cores == 1 { "" } else { "s" },
        duration(promise.time_ns),
        between(promise.low_ns, promise.high_ns),
    )];
    lines.push(format!("  why         {}", found.why));
    lines.push(format!(
        "  beside      one operator after the other on all cores {}, the longest chain {}",
        duration(promise.sequential_ns),
        duration(found.critical_ns)
    ));
    lines.push(format!(
        "  stages      {}, {} of them with groups side by side; {} sets of operators looked at{}",
        found.stages_count,
        found.stages_side_by_side,
        found.states,
        if found.is_exact { ", nothing left out" } else { ", along a beam" }
    ));
    let by = if versions.is_empty() { String::new() } else { format!(" with {}", versions.join("; ")) };
    lines.push(format!("  times       {} measured{by}, the rest predicted", percent(found.measured_share)));
    lines.join("\n")
}

fn list(found: &Planned, versions: &[String]) -> String {
    let mut table =
        Table::new([figures("stage"), figures("time"), figures("cores"), figures("calls"), words("of them")]);
    for (number, stage) in found.stages.stages.iter().enumerate() {
        for (place, group) in stage.groups.iter().enumerate() {
            let named: Vec<&str> = group.calls.iter().take(3).map(|&call| found.calls[call].as_str()).collect();
            let more = if group.calls.len() > 3 { "; …" } else { "" };
            let (number, time) = match place {
                0 => (number.to_string(), stage.time_ns.map_or_else(String::new, duration)),
                _ => (String::new(), String::new()),
            };
            let cores = group.cores.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
            table.row([number, time, cores, group.calls.len().to_string(), format!("{}{more}", named.join("; "))]);
        }
    }
    format!("{}\n{}", table.on(&paper()), answer(found, versions))
}
