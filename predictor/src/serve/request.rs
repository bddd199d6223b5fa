//! One HTTP request off a stream, within bounds.

use std::io::Read;
use std::time::{Duration, Instant};

/// Request line and header fields.
const MAX_HEAD_BYTES: usize = 8 << 10;
/// Body.
pub const MAX_BODY_BYTES: usize = 1 << 20;

/// What was asked.
#[derive(Debug, PartialEq)]
pub struct Request {
    /// Such as `GET`.
    pub method: String,
    /// The path, without what follows a question mark.
    pub path: String,
    /// The body.
    pub body: Vec<u8>,
}

/// Why there is no request.
#[derive(Debug, PartialEq)]
pub enum Trouble {
    /// The other side left or fell silent before it said anything useful.
    Gone,
    /// What to reply.
    Bad(u16, String),
}

/// Reads a request; all of it must come within `patience`.
pub fn read(stream: &mut impl Read, patience: Duration) -> Result<Request, Trouble> {
    let begun = Instant::now();
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if bytes.len() > MAX_HEAD_BYTES {
            return Err(Trouble::Bad(431, format!("the request's head has more than {MAX_HEAD_BYTES} bytes")));
        }
        more(stream, &mut bytes, begun, patience)?;
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some(version)) = (method, target, version) else {
        return Err(Trouble::Bad(400, "the first line is not METHOD PATH VERSION".to_owned()));
    };
    if !version.starts_with("HTTP/1.") || words.next().is_some() {
        return Err(Trouble::Bad(400, "only HTTP/1 is spoken here".to_owned()));
    }
    let length = body_length(lines)?;
    let mut body = bytes.split_off(end + 4);
    if method == "POST" && length.is_none() {
        return Err(Trouble::Bad(411, "a body needs a Content-Length".to_owned()));
    }
    let length = length.unwrap_or(0);
    while body.len() < length {
        more(stream, &mut body, begun, patience)?;
    }
    body.truncate(length);
    let path = target.split('?').next().unwrap_or_default().to_owned();
    Ok(Request { method: method.to_owned(), path, body })
}

fn body_length<'a>(fields: impl Iterator<Item = &'a str>) -> Result<Option<usize>, Trouble> {
    let mut length = None;
    for field in fields {
        let Some((name, value)) = field.split_once(':') else {
            return Err(Trouble::Bad(400, "a header field has no colon".to_owned()));
        };
        if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(Trouble::Bad(411, "bodies in pieces are not taken; send a Content-Length".to_owned()));
        }
        if !name.eq_ignore_ascii_case("content-length") {
            continue;
        }
        let value: usize =
            value.trim().parse().map_err(|_| Trouble::Bad(400, "Content-Length is not a number".to_owned()))?;
        if length.is_some_and(|known| known != value) {
            return Err(Trouble::Bad(400, "there are two different Content-Lengths".to_owned()));
        }
        if value > MAX_BODY_BYTES {
            return Err(Trouble::Bad(413, format!("the body has more than {MAX_BODY_BYTES} bytes")));
        }
        length = Some(value);
    }
    Ok(length)
}

fn more(stream: &mut impl Read, bytes: &mut Vec<u8>, begun: Instant, patience: Duration) -> Result<(), Trouble> {
    let mut piece = [0; 4096];
    if begun.elapsed() > patience {
        return Err(Trouble::Bad(408, "the request took too long".to_owned()));
    }
    match stream.read(&mut piece) {
        Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
            Err(Trouble::Bad(408, "the request took too long".to_owned()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(()),
        Ok(0) | Err(_) => Err(Trouble::Gone),
        Ok(count) => {
            bytes.extend_from_slice(&piece[..count]);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str) -> Result<Request, Trouble> {
        read(&mut text.as_bytes(), Duration::from_secs(60))
    }

    fn status(text: &str) -> u16 {
        match of(text) {
            Err(Trouble::Bad(status, _)) => status,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn reads_a_body_of_the_length_it_says() {
        let request =
            of("POST /predict?x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}rest").expect("a request");
        assert_eq!(request, Request { method: "POST".to_owned(), path: "/predict".to_owned(), body: b"{}".to_vec() });
    }

    #[test]
    fn refuses_what_is_too_large_unclear_or_cut_off() {
        assert_eq!(status("POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n"), 413);
        assert_eq!(status("POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"), 400);
        assert_eq!(status("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), 411);
        assert_eq!(status("POST / HTTP/1.1\r\n\r\n"), 411);
        assert_eq!(status("GET / HTTP/2\r\n\r\n"), 400);
        assert_eq!(status(&format!("GET / HTTP/1.1\r\nA: {}", "a".repeat(2 * MAX_HEAD_BYTES))), 431);
        assert_eq!(of("GET / HTT"), Err(Trouble::Gone));
    }

    proptest! {
        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&mut &bytes[..], Duration::from_secs(60));
        }
    }
}
