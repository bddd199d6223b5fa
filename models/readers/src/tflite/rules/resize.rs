//! Import rules of the resampling of images.

use crate::tflite::call::Call;
use crate::{Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{Op, Resize, ResizeMode};

type Outputs = Outcome<Vec<ValueId>>;

pub(super) fn bilinear_resize(call: &mut Call<'_, '_>) -> Outputs {
    let (is_aligned, is_centred) = (call.flag_option(2)?, call.flag_option(3)?);
    let x = call.real(0)?;
    let extents = output_extents(call)?;
    let mode = match (is_aligned, is_centred) {
        (true, false) if extents.iter().all(|&extent| extent > 1) => ResizeMode::LinearAligned,
        (false, true) => ResizeMode::Linear,
        // Aligned corners are undefined for an output extent of 1, and contradict centred pixels.
        (true, _) => return unsupported("aligned corners with centred pixels, or with a single output row or column"),
        (false, false) => return Ok(vec![super::rearrange::resize_bilinear(call, x, &extents)?]),
    };
    resize_image(call, x, mode, extents)
}

pub(super) fn nearest_resize(call: &mut Call<'_, '_>) -> Outputs {
    let (is_aligned, is_centred) = (call.flag_option(0)?, call.flag_option(1)?);
    let x = call.movable_inputs(&[0])?[0];
    let extents = output_extents(call)?;
    let old = call.emit.extents(x)?;
    // If every pixel is repeated equally often, sampling by centres and by corners gives the same result.
    let is_repeated = old.len() == 4 && (1..3).all(|axis| old[axis] > 0 && extents[axis - 1] % old[axis] == 0);
    if is_aligned || (is_centred && !is_repeated) {
        return Ok(vec![super::rearrange::resize_nearest(call, x, &extents, (is_aligned, is_centred))?]);
    }
    resize_image(call, x, ResizeMode::Nearest, extents)
}

fn output_extents(call: &Call<'_, '_>) -> Outcome<Vec<i64>> {
    match call.emit.require_integers(call.input(1)?, "size")? {
        extents if extents.len() == 2 => Ok(extents),
        extents => malformed(format!("`size` must have 2 numbers, has {}", extents.len())),
    }
}

fn resize_image(call: &mut Call<'_, '_>, x: ValueId, mode: ResizeMode, extents: Vec<i64>) -> Outputs {
    let x = call.channels_first(x)?;
    let y = call.emit.push(Op::Resize(Resize { mode, extents }), &[x])?;
    Ok(vec![call.channels_last(y)?])
}
