//! Connections and requests, within bounds; HTTP/1 itself is `hyper`'s.
//!
//! One thread waits for all connections, so that one which is idle or slow costs a socket and nothing else; answers are
//! computed on a few threads beside it. Bounded are: connections, the time and size of a head, the time and size of a
//! body, the size of all bodies, answers at a time and those that wait for that, and the life of a connection, however it is spent.

use super::{Reply, Service, refusal, route};
use crate::error::{Error, Result};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, ORIGIN, X_CONTENT_TYPE_OPTIONS};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::{IpAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

/// Requests that are processed at the same time, and requests that wait with their bodies read.
const WORKERS: usize = 4;
const MOST_WAITING: usize = 32;
/// Bytes of a body that need no room among large bodies, which share `MOST_LARGE_BYTES`: clients that send large bodies slowly do
/// not block clients with small ones.
const SMALL_BODY_BYTES: usize = 32 << 10;
const MOST_LARGE_BYTES: usize = 16 << 20;
/// Connections that are open at the same time; the next ones wait in the system's queue. Half of the files that a process may usually open.
const MOST_CONNECTIONS: usize = 512;
/// Request line and header fields.
const MOST_HEAD_BYTES: usize = 16 << 10;
/// Body.
const MOST_BODY_BYTES: usize = 1 << 20;
/// What is still taken of a body that is too large: closing on it would tear the reply out of the client's hands.
const MOST_DRAINED_BYTES: usize = 4 << 20;
/// A connection lives this many times as long as a client may take for one message.
const LIVES: u32 = 12;
/// How long to wait when the system gives no connection, such as for want of file descriptors, and how often in a row.
const PAUSE: Duration = Duration::from_millis(50);
const MOST_PAUSES: u32 = 600;

/// Answers requests until the listener fails for good.
pub fn serve(listener: TcpListener, service: Service) -> Result<()> {
    let failed = |error| Error::io("listen on", Path::new("the socket"), error);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(WORKERS).build().map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
        accept(&listener, &Arc::new(service)).await.map_err(failed)
    })
}

async fn accept(listener: &tokio::net::TcpListener, service: &Arc<Service>) -> std::io::Result<()> {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let room = Arc::new(Room::new());
    let mut pauses = 0;
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("the semaphore stays open");
        match listener.accept().await {
            Ok((stream, _)) => {
                pauses = 0;
                let (service, room) = (Arc::clone(service), Arc::clone(&room));
                tokio::spawn(async move {
                    converse(stream, service, room).await;
                    drop(place);
                });
            }
            Err(error) if pauses == MOST_PAUSES => return Err(error),
            Err(_) => {
                pauses += 1;
                sleep(PAUSE).await;
            }
        }
    }
}

/// Answers what comes over a connection; a client that hangs or leaves only loses its own answers.
async fn converse(stream: tokio::net::TcpStream, service: Arc<Service>, room: Arc<Room>) {
    let patience = service.patience;
    let is_local = stream.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let answer = service_fn(move |request| respond(request, Arc::clone(&service), Arc::clone(&room), is_local));
    let mut protocol = http1::Builder::new();
    protocol.timer(TokioTimer::new()).header_read_timeout(patience).max_buf_size(MOST_HEAD_BYTES);
    let _ = timeout(LIVES * patience, protocol.serve_connection(TokioIo::new(stream), answer)).await;
}

async fn respond(
    request: Request<Incoming>,
    service: Arc<Service>,
    room: Arc<Room>,
    is_local: bool,
) -> std::result::Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    if let Some(why) = is_local.then(|| foreign(&head.headers)).flatten() {
        return Ok(response(refusal(403, &why), true));
    }
    let (reply, is_last) = match timeout(service.patience, read(body, &room)).await {
        Ok(Ok((body, held))) => {
            // A client that disconnects leaves its request behind, so the number of waiting requests is bounded.
            let Ok(place) = Arc::clone(&room.answers).try_acquire_owned() else {
                return Ok(response(full(), true));
            };
            let answer = move || {
                let reply = route(head.method.as_str(), head.uri.path(), &body, &service);
                drop((place, held));
                reply
            };
            let answered = tokio::task::spawn_blocking(answer).await;
            (
                answered
                    .unwrap_or_else(|_| refusal(500, "this request caused an internal error; the server continues")),
                false,
            )
        }
        Ok(Err(refused)) => (refused, true),
        Err(_) => (refusal(408, "the request took too long"), true),
    };
    Ok(response(reply, is_last))
}

/// Returns why a server on loopback refuses a request: a page of another site may send one, under its own name for this machine.
fn foreign(headers: &HeaderMap) -> Option<String> {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or_default());
    let host = text(HOST)?;
    if !is_loopback(host) {
        return Some(format!("this server answers to `127.0.0.1` and `localhost`, not to `{host:.80}`"));
    }
    let origin = text(ORIGIN)?;
    let of_page = origin.split_once("://").map_or(origin, |(_, host)| host);
    (!is_loopback(of_page)).then(|| format!("requests of pages from `{origin:.80}` are rejected"))
}

/// Returns whether a host name, with or without a port, is one of this machine's.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|sign| sign.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    address == "localhost" || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Bounds that all connections share.
struct Room {
    /// Requests that are processed or wait.
    answers: Arc<Semaphore>,
    /// Bytes of large bodies.
    large: Arc<Semaphore>,
}

impl Room {
    fn new() -> Room {
        let semaphore = |places| Arc::new(Semaphore::new(places));
        Room { answers: semaphore(WORKERS + MOST_WAITING), large: semaphore(MOST_LARGE_BYTES) }
    }
}

fn full() -> Reply {
    refusal(503, "too many requests are waiting; try again later")
}

/// Reads a whole body, and returns it with the room that it takes, or a refusal.
async fn read(mut body: Incoming, room: &Room) -> std::result::Result<(Vec<u8>, Option<OwnedSemaphorePermit>), Reply> {
    let (mut bytes, mut seen) = (Vec::new(), 0);
    let mut held: Option<OwnedSemaphorePermit> = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| refusal(400, &format!("the body cannot be read: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        seen += data.len();
        if seen <= MOST_BODY_BYTES {
            let holds = held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
            let lacks = seen.saturating_sub(SMALL_BODY_BYTES + holds);
            if lacks > 0 {
                let more = u32::try_from(lacks).unwrap_or(u32::MAX);
                let more = Arc::clone(&room.large).try_acquire_many_owned(more).map_err(|_| full())?;
                match &mut held {
                    Some(held) => held.merge(more),
                    None => held = Some(more),
                }
            }
            bytes.extend_from_slice(&data);
        } else if seen > MOST_DRAINED_BYTES {
            break;
        }
    }
    match seen <= MOST_BODY_BYTES {
        true => Ok((bytes, held)),
        false => Err(refusal(413, &format!("the body has more than {MOST_BODY_BYTES} bytes"))),
    }
}

fn response(reply: Reply, is_last: bool) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(reply.body));
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(reply.kind));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if is_last {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
