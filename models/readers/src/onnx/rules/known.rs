//! Operators that are computed during import, because output shapes or bits depend on input values.

use crate::emit::nonzero_indices;
use crate::onnx::call::Call;
use crate::onnx::tensor;
use crate::{Emit, Outcome, malformed, unsupported};
use models::contents::Contents;
use models::graph::{Const, ValueId};
use models::operators::{Gather, Op};
use models::types::{DType, TensorType};
use passes::fold::MAX_SMALL;

type Outputs = Outcome<Vec<ValueId>>;

/// Maximum number of boxes, because each box is compared with all boxes of higher score.
const MAX_BOXES: usize = 4096;

fn small_constant(emit: &Emit<'_>, id: ValueId) -> Outcome<Vec<f64>> {
    match emit.known_numbers(id)? {
        Some(numbers) => Ok(numbers),
        None => unsupported(
            "the shape of the result depends on data; `--bind NAME=VALUE` fixes an input that the shape depends on, and \
             `--skip-unsupported` leaves the node out",
        ),
    }
}

fn integer_constant(emit: &mut Emit<'_>, extents: &[i64], numbers: Vec<i64>) -> Outcome<ValueId> {
    let numbers = numbers.into_iter().map(|number| number as f64).collect();
    emit.add_constant(TensorType::new(DType::I64, extents), Const::Small(numbers))
}

pub(super) fn non_zero(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let numbers = small_constant(emit, x)?;
    let extents = emit.extents(x)?;
    let extents = if extents.is_empty() { vec![1] } else { extents };
    let rows = nonzero_indices(&numbers, &extents);
    Ok(vec![integer_constant(emit, &[rows.len() as i64, rows[0].len() as i64], rows.concat())?])
}

/// Selects slices along an axis by a constant condition; the data need not be constant.
pub(super) fn compress(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let mut x = call.input(0)?;
    let condition = small_constant(emit, call.input(1)?)?;
    let mut extents = emit.extents(x)?;
    let axis = match call.optional_int("axis") {
        Some(axis) => emit.resolve_axis(axis, extents.len())?,
        None => {
            let Some(all) = extents.iter().try_fold(1i64, |all, extent| all.checked_mul(*extent)) else {
                return malformed("the element count of the input exceeds 64 bits");
            };
            extents = vec![all];
            x = emit.reshape(x, &extents)?;
            0
        }
    };
    let kept: Vec<i64> =
        (0..extents[axis]).zip(condition).filter(|(_, holds)| *holds != 0.0).map(|(at, _)| at).collect();
    let at = integer_constant(emit, &[kept.len() as i64], kept)?;
    Ok(vec![emit.push(Op::Gather(Gather { axis: axis as i64 }), &[x, at])?])
}

/// Returns the distinct slices along an axis, their first positions, the inverse indices and the counts.
pub(super) fn unique(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let numbers = small_constant(emit, x)?;
    if numbers.is_empty() {
        return unsupported("the input has no elements");
    }
    let mut extents = emit.extents(x)?;
    let axis = match call.optional_int("axis") {
        Some(axis) => emit.resolve_axis(axis, extents.len())?,
        None => {
            extents = vec![numbers.len() as i64];
            0
        }
    };
    let count = extents[axis] as usize;
    let inner = extents[axis + 1..].iter().product::<i64>() as usize;
    let part = |place: usize| {
        numbers.chunks_exact(count * inner).flat_map(move |block| &block[place * inner..(place + 1) * inner])
    };
    let compare = |a: usize, b: usize| {
        let different = part(a).zip(part(b)).map(|(a, b)| (a + 0.0).total_cmp(&(b + 0.0))).find(|order| order.is_ne());
        different.unwrap_or(std::cmp::Ordering::Equal)
    };
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&a, &b| compare(a, b));
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for place in order {
        match groups.last_mut() {
            Some(group) if compare(group[0], place).is_eq() => group.push(place),
            _ => groups.push(vec![place]),
        }
    }
    if call.int_attribute("sorted", 1) == 0 {
        groups.sort_by_key(|group| group[0]);
    }
    let mut found = vec![0; count];
    for (index, group) in groups.iter().enumerate() {
        group.iter().for_each(|&place| found[place] = index as i64);
    }
    let firsts = groups.iter().map(|group| group[0] as i64).collect();
    let counts = groups.iter().map(|group| group.len() as i64).collect();
    let kept = [groups.len() as i64];
    let firsts = integer_constant(emit, &kept, firsts)?;
    let flat = emit.reshape(x, &extents)?;
    let y = emit.push(Op::Gather(Gather { axis: axis as i64 }), &[flat, firsts])?;
    Ok(vec![y, firsts, integer_constant(emit, &[count as i64], found)?, integer_constant(emit, &kept, counts)?])
}

/// Low and high edges of a box, for both axes.
type Edges = [[f64; 2]; 2];

fn box_edges(numbers: &[f64], is_centered: bool) -> Edges {
    let [a, b, c, d] = [numbers[0], numbers[1], numbers[2], numbers[3]];
    if is_centered {
        [[a - c / 2.0, a + c / 2.0], [b - d / 2.0, b + d / 2.0]]
    } else {
        [[b.min(d), b.max(d)], [a.min(c), a.max(c)]]
    }
}

fn intersection_over_union(a: &Edges, b: &Edges) -> f64 {
    let area = |edges: &Edges| edges.iter().map(|[low, high]| (high - low).max(0.0)).product::<f64>();
    let common = [0, 1].map(|axis| [a[axis][0].max(b[axis][0]), a[axis][1].min(b[axis][1])]);
    let common = area(&common);
    let all = area(a) + area(b) - common;
    if common > 0.0 && all > 0.0 { common / all } else { 0.0 }
}

/// Returns the best boxes of each class that overlap no better box beyond the threshold: rows of `batch, class, box`.
pub(super) fn non_max_suppression(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let (boxes, scores) = (call.input(0)?, call.input(1)?);
    let (numbers, all_scores) = (small_constant(emit, boxes)?, small_constant(emit, scores)?);
    let number = |index: usize, default: Option<f64>, emit: &Emit<'_>| {
        call.optional_input(index).map_or(Ok(default), |id| emit.require_number(id, "threshold").map(Some))
    };
    let most = number(2, Some(0.0), emit)?.unwrap_or(0.0).max(0.0) as usize;
    let covered = number(3, Some(0.0), emit)?.unwrap_or(0.0);
    let least = number(4, None, emit)?;
    let (of_boxes, of_scores) = (emit.extents(boxes)?, emit.extents(scores)?);
    let (&[batches, count, 4], &[batches_too, classes, count_too]) = (&of_boxes[..], &of_scores[..]) else {
        return malformed(format!(
            "shapes {of_boxes:?} of the boxes and {of_scores:?} of the scores do not fit each other"
        ));
    };
    if (batches, count) != (batches_too, count_too) {
        return malformed(format!(
            "shapes {of_boxes:?} of the boxes and {of_scores:?} of the scores do not fit each other"
        ));
    }
    let count = count as usize;
    if numbers.is_empty() || all_scores.is_empty() {
        return Ok(vec![integer_constant(emit, &[0, 3], Vec::new())?]);
    }
    if count > MAX_BOXES {
        return unsupported(format!("{count} boxes exceed the limit of {MAX_BOXES}"));
    }
    let is_centered = call.flag_attribute("center_point_box");
    let all: Vec<Edges> = numbers.chunks_exact(4).map(|numbers| box_edges(numbers, is_centered)).collect();
    let mut rows = Vec::new();
    for (batch, class) in (0..batches).flat_map(|batch| (0..classes).map(move |class| (batch, class))) {
        let first = (batch * classes + class) as usize * count;
        let scores = &all_scores[first..first + count];
        let boxes = &all[batch as usize * count..(batch as usize + 1) * count];
        let mut order: Vec<usize> =
            (0..count).filter(|&place| least.is_none_or(|least| scores[place] > least)).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        let mut chosen: Vec<usize> = Vec::new();
        for place in order {
            if chosen.len() >= most {
                break;
            }
            if chosen.iter().all(|&other| intersection_over_union(&boxes[place], &boxes[other]) <= covered) {
                chosen.push(place);
                rows.extend([batch, class, place as i64]);
            }
        }
    }
    Ok(vec![integer_constant(emit, &[rows.len() as i64 / 3, 3], rows)?])
}

/// Reinterprets the bits of small constants. Other integers become a cast to an integer type of the same width.
pub(super) fn bit_cast(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let code = i32::try_from(call.int_attribute("to", 0)).unwrap_or(0);
    let to = tensor::dtype_of_code(code).or_else(|reason| unsupported(format!("result type: {reason}")))?;
    let ty = emit.ty(x)?;
    if tensor::narrow_type(code).is_some() || emit.narrow_range(x).is_some() {
        return unsupported("reinterpreting the bits of a type below 8 bits");
    }
    if ty.dtype.size_bytes() != to.size_bytes() {
        return malformed(format!("{} and {to} differ in their number of bits", ty.dtype));
    }
    if let Some(data) = emit.builder.constant_data(x)
        && ty.element_count().is_some_and(|elements| elements <= MAX_SMALL)
    {
        let bytes = reference::constant_tensor(&ty, data)?.as_bytes().to_vec();
        let made = TensorType { dtype: to, ..ty };
        return Ok(vec![emit.add_constant(made, Const::Bytes(Contents::new(bytes)))?]);
    }
    let is_whole = |dtype: DType| !dtype.is_float() && dtype != DType::Bool;
    if (is_whole(ty.dtype) || ty.dtype == DType::Bool) && is_whole(to) {
        return Ok(vec![emit.cast(x, to)?]);
    }
    unsupported(format!(
        "reinterpreting the bits of {} as {to} at run time; only constants can be reinterpreted",
        ty.dtype
    ))
}
