//! A bench that executes an accelerator's programs bit-exactly; its times, [`RunReply::Simulated`], are from a model.

use crate::{Ability, Bench, BenchWork, Build, Done, Ran, Ticket, Versions};
use accelerator::{
    Core, FunctionalMachine, Program, Timing, check_program, generate_program, layer_of, simulate_program,
};
use job::space::{Schedule, core_knobs};
use job::{Artifact, BuildJob, Check, RunJob, RunReply, Simulated};
use models::Task;
use reference::{Tensor, evaluate_task, random_inputs};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Instant, SystemTime};
use targets::Fabric;
use worker::Fault;

pub struct Simulator {
    fabric: Fabric,
    queue: VecDeque<(Ticket, BenchWork)>,
    /// Inputs and reference result of the last task, cached because schedules of a task are run consecutively.
    known: Option<KnownTask>,
}

pub(crate) struct PreparedLayer<'a> {
    pub program: Program,
    pub operands: Vec<&'a [u8]>,
    pub wanted: &'a [u8],
}

struct KnownTask {
    task: String,
    seed: u64,
    inputs: Vec<Tensor>,
    result: Tensor,
}

impl Simulator {
    pub fn new(fabric: Fabric) -> Simulator {
        Simulator { fabric, queue: VecDeque::new(), known: None }
    }

    fn simulate_job(&mut self, job: &RunJob) -> RunReply {
        match self.simulate_run(job) {
            Ok(simulated) if simulated.check.is_right => RunReply::Simulated(Box::new(simulated)),
            Ok(simulated) => RunReply::WrongResult(simulated.check),
            Err(why) => RunReply::Failed(why),
        }
    }

    fn simulate_run(&mut self, job: &RunJob) -> Result<Simulated, String> {
        let prepared = self.prepare_layer(job)?;
        let computed = FunctionalMachine::compute_result(&prepared.program, &prepared.operands, job.seed);
        let (bytes, totals) = computed.map_err(|error| error.to_string())?;
        let check = compare_outputs(&bytes, prepared.wanted);
        let program = prepared.program;
        let (time_ns, mut counts) = model_time(&self.fabric, &program)?;
        for (name, count) in [("products", totals.products), ("changes", totals.changes)] {
            counts.insert(name.to_owned(), count as f64);
        }
        Ok(Simulated { time_ns, counts, check })
    }

    pub(crate) fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    pub(crate) fn prepare_layer(&mut self, job: &RunJob) -> Result<PreparedLayer<'_>, String> {
        let program = postcard::from_bytes(&job.object).map_err(|error| format!("the program is invalid: {error}"))?;
        let known = self.known_task(job)?;
        let operands = known.inputs.iter().map(Tensor::as_bytes).collect();
        Ok(PreparedLayer { program, operands, wanted: known.result.as_bytes() })
    }

    fn known_task(&mut self, job: &RunJob) -> Result<&KnownTask, String> {
        let is_known = |known: &KnownTask| known.task == job.task && known.seed == job.seed;
        if !self.known.as_ref().is_some_and(is_known) {
            let task: Task = serde_json::from_str(&job.task).map_err(|error| error.to_string())?;
            let inputs = random_inputs(&task, job.seed).map_err(|error| error.to_string())?;
            let result = evaluate_task(&task, &inputs).map_err(|error| error.to_string())?;
            self.known = Some(KnownTask { task: job.task.clone(), seed: job.seed, inputs, result });
        }
        self.known.as_ref().ok_or_else(|| "the task is unknown".to_owned())
    }
}

/// Returns the modelled time in nanoseconds and the model's counters.
pub(crate) fn model_time(fabric: &Fabric, program: &Program) -> Result<(f64, BTreeMap<String, f64>), String> {
    let set = fabric.timing_set();
    let timed = simulate_program(program, &set.timing).map_err(|error| error.to_string())?;
    let Timing { host_instruction_ns, host_call_ns, .. } = set.timing;
    let [load, compute, store, fetch] = timed.busy;
    let counts = [
        ("cycles", timed.cycles),
        ("load_cycles", load),
        ("compute_cycles", compute),
        ("store_cycles", store),
        ("fetch_cycles", fetch),
        ("port_wait_cycles", timed.waited.iter().sum()),
        ("port_bytes", timed.bytes),
        ("host_ns", host_call_ns + host_instruction_ns * timed.instructions),
    ];
    let counts = counts.into_iter().map(|(name, count)| (name.to_owned(), count as f64)).collect();
    Ok((fabric.time_ns(timed.cycles), counts))
}

pub(crate) fn compare_outputs(given: &[u8], wanted: &[u8]) -> Check {
    let number = |byte: u8| f64::from(byte.cast_signed());
    let pairs = given.iter().zip(wanted).map(|(given, wanted)| (number(*given), number(*wanted)));
    let (max_abs_error, max_rel_error) = pairs.fold((0.0f64, 0.0f64), |(most, part), (given, wanted)| {
        let error = (given - wanted).abs();
        (most.max(error), part.max(error / wanted.abs().max(1.0)))
    });
    Check { max_abs_error, max_rel_error, is_right: given == wanted }
}

/// Generates and checks the program of a job. Fails for schedules that do not fit the core.
fn build_program(core: &Core, job: &BuildJob) -> Build {
    let begin = Instant::now();
    let program = match schedule_program(core, job) {
        Ok(program) => program,
        Err(rejected) => return rejected,
    };
    let generated = begin.elapsed();
    if let Err(error) = check_program(&program) {
        return Build::Failed(format!("the generated program is incorrect: {error}"));
    }
    let object = match postcard::to_stdvec(&program) {
        Ok(object) => object,
        Err(error) => return Build::Failed(error.to_string()),
    };
    let (instructions, micro_ops) = (program.instructions.len() as f64, program.micro_ops.len() as f64);
    let features =
        [("instructions", instructions), ("micro_ops", micro_ops), ("memory_bytes", program.memory_bytes() as f64)];
    Build::Built(Box::new(Artifact {
        object,
        instruction_sets: Vec::new(),
        device: None,
        code_bytes: 16 * program.instructions.len() as u64 + 4 * program.micro_ops.len() as u64,
        packings: Vec::new(),
        trace: None,
        schedule_ms: generated.as_secs_f64() * 1e3,
        lower_ms: (begin.elapsed() - generated).as_secs_f64() * 1e3,
        codegen_ms: 0.0,
        listing: None,
        features: features.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
    }))
}

fn schedule_program(core: &Core, job: &BuildJob) -> Result<Program, Build> {
    let failed = |why: String| Build::Failed(why);
    let task: Task = serde_json::from_str(&job.task).map_err(|error| failed(error.to_string()))?;
    task.check().map_err(|error| failed(error.to_string()))?;
    let layer = layer_of(&task).map_err(|why| Build::Rejected(format!("the operator must run on the CPU: {why}")))?;
    let schedule = Schedule::from_json(&job.schedule).map_err(|error| failed(error.to_string()))?;
    let Schedule::Template { knobs } = &schedule else {
        return Err(Build::Rejected("the accelerator supports schedules with knobs, not with traces".to_owned()));
    };
    let knobs =
        core_knobs(knobs).ok_or_else(|| failed("the schedule does not have the accelerator's knobs".to_owned()))?;
    generate_program(core, &layer, &knobs)
        .map_err(|misfit| Build::Rejected(format!("the tiling does not fit on the core: {misfit}")))
}

impl Bench for Simulator {
    fn capability(&mut self, of: Ability) -> Result<Versions, Fault> {
        match of {
            Ability::Build => Ok(Versions::from([("device".to_owned(), self.fabric.describe())])),
            _ => Err(Fault::CannotStart {
                why: "the accelerator simulator runs only operators compiled by this project".to_owned(),
            }),
        }
    }

    fn submit(&mut self, ticket: Ticket, work: BenchWork) {
        self.queue.push_back((ticket, work));
    }

    fn next_result(&mut self, goes_on: &mut dyn FnMut() -> bool) -> Option<(Ticket, Done)> {
        if !goes_on() {
            return None;
        }
        let (ticket, work) = self.queue.pop_front()?;
        let began = SystemTime::now();
        let done = match work {
            BenchWork::Build(job) => Done::Built(build_program(&self.fabric.core(), &job)),
            BenchWork::Run(job, _) => Done::Ran(Ran { began, reply: Ok(self.simulate_job(&job)) }),
            BenchWork::Library(..) | BenchWork::Network(..) | BenchWork::Together(..) => {
                let why = "the accelerator simulator runs only operators compiled by this project".to_owned();
                Done::Ran(Ran { began, reply: Ok(RunReply::Unsupported(why)) })
            }
        };
        Some((ticket, done))
    }

    fn abandon_all(&mut self) {
        self.queue.clear();
    }
}
