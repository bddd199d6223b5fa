"""Builds and times saved schedules with TVM's own MetaSchedule builder and runner, and prints one JSON line.

`scripts/bench/collect` compares with this peer: it is the code that tuning from Python runs for each batch of candidates, here with
saved schedules, so that both programs do the same work. A file of 64 candidates is one batch, the default of MetaSchedule. Its
builder starts new processes for each batch, which import TVM and its tensor intrinsics; this is part of the measured time.

A trace file has a header line (`op`) and then one line per candidate (`i`, `trace`).
"""

import argparse
import json
import os
import time

import tvm
from tvm import te, topi
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.schedule import Trace
from tvm.target import Target

BUILD_LIMIT_S = 30
RUN_LIMIT_S = 30


def matmul512():
    a, b = (te.placeholder((512, 512), name=name) for name in "AB")
    return [a, b, topi.matmul(a, b)]


def conv2d_64x56_k3():
    x = te.placeholder((1, 64, 56, 56), name="X")
    w = te.placeholder((64, 64, 3, 3), name="W")
    return [x, w, topi.nn.conv2d_nchw(x, w, stride=1, padding=1, dilation=1)]


# The operators that trace files name; names of tensors matter, as traces refer to blocks by them.
OPERATORS = {"matmul512": matmul512, "conv2d_64x56_k3": conv2d_64x56_k3}


def read_traces(path, limit):
    with open(path, encoding="utf-8") as file:
        header, *candidates = map(json.loads, file)
    return header["op"], candidates[:limit] if limit else candidates


def schedule(module, candidate):
    """Replays a trace, post-processing included, on a fresh schedule of the operator."""
    result = Schedule(module, debug_mask="none", enable_check=False)
    Trace.apply_json_to_schedule(candidate["trace"], result)
    return result.mod


def build(builder, modules, target):
    return builder.build([ms.builder.BuilderInput(module, target) for module in modules])


def run(runner, builds, arguments):
    """The mean time of each candidate in milliseconds, or why there is none."""
    built = [build for build in builds if build.error_msg is None]
    futures = iter(runner.run([ms.runner.RunnerInput(build.artifact_path, "cpu", arguments) for build in built]))
    for build in builds:
        if build.error_msg is not None:
            yield {"error": build.error_msg.strip().splitlines()[-1]}
            continue
        result = next(futures).result()
        if result.run_secs:
            times = [float(time_s) for time_s in result.run_secs]
            yield {"run_ms": 1e3 * sum(times) / len(times)}
        else:
            yield {"error": (result.error_msg or "no time").strip().splitlines()[-1]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", required=True, metavar="FILE")
    parser.add_argument("--evaluator", default="3,1,100", metavar="NUMBER,REPEAT,MIN_REPEAT_MS")
    parser.add_argument("--limit", type=int, default=0, help="only the first candidates of the file; 0 means all")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes that build at once")
    options = parser.parse_args()
    evaluator = [int(field) for field in options.evaluator.split(",")]

    operator, candidates = read_traces(options.traces, options.limit)
    module = tvm.IRModule({"main": te.create_prim_func(OPERATORS[operator]()).with_attr("global_symbol", "main")})
    processor = str(tvm.get_global_func("target.llvm_get_system_cpu")())
    # The traces were tuned for two cores; where they run is this machine.
    target = Target({"kind": "llvm", "mcpu": processor, "num-cores": os.cpu_count()})
    arguments = ms.arg_info.ArgInfo.from_entry_func(module, remove_preproc=True)

    builder = ms.builder.LocalBuilder(max_workers=options.workers, timeout_sec=BUILD_LIMIT_S)
    config = ms.runner.EvaluatorConfig(*evaluator, enable_cpu_cache_flush=False)
    runner = ms.runner.LocalRunner(timeout_sec=RUN_LIMIT_S, evaluator_config=config)

    marks = [time.perf_counter()]
    modules = [schedule(module, candidate) for candidate in candidates]
    marks.append(time.perf_counter())
    builds = build(builder, modules, target)
    marks.append(time.perf_counter())
    results = list(run(runner, builds, arguments))
    marks.append(time.perf_counter())

    replay_s, build_s, run_s = (end - start for start, end in zip(marks, marks[1:]))
    wall_s = marks[-1] - marks[0]
    print(
        json.dumps(
            {
                "side": "peer",
                "operator": operator,
                "processor": processor,
                "threads": os.environ.get("TVM_NUM_THREADS", "default"),
                "evaluator": evaluator,
                "count": len(candidates),
                "ok_count": sum("run_ms" in result for result in results),
                "replay_s": round(replay_s, 3),
                "build_s": round(build_s, 3),
                "run_s": round(run_s, 3),
                "wall_s": round(wall_s, 3),
                "candidates_per_minute": round(60 * len(candidates) / wall_s, 2),
                "candidates": [{"i": candidate["i"], **result} for candidate, result in zip(candidates, results)],
            }
        )
    )


if __name__ == "__main__":
    main()
