"""Six small networks and the forms in which ONNX Runtime's optimiser and quantisers save them."""

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

OPSET = 17


class Net:
    """A graph in the making; methods return names of values."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.constants, self.count = [], [], 0

    def name(self, kind):
        self.count += 1
        return f"{kind}_{self.count}"

    def const(self, array):
        name = self.name("const")
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, *shape):
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else shape[0]
        return self.const((self.random.standard_normal(shape) / np.sqrt(fan)).astype(np.float32))

    def vector(self, count, mean=0.0, spread=0.1):
        return self.const((mean + spread * self.random.standard_normal(count)).astype(np.float32))

    def op(self, kind, *inputs, outputs=1, domain="", **attributes):
        names = [self.name(kind.lower()) for _ in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=names[0] + "_node", domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def conv(self, x, ci, co, kernel, stride=1, groups=1, bias=True):
        extra = [self.vector(co)] if bias else []
        pads = [kernel // 2] * 4
        return self.op("Conv", x, self.weight(co, ci // groups, kernel, kernel), *extra, pads=pads,
                       strides=[stride, stride], group=groups, kernel_shape=[kernel, kernel])

    def norm(self, x, channels):
        spread = self.const(self.random.uniform(0.5, 1.5, channels).astype(np.float32))
        return self.op("BatchNormalization", x, self.vector(channels, 1.0), self.vector(channels), self.vector(channels), spread)

    def linear(self, x, inputs, outputs):
        return self.op("Add", self.vector(outputs), self.op("MatMul", x, self.weight(inputs, outputs)))

    def layer_norm(self, x, width):
        """As exporters wrote it before there was an operator for it."""
        mean = self.op("ReduceMean", x, axes=[-1])
        centred = self.op("Sub", x, mean)
        variance = self.op("ReduceMean", self.op("Pow", centred, self.const(np.float32(2))), axes=[-1])
        root = self.op("Sqrt", self.op("Add", variance, self.const(np.float32(1e-5))))
        scaled = self.op("Mul", self.op("Div", centred, root), self.vector(width, 1.0))
        return self.op("Add", scaled, self.vector(width))

    def gelu(self, x):
        bent = self.op("Add", self.op("Erf", self.op("Div", x, self.const(np.float32(np.sqrt(2.0))))), self.const(np.float32(1)))
        return self.op("Mul", self.op("Mul", x, bent), self.const(np.float32(0.5)))

    def heads(self, x, batch, tokens, count, size, order):
        split = self.op("Reshape", x, self.const(np.array([0, 0, count, size], np.int64)))
        return self.op("Transpose", split, perm=order)

    def attention(self, x, width, count, tokens, mask=None):
        size = width // count
        q, k, v = (self.linear(x, width, width) for _ in range(3))
        q = self.heads(q, 1, tokens, count, size, [0, 2, 1, 3])
        k = self.heads(k, 1, tokens, count, size, [0, 2, 3, 1])
        v = self.heads(v, 1, tokens, count, size, [0, 2, 1, 3])
        scores = self.op("Div", self.op("MatMul", q, k), self.const(np.float32(np.sqrt(size))))
        if mask is not None:
            scores = self.op("Add", scores, mask)
        y = self.op("MatMul", self.op("Softmax", scores, axis=-1), v)
        y = self.op("Transpose", y, perm=[0, 2, 1, 3])
        y = self.op("Reshape", y, self.const(np.array([0, 0, width], np.int64)))
        return self.linear(y, width, width)

    def block(self, x, width, count, tokens, mask=None):
        x = self.layer_norm(self.op("Add", self.attention(x, width, count, tokens, mask), x), width)
        inner = self.linear(self.gelu(self.linear(x, width, 4 * width)), 4 * width, width)
        return self.layer_norm(self.op("Add", inner, x), width)

    def model(self, inputs, output, opset=OPSET):
        """A model of inputs (name, array) and one output."""
        def info(name, array):
            return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

        result = onnx.ValueInfoProto(name=output)
        result.type.tensor_type.elem_type = TensorProto.FLOAT
        graph = helper.make_graph(self.nodes, "net", [info(*pair) for pair in inputs.items()], [result], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
        model = onnx.shape_inference.infer_shapes(model)
        return model, inputs


def image(net, size=24):
    return net.random.standard_normal((1, 3, size, size)).astype(np.float32)


def resnet():
    net = Net(1)
    x = image(net)
    y = net.op("Relu", net.norm(net.conv("x", 3, 16, 7, 2, bias=False), 16))
    y = net.op("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for channels, stride in [(16, 1), (32, 2)]:
        before = 16
        inner = net.op("Relu", net.norm(net.conv(y, before, channels, 3, stride, bias=False), channels))
        inner = net.norm(net.conv(inner, channels, channels, 3, bias=False), channels)
        aside = y if stride == 1 else net.norm(net.conv(y, before, channels, 1, stride, bias=False), channels)
        y = net.op("Relu", net.op("Add", inner, aside))
    y = net.op("Flatten", net.op("GlobalAveragePool", y))
    return net.model({"x": x}, net.op("Gemm", y, net.weight(10, 32), net.vector(10), transB=1))


def mobilenet():
    net = Net(2)
    x = image(net)
    zero, six = net.const(np.float32(0)), net.const(np.float32(6))
    y = net.op("HardSwish", net.conv("x", 3, 16, 3, 2))
    for before, after, stride in [(16, 16, 1), (16, 24, 2)]:
        inner = net.op("Clip", net.conv(y, before, 4 * before, 1), zero, six)
        inner = net.op("Clip", net.conv(inner, 4 * before, 4 * before, 3, stride, 4 * before), zero, six)
        squeezed = net.op("Relu", net.conv(net.op("GlobalAveragePool", inner), 4 * before, 8, 1))
        squeezed = net.op("HardSigmoid", net.conv(squeezed, 8, 4 * before, 1), alpha=1 / 6, beta=0.5)
        inner = net.conv(net.op("Mul", inner, squeezed), 4 * before, after, 1)
        y = net.op("Add", y, inner) if before == after and stride == 1 else inner
    y = net.op("Reshape", net.op("GlobalAveragePool", y), net.const(np.array([0, -1], np.int64)))
    y = net.op("Relu", net.op("Gemm", y, net.weight(24, 32), net.vector(32)))
    return net.model({"x": x}, net.op("Gemm", y, net.weight(32, 10), net.vector(10)))


def detector():
    net = Net(3)
    x = image(net)
    silu = lambda y: net.op("Mul", y, net.op("Sigmoid", y))
    y = silu(net.conv("x", 3, 16, 3, 2))
    deep = silu(net.conv(y, 16, 32, 3, 2))
    pooled = net.op("Concat", deep, net.op("MaxPool", deep, kernel_shape=[5, 5], pads=[2, 2, 2, 2]), axis=1)
    deep = net.op("LeakyRelu", net.conv(pooled, 64, 16, 1), alpha=0.1)
    wide = net.op("Resize", deep, "", net.const(np.array([1, 1, 2, 2], np.float32)), mode="nearest",
                  coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    y = silu(net.conv(net.op("Concat", wide, y, axis=1), 32, 16, 3))
    y = net.op("AveragePool", y, kernel_shape=[2, 2], strides=[2, 2])
    return net.model({"x": x}, net.op("Sigmoid", net.conv(y, 16, 18, 1)))


def bert(tokens=12, width=32, count=4):
    net = Net(4)
    inputs = {
        "input_ids": net.random.integers(0, 50, (1, tokens)),
        "attention_mask": np.array([[1] * (tokens - 3) + [0] * 3]),
        "token_type_ids": net.random.integers(0, 2, (1, tokens)),
    }
    places = net.const(np.arange(tokens).reshape(1, tokens))
    words = net.op("Gather", net.weight(50, width), "input_ids")
    words = net.op("Add", words, net.op("Gather", net.weight(2, width), "token_type_ids"))
    y = net.layer_norm(net.op("Add", words, net.op("Gather", net.weight(64, width), places)), width)
    mask = net.op("Unsqueeze", "attention_mask", net.const(np.array([1, 2])))
    mask = net.op("Sub", net.const(np.float32(1)), net.op("Cast", mask, to=TensorProto.FLOAT))
    mask = net.op("Mul", mask, net.const(np.float32(-10000)))
    for _ in range(2):
        y = net.block(y, width, count, tokens, mask)
    first = net.op("Gather", y, net.const(np.int64(0)), axis=1)
    y = net.op("Tanh", net.op("Gemm", first, net.weight(width, width), net.vector(width)))
    return net.model(inputs, y)


def vit(width=32, count=4):
    net = Net(5)
    x = image(net, 32)
    y = net.op("Conv", "x", net.weight(width, 3, 8, 8), net.vector(width), strides=[8, 8], kernel_shape=[8, 8])
    y = net.op("Reshape", y, net.const(np.array([0, width, -1], np.int64)))
    y = net.op("Add", net.op("Transpose", y, perm=[0, 2, 1]), net.weight(1, 16, width))
    for _ in range(2):
        y = net.block(y, width, count, 16)
    y = net.op("ReduceMean", y, axes=[1], keepdims=0)
    return net.model({"x": x}, net.op("Gemm", y, net.weight(10, width), net.vector(10), transB=1))


def gpt(tokens=10, width=32, count=4):
    net = Net(6)
    inputs = {"input_ids": net.random.integers(0, 50, (1, tokens))}
    y = net.op("Add", net.op("Gather", net.weight(50, width), "input_ids"), net.weight(1, tokens, width))
    mask = net.const(np.triu(np.full((tokens, tokens), -1e4, np.float32), 1)[None, None])
    for _ in range(2):
        inner = net.op("LayerNormalization", y, net.vector(width, 1.0), net.vector(width), axis=-1)
        y = net.op("Add", y, net.attention(inner, width, count, tokens, mask))
        inner = net.linear(net.op("LayerNormalization", y, net.vector(width, 1.0), net.vector(width), axis=-1), width, 64)
        cubed = net.op("Mul", net.op("Pow", inner, net.const(np.float32(3))), net.const(np.float32(0.044715)))
        bent = net.op("Mul", net.op("Add", inner, cubed), net.const(np.float32(np.sqrt(2 / np.pi))))
        bent = net.op("Add", net.op("Tanh", bent), net.const(np.float32(1)))
        inner = net.op("Mul", net.op("Mul", inner, net.const(np.float32(0.5))), bent)
        y = net.op("Add", y, net.linear(inner, 64, width))
    return net.model(inputs, net.linear(y, width, 50))


NETWORKS = {"resnet": resnet, "mobilenet": mobilenet, "detector": detector, "bert": bert, "vit": vit, "gpt": gpt}


class Calibration(CalibrationDataReader):
    """The inputs of a case, once."""

    def __init__(self, inputs):
        self.left = [inputs]

    def get_next(self):
        return self.left.pop() if self.left else None


def optimised(scratch, make, level):
    model, inputs = make()
    path = scratch / "optimised.onnx"
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 3
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(path), inputs


def quantised(scratch, make, form, **types):
    model, inputs = make()
    given, path = scratch / "given.onnx", scratch / "quantised.onnx"
    onnx.save(model, given)
    quantize_static(given, path, Calibration(inputs), quant_format=form, **types)
    return onnx.load(path), inputs


def dynamic(scratch, make, extended):
    model, inputs = make()
    given, path = scratch / "given.onnx", scratch / "quantised.onnx"
    onnx.save(model, given)
    quantize_dynamic(given, path, weight_type=QuantType.QUInt8)
    return optimised(scratch, lambda: (onnx.load(path), inputs), extended) if extended else (onnx.load(path), inputs)


def half(make, keep):
    from onnxruntime.transformers.float16 import convert_float_to_float16

    model, inputs = make()
    model = convert_float_to_float16(model, keep_io_types=keep)
    if not keep:
        inputs = {name: x.astype(np.float16) if x.dtype == np.float32 else x for name, x in inputs.items()}
    return model, inputs


def four_bits(make, form):
    """Weights of products as four bits, in blocks along their rows."""
    model, inputs = make()
    graph = model.graph
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    block = 16
    for node in graph.node:
        if node.op_type != "MatMul" or node.input[1] not in weights:
            continue
        w = weights[node.input[1]]
        rows, columns = w.shape
        blocks = -(-rows // block)
        padded = np.zeros((blocks * block, columns), np.float32)
        padded[:rows] = w
        parts = padded.reshape(blocks, block, columns)
        has_zero = form == "asymmetric"
        if has_zero:
            low, high = np.minimum(parts.min(1), 0), np.maximum(parts.max(1), 0)
            scale = np.maximum((high - low) / 15, 1e-9)
            zero = np.clip(np.round(-low / scale), 0, 15)
        else:
            scale = np.maximum(np.abs(parts).max(1) / 7, 1e-9)
            zero = np.full_like(scale, 8)
        q = np.clip(np.round(parts / scale[:, None]) + zero[:, None], 0, 15).astype(np.uint8)
        name = node.input[1] + "_" + node.output[0]
        if form == "qdq":
            stored = (q.reshape(-1, columns)[:rows].astype(np.int8) - 8)
            packed = onnx.helper.make_tensor(name + "_q", TensorProto.INT4, stored.shape, stored.flatten().tolist())
            graph.initializer.append(packed)
            graph.initializer.append(numpy_helper.from_array(scale.astype(np.float32), name + "_s"))
            real = helper.make_node("DequantizeLinear", [name + "_q", name + "_s"], [name + "_w"], axis=0, block_size=block)
            graph.node.insert(0, real)
            node.input[1] = name + "_w"
            continue
        q = q.transpose(2, 0, 1)
        packed = q[:, :, 0::2] | (q[:, :, 1::2] << 4)
        graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(packed), name + "_q"))
        graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(scale.T).astype(np.float32).reshape(-1), name + "_s"))
        node.input[1] = name + "_q"
        node.input.append(name + "_s")
        if has_zero:
            zeros = zero.T.astype(np.uint8)
            if blocks % 2:
                zeros = np.concatenate([zeros, np.zeros((columns, 1), np.uint8)], 1)
            zeros = zeros[:, 0::2] | (zeros[:, 1::2] << 4)
            graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(zeros).reshape(-1), name + "_z"))
            node.input.append(name + "_z")
        node.op_type, node.domain = "MatMulNBits", "com.microsoft"
        for key, value in [("K", rows), ("N", columns), ("bits", 4), ("block_size", block)]:
            node.attribute.append(helper.make_attribute(key, value))
    if not any(node.op_type in ("MatMulNBits", "DequantizeLinear") for node in graph.node):
        raise ValueError("no MatMul has a constant matrix")
    del model.opset_import[:]
    model.opset_import.extend([helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])
    model.ir_version = 10
    for node in graph.node:
        axes = next((list(a.ints) for a in node.attribute if a.name == "axes"), None)
        if node.op_type == "ReduceMean" and axes is not None:
            kept = [a for a in node.attribute if a.name != "axes"]
            del node.attribute[:]
            node.attribute.extend(kept)
            graph.initializer.append(numpy_helper.from_array(np.array(axes), node.output[0] + "_axes"))
            node.input.append(node.output[0] + "_axes")
    return model, inputs


def cases(scratch):
    """Names of cases and what makes them: a model and its inputs."""
    levels = ort.GraphOptimizationLevel
    narrow = {"activation_type": QuantType.QInt16, "weight_type": QuantType.QInt8,
              "extra_options": {"UseQDQContribOps": True}}
    wide = {"activation_type": QuantType.QUInt16, "weight_type": QuantType.QUInt8,
            "extra_options": {"UseQDQContribOps": True}}
    for name, make in NETWORKS.items():
        yield f"extended/{name}", lambda make=make: optimised(scratch, make, levels.ORT_ENABLE_EXTENDED)
        yield f"qoperator/{name}", lambda make=make: quantised(scratch, make, QuantFormat.QOperator)
        yield f"qoperator-extended/{name}", lambda make=make: optimised(
            scratch, lambda: quantised(scratch, make, QuantFormat.QOperator), levels.ORT_ENABLE_EXTENDED)
        yield f"qdq/{name}", lambda make=make: quantised(scratch, make, QuantFormat.QDQ)
        yield f"qdq-extended/{name}", lambda make=make: optimised(
            scratch, lambda: quantised(scratch, make, QuantFormat.QDQ), levels.ORT_ENABLE_EXTENDED)
        yield f"sixteen/{name}", lambda make=make: quantised(scratch, make, QuantFormat.QDQ, **narrow)
        yield f"sixteen-unsigned/{name}", lambda make=make: quantised(scratch, make, QuantFormat.QDQ, **wide)
        yield f"dynamic/{name}", lambda make=make: dynamic(scratch, make, None)
        yield f"dynamic-extended/{name}", lambda make=make: dynamic(scratch, make, levels.ORT_ENABLE_EXTENDED)
        yield f"half/{name}", lambda make=make: half(make, keep=True)
        yield f"half-whole/{name}", lambda make=make: half(make, keep=False)
    for name in ["bert", "vit", "gpt"]:
        for form in ["symmetric", "asymmetric", "qdq"]:
            yield f"four-bits-{form}/{name}", lambda make=NETWORKS[name], form=form: four_bits(make, form)
