//! Tests of transformer configurations and their graphs.

use super::*;
use crate::safetensors;
use models::graph::Const;
use models::operators::{Attention, Op};
use std::collections::BTreeSet;

/// Parameters and multiply-adds of linear layers, convolutions and attention for one input, counted on the published
/// library's classes. Inputs have 128 tokens (77 for CLIP, 32 for Whisper's output).
const GOLDEN: &[(&str, u64, u64)] = &[
    ("bert-base-uncased", 109_482_240, 11_174_215_680),
    ("bert-large-uncased", 335_141_888, 39_461_060_608),
    ("roberta-base", 124_645_632, 11_174_215_680),
    ("xlm-roberta-base", 278_043_648, 11_174_215_680),
    ("distilbert-base-uncased", 66_362_880, 5_586_812_928),
    ("albert-base-v2", 11_683_584, 11_186_798_592),
    ("electra-small-discriminator", 13_483_008, 1_312_817_152),
    ("gpt2", 124_439_808, 16_114_089_984),
    ("gpt2-medium", 354_823_168, 46_047_297_536),
    ("gpt2-large", 774_030_080, 100_341_022_720),
    ("gpt2-xl", 1_557_611_200, 201_552_896_000),
    ("gpt-neo-125m", 125_198_592, 16_114_089_984),
    ("gpt-neox-20b", 20_554_567_680, 2_599_730_282_496),
    ("pythia-160m", 162_322_944, 16_118_710_272),
    ("opt-125m", 125_239_296, 16_115_564_544),
    ("phi-2", 2_779_683_840, 341_584_117_760),
    ("t5-small", 60_506_624, 8_044_675_072),
    ("t5-base", 222_903_552, 29_431_431_168),
    ("bart-base", 139_420_416, 18_077_810_688),
    ("llama-7b", 6_738_415_616, 850_000_871_424),
    ("llama-2-7b", 6_738_415_616, 850_000_871_424),
    ("llama-3.2-1b", 1_235_814_400, 159_249_334_272),
    ("tinyllama-1.1b", 1_100_048_384, 133_882_183_680),
    ("mistral-7b-v0.1", 7_241_732_096, 914_425_380_864),
    ("qwen2-0.5b", 494_032_768, 63_931_678_720),
    ("qwen3-0.6b", 596_049_920, 78_165_049_344),
    ("gemma-2b", 2_506_172_416, 321_988_329_472),
    ("phi-3-mini-4k", 3_821_079_552, 479_685_771_264),
    ("vit-base-patch16-224", 86_389_248, 17_563_650_048),
    ("vit-large-patch16-224", 304_351_232, 61_554_737_152),
    ("deit-base-distilled-patch16-224", 86_390_784, 17_655_865_344),
    ("swin-tiny-patch4-window7-224", 27_519_354, 4_489_798_656),
    ("whisper-tiny", 37_760_640, 21_290_496_000),
    ("whisper-base", 72_593_920, 50_258_034_688),
    ("clip-vit-base-patch32-text", 63_165_952, 2_979_508_224),
    ("clip-vit-base-patch32-vision", 87_456_000, 4_408_418_304),
];

/// Returns the multiply-adds of masked attention pairs, which the published classes compute although masked.
fn hidden_macs(mut graph: Graph) -> u64 {
    let seen = graph.work().unwrap().macs;
    for node in &mut graph.nodes {
        if let Op::Attention(Attention { causal, window, .. }) = &mut node.op {
            (*causal, *window) = (false, None);
        }
    }
    graph.work().unwrap().macs - seen
}

#[test]
fn parameters_and_multiply_adds_are_those_of_the_published_classes() {
    let shipped: Vec<&str> = list_entries().iter().map(|entry| entry.name).collect();
    assert_eq!(GOLDEN.iter().map(|row| row.0).collect::<Vec<_>>(), shipped);
    for ((name, parameters, macs), entry) in GOLDEN.iter().zip(list_entries()) {
        let options = Options { sequence: entry.usual_sequence(), ..Options::default() };
        let graph = load_model(name, &options).unwrap().graph;
        let seen = graph.work().unwrap().macs;
        assert_eq!((graph.count_parameters().learned, seen + hidden_macs(graph)), (*parameters, *macs), "{name}");
    }
}

/// Compares with results of the published library on tiny random models; see `scripts/transformer_cases.py`.
#[test]
fn every_family_answers_as_the_published_classes() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transformers");
    let (mut families, mut failures) = (BTreeSet::new(), Vec::new());
    for folder in std::fs::read_dir(cases).unwrap() {
        let folder = folder.unwrap().path();
        let text = std::fs::read_to_string(folder.join("config.json")).unwrap();
        families
            .insert(Fields::parse_config(&text, "config.json").unwrap().text_or("model_type", "").unwrap().to_owned());
        let mut phases = 0;
        for (phase, file) in [(Phase::Prefill, "prefill.safetensors"), (Phase::Decode, "decode.safetensors")] {
            let path = folder.join(file);
            if path.is_file() {
                phases += 1;
                failures
                    .extend(check_case(&folder, &path, phase).err().map(|why| format!("{}: {why}", path.display())));
            }
        }
        assert!(phases > 0, "{}", folder.display());
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let missing: Vec<&str> =
        FAMILIES.iter().map(|family| family.name).filter(|name| !families.contains(*name)).collect();
    // These share the code of `roberta`.
    assert_eq!(missing, ["camembert", "xlm-roberta"]);
}

/// A folder takes changes as a shipped configuration does, and its name may contain a colon.
#[test]
fn fields_of_a_folder_can_be_changed() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("a:b");
    std::fs::create_dir(&own).unwrap();
    std::fs::write(own.join("config.json"), find_entry("gpt2").unwrap().text).unwrap();
    let own = own.display().to_string();
    let macs = |name: &str| load_model(name, &Options::default()).unwrap().graph.work().unwrap().macs;
    assert_eq!(macs(&own), macs("gpt2"));
    assert_eq!(macs(&format!("{own}:n_layer=1,n_head=4")), macs("gpt2:n_layer=1,n_head=4"));
    assert_eq!(crate::sources::source_of(&format!("{own}:n_layer=1")), Some("transformers"));
    let usual = Options::default();
    check_refused(
        &format!("{own}:n_layers=1"),
        usual,
        "the model does not read a field `n_layers`; did you mean `n_layer`?",
    );
    check_refused(&format!("{own}x:n_layer=1"), usual, "a:bx`: no such file");
    let quantised =
        find_entry("gpt2").unwrap().text.replacen('{', r#"{"quantization_config": {"quant_method": "gptq"},"#, 1);
    std::fs::write(folder.path().join("config.json"), quantised).unwrap();
    let notes = load_model(&folder.path().display().to_string(), &usual).unwrap().notes;
    assert!(
        notes.iter().any(|note| note.contains("states `gptq` weights; the model is built with `f32`")),
        "{notes:?}"
    );
    std::fs::write(folder.path().join("config.json"), "{}").unwrap();
    check_refused(&folder.path().display().to_string(), usual, "the field `model_type`, which names the family");
}

fn check_case(folder: &Path, path: &Path, phase: Phase) -> Result<(), String> {
    let entries = safetensors::list_tensors(path).map_err(|error| error.to_string())?;
    let extent = |name: &str, axis: usize| entries.get(name).map(|entry| entry.ty.extents().unwrap()[axis]);
    let tokens = ["decoder_tokens", "tokens", "pixels"];
    let sequence = extent("past_keys.0", 2).or(tokens[..2].iter().find_map(|name| extent(name, 1)));
    let options = Options {
        batch: tokens.iter().find_map(|name| extent(name, 0)).unwrap(),
        sequence: sequence.unwrap_or(1),
        phase,
    };
    let loaded = load_model(&folder.display().to_string(), &options).map_err(|error| error.to_string())?;
    let tensor = |name: &str| {
        let entry = entries.get(name).ok_or_else(|| format!("the case has no `{name}`"))?;
        reference::constant_tensor(&entry.ty, &entry.lazy_data()).map_err(|error| error.to_string())
    };
    for graph in [loaded.graph.clone(), passes::simplify_graph(&loaded.graph).map_err(|error| format!("{error:?}"))?] {
        let names = graph.inputs.iter().map(|id| graph.value(*id).unwrap().name.clone());
        let inputs = names.map(|name| tensor(&name)).collect::<Result<Vec<_>, _>>()?;
        let outputs = reference::evaluate_graph(&graph, &inputs).map_err(|error| error.to_string())?;
        for (index, output) in outputs.iter().enumerate() {
            let expected = tensor(&format!("output.{index}"))?;
            let tolerance = reference::Tolerance { absolute: 1e-5, relative: 1e-3 };
            let compared =
                reference::compare_tensors(output, &expected, tolerance).map_err(|error| error.to_string())?;
            if !compared.ok {
                return Err(format!("output {index} {}: {compared:?}", expected.tensor_type()));
            }
        }
        let beyond = format!("output.{}", outputs.len());
        if entries.contains_key(&beyond) {
            return Err(format!("the graph has no `{beyond}`"));
        }
    }
    Ok(())
}

#[test]
fn steps_answer_as_one_after_the_other() {
    let gpt = "gpt2:n_layer=2,n_embd=16,n_head=2,vocab_size=20";
    let llama = "llama-7b:num_hidden_layers=1,hidden_size=16,intermediate_size=24,num_attention_heads=2,\
                 num_key_value_heads=1,vocab_size=20";
    let whisper = "whisper:d_model=16,encoder_layers=1,decoder_layers=1,encoder_attention_heads=2,\
                   decoder_attention_heads=2,encoder_ffn_dim=24,decoder_ffn_dim=24,vocab_size=20,max_source_positions=12";
    for name in [gpt, llama, whisper] {
        let options = Options { batch: 2, sequence: 3, phase: Phase::Decode };
        let whole = load_steps(name, &options, 3).unwrap_or_else(|error| panic!("{name}: {error}")).graph;
        let inputs = reference::graph_inputs(&whole, 7).unwrap();
        let answers = reference::evaluate_graph(&whole, &inputs).unwrap();
        let named = |name: &str| {
            let place = whole.inputs.iter().position(|id| whole.value(*id).unwrap().name == name);
            place.map(|place| inputs[place].clone())
        };
        let mut past: Vec<reference::Tensor> = Vec::new();
        for step in 0..3 {
            let single = load_model(name, &Options { sequence: 3 + step, ..options }).unwrap().graph;
            let mut carried = past.drain(..);
            let own: Vec<reference::Tensor> = single
                .inputs
                .iter()
                .map(|id| single.value(*id).unwrap().name.as_str())
                .map(|name| match name.starts_with("past_") && step > 0 {
                    true => carried.next().unwrap(),
                    false => named(name).or_else(|| named(&format!("{name}.{step}"))).unwrap(),
                })
                .collect();
            drop(carried);
            let mut found = reference::evaluate_graph(&single, &own).unwrap();
            past = found.split_off(1);
            assert_eq!(found[0], answers[usize::try_from(step).unwrap()], "{name}, step {step}");
        }
        assert_eq!(past, answers[3..], "{name}");
        assert_eq!(
            whole.count_parameters(),
            load_model(name, &options).unwrap().graph.count_parameters(),
            "weights are there once"
        );
    }
    let decode = Options { phase: Phase::Decode, ..Options::default() };
    let refused = load_steps("t5-small", &decode, 2).unwrap_err().to_string();
    assert!(refused.contains("`encoder_keys.0` of a step differs from"), "{refused}");
    let prefill = Options { phase: Phase::Prefill, ..Options::default() };
    assert!(load_steps(gpt, &prefill, 2).unwrap_err().to_string().contains("only the phase `decode` has steps"));
    assert!(
        load_steps(gpt, &prefill, 0).unwrap_err().to_string().contains("0 decoding steps are not between 1 and 1024")
    );
}

#[test]
fn no_two_configurations_share_a_spelling() {
    let spellings = list_entries().iter().flat_map(|entry| names::name_spellings(entry.name, entry.aliases));
    let mut all: Vec<String> = spellings.map(names::normalise_name).collect();
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count);
}

#[track_caller]
fn check_refused(name: &str, options: Options, says: &str) {
    let error = load_model(name, &options).unwrap_err().to_string();
    assert!(error.contains(says), "{error}");
}

#[test]
fn what_cannot_be_built_is_refused_in_words() {
    let usual = Options::default();
    let decode = Options { phase: Phase::Decode, ..usual };
    check_refused("bert-bas", usual, "unknown model `bert-bas`; did you mean `bert-base-uncased` or `bart-base`?");
    check_refused("bert", decode, "`bert` is not a decoder, so it has no decoding steps");
    check_refused("bert", Options { sequence: 513, ..usual }, "position 512 exceeds the 512 entries of");
    check_refused("bert", Options { sequence: 0, ..usual }, "sequence length 0 is not between 1 and 1048576");
    check_refused("llama-7b:num_hidden_layers", usual, "`num_hidden_layers` does not have the form `field=value`");
    check_refused(
        "llama-7b:num_hidden_layers=100000",
        usual,
        "field `num_hidden_layers`: must be a number from 1 to 1024",
    );
    check_refused("llama-7b:num_attention_heads=33", usual, "33 heads do not divide the width 4096");
    check_refused(
        "llama-7b:hidden_act=maxout",
        usual,
        "field `hidden_act`: not supported: unknown activation `maxout`",
    );
    check_refused("llama-7b:hidden_act=sliu", usual, "unknown activation `sliu`; did you mean `silu`?");
    check_refused("llama-7b:model_type=mamba", usual, "unknown model family `mamba`; known: `albert`, `bart`, `bert`");
    check_refused("llama-7b:vocab_size=16777216", usual, "larger than the limit");
    check_refused(
        "swin:window_size=5",
        usual,
        "56 patches per side of stage 0 are not a multiple of the window extent 5",
    );
    check_refused("t5:relative_attention_max_distance=16", usual, "16 must exceed half of the 32 buckets");
    check_refused("gpt2:banana=7", usual, "the model does not read a field `banana`; known: `");
    check_refused("gpt2:n_layers=7", usual, "not read a field `n_layers`; did you mean `n_layer`?");
    check_refused("gpt2:N_LAYER=7", usual, "not read a field `N_LAYER`; did you mean `n_layer`?");
    check_refused("gpt2:n_layer=7,n_layer=8", usual, "`n_layer` is given twice");
    check_refused("gpt2:num_hidden_layers=2", usual, "not read a field `num_hidden_layers`");
    check_refused("gpt2:vocab_size=null", usual, "field `vocab_size`: is missing");
}

#[test]
fn decoding_reads_what_a_prompt_left() {
    let prompt =
        load_model("llama-7b:num_hidden_layers=1", &Options { batch: 2, sequence: 100, phase: Phase::Prefill })
            .unwrap();
    let step =
        load_model("llama-7b:num_hidden_layers=1", &Options { batch: 2, sequence: 100, phase: Phase::Decode }).unwrap();
    let types = |graph: &Graph, ids: &[ValueId]| -> Vec<String> {
        ids.iter().map(|id| graph.value(*id).unwrap().ty.to_string()).collect()
    };
    let left = types(&prompt.graph, &prompt.graph.outputs)[1..].to_vec();
    assert_eq!(left, ["f32[2,32,100,128]", "f32[2,32,100,128]"]);
    assert_eq!(types(&step.graph, &step.graph.inputs)[1..], left);
    assert_eq!(types(&step.graph, &step.graph.outputs)[0], "f32[2,1,32000]");
}

#[test]
fn a_large_model_is_few_tasks_and_no_weights() {
    for (phase, count) in [(Phase::Prefill, 12), (Phase::Decode, 13)] {
        let graph = load_model("llama-7b", &Options { sequence: 2048, phase, ..Options::default() }).unwrap().graph;
        assert!(graph.values.iter().all(|value| !matches!(value.data, Some(Const::Bytes(_)))));
        let graph = passes::simplify_graph(&graph).unwrap();
        let tasks = models::fuse::distinct_tasks(&graph, models::Fuse::Epilogue).unwrap();
        assert_eq!(tasks.len(), count, "{:#?}", tasks.iter().map(|found| found.task.describe()).collect::<Vec<_>>());
        let calls: usize = tasks.iter().map(|found| found.places.len()).sum();
        assert!(calls > 32 * 12, "{calls}");
    }
}

#[test]
fn labels_say_what_is_run() {
    for (name, phase) in [("gpt2", Phase::Prefill), ("my model:n_layer=2", Phase::Decode)] {
        assert_eq!(parse_label(&format_label(name, phase, 64)), Some((name, phase, 64)));
    }
    assert_eq!(format_label("gpt2", Phase::Decode, 64), "gpt2 decode 64");
    for other in ["gpt2", "gpt2 64", "gpt2 train 64", "gpt2 prefill many"] {
        assert_eq!(parse_label(other), None, "{other}");
    }
}
