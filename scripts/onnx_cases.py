#!/usr/bin/env python3
"""Writes the ONNX project's backend tests as files: NAME/model.onnx and NAME/test_data_set_0/{input,output}_K.pb.

The tensors of an output that is a sequence are output_K_0.pb, output_K_1.pb and so on.

The package `onnx` holds its node cases as Python that computes the expected outputs; the model cases lie ready in it.
Light models have no data: their input is arange(n) / n, their expected output is computed by ONNX Runtime.
"""

import pathlib
import shutil
import sys

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases


def as_message(value, value_info):
    """A tensor message of an input or output; nothing where it is a sequence, a map or absent."""
    if isinstance(value, onnx.TensorProto):
        return value
    if value_info.type.WhichOneof("value") != "tensor_type" or not isinstance(value, (np.ndarray, np.generic)):
        return None
    return numpy_helper.from_array(np.asarray(value), value_info.name)


def write_case(folder, model, inputs, outputs):
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    for kind, values, infos in [("input", inputs, model.graph.input), ("output", outputs, model.graph.output)]:
        for index, (value, info) in enumerate(zip(values, infos)):
            message = as_message(value, info)
            if message is not None:
                (data / f"{kind}_{index}.pb").write_bytes(message.SerializeToString())
            elif kind == "output" and isinstance(value, list):
                for place, part in enumerate(value):
                    message = numpy_helper.from_array(np.asarray(part), info.name)
                    (data / f"{kind}_{index}_{place}.pb").write_bytes(message.SerializeToString())


def write_node_cases(out):
    for case in collect_testcases(None):
        if case.model is not None and case.data_sets:
            inputs, outputs = case.data_sets[0]
            write_case(out / "node" / case.name, case.model, inputs, outputs)


def copy_ready_cases(out):
    ready = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data"
    for kind in ["pytorch-converted", "pytorch-operator", "simple"]:
        for case in sorted((ready / kind).iterdir()):
            if (case / "model.onnx").is_file() and (case / "test_data_set_0").is_dir():
                shutil.copytree(case, out / kind / case.name)


def write_light_models(out):
    import onnxruntime

    light = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    for path in sorted(light.glob("*.onnx")):
        model = onnx.load(path)
        constants = {tensor.name for tensor in model.graph.initializer}
        inputs = []
        for info in model.graph.input:
            if info.name not in constants:
                shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
                count = int(np.prod(shape))
                inputs.append((info.name, (np.arange(count) / count).astype(np.float32).reshape(shape)))
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        outputs = session.run(None, dict(inputs))
        folder = out / "light" / path.stem
        (folder / "test_data_set_0").mkdir(parents=True)
        shutil.copy(path, folder / "model.onnx")
        for index, (name, value) in enumerate(inputs):
            message = numpy_helper.from_array(value, name)
            (folder / "test_data_set_0" / f"input_{index}.pb").write_bytes(message.SerializeToString())
        for index, (info, value) in enumerate(zip(model.graph.output, outputs)):
            message = numpy_helper.from_array(value, info.name)
            (folder / "test_data_set_0" / f"output_{index}.pb").write_bytes(message.SerializeToString())


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: onnx_cases.py FOLDER   (an empty or new one)")
    out = pathlib.Path(sys.argv[1])
    if out.exists() and any(out.iterdir()):
        sys.exit(f"error: `{out}` is not empty; remove it first")
    write_node_cases(out)
    copy_ready_cases(out)
    write_light_models(out)


if __name__ == "__main__":
    main()
