//! Resampling. The three variants that networks use become `Resize`. Every other combination of coordinates, filters
//! and edges has fixed weights along each axis, and becomes one product with a constant matrix per axis.

use crate::onnx::call::Call;
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{Dense, Gather, Op, Resize, ResizeMode, Where};
use models::types::{DType, TensorType};
use reference::Tensor;

type Outputs = Outcome<Vec<ValueId>>;

const MAX_WEIGHTS: i64 = 1 << 24;

pub(crate) struct ResizeAxis {
    pub old: i64,
    pub new: i64,
    pub scale: f64,
    /// Sampled range of the input axis, as fractions of its extent; used by `tf_crop_and_resize`.
    pub region: (f64, f64),
}

pub(super) fn resize(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let (scales, sizes) =
        if call.opset < 11 { (call.optional_input(1), None) } else { (call.optional_input(2), call.optional_input(3)) };
    let extents = emit.extents(x)?;
    let rank = extents.len();
    let named = match call.int_list("axes") {
        Some(axes) => axes.iter().map(|&axis| emit.resolve_axis(axis, rank)).collect::<Outcome<Vec<usize>>>()?,
        None => (0..rank).collect(),
    };
    let list = |id: Option<ValueId>, what: &str| -> Outcome<Option<Vec<f64>>> {
        let numbers = id.map(|id| emit.require_numbers(id, what)).transpose()?.filter(|numbers| !numbers.is_empty());
        match numbers {
            Some(numbers) if numbers.len() != named.len() => {
                malformed(format!("`{what}` has {} numbers, but there are {} dimensions", numbers.len(), named.len()))
            }
            numbers => Ok(numbers),
        }
    };
    let (scales, sizes) = (list(scales, "scales")?, list(sizes, "sizes")?);
    let region =
        call.optional_input(1).filter(|_| is_cropped(call)).map(|id| emit.require_numbers(id, "roi")).transpose()?;
    let mut axes: Vec<ResizeAxis> =
        extents.iter().map(|&old| ResizeAxis { old, new: old, scale: 1.0, region: (0.0, 1.0) }).collect();
    let factor = shared_factor(call, &named, &extents, sizes.as_deref())?;
    for (index, &axis) in named.iter().enumerate() {
        let old = extents[axis] as f64;
        if let Some(region) = &region {
            let (Some(&start), Some(&end)) = (region.get(index), region.get(index + named.len())) else {
                return malformed("`roi` must have a start and an end for each dimension");
            };
            axes[axis].region = (start, end);
        }
        let (new, scale) = match (&scales, &sizes, factor) {
            (_, Some(_), Some(factor)) => ((factor * old).round(), factor),
            (_, Some(sizes), None) => (sizes[index], sizes[index] / old),
            // The standard multiplies by the region, too; its reference and ONNX Runtime do not.
            (Some(scales), None, _) => ((old * scales[index]).floor(), scales[index]),
            (None, None, _) => return malformed("both `scales` and `sizes` are missing"),
        };
        if !(0.0..=1e9).contains(&new) {
            return malformed(format!("the extent of dimension {axis} would be {new}"));
        }
        (axes[axis].new, axes[axis].scale) = (new as i64, scale);
    }
    Ok(vec![resize_axes(emit, call, x, &axes)?])
}

pub(super) fn upsample(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let scales: Vec<f64> = match call.optional_input(1) {
        Some(scales) => emit.require_numbers(scales, "scales")?,
        None => match call.optional_floats("scales") {
            Some(scales) => scales,
            None => return malformed("`scales` is missing"),
        },
    };
    let extents = emit.extents(x)?;
    if scales.len() != extents.len() {
        return malformed(format!("`scales` has {} numbers, but there are {} dimensions", scales.len(), extents.len()));
    }
    let axis =
        |(&old, &scale): (&i64, &f64)| ResizeAxis { old, new: (old as f64 * scale) as i64, scale, region: (0.0, 1.0) };
    let axes: Vec<ResizeAxis> = extents.iter().zip(&scales).map(axis).collect();
    Ok(vec![resize_axes(emit, call, x, &axes)?])
}

fn is_cropped(call: &Call<'_>) -> bool {
    call.text_attribute("coordinate_transformation_mode") == Some("tf_crop_and_resize")
}

/// Returns the scale that all axes share if `keep_aspect_ratio_policy` keeps the proportions; None for `stretch`.
fn shared_factor(call: &Call<'_>, named: &[usize], extents: &[i64], sizes: Option<&[f64]>) -> Outcome<Option<f64>> {
    let Some(sizes) = sizes else { return Ok(None) };
    let factors = named.iter().zip(sizes).map(|(&axis, size)| size / extents[axis] as f64);
    match call.text_attribute("keep_aspect_ratio_policy").unwrap_or("stretch") {
        "stretch" => Ok(None),
        "not_larger" => Ok(factors.reduce(f64::min)),
        "not_smaller" => Ok(factors.reduce(f64::max)),
        other => malformed(format!("`keep_aspect_ratio_policy` has the unknown value `{other}`")),
    }
}

fn resize_axes(emit: &mut Emit<'_>, call: &Call<'_>, x: ValueId, axes: &[ResizeAxis]) -> Outcome<ValueId> {
    let mode = call.text_attribute("mode").unwrap_or("nearest");
    // Before version 11 there was one rule of coordinates.
    let rule = match call.text_attribute("coordinate_transformation_mode") {
        Some(rule) => rule,
        None if call.opset < 11 => "asymmetric",
        None => "half_pixel",
    };
    let nearest = match call.text_attribute("nearest_mode") {
        Some(nearest) => nearest,
        None if call.opset < 11 => "floor",
        None => "round_prefer_floor",
    };
    let filter = ResizeFilter {
        mode,
        rule,
        nearest,
        cubic: call.float_attribute("cubic_coeff_a", -0.75),
        excludes_outside: call.flag_attribute("exclude_outside"),
        antialias: call.flag_attribute("antialias"),
        outside: call.float_attribute("extrapolation_value", 0.0),
    };
    if let Some(mode) = filter.native_mode(axes) {
        let extents = axes[2..].iter().map(|axis| axis.new).collect();
        return emit.push(Op::Resize(Resize { mode, extents }), &[x]);
    }
    let dtype = emit.dtype(x)?;
    let mut y = x;
    for (index, axis) in axes.iter().enumerate() {
        if axis.old != axis.new || axis.region != (0.0, 1.0) {
            y = filter.resample_axis(emit, y, index, axis)?;
        }
    }
    emit.cast(y, dtype)
}

pub(crate) struct ResizeFilter<'a> {
    pub mode: &'a str,
    pub rule: &'a str,
    pub nearest: &'a str,
    pub cubic: f64,
    pub excludes_outside: bool,
    pub antialias: bool,
    pub outside: f64,
}

impl ResizeFilter<'_> {
    fn native_mode(&self, axes: &[ResizeAxis]) -> Option<ResizeMode> {
        let is_spatial = axes.len() > 2 && axes[..2].iter().all(|axis| axis.old == axis.new);
        // A scale that differs from the ratio of the extents samples other positions.
        let is_ratio = axes.iter().all(|axis| (axis.scale - axis.new as f64 / axis.old as f64).abs() < 1e-6);
        let is_shrinking = axes.iter().any(|axis| axis.new < axis.old);
        if !is_spatial || !is_ratio || (self.antialias && is_shrinking) {
            return None;
        }
        match (self.mode, self.rule) {
            ("nearest", "asymmetric") if self.nearest == "floor" => Some(ResizeMode::Nearest),
            ("linear", "half_pixel") => Some(ResizeMode::Linear),
            ("linear", "pytorch_half_pixel") if axes[2..].iter().all(|axis| axis.new > 1) => Some(ResizeMode::Linear),
            ("linear", "align_corners") if axes[2..].iter().all(|axis| axis.new > 1) => Some(ResizeMode::LinearAligned),
            _ => None,
        }
    }

    pub(crate) fn resample_axis(
        &self,
        emit: &mut Emit<'_>,
        x: ValueId,
        index: usize,
        axis: &ResizeAxis,
    ) -> Outcome<ValueId> {
        if axis.old < 1 || axis.new < 0 {
            return malformed(format!("cannot resize {} elements to {}", axis.old, axis.new));
        }
        if axis.old.checked_mul(axis.new).is_none_or(|count| count > MAX_WEIGHTS) {
            return unsupported(format!("resampling {} elements to {} in this mode", axis.old, axis.new));
        }
        let places: Vec<f64> =
            (0..axis.new).map(|new| self.source_position(new as f64, axis)).collect::<Outcome<_>>()?;
        let last = axis.old - 1;
        let is_outside = |place: f64| self.rule == "tf_crop_and_resize" && !(0.0..=last as f64).contains(&place);
        let mut y = if self.mode == "nearest" {
            let chosen = places.iter().map(|&place| Ok((self.nearest_index(place)? as i64).clamp(0, last)));
            let chosen = chosen.collect::<Outcome<Vec<i64>>>()?;
            let chosen = emit.add_integers(&chosen)?;
            emit.push(Op::Gather(Gather { axis: index as i64 }), &[x, chosen])?
        } else {
            let mut weights = vec![0.0; (axis.old * axis.new) as usize];
            for (row, &place) in weights.chunks_exact_mut(axis.old as usize).zip(&places) {
                self.fill_weights(row, place, axis.scale)?;
            }
            self.weigh_axis(emit, x, index, axis, &weights)?
        };
        if places.iter().any(|&place| is_outside(place)) {
            let mut shape = vec![1; emit.rank(y)?];
            shape[index] = axis.new;
            let marks: Vec<f64> = places.iter().map(|&place| f64::from(u8::from(is_outside(place)))).collect();
            let marks = emit.constant_of(&Tensor::from_numbers(TensorType::new(DType::Bool, &shape), &marks)?)?;
            let value = emit.add_scalar(emit.dtype(y)?, self.outside)?;
            y = emit.push(Op::Where(Where {}), &[marks, value, y])?;
        }
        Ok(y)
    }

    fn source_position(&self, new: f64, axis: &ResizeAxis) -> Outcome<f64> {
        let (old_extent, new_extent) = (axis.old as f64, axis.new as f64);
        // With a scale given, the exact extent may have a fraction.
        let full = axis.scale * old_extent;
        Ok(match self.rule {
            "half_pixel" => (new + 0.5) / axis.scale - 0.5,
            "pytorch_half_pixel" if new_extent <= 1.0 => 0.0,
            "pytorch_half_pixel" => (new + 0.5) / axis.scale - 0.5,
            "half_pixel_symmetric" => {
                let adjustment = new_extent / full;
                let centre = old_extent / 2.0;
                centre * (1.0 - adjustment) + (new + 0.5) / axis.scale - 0.5
            }
            "align_corners" if full <= 1.0 => 0.0,
            "align_corners" => new * (old_extent - 1.0) / (full - 1.0),
            "asymmetric" => new / axis.scale,
            "tf_crop_and_resize" => {
                let (start, end) = axis.region;
                if axis.new > 1 {
                    start * (old_extent - 1.0) + new * (end - start) * (old_extent - 1.0) / (new_extent - 1.0)
                } else {
                    0.5 * (start + end) * (old_extent - 1.0)
                }
            }
            other => return malformed(format!("`coordinate_transformation_mode` has the unknown value `{other}`")),
        })
    }

    fn nearest_index(&self, place: f64) -> Outcome<f64> {
        Ok(match self.nearest {
            "floor" => place.floor(),
            "ceil" => place.ceil(),
            "round_prefer_floor" => (place - 0.5).ceil(),
            "round_prefer_ceil" => (place + 0.5).floor(),
            other => return malformed(format!("`nearest_mode` has the unknown value `{other}`")),
        })
    }

    fn fill_weights(&self, row: &mut [f64], place: f64, scale: f64) -> Outcome<()> {
        let last = row.len() as i64 - 1;
        // When shrinking, the antialiasing filter is stretched over all input elements of an output element.
        let stretch = if self.antialias { scale.min(1.0) } else { 1.0 };
        let (kernel, radius): (fn(f64, f64) -> f64, f64) = match self.mode {
            "linear" => (|distance, _| (1.0 - distance).max(0.0), 1.0),
            "cubic" => (cubic_kernel, 2.0),
            other => return malformed(format!("`mode` has the unknown value `{other}`")),
        };
        if radius / stretch > 4.0 * (row.len() as f64) + 16.0 {
            return unsupported(format!("a scale of {scale} for {} elements is out of range", row.len()));
        }
        let (first, end) = ((place - radius / stretch).floor() as i64, (place + radius / stretch).ceil() as i64);
        let mut weights = Vec::new();
        for old in first..=end {
            let weight = kernel((place - old as f64).abs() * stretch, self.cubic);
            let is_inside = (0..=last).contains(&old);
            if weight != 0.0 && (is_inside || !self.excludes_outside) {
                weights.push((old.clamp(0, last), weight));
            }
        }
        let sum: f64 = weights.iter().map(|(_, weight)| weight).sum();
        for (old, weight) in weights {
            row[old as usize] += weight / sum;
        }
        Ok(())
    }

    fn weigh_axis(
        &self,
        emit: &mut Emit<'_>,
        x: ValueId,
        index: usize,
        axis: &ResizeAxis,
        weights: &[f64],
    ) -> Outcome<ValueId> {
        let rank = emit.rank(x)?;
        let dtype = if emit.dtype(x)?.is_float() { emit.dtype(x)? } else { DType::F32 };
        let x = emit.cast(x, dtype)?;
        let mut order: Vec<usize> = (0..rank).filter(|&axis| axis != index).collect();
        order.push(index);
        let transposed = emit.transpose(x, &order)?;
        let ty = TensorType::new(dtype, &[axis.new, axis.old]);
        let weights = emit.constant_of(&Tensor::from_numbers(ty, weights)?)?;
        let y = emit.push(Op::Dense(Dense {}), &[transposed, weights])?;
        let mut back: Vec<usize> = (0..rank - 1).collect();
        back.insert(index, rank - 1);
        emit.transpose(y, &back)
    }
}

/// Evaluates Keys' cubic kernel, which is zero beyond a distance of two elements.
fn cubic_kernel(distance: f64, a: f64) -> f64 {
    let d = distance;
    if d <= 1.0 {
        ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
    } else if d < 2.0 {
        ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a
    } else {
        0.0
    }
}
