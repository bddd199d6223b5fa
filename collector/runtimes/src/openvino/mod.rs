//! The only code that calls OpenVINO, through its C interface. Every buffer passed to the library outlives its use by
//! the request and has the size of the model's type; memory of the library is returned to it once.

mod description;
mod functions;
mod opened;
mod port_functions;

pub use description::DESCRIPTION;
pub use opened::OpenVino;

use crate::error::{Result, RuntimeError};
use crate::ports::Ports;
use crate::runtime::{self, Runtime, RuntimeDescription};
use opened::Owned;
use port_functions::{OpenVinoPortFunctions, bind_ports};
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut};
use worker::RunnerProcess;

const DEVICE: &CStr = c"CPU";
const THREADS: &CStr = c"INFERENCE_NUM_THREADS";

pub struct Session {
    // Fields are dropped in declaration order, so values precede what they refer to.
    request: Owned,
    ports: Ports<Owned>,
    _compiled: Owned,
    runtime: OpenVino,
}

impl Runtime for OpenVino {
    type Session = Session;

    const DESCRIPTION: &'static RuntimeDescription = &DESCRIPTION;

    fn open() -> Result<OpenVino> {
        opened::open_library()
    }

    fn version(&self) -> String {
        self.version_text().to_owned()
    }

    fn load(&self, _: RunnerProcess, model: &Path, cpus: &[usize]) -> Result<Session> {
        self.check_cpus(cpus)?;
        let compiled = compile_model(self, &read_model(self, model)?, cpus.len())?;
        check_threads(self, &compiled, cpus.len())?;
        let functions = self.functions();
        let mut request = null_mut();
        // SAFETY: the model is alive; the pointer refers to a local variable.
        let status = unsafe { (functions.make_request)(compiled.handle, &mut request) };
        functions.check_status(status, "create an inference request")?;
        let request = Owned::new(self, request, self.functions().release_request);
        let inputs = bind_ports(self, &compiled, &request, &OpenVinoPortFunctions::inputs(functions))?;
        let outputs = bind_ports(self, &compiled, &request, &OpenVinoPortFunctions::outputs(functions))?;
        Ok(Session { request, ports: Ports { inputs, outputs }, _compiled: compiled, runtime: self.clone() })
    }

    /// Returns all CPUs: the library pins the caller itself, and its other threads to the CPUs that the caller may use.
    fn caller_cpus(cpus: &[usize]) -> &[usize] {
        cpus
    }
}

impl runtime::Session for Session {
    type Handle = Owned;

    fn ports(&mut self) -> &mut Ports<Owned> {
        &mut self.ports
    }

    fn run(&mut self, times: u32) -> Result<()> {
        let functions = self.runtime.functions();
        for _ in 0..times {
            // SAFETY: the request is alive, and so is the memory of its tensors, which has no other user during the
            // run.
            let status = unsafe { (functions.run)(self.request.handle) };
            functions.check_status(status, "run the model")?;
        }
        Ok(())
    }
}

fn read_model(runtime: &OpenVino, model: &Path) -> Result<Owned> {
    let functions = runtime.functions();
    let path = CString::new(model.as_os_str().as_bytes()).map_err(|_| RuntimeError::Refused {
        runtime: DESCRIPTION.name,
        doing: "open the model's path",
        why: "the path contains a zero byte".to_owned(),
    })?;
    let mut handle = null_mut();
    // SAFETY: the core is alive, the path ends with a zero byte, there is no second file, and the last pointer refers
    // to a local variable.
    let status = unsafe { (functions.read_model)(runtime.core_handle(), path.as_ptr(), null(), &mut handle) };
    functions.check_status(status, "load the model")?;
    Ok(Owned::new(runtime, handle, runtime.functions().release_model))
}

/// Compiles a model for minimum latency on `threads` threads, in f32, for a fair comparison with f32 code.
fn compile_model(runtime: &OpenVino, model: &Owned, threads: usize) -> Result<Owned> {
    let functions = runtime.functions();
    let threads = CString::new(threads.to_string()).expect("digits contain no zero byte");
    let properties: [(&CStr, &CStr); 6] = [
        (THREADS, &threads),
        (c"NUM_STREAMS", c"1"),
        (c"PERFORMANCE_HINT", c"LATENCY"),
        (c"ENABLE_CPU_PINNING", c"YES"),
        // All CPUs of the job are used, even if they share a core.
        (c"ENABLE_HYPER_THREADING", c"YES"),
        (c"INFERENCE_PRECISION_HINT", c"f32"),
    ];
    let [threads, streams, hint, pinning, sharing, precision] =
        properties.map(|(name, value)| (name.as_ptr(), value.as_ptr()));
    let mut handle = null_mut();
    // SAFETY: core and model are alive; all texts end with a zero byte, alternate between names and values and match
    // the count; the result pointer refers to a local variable.
    let status = unsafe {
        (functions.compile)(
            runtime.core_handle(),
            model.handle,
            DEVICE.as_ptr(),
            2 * properties.len(),
            &mut handle,
            threads.0,
            threads.1,
            streams.0,
            streams.1,
            hint.0,
            hint.1,
            pinning.0,
            pinning.1,
            sharing.0,
            sharing.1,
            precision.0,
            precision.1,
        )
    };
    functions.check_status(status, "compile the model")?;
    Ok(Owned::new(runtime, handle, runtime.functions().release_compiled))
}

/// Checks that a compiled model uses the requested number of threads; the library may choose fewer.
fn check_threads(runtime: &OpenVino, compiled: &Owned, threads: usize) -> Result<()> {
    let functions = runtime.functions();
    let mut found = null_mut();
    // SAFETY: the model is alive, the name ends with a zero byte, and the last pointer refers to a local variable.
    let status = unsafe { (functions.property)(compiled.handle, THREADS.as_ptr(), &mut found) };
    functions.check_status(status, "report its number of threads")?;
    // SAFETY: the library allocated the text for the caller.
    let found = unsafe { functions.owned_text(found) };
    if found == threads.to_string() {
        return Ok(());
    }
    let why = format!("{threads} were requested, but it uses {found}");
    Err(RuntimeError::Refused { runtime: DESCRIPTION.name, doing: "use the requested number of threads", why })
}
