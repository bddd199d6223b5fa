//! Accepts connections and reads requests, within limits; `hyper` implements HTTP/1.
//!
//! One thread waits for all connections, so an idle connection costs only a socket. A few threads compute the replies.
//! Connections, sizes, times and queued requests are limited.

use super::{Reply, Service, refusal_reply, route_request};
use crate::error::{Error, Result};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, ORIGIN, X_CONTENT_TYPE_OPTIONS};
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

/// Number of requests processed concurrently; `MOST_WAITING` limits the queued requests, whose bodies are already read.
const WORKERS: usize = 4;
const MOST_WAITING: usize = 32;
/// Bodies up to this size do not count as large, so that slow large uploads do not block small requests.
const SMALL_BODY_BYTES: usize = 32 << 10;
const MOST_LARGE_BYTES: usize = 16 << 20;
/// Maximum number of open connections: half the usual limit on open files. More connections wait in the kernel's queue.
const MOST_CONNECTIONS: usize = 512;
const MOST_HEAD_BYTES: usize = 16 << 10;
const MOST_BODY_BYTES: usize = 1 << 20;
/// Bytes to discard from a body that is too large; closing the connection earlier would lose the reply.
const MOST_DRAINED_BYTES: usize = 4 << 20;
/// Maximum lifetime of a connection, in multiples of the client's time limit.
const LIVES: u32 = 12;
/// Pause after a failed accept, for example without free file descriptors. `MOST_PAUSES` limits consecutive failures.
const PAUSE: Duration = Duration::from_millis(50);
const MOST_PAUSES: u32 = 600;

/// Serves requests until the listener fails permanently.
pub fn serve_requests(listener: TcpListener, service: Service) -> Result<()> {
    let failed = |error| Error::io_error("listen on", Path::new("the socket"), error);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(WORKERS).build().map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
        accept_connection(&listener, &Arc::new(service)).await.map_err(failed)
    })
}

async fn accept_connection(listener: &tokio::net::TcpListener, service: &Arc<Service>) -> std::io::Result<()> {
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
                    handle_connection(stream, service, room).await;
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

/// Serves one connection; a slow or lost client does not affect other connections.
async fn handle_connection(stream: tokio::net::TcpStream, service: Arc<Service>, room: Arc<Room>) {
    let patience = service.patience;
    let is_local = stream.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let answer = service_fn(move |request| handle_request(request, Arc::clone(&service), Arc::clone(&room), is_local));
    let mut protocol = http1::Builder::new();
    protocol.timer(TokioTimer::new()).header_read_timeout(patience).max_buf_size(MOST_HEAD_BYTES);
    let _ = timeout(LIVES * patience, protocol.serve_connection(TokioIo::new(stream), answer)).await;
}

async fn handle_request(
    request: Request<Incoming>,
    service: Arc<Service>,
    room: Arc<Room>,
    is_local: bool,
) -> std::result::Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    if head.headers.get_all(HOST).iter().count() > 1 {
        return Ok(build_response(refusal_reply(400, "the request has several `Host` headers"), true));
    }
    if let Some(why) = is_local.then(|| foreign_reason(&head.headers)).flatten() {
        return Ok(build_response(refusal_reply(403, &why), true));
    }
    let (reply, is_last) = match timeout(service.patience, read_body(body, &room)).await {
        Ok(Ok((body, held))) => {
            // The length of the queue is limited, because requests of disconnected clients stay in the queue.
            let Ok(place) = Arc::clone(&room.answers).try_acquire_owned() else {
                return Ok(build_response(busy_reply(), true));
            };
            let answer = move || {
                let reply = route_request(head.method.as_str(), &head.uri, &body, &service);
                drop((place, held));
                reply
            };
            let answered = tokio::task::spawn_blocking(answer).await;
            (
                answered.unwrap_or_else(|_| {
                    refusal_reply(500, "this request caused an internal error; the server continues")
                }),
                false,
            )
        }
        Ok(Err(refused)) => (refused, true),
        Err(_) => (refusal_reply(408, "the request took too long"), true),
    };
    Ok(build_response(reply, is_last))
}

/// Returns why a loopback server rejects a request; None if it is accepted. Pages of other sites can send requests to
/// this server, but state their own host or origin.
fn foreign_reason(headers: &HeaderMap) -> Option<String> {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or_default());
    let host = text(HOST)?;
    if !is_loopback(host) {
        return Some(format!("this server accepts requests to `127.0.0.1` and `localhost`, not to `{host:.80}`"));
    }
    let origin = text(ORIGIN)?;
    let of_page = origin.split_once("://").map_or(origin, |(_, host)| host);
    (!is_loopback(of_page)).then(|| format!("requests of pages from `{origin:.80}` are rejected"))
}

fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|sign| sign.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    address.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

struct Room {
    /// Permits for requests that are in progress or queued.
    answers: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

impl Room {
    fn new() -> Room {
        let semaphore = |places| Arc::new(Semaphore::new(places));
        Room { answers: semaphore(WORKERS + MOST_WAITING), large: semaphore(MOST_LARGE_BYTES) }
    }
}

fn busy_reply() -> Reply {
    refusal_reply(503, "too many requests are waiting; try again later")
}

/// Reads the body of a request. Returns it with its permit for large bodies, or the reply that refuses it.
async fn read_body(
    mut body: Incoming,
    room: &Room,
) -> std::result::Result<(Vec<u8>, Option<OwnedSemaphorePermit>), Reply> {
    let too_large = || refusal_reply(413, &format!("the body has more than {MOST_BODY_BYTES} bytes"));
    // A body that would not be drained is not awaited either.
    if body.size_hint().lower() > MOST_DRAINED_BYTES as u64 {
        return Err(too_large());
    }
    let (mut bytes, mut seen) = (Vec::new(), 0);
    let mut held: Option<OwnedSemaphorePermit> = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| refusal_reply(400, &format!("the body cannot be read: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        seen += data.len();
        if seen <= MOST_BODY_BYTES {
            let holds = held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
            let lacks = seen.saturating_sub(SMALL_BODY_BYTES + holds);
            if lacks > 0 {
                let more = u32::try_from(lacks).unwrap_or(u32::MAX);
                let more = Arc::clone(&room.large).try_acquire_many_owned(more).map_err(|_| busy_reply())?;
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
    if seen <= MOST_BODY_BYTES { Ok((bytes, held)) } else { Err(too_large()) }
}

fn build_response(reply: Reply, is_last: bool) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(reply.body));
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(reply.kind));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Some(allow) = reply.allow {
        headers.insert(ALLOW, HeaderValue::from_static(allow));
    }
    if is_last {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
