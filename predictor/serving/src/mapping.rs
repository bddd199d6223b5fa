//! Describes the columns of foreign tables of kernels: a TOML file that names sizes, formats, device and time.
//!
//! Every column must be named. A column that only repeats the device's name is checked against the device column.

use crate::error::{Error, Result};
use crate::text;
use models::names;
use samples::table::Time;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    pub source: String,
    pub licence: String,
    pub tables: Vec<TableMapping>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableMapping {
    pub file: String,
    pub kernel: String,
    /// Column with the device's name.
    pub device: String,
    /// Column that repeats the device under another name.
    pub same_as_device: Option<String>,
    pub framework: Option<String>,
    pub version: Option<String>,
    #[serde(default)]
    pub tells_versions_apart: bool,
    /// Column with the library or kernel that was chosen at run time, known only after the run.
    pub choice: Option<String>,
    pub time: Time,
    pub power: Option<Power>,
    /// Columns of sizes, by the names of the kernel's attributes.
    pub sizes: BTreeMap<String, Size>,
    /// Columns of number formats and of the token distribution, by the names of the kernel's attributes.
    #[serde(default)]
    pub formats: BTreeMap<String, String>,
    #[serde(default)]
    pub drop: Vec<Fault>,
    /// Optional sizes of some rows that no column has.
    #[serde(default)]
    pub exceptions: Vec<Exception>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// Column with the mean power of a kernel that runs in a loop.
    pub watts: String,
    pub limit: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
#[allow(missing_docs)]
pub enum Size {
    Column(String),
    Number(u64),
    Sum { sum: Vec<String> },
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    pub reason: String,
    pub r#where: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exception {
    pub reason: String,
    pub r#where: BTreeMap<String, String>,
    pub sizes: BTreeMap<String, u64>,
}

impl Mapping {
    pub fn is_mapping(text: &str) -> bool {
        text.lines().any(|line| line.trim() == "[[tables]]")
    }

    /// Parses a mapping; `path` is only used in errors.
    pub fn parse_mapping(text: &str, path: &Path) -> Result<Mapping> {
        let wrong = |problem: String| Error::Data(format!("cannot read `{}`: {problem}", path.display()));
        let mapping: Mapping = toml::from_str(text).map_err(|error| {
            let error = samples::Error::mapping_error(path, "language-model kernels", &error);
            Error::Data(error.to_string())
        })?;
        mapping.tables.iter().try_for_each(|table| table.check_fields().map_err(&wrong))?;
        let mut files = BTreeSet::new();
        if let Some(table) = mapping.tables.iter().find(|table| !files.insert(&table.file)) {
            return Err(wrong(format!("the table `{}` is described twice", table.file)));
        }
        Ok(mapping)
    }
}

impl TableMapping {
    fn check_fields(&self) -> std::result::Result<(), String> {
        let known = text::words_of(&self.kernel).ok_or_else(|| {
            let hint = names::name_hint(&self.kernel, crate::text::OPERATORS);
            format!("unknown kernel `{}`; {hint}", self.kernel)
        })?;
        let exceptions = self.exceptions.iter().flat_map(|exception| exception.sizes.keys());
        for word in self.sizes.keys().chain(self.formats.keys()).chain(exceptions) {
            if !known.contains(&word.as_str()) {
                let hint = names::name_hint(word, known.iter().copied());
                return Err(format!("`{}` has no size `{word}`; {hint}", self.kernel));
            }
        }
        self.check_conditions()?;
        self.time.unit_contradiction().map_or(Ok(()), Err)
    }

    /// Refuses conditions on columns that the mapping does not name, and exceptions for sizes that it gives otherwise.
    fn check_conditions(&self) -> std::result::Result<(), String> {
        let columns = self.named_columns();
        let conditions = self.drop.iter().map(|fault| ("drop", &fault.r#where));
        let conditions = conditions.chain(self.exceptions.iter().map(|one| ("exceptions", &one.r#where)));
        for (part, condition) in conditions {
            if let Some(other) = condition.keys().find(|name| !columns.contains(&name.as_str())) {
                let hint = names::name_hint(other, columns.iter().copied());
                return Err(format!("`where` of `tables.{part}` has an unknown column `{other}`; {hint}"));
            }
        }
        match self.exceptions.iter().flat_map(|one| one.sizes.keys()).find(|size| self.sizes.contains_key(*size)) {
            Some(size) => Err(format!("`tables.exceptions` sets the size `{size}`, which `sizes` already gives")),
            None => Ok(()),
        }
    }

    pub fn named_columns(&self) -> Vec<&str> {
        let sizes = self.sizes.values().flat_map(Size::source_columns);
        let optional = [&self.same_as_device, &self.framework, &self.version, &self.choice].into_iter().flatten();
        let power = self.power.iter().flat_map(|power| [power.watts.as_str(), &power.limit]);
        let keys = [self.device.as_str(), &self.time.column];
        let formats = self.formats.values().map(String::as_str);
        keys.into_iter().chain(sizes).chain(optional.map(String::as_str)).chain(power).chain(formats).collect()
    }
}

impl Size {
    pub fn source_columns(&self) -> Vec<&str> {
        match self {
            Size::Column(column) => vec![column],
            Size::Number(_) => Vec::new(),
            Size::Sum { sum } => sum.iter().map(String::as_str).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "source = 's'\nlicence = 'l'\n[[tables]]\nfile = 'a.csv'\nkernel = 'gemm'\ndevice = 'd'\n";

    fn parse(rest: &str) -> Result<Mapping> {
        Mapping::parse_mapping(&format!("{TABLE}{rest}"), Path::new("m.toml"))
    }

    #[test]
    fn contradictions_are_refused() {
        let sizes = "sizes = { m = 'm', n = 'n', k = 'k' }\n";
        assert!(parse(&format!("time = {{ column = 't_ms', unit = 'ms' }}\n{sizes}")).is_ok());
        for (rest, reason) in [
            (
                format!("time = {{ column = 't_ms', unit = 'us' }}\n{sizes}"),
                "ends in `ms`, but its unit is given as `us`",
            ),
            (
                "time = { column = 't', unit = 'us' }\nsizes = { mm = 'm' }\n".to_owned(),
                "has no size `mm`; did you mean `m`",
            ),
            (format!("time = {{ column = 't', unit = 'us' }}\n{sizes}chioce = 'c'\n"), "did you mean `choice`"),
        ] {
            let error = parse(&rest).expect_err(&rest).to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn conditions_that_never_hold_are_refused() {
        let start = "time = { column = 't', unit = 'us' }\nsizes = { m = 'm', n = 'n', k = 'k' }\n";
        for (rest, reason) in [
            (
                "[[tables.drop]]\nreason = 'r'\nwhere = { mm = '64' }\n".to_owned(),
                "`where` of `tables.drop` has an unknown column `mm`; did you mean `m`",
            ),
            (
                "[[tables.exceptions]]\nreason = 'r'\nwhere = { nosuch = '64' }\nsizes = { k = 3 }\n".to_owned(),
                "`where` of `tables.exceptions` has an unknown column `nosuch`",
            ),
            (
                "[[tables.exceptions]]\nreason = 'r'\nwhere = { m = '64' }\nsizes = { k = 3 }\n".to_owned(),
                "`tables.exceptions` sets the size `k`, which `sizes` already gives",
            ),
            (
                format!("[[tables]]\nfile = 'a.csv'\nkernel = 'gemm'\ndevice = 'd'\n{start}"),
                "the table `a.csv` is described twice",
            ),
        ] {
            let error = parse(&format!("{start}{rest}")).expect_err(&rest).to_string();
            assert!(error.contains(reason), "{error}");
        }
        assert!(parse(&format!("{start}[[tables.drop]]\nreason = 'r'\nwhere = {{ m = '64' }}\n")).is_ok());
    }

    #[test]
    fn the_mapping_that_ships_is_valid() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/mappings/aiconfigurator.toml");
        let text = std::fs::read_to_string(&path).expect("the file");
        assert!(Mapping::is_mapping(&text));
        assert_eq!(Mapping::parse_mapping(&text, &path).map(|mapping| mapping.tables.len()), Ok(5));
    }
}
