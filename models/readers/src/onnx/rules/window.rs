//! Operators with a sliding window: convolutions and pools.

use crate::onnx::call::Call;
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{BiasAdd, Conv, ConvTranspose, GlobalPool, Op, Pool, PoolMode, QConv};
use models::types::TensorType;
use reference::Tensor;

const MAX_COLUMNS: i64 = 1 << 24;

struct WindowAttributes {
    kernel: Vec<i64>,
    strides: Vec<i64>,
    /// Leading pads of all axes, then trailing pads of all axes.
    pads: Vec<i64>,
    dilations: Vec<i64>,
}

impl WindowAttributes {
    /// Reads the window of a node. `auto_pad` is resolved to pads, except for a transposed convolution.
    fn parse_window(call: &Call<'_>, kernel: Vec<i64>, spatial: &[i64]) -> Outcome<WindowAttributes> {
        let rank = kernel.len();
        let list = |name: &str, default: i64, length: usize| match call.int_list(name) {
            Some(list) if list.len() == length => Ok(list),
            Some(list) => malformed(format!("`{name}` has {} entries, must have {length}", list.len())),
            None => Ok(vec![default; length]),
        };
        if spatial.len() != rank {
            return malformed(format!(
                "the kernel has {rank} extents, but the input has {} spatial dimensions",
                spatial.len()
            ));
        }
        let strides = list("strides", 1, rank)?;
        let dilations = list("dilations", 1, rank)?;
        let mut window = WindowAttributes { kernel, strides, pads: list("pads", 0, 2 * rank)?, dilations };
        match call.text_attribute("auto_pad").unwrap_or("NOTSET") {
            "NOTSET" | "" => {}
            "VALID" => window.pads = vec![0; 2 * rank],
            "SAME_UPPER" => window.pad_to_same(spatial, false)?,
            "SAME_LOWER" => window.pad_to_same(spatial, true)?,
            other => return malformed(format!("`auto_pad` has the unknown value `{other}`")),
        }
        Ok(window)
    }

    fn window_reach(&self, axis: usize) -> Outcome<i64> {
        let reach = self.kernel[axis].checked_sub(1).and_then(|steps| steps.checked_mul(self.dilations[axis]));
        let reach = reach.and_then(|reach| reach.checked_add(1));
        reach.map_or_else(|| malformed("the window extent exceeds 64 bits"), Ok)
    }

    /// Sets the pads so that the output extent is the input extent divided by the stride, rounded up.
    fn pad_to_same(&mut self, spatial: &[i64], more_before: bool) -> Outcome<()> {
        let rank = self.kernel.len();
        for (axis, &extent) in spatial.iter().enumerate() {
            let (stride, reach) = (self.strides[axis], self.window_reach(axis)?);
            if stride < 1 {
                return malformed(format!("stride {stride} must be at least 1"));
            }
            let places = extent / stride + i64::from(extent % stride != 0);
            let total = i128::from(places - 1) * i128::from(stride) + i128::from(reach) - i128::from(extent);
            let total = i64::try_from(total.max(0)).or_else(|_| malformed("pads are larger than 64 bits"))?;
            let (less, more) = (total / 2, total - total / 2);
            let (head, tail) = if more_before { (more, less) } else { (less, more) };
            self.pads[axis] = head;
            self.pads[axis + rank] = tail;
        }
        Ok(())
    }
}

/// Returns the kernel extents of the weight; fails if the attribute disagrees.
fn kernel_of(call: &Call<'_>, weight: &[i64]) -> Outcome<Vec<i64>> {
    let of_weight = weight.get(2..).unwrap_or_default().to_vec();
    match call.int_list("kernel_shape") {
        Some(kernel) if kernel != of_weight => {
            malformed(format!("`kernel_shape` is {kernel:?}, but the weight has the kernel {of_weight:?}"))
        }
        _ => Ok(of_weight),
    }
}

fn spatial_extents(extents: &[i64]) -> Outcome<&[i64]> {
    match extents.get(2..) {
        Some(spatial) if !spatial.is_empty() => Ok(spatial),
        _ => malformed(format!(
            "the input has {} dimensions; batch, channel and 1 to 3 spatial dimensions are needed",
            extents.len()
        )),
    }
}

pub(super) fn conv(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    let (x, w) = (call.input(0)?, call.input(1)?);
    let y = convolve_operands(emit, call, x, w)?;
    Ok(vec![add_bias(emit, y, call.optional_input(2))?])
}

pub(super) fn convolve_operands(emit: &mut Emit<'_>, call: &Call<'_>, x: ValueId, w: ValueId) -> Outcome<ValueId> {
    convolve_in_groups(emit, call, [x, w], call.int_attribute("group", 1))
}

/// Convolves with this number of groups instead of the node's; window attributes are those of the node.
pub(super) fn convolve_in_groups(
    emit: &mut Emit<'_>,
    call: &Call<'_>,
    [x, w]: [ValueId; 2],
    groups: i64,
) -> Outcome<ValueId> {
    let kernel = kernel_of(call, &emit.extents(w)?)?;
    let window = WindowAttributes::parse_window(call, kernel, spatial_extents(&emit.extents(x)?)?)?;
    let WindowAttributes { strides, pads, dilations, .. } = window;
    emit.push(Op::Conv(Conv { strides, pads, dilations, groups }), &[x, w])
}

pub(super) fn convolve_quantised(
    emit: &mut Emit<'_>,
    call: &Call<'_>,
    [x, w]: [ValueId; 2],
    [x_zero, w_zero]: [i64; 2],
) -> Outcome<ValueId> {
    let kernel = kernel_of(call, &emit.extents(w)?)?;
    let WindowAttributes { strides, pads, dilations, .. } =
        WindowAttributes::parse_window(call, kernel, spatial_extents(&emit.extents(x)?)?)?;
    emit.push(
        Op::QConv(QConv { strides, pads, dilations, groups: call.int_attribute("group", 1), x_zero, w_zero }),
        &[x, w],
    )
}

pub(super) fn conv_transpose(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    let (x, w) = (call.input(0)?, call.input(1)?);
    let kernel = kernel_of(call, &emit.extents(w)?)?;
    let extents = emit.extents(x)?;
    let spatial = spatial_extents(&extents)?;
    let mut window = WindowAttributes::parse_window(call, kernel, spatial)?;
    let rank = window.kernel.len();
    let mut output_pads = call.int_list("output_padding").unwrap_or_else(|| vec![0; rank]);
    if output_pads.len() != rank {
        return malformed(format!("`output_padding` has {} entries, must have {rank}", output_pads.len()));
    }
    let auto_pad = call.text_attribute("auto_pad").unwrap_or("NOTSET");
    let wanted = match call.int_list("output_shape") {
        Some(shape) if shape.len() >= rank => Some(shape[shape.len() - rank..].to_vec()),
        Some(shape) => return malformed(format!("`output_shape` has {} entries, must have {rank}", shape.len())),
        None if auto_pad.starts_with("SAME") => {
            Some(spatial.iter().zip(&window.strides).map(|(extent, stride)| extent.saturating_mul(*stride)).collect())
        }
        None => None,
    };
    if let Some(wanted) = wanted {
        for axis in 0..rank {
            let places = i128::from(spatial[axis] - 1) * i128::from(window.strides[axis]);
            let full = places + i128::from(window.window_reach(axis)?) + i128::from(output_pads[axis]);
            let total = full - i128::from(wanted[axis]);
            let number = |wide: i128| i64::try_from(wide).or_else(|_| malformed("pads are larger than 64 bits"));
            if total < 0 {
                output_pads[axis] = output_pads[axis].saturating_add(number(-total)?);
            }
            let total = number(total.max(0))?;
            let (less, more) = (total / 2, total - total / 2);
            let (head, tail) = if auto_pad == "SAME_UPPER" { (less, more) } else { (more, less) };
            window.pads[axis] = head;
            window.pads[axis + rank] = tail;
        }
    }
    let WindowAttributes { strides, pads, dilations, .. } = window;
    let op = Op::ConvTranspose(ConvTranspose {
        strides,
        pads,
        output_pads,
        dilations,
        groups: call.int_attribute("group", 1),
    });
    let y = emit.push(op, &[x, w])?;
    Ok(vec![add_bias(emit, y, call.optional_input(2))?])
}

pub(super) fn add_bias(emit: &mut Emit<'_>, y: ValueId, bias: Option<ValueId>) -> Outcome<ValueId> {
    match bias {
        Some(bias) => emit.push(Op::BiasAdd(BiasAdd { axis: 1 }), &[y, bias]),
        None => Ok(y),
    }
}

pub(super) fn channels_first(emit: &mut Emit<'_>, x: ValueId) -> Outcome<ValueId> {
    let rank = emit.rank(x)?;
    if rank < 3 {
        return malformed(format!("{} has no spatial dimension between batch and channels", emit.ty(x)?));
    }
    let order: Vec<usize> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    emit.transpose(x, &order)
}

pub(super) fn channels_last(emit: &mut Emit<'_>, x: ValueId) -> Outcome<ValueId> {
    let rank = emit.rank(x)?;
    let order: Vec<usize> = std::iter::once(0).chain(2..rank).chain([1]).collect();
    emit.transpose(x, &order)
}

/// Emits `Col2Im` of `columns[n, c · block, places], image, block` as a transposed convolution with one-hot kernels.
pub(super) fn columns_to_image(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    let x = call.input(0)?;
    let (image, block) = (call.input(1)?, call.input(2)?);
    let image = emit.require_integers(image, "image_shape")?;
    let block = emit.require_integers(block, "block_shape")?;
    let rank = block.len();
    let [n, rows, places] = emit.extents(x)?[..] else { return malformed("columns must have 3 dimensions") };
    let area = block.iter().try_fold(1i64, |area, &extent| area.checked_mul(extent)).filter(|area| *area > 0);
    let Some(area) = area.filter(|area| image.len() == rank && rows % area == 0 && rows > 0) else {
        return malformed(format!("{} does not have the shape of blocks {block:?} of an image {image:?}", emit.ty(x)?));
    };
    let WindowAttributes { strides, pads, dilations, kernel } = WindowAttributes::parse_window(call, block, &image)?;
    let (mut counts, mut output_pads) = (Vec::new(), Vec::new());
    for axis in 0..rank {
        let reach = i128::from(dilations[axis]) * i128::from(kernel[axis] - 1) + 1;
        let room = i128::from(image[axis]) + i128::from(pads[axis]) + i128::from(pads[axis + rank]) - reach;
        let stride = i128::from(strides[axis]);
        if room < 0 || stride < 1 {
            return malformed(format!("blocks of {kernel:?} do not fit into the image {image:?}"));
        }
        let number = |wide: i128| i64::try_from(wide).or_else(|_| malformed("the image extents exceed 64 bits"));
        counts.push(number(room / stride + 1)?);
        output_pads.push(number(room % stride)?);
    }
    if counts.iter().try_fold(1i64, |count, &extent| count.checked_mul(extent)) != Some(places) {
        return malformed(format!("{places} columns do not match {counts:?} block positions"));
    }
    let groups = rows / area;
    if rows.checked_mul(area).is_none_or(|count| count > MAX_COLUMNS) {
        return unsupported(format!("columns of {rows} elements are too large"));
    }
    let shape: Vec<i64> = [rows, 1].into_iter().chain(kernel.iter().copied()).collect();
    let numbers: Vec<f64> =
        (0..rows * area).map(|index| f64::from(u8::from(index / area % area == index % area))).collect();
    let ty = TensorType::new(emit.dtype(x)?, &shape);
    let weight = emit.constant_of(&Tensor::from_numbers(ty, &numbers)?)?;
    let shape: Vec<i64> = [n, rows].into_iter().chain(counts).collect();
    let x = emit.reshape(x, &shape)?;
    Ok(vec![
        emit.push(Op::ConvTranspose(ConvTranspose { strides, pads, output_pads, dilations, groups }), &[x, weight])?,
    ])
}

pub(super) fn max_pool(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    emit_pool(emit, call, PoolMode::Max)
}

pub(super) fn average_pool(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    emit_pool(emit, call, PoolMode::Average)
}

pub(super) fn lp_pool(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    emit_pool(emit, call, PoolMode::Lp { order: call.int_attribute("p", 2) })
}

fn emit_pool(emit: &mut Emit<'_>, call: &Call<'_>, mode: PoolMode) -> Outcome<Vec<ValueId>> {
    Ok(vec![pool_of(emit, call, call.input(0)?, mode)?])
}

pub(super) fn pool_of(emit: &mut Emit<'_>, call: &Call<'_>, x: ValueId, mode: PoolMode) -> Outcome<ValueId> {
    let Some(kernel) = call.int_list("kernel_shape") else { return malformed("`kernel_shape` is missing") };
    let window = WindowAttributes::parse_window(call, kernel, spatial_extents(&emit.extents(x)?)?)?;
    let WindowAttributes { kernel, strides, pads, dilations } = window;
    let (ceil, count_pad) = (call.flag_attribute("ceil_mode"), call.flag_attribute("count_include_pad"));
    emit.push(Op::Pool(Pool { mode, kernel, strides, pads, dilations, ceil, count_pad }), &[x])
}

pub(super) fn global_max_pool(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    Ok(vec![emit.push(Op::GlobalPool(GlobalPool { mode: PoolMode::Max }), &[call.input(0)?])?])
}

pub(super) fn global_lp_pool(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    let mode = PoolMode::Lp { order: call.int_attribute("p", 2) };
    Ok(vec![emit.push(Op::GlobalPool(GlobalPool { mode }), &[call.input(0)?])?])
}

pub(super) fn global_average_pool(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    Ok(vec![emit.push(Op::GlobalPool(GlobalPool { mode: PoolMode::Average }), &[call.input(0)?])?])
}
