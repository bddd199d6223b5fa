"""Predicts the times of operators, with intervals.

    import oppredict

    predictor = oppredict.load()  # the built-in predictor; or give the path of a file
    predictor.predict("conv2d:ci=64,hw=56,co=64,k=3,p=1", threads=1)
    predictor.predict(frame)  # pandas or polars, with a column `operator`
    predictor.model("resnet-18", batch=8, threads=1)["total"]

A predictor is a file written by `oppredict train`. No other packages are needed. If `oppredict adapt --this-host` has stored a
calibration, predictions without a device are for this machine, and `this_host` names its host class.
"""

import json as _json
import os as _os
from collections.abc import Mapping as _Mapping
from numbers import Real as _Real
from pathlib import Path as _Path

from _opcollect import native as _native
from _opcollect.native import PredictorError as Error

__all__ = ["Error", "Predictor", "load"]


def load(path=None, mapping=None):
    """Loads a predictor from a file; without `path`, the built-in predictor for CPUs, or for GPUs if a mapping is given.

    With a mapping (a TOML file that describes the columns of a foreign table), queries use the columns of this table.
    """
    if path is None:
        package = _Path(_native.__file__).resolve().parent.parent / "opcollect"
        path = _native.shipped_predictor(package, None, mapping is not None)
    return Predictor(path, mapping)


class Predictor:
    """A trained predictor."""

    def __init__(self, path, mapping=None):
        self._inner = _native.Predictor(_path(path), None if mapping is None else _path(mapping))

    @property
    def operators(self):
        """Names of the operators in the training data."""
        return self._inner.operators

    @property
    def devices(self):
        """Names of the devices for which times can be predicted."""
        return self._inner.devices

    @property
    def this_host(self):
        """Host class of this machine if predictions without a device are calibrated for it; else `None`."""
        return self._inner.this_host

    def predict(self, questions, *, device=None, threads=None, extrapolate=False):
        """Predicts times and returns them in the form of the queries.

        `questions` is a pandas or polars data frame, a list, or a single query. In a data frame, the column `operator`
        contains short forms such as `conv2d:ci=64,hw=56,co=64,k=3,p=1`. The columns `device`, `threads` and `knob.NAME` are
        optional; missing values are taken from the arguments. With a mapping, the columns of the mapping are used instead. A
        list contains texts, or dictionaries with the same names.

        The result of a data frame is a data frame of the same kind (and index) with the columns `time_ns`, `low_ns` and
        `high_ns` (the ends of the 90 % interval), `attainable_ns`, `bound` and `reasons`. The result of a list is a list of
        dictionaries, that of a single query one dictionary. A query outside of the training range has no time, and `reasons`
        states why; with `extrapolate`, the time is predicted anyway. The time of an operator without training data is its
        lower bound. On a calibrated machine, `this_host` is its host class.
        """
        columns = self._inner.predict(_rows(questions), *_setting(device, threads), bool(extrapolate))
        return _in_the_form_of(questions, columns)

    def model(self, name, *, source="local", batch=1, sequence=128, device=None, threads=None):
        """Predicts a whole neural network: a dictionary with its `layers` and their `total`.

        `source` is `local` for a model of the built-in zoo, `transformers` for a name or a folder with a `config.json`, or
        `onnx`, `torch` or `tflite` for a file. Equal layers are one entry of `layers`, with `count`. `total` has `time_ns`,
        `low_ns` and `high_ns`. Unknown values are `None`. Every layer has a time; its `basis` is `learned`, `extrapolated`,
        or `bound` for a lower bound, because the training data lacks the operator. `total` also has `extrapolated_ns` and
        `bounds_ns`.
        """
        for what, number in [("batch", batch), ("sequence", sequence)]:
            if not isinstance(number, int) or isinstance(number, bool):
                raise Error(f"`{what}` is {number!r}; give a whole number")
        if not isinstance(name, (str, _os.PathLike)) or not isinstance(source, str):
            raise Error(f"invalid model {name!r} or source {source!r}: give both as texts")
        text = self._inner.model(source, _os.fspath(name), batch, sequence, *_setting(device, threads))
        return _json.loads(text)

    def __repr__(self):
        inner = self._inner
        return f"<oppredict.Predictor: {len(inner.operators)} operators, {len(inner.devices)} devices, {inner.rows} samples>"


def _path(path):
    try:
        return _os.fspath(path)
    except TypeError:
        raise Error(f"{path!r} is not a path") from None


def _setting(device, threads):
    if device is not None and not isinstance(device, str):
        raise Error(f"`device` is {device!r}; give the name of a device")
    if threads is not None and (not isinstance(threads, _Real) or isinstance(threads, bool)):
        raise Error(f"`threads` is {threads!r}; give a number")
    return device, threads


def _row(place, one):
    if isinstance(one, str):
        return {"operator": one}
    if isinstance(one, _Mapping):
        return dict(one)
    raise Error(f"row {place}: {one!r} is neither a text nor a dictionary")


def _rows(questions):
    if isinstance(questions, (str, _Mapping)):
        questions = [questions]
    elif hasattr(questions, "to_dicts"):  # polars
        questions = questions.to_dicts()
    elif hasattr(questions, "to_dict") and hasattr(questions, "columns"):  # pandas
        questions = questions.to_dict("records")
    try:
        rows = enumerate(questions)
    except TypeError:
        raise Error(
            f"{questions!r} is not a query: give a text such as `matmul:m=64,n=64,k=64`, a dictionary, a list of these, or a data frame"
        ) from None
    return [_row(place, one) for place, one in rows]


def _in_the_form_of(questions, columns):
    if hasattr(questions, "to_dicts"):
        return type(questions)(columns)
    if hasattr(questions, "to_dict") and hasattr(questions, "columns"):
        return type(questions)(columns, index=questions.index)
    answers = [dict(zip(columns, row)) for row in zip(*columns.values())]
    return answers[0] if isinstance(questions, (str, _Mapping)) else answers
