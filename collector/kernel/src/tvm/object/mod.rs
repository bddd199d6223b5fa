//! Loads the object file of a kernel into this process, without a linker and without a file, which is far faster. The
//! static linker's work is done here for the part of ELF that compilers emit for a kernel: `read` parses the object,
//! `layout` assigns positions, `relocate` patches the image, `image` owns the memory, and `context` sets pointers.
//! Other objects are loaded by [`load_through_linker`]. All loaders reject objects whose code would run on loading.
//!
//! Loading executes nothing and is safe for any input bytes. *Calling* loaded code, or opening it with the system's
//! loader, runs unchecked machine code: both are `unsafe` here and only done in runner processes, which may crash.

mod context;
mod error;
mod image;
mod layout;
mod linker;
mod on_loading;
mod read;
mod relocate;
mod size;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use tvm_ffi::Function;
use tvm_ffi::tvm_ffi_sys::TVMFFISafeCallType;

pub use error::LoadError;
pub use linker::load_through_linker;

use image::{Draft, Image};
use layout::Layout;

const FUNCTION_PREFIX: &str = "__tvm_ffi_";

/// Code and data of one object, unmapped when it and all functions taken from it are dropped.
#[derive(Debug)]
pub struct LoadedObject {
    backing: Arc<Backing>,
}

#[derive(Debug)]
enum Backing {
    Image { image: Image, exports: HashMap<String, Export> },
    Library(libloading::os::unix::Library),
}

#[derive(Debug, Clone, Copy)]
struct Export {
    offset: usize,
    is_code: bool,
}

/// Loads a relocatable x86-64 ELF object. Undefined symbols are looked up in this process, so TVM's runtime must be
/// open. If this fails, [`LoadError::linker_may_help`] returns whether [`load_through_linker`] is worth trying.
pub fn load_object(bytes: &[u8]) -> Result<LoadedObject, LoadError> {
    let object = read::read_object(bytes)?;
    let layout = Layout::new(&object)?;
    let imports = context::resolve_imports(&object)?;
    let mut draft = Draft::map_zeros(layout.size).map_err(|source| LoadError::Map { size: layout.size, source })?;
    let base = draft.base_address();
    let exports = global_symbols(&object, &layout);
    layout.copy_sections(&object, draft.bytes_mut())?;
    relocate::relocate_image(&object, &layout, &imports, base, draft.bytes_mut())?;
    context::fill_variables(&exports, &layout, draft.bytes_mut())?;
    let image = draft.seal_pages(&layout).map_err(|source| LoadError::Map { size: layout.size, source })?;
    Ok(LoadedObject { backing: Arc::new(Backing::Image { image, exports }) })
}

/// Returns the number of bytes of machine code in an object file, for any processor.
pub fn code_bytes(bytes: &[u8]) -> Result<u64, LoadError> {
    size::code_bytes(bytes).map_err(|error| LoadError::malformed_file(error.to_string()))
}

/// Returns the names and machine code of the functions in an object file, in code order.
pub fn object_functions(bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>, LoadError> {
    let object = read::read_object(bytes)?;
    let code = |(name, section, range): (&str, usize, Range<usize>)| {
        (name.to_owned(), object.sections[section].bytes.get(range).unwrap_or_default().to_vec())
    };
    Ok(code_functions(&object).into_iter().map(code).collect())
}

pub fn function_ranges(bytes: &[u8]) -> Result<Vec<(String, Range<usize>)>, LoadError> {
    let object = read::read_object(bytes)?;
    let layout = Layout::new(&object)?;
    let place = |(name, section, range): (&str, usize, Range<usize>)| {
        let start = layout.sections[section].start;
        (name.to_owned(), start + range.start..start + range.end)
    };
    Ok(code_functions(&object).into_iter().map(place).collect())
}

/// Returns the functions of an object in code order: name, section index, and range within the section.
fn code_functions<'a>(object: &read::Object<'a>) -> Vec<(&'a str, usize, Range<usize>)> {
    let mut begins: Vec<(usize, usize, &'a str)> = Vec::new();
    for symbol in &object.symbols {
        if let read::Place::Section { section, offset } = symbol.place
            && !symbol.name.is_empty()
            && object.sections.get(section).is_some_and(|found| found.access == read::Access::Code)
        {
            begins.push((section, offset, symbol.name));
        }
    }
    begins.sort_unstable();
    begins.dedup_by_key(|(section, offset, _)| (*section, *offset));
    let end = |place: usize, section: usize| match begins.get(place + 1) {
        Some((next, offset, _)) if *next == section => *offset,
        _ => object.sections[section].bytes.len(),
    };
    let function = |(place, (section, offset, name)): (usize, &(usize, usize, &'a str))| {
        (*name, *section, *offset..end(place, *section).max(*offset))
    };
    begins.iter().enumerate().map(function).collect()
}

impl LoadedObject {
    /// Returns the start address of the image, or None if the system's loader chose it.
    pub fn base_address(&self) -> Option<u64> {
        match &*self.backing {
            Backing::Image { image, .. } => image.address_at(0).map(|base| base.as_ptr() as u64),
            Backing::Library(_) => None,
        }
    }

    /// Returns the address of a defined symbol, valid while this value or one of its functions lives.
    pub fn find_symbol(&self, name: &str) -> Option<NonNull<c_void>> {
        match &*self.backing {
            Backing::Image { image, exports } => image.address_at(exports.get(name)?.offset),
            Backing::Library(library) => context::find_symbol(library, name),
        }
    }

    /// Returns the packed function that TVM emitted under `name`, usually `main`. It keeps the mapping alive.
    ///
    /// # Safety
    ///
    /// The code must have the signature of TVM's packed functions, and may bring down this process when called.
    ///
    /// # Errors
    ///
    /// The object does not define the function in its code.
    pub unsafe fn packed_function(&self, name: &str) -> Result<Function, LoadError> {
        let symbol = format!("{FUNCTION_PREFIX}{name}");
        let address = self.code_address(&symbol).ok_or(LoadError::MissingFunction { symbol })?;
        // SAFETY: the address lies in executable memory, under the symbol that TVM reserves for functions with this
        // signature; that the code there keeps the signature is the caller's promise.
        let safe_call = unsafe { std::mem::transmute::<*mut c_void, TVMFFISafeCallType>(address.as_ptr()) };
        let handle = Arc::into_raw(Arc::clone(&self.backing)).cast_mut().cast::<c_void>();
        // SAFETY: the handle is one strong count of the mapping, given back exactly once by `release_backing`.
        Ok(unsafe { Function::from_extern_c(handle, safe_call, Some(release_backing)) })
    }

    fn code_address(&self, symbol: &str) -> Option<NonNull<c_void>> {
        match &*self.backing {
            Backing::Image { exports, .. } if !exports.get(symbol)?.is_code => None,
            _ => self.find_symbol(symbol),
        }
    }
}

/// # Safety
///
/// `handle` must be one strong count of a [`Backing`], whose ownership passes to this call.
unsafe extern "C" fn release_backing(handle: *mut c_void) {
    // SAFETY: `handle` came from `Arc::into_raw` in `LoadedObject::packed_function`, and the binding calls this once.
    drop(unsafe { Arc::from_raw(handle.cast_const().cast::<Backing>()) });
}

fn global_symbols(object: &read::Object<'_>, layout: &Layout) -> HashMap<String, Export> {
    let mut exports = HashMap::new();
    for symbol in object.symbols.iter().filter(|symbol| symbol.is_global) {
        if let read::Place::Section { section, offset } = symbol.place
            && let Some(placed) = layout.sections.get(section)
            && let Some(offset) = placed.start.checked_add(offset)
        {
            exports.insert(symbol.name.to_owned(), Export { offset, is_code: layout.code.contains(&offset) });
        }
    }
    exports
}
