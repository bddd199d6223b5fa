"""How long operators take, and how sure that is.

    import oppredict

    predictor = oppredict.load("cpu.opp")
    predictor.predict("conv2d:ci=64,hw=56,co=64,k=3,p=1", threads=1)
    predictor.predict(frame)  # pandas or polars, with a column `operator`

A predictor is a file that `oppredict train` wrote. Nothing else needs to be installed.
"""

from collections.abc import Mapping as _Mapping

from . import _oppredict
from ._oppredict import Error

__all__ = ["Error", "Predictor", "load"]


def load(path, mapping=None):
    """The predictor in a file.

    With a mapping (a TOML file that says what the columns of a foreign table mean), questions use that table's columns.
    """
    return Predictor(path, mapping)


class Predictor:
    """What was learned; ask it with `predict`."""

    def __init__(self, path, mapping=None):
        self._inner = _oppredict.Predictor(path, mapping)

    @property
    def operators(self):
        """Names of the operators it learned."""
        return self._inner.operators

    @property
    def devices(self):
        """Names of the devices it can be asked about."""
        return self._inner.devices

    def predict(self, questions, *, device=None, threads=None, extrapolate=False):
        """Answers in the form of the questions.

        `questions` is a pandas or polars data frame, a list, or one question. In a table the column `operator` holds
        short forms such as `conv2d:ci=64,hw=56,co=64,k=3,p=1`; the columns `device`, `threads` and `knob.NAME` may stand
        beside it, and what they leave open is filled by the arguments. With a mapping, its columns take their place. A
        list holds texts or dictionaries with the same names.

        A data frame is answered by one of the same kind (and index) with the columns `time_ns`, `low_ns` and `high_ns`
        (90 % of measurements should lie between these), `attainable_ns`, `bound` and `reasons`; a list by a list of
        dictionaries, one question by one dictionary. Where a question lies outside of what was learned there is no time
        and `reasons` says why; with `extrapolate` there is one all the same.
        """
        columns = self._inner.predict(_rows(questions), device, threads, extrapolate)
        return _in_the_form_of(questions, columns)

    def __repr__(self):
        inner = self._inner
        return f"<oppredict.Predictor: {len(inner.operators)} operators, {len(inner.devices)} devices, {inner.rows} samples>"


def _rows(questions):
    if isinstance(questions, (str, _Mapping)):
        questions = [questions]
    elif hasattr(questions, "to_dicts"):  # polars
        questions = questions.to_dicts()
    elif hasattr(questions, "to_dict") and hasattr(questions, "columns"):  # pandas
        questions = questions.to_dict("records")
    return [{"operator": one} if isinstance(one, str) else dict(one) for one in questions]


def _in_the_form_of(questions, columns):
    if hasattr(questions, "to_dicts"):
        return type(questions)(columns)
    if hasattr(questions, "to_dict") and hasattr(questions, "columns"):
        return type(questions)(columns, index=questions.index)
    answers = [dict(zip(columns, row)) for row in zip(*columns.values())]
    return answers[0] if isinstance(questions, (str, _Mapping)) else answers
