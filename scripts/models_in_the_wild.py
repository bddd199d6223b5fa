"""Imports networks with random weights from several formats, and compares their results with PyTorch.

Each network is saved by `torch.export` (pt2), as TorchScript (traced), and as ONNX by both of PyTorch's exporters (dynamo, script).
`opcollect graph --onnx` imports a file and writes its graph, which ONNX Runtime runs on the inputs of the network. For ten
networks, files of ONNX Runtime's optimiser and quantisers are imported as well, and compared with ONNX Runtime's results.
Nothing is downloaded.
"""

import argparse
import collections
import hashlib
import json
import multiprocessing
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import onnx
import onnxruntime as ort
import timm
import torch
import torchvision
import transformers as hf
from torch import nn

from output_check import TOLERANCE, first_line, has_crashed, kept_results, largest_difference, unfit_reason

DOORS = ["pt2", "torchscript", "dynamo", "script"]
FORMS = ["extended", "qoperator", "qdq", "dynamic", "four-bit", "float16"]
# How long one import may take; an export may take twice as long.
SECONDS = 240
TOKENS = 12


class Answer(nn.Module):
    """The first tensor that a network of transformers answers with."""

    def __init__(self, network, argument):
        super().__init__()
        self.network, self.argument = network, argument

    def forward(self, x):
        return self.network(**{self.argument: x}, return_dict=False)[0]


class Named(nn.Module):
    """The tensor of a network that answers with a dictionary."""

    def __init__(self, network, key):
        super().__init__()
        self.network, self.key = network, key

    def forward(self, x):
        return self.network(x)[self.key]


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.words, self.layer, self.head = nn.Embedding(40, 16), kind(16, 12, 2, batch_first=True), nn.Linear(12, 5)

    def forward(self, x):
        return self.head(self.layer(self.words(x))[0][:, -1])


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        block = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(True))
        self.a, self.b, self.c = block(3, 8), block(8, 16), block(24, 8)
        self.up, self.head = nn.ConvTranspose2d(16, 16, 2, 2), nn.Conv2d(8, 2, 1)

    def forward(self, x):
        a = self.a(x)
        b = self.up(self.b(nn.functional.max_pool2d(a, 2)))
        return self.head(self.c(torch.cat([a, b], 1)))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.joint, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.joint(x).view(b, n, 3, 4, c // 4).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q @ k.transpose(-2, -1)) * (c // 4) ** -0.5
        scores = scores.masked_fill(torch.ones(n, n).tril() == 0, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))


class Points(nn.Module):
    def __init__(self):
        super().__init__()
        self.each, self.head = nn.Sequential(nn.Conv1d(3, 16, 1), nn.ReLU(), nn.Conv1d(16, 32, 1)), nn.Linear(32, 4)

    def forward(self, x):
        return self.head(self.each(x).max(-1)[0])


def image(size):
    return another(torch.zeros(1, 3, size, size))


def vision():
    sizes = {"inception_v3": 96, "googlenet": 96, "swin_t": 224, "swin_v2_t": 256, "maxvit_t": 224, "vit_b_32": 224}
    names = """resnet18 mobilenet_v2 squeezenet1_1 shufflenet_v2_x0_5 mobilenet_v3_small efficientnet_b0 mnasnet0_5 regnet_y_400mf
        regnet_x_400mf densenet121 convnext_tiny googlenet inception_v3 resnext50_32x4d wide_resnet50_2 efficientnet_v2_s alexnet
        vgg11_bn swin_t swin_v2_t maxvit_t vit_b_32""".split()
    for name in names:
        options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        yield name, lambda name=name, options=options: (
            getattr(torchvision.models, name)(weights=None, **options), image(sizes.get(name, 64)))
    for name in ["deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large", "fcn_resnet50"]:
        yield name, lambda name=name: (Named(getattr(torchvision.models.segmentation, name)(
            weights=None, weights_backbone=None), "out"), image(64))
    for name in ["r3d_18", "mc3_18", "r2plus1d_18"]:
        yield name, lambda name=name: (getattr(torchvision.models.video, name)(weights=None), torch.randn(1, 3, 4, 32, 32))


def of_timm():
    names = """mobilenetv3_small_050 lcnet_050 resnet10t vit_tiny_patch16_224 convnext_atto mixer_s32_224 edgenext_xx_small
        mobilevit_xxs convnextv2_atto repvit_m0_9 mobilenetv4_conv_small efficientnet_lite0 tf_efficientnetv2_b0 ghostnet_100
        ghostnetv2_100 tinynet_e mnasnet_small fbnetc_100 hardcorenas_a rexnet_100 regnety_002 regnetx_002 resnest14d
        res2net50_26w_4s skresnet18 legacy_seresnet18 ecaresnet26t xcit_nano_12_p16_224 deit_tiny_patch16_224
        vit_small_patch32_224 cait_xxs24_224 pit_ti_224 levit_128s convit_tiny tnt_s_patch16_224 swin_s3_tiny_224
        swinv2_cr_tiny_ns_224 coat_lite_tiny coatnet_nano_rw_224 maxvit_rmlp_pico_rw_256 crossvit_tiny_240 gmlp_ti16_224
        resmlp_12_224 poolformer_s12 poolformerv2_s12 mobilevitv2_050 efficientformer_l1 efficientformerv2_s0 fastvit_t8 repvgg_a0
        mobileone_s0 hgnetv2_b0 focalnet_tiny_srf davit_tiny nest_tiny twins_svt_small pvt_v2_b0 visformer_tiny volo_d1_224
        eva02_tiny_patch14_224 hiera_tiny_224 tiny_vit_5m_224 efficientvit_b0 efficientvit_m0 inception_next_atto starnet_s1
        mambaout_femto dla34 dpn48b selecsls42 ese_vovnet19b_slim hrnet_w18_small cspresnet50 darknet17 nf_regnet_b0
        sequencer2d_s gcresnext26ts halonet26t lambda_resnet26t botnet26t_256""".split()
    for name in names:
        def make(name=name):
            network = timm.create_model(name, pretrained=False)
            sizes = network.default_cfg
            size = sizes["input_size"][-1] if sizes.get("fixed_input_size") or re.search(r"_(\d{3})$|efficientv|halonet", name) else 64
            return network, image(size)
        yield name, make


def of_transformers():
    tiny = dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                max_position_embeddings=64, num_key_value_heads=2, head_dim=8, use_cache=False, pad_token_id=0)
    text = """Bert GPT2 Llama Roberta DistilBert Albert Electra MPNet Deberta DebertaV2 XLMRoberta ConvBert RoFormer GPTNeo GPTNeoX
        GPTJ OPT Bloom Mistral Qwen2 Qwen3 Qwen3Moe Mixtral Gemma Gemma2 Gemma3Text Phi Phi3 StableLm Falcon Cohere Olmo2 Granite
        SmolLM3 Starcoder2 ModernBert""".split()
    more = {
        "GPT2": dict(n_embd=32, n_layer=2, n_head=4, n_positions=64),
        "DistilBert": dict(dim=32, n_layers=2, n_heads=4, hidden_dim=64),
        "GPTNeo": dict(num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]]),
        "GPTJ": dict(n_embd=32, n_layer=2, n_head=4, n_positions=64, rotary_dim=4),
        "OPT": dict(ffn_dim=64, word_embed_proj_dim=32),
        "Bloom": dict(n_layer=2, n_head=4),
        "Albert": dict(embedding_size=16),
        "Qwen3Moe": dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16),
        "Mixtral": dict(num_local_experts=4, num_experts_per_tok=2),
    }
    for name in text:
        def make(name=name):
            config = getattr(hf, f"{name}Config")(**{
                key: value for key, value in (tiny | more.get(name, {})).items() if (name, key) != ("Falcon", "head_dim")})
            config._attn_implementation = "eager"
            network = getattr(hf, f"{name}Model")(config)
            return Answer(network, "input_ids"), torch.randint(1, 99, (1, TOKENS))
        yield name, make
    seen = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32, patch_size=8)
    for name in ["ViT", "DeiT", "Dinov2", "Beit", "CLIPVision", "SiglipVision"]:
        def make(name=name):
            config = getattr(hf, f"{name}Config")(**seen)
            config._attn_implementation = "eager"
            return Answer(getattr(hf, f"{name}Model")(config), "pixel_values"), image(32)
        yield name, make
    sound = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, num_conv_pos_embeddings=16,
                 num_conv_pos_embedding_groups=4, conv_dim=(16, 16), conv_stride=(5, 2), conv_kernel=(10, 3),
                 num_feat_extract_layers=2)
    for name in ["Wav2Vec2", "Hubert"]:
        yield name, lambda name=name: (
            Answer(getattr(hf, f"{name}Model")(getattr(hf, f"{name}Config")(**sound)), "input_values"), torch.randn(1, 800))
    yield "T5Encoder", lambda: (Answer(hf.T5EncoderModel(hf.T5Config(
        vocab_size=99, d_model=32, num_layers=2, num_heads=4, d_kv=8, d_ff=64)), "input_ids"), torch.randint(1, 99, (1, TOKENS)))


def plain():
    tokens = torch.randint(0, 40, (2, 7))
    yield "mlp", lambda: (nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)), torch.randn(3, 16))
    yield "unet", lambda: (Unet(), image(16))
    yield "attention", lambda: (Attention(), torch.randn(2, 6, 32))
    yield "lstm", lambda: (Recurrent(nn.LSTM), tokens)
    yield "gru", lambda: (Recurrent(nn.GRU), tokens)
    yield "encoder", lambda: (nn.TransformerEncoder(
        nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2, enable_nested_tensor=False), torch.randn(2, 6, 32))
    yield "points", lambda: (Points(), torch.randn(2, 3, 20))
    yield "rnn", lambda: (Recurrent(nn.RNN), tokens)
    yield "decoder", lambda: (nn.Sequential(nn.ConvTranspose2d(8, 8, 4, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Upsample(
        scale_factor=2, mode="bilinear"), nn.Conv2d(8, 3, 3, padding=1), nn.Tanh()), torch.randn(1, 8, 6, 6))
    yield "dilated", lambda: (nn.Sequential(nn.Conv1d(4, 8, 3, padding=2, dilation=2), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv1d(
        8, 4, 3, padding="same")), torch.randn(2, 4, 15))


FAMILIES = {"torchvision": vision, "timm": of_timm, "transformers": of_transformers, "plain": plain}
QUICK = """resnet18 mobilenet_v2 squeezenet1_1 shufflenet_v2_x0_5 mobilenet_v3_small mobilenetv3_small_050 lcnet_050 resnet10t
    convnext_atto mixer_s32_224 Bert GPT2 Llama ViT mlp unet attention lstm encoder points""".split()
QUICK_DOORS = ["pt2", "torchscript"]
IN_FORMS = ["resnet18", "mobilenet_v2", "squeezenet1_1", "resnet10t", "convnext_atto", "Bert", "GPT2", "ViT", "mlp", "unet"]


def flat(answer):
    if isinstance(answer, torch.Tensor):
        return [answer]
    parts = answer.values() if isinstance(answer, dict) else answer
    return [tensor for part in parts if part is not None for tensor in flat(part)]


def save(door, network, x, path):
    if door == "pt2":
        torch.export.save(torch.export.export(network, (x,), strict=False), path)
    elif door == "torchscript":
        torch.jit.trace(network, (x,), check_trace=False, strict=False).save(path)
    else:
        torch.onnx.export(network, (x,), path, dynamo=door == "dynamo", external_data=False, verbose=False)


def imported(program, path, folder):
    """The graph that a file holds as an ONNX file, or why there is none, and whether the program crashed."""
    source = "onnx" if path.suffix == ".onnx" else "torch"
    out = folder / "imported.onnx"
    out.unlink(missing_ok=True)
    command = [program, "graph", "--modelsource", source, "--modelname", str(path), "--onnx", str(out)]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return None, f"takes more than {SECONDS} seconds", False
    if ran.returncode == 0 and out.exists():
        return out, None, False
    lines = [line for line in ran.stderr.splitlines() if line.startswith(("error:", "caused"))] or ran.stderr.splitlines()[-1:]
    why = " ".join(lines).replace(str(path), "x").strip() or f"exit code {ran.returncode}"
    return None, why, has_crashed(ran.returncode, ran.stderr)


def answers_of(path, given):
    """What ONNX Runtime makes of a file, given tensors in the order of its inputs."""
    levels = ort.GraphOptimizationLevel
    try:
        session = session_of(path, levels.ORT_ENABLE_ALL)
    except Exception:
        # Its optimiser merges some operators into others that it then refuses.
        session = session_of(path, levels.ORT_DISABLE_ALL)
    return session.run(None, dict(zip((one.name for one in session.get_inputs()), given)))


def session_of(path, level):
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads, options.graph_optimization_level = 3, 1, level
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def reason_not_run(path, given):
    """Why ONNX Runtime does not run a file, or nothing."""
    try:
        answers_of(path, given)
    except Exception as error:
        return first_line(error, repr(error))[:200]


def check(program, path, folder, given, expected):
    out, why, crashed = imported(program, path, folder)
    if crashed:
        return "crashed", why
    if why:
        # Only the file that the graph is written to lacks the operator; the import is complete.
        return ("not compared" if "this model has no ONNX representation" in why else "refused"), why
    try:
        found = answers_of(out, given)
    except Exception as error:
        return "not compared", first_line(error, repr(error))[:400]
    worst = largest_difference(found, expected)
    return ("right" if worst <= TOLERANCE else "wrong"), f"{worst:.1e}"


def forms(network, x, folder):
    """The forms of a network that ONNX Runtime's optimiser and quantisers write, and what it makes of each."""
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    import onnxruntime_networks as made

    base = folder / "base.onnx"
    torch.onnx.export(network, (x,), base, dynamo=True, external_data=False, verbose=False, input_names=["x"])

    def make():
        # ONNX Runtime's quantiser turns weights around and keeps the shapes that the file states for them.
        model = onnx.load(base)
        del model.graph.value_info[:]
        return model, {"x": x.numpy()}

    levels = ort.GraphOptimizationLevel
    writers = {
        "extended": lambda: made.optimised(folder, make, levels.ORT_ENABLE_EXTENDED),
        "qoperator": lambda: made.quantised(folder, make, made.QuantFormat.QOperator),
        "qdq": lambda: made.quantised(folder, make, made.QuantFormat.QDQ),
        "dynamic": lambda: made.dynamic(folder, make, None),
        "four-bit": lambda: made.four_bits(make, "symmetric"),
        "float16": lambda: made.half(make, True),
    }
    for form, write in writers.items():
        try:
            model, inputs = write()
            path = folder / f"{form}.onnx"
            onnx.save(model, path)
            yield form, path, answers_of(path, list(inputs.values()))
        except Exception as error:
            yield form, None, first_line(error, repr(error))[:200]


def randomise(network, x):
    """Gives random values to parameters that are all equal, and sets batch normalisations to statistics of random inputs.

    Networks start with factors of zero or 1e-6 for whole branches. With statistics other than those of the layers' own inputs, the
    signal vanishes from layer to layer. Either would hide errors, because results of the layers would not reach the output.
    """
    for name, parameter in network.named_parameters():
        if parameter.numel() > 1 and parameter.is_floating_point() and parameter.min() == parameter.max():
            summed = parameter[0].numel()
            if parameter.max() == 0 and not re.search("weight|gamma|scale", name):
                parameter.uniform_(-0.02, 0.02)
            elif name.endswith("weight") and summed > 1:
                parameter.normal_(0, summed**-0.5)
            else:
                parameter.uniform_(0.5, 1.5)
    norms = [module for module in network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    if norms:
        momenta = [module.momentum for module in norms]
        for module in norms:
            module.momentum = 1.0
            module.train()
        network(torch.cat([x] + [another(x) for _ in range(3)]))
        for module, momentum in zip(norms, momenta):
            module.momentum = momentum
            module.eval()


def another(x):
    """A random input of the same shape and type; averages over its places depend on it, too."""
    if not x.is_floating_point():
        return torch.randint_like(x, 1, 40)
    return torch.randn_like(x) + torch.randn(x.shape[:2] + (1,) * (x.dim() - 2))


def of_network(arguments, name, make, pipe):
    """All results of one network: door, verdict, and the difference or the reason."""
    warnings.filterwarnings("ignore")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    torch.manual_seed(sum(name.encode()))
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        folder = pathlib.Path(folder)
        try:
            network, x = make()
            network = network.eval()
            randomise(network, x)
            expected, moved = ([tensor.numpy() for tensor in flat(network(given))] for given in (x, another(x)))
        except Exception as error:
            pipe.send(("network", "not built", first_line(error, repr(error))[:200]))
            return
        if why := unfit_reason(expected, moved):
            pipe.send(("network", "unfit", why))
            return
        for door in arguments.doors:
            path = folder / {"pt2": "x.pt2", "torchscript": "x.pt"}.get(door, "x.onnx")
            try:
                save(door, network, x, path)
            except Exception as error:
                pipe.send((door, "not exported", first_line(error, repr(error))[:200]))
                continue
            verdict, detail = check(arguments.program, path, folder, [x.numpy()], expected)
            if verdict == "refused" and path.suffix == ".onnx" and (why := reason_not_run(path, [x.numpy()])):
                verdict, detail = "not exported", f"ONNX Runtime refuses the file, too: {why}"
            pipe.send((door, verdict, detail))
            path.unlink()
        if name in IN_FORMS and arguments.forms:
            for form, path, answers in forms(network, x, folder):
                if path is None:
                    pipe.send((form, "not exported", answers))
                    continue
                if why := unfit_reason(answers):
                    pipe.send((form, "unfit", why))
                    continue
                pipe.send((form, *check(arguments.program, path, folder, [x.numpy()], answers)))


def results_of(arguments, name, make):
    """Runs a network in a process of its own, which may crash or take too long, unless its results are there."""
    if name in arguments.known:
        return arguments.known[name]
    results = run_apart(arguments, name, make)
    if arguments.results:
        with arguments.results.open("a") as file:
            file.write(json.dumps({"key": arguments.key, "name": name, "results": results}) + "\n")
    return results


def run_apart(arguments, name, make):
    receiver, sender = multiprocessing.Pipe(False)
    child = multiprocessing.get_context("fork").Process(target=of_network, args=(arguments, name, make, sender))
    child.start()
    sender.close()
    results, waited = [], 0
    # Longer than one import may take, which ends by itself.
    while waited < 2 * SECONDS and (receiver.poll(1) or child.is_alive()):
        try:
            if receiver.poll(0):
                results.append(receiver.recv())
                waited = 0
            else:
                waited += 1
        except EOFError:
            break
    if child.is_alive() and waited >= 2 * SECONDS:
        results.append(("network", "not built", "it took too long"))
    child.kill()
    child.join()
    if child.exitcode > 0 or (child.exitcode < 0 and child.exitcode != -signal.SIGKILL):
        results.append(("network", "not built", f"its process ended with {child.exitcode}"))
    return results or [("network", "not built", "its process ended, or took too long")]


def reason_of(text):
    """A refusal without the names of one network."""
    listed = re.search(r"no rule for ((?:`[^`]+` \(\d+\)(?:, )?)+)", text)
    if listed:
        return "no rule for " + ", ".join(re.findall(r"`([^`]+)` \(", listed[1]))
    node = re.search(r"\(`([\w.:]+)`\): (.*)", text)
    return (f"{node[1]}: {node[2]}" if node else text)[:160]


def cell(text):
    """Text that stands in one cell of a table."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def table(arguments, all_results):
    """The lines of a report."""
    counts = collections.defaultdict(collections.Counter)
    refusals, exporters, worst = collections.Counter(), collections.Counter(), collections.Counter()
    for name, results in all_results.items():
        for door, verdict, detail in results:
            counts[door][verdict] += 1
            if verdict in ("refused", "wrong", "not compared", "crashed", "unfit"):
                refusals[(reason_of(detail) if verdict != "wrong" else f"wrong by {detail}: {name}", door, verdict)] += 1
            if verdict == "not exported":
                exporters[(re.sub(r"\x1b\[[0-9;]*m", "", detail)[:160].strip(), door)] += 1
            if verdict == "right":
                worst[door] = max(worst[door], float(detail))
    lines = ["# Models in the wild", "", "Written by `scripts/models-in-the-wild`; do not edit.", "", f"Versions: {versions()}.", ""]
    built = {name for name, results in all_results.items() if all(door != "network" for door, _, _ in results)}
    subset = "The subset of --quick: two formats, without ONNX. " if arguments.quick else ""
    listed = [name for names in arguments.families.values() for name in names]
    lines += [f"{subset}{len(built)} of the {len(listed)} networks of the list, with random weights. A file counts as right if its "
              "graph, written as ONNX and run by ONNX Runtime, has the outputs that PyTorch computes, with differences of at most "
              f"{TOLERANCE:g} of the largest absolute value of an output; integers must be equal. Forms of ONNX Runtime are compared "
              "with ONNX Runtime on the same file, within the same tolerance. Outputs of the networks are checked to be finite and "
              "not constant.", ""]
    lines += ["| format | files | imported | right | wrong | not compared | refused | crashed | largest difference |", "|---|---|---|---|---|---|---|---|---|"]
    for door in [door for door in DOORS + FORMS if door in counts]:
        of = counts[door]
        failed = of["refused"] + of["crashed"]
        count = of["right"] + of["wrong"] + of["not compared"] + failed
        share = (count - failed) / count if count else 0
        cells = [door, count, f"{share:.1%}", of["right"], of["wrong"], of["not compared"], of["refused"], of["crashed"]]
        lines.append("| " + " | ".join(map(str, cells)) + f" | {worst[door]:.0e} |")
    if exporters:
        lines += ["", "Not exported:", "", "| n | format | why |", "|---|---|---|"]
        lines += [f"| {count} | {door} | {cell(reason)} |" for (reason, door), count in exporters.most_common(40)]
    if len(built) < len(all_results):
        lines += ["", f"Not built in this environment: {', '.join(name for name in all_results if name not in built)}."]
    left = [name for name in listed if name not in all_results]
    if left and not arguments.quick:
        lines += ["", f"Not run: {', '.join(left)}."]
    if refusals:
        lines += ["", "## What is left", "", "| n | format | verdict | reason |", "|---|---|---|---|"]
        for (reason, door, verdict), count in refusals.most_common(40):
            lines.append(f"| {count} | {door} | {verdict} | {cell(reason)} |")
    lines += ["", "## Networks", ""]
    for family, names in arguments.families.items():
        seen = [name for name in names if name in built]
        if seen:
            lines.append(f"- {family}: {', '.join(seen)}")
    return lines


def wrapped(lines):
    """Lines of prose of at most 100 characters."""
    import textwrap

    for line in lines:
        yield from [line] if line.startswith(("|", "#")) or not line else textwrap.wrap(
            line, 100, subsequent_indent="  " if line.startswith("- ") else "", break_long_words=False)


def versions():
    return ", ".join(f"{module.__name__} {module.__version__}" for module in (torch, torchvision, timm, hf, onnx, ort))


def key_of(arguments):
    """Identifies what results depend on: the program, these scripts, the packages and what is asked for."""
    digest = hashlib.sha256()
    folder = pathlib.Path(__file__).parent
    for path in [arguments.program, __file__, folder / "output_check.py", folder / "onnxruntime_networks.py"]:
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    digest.update(json.dumps([versions(), arguments.doors, arguments.forms]).encode())
    return digest.hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="the program opcollect")
    parser.add_argument("--quick", action="store_true", help="20 networks in two formats")
    parser.add_argument("--networks", type=lambda text: text.split(","), help="names, separated by commas")
    parser.add_argument("--doors", type=lambda text: text.split(","), default=None, help=f"of {', '.join(DOORS)}")
    parser.add_argument("--forms", action=argparse.BooleanOptionalAction, default=None, help="forms of ONNX Runtime")
    parser.add_argument("--table", type=pathlib.Path, help="where the report goes")
    parser.add_argument("--results", type=pathlib.Path, help="where results of networks are kept and taken from, for runs in pieces")
    parser.add_argument("--at-least", type=float, default=0.0, help="the share that must be imported")
    arguments = parser.parse_args()
    arguments.doors = arguments.doors or (QUICK_DOORS if arguments.quick else DOORS)
    arguments.forms = not arguments.quick if arguments.forms is None else arguments.forms
    kept = arguments.results.read_text().splitlines() if arguments.results and arguments.results.exists() else []
    arguments.key = key_of(arguments)
    arguments.known = kept_results(kept, arguments.key)
    torch.set_num_threads(1)
    if not torch.cuda.is_available():
        # Without a driver the call of PyTorch crashes, and transformers asks before most text networks.
        torch.cuda.is_current_stream_capturing = lambda: False
    makers = {family: dict(list_networks()) for family, list_networks in FAMILIES.items()}
    arguments.families = {family: list(of_family) for family, of_family in makers.items()}
    wanted = arguments.networks or (QUICK if arguments.quick else None)
    all_results, verdicts = {}, collections.Counter()
    for of_family in makers.values():
        for name, make in of_family.items():
            if wanted and name not in wanted:
                continue
            all_results[name] = results_of(arguments, name, make)
            for door, verdict, detail in all_results[name]:
                print(f"{name:32} {door:12} {verdict:12} {detail}", flush=True)
                verdicts[verdict] += 1
    lines = list(wrapped(table(arguments, all_results)))
    print("\n".join(lines))
    if arguments.table:
        arguments.table.write_text("\n".join(lines) + "\n")
    failed = verdicts["refused"] + verdicts["crashed"]
    files = verdicts["right"] + verdicts["wrong"] + verdicts["not compared"] + failed
    share = (files - failed) / files if files else 0.0
    if verdicts["wrong"] or verdicts["crashed"] or verdicts["unfit"] or share < arguments.at_least:
        sys.exit(f"error: {verdicts['wrong']} files are wrong, {verdicts['crashed']} crash the program, {verdicts['unfit']} outputs "
                 f"test nothing, {share:.1%} imported, {arguments.at_least:.1%} are asked for")


if __name__ == "__main__":
    main()
