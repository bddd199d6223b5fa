//! The mapping of another project's table: a TOML file that names the columns of operator, device, time and sizes.
//!
//! Every column must be mentioned: silently ignoring an unknown column could hide a wrong mapping.

use super::{Cells, Table, TableColumn};
use crate::error::{Error, Result};
use crate::features::{Device, Form, Work};
use crate::samples::RawSample;
use crate::stand_in::{self, StandIn};
use crate::text::read_bounded;
use models::names;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    operator: String,
    device: String,
    pub(super) time: Time,
    model: Option<String>,
    pub(super) cv: Option<String>,
    /// Column of a library's choice, such as its kernel. Known only after the run, so it is predicted for queries.
    choice: Option<String>,
    #[serde(default)]
    after_run: Vec<String>,
    pub(super) operators: BTreeMap<String, Shape>,
    pub(super) devices: BTreeMap<String, Device>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Time {
    pub column: String,
    pub unit: Unit,
}

impl Time {
    /// Describes a column name that ends in another unit than the given one.
    pub fn unit_contradiction(&self) -> Option<String> {
        let other = Unit::from_column_name(&self.column).filter(|unit| *unit != self.unit)?;
        let (column, unit) = (&self.column, self.unit.name());
        Some(format!("the column `{column}` ends in `{}`, but its unit is given as `{unit}`", other.name()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    Ns,
    Us,
    Ms,
    S,
}

impl Unit {
    pub fn to_seconds(self) -> f64 {
        match self {
            Unit::Ns => 1e-9,
            Unit::Us => 1e-6,
            Unit::Ms => 1e-3,
            Unit::S => 1.0,
        }
    }

    pub(super) fn to_nanoseconds(self) -> f64 {
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

    fn from_column_name(name: &str) -> Option<Unit> {
        let (_, end) = name.rsplit_once('_')?;
        [Unit::Ns, Unit::Us, Unit::Ms, Unit::S].into_iter().find(|unit| unit.name() == end)
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Size {
    Column(String),
    Number(f64),
}

impl Size {
    fn column_name(&self) -> Option<&str> {
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
    /// Task names of network operators that this operator can replace in queries.
    #[serde(default)]
    kinds: Vec<String>,
}

impl Mapping {
    pub fn read_file(path: &Path) -> Result<Mapping> {
        const BYTES_MAX: u64 = 4 << 20;
        Mapping::parse_text(&read_bounded(path, BYTES_MAX)?, path)
    }

    /// Parses the text of a mapping; `path` is only used in errors.
    pub fn parse_text(text: &str, path: &Path) -> Result<Mapping> {
        let mapping: Mapping =
            toml::from_str(text).map_err(|error| Error::mapping_error(path, "operators and devices", &error))?;
        if let Some(problem) = mapping.time.unit_contradiction() {
            return Err(Error::table_error(path, problem));
        }
        if let Some(problem) = mapping.leaking_size().or_else(|| mapping.misspelt_kind()) {
            return Err(Error::table_error(path, problem));
        }
        match mapping.devices.iter().find(|(_, device)| !device.is_sound()) {
            Some((name, _)) => {
                Err(Error::table_error(path, format!("a figure of the device `{name}` is not a positive number")))
            }
            None => Ok(mapping),
        }
    }

    /// Describes a size that is known only after the run, which queries lack.
    fn leaking_size(&self) -> Option<String> {
        let late = || [&self.time.column].into_iter().chain(&self.cv).chain(&self.choice).chain(&self.after_run);
        self.operators.iter().find_map(|(operator, shape)| {
            let (word, column) =
                shape.size_columns().into_iter().find(|(_, column)| late().any(|one| one == column))?;
            Some(format!(
                "the column `{column}` is known only after the run and cannot be the size `{word}` of `{operator}`"
            ))
        })
    }

    fn misspelt_kind(&self) -> Option<String> {
        self.operators
            .iter()
            .flat_map(|(operator, shape)| shape.kinds.iter().map(move |kind| (operator, kind)))
            .find_map(|(operator, kind)| {
                let hint = stand_in::misspelt_kind(kind)?;
                Some(format!("`kinds` of `{operator}` has `{kind}`, which no operator is; {hint}"))
            })
    }

    pub(super) fn time_column(&self) -> (&str, &'static str) {
        (&self.time.column, self.time.unit.name())
    }

    pub(super) fn after_run(&self) -> &[String] {
        &self.after_run
    }

    pub(super) fn unused_columns(&self) -> impl Iterator<Item = &str> {
        self.choice.iter().chain(&self.after_run).map(String::as_str)
    }

    pub(super) fn shape_of(&self, operator: &str) -> Option<&Shape> {
        self.operators.get(operator)
    }

    pub fn described_devices(&self) -> &BTreeMap<String, Device> {
        &self.devices
    }

    pub fn key_columns(&self) -> (&str, &str) {
        (&self.operator, &self.device)
    }

    pub fn work_from_columns(&self, operator: &str, given: &BTreeMap<&str, f64>) -> std::result::Result<Work, String> {
        let shape = self.operators.get(operator).ok_or_else(|| {
            let hint = names::name_hint(operator, self.operators.keys().map(String::as_str));
            format!("the mapping does not describe `{operator}`; {hint}")
        })?;
        if let [first, ..] = shape.missing_sizes()[..] {
            return Err(format!("the mapping lacks `{first}`"));
        }
        for name in shape.given_sizes().filter_map(Size::column_name) {
            match given.get(name) {
                None => return Err(format!("`{name}` is missing")),
                Some(size) if size.fract() != 0.0 => return Err(format!("`{name}` is {size}, not a whole number")),
                Some(_) => {}
            }
        }
        Ok(shape.work_of(&|name| given.get(name).copied()))
    }

    /// Like `work_from_columns`, for a text that names sizes of one operator; rows of tables have those of all operators.
    pub fn work_from_sizes(&self, operator: &str, given: &BTreeMap<&str, f64>) -> std::result::Result<Work, String> {
        let work = self.work_from_columns(operator, given)?;
        let columns = self.columns_of(operator);
        match given.keys().find(|name| !columns.contains(name)) {
            Some(other) => Err(format!("unknown size `{other}`; {}", names::name_hint(other, columns))),
            None => Ok(work),
        }
    }

    /// Returns the columns of an operator's sizes.
    pub fn columns_of(&self, operator: &str) -> Vec<&str> {
        let shape = self.operators.get(operator);
        shape.into_iter().flat_map(Shape::given_sizes).filter_map(Size::column_name).collect()
    }

    pub fn stand_ins(&self) -> BTreeMap<String, Vec<StandIn>> {
        let mut stand_ins: BTreeMap<String, Vec<StandIn>> = BTreeMap::new();
        for (operator, shape) in &self.operators {
            for kind in &shape.kinds {
                stand_ins.entry(kind.clone()).or_default().push(shape.stand_in(operator));
            }
        }
        stand_ins
    }

    pub fn mapped_columns(&self) -> BTreeSet<&str> {
        let sizes = self.operators.values().flat_map(Shape::given_sizes).filter_map(Size::column_name);
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

    pub(super) fn size_names(&self) -> BTreeMap<String, String> {
        self.size_columns().into_iter().map(|(word, name)| (word.to_owned(), format!("`{name}`"))).collect()
    }

    fn named_sizes(&self) -> impl Iterator<Item = (&'static str, &Size)> {
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

    fn given_sizes(&self) -> impl Iterator<Item = &Size> {
        self.named_sizes().map(|(_, size)| size)
    }

    pub(super) fn size_columns(&self) -> Vec<(&'static str, &str)> {
        let named = self.named_sizes().filter_map(|(word, size)| Some((word, size.column_name()?)));
        named.collect()
    }

    pub(super) fn swap_columns(&self, one: &str, two: &str) -> Shape {
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

    pub(super) fn work_of(&self, given: &impl Fn(&str) -> Option<f64>) -> Work {
        self.work_from_sizes(&|size| match size {
            Some(Size::Number(number)) => *number,
            Some(Size::Column(name)) => given(name).unwrap_or(f64::NAN),
            None => f64::NAN,
        })
    }

    fn work_from_sizes(&self, size: &impl Fn(&Option<Size>) -> f64) -> Work {
        match self.form {
            Form::Contraction => Work::contraction_work(
                size(&self.batch),
                size(&self.rows),
                size(&self.columns),
                size(&self.depth),
                self.shared,
            ),
            Form::Convolution => Work::convolution_work(
                size(&self.batch),
                size(&self.inputs),
                size(&self.outputs),
                size(&self.kernel),
                size(&self.size),
                size(&self.stride),
                size(&self.pad),
            ),
            Form::Rows => Work::rows_work(size(&self.rows), size(&self.columns), size(&self.flops_per_element)),
            Form::Pointwise | Form::Other => {
                Work::pointwise_work(size(&self.rows), size(&self.columns), size(&self.operands))
            }
        }
    }

    fn missing_sizes(&self) -> Vec<&'static str> {
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
    let known = mapping.mapped_columns();
    if let Some(column) = table.columns.iter().find(|column| !known.contains(column.name.as_str())) {
        let problem = format!("the mapping lacks the column `{}`; add it, or list it under `after_run`", column.name);
        return Err(Error::table_error(path, problem));
    }
    let operators = word_column(path, table, &mapping.operator)?;
    let devices = word_column(path, table, &mapping.device)?;
    let models = mapping.model.as_ref().map(|name| word_column(path, table, name)).transpose()?;
    let choices = mapping.choice.as_ref().map(|name| word_column(path, table, name)).transpose()?;
    let mut shapes = Vec::new();
    for word in operators.words.iter() {
        shapes.push(bind_columns(path, table, mapping, word)?);
    }
    let mut questions = Vec::with_capacity(table.rows);
    for row in 0..table.rows {
        let device = devices.name(row);
        let Some(place) = mapping.devices.keys().position(|known| known == device) else {
            let problem = format!(
                "row {}: the mapping does not describe the device `{device}`; add a table `[devices.\"{device}\"]`",
                row + 1
            );
            return Err(Error::table_error(path, problem));
        };
        let (shape, columns) = &shapes[operators.codes[row] as usize];
        questions.push(RawSample {
            operator: operators.name(row).clone(),
            device: place as u32,
            model: models.as_ref().map_or_else(String::new, |models| models.name(row).clone()),
            detail: String::new(),
            work: shape.work_of(&|name| columns.get(name).map(|column| column[row])),
            threads: mapping.devices[device].units,
            is_default: true,
            extras: BTreeMap::new(),
            choice: choices.as_ref().map(|choices| choices.name(row).clone()),
            text: String::new(),
        });
    }
    Ok(questions)
}

fn bind_columns<'a>(
    path: &Path,
    table: &'a Table,
    mapping: &'a Mapping,
    operator: &str,
) -> Result<(&'a Shape, BTreeMap<&'a str, &'a [f64]>)> {
    let Some(shape) = mapping.operators.get(operator) else {
        let problem = format!("the mapping does not describe the operator `{operator}`; add it under `[operators]`");
        return Err(Error::table_error(path, problem));
    };
    if let [first, ..] = shape.missing_sizes()[..] {
        return Err(Error::table_error(path, format!("the mapping of the operator `{operator}` lacks `{first}`")));
    }
    let mut columns = BTreeMap::new();
    for size in shape.given_sizes() {
        if let Size::Column(name) = size {
            columns.insert(name.as_str(), number_column(path, table, name)?);
        }
    }
    Ok((shape, columns))
}

fn find_column<'a>(path: &Path, table: &'a Table, name: &str) -> Result<&'a TableColumn> {
    table.find_column(name).ok_or_else(|| {
        Error::table_error(path, format!("the table lacks the column `{name}`, which the mapping names"))
    })
}

pub(super) fn number_column<'a>(path: &Path, table: &'a Table, name: &str) -> Result<&'a [f64]> {
    match &find_column(path, table, name)?.cells {
        Cells::Numbers(numbers) => Ok(numbers),
        Cells::Words { words, .. } => {
            // Empty cells are missing numbers.
            let is_number = |word: &String| word.is_empty() || word.parse().is_ok_and(f64::is_finite);
            let wrong = words.iter().find(|word| !is_number(word)).map_or("", String::as_str);
            Err(Error::table_error(path, format!("the column `{name}` must contain numbers, but contains `{wrong}`")))
        }
    }
}

/// A column of names, which may be numbers, as `4090`.
pub(super) struct Names<'a> {
    words: Cow<'a, [String]>,
    /// For each row, the index of its name in `words`.
    codes: Cow<'a, [u32]>,
}

impl Names<'_> {
    pub(super) fn name(&self, row: usize) -> &String {
        &self.words[self.codes[row] as usize]
    }
}

pub(super) fn word_column<'a>(path: &Path, table: &'a Table, name: &str) -> Result<Names<'a>> {
    let numbers = match &find_column(path, table, name)?.cells {
        Cells::Words { words, codes } => return Ok(Names { words: Cow::Borrowed(words), codes: Cow::Borrowed(codes) }),
        Cells::Numbers(numbers) => numbers,
    };
    let (mut words, mut places) = (Vec::new(), HashMap::new());
    let codes = numbers.iter().map(|number| {
        *places.entry(number.to_bits()).or_insert_with(|| {
            words.push(if number.is_nan() { String::new() } else { number.to_string() });
            words.len() as u32 - 1
        })
    });
    let codes = Cow::Owned(codes.collect());
    Ok(Names { words: Cow::Owned(words), codes })
}
