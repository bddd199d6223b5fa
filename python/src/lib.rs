//! The native module of the Python packages `opcollect` and `oppredict`.

mod engine_thread;
mod measuring;
mod predictor;
mod settings;
mod store;

use engine::failure::Failure;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use serde::Serialize;
use std::path::PathBuf;

pyo3::create_exception!(opcollect, Error, PyException, "An error of a request or of this machine, with a hint.");

fn refusal_error(error: impl std::fmt::Display) -> PyErr {
    Error::new_err(error.to_string())
}

/// Converts a failure into an exception with its message, and its hint on a separate line.
fn failure_error(failure: Failure) -> PyErr {
    let text = failure.to_string();
    Error::new_err(text.strip_prefix("error: ").unwrap_or(&text).to_owned())
}

fn to_json(report: &impl Serialize) -> engine::Result<String> {
    serde_json::to_string(report).map_err(Failure::environment)
}

/// Sets the folder of the package's programs, which contains the workers. Libraries are searched
/// next to the package.
#[pyfunction]
fn set_program_folder(folder: PathBuf) {
    bench::set_worker_program(folder.join("opcollect-worker"));
    learn::set_program(folder.join("oppredict"));
}

/// The functions and classes of both packages.
#[pymodule]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add_class::<predictor::Predictor>()?;
    module.add("PredictorError", py.get_type::<predictor::Error>())?;
    module.add_class::<store::Records>()?;
    module.add("Error", py.get_type::<Error>())?;
    module.add_function(wrap_pyfunction!(predictor::shipped_predictor, module)?)?;
    module.add_function(wrap_pyfunction!(set_program_folder, module)?)?;
    module.add_function(wrap_pyfunction!(measuring::collect, module)?)?;
    module.add_function(wrap_pyfunction!(measuring::run_model, module)?)?;
    module.add_function(wrap_pyfunction!(measuring::profile, module)?)?;
    module.add_function(wrap_pyfunction!(store::column_kinds, module)?)?;
    module.add_function(wrap_pyfunction!(store::records, module)?)?;
    module.add_function(wrap_pyfunction!(store::query, module)?)?;
    module.add_function(wrap_pyfunction!(store::best, module)?)?;
    module.add_function(wrap_pyfunction!(store::stats, module)?)?;
    module.add_function(wrap_pyfunction!(store::export, module)?)?;
    module.add_function(wrap_pyfunction!(store::verify, module)?)
}
