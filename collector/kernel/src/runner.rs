//! The runner of single tasks: loads an object file and returns its times. Inputs and the expected result are computed
//! from the job's seed, once per task. The output is filled with a pattern before the run, so that unwritten elements
//! are detected. A wrong result, which is checked after the measurement, invalidates the times.

use crate::measuring::run_on_new_thread;
use crate::tvm::kernel::{Kernel, KernelBuffer};
use crate::tvm::memory::Bounds;
use crate::tvm::pool::PoolThreads;
use crate::tvm::stack_offset::with_stack_offset;
use anyhow::{Context, Result, bail, ensure};
use job::prepared::{PreparedTask, PreparedTasks};
use job::{Measured, Packing, RunJob, RunReply};
use measure::counters::CounterSession;
use measure::{HostClock, Placement, measure_runs};
use reference::Rounding;
use worker::{RunnerProcess, peak_resident_bytes};

pub struct Runner {
    process: RunnerProcess,
    prepared: PreparedTasks,
    buffers: Option<PlacedBuffers>,
}

struct PlacedBuffers {
    packings: Vec<Packing>,
    placement: Placement,
    buffers: Vec<KernelBuffer>,
}

impl Runner {
    pub fn new(process: RunnerProcess) -> Runner {
        Runner { process, prepared: PreparedTasks::default(), buffers: None }
    }

    pub fn answer_job(&mut self, job: &RunJob) -> RunReply {
        self.run_job(job).unwrap_or_else(|error| RunReply::Failed(format!("{error:#}")))
    }

    fn run_job(&mut self, job: &RunJob) -> Result<RunReply> {
        ensure!(job.device.is_none(), "the code is for a GPU, but this runner has none");
        if !self.prepared.is_latest(&job.task, job.seed) {
            self.buffers = None;
        }
        let prepared = self.prepared.get_task(&job.task, job.seed, job.is_checked)?;
        let is_wanted = |known: &PlacedBuffers| known.packings == job.packings && known.placement == job.placement;
        let buffers = match self.buffers.take().filter(is_wanted) {
            Some(known) => known.buffers,
            None => place_buffers(prepared, &job.packings, job.placement)?,
        };
        let process = self.process;
        // The measuring thread takes the buffers and returns them with its result.
        let (reply, buffers) = run_on_new_thread(&job.cpus, &job.counters, move |counters| {
            Ok((run_on_this_thread(process, job, prepared, &buffers, counters), buffers))
        })?;
        self.buffers = Some(PlacedBuffers { packings: job.packings.clone(), placement: job.placement, buffers });
        reply
    }
}

/// Calls a job's code `times` times; nothing else depends on `times`, so that simulated runs can be compared.
pub fn call_only(process: RunnerProcess, job: &RunJob, times: u32) -> Result<()> {
    let mut prepared = PreparedTasks::default();
    let prepared = prepared.get_task(&job.task, job.seed, false)?;
    let buffers = place_buffers(prepared, &job.packings, job.placement)?;
    run_on_new_thread(&job.cpus, &job.counters, move |_| {
        let kernel = Kernel::load_object(process, &job.object).context("cannot load the artifact")?;
        Ok(kernel.call_repeatedly(&buffers.iter().collect::<Vec<_>>(), times)?)
    })
}

pub(crate) fn place_buffers(
    prepared: &PreparedTask,
    packings: &[Packing],
    placement: Placement,
) -> Result<Vec<KernelBuffer>> {
    let bounds = |number: usize| Bounds::Moved(placement.tensor_bytes(number));
    let Some((result, packings)) = packings.split_last().filter(|(_, others)| others.len() == prepared.inputs.len())
    else {
        bail!("the artifact and the task have different numbers of parameters");
    };
    let mut buffers = Vec::with_capacity(packings.len() + 1);
    for (number, (input, packing)) in prepared.inputs.iter().zip(packings).enumerate() {
        let extents = input.tensor_type().extents().context("a tensor has an unbound symbolic dimension")?;
        let dtype = input.tensor_type().dtype;
        let stored = packing.stored_extents(&extents);
        let mut buffer = KernelBuffer::new(packing.stored_dtype(dtype), &stored, bounds(number))?;
        let element_bytes = usize::try_from(dtype.size_bytes())?;
        let is_stored =
            buffer.change_bytes(|bytes| packing.pack_into(&extents, element_bytes, input.as_bytes(), bytes))?;
        ensure!(is_stored, "the artifact stores {dtype} as {packing}");
        buffers.push(buffer);
    }
    let output = prepared.output_type();
    let extents = output.extents().context("a tensor has an unbound symbolic dimension")?;
    buffers.push(KernelBuffer::new(output.dtype, &result.stored_extents(&extents), bounds(packings.len()))?);
    Ok(buffers)
}

fn run_on_this_thread(
    process: RunnerProcess,
    job: &RunJob,
    prepared: &PreparedTask,
    buffers: &[KernelBuffer],
    counters: &mut CounterSession,
) -> Result<RunReply> {
    let kernel = Kernel::load_object(process, &job.object).context("cannot load the artifact")?;
    let arguments: Vec<&KernelBuffer> = buffers.iter().collect();
    let output = arguments.last().context("the artifact has no output")?;
    output.poison()?;
    let mut batches = 0..;
    let mut call = |times: u32| {
        let stack_bytes = job.placement.stack_bytes_of(batches.next().unwrap_or(0));
        with_stack_offset(stack_bytes, || kernel.call_repeatedly(&arguments, times))
    };
    let inputs = buffers.iter().zip(&prepared.task.parameters);
    let activations = inputs.filter(|(_, parameter)| !parameter.is_constant);
    let activations = activations.map(|(buffer, _)| Ok(buffer.as_shared_bytes()?)).collect::<Result<Vec<_>>>()?;
    let mut clock = HostClock::with_threads(PoolThreads::new(&job.cpus)?).with_activations(activations);
    let measurement = measure_runs(&mut call, &job.method, &mut clock, counters)?;
    let check = if job.is_checked { Some(prepared.check_result(output.read()?, Rounding::None)?) } else { None };
    if let Some(check) = check.filter(|check| !check.is_right) {
        return Ok(RunReply::WrongResult(check));
    }
    let tvm_seconds = match &job.tvm_evaluator {
        Some(rule) => kernel.evaluate_with_tvm(&arguments, rule)?,
        None => Vec::new(),
    };
    let measured = Measured { tvm_seconds, ..Measured::from_measurement(measurement, check, peak_resident_bytes()) };
    Ok(RunReply::Measured(Box::new(measured)))
}
