//! Tests of TorchScript files that are read, and of those that are refused.

use crate::Options;
use crate::torch::tests::{cases_of, check_answer};
use crate::torch::{import_bytes, load_file};
use std::io::Write;
use std::path::{Path, PathBuf};
use zoo::safetensors;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torchscript")
}

fn options(path: &Path) -> Options {
    let tensors = safetensors::list_tensors(&path.with_extension("safetensors")).unwrap();
    let inputs = tensors.iter().filter(|(name, _)| !name.starts_with("output."));
    let shapes = inputs.map(|(name, entry)| (format!("{name}:{}", entry.ty.dtype.name()), entry.ty.extents().unwrap()));
    Options { shapes: shapes.collect(), ..Options::default() }
}

/// Compares with PyTorch's results on the same tensors; see `scripts/torchscript_cases.py`.
#[test]
fn programs_answer_as_torch_does() {
    let cases = cases_of(&folder(), "pt");
    assert_eq!(cases.len(), 26);
    let failures: Vec<String> = cases.iter().filter_map(|path| check_answer(path, &options(path)).err()).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn archive(source: &str) -> Vec<u8> {
    let objects = b"\x80\x02c__torch__\nM\n)\x81}X\x08\0\0\0training\x89sb.";
    let entries: [(&str, &[u8]); 3] =
        [("m/data.pkl", objects), ("m/constants.pkl", b"\x80\x02)."), ("m/code/__torch__.py", source.as_bytes())];
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (name, data) in entries {
        let place = bytes.len() as u32;
        let mut crc = flate2::Crc::new();
        crc.update(data);
        let mut header = vec![0; 8];
        header.extend(crc.sum().to_le_bytes());
        header.extend([data.len() as u32; 2].iter().flat_map(|size| size.to_le_bytes()));
        header.extend((name.len() as u16).to_le_bytes());
        header.extend([0, 0]);
        bytes.write_all(b"PK\x03\x04\x14\0").unwrap();
        bytes.extend(&header);
        bytes.extend(name.as_bytes());
        bytes.extend(data);
        directory.extend(b"PK\x01\x02\x14\0\x14\0");
        directory.extend(&header);
        directory.extend([0; 10]);
        directory.extend(place.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let (start, length) = (bytes.len() as u32, directory.len() as u32);
    bytes.extend(directory);
    bytes.extend(b"PK\x05\x06\0\0\0\0\x03\0\x03\0");
    bytes.extend(length.to_le_bytes());
    bytes.extend(start.to_le_bytes());
    bytes.extend([0, 0]);
    bytes
}

fn module(body: &str) -> Vec<u8> {
    archive(&format!(
        "class M(Module):\n  training : bool\n  def forward(self: __torch__.M,\n    x: Tensor) -> Tensor:\n{body}\n"
    ))
}

fn shaped(shapes: &[(&str, &[i64])]) -> Options {
    let shapes = shapes.iter().map(|(name, extents)| ((*name).to_owned(), extents.to_vec()));
    Options { shapes: shapes.collect(), ..Options::default() }
}

#[track_caller]
fn check_refused(bytes: Vec<u8>, says: &str) {
    let error = import_bytes(bytes.into(), "x.pt", &shaped(&[("x", &[2, 3])])).unwrap_err().to_string();
    assert!(error.contains(says), "{error}");
}

#[test]
fn known_values_decide_what_is_read() {
    let body = "    n = torch.size(x, 0)
    sizes = annotate(List[int], [])
    for i in range(torch.add(n, 2)):
      _0 = torch.append(sizes, torch.mul(i, i))
    training = self.training
    if training:
      ops.prim.RaiseException(\"never\", \"builtins.ValueError\")
      y = x
    else:
      y = torch.mul(x, torch.__getitem__(sizes, 3))
    return torch.relu_(y)";
    let graph = import_bytes(module(body).into(), "x.pt", &shaped(&[("x", &[2, 3])])).unwrap().graph;
    assert_eq!(graph.nodes.len(), 2);
    assert_eq!(graph.value(graph.inputs[0]).unwrap().name, "x");
}

#[test]
fn a_shape_can_be_a_tensor() {
    let body = "    shape = torch._shape_as_tensor(x)\n    return torch.mul(shape, 3)";
    let graph = import_bytes(module(body).into(), "x.pt", &shaped(&[("x", &[2, 3])])).unwrap().graph;
    let x = reference::graph_inputs(&graph, 1).unwrap();
    assert_eq!(reference::evaluate_graph(&graph, &x).unwrap()[0].to_numbers(), [6.0, 9.0]);
}

#[test]
fn inputs_are_given_their_shapes() {
    let sound = module("    return torch.relu(x)");
    let error = |options: &Options| import_bytes(sound.clone().into(), "x.pt", options).unwrap_err().to_string();
    let without = error(&Options::default());
    assert!(without.contains("TorchScript does not state shapes; give those of x with `--shape`"), "{without}");
    let other = error(&shaped(&[("x", &[1]), ("y", &[1])]));
    assert!(other.contains("input `y`: the model has no such input; the inputs are x"), "{other}");
    let odd = error(&shaped(&[("x:f8", &[1])]));
    assert!(odd.contains("`f8` is not an element type"), "{odd}");
    let by_place = import_bytes(sound.into(), "x.pt", &shaped(&[("0:i64", &[4])])).unwrap().graph;
    assert_eq!(by_place.value(by_place.inputs[0]).unwrap().ty.to_string(), "i64[4]");
}

#[test]
fn a_traced_file_has_the_shapes_it_was_traced_with() {
    let imported = load_file(&folder().join("attention.pt"), &Options::default()).unwrap();
    let ty = |index: usize| imported.graph.value(imported.graph.inputs[index]).unwrap().ty.to_string();
    assert_eq!(ty(0), "f32[2,5,16]");
}

#[test]
fn programs_that_cannot_be_followed_name_the_place() {
    check_refused(module("    return torch.foo(x)"), "operator `aten.foo`: not supported: this version has no rule");
    check_refused(module("    y = torch.nonzero(x)\n    return y"), "node `y` (`aten.nonzero`)");
    check_refused(
        module("    if bool(torch.sum(x)):\n      y = x\n    else:\n      y = torch.neg(x)\n    return y"),
        "a Python number whose value depends on input data",
    );
    check_refused(module("    return torch.to(x, 24)"), "not supported: 8-bit floats");
    check_refused(
        module("    return torch.add(x, 9007199254740993)"),
        "the integer 9007199254740993, which is above 2^53",
    );
    check_refused(module("    y = z\n    return y"), "function `forward`, line 5: the variable `z` is not defined");
    check_refused(
        module("    ops.prim.RaiseException(\"too small\")\n    return x"),
        "raises an error for these inputs: too small",
    );
    check_refused(module("    return lambda x"), "source of `__torch__`: line 5");
    check_refused(module("    while True:\n      pass\n    return x"), "the program takes more than");
    check_refused(module("    for i in range(99999999999):\n      pass\n    return x"), "iterations; at most 1048576");
    check_refused(module("    return (self).forward(x, )"), "calls are nested deeper than");
    let deep = format!("    return {}x{}", "(".repeat(500), ")".repeat(500));
    check_refused(module(&deep), "expressions are nested deeper than");
    check_refused(
        module("    l = [1, 2, 3, 4]\n    while True:\n      _ = torch.extend(l, l)\n    return x"),
        "too much memory",
    );
    let wide = "    a = [x]\n    while True:\n      a = [a, a]\n    return a";
    check_refused(module(wide), "too much memory");
}

#[test]
fn what_has_no_rule_can_be_left_out() {
    let options = Options { skip_unsupported: true, ..shaped(&[("x", &[2, 3])]) };
    let body = "    y = torch.foo(torch.relu(x))\n    return (torch.neg(y), torch.sigmoid(x))";
    let imported = import_bytes(module(body).into(), "x.pt", &options).unwrap();
    let skipped: Vec<&str> = imported.skipped.iter().map(|skipped| skipped.operator.as_str()).collect();
    assert_eq!(skipped, ["aten.foo", "aten.neg"]);
    assert_eq!(imported.graph.outputs.len(), 2, "the result that is left, and what the missing operator reads");
}

#[test]
fn a_write_changes_the_tensor_that_a_slice_is_cut_from() {
    let body = "    y = torch.clone(x)\n    _0 = torch.zero_(torch.select(y, 0, 1))\n    return y";
    let graph = import_bytes(module(body).into(), "x.pt", &shaped(&[("x", &[2, 3])])).unwrap().graph;
    let x = reference::Tensor::from_numbers(models::TensorType::f32(&[2, 3]), &[1.0; 6]).unwrap();
    let answers = reference::evaluate_graph(&graph, &[x]).unwrap();
    assert_eq!(answers[0].to_numbers(), [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
    for copy in ["torch.diag(y)", "torch.permute_copy(y, [1, 0])", "torch.slice_copy(y, 0, 0, 1)"] {
        let body = format!("    y = torch.clone(x)\n    _0 = torch.zero_({copy})\n    return y");
        let graph = import_bytes(module(&body).into(), "x.pt", &shaped(&[("x", &[2, 3])])).unwrap().graph;
        let x = reference::Tensor::from_numbers(models::TensorType::f32(&[2, 3]), &[1.0; 6]).unwrap();
        assert_eq!(reference::evaluate_graph(&graph, &[x]).unwrap()[0].to_numbers(), [1.0; 6], "{copy}");
    }
    let stale =
        "    y = torch.clone(x)\n    z = torch.view(y, [6])\n    _0 = torch.zero_(torch.select(y, 0, 1))\n    return z";
    check_refused(module(stale), "the memory of the tensor was overwritten through another name");
}

#[test]
fn strides_of_a_view_are_refused() {
    let strided = |x: &str| module(&format!("    return torch.as_strided({x}, [2, 2], [3, 1])"));
    check_refused(strided("torch.t(x)"), "the order of the input in memory is unknown");
    check_refused(strided("torch.neg(torch.t(x))"), "the order of the input in memory is unknown");
    check_refused(strided("(torch.hsplit(x, 3))[1]"), "the order of the input in memory is unknown");
    check_refused(strided("torch.select(x, 1, 0)"), "the order of the input in memory is unknown");
    for known in ["x", "torch.contiguous(torch.t(x))", "torch.slice(x, 0, 0, 9223372036854775807)"] {
        import_bytes(strided(known).into(), "x.pt", &shaped(&[("x", &[2, 3])])).expect(known);
    }
}

#[test]
fn a_result_that_is_stale_is_named() {
    let body = "    y = torch.clone(x)\n    z = torch.unfold(y, 1, 2, 1)\n    _0 = torch.zero_(z)\n    return y";
    check_refused(module(body), "result of the program: not supported: an input is stale");
}
