//! Tests which layers of hybrid models have attention, linear attention and Mamba, and what is refused.
#![allow(missing_docs)]

use serde_json::{Value, json};
use serving::architecture::{Architecture, Attention, GroupedAttention, LinearAttention};
use serving::memory::count_parameters;

/// Returns a configuration of 12 layers with other or additional fields.
fn small(fields: Value) -> Value {
    let config = json!({
        "num_hidden_layers": 12, "hidden_size": 64, "vocab_size": 1000, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 256,
    });
    extend(config, fields)
}

fn extend(mut config: Value, fields: Value) -> Value {
    config.as_object_mut().expect("fields").extend(fields.as_object().expect("fields").clone());
    config
}

/// Returns 12 layer types, of which every third is `attention`.
fn every_third(other: &str, attention: &str) -> Vec<String> {
    (0..12).map(|layer| if layer % 3 == 2 { attention } else { other }.to_owned()).collect()
}

fn parse(config: &Value) -> Architecture {
    Architecture::parse_config(&config.to_string(), "own").unwrap_or_else(|error| panic!("{config}: {error}"))
}

fn grouped(config: &Value) -> GroupedAttention {
    match parse(config).attention {
        Attention::Grouped(attention) => attention,
        Attention::Latent(_) => panic!("{config} has latent attention"),
    }
}

fn linear(config: &Value) -> LinearAttention {
    grouped(config).linear.unwrap_or_else(|| panic!("{config} has no linear attention"))
}

fn check_refused(fields: Value, reason: &str) {
    let config = small(fields);
    match Architecture::parse_config(&config.to_string(), "own") {
        Ok(read) => panic!("{config} is read as {read:?}"),
        Err(error) => assert!(error.to_string().contains(reason), "{config}: {error}"),
    }
}

fn check_parameters(config: &Value, billions: f64) {
    let counted = count_parameters(&parse(config)) / 1e9;
    assert!((counted / billions - 1.0).abs() < 0.005, "{counted} billion parameters, published {billions}");
}

/// Returns the sizes of linear attention in the form of Qwen3-Next.
fn delta_sizes() -> Value {
    json!({
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
        "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4,
    })
}

fn bamba() -> Value {
    json!({
        "model_type": "bamba", "num_hidden_layers": 32, "hidden_size": 4096, "vocab_size": 128256,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
        "attn_layer_indices": [9, 18, 27], "mamba_d_conv": 4, "mamba_d_head": 64, "mamba_d_state": 128,
        "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 128, "tie_word_embeddings": false,
    })
}

#[test]
fn published_hybrid_models_have_their_sizes() {
    let mamba = LinearAttention { layers: 29, key_heads: 1, value_heads: 128, key_dim: 128, value_dim: 64 };
    assert_eq!(linear(&bamba()), mamba);
    check_parameters(&bamba(), 9.78);
    let auto = extend(bamba(), json!({ "mamba_d_head": "auto" }));
    assert_eq!(linear(&auto), mamba);

    let layer_types: Vec<&str> =
        (0..40).map(|layer| if [5, 15, 25, 35].contains(&layer) { "attention" } else { "mamba" }).collect();
    let granite = json!({
        "model_type": "granitemoehybrid", "num_hidden_layers": 40, "hidden_size": 4096, "vocab_size": 100352,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 768,
        "shared_intermediate_size": 1536, "num_local_experts": 72, "num_experts_per_tok": 10,
        "layer_types": layer_types, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_expand": 2,
        "mamba_n_groups": 1, "mamba_n_heads": 128, "tie_word_embeddings": true,
    });
    assert_eq!(linear(&granite), LinearAttention { layers: 36, ..mamba });
    check_parameters(&granite, 32.2);
    let dense = extend(granite, json!({ "num_local_experts": 0, "shared_intermediate_size": 8192 }));
    assert_eq!((parse(&dense).experts, parse(&dense).intermediate), (None, 8192));

    let attends: Vec<u64> = (0..80).map(|layer| u64::from(layer % 8 == 7)).collect();
    let minimax = json!({
        "model_type": "minimax_text_01", "num_hidden_layers": 80, "hidden_size": 6144, "vocab_size": 200064,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 9216,
        "num_local_experts": 32, "num_experts_per_tok": 2, "attn_type_list": attends, "tie_word_embeddings": false,
    });
    let lightning = LinearAttention { layers: 70, key_heads: 64, value_heads: 64, key_dim: 128, value_dim: 128 };
    assert_eq!(linear(&minimax), lightning);
    check_parameters(&minimax, 456.0);
}

#[test]
fn layers_are_stated_by_lists_and_intervals() {
    let next = |fields: Value| extend(small(delta_sizes()), fields);
    let linear_layers = |config: &Value| grouped(config).linear.map_or(0, |linear| linear.layers);
    for (fields, expected) in [
        (json!({ "layer_types": every_third("linear_attention", "full_attention") }), 8),
        (json!({ "full_attention_interval": 4 }), 9),
        // Layers 4 and 9 attend.
        (json!({ "full_attention_interval": 5 }), 10),
        (json!({ "full_attention_interval": 1 }), 0),
        (json!({ "full_attention_interval": 4, "layer_types": vec!["full_attention"; 12] }), 0),
        (json!({ "model_type": "qwen3_next" }), 9),
        (json!({ "model_type": "qwen3_5_moe_text", "full_attention_interval": 2 }), 6),
        (json!({ "text_config": next(json!({ "full_attention_interval": 4 })) }), 9),
    ] {
        assert_eq!(linear_layers(&next(fields.clone())), expected, "{fields}");
    }
    let mamba = |fields: Value| small(extend(json!({ "mamba_d_state": 16, "mamba_expand": 2 }), fields));
    for (fields, expected) in [
        (json!({ "layer_types": every_third("mamba", "attention") }), 8),
        (json!({ "layers_block_type": every_third("mamba", "attention") }), 8),
        (json!({ "attn_layer_indices": [0, 11] }), 10),
        (json!({ "attn_layer_indices": [] }), 12),
        // Granite without Mamba keeps the sizes of its layers.
        (json!({ "layer_types": vec!["attention"; 12] }), 0),
    ] {
        assert_eq!(linear_layers(&mamba(fields.clone())), expected, "{fields}");
    }
    assert_eq!(linear_layers(&small(json!({ "model_type": "minimax", "attn_type_list": vec![1; 12] }))), 0);
    assert_eq!(linear_layers(&small(json!({ "layer_group_size": 1, "mamba_d_state": null, "ssm_cfg": {} }))), 0);
}

#[test]
fn chunks_are_windows_of_their_size() {
    let windows = |fields: Value| {
        let attention = grouped(&small(fields));
        (attention.windowed_layers, attention.window)
    };
    let listed = every_third("chunked_attention", "full_attention");
    assert_eq!(windows(json!({ "layer_types": listed, "attention_chunk_size": 512 })), (8, 512));
    let llama4 = |fields: Value| extend(json!({ "model_type": "llama4_text", "attention_chunk_size": 512 }), fields);
    assert_eq!(windows(llama4(json!({ "no_rope_layers": [] }))), (9, 512));
    let flags: Vec<u64> = (0..12).map(|layer| u64::from(layer < 5)).collect();
    assert_eq!(windows(llama4(json!({ "no_rope_layers": flags }))), (5, 512));
    assert_eq!(windows(json!({ "model_type": "llama4_text" })), (0, 0));
    check_refused(json!({ "layer_types": vec!["chunked_attention"; 12] }), "lacks `attention_chunk_size`");
    check_refused(llama4(json!({ "no_rope_layers": [1, 0] })), "`no_rope_layers` has 2 entries for 12 layers");
}

#[test]
fn layers_of_unknown_kinds_are_refused_by_name() {
    let refused = |word: &str, layer: usize, key: &str| {
        format!("layer type `{word}` of layer {layer} (`{key}`) is not supported: ")
    };
    for (word, layer) in [("banana", 0), ("conv", 0), ("hybrid", 2), ("recurrent", 2), ("moe", 0)] {
        let types = if layer == 0 { every_third(word, "full_attention") } else { every_third("full_attention", word) };
        for key in ["layer_types", "layers_block_type"] {
            check_refused(json!({ key: types }), &refused(word, layer, key));
        }
    }
    let lacks =
        |field: &str, word: &str, key: &str| format!("{}the configuration lacks `{field}`", refused(word, 0, key));
    let mamba = every_third("mamba", "attention");
    check_refused(json!({ "layer_types": mamba }), &lacks("mamba_d_state", "mamba", "layer_types"));
    let sizes = json!({ "layer_types": mamba, "mamba_d_state": 16 });
    check_refused(sizes, &lacks("mamba_expand", "mamba", "layer_types"));
    let linear = json!({ "layer_types": every_third("linear_attention", "full_attention") });
    check_refused(linear, &lacks("linear_num_key_heads", "linear_attention", "layer_types"));
    let key = "full_attention_interval";
    check_refused(json!({ key: 4 }), &lacks("linear_num_key_heads", "linear_attention", key));
    check_refused(json!({ key: 0 }), "`full_attention_interval` is 0, but must be from 1");
    let windows = every_third("sliding_attention", "full_attention");
    check_refused(json!({ "layer_types": windows }), &lacks("sliding_window", "sliding_attention", "layer_types"));
    let mixed = every_third("mamba", "linear_attention");
    let mixed = json!({ "layer_types": mixed, "mamba_d_state": 16, "mamba_expand": 2 });
    check_refused(mixed, "the model also has layers of type `linear_attention`");
}

#[test]
fn layer_lists_fit_the_model() {
    check_refused(json!({ "layer_types": ["full_attention"] }), "`layer_types` has 1 entries for 12 layers");
    check_refused(json!({ "layer_types": [] }), "`layer_types` has 0 entries for 12 layers");
    check_refused(json!({ "attn_type_list": [0, 1] }), "`attn_type_list` has 2 entries for 12 layers");
    let flags = json!({ "attn_type_list": [1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1] });
    check_refused(flags, "layer type `2` of layer 3 (`attn_type_list`) is not supported");
    let indices = json!({ "attn_layer_indices": [3, 12], "mamba_d_state": 16, "mamba_expand": 2 });
    check_refused(indices, "`attn_layer_indices` has layer 12, but the last of the 12 layers is 11");
    let pattern = json!({ "sliding_window": 16, "sliding_window_pattern": 0 });
    check_refused(pattern, "`sliding_window_pattern` is 0, but must be at least 1");
    // Qwen's switch takes the windows away from all layers.
    let switched = json!({
        "model_type": "qwen3", "layer_types": every_third("sliding_attention", "full_attention"),
        "use_sliding_window": false,
    });
    assert_eq!(grouped(&small(switched)).windowed_layers, 0);
}

#[test]
fn hybrid_models_that_do_not_state_their_layers_are_refused() {
    let not_placed = "but the configuration does not state which layers are state-space or linear layers";
    for (fields, cause) in [
        (json!({ "mamba_d_state": 128, "mamba_n_heads": 32 }), "`mamba_d_state` is 128"),
        (json!({ "mamba_d_ssm": 4096 }), "`mamba_d_ssm` is 4096"),
        (json!({ "ssm_state_size": 128 }), "`ssm_state_size` is 128"),
        (json!({ "lru_width": 2560 }), "`lru_width` is 2560"),
        (json!({ "num_linear_layers": 3 }), "`num_linear_layers` is 3"),
        (delta_sizes(), "`linear_num_key_heads` is 2"),
        (json!({ "model_type": "granitemoehybrid" }), "models of type `granitemoehybrid` mix kinds of layers"),
        (json!({ "model_type": "minimax" }), "models of type `minimax` mix kinds of layers"),
        (json!({ "model_type": "mamba", "num_attention_heads": null, "state_size": 16 }), "`state_size` is 16"),
        (json!({ "kv_lora_rank": 16, "mamba_d_state": 128 }), "`mamba_d_state` is 128"),
    ] {
        check_refused(fields.clone(), cause);
        check_refused(fields, not_placed);
    }
    let other_form = "layers that are stated in this form are not supported";
    for (fields, value) in [
        (json!({ "hybrid_override_pattern": "M-M*" }), "`hybrid_override_pattern` is \"M-M*\""),
        (json!({ "block_types": ["recurrent", "attention"] }), "`block_types` is [\"recurrent\",\"attention\"]"),
        (
            json!({ "kv_lora_rank": 16, "linear_attn_config": { "head_dim": 1 } }),
            "`linear_attn_config` is {\"head_dim\":1}",
        ),
        (json!({ "full_attn_idxs": [2, 5] }), "`full_attn_idxs` is [2,5]"),
        (json!({ "hybrid_layer_pattern": vec![1; 99] }), "1,1…: "),
        (json!({ "layer_group_size": 5 }), "`layer_group_size` is 5"),
        (json!({ "ssm_cfg": { "layer": "Mamba2" } }), "`ssm_cfg` is {\"layer\":\"Mamba2\"}"),
    ] {
        check_refused(fields.clone(), value);
        check_refused(fields, other_form);
    }
    let both = json!({ "model_type": "falcon_h1", "layer_types": vec!["attention"; 12] });
    check_refused(both, "layers with both attention and a state-space part");
}

#[test]
fn latent_attention_is_in_every_layer_and_has_a_rank() {
    let latent = |fields: Value| {
        let sizes = json!({ "q_lora_rank": null, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16 });
        extend(sizes, fields)
    };
    let lacks = "the configuration lacks `kv_lora_rank`";
    check_refused(latent(json!({})), lacks);
    check_refused(json!({ "model_type": "deepseek_v2" }), lacks);
    check_refused(json!({ "model_type": "deepseek_v3", "kv_lora_rank": null }), lacks);
    // Small models of DeepSeek have no latent attention.
    let without = json!({ "model_type": "deepseek_v2", "use_mla": false, "kv_lora_rank": null, "qk_nope_head_dim": 0 });
    assert_eq!(grouped(&small(without)).kv_heads, 2);
    let mixed = latent(json!({ "kv_lora_rank": 32, "layer_types": every_third("linear_attention", "full_attention") }));
    check_refused(
        mixed,
        "layer type `linear_attention` of layer 0 (`layer_types`) is not supported: the model has latent attention",
    );
    let full = latent(json!({ "kv_lora_rank": 32, "layer_types": vec!["full_attention"; 12] }));
    assert!(matches!(parse(&small(full)).attention, Attention::Latent(_)));
}
