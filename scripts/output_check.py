"""Compares the outputs of a network with reference outputs; used by `models_in_the_wild.py`."""

import json

import numpy as np

# Largest accepted difference, relative to the largest absolute value of the reference output.
TOLERANCE = 1e-3
# Smallest spread of a reference output, and smallest change of the outputs for another input, both relative to the largest
# absolute value. With smaller ones, an output without any relation to the input could be within the tolerance.
LEAST_SPREAD = 10 * TOLERANCE
# Avoids a division by zero; far below any output of the networks.
TINY = 1e-30


def unfit_reason(outputs, moved=None):
    """Why reference outputs cannot test anything, or None; `moved` are the outputs for another input."""
    for index, output in enumerate(outputs):
        if output.dtype.kind != "f":
            continue
        if not np.isfinite(output).all():
            return f"output {index} of the network is not finite"
        if output.size > 1:
            # float16 overflows when the difference of two of its numbers does not fit.
            wide = output.astype(np.float64)
            largest = float(np.abs(wide).max())
            if float(wide.max() - wide.min()) <= LEAST_SPREAD * largest:
                return f"output {index} of the network is constant"
    if not any(output.size for output in outputs):
        return "the network has no output"
    if moved is not None and largest_difference(moved, outputs) <= LEAST_SPREAD:
        return "the outputs of the network do not depend on its input"
    return None


def largest_difference(found, expected):
    """The largest difference of outputs, relative to the largest absolute value of the expected output.

    Integers and booleans must be equal, and so must the number of outputs, their shapes and element types. NaN and infinity are
    never right, because expected outputs are finite (`unfit_reason`).
    """
    if len(found) != len(expected):
        return float("inf")
    worst = 0.0
    for a, b in zip(found, expected):
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        if not b.size:
            continue
        if b.dtype.kind != "f":
            worst = max(worst, float("inf") if np.any(a != b) else 0.0)
            continue
        a, b = a.astype(np.float64), b.astype(np.float64)
        if not np.isfinite(a).all():
            return float("inf")
        worst = max(worst, float(np.abs(a - b).max()) / max(float(np.abs(b).max()), TINY))
    return worst


def first_line(text, otherwise):
    """The first line of a message that is not empty, or the given text."""
    return next((line.strip() for line in str(text).splitlines() if line.strip()), otherwise)


def has_crashed(code, stderr):
    """Whether the program ended by a signal or a panic rather than with an error message."""
    return code < 0 or code > 128 or code == 101 or "panicked at" in stderr


def kept_results(lines, key):
    """Results by network from lines of JSON that another run kept, without those of another key."""
    results = {}
    for line in lines:
        try:
            one = json.loads(line)
        except ValueError:
            # The last line of a run that was killed while it wrote.
            continue
        if one.get("key") == key:
            results[one["name"]] = one["results"]
    return results
