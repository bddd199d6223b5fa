//! HTTP server for predictions; by default, only this machine can connect.
//!
//! `openapi.json` describes the requests, and `/` is a page to try them. No request can name a file.

mod http;
mod known;

pub use http::serve_requests;
pub use known::StoredRecords;

use crate::error::{Error, Result};
use crate::queries::{self, Cell, ModelSource, NetworkQuestion, Operator, OperatorPrediction, Run, Setting, Total};
use learn::predictor::Predictor;
use rayon::prelude::*;
use samples::table::Mapping;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Default time limit for a client to send a request or receive a reply.
pub const PATIENCE: Duration = Duration::from_secs(5);
const MOST_OPERATORS: usize = 1000;

const STYLE: &str = include_str!("style.css");
const BODY: &str = include_str!("body.html");
const OPENAPI: &str = include_str!("openapi.json");

pub struct Service {
    pub predictor: Predictor,
    pub mapping: Option<Mapping>,
    pub patience: Duration,
    pub known: Option<StoredRecords>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    #[serde(default)]
    operators: Vec<String>,
    model: Option<String>,
    batch: Option<i64>,
    device: Option<String>,
    threads: Option<f64>,
    #[serde(default)]
    knobs: BTreeMap<String, Value>,
    #[serde(default)]
    extrapolate: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    /// An [`OperatorPrediction`] for each operator.
    operators: Vec<Box<RawValue>>,
    total: Total,
    this_host: Option<&'a String>,
}

struct Reply {
    status: u16,
    kind: &'static str,
    body: String,
    /// Supported methods, for a refused method.
    allow: Option<&'static str>,
}

fn route_request(method: &str, uri: &hyper::Uri, body: &[u8], service: &Service) -> Reply {
    let path = uri.path();
    // The page keeps its question in its address.
    if path != "/" && uri.query().is_some() {
        return refusal_reply(400, "parameters in the address are not supported; send a JSON body, see /openapi.json");
    }
    // `hyper` sends no body for HEAD.
    let method = if method == "HEAD" { "GET" } else { method };
    match (method, path) {
        ("GET", "/") => Reply {
            status: 200,
            allow: None,
            kind: "text/html; charset=utf-8",
            // Without the footer of written pages: its command is not for other machines.
            body: format!("{}{BODY}</body>\n</html>\n", report::page::page_head("oppredict", STYLE)),
        },
        ("GET", "/openapi.json") => json_text_reply(OPENAPI.to_owned()),
        ("GET", "/about") => json_reply(200, &describe_service(service)),
        ("POST", "/predict") => predict_reply(body, service),
        ("GET", "/tasks") => answer_from_store(service, |known| Ok(known.list_tasks())),
        ("POST", "/best") => answer_from_store(service, |known| {
            let question = parse_object(body).map_err(|problem| refusal_reply(400, &problem))?;
            known.best_schedules(question).map_err(|error| refusal_reply(422, &error.to_string()))
        }),
        (_, "/" | "/openapi.json" | "/about" | "/tasks") => method_refusal("GET, HEAD"),
        (_, "/predict" | "/best") => method_refusal("POST"),
        _ => refusal_reply(
            404,
            "unknown path; the paths are `/`, `/about`, `/predict`, `/tasks`, `/best` and `/openapi.json`",
        ),
    }
}

/// Answers with a document, or with the refusal that `answer` returns.
fn answer_from_store(
    service: &Service,
    answer: impl FnOnce(&StoredRecords) -> std::result::Result<Value, Reply>,
) -> Reply {
    match service.known.as_ref().map(answer) {
        None => refusal_reply(404, "this server has no store; start it with `--store`"),
        Some(Ok(document)) => json_reply(200, &document),
        Some(Err(refusal)) => refusal,
    }
}

fn describe_service(service: &Service) -> Value {
    let about = &service.predictor.about;
    let operators: Vec<&String> = service.predictor.learned.operators.keys().collect();
    let devices: Vec<&String> = about.devices.keys().collect();
    json!({
        "program_version": about.program_version, "data_hash": about.data_hash, "rows": about.rows,
        "operators": operators, "devices": devices, "has_mapping": service.mapping.is_some(),
        "this_host": service.predictor.this_host.as_ref().map(|host| &host.host_class),
    })
}

/// Returns the HTTP status and the JSON document that answer a request.
pub fn answer_query(body: &[u8], service: &Service) -> (u16, String) {
    let Reply { status, body, .. } = predict_reply(body, service);
    (status, body)
}

fn predict_reply(body: &[u8], service: &Service) -> Reply {
    let request: Request = match parse_object(body) {
        Ok(request) => request,
        Err(problem) => return refusal_reply(400, &problem),
    };
    match predict_request(request, service) {
        Ok(body) => json_text_reply(body),
        Err(error) => refusal_reply(422, &error.to_string()),
    }
}

/// Parses the body of a request; structs could also be read from arrays, which the description does not allow.
fn parse_object<T: serde::de::DeserializeOwned>(body: &[u8]) -> std::result::Result<T, String> {
    let invalid = |problem: &str| format!("the body is not a valid request: {problem}; see /openapi.json");
    if body.trim_ascii_start().first().is_some_and(|byte| *byte != b'{') {
        return Err(invalid("it must be a JSON object"));
    }
    serde_json::from_slice(body).map_err(|error| invalid(&models::names::with_hint(&error.to_string())))
}

/// Refuses names that no built-in network has. Other look-ups would reveal whether a path exists.
fn check_network(name: &str) -> Result<()> {
    let base = name.split(':').next().unwrap_or_default();
    let known = zoo::list_models().iter().map(|entry| (entry.name, entry.aliases));
    let unknown = |hint| Error::Query(format!("unknown model `{}`; {hint}", queries::excerpt_text(name)));
    models::names::find_name(base, known).map(|_| ()).map_err(unknown)
}

fn predict_request(request: Request, service: &Service) -> Result<String> {
    if request.operators.len() > MOST_OPERATORS {
        return Err(Error::Query(format!("the request has more than {MOST_OPERATORS} operators")));
    }
    let parsed = request.operators.par_iter().with_min_len(16);
    let parsed: Vec<_> = parsed.map(|text| queries::parse_operator(text, service.mapping.as_ref())).collect();
    // The first error in the order of the request.
    let mut operators: Vec<Operator> = parsed.into_iter().collect::<Result<_>>()?;
    let of_model = match &request.model {
        Some(name) => {
            check_network(name)?;
            let batch = request.batch.unwrap_or(1);
            NetworkQuestion { source: ModelSource::Local, name, batch, tokens: 1, options: None }
                .distinct_operators()?
        }
        None if request.batch.is_some() => {
            return Err(Error::Query(
                "`batch` applies to `model`; the text of an operator contains its sizes".to_owned(),
            ));
        }
        None => Vec::new(),
    };
    if operators.is_empty() && of_model.is_empty() {
        return Err(Error::Query("nothing to predict: give `operators` or `model`".to_owned()));
    }
    let mut setting = Setting {
        device: request.device,
        threads: request.threads,
        extrapolate: request.extrapolate,
        ..Setting::default()
    };
    for (name, value) in &request.knobs {
        let cell = match (value.as_f64(), value.as_str()) {
            (Some(number), _) => Cell::Number(number),
            (None, Some(word)) => Cell::from_text(word),
            (None, None) => return Err(Error::Query(format!("the knob `{name}` is neither a number nor a word"))),
        };
        setting.set_extra(&format!("knob.{name}"), &cell);
    }
    let answer_part = |part: &[Operator]| {
        let answers = queries::predict_part(&service.predictor, part, &setting)?;
        Ok((operator_replies(&answers)?, answers))
    };
    let parts = queries::in_parts(&operators, answer_part).into_iter().collect::<Result<Vec<_>>>()?;
    let (mut replies, mut answers) = (Vec::new(), Vec::new());
    for (of_part, answers_of_part) in parts {
        replies.extend(of_part);
        answers.extend(answers_of_part);
    }
    if !of_model.is_empty() {
        let of_layers = queries::predict_model(&service.predictor, &of_model, &setting)?;
        replies.extend(operator_replies(&of_layers)?);
        answers.extend(of_layers);
        operators.extend(of_model);
    }
    let total = queries::total_time(&operators, &answers, &Run::default());
    let this_host = setting.this_host(&service.predictor).map(|host| &host.host_class);
    serde_json::to_string(&Document { operators: replies, total, this_host }).map_err(unwritable_reply)
}

fn operator_replies(answers: &[OperatorPrediction]) -> Result<Vec<Box<RawValue>>> {
    answers.iter().map(|answer| to_raw_value(answer).map_err(unwritable_reply)).collect()
}

fn unwritable_reply(error: serde_json::Error) -> Error {
    Error::Query(format!("the answer cannot be written: {error}"))
}

fn refusal_reply(status: u16, problem: &str) -> Reply {
    json_reply(status, &json!({ "error": problem }))
}

fn method_refusal(allow: &'static str) -> Reply {
    Reply { allow: Some(allow), ..refusal_reply(405, &format!("this path supports only {allow}")) }
}

fn json_reply(status: u16, document: &Value) -> Reply {
    Reply { status, ..json_text_reply(document.to_string()) }
}

fn json_text_reply(body: String) -> Reply {
    Reply { status: 200, kind: "application/json", body, allow: None }
}
