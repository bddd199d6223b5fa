#!/usr/bin/env python3
"""Writes small TFLite models with inputs and what the TFLite interpreter makes of them.

usage: tflite_cases.py FOLDER     (needs the packages tensorflow-cpu, ai-edge-litert and onnx)

Of single quantised layers it also writes what other tools make of the same layer, in ONNX: `qdq.onnx` computes in real
numbers between dequantisations and a quantisation, `dynamic.onnx` does so and quantises its weight at run time too, and
`qlinear.onnx` names the integer operator. The results are committed below models/readers/tests/tflite-cases, so the tests need
none of the packages.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from onnx import TensorProto, helper, numpy_helper

random = np.random.default_rng(7)


def floats(*shape, low=-1.0, high=1.0):
    return random.uniform(low, high, shape).astype(np.float32)


def weight(*shape):
    return tf.constant(floats(*shape, low=-0.5, high=0.5))


def block(x):
    """What small image networks are made of."""
    x = tf.nn.relu6(tf.nn.conv2d(x, weight(3, 3, 3, 8), 2, "SAME") + weight(8))
    y = tf.nn.relu6(tf.nn.depthwise_conv2d(x, weight(3, 3, 8, 1), [1, 1, 1, 1], "SAME") + weight(8))
    x = tf.nn.relu(tf.nn.conv2d(y, weight(1, 1, 8, 8), 1, "VALID") + weight(8) + x)
    x = tf.nn.max_pool2d(x, 2, 2, "VALID")
    x = tf.reduce_mean(x, [1, 2])
    return tf.nn.softmax(tf.matmul(x, weight(8, 5)) + weight(5))


def padded(x):
    """Pads of their own before a convolution, as exporters of PyTorch models write them."""
    x = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])
    return tf.nn.relu(tf.nn.conv2d(x, weight(3, 3, 3, 8), 2, "VALID") + weight(8))


def one_layer(x):
    return tf.nn.relu(tf.nn.conv2d(x, weight(3, 3, 3, 8), 1, "SAME") + weight(8))


def wide(x):
    """A filter that is large enough for a converter to store it in 8 bits."""
    return tf.nn.relu(tf.matmul(x, weight(64, 32)) + weight(32))


def moves(x):
    """Movement that keeps the scale: concatenation, reshape, transpose, slice, maximum pool."""
    y = tf.concat([tf.nn.max_pool2d(x, 3, 1, "SAME"), x], 3)
    y = tf.strided_slice(y, [0, 1, 0, 0], [1, 7, 8, 6], [1, 2, 1, 1])
    y = tf.transpose(y, [0, 2, 1, 3])
    return tf.reshape(y, [1, 8, 18])


def windows(x):
    a = tf.nn.avg_pool2d(x, 3, 2, "SAME")
    b = tf.nn.conv2d(x, weight(3, 3, 4, 6), 1, "VALID", dilations=2)
    c = tf.nn.conv2d_transpose(x, weight(3, 3, 5, 4), [1, 16, 16, 5], 2, "SAME")
    d = tf.nn.conv2d(x, weight(3, 3, 2, 8), [2, 1], "SAME")
    return a, b, c, d


def resamples(x):
    return (
        tf.compat.v1.image.resize_bilinear(x, [12, 10], half_pixel_centers=True),
        tf.compat.v1.image.resize_bilinear(x, [15, 15], align_corners=True),
        tf.compat.v1.image.resize_nearest_neighbor(x, [16, 16]),
        tf.nn.depth_to_space(x, 2),
        tf.nn.space_to_depth(x, 2),
    )


def points(x):
    p = tf.abs(x) + 0.5
    return (
        tf.tanh(x) * tf.sigmoid(x),
        tf.exp(x) - tf.sqrt(p) / p,
        tf.math.rsqrt(p) + tf.math.log(p),
        tf.maximum(tf.nn.leaky_relu(x, 0.1), tf.minimum(tf.square(x), tf.math.floor(x))),
        tf.pow(p, x),
        tf.where(x > 0.25, tf.sin(x), tf.cos(x)),
        tf.math.squared_difference(x, p),
        x * tf.nn.relu6(x + 3.0) / 6.0,
        tf.nn.elu(x),
        tf.nn.gelu(x),
        tf.cast(tf.cast(x * 9.0, tf.int32), tf.float32),
    )


def shapes(x):
    a, b = tf.split(x, 2, 2)
    return (
        tf.stack([a, b], 1),
        tf.squeeze(tf.expand_dims(a, 0), [1]),
        tf.unstack(x, axis=0)[0],
        tf.gather(x, [2, 0, 2], axis=1),
        tf.tile(a, [2, 1, 3]),
        tf.slice(x, [0, 1, 0], [1, 2, 3]),
        tf.reverse(x, [1]),
        tf.pad(x, [[0, 0], [1, 2], [0, 1]], constant_values=0.5),
        tf.pad(x, [[0, 0], [1, 2], [0, 1]], "REFLECT"),
    )


def reductions(x):
    return (
        tf.reduce_sum(x, 1),
        tf.reduce_max(x, [1, 2], keepdims=True),
        tf.reduce_min(x, 2),
        tf.reduce_prod(x, 1),
        tf.cast(tf.argmax(x, 2), tf.int32),
        tf.cumsum(x, 1),
        tf.nn.log_softmax(x),
        tf.nn.l2_normalize(x, 2),
    )


def matrices(x):
    """Products of matrices, with and without a constant side, and an attention."""
    q = tf.matmul(x, weight(6, 6)) + weight(6)
    k = tf.tensordot(x, weight(6, 6), [[2], [0]])
    scores = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) * 0.4)
    return tf.matmul(scores, x), tf.reduce_sum(q * k, 2)


IMAGE = (1, 8, 8, 4)
# Name, function, input shape, how it is quantised.
CASES = [
    ("block_float", block, (1, 16, 16, 3), None),
    ("block_int8", block, (1, 16, 16, 3), "int8"),
    ("block_uint8", block, (1, 16, 16, 3), "uint8"),
    ("wide_weights", wide, (2, 64), "weights"),
    ("block_half", block, (1, 16, 16, 3), "half"),
    ("padded_int8", padded, (1, 8, 8, 3), "int8"),
    ("one_layer_int8", one_layer, (1, 8, 8, 3), "int8"),
    ("moves_int8", moves, IMAGE, "int8"),
    ("windows", windows, IMAGE, None),
    ("windows_int8", windows, IMAGE, "int8"),
    ("resamples", resamples, IMAGE, None),
    ("points", points, (2, 5), None),
    ("shapes", shapes, (1, 4, 6), None),
    ("reductions", reductions, (1, 4, 6), None),
    ("matrices", matrices, (1, 4, 6), None),
    ("matrices_int8", matrices, (1, 4, 6), "int8"),
]

# Strides and pads of the cases that are one layer.
LAYERS = {"one_layer_int8": (1, [1, 1, 1, 1]), "padded_int8": (2, [1, 1, 1, 1])}


def convert(function, shape, how):
    # Constants are drawn while the function is traced, once.
    model = tf.Module()
    model.call = tf.function(function, input_signature=[tf.TensorSpec(shape, tf.float32, name="x")])
    concrete = model.call.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], model)
    if how:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if how == "half":
        converter.target_spec.supported_types = [tf.float16]
    if how in ("int8", "uint8"):
        converter.representative_dataset = lambda: ([floats(*shape)] for _ in range(20))
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = getattr(tf, how)
        converter.inference_output_type = getattr(tf, how)
    return converter.convert()


def tensor(array, detail):
    numbers = [float(number) for number in array.reshape(-1)]
    scale, zero = detail["quantization"]
    return {
        "name": detail["name"],
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "step": float(scale) or None,
        "data": [int(number) if number.is_integer() else round(number, 8) for number in numbers],
    }


def run(model, shape):
    # The plain kernels: the fast ones compute some quantised operators in floats.
    interpreter = Interpreter(
        model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    )
    interpreter.allocate_tensors()
    inputs = []
    for detail in interpreter.get_input_details():
        x = floats(*detail["shape"])
        scale, zero = detail["quantization"]
        if scale:
            limits = np.iinfo(detail["dtype"])
            x = np.clip(np.round(x / scale) + zero, limits.min, limits.max)
        x = x.astype(detail["dtype"])
        interpreter.set_tensor(detail["index"], x)
        inputs.append(tensor(x, detail))
    interpreter.invoke()
    outputs = [tensor(interpreter.get_tensor(detail["index"]), detail) for detail in interpreter.get_output_details()]
    return {"inputs": inputs, "outputs": outputs}


class Layer:
    """The numbers of a file with one quantised convolution and its activation, channels first."""

    def __init__(self, model):
        interpreter = Interpreter(
            model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        )
        interpreter.allocate_tensors()
        details = {detail["index"]: detail for detail in interpreter.get_tensor_details()}
        convolution = next(op for op in interpreter._get_ops_details() if op["op_name"] == "CONV_2D")
        weight, bias = (interpreter.get_tensor(index) for index in convolution["inputs"][1:])
        x, y = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
        self.weight, self.bias = weight.transpose(0, 3, 1, 2), bias
        self.x_scale, self.x_zero = x["quantization"]
        self.y_scale, self.y_zero = y["quantization"]
        self.w_scale = details[convolution["inputs"][1]]["quantization_parameters"]["scales"]
        self.x_shape = [int(x["shape"][axis]) for axis in (0, 3, 1, 2)]
        self.y_shape = [int(y["shape"][axis]) for axis in (0, 3, 1, 2)]

    def write(self, path, form, stride, pads, has_pad_node):
        x_scale, y_scale = np.float32(self.x_scale), np.float32(self.y_scale)
        constants = {
            "x_scale": x_scale,
            "x_zero": np.int8(self.x_zero),
            "y_scale": y_scale,
            "y_zero": np.int8(self.y_zero),
            "w_scale": self.w_scale.astype(np.float32),
            "w_zero": np.zeros_like(self.w_scale, dtype=np.int8),
        }
        settings = {"strides": [stride, stride], "pads": [0, 0, 0, 0] if has_pad_node else pads}
        nodes = []
        if form == "qlinear":
            constants |= {"w": self.weight, "b": self.bias}
            inputs = ["x", "x_scale", "x_zero", "w", "w_scale", "w_zero", "y_scale", "y_zero", "b"]
            nodes.append(helper.make_node("QLinearConv", inputs, ["y"], **settings))
        else:
            scales = (x_scale * self.w_scale).astype(np.float32)
            if form == "qdq":
                constants |= {"w": self.weight, "b": self.bias, "b_scale": scales}
                constants |= {"b_zero": np.zeros_like(self.bias)}
                nodes.append(helper.make_node("DequantizeLinear", ["b", "b_scale", "b_zero"], ["bias"], axis=0))
            else:
                constants |= {"w_real": self.weight * self.w_scale.reshape(-1, 1, 1, 1), "bias": (self.bias * scales).astype(np.float32)}
                nodes.append(helper.make_node("QuantizeLinear", ["w_real", "w_scale", "w_zero"], ["w"], axis=0))
            nodes.append(helper.make_node("DequantizeLinear", ["w", "w_scale", "w_zero"], ["weight"], axis=0))
            nodes.append(helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["real"]))
            real = "real"
            if has_pad_node:
                constants["around"] = np.array([0, 0, *pads[:2], 0, 0, *pads[2:]])
                nodes.append(helper.make_node("Pad", ["real", "around"], ["padded"]))
                nodes.append(helper.make_node("QuantizeLinear", ["padded", "x_scale", "x_zero"], ["stored"]))
                nodes.append(helper.make_node("DequantizeLinear", ["stored", "x_scale", "x_zero"], ["again"]))
                real = "again"
            nodes.append(helper.make_node("Conv", [real, "weight", "bias"], ["sums"], **settings))
            nodes.append(helper.make_node("Relu", ["sums"], ["positive"]))
            nodes.append(helper.make_node("QuantizeLinear", ["positive", "y_scale", "y_zero"], ["y"]))
        graph = helper.make_graph(
            nodes,
            "layer",
            [helper.make_tensor_value_info("x", TensorProto.INT8, self.x_shape)],
            [helper.make_tensor_value_info("y", TensorProto.INT8, self.y_shape)],
            [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        onnx.checker.check_model(model, full_check=True)
        path.write_bytes(model.SerializeToString())


def main(folder):
    for name, function, shape, how in CASES:
        model = convert(function, shape, how)
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        (place / "model.tflite").write_bytes(model)
        (place / "data.json").write_text(json.dumps(run(model, shape)) + "\n")
        if name in LAYERS:
            layer = Layer(model)
            for form in ("qdq", "dynamic", "qlinear"):
                layer.write(place / f"{form}.onnx", form, *LAYERS[name], name == "padded_int8" and form != "qlinear")
        print(name, len(model), file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
