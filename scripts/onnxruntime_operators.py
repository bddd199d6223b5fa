"""Single operators of ONNX Runtime's own domain, and a few of the standard's, in the variants that files hold."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

OWN = "com.microsoft"


class Draw:
    """Random tensors of one seed."""

    def __init__(self, seed=7):
        self.random = np.random.default_rng(seed)

    def f(self, *shape, scale=1.0):
        return (scale * self.random.standard_normal(shape)).astype(np.float32)

    def u8(self, *shape):
        return self.random.integers(0, 256, shape, np.uint8)

    def i8(self, *shape):
        return self.random.integers(-128, 128, shape).astype(np.int8)

    def scale(self, *shape):
        return self.random.uniform(0.01, 0.05, shape).astype(np.float32)


def node(kind, inputs, outputs=1, domain=OWN, version=21, constants=(), **attributes):
    """A model of one node. Inputs are arrays in order, None where one is left out; those at places of `constants` are stored."""
    names = ["" if array is None else f"x{index}" for index, array in enumerate(inputs)]
    given = {name: np.asarray(array) for name, array in zip(names, inputs) if name}
    stored = {f"x{index}" for index in constants}
    wanted = [f"y{index}" for index in range(outputs)] if isinstance(outputs, int) else outputs
    made = helper.make_node(kind, names, wanted, domain=domain, **attributes)

    def info(name):
        array = given[name]
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    graph = helper.make_graph(
        [made],
        kind,
        [info(name) for name in given if name not in stored],
        [helper.make_empty_tensor_value_info(name) for name in wanted if name],
        [numpy_helper.from_array(given[name], name) for name in given if name in stored],
    )
    opsets = [helper.make_opsetid("", version), helper.make_opsetid(OWN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return model, {name: array for name, array in given.items() if name not in stored}


def fused():
    d = Draw()
    x, w, b = d.f(1, 4, 6, 6), d.f(4, 4, 3, 3, scale=0.2), d.f(4)
    window = {"pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
    yield "FusedConv/relu", node("FusedConv", [x, w, b], activation="Relu", constants=(1, 2), **window)
    yield "FusedConv/leaky", node("FusedConv", [x, w, b], activation="LeakyRelu", activation_params=[0.2], **window)
    yield "FusedConv/clip", node("FusedConv", [x, w], activation="Clip", activation_params=[-0.5, 0.5], **window)
    yield "FusedConv/sum", node("FusedConv", [x, w, b, x], activation="Relu", **window)
    yield "FusedConv/hard", node("FusedConv", [x, w, b], activation="HardSigmoid", activation_params=[0.2, 0.4], **window)
    yield "FusedConv/tanh", node("FusedConv", [x, w, None, x], activation="Tanh", **window)
    a, c = d.f(2, 3, 4, 5), d.f(2, 3, 5, 6)
    yield "FusedMatMul/alpha", node("FusedMatMul", [a, c], alpha=0.3)
    yield "FusedMatMul/both", node("FusedMatMul", [d.f(2, 5, 4), d.f(2, 6, 5)], alpha=0.5, transA=1, transB=1)
    yield "FusedMatMul/batch_a", node("FusedMatMul", [d.f(4, 2, 3, 5), c], transBatchA=1)
    yield "FusedMatMul/batch_both", node("FusedMatMul", [d.f(5, 2, 3, 4), d.f(6, 2, 3, 5)], transBatchA=1, transA=1, transBatchB=1, transB=1)
    yield "TransposeMatMul/b", node("TransposeMatMul", [d.f(2, 4, 5), d.f(2, 6, 5)], transB=1)
    g = [d.f(3, 5), d.f(6, 5), d.f(6)]
    yield "FusedGemm/relu", node("FusedGemm", g, transB=1, activation="Relu")
    yield "FusedGemm/leaky", node("FusedGemm", g, transB=1, alpha=0.5, beta=2.0, activation="LeakyRelu", activation_alpha=0.1)
    yield "FusedGemm/elu", node("FusedGemm", g, transB=1, activation="Elu", activation_alpha=0.7)


def activations():
    d = Draw()
    x, b = d.f(2, 3, 8, scale=2.0), d.f(8)
    yield "Gelu/plain", node("Gelu", [x])
    yield "FastGelu/plain", node("FastGelu", [x])
    yield "FastGelu/bias", node("FastGelu", [x, b], constants=(1,))
    yield "BiasGelu/plain", node("BiasGelu", [x, b], constants=(1,))
    yield "QuickGelu/plain", node("QuickGelu", [x])
    yield "QuickGelu/alpha", node("QuickGelu", [x], alpha=1.0)


def norms():
    d = Draw()
    x, s, g, b = d.f(2, 3, 8), d.f(2, 3, 8), d.f(8), d.f(8)
    plain = {"domain": "", "version": 17}
    yield "LayerNormalization/plain", node("LayerNormalization", [x, g, b], epsilon=1e-5, **plain)
    yield "SimplifiedLayerNormalization/plain", node("SimplifiedLayerNormalization", [x, g], epsilon=1e-6, axis=-1, **plain)
    yield "SkipLayerNormalization/plain", node("SkipLayerNormalization", [x, s, g, b], epsilon=1e-12)
    yield "SkipLayerNormalization/bias", node("SkipLayerNormalization", [x, s, g, b, d.f(8)], ["y", "", "", "sum"], epsilon=1e-5)
    yield "SkipLayerNormalization/no_shift", node("SkipLayerNormalization", [x, s, g])
    yield "SkipLayerNormalization/broadcast", node("SkipLayerNormalization", [x, d.f(1, 3, 8), g, b])
    yield "SkipSimplifiedLayerNormalization/plain", node("SkipSimplifiedLayerNormalization", [x, s, g], ["y", "", "", "sum"], epsilon=1e-6)
    yield "SkipSimplifiedLayerNormalization/bias", node("SkipSimplifiedLayerNormalization", [x, s, g, b], epsilon=1e-6)
    ids, kinds = d.random.integers(0, 10, (2, 4)).astype(np.int32), d.random.integers(0, 2, (2, 4)).astype(np.int32)
    words, places, segments = d.f(10, 8), d.f(6, 8), d.f(2, 8)
    mask = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
    embed = [ids, kinds, words, places, segments, g, b]
    yield "EmbedLayerNormalization/plain", node("EmbedLayerNormalization", embed, ["y", ""], constants=(2, 3, 4, 5, 6))
    yield "EmbedLayerNormalization/mask", node("EmbedLayerNormalization", embed + [mask], ["y", "index"], epsilon=1e-12)
    yield "EmbedLayerNormalization/no_segments", node(
        "EmbedLayerNormalization", [ids, None, words, places, None, g, b], ["y", "", "sum"])
    turned = np.array([[3, 2, 1, 0], [0, 1, 2, 3]], np.int32)
    yield "EmbedLayerNormalization/places", node("EmbedLayerNormalization", embed + [None, turned], ["y", ""])


def attentions():
    d = Draw()
    n, s, heads, size = 2, 4, 2, 4
    width = heads * size
    x, w, b = d.f(n, s, 6), d.f(6, 3 * width, scale=0.5), d.f(3 * width)
    lengths = np.array([4, 2], np.int32)
    raw = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], np.int32)
    square = np.stack([np.tril(np.ones((s, s), np.int32))] * n)
    one = {"num_heads": heads}
    yield "Attention/plain", node("Attention", [x, w, b], **one, constants=(1, 2))
    yield "Attention/causal", node("Attention", [x, w, b], unidirectional=1, **one)
    yield "Attention/lengths", node("Attention", [x, w, b, lengths], **one)
    yield "Attention/raw_mask", node("Attention", [x, w, b, raw], **one)
    yield "Attention/raw_causal", node("Attention", [x, w, b, raw], unidirectional=1, **one)
    yield "Attention/square_mask", node("Attention", [x, w, b, square], **one)
    yield "Attention/bias", node("Attention", [x, w, b, None, None, d.f(n, heads, s, s)], scale=0.3, **one)
    yield "Attention/bias_broadcast", node("Attention", [x, w, b, raw, None, d.f(1, heads, s, s)], **one)
    past = d.f(2, n, heads, 3, size)
    yield "Attention/past", node("Attention", [x, w, b, None, past], ["y", "present"], unidirectional=1, **one)
    yield "Attention/past_mask", node("Attention", [x, w, b, np.ones((n, 7), np.int32), past], ["y", "present"], **one)
    yield "Attention/sizes", node("Attention", [x, d.f(6, 8 + 8 + 12), d.f(28)], qkv_hidden_sizes=[8, 8, 12], **one)
    q, k, v = d.f(n, s, width), d.f(n, 5, width), d.f(n, 5, width)
    yield "MultiHeadAttention/plain", node("MultiHeadAttention", [q, k, v], **one)
    yield "MultiHeadAttention/bias", node("MultiHeadAttention", [q, k, v, d.f(3 * width)], **one)
    yield "MultiHeadAttention/lengths", node("MultiHeadAttention", [q, k, v, None, np.array([5, 3], np.int32)], **one)
    padding = np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], np.int32)
    yield "MultiHeadAttention/padding", node("MultiHeadAttention", [q, k, v, None, padding], **one)
    yield "MultiHeadAttention/bias_scores", node("MultiHeadAttention", [q, k, v, None, None, d.f(1, heads, s, 5)], scale=0.7, **one)
    yield "MultiHeadAttention/cross", node("MultiHeadAttention", [q, d.f(n, heads, 5, size), d.f(n, heads, 5, size)], **one)
    pasts = [d.f(n, heads, 3, size), d.f(n, heads, 3, size)]
    yield "MultiHeadAttention/past", node(
        "MultiHeadAttention", [q, d.f(n, s, width), d.f(n, s, width), None, None, None, *pasts], ["y", "k", "v"], **one)
    yield "MultiHeadAttention/causal", node("MultiHeadAttention", [q, d.f(n, s, width), d.f(n, s, width)], unidirectional=1, **one)
    two = {"num_heads": 4, "kv_num_heads": 2}
    q, k, v = d.f(n, s, 64), d.f(n, s, 32), d.f(n, s, 32)
    full, total = np.full(n, s - 1, np.int32), np.array([s], np.int32)
    cos, sin = d.f(16, 8), d.f(16, 8)
    yield "GroupQueryAttention/plain", node("GroupQueryAttention", [q, k, v, None, None, full, total], ["y", "k", "v"], **two, constants=(6,))
    yield "GroupQueryAttention/rotary", node(
        "GroupQueryAttention", [q, k, v, None, None, full, total, cos, sin], ["y", "k", "v"], do_rotary=1, **two, constants=(6, 7, 8))
    yield "GroupQueryAttention/packed", node(
        "GroupQueryAttention", [d.f(n, s, 128), None, None, None, None, full, total, cos, sin], ["y", "k", "v"], do_rotary=1,
        rotary_interleaved=1, **two, constants=(5, 6))
    yield "GroupQueryAttention/window", node(
        "GroupQueryAttention", [q, k, v, None, None, full, total], ["y", "k", "v"], local_window_size=2, softcap=5.0, **two, constants=(5, 6))
    pasts = [d.f(n, 2, 3, 16), d.f(n, 2, 3, 16)]
    step = [d.f(n, 1, 64), d.f(n, 1, 32), d.f(n, 1, 32), *pasts, np.full(n, 3, np.int32), np.array([4], np.int32)]
    yield "GroupQueryAttention/step", node("GroupQueryAttention", [*step, cos, sin], ["y", "k", "v"], do_rotary=1, scale=0.4, **two, constants=(5, 6))
    yield "GroupQueryAttention/step_open", node("GroupQueryAttention", [*step, cos, sin], ["y", "k", "v"], do_rotary=1, **two, constants=(6,))
    x4, places = d.f(n, heads, s, 8), np.array([[0, 1, 2, 3], [2, 3, 4, 5]], np.int64)
    tables = [d.f(10, 4), d.f(10, 4)]
    yield "RotaryEmbedding/plain", node("RotaryEmbedding", [x4, places, *tables], constants=(2, 3))
    yield "RotaryEmbedding/offset", node("RotaryEmbedding", [x4, np.array([2]), *tables])
    yield "RotaryEmbedding/interleaved", node("RotaryEmbedding", [x4, places, *tables], interleaved=1)
    yield "RotaryEmbedding/flat", node("RotaryEmbedding", [d.f(n, s, 16), places, *tables])
    yield "RotaryEmbedding/partial", node(
        "RotaryEmbedding", [d.f(n, s, 32), places, *tables], num_heads=2, rotary_embedding_dim=8)


def four_bit_products():
    d = Draw()
    for name, (k, n, block, has_zero, has_bias) in {
        "symmetric": (32, 6, 16, False, False), "asymmetric": (32, 6, 16, True, False), "odd": (40, 5, 16, True, True),
    }.items():
        blocks = -(-k // block)
        packed, scales = d.u8(n, blocks, block // 2), d.scale(n * blocks)
        zeros = d.u8(n * (-(-blocks // 2))) if has_zero else None
        bias = d.f(n) if has_bias else None
        yield f"MatMulNBits/{name}", node(
            "MatMulNBits", [d.f(2, 3, k), packed, scales, zeros, None, bias], K=k, N=n, bits=4, block_size=block,
            constants=(1, 2, 3, 5))
    yield "MatMulNBits/real_zero", node(
        "MatMulNBits", [d.f(3, 32), d.u8(6, 2, 8), d.scale(12), d.f(6, 2, scale=3.0)], K=32, N=6, bits=4, block_size=16, constants=(1, 2, 3))
    yield "MatMulNBits/eight", node(
        "MatMulNBits", [d.f(3, 32), d.u8(6, 2, 16), d.scale(12)], K=32, N=6, bits=8, block_size=16, constants=(1, 2))
    ids = d.random.integers(0, 10, (2, 3))
    yield "GatherBlockQuantized/bytes", node(
        "GatherBlockQuantized", [d.u8(10, 16), ids, d.scale(10, 2)], bits=4, block_size=16, quantize_axis=1, gather_axis=0, constants=(0, 2))


def integers():
    d = Draw()
    a, b = d.u8(2, 4, 5, 5), d.u8(2, 4, 5, 5)
    s1, s2, s3 = (np.float32(x) for x in (0.02, 0.03, 0.04))
    z1, z2, z3 = (np.uint8(x) for x in (120, 100, 128))
    known = (1, 2, 4, 5, 6, 7)
    for kind in ["QLinearAdd", "QLinearMul"]:
        yield f"{kind}/plain", node(kind, [a, s1, z1, b, s2, z2, s3, z3], constants=known)
        yield f"{kind}/broadcast", node(kind, [a, s1, z1, d.u8(4, 1, 1), s2, z2, s3, z3], constants=(3, *known))
        yield f"{kind}/signed", node(
            kind, [d.i8(3, 4), s1, np.int8(3), d.i8(3, 4), s2, np.int8(-5), s3, np.int8(0)], constants=known)
    yield "QLinearConcat/plain", node("QLinearConcat", [s3, z3, a, s1, z1, b, s2, z2], axis=1, constants=(0, 1, 3, 4, 6, 7))
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    yield "QLinearAveragePool/plain", node("QLinearAveragePool", [a, s1, z1, s2, z2], constants=(1, 2, 3, 4), **pool)
    yield "QLinearAveragePool/pads", node(
        "QLinearAveragePool", [a, s1, z1, s2, z2], constants=(1, 2, 3, 4), pads=[1, 1, 1, 1], count_include_pad=1, **pool)
    yield "QLinearAveragePool/last", node("QLinearAveragePool", [a, s1, z1, s2, z2], constants=(1, 2, 3, 4), channels_last=1, **pool)
    yield "QLinearGlobalAveragePool/plain", node("QLinearGlobalAveragePool", [a, s1, z1, s2, z2], constants=(1, 2, 3, 4))
    yield "QLinearGlobalAveragePool/last", node(
        "QLinearGlobalAveragePool", [a, s1, z1, s2, z2], constants=(1, 2, 3, 4), channels_last=1)
    yield "QLinearSigmoid/plain", node("QLinearSigmoid", [a, s1, z1, np.float32(1 / 256), np.uint8(0)], constants=(1, 2, 3, 4))
    yield "QLinearLeakyRelu/plain", node("QLinearLeakyRelu", [a, s1, z1, s2, z2], alpha=0.1, constants=(1, 2, 3, 4))
    yield "QLinearSoftmax/plain", node(
        "QLinearSoftmax", [d.u8(3, 10), np.float32(0.05), z1, np.float32(1 / 256), np.uint8(0)], axis=-1, opset=13,
        constants=(1, 2, 3, 4))
    w = d.i8(6, 4, 3, 3)
    yield "QLinearConv/last", node(
        "QLinearConv", [d.u8(1, 5, 5, 4), s1, z1, w, s2, np.int8(0), s3 * 20, z3, d.random.integers(-500, 500, 6).astype(np.int32)],
        channels_last=1, pads=[1, 1, 1, 1], kernel_shape=[3, 3], constants=(1, 2, 3, 4, 5, 6, 7, 8))
    m, k, n = 3, 8, 5
    g = [d.u8(m, k), s1, z1, d.i8(n, k), s2, np.int8(0), d.random.integers(-500, 500, n).astype(np.int32)]
    yield "QGemm/integers", node("QGemm", [*g, s3 * 4, z3], transB=1, constants=(1, 2, 3, 4, 5, 6, 7, 8))
    yield "QGemm/real", node("QGemm", [*g, None, None], transB=1, constants=(1, 2, 3, 4, 5, 6))
    scales = d.scale(n)
    yield "QGemm/columns", node(
        "QGemm", [d.u8(m, k), s1, z1, d.i8(k, n), scales, np.zeros(n, np.int8), g[6], s3 * 4, z3], constants=(1, 2, 3, 4, 5, 6, 7, 8))
    yield "QGemm/alpha", node("QGemm", [*g[:6], None, s3 * 4, z3], transB=1, alpha=0.5, constants=(1, 2, 3, 4, 5, 7, 8))
    x = d.f(2, 3, k)
    yield "DynamicQuantizeMatMul/plain", node("DynamicQuantizeMatMul", [x, d.i8(k, n), np.float32([0.02])], constants=(1, 2))
    yield "DynamicQuantizeMatMul/bias", node(
        "DynamicQuantizeMatMul", [x, d.u8(k, n), np.float32([0.02]), np.uint8([120]), d.f(n)], constants=(1, 2, 3, 4))
    yield "DynamicQuantizeMatMul/columns", node(
        "DynamicQuantizeMatMul", [x, d.i8(k, n), scales, np.zeros(n, np.int8)], constants=(1, 2, 3))
    yield "MatMulIntegerToFloat/plain", node(
        "MatMulIntegerToFloat", [d.u8(2, 3, k), d.i8(k, n), s1, scales, z1, np.zeros(n, np.int8), d.f(n)], constants=(1, 2, 3, 4, 5, 6))
    yield "MatMulIntegerToFloat/open", node(
        "MatMulIntegerToFloat", [d.u8(3, k), d.u8(k, n), s1, s2, z1, z2], constants=(1, 3, 5))
    h = 4
    yield "DynamicQuantizeLSTM/plain", node(
        "DynamicQuantizeLSTM",
        [d.f(3, 1, 5), d.i8(1, 5, 4 * h), d.i8(1, h, 4 * h), d.f(1, 8 * h, scale=0.1), None, None, None, None,
         np.float32([0.01]), np.int8([0]), np.float32([0.01]), np.int8([0])],
        3, hidden_size=h, constants=(1, 2, 3, 8, 9, 10, 11))
    for kind, dtype, zero in [("int16", np.int16, 100), ("uint16", np.uint16, 30000)]:
        yield f"QuantizeLinear/{kind}", node("QuantizeLinear", [d.f(3, 4), np.float32(0.001), dtype(zero)], constants=(1, 2))
        q = d.random.integers(0, 30000, (3, 4)).astype(dtype)
        yield f"DequantizeLinear/{kind}", node("DequantizeLinear", [q, np.float32(0.001), dtype(zero)], constants=(1, 2))
    yield "DequantizeLinear/wide", node("DequantizeLinear", [d.random.integers(-9999, 9999, 5).astype(np.int32), np.float32(0.001)], domain="")
    blocked = {"domain": "", "axis": 0, "block_size": 2}
    yield "DequantizeLinear/blocks", node("DequantizeLinear", [d.i8(5, 3), d.scale(3, 3), d.i8(3, 3)], **blocked)
    yield "QuantizeLinear/blocks", node("QuantizeLinear", [d.f(5, 3), d.scale(3, 3), d.i8(3, 3)], **blocked)


def signals():
    d = Draw()
    plain = {"domain": ""}
    x, grid = d.f(2, 3, 5, 6), np.clip(d.f(2, 4, 3, 2, scale=0.6), -1.4, 1.4)
    for mode in ["linear", "nearest", "cubic"]:
        for border in ["zeros", "border", "reflection"]:
            for aligned in [0, 1]:
                yield f"GridSample/{mode}-{border}-{aligned}", node(
                    "GridSample", [x, grid], mode=mode, padding_mode=border, align_corners=aligned, **plain)
    yield "GridSample/volume", node("GridSample", [d.f(1, 2, 3, 4, 5), d.f(1, 2, 3, 4, 3, scale=0.7)], version=20, **plain)
    yield "GridSample/old", node("GridSample", [x, grid], mode="bilinear", version=16, **plain)
    boxes = np.array([[0.5, 1, 9, 8], [2, 3, 12, 14], [0, 0, 4, 4.5]], np.float32)
    at = np.array([0, 1, 0])
    image = d.f(2, 3, 8, 8)
    size = {"output_height": 3, "output_width": 2, "spatial_scale": 0.5}
    for mode in ["avg", "max"]:
        for ratio in [1, 2]:
            yield f"RoiAlign/{mode}-{ratio}", node("RoiAlign", [image, boxes, at], mode=mode, sampling_ratio=ratio, version=16, **size, **plain)
    yield "RoiAlign/output_half_pixel", node(
        "RoiAlign", [image, boxes, at], sampling_ratio=2, coordinate_transformation_mode="output_half_pixel", version=16, **size, **plain)
    theta = d.f(2, 2, 3)
    for aligned in [0, 1]:
        yield f"AffineGrid/flat-{aligned}", node("AffineGrid", [theta, np.array([2, 3, 4, 5])], align_corners=aligned, constants=(1,), **plain)
    yield "AffineGrid/volume", node("AffineGrid", [d.f(1, 3, 4), np.array([1, 2, 3, 4, 5])], constants=(1,), **plain)
    yield "Col2Im/plain", node("Col2Im", [d.f(1, 12, 12), np.array([5, 4]), np.array([2, 2])], constants=(1, 2), **plain)
    yield "Col2Im/pads", node(
        "Col2Im", [d.f(2, 12, 9), np.array([5, 5]), np.array([2, 2])], strides=[2, 2], pads=[1, 1, 0, 0], constants=(1, 2), **plain)
    signal = d.f(2, 32, 1)
    yield "DFT/real", node("DFT", [signal, None, np.array(1)], version=20, constants=(2,), **plain)
    yield "DFT/onesided", node("DFT", [signal, None, np.array(1)], onesided=1, version=20, constants=(2,), **plain)
    yield "DFT/inverse", node("DFT", [d.f(2, 10, 2), None, np.array(1)], inverse=1, version=20, constants=(2,), **plain)
    yield "DFT/length", node("DFT", [signal, np.array(20), np.array(1)], version=20, constants=(1, 2), **plain)
    yield "DFT/old", node("DFT", [d.f(2, 10, 2)], axis=1, version=17, **plain)
    window = np.hanning(8).astype(np.float32)
    yield "STFT/window", node("STFT", [signal, np.array(4), window], onesided=1, constants=(1, 2), **plain)
    yield "STFT/length", node("STFT", [signal, np.array(4), None, np.array(8)], onesided=0, constants=(1, 3), **plain)
    for kind in ["HannWindow", "HammingWindow", "BlackmanWindow"]:
        for periodic in [0, 1]:
            yield f"{kind}/{periodic}", node(kind, [np.array(9)], periodic=periodic, constants=(0,), **plain)
    yield "MelWeightMatrix/plain", node(
        "MelWeightMatrix", [np.array(8), np.array(32), np.array(8000), np.float32(0), np.float32(4000)], constants=range(5), **plain)
    yield "BatchNormalization/training", node(
        "BatchNormalization", [d.f(3, 4, 5), d.f(4), d.f(4), d.f(4), np.abs(d.f(4))], 3, training_mode=1, version=15, **plain)
    yield "ReduceMax/nothing", node("ReduceMax", [np.zeros((2, 0), np.float32), np.array([1])], constants=(1,), **plain)
    yield "MatMul/nothing", node("MatMul", [np.zeros((2, 0), np.float32), np.zeros((0, 3), np.float32)], **plain)


def cases():
    for group in [fused, activations, norms, attentions, four_bit_products, integers, signals]:
        for name, case in group():
            yield f"operators/{name}", lambda case=case: case
