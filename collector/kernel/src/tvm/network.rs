//! A program loaded into memory, ready to run: all code, constants and the tensors of every call. A run allocates
//! nothing, looks up nothing, and takes no locks except the thread pool's.

use super::call::TvmError;
use super::kernel::{Kernel, KernelBuffer};
use super::memory::{Bounds, MemoryError, Shared};
use super::object::{self, LoadError};
use super::stack_offset::with_stack_offset;
use super::staged::Staging;
use super::{launch, thread_counts, workspace};
use executor::{CallArgument, Content, Place, ProgramPort};
use measure::Placement;
use measure::counters::Channel;
use profile::session::{Subject, Task, ThreadCount, Watch};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;
use tvm_ffi::AnyView;
use worker::RunnerProcess;

#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum NetworkError {
    #[error("cannot load the code of task {code}: {source}")]
    Code { code: usize, source: LoadError },
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error("{what} have {wanted} bytes, but the data has {found}")]
    Length { what: &'static str, wanted: usize, found: usize },
}

type Result<T> = std::result::Result<T, NetworkError>;

pub struct LoadedNetwork {
    kernels: Vec<Kernel>,
    calls: Vec<(usize, Vec<KernelBuffer>)>,
    inputs: Vec<KernelBuffer>,
    outputs: Vec<KernelBuffer>,
    /// For each output, whether it is an input or a constant, which no call writes.
    is_given: Vec<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedFunction {
    pub code: usize,
    pub name: String,
    pub start: u64,
    pub end: u64,
}

pub struct Calls<'a> {
    all: Vec<(&'a Kernel, Vec<AnyView<'a>>)>,
    pub watched: Option<&'static AtomicI64>,
    /// Whether tasks of pool threads are recorded; requires code loaded after `launch::install_hook`.
    pub has_threads: bool,
    /// Whether workspace requests are counted; requires code loaded after `workspace::install_hook`.
    pub has_workspace: bool,
    /// Number of tasks that did not fit the recording buffer.
    pub lost_tasks: usize,
    pub staging: Option<Staging>,
    placement: Placement,
    batches: u32,
}

struct SideBySide<'a, 'b>(&'a Calls<'b>);

// SAFETY: a run only calls functions of loaded code on tensors whose views were created before. Both have atomic
// reference counts that calls do not change, and no group reads or writes memory that a concurrent group writes.
unsafe impl Sync for SideBySide<'_, '_> {}

impl SideBySide<'_, '_> {
    fn run_one(&self, call: usize) -> std::result::Result<(), TvmError> {
        self.0.run_one(call)
    }
}

impl LoadedNetwork {
    pub fn load_content(process: RunnerProcess, content: &Content, placement: Placement) -> Result<LoadedNetwork> {
        let load = |(code, bytes): (usize, &Vec<u8>)| {
            Kernel::load_object(process, bytes).map_err(|source| NetworkError::Code { code, source })
        };
        let kernels = content.codes.iter().enumerate().map(load).collect::<Result<Vec<_>>>()?;
        let memory = NetworkMemory::new(content, placement)?;
        let program = &content.program;
        let mut calls = Vec::with_capacity(program.calls.len());
        for call in &program.calls {
            let buffers =
                call.arguments.iter().map(|argument| memory.argument_buffer(argument)).collect::<Result<Vec<_>>>()?;
            calls.push((call.code, buffers));
        }
        let port = |index: usize, port: &ProgramPort, own: fn(usize) -> Place| {
            let place = port.same_as.unwrap_or(own(index));
            let extents = port.ty.extents().unwrap_or_default();
            memory.argument_buffer(&CallArgument { place, dtype: port.ty.dtype, extents })
        };
        let inputs = program.inputs.iter().enumerate();
        let inputs = inputs.map(|(index, one)| port(index, one, Place::Input)).collect::<Result<_>>()?;
        let outputs = program.outputs.iter().enumerate();
        let outputs = outputs.map(|(index, one)| port(index, one, Place::Output)).collect::<Result<_>>()?;
        let is_given =
            program.outputs.iter().map(|port| matches!(port.same_as, Some(Place::Input(_) | Place::Constant(_))));
        Ok(LoadedNetwork { kernels, calls, inputs, outputs, is_given: is_given.collect() })
    }

    /// Writes all inputs from their concatenated bytes.
    pub fn write_inputs(&self, mut bytes: &[u8]) -> Result<()> {
        let sizes = self.inputs.iter().map(KernelBuffer::size_bytes).collect::<std::result::Result<Vec<_>, _>>()?;
        let (wanted, found) = (sizes.iter().sum(), bytes.len());
        if wanted != found {
            return Err(NetworkError::Length { what: "the inputs", wanted, found });
        }
        for (input, size) in self.inputs.iter().zip(sizes) {
            let (own, rest) = bytes.split_at(size);
            input.write(own)?;
            bytes = rest;
        }
        Ok(())
    }

    pub fn poison_outputs(&self) -> Result<()> {
        let written = self.outputs.iter().zip(&self.is_given).filter(|(_, is_given)| !**is_given);
        for (output, _) in written {
            output.poison()?;
        }
        Ok(())
    }

    pub fn read_outputs(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for output in &self.outputs {
            bytes.extend(output.read()?);
        }
        Ok(bytes)
    }

    pub fn placed_functions(&self, codes: &[Vec<u8>]) -> Vec<PlacedFunction> {
        let of_code = |(code, (kernel, bytes)): (usize, (&Kernel, &Vec<u8>))| {
            let (base, places) = (kernel.base?, object::function_ranges(bytes).ok()?);
            let placed = move |(name, range): (String, std::ops::Range<usize>)| PlacedFunction {
                code,
                name,
                start: base + range.start as u64,
                end: base + range.end as u64,
            };
            Some(places.into_iter().map(placed))
        };
        let mut all: Vec<PlacedFunction> =
            self.kernels.iter().zip(codes).enumerate().filter_map(of_code).flatten().collect();
        all.sort_by_key(|function| function.start);
        all
    }

    pub fn prepare_calls(&self) -> Calls<'_> {
        let calls = self.calls.iter();
        let calls =
            calls.map(|(code, buffers)| (&self.kernels[*code], buffers.iter().map(KernelBuffer::as_view).collect()));
        Calls {
            all: calls.collect(),
            watched: None,
            has_threads: false,
            has_workspace: false,
            lost_tasks: 0,
            staging: None,
            placement: Placement::default(),
            batches: 0,
        }
    }
}

impl Calls<'_> {
    pub fn place_stack(&mut self, placement: Placement) {
        (self.placement, self.batches) = (placement, 0);
    }

    fn next_stack_bytes(&mut self) -> usize {
        self.batches = self.batches.wrapping_add(1);
        self.placement.stack_bytes_of(self.batches)
    }

    pub fn run_times(&mut self, times: u32) -> std::result::Result<(), TvmError> {
        with_stack_offset(self.next_stack_bytes(), || self.run_here(times))
    }

    fn run_here(&self, times: u32) -> std::result::Result<(), TvmError> {
        for _ in 0..times {
            match &self.staging {
                Some(staging) => {
                    let calls = SideBySide(self);
                    staging.run_stages(&|call| calls.run_one(call), None)?;
                }
                None => (0..self.all.len()).try_for_each(|call| self.run_one(call))?,
            }
        }
        Ok(())
    }

    /// Returns start and end of each group of each stage, as medians over `runs` runs; empty without stages.
    pub fn stages_ns(&self, runs: usize) -> std::result::Result<Vec<Vec<(f64, f64)>>, TvmError> {
        let Some(staging) = &self.staging else { return Ok(Vec::new()) };
        let calls = SideBySide(self);
        let mut seen = Vec::with_capacity(runs);
        for _ in 0..runs {
            let beginning = Instant::now();
            staging.run_stages(&|call| calls.run_one(call), Some(beginning))?;
            seen.push((beginning.elapsed(), staging.measured_ns()));
        }
        seen.sort_by_key(|(elapsed, _)| *elapsed);
        Ok(if seen.is_empty() { Vec::new() } else { seen.swap_remove(seen.len() / 2).1 })
    }

    fn run_one(&self, call: usize) -> std::result::Result<(), TvmError> {
        let (kernel, views) = &self.all[call];
        kernel.call_views(views)
    }
}

impl Subject for Calls<'_> {
    type Error = TvmError;

    fn call_count(&self) -> usize {
        self.all.len()
    }

    fn run(&mut self) -> std::result::Result<(), TvmError> {
        Calls::run_times(self, 1)
    }

    fn run_watched(&mut self, watch: &mut impl Watch) -> std::result::Result<(), TvmError> {
        with_stack_offset(self.next_stack_bytes(), || {
            for (call, (kernel, views)) in self.all.iter().enumerate() {
                launch::begin_call(call);
                watch.begin_call(call);
                kernel.call_views(views)?;
                if let Some(watched) = self.watched {
                    watched.fetch_add(1, Ordering::Relaxed);
                }
                watch.end_call(call);
            }
            Ok(())
        })
    }

    fn workspace_bytes(&mut self) -> std::result::Result<Option<Vec<u64>>, TvmError> {
        if !self.has_workspace {
            return Ok(None);
        }
        workspace::take_bytes();
        let of_call = |(kernel, views): &(&Kernel, Vec<AnyView<'_>>)| {
            kernel.call_views(views)?;
            Ok(workspace::take_bytes())
        };
        self.all.iter().map(of_call).collect::<std::result::Result<Vec<u64>, TvmError>>().map(Some)
    }

    fn record_threads(&mut self) {
        if self.has_threads {
            launch::start_recording();
        }
    }

    fn tasks(&mut self) -> Vec<Task> {
        let (tasks, lost) = if self.has_threads { launch::stop_recording() } else { (Vec::new(), 0) };
        self.lost_tasks += lost;
        tasks
    }

    fn count_on_threads(&mut self, group: Option<usize>) {
        if self.has_threads {
            thread_counts::select_group(group);
        }
    }

    fn thread_counts(&mut self) -> Vec<ThreadCount> {
        if self.has_threads { thread_counts::take_counts() } else { Vec::new() }
    }

    fn thread_channels(&self) -> Vec<Channel> {
        if self.has_threads { thread_counts::counted_channels() } else { Vec::new() }
    }

    fn threads_cpu_ns(&mut self) -> Vec<u64> {
        if self.has_threads { launch::threads_cpu_ns() } else { Vec::new() }
    }
}

struct NetworkMemory<'a> {
    content: &'a Content,
    activations: Shared,
    constants: Shared,
    inputs: Vec<Shared>,
    outputs: Vec<Shared>,
}

impl NetworkMemory<'_> {
    fn new(content: &Content, placement: Placement) -> Result<NetworkMemory<'_>> {
        let size = |bytes: u64| usize::try_from(bytes).expect("sizes were checked on reading");
        let mut number = 0;
        let mut shared = |bytes: usize| {
            number += 1;
            Shared::new(bytes, Bounds::Moved(placement.tensor_bytes(number)))
        };
        let ports = |ports: &[ProgramPort],
                     shared: &mut dyn FnMut(usize) -> std::result::Result<Shared, MemoryError>| {
            let bytes = |port: &ProgramPort| size(port.ty.size_bytes().unwrap_or(0));
            ports.iter().map(|port| shared(bytes(port))).collect::<std::result::Result<Vec<Shared>, MemoryError>>()
        };
        let constants = shared(content.constants.len())?;
        constants.write(&content.constants)?;
        Ok(NetworkMemory {
            content,
            activations: shared(size(content.program.activation_bytes))?,
            constants,
            inputs: ports(&content.program.inputs, &mut shared)?,
            outputs: ports(&content.program.outputs, &mut shared)?,
        })
    }

    fn argument_buffer(&self, argument: &CallArgument) -> Result<KernelBuffer> {
        let (memory, offset) = match argument.place {
            Place::Activation(offset) => (&self.activations, offset),
            Place::Input(index) => (&self.inputs[index], 0),
            Place::Output(index) => (&self.outputs[index], 0),
            Place::Constant(index) => (&self.constants, self.content.offsets[index]),
        };
        let offset = usize::try_from(offset).expect("sizes were checked on reading");
        Ok(KernelBuffer::within_shared(memory, offset, argument.dtype, &argument.extents)?)
    }
}
