"""Measures our programs and their peers in turn, and prints the table of scripts/bench/predict."""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

import numpy
import polars
import scipy.sparse  # noqa: F401  XGBoost's package wants it
import xgboost

parser = argparse.ArgumentParser()
parser.add_argument("programs", type=pathlib.Path)
parser.add_argument("scratch", type=pathlib.Path)
parser.add_argument("root", type=pathlib.Path)
parser.add_argument("--json", action="store_true")
parser.add_argument("--rows", type=int, default=1_000_000)
given = parser.parse_args()


def ours(*words):
    done = subprocess.run([given.programs / "examples" / "predict_bench", *map(str, words)], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def table(rows):
    """60 columns like those of records: measured numbers, counts, and a few words."""
    random = numpy.random.default_rng(1)
    columns = {f"float_{i}": numpy.round(random.lognormal(8, 3, rows), 4) for i in range(30)}
    columns |= {f"count_{i}": random.integers(0, 10**6, rows) for i in range(25)}
    words = numpy.array(["conv2d", "dense", "softmax", "layer_norm", "max_pool"])
    columns |= {f"word_{i}": words[random.integers(0, len(words), rows)] for i in range(5)}
    path = given.scratch / "table.csv"
    polars.DataFrame(columns).write_csv(path)
    return path


def peer_load(path):
    begun = time.perf_counter()
    polars.read_csv(path)
    return time.perf_counter() - begun


def made_up_operators():
    """A table of products on one device, and the mapping for it."""
    random = numpy.random.default_rng(2)
    sizes = random.integers(16, 1000, (4000, 3))
    batch = random.integers(1, 64, 4000)
    times = 10 + 2e-6 * batch * sizes.prod(axis=1) * random.lognormal(0, 0.1, 4000)
    path = given.scratch / "products.csv"
    lines = [f"product,here,{t},{b},{m},{n},{k}" for t, b, (m, n, k) in zip(times, batch, sizes)]
    path.write_text("op,device,time_us,b,m,n,k\n" + "\n".join(lines) + "\n")
    mapping = given.scratch / "mapping.toml"
    mapping.write_text(
        'operator = "op"\ndevice = "device"\ntime = { column = "time_us", unit = "us" }\n[operators]\n'
        'product = { form = "contraction", batch = "b", rows = "m", columns = "n", depth = "k" }\n[devices.here]\n'
        "units = 40\nflops_per_cycle = 128\nclock_ghz = 1.2\nbandwidth_gb_per_s = 400\ncache_bytes = 4e6\n"
    )
    return path, mapping


def peer_single(trees):
    random = numpy.random.default_rng(3)
    matrix = random.random((4000, 86), dtype=numpy.float32)
    booster = xgboost.train(
        {"max_depth": 8, "eta": 0.05, "nthread": 1}, xgboost.DMatrix(matrix, matrix[:, 0] + matrix[:, 1]), trees
    )
    took = []
    for row in matrix[:500]:
        begun = time.perf_counter()
        booster.inplace_predict(row.reshape(1, -1))
        took.append(1e6 * (time.perf_counter() - begun))
    return statistics.median(took)


path = table(given.rows)
# Ours and theirs in turn, after one of each that does not count.
peer_load(path)
loads = ours("load", path)["seconds"][1:]
peers = [peer_load(path) for _ in range(4)]
ratio = statistics.median(loads) / statistics.median(peers)

products, mapping = made_up_operators()
bundle = given.scratch / "made-up.opp"
subprocess.run(
    [given.programs / "oppredict", "train", "--data", products, "--mapping", mapping, "--out", bundle],
    check=True, stdout=sys.stderr,
)
asked = ours("ask", bundle)
served = ours("serve", given.root / "datasets" / "published" / "cpu.opp")
peer_us = peer_single(asked["trees"])
grown = ours("grow", given.rows, 200, 300)

figures = [
    ("rows of 60 columns loaded", f"{given.rows}", ""),
    ("loading, median", f"{statistics.median(loads):.2f} s", f"polars {statistics.median(peers):.2f} s; at most 1.5 x"),
    ("ours / polars", f"{ratio:.2f}", "at most 1.50"),
    ("answers in batch, one thread", f"{asked['batch_us_per_row']:.2f} µs/row ({asked['trees']} trees)", "at most 10"),
    ("single answer", f"{asked['single_us_median']:.1f} µs", f"at most 15; XGBoost from Python {peer_us:.0f}"),
    ("1,000 convolutions by the server", f"{served['request_ms']:.1f} ms", "at most 10; all threads, without the connection"),
    (f"300 trees on {given.rows} x 200", f"{grown['seconds']:.1f} s on {grown['threads']} threads", "at most 120"),
]
for name, value, bar in figures:
    print(f"{name:36} {value:28} {bar}")
if given.json:
    print(json.dumps({
        "ratio": ratio, "load_seconds": statistics.median(loads), "peer_load_seconds": statistics.median(peers),
        "batch_us_per_row": asked["batch_us_per_row"], "single_us": asked["single_us_median"],
        "served_ms": served["request_ms"],
        "peer_single_us": peer_us, "trees": asked["trees"], "grow_seconds": grown["seconds"],
    }))
