"""Writes traces of other profilers, with their own summaries, for the tests of our readers.

usage: python scripts/trace_cases.py torch|onnxruntime FOLDER

`torch` writes torch.json.gz, and torch.averages.json.gz with the rows of `key_averages()` by name and by name and input shapes;
`onnxruntime` writes onnxruntime.json.gz, and onnxruntime.averages.json.gz with sums over its events by operator.
"""

import collections
import gzip
import json
import pathlib
import sys


def pack(text, path):
    # Without a time inside, the same trace always makes the same file.
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def torch_rows(averages):
    return [
        {
            "name": row.key,
            "input_shapes": row.input_shapes or [],
            "count": row.count,
            "cpu_time_total_ns": round(row.cpu_time_total * 1000),
            "self_cpu_time_total_ns": round(row.self_cpu_time_total * 1000),
            "cpu_memory_usage_bytes": row.cpu_memory_usage,
            "self_cpu_memory_usage_bytes": row.self_cpu_memory_usage,
        }
        for row in averages
    ]


def write_torch(folder):
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function, schedule

    torch.manual_seed(0)
    torch.set_num_threads(1)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 5))
    data = torch.randn(2, 3, 8, 8)
    steps = schedule(wait=0, warmup=1, active=2, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True, schedule=steps) as profiler:
        for _ in range(3):
            with record_function("forward"):
                result = network(data)
            result.sum().backward()
            torch.cat([data, data]).sum()
            profiler.step()
    whole = folder / "whole.json"
    profiler.export_chrome_trace(str(whole))
    text = whole.read_text()
    whole.unlink()
    pack(text, folder / "torch.json.gz")
    rows = {
        "name": torch_rows(profiler.key_averages()),
        "shape": torch_rows(profiler.key_averages(group_by_input_shape=True)),
    }
    pack(json.dumps(rows), folder / "torch.averages.json.gz")


def write_onnxruntime(folder):
    import numpy
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper

    shape = lambda name, *dims: helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
    weights = onnx.numpy_helper.from_array(numpy.ones((4, 3, 3, 3), numpy.float32), "weights")
    nodes = [
        helper.make_node("Conv", ["data", "weights"], ["sums"], "first"),
        helper.make_node("Softmax", ["sums"], ["shares"], "second", axis=1),
        helper.make_node("ReduceMean", ["shares"], ["result"], "third", keepdims=0),
    ]
    graph = helper.make_graph(nodes, "small", [shape("data", 1, 3, 8, 8)], [shape("result")], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.intra_op_num_threads = 1
    options.profile_file_prefix = str(folder / "profile")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    for _ in range(3):
        session.run(None, {"data": numpy.ones((1, 3, 8, 8), numpy.float32)})
    path = pathlib.Path(session.end_profiling())
    text = path.read_text()
    path.unlink()
    pack(text, folder / "onnxruntime.json.gz")
    sums = collections.defaultdict(lambda: [0, 0])
    for event in json.loads(text):
        operator = event.get("args", {}).get("op_name")
        if operator:
            sums[operator][0] += 1
            sums[operator][1] += event["dur"] * 1000
    rows = [{"name": name, "count": count, "cpu_time_total_ns": total} for name, (count, total) in sorted(sums.items())]
    pack(json.dumps(rows), folder / "onnxruntime.averages.json.gz")


if __name__ == "__main__":
    writers = {"torch": write_torch, "onnxruntime": write_onnxruntime}
    if len(sys.argv) != 3 or sys.argv[1] not in writers:
        sys.exit(__doc__)
    target = pathlib.Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    writers[sys.argv[1]](target)
