//! Schedules convolutions and matrix products with register tiles. Reduction loops are outside of a tile's own loops,
//! so that the tile's accumulator stays in registers during the whole reduction.

use super::{
    Knobs, Result, block_of_part, fuse_grains, fuse_parallel, last_epilogue, plain_copy, required_choice,
    required_number, single_epilogue,
};
use crate::lower::{Lowered, Part, ReachedInput};
use crate::tvm::expression::{Expression, index_constant};
use crate::tvm::schedule::{Block, Loop, Memory, Schedule as Moves};
use job::Packing;
use job::space::axes::{BLOCK, LAYOUT, OUTER, PAD_AT, PARALLEL, SPLIT_R, TILE_C, TILE_X, TILE_Y, UNROLL};
use job::space::choices::{CopyAt, HeldOperand, LayoutKind, PadAt, SumAt, SumOrder, TileOrder, WriteAt, YesNo};
use job::space::contraction::{
    CACHE_C, CACHE_R, CACHE_X, CACHE_Y, COPY_AT, HELD, ORDER, PREFETCH, SUM_AT, VECTORIZE, WRITE_AT,
};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Convolution, with dimensions `n, c, …, y, x`.
    Conv,
    /// Matrix product, with dimensions `…, row, column`; columns are treated as channels.
    Product,
}

pub(super) fn schedule_contraction(form: Form, lowered: &Lowered, knobs: &Knobs, moves: &Moves) -> Result<()> {
    let anchor = block_of_part(lowered, moves, Part::Anchor)?.expect("a contraction has an anchor");
    let pad = block_of_part(lowered, moves, Part::Pad)?;
    // Columns beyond the result would read out of bounds; a test per element would cost more than a padded copy.
    let has_phases = lowered.packings.iter().any(|packing| matches!(packing, Packing::Phases { .. }));
    let is_filled = !has_phases && lowered.blocks.iter().any(|block| block.part == Part::Cut);
    let pad_at = PAD_AT.setting_in(knobs).unwrap_or(if is_filled { PadAt::Outer } else { PadAt::Inline });
    if let Some(pad) = pad.as_ref().filter(|_| pad_at == PadAt::Inline) {
        moves.compute_inline(pad)?;
    }
    let copy_at = COPY_AT.setting_in(knobs).unwrap_or(CopyAt::No);
    let copy = match form {
        _ if copy_at == CopyAt::No => None,
        Form::Conv if pad.is_some() && pad_at != PadAt::Inline => pad.clone(),
        Form::Conv => Some(moves.cache_read(&anchor, 0, Memory::Global)?),
        Form::Product => block_of_part(lowered, moves, Part::Copy)?,
    };
    let is_blocked = matches!(required_choice(knobs, &LAYOUT)?, LayoutKind::Blocked | LayoutKind::Dots);
    let write_at = WRITE_AT.setting_in(knobs).unwrap_or(WriteAt::Tile);
    let (result, cut, written) = match write_at {
        WriteAt::Tile => split_at_cut(lowered, moves, &anchor).map(|(result, cut)| (result, cut, None))?,
        WriteAt::Root => split_written(lowered, moves, &anchor)?,
    };
    let tile = ContractionTile::new(knobs, is_blocked)?;
    let dimensions = |count: usize| Dimensions::for_block(form, count, is_blocked && !has_phases, lowered);
    let tiled = tile_result(&dimensions, moves, &result, &tile, knobs)?;
    let has_pad = pad.is_some();
    let (reduction, tile_loop) = schedule_anchor(&dimensions, moves, &anchor, knobs, &tile, &tiled)?;
    // Padded columns are cut to the valid ones once a whole row is computed.
    let (cut, apart) = if has_phases { (None, cut) } else { (cut, None) };
    let parallel =
        if cut.is_some() { tiled.rows } else { usize::try_from(required_number(knobs, &PARALLEL)?).unwrap_or(1) };
    let home = tiled.sum_depth(knobs);
    let parallel = parallel.min(home);
    let fused = fuse_grains(moves, &tiled.outer, parallel, knobs)?;
    // A partial last tile of rows is split off, so that the other tiles need no bounds tests.
    if lowered.has_tail && parallel <= tiled.rows {
        moves.annotate_loop(&tiled.outer[tiled.rows], "pragma_loop_partition_hint", 1)?;
    }
    if let Some(cut) = cut {
        moves.reverse_compute_at(&cut, &fused)?;
    }
    if let Some(end) = written {
        plain_copy(moves, &end)?;
    }
    // Phases are interleaved after all of them are computed.
    if let Some(together) = apart {
        fuse_parallel(moves, &moves.loops(&together)?, 2)?;
    }
    if let Some(copy) = &copy {
        moves.compute_at(copy, if copy_at == CopyAt::Part { &reduction[0] } else { &fused })?;
    }
    match pad.filter(|_| pad_at != PadAt::Inline && copy.is_none()) {
        Some(pad) if pad_at == PadAt::Root => plain_copy(moves, &pad)?,
        Some(pad) => {
            moves.compute_at(&pad, &fused)?;
            let own = moves.loops(&pad)?;
            moves.annotate_loop(own.last().expect("the padded input has columns"), "pragma_loop_partition_hint", 1)?;
        }
        None => {}
    }
    for block in lowered.blocks.iter().filter(|block| matches!(block.part, Part::Quads | Part::Helper)) {
        let own = moves.loops(&moves.block(&block.name)?)?;
        fuse_parallel(moves, &own, own.len() - 1)?;
    }
    // Last, because loops around a decomposed reduction can no longer be annotated.
    let start = moves.decompose_reduction(&anchor, &reduction[0])?;
    let (last, _) = split_last(&moves.loops(&start)?);
    if required_choice(knobs, &VECTORIZE)? == YesNo::Yes {
        moves.vectorize_loop(&last)?;
    }
    if PREFETCH.is_set_to(knobs, YesNo::Yes) && copy.is_none() && !has_pad {
        prefetch_next(moves, &anchor, &tile_loop, &tile, &dimensions)?;
    }
    if let Some(window) = &lowered.window {
        skip_padding(moves, window, &tile, &reduction)?;
    }
    Ok(())
}

fn skip_padding(moves: &Moves, window: &ReachedInput, tile: &ContractionTile, reduction: &[Loop]) -> Result<()> {
    let spatial = window.strides.len();
    let depth = &reduction[spatial];
    let at = moves.start_indices(depth)?;
    let taps = &at[at.len() - spatial..];
    let mut inside: Option<Expression> = None;
    for d in 0..spatial {
        let (stride, head) = (window.strides[d], window.heads[d]);
        let whole = Dimensions { form: Form::Conv, rank: spatial + 2, is_blocked: false };
        let reach = (tile.tile_extent(&whole, d + 2) - 1) * stride;
        let first =
            at[d + 2].mul(&index_constant(stride)?)?.add(&taps[d].mul(&index_constant(window.dilations[d])?)?)?;
        let is_inside = first
            .at_least(&index_constant(head - reach)?)?
            .and(&first.less(&index_constant(head + window.extents[d])?)?)?;
        inside = Some(match inside {
            None => is_inside,
            Some(before) => before.and(&is_inside)?,
        });
    }
    Ok(moves.only_if(depth, inside.expect("a window has dimensions"))?)
}

fn split_at_cut(lowered: &Lowered, moves: &Moves, anchor: &Block) -> Result<(Block, Option<Block>)> {
    let Some(place) = lowered.blocks.iter().position(|block| block.part == Part::Cut) else {
        return Ok((single_epilogue(lowered, moves, anchor)?, None));
    };
    let (before, after) = lowered.blocks.split_at(place);
    let cut = moves.block(&after[0].name)?;
    let end = match last_epilogue(&after[1..], moves)? {
        None => cut,
        Some(end) => {
            moves.compute_inline(&cut)?;
            end
        }
    };
    let sums = match last_epilogue(before, moves)? {
        Some(sums) => sums,
        None => moves.cache_write(anchor, Memory::Global)?,
    };
    Ok((sums, Some(end)))
}

struct Dimensions {
    form: Form,
    rank: usize,
    is_blocked: bool,
}

impl Dimensions {
    /// Describes a block with `count` loops. In blocked layouts, sums have one loop more than the result.
    fn for_block(form: Form, count: usize, is_blocked: bool, lowered: &Lowered) -> Dimensions {
        let rank = lowered.task.steps[0].output.shape.len();
        let is_blocked = is_blocked && count == rank + 1;
        Dimensions { form, rank: if is_blocked { rank } else { count }, is_blocked }
    }

    fn channel_dimension(&self) -> usize {
        match self.form {
            Form::Conv => 1,
            Form::Product => self.rank - 1,
        }
    }

    fn column_dimension(&self) -> usize {
        match self.form {
            Form::Conv => self.rank - 1,
            Form::Product => self.rank - 2,
        }
    }
}

struct ContractionTile {
    channels: i64,
    block: i64,
    rows: i64,
    columns: i64,
}

impl ContractionTile {
    fn new(knobs: &Knobs, is_blocked: bool) -> Result<ContractionTile> {
        Ok(ContractionTile {
            channels: required_number(knobs, &TILE_C)?,
            block: if is_blocked { required_number(knobs, &BLOCK)? } else { 1 },
            rows: required_number(knobs, &TILE_Y)?,
            columns: required_number(knobs, &TILE_X)?,
        })
    }

    fn tile_extent(&self, dimensions: &Dimensions, place: usize) -> i64 {
        let Dimensions { form, rank, is_blocked } = *dimensions;
        match form {
            _ if place == rank => self.block,
            _ if place == dimensions.channel_dimension() => self.channels * if is_blocked { 1 } else { self.block },
            _ if place == dimensions.column_dimension() => self.columns,
            Form::Conv if place > 1 && place == rank - 2 => self.rows,
            Form::Conv | Form::Product => 1,
        }
    }
}

/// Returns the block to tile, and the block that copies its valid part if tiles overhang, otherwise the last epilogue.
fn split_written(lowered: &Lowered, moves: &Moves, anchor: &Block) -> Result<(Block, Option<Block>, Option<Block>)> {
    if lowered.blocks.iter().any(|block| block.part == Part::Cut) {
        return split_at_cut(lowered, moves, anchor).map(|(result, cut)| (result, cut, None));
    }
    let end = last_epilogue(&lowered.blocks, moves)?;
    Ok((moves.cache_write(anchor, Memory::Global)?, None, end))
}

struct Tiled {
    outer: Vec<Loop>,
    inner: Vec<Loop>,
    /// Number of outer loops around all tiles of a row.
    rows: usize,
    /// Number of outer loops around the tiles whose sums are accumulated together.
    together: usize,
}

impl Tiled {
    fn sum_depth(&self, knobs: &Knobs) -> usize {
        if SUM_AT.is_set_to(knobs, SumAt::Cache) { self.together } else { self.outer.len() }
    }
}

fn tile_result(
    dimensions: &impl Fn(usize) -> Dimensions,
    moves: &Moves,
    result: &Block,
    tile: &ContractionTile,
    knobs: &Knobs,
) -> Result<Tiled> {
    let loops = moves.loops(result)?;
    let dimensions = dimensions(loops.len());
    let (mut outer, mut inside, mut inner) = (Vec::new(), Vec::new(), Vec::new());
    for (place, target) in loops.iter().enumerate() {
        let parts = moves.split_loop(target, &[None, Some(tile.tile_extent(&dimensions, place))])?;
        inner.push(parts[1].clone());
        let together = cached_tiles(&dimensions, place, knobs);
        if together > 1 {
            let halves = moves.split_loop(&parts[0], &[None, Some(together)])?;
            outer.push(halves[0].clone());
            inside.push((place, halves[1].clone()));
        } else {
            outer.push(parts[0].clone());
        }
    }
    let places = order_of_places(&dimensions, required_choice(knobs, &OUTER)?);
    let mut ordered: Vec<Loop> = places.iter().map(|&place| outer[place].clone()).collect();
    let together = ordered.len();
    for place in &places {
        ordered.extend(inside.iter().filter(|(own, _)| own == place).map(|(_, target)| target.clone()));
    }
    moves.reorder_loops(&ordered.iter().chain(&inner).cloned().collect::<Vec<_>>())?;
    let columns = dimensions.column_dimension();
    let rows = places.iter().position(|&place| place == columns).expect("columns are a dimension");
    Ok(Tiled { outer: ordered, inner, rows, together })
}

fn cached_tiles(dimensions: &Dimensions, place: usize, knobs: &Knobs) -> i64 {
    let one = ContractionTile {
        channels: CACHE_C.or_one(knobs),
        block: 1,
        rows: CACHE_Y.or_one(knobs),
        columns: CACHE_X.or_one(knobs),
    };
    one.tile_extent(dimensions, place)
}

fn order_of_places(dimensions: &Dimensions, outer: TileOrder) -> Vec<usize> {
    let Dimensions { form, rank, is_blocked } = *dimensions;
    let mut places = outer.dimension_order(dimensions.channel_dimension(), rank, form == Form::Conv);
    places.extend(is_blocked.then_some(rank));
    places
}

/// Schedules the anchor (the contraction) inside a tile. Returns its reduction loops, outermost first, and the
/// outermost loop of the tile.
fn schedule_anchor(
    dimensions: &impl Fn(usize) -> Dimensions,
    moves: &Moves,
    anchor: &Block,
    knobs: &Knobs,
    tile: &ContractionTile,
    tiled: &Tiled,
) -> Result<(Vec<Loop>, Loop)> {
    let surrounding = tiled.sum_depth(knobs);
    let is_cached = surrounding < tiled.outer.len();
    moves.compute_at(anchor, &tiled.outer[surrounding - 1])?;
    let spatial = moves.reduction_flags(anchor)?.iter().filter(|reduces| !**reduces).count();
    let loops = moves.loops(anchor)?;
    let mut own = loops[surrounding..surrounding + spatial].to_vec();
    let (reduction, ends_with_depth) = order_reduction(moves, &loops[surrounding + spatial..], knobs)?;
    let mut tiles = Vec::new();
    if is_cached {
        let dimensions = dimensions(spatial);
        for (place, target) in own.iter_mut().enumerate() {
            let parts = moves.split_loop(target, &[None, Some(tile.tile_extent(&dimensions, place))])?;
            tiles.push(parts[0].clone());
            *target = parts[1].clone();
        }
    }
    if HELD.is_set_to(knobs, HeldOperand::Weights) && dimensions(spatial).is_blocked {
        // The unrolled loop over channels moves inside of those over positions.
        let vectors = own.len() - 1;
        own[dimensions(spatial).channel_dimension()..vectors].rotate_left(1);
    }
    let (outermost, others) = reduction.split_first().expect("a contraction reduces");
    let order = std::iter::once(outermost).chain(&tiles).chain(others).chain(&own);
    moves.reorder_loops(&order.cloned().collect::<Vec<_>>())?;
    // Unrolling the whole depth would take minutes to compile; only a split part or a kernel extent is short enough.
    let is_short = required_number(knobs, &SPLIT_R)? > 1 || !ends_with_depth;
    if required_number(knobs, &UNROLL)? > 0 && is_short {
        moves.unroll_loop(reduction.last().expect("there are several reduction loops"))?;
    }
    let (last, others) = split_last(&own);
    if required_choice(knobs, &VECTORIZE)? == YesNo::Yes {
        moves.vectorize_loop(&last)?;
        moves.vectorize_loop(tiled.inner.last().expect("a tile has one loop per dimension"))?;
    }
    for target in &others {
        moves.unroll_loop(target)?;
    }
    Ok((reduction, own[0].clone()))
}

/// Prefetches the input of the next tile along columns in each step of the sum. Without it, a core waits for each line
/// that another core has written: the lines of a step's channel are far from those of the previous one.
fn prefetch_next(
    moves: &Moves,
    anchor: &Block,
    tile_loop: &Loop,
    tile: &ContractionTile,
    dimensions: &impl Fn(usize) -> Dimensions,
) -> Result<()> {
    /// Floats in a cache line.
    const LINE: i64 = 16;
    let reduces = moves.reduction_flags(anchor)?;
    let spatial = reduces.iter().filter(|reduces| !**reduces).count();
    let columns = dimensions(spatial).column_dimension();
    let lines = (tile.columns + LINE - 1) / LINE;
    // The last column of each part of the next tile, so that adjacent tiles reach every line.
    let ahead = (1..=lines).map(|line| {
        let mut ahead = vec![0; reduces.len()];
        ahead[columns] = tile.columns + tile.columns * line / lines - 1;
        ahead
    });
    Ok(moves.prefetch_before(tile_loop, &ahead.collect::<Vec<_>>())?)
}

fn split_last(loops: &[Loop]) -> (Loop, Vec<Loop>) {
    let (last, others) = loops.split_last().expect("a block has at least one loop");
    (last.clone(), others.to_vec())
}

/// Orders the reduction loops, parts of the depth first; returns whether the depth is innermost but for `SPLIT_R`.
fn order_reduction(moves: &Moves, reduction: &[Loop], knobs: &Knobs) -> Result<(Vec<Loop>, bool)> {
    let inner = required_number(knobs, &SPLIT_R)?;
    let (depth, kernel) = reduction.split_first().expect("a contraction reduces");
    let part = CACHE_R.setting_in(knobs).filter(|&steps| steps > 1);
    let halves = match part {
        Some(steps) => moves.split_loop(depth, &[None, Some(steps)])?,
        None => vec![depth.clone()],
    };
    let (depth, outermost) = halves.split_last().expect("a split has parts");
    let parts = if inner > 1 { moves.split_loop(depth, &[None, Some(inner)])? } else { vec![depth.clone()] };
    let (depth, rest) = parts.split_first().expect("a split has parts");
    let all = [std::slice::from_ref(depth), kernel].concat();
    let order = ORDER.setting_in(knobs).unwrap_or(SumOrder::KernelFirst);
    let places = order.loop_order(all.len());
    let ordered = places.iter().map(|&place| all[place].clone()).chain(rest.iter().cloned());
    Ok((outermost.iter().cloned().chain(ordered).collect(), order != SumOrder::DepthFirst && places.last() == Some(&0)))
}
