//! What a question may do: read the tables of the trace, and compute. It changes nothing, opens no other file, and ends
//! in time and within its memory.

use super::Error;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How much a question may cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Time for the answer; reading the trace does not count.
    pub time: Duration,
    /// Memory of the tables and of the answer on its way, in MiB. It is one figure for the whole process, and the
    /// lowest that was ever given holds.
    pub memory_mib: u32,
    /// Rows of an answer.
    pub rows: usize,
    /// Bytes of its texts.
    pub bytes: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { time: Duration::from_secs(60), memory_mib: 4096, rows: 1_000_000, bytes: 256 << 20 }
    }
}

/// The longest value a question may make.
const VALUE_BYTES: i32 = 64 << 20;
/// The longest question.
const QUESTION_BYTES: i32 = 1 << 20;
/// The longest pattern of LIKE and GLOB, whose time may be a power of its length.
const PATTERN_BYTES: i32 = 1000;
/// Steps of SQLite between two looks at the clock.
const STEPS: i32 = 1000;

/// Tables that may be read beside those of the trace; the last two take a text apart.
const OTHER_TABLES: [&str; 4] = ["sqlite_master", "sqlite_schema", "json_each", "json_tree"];

/// Functions that compute a value and do nothing else.
const FUNCTIONS: &str = "-> ->> abs acos acosh asin asinh atan atan2 atanh avg ceil ceiling char coalesce concat \
    concat_ws cos cosh count cume_dist current_date current_time current_timestamp date datetime degrees dense_rank exp \
    first_value floor format glob group_concat hex if ifnull iif instr json json_array json_array_length json_each \
    json_error_position json_extract json_group_array json_group_object json_insert json_object json_patch json_pretty \
    json_quote json_remove json_replace json_set json_tree json_type json_valid julianday lag last_value lead length like \
    likelihood likely ln log log10 log2 lower ltrim max median min mod nth_value ntile nullif octet_length percent_rank \
    percentile percentile_cont percentile_disc pi pow power printf quote radians random randomblob rank replace round \
    row_number rtrim sign sin sinh soundex sqlite_version sqrt strftime string_agg substr substring subtype sum tan tanh \
    time timediff total trim trunc typeof unhex unicode unistr unistr_quote unixepoch unlikely upper zeroblob";

/// What was refused, for the error.
pub type Refused = Arc<Mutex<Option<String>>>;

/// Bounds the memory of a database before it is filled.
pub fn bound_memory(database: &Connection, bounds: &Bounds) -> Result<(), rusqlite::Error> {
    // Without this a question's own tables would go to files in a temporary folder, which nothing bounds.
    database.pragma_update(None, "temp_store", "memory")?;
    database.pragma_update(None, "hard_heap_limit", i64::from(bounds.memory_mib.max(1)) << 20)
}

/// Confines all questions that a filled database is asked from now on.
pub fn confine(database: &mut Connection, tables: Vec<String>, bounds: &Bounds) -> Result<Refused, rusqlite::Error> {
    for (limit, value) in [
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
        (Limit::SQLITE_LIMIT_LENGTH, VALUE_BYTES),
        (Limit::SQLITE_LIMIT_SQL_LENGTH, QUESTION_BYTES),
        (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, PATTERN_BYTES),
    ] {
        database.set_limit(limit, value)?;
    }
    let refused = Refused::default();
    let told = Arc::clone(&refused);
    database.authorizer(Some(move |context: AuthContext<'_>| match refusal(context.action, &tables) {
        None => Authorization::Allow,
        Some(what) => {
            if let Ok(mut told) = told.lock() {
                told.get_or_insert(what);
            }
            Authorization::Deny
        }
    }))?;
    let end = Instant::now() + bounds.time;
    database.progress_handler(STEPS, Some(move || Instant::now() >= end))?;
    Ok(refused)
}

/// Why a step of a question is not done; steps that only read and compute are.
fn refusal(action: AuthAction<'_>, tables: &[String]) -> Option<String> {
    match action {
        AuthAction::Select | AuthAction::Recursive => None,
        // A table that is read without a column, or a name that the question itself gives.
        AuthAction::Read { column_name: "", .. } => None,
        AuthAction::Read { table_name, .. } => {
            let is_known = tables.iter().map(String::as_str).chain(OTHER_TABLES).any(|known| known == table_name);
            (!is_known).then(|| format!("there is no table `{table_name}`"))
        }
        AuthAction::Function { function_name } => {
            let is_known = FUNCTIONS.split(' ').any(|known| known.eq_ignore_ascii_case(function_name));
            (!is_known).then(|| format!("the function `{function_name}` is not allowed"))
        }
        AuthAction::Attach { .. } => Some("no other database can be attached".to_owned()),
        AuthAction::Pragma { pragma_name, .. } => Some(format!("`pragma {pragma_name}` is not allowed")),
        _ => Some("it can only read".to_owned()),
    }
}

/// What an error of SQLite means to the one who asked.
pub fn explain(error: rusqlite::Error, refused: &Refused, bounds: &Bounds) -> Error {
    if let Some(what) = refused.lock().ok().and_then(|mut refused| refused.take()) {
        return Error::Refused { what };
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::OperationInterrupted) => Error::Late { seconds: bounds.time.as_secs_f64() },
        Some(ErrorCode::OutOfMemory) => Error::Memory { mib: bounds.memory_mib },
        _ => Error::Query(error),
    }
}
