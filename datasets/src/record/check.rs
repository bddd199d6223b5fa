//! The rules of a record, checked before writing and after reading. The rules also make all formats lossless: they
//! exclude floats that JSON cannot represent, and empty texts and JSON `null`, which CSV and JSON cannot distinguish
//! from absent values.

use super::SCHEMA_VERSION;
use super::cell::Cell;
use super::column::Kind;
use super::key::Key;
use super::table::Column;
use super::table::{COLUMNS, Record};
use super::words::Outcome;
use crate::error::RowError;
use crate::limits::{MAX_SAMPLES, MAX_TEXT_BYTES};

/// Relative rounding error by which the mean may be below the smallest sample.
const ROUNDING: f64 = 1e-9;

impl Record {
    /// Checks all rules, and returns the first violation.
    pub fn check(&self) -> Result<(), RowError> {
        self.check_identity()?;
        for column in COLUMNS {
            check_cell(column, self.cell(column.id)).map_err(|error| error.in_field(column.name))?;
        }
        match self.outcome {
            Outcome::Ok => self.check_times(),
            _ => self.check_failure(),
        }
    }

    fn check_identity(&self) -> Result<(), RowError> {
        if self.schema_version > SCHEMA_VERSION {
            return Err(RowError::new(format!(
                "written with schema version {}, but this program supports only versions up to {SCHEMA_VERSION}",
                self.schema_version
            ))
            .in_field("schema_version")
            .with_hint("update the program"));
        }
        check_rule(self.schema_version >= 1, "schema_version", "the schema version must be at least 1")?;
        check_rule(self.key != Key::default(), "key", "the key is empty")?;
        check_rule(self.attempt >= 1, "attempt", "the attempt number must be at least 1")?;
        check_rule(self.started_at_us > 0, "started_at_us", "the time of the attempt is missing")?;
        check_rule(self.cache_share.is_none_or(|share| share <= 1.0), "cache_share", "the share is above 1")
    }

    fn check_times(&self) -> Result<(), RowError> {
        check_rule(self.reason.is_none(), "reason", "a record with the outcome `ok` must have an empty `reason`")?;
        check_rule(self.n >= 1, "n", "a record with the outcome `ok` needs at least one sample")?;
        let known = |time: Option<f64>, name| {
            time.ok_or_else(|| RowError::new("a record with the outcome `ok` needs this value").in_field(name))
        };
        let (min, median) = (known(self.min_ns, "min_ns")?, known(self.median_ns, "median_ns")?);
        let (mean, p95) = (known(self.mean_ns, "mean_ns")?, known(self.p95_ns, "p95_ns")?);
        check_rule(min <= median, "min_ns", "the minimum is above the median")?;
        check_rule(median <= p95, "p95_ns", "the 95th percentile is below the median")?;
        check_rule(mean >= min * (1.0 - ROUNDING), "mean_ns", "the mean is below the minimum")?;
        let is_below = self.median_low_ns.is_none_or(|low| low <= median);
        check_rule(is_below, "median_low_ns", "the interval's low end is above the median")?;
        let is_above = self.median_high_ns.is_none_or(|high| high >= median);
        check_rule(is_above, "median_high_ns", "the interval's high end is below the median")?;
        let kept = self.samples_ns.len() as u64 <= self.n as u64;
        check_rule(kept, "samples_ns", "the record has more samples than `n`")
    }

    fn check_failure(&self) -> Result<(), RowError> {
        check_rule(self.reason.is_some(), "reason", "a record whose outcome is not `ok` needs a reason")?;
        check_rule(
            self.n == 0 && self.samples_ns.is_empty(),
            "n",
            "a record whose outcome is not `ok` must not have samples",
        )?;
        let times = [
            ("median_ns", self.median_ns),
            ("mean_ns", self.mean_ns),
            ("min_ns", self.min_ns),
            ("p95_ns", self.p95_ns),
            ("std_ns", self.std_ns),
            ("cv", self.cv),
            ("first_run_ns", self.first_run_ns),
            ("median_interval_ns", self.median_interval_ns),
            ("median_low_ns", self.median_low_ns),
            ("median_high_ns", self.median_high_ns),
            ("visit_spread", self.visit_spread),
        ];
        times.iter().try_for_each(|(name, time)| {
            check_rule(time.is_none(), name, "a record whose outcome is not `ok` must not have times")
        })
    }
}

fn check_cell(column: &Column, cell: Cell<'_>) -> Result<(), RowError> {
    let wrong = |problem: &str, hint: &str| Err(RowError::new(problem).with_hint(hint));
    match cell {
        Cell::Float(value) if !value.is_finite() => wrong("the value is NaN or infinite", "leave the column empty"),
        Cell::Float(value) if value < 0.0 && column.unit != "value" => Err(RowError::new("the value is negative")),
        Cell::Integer(value) if value < 0 && column.unit != "number" => Err(RowError::new("the value is negative")),
        Cell::List(values) if values.iter().any(|value| !value.is_finite() || *value < 0.0) => {
            wrong("a value of the list is negative, NaN or infinite", "drop the sample and add a warning to `warnings`")
        }
        Cell::List(values) if values.len() > MAX_SAMPLES => {
            Err(RowError::new(format!("{} values, more than the limit of {MAX_SAMPLES}", values.len())))
        }
        Cell::Text(text) if text.len() > MAX_TEXT_BYTES => {
            Err(RowError::new(format!("{} bytes, more than the limit of {MAX_TEXT_BYTES}", text.len())))
        }
        Cell::Text("") if column.nullable => wrong("the text is empty", "leave the column empty instead"),
        Cell::Text("") => Err(RowError::new("the text is empty, but the column is required")),
        Cell::Text("null") if column.kind == Kind::Json => {
            wrong("the JSON is `null`", "leave the column empty instead")
        }
        _ => Ok(()),
    }
}

fn check_rule(holds: bool, field: &str, problem: &str) -> Result<(), RowError> {
    if holds { Ok(()) } else { Err(RowError::new(problem).in_field(field)) }
}
