//! Curves of times over thread counts in foreign tables, and the mapping that names their columns.
//!
//! A curve belongs to one operator or network on one device. Its rows need no operator sizes, unlike rows of `mapping`.

use super::Table;
use super::mapping::{Time, number_column, word_column};
use crate::error::{Error, Result};
use crate::text::read_bounded;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CurveMapping {
    operator: String,
    device: String,
    threads: String,
    time: Time,
    /// Columns that distinguish several curves of the same operator and device.
    #[serde(default)]
    apart: Vec<String>,
    /// Required values by column; rows with other values are skipped.
    #[serde(default)]
    keep: BTreeMap<String, f64>,
    #[serde(default)]
    unused: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ThreadCurve {
    pub operator: String,
    pub device: String,
    /// Pairs of thread count and time in nanoseconds, in ascending order; each thread count occurs once.
    pub points: Vec<(f64, f64)>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CurveKey {
    device: String,
    operator: String,
    apart: Vec<String>,
    /// Number of earlier rows with equal thread count, operator and device. Each such repeat belongs to another curve.
    repeat: usize,
}

impl CurveMapping {
    pub fn read_file(path: &Path) -> Result<CurveMapping> {
        const BYTES_MAX: u64 = 1 << 20;
        let text = read_bounded(path, BYTES_MAX)?;
        let mapping: CurveMapping =
            toml::from_str(&text).map_err(|error| Error::mapping_error(path, "thread counts", &error))?;
        match mapping.time.unit_contradiction() {
            Some(problem) => Err(Error::table_error(path, problem)),
            None => Ok(mapping),
        }
    }

    /// Reads the curves of all tables. A repeated thread count of the same operator and device starts another curve.
    pub fn read_curves(&self, paths: &[PathBuf]) -> Result<Vec<ThreadCurve>> {
        super::reading::check_distinct(paths)?;
        let mut curves: BTreeMap<CurveKey, ThreadCurve> = BTreeMap::new();
        for path in paths {
            self.add_curves(path, &super::read_table(path)?, &mut curves)?;
        }
        let mut curves: Vec<ThreadCurve> = curves.into_values().collect();
        curves.iter_mut().for_each(|curve| curve.points.sort_by(|one, two| one.0.total_cmp(&two.0)));
        Ok(curves)
    }

    fn add_curves(&self, path: &Path, table: &Table, curves: &mut BTreeMap<CurveKey, ThreadCurve>) -> Result<()> {
        self.check_columns(path, table)?;
        let texts = |name: &String| word_column(path, table, name);
        let (operators, devices) = (texts(&self.operator)?, texts(&self.device)?);
        let apart = self.apart.iter().map(texts).collect::<Result<Vec<_>>>()?;
        let numbers = |name: &String| number_column(path, table, name);
        let (threads, times) = (numbers(&self.threads)?, numbers(&self.time.column)?);
        let keep = self.keep.iter().map(|(name, value)| Ok((numbers(name)?, *value))).collect::<Result<Vec<_>>>()?;
        let mut repeats: BTreeMap<(CurveKey, u64), usize> = BTreeMap::new();
        for row in 0..table.rows {
            if keep.iter().any(|(column, value)| column[row] != *value) {
                continue;
            }
            let (count, time_ns) = (threads[row], times[row] * self.time.unit.to_nanoseconds());
            if !(count >= 1.0 && count.fract() == 0.0 && time_ns.is_finite() && time_ns > 0.0) {
                let problem = format!("row {}: invalid measurement of {time_ns} ns with {count} threads", row + 1);
                return Err(Error::table_error(path, problem));
            }
            let parts = apart.iter().map(|texts| texts.name(row).clone()).collect::<Vec<_>>();
            let (operator, device) = (operators.name(row).clone(), devices.name(row).clone());
            let mut key = CurveKey { device: device.clone(), operator: operator.clone(), apart: parts, repeat: 0 };
            let repeat = repeats.entry((key.clone(), count.to_bits())).or_default();
            key.repeat = *repeat;
            *repeat += 1;
            let curve = curves.entry(key).or_insert_with(|| ThreadCurve { operator, device, points: Vec::new() });
            curve.points.push((count, time_ns));
        }
        Ok(())
    }

    fn check_columns(&self, path: &Path, table: &Table) -> Result<()> {
        let needed = [&self.operator, &self.device, &self.threads, &self.time.column];
        let needed: Vec<&String> = needed.into_iter().chain(&self.apart).chain(self.keep.keys()).collect();
        if let Some(missing) = needed.iter().find(|name| table.find_column(name).is_none()) {
            return Err(Error::table_error(
                path,
                format!("the table lacks the column `{missing}`, which the mapping names"),
            ));
        }
        let is_unknown = |name: &&String| !needed.contains(name) && !self.unused.contains(name);
        match table.columns.iter().map(|column| &column.name).find(is_unknown) {
            Some(name) => {
                let problem = format!(
                    "the mapping does not mention the column `{name}`; list it under `unused` if it has no meaning here"
                );
                Err(Error::table_error(path, problem))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPPING: &str = r#"
        operator = "network"
        device = "machine"
        threads = "threads"
        time = { column = "t_ms", unit = "ms" }
        keep = { gpu = -1 }
    "#;

    fn curves(mapping: &str, table: &str) -> Result<Vec<ThreadCurve>> {
        let folder = tempfile::tempdir().expect("a folder");
        let (mapping_file, table_file) = (folder.path().join("m.toml"), folder.path().join("t.csv"));
        std::fs::write(&mapping_file, mapping).expect("written");
        std::fs::write(&table_file, table).expect("written");
        CurveMapping::read_file(&mapping_file)?.read_curves(&[table_file])
    }

    #[test]
    fn rows_become_curves_of_ascending_thread_counts() {
        let table = "network,machine,threads,t_ms,gpu\na,x,4,2,-1\na,x,1,6,-1\na,x,1,9,0\nb,x,1,3,-1\na,x,4,2.5,-1\n";
        let found = curves(MAPPING, table).expect("curves");
        let points: Vec<(&str, &[(f64, f64)])> =
            found.iter().map(|curve| (curve.operator.as_str(), &curve.points[..])).collect();
        assert_eq!(
            points,
            [("a", &[(1.0, 6e6), (4.0, 2e6)][..]), ("a", &[(4.0, 2.5e6)][..]), ("b", &[(1.0, 3e6)][..])]
        );
    }

    #[test]
    fn columns_and_rows_that_are_wrong_are_named() {
        let header = "network,machine,threads,t_ms,gpu";
        for (table, named) in [
            (format!("{header},dtype\na,x,1,2,-1,f32\n"), "`dtype`"),
            ("network,machine,threads,t_ms\na,x,1,2\n".to_owned(), "the table lacks the column `gpu`"),
            (format!("{header}\na,x,0,2,-1\n"), "row 1"),
            (format!("{header}\na,x,1,-2,-1\n"), "row 1"),
        ] {
            let problem = curves(MAPPING, &table).expect_err("refused").to_string();
            assert!(problem.contains(named), "{problem}");
        }
        let problem = curves(&MAPPING.replace("unit = \"ms\"", "unit = \"s\""), "").expect_err("refused").to_string();
        assert!(problem.contains("ends in `ms`"), "{problem}");
        let problem = curves("operator = [", "").expect_err("refused").to_string();
        assert!(problem.contains("m.toml` is not a mapping of thread counts: TOML parse error at line 1"), "{problem}");
    }
}
