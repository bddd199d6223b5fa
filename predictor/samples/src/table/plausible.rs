//! Whether rows can be what their mapping says they are: a wrong mapping reads well, and everything learned of it is wrong.
//!
//! Times no device could reach are in another unit or of other devices; operands that do not fit a device's memory are of
//! other sizes. Roofline and memory do not tell which factor of a product is which, but what was launched does: more threads
//! stand ready where there are more outputs. So where a table has launch grids, every exchange of two columns is tried, and
//! one that explains the grids far better than the mapping does is a mistake of the mapping.

use super::Table;
use super::mapping::{Mapping, Shape, numbers};
use crate::error::{Error, Result};
use crate::features::{Device, Form, Work, attainable_ns};
use crate::samples::RawSample;
use crate::statistics::pearson;
use std::collections::BTreeMap;
use std::path::Path;

/// Names under which launch grids and blocks stand among what is known after the run.
const LAUNCH: [&str; 6] = ["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"];
/// The share of an operator's rows that may be impossible: rows have faults of their own.
const DOUBTFUL: f64 = 0.001;
/// The share from which on the mapping is refused.
const WRONG: f64 = 0.1;
/// Rows below which launches say too little.
const FEWEST: usize = 100;
/// The registers of a GPU's thread: it can keep no more sums.
const REGISTERS: f64 = 255.0;

/// Rows of a table with their mapping.
pub(super) struct PlausibleRows<'a> {
    pub path: &'a Path,
    pub table: &'a Table,
    pub mapping: &'a Mapping,
    pub questions: &'a [RawSample],
    pub times_ns: &'a [f64],
}

impl PlausibleRows<'_> {
    /// Refuses what cannot be; says what is doubtful.
    pub(super) fn check(&self) -> Result<Vec<String>> {
        self.check_unit()?;
        let launched = self.launched()?;
        let mut warnings = Vec::new();
        for (operator, rows) in self.by_operator() {
            let Some(shape) = self.mapping.shape(operator) else { continue };
            let of = OperatorRows { table: self, operator, shape, rows };
            warnings.extend(of.check_launches(launched.as_deref())?);
            warnings.extend(
                of.check_rows("take less time than their device needs at its peak", |row| self.is_too_fast(row))?,
            );
            warnings.extend(
                of.check_rows("have operands that do not fit their device's memory", |row| self.is_too_large(row))?,
            );
            warnings.extend(of.check_rows("have sizes that are not whole numbers", |row| self.is_broken(row))?);
        }
        Ok(warnings)
    }

    /// Refuses a table most of whose times no device could have reached: they are in another unit than the mapping says.
    fn check_unit(&self) -> Result<()> {
        /// Caches make operators faster than main memory allows, but not by so much.
        const FASTEST: f64 = 0.05;
        let known: Vec<usize> = (0..self.times_ns.len()).filter(|row| self.is_usable(*row)).collect();
        let least_ns =
            |row: usize| attainable_ns(&self.questions[row].work, self.device(row), self.questions[row].threads);
        let too_fast = known.iter().filter(|row| self.times_ns[**row] < FASTEST * least_ns(**row)).count();
        if 2 * too_fast <= known.len() {
            return Ok(());
        }
        let (column, unit) = self.mapping.time();
        let of = known.len();
        Err(Error::table(
            self.path,
            format!(
                "{too_fast} of {of} times are shorter than a twentieth of what their devices need; is `{column}` in another unit than `{unit}`?"
            ),
        ))
    }

    /// Threads that were launched for each row; blocks where a table has no threads, nothing where it has neither.
    fn launched(&self) -> Result<Option<Vec<f64>>> {
        let is_launch = |name: &&String| LAUNCH.contains(&name.as_str()) && self.table.column(name).is_some();
        let names: Vec<&String> = self.mapping.after_run().iter().filter(is_launch).collect();
        let mut launched = vec![1.0; self.table.rows];
        for name in &names {
            let extents = numbers(self.path, self.table, name)?;
            launched.iter_mut().zip(extents).for_each(|(threads, extent)| *threads *= extent);
        }
        Ok((!names.is_empty()).then_some(launched))
    }

    fn by_operator(&self) -> BTreeMap<&str, Vec<usize>> {
        let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for row in (0..self.questions.len()).filter(|row| self.is_usable(*row)) {
            groups.entry(&self.questions[row].operator).or_default().push(row);
        }
        groups
    }

    fn device(&self, row: usize) -> &Device {
        // Devices are numbered in the order of the mapping.
        self.mapping
            .devices()
            .values()
            .nth(self.questions[row].device as usize)
            .expect("questions are of described devices")
    }

    /// Whether a row becomes a sample at all; others are counted.
    fn is_usable(&self, row: usize) -> bool {
        self.questions[row].work.is_sound() && self.times_ns[row] > 0.0
    }

    fn is_too_fast(&self, row: usize) -> bool {
        self.times_ns[row] < least_ns(&self.questions[row].work, self.device(row))
    }

    fn is_too_large(&self, row: usize) -> bool {
        let memory = self.device(row).memory_bytes;
        memory > 0.0 && self.questions[row].work.bytes() > memory
    }

    fn is_broken(&self, row: usize) -> bool {
        let work = &self.questions[row].work;
        [work.batch, work.rows, work.columns, work.depth].iter().any(|size| size.fract() != 0.0)
    }
}

/// The time below which a row cannot be: arithmetic at the peak, or bytes that no cache held at full bandwidth.
fn least_ns(work: &Work, device: &Device) -> f64 {
    /// Factor by which Winograd convolution reduces multiplications.
    const FILTERING: f64 = 4.0;
    let saved = if work.form == Form::Convolution && work.taps > 1.0 { FILTERING } else { 1.0 };
    let bytes = (work.bytes() - device.cache_bytes).max(0.0);
    (work.flops / saved / device.flops_per_ns()).max(bytes / device.bytes_per_ns())
}

/// The usable rows of one operator.
struct OperatorRows<'a> {
    table: &'a PlausibleRows<'a>,
    operator: &'a str,
    shape: &'a Shape,
    rows: Vec<usize>,
}

impl OperatorRows<'_> {
    /// Counts rows of a kind that should not be: few are let pass, more are doubtful, many are refused.
    fn check_rows(&self, what: &str, is_bad: impl Fn(usize) -> bool) -> Result<Option<String>> {
        let bad: Vec<usize> = self.rows.iter().copied().filter(|row| is_bad(*row)).collect();
        let share = bad.len() as f64 / self.rows.len() as f64;
        let Some(first) = bad.first().filter(|_| share > DOUBTFUL) else { return Ok(None) };
        let (row, of, operator, time) = (first + 1, self.rows.len(), self.operator, self.table.mapping.time().0);
        let problem = format!(
            "{} of {of} rows of `{operator}` {what}, first row {row}; check the mapping of `{operator}` ({}), the time `{time}` and the device `{}`",
            bad.len(),
            self.said(self.shape),
            self.device_name(*first),
        );
        match share > WRONG {
            true => Err(Error::table(self.table.path, problem)),
            false => Ok(Some(format!("`{}`: {problem}", self.table.path.display()))),
        }
    }

    /// Refuses a mapping whose outputs go worse with what was launched than those of another one would.
    fn check_launches(&self, launched: Option<&[f64]>) -> Result<Option<String>> {
        let Some(launched) = launched.filter(|_| self.rows.len() >= FEWEST) else { return Ok(None) };
        let unexplained = |shape: &Shape| 1.0 - self.agreement(shape, launched);
        let columns = self.shape.columns();
        let pairs =
            columns.iter().enumerate().flat_map(|(place, one)| columns[..place].iter().map(move |two| (one.1, two.1)));
        let exchanged =
            pairs.map(|(one, two)| self.shape.exchanged(one, two)).map(|shape| (unexplained(&shape), shape));
        let own = unexplained(self.shape);
        // Launches are never explained wholly; what leaves less than half of the rest open is no chance.
        if let Some((rest, better)) =
            exchanged.min_by(|one, two| one.0.total_cmp(&two.0)).filter(|(rest, _)| *rest < own / 2.0)
        {
            let problem = format!(
                "the launch grids of `{}` do not go with its sizes as the mapping has them ({}; correlation of outputs and threads {:.2}), but would with {} ({:.2}); correct the mapping",
                self.operator,
                self.said(self.shape),
                1.0 - own,
                self.differing(&better),
                1.0 - rest,
            );
            return Err(Error::table(self.table.path, problem));
        }
        if self.shape.form != Form::Contraction {
            return Ok(None);
        }
        let is_too_much = |row: usize| outputs(&self.table.questions[row].work) > REGISTERS * launched[row];
        self.check_crowding(&is_too_much)
    }

    /// Doubts products whose threads would each have to keep more sums than they have registers. Kernels may take
    /// several tiles in turns, so this alone refuses nothing.
    fn check_crowding(&self, is_too_much: &dyn Fn(usize) -> bool) -> Result<Option<String>> {
        let crowded = self.rows.iter().filter(|row| is_too_much(**row)).count();
        let problem = || {
            format!(
                "`{}`: {crowded} of {} rows of `{}` have more outputs for each launched thread than it has registers; check the mapping of `{}` ({})",
                self.table.path.display(),
                self.rows.len(),
                self.operator,
                self.operator,
                self.said(self.shape),
            )
        };
        Ok((crowded as f64 > DOUBTFUL * self.rows.len() as f64).then(problem))
    }

    /// How outputs go with launched threads, from row to row.
    fn agreement(&self, shape: &Shape, launched: &[f64]) -> f64 {
        let Ok(columns) = self.columns(shape) else { return 0.0 };
        let pair = |row: &usize| {
            let work = shape.work_of(&|name| columns.get(name).map(|column| column[*row]));
            (outputs(&work).ln(), launched[*row].ln())
        };
        let pairs = self.rows.iter().map(pair).filter(|(one, two)| one.is_finite() && two.is_finite());
        let (outputs, threads): (Vec<f64>, Vec<f64>) = pairs.unzip();
        match outputs.len() == self.rows.len() {
            true => pearson(&outputs, &threads),
            false => 0.0,
        }
    }

    fn columns(&self, shape: &Shape) -> Result<BTreeMap<String, &[f64]>> {
        let column = |(_, name): (&str, &str)| Ok((name.to_owned(), numbers(self.table.path, self.table.table, name)?));
        shape.columns().into_iter().map(column).collect()
    }

    /// What a mapping says, in its own words.
    fn said(&self, shape: &Shape) -> String {
        let said: Vec<String> =
            shape.columns().into_iter().map(|(word, column)| format!("{word} = \"{column}\"")).collect();
        said.join(", ")
    }

    /// The same of what another mapping says otherwise.
    fn differing(&self, other: &Shape) -> String {
        let own = self.shape.columns();
        let other = other.columns().into_iter().filter(|one| !own.contains(one));
        other.map(|(word, column)| format!("{word} = \"{column}\"")).collect::<Vec<_>>().join(", ")
    }

    fn device_name(&self, row: usize) -> &str {
        let place = self.table.questions[row].device as usize;
        self.table.mapping.devices().keys().nth(place).map_or("", String::as_str)
    }
}

/// Elements of the output.
fn outputs(work: &Work) -> f64 {
    work.bytes_out / work.element_bytes
}
