"""Measures with the installed package, in a folder of its own: `measuring.py PROGRAM`, where PROGRAM is `oppredict`.

No check depends on the speed of the machine; deadlines are generous, and end a test that hangs.
"""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import opcollect
import oppredict

PATIENCE_SECONDS = 600
# Rough times, so that tests take seconds.
QUICK = {"precision": 0.05, "visits": 1, "sampling_time_min_ns": 5_000_000, "time_budget_ns": 20_000_000}
COMMON = {"source": "simple", "threads": [1], "measure": QUICK, "wait": PATIENCE_SECONDS}
MATMUL = "matmul:m=32,n=32,k=32"
MANY = [f"matmul:m={16 * m},n={16 * n},k=64" for m in range(1, 7) for n in range(1, 5)]
# A child that collects until Ctrl-C, and says how far it is.
CHILD = f"""
import opcollect, signal, sys
# A process that a script starts in the background ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
def tell(status):
    print(status["done"], flush=True)
try:
    opcollect.collect({MANY!r}, schedules=6, store="stopped", progress=tell, **{COMMON!r})
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(7)
"""


class Stop(Exception):
    """An exception of a callback."""


def refusal(act):
    try:
        act()
    except opcollect.Error as error:
        return str(error)
    raise AssertionError("it was done")


def collections():
    seen = []
    done = opcollect.collect(MATMUL, schedules=2, store="store", progress=seen.append, **COMMON)
    assert done.attempts == 2 and done.known_before == 0 and done.outcomes == {"ok": 2}, done.report
    assert done.losses == [] and done.seconds > 0 and done.report["source"] == "measured", done.report
    assert seen and (seen[-1]["done"], seen[-1]["total"], seen[-1]["losses"]) == (2, 2, 0), seen
    assert "matmul" in str(done) and "2 attempts: 2 ok" in str(done), str(done)
    assert repr(done) == "<opcollect.Collection: 2 records in 'store'>", repr(done)
    records = done.records
    assert len(done) == 2 and {len(values) for values in records.values()} == {2}, records
    assert records["op_kind"] == ["matmul"] * 2 and all(time > 0 for time in records["median_ns"]), records

    # The same call measures nothing twice, in another thread as well as here; a dictionary and a file say the same.
    again = []
    config = {"threads": [1], "schedules": 9, "measure": QUICK, "models": [{"source": "simple", "name": MATMUL}]}

    def collect_again():
        again.append(opcollect.collect(config=config, schedules=2, store=Path("store"), wait=PATIENCE_SECONDS))

    thread = threading.Thread(target=collect_again)
    thread.start()
    thread.join()
    Path("config.toml").write_text(
        f'threads = [1]\nschedules = 2\nmodels = [{{ source = "simple", name = "{MATMUL}" }}]\n'
        "[measure]\n" + "".join(f"{name} = {value}\n" for name, value in QUICK.items())
    )
    again.append(opcollect.collect(config="config.toml", store="store", wait=PATIENCE_SECONDS))
    assert [(done.known_before, done.outcomes) for done in again] == [(2, {})] * 2, [done.report for done in again]
    assert again[0].report["config_hash"] == done.report["config_hash"]
    repeated = opcollect.collect(MATMUL, schedules=2, store="store", again=True, **COMMON)
    assert repeated.outcomes == {"ok": 2} and len(repeated.store) == 4, repeated.report


def refusals():
    collect = opcollect.collect
    told = refusal(lambda: collect("mlp", treads=[1], store="none"))
    assert "treads" in told and "did you mean `threads`" in told, told
    assert "did you mean `trials`" in refusal(lambda: collect("mlp", tune={"trails": 3}, store="none"))
    assert "did you mean `resnet-18`" in refusal(lambda: collect("resnet-19", store="none"))
    assert "`threads` is 0" in refusal(lambda: collect("mlp", threads=[0], store="none"))
    assert "no model was named" in refusal(lambda: collect(store="none"))
    assert "`seed` is <object" in refusal(lambda: collect("mlp", seed=object(), store="none"))
    assert "missing.toml" in refusal(lambda: collect(config="missing.toml", store="none"))
    Path("wrong.toml").write_text("schedules = 2\nthread = [1]\n")
    told = refusal(lambda: collect("mlp", config="wrong.toml", store="none"))
    assert "wrong.toml" in told and "line 2" in told, told
    assert "3/2" in refusal(lambda: collect("mlp", shard="3/2", store="none"))
    assert "only the command line supports" in refusal(lambda: collect("mlp", target="pynq", store="none"))
    assert "is not a path" in refusal(lambda: collect("mlp", store=3))
    assert "give a function" in refusal(lambda: collect("mlp", progress=3, store="none"))
    assert not Path("none").exists()


def stores():
    store = opcollect.Store("store")
    assert len(store) == 4 and store and repr(store) == "opcollect.Store('store')"
    records = store.records()
    assert {len(values) for values in records.values()} == {4} and records["outcome"] == ["ok"] * 4
    few = store.records(["op_text", "median_ns", "is_default"] if "is_default" in records else ["op_text", "median_ns"])
    assert few == {name: records[name] for name in few}, few
    assert len(store.records("key", choose="latest")["key"]) == 2
    # What a condition chooses has the same values.
    assert store.records(where="outcome = 'ok'") == records
    assert store.records("key", where="median_ns < 0") == {"key": []}
    answer = store.query("select op_kind, count(*) as rows, min(median_ns) as best_ns from records group by 1")
    assert answer == {"op_kind": ["matmul"], "rows": [4], "best_ns": [min(records["median_ns"])]}, answer
    assert "did you mean `median_ns`" in refusal(lambda: store.records(["medianns"]))
    assert "records" in refusal(lambda: store.query("select nothing"))
    assert "are named `a`" in refusal(lambda: store.query("select 1 as a, 2 as a"))
    best = store.best(operator="matmul", threads=1)
    assert [task["threads"] for task in best["tasks"]] == [1] and "matmul" in str(best), best
    assert best["tasks"][0]["median_ns"] in store.records("median_ns", choose="middle")["median_ns"], best
    assert "no matching time" in refusal(lambda: store.best(operator="conv2d"))
    stats = store.stats()
    assert stats["by_outcome"] == {"ok": 2} and stats["by_operator"] == {"matmul": 2}, stats
    for name in ["rows.csv", "rows.parquet", "rows.jsonl"]:
        assert store.export(name)["rows"] == 4 and Path(name).stat().st_size > 0, name
    lines = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    assert sorted(line["median_ns"] for line in lines) == sorted(records["median_ns"])
    assert "the format is unknown" in refusal(lambda: store.export("rows.txt"))
    assert store.verify()["problems"] == [], store.verify()
    assert "nowhere" in refusal(lambda: len(opcollect.Store("nowhere")))


def whole_models():
    run = opcollect.run_model("mlp", threads=1, measure=QUICK, store="models", output="outputs", wait=PATIENCE_SECONDS)
    assert run["model"] == "mlp" and run["threads"] == 1 and run["calls"] > 0, run
    assert 0 < run["min_ns"] <= run["median_ns"] <= run["p95_ns"] and run["check"]["is_right"], run
    assert "mlp: " in str(run) and "  check       right" in str(run), str(run)
    assert len(opcollect.Store(run["record"]["store"])) == 1 and any(Path("outputs").iterdir())
    assert opcollect.run_model("mlp", threads=1, measure=QUICK, check=False, wait=PATIENCE_SECONDS)["check"] is None

    found = opcollect.profile("mlp", threads=1, perfetto="mlp.pftrace", html="mlp.html", wait=PATIENCE_SECONDS)
    assert found["model"] == "mlp" and found["check"]["is_right"], found
    assert sum(row["calls"] for row in found["rows"]) > 0 and "dense" in str(found), (found, str(found))
    assert Path("mlp.pftrace").stat().st_size > 0 and "<html" in Path("mlp.html").read_text()
    by_name = opcollect.profile("mlp", threads=1, group_by="name", seconds=0.1, check=False, wait=PATIENCE_SECONDS)
    assert len(by_name["rows"]) <= len(found["rows"]), by_name
    assert "did you mean `scope`" in refusal(lambda: opcollect.profile("mlp", group_by="scop"))
    assert "one model" in refusal(lambda: opcollect.run_model(["mlp", "resnet-18"]))
    assert "no input `y`" in refusal(lambda: opcollect.run_model("mlp", threads=1, inputs={"y": "y.npy"}))


def interruptions():
    # An exception of the callback ends the collection, and is the one that is raised.
    def stop(status):
        raise Stop("enough")

    try:
        opcollect.collect(MANY, schedules=6, store="raised", progress=stop, **COMMON)
        raise AssertionError("nothing was raised")
    except Stop as error:
        assert str(error) == "enough"
    assert opcollect.Store("raised").verify()["problems"] == []

    # Ctrl-C ends the child with KeyboardInterrupt, and the store keeps what was measured.
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True)
    try:
        while (line := child.stdout.readline().strip()) in ("0", ""):
            assert child.poll() is None, "the child ended before anything was measured"
        child.send_signal(signal.SIGINT)
        rest, _ = child.communicate(timeout=PATIENCE_SECONDS)
    finally:
        child.kill()
    assert child.returncode == 7 and rest.split()[-1] == "interrupted", (child.returncode, line, rest)
    store = opcollect.Store("stopped")
    kept = len(store)
    assert 0 < kept < 6 * len(MANY) and store.verify()["problems"] == [], kept
    # The same call goes on where it ended.
    done = opcollect.collect(MANY, schedules=6, store="stopped", **COMMON)
    assert done.known_before == kept and done.attempts == kept + sum(done.outcomes.values()), (kept, done.report)


def predictions(program):
    # The store of the last collection teaches a predictor.
    # Each attempt is one visit, which does not tell how well its median is known.
    train = [program, "train", "--data", "stopped", "--max-uncertainty", "inf", "--out", "measured.opp"]
    subprocess.run(train, check=True, timeout=PATIENCE_SECONDS, stdout=subprocess.DEVNULL)
    predictor = oppredict.load("measured.opp")
    answer = predictor.predict("matmul:m=48,n=48,k=64", threads=1)
    assert answer["low_ns"] < answer["time_ns"] < answer["high_ns"], answer


collections()
refusals()
stores()
whole_models()
interruptions()
predictions(sys.argv[1])
print("measuring from Python went as it should")
