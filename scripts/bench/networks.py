"""The models that benchmarks name, as our programs' command lines name them."""

MINI = "bert-base-uncased:num_hidden_layers=4,hidden_size=256,num_attention_heads=4,intermediate_size=1024"


def transformer(config, *more):
    """A transformer of 128 tokens: source, name, and what else a program is told."""
    return "transformers", config, ["--sequence", "128", *more]


# Models that are none of the zoo.
TRANSFORMERS = {
    "bert-mini": transformer(MINI),
    "bert-base": transformer("bert-base-uncased"),
    "gpt-2": transformer("gpt2"),
    "gpt-2-decode": transformer("gpt2", "--phase", "decode"),
}


def network(name):
    """One of those above, or a model of the zoo."""
    return TRANSFORMERS.get(name, ("local", name, []))


def flags(name):
    """What `opcollect` is told of a model."""
    source, model, more = network(name)
    return ["--modelsource", source, "--modelname", model, *more]
