//! Tests of the default schedules for several machines.
#![allow(missing_docs)]

use job::space::task_space;
use models::{Fuse, plan_calls};
use targets::llvm_target;

fn settings(cpu: &str, operator: &str, axes: &[&str]) -> String {
    settings_with("avx512f", cpu, operator, axes)
}

fn settings_with(feature: &str, cpu: &str, operator: &str, axes: &[&str]) -> String {
    let graph = zoo::simple::build_operator(operator).unwrap_or_else(|error| panic!("{operator}: {error}"));
    let task = plan_calls(&graph, Fuse::Epilogue).expect("a plan").tasks.remove(0).task;
    let space = task_space(&task, &llvm_target(cpu, &[feature.to_owned()], 2).machine);
    let knobs = &space.default.0;
    let shown = axes.iter().map(|axis| knobs.get(*axis).map_or("-".to_owned(), ToString::to_string));
    shown.collect::<Vec<_>>().join(" ")
}

#[test]
fn steps_of_products_are_written_out_where_that_was_seen_to_pay() {
    let steps = |cpu, operator| settings(cpu, operator, &["split_r"]);
    for operator in ["conv2d:ci=512,hw=32,co=128,k=1", "dense:m=128,n=768,k=768", "matmul:m=512,n=512,k=512"] {
        assert_eq!([steps("sapphirerapids", operator), steps("znver5", operator)], ["8", "1"], "{operator}");
    }
    // LLVM would spill accumulators of a tile that leaves few registers free.
    assert_eq!(steps("sapphirerapids", "conv2d:ci=512,hw=28,co=128,k=1"), "1");
    // Eight do not divide the sum, the taps of a window are written out anyway, and a channel by itself sums nothing else.
    assert_eq!(steps("sapphirerapids", "dense:m=128,n=768,k=100"), "4");
    assert_eq!(steps("sapphirerapids", "dense:m=128,n=768,k=99"), "1");
    assert_eq!(steps("sapphirerapids", "conv2d:ci=64,hw=56,co=64,k=3,p=1,s=2"), "1");
    assert_eq!(steps("sapphirerapids", "depthwise_conv2d:c=64,hw=56,k=3,p=1"), "1");
}

#[test]
fn deep_products_keep_what_their_channels_are_multiplied_by() {
    let tile = |operator| {
        let axes = ["block", "tile_c", "tile_x", "sum_at", "cache_c", "cache_x", "cache_r"];
        settings("sapphirerapids", operator, &axes)
    };
    assert_eq!(tile("dense:m=128,n=2048,k=4096"), "64 1 6 - - - -");
    assert_eq!(tile("dense:m=128,n=2048,k=8192"), "32 1 8 - - - -");
    // Parts of the depth where not even a narrow tile's channels are kept, and where rows are few; not where tiles reach past them.
    assert_eq!(tile("dense:m=128,n=2048,k=11008"), "32 1 8 cache 4 16 256");
    assert_eq!(tile("dense:m=32,n=2048,k=8192"), "32 1 8 cache 4 4 256");
    assert_eq!(tile("dense:m=100,n=2048,k=14336"), "32 1 8 - - - -");
    // A row alone reads all weights once.
    assert_eq!(tile("dense:m=1,n=2048,k=14336"), tile("dense:m=1,n=2048,k=4096"));
}

#[test]
fn padding_is_near_where_it_is_read() {
    let padded = |operator| settings("znver5", operator, &["pad_at"]);
    // Rows of tiles, whole rows, tiles that reach past the end, and an image.
    assert_eq!(padded("conv2d:ci=128,hw=56,co=128,k=3,p=1,s=2"), "outer");
    assert_eq!(padded("conv2d:ci=512,hw=14,co=512,k=3,p=1,s=2"), "inline");
    assert_eq!(padded("conv2d:ci=128,hw=33,co=128,k=3,p=1,s=2"), "inline");
    assert_eq!(padded("conv2d:ci=3,hw=224,co=32,k=3,p=1,s=2"), "inline");
    // Long rows of windows over an image, what lies far apart, and what is no plane.
    assert_eq!(padded("conv2d:ci=3,hw=224,co=64,k=7,p=3,s=2"), "root");
    assert_eq!(padded("conv2d:ci=256,hw=33,co=256,k=3,p=12,d=12"), "root");
    assert_eq!(padded("conv3d:ci=64,hw=14,co=64,k=3,p=1"), "root");
}

#[test]
fn short_rows_of_single_channels_are_tiled_as_was_seen_on_each_kind_of_core() {
    let tile = |cpu, operator| settings(cpu, operator, &["tile_c", "tile_y", "tile_x"]);
    let check = |operator, intel, zen| {
        assert_eq!([tile("sapphirerapids", operator), tile("znver5", operator)], [intel, zen], "{operator}");
    };
    check("depthwise_conv2d:c=192,hw=28,k=3,p=1", "2 7 14", "1 7 14");
    check("depthwise_conv2d:c=384,hw=14,k=3,p=1", "2 7 1", "2 7 1");
    check("depthwise_conv2d:c=960,hw=7,k=3,p=1", "2 7 7", "2 7 1");
    check("depthwise_conv2d:c=576,hw=14,k=3,p=1,s=2", "2 7 1", "2 7 1");
    check("depthwise_conv2d:c=96,hw=56,k=3,p=1,s=2", "1 7 14", "1 7 14");
    // In steps, by vectors of our own: two channels read more than they share.
    check("depthwise_conv2d:c=240,hw=28,k=5,p=2,s=2", "1 7 14", "2 7 14");
}

#[test]
fn channels_by_themselves_are_padded_by_planes_that_stay_near() {
    let shared = |operator| settings("sapphirerapids", operator, &["parallel", "order"]);
    for operator in ["depthwise_conv2d:c=64,hw=40,k=3,p=1", "depthwise_conv2d:c=64,hw=56,k=3,p=1"] {
        assert_eq!(shared(operator), "2 kernel_first", "{operator}");
    }
    // Planes too large or of few rows of tiles, wider windows, steps, channels that hardly go round, and nothing to pad.
    for operator in [
        "depthwise_conv2d:c=64,hw=80,k=3,p=1",
        "depthwise_conv2d:c=64,hw=28,k=3,p=1",
        "depthwise_conv2d:c=64,hw=56,k=5,p=2",
        "depthwise_conv2d:c=64,hw=112,k=3,p=1,s=2",
        "depthwise_conv2d:c=7,hw=56,k=3,p=1",
        "depthwise_conv2d:c=64,hw=56,k=3",
    ] {
        assert_eq!(shared(operator), "3 kernel_first", "{operator}");
    }
    assert_eq!(shared("depthwise_conv2d:c=576,hw=14,k=3,p=1,s=2"), "3 ycx");
}

#[test]
fn planes_that_lie_far_apart_are_written_one_after_the_other() {
    let together = |operator| settings("sapphirerapids", operator, &["layout", "copy_at", "cache_x"]);
    for operator in ["conv2d:ci=16,hw=112,co=48,k=1", "conv2d:ci=64,hw=80,co=96,k=1"] {
        assert_eq!(together(operator), "plain - 8", "{operator}");
    }
    // Small planes, small results, and steps.
    for operator in
        ["conv2d:ci=64,hw=56,co=256,k=1", "conv2d:ci=32,hw=112,co=16,k=1", "conv2d:ci=64,hw=224,co=64,k=1,s=2"]
    {
        assert!(together(operator).ends_with("- -"), "{operator}");
    }
}

#[test]
fn what_is_large_is_copied_where_tiles_read_it() {
    let copied = |operator| settings("sapphirerapids", operator, &["copy_at", "cache_x", "outer"]);
    // Channels a page apart, and weights that are large, too.
    assert_eq!(copied("conv2d:ci=512,hw=32,co=128,k=1"), "outer 4 space");
    assert_eq!(copied("conv2d:ci=512,hw=33,co=2048,k=1"), "outer 4 space");
    for operator in
        ["conv2d:ci=512,hw=33,co=128,k=1", "conv2d:ci=128,hw=32,co=512,k=1", "conv2d:ci=1024,hw=14,co=256,k=1"]
    {
        assert!(copied(operator).starts_with("- -"), "{operator}");
    }
}

#[test]
fn products_walk_panels_of_what_is_no_constant() {
    let tile = |operator| settings("sapphirerapids", operator, &["copy_at", "block", "tile_x", "parallel"]);
    assert_eq!(tile("matmul:m=512,n=512,k=512"), "outer 64 6 1");
    assert_eq!(tile("matmul:b=12,m=197,n=197,k=64"), "outer 32 12 2");
    // Columns of a transposed operand, and of one that no vectors divide.
    assert_eq!(tile("matmul:m=256,n=256,k=256,tb=1"), "outer 64 6 1");
    assert_eq!(tile("matmul:m=33,n=65,k=129"), "outer 32 12 1");
    // Few numbers, and few rows.
    assert_eq!(tile("matmul:m=128,n=64,k=64"), "- 64 4 3");
    assert_eq!(tile("matmul:m=8,n=1024,k=1024"), "- 64 4 3");
}

#[test]
fn pointwise_convolutions_prefetch_on_several_cores_of_an_intel_server() {
    let operator = "conv2d:ci=256,hw=14,co=1024,k=1";
    let prefetch = |cpu, operator| settings(cpu, operator, &["prefetch"]);
    assert_eq!([prefetch("sapphirerapids", operator), prefetch("znver5", operator)], ["yes", "-"]);
    assert_eq!(settings_with("avx2", "haswell", operator, &["prefetch"]), "-");
    // One tile along columns; a copied input; vectors along columns; windows.
    for operator in [
        "conv2d:ci=960,hw=2,co=160,k=1",
        "conv2d:ci=512,hw=33,co=2048,k=1",
        "conv2d:ci=24,hw=56,co=144,k=1",
        "conv2d:ci=64,hw=14,co=64,k=3,p=1",
    ] {
        assert_eq!(prefetch("sapphirerapids", operator), "-", "{operator}");
    }
}

#[test]
fn rows_that_no_tile_divides_have_a_last_tile_apart() {
    let tile = |operator| settings("sapphirerapids", operator, &["block", "tile_x", "parallel"]);
    assert_eq!(tile("dense:m=197,n=768,k=768"), "64 6 1");
    assert_eq!(tile("dense:m=77,n=768,k=768"), "64 6 1");
    // Those that one divides, and fewer blocks of channels than cores.
    assert_eq!(tile("dense:m=128,n=768,k=768"), "32 4 3");
    assert_eq!(tile("dense:m=197,n=64,k=768"), "64 1 3");
}

#[test]
fn tiles_leave_registers_for_operands() {
    let tile = |operator| settings_with("avx2", "haswell", operator, &["block", "tile_c", "tile_x"]);
    // 2 × 6 and 3 × 4 accumulators leave four of sixteen registers for weights and a broadcast.
    assert_eq!(tile("dense:m=128,n=256,k=256"), "16 1 6");
    assert_eq!(tile("dense:m=64,n=768,k=768"), "8 3 4");
    assert_eq!(tile("matmul:m=512,n=512,k=512"), "16 1 6");
    // A single row uses each weight once, as an operand in memory.
    assert_eq!(tile("dense:m=1,n=1000,k=512"), "32 2 1");
    // Columns of windows share inputs; weights that exceed the caches are used for several columns.
    assert_eq!(tile("conv2d:ci=128,hw=56,co=128,k=3,p=1,s=2"), "16 1 4");
    assert_eq!(tile("conv2d:ci=96,hw=27,co=256,k=5,p=2"), "16 1 3");
    assert_eq!(tile("conv2d:ci=512,hw=14,co=512,k=3,p=1,s=2"), "8 1 7");
    // The weights of three blocks and one broadcast fit; the broadcasts of four columns and a weight would not.
    let pointwise = "conv2d:ci=96,hw=14,co=576,k=1,bias=1,act=relu";
    assert_eq!(settings_with("avx2", "haswell", pointwise, &["tile_c", "tile_x", "held"]), "3 4 weights");
    assert_eq!(settings("znver5", pointwise, &["held"]), "-");
    // Depthwise: one channel at a time.
    assert_eq!(tile("depthwise_conv2d:c=96,hw=14,k=7,p=3"), "- 1 7");
}

#[test]
fn gathered_rows_are_reused_for_a_vector_of_channels() {
    let operator = "einsum:equation=bhqd;bhkd->bhqk,shape=1x4x32x64,other=1x4x32x64";
    let axes = ["layout", "tile_c", "tile_x"];
    assert_eq!(settings_with("avx2", "haswell", operator, &axes), "plain 8 8");
    assert_eq!(settings("znver5", operator, &axes), "plain 16 16");
}

#[test]
fn tiles_of_queries_fit_registers() {
    let tile = |feature, operator| settings_with(feature, "x86-64", operator, &["block", "tile_y"]);
    assert_eq!(tile("avx2", "attention:b=1,h=4,s=128,d=64"), "16 4");
    assert_eq!(tile("avx2", "attention:b=1,h=4,s=96,d=128"), "16 6");
    assert_eq!(tile("avx512f", "attention:b=1,h=4,s=128,d=64"), "64 4");
    assert_eq!(tile("avx512f", "attention:b=1,h=4,s=96,d=128"), "32 8");
    // With a prime number of queries the last tile reaches past the end.
    assert_eq!(tile("avx512f", "attention:b=1,h=12,s=197,d=64"), "32 8");
    assert_eq!(tile("avx2", "attention:b=1,h=12,s=197,d=64"), "16 6");
    assert_eq!(tile("avx2", "attention:b=1,h=8,s=77,d=64"), "16 6");
    assert_eq!(tile("avx512f", "attention:b=1,h=12,s=3,t=128,d=64"), "64 3");
}

#[test]
fn pointwise_tiles_hold_twelve_sums_in_16_registers() {
    let tile = |operator| settings_with("avx2", "haswell", operator, &["layout", "block", "tile_c", "tile_x"]);
    // Channels that six divides or of which the last tile lacks some.
    assert_eq!(tile("conv2d:ci=96,hw=56,co=24,k=1"), "plain - 6 16");
    assert_eq!(tile("conv2d:ci=128,hw=28,co=128,k=1"), "plain - 6 16");
    assert_eq!(tile("conv2d:ci=128,hw=56,co=256,k=1"), "plain - 5 16");
    // Images that no such tile divides, and functions on whole vectors.
    assert_eq!(tile("conv2d:ci=768,hw=7,co=768,k=1"), "blocked 8 3 4");
    assert_eq!(tile("conv2d:ci=960,hw=7,co=320,k=1"), "blocked 16 1 6");
    assert_eq!(tile("conv2d:ci=80,hw=14,co=480,k=1,bias=1,act=silu"), "blocked 16 1 6");
    // Strided windows leave a register free.
    assert_eq!(tile("conv2d:ci=32,hw=112,co=64,k=1,s=2"), "blocked 16 1 4");
}

#[test]
fn groups_that_fill_no_vector_have_columns_as_vectors() {
    let axes = ["layout", "tile_c", "tile_y", "tile_x"];
    let few = "conv2d:ci=128,hw=56,co=128,k=3,p=1,g=32";
    assert_eq!(settings_with("avx2", "haswell", few, &axes), "plain 4 2 8");
    assert_eq!(settings("znver5", "conv2d:ci=256,hw=28,co=256,k=3,p=1,g=32", &axes), "plain 8 2 14");
    // The padding of whole rows would be tested column by column.
    let small = "conv2d:ci=256,hw=7,co=256,k=3,p=1,g=64";
    assert_eq!(settings_with("avx2", "haswell", small, &axes[..1]), "blocked");
    // A tile of several groups loads the inputs of each.
    assert_eq!(settings("znver5", "conv2d:ci=128,hw=28,co=128,k=3,p=1,g=8", &axes), "blocked 1 1 14");
}

#[test]
fn threads_share_columns_where_channels_leave_them_uneven() {
    let outer = |operator| settings_with("avx2", "haswell", operator, &["outer"]);
    assert_eq!(outer("conv2d:ci=672,hw=14,co=112,k=1,bias=1"), "space");
    assert_eq!(outer("conv2d:ci=512,hw=14,co=1024,k=1"), "channels");
}
