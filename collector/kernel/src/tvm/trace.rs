//! Traces: the moves of a schedule as JSON, in records and for replays. [`Moves`] defines what a trace may contain.

use super::call::{TvmError, Value, call};
use super::names;
use super::schedule::Schedule;
use job::space::{Moves, OBJECT};
use serde_json::Value as Json;
use tvm_ffi::{String as TvmString, TypeIndex};

type Result<T> = std::result::Result<T, TvmError>;

/// Returns the moves of a schedule, without those that have no effect.
pub fn schedule_moves(schedule: &Schedule) -> Result<Moves> {
    let trace = call!(names::SCHEDULE_TRACE, &schedule.0)?;
    let simplified = call!(names::TRACE_SIMPLIFIED, trace, false)?;
    let json = json_of(&call!(names::TRACE_AS_JSON, simplified, false)?)?;
    Moves::new(json).map_err(|error| TvmError::new(names::TRACE_AS_JSON.text, error))
}

/// Applies moves to a new schedule, after a check of the moves, because TVM generates any code that they request.
pub fn replay_moves(moves: &Moves, schedule: &Schedule) -> Result<()> {
    moves.check_again().map_err(|error| TvmError::new(names::TRACE_APPLY_JSON.text, error))?;
    call!(names::TRACE_APPLY_JSON, value_of(moves.as_json())?, &schedule.0).map(drop)
}

fn json_of(value: &Value) -> Result<Json> {
    let index = value.0.type_index();
    if index == TypeIndex::kTVMFFIArray as i32 {
        return Ok(Json::Array(value.items()?.iter().map(json_of).collect::<Result<_>>()?));
    }
    if value.0.try_as::<TvmString>().is_some() {
        return Ok(Json::String(value.as_text()?));
    }
    if value.is_none() {
        return Ok(Json::Null);
    }
    if index == TypeIndex::kTVMFFIBool as i32 {
        return Ok(Json::Bool(value.as_boolean()?));
    }
    if index == TypeIndex::kTVMFFIInt as i32 {
        return Ok(Json::from(value.as_integer()?));
    }
    if index == TypeIndex::kTVMFFIFloat as i32 {
        return Ok(Json::from(value.convert_to::<f64>("number")?));
    }
    if let Ok(inner) = value.field("value") {
        return json_of(&inner);
    }
    let graph = call!(names::JSON_GRAPH, value, Value::none())?.as_text()?;
    let graph = serde_json::from_str(&graph).map_err(|error| TvmError::new(names::JSON_GRAPH.text, error))?;
    Ok(Json::Object([(OBJECT.to_owned(), graph)].into_iter().collect()))
}

fn value_of(json: &Json) -> Result<Value> {
    Ok(match json {
        Json::Null => Value::none(),
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(number) => match number.as_i64() {
            Some(integer) => Value::from(integer),
            None => Value::from(number.as_f64().ok_or_else(|| TvmError::new("trace", "a number is out of range"))?),
        },
        // An index map as text. Serialised again, so that TVM reads exactly the fields that were checked, even if the
        // text has duplicate names.
        Json::String(text) if text.starts_with('{') => {
            let graph: Json = serde_json::from_str(text).map_err(|error| TvmError::new("trace", error))?;
            Value::from(graph.to_string().as_str())
        }
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::array(items.iter().map(value_of).collect::<Result<Vec<_>>>()?),
        Json::Object(fields) => match fields.get(OBJECT) {
            // Schedule instructions get the text of an object and parse it themselves.
            Some(graph) => Value::from(graph.to_string().as_str()),
            None => return Err(TvmError::new("trace", "expected a list, found an object")),
        },
    })
}
