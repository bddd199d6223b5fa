//! Removes the kernel positions of convolutions that only ever multiply padding, with the padding that they cover. A 3
//! × 3 kernel with dilation 36 on a 33 × 33 image becomes a 1 × 1 kernel.

use super::rewrite::{Part, Replacement, rewrite_nodes};
use crate::fold::fold_operator;
use crate::lookup::GraphLookup;
use models::error::Result;
use models::graph::{Const, Graph, Node};
use models::operators::{Conv, Op, QConv, Slice};
use models::types::TensorType;
use std::ops::Range;

pub(super) fn drop_outer_taps(graph: &Graph) -> Result<Option<Graph>> {
    rewrite_nodes(graph, |lookup, node| {
        let (Op::Conv(Conv { strides, pads, dilations, .. }) | Op::QConv(QConv { strides, pads, dilations, .. })) =
            &node.op
        else {
            return None;
        };
        let windows = axis_windows(lookup, node, strides, pads, dilations)?;
        let kept = windows.iter().map(AxisWindow::taps_inside).collect::<Option<Vec<_>>>()?;
        if kept.iter().zip(&windows).all(|(kept, window)| *kept == (0..window.kernel)) {
            return None;
        }
        let mut pads = pads.clone();
        for (axis, (kept, window)) in kept.iter().zip(&windows).enumerate() {
            pads[axis] -= kept.start * window.dilation;
            pads[axis + windows.len()] -= (window.kernel - kept.end) * window.dilation;
        }
        let weight = cut_taps(lookup.value_type(node.inputs[1]), lookup.constant_data(node.inputs[1])?, &kept)?;
        // A negative pad would crop the image, so such a convolution is kept.
        let is_padded = pads.iter().all(|pad| *pad >= 0);
        let mut op = node.op.clone();
        if let Op::Conv(Conv { pads: old, .. }) | Op::QConv(QConv { pads: old, .. }) = &mut op {
            *old = pads;
        }
        is_padded.then(|| Replacement::from_operator(op, vec![Part::Value(node.inputs[0]), weight]))
    })
}

struct AxisWindow {
    kernel: i64,
    stride: i64,
    before: i64,
    dilation: i64,
    image: i64,
    result: i64,
}

impl AxisWindow {
    /// Returns the range of kernel positions that touch the image for some output element; None if none does.
    fn taps_inside(&self) -> Option<Range<i64>> {
        let is_inside = |tap: &i64| {
            let first = tap * self.dilation - self.before;
            // The first position of the result at which the tap is not before the image.
            let place = if first >= 0 { 0 } else { (self.stride - 1 - first) / self.stride };
            place < self.result && first + place * self.stride < self.image
        };
        let first = (0..self.kernel).find(is_inside)?;
        let last = (first..self.kernel).rfind(is_inside)?;
        Some(first..last + 1)
    }
}

fn axis_windows(
    lookup: &GraphLookup<'_>,
    node: &Node,
    strides: &[i64],
    pads: &[i64],
    dilations: &[i64],
) -> Option<Vec<AxisWindow>> {
    let [image, kernel, result] = [node.inputs[0], node.inputs[1], node.outputs[0]]
        .map(|id| lookup.value_type(id).extents().map(|all| all[2..].to_vec()));
    let (image, kernel, result) = (image?, kernel?, result?);
    let window = |d: usize| AxisWindow {
        kernel: kernel[d],
        stride: strides[d],
        before: pads[d],
        dilation: dilations[d],
        image: image[d],
        result: result[d],
    };
    Some((0..image.len()).map(window).collect())
}

/// Slices a weight to the kept kernel positions. Random contents stay random, because any values will do.
fn cut_taps(ty: &TensorType, data: &Const, kept: &[Range<i64>]) -> Option<Part> {
    let mut extents = ty.extents()?;
    kept.iter().enumerate().for_each(|(axis, taps)| extents[axis + 2] = taps.end - taps.start);
    let slice = Op::Slice(Slice {
        axes: (2..extents.len() as i64).collect(),
        starts: kept.iter().map(|taps| taps.start).collect(),
        stops: kept.iter().map(|taps| taps.end).collect(),
        steps: vec![1; kept.len()],
    });
    let data = match data.random_seed() {
        Some(seed) => Const::Random { seed },
        None => fold_operator(&slice, &[(ty, data)])?,
    };
    Some(Part::Constant(TensorType::new(ty.dtype, &extents), data))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simplify_graph;
    use proptest::prelude::*;
    use reference::Tensor;

    /// Builds a convolution of one channel; `windows` holds `(kernel, dilation, pads, stride)` of each axis.
    fn conv(image: [i64; 2], windows: [(i64, i64, [i64; 2], i64); 2]) -> Option<Graph> {
        let result = |d: usize| {
            let (kernel, dilation, pads, stride) = windows[d];
            let places = image[d] + pads[0] + pads[1] - (kernel - 1) * dilation - 1;
            (places >= 0).then_some(places / stride + 1)
        };
        let ([height, width], [y, x]) = (image, [result(0)?, result(1)?]);
        let [(rows, down, [top, bottom], high), (columns, along, [left, right], wide)] = windows;
        let taps: Vec<String> = (0..2 * rows * columns).map(|tap| format!("{}.0", tap * 5 % 17 - 8)).collect();
        let text = format!(
            r#"
            graph "taps"
            input %0 "x": f32[1,1,{height},{width}]
            constant %1 "w": f32[2,1,{rows},{columns}] = list({})
            %2 "y": f32[1,2,{y},{x}] = conv(%0, %1) dilations=[{down},{along}] groups=1 pads=[{top},{left},{bottom},{right}] strides=[{high},{wide}]
            output %2
            "#,
            taps.join(", ")
        );
        Some(Graph::from_text(&text).expect(&text))
    }

    fn kernel_of(graph: &Graph) -> Vec<i64> {
        graph.values[graph.nodes[0].inputs[1].0 as usize].ty.extents().unwrap()[2..].to_vec()
    }

    #[test]
    fn taps_beyond_the_image_are_cut_off() {
        let after = |image, windows| kernel_of(&simplify_graph(&conv(image, windows).unwrap()).unwrap());
        let wide = (3, 9, [9, 9], 1);
        assert_eq!(after([9, 9], [wide, wide]), [1, 1]);
        assert_eq!(after([10, 9], [wide, wide]), [3, 1]);
        assert_eq!(after([10, 10], [wide, wide]), [3, 3]);
        // On one side alone.
        assert_eq!(after([1, 4], [(3, 1, [2, 0], 1), (3, 1, [1, 1], 1)]), [1, 3]);
        assert_eq!(after([4, 1], [(3, 1, [1, 1], 1), (3, 1, [0, 2], 1)]), [3, 1]);
    }

    fn any_window() -> impl Strategy<Value = (i64, i64, [i64; 2], i64)> {
        (1i64..4, 1i64..12, [0i64..13, 0..13], 1i64..4)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn results_stay_the_same(image in [1i64..12, 1..12], windows in [any_window(), any_window()]) {
            let Some(graph) = conv(image, windows) else { return Ok(()) };
            let after = drop_outer_taps(&graph).unwrap().unwrap_or_else(|| graph.clone());
            after.check_default().unwrap();
            let ty = graph.values[graph.inputs[0].0 as usize].ty.clone();
            let numbers: Vec<f64> = (0..ty.element_count().unwrap()).map(|index| (index * 7 % 31) as f64).collect();
            let x = [Tensor::from_numbers(ty, &numbers).unwrap()];
            let [before, after] = [&graph, &after].map(|graph| reference::evaluate_graph(graph, &x).unwrap());
            prop_assert_eq!(after, before);
        }
    }
}
