//! Completes the profile of a program's calls with names, work and memory of the model's operators.

use super::BuiltModel;
use datasets::{CacheState, Peaks};
use executor::memory::Lifetime;
use executor::program::program_lifetimes;
use job::Packing;
use models::{Graph, Plan, TaskUse, TensorType};
use profile::Profile;
use profile::data::{MemoryEvent, Operator, Pool, Span};

/// A model that was split into calls, with the program built from them.
pub struct ProfiledModel<'a> {
    /// Graph from which the calls were cut.
    pub graph: &'a Graph,
    /// Calls of the graph.
    pub plan: &'a Plan,
    /// Program of the model.
    pub made: &'a BuiltModel,
}

/// Adds names, work, rooflines and memory of the model's operators to the profile that a runner measured.
pub fn complete_profile(
    seen: Profile,
    built: &ProfiledModel<'_>,
    threads: usize,
    peaks: &Peaks,
) -> super::Result<Profile> {
    let ProfiledModel { graph, plan, made } = built;
    let threads = u32::try_from(threads).unwrap_or(u32::MAX);
    let calls = made.program.calls.iter();
    let operators = calls.map(|call| {
        let known = describe_operator(&plan.tasks[call.code], &made.artifacts[call.code].packings);
        let (flops, bytes) = (known.flops.unwrap_or(0) as f64, known.bytes.unwrap_or(0) as f64);
        Operator {
            schedule: Some(made.schedules[call.code].stable_hash()),
            scope: call.scope.clone(),
            // In a run of the whole model, the previous operator may have left the operands in a
            // cache.
            roofline_ns: peaks.attainable_ns(threads, flops, bytes, CacheState::Warm).filter(|_| known.flops.is_some()),
            ..known
        }
    });
    let operators = operators.collect();
    let mut memory = memory_events(&seen, built, &program_lifetimes(graph, plan, made.program.writing_mode())?);
    memory.extend_from_slice(&seen.memory);
    memory.sort_by_key(|event| event.at_ns);
    Ok(Profile { operators, memory, ..seen })
}

fn describe_operator(one: &TaskUse, packings: &[Packing]) -> Operator {
    let (task, work) = (&one.task, one.task.work().ok());
    let extents = |ty: &TensorType| ty.extents().unwrap_or_default();
    let is_plain = packings.iter().all(|packing| *packing == Packing::Plain);
    Operator {
        name: task.name(),
        text: task.describe(),
        task: Some(task.hash()),
        input_shapes: task.parameters.iter().map(|parameter| extents(&parameter.ty)).collect(),
        input_dtypes: task.parameters.iter().map(|parameter| parameter.ty.dtype.name().to_owned()).collect(),
        output_shapes: task.steps.last().map(|step| extents(&step.output)).into_iter().collect(),
        layout: (!is_plain).then(|| packings.iter().map(Packing::to_string).collect::<Vec<_>>().join(", ")),
        flops: work.map(|work| work.flops),
        bytes: work.map(|work| work.total_bytes()),
        ..Operator::default()
    }
}

/// Returns the memory events of the first step, computed from the lifetimes of tensors; all steps are equal.
fn memory_events(seen: &Profile, built: &ProfiledModel<'_>, lifetimes: &[Lifetime]) -> Vec<MemoryEvent> {
    let Some(step) = seen.steps.first() else { return Vec::new() };
    let program = &built.made.program;
    let border = program.inputs.iter().chain(&program.outputs).filter_map(|port| port.ty.size_bytes()).sum();
    let held = |pool, bytes: u64| MemoryEvent {
        at_ns: step.start_ns,
        pool,
        bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
        live_bytes: bytes,
        ..MemoryEvent::default()
    };
    let mut events = vec![held(Pool::Weights, super::constant_bytes(program)), held(Pool::Border, border)];
    let mut live_bytes: u64 = 0;
    for (call, span) in seen.spans.iter().take(program.calls.len()).enumerate() {
        let span_index = u32::try_from(call).ok();
        let event = |at_ns, bytes: i64, live_bytes| MemoryEvent {
            at_ns,
            span: span_index,
            pool: Pool::Activations,
            bytes,
            live_bytes,
        };
        for one in lifetimes.iter().filter(|one| one.first == call) {
            live_bytes += one.stored_bytes();
            events.push(event(span.start_ns, to_signed(one.stored_bytes()), live_bytes));
        }
        for one in lifetimes.iter().filter(|one| one.last == call) {
            live_bytes -= one.stored_bytes();
            events.push(event(Span::end_ns(span), -to_signed(one.stored_bytes()), live_bytes));
        }
    }
    events
}

fn to_signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
