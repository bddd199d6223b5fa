//! Tests fields of a `config.json` that change the architecture of a model.
#![allow(missing_docs)]

use serde_json::{Value, json};
use serving::architecture::{Architecture, Attention, ExpertLayers, GroupedAttention};
use serving::kernel::Kernel;
use serving::memory::count_parameters;
use serving::plan::{CallWork, Formats, ForwardPass, KernelCall, Parallelism, plan_pass};
use serving::server::{Deployment, Framework, ReplicaPool, ServerLoad, ServingMode};
use serving::{Dtype, Scheme, device};

const BF16: Formats = Formats { weights: Scheme::Bf16, cache: Dtype::Bf16 };

/// Returns a small dense configuration of 12 layers with other or additional fields.
fn small(fields: Value) -> Value {
    let mut config = json!({
        "num_hidden_layers": 12, "hidden_size": 64, "vocab_size": 1000, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 256,
    });
    let fields = fields.as_object().expect("fields");
    config.as_object_mut().expect("fields").extend(fields.clone());
    config
}

/// Returns a small configuration with 8 experts, of which 2 are active.
fn small_experts(fields: Value) -> Value {
    let mut config = small(json!({ "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32 }));
    config.as_object_mut().expect("fields").extend(fields.as_object().expect("fields").clone());
    config
}

fn parse(config: &Value) -> Architecture {
    Architecture::parse_config(&config.to_string(), "own").unwrap_or_else(|error| panic!("{config}: {error}"))
}

fn refusal(config: &Value) -> String {
    match Architecture::parse_config(&config.to_string(), "own") {
        Ok(read) => panic!("{config} is read as {read:?}"),
        Err(error) => error.to_string(),
    }
}

fn grouped(model: &Architecture) -> GroupedAttention {
    match model.attention {
        Attention::Grouped(attention) => attention,
        Attention::Latent(_) => panic!("{} has latent attention", model.name),
    }
}

fn decode_calls(model: &Architecture) -> Vec<KernelCall> {
    let pass = ForwardPass::Decode { sequences: 1, context: 100 };
    plan_pass(model, pass, BF16, Parallelism::SINGLE).expect("a plan")
}

fn count(calls: &[KernelCall], role: &str) -> u64 {
    calls.iter().filter(|call| call.role == role).map(|call| call.count).sum()
}

/// Returns the number of calls, the outputs and the inputs of a matrix product.
fn product(calls: &[KernelCall], role: &str) -> Option<(u64, u64, u64)> {
    calls.iter().find(|call| call.role == role).map(|call| match &call.work {
        CallWork::Kernel(Kernel::Gemm(gemm)) => (call.count, gemm.n, gemm.k),
        other => panic!("{role}: {other:?}"),
    })
}

fn check_parameters(config: &Value, billions: f64) {
    let counted = count_parameters(&parse(config)) / 1e9;
    assert!((counted / billions - 1.0).abs() < 0.005, "{counted} billion parameters, published {billions}");
}

#[test]
fn windows_are_in_the_layers_of_each_family() {
    let mixed: Vec<&str> =
        (0..12).map(|layer| if layer < 5 { "sliding_attention" } else { "full_attention" }).collect();
    for (fields, windowed) in [
        (json!({ "model_type": "mistral" }), 12),
        (json!({ "model_type": "gemma2" }), 6),
        (json!({ "model_type": "gemma2", "num_hidden_layers": 13 }), 7),
        (json!({ "model_type": "gemma2", "layer_types": mixed }), 5),
        (json!({ "model_type": "gemma3_text" }), 10),
        (json!({ "model_type": "gemma3_text", "num_hidden_layers": 13 }), 11),
        (json!({ "model_type": "gemma3", "sliding_window_pattern": 4 }), 9),
        (json!({ "model_type": "cohere2" }), 9),
        (json!({ "model_type": "gpt_oss" }), 6),
        (json!({ "model_type": "qwen2" }), 0),
        (json!({ "model_type": "qwen2", "max_window_layers": 9 }), 0),
        (json!({ "model_type": "qwen2", "max_window_layers": 9, "use_sliding_window": false }), 0),
        (json!({ "model_type": "qwen2", "max_window_layers": 9, "use_sliding_window": true }), 3),
        (json!({ "model_type": "qwen3", "max_window_layers": 12, "use_sliding_window": true }), 0),
        (json!({ "model_type": "qwen3", "max_window_layers": 0, "use_sliding_window": true }), 12),
        // The default of `max_window_layers` is 28.
        (json!({ "model_type": "qwen2", "num_hidden_layers": 30, "use_sliding_window": true }), 2),
    ] {
        let mut config = small(fields.clone());
        config["sliding_window"] = json!(512);
        let model = parse(&config);
        assert_eq!(grouped(&model).windowed_layers, windowed, "{fields}");
        let calls = decode_calls(&model);
        assert_eq!(count(&calls, "attention, window"), windowed, "{fields}");
        assert_eq!(count(&calls, "attention"), model.layers - windowed, "{fields}");
    }
    let outer = json!({ "model_type": "gemma3", "text_config": small(json!({ "sliding_window": 512 })) });
    assert_eq!(grouped(&parse(&outer)).windowed_layers, 10);
}

#[test]
fn embeddings_are_tied_by_the_default_of_the_family() {
    for (fields, is_tied) in [
        (json!({ "model_type": "gemma" }), true),
        (json!({ "model_type": "gemma3_text" }), true),
        (json!({ "model_type": "cohere2" }), true),
        (json!({ "model_type": "smollm3" }), true),
        (json!({ "model_type": "ernie4_5" }), true),
        (json!({ "model_type": "gemma2", "tie_word_embeddings": false }), false),
        (json!({ "model_type": "llama" }), false),
        (json!({ "model_type": "llama", "tie_word_embeddings": true }), true),
    ] {
        assert_eq!(parse(&small(fields.clone())).has_tied_embeddings, is_tied, "{fields}");
    }
    // One matrix of 1000 x 64 numbers instead of two.
    let parameters = |family: &str| count_parameters(&parse(&small(json!({ "model_type": family }))));
    assert_eq!(parameters("llama") - parameters("gemma"), 64_000.0);
}

#[test]
fn experts_are_in_the_layers_that_the_configuration_names() {
    for (fields, placed) in [
        (json!({}), 12),
        (json!({ "decoder_sparse_step": 1, "mlp_only_layers": [] }), 12),
        (json!({ "decoder_sparse_step": 2 }), 6),
        (json!({ "decoder_sparse_step": 5 }), 2),
        // Layers 1, 3, 5, 7, 9 and 11, without 1 and 3.
        (json!({ "decoder_sparse_step": 2, "mlp_only_layers": [0, 1, 3, 3] }), 4),
        (json!({ "mlp_only_layers": null, "moe_layer_freq": null }), 12),
        (json!({ "first_k_dense_replace": 3 }), 9),
        (json!({ "first_k_dense_replace": 3, "moe_layer_freq": 1 }), 9),
        // Layers 4, 6, 8 and 10.
        (json!({ "first_k_dense_replace": 3, "moe_layer_freq": 2 }), 4),
        (json!({ "moe_layer_freq": [0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1] }), 4),
        (json!({ "expert_layer_period": 3, "expert_layer_offset": 2 }), 4),
        (json!({ "interleave_moe_layer_step": 2 }), 6),
        (json!({ "num_dense_layers": 2 }), 10),
        (json!({ "moe_layer_start_index": 2, "moe_layer_end_index": -1, "moe_layer_interval": 1 }), 10),
        // Layers 3, 5, 7 and 9.
        (json!({ "moe_layer_start_index": 2, "moe_layer_end_index": 9, "moe_layer_interval": 2 }), 4),
    ] {
        let model = parse(&small_experts(fields.clone()));
        assert_eq!(model.experts.map(|experts| experts.layers), Some(placed), "{fields}");
        assert_eq!(model.dense_layers, 12 - placed, "{fields}");
        let calls = decode_calls(&model);
        assert_eq!(count(&calls, "experts"), placed, "{fields}");
        assert_eq!(count(&calls, "feed-forward down"), 12 - placed, "{fields}");
    }
    for (fields, reason) in [
        (json!({ "decoder_sparse_step": 0 }), "`decoder_sparse_step` is 0, but must be from 1"),
        (json!({ "decoder_sparse_step": 13 }), "none of the 12 layers has experts"),
        (json!({ "first_k_dense_replace": 12 }), "none of the 12 layers has experts"),
        (json!({ "moe_layer_freq": [1, 1] }), "`moe_layer_freq` has 2 entries for 12 layers"),
        (json!({ "mlp_only_layers": [3, 12] }), "`mlp_only_layers` has layer 12, but the last of the 12 layers is 11"),
        (json!({ "expert_layer_period": 2, "expert_layer_offset": 2 }), "`expert_layer_offset` is 2, but must be less"),
    ] {
        let error = refusal(&small_experts(fields));
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn experts_are_found_by_the_keys_of_each_family() {
    let ernie = json!({
        "model_type": "ernie4_5_moe", "num_hidden_layers": 28, "hidden_size": 2560, "vocab_size": 103424,
        "num_attention_heads": 20, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 12288,
        "moe_num_experts": 64, "moe_k": 6, "moe_intermediate_size": 1536, "moe_num_shared_experts": 2,
        "moe_layer_start_index": 1, "moe_layer_end_index": 27, "moe_layer_interval": 1, "moe_capacity": [64, 64, 64],
    });
    let expected =
        ExpertLayers { layers: 27, experts: 64, top_k: 6, intermediate: 1536, shared_intermediate: 2 * 1536 };
    assert_eq!(parse(&ernie).experts, Some(expected));
    check_parameters(&ernie, 21.83);
    let trinity = json!({
        "model_type": "afmoe", "num_hidden_layers": 32, "hidden_size": 2048, "vocab_size": 200192,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144,
        "moe_intermediate_size": 1024, "num_experts": 128, "num_experts_per_tok": 8, "num_shared_experts": 1,
        "num_dense_layers": 2, "sliding_window": 2048, "global_attn_every_n_layers": 4, "tie_word_embeddings": false,
    });
    let model = parse(&trinity);
    assert_eq!((model.dense_layers, model.experts.map(|experts| experts.shared_intermediate)), (2, Some(1024)));
    assert_eq!((grouped(&model).windowed_layers, grouped(&model).has_output_gate), (24, true));
    check_parameters(&trinity, 26.12);
    let shared = |fields: Value| parse(&small_experts(fields)).experts.map(|experts| experts.shared_intermediate);
    assert_eq!(shared(json!({ "num_shared_experts": 2 })), Some(64));
    assert_eq!(shared(json!({ "num_shared_experts": 2, "moe_shared_expert_intermediate_size": 48 })), Some(96));
    // The first Qwen states the width of both halves.
    let qwen = json!({
        "model_type": "qwen", "num_hidden_layers": 32, "hidden_size": 4096, "vocab_size": 151936,
        "num_attention_heads": 32, "intermediate_size": 22016, "kv_channels": 128, "tie_word_embeddings": false,
    });
    check_parameters(&qwen, 7.72);
}

#[test]
fn keys_with_the_same_meaning_agree() {
    let one = parse(&small_experts(json!({})));
    assert_eq!(parse(&small_experts(json!({ "num_local_experts": 8, "moe_topk": 2, "n_routed_experts": null }))), one);
    let nested = json!({ "text_config": small_experts(json!({ "num_local_experts": 8 })) });
    assert_eq!(parse(&nested), one);
    let refused = refusal(&small_experts(json!({ "num_local_experts": 4 })));
    assert!(
        refused.contains("`num_experts` is 8, but `num_local_experts`, which has the same meaning, is 4"),
        "{refused}"
    );
}

#[test]
fn keys_that_describe_another_model_are_refused() {
    let unknown = "but this number of experts is not read; the known key is `num_experts`";
    for (fields, reason) in [
        (json!({ "residual_moe": true }), "`residual_moe` is true: dense branches next to experts are not supported"),
        (json!({ "num_attention_groups": 1 }), "`num_attention_groups` is 1: attention layers of this form"),
        (json!({ "swa_head_dim": 192 }), "`swa_head_dim` is 192: layers with heads of different sizes"),
        (json!({ "total_ut_steps": 4 }), "`total_ut_steps` is 4: layers that are computed repeatedly"),
        (json!({ "is_encoder_decoder": true }), "`is_encoder_decoder` is true: encoders with cross-attention"),
        (json!({ "intermediate_size": [64, 64] }), "`intermediate_size` has 2 entries, but the model has 12 layers"),
        (json!({ "num_moe_experts": 64 }), unknown),
        (json!({ "expert_num": 64 }), unknown),
        (json!({ "head_dim": 192, "v_head_dim": 128 }), "`v_head_dim` is 128, but `head_dim` is 192"),
    ] {
        let error = refusal(&small(fields.clone()));
        assert!(error.contains(reason), "{fields}: {error}");
    }
    for fields in [
        json!({ "is_encoder_decoder": false, "intermediate_size": vec![64; 12] }),
        json!({ "residual_moe": false, "global_head_dim": null, "num_kv_shared_layers": 0, "moe_layers_enum": "" }),
        json!({ "num_expert_group": 8, "experts_per_token": 4, "moe_router_topk_scaling_factor": 2.5 }),
        json!({ "num_moe_experts": 0, "moe_num_experts": 1, "num_experts_per_tok": 1, "moe_layer_num_skipped": 0 }),
    ] {
        assert_eq!(parse(&small(fields)).layers, 12);
    }
}

#[test]
fn null_stands_for_the_default_and_wrong_types_are_named() {
    let all_null = json!({
        "model_type": null, "architectures": null, "text_config": null, "head_dim": null, "sliding_window": null,
        "layer_types": null, "moe_layer_freq": null, "mlp_only_layers": null, "mamba_d_head": null,
        "max_position_embeddings": null, "tie_word_embeddings": null, "num_experts": null, "residual_moe": null,
        "quantization_config": { "quant_method": null, "modules_to_not_convert": null },
    });
    let model = parse(&small(all_null));
    assert_eq!((model.layers, model.max_tokens, model.quantisation), (12, None, None));
    let awq = json!({ "quant_method": "awq", "modules_to_not_convert": null });
    assert_eq!(parse(&small(json!({ "quantization_config": awq }))).quantisation.as_deref(), Some("awq"));
    for (config, reason) in [
        (small(json!({ "hidden_size": "64" })), "`hidden_size` is \"64\": invalid type: string"),
        (small(json!({ "intermediate_size": [64, 32] })), "`intermediate_size` is [64,32]: layers of different sizes"),
        (small(json!({ "intermediate_size": [] })), "`intermediate_size` is []: invalid type"),
        (small(json!({ "num_shared_expert": [1, 2] })), "`num_shared_expert` is [1,2]: layers of different sizes"),
        (small(json!({ "sliding_window_pattern": [6] })), "`sliding_window_pattern` is [6]: data did not match"),
        (json!({ "text_config": small(json!({ "vocab_size": -1 })) }), "`vocab_size` is -1: invalid value"),
        (small(json!({ "quantization_config": 8 })), "`quantization_config` is 8: invalid type"),
    ] {
        let error = refusal(&config);
        assert!(error.contains(&format!("invalid configuration: {reason}")), "{error}");
    }
}

#[test]
fn llama_4_has_a_shared_expert_and_wider_dense_layers() {
    let llama4 = |experts: u64, step: u64| {
        json!({ "model_type": "llama4", "vision_config": {}, "text_config": {
            "model_type": "llama4_text", "num_hidden_layers": 48, "hidden_size": 5120, "vocab_size": 202048,
            "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 8192,
            "intermediate_size_mlp": 16384, "num_local_experts": experts, "num_experts_per_tok": 1,
            "interleave_moe_layer_step": step,
        } })
    };
    let maverick = parse(&llama4(128, 2));
    let expected = ExpertLayers { layers: 24, experts: 128, top_k: 1, intermediate: 8192, shared_intermediate: 8192 };
    assert_eq!((maverick.experts, maverick.dense_layers, maverick.intermediate), (Some(expected), 24, 16384));
    let calls = decode_calls(&maverick);
    assert_eq!(product(&calls, "shared expert gate, up"), Some((24, 2 * 8192, 5120)));
    assert_eq!(product(&calls, "feed-forward gate, up"), Some((24, 2 * 16384, 5120)));
    // Without the vision model, which has less than a billion parameters.
    check_parameters(&llama4(128, 2), 400.7);
    check_parameters(&llama4(16, 1), 107.8);
}

fn jamba(fields: Value) -> Value {
    let mut config = json!({
        "model_type": "jamba", "num_hidden_layers": 32, "hidden_size": 4096, "vocab_size": 65536,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "num_experts": 16,
        "num_experts_per_tok": 2, "attn_layer_period": 8, "attn_layer_offset": 4, "expert_layer_period": 2,
        "expert_layer_offset": 1, "mamba_d_state": 16, "mamba_expand": 2, "sliding_window": null,
        "tie_word_embeddings": false,
    });
    config.as_object_mut().expect("fields").extend(fields.as_object().expect("fields").clone());
    config
}

#[test]
fn jamba_mixes_mamba_attention_and_experts() {
    let model = parse(&jamba(json!({})));
    assert_eq!(model.experts.map(|experts| experts.layers), Some(16));
    // Layers 4, 12, 20 and 28 attend.
    let linear = grouped(&model).linear.expect("Mamba layers");
    assert_eq!((linear.layers, linear.key_dim, linear.value_dim), (28, 16, 8192));
    let calls = decode_calls(&model);
    assert_eq!((count(&calls, "attention"), count(&calls, "linear attention")), (4, 28));
    assert_eq!(product(&calls, "linear attention output"), Some((28, 4096, 8192)));
    check_parameters(&jamba(json!({})), 51.57);
    assert_eq!(parse(&jamba(json!({ "num_experts": 1, "num_experts_per_tok": 1 }))).experts, None);
    let error = refusal(&jamba(json!({ "attn_layer_offset": 8 })));
    assert!(error.contains("`attn_layer_offset` is 8, but must be less than `attn_layer_period`, 8"), "{error}");
}

#[test]
fn queries_without_a_latent_vector_are_projected_directly() {
    let lite = |fields: Value| {
        let mut config = json!({
            "model_type": "deepseek_v2", "num_hidden_layers": 27, "hidden_size": 2048, "vocab_size": 102400,
            "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 10944, "kv_lora_rank": 512,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 64,
            "n_shared_experts": 2, "num_experts_per_tok": 6, "moe_intermediate_size": 1408,
            "first_k_dense_replace": 1, "moe_layer_freq": 1, "tie_word_embeddings": false,
        });
        config.as_object_mut().expect("fields").extend(fields.as_object().expect("fields").clone());
        config
    };
    let config = lite(json!({ "q_lora_rank": null }));
    let calls = decode_calls(&parse(&config));
    assert_eq!(product(&calls, "latent down-projection"), Some((27, 512 + 64, 2048)));
    assert_eq!(product(&calls, "query projection"), Some((27, 16 * 192, 2048)));
    assert_eq!(product(&calls, "query up-projection"), None);
    check_parameters(&config, 15.71);
    let calls = decode_calls(&parse(&lite(json!({ "q_lora_rank": 1536 }))));
    assert_eq!(product(&calls, "latent down-projection"), Some((27, 1536 + 512 + 64, 2048)));
    assert_eq!(product(&calls, "query up-projection"), Some((27, 16 * 192, 1536)));
    assert!(refusal(&lite(json!({}))).contains("lacks `q_lora_rank`"));
    let sparse = |fields: Value| {
        let mut config = lite(json!({ "q_lora_rank": 1536, "index_topk": 2048 }));
        config.as_object_mut().expect("fields").extend(fields.as_object().expect("fields").clone());
        config
    };
    assert!(refusal(&sparse(json!({}))).contains("lacks `index_n_heads`"));
    assert!(refusal(&small(json!({ "index_topk": 2048 }))).contains("only supported with latent attention"));
    let calls = decode_calls(&parse(&sparse(json!({ "index_n_heads": 64, "index_head_dim": 128 }))));
    assert_eq!(product(&calls, "index query projection"), Some((27, 64 * 128, 1536)));
    assert_eq!(product(&calls, "index key, weights"), Some((27, 128 + 64, 2048)));
}

#[test]
fn networks_without_gates_have_two_matrices() {
    let dense = |family: &str, sizes: [u64; 6], fields: Value| {
        let [layers, hidden, vocabulary, heads, kv_heads, width] = sizes;
        let mut config = small(json!({
            "model_type": family, "num_hidden_layers": layers, "hidden_size": hidden, "vocab_size": vocabulary,
            "num_attention_heads": heads, "num_key_value_heads": kv_heads, "intermediate_size": width,
        }));
        config.as_object_mut().expect("fields").extend(fields.as_object().expect("fields").clone());
        config
    };
    let starcoder = dense("starcoder2", [32, 4608, 49152, 36, 4, 18432], json!({ "hidden_act": "gelu_pytorch_tanh" }));
    check_parameters(&starcoder, 7.17);
    let untied = json!({ "tie_word_embeddings": false });
    check_parameters(&dense("starcoder2", [40, 6144, 49152, 48, 4, 24576], untied), 15.96);
    check_parameters(&dense("phi", [32, 2560, 51200, 32, 32, 10240], json!({ "hidden_act": "gelu_new" })), 2.78);
    check_parameters(&dense("apertus", [32, 4096, 131072, 32, 8, 21504], json!({ "hidden_act": "xielu" })), 8.05);
    let minitron = json!({ "hidden_act": "relu2", "head_dim": 128, "tie_word_embeddings": false });
    check_parameters(&dense("nemotron", [32, 3072, 256000, 24, 8, 9216], minitron), 4.19);
    let calls = decode_calls(&parse(&starcoder));
    assert_eq!(product(&calls, "feed-forward up"), Some((32, 18432, 4608)));
    assert_eq!(product(&calls, "feed-forward gate, up"), None);
    // The squared activation of BitNet is behind a gate.
    for (fields, matrices) in [
        (json!({ "model_type": "bitnet", "hidden_act": "relu2" }), 3),
        (json!({ "model_type": "arcee", "hidden_act": "relu2" }), 2),
        (json!({ "hidden_act": "relu_squared" }), 2),
    ] {
        assert_eq!(parse(&small_experts(fields.clone())).matrices, matrices, "{fields}");
    }
}

#[test]
fn models_without_answers_or_with_other_keys_are_refused() {
    let no_text = "is not a model that generates text";
    for (fields, reason) in [
        (json!({ "model_type": "falcon" }), "models of type `falcon` are described by other keys"),
        (json!({ "model_type": "bert", "architectures": ["BertForMaskedLM"] }), no_text),
        (json!({ "model_type": "xlm-roberta" }), no_text),
        (json!({ "model_type": "clip", "text_config": small(json!({ "model_type": "clip_text_model" })) }), no_text),
        (json!({ "model_type": "qwen3", "architectures": ["Qwen3ForSequenceClassification"] }), no_text),
    ] {
        let error = refusal(&small(fields));
        assert!(error.contains(reason), "{error}");
    }
    for fields in [
        json!({ "architectures": null }),
        json!({ "architectures": [] }),
        json!({ "architectures": ["LlamaForCausalLM"] }),
        json!({ "architectures": ["Mistral3ForConditionalGeneration"], "text_config": small(json!({})) }),
        json!({ "architectures": ["QWenLMHeadModel"], "hidden_act": "silu" }),
    ] {
        assert_eq!(parse(&small(fields)).layers, 12);
    }
}

#[test]
fn warnings_name_what_an_answer_leaves_out() {
    let warnings = |config: &Value, input_tokens: u64, output_tokens: u64| {
        let pool = ReplicaPool { parallelism: Parallelism::SINGLE, replicas: 1 };
        let deployment = Deployment {
            model: parse(config),
            device: device::find_device("h100_sxm").expect("a known device"),
            formats: BF16,
            framework: Framework::Vllm,
            version: String::new(),
            mode: ServingMode::Aggregated,
            prefill: pool,
            decode: pool,
        };
        let warnings = deployment.model_warnings(&ServerLoad { concurrency: 1, input_tokens, output_tokens });
        warnings.into_iter().map(|warning| warning.text).collect::<Vec<_>>()
    };
    let limited = small(json!({ "max_position_embeddings": 4096 }));
    assert_eq!(warnings(&limited, 4000, 96), Vec::<String>::new());
    assert_eq!(
        warnings(&limited, 4000, 97),
        ["4097 tokens of prompt and answer are more than the 4096 that the model supports (`max_position_embeddings`)"]
    );
    assert_eq!(warnings(&small(json!({ "vision_config": null })), 1 << 20, 1), Vec::<String>::new());
    let mixed = json!({ "vision_config": { "depth": 27 }, "audio_config": {}, "text_config": limited });
    assert_eq!(warnings(&mixed, 1, 1), ["only the text model is counted, not its other inputs: vision, audio"]);
    assert_eq!(warnings(&mixed, 4096, 1).len(), 2);
    let quantised = small(json!({ "quantization_config": { "quant_method": "mxfp4" } }));
    let format =
        "the configuration states `mxfp4` weights, but this answer is for `bf16`; `--dtype` states another format";
    assert_eq!(warnings(&quantised, 1, 1), [format]);
    assert_eq!(warnings(&small(json!({ "quantization_config": null })), 1, 1), Vec::<String>::new());
    let kept = json!({ "quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"] });
    let nested = json!({ "text_config": small_experts(json!({})), "quantization_config": kept });
    assert_eq!(warnings(&nested, 1, 1), [format]);
    assert!(parse(&nested).quantises_experts_only);
}
