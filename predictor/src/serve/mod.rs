//! Answers over HTTP, on this machine alone unless told otherwise.
//!
//! A small part of HTTP/1.1, by hand: one request per connection, every length and every wait bounded, a fixed number of
//! workers, and no way to name a file. `openapi.json` describes the two questions; `/` is a page to try them.

mod request;

use crate::asking::{self, Cell, Operator, Run, Setting};
use crate::error::{Error, Result};
use crate::learn::predictor::Predictor;
use crate::table::Mapping;
use request::{Request, Trouble, read};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Requests that are answered at the same time.
const WORKERS: usize = 4;
/// How long a client may usually take to send or to take a message.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Operators in one request.
const MOST_OPERATORS: usize = 1000;

const PAGE: &str = include_str!("page.html");
const OPENAPI: &str = include_str!("openapi.json");

/// What answers are made of.
pub struct Service {
    /// The predictor.
    pub predictor: Predictor,
    /// Names and sizes of foreign operators.
    pub mapping: Option<Mapping>,
    /// How long a client may take to send or to take a message.
    pub patience: Duration,
}

/// A question as it is sent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    /// Operators in words.
    #[serde(default)]
    operators: Vec<String>,
    /// A neural network of the zoo.
    model: Option<String>,
    batch: Option<i64>,
    device: Option<String>,
    threads: Option<f64>,
    #[serde(default)]
    knobs: BTreeMap<String, Value>,
    #[serde(default)]
    extrapolate: bool,
}

/// A status and a body.
struct Reply {
    status: u16,
    kind: &'static str,
    body: String,
}

/// Answers requests until the listener fails.
pub fn serve(listener: &TcpListener, service: &Service) -> Result<()> {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(|| work(listener, service))).collect();
        let mut ended = workers.into_iter().map(|worker| worker.join().expect("answering does not panic"));
        ended.find(Result::is_err).unwrap_or(Ok(()))
    })
}

fn work(listener: &TcpListener, service: &Service) -> Result<()> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => answer_one(stream, service),
            // A client that left while it waited is no reason to stop.
            Err(error)
                if matches!(error.kind(), std::io::ErrorKind::ConnectionAborted | std::io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(Error::io("listen on", std::path::Path::new("the socket"), error)),
        }
    }
}

/// Answers one request; a client that hangs or leaves only loses its own answer.
pub fn answer_one(mut stream: TcpStream, service: &Service) {
    let _ = stream.set_read_timeout(Some(service.patience));
    let _ = stream.set_write_timeout(Some(service.patience));
    let reply = match read(&mut stream, service.patience) {
        Ok(request) => route(&request, service),
        Err(Trouble::Gone) => return,
        Err(Trouble::Bad(status, problem)) => refusal(status, &problem),
    };
    let head = format!(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\nX-Content-Type-Options: nosniff\r\n\r\n",
        reply.status,
        reason(reply.status),
        reply.kind,
        reply.body.len()
    );
    let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(reply.body.as_bytes()));
    if sent.is_ok() {
        drain(&mut stream, service.patience);
    }
}

/// Takes what a client still sends, within bounds: closing on it would tear the reply out of its hands.
fn drain(stream: &mut TcpStream, patience: Duration) {
    let begun = Instant::now();
    let mut left = 4 * request::MAX_BODY_BYTES;
    let mut piece = [0; 4096];
    let _ = stream.shutdown(std::net::Shutdown::Write);
    while begun.elapsed() < patience {
        match stream.read(&mut piece) {
            Ok(count) if count > 0 && count < left => left -= count,
            _ => return,
        }
    }
}

fn route(request: &Request, service: &Service) -> Reply {
    match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/") => Reply { status: 200, kind: "text/html; charset=utf-8", body: PAGE.to_owned() },
        ("GET", "/openapi.json") => Reply { status: 200, kind: "application/json", body: OPENAPI.to_owned() },
        ("GET", "/about") => of_json(200, &about(service)),
        ("POST", "/predict") => {
            let (status, document) = answer(&request.body, service);
            of_json(status, &document)
        }
        (_, "/" | "/openapi.json" | "/about" | "/predict") => refusal(405, "this path is asked with another method"),
        _ => refusal(404, "there is `/`, `/about`, `/predict` and `/openapi.json`"),
    }
}

fn about(service: &Service) -> Value {
    let about = &service.predictor.about;
    let operators: Vec<&String> = service.predictor.learned.operators.keys().collect();
    let devices: Vec<&String> = about.devices.keys().collect();
    json!({
        "program_version": about.program_version, "data_hash": about.data_hash, "rows": about.rows,
        "operators": operators, "devices": devices, "has_mapping": service.mapping.is_some(),
    })
}

/// Status and document for the body of a question.
pub fn answer(body: &[u8], service: &Service) -> (u16, Value) {
    match serde_json::from_slice(body) {
        Ok(question) => match predict(question, service) {
            Ok(document) => (200, document),
            Err(error) => (422, json!({ "error": error.to_string() })),
        },
        Err(error) => (400, json!({ "error": format!("the body is not a question: {error}; see /openapi.json") })),
    }
}

fn predict(question: Question, service: &Service) -> Result<Value> {
    if question.operators.len() > MOST_OPERATORS {
        return Err(Error::Question(format!("there are more than {MOST_OPERATORS} operators")));
    }
    let mut operators: Vec<Operator> = Vec::new();
    for text in &question.operators {
        operators.push(asking::operator(text, service.mapping.as_ref())?);
    }
    if let Some(model) = &question.model {
        operators.extend(asking::model(model, question.batch.unwrap_or(1))?);
    }
    if operators.is_empty() {
        return Err(Error::Question("say what to predict: `operators` or `model`".to_owned()));
    }
    let mut setting = Setting {
        device: question.device,
        threads: question.threads,
        extrapolate: question.extrapolate,
        ..Setting::default()
    };
    for (name, value) in &question.knobs {
        let cell = match (value.as_f64(), value.as_str()) {
            (Some(number), _) => Cell::Number(number),
            (None, Some(word)) => Cell::Word(word.to_owned()),
            (None, None) => return Err(Error::Question(format!("the knob `{name}` is neither a number nor a word"))),
        };
        setting.set_extra(&format!("knob.{name}"), &cell);
    }
    let answers = asking::ask(&service.predictor, &operators, &setting)?;
    let total = asking::total(&operators, &answers, &Run::default());
    Ok(json!({ "operators": answers, "total": total }))
}

fn refusal(status: u16, problem: &str) -> Reply {
    of_json(status, &json!({ "error": problem }))
}

fn of_json(status: u16, document: &Value) -> Reply {
    Reply { status, kind: "application/json", body: document.to_string() }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        411 => "Length Required",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        _ => "Unprocessable Content",
    }
}
