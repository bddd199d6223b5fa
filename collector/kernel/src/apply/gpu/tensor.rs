//! Schedules matrix products and convolutions on tensor cores: a block computes a tile of the result, each warp a
//! smaller tile of whole fragments in its registers. Both operands are staged in shared memory, one part of the
//! reduction at a time. The windows of a convolution are arranged as a matrix while they are staged.

use super::{Block, Knobs, Loop, Lowered, Memory, Moves, Part, Result, ThreadAxis};
use super::{Summed, block_of_part, required_number, single_epilogue, split_sum};
use crate::lower::column_of;
use crate::tvm::tensor_core::Step;
use job::device::{FRAGMENT, OperandSide, Product};
use job::space::choices::CopyThrough;
use job::space::gpu::PAD_ROWS;
use job::space::gpu::tensor::{
    AHEAD, COPY, FRAGMENTS_R, FRAGMENTS_X, FRAGMENTS_Y, Operands, WARPS_X, WARPS_Y, tensor_operands,
};
use models::Task;

pub(super) fn schedule_tensor(task: &Task, lowered: &Lowered, knobs: &Knobs, moves: &Moves) -> Result<()> {
    let operands = tensor_operands(task, u32::MAX).expect("only tensor-core products have this setting");
    let anchor = block_of_part(lowered, moves, Part::Anchor)?.expect("a contraction has an anchor");
    if let Some(pad) = block_of_part(lowered, moves, Part::Pad)? {
        moves.compute_inline(&pad)?;
    }
    let result = single_epilogue(lowered, moves, &anchor)?;
    let Summed { anchor, result, is_partial } = split_sum(moves, anchor, result, knobs)?;
    let is_scattered = operands.is_conv && !is_partial;
    if is_scattered {
        let extents = task.steps[0].output.extents().expect("a product has constant extents");
        moves.remap_loops(&result, |at| column_of(at, &extents[2..]))?;
    }
    // Accumulator fragments are stored to shared memory, which every thread can read.
    let sums = moves.cache_write(&anchor, fragment_memory(operands.product, OperandSide::Sum))?;
    moves.set_memory(&sums, Memory::SharedAtLaunch)?;

    let at_once = if is_scattered { 1 } else { RESULT_AT_ONCE };
    let block = tile_result(moves, &result, knobs, at_once)?;
    moves.compute_at(&sums, &block)?;
    let [warp, store] = tile_sums(moves, &sums, knobs)?;
    moves.compute_at(&anchor, &warp)?;
    let anchored = order_anchor(moves, &anchor, operands.product, knobs)?;
    let windows = block_of_part(lowered, moves, Part::Windows)?;
    let staged = stage_operands(moves, (&anchor, windows.as_ref()), &anchored, &operands, knobs)?;
    let start = moves.decompose_reduction(&anchor, &anchored.rounds)?;

    let Operands { product, is_left_transposed, is_right_transposed, .. } = operands;
    let filled = own_loops(moves, &start)?;
    moves.tensorize_loop(&filled[filled.len() - 2], product, Step::Fill)?;
    let loads =
        [Step::LoadLeft { is_transposed: is_left_transposed }, Step::LoadRight { is_transposed: is_right_transposed }];
    for (rows, load) in staged.iter().zip(loads) {
        moves.tensorize_loop(rows, product, load)?;
    }
    moves.tensorize_loop(&anchored.fragment, product, Step::Multiply { is_left_transposed, is_right_transposed })?;
    moves.tensorize_loop(&store, product, Step::Store)?;
    // The next part of both operands is loaded while tensor cores work on the current one.
    if let late @ 1.. = required_number(knobs, &AHEAD)? {
        moves.overlap_iterations(&anchored.rounds, &[0, 0, late], COPY.is_set_to(knobs, CopyThrough::Async))?;
    }
    Ok(())
}

/// Returns the memory scope of fragments; TVM has no scope for TF32, whose fragments are plain arrays of each lane.
fn fragment_memory(product: Product, side: OperandSide) -> Memory {
    match side {
        _ if product == Product::TF32 => Memory::Local,
        OperandSide::Left => Memory::FragmentsLeft,
        OperandSide::Right => Memory::FragmentsRight,
        OperandSide::Sum => Memory::FragmentsSum,
    }
}

fn own_loops(moves: &Moves, block: &Block) -> Result<Vec<Loop>> {
    let count = moves.reduction_flags(block)?.len();
    let loops = moves.loops(block)?;
    Ok(loops[loops.len() - count..].to_vec())
}

/// Returns rows and columns of a warp's tile, in fragments, then rows and columns of a block's tile, in warps.
fn tile_fragments(knobs: &Knobs) -> Result<[[i64; 2]; 2]> {
    let fragments = [required_number(knobs, &FRAGMENTS_Y)?, required_number(knobs, &FRAGMENTS_X)?];
    let warps = [required_number(knobs, &WARPS_Y)?, required_number(knobs, &WARPS_X)?];
    Ok([fragments, warps])
}

fn tile_result(moves: &Moves, result: &Block, knobs: &Knobs, at_once: i64) -> Result<Loop> {
    let [fragments, warps] = tile_fragments(knobs)?;
    let loops = moves.loops(result)?;
    let (outer, [row, column]) = loops.split_last_chunk().expect("a product has rows and columns");
    let rows = moves.split_loop(row, &[None, Some(FRAGMENT * fragments[0] * warps[0])])?;
    let columns = moves.split_loop(column, &[None, Some(FRAGMENT * fragments[1] * warps[1])])?;
    let [rows, columns] = [rows, columns].map(|parts| [parts[0].clone(), parts[1].clone()]);
    let ([row, inner_row], [column, inner_column]) = (rows, columns);
    moves.reorder_loops(&[row.clone(), column.clone(), inner_row.clone(), inner_column.clone()])?;
    let block = moves.fuse_loops(&[outer, &[row, column]].concat())?;
    moves.bind_axis(&block, ThreadAxis::BlockX)?;
    let elements = moves.fuse_loops(&[inner_row, inner_column])?;
    bind_lanes(moves, &elements, warps[0] * warps[1], at_once)?;
    Ok(block)
}

const RESULT_AT_ONCE: i64 = 4;

/// Distributes a loop over the lanes of all warps of a block, `vector` adjacent elements per lane.
fn bind_lanes(moves: &Moves, elements: &Loop, warps: i64, vector: i64) -> Result<()> {
    const LANES: i64 = job::device::WARP_THREADS as i64;
    let parts = moves.split_loop(elements, &[None, Some(warps), Some(LANES), Some(vector)])?;
    moves.bind_axis(&parts[1], ThreadAxis::ThreadY)?;
    moves.bind_axis(&parts[2], ThreadAxis::ThreadX)?;
    if vector > 1 {
        moves.vectorize_loop(&parts[3])?;
    }
    Ok(())
}

/// Tiles a block of sums for warps and fragments; returns the loop over warps and the loop over the rows of a fragment.
fn tile_sums(moves: &Moves, sums: &Block, knobs: &Knobs) -> Result<[Loop; 2]> {
    let [fragments, warps] = tile_fragments(knobs)?;
    let own = own_loops(moves, sums)?;
    let [row, column] = own.last_chunk().expect("a product has rows and columns");
    let rows = moves.split_loop(row, &[Some(warps[0]), Some(fragments[0]), Some(FRAGMENT)])?;
    let columns = moves.split_loop(column, &[Some(warps[1]), Some(fragments[1]), Some(FRAGMENT)])?;
    let pairs: Vec<Loop> = rows.iter().zip(&columns).flat_map(|(row, column)| [row.clone(), column.clone()]).collect();
    moves.reorder_loops(&pairs)?;
    let warp = moves.fuse_loops(&pairs[..2])?;
    moves.bind_axis(&warp, ThreadAxis::ThreadY)?;
    Ok([warp, pairs[4].clone()])
}

/// Loops over staged parts of the depth, over fragments within a part, and over the rows of a fragment.
struct Anchored {
    rounds: Loop,
    depth: Loop,
    fragment: Loop,
}

fn order_anchor(moves: &Moves, anchor: &Block, product: Product, knobs: &Knobs) -> Result<Anchored> {
    let [fragments, _] = tile_fragments(knobs)?;
    let own = own_loops(moves, anchor)?;
    let [row, column, depth] = own.last_chunk().expect("a product has rows, columns and a depth");
    let rows = moves.split_loop(row, &[Some(fragments[0]), Some(FRAGMENT)])?;
    let columns = moves.split_loop(column, &[Some(fragments[1]), Some(FRAGMENT)])?;
    let depths = moves
        .split_loop(depth, &[None, Some(required_number(knobs, &FRAGMENTS_R)?), Some(product.fragment_depth())])?;
    let order = [&depths[0], &depths[1], &rows[0], &columns[0], &rows[1], &columns[1], &depths[2]];
    moves.reorder_loops(&order.map(Clone::clone))?;
    moves.unroll_loop(&depths[1])?;
    Ok(Anchored { rounds: depths[0].clone(), depth: depths[1].clone(), fragment: rows[1].clone() })
}

/// Stages both operands in shared memory, then in fragments; returns for each operand the loop over a fragment's rows.
fn stage_operands(
    moves: &Moves,
    (anchor, windows): (&Block, Option<&Block>),
    anchored: &Anchored,
    operands: &Operands,
    knobs: &Knobs,
) -> Result<Vec<Loop>> {
    let [_, warps] = tile_fragments(knobs)?;
    let product = operands.product;
    let mut rows_of_fragments = Vec::new();
    for (place, side) in [OperandSide::Left, OperandSide::Right].into_iter().enumerate() {
        let number = i64::try_from(place).unwrap_or(i64::MAX);
        let shared = match windows.filter(|_| side == OperandSide::Right) {
            Some(windows) => {
                moves.set_memory(windows, Memory::SharedAtLaunch)?;
                windows.clone()
            }
            None => moves.cache_read(anchor, number, Memory::SharedAtLaunch)?,
        };
        let fragment = moves.cache_read(anchor, number, fragment_memory(product, side))?;
        let is_transposed = [operands.is_left_transposed, operands.is_right_transposed][place];
        let [height, width] = product.fragment_extents(side, is_transposed);
        moves.compute_at(&fragment, &anchored.depth)?;
        moves.compute_at(&shared, &anchored.rounds)?;
        let own = own_loops(moves, &fragment)?;
        let [row, column] = own.last_chunk().expect("an operand is a matrix");
        let rows = moves.split_loop(row, &[None, Some(height)])?;
        let columns = moves.split_loop(column, &[None, Some(width)])?;
        moves.reorder_loops(&[&rows[0], &columns[0], &rows[1], &columns[1]].map(Clone::clone))?;
        rows_of_fragments.push(rows[1].clone());

        let own = own_loops(moves, &shared)?;
        bind_lanes(moves, &moves.fuse_loops(&own[own.len() - 2..])?, warps[0] * warps[1], operands.vectors[place])?;
        if PAD_ROWS.setting_in(knobs) == Some(1) {
            let row = i64::try_from(own.len()).unwrap_or(i64::MAX) - 2;
            // Pads rows so that they start in different banks and stay aligned for vectors and fragments.
            moves.align_storage(&shared, row, 2 * FRAGMENT, operands.vectors[0])?;
        }
    }
    Ok(rows_of_fragments)
}
