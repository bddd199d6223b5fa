//! Declares the schedule space of each family of operators on CPUs.

use super::axes::{
    Declaration, FUNCTIONS, GRAIN, HELPERS_AT, NumberAxis, PAD_AT, PARALLEL, SPLIT_R, VECTOR, WINDOWS,
    candidate_divisors,
};
use super::choices::{Functions, HelpersAt, PadAt, Windows};
use super::contraction::contraction_space;
use super::extents::{by_phases, contraction_extents, input_extent};
use super::template::{has_functions, parameter_extents};
use super::{Domain, Knobs, Setting, Space, SpaceLimits, Template, attention, dots, pool, task_template, winograd};
use crate::flat::{flatten_task, is_pointwise};
use crate::machine::Cpu;
use models::operators::{LpNorm, MeanVarianceNorm, Pool, Reduce, Softmax};
use models::{Op, PoolMode, Task};

/// Columns of pooling windows that are reduced as one vector, if columns are reduced first.
pub static ROW: NumberAxis = NumberAxis::new("row").only_when(|knobs| WINDOWS.is_set_to(knobs, Windows::ColumnsFirst));

pub(crate) static AXES: &[&Declaration] = &[&ROW.0];

pub(crate) fn no_limits() -> SpaceLimits {
    SpaceLimits::Registers {
        tile_elements: i64::MAX,
        unrolled_elements: i64::MAX,
        window: 1,
        tiles: None,
        sums: i64::MAX,
        domain: Domain::without_sums(Vec::new()),
        whole: None,
    }
}

const VECTORS: [i64; 6] = [1, 4, 8, 16, 32, 64];

pub fn cpu_space(task: &Task, machine: &Cpu) -> Space {
    let flat = flatten_task(task);
    let task = flat.as_ref().map_or(task, |flat| &flat.task);
    let anchor = &task.steps[0];
    let output = anchor.output.extents().unwrap_or_default();
    let mut space = match task_template(task) {
        Template::Contraction => {
            let extents = by_phases(task, &output, contraction_extents(task, &output));
            let domain = Domain::of_contraction(task, &extents, &output);
            let mut space = contraction_space(machine, &extents, domain, task.steps.len() > 1);
            winograd::add_winograd(&mut space, task, machine);
            if let Some(dots) = dots::find_dots(task) {
                dots::add_to(&mut space, machine, &dots);
            } else if dots::is_product(task) {
                dots::add_to_product(&mut space, machine);
            }
            space
        }
        Template::Rows => match &anchor.op {
            Op::Attention(_) => {
                let mut space = rows_space(machine, &output, true);
                attention::add_query_tiles(&mut space, task, machine);
                space
            }
            _ => {
                let mut space = rows_space(machine, &output, false);
                if sums_neighbours(&anchor.op, output.len()) {
                    let row = input_extent(task, -1);
                    add_partial_sums(&mut space, machine, row);
                    // Two vectors of sums hide the latency of additions.
                    let two = 2 * machine.vector_lanes;
                    if matches!(anchor.op, Op::LayerNorm(_) | Op::RmsNorm(_)) && row % two == 0 && row >= 4 * two {
                        SPLIT_R.set(&mut space.default, two);
                    }
                }
                space
            }
        },
        Template::Spatial => {
            let (is_padded, is_strided) = match &anchor.op {
                Op::Pool(Pool { pads, strides, .. }) => {
                    (pads.iter().any(|&pad| pad > 0), strides.last().is_some_and(|&stride| stride > 1))
                }
                _ => (false, false),
            };
            let (columns, row) = (output.last().copied().unwrap_or(1), reduced_row(task));
            let vector = match &anchor.op {
                // The compiler's own vectorisation of strided reads is faster than explicit vectors.
                _ if row.is_some() || is_strided => 1,
                // The compiler vectorises reads whose address depends on the position, while explicit vectors test each
                // element.
                Op::Resize(_) | Op::OneHot(_) => 1,
                Op::BorderPad(_) if columns >= 4 * machine.vector_lanes => 2 * machine.vector_lanes,
                Op::Tile(_) => whole_vector(machine, input_extent(task, -1)),
                // For bytes, too, the compiler's own vectors are better: they fill a register.
                op if is_pointwise(op) && anchor.output.dtype.size_bytes() == 1 => 1,
                op if is_pointwise(op) => element_vector(machine, columns),
                _ => whole_vector(machine, columns),
            };
            let mut space = spatial_space(machine, &output, vector, is_padded);
            let usual = space.default.clone();
            if let (Op::Pool(Pool { kernel, .. }), true) = (&anchor.op, is_strided) {
                let window = kernel.iter().copied().max().unwrap_or(1);
                set_strided(&mut space.default, machine, &output, is_padded.then_some(window));
            }
            if let Some(row) = row {
                add_partial_sums(&mut space, machine, row);
            }
            add_columns(&mut space, machine, task, usual);
            keep_planes_apart(&mut space, &output);
            space
        }
    };
    if has_functions(task) {
        space.axes.push(
            FUNCTIONS.to_axis(
                "implementation of exponentials and similar functions",
                [Functions::Vector, Functions::Library],
            ),
        );
        FUNCTIONS.set(&mut space.default, Functions::Vector);
    }
    pool::add_pool_axis(&mut space, task, machine);
    space
}

fn spatial_space(machine: &Cpu, output: &[i64], vector: i64, is_padded: bool) -> Space {
    let columns = output.last().copied().unwrap_or(1);
    let outer = i64::try_from(output.len().saturating_sub(1)).unwrap_or(0).max(1);
    // Rows of a plane share their padded input, so threads take whole planes if there are enough of them.
    let planes: i64 = output.iter().take(2).product();
    let parallel = if output.len() > 3 && planes >= 8 * machine.cores { 2 } else { outer };
    let mut axes = vec![
        VECTOR.to_axis("columns in one vector", VECTORS.into_iter().filter(|&vector| vector <= columns)),
        PARALLEL.to_axis("number of outer loops that are fused and run on the thread pool", 1..=outer),
    ];
    let steps: i64 = output.iter().rev().skip(1).product();
    if steps > 1 {
        let grains = [1, 2, 4, 8].into_iter().filter(|grain| 2 * grain <= steps);
        axes.push(GRAIN.to_axis("steps of the fused loop that a thread takes at a time", grains));
    }
    let mut default = Knobs::default();
    VECTOR.set(&mut default, vector);
    PARALLEL.set(&mut default, parallel);
    if is_padded {
        axes.push(
            PAD_AT.to_axis(
                "compute location of the padded input",
                [PadAt::Inline, PadAt::Root, PadAt::Outer, PadAt::Tile],
            ),
        );
        PAD_AT.set(&mut default, PadAt::Outer);
    }
    Space { template: Template::Spatial, axes, default, limits: no_limits() }
}

/// Sets default knobs for strided pooling (tuned with AVX-512). `padded` is the longest extent of padded windows.
fn set_strided(default: &mut Knobs, machine: &Cpu, output: &[i64], padded: Option<i64>) {
    const LONG: i64 = 16;
    const SMALL: i64 = 3;
    const UNROLLED_MAX: i64 = 10;
    let (columns, lanes) = (output.last().copied().unwrap_or(1), machine.vector_lanes);
    let all = i64::try_from(output.len().saturating_sub(1)).unwrap_or(0).max(1);
    let steps: i64 = output.iter().rev().skip(1).product();
    let is_of_planes = output.len() <= 4;
    let part = |columns: i64| VECTORS.into_iter().filter(|&vector| vector <= columns.min(lanes)).max().unwrap_or(1);
    let mut inline = |vector| {
        VECTOR.set(default, vector);
        PAD_AT.set(default, PadAt::Inline);
    };
    match padded {
        // Seven columns at most, because each element of a window is tested.
        Some(window) if window > SMALL && columns < LONG => VECTOR.set(default, part(columns.min(7))),
        Some(window) if window > SMALL => {}
        Some(_) if columns <= UNROLLED_MAX => PARALLEL.set(default, all),
        Some(_) if columns < LONG => inline(part(columns)),
        Some(_) if columns == LONG => {}
        Some(_) => {
            let vectors = [lanes, lanes / 2].into_iter().filter(|vector| VECTORS.contains(vector));
            vectors.filter(|vector| columns % vector == 0).take(1).for_each(inline);
        }
        None if columns < 4 => {}
        None if columns < LONG && !is_of_planes => {
            VECTOR.set(default, part(columns.min(7)));
            PARALLEL.set(default, all - 1);
        }
        None if columns < LONG && steps >= 4 => {
            // If the remainder of a row after whole vectors is one element or nearly a vector, it costs more than
            // vectors save.
            let (vector, rest) = (part(columns), columns % part(columns));
            let is_vector = columns % 2 == 1 && (columns < 8 || (2..=5).contains(&rest));
            VECTOR.set(default, if is_vector { vector } else { 1 });
            PARALLEL.set(default, all);
            GRAIN.set(default, 2);
        }
        None => {}
    }
}

/// Adds pooling that reduces columns first, the default for maxima and some strided means (tuned with AVX-512).
fn add_columns(space: &mut Space, machine: &Cpu, task: &Task, usual: Knobs) {
    let anchor = &task.steps[0];
    let Op::Pool(Pool { mode, kernel, strides, pads, count_pad, .. }) = &anchor.op else { return };
    let (data, lanes) = (parameter_extents(task, 0), machine.vector_lanes);
    let output = anchor.output.extents().unwrap_or_default();
    let ([above @ .., last], [.., columns], [.., row]) = (&kernel[..], &output[..], &data[..]) else { return };
    // Reducing columns first needs positions of 32 bits.
    let is_small = data.iter().try_fold(1i32, |all, &extent| all.checked_mul(i32::try_from(extent).ok()?)).is_some();
    if *last == 1 || above.iter().all(|&extent| extent == 1) || !is_small {
        return;
    }
    // A row that fits half of the registers is one vector.
    let whole = if *row <= 16 * lanes { *row } else { 4 * lanes };
    let settings = [1, 8, 16, 32].into_iter().filter(|&width| width < whole).chain([whole]);
    let text = "whether windows are reduced as a whole or columns first";
    space.axes.push(WINDOWS.to_axis(text, [Windows::Whole, Windows::ColumnsFirst]));
    space.axes.push(ROW.to_axis("columns of windows that are reduced as one vector (columns_first)", settings));
    let is_padded = pads.iter().any(|&pad| pad > 0);
    let is_strided = strides.last().is_some_and(|&stride| stride > 1);
    let largest = |most: i64, of: i64| [16, 8, 4].into_iter().find(|vector| *vector <= of.min(most)).unwrap_or(1);
    let (row, vector) = match (mode, is_padded, is_strided) {
        // The compiler vectorises over results, except for short rows whose ends are padding.
        (PoolMode::Max, true, true) if *columns < lanes => (whole, largest(8, *columns)),
        (PoolMode::Max, true, false) if *columns % lanes == 0 => (whole, lanes),
        (PoolMode::Max, _, _) => (whole, 1),
        (PoolMode::Average, true, true) if *row <= 4 * lanes => (largest(8, *row), largest(4, *columns)),
        (PoolMode::Average, true, false) if !*count_pad && *row % largest(lanes, *row) <= 1 => {
            (largest(lanes, *row), largest(lanes, *columns))
        }
        (PoolMode::Average, false, true) if *row <= 4 * lanes => (whole, 1),
        (PoolMode::Average | PoolMode::Lp { .. }, _, _) => return,
    };
    space.default = usual;
    space.default.0.remove(PAD_AT.0.name);
    WINDOWS.set(&mut space.default, Windows::ColumnsFirst);
    ROW.set(&mut space.default, row);
    VECTOR.set(&mut space.default, vector);
    // Short rows are distributed over threads in pairs instead of plane by plane.
    let steps: i64 = output.iter().rev().skip(1).product();
    if !is_padded && is_strided && *columns < lanes && steps >= 4 {
        let all = i64::try_from(output.len()).unwrap_or(1) - 1;
        PARALLEL.set(&mut space.default, all);
        GRAIN.set(&mut space.default, 2);
    }
}

/// Restricts a thread's chunks to one image plane: TVM does not detect which columns the next step can reuse.
fn keep_planes_apart(space: &mut Space, output: &[i64]) {
    let [images, _, rows, _, ..] = output else { return };
    let fits = |setting: &Setting| matches!(setting, Setting::Number(grain) if rows % grain == 0);
    if *images == 1 || !space.has_axis(WINDOWS.0.name) {
        return;
    }
    if let Some(grains) = space.axes.iter_mut().find(|axis| axis.name == GRAIN.0.name) {
        grains.settings.retain(fits);
    }
    if space.default.0.get(GRAIN.0.name).is_some_and(|grain| !fits(grain)) {
        space.default.0.remove(GRAIN.0.name);
    }
}

fn sums_neighbours(op: &Op, rank: usize) -> bool {
    let is_last = |axis: i64| axis + 1 == i64::try_from(rank).unwrap_or(i64::MAX);
    match op {
        Op::Softmax(Softmax { axis, .. }) | Op::LpNorm(LpNorm { axis, .. }) => is_last(*axis),
        Op::LayerNorm(_) | Op::RmsNorm(_) => true,
        Op::GroupNorm(_) => rank > 2,
        Op::MeanVarianceNorm(MeanVarianceNorm { axes, .. }) => axes.iter().any(|&axis| is_last(axis)),
        _ => false,
    }
}

/// Returns the largest vector width that divides the columns. Other widths need a bound check per step.
fn whole_vector(machine: &Cpu, columns: i64) -> i64 {
    let fits = |vector: &i64| *vector <= machine.vector_lanes.min(columns) && columns % vector == 0;
    VECTORS.into_iter().filter(fits).max().unwrap_or(1)
}

/// Returns the default vector width of pointwise operators: 1 for most row lengths that no vector width divides,
/// because the compiler vectorises these loops itself. Rows of two to four vectors are the exception.
fn element_vector(machine: &Cpu, columns: i64) -> i64 {
    let lanes = machine.vector_lanes;
    if columns % lanes == 0 {
        lanes
    } else if (2 * lanes..4 * lanes).contains(&columns) {
        2 * lanes
    } else {
        1
    }
}

/// Returns the number of adjacent elements that one result element reduces, or None if they are not adjacent.
fn reduced_row(task: &Task) -> Option<i64> {
    let data = parameter_extents(task, 0);
    let first = match &task.steps[0].op {
        Op::GlobalPool(_) => 2,
        Op::Reduce(Reduce { axes, .. }) => {
            let first = data.len().checked_sub(axes.len())?;
            let is_last =
                |axis: &i64| usize::try_from(axis.rem_euclid(data.len() as i64)).is_ok_and(|axis| axis >= first);
            axes.iter().all(is_last).then_some(first)?
        }
        _ => return None,
    };
    data.get(first..)?.iter().copied().reduce(|all, extent| all.saturating_mul(extent))
}

/// Adds an axis for partial results: rows are reduced by vectors, whose lanes are combined last.
fn add_partial_sums(space: &mut Space, machine: &Cpu, columns: i64) {
    let lanes = machine.vector_lanes;
    let settings: Vec<i64> =
        candidate_divisors(columns, &[1, 4, 7, 8, 14, 16, 28, 32]).filter(|&width| width <= 2 * lanes).collect();
    let width = settings.iter().copied().filter(|&width| width <= lanes).max().unwrap_or(1);
    space.axes.push(SPLIT_R.to_axis("number of partial results of each row's reductions", settings));
    SPLIT_R.set(&mut space.default, width);
}

fn rows_space(machine: &Cpu, output: &[i64], has_heads: bool) -> Space {
    let columns = output.last().copied().unwrap_or(1);
    let vectors: Vec<i64> = [1, 4, 8, 16, 32].into_iter().filter(|&v| v <= columns).collect();
    let vector = vectors.iter().copied().filter(|&v| v <= machine.vector_lanes).max().unwrap_or(1);
    // An overhanging vector tests each element; without explicit vectors, the compiler generates vectors and a
    // remainder loop.
    let vector = if columns % vector == 0 || has_heads { vector } else { 1 };
    let places: &[HelpersAt] = if has_heads {
        &[HelpersAt::Row, HelpersAt::Head, HelpersAt::Root]
    } else {
        &[HelpersAt::Row, HelpersAt::Root]
    };
    let axes = vec![
        VECTOR.to_axis("elements in one vector", vectors),
        HELPERS_AT.to_axis("compute location of intermediate results", places.iter().copied()),
    ];
    let mut default = Knobs::default();
    VECTOR.set(&mut default, vector);
    HELPERS_AT.set(&mut default, HelpersAt::Row);
    Space { template: Template::Rows, axes, default, limits: no_limits() }
}
