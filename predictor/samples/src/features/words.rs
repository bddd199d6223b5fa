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
        (_, "rows") => "elements of the result without its last dimension",
        (_, "columns") => "elements of the result's last dimension",
        (_, "depth") => "elements summed for each of the result",
        (_, "taps") => "elements of the window",
        (_, "run") => "elements moved in one piece",
        (_, "step") => "elements from one that is moved to the next",
        (_, "offset_alignment") => "alignment of the first element that is moved",
        (_, "element_bytes") => "bytes of an element of the result",
        (_, "input_element_bytes") => "bytes of an element that is read",
        (_, other) => other,
    }
}
