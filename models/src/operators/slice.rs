//! Contiguous or strided parts of dimensions.

use super::prelude::*;

/// Takes elements `starts` to `stops` (exclusive) of the given ascending dimensions. Negative steps count down; for
/// these, a stop of -1 means down to the first element.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    pub axes: Vec<i64>,
    pub starts: Vec<i64>,
    pub stops: Vec<i64>,
    pub steps: Vec<i64>,
}

impl Operator for Slice {
    fn facts(&self) -> Facts {
        Facts::new("slice", Class::Movement, 1..=1)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let x = inputs[0];
        let Slice { axes, starts, stops, steps } = self;
        if [starts.len(), stops.len(), steps.len()] != [axes.len(); 3] {
            return Err(format!("{} axes need as many starts, stops and steps", axes.len()));
        }
        if !axes.is_sorted_by(|before, after| before < after) {
            return Err(format!("axes {axes:?} must be in ascending order"));
        }
        let mut output = x.clone();
        for (index, &axis) in axes.iter().enumerate() {
            let (start, stop, step) = (starts[index], stops[index], steps[index]);
            let axis = axis_of(axis, x)?;
            let extent = known_extent(&x.shape[axis], "a sliced extent")?;
            let is_forward = 0 <= start && start <= stop && stop <= extent && step >= 1;
            let is_backward = -1 <= stop && stop <= start && start < extent && step <= -1;
            if !(is_forward || is_backward) {
                return Err(format!(
                    "{start}..{stop} in steps of {step} must stay inside the {extent} elements of dimension {axis}"
                ));
            }
            let (length, step) = (stop.abs_diff(start), step.unsigned_abs());
            let count = i64::try_from(length.div_ceil(step)).expect("no more than the extent");
            output.shape[axis] = Dim::Known(count);
        }
        Ok(output)
    }

    fn count_axes_from_front(&mut self, rank: usize) {
        self.axes.iter_mut().for_each(|axis| count_from_front(axis, rank));
    }

    fn changes_nothing(&self, inputs: &[&TensorType], output: &TensorType) -> bool {
        inputs[0] == output && self.steps.iter().all(|&step| step > 0)
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "axes", join_items(&self.axes, "x"), true);
        append_attribute(line, "from", join_items(&self.starts, "x"), true);
        append_attribute(line, "to", join_items(&self.stops, "x"), true);
        append_attribute(line, "step", join_items(&self.steps, "x"), self.steps.iter().any(|&step| step != 1));
    }
}
