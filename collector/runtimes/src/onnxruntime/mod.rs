//! The only code that calls ONNX Runtime, through the function table of its C interface. Every buffer passed to the
//! library outlives the session's use of it and has the size of the model's type; memory allocated by the library is
//! returned to it; a status is read once and released.

mod description;
mod functions;
mod opened;
mod port_functions;

pub use description::DESCRIPTION;
pub use opened::OnnxRuntime;

use crate::error::{Result, RuntimeError};
use crate::ports::{Port, Ports};
use crate::runtime::{self, Runtime, RuntimeDescription};
use opened::Owned;
use port_functions::{PortFunctions, Tensor};
use std::ffi::{CString, OsStr, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;
use worker::RunnerProcess;

const ALL_OPTIMISATIONS: c_int = 99;

pub struct Session {
    // Fields are dropped in declaration order, so values precede what they refer to.
    ports: Ports<Tensor>,
    session: Owned,
    runtime: OnnxRuntime,
}

impl Runtime for OnnxRuntime {
    type Session = Session;

    const DESCRIPTION: &'static RuntimeDescription = &DESCRIPTION;

    fn open() -> Result<OnnxRuntime> {
        opened::open_library()
    }

    fn version(&self) -> String {
        self.version_text().to_owned()
    }

    fn load(&self, _: RunnerProcess, model: &Path, cpus: &[usize]) -> Result<Session> {
        let options = session_options(self, cpus)?;
        let path = to_c_string(model.as_os_str())?;
        let mut handle = null_mut();
        let functions = self.functions();
        // SAFETY: environment and options are alive, the path ends with a zero byte, and the last pointer refers to a
        // local variable.
        let status =
            unsafe { (functions.make_session)(self.environment_handle(), path.as_ptr(), options.handle, &mut handle) };
        functions.check_status(status, "load the model")?;
        let session = Owned::new(self, handle, self.functions().release_session);
        let inputs = port_functions::read_ports(self, &session, &PortFunctions::inputs(functions))?;
        let outputs = port_functions::read_ports(self, &session, &PortFunctions::outputs(functions))?;
        Ok(Session { ports: Ports { inputs, outputs }, session, runtime: self.clone() })
    }

    /// Returns the first CPU, because the library uses the calling thread as the first thread of its pool.
    fn caller_cpus(cpus: &[usize]) -> &[usize] {
        &cpus[..1]
    }
}

impl runtime::Session for Session {
    type Handle = Tensor;

    fn ports(&mut self) -> &mut Ports<Tensor> {
        &mut self.ports
    }

    fn run(&mut self, times: u32) -> Result<()> {
        let names = |ports: &[Port<Tensor>]| ports.iter().map(|port| port.handle.name.as_ptr()).collect::<Vec<_>>();
        let values = |ports: &[Port<Tensor>]| ports.iter().map(|port| port.handle.value.handle).collect::<Vec<_>>();
        let (input_names, inputs) = (names(&self.ports.inputs), values(&self.ports.inputs));
        let (output_names, mut outputs) = (names(&self.ports.outputs), values(&self.ports.outputs));
        let functions = self.runtime.functions();
        for _ in 0..times {
            // SAFETY: all handles and names are alive and match the counts. The outputs are tensors of the model's
            // types over memory of that size, which the library fills and does not keep.
            let status = unsafe {
                (functions.run)(
                    self.session.handle,
                    null_mut(),
                    input_names.as_ptr(),
                    inputs.as_ptr(),
                    inputs.len(),
                    output_names.as_ptr(),
                    output_names.len(),
                    outputs.as_mut_ptr(),
                )
            };
            functions.check_status(status, "run the model")?;
        }
        Ok(())
    }
}

fn to_c_string(text: &OsStr) -> Result<CString> {
    let refused = |_| RuntimeError::Refused {
        runtime: DESCRIPTION.name,
        doing: "open the model's path",
        why: "the path contains a zero byte".to_owned(),
    };
    CString::new(text.as_bytes()).map_err(refused)
}

fn session_options(runtime: &OnnxRuntime, cpus: &[usize]) -> Result<Owned> {
    let functions = runtime.functions();
    let mut handle = null_mut();
    // SAFETY: the pointer refers to a local variable.
    let status = unsafe { (functions.make_options)(&mut handle) };
    functions.check_status(status, "set session options")?;
    let options = Owned::new(runtime, handle, runtime.functions().release_options);
    let threads = c_int::try_from(cpus.len()).unwrap_or(c_int::MAX);
    for (set, value) in [
        (functions.set_optimisation, ALL_OPTIMISATIONS),
        (functions.set_threads, threads),
        (functions.set_threads_between, 1),
    ] {
        // SAFETY: the options are alive; each function takes them and an integer.
        let status = unsafe { set(options.handle, value) };
        functions.check_status(status, "set session options")?;
    }
    if let [_, others @ ..] = cpus
        && !others.is_empty()
    {
        // The library counts CPUs from 1. The first thread is the caller, which pins itself.
        let list: Vec<String> = others.iter().map(|cpu| (cpu + 1).to_string()).collect();
        let list = to_c_string(OsStr::new(&list.join(";")))?;
        // SAFETY: the options are alive, and both texts end with a zero byte.
        let status = unsafe {
            (functions.set_entry)(options.handle, c"session.intra_op_thread_affinities".as_ptr(), list.as_ptr())
        };
        functions.check_status(status, "pin its threads")?;
    }
    Ok(options)
}
