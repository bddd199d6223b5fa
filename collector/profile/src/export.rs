//! Export of a profile as a trace: operators on their threads inside steps, flow arrows to their tasks on other threads
//! and devices, and counter tracks for memory, speed and processor time.

use crate::data::{Kind, Operator, Pool, Profile, Span, Step};
use capture::events::convert::BASE_TIME;
use capture::writer::sink::{Count, Format, Heading, Role, ShownArgument, ShownSlice, Sink, Written};
use capture::writer::{Sort, WrittenTrack};
use std::collections::BTreeMap;
use std::io::Write;

const KEYS: [&str; 10] =
    ["External id", "Input Dims", "Input type", "text", "scope", "task", "schedule", "flops", "bytes", "cpu_ns"];

mod key {
    pub const EXTERNAL: usize = 0;
    pub const DIMS: usize = 1;
    pub const TYPES: usize = 2;
    pub const TEXT: usize = 3;
    pub const SCOPE: usize = 4;
    pub const TASK: usize = 5;
    pub const SCHEDULE: usize = 6;
    pub const FLOPS: usize = 7;
    pub const BYTES: usize = 8;
    pub const CPU: usize = 9;
}

/// Writes a profile as a trace of at most about `limit` bytes.
pub fn write_trace<W: Write>(profile: &Profile, format: Format, out: W, limit: u64) -> std::io::Result<(Written, W)> {
    let tracks = ExportTracks::from_profile(profile);
    let steps: Vec<String> = profile.steps.iter().map(|step| format!("ProfilerStep#{}", step.number)).collect();
    let mut keys: Vec<&str> = KEYS.to_vec();
    keys.extend(profile.counters.iter().map(|counter| counter.name.as_str()));
    let heading = Heading { tracks: &tracks.list, keys: &keys, members: &metadata_members(profile) };
    let mut sink = Sink::new(format, heading, out, limit)?;
    sink.add_counts(list_counts(profile, &tracks));
    write_slices(profile, &tracks, &steps, &mut sink)?;
    sink.finish_trace()
}

fn metadata_members(profile: &Profile) -> Vec<(String, String)> {
    let has_flops = profile.operators.iter().any(|operator| operator.flops.is_some());
    let name = serde_json::to_string(&profile.model).expect("a text can be written");
    let start = profile.wall_clock_start_ns.map(|start_ns| (BASE_TIME, start_ns.to_string()));
    let members = [
        ("schemaVersion", "1".to_owned()),
        ("deviceProperties", "[]".to_owned()),
        ("record_shapes", "1".to_owned()),
        ("profile_memory", u8::from(!profile.memory.is_empty()).to_string()),
        ("with_flops", u8::from(has_flops).to_string()),
        ("distributedInfo", "{\"rank\":0}".to_owned()),
        ("displayTimeUnit", "\"ms\"".to_owned()),
        ("traceName", name),
    ];
    members.into_iter().chain(start).map(|(name, value)| (name.to_owned(), value)).collect()
}

struct ExportTracks {
    list: Vec<WrittenTrack>,
    places: Vec<usize>,
    memory: BTreeMap<Pool, usize>,
    speed: Option<usize>,
    share: Option<usize>,
}

impl ExportTracks {
    fn from_profile(profile: &Profile) -> ExportTracks {
        let mut tracks =
            ExportTracks { list: Vec::new(), places: Vec::new(), memory: BTreeMap::new(), speed: None, share: None };
        let number = |number: u64| i32::try_from(number).unwrap_or(i32::MAX);
        let mut processes: BTreeMap<u64, usize> = BTreeMap::new();
        for track in &profile.tracks {
            let process = *processes.entry(track.process).or_insert_with(|| {
                tracks.list.push(WrittenTrack {
                    name: profile.model.clone(),
                    sort: Sort::Process(number(track.process)),
                    ..WrittenTrack::default()
                });
                tracks.list.len() - 1
            });
            let thread = Sort::Thread(number(track.process), i64::try_from(track.id).unwrap_or(i64::MAX));
            let sort = if track.is_device { Sort::Slices } else { thread };
            let place = tracks.add_track(WrittenTrack {
                name: track.name.clone(),
                parent: Some(process),
                sort,
                ..WrittenTrack::default()
            });
            tracks.places.push(place);
        }
        let process = processes.values().next().copied();
        let counter = |name: &str, unit| WrittenTrack {
            name: name.to_owned(),
            parent: process,
            sort: Sort::Counter(unit),
            ..WrittenTrack::default()
        };
        for event in &profile.memory {
            if !tracks.memory.contains_key(&event.pool) {
                let place = tracks.add_track(counter(pool_label(event.pool), "byte"));
                tracks.memory.insert(event.pool, place);
            }
        }
        if profile.operators.iter().any(|operator| operator.flops.is_some()) {
            tracks.speed = Some(tracks.add_track(counter("speed", "GFLOP/s")));
        }
        if profile.spans.iter().any(|span| span.cpu_ns.is_some()) {
            tracks.share = Some(tracks.add_track(counter("processor share", "%")));
        }
        tracks
    }

    fn add_track(&mut self, track: WrittenTrack) -> usize {
        self.list.push(track);
        self.list.len() - 1
    }
}

fn pool_label(pool: Pool) -> &'static str {
    match pool {
        Pool::Activations => "activation memory",
        Pool::Weights => "weight memory",
        Pool::Border => "input and output memory",
        Pool::Workspace => "workspace memory",
        Pool::Device => "device memory",
    }
}

fn span_category(kind: Kind) -> &'static str {
    match kind {
        Kind::Operator => "cpu_op",
        Kind::Task => "task",
        Kind::Kernel => "kernel",
        Kind::Copy => "gpu_memcpy",
        Kind::Runtime => "cuda_runtime",
        Kind::Range => "user_annotation",
        Kind::Overhead => "overhead",
    }
}

/// Writes steps and spans in chronological order, parents before children.
fn write_slices<'a, W: Write>(
    profile: &'a Profile,
    tracks: &ExportTracks,
    names: &'a [String],
    sink: &mut Sink<'a, W>,
) -> std::io::Result<()> {
    let spans = &profile.spans;
    let mut order: Vec<u32> = (0..spans.len() as u32).collect();
    let key = |at: &u32| (spans[*at as usize].start_ns, std::cmp::Reverse(spans[*at as usize].end_ns()));
    order.sort_by_key(key);
    let known: Vec<KnownNames> = profile.operators.iter().map(KnownNames::from_operator).collect();
    let parts = cross_track_pairs(profile);
    let mut counted: Vec<u32> = (0..profile.counts.len() as u32).collect();
    counted.sort_by_key(|at| profile.counts[*at as usize].span);
    let mut steps = profile.steps.iter().zip(names).peekable();
    let (mut arguments, mut flows) = (Vec::new(), Vec::new());
    for at in order {
        let span = &spans[at as usize];
        while let Some(step) = steps.next_if(|(step, _)| step.start_ns <= span.start_ns) {
            write_step(step, tracks, sink)?;
        }
        known[span.operator as usize].fill_arguments(&profile.operators[span.operator as usize], span, &mut arguments);
        arguments.push((key::EXTERNAL, ShownArgument::Whole(i64::from(launching_call(spans, at)) + 1)));
        let first = counted.partition_point(|count| profile.counts[*count as usize].span < at);
        for count in
            counted[first..].iter().map(|count| &profile.counts[*count as usize]).take_while(|one| one.span == at)
        {
            let value = i64::try_from(count.value).unwrap_or(i64::MAX);
            arguments.push((KEYS.len() + count.counter as usize, ShownArgument::Whole(value)));
        }
        flows.clear();
        let first = parts.partition_point(|(whole, _)| *whole < at);
        let own = parts[first..].iter().take_while(|(whole, _)| *whole == at);
        flows.extend(own.map(|(_, part)| (u64::from(*part) + 1, Role::Start)));
        if span.parent.is_some_and(|parent| spans[parent as usize].track != span.track) {
            flows.push((u64::from(at) + 1, Role::End));
        }
        sink.write_slice(&ShownSlice {
            track: tracks.places[span.track as usize],
            start_ns: to_trace_ns(span.start_ns),
            end_ns: Some(to_trace_ns(span.end_ns())),
            name: &profile.operators[span.operator as usize].name,
            category: span_category(profile.external_kind(span)),
            flows: &flows,
            arguments: &arguments,
        })?;
    }
    steps.try_for_each(|step| write_step(step, tracks, sink))
}

/// Returns the call that launched the span, or the span itself if no call did.
fn launching_call(spans: &[Span], at: u32) -> u32 {
    let span = &spans[at as usize];
    if matches!(span.kind, Kind::Kernel | Kind::Copy) { span.parent.unwrap_or(at) } else { at }
}

/// Returns the pairs of parent and child on different tracks, sorted by parent.
fn cross_track_pairs(profile: &Profile) -> Vec<(u32, u32)> {
    let spans = profile.spans.iter().enumerate();
    let elsewhere = spans.filter_map(|(at, span)| {
        let parent = span.parent?;
        (profile.spans[parent as usize].track != span.track).then_some((parent, at as u32))
    });
    let mut parts: Vec<(u32, u32)> = elsewhere.collect();
    parts.sort_unstable();
    parts
}

fn write_step<'a, W: Write>(
    (step, name): (&Step, &'a String),
    tracks: &ExportTracks,
    sink: &mut Sink<'a, W>,
) -> std::io::Result<()> {
    // The first track is the calling thread.
    let Some(track) = tracks.places.first() else { return Ok(()) };
    sink.write_slice(&ShownSlice {
        track: *track,
        start_ns: to_trace_ns(step.start_ns),
        end_ns: Some(to_trace_ns(step.end_ns())),
        name,
        category: "user_annotation",
        flows: &[],
        arguments: &[],
    })
}

struct KnownNames {
    dims: String,
    types: String,
}

impl KnownNames {
    fn from_operator(operator: &Operator) -> KnownNames {
        let types = serde_json::to_string(&operator.input_dtypes).expect("texts can be written");
        KnownNames { dims: format!("{:?}", operator.input_shapes), types }
    }

    fn fill_arguments<'a>(
        &'a self,
        operator: &'a Operator,
        span: &Span,
        arguments: &mut Vec<(usize, ShownArgument<'a>)>,
    ) {
        arguments.clear();
        if !operator.input_shapes.is_empty() {
            arguments.push((key::DIMS, ShownArgument::Json(&self.dims)));
            arguments.push((key::TYPES, ShownArgument::Json(&self.types)));
        }
        let texts = [
            (key::TEXT, Some(&operator.text)),
            (key::SCOPE, Some(&operator.scope)),
            (key::TASK, operator.task.as_ref()),
            (key::SCHEDULE, operator.schedule.as_ref()),
        ];
        let texts = texts.into_iter().filter_map(|(key, text)| Some((key, text.filter(|text| !text.is_empty())?)));
        arguments.extend(texts.map(|(key, text)| (key, ShownArgument::Text(text))));
        let numbers = [(key::FLOPS, operator.flops), (key::BYTES, operator.bytes), (key::CPU, span.cpu_ns)];
        let numbers = numbers.into_iter().filter_map(|(key, number)| Some((key, number?)));
        arguments.extend(numbers.map(|(key, number)| (key, ShownArgument::Whole(to_trace_ns(number)))));
    }
}

fn list_counts(profile: &Profile, tracks: &ExportTracks) -> Vec<Count> {
    let count = |track, at_ns, value| Count { track, at_ns: to_trace_ns(at_ns), value };
    let memory = profile.memory.iter();
    let mut counts: Vec<Count> =
        memory.map(|event| count(tracks.memory[&event.pool], event.at_ns, event.live_bytes as f64)).collect();
    let is_operator = |span: &&Span| span.kind == Kind::Operator && span.duration_ns > 0;
    let mut operators: Vec<&Span> = profile.spans.iter().filter(is_operator).collect();
    operators.sort_by_key(|span| span.start_ns);
    for span in operators {
        let duration = span.duration_ns as f64;
        let flops = profile.operators[span.operator as usize].flops;
        let values = [
            (tracks.speed, flops.map(|flops| flops as f64 / duration)),
            (tracks.share, span.cpu_ns.map(|cpu| cpu as f64 / duration * 100.0)),
        ];
        for (track, value) in values {
            if let (Some(track), Some(value)) = (track, value) {
                counts.extend([count(track, span.start_ns, value), count(track, span.end_ns(), 0.0)]);
            }
        }
    }
    counts
}

/// Converts to a time of the trace; larger values become the largest time that a trace can represent.
fn to_trace_ns(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
