//! What the columns of a foreign table mean: a TOML file that names the operator, the device, the time and the sizes.
//!
//! Every column must be spoken for, as a size, a key or under `after_run`; an unknown one is an error, because silently
//! unused columns are how units get mixed up.

use super::{Cells, Table, TableColumn};
use crate::error::{Error, Result};
use crate::features::{Device, Form, Work};
use crate::samples::RawSample;
use crate::stand_in::StandIn;
use crate::text::read_bounded;
use models::names;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A mapping file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    operator: String,
    device: String,
    pub(super) time: Time,
    /// The neural network a row comes from.
    model: Option<String>,
    /// Spread of the measurement, standard deviation over mean.
    pub(super) cv: Option<String>,
    /// What a library chose, such as the name of its kernel. Known only after the run, so it is guessed for questions.
    choice: Option<String>,
    #[serde(default)]
    after_run: Vec<String>,
    pub(super) operators: BTreeMap<String, Shape>,
    pub(super) devices: BTreeMap<String, Device>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Time {
    pub(super) column: String,
    pub(super) unit: Unit,
}

impl Time {
    /// Returns what is wrong if the column's name ends in another unit.
    pub(super) fn contradiction(&self) -> Option<String> {
        let other = Unit::of_column(&self.column).filter(|unit| *unit != self.unit)?;
        let (column, unit) = (&self.column, self.unit.name());
        Some(format!("the column `{column}` ends in `{}`, but its unit is given as `{unit}`", other.name()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Unit {
    Ns,
    Us,
    Ms,
    S,
}

impl Unit {
    pub(super) fn nanoseconds(self) -> f64 {
        match self {
            Unit::Ns => 1.0,
            Unit::Us => 1e3,
            Unit::Ms => 1e6,
            Unit::S => 1e9,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Unit::Ns => "ns",
            Unit::Us => "us",
            Unit::Ms => "ms",
            Unit::S => "s",
        }
    }

    /// The unit that the name of a column ends with, if any.
    fn of_column(name: &str) -> Option<Unit> {
        let (_, end) = name.rsplit_once('_')?;
        [Unit::Ns, Unit::Us, Unit::Ms, Unit::S].into_iter().find(|unit| unit.name() == end)
    }
}

/// A column, or the same number in every row.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Size {
    Column(String),
    Number(f64),
}

impl Size {
    fn column(&self) -> Option<&str> {
        match self {
            Size::Column(name) => Some(name),
            Size::Number(_) => None,
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Shape {
    pub(super) form: Form,
    batch: Option<Size>,
    rows: Option<Size>,
    columns: Option<Size>,
    depth: Option<Size>,
    #[serde(default)]
    shared: bool,
    inputs: Option<Size>,
    outputs: Option<Size>,
    kernel: Option<Size>,
    size: Option<Size>,
    stride: Option<Size>,
    pad: Option<Size>,
    operands: Option<Size>,
    flops_per_element: Option<Size>,
    /// Operators of neural networks, by the names of their tasks, that are this one.
    #[serde(default)]
    kinds: Vec<String>,
}

impl Mapping {
    /// Reads a mapping file.
    pub fn read(path: &Path) -> Result<Mapping> {
        /// More than a mapping of any table takes.
        const BYTES_MAX: u64 = 4 << 20;
        Mapping::parse(&read_bounded(path, BYTES_MAX)?, path)
    }

    /// The mapping of a text; its file is only named in errors.
    pub fn parse(text: &str, path: &Path) -> Result<Mapping> {
        let mapping: Mapping =
            toml::from_str(text).map_err(|error| Error::table(path, names::with_hint(&error.to_string())))?;
        if let Some(problem) = mapping.time.contradiction() {
            return Err(Error::table(path, problem));
        }
        match mapping.devices.iter().find(|(_, device)| !device.is_sound()) {
            Some((name, _)) => {
                Err(Error::table(path, format!("the device `{name}` has a number that is not positive")))
            }
            None => Ok(mapping),
        }
    }

    /// The column that holds the time, and its unit.
    pub(super) fn time(&self) -> (&str, &'static str) {
        (&self.time.column, self.time.unit.name())
    }

    /// The columns that are known only after a run.
    pub(super) fn after_run(&self) -> &[String] {
        &self.after_run
    }

    /// The columns that are no features: the library's choice and what is known only after a run.
    pub(super) fn unused(&self) -> impl Iterator<Item = &str> {
        self.choice.iter().chain(&self.after_run).map(String::as_str)
    }

    /// What the columns of an operator mean.
    pub(super) fn shape(&self, operator: &str) -> Option<&Shape> {
        self.operators.get(operator)
    }

    /// The devices it describes.
    pub fn devices(&self) -> &BTreeMap<String, Device> {
        &self.devices
    }

    /// The columns that hold the operator's and the device's name.
    pub fn key_columns(&self) -> (&str, &str) {
        (&self.operator, &self.device)
    }

    /// The sizes of one of its operators from numbers by the names of their columns.
    pub fn work(&self, operator: &str, given: &BTreeMap<&str, f64>) -> std::result::Result<Work, String> {
        let shape = self.operators.get(operator).ok_or_else(|| {
            let hint = names::hint(operator, self.operators.keys().map(String::as_str));
            format!("the mapping does not describe `{operator}`; {hint}")
        })?;
        if let [first, ..] = shape.missing()[..] {
            return Err(format!("the mapping lacks `{first}`"));
        }
        for size in shape.sizes() {
            if let Size::Column(name) = size
                && !given.contains_key(name.as_str())
            {
                return Err(format!("`{name}` is missing"));
            }
        }
        Ok(shape.work_of(&|name| given.get(name).copied()))
    }

    /// What operators of neural networks are among its own, by the names of their tasks.
    pub fn stand_ins(&self) -> BTreeMap<String, Vec<StandIn>> {
        let mut stand_ins: BTreeMap<String, Vec<StandIn>> = BTreeMap::new();
        for (operator, shape) in &self.operators {
            for kind in &shape.kinds {
                stand_ins.entry(kind.clone()).or_default().push(shape.stand_in(operator));
            }
        }
        stand_ins
    }

    /// The columns that mean something.
    pub fn columns(&self) -> BTreeSet<&str> {
        let sizes = self.operators.values().flat_map(Shape::sizes).filter_map(Size::column);
        let keys = [&self.operator, &self.device, &self.time.column];
        let rest = keys.into_iter().chain(&self.model).chain(&self.cv).chain(&self.choice).chain(&self.after_run);
        sizes.chain(rest.map(String::as_str)).collect()
    }
}

impl Shape {
    fn stand_in(&self, operator: &str) -> StandIn {
        let number = |size: &Option<Size>| match size {
            Some(Size::Number(number)) => Some(*number),
            Some(Size::Column(_)) | None => None,
        };
        StandIn {
            operator: operator.to_owned(),
            form: self.form,
            shared: self.shared,
            operands: number(&self.operands),
            flops_per_element: number(&self.flops_per_element),
        }
    }

    /// What sizes are called that are columns of the table, by the names of their features, which are the mapping's words.
    pub(super) fn size_names(&self) -> BTreeMap<String, String> {
        self.columns().into_iter().map(|(word, name)| (word.to_owned(), format!("`{name}`"))).collect()
    }

    /// Every size it gives, with the mapping's word for it.
    fn named(&self) -> impl Iterator<Item = (&'static str, &Size)> {
        let all = [
            ("batch", &self.batch),
            ("rows", &self.rows),
            ("columns", &self.columns),
            ("depth", &self.depth),
            ("inputs", &self.inputs),
            ("outputs", &self.outputs),
            ("kernel", &self.kernel),
            ("size", &self.size),
            ("stride", &self.stride),
            ("pad", &self.pad),
            ("operands", &self.operands),
            ("flops_per_element", &self.flops_per_element),
        ];
        all.into_iter().filter_map(|(word, size)| Some((word, size.as_ref()?)))
    }

    fn sizes(&self) -> impl Iterator<Item = &Size> {
        self.named().map(|(_, size)| size)
    }

    /// The sizes that stand in columns: the mapping's word and the column's name.
    pub(super) fn columns(&self) -> Vec<(&'static str, &str)> {
        let named = self.named().filter_map(|(word, size)| Some((word, size.column()?)));
        named.collect()
    }

    /// The same with two columns exchanged.
    pub(super) fn exchanged(&self, one: &str, two: &str) -> Shape {
        let mut shape = self.clone();
        let sizes = [
            &mut shape.batch,
            &mut shape.rows,
            &mut shape.columns,
            &mut shape.depth,
            &mut shape.inputs,
            &mut shape.outputs,
            &mut shape.kernel,
            &mut shape.size,
            &mut shape.stride,
            &mut shape.pad,
            &mut shape.operands,
            &mut shape.flops_per_element,
        ];
        for size in sizes {
            if let Some(Size::Column(name)) = size {
                *name = if name == one {
                    two
                } else if name == two {
                    one
                } else {
                    name.as_str()
                }
                .to_owned();
            }
        }
        shape
    }

    /// Work from numbers by the names of their columns.
    pub(super) fn work_of(&self, given: &impl Fn(&str) -> Option<f64>) -> Work {
        self.work(&|size| match size {
            Some(Size::Number(number)) => *number,
            Some(Size::Column(name)) => given(name).unwrap_or(f64::NAN),
            None => f64::NAN,
        })
    }

    fn work(&self, of: &impl Fn(&Option<Size>) -> f64) -> Work {
        match self.form {
            Form::Contraction => {
                Work::contraction(of(&self.batch), of(&self.rows), of(&self.columns), of(&self.depth), self.shared)
            }
            Form::Convolution => Work::convolution(
                of(&self.batch),
                of(&self.inputs),
                of(&self.outputs),
                of(&self.kernel),
                of(&self.size),
                of(&self.stride),
                of(&self.pad),
            ),
            Form::Rows => Work::rows(of(&self.rows), of(&self.columns), of(&self.flops_per_element)),
            Form::Pointwise | Form::Other => Work::pointwise(of(&self.rows), of(&self.columns), of(&self.operands)),
        }
    }

    /// Sizes that the form needs and the mapping does not give.
    fn missing(&self) -> Vec<&'static str> {
        let needed: &[(&'static str, &Option<Size>)] = match self.form {
            Form::Contraction => {
                &[("batch", &self.batch), ("rows", &self.rows), ("columns", &self.columns), ("depth", &self.depth)]
            }
            Form::Convolution => &[
                ("batch", &self.batch),
                ("inputs", &self.inputs),
                ("outputs", &self.outputs),
                ("kernel", &self.kernel),
                ("size", &self.size),
                ("stride", &self.stride),
                ("pad", &self.pad),
            ],
            Form::Rows => {
                &[("rows", &self.rows), ("columns", &self.columns), ("flops_per_element", &self.flops_per_element)]
            }
            Form::Pointwise | Form::Other => {
                &[("rows", &self.rows), ("columns", &self.columns), ("operands", &self.operands)]
            }
        };
        needed.iter().filter(|(_, size)| size.is_none()).map(|(name, _)| *name).collect()
    }
}

pub(super) fn in_table(path: &Path, table: &Table, mapping: &Mapping) -> Result<Vec<RawSample>> {
    let known = mapping.columns();
    if let Some(column) = table.columns.iter().find(|column| !known.contains(column.name.as_str())) {
        let problem = format!("the mapping lacks the column `{}`; add it, or list it under `after_run`", column.name);
        return Err(Error::table(path, problem));
    }
    let operators = words(path, table, &mapping.operator)?;
    let devices = words(path, table, &mapping.device)?;
    let models = mapping.model.as_ref().map(|name| words(path, table, name)).transpose()?;
    let choices = mapping.choice.as_ref().map(|name| words(path, table, name)).transpose()?;
    let mut shapes = Vec::new();
    for word in operators.0 {
        shapes.push(bound(path, table, mapping, word)?);
    }
    let mut questions = Vec::with_capacity(table.rows);
    for row in 0..table.rows {
        let device = &devices.0[devices.1[row] as usize];
        let Some(place) = mapping.devices.keys().position(|known| known == device) else {
            let problem = format!(
                "row {} is of the device `{device}`, which the mapping does not describe; add a table `[devices.\"{device}\"]`",
                row + 1
            );
            return Err(Error::table(path, problem));
        };
        let operator = operators.1[row] as usize;
        let (shape, columns) = &shapes[operator];
        questions.push(RawSample {
            operator: operators.0[operator].clone(),
            device: place as u32,
            model: models.as_ref().map_or_else(String::new, |models| models.0[models.1[row] as usize].clone()),
            detail: String::new(),
            work: shape.work_of(&|name| columns.get(name).map(|column| column[row])),
            threads: mapping.devices[device].units,
            is_default: true,
            extras: BTreeMap::new(),
            choice: choices.as_ref().map(|choices| choices.0[choices.1[row] as usize].clone()),
            text: String::new(),
        });
    }
    Ok(questions)
}

/// An operator's shape with the columns it reads.
fn bound<'a>(
    path: &Path,
    table: &'a Table,
    mapping: &'a Mapping,
    operator: &str,
) -> Result<(&'a Shape, BTreeMap<&'a str, &'a [f64]>)> {
    let Some(shape) = mapping.operators.get(operator) else {
        let problem = format!("the mapping does not describe the operator `{operator}`; add it under `[operators]`");
        return Err(Error::table(path, problem));
    };
    if let [first, ..] = shape.missing()[..] {
        return Err(Error::table(path, format!("the mapping of the operator `{operator}` lacks `{first}`")));
    }
    let mut columns = BTreeMap::new();
    for size in shape.sizes() {
        if let Size::Column(name) = size {
            columns.insert(name.as_str(), numbers(path, table, name)?);
        }
    }
    Ok((shape, columns))
}

fn column<'a>(path: &Path, table: &'a Table, name: &str) -> Result<&'a TableColumn> {
    table.column(name).ok_or_else(|| Error::table(path, format!("it has no column `{name}`, which the mapping names")))
}

pub(super) fn numbers<'a>(path: &Path, table: &'a Table, name: &str) -> Result<&'a [f64]> {
    match &column(path, table, name)?.cells {
        Cells::Numbers(numbers) => Ok(numbers),
        Cells::Words { words, .. } => {
            let wrong = words.iter().find(|word| word.parse::<f64>().is_err()).map_or("", String::as_str);
            Err(Error::table(path, format!("the column `{name}` should hold numbers, but has `{wrong}`")))
        }
    }
}

fn words<'a>(path: &Path, table: &'a Table, name: &str) -> Result<(&'a [String], &'a [u32])> {
    match &column(path, table, name)?.cells {
        Cells::Words { words, codes } => Ok((words, codes)),
        Cells::Numbers(_) if table.rows == 0 => Ok((&[], &[])),
        Cells::Numbers(_) => Err(Error::table(path, format!("the column `{name}` should hold names, but has numbers"))),
    }
}
