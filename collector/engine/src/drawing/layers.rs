//! Layout of a layered drawing: each box lies below all boxes that it reads from, with few crossings and short lines.
//!
//! The algorithm has the usual four steps. Layers follow from the longest path. Long lines get a corner in every layer
//! they cross. Each layer is sorted by the mean position of its neighbours in a few sweeps down and up. Finally, boxes
//! move towards their neighbours as far as adjacent boxes allow. With too many corners, all lines are drawn straight.

pub(super) struct DrawingLayout {
    pub boxes: Vec<PlacedBox>,
    pub edges: Vec<DrawnLine>,
    pub width: f64,
    pub height: f64,
}

#[derive(Clone, Copy)]
pub(super) struct PlacedBox {
    pub x: f64,
    pub y: f64,
    pub width: f64,
}

/// A line from the lower edge of a box to the upper edge of another box.
pub(super) struct DrawnLine {
    pub from: usize,
    pub to: usize,
    pub points: Vec<(f64, f64)>,
}

const GAP: f64 = 22.0;
const LAYER_HEIGHT: f64 = 84.0;
const CORNER_WIDTH: f64 = 10.0;
const MAX_CORNERS: usize = 40_000;
const SWEEPS: usize = 12;

struct LayerPlace {
    width: f64,
    layer: usize,
    above: Vec<usize>,
    below: Vec<usize>,
    x: f64,
}

/// Computes the layout of boxes with the given widths. Every edge leads from a lower to a higher index.
pub(super) fn layout_boxes(widths: &[f64], edges: &[(usize, usize)]) -> DrawingLayout {
    let layer_of = assign_layers(widths.len(), edges);
    let mut places: Vec<LayerPlace> = widths
        .iter()
        .zip(&layer_of)
        .map(|(&width, &layer)| LayerPlace { width, layer, above: vec![], below: vec![], x: 0.0 })
        .collect();
    let corners: usize = edges.iter().map(|&(from, to)| layer_of[to] - layer_of[from] - 1).sum();
    let mut chains = Vec::new();
    for &(from, to) in edges {
        let mut chain = vec![from];
        if corners <= MAX_CORNERS {
            for layer in layer_of[from] + 1..layer_of[to] {
                chain.push(places.len());
                places.push(LayerPlace { width: CORNER_WIDTH, layer, above: vec![], below: vec![], x: 0.0 });
            }
        }
        chain.push(to);
        for pair in chain.windows(2) {
            places[pair[0]].below.push(pair[1]);
            places[pair[1]].above.push(pair[0]);
        }
        chains.push(chain);
    }
    let mut layers = vec![vec![]; layer_of.iter().max().map_or(0, |last| last + 1)];
    places.iter().enumerate().for_each(|(index, place)| layers[place.layer].push(index));
    order_layers(&mut layers, &mut places);
    arrange_boxes(&layers, &mut places);
    finish_layout(widths, &places, edges, &chains, layers.len())
}

/// Returns the layer of each box: below all its inputs. Boxes without inputs are directly above their first reader.
fn assign_layers(count: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut layer = vec![0usize; count];
    let mut by_reader: Vec<(usize, usize)> = edges.iter().map(|&(from, to)| (to, from)).collect();
    by_reader.sort_unstable();
    for &(to, from) in &by_reader {
        layer[to] = layer[to].max(layer[from] + 1);
    }
    let mut first_reader = vec![usize::MAX; count];
    let mut reads = vec![false; count];
    for &(from, to) in edges {
        first_reader[from] = first_reader[from].min(layer[to]);
        reads[to] = true;
    }
    for index in 0..count {
        if !reads[index] && first_reader[index] != usize::MAX {
            layer[index] = first_reader[index] - 1;
        }
    }
    layer
}

fn order_layers(layers: &mut [Vec<usize>], places: &mut [LayerPlace]) {
    let number = |layers: &[Vec<usize>], places: &mut [LayerPlace]| {
        for layer in layers {
            layer.iter().enumerate().for_each(|(at, &index)| places[index].x = at as f64);
        }
    };
    number(layers, places);
    for sweep in 0..SWEEPS {
        let is_down = sweep % 2 == 0;
        let count = layers.len();
        for step in 0..count {
            let layer = &mut layers[if is_down { step } else { count - 1 - step }];
            let mean = |index: &usize| {
                let place = &places[*index];
                mean_of(if is_down { &place.above } else { &place.below }, places).unwrap_or(place.x)
            };
            let mut keyed: Vec<(f64, usize)> = layer.iter().map(|index| (mean(index), *index)).collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            *layer = keyed.into_iter().map(|(_, index)| index).collect();
            layer.iter().enumerate().for_each(|(at, &index)| places[index].x = at as f64);
        }
    }
}

fn mean_of(neighbours: &[usize], places: &[LayerPlace]) -> Option<f64> {
    let sum: f64 = neighbours.iter().map(|&index| places[index].x).sum();
    (!neighbours.is_empty()).then(|| sum / neighbours.len() as f64)
}

fn arrange_boxes(layers: &[Vec<usize>], places: &mut [LayerPlace]) {
    for layer in layers {
        let total: f64 = layer.iter().map(|&index| places[index].width + GAP).sum();
        let mut left = -total / 2.0;
        for &index in layer {
            places[index].x = left + places[index].width / 2.0;
            left += places[index].width + GAP;
        }
    }
    for sweep in 0..2 * SWEEPS {
        let is_down = sweep % 2 == 0;
        let count = layers.len();
        for step in 0..count {
            let layer = &layers[if is_down { step } else { count - 1 - step }];
            let wanted = |index: &usize| {
                let place = &places[*index];
                mean_of(if is_down { &place.above } else { &place.below }, places).unwrap_or(place.x)
            };
            let wanted: Vec<f64> = layer.iter().map(wanted).collect();
            let found = separate_boxes(&wanted, &layer.iter().map(|&index| places[index].width).collect::<Vec<_>>());
            layer.iter().zip(found).for_each(|(&index, x)| places[index].x = x);
        }
    }
}

/// Returns positions without overlap near the wanted ones: the mean of shifting only right and only left.
fn separate_boxes(wanted: &[f64], widths: &[f64]) -> Vec<f64> {
    let room = |at: usize| (widths[at] + widths[at + 1]) / 2.0 + GAP;
    let (mut right, mut left) = (wanted.to_vec(), wanted.to_vec());
    for at in 1..wanted.len() {
        right[at] = right[at].max(right[at - 1] + room(at - 1));
    }
    for at in (1..wanted.len()).rev() {
        left[at - 1] = left[at - 1].min(left[at] - room(at - 1));
    }
    right.iter().zip(left).map(|(right, left)| (right + left) / 2.0).collect()
}

fn finish_layout(
    widths: &[f64],
    places: &[LayerPlace],
    edges: &[(usize, usize)],
    chains: &[Vec<usize>],
    layers: usize,
) -> DrawingLayout {
    let left = places.iter().map(|place| place.x - place.width / 2.0).fold(f64::INFINITY, f64::min).min(0.0);
    let right = places.iter().map(|place| place.x + place.width / 2.0).fold(left, f64::max);
    let x = |index: usize| places[index].x - left + GAP;
    let y = |index: usize| (places[index].layer as f64 + 0.5) * LAYER_HEIGHT;
    let boxes = widths.iter().enumerate().map(|(index, &width)| PlacedBox { x: x(index), y: y(index), width });
    let lines = edges.iter().zip(chains).map(|(&(from, to), chain)| {
        // A line runs straight down between the boxes of every layer that it crosses.
        let half = super::HEIGHT / 2.0;
        let sides = chain.iter().flat_map(|&index| [(x(index), y(index) - half), (x(index), y(index) + half)]);
        let mut points: Vec<(f64, f64)> = sides.collect();
        points.pop();
        points.remove(0);
        DrawnLine { from, to, points }
    });
    DrawingLayout {
        boxes: boxes.collect(),
        edges: lines.collect(),
        width: right - left + 2.0 * GAP,
        height: layers as f64 * LAYER_HEIGHT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_below_their_inputs_and_do_not_overlap() {
        // A diamond with a long line next to it.
        let edges = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (0, 4)];
        let drawing = layout_boxes(&[80.0, 120.0, 60.0, 80.0, 80.0], &edges);
        for (from, to) in edges {
            assert!(drawing.boxes[from].y < drawing.boxes[to].y);
        }
        let (a, b) = (drawing.boxes[1], drawing.boxes[2]);
        assert!((a.x - b.x).abs() >= (a.width + b.width) / 2.0 + GAP - 1e-9);
        assert_eq!(drawing.edges[5].points.len(), 6);
        assert!(drawing.boxes.iter().all(|found| found.x - found.width / 2.0 >= 0.0 && found.x <= drawing.width));
    }
}
