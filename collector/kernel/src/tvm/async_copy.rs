//! Emits asynchronous copies in CUDA C by NVIDIA's pipeline functions, which TVM supports only in its Python package.

use super::call::{TvmError, Value, call};
use super::device_function::call_own;
use super::names;
use tvm_ffi::{Any, AnyView, Error, Function};

type Result<T> = std::result::Result<T, TvmError>;

const HEADER: &str = "#include <cuda_pipeline_primitives.h>\n";

const COMMIT: &str = "tirx.ptx.cp_async_commit_group";
const WAIT: &str = "tirx.ptx.cp_async_wait_group";

/// Registers operators that TVM's code generator requires but only its Python package defines.
pub(super) fn register_operators() -> Result<()> {
    for operator in [COMMIT, WAIT] {
        if call!(names::GET_OPERATOR, operator).is_err() {
            call!(names::REGISTER_OPERATOR, operator, "copies in the background")?;
        }
    }
    Ok(())
}

/// Returns the function that emits calls of an operator, or None if the operator is not an asynchronous copy.
pub(super) fn operator_writer(operator: &str) -> Option<Function> {
    let write: fn(&[Value]) -> Result<Value> = match operator {
        "tirx.s_tir.cp_async_raw" => write_copy,
        COMMIT => |_| call_own("__pipeline_commit", HEADER, Vec::new()),
        WAIT => |arguments| call_own("__pipeline_wait_prior", HEADER, arguments.iter().take(1).cloned().collect()),
        _ => return None,
    };
    Some(Function::from_packed(move |arguments: &[AnyView]| {
        let failed = |error: TvmError| Error::new(tvm_ffi::RUNTIME_ERROR, &error.to_string(), "");
        let arguments = arguments.first().map_or_else(Value::none, |view| Value(Any::from(*view)));
        let call = arguments.items().and_then(|arguments| write(&arguments)).map_err(failed)?;
        // TVM expects the call and the header features that the call needs.
        Ok(Value::array([call, Value::array([])]).0)
    }))
}

/// Emits a copy with the element size of its source: the destination, shared memory, is one byte array in the code.
fn write_copy(arguments: &[Value]) -> Result<Value> {
    let [places @ .., bytes] = arguments else {
        return Err(TvmError::new("copy", "an asynchronous copy has no arguments"));
    };
    if places.len() != 4 {
        return Err(TvmError::new("copy", "a conditional copy cannot be asynchronous"));
    }
    let bytes = bytes.as_integer().or_else(|_| bytes.field("value")?.as_integer())?;
    let name = format!("copy_async_{bytes}");
    let text = format!(
        "{HEADER}template <class Element>\n\
         __device__ __forceinline__ void {name}(void *to, int to_at, Element *from, int from_at) {{\n  \
         __pipeline_memcpy_async((char *)to + to_at * sizeof(Element), from + from_at, {bytes});\n}}\n"
    );
    call_own(&name, &text, places.to_vec())
}
