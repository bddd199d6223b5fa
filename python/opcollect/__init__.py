"""Measures operators of neural networks, runs and profiles whole networks, and reads the records.

    import opcollect

    done = opcollect.collect("resnet-18", threads=[1], schedules=4, store="measured")
    print(done)  # the table that the command prints
    frame = pandas.DataFrame(done.records)
    opcollect.Store("measured").query("select op_kind, min(median_ns) from records group by 1")
    print(opcollect.run_model("mlp"))
    print(opcollect.profile("mlp", perfetto="mlp.pftrace"))

Settings have the names of configuration files; see `docs/guide/measuring.md`. Ctrl-C ends a collection after the current
attempt, and the store keeps all finished records; a second Ctrl-C does not wait. The same call resumes the collection.

Notes, for example that the machine is busy, are logged as warnings by the logger `opcollect` of the module `logging`.
"""

import json as _json
import logging as _logging
import os as _os
import shutil as _shutil
from collections.abc import Mapping as _Mapping

from _opcollect import native as _native
from _opcollect.native import Error

__all__ = ["Collection", "Error", "Report", "Store", "collect", "profile", "run_model"]

_native.set_program_folder(_os.path.join(_os.path.dirname(_os.path.abspath(__file__)), "bin"))
_logger = _logging.getLogger("opcollect")
_PROGRESS = ("done", "total", "losses", "built", "rate", "seconds_left", "standing")


def collect(
    models=None,
    *,
    source="local",
    config=None,
    store="opcollect-data",
    again=False,
    retry_faults=2,
    shard=None,
    compare=False,
    wait=0,
    progress=None,
    **settings,
):
    """Measures the operators of models, writes a record of each attempt to a store, and returns a `Collection`.

    `models` is a name, or a list of names and of dictionaries with `source`, `name`, `shapes`, `values` and
    `skip_unsupported`, as in a configuration. `source` is the source of the names: `local`, `simple`, `transformers`,
    `onnx`, `tflite` or `torch`. `config` is the path of a TOML file, or a dictionary with the same content. Other keywords
    are settings of such a file and take precedence over it: `threads=[1]`, `schedules=2`, `target="llvm"`,
    `budget_seconds=60`, `measure={"precision": 0.02}`, `tune={"trials": 50}`.

    Experiments in the store are not measured again, except with `again=True`. `retry_faults` is the number of repetitions
    of an attempt that crashed or timed out. `shard="1/4"` measures the first quarter of the work. `compare=True` also
    compares whole models with default schedules and with the best schedules. `wait` is the maximum number of seconds to
    wait for another process that measures on the same CPUs.

    `progress` is called about once per second with a dictionary of `done`, `total`, `losses`, `built`, `rate` (attempts per
    second), `seconds_left` and `standing` (current activity). If it raises an exception, the collection ends as with
    Ctrl-C, and the exception is raised by this function.
    """
    options = {
        "store": _path(store),
        "again": bool(again),
        "retry_faults": retry_faults,
        "shard": shard,
        "compare": bool(compare),
        "wait": wait,
        "width": _width(),
    }
    settings = _with_models(settings, models, source)
    report, text, records = _native.collect(_config(config), settings, options, _callbacks(progress))
    return Collection(_json.loads(report), text, records)


def run_model(
    model=None,
    *,
    source="local",
    config=None,
    threads=None,
    inputs=None,
    output=None,
    check=True,
    plan=None,
    parallel=None,
    store=None,
    wait=0,
    progress=None,
    **settings,
):
    """Runs a whole model with the default schedules and returns a `Report`, the output of `opcollect model run --json`.

    `median_interval_ns` is the interval of `median_ns`; `interval_covers` states whether it covers the scatter between
    processes (visits). A model without operators has no times. The outputs are compared with a reference computation, unless
    `check=False`. `threads` is one number. `inputs` is a dictionary from input names to files, or one `.npz` or `.safetensors`
    file with all inputs; `output` is a folder for the outputs as `.npy` files. `plan` is a file of `oppredict plan`; `parallel`
    is a rule to use instead of a plan. With `store`, a record of the run is written to this store. Other arguments are those of
    `collect`. Without `model`, the model of `config` is used.
    """
    options = {
        "threads": threads,
        **_inputs(inputs),
        "output": _optional_path(output),
        "check": bool(check),
        "plan": _optional_path(plan),
        "parallel": parallel,
        "store": _optional_path(store),
        "wait": wait,
    }
    settings = _with_models(settings, model, source)
    return Report(*_native.run_model(_config(config), settings, options, _callbacks(progress)))


def profile(
    model=None,
    *,
    source="local",
    config=None,
    threads=None,
    inputs=None,
    check=True,
    schedule=None,
    sample=None,
    seconds=None,
    counters=(),
    group_by="input-shape",
    levels=0,
    annotate=None,
    out=None,
    csv=None,
    perfetto=None,
    chrome_trace=None,
    html=None,
    store=None,
    wait=0,
    row_limit=100,
    progress=None,
    **settings,
):
    """Runs a model with time stamps around each operator and returns a `Report`, the output of `opcollect profile --json`.

    The entry `rows` can be converted to a data frame. `group_by` is `name`, `input-shape`, `scope` (with `levels` levels of
    the scope) or `call`; `counters` are names of counters. `perfetto`, `chrome_trace`, `html`, `csv` and `out` are files to
    write, `annotate` is the name of an operator whose code is shown, and `row_limit` limits the rows of the text. Other
    arguments are those of `run_model` and of `opcollect profile --help`.
    """
    files = {"out": out, "csv": csv, "perfetto": perfetto, "chrome_trace": chrome_trace, "html": html, "store": store}
    options = {
        "threads": threads,
        **_inputs(inputs),
        "check": bool(check),
        "schedule": schedule,
        "sample": sample,
        "seconds": seconds,
        "counters": [counters] if isinstance(counters, str) else list(counters),
        "group_by": group_by,
        "levels": levels,
        "annotate": annotate,
        **{name: _optional_path(path) for name, path in files.items()},
        "wait": wait,
        "row_limit": row_limit,
        "width": _width(),
    }
    settings = _with_models(settings, model, source)
    return Report(*_native.profile(_config(config), settings, options, _callbacks(progress)))


class Report(dict):
    """A report as a dictionary; `str()` returns the text that the command prints."""

    def __init__(self, report, text):
        super().__init__(_json.loads(report))
        self._text = text

    def __str__(self):
        return self._text


class Collection:
    """The result of `collect`; `str()` returns the table that the command prints."""

    def __init__(self, report, text, records):
        self.report = report
        """Output of `opcollect --json` as a dictionary."""
        self._text, self._records, self._columns = text, records, None

    @property
    def attempts(self):
        """Number of planned attempts."""
        return self.report["attempts"]

    @property
    def known_before(self):
        """Number of attempts that were already in the store."""
        return self.report["known_before"]

    @property
    def outcomes(self):
        """Number of new attempts by outcome, such as `{"ok": 12}`."""
        return self.report["outcomes"]["counts"]

    @property
    def losses(self):
        """Attempts without a time, by reason: a list of dictionaries."""
        return self.report["losses"]

    @property
    def seconds(self):
        """Duration of the call in seconds."""
        return self.report["seconds"]

    @property
    def store(self):
        """The store with the records."""
        return Store(self.report["store"])

    @property
    def records(self):
        """One record of each experiment as columns: a dictionary of lists, for a data frame.

        Times combine all visits. The columns of samples are empty; `store.records()` returns the samples.
        """
        if self._columns is None:
            self._columns = self._records.columns(None)
        return self._columns

    def __len__(self):
        return len(self._records)

    def __str__(self):
        return self._text

    def __repr__(self):
        return f"<opcollect.Collection: {len(self)} records in {self.report['store']!r}>"


class Store:
    """A store of records, a folder."""

    def __init__(self, path="opcollect-data"):
        self._path = _path(path)
        self._notes = _callbacks(None)

    @property
    def path(self):
        """The folder."""
        return self._path

    def records(self, columns=None, where=None, *, choose="all"):
        """Records as columns: a dictionary of lists, for a data frame.

        `columns` are column names, by default all; `where` is an SQL condition, such as `"outcome = 'ok' and threads = 1"`.
        `choose` selects among several attempts at an experiment: `all`, the `latest`, or the `middle` (median) attempt.
        """
        names = None if columns is None else ([columns] if isinstance(columns, str) else list(columns))
        if where is None:
            return _native.records(self._path, names, choose, self._notes)
        kinds = _native.column_kinds()
        names = list(kinds) if names is None else names
        selected = ", ".join(f'"{name}"' for name in names)
        found = self.query(f"select {selected} from records where {where}", choose=choose)
        return {name: _typed(kinds[name], values) for name, values in found.items()}

    def query(self, sql, *, choose="all", seconds=60.0, memory_mib=4096):
        """The result of one SQL statement over the table `records`, as columns.

        The query fails after `seconds` or beyond `memory_mib`. `docs/guide/queries.md` has examples.
        """
        return _native.query(self._path, sql, choose, seconds, memory_mib, self._notes)

    def best(self, *, operator=None, task=None, model=None, threads=None, host=None, all_versions=False):
        """The best known schedule and time of each task: a `Report` with `tasks`, the output of `opcollect dataset best`.

        `operator` is an operator kind, `task` a part of the task's text or a prefix of its hash, `model` the name of a model,
        whose total time is `total_ns`. The default host is this machine; `host` selects another host. Unless
        `all_versions=True`, only times of the installed versions count on this machine, and on other hosts only those of the
        newest versions.
        """
        question = {
            "operator": operator,
            "task": task,
            "model": model,
            "threads": threads,
            "host": host,
            "all_versions": bool(all_versions),
        }
        return Report(*_native.best(self._path, question, _width(), self._notes))

    def stats(self, *, choose="middle"):
        """Counts of records by outcome, source, target, host and operator, as a dictionary."""
        return _json.loads(_native.stats(self._path, choose, self._notes))

    def export(self, path, format=None, *, choose="all"):
        """Writes the records to one file in the format `csv`, `parquet` or `jsonl`, by default that of the file extension."""
        return _json.loads(_native.export(self._path, _path(path), format, choose, self._notes))

    def verify(self):
        """Reads the whole store and reports damage: a dictionary whose `problems` are empty for an intact store."""
        return _json.loads(_native.verify(self._path, self._notes))

    def __len__(self):
        return self.stats(choose="all")["rows"]

    def __bool__(self):
        return True

    def __repr__(self):
        return f"opcollect.Store({self._path!r})"


def _callbacks(progress):
    def deliver(text):
        status = _json.loads(text)
        progress({name: status[name] for name in _PROGRESS})

    if progress is not None and not callable(progress):
        raise Error(f"`progress` is {progress!r}; give a function of one argument")
    return {"progress": None if progress is None else deliver, "note": _logger.warning}


def _path(path):
    try:
        return _os.fspath(path)
    except TypeError:
        raise Error(f"{path!r} is not a path") from None


def _optional_path(path):
    return None if path is None else _path(path)


def _config(config):
    return dict(config) if isinstance(config, _Mapping) else _optional_path(config)


def _with_models(settings, models, source):
    if models is None:
        return settings
    if isinstance(models, (str, _os.PathLike, _Mapping)):
        models = [models]
    entries = [dict(one) if isinstance(one, _Mapping) else {"source": source, "name": _path(one)} for one in models]
    return {**settings, "models": entries}


def _inputs(inputs):
    if isinstance(inputs, _Mapping):
        return {"input": [f"{name}={_path(path)}" for name, path in inputs.items()], "inputs": None}
    return {"input": [], "inputs": _optional_path(inputs)}


def _typed(kind, values):
    if kind == "bool":
        return [None if value is None else bool(value) for value in values]
    if kind == "list":
        return [None if value is None else _json.loads(value) for value in values]
    return values


def _width():
    return max(20, _shutil.get_terminal_size((120, 24)).columns)
