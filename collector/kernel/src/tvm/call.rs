//! Calls TVM's functions: the name comes from a table, arguments are values, and errors name the failed call.

use super::names::{ALL, Name};
use models::DType;
use std::cell::RefCell;
use std::fmt;
use tvm_ffi::object::ObjectRef;
use tvm_ffi::{
    Any, AnyView, Array, DLDataType, FieldGetter, Function, Map, ObjectRefCore, String as TvmString, TypeIndex,
};

/// A number, a string or a counted reference to a TVM object.
#[derive(Clone)]
pub struct Value(pub(in crate::tvm) Any);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{call}` failed: {message}")]
pub struct TvmError {
    pub call: String,
    pub message: String,
}

impl TvmError {
    pub(in crate::tvm) fn new(call: &str, message: impl fmt::Display) -> TvmError {
        TvmError { call: call.to_owned(), message: message.to_string().trim().to_owned() }
    }
}

/// Calls a function of TVM that the table of names lists: `call!(names::FUSE, schedule, loops, true)`.
macro_rules! call {
    ($name:expr $(, $argument:expr)* $(,)?) => {
        $crate::tvm::call::call_named(&$name, &[$($crate::tvm::call::Value::from($argument)),*])
    };
}
pub(in crate::tvm) use call;

thread_local! {
    // `Function` is not `Sync`; a look-up per thread and name is cheap.
    static FUNCTIONS: RefCell<Vec<Option<Function>>> = RefCell::new(vec![None; ALL.len()]);
}

/// Returns a global function of TVM, cached per thread.
pub(in crate::tvm) fn find_function(name: &Name) -> Result<Function, TvmError> {
    FUNCTIONS.with_borrow_mut(|functions| {
        if let Some(found) = &functions[name.index] {
            return Ok(found.clone());
        }
        let found = Function::get_global(name.text).map_err(|error| TvmError::new(name.text, error.message()))?;
        functions[name.index] = Some(found.clone());
        Ok(found)
    })
}

/// Calls a function of the table of names and asserts its number of arguments.
pub(in crate::tvm) fn call_named(name: &Name, arguments: &[Value]) -> Result<Value, TvmError> {
    assert_eq!(arguments.len(), name.arguments, "argument count of `{}`", name.text);
    call_function(&find_function(name)?, name.text, arguments)
}

pub(in crate::tvm) fn call_function(function: &Function, label: &str, arguments: &[Value]) -> Result<Value, TvmError> {
    let views: Vec<AnyView> = arguments.iter().map(|argument| AnyView::from(&argument.0)).collect();
    function.call_packed(&views).map(Value).map_err(|error| TvmError::new(label, error.message()))
}

impl Value {
    pub fn none() -> Value {
        Value(Any::new())
    }

    pub fn array(items: impl IntoIterator<Item = Value>) -> Value {
        Value(Any::from(Array::new(items.into_iter().map(|item| item.0).collect::<Vec<Any>>())))
    }

    pub(in crate::tvm) fn empty_map() -> Value {
        Value(Any::from(Map::<TvmString, Any>::new()))
    }

    pub(in crate::tvm) fn text_map<'a>(entries: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
        let entries = entries.into_iter().map(|(name, value)| (TvmString::from(name), value.0));
        Value(Any::from(entries.collect::<Map<TvmString, Any>>()))
    }

    pub(in crate::tvm) fn is_none(&self) -> bool {
        self.0.type_index() == TypeIndex::kTVMFFINone as i32
    }

    pub fn items(&self) -> Result<Vec<Value>, TvmError> {
        let array: Array<Any> = self.convert_to("array")?;
        (0..array.len())
            .map(|index| array.get(index).map(Value).map_err(|error| TvmError::new("array item", error.message())))
            .collect()
    }

    pub fn as_integer(&self) -> Result<i64, TvmError> {
        self.convert_to("integer")
    }

    pub fn as_boolean(&self) -> Result<bool, TvmError> {
        self.convert_to("boolean")
    }

    pub fn as_text(&self) -> Result<String, TvmError> {
        self.convert_to::<TvmString>("text").map(|text| text.as_str().to_owned())
    }

    /// Returns whether both are the same object of TVM.
    pub(in crate::tvm) fn is_same(&self, other: &Value) -> Result<bool, TvmError> {
        let (one, other): (ObjectRef, ObjectRef) = (self.convert_to("object")?, other.convert_to("object")?);
        Ok(std::ptr::eq(&**ObjectRefCore::data(&one), &**ObjectRefCore::data(&other)))
    }

    pub(in crate::tvm) fn field(&self, name: &str) -> Result<Value, TvmError> {
        let object: ObjectRef = self.convert_to("object")?;
        let getter =
            FieldGetter::new(self.0.type_index(), name).map_err(|error| TvmError::new(name, error.message()))?;
        getter.get_any(&**ObjectRefCore::data(&object)).map(Value).map_err(|error| TvmError::new(name, error.message()))
    }

    pub(in crate::tvm) fn convert_to<T: TryFrom<Any, Error = tvm_ffi::Error>>(
        &self,
        wanted: &str,
    ) -> Result<T, TvmError> {
        T::try_from(self.0.clone()).map_err(|error| TvmError::new(&format!("conversion to {wanted}"), error.message()))
    }
}

macro_rules! value_from {
    ($($type:ty),*) => { $(impl From<$type> for Value { fn from(value: $type) -> Value { Value(Any::from(value)) } })* };
}
value_from!(i64, i32, bool, f64);

impl From<&Value> for Value {
    fn from(value: &Value) -> Value {
        value.clone()
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value(Any::from(TvmString::from(text)))
    }
}

impl From<Vec<Value>> for Value {
    fn from(items: Vec<Value>) -> Value {
        Value::array(items)
    }
}

impl From<DType> for Value {
    fn from(dtype: DType) -> Value {
        Value(Any::from(data_type(dtype)))
    }
}

pub(in crate::tvm) fn data_type(dtype: DType) -> DLDataType {
    let (code, bits) = dtype.dlpack_code();
    DLDataType { code, bits, lanes: 1 }
}
