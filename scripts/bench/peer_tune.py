"""Tunes one operator with TVM's MetaSchedule from Python, and prints one JSON line: the best time after every trial.

This is the peer that `scripts/bench/search` compares with: `tune_tir` with its default space, strategy, cost model and batch of
64, its own builder and runner. A trial is a candidate that was built and timed, or failed. Seconds are counted from the call.
"""

import argparse
import json
import logging
import math
import os
import sys
import tempfile
import time

import tvm
from tvm import te, topi
from tvm.s_tir import meta_schedule as ms
from tvm.ir.utils import derived_object
from tvm.target import Target


def conv2d(n=1, ci=3, hw=8, co=8, k=3, s=1, p=0, d=1, g=1):
    x = te.placeholder((n, ci, hw, hw), name="X")
    w = te.placeholder((co, ci // g, k, k), name="W")
    if g > 1:
        return [x, w, topi.nn.group_conv2d_nchw(x, w, s, p, d, g)]
    return [x, w, topi.nn.conv2d_nchw(x, w, stride=s, padding=p, dilation=d)]


def conv3d(n=1, ci=3, hw=8, co=8, k=3, s=1, p=0):
    x = te.placeholder((n, ci, hw, hw, hw), name="X")
    w = te.placeholder((co, ci, k, k, k), name="W")
    return [x, w, topi.nn.conv3d_ncdhw(x, w, s, p, 1, 1)]


def conv_transpose2d(n=1, ci=3, hw=8, co=8, k=4, s=1, p=0):
    x = te.placeholder((n, ci, hw, hw), name="X")
    w = te.placeholder((ci, co, k, k), name="W")
    return [x, w, topi.nn.conv2d_transpose_nchw(x, w, (s, s), (p, p), "float32", (0, 0))]


def depthwise(n=1, c=8, hw=8, k=3, s=1, p=0):
    x = te.placeholder((n, c, hw, hw), name="X")
    w = te.placeholder((c, 1, k, k), name="W")
    return [x, w, topi.nn.depthwise_conv2d_nchw(x, w, stride=s, padding=p, dilation=1)]


def matmul(m=8, n=8, k=8, b=0):
    batch = (b,) if b else ()
    one, other = te.placeholder((*batch, m, k), name="A"), te.placeholder((*batch, k, n), name="B")
    product = topi.nn.batch_matmul(one, other, transpose_b=False) if b else topi.matmul(one, other)
    return [one, other, product]


def dense(m=8, n=8, k=8):
    x, w = te.placeholder((m, k), name="X"), te.placeholder((n, k), name="W")
    return [x, w, topi.nn.dense(x, w)]


def pool(kind):
    def made(n=1, c=8, hw=8, k=2, s=1, p=0):
        x = te.placeholder((n, c, hw, hw), name="X")
        return [x, topi.nn.pool2d(x, [k, k], [s, s], [1, 1], [p] * 4, kind, count_include_pad=False)]

    return made


def softmax(shape="8x8"):
    x = te.placeholder(tuple(map(int, shape.split("x"))), name="X")
    return [x, topi.nn.softmax(x)]


def layer_norm(shape="8x8"):
    extents = tuple(map(int, shape.split("x")))
    x, scale, shift = [te.placeholder(one, name=name) for one, name in ((extents, "X"), (extents[-1:], "S"), (extents[-1:], "T"))]
    return [x, scale, shift, topi.nn.layer_norm(x, scale, shift, [len(extents) - 1])]


OPERATORS = {
    "avg_pool2d": pool("avg"),
    "conv2d": conv2d,
    "conv3d": conv3d,
    "conv_transpose2d": conv_transpose2d,
    "dense": dense,
    "depthwise_conv2d": depthwise,
    "layer_norm": layer_norm,
    "matmul": matmul,
    "max_pool2d": pool("max"),
    "softmax": softmax,
}


def tensors(text):
    """The operator that a text such as `matmul:m=512,n=512,k=512` names, in the words of `--modelsource simple`."""
    name, _, sizes = text.partition(":")
    pairs = dict(pair.split("=") for pair in sizes.split(",") if pair)
    if name not in OPERATORS:
        sys.exit(f"error: `{name}` is none of what is compared: {', '.join(OPERATORS)}")
    try:
        return OPERATORS[name](**{key: value if key == "shape" else int(value) for key, value in pairs.items()})
    except (TypeError, ValueError) as why:
        sys.exit(f"error: `{text}`: {why}")


@derived_object
class Curve(ms.measure_callback.PyMeasureCallback):
    """Hears of every batch."""

    def __init__(self):
        super().__init__()
        self.begun, self.trials = time.perf_counter(), []

    def apply(self, task_scheduler, task_id, measure_candidates, builder_results, runner_results):
        seconds = time.perf_counter() - self.begun
        for result in runner_results:
            times = [float(time_s) for time_s in result.run_secs or []]
            self.trials.append((seconds, 1e9 * sum(times) / len(times) if times else math.inf))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operator", required=True, help="such as matmul:m=512,n=512,k=512")
    parser.add_argument("--trials", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = str(options.threads)
    logging.disable(logging.INFO)

    function = te.create_prim_func(tensors(options.operator)).with_attr("global_symbol", "main")
    module = tvm.IRModule({"main": function})
    processor = str(tvm.get_global_func("target.llvm_get_system_cpu")())
    target = Target({"kind": "llvm", "mcpu": processor, "num-cores": options.threads})
    curve = Curve()
    callbacks = [ms.measure_callback.AddToDatabase(), ms.measure_callback.UpdateCostModel(), curve]
    with tempfile.TemporaryDirectory() as folder:
        curve.begun = time.perf_counter()
        ms.tune_tir(
            module,
            target,
            folder,
            max_trials_global=options.trials,
            num_trials_per_iter=64,
            measure_callbacks=callbacks,
            database="memory",
            num_tuning_cores=os.cpu_count(),
            seed=options.seed,
        )
        wall_s = time.perf_counter() - curve.begun
    best, points = math.inf, []
    for number, (seconds, ns) in enumerate(curve.trials, start=1):
        if ns < best:
            best = ns
            points.append({"trial": number, "seconds": round(seconds, 3), "best_ns": round(ns, 1)})
    result = {
        "side": "peer",
        "operator": options.operator,
        "threads": options.threads,
        "seed": options.seed,
        "trials": len(curve.trials),
        "failed": sum(math.isinf(ns) for _, ns in curve.trials),
        "seconds": round(wall_s, 3),
        "best_ns": round(best, 1),
        "curve": points,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
