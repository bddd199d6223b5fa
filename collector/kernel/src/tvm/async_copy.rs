//! How copies in the background are written: TVM's passes make them, and only its Python package knows the text. Here it is
//! calls of NVIDIA's own functions for them.

use super::call::{TvmError, Value, call};
use super::device_function::called;
use super::names;
use tvm_ffi::{Any, AnyView, Error, Function};

type Result<T> = std::result::Result<T, TvmError>;

const HEADER: &str = "#include <cuda_pipeline_primitives.h>\n";

const COMMIT: &str = "tirx.ptx.cp_async_commit_group";
const WAIT: &str = "tirx.ptx.cp_async_wait_group";

/// Makes operators known that TVM's code generator asks for and its Python package alone registers.
pub(super) fn register() -> Result<()> {
    for operator in [COMMIT, WAIT] {
        if call!(names::GET_OPERATOR, operator).is_err() {
            call!(names::REGISTER_OPERATOR, operator, "copies in the background")?;
        }
    }
    Ok(())
}

/// The function that writes calls of an operator, where it is one of these.
pub(super) fn writer(operator: &str) -> Option<Function> {
    let write: fn(&[Value]) -> Result<Value> = match operator {
        "tirx.s_tir.cp_async_raw" => copy,
        COMMIT => |_| called("__pipeline_commit", HEADER, Vec::new()),
        WAIT => |arguments| called("__pipeline_wait_prior", HEADER, arguments.iter().take(1).cloned().collect()),
        _ => return None,
    };
    Some(Function::from_packed(move |arguments: &[AnyView]| {
        let failed = |error: TvmError| Error::new(tvm_ffi::RUNTIME_ERROR, &error.to_string(), "");
        let arguments = arguments.first().map_or_else(Value::none, |view| Value(Any::from(*view)));
        let call = arguments.items().and_then(|arguments| write(&arguments)).map_err(failed)?;
        // With the call come the parts of the header that it needs.
        Ok(Value::array([call, Value::array([])]).0)
    }))
}

/// Copies bytes between two addresses with offsets in elements.
///
/// Generated code keeps all shared memory in one byte array, so only the source determines the element size.
fn copy(arguments: &[Value]) -> Result<Value> {
    let [places @ .., bytes] = arguments else { return Err(TvmError::new("copy", "it has no arguments")) };
    if places.len() != 4 {
        return Err(TvmError::new("copy", "a copy that depends on a condition cannot be in the background"));
    }
    let bytes = bytes.integer().or_else(|_| bytes.field("value")?.integer())?;
    let name = format!("copy_async_{bytes}");
    let text = format!(
        "{HEADER}template <class Element>\n\
         __device__ __forceinline__ void {name}(void *to, int to_at, Element *from, int from_at) {{\n  \
         __pipeline_memcpy_async((char *)to + to_at * sizeof(Element), from + from_at, {bytes});\n}}\n"
    );
    called(&name, &text, places.to_vec())
}
