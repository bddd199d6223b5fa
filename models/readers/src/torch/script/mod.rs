//! Reads TorchScript files (`torch.jit.save`) by interpreting their source, without PyTorch and without executing code
//! of the file. The method `forward` is interpreted with the shapes of its inputs. Loops are unrolled, branches are
//! selected by known values, and methods of modules are inlined. Each call of an ATen operator is imported by the same
//! rule as in `torch.export` programs.

mod builtins;
mod dtypes;
mod heap;
mod inputs;
mod interpreter;
mod layouts;
mod lexer;
mod library;
mod lists;
mod numbers;
mod parser;
mod pickle;
mod signatures;
mod syntax;
mod tensors;
#[cfg(test)]
mod tests;

use crate::archive::Archive;
use crate::{Imported, Options, Outcome, Refusal, finish_graph, malformed};
use heap::{Heap, Value};
use interpreter::Interpreter;
use library::{Library, Texts, read_entry};
use models::error::{Error, Result};
use pickle::read_pickle;
use tensors::Tensors;

/// Limit on the size of a pickle, enough for a file with very many modules.
const MAX_PICKLE_BYTES: u64 = 64 << 20;

pub(super) fn import_archive(archive: &Archive, file: &str, options: &Options) -> Result<Imported> {
    let fail =
        |place: &str, reason: String| Error::Malformed { file: file.to_owned(), place: place.to_owned(), reason };
    let top = top_of(archive).map_err(|reason| fail("", reason))?;
    let texts = Texts::read(archive, &top).map_err(|reason| fail("source code", reason))?;
    let library = Library::parse(&texts);
    let mut heap = Heap::new(archive.file_length());
    let objects = Objects::read_objects(archive, &top, &mut heap)
        .map_err(|refusal| error_of(refusal, file, "pickled objects".to_owned()))?;
    let tensors = Tensors::new(file, archive, options);
    let mut interpreter = Interpreter::new(&library, builtins::call_builtin, heap, tensors, objects.constants);
    let outputs = run_program(&mut interpreter, objects.root, objects.examples, options)
        .map_err(|refusal| error_of(refusal, file, interpreter.error_place()))?;
    let Tensors { emit, skipped, loose_ends, .. } = interpreter.tensors;
    let graph = finish_graph(emit.builder, file, outputs, &loose_ends)?;
    let hashed =
        archive.entry_names().filter(|name| name.ends_with(".py") || name.ends_with(".pkl")).collect::<Vec<_>>();
    let hash = archive.hash_entries(&hashed).map_err(|reason| fail("", reason))?;
    Ok(Imported { graph, skipped, notes: Vec::new(), bytes: archive.file_length(), hash })
}

fn error_of(refusal: Refusal, file: &str, place: String) -> Error {
    let file = file.to_owned();
    match refusal {
        Refusal::Malformed(reason) => Error::Malformed { file, place, reason },
        Refusal::Unsupported(reason) => Error::Unsupported { file, place, reason },
    }
}

fn top_of(archive: &Archive) -> std::result::Result<String, String> {
    let top = archive.entry_names().find_map(|name| name.strip_suffix("/data.pkl").filter(|top| !top.contains('/')));
    top.map(|top| format!("{top}/")).ok_or_else(|| "the archive contains no pickled module".to_owned())
}

struct Objects {
    root: usize,
    constants: Vec<Value>,
    /// Arguments of the traced call; empty if the file has none.
    examples: Vec<Value>,
}

impl Objects {
    fn read_objects(archive: &Archive, top: &str, heap: &mut Heap) -> Outcome<Objects> {
        let mut read = |name: &str, folder: &str| -> Outcome<Option<Value>> {
            let name = format!("{top}{name}");
            if archive.entry_length(&name).is_none() {
                return Ok(None);
            }
            let bytes = read_entry(archive, &name, MAX_PICKLE_BYTES).map_err(Refusal::Malformed)?;
            read_pickle(&bytes, &format!("{top}{folder}"), heap).map(Some)
        };
        let root = read("data.pkl", "data/")?;
        let constants = read("constants.pkl", "constants/")?;
        let traced = read("traced_inputs.pkl", "traced_inputs/")?;
        let Some(Value::Object(root)) = root else { return malformed("the pickle contains no module") };
        let constants = constants.and_then(|all| heap.sequence_items(all)).unwrap_or_default().to_vec();
        for (index, value) in constants.iter().enumerate() {
            if let Value::Stored(at) = value {
                heap.stored[*at].name = format!("CONSTANTS.c{index}").into();
            }
        }
        heap.name_parts(root)?;
        let entries = if let Some(Value::Dict(at)) = traced { heap.dicts[at].as_slice() } else { &[] };
        let forward = entries.iter().find(|(name, _)| heap.text_of(*name).as_deref() == Some("forward"));
        let examples = forward.and_then(|(_, all)| heap.sequence_items(*all)).unwrap_or_default().to_vec();
        Ok(Objects { root, constants, examples })
    }
}

fn run_program(
    interpreter: &mut Interpreter<'_>,
    root: usize,
    examples: Vec<Value>,
    options: &Options,
) -> Outcome<Vec<models::ValueId>> {
    let (name, method) = match interpreter.find_method(root, "forward") {
        Ok(method) => ("forward", method),
        Err(refusal) => ("forward__0", interpreter.find_method(root, "forward__0").map_err(|_| refusal)?),
    };
    let given = inputs::build_arguments(interpreter, method, &examples, options)?;
    let result = interpreter.call_method(root, name, given, &[])?;
    let mut all = Vec::new();
    interpreter.flatten_tensors(result, 0, &mut all)?;
    all.into_iter().map(|value| interpreter.tensors.value_id(value, &interpreter.heap)).collect()
}
