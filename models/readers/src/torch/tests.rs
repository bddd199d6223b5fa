//! Tests of PyTorch programs that are read, and of those that are refused.

use super::*;
use std::path::PathBuf;
use zoo::safetensors;

fn cases(folder: &Path) -> Vec<PathBuf> {
    cases_of(folder, "pt2")
}

pub(super) fn cases_of(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut cases: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == extension)).collect();
    cases.sort();
    cases
}

/// Compares with PyTorch's results on the same tensors; see `scripts/pt2_cases.py`.
#[test]
fn small_programs_answer_as_torch_does() {
    let cases = cases(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch"));
    assert_eq!(cases.len(), 40);
    let failures: Vec<String> = cases.iter().filter_map(|path| check_case(path).err()).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn nested_values_count_by_the_memory_that_they_take() {
    assert_eq!(json_memory_bytes(br#"{"":[1,2]}"#), 800 + 160 + 96 + 7);
    let case = cases(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch")).remove(0);
    let store = ArchiveBytes::open(&case).unwrap();
    let length = store.byte_length();
    let archive = Archive::read(store).unwrap();
    let text = archive.read_entry(program_name(&archive).unwrap(), MAX_PROGRAM_BYTES).unwrap();
    assert!(json_memory_bytes(&text) < MEMORY_PER_BYTE * length, "programs of torch need no fixed part");
}

#[test]
#[allow(clippy::print_stderr)]
fn whole_networks_answer_as_torch_does() {
    let Some(folder) = std::env::var_os("OPCOLLECT_PT2_CASES") else {
        eprintln!("skipped: OPCOLLECT_PT2_CASES names no folder that `scripts/pt2_cases.py` has written");
        return;
    };
    let failures: Vec<String> = cases(Path::new(&folder)).iter().filter_map(|path| check_case(path).err()).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn check_case(path: &Path) -> Result<(), String> {
    check_answer(path, &Options::default())
}

pub(super) fn check_answer(path: &Path, options: &Options) -> Result<(), String> {
    let fail = |why: String| format!("{}: {why}", path.display());
    let chain = |error: Error| {
        let source = std::error::Error::source(&error).map_or(String::new(), |source| format!(": {source}"));
        fail(format!("{error}{source}"))
    };
    let tensors = safetensors::list_tensors(&path.with_extension("safetensors")).map_err(chain)?;
    let graph = load_file(path, options).map_err(chain)?.graph;
    let tensor = |name: &str| {
        let entry = tensors.get(name).ok_or_else(|| fail(format!("the case has no `{name}`")))?;
        reference::constant_tensor(&entry.ty, &entry.lazy_data()).map_err(chain)
    };
    let simplified = passes::simplify_graph(&graph).map_err(chain)?;
    for (graph, what) in [(graph, "as read"), (simplified, "after passes")] {
        let names = graph.inputs.iter().map(|id| graph.value(*id).unwrap().name.clone());
        let inputs = names.map(|name| tensor(&name)).collect::<Result<Vec<_>, _>>()?;
        let outputs = reference::evaluate_graph(&graph, &inputs).map_err(chain)?;
        for (index, output) in outputs.iter().enumerate() {
            let expected = tensor(&format!("output.{index}"))?;
            let scale = expected.to_numbers().into_iter().fold(1.0, |most: f64, number| most.max(number.abs()));
            let tolerance = reference::Tolerance { absolute: 1e-5 * scale, relative: 1e-3 };
            let compared = reference::compare_tensors(output, &expected, tolerance).map_err(chain)?;
            if !compared.ok {
                return Err(fail(format!("{what}, output {index} {}: {compared:?}", expected.tensor_type())));
            }
        }
        assert!(!tensors.contains_key(&format!("output.{}", outputs.len())));
    }
    Ok(())
}

fn small_image() -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch/small_image.pt2")).unwrap()
}

#[track_caller]
fn check_refused(bytes: Vec<u8>, says: &str) {
    let error = import_bytes(bytes.into(), "x.pt2", &Options::default()).unwrap_err().to_string();
    assert!(error.contains(says), "{error}");
}

fn directory_of(bytes: &[u8]) -> usize {
    let end = bytes.len() - 22;
    u32::from_le_bytes(bytes[end + 16..end + 20].try_into().unwrap()) as usize
}

/// Bytes on disk and bytes in memory are read by different code, which must return the same errors.
#[test]
fn a_damaged_file_is_answered_as_its_bytes_are() {
    let whole = small_image();
    let file = tempfile::Builder::new().suffix(".pt2").tempfile().unwrap();
    let name = file.path().display().to_string();
    let mut damaged: Vec<Vec<u8>> = (0..whole.len()).step_by(211).map(|end| whole[..end].to_vec()).collect();
    let in_directory = (directory_of(&whole)..whole.len()).step_by(7);
    damaged.extend(in_directory.map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x81;
        bytes
    }));
    for bytes in damaged {
        std::fs::write(file.path(), &bytes).unwrap();
        let told = |read: Result<Imported, Error>| read.map(|read| read.graph.nodes.len()).map_err(|e| e.to_string());
        let length = bytes.len();
        let expected = told(import_bytes(bytes.into(), &name, &Options::default()));
        assert_eq!(told(load_file(file.path(), &Options::default())), expected, "of {length} bytes");
    }
}

#[test]
fn archives_that_are_tricks_are_refused() {
    let whole = small_image();
    let at = directory_of(&whole);
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        bytes
    };
    check_refused(Vec::new(), "too short for a zip archive");
    check_refused(whole[..whole.len() - 1].to_vec(), "not a zip archive, or it is truncated");
    check_refused(changed(&|bytes| bytes[at + 10] = 8), "is compressed");
    check_refused(changed(&|bytes| bytes[at + 8] |= 1), "is encrypted");
    check_refused(changed(&|bytes| bytes[at + 24] ^= 1), "compression method other than deflate");
    check_refused(changed(&|bytes| bytes[at + 46] ^= 1), "has a different name in its local header");
    check_refused(changed(&|bytes| bytes[at + 45] = 0x7f), "does not lie before the archive directory");
    check_refused(changed(&|bytes| bytes[at] = 0), "the archive directory is damaged");
    let end = whole.len() - 22;
    check_refused(changed(&|bytes| bytes[end + 8..end + 12].fill(0xfe)), "the archive directory claims 65278 entries");
    check_refused(changed(&|bytes| bytes[end + 4] = 1), "split into several files");
    // The second entry of the directory becomes the first once more.
    let name = u16::from_le_bytes([whole[at + 28], whole[at + 29]]) as usize;
    let second = at + 46 + name;
    let twice = |bytes: &mut Vec<u8>| {
        let other = 46 + u16::from_le_bytes([bytes[second + 28], bytes[second + 29]]) as usize;
        let first = bytes[at..second].to_vec();
        bytes.splice(second..second + other, first.clone());
        let shift = first.len() as i64 - other as i64;
        let end = bytes.len() - 22;
        let size = u32::from_le_bytes(bytes[end + 12..end + 16].try_into().unwrap()) as i64 + shift;
        bytes[end + 12..end + 16].copy_from_slice(&(size as u32).to_le_bytes());
    };
    check_refused(changed(&twice), "two entries have the name");
}

fn with_program(from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = small_image();
    let places: Vec<usize> =
        (0..bytes.len() - from.len()).filter(|&at| bytes[at..].starts_with(from.as_bytes())).collect();
    assert!(!places.is_empty(), "{from}");
    places.into_iter().for_each(|at| bytes[at..at + to.len()].copy_from_slice(to.as_bytes()));
    bytes
}

#[test]
fn programs_that_cannot_be_represented_name_the_node() {
    let unknown = with_program("torch.ops.aten.hardswish.default", "torch.ops.aten.hardswash.default");
    check_refused(
        unknown.clone(),
        "node `hardswish` (`aten.hardswash.default`): not supported: this version has no rule",
    );
    let options = Options { skip_unsupported: true, ..Options::default() };
    let imported = import_bytes(unknown.into(), "x.pt2", &options).unwrap();
    assert_eq!(imported.skipped.len(), 1);
    assert_eq!(imported.skipped[0].operator, "aten.hardswash.default");
    assert_eq!(imported.graph.inputs.len(), 2);
    let several = with_program("torch.ops.aten.max_pool2d.default", "torch.ops.aten.max_pool2x.default");
    check_refused(
        several,
        "no rule for `aten.max_pool2x.default` (1); leave them out with `--skip-unsupported`, or export",
    );
    check_refused(with_program("\"use_pickle\": false", "\"use_pickle\":  true"), "pickles are not read");
    check_refused(with_program("\"major\":8", "\"major\":9"), "the format version is 9.");
    check_refused(with_program("{\"as_tensor\":{\"name\":\"add\"}}", "{\"as_tensor\":{\"name\":\"odd\"}}"), "odd");
}

fn changed_case(name: &str, from: &str, to: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch").join(name).with_extension("pt2");
    let mut bytes = std::fs::read(path).unwrap();
    let places: Vec<usize> =
        (0..bytes.len() - from.len()).filter(|&at| bytes[at..].starts_with(from.as_bytes())).collect();
    assert!(!places.is_empty() && from.len() == to.len(), "{from}");
    places.into_iter().for_each(|at| bytes[at..at + to.len()].copy_from_slice(to.as_bytes()));
    set_checksums(&mut bytes);
    bytes
}

fn set_checksums(bytes: &mut [u8]) {
    let number = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut at = directory_of(bytes);
    while bytes[at..].starts_with(b"PK\x01\x02") {
        let (size, place) = (number(bytes, at + 24) as usize, number(bytes, at + 42) as usize);
        let short = |bytes: &[u8], at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]) as usize;
        let data = place + 30 + short(bytes, place + 26) + short(bytes, place + 28);
        let mut crc = flate2::Crc::new();
        crc.update(&bytes[data..data + size]);
        let sum = crc.sum().to_le_bytes();
        bytes[at + 16..at + 20].copy_from_slice(&sum);
        bytes[place + 14..place + 18].copy_from_slice(&sum);
        at += 46 + short(bytes, at + 28) + short(bytes, at + 30) + short(bytes, at + 32);
    }
}

#[test]
fn another_version_of_the_archive_is_refused() {
    let name = "small_modes/archive_version";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch/small_modes.pt2");
    let mut bytes = std::fs::read(path).unwrap();
    let places: Vec<usize> =
        (0..bytes.len() - name.len()).filter(|&at| bytes[at..].starts_with(name.as_bytes())).collect();
    let after = places[0] + name.len();
    let at = (after..after + 80).find(|&at| bytes[at] == b'0').unwrap();
    bytes[at] = b'9';
    set_checksums(&mut bytes);
    check_refused(bytes, "the archive version is 9, this program reads 0");
}

#[test]
fn parts_of_programs_in_another_precision_are_refused() {
    let bytes = changed_case("small_modes", "{\"as_bool\":false}", "{\"as_bool\":true} ");
    check_refused(bytes, "the operator computes in another precision; export the model after `run_decompositions()`");
}

#[test]
fn a_condition_that_is_not_known_is_said_to_be_open() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch/small_branches.pt2");
    let imported = load_file(&path, &Options::default()).unwrap();
    let [note] = &imported.notes[..] else { panic!("{:?}", imported.notes) };
    assert!(note.ends_with("the condition depends on input data, so the graph computes both branches"), "{note}");
    assert!(imported.skipped.is_empty(), "nothing is left out: {:?}", imported.skipped);
    let products = imported.graph.nodes.iter().filter(|node| matches!(node.op, models::operators::Op::Dense(..)));
    assert_eq!(products.count(), 2, "both parts of the open condition, and none of the other one");
}

#[test]
fn a_loop_whose_turns_are_not_known_lists_one() {
    let sum =
        |of: &str| format!(r#"aten.sum.default","inputs":[{{"name":"self","arg":{{"as_tensor":{{"name":"{of}"}}}}"#);
    let bytes = changed_case("small_turns", &sum("arg0_1"), &sum("arg1_1"));
    check_refused(bytes.clone(), "the loop condition depends on data at run time; `--skip-unsupported` leaves");
    let options = Options { skip_unsupported: true, ..Options::default() };
    let imported = import_bytes(bytes.into(), "x.pt2", &options).unwrap();
    let [skipped] = &imported.skipped[..] else { panic!("{:?}", imported.skipped) };
    assert!(skipped.reason.ends_with("the operators of one iteration are listed"), "{}", skipped.reason);
    let is_in_first_iteration = |value: &models::graph::Value| value.name.ends_with(".0.add_1");
    assert!(imported.graph.values.iter().any(is_in_first_iteration), "{}", imported.graph.to_text());
}

#[test]
fn a_loop_without_end_is_refused() {
    check_refused(changed_case("small_turns", "aten.lt.Scalar", "aten.ge.Scalar"), "have more than 4096 iterations");
}

#[test]
fn a_step_of_a_layer_has_the_same_tasks_as_the_next() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch/small_steps.pt2");
    let graph = passes::simplify_graph(&load_file(&path, &Options::default()).unwrap().graph).unwrap();
    let tasks = models::distinct_tasks(&graph, models::Fuse::Epilogue).unwrap();
    let rows = tasks.iter().filter(|one| one.task.name() == "gather" && one.task.describe().contains("[5,2,"));
    assert_eq!(rows.map(|one| one.places.len()).collect::<Vec<_>>(), [20, 5]);
}

#[test]
fn a_symbol_has_one_size_in_all_inputs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch/small_sizes.pt2");
    let read = |shapes: &[(&str, i64)]| {
        let shapes = shapes.iter().map(|(name, rows)| ((*name).to_owned(), vec![*rows, 4])).collect();
        load_file(&path, &Options { shapes, ..Options::default() }).map(|imported| imported.graph)
    };
    let graph = read(&[("y", 9)]).unwrap();
    let types: Vec<String> = graph.inputs.iter().map(|id| graph.value(*id).unwrap().ty.to_string()).collect();
    assert_eq!(types, ["f32[9,4]", "f32[9,4]"]);
    let error = |shapes: &[(&str, i64)]| read(shapes).unwrap_err().to_string();
    let other = error(&[("x", 5), ("y", 6)]);
    assert!(other.contains("input `y`: dimension 0 is 6, but the size `s"), "{other}");
    assert!(other.ends_with("` is 5 in input `x`"), "{other}");
    let outside = error(&[("x", 65)]);
    assert!(outside.contains("dimension 0 is 65, but the export allows 2 to 64"), "{outside}");
}

#[test]
fn another_extent_than_the_static_size_is_named() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch/small_order.pt2");
    let read = |path: &Path, extents: &[i64]| {
        let shapes = [("x".to_owned(), extents.to_vec())].into();
        load_file(path, &Options { shapes, ..Options::default() })
    };
    let imported = read(&path, &[7, 5, 6]).unwrap();
    let [note] = &imported.notes[..] else { panic!("{:?}", imported.notes) };
    assert!(note.contains("input `x`: dimension 0 is 7, but the export has a static size of 4"), "{note}");
    assert!(read(&path, &[4, 5, 6]).unwrap().notes.is_empty());
    let error = read(&path.with_file_name("small_parts.pt2"), &[5, 6]).unwrap_err().to_string();
    assert!(
        error.contains("input `x`: dimension 0 is 5, but the export has a static size of 6, and node `"),
        "{error}"
    );
    assert!(error.ends_with("export the model again with `dynamic_shapes` for this dimension"), "{error}");
}

#[test]
fn a_quantised_layer_computes_with_integers() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch/small_quantised_network.pt2");
    let graph = passes::simplify_graph(&load_file(&path, &Options::default()).unwrap().graph).unwrap();
    let tasks = models::distinct_tasks(&graph, models::Fuse::Epilogue).unwrap();
    let names: Vec<String> = tasks.iter().map(|one| one.task.name()).collect();
    assert_eq!(names, ["quantize", "q_conv2d+bias+requantize", "max_pool", "dequantize", "dense+bias"]);
}

#[test]
fn a_pipe_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe.pt2");
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    let error = load_file(&path, &Options::default()).unwrap_err();
    let source = std::error::Error::source(&error).map(ToString::to_string);
    assert!(format!("{error}{source:?}").contains("not a regular file"), "{error}");
    assert!(!is_torchscript(&path));
}

#[test]
fn an_archive_of_other_things_says_what_to_do() {
    // A directory of one empty entry.
    let name = b"model/data.pkl";
    let mut bytes = b"PK\x03\x04".to_vec();
    bytes.extend([0; 22]);
    bytes.extend((name.len() as u16).to_le_bytes());
    bytes.extend([0; 2]);
    bytes.extend(name);
    let at = bytes.len() as u32;
    bytes.extend(b"PK\x01\x02");
    bytes.extend([0; 24]);
    bytes.extend((name.len() as u16).to_le_bytes());
    bytes.extend([0; 16]);
    bytes.extend(name);
    let size = bytes.len() as u32 - at;
    bytes.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    bytes.extend(size.to_le_bytes());
    bytes.extend(at.to_le_bytes());
    bytes.extend([0; 2]);
    check_refused(bytes, "export the model with `torch.export.save`");
}
