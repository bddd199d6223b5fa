"""Writes tiny transformers with random weights, and the results of the published library for them.

Usage: transformer_cases.py OUT [FAMILY…], with torch, transformers and safetensors installed. Each family gets a folder with its
configuration and weights, like published models but small, and a file per phase with the input tensors (by the name of the input)
and the output tensors (`output.0` and so on). Weights in the files have 16 bits, to keep them small; all computations use 32 bits.
"""

import json
import sys
from pathlib import Path

import torch
import transformers as hf
from safetensors.torch import load_file, save_file

BATCH, LENGTH = 2, 5
TEXT = dict(vocab_size=19, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12)
ROTARY = dict(TEXT, hidden_size=16, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32)
IMAGE = dict(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12, image_size=8, patch_size=4)


def encoders():
    places = dict(max_position_embeddings=12)
    yield "bert", hf.BertModel, hf.BertConfig(**TEXT, **places)
    yield "roberta", hf.RobertaModel, hf.RobertaConfig(**TEXT, **places, type_vocab_size=1)
    yield "electra", hf.ElectraModel, hf.ElectraConfig(**TEXT, **places, embedding_size=6)
    yield "albert", hf.AlbertModel, hf.AlbertConfig(**TEXT, **places, embedding_size=6)
    distilled = dict(vocab_size=19, dim=8, n_layers=2, n_heads=2, hidden_dim=12, max_position_embeddings=12)
    yield "distilbert", hf.DistilBertModel, hf.DistilBertConfig(**distilled)


def decoders():
    yield "gpt2", hf.GPT2LMHeadModel, hf.GPT2Config(vocab_size=19, n_embd=8, n_layer=2, n_head=2, n_positions=12)
    neo = dict(vocab_size=19, hidden_size=8, num_layers=2, num_heads=2, max_position_embeddings=12, window_size=3)
    yield "gpt_neo", hf.GPTNeoForCausalLM, hf.GPTNeoConfig(**neo, attention_types=[[["global", "local"], 1]])
    wide = dict(TEXT, hidden_size=16)
    yield "gpt_neox", hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig(**wide, rotary_pct=0.5)
    yield "phi", hf.PhiForCausalLM, hf.PhiConfig(**wide)
    opt = dict(vocab_size=19, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, ffn_dim=12)
    yield "opt", hf.OPTForCausalLM, hf.OPTConfig(**opt, max_position_embeddings=12, word_embed_proj_dim=6)
    yield "llama", hf.LlamaForCausalLM, hf.LlamaConfig(**ROTARY)
    bent = dict(rope_type="llama3", rope_theta=100.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                original_max_position_embeddings=16)
    yield "llama3", hf.LlamaForCausalLM, hf.LlamaConfig(**ROTARY, tie_word_embeddings=True, rope_parameters=bent)
    yield "mistral", hf.MistralForCausalLM, hf.MistralConfig(**ROTARY, sliding_window=3)
    yield "qwen2", hf.Qwen2ForCausalLM, hf.Qwen2Config(**ROTARY, tie_word_embeddings=True)
    yield "qwen3", hf.Qwen3ForCausalLM, hf.Qwen3Config(**ROTARY, head_dim=6)
    yield "gemma", hf.GemmaForCausalLM, hf.GemmaConfig(**ROTARY, head_dim=6)
    yield "phi3", hf.Phi3ForCausalLM, hf.Phi3Config(**ROTARY, pad_token_id=0)


def pairs():
    t5 = dict(vocab_size=19, d_model=8, num_layers=2, num_heads=2, d_kv=6, d_ff=12, relative_attention_num_buckets=8,
              relative_attention_max_distance=8)
    yield "t5", hf.T5ForConditionalGeneration, hf.T5Config(**t5)
    gated = hf.T5Config(**t5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    yield "t5_gated", hf.T5ForConditionalGeneration, gated
    bart = dict(vocab_size=19, d_model=8, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
                decoder_attention_heads=2, encoder_ffn_dim=12, decoder_ffn_dim=12, max_position_embeddings=12)
    yield "bart", hf.BartForConditionalGeneration, hf.BartConfig(**bart)
    heard = dict(vocab_size=19, d_model=8, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
                 decoder_attention_heads=2, encoder_ffn_dim=12, decoder_ffn_dim=12, num_mel_bins=4,
                 max_source_positions=6, max_target_positions=12, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                 decoder_start_token_id=1)
    yield "whisper", hf.WhisperForConditionalGeneration, hf.WhisperConfig(**heard)


def viewers():
    yield "vit", hf.ViTModel, hf.ViTConfig(**IMAGE)
    yield "deit", hf.DeiTModel, hf.DeiTConfig(**IMAGE)
    yield "clip_vision_model", hf.CLIPVisionModel, hf.CLIPVisionConfig(**IMAGE)
    swin = dict(image_size=32, patch_size=4, embed_dim=4, depths=[2, 2], num_heads=[1, 2], window_size=2, mlp_ratio=2.0)
    yield "swin", hf.SwinModel, hf.SwinConfig(**swin)


def readers():
    yield "clip_text_model", hf.CLIPTextModel, hf.CLIPTextConfig(**TEXT, max_position_embeddings=12, eos_token_id=18)


def fill(model, generator):
    """Weights large enough that a mistake shows, rounded to what the file will hold."""
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() < 2:
            values = 0.1 * noise + (1.0 if name.endswith("weight") and "bias" not in name else 0.0)
        else:
            values = noise * (1.5 / parameter[0].numel() ** 0.5)
        parameter.data = values.bfloat16().float()


def narrow(path):
    tensors = {name: tensor.bfloat16() if tensor.is_floating_point() else tensor for name, tensor in load_file(path).items()}
    save_file(tensors, path)


def write(path, inputs, outputs):
    tensors = {name: tensor.contiguous().clone() for name, tensor in inputs.items()}
    tensors |= {f"output.{index}": tensor.contiguous().clone() for index, tensor in enumerate(outputs)}
    save_file(tensors, path)


def tokens(generator, vocabulary=19, length=LENGTH):
    return torch.randint(3, vocabulary - 1, (BATCH, length), generator=generator)


def kept(cache, layer):
    layer = cache.layers[layer]
    return [layer.keys.clone(), layer.values.clone()]


def encode(folder, model, generator):
    inputs = dict(input_ids=tokens(generator))
    if isinstance(model, hf.CLIPTextModel):
        inputs["input_ids"][:, 3] = model.config.eos_token_id
    named = dict(tokens=inputs["input_ids"])
    if getattr(model.config, "type_vocab_size", 1) > 1 and not isinstance(model, hf.DistilBertModel):
        inputs["token_type_ids"] = torch.randint(0, 2, (BATCH, LENGTH), generator=generator)
        named["token_types"] = inputs["token_type_ids"]
    answer = model(**inputs)
    outputs = [answer.last_hidden_state]
    if getattr(answer, "pooler_output", None) is not None:
        outputs.append(answer.pooler_output)
    write(folder / "prefill.safetensors", named, outputs)


def view(folder, model, generator):
    config = model.config
    pixels = torch.randn((BATCH, 3, config.image_size, config.image_size), generator=generator)
    answer = model(pixel_values=pixels)
    write(folder / "prefill.safetensors", dict(pixels=pixels), [answer.last_hidden_state, answer.pooler_output])


def decode(folder, model, generator):
    read, layers = tokens(generator), model.config.num_hidden_layers
    # A cache that knows of no window keeps everything.
    answer = model(input_ids=read, past_key_values=hf.DynamicCache(), use_cache=True)
    cache = answer.past_key_values
    state = [tensor for layer in range(layers) for tensor in kept(cache, layer)]
    write(folder / "prefill.safetensors", dict(tokens=read), [answer.logits, *state])
    inputs = dict(tokens=tokens(generator, length=1))
    for layer in range(layers):
        inputs[f"past_keys.{layer}"], inputs[f"past_values.{layer}"] = kept(cache, layer)
    answer = model(input_ids=inputs["tokens"], past_key_values=cache, use_cache=True)
    state = [tensor for layer in range(layers) for tensor in kept(answer.past_key_values, layer)]
    write(folder / "decode.safetensors", inputs, [answer.logits, *state])


def translate(folder, model, generator):
    config = model.config
    if isinstance(model, hf.WhisperForConditionalGeneration):
        source = torch.randn((BATCH, config.num_mel_bins, 2 * config.max_source_positions), generator=generator)
        named = dict(features=source)
        given = dict(input_features=source)
    else:
        source = tokens(generator)
        named, given = dict(tokens=source), dict(input_ids=source)
    start = tokens(generator)
    answer = model(**given, decoder_input_ids=start, use_cache=True)
    cache, layers = answer.past_key_values, len(answer.past_key_values.self_attention_cache.layers)
    own, other = cache.self_attention_cache, cache.cross_attention_cache
    state = [tensor for layer in range(layers) for part in (own, other) for tensor in kept(part, layer)]
    write(folder / "prefill.safetensors", dict(named, decoder_tokens=start), [answer.logits, *state])
    inputs = dict(decoder_tokens=tokens(generator, length=1))
    for layer in range(layers):
        inputs[f"past_keys.{layer}"], inputs[f"past_values.{layer}"] = kept(own, layer)
        inputs[f"encoder_keys.{layer}"], inputs[f"encoder_values.{layer}"] = kept(other, layer)
    memory = (answer.encoder_last_hidden_state,)
    answer = model(encoder_outputs=memory, decoder_input_ids=inputs["decoder_tokens"], past_key_values=cache, use_cache=True)
    own = answer.past_key_values.self_attention_cache
    state = [tensor for layer in range(layers) for tensor in kept(own, layer)]
    write(folder / "decode.safetensors", inputs, [answer.logits, *state])


def main():
    out, wanted = Path(sys.argv[1]), sys.argv[2:]
    groups = [(encoders, encode), (decoders, decode), (pairs, translate), (viewers, view), (readers, encode)]
    for family, run in groups:
        for name, kind, config in family():
            if wanted and name not in wanted:
                continue
            config._attn_implementation = "eager"
            torch.manual_seed(0)
            model = kind(config).eval()
            generator = torch.Generator().manual_seed(sum(name.encode()))
            fill(model, generator)
            folder = out / name
            model.save_pretrained(folder)
            narrow(folder / "model.safetensors")
            (folder / "generation_config.json").unlink(missing_ok=True)
            text = {key: value for key, value in json.loads((folder / "config.json").read_text()).items() if value is not None}
            (folder / "config.json").write_text(json.dumps(text, indent=1, sort_keys=True) + "\n")
            with torch.no_grad():
                run(folder, model, generator)
            print(name, sum(parameter.numel() for parameter in model.parameters()))


if __name__ == "__main__":
    main()
