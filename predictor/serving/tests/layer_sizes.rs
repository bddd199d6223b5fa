//! Tests layers that share keys and values, differ in their sizes or have inputs of their own.
#![allow(missing_docs)]

use serde_json::{Value, json};
use serving::architecture::{Architecture, Attention, ExpertLayers, GroupedAttention};
use serving::kernel::Kernel;
use serving::memory::{Residents, count_parameters, replica_memory};
use serving::plan::{CallWork, Formats, ForwardPass, KernelCall, Parallelism, plan_pass};
use serving::{Dtype, Scheme, device};

const BF16: Formats = Formats { weights: Scheme::Bf16, cache: Dtype::Bf16 };

/// Returns a configuration: layers, hidden size, vocabulary, heads, key-value heads and width, and other fields.
fn sized(sizes: [u64; 6], fields: Value) -> Value {
    let [layers, hidden, vocabulary, heads, kv_heads, width] = sizes;
    let mut config = json!({
        "num_hidden_layers": layers, "hidden_size": hidden, "vocab_size": vocabulary, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "intermediate_size": width, "tie_word_embeddings": true,
    });
    config.as_object_mut().expect("fields").extend(fields.as_object().expect("fields").clone());
    config
}

fn every(period: usize, layers: usize) -> Vec<&'static str> {
    let word = |layer: usize| if layer % period == period - 1 { "full_attention" } else { "sliding_attention" };
    (0..layers).map(word).collect()
}

fn parse(config: &Value) -> Architecture {
    Architecture::parse_config(&config.to_string(), "own").unwrap_or_else(|error| panic!("{config}: {error}"))
}

fn grouped(model: &Architecture) -> GroupedAttention {
    match model.attention {
        Attention::Grouped(attention) => attention,
        Attention::Latent(_) => panic!("{} has latent attention", model.name),
    }
}

fn check_refused(config: &Value, reason: &str) {
    let error = Architecture::parse_config(&config.to_string(), "own").expect_err(reason).to_string();
    assert!(error.contains(reason), "{error}");
}

fn check_parameters(config: &Value, billions: f64) {
    let counted = count_parameters(&parse(config)) / 1e9;
    assert!((counted / billions - 1.0).abs() < 0.01, "{counted} billion parameters, published {billions}");
}

/// Returns the bytes of the keys and values of one sequence.
fn cache_bytes(config: &Value, tokens: u64) -> f64 {
    let device = device::find_device("h100_sxm").expect("a known device");
    let residents = Residents { sequences: 1, tokens };
    replica_memory(&parse(config), BF16, Parallelism::SINGLE, residents, device).cache_bytes
}

fn decode_calls(config: &Value) -> Vec<KernelCall> {
    let pass = ForwardPass::Decode { sequences: 1, context: 5000 };
    plan_pass(&parse(config), pass, BF16, Parallelism::SINGLE).expect("a plan")
}

/// Returns the number of calls, the outputs and the inputs of the matrix products of a role.
fn products(calls: &[KernelCall], role: &str) -> Vec<(u64, u64, u64)> {
    let product = |call: &KernelCall| match &call.work {
        CallWork::Kernel(Kernel::Gemm(gemm)) => (call.count, gemm.n, gemm.k),
        other => panic!("{role}: {other:?}"),
    };
    calls.iter().filter(|call| call.role == role).map(product).collect()
}

#[test]
fn letters_state_which_layers_have_windows() {
    let exaone = |fields: Value| {
        let mut config = sized([64, 5120, 102400, 40, 8, 27392], fields);
        config["model_type"] = json!("exaone4");
        config["tie_word_embeddings"] = json!(false);
        config
    };
    let windows = |fields: Value| (grouped(&parse(&exaone(fields.clone()))).windowed_layers, fields).0;
    let letters = |letters: &str| json!({ "sliding_window": 4096, "sliding_window_pattern": letters });
    assert_eq!(windows(letters("LLLG")), 48);
    assert_eq!(windows(letters("L")), 63);
    assert_eq!(windows(json!({ "sliding_window": 4096 })), 48);
    assert_eq!(windows(json!({ "sliding_window": null, "sliding_window_pattern": "LLLG" })), 0);
    check_parameters(&exaone(letters("LLLG")), 32.0);
    let bytes = 2.0 * 2.0 * 8.0 * 128.0 * (16.0 * 10_000.0 + 48.0 * 4096.0);
    assert_eq!(cache_bytes(&exaone(letters("LLLG")), 10_000), bytes);
    check_refused(&exaone(letters("LLXG")), "layer type `X` of layer 2 (`sliding_window_pattern`) is not supported");
    check_refused(&exaone(letters("")), "`sliding_window_pattern` has no letters");
}

#[test]
fn hunyuan_states_a_size_for_each_layer_and_shares_keys() {
    let a13b = json!({
        "model_type": "hunyuan_v1_moe", "head_dim": 128, "num_experts": 64, "moe_topk": vec![8; 32],
        "num_shared_expert": vec![1; 32], "moe_intermediate_size": vec![3072; 32], "use_cla": false,
        "cla_share_factor": 2, "moe_layer_num_skipped": 0, "use_mixed_mlp_moe": true,
    });
    let a13b = sized([32, 4096, 128167, 32, 8, 3072], a13b);
    let experts = ExpertLayers { layers: 32, experts: 64, top_k: 8, intermediate: 3072, shared_intermediate: 3072 };
    assert_eq!(parse(&a13b).experts, Some(experts));
    check_parameters(&a13b, 80.4);
    let large = json!({
        "model_type": "hunyuan", "num_experts": 16, "moe_topk": 1, "num_shared_expert": 1, "use_cla": true,
        "cla_share_factor": 2,
    });
    let large = sized([64, 6400, 129024, 80, 8, 18304], large);
    check_parameters(&large, 389.0);
    // Every second layer has keys and values.
    assert_eq!(cache_bytes(&large, 100), 2.0 * 2.0 * 8.0 * 80.0 * 32.0 * 100.0);
    let calls = decode_calls(&large);
    assert_eq!(products(&calls, "query, key, value"), [(32, 96 * 80, 6400)]);
    assert_eq!(products(&calls, "query"), [(32, 80 * 80, 6400)]);
    assert_eq!(products(&calls, "attention output"), [(64, 6400, 6400)]);
    let dense = json!({ "model_type": "hunyuan_v1_dense", "num_experts": 1, "moe_topk": 1, "num_shared_expert": 1 });
    let dense = sized([32, 4096, 128167, 32, 8, 14336], dense);
    assert_eq!(parse(&dense).experts, None);
    check_parameters(&dense, 7.5);
    let lacks = json!({ "use_cla": true });
    check_refused(&sized([4, 64, 99, 4, 4, 64], lacks), "the configuration lacks `cla_share_factor`");
}

#[test]
fn gemma_3n_has_inputs_of_each_layer_and_streams() {
    let gemma = |layers: usize, width: u64, sharing: u64| {
        let fields = json!({
            "model_type": "gemma3n_text", "head_dim": 256, "sliding_window": 512, "layer_types": every(5, layers),
            "intermediate_size": vec![width; layers], "altup_num_inputs": 4, "laurel_rank": 64,
            "num_kv_shared_layers": sharing, "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144,
        });
        sized([layers as u64, 2048, 262400, 8, 2, 1], fields)
    };
    let e4b = gemma(35, 16384, 15);
    check_parameters(&e4b, 6.87);
    check_parameters(&gemma(30, 8192, 10), 4.46);
    // Four of the first 20 layers have full attention.
    assert_eq!(cache_bytes(&e4b, 5000), 2.0 * 2.0 * 2.0 * 256.0 * (4.0 * 5000.0 + 16.0 * 512.0));
    let calls = decode_calls(&e4b);
    assert_eq!(products(&calls, "query, key, value"), [(20, 12 * 256, 2048)]);
    assert_eq!(products(&calls, "query"), [(15, 8 * 256, 2048)]);
    assert_eq!(products(&calls, "layer inputs"), [(1, 35 * 256, 2048)]);
    assert_eq!(products(&calls, "layer input projection"), [(35, 2048, 256)]);
    assert_eq!(products(&calls, "stream projections"), [(6, 2048, 2048)]);
    assert_eq!(products(&calls, "low-rank residual up"), [(35, 2048, 64)]);
    let lacks = json!({ "altup_num_inputs": 4 });
    check_refused(&sized([4, 64, 99, 4, 4, 64], lacks), "the configuration lacks `laurel_rank`");
}

#[test]
fn gemma_4_has_other_heads_in_layers_with_full_attention() {
    let gemma = |sizes: [u64; 6], period: usize, fields: Value| {
        let mut config = sized(sizes, fields);
        config["model_type"] = json!("gemma4_text");
        config["head_dim"] = json!(256);
        config["global_head_dim"] = json!(512);
        config["layer_types"] = json!(every(period, sizes[0] as usize));
        config
    };
    let inputs = |fields: Value| {
        let mut all = json!({ "hidden_size_per_layer_input": 256, "sliding_window": 512 });
        all.as_object_mut().expect("fields").extend(fields.as_object().expect("fields").clone());
        all
    };
    // Without the audio and vision models: 5.1 and 8.0 billion parameters with them.
    let e2b = inputs(json!({ "num_kv_shared_layers": 20, "use_double_wide_mlp": true }));
    let e2b = gemma([35, 1536, 262144, 8, 1, 6144], 5, e2b);
    check_parameters(&e2b, 4.63);
    assert_eq!(products(&decode_calls(&e2b), "feed-forward down"), [(15, 1536, 6144), (20, 1536, 12288)]);
    let e4b = inputs(json!({ "num_kv_shared_layers": 18, "use_double_wide_mlp": false }));
    check_parameters(&gemma([42, 2560, 262144, 8, 2, 10240], 6, e4b), 7.46);
    let joint = json!({ "attention_k_eq_v": true, "num_global_key_value_heads": 4, "sliding_window": 1024 });
    let dense = gemma([60, 5376, 262144, 32, 16, 21504], 6, joint);
    check_parameters(&dense, 30.7);
    let bytes = 2.0 * 2.0 * (10.0 * 5000.0 * 4.0 * 512.0 + 50.0 * 1024.0 * 16.0 * 256.0);
    assert_eq!(cache_bytes(&dense, 5000), bytes);
    // Keys are values before their norms and positions: one projection, but both are kept.
    let calls = decode_calls(&dense);
    assert_eq!(products(&calls, "query, key, value"), [(10, 36 * 512, 5376), (50, 64 * 256, 5376)]);
    let experts = json!({
        "attention_k_eq_v": true, "num_global_key_value_heads": 2, "sliding_window": 1024, "enable_moe_block": true,
        "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704,
    });
    let experts = gemma([30, 2816, 262144, 16, 8, 2112], 6, experts);
    check_parameters(&experts, 25.2);
    assert_eq!(parse(&experts).experts.map(|experts| experts.shared_intermediate), Some(2112));
    let three = gemma(
        [60, 5376, 262144, 32, 16, 21504],
        6,
        json!({
            "attention_k_eq_v": true, "num_global_key_value_heads": 3, "sliding_window": 1024,
        }),
    );
    check_refused(&three, "32 heads cannot share 3 key-value heads equally");
    let parallelism = Parallelism { tensor: 32, ..Parallelism::SINGLE };
    assert!(parallelism.check_divisibility(&parse(&dense)).is_ok());
}

#[test]
fn layers_that_share_keys_are_before_others() {
    let small = |fields: Value| sized([6, 64, 99, 4, 4, 64], fields);
    check_refused(&small(json!({ "num_kv_shared_layers": 6 })), "`num_kv_shared_layers` is 6, but must be less");
    let windows = json!({ "model_type": "gemma3_text", "sliding_window": 8, "num_kv_shared_layers": 2 });
    check_refused(&small(windows), "`layer_types` does not state which have windows");
    let mamba = json!({
        "num_kv_shared_layers": 2, "mamba_d_state": 16, "mamba_expand": 2,
        "layer_types": ["mamba", "attention", "mamba", "attention", "mamba", "attention"],
    });
    check_refused(&small(mamba), "other layers share keys and values");
}
