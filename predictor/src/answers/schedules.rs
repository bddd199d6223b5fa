//! Ranks the schedules of an operator by their predicted times.

use crate::error::{Error, Result};
use crate::queries::{self, AssumedThreads, Setting};
use crate::schedule_list::{self, ListedSchedule, ScheduleList};
use learn::cross_validation::CrossValidatedError;
use learn::predictor::{Predictor, Query};
use serde::Serialize;
use serde_json::Value;
use std::fs::File;
use std::path::Path;

#[derive(Clone, Debug, Serialize)]
pub struct RankedSchedules {
    pub operator: String,
    pub best: Vec<RankedSchedule>,
    pub threads: AssumedThreads,
    pub held_out: Option<CrossValidatedError>,
}

#[derive(Clone, Debug, Serialize)]
pub struct RankedSchedule {
    pub time_ns: f64,
    pub knobs: Value,
}

/// Ranks the schedules in a file (output of `opcollect space`, or a build plan) and returns the `limit` fastest.
pub fn rank_schedules(
    predictor: &Predictor,
    path: &Path,
    op: &str,
    setting: &Setting,
    limit: usize,
) -> Result<RankedSchedules> {
    let wrong = |problem: String| Error::table_error(path, problem);
    let text = File::open(path).and_then(schedule_list::read_text);
    let text = text.map_err(|error| Error::io_error("read", path, error))?;
    let list = ScheduleList::parse_list(&text).map_err(wrong)?;
    let operator = queries::parse_operator(op, None)?;
    let none = || Error::table_error(path, format!("the file has no schedule of `{}`", operator.text));
    let schedules = list.schedules_of(&operator.text);
    if schedules.is_empty() {
        return Err(none());
    }
    let device = queries::find_device(predictor, setting)?;
    let threads = queries::assumed_threads(predictor, setting)?;
    let mut ranked = Vec::new();
    let mut held_out = None;
    for schedule in &schedules {
        let Some((_, extras)) = schedule.read_schedule().map_err(wrong)? else { continue };
        let threads = Some(threads.count);
        let query = Query { operator: &operator.name, work: &operator.work, device, threads, extras: &extras };
        let prediction = queries::translate_to_host(predictor, setting, &operator, predictor.predict(&query)?);
        held_out = prediction.held_out;
        ranked.push((prediction.time_ns, schedule));
    }
    if ranked.is_empty() {
        return Err(none());
    }
    ranked.sort_by(|one, two| one.0.total_cmp(&two.0));
    ranked.truncate(limit);
    // Only the returned schedules are kept as parsed JSON, which needs much memory.
    let of_rank = |(time_ns, schedule): (f64, &ListedSchedule<'_>)| {
        let read = schedule.read_schedule().map_err(wrong)?;
        Ok(read.map(|(knobs, _)| RankedSchedule { time_ns, knobs }))
    };
    let best = ranked.into_iter().filter_map(|one| of_rank(one).transpose()).collect::<Result<Vec<_>>>()?;
    Ok(RankedSchedules { operator: operator.text, best, threads, held_out })
}
