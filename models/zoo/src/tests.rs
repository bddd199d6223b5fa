//! Tests of sizes, parameters and work of the networks.

use super::*;

/// Parameters and multiply-adds for one input, counted on published implementations or, in the last rows, layer lists.
const GOLDEN: &[(&str, u64, u64)] = &[
    ("resnet-18", 11_689_512, 1_814_073_344),
    ("resnet-34", 21_797_672, 3_663_761_408),
    ("resnet-50", 25_557_032, 4_089_184_256),
    ("resnet-101", 44_549_160, 7_801_405_440),
    ("resnet-152", 60_192_808, 11_513_626_624),
    ("resnext-50-32x4d", 25_028_904, 4_230_479_872),
    ("wide-resnet-50-2", 68_883_240, 11_398_021_120),
    ("alexnet", 61_100_840, 714_188_480),
    ("vgg-11", 132_863_336, 7_609_090_048),
    ("vgg-16", 138_357_544, 15_470_264_320),
    ("vgg-16-bn", 138_365_992, 15_470_264_320),
    ("vgg-19", 143_667_240, 19_632_062_464),
    ("squeezenet-1.0", 1_248_424, 818_924_576),
    ("squeezenet-1.1", 1_235_496, 349_151_936),
    ("mobilenet", 4_231_976, 568_740_352),
    ("mobilenet-v2", 3_504_872, 300_774_272),
    ("mobilenet-v3-small", 2_542_856, 56_510_400),
    ("mobilenet-v3-large", 5_483_032, 216_589_760),
    ("mnasnet-1.0", 4_383_312, 314_415_872),
    ("efficientnet-b0", 5_288_548, 385_814_752),
    ("shufflenet-v2-x1.0", 2_278_604, 144_907_992),
    ("densenet-121", 7_978_856, 2_834_161_664),
    ("densenet-169", 14_149_480, 3_359_843_328),
    ("densenet-201", 20_013_928, 4_291_365_888),
    ("googlenet", 6_624_904, 1_498_376_192),
    ("convnext-tiny", 28_589_128, 4_455_531_264),
    ("inception-v3", 23_834_568, 5_713_216_096),
    ("r3d-18", 33_371_472, 40_696_553_472),
    ("mc3-18", 11_695_440, 43_342_635_008),
    ("r2plus1d-18", 31_505_325, 40_519_080_960),
    ("mlp", 109_386, 109_184),
    ("vgg-13", 133_047_848, 11_308_466_176),
    ("vgg-11-bn", 132_868_840, 7_609_090_048),
    ("vgg-13-bn", 133_053_736, 11_308_466_176),
    ("vgg-19-bn", 143_678_248, 19_632_062_464),
    ("unet", 31_037_698, 48_171_581_440),
    ("dcgan", 12_672_768, 410_583_040),
    ("yolov3-tiny", 8_852_366, 2_782_480_896),
    // Published: 3 157 200 with the 16 of the fixed sum over bins, and 8.7 billion operations.
    ("yolov8-nano", 3_157_184, 4_371_456_000),
    ("dqn", 1_693_362, 9_352_192),
    ("lstm", 132_096, 2_097_152),
    ("gru", 99_072, 1_572_864),
];

#[test]
fn parameters_and_multiply_adds_are_those_of_the_reference() {
    for (name, parameters, macs) in GOLDEN {
        let graph = build_model(name, 1).unwrap();
        assert_eq!((graph.count_parameters().learned, graph.work().unwrap().macs), (*parameters, *macs), "{name}");
    }
}

#[test]
fn every_model_has_a_golden_row_and_grows_with_the_batch() {
    for entry in list_models() {
        let golden = GOLDEN.iter().find(|(name, ..)| *name == entry.name);
        let (_, parameters, macs) = golden.unwrap_or_else(|| panic!("`{}` has no golden row", entry.name));
        let graph = entry.build_graph(3).unwrap();
        assert_eq!(
            (graph.count_parameters().learned, graph.work().unwrap().macs),
            (*parameters, 3 * macs),
            "{}",
            entry.name
        );
    }
}

#[test]
fn no_two_models_share_a_spelling() {
    let mut all: Vec<String> = list_models()
        .iter()
        .flat_map(|entry| names::name_spellings(entry.name, entry.aliases))
        .map(names::normalise_name)
        .collect();
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count);
}

#[test]
fn spelling_is_forgiving_and_mistakes_get_a_hint() {
    for name in ["resnet-18", "resnet18", "ResNet_18", "RESNET18"] {
        assert_eq!(find_entry(name).unwrap().name, "resnet-18");
    }
    let says = |name: &str| find_entry(name).err().unwrap().to_string();
    assert_eq!(says("resnet19"), "unknown model `resnet19`; did you mean `resnet-18`, `r3d-18` or `resnet-101`?");
    assert_eq!(says("qqqqqqqqqqqq"), "unknown model `qqqqqqqqqqqq`; `opcollect list` shows all names");
    assert_eq!(says("absent.json"), "cannot read `absent.json`: no such file");
    assert_eq!(build_model("mlp", 0).unwrap_err().to_string(), "model `mlp`: batch size 0 must be at least 1");
}

#[test]
fn networks_for_images_take_images_of_another_size() {
    let graph = build_model("ResNet18:hw=160", 2).unwrap();
    assert_eq!(graph.name, "resnet-18:hw=160");
    let whole = build_model("resnet-18", 1).unwrap();
    assert_eq!(graph.count_parameters().learned, whole.count_parameters().learned);
    // 2 images of 5, 10, … pixels a side instead of 7, 14, …; the last layer is independent of the size.
    let layer = 512 * 1000;
    assert_eq!(graph.work().unwrap().macs - 2 * layer, 2 * (whole.work().unwrap().macs - layer) * 25 / 49);

    let says = |name: &str| build_model(name, 1).unwrap_err().to_string();
    assert_eq!(
        says("resnet-18:size=160"),
        "model `resnet-18:size=160`: `size=160` does not have the form hw=N, such as `hw=160`"
    );
    assert_eq!(says("resnet-18:hw=7"), "model `resnet-18:hw=7`: the image size `7` is not between 16 and 2048");
    assert_eq!(says("lstm:hw=64"), "model `lstm:hw=64`: the input shape is fixed: 16x128");
    assert!(says("inception-v3:hw=16").starts_with("model `inception-v3:hw=16`"), "{}", says("inception-v3:hw=16"));
}

#[test]
fn other_spellings_have_one_name_in_records() {
    for (name, expected) in [
        ("MLP", Some("mlp")),
        ("ResNet", Some("resnet-18")),
        ("resnet18:hw=160", Some("resnet-18:hw=160")),
        ("resnet-18:hw=160", None),
        ("mlp", None),
        ("no-such-model", None),
    ] {
        assert_eq!(canonical_name(name).as_deref(), expected, "{name}");
    }
}
