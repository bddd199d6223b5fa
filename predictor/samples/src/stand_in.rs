//! Operators of foreign tables that replace network operators in queries; they have only the sizes of the table.

use crate::features::{Form, Work};
use models::{Fuse, names};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::LazyLock;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StandIn {
    pub operator: String,
    pub form: Form,
    /// Whether all products have the same right-hand side, which counts as a weight.
    #[serde(default)]
    pub shared: bool,
    #[serde(default)]
    pub operands: Option<f64>,
    #[serde(default)]
    pub flops_per_element: Option<f64>,
}

/// Returns the operator with the most similar number of bytes, with its sizes; None if none can express the work.
pub fn best_stand_in<'a>(stand_ins: &'a [StandIn], work: &Work) -> Option<(&'a StandIn, Work)> {
    let candidates = stand_ins.iter().filter_map(|one| Some((one, one.table_work(work)?)));
    candidates.min_by(|(_, one), (_, other)| {
        (one.bytes() - work.bytes()).abs().total_cmp(&(other.bytes() - work.bytes()).abs())
    })
}

impl StandIn {
    /// Describes a network operator without its epilogue by the sizes of the foreign table; None if impossible.
    fn table_work(&self, work: &Work) -> Option<Work> {
        if work.form != self.form {
            return None;
        }
        let table_work = match self.form {
            Form::Contraction if self.shared == (work.bytes_weights > 0.0) => {
                Work::contraction_work(work.batch, work.rows, work.columns, work.depth, self.shared)
            }
            Form::Convolution => square_convolution(work)?,
            Form::Rows if work.depth == work.columns => {
                Work::rows_work(work.rows, work.columns, self.flops_per_element?)
            }
            Form::Pointwise => Work::pointwise_work(work.rows, work.columns, self.operands?),
            Form::Contraction | Form::Rows | Form::Other => return None,
        };
        let (of_inputs, of_outputs) = (work.input_element_bytes / 4.0, work.element_bytes / 4.0);
        Some(Work {
            bytes_in: table_work.bytes_in * of_inputs,
            bytes_weights: table_work.bytes_weights * of_inputs,
            bytes_out: table_work.bytes_out * of_outputs,
            element_bytes: work.element_bytes,
            input_element_bytes: work.input_element_bytes,
            ..table_work
        })
    }
}

/// Describes a convolution as square, ungrouped and undilated; None if it has other properties.
fn square_convolution(work: &Work) -> Option<Work> {
    let kernel = work.taps.sqrt();
    let [batch, outputs, height, width] = work.output[..work.rank] else { return None };
    let square =
        Work::convolution_work(batch, work.depth / work.taps, outputs, kernel, work.row_in, work.stride, work.pad);
    let is_square = kernel.fract() == 0.0 && height == width && work.plane_in == work.row_in * work.row_in;
    let is_same = square.output == work.output && (square.flops / work.flops - 1.0).abs() < 0.5;
    (is_square && is_same && work.groups == 1.0).then_some(square)
}

/// Returns a suggestion if no operator has this kind, but an operator of a similar one exists.
pub(crate) fn misspelt_kind(kind: &str) -> Option<String> {
    static KINDS: LazyLock<BTreeSet<String>> = LazyLock::new(operator_kinds);
    if KINDS.contains(kind) { None } else { names::suggest_nearest(kind, KINDS.iter().map(String::as_str)) }
}

/// Returns the names and the kinds of all operators, also those in one and three dimensions.
fn operator_kinds() -> BTreeSet<String> {
    let mut kinds = BTreeSet::new();
    for form in zoo::simple::list_forms() {
        let tasks = zoo::simple::build_operator(form.example)
            .ok()
            .and_then(|graph| models::distinct_tasks(&graph, Fuse::Epilogue).ok());
        kinds.extend(tasks.into_iter().flatten().map(|one| one.task.anchor_kind()));
        kinds.insert(form.name.to_owned());
    }
    let others = kinds.iter().flat_map(|kind| ["1d", "3d"].map(|dimensions| kind.replace("2d", dimensions)));
    let others: Vec<String> = others.collect();
    kinds.extend(others);
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::work_of;
    use models::Fuse;

    fn of(text: &str) -> Work {
        let graph = zoo::simple::build_operator(text).expect("an operator");
        work_of(&models::plan_calls(&graph, Fuse::Epilogue).expect("a plan").tasks.remove(0).task).expect("sizes")
    }

    fn stand_in(operator: &str, form: Form) -> StandIn {
        let is_linear = operator == "linear";
        StandIn {
            operator: operator.to_owned(),
            form,
            shared: is_linear,
            operands: Some(2.0),
            flops_per_element: Some(5.0),
        }
    }

    #[test]
    fn operators_of_networks_are_told_in_a_tables_words() {
        let convs = [stand_in("conv", Form::Convolution)];
        let (_, told) = best_stand_in(&convs, &of("conv2d:n=2,ci=64,hw=56,co=128,k=3,s=2,p=1,bias=1,act=relu"))
            .expect("a square one");
        assert_eq!(told, Work::convolution_work(2.0, 64.0, 128.0, 3.0, 56.0, 2.0, 1.0));
        for other in [
            "conv2d:ci=8,size=9x13,co=20,k=3,p=1",
            "conv2d:ci=8,hw=9,co=20,k=3x2",
            "conv2d:ci=8,hw=33,co=8,k=3,p=12,d=12",
            "conv2d:ci=8,hw=9,co=8,k=3,p=1,g=2",
            "softmax:shape=4x8",
        ] {
            assert_eq!(best_stand_in(&convs, &of(other)), None, "{other}");
        }
    }

    #[test]
    fn products_with_weights_are_not_those_of_two_inputs() {
        let products = [stand_in("bmm", Form::Contraction), stand_in("linear", Form::Contraction)];
        let named = |text: &str| best_stand_in(&products, &of(text)).map(|(one, work)| (one.operator.clone(), work));
        let linear = Work::contraction_work(1.0, 128.0, 3072.0, 768.0, true);
        assert_eq!(named("dense:m=128,n=3072,k=768,bias=1,act=gelu"), Some(("linear".to_owned(), linear)));
        let bmm = Work::contraction_work(12.0, 128.0, 64.0, 128.0, false);
        assert_eq!(named("matmul:b=12,m=128,n=64,k=128"), Some(("bmm".to_owned(), bmm)));
    }

    #[test]
    fn rows_and_elements_of_any_rank_are_rows_and_columns() {
        let (_, told) =
            best_stand_in(&[stand_in("softmax", Form::Rows)], &of("softmax:shape=1x12x64x128")).expect("rows");
        assert_eq!(told, Work::rows_work(768.0, 128.0, 5.0));
        let adds =
            [StandIn { operands: Some(1.0), ..stand_in("addu", Form::Pointwise) }, stand_in("add", Form::Pointwise)];
        let (of_two, told) = best_stand_in(&adds, &of("add:shape=1x64x28x28")).expect("elements");
        assert_eq!((of_two.operator.as_str(), told), ("add", Work::pointwise_work(1792.0, 28.0, 2.0)));
    }
}
