"""Writes the names and types of arguments of ATen operators that have a rule, for the reader of TorchScript files.

Run it with a Python that has torch and torchvision: `python scripts/torchscript_signatures.py`. The format is described in
`models/readers/src/torch/script/signatures.rs`.
"""

import pathlib
import re

import torch
import torchvision  # noqa: F401, which registers its operators

FOLDER = pathlib.Path(__file__).parent.parent / "models/readers/src/torch"
TYPES = {"Tensor": "T", "number": "N", "int": "I", "float": "F", "bool": "B", "str": "S", "Device": "D", "Generator": "G",
         "List[Tensor]": "T*", "List[Optional[Tensor]]": "O*", "List[int]": "I*", "List[float]": "F*"}
# Operators without a rule that have a reason of their own to be refused.
REFUSED = """nonzero _unique2 masked_select argwhere unique_consecutive rand randn rand_like randn_like randint bernoulli multinomial
    randperm normal uniform torchvision.nms""".split()


def operators():
    rules = re.findall(r'^    \("([\w.]+)",', (FOLDER / "rules/table.rs").read_text(), re.M)
    complex_rules = re.findall(r'"([\w.]+)"\s*(?:\||=>)', (FOLDER / "rules/complex.rs").read_text())
    return {*rules, *complex_rules, *REFUSED}


def bare(name, known):
    """The name of an operator without the mark of those that write to their input."""
    if name.startswith("__") and name.endswith("__"):
        name = name.strip("_")
        return name[1:] if name not in known and name[0] == "i" else name
    return name.removesuffix("_")


def type_of(argument):
    text = str(argument.type)
    optional = re.fullmatch(r"Optional\[(.*)\]", text)
    found = TYPES[optional[1] if optional else text]
    if argument.N is not None and found in ("I*", "F*"):
        found = found[0] + "+"
    return found + ("?" if optional else "")


def line_of(name, schema):
    words, is_named = [name], False
    for argument in schema.arguments:
        if argument.kwarg_only and not is_named:
            words.append("*")
            is_named = True
        words.append(f"{argument.name}:{type_of(argument)}" + ("=" if argument.has_default_value() else ""))
    returns = [str(value.type) for value in schema.returns]
    if returns == ["List[Tensor]"]:
        words.append("->*")
    elif len(returns) > 1:
        words.append(f"->{len(returns)}")
    return " ".join(words)


def main():
    known, lines = operators(), set()
    for schema in torch._C._jit_get_all_schemas():
        library, _, name = schema.name.partition("::")
        if library not in ("aten", "torchvision"):
            continue
        name = bare(name, known) if library == "aten" else f"torchvision.{name}"
        types = [str(argument.type) for argument in schema.arguments]
        is_creation = any(argument.name in ("dtype", "device", "layout") for argument in schema.arguments)
        if name not in known or not (is_creation or any("Tensor" in ty for ty in types)):
            continue
        if any(argument.is_out for argument in schema.arguments) or any("Dimname" in ty or "Dict" in ty for ty in types):
            continue
        lines.add(line_of(name, schema))
    # An overload for two tensors is tried before those for numbers.
    order = lambda line: (line.split()[0], not re.search(r" self:T (other|exponent):T", line), len(line), line)
    (FOLDER / "script/signatures.txt").write_text("".join(f"{line}\n" for line in sorted(lines, key=order)))


if __name__ == "__main__":
    main()
