//! Descriptions of features for users, who know shapes and attributes but not feature names.

use super::work::Form;

/// Returns the description of a size or setting for operators of a form; by default the feature's own name.
pub fn in_words(form: Form, feature: &'static str) -> &'static str {
    match (form, feature) {
        (Form::Convolution, "rows") => "output positions (batch × height × width)",
        (Form::Convolution, "columns") => "output channels (of each group)",
        (Form::Convolution, "depth") => "input channels (of each group) × elements of the kernel",
        (Form::Convolution, "batch" | "groups") => "groups",
        (Form::Convolution, "taps") => "elements of the kernel",
        (Form::Contraction, "batch") => "products in a batch",
        (Form::Contraction, "rows") => "rows of the result",
        (Form::Contraction, "columns") => "columns of the result",
        (Form::Rows, "rows") => "rows",
        (Form::Rows, "columns") => "elements of a row",
        (_, "rows") => "elements of the result in all dimensions but the last",
        (_, "columns") => "elements of the result's last dimension",
        (_, "depth") => "elements summed for each output element",
        (_, "taps") => "elements of the window",
        (_, "run") => "contiguous elements copied at once",
        (_, "step") => "distance between copied elements",
        (_, "offset_alignment") => "alignment of the first copied element",
        (_, "element_bytes") => "bytes per output element",
        (_, "input_element_bytes") => "bytes per input element",
        (_, other) => other,
    }
}
