"""Tests of `output_check.py`; run with `python -m unittest discover scripts`."""

import json
import unittest

import numpy as np

import output_check as check


def ramp(scale=1.0, dtype=np.float32):
    return (np.linspace(-1.0, 1.0, 12).reshape(3, 4) * scale).astype(dtype)


class Difference(unittest.TestCase):
    def test_is_relative_for_small_and_large_outputs(self):
        for scale in (1e-6, 1.0, 1e6):
            expected = ramp(scale)
            self.assertEqual(check.largest_difference([expected], [expected]), 0.0)
            near = expected.copy()
            near[1, 2] += 5e-4 * scale
            far = expected.copy()
            far[1, 2] += 2e-3 * scale
            self.assertLessEqual(check.largest_difference([near], [expected]), check.TOLERANCE)
            self.assertGreater(check.largest_difference([far], [expected]), check.TOLERANCE)

    def test_half_precision_does_not_overflow(self):
        expected = np.array([60000.0, -60000.0], np.float16)
        self.assertGreater(check.largest_difference([-expected], [expected]), 1.0)
        self.assertIsNone(check.unfit_reason([expected]))

    def test_nan_and_infinity_are_wrong(self):
        for bad in (np.nan, np.inf):
            found = ramp()
            found[0, 0] = bad
            self.assertEqual(check.largest_difference([found], [ramp()]), float("inf"))

    def test_integers_must_be_equal(self):
        numbers = np.arange(1000, 1006)
        self.assertEqual(check.largest_difference([numbers], [numbers]), 0.0)
        self.assertEqual(check.largest_difference([numbers + (numbers == 1003)], [numbers]), float("inf"))

    def test_shapes_types_and_counts_must_be_equal(self):
        expected = ramp()
        for found in ([], [expected, expected], [expected.T], [expected.astype(np.float64)], [expected[:, :3]]):
            self.assertEqual(check.largest_difference(found, [expected]), float("inf"))


class Fitness(unittest.TestCase):
    def test_refuses_outputs_that_test_nothing(self):
        self.assertIsNone(check.unfit_reason([ramp(1e-6), np.arange(3)]))
        self.assertIn("output 1", check.unfit_reason([ramp(), np.full((2, 2), 0.5, np.float32)]))
        nearly = np.array([1.0, 1.0 + 1e-3], np.float32)
        self.assertIn("constant", check.unfit_reason([nearly]))
        self.assertIn("constant", check.unfit_reason([np.zeros(4, np.float32)]))
        self.assertIn("finite", check.unfit_reason([np.array([1.0, np.nan], np.float32)]))
        self.assertIn("no output", check.unfit_reason([]))
        self.assertIn("depend", check.unfit_reason([ramp()], [ramp(1.001)]))
        self.assertIsNone(check.unfit_reason([ramp()], [ramp(0.5)]))


class Messages(unittest.TestCase):
    def test_first_line_is_not_empty(self):
        self.assertEqual(check.first_line("\n  \n  why\nmore", "none"), "why")
        self.assertEqual(check.first_line("\n\n", "none"), "none")

    def test_signals_and_panics_are_crashes(self):
        self.assertTrue(check.has_crashed(-11, ""))
        self.assertTrue(check.has_crashed(101, ""))
        self.assertTrue(check.has_crashed(1, "thread 'main' panicked at src/lib.rs:1"))
        self.assertFalse(check.has_crashed(2, "error: cannot read `x`"))


class Kept(unittest.TestCase):
    def test_results_of_another_program_do_not_count(self):
        lines = [json.dumps({"key": key, "name": key, "results": [["pt2", "right", "0"]]}) for key in ("old", "new")]
        lines += [json.dumps({"name": "without a key", "results": []}), '{"key": "new", "na']
        self.assertEqual(list(check.kept_results(lines, "new")), ["new"])
        self.assertEqual(check.kept_results(lines, "newer"), {})


if __name__ == "__main__":
    unittest.main()
