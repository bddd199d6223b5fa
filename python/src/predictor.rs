//! The native part of the package `oppredict`: predicts the times of rows, and returns them as
//! columns.
//!
//! `oppredict/__init__.py` converts tables to rows. An invalid row raises an exception that
//! identifies the row. A row that cannot be predicted has no numbers, and its reason is in
//! `reasons`.

use models::Choice;
use predictor::queries::{self, Cell, ModelSource, NetworkQuestion, Operator, Run, Setting};
use predictor::{bundle, published};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyString};
use samples::table::Mapping;
use std::path::PathBuf;

pyo3::create_exception!(oppredict, Error, PyValueError, "An error of a file or a request, with a hint.");

fn refusal_error(error: impl std::fmt::Display) -> PyErr {
    Error::new_err(error.to_string())
}

/// A predictor that `oppredict train` wrote.
#[pyclass(frozen)]
pub struct Predictor {
    predictor: learn::predictor::Predictor,
    mapping: Option<Mapping>,
}

#[pymethods]
impl Predictor {
    #[new]
    fn new(path: PathBuf, mapping: Option<PathBuf>) -> PyResult<Predictor> {
        let mut predictor = bundle::read_bundle(&path).map_err(refusal_error)?;
        apply_calibration(&mut predictor).map_err(refusal_error)?;
        let mapping = mapping.as_deref().map(Mapping::read_file).transpose().map_err(refusal_error)?;
        if let Some(mapping) = &mapping {
            queries::describe_devices(&mut predictor, mapping);
        }
        Ok(Predictor { predictor, mapping })
    }

    #[getter]
    fn operators(&self) -> Vec<String> {
        self.predictor.learned.operators.keys().cloned().collect()
    }

    #[getter]
    fn devices(&self) -> Vec<String> {
        self.predictor.about.devices.keys().cloned().collect()
    }

    /// Host class for which predictions without a device are calibrated; None without a calibration.
    #[getter]
    fn this_host(&self) -> Option<String> {
        self.predictor.this_host.as_ref().map(|host| host.host_class.clone())
    }

    #[getter]
    fn rows(&self) -> usize {
        self.predictor.about.rows
    }

    /// Returns the predictions as columns with one entry per row.
    fn predict<'py>(
        &self,
        py: Python<'py>,
        rows: Vec<Bound<'py, PyDict>>,
        device: Option<String>,
        threads: Option<f64>,
        extrapolate: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let usual = Setting { device, threads, extrapolate, ..Setting::default() };
        let row_error = |place: usize, problem: &str| Error::new_err(format!("row {place}: {problem}"));
        let question = |(place, row): (usize, &Bound<'py, PyDict>)| {
            let cells =
                row.iter().map(|(name, value)| Ok((name.extract()?, read_cell(&value)?))).collect::<PyResult<_>>();
            let cells: Vec<(String, Cell)> = cells.map_err(|error| row_error(place, &error.value(py).to_string()))?;
            queries::parse_row(&cells, &usual, self.mapping.as_ref())
                .map_err(|error| row_error(place, &error.to_string()))
        };
        let questions: Vec<(Operator, Setting)> = rows.iter().enumerate().map(question).collect::<PyResult<_>>()?;
        let answers = py.detach(|| queries::predict_each(&self.predictor, &questions));
        let is_invalid = |answer: &&predictor::Result<_>| !matches!(answer, Ok(_) | Err(predictor::Error::Outside(_)));
        if let Some((place, Err(error))) = answers.iter().enumerate().find(|(_, answer)| is_invalid(answer)) {
            return Err(row_error(place, &error.to_string()));
        }
        let number = |value: fn(&learn::predictor::Prediction) -> f64| -> Vec<f64> {
            answers.iter().map(|answer| answer.as_ref().map_or(f64::NAN, value)).collect()
        };
        let columns = PyDict::new(py);
        columns.set_item("time_ns", number(|answer| answer.time_ns))?;
        columns.set_item("low_ns", number(|answer| answer.low_ns))?;
        columns.set_item("high_ns", number(|answer| answer.high_ns))?;
        columns.set_item("attainable_ns", number(|answer| answer.attainable_ns))?;
        let bounds: Vec<Option<&str>> =
            answers.iter().map(|answer| answer.as_ref().ok().map(|answer| answer.bound)).collect();
        columns.set_item("bound", bounds)?;
        if self.predictor.this_host.is_some() {
            let hosts = answers.iter().map(|answer| answer.as_ref().ok().and_then(|answer| answer.this_host.clone()));
            columns.set_item("this_host", hosts.collect::<Vec<Option<String>>>())?;
        }
        let reasons: Vec<Vec<String>> = answers
            .into_iter()
            .map(|answer| answer.map_or_else(|error| vec![error.to_string()], |answer| answer.outside))
            .collect();
        columns.set_item("reasons", reasons)?;
        Ok(columns)
    }

    /// Returns the layers of a neural network and their total as JSON.
    #[expect(clippy::too_many_arguments, reason = "Python passes them by name")]
    fn model(
        &self,
        py: Python<'_>,
        source: &str,
        name: &str,
        batch: i64,
        sequence: i64,
        device: Option<String>,
        threads: Option<f64>,
    ) -> PyResult<String> {
        let setting = Setting { device, threads, ..Setting::default() };
        py.detach(|| -> predictor::Result<String> {
            let unknown = || {
                let known = ModelSource::ALL.iter().map(|known| known.name());
                predictor::Error::unknown_name("source of models", source, known)
            };
            let source = ModelSource::from_name(source).ok_or_else(unknown)?;
            let question = NetworkQuestion { source, name, batch, tokens: sequence, options: None };
            let operators = question.distinct_operators()?;
            let layers = queries::predict_model(&self.predictor, &operators, &setting)?;
            let total = queries::total_time(&operators, &layers, &Run::default());
            Ok(serde_json::json!({ "model": name, "batch": batch, "layers": layers, "total": total, "this_host": setting.device.is_none().then(|| self.this_host()).flatten() }).to_string())
        })
        .map_err(refusal_error)
    }
}

/// Applies the calibration to this machine, if `oppredict adapt --this-host` has stored one.
fn apply_calibration(predictor: &mut learn::predictor::Predictor) -> predictor::Result<()> {
    let cache = published::cache_folder(|name| std::env::var_os(name));
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    published::apply_calibration(predictor, cache.as_deref(), &measure::host::Facts::read_facts().host_class(), cpus)
}

/// Returns the path of the predictor that ships with the programs; `package` is the folder of the package `opcollect`.
#[pyfunction]
pub fn shipped_predictor(package: PathBuf, device: Option<String>, is_described: bool) -> PyResult<PathBuf> {
    published::find_predictor(&package.join("bin/oppredict"), device.as_deref(), is_described).map_err(refusal_error)
}

/// Converts a cell of a row. The markers of data frames for missing cells count as absent.
fn read_cell(value: &Bound<'_, PyAny>) -> PyResult<Cell> {
    if value.is_none() {
        return Ok(Cell::Absent);
    }
    if value.is_instance_of::<PyString>() {
        return Ok(Cell::Word(value.extract()?));
    }
    // NumPy's numbers have `__float__`. A string that contains a number is not converted.
    if value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyInt>() || value.hasattr("__float__")? {
        let number: f64 = value.extract()?;
        return Ok(if number.is_nan() { Cell::Absent } else { Cell::Number(number) });
    }
    Err(PyValueError::new_err(format!("{} is neither a number nor a text", value.repr()?)))
}
