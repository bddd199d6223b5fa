"""A session with the installed package, in the folder that `table.py` filled: `session.py alone | frames`."""

import math
import sys

import oppredict

predictor = oppredict.load("table.opp", mapping="mapping.toml")
GIVEN = {"op": "product", "device": "small", "b": 3, "m": 200, "n": 300, "k": 100}
TEXT = "product:b=3,m=200,n=300,k=100"
FAR = {**GIVEN, "k": 90_000}
COLUMNS = ["time_ns", "low_ns", "high_ns", "attainable_ns", "bound", "reasons"]


def refusal(*arguments, **options):
    try:
        predictor.predict(*arguments, **options)
    except oppredict.Error as error:
        return str(error)
    raise AssertionError("it was answered")


def raised(act):
    try:
        act()
    except oppredict.Error as error:
        return str(error)
    raise AssertionError("it was done")


def models():
    """Whole networks: their dense layers were learned, of the rest there are bounds, which say so."""
    ask = predictor.model
    found = ask("mlp", device="small")
    assert (found["model"], found["batch"]) == ("mlp", 1), found
    dense = [layer for layer in found["layers"] if layer["operator"].startswith("dense")]
    rest = [layer for layer in found["layers"] if layer not in dense]
    assert dense and rest, found
    assert {layer["basis"] for layer in dense} == {"learned"} and not any(layer["outside"] for layer in dense), dense
    assert all(layer["attainable_ns"] < layer["time_ns"] for layer in dense), dense
    assert all(layer["low_ns"] < layer["time_ns"] < layer["high_ns"] for layer in dense), dense
    assert {layer["basis"] for layer in rest} == {"bound"}, rest
    assert all("the training data lacks" in layer["outside"][0] for layer in rest), rest
    total = found["total"]
    sums = [sum(layer["count"] * layer["time_ns"] for layer in layers) for layers in (found["layers"], rest)]
    assert abs(total["operators_ns"] / sums[0] - 1) < 1e-9 and abs(total["bounds_ns"] / sums[1] - 1) < 1e-9, total
    assert total["calls"] == sum(layer["count"] for layer in found["layers"]), total
    assert total["high_ns"] is None and total["extrapolated_ns"] == 0, total

    # More at once take longer, and are more than was learned from; another device has its own times.
    many = ask("mlp", batch=64, device="small")
    assert many["batch"] == 64 and many["total"]["time_ns"] > total["time_ns"], many
    assert many["total"]["extrapolated_ns"] > 0, many
    assert ask("mlp", device="large")["total"]["time_ns"] != total["time_ns"]
    alone = ask("mlp", batch=64, device="small", threads=1)
    assert alone["layers"][0]["attainable_ns"] > many["layers"][0]["attainable_ns"], alone
    # Tokens are those of a transformer, whose layers come from a shipped configuration.
    short, long = (
        ask("gpt2:n_layer=1", source="transformers", sequence=tokens, device="small") for tokens in (16, 64)
    )
    assert len(short["layers"]) == len(long["layers"]), (short, long)
    assert short["total"]["time_ns"] < long["total"]["time_ns"], (short["total"], long["total"])

    assert "did you mean `resnet-18`" in raised(lambda: ask("resnet-19", device="small"))
    assert "did you mean `local`" in raised(lambda: ask("mlp", source="locl"))
    assert raised(lambda: ask("mlp", batch="many")) == "`batch` is 'many'; give a whole number"
    assert "invalid model" in raised(lambda: ask(3))


def alone():
    for missing in ["pandas", "polars", "numpy", "xgboost"]:
        try:
            __import__(missing)
        except ImportError:
            continue
        raise AssertionError(f"this environment has {missing}")
    assert predictor.operators == ["dense", "product", "soft"] and predictor.devices == ["large", "small"]
    assert repr(predictor) == "<oppredict.Predictor: 3 operators, 2 devices, 720 samples>"
    one = predictor.predict(TEXT, device="small")
    assert list(one) == COLUMNS and one["reasons"] == [], one
    assert one["attainable_ns"] < one["time_ns"] and one["low_ns"] < one["time_ns"] < one["high_ns"], one
    assert predictor.predict(GIVEN) == one and predictor.predict([TEXT, GIVEN], device="small") == [one, one]

    # What cannot be answered has no time and a reason, and the others have theirs.
    near, far = predictor.predict([GIVEN, FAR])
    assert near == one and math.isnan(far["time_ns"]) and "`k`: 90000, training range" in far["reasons"][0], far
    forced = predictor.predict(FAR, extrapolate=True)
    assert forced["time_ns"] > one["time_ns"] and "90000, training range" in forced["reasons"][0], forced

    # Invalid queries raise an error that names the row and the reason.
    assert refusal([TEXT, "product:b=x"]).startswith("row 1: cannot read the operator `product:b=x`: `x` is not a number")
    assert "give a device" in refusal(TEXT) and "unknown device `other`" in refusal([GIVEN, TEXT], device="other")
    assert refusal([TEXT, {**GIVEN, "threads": 0}], device="small").startswith("row 1: invalid number of threads 0")
    assert refusal(TEXT, device="small", threads=1.5).startswith("row 0: invalid number of threads 1.5")
    assert "its knobs are unknown" in refusal({**GIVEN, "knob.nosuch": 7})
    assert "the row has no `op`" in refusal({"b": 3})
    assert "unknown column `colour`" in refusal({**GIVEN, "colour": 1})
    assert "is neither a number nor a text" in refusal({**GIVEN, "b": [1]})
    for strange in [3, None, 2.5, [3], [TEXT, b"product"], object()]:
        assert "row" in refusal(strange) or "is not a query" in refusal(strange), strange
    assert refusal(3).startswith("3 is not a query: give a text"), refusal(3)
    assert refusal([TEXT, 3]) == "row 1: 3 is neither a text nor a dictionary"
    assert refusal(TEXT, device=3) == "`device` is 3; give the name of a device"
    assert refusal(TEXT, threads="two") == "`threads` is 'two'; give a number"
    assert "is not a path" in raised(lambda: oppredict.load(3))
    models()
    try:
        oppredict.load("missing.opp")
    except oppredict.Error as error:
        assert str(error).startswith("cannot open `missing.opp`"), error
    with open("damaged.opp", "wb") as file:
        file.write(open("table.opp", "rb").read()[:-40])
    try:
        oppredict.load("damaged.opp")
    except ValueError as error:
        assert "the file is damaged" in str(error), error


def frames():
    import pandas
    import polars

    one = predictor.predict(GIVEN)
    table = pandas.read_csv("table.csv")
    answers = predictor.predict(table)
    assert list(answers.columns) == COLUMNS and len(answers) == len(table)
    error = (answers["time_ns"] / 1e3 / table["time_us"] - 1).abs().mean()
    assert error < 0.05, error

    frame = pandas.DataFrame([GIVEN, FAR], index=["near", "far"])
    answers = predictor.predict(frame)
    assert list(answers.index) == ["near", "far"] and answers.loc["near", "time_ns"] == one["time_ns"]
    assert answers["time_ns"].isna().tolist() == [False, True]

    answers = predictor.predict(polars.DataFrame([GIVEN, FAR]))
    assert isinstance(answers, polars.DataFrame) and answers.columns == COLUMNS
    assert answers["time_ns"][0] == one["time_ns"] and answers["time_ns"].is_nan().to_list() == [False, True]
    assert answers["reasons"].to_list()[0] == []
    empty = predictor.predict(frame.iloc[:0])
    assert len(empty) == 0 and list(empty.columns) == COLUMNS


{"alone": alone, "frames": frames}[sys.argv[1]]()
print(f"the session `{sys.argv[1]}` went as it should")
