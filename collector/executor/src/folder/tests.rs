//! Tests of round trips of folders, and of the rejection of modified folders.

use super::*;
use crate::program::{Numbers, Writing, lower_sequential};
use models::fuse::{Fuse, plan_calls};
use std::io::Seek;

fn small() -> (models::Graph, Program) {
    let graph = passes::simplify_graph(&zoo::build_model("mlp", 2).expect("a model")).expect("a simple model");
    let cut = plan_calls(&graph, Fuse::Epilogue).expect("calls");
    let packings: Vec<_> =
        cut.tasks.iter().map(|one| vec![job::Packing::Plain; one.task.parameters.len() + 1]).collect();
    let made = lower_sequential(&graph, &cut, &packings, Writing::InPlace).expect("a program");
    (graph, made)
}

fn written(folder: &Path) -> Program {
    let (graph, program) = small();
    let constants = reference::graph_constants(&graph).expect("constants");
    let mut numbers = Numbers::from_constants(&graph, &constants);
    let codes: Vec<Vec<u8>> = (0..program.codes).map(|place| vec![place as u8; 100]).collect();
    let codes: Vec<&[u8]> = codes.iter().map(Vec::as_slice).collect();
    write_program::<FolderError>(folder, &program, &codes, |place| {
        Ok(numbers.stored_bytes(&program.constants[place]).expect("numbers"))
    })
    .expect("a folder");
    program
}

#[test]
fn folders_survive_a_round_trip() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = written(folder.path());
    let content = read_program(folder.path()).expect("it is whole");
    assert_eq!(content.program, program);
    assert_eq!(content.codes[1], [1; 100]);
    // Weights of 784 × 128, 128 × 64 and 64 × 10, and one bias per output.
    let floats = 784 * 128 + 128 * 64 + 64 * 10 + 128 + 64 + 10;
    assert!(content.constants.len() >= 4 * floats && content.constants.len() < 4 * floats + 64 * 6);
}

#[test]
fn changed_files_and_devices_are_rejected() {
    for name in ["code-0.o", CONSTANTS, PROGRAM] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        written(folder.path());
        let path = folder.path().join(name);
        let mut file = File::options().read(true).write(true).open(&path).expect("a file");
        file.seek(io::SeekFrom::Start(1)).expect("a place");
        file.write_all(b"!").expect("a byte");
        read_program(folder.path()).expect_err(name);
        fs::remove_file(&path).expect("a file");
        read_program(folder.path()).expect_err(name);
        std::os::unix::fs::symlink("/dev/zero", &path).expect("a link can be made");
        let refused = read_program(folder.path()).expect_err(name).to_string();
        assert!(refused.contains("not a regular file"), "{refused}");
    }
}

#[test]
fn invalid_indices_are_rejected() {
    let refused = |change: &dyn Fn(&mut Description)| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        written(folder.path());
        let path = folder.path().join(PROGRAM);
        let mut description: Description =
            serde_json::from_slice(&fs::read(&path).expect("a file")).expect("a description");
        change(&mut description);
        fs::write(&path, serde_json::to_vec(&description).expect("JSON")).expect("a file");
        read_program(folder.path()).map(|_| ()).expect_err("it does not fit").to_string()
    };
    let argument = |description: &mut Description, place, extents: &[i64]| {
        let first = &mut description.program.calls[0].arguments[0];
        (first.place, first.extents) = (place, extents.to_vec());
    };
    for (place, extents) in [
        (Place::Activation(1 << 40), vec![1]),
        (Place::Activation(u64::MAX - 63), vec![64]),
        (Place::Activation(4), vec![1]),
        (Place::Input(7), vec![1]),
        (Place::Constant(99), vec![1]),
        (Place::Input(0), vec![-1]),
        (Place::Input(0), vec![i64::MAX, i64::MAX]),
        (Place::Input(0), vec![785, 2]),
    ] {
        let why = refused(&|description| argument(description, place, &extents));
        assert!(why.contains("not a compiled program"), "{place:?} {extents:?}: {why}");
    }
    assert!(refused(&|d| d.program.calls[0].code = 99).contains("has no code"));
    assert!(refused(&|d| d.program.calls[0].arguments.clear()).contains("no result"));
    assert!(refused(&|d| d.program.calls[0].arguments.last_mut().unwrap().place = Place::Input(0)).contains("read"));
    assert!(refused(&|d| d.program.activation_bytes = u64::MAX).contains("memory"));
    assert!(refused(&|d| d.format = 2).contains("format"));
    assert!(refused(&|d| d.offsets.clear()).contains("other codes"));
    let on_cores = |description: &mut Description, cores: &[usize]| {
        let calls = (0..description.program.calls.len()).collect();
        let group = models::stages::Group { cores: cores.to_vec(), calls };
        description.program.stages = vec![models::stages::Stage { groups: vec![group], time_ns: None }];
    };
    for cores in [&[][..], &[0, 1, 0], &[CORES_MAX]] {
        assert!(refused(&|d| on_cores(d, cores)).contains("a core twice"), "{cores:?}");
    }
}
