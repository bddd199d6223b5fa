"""Times products and convolutions in PyTorch, which uses cuBLAS and cuDNN, for comparison with the times of `opcollect run --json`.

The ratio is PyTorch's time over that of the best schedule: 1 is as fast, 0.5 half as fast. Times are medians by CUDA's events over
batches of runs on warm data. Both compute with the same precision: PyTorch may use tf32 only if the best schedule does.
"""

import json
import re
import statistics
import sys

import torch

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def work(text):
    """What a task's text asks for, as a function of nothing."""
    product = re.match(r"mat_mul\((\w+)\[(\d+),(\d+)\], \w+\[(\d+),(\d+)\]\)", text)
    if product:
        dtype = TYPES[product[1]]
        rows, depth, _, columns = (int(number) for number in product.groups()[1:])
        a, b = torch.randn(rows, depth, dtype=dtype, device="cuda"), torch.randn(depth, columns, dtype=dtype, device="cuda")
        return lambda: torch.matmul(a, b)
    if text.startswith("conv2d:"):
        of = {"s": 1, "p": 0, **{name: int(number) for name, number in re.findall(r"(\w+)=(\d+)", text)}}
        x = torch.randn(of["n"], of["ci"], of["hw"], of["hw"], device="cuda")
        w = torch.randn(of["co"], of["ci"], of["k"], of["k"], device="cuda")
        return lambda: torch.nn.functional.conv2d(x, w, stride=of["s"], padding=of["p"])
    return None


def time_ns(call, samples=20):
    call()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def batch(runs):
        start.record()
        for _ in range(runs):
            call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e6 / runs

    runs = max(1, int(2e6 / max(batch(1), 1.0)))
    batch(runs)
    return statistics.median(batch(runs) for _ in range(samples))


def main():
    models = []
    for name in sys.argv[1:]:
        with open(name, encoding="utf-8") as file:
            models += json.load(file)["models"]
    torch.backends.cudnn.benchmark = True
    convolutions = []
    print(f"{'torch ns':>12} {'best ns':>12} {'ratio':>6}  precision  task")
    for model in models:
        call = work(model["model"])
        if call is None or not model["rows"]:
            continue
        best = min(model["rows"], key=lambda row: row["median_ns"])
        is_tf32 = "precision=tf32" in best["schedule"]
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = is_tf32
        peer = time_ns(call)
        ratio = peer / best["median_ns"]
        precision = "tf32" if is_tf32 else "as stored"
        print(f"{peer:12.0f} {best['median_ns']:12.0f} {ratio:6.2f}  {precision:9}  {model['model']}")
        if model["model"].startswith("conv2d:"):
            convolutions.append(ratio)
    if convolutions:
        print(f"median ratio of {len(convolutions)} convolutions: {statistics.median(convolutions):.2f}")


if __name__ == "__main__":
    main()
