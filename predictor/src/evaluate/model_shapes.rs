//! Protocol P1m: holds out shapes that occur in neural networks.
//!
//! If the data names networks, all of their shapes are held out. Otherwise, the tenth of each operator's shapes that is
//! nearest to shapes of the built-in models is held out, so that their neighbourhood has no training data.

use learn::applicability::coordinate_columns;
use learn::by_operator;
use learn::split::Fold;
use models::{Fuse, Graph, Op, Task};
use samples::Samples;
use samples::features::{self, Device, FEATURES, Form, Work};
use samples::records::work_of;
use std::collections::{BTreeMap, BTreeSet};
use zoo::transformers;

const SHARE: f64 = 0.1;
const BATCHES: [i64; 2] = [1, 8];
const SEQUENCES: [i64; 2] = [128, 512];

pub(super) fn model_shapes_out(samples: &Samples) -> Fold {
    let named: BTreeSet<u64> = samples.networks.iter().flat_map(|network| network.uses.keys().copied()).collect();
    let held = if named.is_empty() { nearest_to_models(samples) } else { named };
    let (test, train) = (0..samples.rows.len()).partition(|row| held.contains(&samples.rows[*row].shape));
    Fold { name: "shapes of models".to_owned(), train, test }
}

/// Kind of operator, and whether it has weights.
type Kind = (Form, bool);

fn nearest_to_models(samples: &Samples) -> BTreeSet<u64> {
    let Some((_, device)) = samples.devices.first() else { return BTreeSet::new() };
    let columns: Vec<usize> = coordinate_columns().collect();
    let asked = model_points(device, &columns);
    let all: Vec<usize> = (0..samples.rows.len()).collect();
    let mut held = BTreeSet::new();
    for rows in by_operator(samples, &all).into_values() {
        let shapes: BTreeMap<u64, usize> = rows.iter().map(|row| (samples.rows[*row].shape, *row)).collect();
        let Some(asked) = asked.get(&operator_kind(samples, rows[0])) else { continue };
        let own = |row: usize| columns.iter().map(move |column| samples.features.row(row)[*column]);
        let scales: Vec<f32> = (0..columns.len())
            .map(|place| standard_deviation(shapes.values().map(|row| own(*row).nth(place).unwrap_or(0.0))))
            .collect();
        let distance = |row: usize| {
            let to = |place: &Vec<f32>| {
                own(row).zip(place).zip(&scales).map(|((one, two), scale)| ((one - two) / scale).powi(2)).sum::<f32>()
            };
            asked.iter().map(to).fold(f32::INFINITY, f32::min)
        };
        let mut by_distance: Vec<(f32, u64)> = shapes.iter().map(|(shape, row)| (distance(*row), *shape)).collect();
        by_distance.sort_by(|one, two| one.0.total_cmp(&two.0).then(one.1.cmp(&two.1)));
        let count = (SHARE * by_distance.len() as f64).ceil() as usize;
        held.extend(by_distance.into_iter().take(count).map(|(_, shape)| shape));
    }
    held
}

/// Returns the standard deviation, or 1 if it is zero or undefined.
fn standard_deviation(values: impl Iterator<Item = f32> + Clone) -> f32 {
    let count = values.clone().count().max(1) as f32;
    let mean = values.clone().sum::<f32>() / count;
    let variance = values.map(|value| (value - mean).powi(2)).sum::<f32>() / count;
    if variance > 1e-9 { variance.sqrt() } else { 1.0 }
}

fn operator_kind(samples: &Samples, row: usize) -> Kind {
    let weights = FEATURES.iter().position(|feature| feature.name == "bytes_weights");
    let has_weights = weights.is_some_and(|column| samples.features.row(row)[column] > 0.0);
    (samples.rows[row].form, has_weights)
}

fn model_points(device: &Device, columns: &[usize]) -> BTreeMap<Kind, Vec<Vec<f32>>> {
    let mut places: BTreeMap<Kind, BTreeSet<Vec<u32>>> = BTreeMap::new();
    for work in build_zoo_graphs().iter().flat_map(graph_works) {
        let mut row = Vec::new();
        features::push_features(&work, device, device.units, &mut row);
        // Positive floats sort like their bits.
        let place = columns.iter().map(|column| row[*column].to_bits()).collect();
        places.entry((work.form, work.bytes_weights > 0.0)).or_default().insert(place);
    }
    let numbers = |place: BTreeSet<Vec<u32>>| {
        place.into_iter().map(|bits| bits.into_iter().map(f32::from_bits).collect()).collect()
    };
    places.into_iter().map(|(kind, place)| (kind, numbers(place))).collect()
}

fn build_zoo_graphs() -> Vec<Graph> {
    let mut graphs = Vec::new();
    for batch in BATCHES {
        graphs.extend(zoo::list_models().iter().filter_map(|entry| entry.build_graph(batch).ok()));
        for sequence in SEQUENCES {
            let options = transformers::Options { batch, sequence, ..transformers::Options::default() };
            graphs.extend(transformers::list_entries().iter().filter_map(|entry| entry.build_random(&options).ok()));
        }
    }
    graphs
}

fn graph_works(graph: &Graph) -> Vec<Work> {
    let tasks = passes::simplify_graph(graph).and_then(|graph| models::distinct_tasks(&graph, Fuse::Epilogue));
    tasks.unwrap_or_default().iter().flat_map(|found| task_works(&found.task)).collect()
}

/// Returns the work of the operators in a task; attention is split into its products and its softmax.
fn task_works(task: &Task) -> Vec<Work> {
    let is_attention = matches!(task.steps.first().map(|step| &step.op), Some(Op::Attention(_)));
    let extents = |place: usize| task.parameters.get(place).and_then(|parameter| parameter.ty.extents());
    match (is_attention, extents(0).as_deref(), extents(1).as_deref()) {
        (true, Some([batch, heads, asked, depth]), Some([_, _, known, _])) => {
            let [products, asked, known, depth] = [batch * heads, *asked, *known, *depth].map(|extent| extent as f64);
            vec![
                Work::contraction_work(products, asked, known, depth, false),
                Work::rows_work(products * asked, known, 5.0),
                Work::contraction_work(products, asked, depth, known, false),
            ]
        }
        _ => work_of(task).into_iter().collect(),
    }
}
