use super::*;
use crate::{reference, safetensors};
use std::collections::BTreeSet;

/// Parameters, and multiply-adds of linear layers, convolutions and attention at batch 1 and 128 tokens (vision models:
/// their own number of tokens), as counted on the published library's own classes.
const GOLDEN: &[(&str, u64, u64)] = &[("bert-base-uncased", 109_482_240, 22_348_431_360 / 2)];

#[test]
fn parameters_and_multiply_adds_are_those_of_the_published_classes() {
    for (name, parameters, macs) in GOLDEN {
        let graph = load(name, &Options::default()).unwrap().graph;
        assert_eq!((graph.parameters().learned, graph.work().unwrap().macs), (*parameters, *macs), "{name}");
    }
}

/// What the published library made of tiny models with random weights; see `scripts/transformer_cases.py`.
#[test]
fn every_family_answers_as_the_published_classes() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transformers");
    let (mut families, mut failures) = (BTreeSet::new(), Vec::new());
    for folder in std::fs::read_dir(cases).unwrap() {
        let folder = folder.unwrap().path();
        let text = std::fs::read_to_string(folder.join("config.json")).unwrap();
        families.insert(Fields::parse(&text, "config.json").unwrap().text_or("model_type", "").unwrap().to_owned());
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
    // The same code as `roberta`.
    assert_eq!(missing, ["camembert", "xlm-roberta"]);
}

fn check_case(folder: &Path, path: &Path, phase: Phase) -> Result<(), String> {
    let entries = safetensors::load(path).map_err(|error| error.to_string())?;
    let extent = |name: &str, axis: usize| entries.get(name).map(|entry| entry.ty.extents().unwrap()[axis]);
    let tokens = ["decoder_tokens", "tokens", "pixels"];
    let sequence = extent("past_keys.0", 2).or(tokens[..2].iter().find_map(|name| extent(name, 1)));
    let options = Options {
        batch: tokens.iter().find_map(|name| extent(name, 0)).unwrap(),
        sequence: sequence.unwrap_or(1),
        phase,
    };
    let loaded = load(&folder.display().to_string(), &options).map_err(|error| error.to_string())?;
    let tensor = |name: &str| {
        let entry = entries.get(name).ok_or_else(|| format!("the case has no `{name}`"))?;
        reference::constant(&entry.ty, &entry.data()).map_err(|error| error.to_string())
    };
    for graph in [loaded.graph.clone(), crate::passes::simplify(&loaded.graph).map_err(|error| format!("{error:?}"))?] {
        let names = graph.inputs.iter().map(|id| graph.value(*id).unwrap().name.clone());
        let inputs = names.map(|name| tensor(&name)).collect::<Result<Vec<_>, _>>()?;
        let outputs = reference::evaluate_graph(&graph, &inputs).map_err(|error| error.to_string())?;
        for (index, output) in outputs.iter().enumerate() {
            let expected = tensor(&format!("output.{index}"))?;
            let tolerance = reference::Tolerance { absolute: 1e-5, relative: 1e-3 };
            let compared = reference::compare(output, &expected, tolerance).map_err(|error| error.to_string())?;
            if !compared.ok {
                return Err(format!("output {index} {}: {compared:?}", expected.ty()));
            }
        }
        let beyond = format!("output.{}", outputs.len());
        if entries.contains_key(&beyond) {
            return Err(format!("the graph has no `{beyond}`"));
        }
    }
    Ok(())
}
