//! Declares the space of each family.

use super::axes::{choice, choices, numbers, upto};
use super::contraction::contraction;
use super::extents::{by_phases, contraction_extents, input_extent};
use super::template::{has_functions, parameter_extents};
use super::{Knobs, Limits, Setting, Space, Template, attention, beyond, dots, pool, template, winograd};
use crate::flat::{flat, of_elements};
use crate::target::Cpu;
use models::operators::{LpNorm, MeanVarianceNorm, Pool, Reduce, Softmax};
use models::{Op, PoolMode, Task};
use std::collections::BTreeMap;

pub(super) const UNLIMITED: Limits = Limits::Registers {
    tile_elements: i64::MAX,
    unrolled_elements: i64::MAX,
    window: 1,
    tiles: None,
    sums: i64::MAX,
    loops: beyond::NONE,
    whole: None,
};

/// Columns that one vector of work on elements may have.
const VECTORS: [i64; 6] = [1, 4, 8, 16, 32, 64];

/// The space of a task on CPUs.
pub(super) fn cpu_space(task: &Task, machine: &Cpu) -> Space {
    let flat = flat(task);
    let task = flat.as_ref().map_or(task, |flat| &flat.task);
    let anchor = &task.steps[0];
    let output = anchor.output.extents().unwrap_or_default();
    let mut space = match template(task) {
        Template::Contraction => {
            let extents = by_phases(task, &output, contraction_extents(task, &output));
            let mut space = contraction(machine, &extents, &output, task.steps.len() > 1);
            winograd::extend(&mut space, task, machine);
            if let Some(dots) = dots::dots(task) {
                dots::add_to(&mut space, machine, &dots);
            } else if dots::is_product(task) {
                dots::add_to_product(&mut space, machine);
            }
            space
        }
        Template::Rows => match &anchor.op {
            Op::Attention(_) => {
                let mut space = rows(machine, &output, true);
                attention::extend(&mut space, task, machine);
                space
            }
            _ => {
                let mut space = rows(machine, &output, false);
                if sums_neighbours(&anchor.op, output.len()) {
                    let row = input_extent(task, -1);
                    add_partial_sums(&mut space, machine, row);
                    // Two sums at a time hide what an addition takes.
                    let two = 2 * machine.vector_lanes;
                    if matches!(anchor.op, Op::LayerNorm(_) | Op::RmsNorm(_)) && row % two == 0 && row >= 4 * two {
                        space.default.0.insert("split_r".to_owned(), Setting::Number(two));
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
                // A vector of strided reads is slower than what the compiler makes of single ones.
                _ if row.is_some() || is_strided => 1,
                // Reads that depend on the place are vectors when the compiler makes them, and else a test for each element.
                Op::Resize(_) | Op::OneHot(_) => 1,
                Op::BorderPad(_) if columns >= 4 * machine.vector_lanes => 2 * machine.vector_lanes,
                Op::Tile(_) => whole_vector(machine, input_extent(task, -1)),
                // So are bytes: as many as fit a register.
                op if of_elements(op) && anchor.output.dtype.bytes() == 1 => 1,
                op if of_elements(op) => element_vector(machine, columns),
                _ => whole_vector(machine, columns),
            };
            let mut space = spatial(machine, &output, vector, is_padded);
            let usual = space.default.clone();
            if let (Op::Pool(Pool { kernel, .. }), true) = (&anchor.op, is_strided) {
                let window = kernel.iter().copied().max().unwrap_or(1);
                space.default.0.extend(of_strided(machine, &output, is_padded.then_some(window)));
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
        space.axes.push(choices("functions", "how exponentials and their kin are computed", ["vector", "library"]));
        space.default.0.insert("functions".to_owned(), choice("vector"));
    }
    pool::extend(&mut space, task, machine);
    space
}

/// `is_strided` says that neighbours of the result do not come from neighbours of the input.
fn spatial(machine: &Cpu, output: &[i64], vector: i64, is_padded: bool) -> Space {
    let columns = output.last().copied().unwrap_or(1);
    let outer = i64::try_from(output.len().saturating_sub(1)).unwrap_or(0).max(1);
    // Rows of a plane share their padded input, so planes are the grain where there are enough of them.
    let planes: i64 = output.iter().take(2).product();
    let parallel = if output.len() > 3 && planes >= 8 * machine.cores { 2 } else { outer };
    let mut axes = vec![
        numbers("vector", "columns in one vector", VECTORS.into_iter().filter(|&vector| vector <= columns)),
        numbers("parallel", "outer loops fused and run on the pool", 1..=outer),
    ];
    let steps: i64 = output.iter().rev().skip(1).product();
    if steps > 1 {
        let grains = [1, 2, 4, 8].into_iter().filter(|grain| 2 * grain <= steps);
        axes.push(numbers("grain", "steps of those loops that a thread takes at once", grains));
    }
    let mut default = BTreeMap::from([
        ("vector".to_owned(), Setting::Number(vector)),
        ("parallel".to_owned(), Setting::Number(parallel)),
    ]);
    if is_padded {
        axes.push(choices("pad_at", "where the padded input is computed", ["inline", "root", "outer", "tile"]));
        default.insert("pad_at".to_owned(), choice("outer"));
    }
    Space { template: Template::Spatial, axes, default: Knobs(default), limits: UNLIMITED }
}

/// How the windows of a pool that takes steps are computed, where that is not as others are: of long rows the compiler makes
/// vectors by itself, of short ones it does not, and not where borders are in between. All as seen with AVX-512. `padded` is the
/// window's extent where the input is padded.
fn of_strided(machine: &Cpu, output: &[i64], padded: Option<i64>) -> Vec<(String, Setting)> {
    /// Rows so long are vectors without more said.
    const LONG: i64 = 16;
    /// Windows of this extent are small.
    const SMALL: i64 = 3;
    /// Rows so short are written out.
    const WRITTEN_OUT: i64 = 10;
    let (columns, lanes) = (output.last().copied().unwrap_or(1), machine.vector_lanes);
    let all = i64::try_from(output.len().saturating_sub(1)).unwrap_or(0).max(1);
    let steps: i64 = output.iter().rev().skip(1).product();
    let is_of_planes = output.len() <= 4;
    let number = |name: &str, setting: i64| (name.to_owned(), Setting::Number(setting));
    let inline = |vector| vec![number("vector", vector), ("pad_at".to_owned(), choice("inline"))];
    let part = |columns: i64| VECTORS.into_iter().filter(|&vector| vector <= columns.min(lanes)).max().unwrap_or(1);
    match padded {
        // Every element of a window has a test of its own, and so many are too many.
        Some(window) if window > SMALL && columns < LONG => vec![number("vector", part(columns.min(7)))],
        Some(window) if window > SMALL => Vec::new(),
        Some(_) if columns <= WRITTEN_OUT => vec![number("parallel", all)],
        Some(_) if columns < LONG => inline(part(columns)),
        Some(_) if columns == LONG => Vec::new(),
        Some(_) => {
            let vectors = [lanes, lanes / 2].into_iter().filter(|vector| VECTORS.contains(vector));
            vectors.filter(|vector| columns % vector == 0).map(inline).next().unwrap_or_default()
        }
        None if columns < 4 => Vec::new(),
        None if columns < LONG && !is_of_planes => {
            vec![number("vector", part(columns.min(7))), number("parallel", all - 1)]
        }
        None if columns < LONG && steps >= 4 => {
            // What is left of a row beside a vector, one or nearly a whole one, costs more than the vector saves.
            let (vector, rest) = (part(columns), columns % part(columns));
            let is_vector = columns % 2 == 1 && (columns < 8 || (2..=5).contains(&rest));
            let vector = if is_vector { vector } else { 1 };
            vec![number("vector", vector), number("parallel", all), number("grain", 2)]
        }
        None => Vec::new(),
    }
}

/// Pools may reduce the columns of windows first, as vectors of neighbours in a row of the input. That is the default of maxima, and of
/// means whose windows take steps over rows that are not long or leave padding out. All as seen with AVX-512.
/// `usual` is the default of work on elements that are independent.
fn add_columns(space: &mut Space, machine: &Cpu, task: &Task, usual: Knobs) {
    let anchor = &task.steps[0];
    let Op::Pool(Pool { mode, kernel, strides, pads, count_pad, .. }) = &anchor.op else { return };
    let (data, lanes) = (parameter_extents(task, 0), machine.vector_lanes);
    let output = anchor.output.extents().unwrap_or_default();
    let ([above @ .., last], [.., columns], [.., row]) = (&kernel[..], &output[..], &data[..]) else { return };
    // Places are told by 32-bit numbers where rows have ends.
    let is_small = data.iter().try_fold(1i32, |all, &extent| all.checked_mul(i32::try_from(extent).ok()?)).is_some();
    if *last == 1 || above.iter().all(|&extent| extent == 1) || !is_small {
        return;
    }
    // A row whose numbers fit half of the registers is one vector.
    let whole = if *row <= 16 * lanes { *row } else { 4 * lanes };
    let settings = [1, 8, 16, 32].into_iter().filter(|&width| width < whole).chain([whole]);
    let text = "whether windows are reduced as a whole or their columns first";
    space.axes.push(choices("windows", text, ["whole", "columns_first"]));
    space.axes.push(numbers("row", "columns of windows reduced as one vector, where they are first", settings));
    let is_padded = pads.iter().any(|&pad| pad > 0);
    let is_strided = strides.last().is_some_and(|&stride| stride > 1);
    let largest = |most: i64, of: i64| [16, 8, 4].into_iter().find(|vector| *vector <= of.min(most)).unwrap_or(1);
    let (row, vector) = match (mode, is_padded, is_strided) {
        // The compiler makes vectors of the results, except for short rows of which padding takes the ends.
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
    space.default.0.remove("pad_at");
    space.default.0.insert("windows".to_owned(), choice("columns_first"));
    for (name, setting) in [("row", row), ("vector", vector)] {
        space.default.0.insert(name.to_owned(), Setting::Number(setting));
    }
    // Short rows are too little to walk plane by plane.
    let steps: i64 = output.iter().rev().skip(1).product();
    if !is_padded && is_strided && *columns < lanes && steps >= 4 {
        let all = i64::try_from(output.len()).unwrap_or(1) - 1;
        space.default.0.insert("parallel".to_owned(), Setting::Number(all));
        space.default.0.insert("grain".to_owned(), Setting::Number(2));
    }
}

/// Steps of a pool's loops that a thread takes at once stay within one plane of an image where there are several: TVM does not see
/// which columns of windows belong to steps that go on in the next.
fn keep_planes_apart(space: &mut Space, output: &[i64]) {
    let [images, _, rows, _, ..] = output else { return };
    let fits = |setting: &Setting| matches!(setting, Setting::Number(grain) if rows % grain == 0);
    if *images == 1 || !space.has("windows") {
        return;
    }
    if let Some(grains) = space.axes.iter_mut().find(|axis| axis.name == "grain") {
        grains.settings.retain(fits);
    }
    if space.default.0.get("grain").is_some_and(|grain| !fits(grain)) {
        space.default.0.remove("grain");
    }
}

/// Whether the helpers of a row reduce elements that lie side by side.
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

/// The widest vector that divides the columns: one that does not needs a test in every step.
fn whole_vector(machine: &Cpu, columns: i64) -> i64 {
    let fits = |vector: &i64| *vector <= machine.vector_lanes.min(columns) && columns % vector == 0;
    VECTORS.into_iter().filter(fits).max().unwrap_or(1)
}

/// Elements of one vector of a row, each computed by itself. The compiler makes vectors of its own of single elements,
/// full ones; those of a short row that nothing divides it does not, but masks ours.
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

/// How many neighbours become one element each, where those lie side by side to the last.
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

/// Rows are reduced by vectors, whose elements are brought together last.
fn add_partial_sums(space: &mut Space, machine: &Cpu, columns: i64) {
    let lanes = machine.vector_lanes;
    let settings: Vec<i64> = upto(columns, &[1, 4, 7, 8, 14, 16, 28, 32]).filter(|&width| width <= 2 * lanes).collect();
    let width = settings.iter().copied().filter(|&width| width <= lanes).max().unwrap_or(1);
    space.axes.push(numbers("split_r", "partial results of each row's reductions", settings));
    space.default.0.insert("split_r".to_owned(), Setting::Number(width));
}

fn rows(machine: &Cpu, output: &[i64], has_heads: bool) -> Space {
    let columns = output.last().copied().unwrap_or(1);
    let vectors: Vec<i64> = [1, 4, 8, 16, 32].into_iter().filter(|&v| v <= columns).collect();
    let vector = vectors.iter().copied().filter(|&v| v <= machine.vector_lanes).max().unwrap_or(1);
    // A vector past the end has a test for each element; of single ones the compiler makes vectors and a rest.
    let vector = if columns % vector == 0 || has_heads { vector } else { 1 };
    let places: &[&str] = if has_heads { &["row", "head", "root"] } else { &["row", "root"] };
    let axes = vec![
        numbers("vector", "elements in one vector", vectors),
        choices("helpers_at", "for how much of the result helpers are computed at once", places.iter().copied()),
    ];
    let default =
        BTreeMap::from([("vector".to_owned(), Setting::Number(vector)), ("helpers_at".to_owned(), choice("row"))]);
    Space { template: Template::Rows, axes, default: Knobs(default), limits: UNLIMITED }
}
