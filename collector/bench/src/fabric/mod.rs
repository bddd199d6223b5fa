//! A bench of the accelerator core in a board's FPGA, reached over RPC. Programs are generated and results compared on
//! this machine; a time is accepted only after a correct result. If the agent only simulates a core, the reply is
//! [`RunReply::Simulated`] with the time of our own model, as from a [`Simulator`].

mod board;

use crate::boards::{ReportedClock, Stop, to_reply};
use crate::simulator::{Simulator, compare_outputs, model_time};
use crate::{Ability, Access, Bench, BenchWork, Device, Done, Ran, Ticket, Versions};
use board::LoadedProgram;
use job::{Measured, RunJob, RunReply, Simulated};
use measure::counters::{Backend, CounterReader, CounterRequest, CounterSession};
use measure::{Measurement, Method};
use remote::fabric::{self, FabricKind, INFO, PROGRAM};
use remote::wire::Value;
use remote::{Address, RemoteError, Session};
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};
use targets::Fabric;
use worker::Fault;

pub struct FabricBoard {
    simulator: Simulator,
    access: Access,
    /// Bitstream that the agent loads into the FPGA; empty to use the core that is already loaded.
    bitstream: String,
    device: Option<Device>,
    /// Number of runs after which the session is replaced.
    jobs: u32,
    done: u32,
    expected: FoundCore,
    queue: VecDeque<(Ticket, BenchWork)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FoundCore {
    fabric: fabric::Fabric,
    likeness: String,
}

#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum NoCore {
    #[error(transparent)]
    Remote(#[from] RemoteError),
    #[error("{0} does not serve an accelerator core")]
    None(Address),
}

impl FabricBoard {
    pub fn open(
        fabric: Fabric,
        access: Access,
        bitstream: Option<String>,
        jobs: u32,
    ) -> Result<(FabricBoard, Device), NoCore> {
        let bitstream = bitstream.unwrap_or_else(|| fabric.core.clone());
        let mut device = Device::open(&access)?;
        let expected = begin_session(&mut device, &bitstream)?;
        let simulator = Simulator::new(fabric);
        let (queue, done) = (VecDeque::new(), 0);
        Ok((FabricBoard { simulator, access, bitstream, device: None, jobs, done, expected, queue }, device))
    }

    pub fn attach_device(&mut self, device: Device) {
        self.device = Some(device);
    }

    pub fn fabric_kind(&self) -> FabricKind {
        self.expected.fabric.kind
    }

    fn run_on_core(&mut self, job: &RunJob, deadline: Duration) -> Result<RunReply, Fault> {
        if self.device.is_none() {
            (self.device, self.done) = (Some(self.open_again()?), 0);
        }
        let device = self.device.as_mut().expect("the session was just opened");
        let until = Instant::now() + deadline;
        let reply = to_reply(
            try_run(&mut self.simulator, &mut device.session, self.expected.fabric.kind, job, until),
            deadline,
        );
        // A wrong or failed run may have left the device in a bad state.
        let is_clean = matches!(reply, Ok(RunReply::Measured(_) | RunReply::Simulated(_) | RunReply::Unsupported(_)));
        self.done += 1;
        if !is_clean || !device.session.is_open() || self.done >= self.jobs {
            self.device = None;
        }
        reply
    }

    fn open_again(&self) -> Result<Device, Fault> {
        let cannot = |why: String| Fault::CannotStart { why };
        let mut device = Device::open_again(&self.access, &|| true).map_err(|error| {
            let hint = error.hint().map_or(String::new(), |hint| format!(" ({hint})"));
            cannot(format!("{error}{hint}"))
        })?;
        let found = begin_session(&mut device, &self.bitstream).map_err(|error| cannot(error.to_string()))?;
        if found != self.expected {
            let (address, likeness) = (&device.address, &self.expected.likeness);
            return Err(cannot(format!(
                "{address} serves another core than {likeness}, on which this campaign measures"
            )));
        }
        Ok(device)
    }
}

fn begin_session(device: &mut Device, bitstream: &str) -> Result<FoundCore, NoCore> {
    let (Some(info), Some(program)) = (device.session.find_function(INFO)?, device.session.find_function(PROGRAM)?)
    else {
        return Err(NoCore::None(device.address.clone()));
    };
    device.session.call(program, vec![Value::Text(bitstream.to_owned())])?;
    let Value::Text(text) = device.session.call(info, Vec::new())? else {
        return Err(RemoteError::Malformed("the agent sent no description of its FPGA".to_owned()).into());
    };
    let malformed = |error| RemoteError::Malformed(format!("the agent's description of its FPGA is invalid: {error}"));
    let fabric = serde_json::from_str(&text).map_err(malformed)?;
    Ok(FoundCore { fabric, likeness: device.likeness() })
}

/// Runs a job. Returns a time only if the result is correct.
fn try_run(
    simulator: &mut Simulator,
    session: &mut Session,
    kind: FabricKind,
    job: &RunJob,
    until: Instant,
) -> Result<RunReply, Stop> {
    let here = |why: String| Stop::Here(anyhow::anyhow!(why));
    let model = simulator.fabric().clone();
    let prepared = simulator.prepare_layer(job).map_err(here)?;
    session.set_deadline(until);
    let loaded = LoadedProgram::new(session, &prepared.program, &prepared.operands)?;
    loaded.run_until(session, until)?;
    let check = compare_outputs(&loaded.read_result(session)?, prepared.wanted);
    if !check.is_right {
        return Ok(RunReply::WrongResult(check));
    }
    let reply = match kind {
        FabricKind::Simulated => {
            let (time_ns, counts) = model_time(&model, &prepared.program).map_err(here)?;
            RunReply::Simulated(Box::new(Simulated { time_ns, counts, check }))
        }
        FabricKind::Devmem => {
            loaded.poison_result(session)?;
            let measurement = measure_program(&loaded, session, &job.method, until)?;
            let check = compare_outputs(&loaded.read_result(session)?, prepared.wanted);
            if !check.is_right {
                return Ok(RunReply::WrongResult(check));
            }
            RunReply::Measured(Box::new(Measured::from_measurement(measurement, Some(check), 0)))
        }
    };
    loaded.free_memory(session)?;
    Ok(reply)
}

/// Measures a program with our stopping rule, with a clock that advances only by the times that the board reports.
fn measure_program(
    loaded: &LoadedProgram<'_>,
    session: &mut Session,
    method: &Method,
    until: Instant,
) -> Result<Measurement, Stop> {
    let Method::Sample(plan) = method else {
        return Err(Stop::Here(anyhow::anyhow!(
            "accelerator cores are measured only with this project's stopping rule"
        )));
    };
    let now = Rc::new(Cell::new(0));
    let mut clock = ReportedClock(Rc::clone(&now));
    let mut run = |times: u32| -> Result<(), Stop> {
        for _ in 0..times {
            let taken = loaded.run_until(session, until)?;
            now.set(now.get() + u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX / 2));
        }
        Ok(())
    };
    let mut counters =
        CounterSession::open_counters(&CounterRequest { backend: Backend::None, ..CounterRequest::default() });
    let counters: &mut dyn CounterReader = &mut counters;
    measure::sample_runs(&mut run, plan, &mut clock, counters)
}

impl Bench for FabricBoard {
    fn capability(&mut self, of: Ability) -> Result<Versions, Fault> {
        self.simulator.capability(of)
    }

    fn submit(&mut self, ticket: Ticket, work: BenchWork) {
        self.queue.push_back((ticket, work));
    }

    fn next_result(&mut self, goes_on: &mut dyn FnMut() -> bool) -> Option<(Ticket, Done)> {
        if !goes_on() {
            return None;
        }
        match self.queue.pop_front()? {
            (ticket, BenchWork::Run(job, deadline)) => {
                let began = SystemTime::now();
                Some((ticket, Done::Ran(Ran { began, reply: self.run_on_core(&job, deadline) })))
            }
            (ticket, other) => {
                self.simulator.submit(ticket, other);
                self.simulator.next_result(&mut || true)
            }
        }
    }

    fn abandon_all(&mut self) {
        self.queue.clear();
    }
}
