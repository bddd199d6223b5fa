//! Reads records of stores as columns, and returns reports on stores as JSON.

use crate::engine_thread::Callbacks;
use crate::{failure_error, refusal_error, to_json};
use capture::trace::{QueryBounds, Value};
use datasets::best::Question;
use datasets::{COLUMNS, Cell, Choose, Column, Format, Kind, Record};
use engine::best::find_best;
use engine::observer::{Observer, Progress, StoreStatus};
use engine::stores;
use models::names;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use report::Paper;
use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

#[pyclass(frozen)]
pub struct Records {
    records: Vec<Record>,
}

impl Records {
    pub fn new(records: Vec<Record>) -> Records {
        Records { records }
    }
}

#[pymethods]
impl Records {
    fn __len__(&self) -> usize {
        self.records.len()
    }

    /// Returns the columns of these names, by default all, as lists.
    fn columns<'py>(&self, py: Python<'py>, names: Option<Vec<String>>) -> PyResult<Bound<'py, PyDict>> {
        columns_of(py, &self.records, &chosen_columns(names)?)
    }
}

/// Returns the columns of these names, or all if no names are given.
fn chosen_columns(names: Option<Vec<String>>) -> PyResult<Vec<&'static Column>> {
    let Some(names) = names else { return Ok(COLUMNS.iter().collect()) };
    let find = |name: &String| {
        let known = || COLUMNS.iter().map(|column| column.name);
        let unknown = || refusal_error(format!("unknown column `{name}`; {}", names::name_hint(name, known())));
        COLUMNS.iter().find(|column| column.name == name).ok_or_else(unknown)
    };
    names.iter().map(find).collect()
}

fn columns_of<'py>(py: Python<'py>, records: &[Record], columns: &[&Column]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for column in columns {
        let list = PyList::empty(py);
        for record in records {
            append_cell(&list, record.cell(column.id))?;
        }
        dict.set_item(column.name, list)?;
    }
    Ok(dict)
}

fn append_cell(list: &Bound<'_, PyList>, cell: Cell<'_>) -> PyResult<()> {
    match cell {
        Cell::Null => list.append(list.py().None()),
        Cell::Bool(claim) => list.append(claim),
        Cell::Integer(number) => list.append(number),
        Cell::Float(number) => list.append(number),
        Cell::Text(text) => list.append(text),
        Cell::List(numbers) => list.append(numbers.to_vec()),
        Cell::Key(key) => list.append(key.to_hex()),
    }
}

/// Returns the name of each column with the kind of its values.
#[pyfunction]
pub fn column_kinds(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let kinds = PyDict::new(py);
    for column in COLUMNS {
        let kind = match column.kind {
            Kind::Bool => "bool",
            Kind::Integer | Kind::Time => "int",
            Kind::Float => "float",
            Kind::List => "list",
            Kind::Text | Kind::Label | Kind::Json | Kind::Key => "str",
        };
        kinds.set_item(column.name, kind)?;
    }
    Ok(kinds)
}

/// Collects notes until the call has ended.
#[derive(Default)]
struct Notes {
    texts: RefCell<Vec<String>>,
}

impl Observer for Notes {
    fn receive_notes(&self, notes: &[String]) {
        self.texts.borrow_mut().extend_from_slice(notes);
    }

    fn begin_progress(&self, _: usize, _: Option<StoreStatus>) -> Box<dyn Progress> {
        unreachable!("nothing is measured in a store")
    }
}

impl Notes {
    fn deliver_notes(self, py: Python<'_>, callbacks: &Callbacks) -> PyResult<()> {
        self.texts.into_inner().iter().try_for_each(|note| callbacks.send_note(py, note))
    }
}

/// Accesses a store without the interpreter lock, then delivers the notes.
fn run_detached<T: Send>(
    py: Python<'_>,
    callbacks: &Callbacks,
    work: impl FnOnce(&dyn Observer) -> engine::Result<T> + Send,
) -> PyResult<T> {
    let (done, notes) = py.detach(|| {
        let notes = Notes::default();
        (work(&notes), notes)
    });
    notes.deliver_notes(py, callbacks)?;
    done.map_err(failure_error)
}

fn parse_choice(name: &str) -> PyResult<Choose> {
    Choose::parse_name(name).map_err(|hint| refusal_error(format!("unknown choice `{name}`; {hint}")))
}

/// Returns the records of a store as columns.
#[pyfunction]
pub fn records<'py>(
    py: Python<'py>,
    store: PathBuf,
    columns: Option<Vec<String>>,
    choose: &str,
    callbacks: Callbacks,
) -> PyResult<Bound<'py, PyDict>> {
    let (columns, choose) = (chosen_columns(columns)?, parse_choice(choose)?);
    let records = run_detached(py, &callbacks, |observer| {
        let records = stores::open_existing(&store)?.select_records(choose).map_err(stores::store_failure)?;
        stores::note_damage(records.damage(), observer);
        records.collect::<datasets::Result<Vec<Record>>>().map_err(stores::store_failure)
    })?;
    columns_of(py, &records, &columns)
}

/// Returns the result of a SQL statement as columns.
#[pyfunction]
pub fn query<'py>(
    py: Python<'py>,
    store: PathBuf,
    sql: String,
    choose: &str,
    seconds: f64,
    memory_mib: u32,
    callbacks: Callbacks,
) -> PyResult<Bound<'py, PyDict>> {
    let choose = parse_choice(choose)?;
    let time = Duration::try_from_secs_f64(seconds).map_err(refusal_error)?;
    let bounds = QueryBounds { time, memory_mib, ..QueryBounds::default() };
    let answer = run_detached(py, &callbacks, |observer| {
        let answer = engine::query::run_query(&store, &sql, choose, bounds, observer)?.answer;
        engine::query::check_names(&answer).map(|()| answer)
    })?;
    let dict = PyDict::new(py);
    for (place, name) in answer.columns.iter().enumerate() {
        let list = PyList::empty(py);
        for row in &answer.rows {
            match &row[place] {
                Value::Null => list.append(py.None())?,
                Value::Integer(number) => list.append(number)?,
                Value::Real(number) => list.append(number)?,
                Value::Text(text) => list.append(text)?,
            }
        }
        dict.set_item(name, list)?;
    }
    Ok(dict)
}

/// Filters of the best known times in a store.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct BestQuestion {
    operator: Option<String>,
    task: Option<String>,
    model: Option<String>,
    threads: Option<i64>,
    host: Option<String>,
    all_versions: bool,
}

/// Returns the best known schedule and time of each task: the report as JSON and the table.
#[pyfunction]
pub fn best(
    py: Python<'_>,
    store: PathBuf,
    question: BestQuestion,
    width: usize,
    callbacks: Callbacks,
) -> PyResult<(String, String)> {
    let BestQuestion { operator, task, model, threads, host, all_versions } = question;
    let question = Question { operator, task, model, threads, host, all_versions };
    run_detached(py, &callbacks, |observer| {
        let times = find_best(&store, &question, observer)?;
        observer
            .receive_notes(&times.elsewhere_note().filter(|_| question.host.is_none()).into_iter().collect::<Vec<_>>());
        Ok((to_json(&times)?, times.format_table(all_versions, &Paper::without_colours(width))))
    })
}

/// Returns counts of a store as JSON.
#[pyfunction]
pub fn stats(py: Python<'_>, store: PathBuf, choose: &str, callbacks: Callbacks) -> PyResult<String> {
    let choose = parse_choice(choose)?;
    run_detached(py, &callbacks, |observer| {
        let stats = stores::open_existing(&store)?.stats(choose).map_err(stores::store_failure)?;
        stores::note_damage(&stats.damage, observer);
        to_json(&stats)
    })
}

/// Writes the records of a store to a file. Returns the report as JSON.
#[pyfunction]
pub fn export(
    py: Python<'_>,
    store: PathBuf,
    path: PathBuf,
    format: Option<String>,
    choose: &str,
    callbacks: Callbacks,
) -> PyResult<String> {
    let choose = parse_choice(choose)?;
    let format = match format {
        Some(name) => Format::parse_name(&name).map_err(refusal_error)?,
        None => Format::of_path(&path).ok_or_else(|| {
            refusal_error(format!(
                "the format is unknown from the file name `{}`; give csv, parquet or jsonl",
                path.display()
            ))
        })?,
    };
    run_detached(py, &callbacks, |observer| {
        let done = stores::open_existing(&store)?.export(&path, format, choose).map_err(stores::store_failure)?;
        stores::note_damage(&done.damage, observer);
        to_json(&done)
    })
}

/// Reads and checks a whole store. Returns the report as JSON.
#[pyfunction]
pub fn verify(py: Python<'_>, store: PathBuf, callbacks: Callbacks) -> PyResult<String> {
    run_detached(py, &callbacks, |_| to_json(&stores::verify_store(&store, false)?))
}
