//! Compares TFLite files with the results of the TFLite interpreter, both written by `scripts/tflite_cases.py`.

use models::{DType, Graph, TensorType};
use readers::{Options, onnx, tflite};
use reference::{Tensor, evaluate_graph};
use serde::Deserialize;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
struct Data {
    inputs: Vec<Given>,
    outputs: Vec<Given>,
}

#[derive(Deserialize)]
struct Given {
    dtype: String,
    shape: Vec<i64>,
    data: Vec<f64>,
}

impl Given {
    fn ty(&self) -> TensorType {
        let dtype = match self.dtype.as_str() {
            "float32" => DType::F32,
            "int8" => DType::I8,
            "uint8" => DType::U8,
            "int32" => DType::I32,
            "int64" => DType::I64,
            "bool" => DType::Bool,
            other => panic!("{other}"),
        };
        TensorType::new(dtype, &self.shape)
    }
}

fn cases() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tflite-cases");
    let entries = std::fs::read_dir(&root).unwrap_or_else(|error| panic!("{}: {error}", root.display()));
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    folders
}

/// Returns the largest difference from the interpreter's result, relative to its largest number for floats.
fn distance(found: &Tensor, given: &Given) -> f64 {
    let largest = given.data.iter().fold(1e-3f64, |most, number| most.max(number.abs()));
    let unit = if found.tensor_type().dtype.is_float() { largest } else { 1.0 };
    let apart = found.to_numbers().iter().zip(&given.data).map(|(a, b)| (a - b).abs() / unit).fold(0.0, f64::max);
    if found.to_numbers().iter().any(|number| number.is_nan()) { f64::INFINITY } else { apart }
}

fn check(graph: &Graph, data: &Data, name: &str) {
    let inputs: Vec<Tensor> =
        data.inputs.iter().map(|given| Tensor::from_numbers(given.ty(), &given.data).unwrap()).collect();
    let outputs = evaluate_graph(graph, &inputs).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(outputs.len(), data.outputs.len(), "{name}");
    for (index, (found, given)) in outputs.iter().zip(&data.outputs).enumerate() {
        assert_eq!(*found.tensor_type(), given.ty(), "{name}, output {index}");
        let apart = distance(found, given);
        let allowed = match found.tensor_type().dtype.is_float() {
            // Where only weights are integers, the interpreter rounds the data to 8 bits on the way.
            true if name.ends_with("weights") || name.ends_with("int4") => 1e-2,
            // A few steps of 16 bits: between its layers the interpreter rounds products of integers.
            true if name.ends_with("int16") => 2e-4,
            true => 1e-5,
            // The interpreter multiplies integers by a scale of 31 bits and rounds more than once, so what lies between
            // two integers goes either way.
            false => 1.0,
        };
        assert!(apart <= allowed, "{name}, output {index}: {apart} apart");
    }
}

#[test]
fn files_answer_as_the_interpreter() {
    let folders = cases();
    assert!(folders.len() >= 10, "{} cases", folders.len());
    for folder in folders {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let data: Data = serde_json::from_slice(&std::fs::read(folder.join("data.json")).unwrap()).unwrap();
        let imported = tflite::load_file(&folder.join("model.tflite"), &Options::default());
        let graph = imported.unwrap_or_else(|error| panic!("{name}: {error}")).graph;
        check(&graph, &data, &name);
        check(&passes::simplify_graph(&graph).unwrap_or_else(|error| panic!("{name}: {error:?}")), &data, &name);
    }
}

fn tasks(graph: &Graph) -> Vec<models::Task> {
    let simple = passes::simplify_graph(graph).unwrap();
    models::distinct_tasks(&simple, models::Fuse::Epilogue).unwrap().into_iter().map(|found| found.task).collect()
}

/// Tests that a quantised layer becomes the same task with the same numbers from TFLite and from all forms in ONNX.
#[test]
fn a_quantised_layer_is_one_task_whatever_wrote_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tflite-cases");
    for name in ["one_layer_int8", "padded_int8"] {
        let folder = root.join(name);
        let data: Data = serde_json::from_slice(&std::fs::read(folder.join("data.json")).unwrap()).unwrap();
        let first = tflite::load_file(&folder.join("model.tflite"), &Options::default()).unwrap().graph;
        let is_layer = |task: &models::Task| task.name() == "q_conv2d+bias+requantize";
        let layer = tasks(&first).into_iter().find(is_layer).expect("a quantised layer");
        for form in ["qdq", "dynamic", "qlinear"] {
            let file = onnx::load_file(&folder.join(form).with_extension("onnx"), &Options::default()).unwrap();
            let found = tasks(&file.graph);
            assert_eq!(
                found.iter().map(models::Task::describe).collect::<Vec<_>>(),
                [layer.describe()],
                "{name}, {form}"
            );
            assert_eq!(found[0].hash(), layer.hash(), "{name}, {form}");

            let x = channels_first(&data.inputs[0]);
            let simple = passes::simplify_graph(&file.graph).unwrap();
            let y = evaluate_graph(&simple, &[Tensor::from_numbers(x.ty(), &x.data).unwrap()]).unwrap();
            let apart = distance(&y[0], &channels_first(&data.outputs[0]));
            assert!(apart <= 1.0, "{name}, {form}: {apart} steps apart");
        }
    }
}

/// Tests that an unrolled loop joins the results of its steps once.
#[test]
fn a_list_that_a_loop_writes_is_joined_once() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tflite-cases");
    let graph = tflite::load_file(&root.join("simple_rnn/model.tflite"), &Options::default()).unwrap().graph;
    let count = |name: &str| graph.nodes.iter().filter(|node| node.op.name() == name).count();
    // The file itself takes the four steps of the first layer apart and joins them again, and slices the last result.
    assert_eq!([count("concat"), count("slice"), count("tanh"), count("relu")], [2, 5, 4, 4]);
}

fn channels_first(image: &Given) -> Given {
    let &[n, height, width, channels] = image.shape.as_slice() else { panic!("{:?}", image.shape) };
    let (pixels, channels) = ((height * width) as usize, channels as usize);
    let mut data = Vec::new();
    for image in image.data.chunks(pixels * channels) {
        (0..channels).for_each(|channel| data.extend(image.iter().skip(channel).step_by(channels)));
    }
    Given { dtype: image.dtype.clone(), shape: vec![n, channels as i64, height, width], data }
}

#[test]
fn a_batch_has_the_results_of_its_samples() {
    const BATCH: usize = 8;
    let mut changed_files = 0;
    for folder in cases() {
        let graph = tflite::load_file(&folder.join("model.tflite"), &Options::default()).unwrap().graph;
        let Ok(changed) = passes::batch::change_batch(&graph, BATCH as i64) else { continue };
        changed_files += 1;
        let name = folder.display();
        let samples: Vec<Vec<Tensor>> =
            (0..BATCH as u64).map(|seed| reference::graph_inputs(&graph, seed).unwrap()).collect();
        let inputs: Vec<Tensor> = (0..graph.inputs.len())
            .map(|input| {
                let numbers: Vec<f64> = samples.iter().flat_map(|sample| sample[input].to_numbers()).collect();
                let ty = &changed.values[changed.inputs[input].0 as usize].ty;
                Tensor::from_numbers(ty.clone(), &numbers).unwrap()
            })
            .collect();
        let found = evaluate_graph(&changed, &inputs).unwrap_or_else(|error| panic!("{name}: {error}"));
        for (number, sample) in samples.iter().enumerate() {
            let expected = evaluate_graph(&graph, sample).unwrap();
            for (found, expected) in found.iter().zip(&expected) {
                let (all, expected) = (found.to_numbers(), expected.to_numbers());
                let largest = expected.iter().fold(1e-3f64, |most, number| most.max(number.abs()));
                let of_sample = &all[number * expected.len()..(number + 1) * expected.len()];
                let is_close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-5 * largest || a.to_bits() == b.to_bits();
                assert!(of_sample.iter().zip(&expected).all(is_close), "{name}: {of_sample:?} is not {expected:?}");
                assert_eq!(all.len(), BATCH * expected.len(), "{name}");
            }
        }
    }
    // Some files have other batch sizes.
    assert!(changed_files >= 20, "{changed_files}");
}
