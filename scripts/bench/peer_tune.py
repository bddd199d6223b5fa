"""Tunes operators with TVM's MetaSchedule from Python, and prints one JSON line: the best time after every trial.

`scripts/bench/search` compares with this peer: `tune_tasks` with its default space, strategy, cost model and batch of 64, its own
builder and runner. Its gradient scheduler selects the operator of the next batch. A trial is a candidate that was built and timed,
or failed. Seconds are counted from the call.
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
from tvm.s_tir.meta_schedule.logging import get_loggers_from_work_dir
from tvm.s_tir.meta_schedule.utils import fork_seed
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


def global_average_pool(n=1, c=8, hw=8):
    x = te.placeholder((n, c, hw, hw), name="X")
    return [x, topi.nn.global_pool(x, "avg")]


OPERATORS = {
    "avg_pool2d": pool("avg"),
    "conv2d": conv2d,
    "conv3d": conv3d,
    "conv_transpose2d": conv_transpose2d,
    "dense": dense,
    "depthwise_conv2d": depthwise,
    "global_average_pool": global_average_pool,
    "layer_norm": layer_norm,
    "matmul": matmul,
    "max_pool2d": pool("max"),
    "softmax": softmax,
}


def behind(arguments, step):
    """An operator with what is computed of its result, element by element."""
    *inputs, result = arguments
    if step == "bias":
        bias = te.placeholder((result.shape[1], *[1] * (len(result.shape) - 2)), name="B")
        return [*inputs, bias, topi.add(result, bias)]
    if step == "add":
        other = te.placeholder(result.shape, name="O")
        return [*inputs, other, topi.add(result, other)]
    if step == "relu":
        return [*inputs, topi.nn.relu(result)]
    if step == "relu6":
        return [*inputs, topi.clip(result, 0.0, 6.0)]
    raise ValueError(f"`{step}` is none of bias, add, relu, relu6")


def tensors(text):
    """The operator that a text such as `matmul:m=512,n=512,k=512` names, in the words of `--modelsource simple`; what follows it
    stands in `then`, as in `conv2d:ci=64,hw=56,co=64,k=3,p=1,then=bias+relu`."""
    name, _, sizes = text.partition(":")
    pairs = dict(pair.split("=") for pair in sizes.split(",") if pair)
    if name not in OPERATORS:
        sys.exit(f"error: `{name}` is none of what is compared: {', '.join(OPERATORS)}")
    steps = [step for step in pairs.pop("then", "").split("+") if step]
    try:
        arguments = OPERATORS[name](**{key: value if key == "shape" else int(value) for key, value in pairs.items()})
        for step in steps:
            arguments = behind(arguments, step)
        return arguments
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
            self.trials.append((seconds, task_id, 1e9 * sum(times) / len(times) if times else math.inf))


def context(text, name, target, logger, seed):
    """One task of the tuner."""
    return ms.TuneContext(
        mod=te.create_prim_func(tensors(text)).with_attr("global_symbol", "main"),
        target=target,
        space_generator="post-order-apply",
        search_strategy="evolutionary",
        task_name=name,
        logger=logger,
        rand_state=seed,
        num_threads=os.cpu_count(),
    ).clone()


def tune(operators, options):
    """What was measured, in its order, and the seconds that all took."""
    processor = str(tvm.get_global_func("target.llvm_get_system_cpu")())
    target = Target({"kind": "llvm", "mcpu": processor, "num-cores": options.threads})
    names = [f"operator_{number}" for number in range(len(operators))]
    with tempfile.TemporaryDirectory() as folder:
        curve = Curve()
        loggers = get_loggers_from_work_dir(folder, names)
        seeds = fork_seed(options.seed, n=len(operators))
        ms.tune.tune_tasks(
            tasks=[context(one["operator"], *rest) for one, *rest in zip(operators, names, [target] * len(names), loggers, seeds)],
            task_weights=[float(one["times"]) for one in operators],
            work_dir=folder,
            max_trials_global=options.trials,
            num_trials_per_iter=64,
            measure_callbacks=[ms.measure_callback.AddToDatabase(), ms.measure_callback.UpdateCostModel(), curve],
            database="memory",
        )
        return curve.trials, time.perf_counter() - curve.begun


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--operator", help="such as matmul:m=512,n=512,k=512")
    asked.add_argument("--operators", metavar="JSON", help='several, such as [{"operator": "dense:m=1,n=1000,k=512", "times": 1}]')
    parser.add_argument("--trials", type=int, default=256, help="of all operators together")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = str(options.threads)
    logging.disable(logging.INFO)

    operators = json.loads(options.operators) if options.operators else [{"operator": options.operator, "times": 1}]
    trials, wall_s = tune(operators, options)
    best, points, bests = math.inf, [], [math.inf] * len(operators)
    for number, (seconds, task, ns) in enumerate(trials, start=1):
        bests[task] = min(bests[task], ns)
        # Of several operators, what they take together, as often as each is run; not before all were tried.
        sum_ns = sum(one["times"] * own for one, own in zip(operators, bests))
        if sum_ns < best:
            best = sum_ns
            points.append({"trial": number, "seconds": round(seconds, 3), "best_ns": round(sum_ns, 1)})
    result = {
        "side": "peer",
        "operators": [{**one, "best_ns": round(own, 1)} for one, own in zip(operators, bests)],
        "threads": options.threads,
        "seed": options.seed,
        "trials": len(trials),
        "failed": sum(math.isinf(ns) for _, _, ns in trials),
        "seconds": round(wall_s, 3),
        "best_ns": round(best, 1),
        "curve": points,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
