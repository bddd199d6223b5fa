//! Frames: a four-byte little-endian length, followed by that many bytes of postcard. The reader trusts no input: the
//! length is limited, memory grows with the bytes that arrive, and a value must consist of all bytes of its frame.

use std::io::{ErrorKind, Read, Write};

use serde::{Serialize, de::DeserializeOwned};

/// Maximum length of a frame's content, far above the size of any object code or samples.
pub const FRAME_BYTES_MAX: usize = 64 << 20;

/// Maximum number of bytes reserved before any content arrives.
const EXPECTED_BYTES_TRUSTED: usize = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The peer closed the connection between two frames.
    #[error("the connection was closed")]
    Closed,
    #[error("frame is cut off: {got_bytes} of {expected_bytes} bytes arrived")]
    Truncated {
        /// Announced length of the content, or the size of the length field if that is incomplete.
        expected_bytes: usize,
        got_bytes: usize,
    },
    #[error("frame of {length_bytes} bytes exceeds the limit of {FRAME_BYTES_MAX} bytes")]
    Oversized { length_bytes: usize },
    #[error("frame content cannot be decoded: {why}")]
    Malformed { why: String },
    #[error("value cannot be encoded: {why}")]
    Unencodable { why: String },
    #[error("no complete frame before the deadline")]
    TimedOut,
    #[error("frame transfer failed: {0}")]
    Io(#[source] std::io::Error),
}

pub fn write_frame<T: Serialize>(writer: &mut impl Write, value: &T) -> Result<(), FrameError> {
    let mut bytes = postcard::to_extend(value, vec![0_u8; 4])
        .map_err(|error| FrameError::Unencodable { why: error.to_string() })?;
    let length_bytes = bytes.len() - 4;
    if length_bytes > FRAME_BYTES_MAX {
        return Err(FrameError::Oversized { length_bytes });
    }
    let length = u32::try_from(length_bytes).expect("the limit fits into 32 bits");
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    writer.write_all(&bytes).and_then(|()| writer.flush()).map_err(from_io)
}

pub fn read_frame<T: DeserializeOwned>(reader: &mut impl Read) -> Result<T, FrameError> {
    let mut head = Vec::with_capacity(4);
    read_up_to(reader, 4, &mut head)?;
    let Ok(head) = <[u8; 4]>::try_from(head.as_slice()) else {
        return Err(match head.len() {
            0 => FrameError::Closed,
            got_bytes => FrameError::Truncated { expected_bytes: 4, got_bytes },
        });
    };
    let expected_bytes = usize::try_from(u32::from_le_bytes(head)).unwrap_or(usize::MAX);
    if expected_bytes > FRAME_BYTES_MAX {
        return Err(FrameError::Oversized { length_bytes: expected_bytes });
    }
    let mut content = Vec::with_capacity(expected_bytes.min(EXPECTED_BYTES_TRUSTED));
    read_up_to(reader, expected_bytes, &mut content)?;
    if content.len() < expected_bytes {
        return Err(FrameError::Truncated { expected_bytes, got_bytes: content.len() });
    }
    match postcard::take_from_bytes(&content) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(FrameError::Malformed { why: format!("{} extra bytes", rest.len()) }),
        Err(error) => Err(FrameError::Malformed { why: error.to_string() }),
    }
}

/// Reads up to `limit` bytes. Memory grows with the bytes that arrive.
fn read_up_to(reader: &mut impl Read, limit: usize, into: &mut Vec<u8>) -> Result<(), FrameError> {
    reader.by_ref().take(limit as u64).read_to_end(into).map(drop).map_err(from_io)
}

fn from_io(error: std::io::Error) -> FrameError {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => FrameError::TimedOut,
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof => FrameError::Closed,
        _ => FrameError::Io(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    fn check_refused(bytes: &[u8], expected: Expect) {
        let error = read_frame::<Vec<u32>>(&mut &bytes[..]).expect_err("a damaged frame");
        expected.assert_eq(&error.to_string());
    }

    #[test]
    fn every_damage_has_its_own_error() {
        check_refused(&[], expect!["the connection was closed"]);
        check_refused(&[3, 0], expect!["frame is cut off: 2 of 4 bytes arrived"]);
        check_refused(&[3, 0, 0, 0, 1], expect!["frame is cut off: 1 of 3 bytes arrived"]);
        check_refused(
            &[0xff, 0xff, 0xff, 0xff, 1],
            expect!["frame of 4294967295 bytes exceeds the limit of 67108864 bytes"],
        );
        check_refused(&[3, 0, 0, 0, 1, 7, 9], expect!["frame content cannot be decoded: 1 extra bytes"]);
        check_refused(
            &[1, 0, 0, 0, 5],
            expect!["frame content cannot be decoded: Hit the end of buffer, expected more data"],
        );
    }

    #[test]
    fn an_oversized_value_is_not_sent() {
        let mut sink = Vec::new();
        let error = write_frame(&mut sink, &vec![0_u8; FRAME_BYTES_MAX]).expect_err("length prefix makes it too long");
        assert!(matches!(error, FrameError::Oversized { .. }), "{error}");
        assert!(sink.is_empty());
    }

    proptest! {
        #[test]
        fn frames_follow_each_other(values in prop::collection::vec(any::<(u64, String, Option<f64>)>(), 0..8)) {
            let mut wire = Vec::new();
            for value in &values {
                write_frame(&mut wire, value).unwrap();
            }
            let mut reader = &wire[..];
            for value in &values {
                let read: (u64, String, Option<f64>) = read_frame(&mut reader).unwrap();
                prop_assert_eq!(read.0, value.0);
                prop_assert_eq!(&read.1, &value.1);
                prop_assert_eq!(read.2.map(f64::to_bits), value.2.map(f64::to_bits));
            }
            prop_assert!(matches!(read_frame::<u8>(&mut reader), Err(FrameError::Closed)));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = read_frame::<Vec<(String, u64)>>(&mut &bytes[..]);
        }
    }
}
