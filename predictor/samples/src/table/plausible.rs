//! Checks whether rows are plausible under their mapping, because a wrong mapping causes no error when it is read.
//!
//! Times below what a device can reach indicate a wrong unit or device; operands larger than its memory, wrong sizes.
//! If a table has launch grids, every exchange of two columns is tried, because more threads are launched for more
//! outputs. The mapping is rejected if an exchange explains the grids far better.

use super::Table;
use super::mapping::{Mapping, Shape, number_column};
use crate::error::{Error, Result};
use crate::features::{Device, Form, Work, attainable_ns};
use crate::samples::RawSample;
use crate::statistics::{median, pearson};
use std::collections::BTreeMap;
use std::path::Path;

const LAUNCH: [&str; 6] = ["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"];
/// Share of implausible rows per operator up to which no warning is given.
const DOUBTFUL: f64 = 0.001;
/// Share of implausible rows per operator above which the mapping is rejected.
const WRONG: f64 = 0.1;
const FEWEST: usize = 100;
/// Median ratio of time to bound above which the unit of the time is probably wrong. Slow code reaches a hundredth of
/// the peak; units differ by a factor of a thousand.
pub const MOST_OVER_BOUND: f64 = 300.0;
/// Number of registers of a GPU thread, which limits the number of output elements that a thread can accumulate.
const REGISTERS: f64 = 255.0;

pub(super) struct PlausibleRows<'a> {
    pub path: &'a Path,
    pub table: &'a Table,
    pub mapping: &'a Mapping,
    pub questions: &'a [RawSample],
    pub times_ns: &'a [f64],
}

impl PlausibleRows<'_> {
    pub(super) fn check_plausible(&self) -> Result<Vec<String>> {
        self.check_unit()?;
        let launched = self.launched_threads()?;
        let mut warnings: Vec<String> = self.long_times_warning().into_iter().collect();
        for (operator, rows) in self.by_operator() {
            let Some(shape) = self.mapping.shape_of(operator) else { continue };
            let operator_rows = OperatorRows { table: self, operator, shape, rows };
            warnings.extend(operator_rows.check_launches(launched.as_deref())?);
            warnings.extend(
                operator_rows
                    .check_rows("are faster than the peak of their device allows", |row| self.is_too_fast(row))?,
            );
            warnings
                .extend(operator_rows.check_rows("have operands larger than the memory of their device", |row| {
                    self.is_too_large(row)
                })?);
            warnings
                .extend(operator_rows.check_rows("have sizes that are not whole numbers", |row| self.is_broken(row))?);
        }
        Ok(warnings)
    }

    fn usable_rows(&self) -> Vec<usize> {
        (0..self.times_ns.len()).filter(|row| self.is_usable(*row)).collect()
    }

    fn attainable_ns(&self, row: usize) -> f64 {
        attainable_ns(&self.questions[row].work, self.device_of_row(row), self.questions[row].threads)
    }

    /// Rejects a table in which most times are far below the lower bound, which indicates a wrong unit.
    fn check_unit(&self) -> Result<()> {
        /// Times below this share of the bound are impossible, even if all data is in the caches.
        const FASTEST: f64 = 0.05;
        let known = self.usable_rows();
        let too_fast = known.iter().filter(|row| self.times_ns[**row] < FASTEST * self.attainable_ns(**row)).count();
        if 2 * too_fast <= known.len() {
            return Ok(());
        }
        let (column, unit) = self.mapping.time_column();
        let usable = known.len();
        Err(Error::table_error(
            self.path,
            format!(
                "{too_fast} of {usable} times are below a twentieth of the lower bound of their devices; the unit of `{column}` is probably not `{unit}`"
            ),
        ))
    }

    /// Returns a warning about a table in which most times are far above the lower bound, which indicates a wrong unit.
    fn long_times_warning(&self) -> Option<String> {
        /// Time below which an operator mostly measures its launch.
        const WORK_NS: f64 = 10_000.0;
        let long = |row: usize| Some(self.attainable_ns(row)).filter(|bound_ns| *bound_ns >= WORK_NS);
        let mut ratios: Vec<f64> =
            self.usable_rows().into_iter().filter_map(|row| Some(self.times_ns[row] / long(row)?)).collect();
        if ratios.len() < FEWEST {
            return None;
        }
        let ratio = median(&mut ratios);
        let (column, unit) = self.mapping.time_column();
        (ratio > MOST_OVER_BOUND).then(|| {
            format!(
                "`{}`: the median time is {ratio:.0} times the lower bound of its device; check that the unit of `{column}` is `{unit}`",
                self.path.display()
            )
        })
    }

    /// Returns the launched threads by row, or blocks if only grids are given; None without launch columns.
    fn launched_threads(&self) -> Result<Option<Vec<f64>>> {
        let is_launch = |name: &&String| LAUNCH.contains(&name.as_str()) && self.table.find_column(name).is_some();
        let names: Vec<&String> = self.mapping.after_run().iter().filter(is_launch).collect();
        let mut launched = vec![1.0; self.table.rows];
        for name in &names {
            let extents = number_column(self.path, self.table, name)?;
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

    fn device_of_row(&self, row: usize) -> &Device {
        // Devices are numbered in the order of the mapping.
        self.mapping
            .described_devices()
            .values()
            .nth(self.questions[row].device as usize)
            .expect("every device is described")
    }

    fn is_usable(&self, row: usize) -> bool {
        self.questions[row].work.is_sound() && self.times_ns[row] > 0.0
    }

    fn is_too_fast(&self, row: usize) -> bool {
        self.times_ns[row] < least_ns(&self.questions[row].work, self.device_of_row(row))
    }

    fn is_too_large(&self, row: usize) -> bool {
        let memory = self.device_of_row(row).memory_bytes;
        memory > 0.0 && self.questions[row].work.bytes() > memory
    }

    fn is_broken(&self, row: usize) -> bool {
        let work = &self.questions[row].work;
        [work.batch, work.rows, work.columns, work.depth].iter().any(|size| size.fract() != 0.0)
    }
}

/// Returns the least plausible time: arithmetic at peak rate, or bytes beyond the cache at full bandwidth.
fn least_ns(work: &Work, device: &Device) -> f64 {
    /// Factor by which Winograd convolution reduces the number of multiplications.
    const FILTERING: f64 = 4.0;
    let saved = if work.form == Form::Convolution && work.taps > 1.0 { FILTERING } else { 1.0 };
    let bytes = (work.bytes() - device.cache_bytes).max(0.0);
    (work.flops / saved / device.flops_per_ns()).max(bytes / device.bytes_per_ns())
}

struct OperatorRows<'a> {
    table: &'a PlausibleRows<'a>,
    operator: &'a str,
    shape: &'a Shape,
    rows: Vec<usize>,
}

impl OperatorRows<'_> {
    /// Counts implausible rows: few are tolerated, more cause a warning, many are rejected.
    fn check_rows(&self, what: &str, is_bad: impl Fn(usize) -> bool) -> Result<Option<String>> {
        let bad: Vec<usize> = self.rows.iter().copied().filter(|row| is_bad(*row)).collect();
        let share = bad.len() as f64 / self.rows.len() as f64;
        let Some(first) = bad.first().filter(|_| share > DOUBTFUL) else { return Ok(None) };
        let (row, all, operator, time) =
            (first + 1, self.rows.len(), self.operator, self.table.mapping.time_column().0);
        let problem = format!(
            "{} of {all} rows of `{operator}` {what}, first row {row}; check the mapping of `{operator}` ({}), the time `{time}` and the device `{}`",
            bad.len(),
            self.describe_shape(self.shape),
            self.device_name(*first),
        );
        match share > WRONG {
            true => Err(Error::table_error(self.table.path, problem)),
            false => Ok(Some(format!("`{}`: {problem}", self.table.path.display()))),
        }
    }

    fn check_launches(&self, launched: Option<&[f64]>) -> Result<Option<String>> {
        let Some(launched) = launched.filter(|_| self.rows.len() >= FEWEST) else { return Ok(None) };
        let unexplained = |shape: &Shape| 1.0 - self.launch_correlation(shape, launched);
        let columns = self.shape.size_columns();
        let pairs =
            columns.iter().enumerate().flat_map(|(place, one)| columns[..place].iter().map(move |two| (one.1, two.1)));
        let exchanged =
            pairs.map(|(one, two)| self.shape.swap_columns(one, two)).map(|shape| (unexplained(&shape), shape));
        let own = unexplained(self.shape);
        // Sizes never explain launches completely. An exchange that halves the unexplained part is not a coincidence.
        if let Some((rest, better)) =
            exchanged.min_by(|one, two| one.0.total_cmp(&two.0)).filter(|(rest, _)| *rest < own / 2.0)
        {
            let problem = format!(
                "the launch grids of `{}` contradict the mapping of its sizes ({}; correlation of outputs and threads {:.2}), but agree with {} (correlation {:.2}); correct the mapping",
                self.operator,
                self.describe_shape(self.shape),
                1.0 - own,
                self.describe_difference(&better),
                1.0 - rest,
            );
            return Err(Error::table_error(self.table.path, problem));
        }
        if self.shape.form != Form::Contraction {
            return Ok(None);
        }
        let is_too_much = |row: usize| output_elements(&self.table.questions[row].work) > REGISTERS * launched[row];
        self.check_crowding(&is_too_much)
    }

    /// Warns about more outputs per thread than registers; no error, because kernels may process tiles sequentially.
    fn check_crowding(&self, is_too_much: &dyn Fn(usize) -> bool) -> Result<Option<String>> {
        let crowded = self.rows.iter().filter(|row| is_too_much(**row)).count();
        let problem = || {
            format!(
                "`{}`: {crowded} of {} rows of `{}` have more output elements per launched thread than a thread has registers; check the mapping of `{}` ({})",
                self.table.path.display(),
                self.rows.len(),
                self.operator,
                self.operator,
                self.describe_shape(self.shape),
            )
        };
        Ok((crowded as f64 > DOUBTFUL * self.rows.len() as f64).then(problem))
    }

    fn launch_correlation(&self, shape: &Shape, launched: &[f64]) -> f64 {
        let Ok(columns) = self.shape_columns(shape) else { return 0.0 };
        let pair = |row: &usize| {
            let work = shape.work_of(&|name| columns.get(name).map(|column| column[*row]));
            (output_elements(&work).ln(), launched[*row].ln())
        };
        let pairs = self.rows.iter().map(pair).filter(|(one, two)| one.is_finite() && two.is_finite());
        let (outputs, threads): (Vec<f64>, Vec<f64>) = pairs.unzip();
        match outputs.len() == self.rows.len() {
            true => pearson(&outputs, &threads),
            false => 0.0,
        }
    }

    fn shape_columns(&self, shape: &Shape) -> Result<BTreeMap<String, &[f64]>> {
        let column =
            |(_, name): (&str, &str)| Ok((name.to_owned(), number_column(self.table.path, self.table.table, name)?));
        shape.size_columns().into_iter().map(column).collect()
    }

    fn describe_shape(&self, shape: &Shape) -> String {
        let said: Vec<String> =
            shape.size_columns().into_iter().map(|(word, column)| format!("{word} = \"{column}\"")).collect();
        said.join(", ")
    }

    fn describe_difference(&self, other: &Shape) -> String {
        let own = self.shape.size_columns();
        let other = other.size_columns().into_iter().filter(|one| !own.contains(one));
        other.map(|(word, column)| format!("{word} = \"{column}\"")).collect::<Vec<_>>().join(", ")
    }

    fn device_name(&self, row: usize) -> &str {
        let place = self.table.questions[row].device as usize;
        self.table.mapping.described_devices().keys().nth(place).map_or("", String::as_str)
    }
}

fn output_elements(work: &Work) -> f64 {
    work.bytes_out / work.element_bytes
}
