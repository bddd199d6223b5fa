#!/usr/bin/env python3
"""Writes small TFLite models with inputs and what the TFLite interpreter makes of them.

usage: tflite_cases.py FOLDER [NAME…]     (needs the packages tensorflow-cpu, tf_keras, ai-edge-litert and onnx)

Of single quantised layers it also writes what other tools make of the same layer, in ONNX: `qdq.onnx` computes in real
numbers between dequantisations and a quantisation, `dynamic.onnx` does so and quantises its weight at run time too, and
`qlinear.onnx` names the integer operator. The results are committed below models/readers/tests/tflite-cases, so the tests need
none of the packages.
"""

import json
import sys
from pathlib import Path

import flatbuffers
import numpy as np
import onnx
import tensorflow as tf
import tf_keras
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from onnx import TensorProto, helper, numpy_helper
from tensorflow.lite.python import schema_py_generated as schema

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


def norms(x):
    """Rows that are normalised; some are so short that the interpreter divides by a constant."""
    return tf.nn.l2_normalize(x * tf.constant([[[1.0], [1e-7], [0.0], [3e-6]]]), 2)


def matrices(x):
    """Products of matrices, with and without a constant side, and an attention."""
    q = tf.matmul(x, weight(6, 6)) + weight(6)
    k = tf.tensordot(x, weight(6, 6), [[2], [0]])
    scores = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) * 0.4)
    return tf.matmul(scores, x), tf.reduce_sum(q * k, 2)


def pooled(x):
    """A pool over pads that are no maximum, as exporters of PyTorch models write them, and such pads alone."""
    x = tf.nn.relu(x) - 1.0
    y = tf.pad(x, [[0, 0], [1, 1], [1, 2], [0, 0]], constant_values=-np.inf)
    return tf.nn.max_pool2d(y, 3, 2, "VALID"), tf.reduce_max(tf.pad(x, [[0, 0], [2, 0], [0, 0], [0, 0]], constant_values=-np.inf), 1) * 0.5


def others(x):
    """Operators that few networks have."""
    blocks = tf.space_to_batch_nd(x, [2, 2], [[0, 0], [1, 1]])
    rows = tf.reshape(x, [16, 16])
    return (
        blocks,
        tf.batch_to_space(tf.concat([x, x, x, x], 0), [2, 2], [[1, 0], [0, 2]]),
        tf.nn.relu(tf.minimum(x, 1.0)),
        tf.reduce_any(x > 0.9, 1),
        tf.reduce_all(x > -0.9, [1, 2]),
        tf.scatter_nd([[3], [1]], rows[:2], [5, 16]),
        tf.tensor_scatter_nd_update(rows, [[3], [1]], rows[:2]),
        tf.bitwise.bitwise_xor(tf.cast(rows * 9.0, tf.int32), tf.cast(rows * 5.0, tf.int32)),
        tf.linalg.diag(rows[0]),
        tf.nn.conv3d(tf.reshape(x, [1, 4, 4, 4, 4]), weight(2, 3, 3, 4, 5), [1, 1, 2, 1, 1], "SAME"),
        tf.pad(x, [[0, 0], [1, 2], [0, 1], [0, 0]], "SYMMETRIC"),
        tf.compat.v1.image.resize_nearest_neighbor(x, [11, 5], half_pixel_centers=True),
        tf.compat.v1.image.resize_bilinear(x, [11, 5]),
        tf.reverse_sequence(rows, [3] * 16, 1, 0) + tf.cast(tf.range(16), tf.float32),
    )


def layers(x):
    x = tf.nn.relu(tf.nn.conv2d(x, weight(3, 3, 4, 8), 1, "SAME") + weight(8))
    x = tf.nn.depthwise_conv2d(x, weight(3, 3, 8, 1), [1, 1, 1, 1], "SAME") + weight(8)
    return tf.matmul(tf.reshape(x, [8, 64]), weight(64, 32)) + weight(32)


class Network:
    """Keras layers in sequence. Keras 2 (`tf_keras`) gives LSTM operators, Keras 3 gives loops."""

    def __init__(self, keras, *layers):
        self.keras, self.layers = keras, layers

    def build(self, shape):
        x = y = self.keras.Input(shape[1:], batch_size=shape[0])
        for make in self.layers:
            y = make(self.keras.layers)(y)
        model = self.keras.Model(x, y)
        model.set_weights([floats(*weights.shape, low=-0.5, high=0.5) for weights in model.get_weights()])
        return model


LSTM_LAYERS = Network(
    tf_keras,
    lambda layers: layers.Bidirectional(layers.LSTM(4, return_sequences=True)),
    lambda layers: layers.LSTM(4, go_backwards=True),
)
# The interpreter's results for several integer LSTM layers in one graph differ from those of each layer alone.
ONE_LSTM = Network(tf_keras, lambda layers: layers.LSTM(4, return_sequences=True))
LSTM_LOOPS = Network(
    tf.keras,
    lambda layers: layers.LSTM(4, go_backwards=True, return_sequences=True),
    lambda layers: layers.LSTM(3),
)
GRU_LAYERS = Network(
    tf.keras,
    lambda layers: layers.GRU(5, return_sequences=True),
    lambda layers: layers.GRU(4, reset_after=False, go_backwards=True),
)
SIMPLE_LAYERS = Network(
    tf.keras,
    lambda layers: layers.SimpleRNN(5, return_sequences=True, go_backwards=True),
    lambda layers: layers.TimeDistributed(layers.Dense(3)),
    lambda layers: layers.SimpleRNN(4, activation="relu"),
)
# Converters store weights of at least 1024 elements in 8 bits.
WIDE_GRU = Network(tf.keras, lambda layers: layers.GRU(34, return_sequences=True), lambda layers: layers.GRU(4))
WIDE_LOOP = Network(tf.keras, lambda layers: layers.LSTM(34))
MASKED = Network(tf.keras, lambda layers: layers.Masking(), lambda layers: layers.LSTM(4), lambda layers: layers.Dense(2))
CONV_LSTM = Network(
    tf.keras,
    lambda layers: layers.ConvLSTM2D(2, 3, strides=2, padding="same", return_sequences=True),
)


def loops(x):
    """Loops in a loop, a loop without iterations, and branches whose conditions are known from a shape."""

    def outer(index, y):
        _, y = tf.while_loop(
            lambda inner, _: inner < index, lambda inner, y: (inner + 1, tf.tanh(y) + tf.cast(inner, tf.float32)), (0, y)
        )
        return index + 1, y * 0.5

    count, y = tf.while_loop(lambda index, _: index < 4, outer, (0, x))
    _, z = tf.while_loop(lambda index, _: index < 0, lambda index, z: (index + 1, z + 1.0), (0, x))
    is_wide = tf.shape(x)[1] > 3
    a = tf.cond(is_wide, lambda: tf.sin(x), lambda: x * 2.0)
    b = tf.cond(is_wide, lambda: tf.nn.relu(x), lambda: x - 1.0)
    return y, z + a + b, count


IMAGE = (1, 8, 8, 4)
SEQUENCE = (1, 4, 3)
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
    ("norms", norms, (1, 4, 6), None),
    ("matrices", matrices, (1, 4, 6), None),
    ("matrices_int8", matrices, (1, 4, 6), "int8"),
    ("pooled", pooled, IMAGE, None),
    ("infinite", pooled, IMAGE, "infinite"),
    ("others", others, IMAGE, None),
    ("layers_int16", layers, IMAGE, "int16"),
    ("layers_weights", layers, IMAGE, "weights"),
    ("layers_bias", layers, IMAGE, "bias"),
    ("layers_int4", layers, IMAGE, "int4"),
    ("layers_sparse", layers, IMAGE, "sparse"),
    ("words", layers, IMAGE, "words"),
    ("lstm_float", LSTM_LAYERS, SEQUENCE, None),
    ("lstm_half", LSTM_LAYERS, SEQUENCE, "half"),
    ("lstm_weights", LSTM_LAYERS, SEQUENCE, "lstm8"),
    ("lstm_int8", ONE_LSTM, SEQUENCE, "int8"),
    ("recurrent", wide, (2, 64), "recurrent"),
    ("lstm_batch", LSTM_LAYERS, (3, 4, 2), None),
    ("lstm_loop", LSTM_LOOPS, SEQUENCE, None),
    ("lstm_loop_weights", WIDE_LOOP, SEQUENCE, "weights"),
    ("gru", GRU_LAYERS, SEQUENCE, None),
    ("gru_half", GRU_LAYERS, SEQUENCE, "half"),
    ("gru_weights", WIDE_GRU, SEQUENCE, "weights"),
    ("simple_rnn", SIMPLE_LAYERS, SEQUENCE, None),
    ("masked_lstm", MASKED, SEQUENCE, None),
    ("conv_lstm", CONV_LSTM, (1, 3, 6, 6, 2), None),
    ("loops", loops, (2, 4), None),
]

# Strides and pads of the cases that are one layer.
LAYERS = {"one_layer_int8": (1, [1, 1, 1, 1]), "padded_int8": (2, [1, 1, 1, 1])}


def convert(function, shape, how):
    if isinstance(function, Network):
        converter = tf.lite.TFLiteConverter.from_keras_model(function.build(shape))
    else:
        # Constants are drawn while the function is traced, once.
        model = tf.Module()
        model.call = tf.function(function, input_signature=[tf.TensorSpec(shape, tf.float32, name="x")])
        concrete = model.call.get_concrete_function()
        converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], model)
    if how and how not in EDITS:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if how == "half":
        converter.target_spec.supported_types = [tf.float16]
    if how == "int16":
        converter.representative_dataset = lambda: ([floats(*shape)] for _ in range(20))
        converter.target_spec.supported_ops = [
            tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
        ]
    if how in ("int8", "uint8"):
        converter.representative_dataset = lambda: ([floats(*shape)] for _ in range(20))
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = getattr(tf, how)
        converter.inference_output_type = getattr(tf, how)
    model = converter.convert()
    return EDITS[how](model) if how in EDITS else model


def edited(edit):
    """Returns a change of a file's tables that no converter here makes."""

    def change(model):
        tables = schema.ModelT.InitFromPackedBuf(model, 0)
        edit(tables, tables.subgraphs[0])
        builder = flatbuffers.Builder(len(model))
        builder.Finish(tables.Pack(builder), b"TFL3")
        return bytes(builder.Output())

    return change


def constant(tables, tensor):
    return tables.buffers[tensor.buffer].data


def widen_biases(tables, graph):
    """Biases as [1, 1, 1, n], as some converters write them."""
    for operator in graph.operators:
        code = tables.operatorCodes[operator.opcodeIndex].builtinCode
        if code in (3, 9) and len(operator.inputs) > 2:
            tensor = graph.tensors[operator.inputs[2]]
            tensor.shape = [1, 1, 1, *tensor.shape] if code != 9 else [1, *tensor.shape]


def open_pads(tables, graph):
    """Pads of negative infinity, where the converter writes the lowest number."""
    for buffer in tables.buffers:
        if buffer.data is not None and bytes(buffer.data) == np.float32(np.finfo(np.float32).min).tobytes():
            buffer.data = np.frombuffer(np.float32(-np.inf).tobytes(), np.uint8)


def pack_int4(tables, graph):
    """Weights of dense layers in four bits, two to a byte."""
    for operator in graph.operators:
        if tables.operatorCodes[operator.opcodeIndex].builtinCode != 9:
            continue
        tensor = graph.tensors[operator.inputs[1]]
        numbers = np.frombuffer(bytes(constant(tables, tensor)), np.float32 if tensor.type == 0 else np.int8)
        scale = np.abs(numbers).max() / 7
        small = np.clip(np.round(numbers / scale), -7, 7).astype(np.int8)
        packed = (small[0::2] & 15) | ((small[1::2] & 15) << 4)
        tables.buffers[tensor.buffer].data = packed.astype(np.uint8)
        tensor.quantization = schema.QuantizationParametersT()
        tensor.quantization.scale, tensor.quantization.zeroPoint = [float(scale)], [0]
        tensor.type = schema.TensorType.INT4


def make_sparse(tables, graph):
    """Weights of dense layers with the numbers that are not zero and where they stand."""
    for operator in graph.operators:
        if tables.operatorCodes[operator.opcodeIndex].builtinCode != 9:
            continue
        tensor = graph.tensors[operator.inputs[1]]
        matrix = np.frombuffer(bytes(constant(tables, tensor)), np.float32).reshape(tensor.shape).copy()
        matrix[np.abs(matrix) < 0.3] = 0
        segments, indices, values = [0], [], []
        for row in matrix:
            places = np.flatnonzero(row)
            indices += places.tolist()
            values += row[places].tolist()
            segments.append(len(indices))
        tables.buffers[tensor.buffer].data = np.frombuffer(np.array(values, np.float32).tobytes(), np.uint8)
        rows, columns = schema.DimensionMetadataT(), schema.DimensionMetadataT()
        rows.format, rows.denseSize = 0, matrix.shape[0]
        columns.format = 1
        columns.arraySegmentsType, columns.arraySegments = 1, schema.Int32VectorT()
        columns.arraySegments.values = segments
        columns.arrayIndicesType, columns.arrayIndices = 1, schema.Int32VectorT()
        columns.arrayIndices.values = indices
        tensor.sparsity = schema.SparsityParametersT()
        tensor.sparsity.traversalOrder, tensor.sparsity.dimMetadata = [0, 1], [rows, columns]
        # Sparse tensors are made dense where they are read.
        dense = schema.TensorT()
        dense.shape, dense.type, dense.name, dense.buffer = list(tensor.shape), tensor.type, b"dense", 0
        graph.tensors.append(dense)
        code = schema.OperatorCodeT()
        code.deprecatedBuiltinCode, code.builtinCode, code.version = 124, 124, 1
        tables.operatorCodes.append(code)
        densify = schema.OperatorT()
        densify.opcodeIndex = len(tables.operatorCodes) - 1
        densify.inputs, densify.outputs = [operator.inputs[1]], [len(graph.tensors) - 1]
        operator.inputs = [operator.inputs[0], len(graph.tensors) - 1, *operator.inputs[2:]]
        graph.operators.insert(graph.operators.index(operator), densify)
        break


def look_words_up(tables, graph):
    """Only a table of embeddings, in eight bits with a scale for each row, and integers that choose rows."""
    random_table = floats(11, 6)
    scales = (np.abs(random_table).max(1) / 127).astype(np.float32)
    table = np.round(random_table / scales[:, None]).astype(np.int8)
    tables.buffers = [schema.BufferT(), schema.BufferT()]
    tables.buffers[1].data = np.frombuffer(table.tobytes(), np.uint8)
    tensors = [schema.TensorT() for _ in range(3)]
    for tensor, name, shape, kind, buffer in zip(
        tensors, (b"words", b"table", b"rows"), ([5], [11, 6], [5, 6]), (2, 9, 0), (0, 1, 0)
    ):
        tensor.name, tensor.shape, tensor.type, tensor.buffer = name, shape, kind, buffer
    tensors[1].quantization = schema.QuantizationParametersT()
    tensors[1].quantization.scale, tensors[1].quantization.zeroPoint = scales.tolist(), [0] * 11
    code = schema.OperatorCodeT()
    code.deprecatedBuiltinCode, code.builtinCode, code.version = 7, 7, 3
    tables.operatorCodes, tables.signatureDefs, tables.metadata, tables.metadataBuffer = [code], None, None, None
    operator = schema.OperatorT()
    operator.opcodeIndex, operator.inputs, operator.outputs = 0, [0, 1], [2]
    graph.tensors, graph.operators, graph.inputs, graph.outputs = tensors, [operator], [0], [2]


def store_integers(tables, graph):
    """Weights of LSTM layers in 8 bits with one scale, while the data are floats."""
    for operator in graph.operators:
        if tables.operatorCodes[operator.opcodeIndex].builtinCode != 44:
            continue
        for tensor in (graph.tensors[index] for index in operator.inputs[1:9]):
            numbers = np.frombuffer(bytes(constant(tables, tensor)), np.float32)
            scale = np.abs(numbers).max() / 127
            tables.buffers[tensor.buffer].data = np.round(numbers / scale).astype(np.int8).view(np.uint8)
            tensor.quantization = schema.QuantizationParametersT()
            tensor.quantization.scale, tensor.quantization.zeroPoint = [float(scale)], [0]
            tensor.type = schema.TensorType.INT8


def write_recurrent(tables, graph):
    """An LSTM with time first, peepholes and a projection; a plain recurrent layer after it, and one of a single step."""
    tables.buffers, tables.operatorCodes, graph.tensors, graph.operators = [schema.BufferT()], [], [], []
    tables.signatureDefs, tables.metadata, tables.metadataBuffer = None, None, None

    def value(*shape, is_variable=False):
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.type, tensor.buffer = f"t{len(graph.tensors)}".encode(), shape, 0, 0
        tensor.isVariable = is_variable
        graph.tensors.append(tensor)
        return len(graph.tensors) - 1

    def weights(*shape):
        index = value(*shape)
        graph.tensors[index].buffer = len(tables.buffers)
        tables.buffers.append(schema.BufferT())
        tables.buffers[-1].data = np.frombuffer(floats(*shape).tobytes(), np.uint8)
        return index

    def emit(number, kind, options, inputs, output):
        code, operator = schema.OperatorCodeT(), schema.OperatorT()
        code.deprecatedBuiltinCode, code.builtinCode, code.version = number, number, 1
        operator.opcodeIndex, operator.builtinOptionsType, operator.builtinOptions = len(tables.operatorCodes), kind, options
        operator.inputs, operator.outputs = inputs, [output]
        tables.operatorCodes.append(code)
        graph.operators.append(operator)
        return output

    kinds = schema.BuiltinOptions
    x, step = value(4, 2, 3), value(2, 3)
    lstm = schema.UnidirectionalSequenceLSTMOptionsT()
    lstm.fusedActivationFunction, lstm.cellClip, lstm.projClip, lstm.timeMajor = 4, 0.3, 0.2, True
    inputs = [x, *(weights(5, 3) for _ in range(4)), *(weights(5, 4) for _ in range(4)), *(weights(5) for _ in range(7))]
    inputs += [weights(4, 5), weights(4), value(2, 4, is_variable=True), value(2, 5, is_variable=True), -1, -1, -1, -1]
    y = emit(44, kinds.UnidirectionalSequenceLSTMOptions, lstm, inputs, value(4, 2, 4))
    rnn = schema.SequenceRNNOptionsT()
    rnn.timeMajor, rnn.fusedActivationFunction = True, 4
    inputs = [y, weights(5, 4), weights(5, 5), weights(5), value(2, 5, is_variable=True)]
    y = emit(35, kinds.SequenceRNNOptions, rnn, inputs, value(4, 2, 5))
    rnn = schema.RNNOptionsT()
    rnn.fusedActivationFunction = 1
    inputs = [step, weights(5, 3), weights(5, 5), weights(5), value(2, 5, is_variable=True)]
    z = emit(24, kinds.RNNOptions, rnn, inputs, value(2, 5))
    graph.inputs, graph.outputs = [x, step], [y, z]


EDITS = {how: edited(edit) for how, edit in [("bias", widen_biases), ("infinite", open_pads), ("int4", pack_int4), ("sparse", make_sparse), ("words", look_words_up), ("lstm8", store_integers), ("recurrent", write_recurrent)]}


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
        if detail["dtype"] == np.int32:
            x = (np.abs(x) * 10).round()
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


def main(folder, wanted):
    for name, function, shape, how in CASES:
        if wanted and name not in wanted:
            continue
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
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2:])
