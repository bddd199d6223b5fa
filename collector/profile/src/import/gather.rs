//! Conversion of trace events to the spans, operators and memory events of a profile.

use super::ImportBounds;
use super::nest::{self, Raw};
use super::shapes::{self, OnnxArguments, TorchArguments};
use crate::check::SUM_MAX;
use crate::data::{Kind, MemoryEvent, Operator, Pool, Profile, Source, Step, Track};
use capture::events::{Arguments, Event, Full, Kind as Sort, TraceContents};
use report::format_count;
use std::collections::{HashMap, HashSet};

/// Maximum number of operators; more indicate that the names are not operator names.
const MAX_OPERATORS: usize = 5_000_000;
const MAX_OPEN: usize = 100_000;

/// Operators that torch.profiler omits from its tables.
const HIDDEN: [&str; 7] = [
    "[OutOfMemory]",
    "profiler::_record_function_enter",
    "profiler::_record_function_enter_new",
    "profiler::_record_function_exit",
    "aten::is_leaf",
    "aten::output_nr",
    "aten::_version",
];
const MEMORY: &str = "[memory]";
const STEP: &str = "ProfilerStep#";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ProfileWriter {
    #[default]
    Unknown,
    Torch,
    OnnxRuntime,
}

pub struct Gather {
    bounds: ImportBounds,
    writer: ProfileWriter,
    /// Whether the trace has operators of `opcollect profile`, whose traces have the form of torch.profiler's.
    has_own_operators: bool,
    has_torch_operators: bool,
    spans: Vec<Raw>,
    operators: Vec<Operator>,
    by_key: HashMap<Box<[u8]>, u32>,
    key: Vec<u8>,
    /// Open slices by track: the call, and its start time.
    open: HashMap<u32, Vec<(Option<RawCall>, i64)>>,
    device_tracks: HashSet<u32>,
    memory: Vec<(i64, i64, Option<i64>, bool)>,
    steps: Vec<(u64, i64, i64)>,
    unended: u64,
    /// Number of slices that end before they start.
    negative: u64,
    total_ns: u64,
    total_bytes: u64,
    /// Number of spans and memory events that were dropped because a sum would exceed its limit.
    too_large: u64,
}

struct RawCall {
    kind: Kind,
    operator: u32,
    external: Option<u64>,
    step: Option<u64>,
}

impl Gather {
    pub fn new(bounds: ImportBounds) -> Gather {
        Gather {
            bounds,
            writer: ProfileWriter::Unknown,
            has_own_operators: false,
            has_torch_operators: false,
            spans: Vec::new(),
            operators: Vec::new(),
            by_key: HashMap::new(),
            key: Vec::new(),
            open: HashMap::new(),
            device_tracks: HashSet::new(),
            memory: Vec::new(),
            steps: Vec::new(),
            unended: 0,
            negative: 0,
            total_ns: 0,
            total_bytes: 0,
            too_large: 0,
        }
    }

    pub fn add_event(&mut self, event: &Event<'_>) -> Result<(), Full> {
        match event.kind {
            Sort::Slice(length) => match self.classify_slice(event)? {
                Some(raw_call) => {
                    self.push_span(raw_call, event.track, (event.at_ns, event.at_ns.saturating_add(length)))
                }
                None => Ok(()),
            },
            Sort::Begin => {
                let raw_call = self.classify_slice(event)?;
                let open = self.open.entry(event.track).or_default();
                if open.len() >= MAX_OPEN {
                    self.unended += 1;
                } else {
                    open.push((raw_call, event.at_ns));
                }
                Ok(())
            }
            Sort::End => match self.open.get_mut(&event.track).and_then(Vec::pop) {
                Some((Some(raw_call), start_ns)) => self.push_span(raw_call, event.track, (start_ns, event.at_ns)),
                _ => Ok(()),
            },
            Sort::Instant if event.name == MEMORY => self.add_allocation(event),
            _ => Ok(()),
        }
    }

    fn push_span(&mut self, raw_call: RawCall, track: u32, (start_ns, end_ns): (i64, i64)) -> Result<(), Full> {
        if self.spans.len() >= self.bounds.spans {
            return Err(Full(self.bounds.spans, "spans"));
        }
        if end_ns < start_ns {
            self.negative += 1;
            return Ok(());
        }
        let total_ns = self.total_ns.saturating_add(end_ns.abs_diff(start_ns));
        if total_ns > SUM_MAX {
            self.too_large += 1;
            return Ok(());
        }
        self.total_ns = total_ns;
        let RawCall { kind, operator, external, step } = raw_call;
        if matches!(kind, Kind::Kernel | Kind::Copy) {
            self.device_tracks.insert(track);
        }
        self.steps.extend(step.map(|number| (number, start_ns, end_ns)));
        self.spans.push(Raw { kind, operator, external, track, start_ns, end_ns });
        Ok(())
    }

    /// Converts a slice to a call; `None` for slices that a profile does not contain.
    fn classify_slice(&mut self, event: &Event<'_>) -> Result<Option<RawCall>, Full> {
        let kind = match event.category.as_ref() {
            "python_function" | "Trace" => return Ok(None),
            "cpu_op" | "user_annotation" => {
                self.writer = ProfileWriter::Torch;
                if event.category == "cpu_op" { Kind::Operator } else { Kind::Range }
            }
            "Node" | "Session" if self.writer != ProfileWriter::Torch => {
                self.writer = ProfileWriter::OnnxRuntime;
                if event.category == "Node" { Kind::Operator } else { Kind::Range }
            }
            // Parts of a call on pool threads, as `export` writes them. Their times are in the time of the call.
            "task" if self.writer == ProfileWriter::Torch => Kind::Task,
            "kernel" | "Kernel" => Kind::Kernel,
            "gpu_memcpy" | "gpu_memset" => Kind::Copy,
            "cuda_runtime" | "cuda_driver" | "privateuse1_runtime" | "privateuse1_driver" => Kind::Runtime,
            "overhead" => Kind::Overhead,
            "gpu_user_annotation" => return Ok(None),
            _ => Kind::Operator,
        };
        if self.writer == ProfileWriter::Torch && HIDDEN.contains(&event.name.as_ref()) {
            return Ok(None);
        }
        let step = event.name.strip_prefix(STEP).map(|number| number.parse().ok());
        let name = if step.is_some() { "ProfilerStep*" } else { &event.name };
        let (operator, external) = self.operator_index(kind, name, &event.arguments)?;
        Ok(Some(RawCall { kind, operator, external, step: step.flatten() }))
    }

    fn operator_index(
        &mut self,
        kind: Kind,
        name: &str,
        arguments: &Arguments<'_>,
    ) -> Result<(u32, Option<u64>), Full> {
        let (mut torch, mut onnx) = (TorchArguments::default(), OnnxArguments::default());
        let text = shapes::to_json(arguments);
        match self.writer {
            ProfileWriter::OnnxRuntime => onnx = serde_json::from_str(&text).unwrap_or_default(),
            _ => torch = serde_json::from_str(&text).unwrap_or_default(),
        }
        let external = torch.external;
        if self.writer == ProfileWriter::Torch && kind == Kind::Operator {
            let is_own = torch.text.is_some();
            self.has_own_operators |= is_own;
            self.has_torch_operators |= !is_own;
        }
        let own = [torch.dims, torch.types, onnx.inputs, onnx.outputs].map(|raw| raw.map_or("", |raw| raw.get()));
        self.key.clear();
        self.key.push(kind as u8);
        for part in own.into_iter().chain([name, onnx.operator.as_deref().unwrap_or_default()]) {
            self.key.extend_from_slice(part.as_bytes());
            self.key.push(0);
        }
        if let Some(known) = self.by_key.get(self.key.as_slice()) {
            return Ok((*known, external));
        }
        if self.operators.len() >= MAX_OPERATORS {
            return Err(Full(MAX_OPERATORS, "different operators or shapes"));
        }
        let [dims, types, inputs, outputs] = own;
        let inputs = match self.writer {
            ProfileWriter::OnnxRuntime => shapes::parse_onnx(inputs),
            _ => shapes::parse_torch(dims, Some(types)),
        };
        let (input_shapes, input_dtypes) = inputs.unwrap_or_default();
        let output_shapes = shapes::parse_onnx(outputs).map(|(shapes, _)| shapes).unwrap_or_default();
        // ONNX Runtime uses the node's name, which is the scope; the operator kind is an argument.
        let (name, scope) = match onnx.operator {
            Some(kind) => (kind, name.strip_suffix("_kernel_time").unwrap_or(name).to_owned()),
            None => (name.to_owned(), String::new()),
        };
        self.operators.push(Operator { name, scope, input_shapes, input_dtypes, output_shapes, ..Operator::default() });
        let place = self.operators.len() as u32 - 1;
        self.by_key.insert(self.key.as_slice().into(), place);
        Ok((place, external))
    }

    fn add_allocation(&mut self, event: &Event<'_>) -> Result<(), Full> {
        let text = shapes::to_json(&event.arguments);
        let Ok(TorchArguments { bytes: Some(bytes), total, device, .. }) = serde_json::from_str(&text) else {
            return Ok(());
        };
        if self.memory.len() >= self.bounds.spans {
            return Err(Full(self.bounds.spans, "allocations"));
        }
        let total_bytes = self.total_bytes.saturating_add(bytes.unsigned_abs());
        if total_bytes > SUM_MAX {
            self.too_large += 1;
            return Ok(());
        }
        self.total_bytes = total_bytes;
        self.memory.push((event.at_ns, bytes, total, device.unwrap_or(0) > 0));
        Ok(())
    }

    pub fn build_profile(mut self, model: String, found: &TraceContents) -> Profile {
        let starts = self.spans.iter().map(|span| span.start_ns).chain(self.memory.iter().map(|event| event.0));
        let zero = starts.min().unwrap_or(0);
        let mut tracks: Vec<Track> = found.tracks.iter().map(convert_track).collect();
        for place in &self.device_tracks {
            tracks[*place as usize].is_device = true;
        }
        let steps = build_steps(&mut self.steps, zero);
        let lift = self.writer == ProfileWriter::Torch;
        let spans = nest::nest_spans(self.spans, &tracks, &self.operators, zero, &steps, lift);
        self.memory.sort_by_key(|event| event.0);
        let unended = self.unended + self.open.values().map(|open| open.len() as u64).sum::<u64>();
        let skipped = [
            (unended, "slice", "without an end"),
            (self.negative, "slice", "with an end before the start"),
            (self.too_large, "time or size", "beyond the limit"),
        ];
        let skipped = skipped.iter().filter(|(count, ..)| *count > 0);
        Profile {
            model,
            source: Source::Imported,
            format: match self.writer {
                ProfileWriter::Torch if !self.has_own_operators => "torch.profiler",
                ProfileWriter::Torch if !self.has_torch_operators => "opcollect",
                // A merged trace of both.
                ProfileWriter::Torch => "trace",
                ProfileWriter::OnnxRuntime => "onnxruntime",
                ProfileWriter::Unknown => "trace",
            }
            .to_owned(),
            tracks,
            operators: self.operators,
            steps,
            spans,
            memory: convert_memory(&self.memory, zero),
            notes: skipped.map(|(count, what, why)| format!("skipped {} {why}", format_count(*count, what))).collect(),
            ..Profile::default()
        }
    }
}

fn convert_track(track: &capture::events::Track) -> Track {
    let name = track.name.clone().or_else(|| track.process_name.clone()).unwrap_or_else(|| track.thread.clone());
    let [process, id] = [&track.process, &track.thread].map(|text| text.parse().unwrap_or(0));
    Track { name, process, id, ..Track::default() }
}

/// Converts the steps found in a trace; returns no steps if any overlap.
fn build_steps(found: &mut [(u64, i64, i64)], zero: i64) -> Vec<Step> {
    found.sort_by_key(|(_, start, _)| *start);
    if found.windows(2).any(|pair| pair[1].1 < pair[0].2) {
        return Vec::new();
    }
    let step = |(number, start, end): &(u64, i64, i64)| Step {
        number: *number,
        cycle: 0,
        start_ns: start.abs_diff(zero),
        duration_ns: end.abs_diff(*start),
    };
    found.iter().map(step).collect()
}

/// Converts memory events. The bytes in use come from the trace, or else are the sum of the events.
fn convert_memory(events: &[(i64, i64, Option<i64>, bool)], zero: i64) -> Vec<MemoryEvent> {
    let mut live = [0_i64; 2];
    let event = |(at, bytes, total, is_device): &(i64, i64, Option<i64>, bool)| {
        let live = &mut live[usize::from(*is_device)];
        *live = total.unwrap_or(live.saturating_add(*bytes));
        let pool = if *is_device { Pool::Device } else { Pool::Activations };
        let live_bytes = u64::try_from(*live).unwrap_or(0);
        MemoryEvent { at_ns: at.abs_diff(zero), span: None, pool, bytes: *bytes, live_bytes }
    };
    events.iter().map(event).collect()
}
