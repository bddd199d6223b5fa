//! Measured kernels, read from foreign tables through a mapping and checked for plausibility.

use crate::device::{self, GpuFacts};
use crate::error::{Error, Result};
use crate::features::site_hash;
use crate::kernel::{Decode, Distribution, Experts, GATED_MATRICES, Gemm, Kernel, Prefill};
use crate::mapping::{Mapping, Size, TableMapping};
use crate::scheme::{Dtype, Scheme};
use crate::times::{LAUNCH_SECONDS, bound_seconds};
use models::Choice;
use report::format_count;
use samples::MOST_POSSIBLE;
use samples::statistics::median;
use samples::table::{self, Cells, MOST_OVER_BOUND, Table};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

/// Plausible ratio of a rate to the nominal peak, above 1 because clocks may exceed the nominal one.
const ABOVE_PEAK: f64 = 1.25;
/// Share of implausible rows above which the mapping is considered wrong and the table is rejected.
const MOST_IMPLAUSIBLE: f64 = 0.05;
/// Smallest plausible ratio of a kernel's mean power to that of the next smaller and next larger kernel of the layer.
/// Meters that read while the device idles show less, sometimes a third.
const LEAST_OF_NEIGHBOURS: f64 = 0.75;
/// Sizes that a row may lack.
const OPTIONAL_SIZES: [&str; 5] = ["past", "window", "tensor_parallel", "expert_parallel", "matrices"];

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    pub kernel: Kernel,
    /// Index of the device in [`Measurements::devices`].
    pub device: u16,
    pub framework: u16,
    pub choice: u16,
    pub seconds: f64,
    /// Mean power under load and power limit in watts, if measured.
    pub power: Option<(f64, f64)>,
}

#[derive(Clone, Debug, Default)]
pub struct Measurements {
    pub rows: Vec<Measurement>,
    pub devices: Vec<&'static GpuFacts>,
    pub frameworks: Vec<String>,
    pub choices: Vec<String>,
    pub left_out: BTreeMap<String, u64>,
    pub provenance: Vec<Provenance>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    pub source: String,
    pub licence: String,
    pub table: String,
    pub rows: u64,
    pub frameworks: Vec<String>,
}

impl Measurements {
    /// Reads a mapping's tables from a folder, which must contain at least one of the tables, or one table from a file.
    pub fn read_tables(path: &Path, mapping: &Mapping) -> Result<Measurements> {
        let mut all = Measurements::default();
        if path.is_file() {
            let table = table::read_table(path).map_err(|error| Error::Data(error.to_string()))?;
            let wrong = |problem| Error::Data(format!("cannot read `{}`: {problem}", path.display()));
            let table_mapping = mapping_of_file(path, &table, mapping).map_err(wrong)?;
            all.add_table(mapping, table_mapping, &table).map_err(wrong)?;
            return all.check_rows(path);
        }
        std::fs::metadata(path).map_err(|error| Error::Data(format!("cannot open `{}`: {error}", path.display())))?;
        for table_mapping in &mapping.tables {
            let own = path.join(&table_mapping.file);
            let as_csv = own.with_extension("csv");
            if let Some(path) = [own, as_csv].into_iter().find(|path| path.is_file()) {
                let table = table::read_table(&path).map_err(|error| Error::Data(error.to_string()))?;
                let wrong = |problem| Error::Data(format!("cannot read `{}`: {problem}", path.display()));
                all.add_table(mapping, table_mapping, &table).map_err(wrong)?;
            }
        }
        match all.provenance.is_empty() {
            true => Err(Error::Data(format!("the folder `{}` has none of the mapping's tables", path.display()))),
            false => all.check_rows(path),
        }
    }

    /// Returns an error with the reasons if no row is left.
    fn check_rows(self, path: &Path) -> Result<Measurements> {
        if !self.rows.is_empty() {
            return Ok(self);
        }
        let reason = |(reason, count): (&String, &u64)| format!("{}: {reason}", format_count(*count, "row"));
        let reasons: Vec<String> = self.left_out.iter().map(reason).collect();
        let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
        Err(Error::Data(format!("`{}` has no usable row{reasons}", path.display())))
    }

    pub fn add_table(&mut self, source: &Mapping, mapping: &TableMapping, table: &Table) -> Parsed<()> {
        let columns = Columns::new(self, mapping, table)?;
        let (mut seen, mut versions) = (HashMap::new(), BTreeMap::new());
        let (mut implausible, before) = (BTreeMap::<(u16, &str), u64>::new(), self.rows.len());
        let mut counts = BTreeMap::<(u16, &str), u64>::new();
        for row in 0..table.rows {
            if let Some(fault) = columns.known_fault(row).or_else(|| columns.missing_number(row)) {
                *self.left_out.entry(fault.to_owned()).or_default() += 1;
                continue;
            }
            let measurement = columns.read_measurement(row)?;
            let device = self.devices[usize::from(measurement.device)];
            let Ok(peak) = device.peak_flops(measurement.kernel.product_dtype()) else {
                let what = format!("{} does not support {}", device.name, measurement.kernel.product_dtype().name());
                *self.left_out.entry(what).or_default() += 1;
                continue;
            };
            let place = (measurement.device, measurement.kernel.product_dtype().name());
            *counts.entry(place).or_default() += 1;
            if measurement.kernel.kernel_work().flops > ABOVE_PEAK * peak * measurement.seconds {
                *implausible.entry(place).or_default() += 1;
                continue;
            }
            let key = columns.row_hash(row, &measurement);
            if let Some(first) = seen.insert(key, row) {
                columns.refuse_repeats(first, row)?;
            }
            *versions.entry(columns.framework_version(row)).or_insert(0u64) += 1;
            self.rows.push(measurement);
        }
        self.leave_out_implausible(&mapping.file, implausible, &counts)?;
        let ratios = self.rows[before..].iter().map(|row| self.roofline_ratio(row)).collect::<Parsed<Vec<f64>>>()?;
        self.refuse_long_times(before, &ratios)?;
        self.leave_out_impossible(before, ratios);
        self.leave_out_power_dips(&mapping.file, before);
        self.provenance.push(Provenance {
            source: source.source.clone(),
            licence: source.licence.clone(),
            table: mapping.file.clone(),
            rows: (self.rows.len() - before) as u64,
            frameworks: versions.into_keys().collect(),
        });
        Ok(())
    }

    /// Drops rows from `first` on whose power is far below that of the next smaller and next larger kernel of a layer.
    fn leave_out_power_dips(&mut self, file: &str, first: usize) {
        let mut layers: BTreeMap<_, Vec<(f64, f64, usize)>> = BTreeMap::new();
        for (place, row) in self.rows.iter().enumerate().skip(first) {
            if let Some((watts, _)) = row.power {
                let key = (row.device, row.framework, row.choice, row.kernel.format_key(), site_hash(&row.kernel));
                layers.entry(key).or_default().push((row.kernel.kernel_work().flops, watts, place));
            }
        }
        let mut dips = BTreeSet::new();
        for mut rows in layers.into_values() {
            rows.sort_by(|one, two| one.0.total_cmp(&two.0));
            let is_dip = |near: &&[(f64, f64, usize)]| near[1].1 < LEAST_OF_NEIGHBOURS * near[0].1.min(near[2].1);
            dips.extend(rows.windows(3).filter(is_dip).map(|near| near[1].2));
        }
        if !dips.is_empty() {
            let what =
                format!("power below {LEAST_OF_NEIGHBOURS} of the next smaller and the next larger shape, in `{file}`");
            *self.left_out.entry(what).or_default() += dips.len() as u64;
            let mut place = 0;
            self.rows.retain(|_| {
                place += 1;
                !dips.contains(&(place - 1))
            });
        }
    }

    /// Drops rows that are faster than the peak allows; rejects the table if many rows are.
    fn leave_out_implausible(&mut self, file: &str, implausible: Counts<'_>, counts: &Counts<'_>) -> Parsed<()> {
        for ((device, dtype), count) in implausible {
            let (device, all) = (&self.devices[usize::from(device)].name, counts[&(device, dtype)]);
            if count as f64 > MOST_IMPLAUSIBLE * all as f64 {
                return Err(format!(
                    "{count} of {all} rows of {device} with {dtype} are faster than the device's peak; check the sizes and the unit of the time"
                ));
            }
            let what = format!("faster than the {dtype} peak of {device} in `{file}`");
            *self.left_out.entry(what).or_default() += count;
        }
        Ok(())
    }

    /// Returns the ratio of a time to the roofline.
    fn roofline_ratio(&self, row: &Measurement) -> Parsed<f64> {
        let bound_s = bound_seconds(&row.kernel, self.devices[usize::from(row.device)]);
        Ok(row.seconds / (bound_s.map_err(|error| error.to_string())? + LAUNCH_SECONDS))
    }

    /// Drops rows from `first` on whose times no kernel can take, given their ratios to the roofline.
    fn leave_out_impossible(&mut self, first: usize, ratios: Vec<f64>) {
        let before = self.rows.len();
        let mut ratios = std::iter::repeat_n(0.0, first).chain(ratios);
        self.rows.retain(|_| ratios.next().is_some_and(|ratio| ratio <= MOST_POSSIBLE));
        let impossible = (before - self.rows.len()) as u64;
        if impossible > 0 {
            *self.left_out.entry("time is over a million times of the roofline".to_owned()).or_default() += impossible;
        }
    }

    /// Rejects a table if most rows from `first` on take far longer than the roofline, which indicates a wrong unit.
    fn refuse_long_times(&self, first: usize, ratios: &[f64]) -> Parsed<()> {
        let mut groups: BTreeMap<(u16, &str), Vec<f64>> = BTreeMap::new();
        for (row, ratio) in self.rows[first..].iter().zip(ratios) {
            groups.entry((row.device, row.kernel.product_dtype().name())).or_default().push(*ratio);
        }
        for ((device, dtype), mut ratios) in groups {
            let ratio = median(&mut ratios);
            if ratio > MOST_OVER_BOUND {
                let (device, rows) = (&self.devices[usize::from(device)].name, ratios.len());
                return Err(format!(
                    "the median time of {rows} rows of {device} with {dtype} is {ratio:.0} times the roofline; check the sizes and the unit of the time"
                ));
            }
        }
        Ok(())
    }
}

/// Returns the part of the mapping for a file: the table of its name, or the only one whose columns the file has.
fn mapping_of_file<'a>(path: &Path, table: &Table, mapping: &'a Mapping) -> Parsed<&'a TableMapping> {
    let stem = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let own = path.file_name().map(|name| stem(&name.to_string_lossy())).unwrap_or_default();
    if let Some(named) = mapping.tables.iter().find(|table| stem(&table.file) == own) {
        return Ok(named);
    }
    let has_columns =
        |mapping: &&TableMapping| mapping.named_columns().iter().all(|name| table.find_column(name).is_some());
    match mapping.tables.iter().filter(has_columns).collect::<Vec<_>>()[..] {
        [one] => Ok(one),
        [] => match &mapping.tables[..] {
            // The table's own check names the missing column.
            [only] => Ok(only),
            _ => Err(format!(
                "no table of the mapping has the columns of this file{}; name the file like one of the tables: {}",
                nearest_table(table, mapping).unwrap_or_default(),
                list_tables(mapping)
            )),
        },
        _ => Err(format!(
            "several tables of the mapping have the columns of this file; name the file like one of the tables: {}",
            list_tables(mapping)
        )),
    }
}

/// Names the table of the mapping that lacks fewest columns in a file, with these columns.
fn nearest_table(table: &Table, mapping: &Mapping) -> Option<String> {
    let missing = |mapping: &TableMapping| -> Vec<String> {
        let lacks = |name: &&str| table.find_column(name).is_none();
        mapping.named_columns().iter().copied().filter(lacks).map(|name| format!("`{name}`")).collect()
    };
    let of_tables = mapping.tables.iter().map(|one| (&one.file, missing(one)));
    let (file, missing) = of_tables.min_by_key(|(_, missing)| missing.len())?;
    Some(format!(" (`{file}` also has {})", missing.join(", ")))
}

fn list_tables(mapping: &Mapping) -> String {
    mapping.tables.iter().map(|table| format!("`{}`", table.file)).collect::<Vec<_>>().join(", ")
}

type Counts<'a> = BTreeMap<(u16, &'a str), u64>;

enum Numbers<'a> {
    Column(&'a [f64]),
    Constant(f64),
    Sum(Vec<&'a [f64]>),
}

impl Numbers<'_> {
    fn value_at(&self, row: usize) -> f64 {
        match self {
            Numbers::Column(column) => column[row],
            Numbers::Constant(number) => *number,
            Numbers::Sum(columns) => columns.iter().map(|column| column[row]).sum(),
        }
    }
}

struct Coded<'a, T> {
    values: Vec<T>,
    codes: Cow<'a, [u32]>,
}

impl<T: Copy> Coded<'_, T> {
    fn value_at(&self, row: usize) -> T {
        self.values[self.codes[row] as usize]
    }
}

struct Columns<'a> {
    mapping: &'a TableMapping,
    table: &'a Table,
    sizes: BTreeMap<&'a str, Numbers<'a>>,
    device: Coded<'a, u16>,
    framework: Option<Coded<'a, u16>>,
    choice: Option<Coded<'a, u16>>,
    scheme: Option<Coded<'a, Scheme>>,
    dtype: Option<Coded<'a, Dtype>>,
    cache_dtype: Option<Coded<'a, Dtype>>,
    distribution: Option<Coded<'a, Distribution>>,
    time: &'a [f64],
    power: Option<(&'a [f64], &'a [f64])>,
}

type Parsed<T> = std::result::Result<T, String>;

fn number_column<'a>(table: &'a Table, name: &str) -> Parsed<&'a [f64]> {
    match &find_column(table, name)?.cells {
        Cells::Numbers(numbers) => Ok(numbers),
        Cells::Words { .. } => Err(format!("the column `{name}` contains text instead of numbers")),
    }
}

fn word_column<'a>(table: &'a Table, name: &str) -> Parsed<(&'a [String], &'a [u32])> {
    match &find_column(table, name)?.cells {
        Cells::Words { words, codes } => Ok((words, codes)),
        Cells::Numbers(_) => Err(format!("the column `{name}` contains numbers instead of text")),
    }
}

fn find_column<'a>(table: &'a Table, name: &str) -> Parsed<&'a table::TableColumn> {
    table.find_column(name).ok_or_else(|| {
        let known = models::names::name_hint(name, table.columns.iter().map(|column| column.name.as_str()));
        format!("the mapping names the column `{name}`, which the table lacks; {known}")
    })
}

fn decode_column<'a, T>(table: &'a Table, name: &str, parse: impl Fn(&str) -> Parsed<T>) -> Parsed<Coded<'a, T>> {
    let (words, codes) = word_column(table, name)?;
    let values = words.iter().map(|word| parse(word).map_err(|problem| format!("column `{name}`: {problem}")));
    Ok(Coded { values: values.collect::<Parsed<_>>()?, codes: codes.into() })
}

fn intern_word(list: &mut Vec<String>, word: &str) -> u16 {
    let known = list.iter().position(|known| known == word);
    known.unwrap_or_else(|| {
        list.push(word.to_owned());
        list.len() - 1
    }) as u16
}

fn device_codes<'a>(table: &'a Table, name: &str, devices: &mut Vec<&'static GpuFacts>) -> Parsed<Coded<'a, u16>> {
    let (names, codes) = word_column(table, name)?;
    let mut values = Vec::new();
    for name in names {
        let facts = device::find_device(name).map_err(|error| error.to_string())?;
        let known = devices.iter().position(|known| known.name == facts.name);
        values.push(known.unwrap_or_else(|| {
            devices.push(facts);
            devices.len() - 1
        }) as u16);
    }
    Ok(Coded { values, codes: codes.into() })
}

fn versioned_frameworks<'a>(
    table: &'a Table,
    framework: &str,
    version: &str,
    list: &mut Vec<String>,
) -> Parsed<Coded<'a, u16>> {
    let ((names, name_codes), (versions, version_codes)) =
        (word_column(table, framework)?, word_column(table, version)?);
    let mut pairs = BTreeMap::new();
    let mut values = Vec::new();
    let codes: Vec<u32> = name_codes
        .iter()
        .zip(version_codes)
        .map(|(name, version)| {
            *pairs.entry((*name, *version)).or_insert_with(|| {
                let word = format!("{} {}", names[*name as usize], versions[*version as usize]);
                values.push(intern_word(list, &word));
                values.len() as u32 - 1
            })
        })
        .collect();
    Ok(Coded { values, codes: codes.into() })
}

fn choice_of<T: Choice>(word: &str) -> Parsed<T> {
    T::from_name(word).ok_or_else(|| format!("unknown format `{word}`; {}", T::name_hint(word)))
}

impl<'a> Columns<'a> {
    fn new(all: &mut Measurements, mapping: &'a TableMapping, table: &'a Table) -> Parsed<Columns<'a>> {
        let known = mapping.named_columns();
        known.iter().try_for_each(|name| find_column(table, name).map(|_| ()))?;
        if let Some(other) = table.columns.iter().find(|column| !known.contains(&column.name.as_str())) {
            return Err(format!(
                "the mapping does not mention the column `{}`; add the column to the mapping",
                other.name
            ));
        }
        let mut sizes = BTreeMap::new();
        for (word, size) in &mapping.sizes {
            let read = match size {
                Size::Column(name) => Numbers::Column(number_column(table, name)?),
                Size::Number(number) => Numbers::Constant(*number as f64),
                Size::Sum { sum } => {
                    Numbers::Sum(sum.iter().map(|name| number_column(table, name)).collect::<Parsed<_>>()?)
                }
            };
            sizes.insert(word.as_str(), read);
        }
        let format = |word: &str| mapping.formats.get(word).map(String::as_str);
        let has_scheme = matches!(mapping.kernel.as_str(), "gemm" | "moe");
        let (mut devices, mut frameworks, mut choices) =
            (all.devices.clone(), std::mem::take(&mut all.frameworks), std::mem::take(&mut all.choices));
        let device = device_codes(table, &mapping.device, &mut devices)?;
        let indices = |name: &Option<String>, list: &mut Vec<String>| -> Parsed<Option<Coded<'a, u16>>> {
            let Some(name) = name else { return Ok(None) };
            let (words, codes) = word_column(table, name)?;
            Ok(Some(Coded { values: words.iter().map(|word| intern_word(list, word)).collect(), codes: codes.into() }))
        };
        let framework = match (&mapping.framework, &mapping.version) {
            (Some(framework), Some(version)) if mapping.tells_versions_apart => {
                Some(versioned_frameworks(table, framework, version, &mut frameworks)?)
            }
            _ => indices(&mapping.framework, &mut frameworks)?,
        };
        let choice = indices(&mapping.choice, &mut choices)?;
        (all.devices, all.frameworks, all.choices) = (devices, frameworks, choices);
        let dtype_column = |is_wanted: bool| format("dtype").filter(|_| is_wanted);
        let columns = Columns {
            mapping,
            table,
            sizes,
            device,
            framework,
            choice,
            scheme: dtype_column(has_scheme).map(|name| decode_column(table, name, choice_of)).transpose()?,
            dtype: dtype_column(!has_scheme).map(|name| decode_column(table, name, choice_of)).transpose()?,
            cache_dtype: format("cache_dtype").map(|name| decode_column(table, name, choice_of)).transpose()?,
            distribution: format("distribution").map(|name| decode_column(table, name, str::parse)).transpose()?,
            time: number_column(table, &mapping.time.column)?,
            power: match &mapping.power {
                Some(power) => Some((number_column(table, &power.watts)?, number_column(table, &power.limit)?)),
                None => None,
            },
        };
        columns.check_device_names()?;
        Ok(columns)
    }

    /// Checks that the column `same_as_device` distinguishes devices exactly as the device column does.
    fn check_device_names(&self) -> Parsed<()> {
        let Some(name) = &self.mapping.same_as_device else { return Ok(()) };
        let (words, codes) = word_column(self.table, name)?;
        let mut pairs = BTreeMap::new();
        for row in 0..self.table.rows {
            let other = *pairs.entry(self.device.value_at(row)).or_insert(codes[row]);
            if other != codes[row] {
                return Err(format!(
                    "row {}: `{name}` differs from earlier rows of the same device: `{}`",
                    row + 1,
                    words[codes[row] as usize]
                ));
            }
        }
        Ok(())
    }

    fn known_fault(&self, row: usize) -> Option<&'a str> {
        let fault = self.mapping.drop.iter().find(|fault| self.matches(row, &fault.r#where));
        fault.map(|fault| fault.reason.as_str())
    }

    /// Returns the reason if a row lacks its time, its power or a size, as rows of failed runs do.
    fn missing_number(&self, row: usize) -> Option<&'static str> {
        let is_sound = |number: f64| number.is_finite() && number > 0.0;
        let is_missing =
            |word: &str, numbers: &Numbers<'_>| !OPTIONAL_SIZES.contains(&word) && numbers.value_at(row).is_nan();
        if !is_sound(self.time[row]) {
            return Some("time is not a positive number");
        }
        if self.power.is_some_and(|(watts, limit)| !is_sound(watts[row]) || !is_sound(limit[row])) {
            return Some("power is not a positive number");
        }
        self.sizes.iter().any(|(word, numbers)| is_missing(word, numbers)).then_some("a size is missing")
    }

    fn matches(&self, row: usize, conditions: &BTreeMap<String, String>) -> bool {
        conditions.iter().all(|(name, wanted)| match self.table.find_column(name).map(|column| &column.cells) {
            Some(Cells::Words { words, codes }) => words[codes[row] as usize] == *wanted,
            Some(Cells::Numbers(numbers)) => wanted.parse() == Ok(numbers[row]),
            None => false,
        })
    }

    fn read_size(&self, word: &str, row: usize) -> Parsed<u64> {
        let number = self.sizes.get(word).map(|numbers| numbers.value_at(row));
        let number = number.ok_or_else(|| format!("the mapping lacks the size `{word}`"))?;
        match (1.0..=4e9).contains(&number) && number.fract() == 0.0 {
            true => Ok(number as u64),
            false => Err(format!("row {}: the size `{word}` is {number}, not a positive whole number", row + 1)),
        }
    }

    fn size_or_none(&self, word: &str, row: usize) -> Parsed<Option<u64>> {
        let exceptions = self.mapping.exceptions.iter().filter(|exception| self.matches(row, &exception.r#where));
        if let Some(size) = exceptions.filter_map(|exception| exception.sizes.get(word)).next() {
            return Ok(Some(*size));
        }
        match self.sizes.get(word).map(|numbers| numbers.value_at(row)) {
            Some(number) if number != 0.0 && !number.is_nan() => self.read_size(word, row).map(Some),
            _ => Ok(None),
        }
    }

    fn build_kernel(&self, row: usize) -> Parsed<Kernel> {
        let scheme = self.scheme.as_ref().map_or(Scheme::Bf16, |coded| coded.value_at(row));
        let dtype = self.dtype.as_ref().map_or(Dtype::Bf16, |coded| coded.value_at(row));
        let cache_dtype = self.cache_dtype.as_ref().map_or(dtype, |coded| coded.value_at(row));
        let size = |word| self.read_size(word, row);
        let window = self.size_or_none("window", row)?;
        Ok(match self.mapping.kernel.as_str() {
            "gemm" => Kernel::Gemm(Gemm { m: size("m")?, n: size("n")?, k: size("k")?, scheme }),
            "attention_prefill" => Kernel::Prefill(Prefill {
                batch: size("batch")?,
                new_tokens: size("new_tokens")?,
                past: self.size_or_none("past", row)?.unwrap_or(0),
                heads: size("heads")?,
                kv_heads: size("kv_heads")?,
                head_dim: size("head_dim")?,
                window,
                dtype,
                cache_dtype,
            }),
            "attention_decode" => Kernel::Decode(Decode {
                batch: size("batch")?,
                context: size("context")?,
                heads: size("heads")?,
                kv_heads: size("kv_heads")?,
                head_dim: size("head_dim")?,
                window,
                dtype,
                cache_dtype,
            }),
            _ => {
                let experts = Experts {
                    tokens: size("tokens")?,
                    hidden: size("hidden")?,
                    intermediate: size("intermediate")?,
                    experts: size("experts")?,
                    top_k: size("top_k")?,
                    tensor_parallel: self.size_or_none("tensor_parallel", row)?.unwrap_or(1),
                    expert_parallel: self.size_or_none("expert_parallel", row)?.unwrap_or(1),
                    matrices: self.size_or_none("matrices", row)?.unwrap_or(GATED_MATRICES),
                    distribution: self
                        .distribution
                        .as_ref()
                        .map_or(Distribution::Balanced, |coded| coded.value_at(row)),
                    scheme,
                };
                experts.check_sizes().map_err(|problem| format!("row {}: {problem}", row + 1))?;
                Kernel::Experts(experts)
            }
        })
    }

    fn read_measurement(&self, row: usize) -> Parsed<Measurement> {
        Ok(Measurement {
            kernel: self.build_kernel(row)?,
            device: self.device.value_at(row),
            framework: self.framework.as_ref().map_or(0, |coded| coded.value_at(row)),
            choice: self.choice.as_ref().map_or(0, |coded| coded.value_at(row)),
            seconds: self.time[row] * self.mapping.time.unit.to_seconds(),
            power: self.power.map(|(watts, limit)| (watts[row], limit[row])),
        })
    }

    fn framework_version(&self, row: usize) -> String {
        let word = |name: &Option<String>| {
            let column = name.as_ref().and_then(|name| self.table.find_column(name))?;
            match &column.cells {
                Cells::Words { words, codes } => Some(words[codes[row] as usize].clone()),
                Cells::Numbers(numbers) => Some(numbers[row].to_string()),
            }
        };
        let parts = [word(&self.mapping.framework), word(&self.mapping.version)].into_iter().flatten();
        parts.collect::<Vec<_>>().join(" ")
    }

    fn row_hash(&self, row: usize, measurement: &Measurement) -> u64 {
        let mut hasher = DefaultHasher::new();
        measurement.kernel.to_string().hash(&mut hasher);
        (measurement.device, measurement.framework, measurement.choice).hash(&mut hasher);
        self.framework_version(row).hash(&mut hasher);
        measurement.power.map(|(_, limit)| limit.to_bits()).hash(&mut hasher);
        hasher.finish()
    }

    /// Rejects two rows of one experiment that differ in a column without a mapping; equal rows are repeats.
    fn refuse_repeats(&self, first: usize, second: usize) -> Parsed<()> {
        let measured = |name: &str| {
            let power = self.mapping.power.as_ref();
            name == self.mapping.time.column || power.is_some_and(|power| name == power.watts)
        };
        let differs = |column: &&table::TableColumn| match &column.cells {
            Cells::Numbers(numbers) => numbers[first].to_bits() != numbers[second].to_bits(),
            Cells::Words { codes, .. } => codes[first] != codes[second],
        };
        let is_told_apart = |name: &str| self.mapping.sizes.values().any(|size| size.source_columns().contains(&name));
        let mut others = self.table.columns.iter().filter(|column| !measured(&column.name));
        match others.find(differs).filter(|column| !is_told_apart(&column.name)) {
            Some(column) => Err(format!(
                "rows {} and {} differ only in the column `{}`, which the mapping does not use",
                first + 1,
                second + 1,
                column.name
            )),
            None => Ok(()),
        }
    }
}
