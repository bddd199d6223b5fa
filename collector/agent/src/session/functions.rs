//! Functions that a client calls by name.

use super::calls::{CallList, ResolvedCalls};
use super::fabric::FabricRequest;
use super::{End, RequestRefusal, Returned, Session, SessionFiles, SessionObject, json_text, refuse_request};
use crate::emulation;
use crate::native::{self, Arguments, Library, LibraryKernel};
use measure::counters::{CounterReader, CounterRequest, CounterSession};
use measure::host::Facts;
use measure::{Cache, HostClock, evaluate_rule, measure_runs};
use remote::agent::{AgentDescription, CALLS, HOST, LEAVE, LIMIT, MEASURE, Order};
use remote::wire::Value;

/// Environment variable that the front process sets for sessions on an emulator.
pub const EMULATED_VARIABLE: &str = "OPCOLLECT_BOARD_EMULATED";

const REPEATS_MAX: i64 = 100_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builtin {
    Upload,
    Download,
    Remove,
    LoadModule,
    ModuleGetFunction,
    TimeEvaluator,
    Threads,
    Host,
    Measure,
    Calls,
    Leave,
    Limit,
    Fabric(FabricRequest),
}

impl Builtin {
    pub fn from_name(name: &str) -> Option<Builtin> {
        Some(match name {
            "tvm.rpc.server.upload" => Builtin::Upload,
            "tvm.rpc.server.download" => Builtin::Download,
            "tvm.rpc.server.remove" => Builtin::Remove,
            "tvm.rpc.server.load_module" => Builtin::LoadModule,
            "tvm.rpc.server.ModuleGetFunction" => Builtin::ModuleGetFunction,
            "runtime.RPCTimeEvaluator" => Builtin::TimeEvaluator,
            "runtime.NumThreads" => Builtin::Threads,
            HOST => Builtin::Host,
            MEASURE => Builtin::Measure,
            CALLS => Builtin::Calls,
            LEAVE => Builtin::Leave,
            LIMIT => Builtin::Limit,
            other => Builtin::Fabric(FabricRequest::from_name(other)?),
        })
    }
}

#[derive(Clone)]
pub struct Evaluator {
    kernel: LibraryKernel,
    rule: measure::Evaluator,
}

impl Evaluator {
    /// Times the kernel. Returns seconds per run as eight-byte floats, one per repeat.
    pub fn time_runs(&self, arguments: &Arguments) -> Result<Vec<u8>, RequestRefusal> {
        let none = CounterRequest { backend: measure::counters::Backend::None, ..CounterRequest::default() };
        let mut counters = CounterSession::open_counters(&none);
        let mut run = |times| self.kernel.call_repeatedly(arguments, times);
        let counters: &mut dyn CounterReader = &mut counters;
        let measured = evaluate_rule(&mut run, &self.rule, &mut host_clock(), counters)?;
        Ok(measured.samples_ns.iter().flat_map(|ns| (ns * 1e-9).to_le_bytes()).collect())
    }
}

impl Session {
    pub(super) fn call_builtin(&mut self, builtin: Builtin, arguments: Vec<Value>) -> Result<Returned, RequestRefusal> {
        let value = |value| Ok(Returned::Value(value));
        match (builtin, arguments.as_slice()) {
            (Builtin::Upload, [Value::Text(name), Value::Bytes(content)]) => {
                SessionFiles::write_file(&mut self.files, name, content)?;
                value(Value::None)
            }
            (Builtin::Download, [Value::Text(name)]) => value(Value::Bytes(self.files.read_file(name)?)),
            (Builtin::Remove, [Value::Text(name)]) => {
                self.files.remove_file(name)?;
                value(Value::None)
            }
            (Builtin::LoadModule, [Value::Text(name)]) => {
                let library = Library::load_library(&self.files.checked_path(name)?)?;
                if !native::has_cpus() {
                    // A client that does not specify threads gets all CPUs, as with TVM's server.
                    native::use_cpus(&self.cpus).map_err(|error| RequestRefusal(error.to_string()))?;
                }
                Ok(Returned::Object(SessionObject::Library(library)))
            }
            (Builtin::ModuleGetFunction, [Value::Module(library), Value::Text(name), ..]) => {
                match self.find_library(*library)?.find_kernel(name) {
                    Some(kernel) => Ok(Returned::Object(SessionObject::Kernel(kernel))),
                    None => value(Value::None),
                }
            }
            (Builtin::Threads, _) => value(Value::Int(self.cpus.len() as i64)),
            (Builtin::TimeEvaluator, [library, Value::Text(name), _, _, rule @ ..]) => {
                let rule = rule_of(rule)?;
                let kernel = self.find_kernel(library, name)?;
                Ok(Returned::Object(SessionObject::Evaluator(Box::new(Evaluator { kernel, rule }))))
            }
            (Builtin::Host, []) => value(json_text(&describe_agent(&self.cpus))?),
            (Builtin::Leave, []) => {
                self.end = End::AgentToo;
                value(Value::None)
            }
            (Builtin::Limit, [Value::Int(seconds)]) => {
                let limit = u32::try_from(*seconds).ok().filter(|seconds| *seconds > 0);
                self.limit_seconds =
                    Some(limit.ok_or_else(|| RequestRefusal(format!("{seconds} s is not a valid time limit")))?);
                value(Value::None)
            }
            (Builtin::Measure, [Value::Function(calls), Value::Text(order)]) => {
                let calls = self.find_calls(*calls)?.resolve_calls(&self.memory)?;
                value(measure_calls(&calls, &order_of(order)?, &self.cpus)?)
            }
            (Builtin::Measure, [library, Value::Text(name), Value::Text(order), rest @ ..]) => {
                let call =
                    ResolvedCalls::single_call(self.find_kernel(library, name)?, Arguments::new(rest, &self.memory)?);
                value(measure_calls(&call, &order_of(order)?, &self.cpus)?)
            }
            (Builtin::Calls, []) => Ok(Returned::Object(SessionObject::Calls(CallList::default()))),
            (Builtin::Calls, [Value::Function(calls), library, Value::Text(name), rest @ ..]) => {
                let kernel = self.find_kernel(library, name)?;
                self.find_calls(*calls)?.push_call(kernel, rest)?;
                value(Value::None)
            }
            (Builtin::Fabric(asked), arguments) => match &mut self.fabric {
                Some(fabric) => value(fabric.call_function(asked, arguments)?),
                None => refuse_request("this agent does not serve an accelerator core"),
            },
            (builtin, arguments) => refuse_request(format!(
                "{builtin:?} does not accept arguments such as {}",
                truncate_arguments(arguments)
            )),
        }
    }

    fn find_calls(&self, handle: u64) -> Result<CallList, RequestRefusal> {
        match self.objects.get(&handle) {
            Some(SessionObject::Calls(calls)) => Ok(calls.clone()),
            _ => refuse_request(format!("there is no call sequence with the handle {handle}")),
        }
    }

    fn find_kernel(&self, library: &Value, name: &str) -> Result<LibraryKernel, RequestRefusal> {
        let Value::Module(library) = library else {
            return refuse_request("the board agent times only functions of libraries");
        };
        let kernel = self.find_library(*library)?.find_kernel(name);
        kernel.ok_or_else(|| RequestRefusal(format!("the library has no function `{name}`")))
    }
}

/// Parses the arguments of TVM's time evaluator: number, repeat, minimum milliseconds, limit of zero-time repeats,
/// cooldown time, repeats between cooldowns and bytes to flush. Rejects a preprocessing function.
fn rule_of(arguments: &[Value]) -> Result<measure::Evaluator, RequestRefusal> {
    let number = |place: usize, other: i64| match arguments.get(place) {
        Some(Value::Int(number)) => Ok(*number),
        None => Ok(other),
        Some(other) => refuse_request(format!("a timing rule cannot contain {other:?}")),
    };
    if !matches!(arguments.get(7), None | Some(Value::None)) && arguments.get(7) != Some(&Value::Text(String::new())) {
        return refuse_request("the board agent does not support preprocessing functions of timing rules");
    }
    let bounded = |place, other, most: i64| -> Result<u32, RequestRefusal> {
        let found = number(place, other)?;
        u32::try_from(found)
            .ok()
            .filter(|_| found <= most)
            .ok_or_else(|| RequestRefusal(format!("{found} exceeds the limit of a timing rule")))
    };
    let flush = u64::try_from(number(6, 0)?).unwrap_or(0);
    let rule = measure::Evaluator {
        number: bounded(0, 1, i64::from(u32::MAX))?,
        repeat: bounded(1, 1, REPEATS_MAX)?,
        min_repeat_ms: bounded(2, 0, 3_600_000)?,
        limit_zero_time_iterations: bounded(3, 100, i64::from(u32::MAX))?.max(1),
        cooldown_interval_ms: bounded(4, 0, 3_600_000)?,
        repeats_to_cooldown: bounded(5, 1, i64::from(u32::MAX))?.max(1),
        cache: if flush > 0 { Cache::Cold { flush_bytes: flush } } else { Cache::Warm },
    };
    rule.check_settings().map_err(|error| RequestRefusal(error.to_string()))?;
    Ok(rule)
}

fn order_of(text: &str) -> Result<Order, RequestRefusal> {
    serde_json::from_str(text).map_err(|error| RequestRefusal(format!("invalid measurement request: {error}")))
}

/// Measures calls as the runner on a local machine does: with pinned threads, and counters around the timed runs only.
fn measure_calls(calls: &ResolvedCalls, order: &Order, cpus: &[usize]) -> Result<Value, RequestRefusal> {
    order.method.check_settings().map_err(|error| RequestRefusal(error.to_string()))?;
    let Some(cpus) = cpus.get(..order.threads).filter(|cpus| !cpus.is_empty()) else {
        return refuse_request(format!("{} threads requested, but this board has {} CPUs", order.threads, cpus.len()));
    };
    let with_descendants = order.counters.with_descendants || cpus.len() > 1;
    // Opened before the threads are created, so that their counts are included.
    let mut counters = CounterSession::open_counters(&CounterRequest { with_descendants, ..order.counters.clone() });
    native::use_cpus(cpus).map_err(|error| RequestRefusal(error.to_string()))?;
    let mut run = |times| calls.run_repeatedly(times);
    json_text(&measure_runs(&mut run, &order.method, &mut host_clock(), &mut counters)?)
}

/// Returns a clock that also reads the CPU times of the pool's threads, if there is a pool.
fn host_clock() -> HostClock<'static> {
    native::pool_threads().map_or_else(HostClock::new, HostClock::with_threads)
}

fn describe_agent(cpus: &[usize]) -> AgentDescription {
    let said = std::env::var_os(EMULATED_VARIABLE).map(|_| "the agent was started with `--emulated`".to_owned());
    AgentDescription {
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        facts: Facts { allowed_cpus: cpus.to_vec(), ..Facts::read_facts() },
        emulated: said.or_else(emulation::emulator_evidence),
    }
}

fn truncate_arguments(arguments: &[Value]) -> String {
    let text = format!("{arguments:?}");
    text.chars().take(200).collect()
}
