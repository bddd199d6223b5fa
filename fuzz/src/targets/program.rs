//! Replaces one file of a program; the folder is rejected, or every tensor lies within the declared memory.
//!
//! The first byte selects the file: `0` the program, `1` the model, `2` the expected outputs. Hashes are updated, except
//! that of the model if the new bytes are no JSON object.

use crate::small_program;
use engine::network::constant_bytes;
use engine::network::portable::{self, ProgramFolder};
use executor::{Place, Program, folder, sealed};
use models::TensorType;
use serde_json::Value;
use std::path::Path;

/// Maximum memory that a program may claim, in bytes.
const CLAIM_MAX: u64 = 1 << 46;

const DRAWN_BYTES_MAX: u64 = 1 << 16;

fn hash(bytes: &[u8]) -> Value {
    blake3::hash(bytes).to_hex().to_string().into()
}

fn replace(root: &Path, name: &str, field: Option<&str>, bytes: &[u8]) {
    let write_model = |model: &Value| {
        let sealed = sealed::seal_json(model).expect("an object");
        std::fs::write(portable::metadata_path(root), sealed).expect("a file");
    };
    std::fs::write(root.join(name), bytes).expect("a file");
    let Some(field) = field else {
        if let Ok(model @ Value::Object(_)) = serde_json::from_slice(bytes) {
            write_model(&model);
        }
        return;
    };
    let model = std::fs::read(portable::metadata_path(root)).expect("a file");
    let mut model: Value = serde_json::from_slice(&model).expect("a description of our own");
    model.as_object_mut().expect("an object").remove("hash");
    model[field] = hash(bytes);
    write_model(&model);
}

fn size(ty: &TensorType) -> u64 {
    ty.size_bytes().filter(|bytes| *bytes <= CLAIM_MAX).expect("a size was checked")
}

fn check(program: &Program) {
    let ports = |ports: &[executor::ProgramPort]| ports.iter().map(|port| size(&port.ty)).collect::<Vec<_>>();
    let (inputs, outputs) = (ports(&program.inputs), ports(&program.outputs));
    for call in &program.calls {
        assert!(call.code < program.codes && !call.arguments.is_empty());
        for argument in &call.arguments {
            let bytes = size(&TensorType::new(argument.dtype, &argument.extents));
            match argument.place {
                Place::Activation(offset) => assert!(offset + bytes <= program.activation_bytes),
                Place::Input(index) => assert!(bytes <= inputs[index]),
                Place::Output(index) => assert!(bytes <= outputs[index]),
                Place::Constant(index) => assert!(index < program.constants.len()),
            }
        }
    }
    let _ = (constant_bytes(program), program.writing_mode());
}

pub fn run(bytes: &[u8]) {
    let [choice, bytes @ ..] = bytes else { return };
    let root = tempfile::tempdir().expect("a temporary folder");
    small_program::write(root.path());
    match choice % 3 {
        0 => replace(root.path(), "program.json", Some("program_hash"), bytes),
        1 => replace(root.path(), "model.json", None, bytes),
        _ => replace(root.path(), "expected.bin", Some("expected_hash"), bytes),
    }
    if let Ok(content) = folder::read_program(root.path()) {
        check(&content.program);
        assert_eq!(content.codes.len(), content.program.codes);
    }
    if let Ok(ProgramFolder { portable, program, expected }) = portable::read_folder(root.path()) {
        let _ = (portable.required_processor(), portable.describe_lacking("x86_64", &|_| false));
        assert!(expected.is_none_or(|tensors| tensors.len() == program.outputs.len()));
        let types = program.inputs.iter().map(|port| &port.ty);
        if types.clone().map(size).fold(0, u64::saturating_add) <= DRAWN_BYTES_MAX {
            let _ = reference::drawn_inputs(types.zip(portable.draws.iter().copied()), portable.seed);
        }
    }
}
