//! Reads arbitrary bytes as a host trace and merges it with a small capture; the result is an error or a trace that can
//! be queried.
//! Useful seeds are traces of Chrome or PyTorch, after eight bytes with the time that the host waited for the profiler.

use crate::card;
use capture::tpu::{Reading, loss::Losses, read_capture, trace};
use capture::trace::QueryBounds;
use std::path::Path;

pub fn run(bytes: &[u8]) {
    let Some((offset, text)) = bytes.split_first_chunk::<8>() else { return };
    let tail = (1210, Some(i64::from_le_bytes(*offset) >> 8));
    let mut losses = Losses::default();
    let Ok(host) = trace::host::parse_host_trace(Path::new("fuzz"), text, tail, &mut losses) else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let capture = card::write(folder.path(), &[(0, card::small_core(0))]);
    let timeline = read_capture(&capture, &Reading::default()).expect("our own capture");
    let path = folder.path().join("perfetto.pftrace");
    trace::write_trace(&timeline, Some(&host), &path).expect("the folder is writable");
    let question = "select count(*), sum(dur) from slice";
    capture::trace::query_trace(&path, question, &QueryBounds::default()).expect("our own trace");
}
