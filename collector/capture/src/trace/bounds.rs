//! Sandbox of SQL queries. Queries can only compute and read the trace's tables, within limits of time and memory.

use super::Error;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueryBounds {
    /// Time limit of the query, excluding the time for loading the trace.
    pub time: Duration,
    /// Memory limit in MiB for tables and result. The process uses the lowest limit ever set.
    pub memory_mib: u32,
    pub rows: usize,
    /// Maximum total size in bytes of the texts in the result.
    pub bytes: usize,
}

impl Default for QueryBounds {
    fn default() -> QueryBounds {
        QueryBounds { time: Duration::from_secs(60), memory_mib: 4096, rows: 1_000_000, bytes: 256 << 20 }
    }
}

const VALUE_BYTES: i32 = 64 << 20;
const QUESTION_BYTES: i32 = 1 << 20;
/// Maximum length of a LIKE or GLOB pattern, since the time for matching can grow faster than linearly with it.
const PATTERN_BYTES: i32 = 1000;
/// Number of instructions of SQLite's virtual machine between checks of the time limit.
const STEPS: i32 = 1000;

/// Readable tables in addition to those of the trace. The last two are SQLite's table-valued JSON functions.
const OTHER_TABLES: [&str; 4] = ["sqlite_master", "sqlite_schema", "json_each", "json_tree"];

/// Names of the allowed functions, all without side effects.
const FUNCTIONS: &str = "-> ->> abs acos acosh asin asinh atan atan2 atanh avg ceil ceiling char coalesce concat \
    concat_ws cos cosh count cume_dist current_date current_time current_timestamp date datetime degrees dense_rank \
    exp first_value floor format glob group_concat hex if ifnull iif instr json json_array json_array_length \
    json_each json_error_position json_extract json_group_array json_group_object json_insert json_object json_patch \
    json_pretty json_quote json_remove json_replace json_set json_tree json_type json_valid julianday lag last_value \
    lead length like likelihood likely ln log log10 log2 lower ltrim max median min mod nth_value ntile nullif \
    octet_length percent_rank percentile percentile_cont percentile_disc pi pow power printf quote radians random \
    randomblob rank replace round row_number rtrim sign sin sinh soundex sqlite_version sqrt strftime string_agg \
    substr substring subtype sum tan tanh time timediff total trim trunc typeof unhex unicode unistr unistr_quote \
    unixepoch unlikely upper zeroblob";

/// Description of the action that was rejected, for the error message.
pub type Refused = Arc<Mutex<Option<String>>>;

/// Limits the memory of a database. Must be called before the database is filled.
pub fn bound_memory(database: &Connection, bounds: &QueryBounds) -> Result<(), rusqlite::Error> {
    // Otherwise temporary tables would be stored in files without a size limit.
    database.pragma_update(None, "temp_store", "memory")?;
    database.pragma_update(None, "hard_heap_limit", i64::from(bounds.memory_mib.max(1)) << 20)
}

pub fn confine_queries(
    database: &mut Connection,
    tables: Vec<String>,
    bounds: &QueryBounds,
) -> Result<Refused, rusqlite::Error> {
    for (limit, value) in [
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
        (Limit::SQLITE_LIMIT_LENGTH, VALUE_BYTES),
        (Limit::SQLITE_LIMIT_SQL_LENGTH, QUESTION_BYTES),
        (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, PATTERN_BYTES),
    ] {
        database.set_limit(limit, value)?;
    }
    let refused = Refused::default();
    let reason = Arc::clone(&refused);
    database.authorizer(Some(move |context: AuthContext<'_>| match find_refusal(context.action, &tables) {
        None => Authorization::Allow,
        Some(what) => {
            if let Ok(mut reason) = reason.lock() {
                reason.get_or_insert(what);
            }
            Authorization::Deny
        }
    }))?;
    let end = Instant::now() + bounds.time;
    database.progress_handler(STEPS, Some(move || Instant::now() >= end))?;
    Ok(refused)
}

/// Returns the reason why an action is rejected, or `None` for actions that only read and compute.
fn find_refusal(action: AuthAction<'_>, tables: &[String]) -> Option<String> {
    match action {
        AuthAction::Select | AuthAction::Recursive => None,
        // A table that is read without a column, or a name defined by the query.
        AuthAction::Read { column_name: "", .. } => None,
        AuthAction::Read { table_name, .. } => {
            let is_known = tables.iter().map(String::as_str).chain(OTHER_TABLES).any(|known| known == table_name);
            (!is_known).then(|| format!("there is no table `{table_name}`"))
        }
        AuthAction::Function { function_name } => {
            let is_known = FUNCTIONS.split(' ').any(|known| known.eq_ignore_ascii_case(function_name));
            (!is_known).then(|| format!("the function `{function_name}` is not allowed"))
        }
        AuthAction::Attach { .. } => Some("attaching another database is not allowed".to_owned()),
        AuthAction::Pragma { pragma_name, .. } => Some(format!("`pragma {pragma_name}` is not allowed")),
        _ => Some("only reading is allowed".to_owned()),
    }
}

pub fn explain_error(error: rusqlite::Error, refused: &Refused, bounds: &QueryBounds) -> Error {
    if let Some(what) = refused.lock().ok().and_then(|mut refused| refused.take()) {
        return Error::Refused { what };
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::OperationInterrupted) => Error::Late { seconds: bounds.time.as_secs_f64() },
        Some(ErrorCode::OutOfMemory) => Error::Memory { mib: bounds.memory_mib },
        _ => Error::Query(error),
    }
}
