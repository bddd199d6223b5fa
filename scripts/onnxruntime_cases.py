#!/usr/bin/env python3
"""Writes networks in the forms that ONNX Runtime saves, and single operators of its own domain, with its results.

Usage: onnxruntime_cases.py OUT [NAME…], where a NAME selects the cases whose path begins with it. Each case is a folder like those of
scripts/onnx_cases.py: NAME/model.onnx and NAME/test_data_set_0/*.pb. Weights and inputs are random numbers of a fixed seed.
"""

import logging
import pathlib
import sys
import tempfile

import onnx
import onnxruntime as ort
from onnx import numpy_helper

import onnxruntime_networks as networks
import onnxruntime_operators as operators


def save(folder, model, inputs, optimised=False):
    """Writes a case; expected outputs come from a session that changes nothing of the file unless `optimised`."""
    options = ort.SessionOptions()
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_BASIC if optimised else level.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    outputs = session.run(None, {name: value for name, value in inputs.items() if value is not None})
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    constants = {tensor.name for tensor in model.graph.initializer}
    names = [info.name for info in model.graph.input if info.name not in constants]
    for index, name in enumerate(names):
        message = numpy_helper.from_array(inputs[name], name)
        (data / f"input_{index}.pb").write_bytes(message.SerializeToString())
    for index, (info, value) in enumerate(zip(model.graph.output, outputs)):
        message = numpy_helper.from_array(value, info.name)
        (data / f"output_{index}.pb").write_bytes(message.SerializeToString())


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    logging.disable(logging.WARNING)
    out, wanted = pathlib.Path(sys.argv[1]), sys.argv[2:]
    failed = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, make in [*networks.cases(pathlib.Path(scratch)), *operators.cases()]:
            if wanted and not any(name.startswith(prefix) for prefix in wanted):
                continue
            print(name, flush=True)
            try:
                save(out / name, *make())
            except Exception as error:  # One operator that this ONNX Runtime lacks must not hide the others.
                failed.append(f"{name}: {str(error).splitlines()[0]}")
    for line in failed:
        print(line, file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
