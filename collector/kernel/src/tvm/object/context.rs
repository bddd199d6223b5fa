//! Resolves what an object needs from this process: imported functions, and the variables that TVM emits for functions
//! of its runtime. TVM's own library loader sets the same variables.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CString, c_void};
use std::ptr::NonNull;

use libloading::os::unix::Library;

use super::Export;
use super::error::LoadError;
use super::layout::Layout;
use super::read::{Object, Place};
use crate::tvm::{launch, workspace};

const VARIABLE_PREFIX: &str = "__";

const RUNTIME_FUNCTIONS: [&str; 8] = [
    "TVMFFIFunctionCall",
    "TVMFFIErrorSetRaisedFromCStr",
    "TVMFFIEnvModLookupFromImports",
    "TVMFFIHandleInitOnce",
    "TVMBackendAllocWorkspace",
    "TVMBackendFreeWorkspace",
    "TVMBackendParallelLaunch",
    "TVMBackendParallelBarrier",
];

pub type Imports = BTreeMap<usize, u64>;

pub fn resolve_imports(object: &Object<'_>) -> Result<Imports, LoadError> {
    let process = Library::this();
    let mut imports = Imports::new();
    for relocation in &object.relocations {
        let symbol = &object.symbols[relocation.symbol];
        let Place::Import { is_weak } = symbol.place else { continue };
        if imports.contains_key(&relocation.symbol) {
            continue;
        }
        let address = match find_symbol(&process, symbol.name) {
            Some(address) => address.as_ptr() as u64,
            None if is_weak => 0,
            None => return Err(LoadError::UnresolvedSymbol { name: symbol.name.to_owned() }),
        };
        imports.insert(relocation.symbol, address);
    }
    Ok(imports)
}

/// Finds a symbol in a library or its dependencies, or in the whole process if `library` stands for the process.
pub(super) fn find_symbol(library: &Library, name: &str) -> Option<NonNull<c_void>> {
    let name = CString::new(name).ok()?;
    // SAFETY: the symbol is only taken as an address.
    let symbol = unsafe { library.get::<*mut c_void>(name.as_c_str()) }.ok()?;
    NonNull::new(symbol.into_raw())
}

pub fn fill_variables(exports: &HashMap<String, Export>, layout: &Layout, image: &mut [u8]) -> Result<(), LoadError> {
    for_each_variable(|variable, address| {
        let Some(export) = exports.get(variable) else { return Ok(()) };
        let end = export.offset.saturating_add(size_of::<usize>());
        // The data part, which follows the constants, contains all variables.
        let target = image.get_mut(export.offset..end).filter(|_| export.offset >= layout.constants.end);
        let Some(target) = target else {
            return Err(LoadError::malformed_file(format!("`{variable}` is outside the object's data")));
        };
        target.copy_from_slice(&address()?.to_ne_bytes());
        Ok(())
    })
}

/// Sets the function-pointer variables for TVM's runtime in a library that was linked from the object.
pub fn fill_library(library: &Library) -> Result<(), LoadError> {
    for_each_variable(|variable, address| {
        let Some(target) = find_symbol(library, variable) else { return Ok(()) };
        // SAFETY: TVM's code generator defines symbols of these names as writable variables of pointer size, and
        // nothing in the library has run yet. The library stands alone, so the symbol is its own.
        unsafe { target.cast::<usize>().write_unaligned(address()?) };
        Ok(())
    })
}

fn for_each_variable(
    mut visit: impl FnMut(&str, &dyn Fn() -> Result<usize, LoadError>) -> Result<(), LoadError>,
) -> Result<(), LoadError> {
    let process = Library::this();
    for function in RUNTIME_FUNCTIONS {
        let ours = match function {
            launch::NAME => launch::hook_address(),
            workspace::NAME => workspace::hook_address(),
            _ => None,
        };
        let address = || match find_symbol(&process, function) {
            Some(_) if ours.is_some() => Ok(ours.unwrap_or_default()),
            Some(address) => Ok(address.as_ptr() as usize),
            None => Err(LoadError::UnresolvedSymbol { name: function.to_owned() }),
        };
        visit(&format!("{VARIABLE_PREFIX}{function}"), &address)?;
    }
    Ok(())
}
