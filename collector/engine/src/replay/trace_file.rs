//! Reads trace files: a header line with an operator, then one candidate of TVM's tuner per line.

use crate::Result;
use crate::campaign::config::{ModelRequest, SIMPLE};
use crate::campaign::graphs::LoadedModels;
use crate::failure::{Failure, format_chain};
use job::space::Moves;
use models::Task;
use serde::Deserialize;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Size limit of a line. Parsed JSON may need a hundred times the memory of its text.
const MAX_LINE_BYTES: u64 = 2 << 20;

#[derive(Deserialize)]
struct TraceHeader {
    op: String,
}

#[derive(Deserialize)]
pub(super) struct RecordedCandidate {
    pub(super) i: i64,
    pub(super) run_ms: f64,
    pub(super) trace: Moves,
}

pub(super) struct TraceFile {
    pub(super) task: Task,
    pub(super) operator: String,
    pub(super) candidates: Vec<RecordedCandidate>,
}

/// Reads the task of a trace file, and the schedule trace of each candidate.
pub fn read_moves(path: &Path) -> Result<(Task, Vec<Moves>)> {
    let TraceFile { task, candidates, .. } = read_trace(path, None)?;
    Ok((task, candidates.into_iter().map(|candidate| candidate.trace).collect()))
}

/// Reads the header and the first `limit` candidates of a file; of later lines, only the length is checked.
pub(super) fn read_trace(path: &Path, limit: Option<usize>) -> Result<TraceFile> {
    let at = |line: usize, error: &dyn std::fmt::Display| {
        Failure::usage(format!("`{}`, line {line}: {error}", path.display()))
            .with_hint("a trace file has a header with `op`, then lines with `i`, `run_ms` and `trace`")
    };
    let file = std::fs::File::open(path)
        .map_err(|error| Failure::usage(format!("cannot read `{}`: {error}", path.display())))?;
    let mut candidates = Vec::new();
    let mut header: Option<TraceHeader> = None;
    let mut file = BufReader::new(file);
    for index in 0.. {
        let mut text = String::new();
        let read = (&mut file).take(MAX_LINE_BYTES + 1).read_line(&mut text).map_err(|error| at(index + 1, &error))?;
        match read as u64 {
            0 => break,
            1..=MAX_LINE_BYTES => {}
            _ => return Err(at(index + 1, &format!("the line is longer than {MAX_LINE_BYTES} bytes"))),
        }
        if header.is_none() {
            header = Some(serde_json::from_str(&text).map_err(|error| at(1, &error))?);
        } else if limit.is_none_or(|limit| candidates.len() < limit) {
            candidates.push(serde_json::from_str(&text).map_err(|error| at(index + 1, &error))?);
        }
    }
    let TraceHeader { op } = header.ok_or_else(|| at(1, &"the file is empty"))?;
    let task = parse_operator(&op).map_err(|failure| at(1, &failure))?;
    Ok(TraceFile { task, operator: op, candidates })
}

/// Parses an operator: a short name, such as `matmul512` or `conv2d_64x56_k3`, or a name of the source `simple`.
fn parse_operator(op: &str) -> Result<Task> {
    let text = if op.contains(':') { op.to_owned() } else { simple_text(op).ok_or_else(|| unknown_operator(op))? };
    let request = ModelRequest { source: SIMPLE.to_owned(), name: text, ..ModelRequest::default() };
    let model = LoadedModels::default().load(&request).map_err(|error| Failure::usage(format_chain(&error)))?;
    let tasks = models::fuse::distinct_tasks(&model.graph, models::fuse::Fuse::Epilogue);
    let tasks = tasks.map_err(|error| Failure::usage(format_chain(&error)))?;
    tasks.into_iter().next().map(|found| found.task).ok_or_else(|| unknown_operator(op))
}

fn unknown_operator(op: &str) -> Failure {
    Failure::usage(format!(
        "unknown operator `{op}`; supported are `matmulN`, `conv2d_CxHW_kK`, `dwconv_CxHW_kK` and names of the source \
         `simple`"
    ))
}

fn simple_text(op: &str) -> Option<String> {
    if let Some(size) = op.strip_prefix("matmul") {
        let size: u32 = size.parse().ok()?;
        return Some(format!("matmul:m={size},n={size},k={size}"));
    }
    let (kind, rest) = op.split_once('_')?;
    let (shape, kernel) = rest.split_once("_k")?;
    let (channels, extent) = shape.split_once('x')?;
    let [channels, extent, kernel] = [channels, extent, kernel].map(|text| text.parse::<u32>().ok());
    let (channels, extent, kernel) = (channels?, extent?, kernel?);
    let groups = match kind {
        "conv2d" => 1,
        "dwconv" => channels,
        _ => return None,
    };
    let pad = kernel / 2;
    Some(format!("conv2d:n=1,ci={channels},hw={extent},co={channels},k={kernel},s=1,p={pad},g={groups}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(content: &[u8]) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        read_trace(file.path(), None).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn long_lines_are_not_read() {
        let line = " ".repeat(usize::try_from(MAX_LINE_BYTES).unwrap() + 1);
        assert!(refusal(line.as_bytes()).contains("line 1: the line is longer than 2097152 bytes"));
        let later = format!("{{\"op\":\"matmul16\"}}\n{line}\n");
        assert!(refusal(later.as_bytes()).contains("line 2: the line is longer"));
        assert!(refusal(b"").contains("the file is empty"));
    }
}
