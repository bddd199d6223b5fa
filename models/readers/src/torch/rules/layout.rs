//! Rearrangements without arithmetic: permuted axes, diagonals, mesh grids, rotations, tiles and border pads.

use super::movement::primary_input;
use super::views::{diagonal_mask, replace_diagonal};
use super::{
    Call, Diagonal, Memory, Outputs, RuleOutput, numbers_of, own_output, permuted_output, push_output, view_output,
};
use crate::{Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{Binary, BinaryOp, Border, BorderPad, Expand, Gather, Op, Slice, Tile, Where};
use models::types::{DType, TensorType};
use reference::Tensor;

pub(super) fn mesh_grid(call: &mut Call<'_, '_>) -> Outputs {
    let vectors = call.tensor_list("tensors")?;
    let is_swapped = call.text_argument("indexing", "ij")? == "xy" && vectors.len() > 1;
    let mut place: Vec<usize> = (0..vectors.len()).collect();
    if is_swapped {
        place.swap(0, 1);
    }
    let mut shape = vec![1; vectors.len()];
    for (index, &vector) in vectors.iter().enumerate() {
        shape[place[index]] = call.emit.extents(vector)?.iter().product();
    }
    let mut made = Vec::new();
    for (index, &vector) in vectors.iter().enumerate() {
        let mut own_shape = vec![1; shape.len()];
        own_shape[place[index]] = shape[place[index]];
        let id = call.emit.reshape(vector, &own_shape)?;
        let id = call.emit.expand(id, &shape)?;
        made.push(RuleOutput { id, window: Memory::Own });
    }
    Ok(made)
}

pub(super) fn swap_axes(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let names = if call.operator == "swapaxes" { ["axis0", "axis1"] } else { ["dim0", "dim1"] };
    let (a, b) = (call.axis_argument(x, names[0], 0)?, call.axis_argument(x, names[1], 1)?);
    let mut order: Vec<usize> = (0..call.emit.rank(x)?).collect();
    order.swap(a, b);
    permuted_output(call, x, &order)
}

pub(super) fn transpose_last(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let rank = call.emit.rank(x)?;
    let mut order: Vec<usize> = (0..rank).collect();
    if rank < 2 {
        return malformed(format!("a matrix cannot have {rank} dimensions"));
    }
    order.swap(rank - 2, rank - 1);
    permuted_output(call, x, &order)
}

pub(super) fn move_axes(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let rank = call.emit.rank(x)?;
    let axes = |name: &str| -> Outcome<Vec<usize>> {
        call.int_list(name)?.into_iter().map(|axis| call.emit.resolve_axis(axis, rank)).collect()
    };
    let (from, to) = (axes("source")?, axes("destination")?);
    if from.len() != to.len() {
        return malformed("`source` and `destination` have different lengths");
    }
    let mut rest = (0..rank).filter(|axis| !from.contains(axis));
    let mut order = Vec::new();
    for place in 0..rank {
        let moved = to.iter().position(|&at| at == place).map(|index| from[index]);
        match moved.or_else(|| rest.next()) {
            Some(axis) => order.push(axis),
            None => return malformed("an axis is moved twice"),
        }
    }
    permuted_output(call, x, &order)
}

pub(super) fn diagonal(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let rank = call.emit.rank(x)?;
    if call.operator == "diag" && rank == 1 {
        return diagonal_matrix(call);
    }
    let is_named = call.operator != "diag";
    let offset = call.int_argument(if is_named { "offset" } else { "diagonal" }, 0)?;
    let (a, b) = if is_named { (call.axis_argument(x, "dim1", 0)?, call.axis_argument(x, "dim2", 1)?) } else { (0, 1) };
    if a == b || rank < 2 {
        return malformed("a diagonal needs two dimensions");
    }
    let emit = &mut *call.emit;
    let mut order: Vec<usize> = (0..rank).filter(|axis| ![a, b].contains(axis)).collect();
    order.extend([a, b]);
    let transposed = emit.transpose(x, &order)?;
    let mut shape = emit.extents(transposed)?;
    let [rows, columns] = [shape[rank - 2], shape[rank - 1]];
    let (row, column) = if offset < 0 { (offset.saturating_neg(), 0) } else { (0, offset) };
    let count = rows.saturating_sub(row).min(columns.saturating_sub(column));
    if count < 1 {
        return unsupported("an empty diagonal");
    }
    shape.truncate(rank - 2);
    numbers_of(&[count])?;
    shape.push(rows * columns);
    let flat = emit.reshape(transposed, &shape)?;
    let places: Vec<i64> = (0..count).map(|at| (row + at) * columns + column + at).collect();
    let places = emit.add_integers(&places)?;
    let id = emit.push(Op::Gather(Gather { axis: rank as i64 - 2 }), &[flat, places])?;
    Ok(vec![RuleOutput { id, window: Memory::Diagonal(Diagonal { offset, axes: (a, b) }) }])
}

pub(super) fn diagonal_matrix(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let rank = call.emit.rank(x)? + 1;
    let is_named = call.operator != "diag";
    let offset = call.int_argument(if is_named { "offset" } else { "diagonal" }, 0)?;
    let axis = |name: &str, default: i64| call.emit.resolve_axis(call.int_argument(name, default)?, rank);
    let (a, b) = (axis("dim1", -2)?, axis("dim2", -1)?);
    if a == b || rank < 2 {
        return malformed("a diagonal needs two dimensions");
    }
    let emit = &mut *call.emit;
    let mut shape = emit.extents(x)?;
    let extent = shape[rank - 2];
    let (row, column) = (offset.saturating_neg().max(0), offset.max(0));
    let size = extent.saturating_add(row).saturating_add(column);
    numbers_of(&[size, size])?;
    shape.insert(rank - 2, 1);
    let mut pads = vec![0; 2 * rank];
    (pads[rank - 1], pads[2 * rank - 1]) = (column, row);
    let wide = emit.reshape(x, &shape)?;
    let wide = if offset == 0 { wide } else { emit.pad(wide, &pads, 0.0)? };
    let is_on = diagonal_mask(emit, &[size, size], offset)?;
    let zero = emit.add_scalar(emit.dtype(x)?, 0.0)?;
    let matrix = emit.push(Op::Where(Where {}), &[is_on, wide, zero])?;
    // The last two dimensions move to `dim1` and `dim2`.
    let mut rest = 0..rank - 2;
    let order: Vec<usize> = (0..rank)
        .map(|at| match at {
            at if at == a => rank - 2,
            at if at == b => rank - 1,
            _ => rest.next().unwrap_or(0),
        })
        .collect();
    own_output(emit.transpose(matrix, &order)?)
}

/// Emits `diagonal_scatter`: a copy of the input whose diagonal is replaced.
pub(super) fn diagonal_scatter(call: &mut Call<'_, '_>) -> Outputs {
    let (x, part) = (call.tensor_argument("self")?, call.tensor_argument("src")?);
    let offset = call.int_argument("offset", 0)?;
    let (a, b) = (call.axis_argument(x, "dim1", 0)?, call.axis_argument(x, "dim2", 1)?);
    own_output(replace_diagonal(call.emit, x, part, Diagonal { offset, axes: (a, b) })?)
}

pub(super) fn channel_shuffle(call: &mut Call<'_, '_>) -> Outputs {
    let (x, groups) = (primary_input(call)?, call.int_argument("groups", 1)?);
    let extents = call.emit.extents(x)?;
    let Some(&channels) = extents.get(1) else { return malformed("the input must have at least 2 dimensions") };
    if groups < 1 || channels % groups != 0 {
        return malformed(format!("{groups} groups do not divide {channels} channels"));
    }
    let mut shape = extents.clone();
    shape.splice(1..2, [groups, channels / groups]);
    let cut = call.emit.reshape(x, &shape)?;
    let mut order: Vec<usize> = (0..shape.len()).collect();
    order.swap(1, 2);
    let transposed = call.emit.transpose(cut, &order)?;
    own_output(call.emit.reshape(transposed, &extents)?)
}

/// The elements of a tensor in memory order, and those that sizes and strides select.
struct Strided {
    /// The tensor with its dimensions in memory order, which are the dimensions `order` of the tensor.
    ordered: ValueId,
    order: Vec<usize>,
    sizes: Vec<i64>,
    places: Vec<i64>,
}

fn select_by_strides(call: &mut Call<'_, '_>) -> Outcome<Strided> {
    let x = primary_input(call)?;
    let (sizes, strides) = (call.int_list("size")?, call.int_list("stride")?);
    let offset = call.int_argument("storage_offset", 0)?;
    let count: i64 = call.emit.extents(x)?.iter().product();
    let order = match &call.memory_order {
        Some(order) if order.len() == call.emit.rank(x)? => order.clone(),
        _ => {
            return unsupported("the order of the input in memory is unknown; call `contiguous()` before `as_strided`");
        }
    };
    if sizes.len() != strides.len() || sizes.iter().any(|&size| size < 1) {
        return unsupported(format!("the sizes {sizes:?} with the strides {strides:?}"));
    }
    numbers_of(&sizes)?;
    let mut places = vec![offset];
    for (&size, &stride) in sizes.iter().zip(&strides) {
        let steps = |place: &i64| {
            let place = *place;
            (0..size).map(move |at| place.saturating_add(at.saturating_mul(stride)))
        };
        places = places.iter().flat_map(steps).collect();
    }
    if places.iter().any(|place| !(0..count).contains(place)) {
        return unsupported("strides that reach outside of the input");
    }
    let ordered = call.emit.transpose(x, &order)?;
    Ok(Strided { ordered, order, sizes, places })
}

/// Emits `as_strided`: gathers elements by strides from the memory of the input.
pub(super) fn as_strided(call: &mut Call<'_, '_>) -> Outputs {
    let Strided { ordered, sizes, places, .. } = select_by_strides(call)?;
    let count: i64 = call.emit.extents(ordered)?.iter().product();
    let flat = call.emit.reshape(ordered, &[count])?;
    if places.iter().enumerate().all(|(index, &place)| index as i64 == place) && places.len() as i64 == count {
        return view_output(call.emit.reshape(flat, &sizes)?);
    }
    let numbers: Vec<f64> = places.iter().map(|&place| place as f64).collect();
    let places = call.emit.constant_of(&Tensor::from_numbers(TensorType::new(DType::I64, &sizes), &numbers)?)?;
    view_output(call.emit.push(Op::Gather(Gather { axis: 0 }), &[flat, places])?)
}

/// Emits `as_strided_scatter`: a copy of the input with other elements at the selected places.
pub(super) fn as_strided_scatter(call: &mut Call<'_, '_>) -> Outputs {
    let part = call.tensor_argument("src")?;
    let Strided { ordered, order, places, .. } = select_by_strides(call)?;
    let emit = &mut *call.emit;
    let extents = emit.extents(ordered)?;
    let count = numbers_of(&extents)?;
    if emit.extents(part)?.iter().product::<i64>() != places.len() as i64 {
        return malformed("the number of written elements differs from that of the selected ones");
    }
    let (flat, part) = (emit.reshape(ordered, &[count])?, emit.reshape(part, &[places.len() as i64])?);
    let mut sources: Vec<i64> = (0..count).collect();
    places.iter().enumerate().for_each(|(at, &place)| sources[place as usize] = count + at as i64);
    let (both, sources) = (emit.concat_parts(&[flat, part], 0)?, emit.add_integers(&sources)?);
    let written = emit.push(Op::Gather(Gather { axis: 0 }), &[both, sources])?;
    let written = emit.reshape(written, &extents)?;
    own_output(emit.transpose_back(written, &order)?)
}

pub(super) fn tensor_split(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let axis = match (call.operator, call.emit.rank(x)?) {
        ("hsplit", 1) | ("vsplit", _) => 0,
        ("hsplit", _) => 1,
        ("dsplit", _) => 2,
        _ => call.axis_argument(x, "dim", 0)?,
    };
    call.axis_extent(x, axis)?;
    let extent = call.emit.extents(x)?.get(axis).copied().unwrap_or(1);
    let mut ends: Vec<i64> = if call.arguments.contains_key("sections") {
        let count = call.int_argument("sections", 1)?.clamp(1, 1 << 12);
        // The first parts are one element longer where the extent has a remainder.
        (1..=count).map(|part| part * (extent / count) + part.min(extent % count)).collect()
    } else {
        call.int_list("indices")?
            .into_iter()
            .map(|at| super::movement::clamp_position(at, extent))
            .chain([extent])
            .collect()
    };
    let mut start = 0;
    for end in &mut ends {
        let stop = (*end).max(start);
        *end = stop - start;
        start = stop;
    }
    super::movement::split_windows(call, x, axis, &ends)
}

/// Emits `hstack`, `vstack` and similar: joins tensors along a dimension, after expanding scalars and vectors.
pub(super) fn stack_flat(call: &mut Call<'_, '_>) -> Outputs {
    let mut parts = call.tensor_list("tensors")?;
    let is_rows = matches!(call.operator, "vstack" | "row_stack");
    for part in &mut parts {
        let extents = call.emit.extents(*part)?;
        let shape = match (&extents[..], call.operator) {
            ([], "hstack") => vec![1],
            ([], "dstack") => vec![1, 1, 1],
            ([], _) => vec![1, 1],
            ([one], "column_stack") => vec![*one, 1],
            ([one], _) if is_rows => vec![1, *one],
            ([one], "dstack") => vec![1, *one, 1],
            ([rows, columns], "dstack") => vec![*rows, *columns, 1],
            _ => extents,
        };
        *part = call.emit.reshape(*part, &shape)?;
    }
    let Some(&first) = parts.first() else { return malformed("there are no tensors to concatenate") };
    if call.operator == "dstack" {
        return own_output(call.emit.concat_parts(&parts, 2)?);
    }
    let axis = usize::from(!is_rows && call.emit.rank(first)? > 1);
    own_output(call.emit.concat_parts(&parts, axis)?)
}

pub(super) fn triangle_indices(call: &mut Call<'_, '_>, upper: bool) -> Outputs {
    let (rows, columns, offset) =
        (call.int_argument("row", 0)?, call.int_argument("col", 0)?, call.int_argument("offset", 0)?);
    let dtype = call.result_dtype()?;
    numbers_of(&[rows.max(1), columns.max(1)])?;
    let all = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    let is_inside = |&(row, column): &(i64, i64)| {
        let from_diagonal = (column - row).saturating_sub(offset);
        if upper { from_diagonal >= 0 } else { from_diagonal <= 0 }
    };
    let places: Vec<(i64, i64)> = all.filter(is_inside).collect();
    let numbers: Vec<f64> =
        places.iter().map(|place| place.0 as f64).chain(places.iter().map(|place| place.1 as f64)).collect();
    let ty = TensorType::new(dtype, &[2, places.len() as i64]);
    own_output(call.emit.constant_of(&Tensor::from_numbers(ty, &numbers)?)?)
}

pub(super) fn rotate_quarters(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let rank = call.emit.rank(x)?;
    let dims = if call.has_argument("dims") { call.int_list("dims")? } else { vec![0, 1] };
    let [a, b] = dims.iter().map(|&axis| call.emit.resolve_axis(axis, rank)).collect::<Outcome<Vec<_>>>()?[..] else {
        return malformed("`dims` must have 2 numbers");
    };
    let mut order: Vec<usize> = (0..rank).collect();
    order.swap(a, b);
    let turns = call.int_argument("k", 1)?.rem_euclid(4);
    let flipped = match turns {
        1 => reverse_axes(call, x, &[b])?,
        2 => reverse_axes(call, x, &[a, b])?,
        3 => reverse_axes(call, x, &[a])?,
        _ => x,
    };
    own_output(if turns % 2 == 1 { call.emit.transpose(flipped, &order)? } else { flipped })
}

fn reverse_axes(call: &mut Call<'_, '_>, x: ValueId, axes: &[usize]) -> Outcome<ValueId> {
    let extents = call.emit.extents(x)?;
    let mut axes = axes.to_vec();
    axes.sort_unstable();
    let starts = axes.iter().map(|&axis| extents[axis] - 1).collect();
    let (stops, steps) = (vec![-1; axes.len()], vec![-1; axes.len()]);
    let axes = axes.into_iter().map(|axis| axis as i64).collect();
    call.emit.push(Op::Slice(Slice { axes, starts, stops, steps }), &[x])
}

pub(super) fn flip_side(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let axis = call.emit.resolve_axis(i64::from(call.operator == "fliplr"), call.emit.rank(x)?)?;
    own_output(reverse_axes(call, x, &[axis])?)
}

pub(super) fn identity_matrix(call: &mut Call<'_, '_>) -> Outputs {
    let rows = call.int_argument("n", 0)?;
    let columns = call.int_argument("m", rows)?;
    let dtype = call.result_dtype()?;
    if !(1..=1 << 13).contains(&rows) || !(1..=1 << 13).contains(&columns) {
        return unsupported(format!("an identity matrix of {rows} x {columns}"));
    }
    let is_on = diagonal_mask(call.emit, &[rows, columns], 0)?;
    own_output(call.emit.cast(is_on, dtype)?)
}

pub(super) fn outer_product(call: &mut Call<'_, '_>) -> Outputs {
    let (a, b) = (primary_input(call)?, call.tensor_argument("vec2")?);
    let (rows, columns) =
        (call.emit.extents(a)?.iter().product::<i64>(), call.emit.extents(b)?.iter().product::<i64>());
    let (a, b) = (call.emit.reshape(a, &[rows, 1])?, call.emit.reshape(b, &[1, columns])?);
    push_output(call, Op::Binary(Binary { function: BinaryOp::Mul }), &[a, b])
}

pub(super) fn broadcast_all(call: &mut Call<'_, '_>) -> Outputs {
    let tensors = call.tensor_list("tensors")?;
    let mut shape = Vec::new();
    for &id in &tensors {
        shape = models::shapes::broadcast_shapes(&shape, &call.emit.ty(id)?.shape).or_else(malformed)?;
    }
    let shape = TensorType { dtype: DType::F32, shape }.extents().unwrap_or_default();
    let mut made = Vec::new();
    for id in tensors {
        made.push(RuleOutput { id: call.emit.expand(id, &shape)?, window: Memory::Own });
    }
    Ok(made)
}

/// Replaces the elements whose indices are all equal.
pub(super) fn fill_diagonal(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let (dtype, extents) = (call.emit.dtype(x)?, call.emit.extents(x)?);
    let [rows, columns] = extents[..] else { return unsupported("a diagonal of other than two dimensions") };
    if call.flag_argument("wrap", false)? && rows > columns {
        return unsupported("a diagonal that continues after its end");
    }
    let value = call.operand_as("fill_value", dtype)?;
    numbers_of(&[rows, columns])?;
    let mask = diagonal_mask(call.emit, &[rows, columns], 0)?;
    push_output(call, Op::Where(Where {}), &[mask, value, x])
}

pub(super) fn ravel(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let count = call.emit.extents(x)?.iter().product();
    view_output(call.emit.reshape(x, &[count])?)
}

/// Emits `atleast_1d` to `atleast_3d`: adds dimensions of extent 1, in front or, for a matrix, behind.
pub(super) fn at_least(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let extents = call.emit.extents(x)?;
    let shape = match (call.operator, &extents[..]) {
        ("atleast_1d", []) => vec![1],
        ("atleast_2d", []) => vec![1, 1],
        ("atleast_2d", &[width]) => vec![1, width],
        ("atleast_3d", []) => vec![1, 1, 1],
        ("atleast_3d", &[width]) => vec![1, width, 1],
        ("atleast_3d", &[rows, columns]) => vec![rows, columns, 1],
        _ => extents,
    };
    view_output(call.emit.reshape(x, &shape)?)
}

/// Repeats the tensor along each dimension; missing counts are 1.
pub(super) fn tile(call: &mut Call<'_, '_>) -> Outputs {
    let mut x = primary_input(call)?;
    let (mut repeats, extents) = (call.int_list("dims")?, call.emit.extents(x)?);
    let missing = extents.len().saturating_sub(repeats.len());
    repeats.splice(0..0, vec![1; missing]);
    let added = repeats.len() - extents.len();
    x = call.emit.reshape(x, &[vec![1; added], extents].concat())?;
    push_output(call, Op::Tile(Tile { repeats }), &[x])
}

pub(super) fn repeat_interleave(call: &mut Call<'_, '_>) -> Outputs {
    if !call.arguments.contains_key("self") {
        return repeated_numbers(call);
    }
    let mut x = primary_input(call)?;
    if let Some(super::Argument::Tensor(repeats)) = call.arguments.get("repeats") {
        let mut numbers = call.emit.require_integers(*repeats, "repeats")?;
        let axis = call.axis_argument(x, "dim", 0)?;
        let extent = call.emit.extents(x)?.get(axis).copied().unwrap_or(0);
        if let [single] = numbers[..] {
            numbers_of(&[extent, single])?;
            numbers = vec![single; usize::try_from(extent).unwrap_or(0)];
        }
        let places = repeat_indices(&numbers)?;
        if !call.has_argument("dim") || numbers.len() as i64 != extent {
            return unsupported("repeats that are not one per element of a dimension");
        }
        let places = call.emit.add_integers(&places)?;
        return push_output(call, Op::Gather(Gather { axis: axis as i64 }), &[x, places]);
    }
    if !call.has_argument("dim") {
        let count = call.emit.extents(x)?.iter().product();
        x = call.emit.reshape(x, &[count])?;
    }
    let (times, axis) = (call.int_argument("repeats", 1)?, call.axis_argument(x, "dim", 0)?);
    let mut extents = call.emit.extents(x)?;
    if axis >= extents.len() {
        return malformed("a scalar has no dimension to repeat");
    }
    extents.insert(axis + 1, 1);
    let wide = call.emit.reshape(x, &extents)?;
    extents[axis + 1] = times;
    let wide = call.emit.push(Op::Expand(Expand { shape: extents.clone() }), &[wide])?;
    extents.remove(axis + 1);
    extents[axis] = extents[axis].saturating_mul(times);
    own_output(call.emit.reshape(wide, &extents)?)
}

fn repeated_numbers(call: &mut Call<'_, '_>) -> Outputs {
    let numbers = call.emit.require_integers(call.tensor_argument("repeats")?, "repeats")?;
    let places = repeat_indices(&numbers)?;
    own_output(call.emit.add_integers(&places)?)
}

fn repeat_indices(repeats: &[i64]) -> Outcome<Vec<i64>> {
    let total = repeats.iter().try_fold(0i64, |all, &times| all.checked_add(times).filter(|_| times >= 0));
    numbers_of(&[total.unwrap_or(i64::MAX)])?;
    let numbered = (0..).zip(repeats);
    Ok(numbered.flat_map(|(number, &times)| std::iter::repeat_n(number, times as usize)).collect())
}

/// Pads with elements of the data (reflected, replicated or circular); pads are listed from the last dimension on.
pub(super) fn border_pad(call: &mut Call<'_, '_>, border: Border) -> Outputs {
    let (x, given) = (primary_input(call)?, call.int_list("padding")?);
    let rank = call.emit.rank(x)?;
    if given.len() % 2 != 0 || given.len() / 2 > rank || given.iter().any(|&pad| pad < 0) {
        return unsupported(format!("the pads {given:?} for {rank} dimensions"));
    }
    let mut pads = vec![0; 2 * rank];
    for (index, pair) in given.chunks(2).enumerate() {
        let axis = rank - 1 - index;
        (pads[axis], pads[rank + axis]) = (pair[0], pair[1]);
    }
    push_output(call, Op::BorderPad(BorderPad { border, pads }), &[x])
}
