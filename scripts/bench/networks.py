"""The models that benchmarks name, as our programs' command lines name them."""

MINI = "bert-base-uncased:num_hidden_layers=4,hidden_size=256,num_attention_heads=4,intermediate_size=1024"

VIT_SMALL = "vit-base-patch16-224:hidden_size=384,num_attention_heads=6,intermediate_size=1536"


def transformer(config, *more):
    """A transformer of 128 tokens: source, name, and what else a program is told."""
    return "transformers", config, ["--sequence", "128", *more]


# Models that are none of the zoo.
TRANSFORMERS = {
    "bert-mini": transformer(MINI),
    "bert-base": transformer("bert-base-uncased"),
    "gpt-2": transformer("gpt2"),
    "gpt-2-decode": transformer("gpt2", "--phase", "decode"),
    "vit-small": ("transformers", VIT_SMALL, []),
    "swin-tiny": ("transformers", "swin-tiny-patch4-window7-224", []),
    "qwen2-6": transformer("qwen2-0.5b:num_hidden_layers=6"),
    "t5-small": transformer("t5-small"),
    "distilbert": transformer("distilbert-base-uncased"),
}


# Models by suite: those that defaults were tuned with, and others of the zoo and of shipped configurations.
SUITES = {
    "zoo": ["resnet-18", "resnet-50", "mobilenet-v2", "squeezenet", "bert-mini", "bert-base", "gpt-2", "gpt-2-decode"],
    "wild": [
        "efficientnet-b0", "mnasnet-1.0", "mobilenet-v3-small", "shufflenet-v2-x1.0", "resnext-50-32x4d", "densenet-121",
        "googlenet", "convnext-tiny", "vit-small", "swin-tiny", "qwen2-6", "t5-small", "distilbert",
    ],
}


def network(name):
    """One of those above, a file by its ending, or a model of the zoo."""
    if name.endswith(".onnx"):
        return "onnx", name, []
    return TRANSFORMERS.get(name, ("local", name, []))


def flags(name):
    """What `opcollect` is told of a model."""
    source, model, more = network(name)
    return ["--modelsource", source, "--modelname", model, *more]
