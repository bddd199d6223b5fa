//! Ranks the schedules of a schedule space by predicted time.

use super::texts::{NOT_RECORDED, error_text, on_threads};
use super::{Predict, read_setting};
use crate::{DONE, print_json, print_text, stdout_paper};
use learn::predictor::Predictor;
use predictor::answers::rank_schedules;
use predictor::{Error, Result};
use report::{Cell, Table, format_duration, number_column, text_column};
use serde_json::json;
use std::path::Path;

/// Prints the schedules with the smallest predicted times, from a schedule space or a build folder.
pub fn print_schedules(predictor: &Predictor, path: &Path, predict: &Predict) -> Result<u8> {
    let [op] = &predict.op[..] else {
        return Err(Error::Query("--space needs exactly one --op".to_owned()));
    };
    let ranked = rank_schedules(predictor, path, op, &read_setting(predict)?, predict.best.get())?;
    let mut table = Table::new([number_column("time"), text_column("schedule")]);
    for (place, one) in ranked.best.iter().enumerate() {
        let named = one.knobs.as_object().into_iter().flatten();
        let named: Vec<_> =
            named.map(|(name, value)| format!("{name}={}", value.to_string().replace('"', ""))).collect();
        let time = Cell::from(format_duration(one.time_ns));
        table.add_row([if place == 0 { time.mark_best() } else { time }, named.join(" ").into()]);
    }
    let errors = ranked
        .held_out
        .map_or_else(|| NOT_RECORDED.to_owned(), |error| format!("held-out error {}", error_text(&error)));
    print_text(
        predict.json,
        &format!("{}\n{}; {errors}", table.format_for(&stdout_paper()), on_threads(&ranked.threads)),
    )?;
    if predict.json {
        print_json(&json!(ranked))?;
    }
    Ok(DONE)
}
