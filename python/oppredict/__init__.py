"""How long operators take, and how sure that is.

    import oppredict

    predictor = oppredict.load()  # what came with the package; or the name of a file
    predictor.predict("conv2d:ci=64,hw=56,co=64,k=3,p=1", threads=1)
    predictor.predict(frame)  # pandas or polars, with a column `operator`
    predictor.model("resnet-18", batch=8, threads=1)["total"]

A predictor is a file that `oppredict train` wrote. Nothing else needs to be installed. Where `oppredict adapt --this-host` kept
how far this machine is from the one that was learned from, answers without a device are times of this machine, and name it.
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
    """The predictor in a file; without one that which came with the package, for CPUs, or with a mapping for GPUs.

    With a mapping (a TOML file that says what the columns of a foreign table mean), questions use that table's columns.
    """
    if path is None:
        package = _Path(_native.__file__).resolve().parent.parent / "opcollect"
        path = _native.shipped_predictor(package, None, mapping is not None)
    return Predictor(path, mapping)


class Predictor:
    """What was learned; ask it with `predict`."""

    def __init__(self, path, mapping=None):
        self._inner = _native.Predictor(_path(path), None if mapping is None else _path(mapping))

    @property
    def operators(self):
        """Names of the operators it learned."""
        return self._inner.operators

    @property
    def devices(self):
        """Names of the devices it can be asked about."""
        return self._inner.devices

    @property
    def this_host(self):
        """The class of hosts that answers without a device are for, where that is this machine; else `None`."""
        return self._inner.this_host

    def predict(self, questions, *, device=None, threads=None, extrapolate=False):
        """Answers in the form of the questions.

        `questions` is a pandas or polars data frame, a list, or one question. In a table the column `operator` holds
        short forms such as `conv2d:ci=64,hw=56,co=64,k=3,p=1`; the columns `device`, `threads` and `knob.NAME` may stand
        beside it, and what they leave open is filled by the arguments. With a mapping, its columns take their place. A
        list holds texts or dictionaries with the same names.

        A data frame is answered by one of the same kind (and index) with the columns `time_ns`, `low_ns` and `high_ns`
        (90 % of measurements should lie between these), `attainable_ns`, `bound` and `reasons`; a list by a list of
        dictionaries, one question by one dictionary. Where a question lies outside of what was learned there is no time
        and `reasons` says why; with `extrapolate` there is one all the same. An operator of which nothing was learned has its
        bound as time. On a machine that was adapted to, `this_host` names it.
        """
        columns = self._inner.predict(_rows(questions), *_setting(device, threads), bool(extrapolate))
        return _in_the_form_of(questions, columns)

    def model(self, name, *, source="local", batch=1, sequence=128, device=None, threads=None):
        """A whole neural network: a dictionary with its `layers` and their `total`.

        `source` is `local` for a name of the zoo, `transformers` for a name or a folder with a `config.json`, or `onnx`,
        `torch` or `tflite` for a file. Layers that are alike are one entry of `layers`, with `count`; `total` has
        `time_ns`, `low_ns` and `high_ns`. What is not known is `None`. Every layer has a time, and its `basis` says what that
        rests on: it was `learned`, is `extrapolated`, or is a `bound`, a lower bound, because the training data lacks the operator;
        `total` has `extrapolated_ns` and `bounds_ns`, too.
        """
        for what, number in [("batch", batch), ("sequence", sequence)]:
            if not isinstance(number, int) or isinstance(number, bool):
                raise Error(f"`{what}` is {number!r}; give a whole number")
        if not isinstance(name, (str, _os.PathLike)) or not isinstance(source, str):
            raise Error(f"{name!r} from {source!r} is no model: give its name and its source as texts")
        text = self._inner.model(source, _os.fspath(name), batch, sequence, *_setting(device, threads))
        return _json.loads(text)

    def __repr__(self):
        inner = self._inner
        return f"<oppredict.Predictor: {len(inner.operators)} operators, {len(inner.devices)} devices, {inner.rows} samples>"


def _path(path):
    try:
        return _os.fspath(path)
    except TypeError:
        raise Error(f"{path!r} is no path") from None


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
            f"{questions!r} is no question: ask with a text such as `matmul:m=64,n=64,k=64`, a dictionary, a list of these, or a data frame"
        ) from None
    return [_row(place, one) for place, one in rows]


def _in_the_form_of(questions, columns):
    if hasattr(questions, "to_dicts"):
        return type(questions)(columns)
    if hasattr(questions, "to_dict") and hasattr(questions, "columns"):
        return type(questions)(columns, index=questions.index)
    answers = [dict(zip(columns, row)) for row in zip(*columns.values())]
    return answers[0] if isinstance(questions, (str, _Mapping)) else answers
