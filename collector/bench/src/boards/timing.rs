//! Measures kernels on a board. TVM's own server has only a batch evaluator; with it, the stopping rule is evaluated on
//! this machine, with a clock that advances only by the reported times.

use measure::counters::{Backend, CounterReader, CounterRequest, CounterSession, Usage};
use measure::{Cache, Clock, Measurement, Method};
use remote::agent::{MEASURE, Order};
use remote::wire::{Device, Tensor, Value};
use remote::{RemoteError, Session};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const EVALUATOR: &str = "runtime.RPCTimeEvaluator";

pub const COLD_ON_ONE_THREAD: &str = "TVM's server flushes the caches of one CPU only; those of other CPUs stay warm";

pub struct LoadedLibrary<'a> {
    pub library: u64,
    pub name: &'a str,
    /// Inputs of the operator, followed by the output.
    pub tensors: &'a [Tensor],
}

impl LoadedLibrary<'_> {
    fn tensor_arguments(&self) -> impl Iterator<Item = Value> {
        self.tensors.iter().cloned().map(Value::Tensor)
    }
}

pub fn measure_by_agent(
    session: &mut Session,
    loaded: &LoadedLibrary<'_>,
    order: &Order,
) -> Result<Measurement, RemoteError> {
    let text = serde_json::to_string(order).expect("an order holds only JSON values");
    let mut arguments = vec![Value::Module(loaded.library), Value::Text(loaded.name.to_owned()), Value::Text(text)];
    arguments.extend(loaded.tensor_arguments());
    parse_measurement(session.call_named(MEASURE, arguments)?)
}

pub fn measure_calls(session: &mut Session, calls: u64, order: &Order) -> Result<Measurement, RemoteError> {
    let text = serde_json::to_string(order).expect("an order holds only JSON values");
    parse_measurement(session.call_named(MEASURE, vec![Value::Function(calls), Value::Text(text)])?)
}

fn parse_measurement(answer: Value) -> Result<Measurement, RemoteError> {
    match answer {
        Value::Text(text) => serde_json::from_str(&text)
            .map_err(|error| RemoteError::Malformed(format!("the measurement is invalid: {error}"))),
        other => Err(RemoteError::Malformed(format!("expected a measurement, got {other:?}"))),
    }
}

/// Measures with the batch evaluator of TVM's server. First-run and CPU times are unknown and set to zero.
pub fn measure_by_evaluator(
    session: &mut Session,
    loaded: &LoadedLibrary<'_>,
    order: &Order,
) -> Result<Measurement, RemoteError> {
    let Method::Sample(plan) = &order.method else {
        return Err(RemoteError::Refused("TVM's stopping rule is not supported over RPC".to_owned()));
    };
    if plan.cache != Cache::Warm && order.threads > 1 {
        return Err(RemoteError::Refused(COLD_ON_ONE_THREAD.to_owned()));
    }
    let flush_bytes = match plan.cache {
        Cache::Warm => 0,
        Cache::Cold { flush_bytes } => i64::try_from(flush_bytes).unwrap_or(i64::MAX),
        Cache::Network { .. } => {
            return Err(RemoteError::Refused("a server cannot produce the cache state `network`".to_owned()));
        }
    };
    take_threads(session, order.threads)?;
    let evaluator = session.find_function(EVALUATOR)?;
    let evaluator = evaluator.ok_or_else(|| RemoteError::Refused(format!("the server has no `{EVALUATOR}`")))?;
    let now = Rc::new(Cell::new(0));
    let mut clock = ReportedClock(Rc::clone(&now));
    let mut run = |times: u32| -> Result<(), RemoteError> {
        let seconds = time_batch(session, evaluator, loaded, times, flush_bytes)?;
        now.set(now.get() + (seconds * 1e9 * f64::from(times)).round().max(0.0) as u64);
        Ok(())
    };
    let none = CounterRequest { backend: Backend::None, ..order.counters.clone() };
    let mut counters = CounterSession::open_counters(&none);
    let counters: &mut dyn CounterReader = &mut counters;
    let measured = measure::sample_runs(&mut run, plan, &mut clock, counters)?;
    Ok(Measurement { first_run_ns: 0, warnings: without_first(&measured), ..measured })
}

/// Returns the warnings except those about the first run, which the evaluator does not time.
fn without_first(measured: &Measurement) -> Vec<measure::Warning> {
    let is_first = |warning: &&measure::Warning| matches!(warning, measure::Warning::FirstRunSlow { .. });
    measured.warnings.iter().filter(|warning| !is_first(warning)).cloned().collect()
}

fn time_batch(
    session: &mut Session,
    evaluator: u64,
    loaded: &LoadedLibrary<'_>,
    times: u32,
    flush_bytes: i64,
) -> Result<f64, RemoteError> {
    let Device { kind, id } = Device::CPU;
    // In order: runs, repeats, minimum milliseconds, maximum repeats of zero duration, cooldown, cooldown interval,
    // bytes to flush, and the preprocessing function.
    let rule = [i64::from(times), 1, 0, 100, 0, 1, flush_bytes].map(Value::Int);
    let mut arguments = vec![Value::Module(loaded.library), Value::Text(loaded.name.to_owned())];
    arguments.extend([Value::Int(kind.into()), Value::Int(id.into())]);
    arguments.extend(rule);
    arguments.push(Value::Text(String::new()));
    let Value::Function(timed) = session.call(evaluator, arguments)? else {
        return Err(RemoteError::Malformed("the time evaluator did not return a function".to_owned()));
    };
    let answer = session.call(timed, loaded.tensor_arguments().collect())?;
    session.release_handle(timed)?;
    match answer {
        Value::Bytes(bytes) if bytes.len() == 8 => {
            let seconds = f64::from_le_bytes(bytes.try_into().expect("just counted"));
            let is_time = seconds.is_finite() && (0.0..1e6).contains(&seconds);
            if is_time {
                Ok(seconds)
            } else {
                Err(RemoteError::Malformed(format!("the time evaluator returned {seconds} s")))
            }
        }
        other => Err(RemoteError::Malformed(format!("expected times, got {other:?}"))),
    }
}

fn take_threads(session: &mut Session, threads: usize) -> Result<(), RemoteError> {
    const BIG_CORES: i64 = 1;
    let wanted = i64::try_from(threads).unwrap_or(i64::MAX);
    let Some(configure) = session.find_function("runtime.config_threadpool")? else { return Ok(()) };
    session.call(configure, vec![Value::Int(BIG_CORES), Value::Int(wanted)])?;
    let Some(count) = session.find_function("runtime.NumThreads")? else { return Ok(()) };
    match session.call(count, Vec::new())? {
        Value::Int(found) if found == wanted => Ok(()),
        found => Err(RemoteError::Refused(format!(
            "the run needs {threads} threads, but the thread pool of the server has {found:?}; start the server with \
             TVM_NUM_THREADS={threads}"
        ))),
    }
}

/// Clock that advances only by the times that a server reports.
pub struct ReportedClock(pub Rc<Cell<u64>>);

impl Clock for ReportedClock {
    fn now_ns(&mut self) -> u64 {
        self.0.get()
    }

    /// Returns one microsecond, a safe upper bound, because the precision of the remote clock is unknown.
    fn precision_ns(&self) -> u64 {
        1000
    }

    fn read_usage(&mut self) -> Usage {
        Usage::default()
    }

    fn speed_probe_ns(&mut self) -> u64 {
        1
    }

    fn sleep(&mut self, _: Duration) {}

    /// Does nothing, because the server empties the caches before each batch.
    fn prepare_caches(&mut self, _: Cache) {}
}
