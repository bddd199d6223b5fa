//! Moves of a schedule (instructions of a TVM trace), checked against an allow list. They may come from an untrusted
//! record, and TVM generates any code that they request: an annotation can contain assembly text, and an index map can
//! call any function. [`Moves`] can only be constructed from instructions on the list; other input never reaches TVM.

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub struct Moves(Value);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("move {place} of the schedule is not allowed: {why}")]
pub struct MovesError {
    place: usize,
    why: String,
}

/// Limit on the number of moves; TVM's own traces have some hundreds.
const MOVES_MAX: usize = 10_000;

const NAME_BYTES_MAX: usize = 200;

const NODES_MAX: usize = 1_000;

pub const OBJECT: &str = "object";

#[derive(Clone, Copy, Debug)]
enum ValueForm {
    /// Result of an earlier move: a block, loop or variable, such as `b0`, `l3` or `v7`.
    Found,
    FoundOrNumber,
    /// Result of an earlier move, or null for the inferred factor of a split.
    FoundOrNothing,
    AllFound,
    FoundOrAll,
    Number,
    Numbers,
    Name,
    Scope,
    Thread,
    /// Name of a tensor intrinsic registered by this program or TVM.
    Step,
    /// Index map made of integer arithmetic alone.
    IndexMap,
    NothingOrNumber,
    /// Key of an annotation; the key determines the form of the value.
    Key,
    Annotated,
}

/// Forms of the values in a list: the form of each of the first values, and that of all further values, if allowed.
type Forms = (&'static [ValueForm], Option<ValueForm>);

const MOVES: &[(&str, Forms, Forms)] = {
    use ValueForm::*;
    const NONE: Forms = (&[], None);
    const ONE: Forms = (&[Found], None);
    const TWO: Forms = (&[Found, Found], None);
    &[
        ("AddUnitLoop", ONE, NONE),
        ("Annotate", (&[Found, Annotated], None), (&[Key], None)),
        ("Bind", ONE, (&[Thread], None)),
        ("Blockize", (&[FoundOrAll], None), (&[Number], None)),
        ("CacheRead", (&[Found, AllFound], None), (&[Number, Scope], None)),
        ("CacheWrite", (&[Found, AllFound], None), (&[Number, Scope], None)),
        ("ComputeAt", TWO, (&[Number, Number], None)),
        ("ComputeInline", ONE, NONE),
        ("DecomposePadding", TWO, NONE),
        ("DecomposeReduction", TWO, NONE),
        ("EnterPostproc", NONE, NONE),
        ("Fuse", (&[], Some(Found)), (&[Number], None)),
        ("GetChildBlocks", ONE, NONE),
        ("GetConsumers", ONE, NONE),
        ("GetLoops", ONE, NONE),
        ("GetOutputBlocks", ONE, NONE),
        ("GetProducers", ONE, NONE),
        ("GetSBlock", NONE, (&[Name, Name], None)),
        ("Merge", (&[], Some(Found)), NONE),
        ("PadEinsum", ONE, (&[Numbers], None)),
        ("Parallel", ONE, NONE),
        ("RFactor", ONE, (&[Number], None)),
        ("ReIndex", ONE, (&[Number, Number], None)),
        ("Reorder", (&[], Some(Found)), NONE),
        ("ReorderBlockIterVar", ONE, (&[Numbers], None)),
        ("ReverseComputeAt", TWO, (&[Number, Number], None)),
        ("ReverseComputeInline", ONE, NONE),
        ("SampleCategorical", NONE, (&[Numbers, Numbers], None)),
        ("SampleComputeLocation", ONE, NONE),
        ("SamplePartitionedTile", ONE, (&[Number, Number, Number], None)),
        ("SamplePerfectTile", ONE, (&[Number, Number], None)),
        ("SetScope", ONE, (&[Number, Scope], None)),
        ("Split", (&[Found], Some(FoundOrNothing)), (&[], Some(Number))),
        ("StorageAlign", ONE, (&[Number, Number, Number, Number], None)),
        ("Tensorize", ONE, (&[Step, Number], None)),
        ("TransformBlockLayout", ONE, (&[IndexMap], None)),
        ("TransformLayout", (&[Found, IndexMap], None), (&[Number, Number], Some(NothingOrNumber))),
        ("Unannotate", ONE, (&[Key], None)),
        ("Unroll", ONE, NONE),
        ("Vectorize", ONE, NONE),
    ]
};

#[derive(Clone, Copy, Debug)]
enum AnnotationForm {
    Number,
    Numbers,
    /// A single word, or the name of a tensor intrinsic.
    Word,
}

const ANNOTATIONS: &[(&str, AnnotationForm)] = {
    use AnnotationForm::*;
    &[
        ("double_buffer_scope", Number),
        ("meta_schedule.auto_tensorize", Word),
        ("meta_schedule.auto_tensorize_init", Word),
        ("meta_schedule.cooperative_fetch", Number),
        ("meta_schedule.inline_rule", Word),
        ("meta_schedule.layout_rewrite_preproc", Number),
        ("meta_schedule.parallel", Number),
        ("meta_schedule.random_compute_producer", Number),
        ("meta_schedule.thread_extent_high_inclusive", Number),
        ("meta_schedule.thread_extent_low_inclusive", Number),
        ("meta_schedule.tiling_structure", Word),
        ("meta_schedule.unroll_explicit", Number),
        ("meta_schedule.unroll_implicit", Number),
        ("meta_schedule.vectorize", Number),
        ("pragma_auto_unroll_max_step", Number),
        ("pragma_loop_partition_hint", Number),
        ("pragma_unroll_explicit", Number),
        ("software_pipeline_order", Numbers),
        ("software_pipeline_stage", Numbers),
        ("vector_bytes", Number),
        ("warp_execution", Number),
    ]
};

const SCOPES: &[&str] =
    &["global", "local", "shared", "shared.dyn", "warp", "wmma.accumulator", "wmma.matrix_a", "wmma.matrix_b"];

const THREADS: &[&str] = &[
    "blockIdx.x",
    "blockIdx.y",
    "blockIdx.z",
    "threadIdx.x",
    "threadIdx.y",
    "threadIdx.z",
    "vthread.x",
    "vthread.y",
    "vthread.z",
];

impl Moves {
    /// Parses moves from JSON; the error is the first move that is not on the list, by index, and the reason.
    pub fn new(trace: Value) -> Result<Moves, MovesError> {
        check_trace(&trace)?;
        Ok(Moves(trace))
    }

    pub fn as_json(&self) -> &Value {
        &self.0
    }

    pub fn check_again(&self) -> Result<(), MovesError> {
        check_trace(&self.0)
    }

    pub fn move_count(&self) -> usize {
        self.move_names().count()
    }

    pub fn has_fragments(&self) -> bool {
        self.move_names().any(|name| name == "Tensorize")
    }

    fn move_names(&self) -> impl Iterator<Item = &str> {
        let moves = self.0.get(0).and_then(Value::as_array).into_iter().flatten();
        moves.filter_map(|step| step.get(0)?.as_str())
    }
}

impl TryFrom<Value> for Moves {
    type Error = MovesError;

    fn try_from(trace: Value) -> Result<Moves, MovesError> {
        Moves::new(trace)
    }
}

impl From<Moves> for Value {
    fn from(moves: Moves) -> Value {
        moves.0
    }
}

fn check_trace(trace: &Value) -> Result<(), MovesError> {
    let at = |place: usize| move |why: String| MovesError { place, why };
    let parts: Option<&[Value; 2]> = as_list(trace).and_then(|parts| parts.try_into().ok());
    let two_lists = || at(0)("a trace consists of two lists: instructions and sampling decisions".to_owned());
    let [moves, drawn] = parts.ok_or_else(two_lists)?;
    let moves = as_list(moves).ok_or_else(|| at(0)("the list of moves is missing".to_owned()))?;
    if moves.len() > MOVES_MAX {
        return Err(at(MOVES_MAX)(format!("a schedule has at most {MOVES_MAX} moves")));
    }
    moves.iter().enumerate().try_for_each(|(place, step)| check_move(step).map_err(at(place)))?;
    let drawn = as_list(drawn).filter(|drawn| drawn.len() <= moves.len());
    let drawn = drawn.ok_or_else(|| at(0)("the list of sampling decisions is missing".to_owned()))?;
    for entry in drawn {
        let parts: Option<&[Value; 2]> = as_list(entry).and_then(|parts| parts.try_into().ok());
        let place = parts.and_then(|[place, _]| usize::try_from(place.as_u64()?).ok());
        let (Some([_, decision]), Some(place)) = (parts, place) else {
            return Err(at(0)(format!("{} is not a valid sampling decision", shorten_value(entry))));
        };
        if !fits_form(ValueForm::Number, decision) && !fits_form(ValueForm::Numbers, decision) {
            return Err(at(place)(format!("{} is not an allowed sampled value", shorten_value(decision))));
        }
    }
    Ok(())
}

fn check_move(step: &Value) -> Result<(), String> {
    let parts: Option<&[Value; 4]> = as_list(step).and_then(|parts| parts.try_into().ok());
    let Some([name, inputs, attributes, outputs]) = parts else {
        return Err(format!("{} is not a schedule instruction", shorten_value(step)));
    };
    let name =
        name.as_str().ok_or_else(|| format!("{} is not the name of a schedule instruction", shorten_value(name)))?;
    let (_, wanted_inputs, wanted_attributes) = MOVES
        .iter()
        .find(|(known, ..)| *known == name)
        .ok_or_else(|| format!("`{name:.60}` is not a known schedule instruction"))?;
    check_list(name, inputs, wanted_inputs)?;
    check_list(name, attributes, wanted_attributes)?;
    if name == "Annotate" {
        check_annotation(&attributes[0], &inputs[1])?;
    }
    check_list(name, outputs, &(&[], Some(ValueForm::Found)))
}

fn check_list(name: &str, given: &Value, (first, further): &Forms) -> Result<(), String> {
    let given =
        as_list(given).ok_or_else(|| format!("the inputs, attributes or outputs of `{name}` are not a list"))?;
    if given.len() < first.len() || (given.len() > first.len() && further.is_none()) {
        return Err(format!("`{name}` takes {} inputs or attributes, not {}", first.len(), given.len()));
    }
    let forms =
        first.iter().copied().chain(std::iter::repeat_n(further.unwrap_or(ValueForm::NothingOrNumber), given.len()));
    match given.iter().zip(forms).find(|(value, form)| !fits_form(*form, value)) {
        Some((value, _)) => Err(format!("`{name}` does not accept the value {}", shorten_value(value))),
        None => Ok(()),
    }
}

fn check_annotation(key: &Value, value: &Value) -> Result<(), String> {
    let known = ANNOTATIONS.iter().find(|(known, _)| key == known);
    let fits = match known.map(|(_, annotation)| annotation) {
        None => false,
        Some(AnnotationForm::Number) => fits_form(ValueForm::FoundOrNumber, value),
        Some(AnnotationForm::Numbers) => fits_form(ValueForm::Numbers, value),
        Some(AnnotationForm::Word) => unquote_word(value).is_some_and(names_intrinsic),
    };
    if fits {
        Ok(())
    } else {
        Err(format!("the value {} of the annotation {} is not allowed", shorten_value(value), shorten_value(key)))
    }
}

fn fits_form(form: ValueForm, value: &Value) -> bool {
    let is_among = |words: &[&str]| value.as_str().is_some_and(|word| words.contains(&word));
    match form {
        ValueForm::Found => value.as_str().is_some_and(names_result),
        ValueForm::FoundOrNumber => fits_form(ValueForm::Found, value) || fits_form(ValueForm::Number, value),
        ValueForm::FoundOrNothing => fits_form(ValueForm::FoundOrNumber, value) || value.is_null() || value == "None",
        ValueForm::AllFound => as_list(value).is_some_and(|all| all.iter().all(|one| fits_form(ValueForm::Found, one))),
        ValueForm::FoundOrAll => fits_form(ValueForm::Found, value) || fits_form(ValueForm::AllFound, value),
        ValueForm::Number => value.is_i64() || value.is_boolean(),
        ValueForm::Numbers => as_list(value).is_some_and(|all| all.iter().all(Value::is_number)),
        ValueForm::Name => value.as_str().is_some_and(is_word),
        ValueForm::Step => value.as_str().is_some_and(names_intrinsic),
        ValueForm::Scope => is_among(SCOPES),
        ValueForm::Thread => is_among(THREADS),
        ValueForm::IndexMap => is_index_map(value),
        ValueForm::NothingOrNumber => value.is_null() || fits_form(ValueForm::Number, value),
        ValueForm::Key => ANNOTATIONS.iter().any(|(known, _)| value == known),
        // Checked together with its key.
        ValueForm::Annotated => true,
    }
}

/// Returns whether a text names a result of an earlier move: a letter followed by a number.
fn names_result(text: &str) -> bool {
    let digits = text.strip_prefix(['b', 'l', 'v']);
    text == "_"
        || digits
            .is_some_and(|digits| (1..10).contains(&digits.len()) && digits.bytes().all(|sign| sign.is_ascii_digit()))
}

fn is_word(text: &str) -> bool {
    let is_sign = |sign: u8| sign.is_ascii_alphanumeric() || matches!(sign, b'_' | b'.');
    text.len() <= NAME_BYTES_MAX && text.bytes().all(is_sign)
}

/// Returns whether a text names a tensor intrinsic, with or without parameters: `opcollect.F16.Multiply { … }`.
fn names_intrinsic(text: &str) -> bool {
    let is_sign = |sign: u8| sign.is_ascii_alphanumeric() || b"_. {}:,".contains(&sign);
    text.len() <= NAME_BYTES_MAX && text.bytes().all(is_sign)
}

/// Returns whether a value is an index map: a graph of TVM objects of allowed types that refer only to earlier nodes.
fn is_index_map(value: &Value) -> bool {
    let graph = match value {
        // Other readers recognise such texts by their first character, so nothing may precede the brace.
        Value::String(text) if text.starts_with('{') => serde_json::from_str(text).ok(),
        Value::Object(fields) if fields.len() == 1 => fields.get(OBJECT).cloned(),
        _ => None,
    };
    let Some((nodes, root)) =
        graph.as_ref().and_then(|graph| Some((as_list(&graph["nodes"])?, graph["root_index"].as_u64()?)))
    else {
        return false;
    };
    let is_root = usize::try_from(root).is_ok_and(|root| nodes.get(root).is_some_and(|node| node["type"] == INDEX_MAP));
    nodes.len() <= NODES_MAX && is_root && nodes.iter().enumerate().all(|(place, node)| is_node(place, node))
}

const INDEX_MAP: &str = "tirx.IndexMap";

fn is_node(place: usize, node: &Value) -> bool {
    // Nodes may refer only to earlier nodes, so that there are no cycles.
    let is_earlier = |value: &Value| value.as_u64().is_some_and(|number| number < place as u64);
    let data = &node["data"];
    let has = |names: &[&str]| {
        data.as_object()
            .is_some_and(|fields| fields.len() == names.len() && names.iter().all(|name| is_earlier(&data[*name])))
    };
    match node["type"].as_str() {
        Some("None") => data.is_null(),
        Some("int") => data.is_i64(),
        Some("ffi.String") => data.as_str().is_some_and(is_word),
        Some("ffi.Array") => as_list(data).is_some_and(|items| items.iter().all(is_earlier)),
        Some("ir.PrimType") => {
            let is_whole = data["dtype"] == "int32" || data["dtype"] == "int64";
            is_whole && is_earlier(&data["span"]) && data.as_object().is_some_and(|fields| fields.len() == 2)
        }
        Some("ir.Var") => has(&["name", "span", "ty"]),
        Some("ir.IntImm") => has(&["span", "ty", "value"]),
        Some("prim.Add" | "prim.Sub" | "prim.Mul" | "prim.FloorDiv" | "prim.FloorMod") => {
            has(&["a", "b", "span", "ty"])
        }
        Some(INDEX_MAP) => has(&["final_indices", "initial_indices", "inverse_index_map"]),
        _ => false,
    }
}

fn unquote_word(value: &Value) -> Option<&str> {
    value.as_str()?.strip_prefix('"')?.strip_suffix('"')
}

fn as_list(value: &Value) -> Option<&[Value]> {
    value.as_array().map(Vec::as_slice)
}

fn shorten_value(value: &Value) -> String {
    const SHOWN_MAX: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("`{}…`", &text[..end]),
        None => format!("`{text}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use serde_json::json;

    #[track_caller]
    fn check(step: Value, expected: Expect) {
        let block = json!(["GetSBlock", [], ["sum", "main"], ["b0"]]);
        let refused = match Moves::new(json!([[block, step], []])) {
            Ok(moves) => format!("{} moves", moves.move_count()),
            Err(error) => error.to_string(),
        };
        expected.assert_eq(&refused);
    }

    fn index_map(kind: &str, data: Value) -> Value {
        json!({"object": {"root_index": 7, "nodes": [
            {"type": "None"},
            {"type": "ir.PrimType", "data": {"dtype": "int32", "span": 0}},
            {"type": "ffi.String", "data": "v_i0"},
            {"type": "ir.Var", "data": {"name": 2, "span": 0, "ty": 1}},
            {"type": kind, "data": data},
            {"type": "ffi.Array", "data": [3]},
            {"type": "ffi.Array", "data": [4, 3]},
            {"type": "tirx.IndexMap", "data": {"final_indices": 6, "initial_indices": 5, "inverse_index_map": 0}},
        ]}})
    }

    #[test]
    fn moves_of_tuners_are_taken() {
        check(json!(["Split", ["l1", "None", 16], [true, false], ["l2", "l3"]]), expect!["2 moves"]);
        check(json!(["Annotate", ["b0", "\"SSRSRS\""], ["meta_schedule.tiling_structure"], []]), expect!["2 moves"]);
        check(json!(["Annotate", ["l4", 16], ["pragma_auto_unroll_max_step"], []]), expect!["2 moves"]);
        check(json!(["Tensorize", ["b0"], ["opcollect.F16.Load { is_transposed: false }", 1], []]), expect!["2 moves"]);
        let product = index_map("prim.Mul", json!({"a": 3, "b": 3, "span": 0, "ty": 1}));
        check(json!(["TransformLayout", ["b0", product], [0, 0, null, 1], []]), expect!["2 moves"]);
        check(json!(["TransformBlockLayout", ["b0"], [product["object"].to_string()], []]), expect!["2 moves"]);
    }

    #[test]
    fn what_could_be_code_is_refused() {
        let assembly = "\"module asm \\\"nop\\\"\"";
        for key in ["pragma_import_llvm", "pragma_import_c", "pragma_debug_skip_region", "meta_schedule.custom", ""] {
            let refused =
                Moves::new(json!([[["Annotate", ["b0", assembly], [key], []]], []])).expect_err(key).to_string();
            assert!(refused.contains(key), "{refused}");
        }
        check(
            json!(["Annotate", ["b0", assembly], ["meta_schedule.tiling_structure"], []]),
            expect![[
                r#"move 1 of the schedule is not allowed: the value `"\"module asm \\\"nop\\\"\""` of the annotation `"meta_schedule.tiling_structure"` is not allowed"#
            ]],
        );
        check(
            json!(["Annotate", ["b0", {"object": {}}], ["warp_execution"], []]),
            expect![[
                r#"move 1 of the schedule is not allowed: the value `{"object":{}}` of the annotation `"warp_execution"` is not allowed"#
            ]],
        );
        check(
            json!(["UnsafeSetDType", ["b0"], [0, "handle"], []]),
            expect!["move 1 of the schedule is not allowed: `UnsafeSetDType` is not a known schedule instruction"],
        );
        check(
            json!(["SetScope", ["b0"], [0, "global.vtcm"], []]),
            expect![[r#"move 1 of the schedule is not allowed: `SetScope` does not accept the value `"global.vtcm"`"#]],
        );
        check(
            json!(["Bind", ["l1"], ["pipeline"], []]),
            expect![[r#"move 1 of the schedule is not allowed: `Bind` does not accept the value `"pipeline"`"#]],
        );
        check(
            json!(["GetSBlock", [], ["a b", "main"], ["b0"]]),
            expect![[r#"move 1 of the schedule is not allowed: `GetSBlock` does not accept the value `"a b"`"#]],
        );
        check(
            json!(["Parallel", ["l1; x"], [], []]),
            expect![[r#"move 1 of the schedule is not allowed: `Parallel` does not accept the value `"l1; x"`"#]],
        );
        check(
            json!(["Parallel", ["l1"], [], [], []]),
            expect![[
                r#"move 1 of the schedule is not allowed: `["Parallel",["l1"],[],[],[]]` is not a schedule instruction"#
            ]],
        );
        let call = index_map("ir.Call", json!({"op": 0, "args": 0, "span": 0, "ty": 1}));
        check(
            json!(["TransformLayout", ["b0", call], [0, 0, null, 1], []]),
            expect![[
                r#"move 1 of the schedule is not allowed: `TransformLayout` does not accept the value `{"object":{"nodes":[{"type":"None"},{"data":{"dtype":"int32"…`"#
            ]],
        );
        check(
            json!(["TransformBlockLayout", ["b0"], [call["object"].to_string()], []]),
            expect![[
                r#"move 1 of the schedule is not allowed: `TransformBlockLayout` does not accept the value `"{\"nodes\":[{\"type\":\"None\"},{\"data\":{\"dtype\":\"int3…`"#
            ]],
        );
        let itself = index_map("prim.Mul", json!({"a": 4, "b": 3, "span": 0, "ty": 1}));
        check(
            json!(["TransformLayout", ["b0", itself], [0, 0, null, 1], []]),
            expect![[
                r#"move 1 of the schedule is not allowed: `TransformLayout` does not accept the value `{"object":{"nodes":[{"type":"None"},{"data":{"dtype":"int32"…`"#
            ]],
        );
    }

    #[test]
    fn what_is_no_list_of_moves_is_refused() {
        for trace in
            [json!(null), json!({}), json!([[]]), json!([[], [], []]), json!([[7], []]), json!([[], [[0, "x"]]])]
        {
            Moves::new(trace).expect_err("no moves");
        }
        let many = vec![json!(["EnterPostproc", [], [], []]); MOVES_MAX + 1];
        assert!(Moves::new(json!([many, []])).expect_err("too many").to_string().contains("at most 10000"));
    }

    #[test]
    fn a_schedule_with_such_moves_cannot_be_read() {
        let text = r#"{"from":"trace","trace":[[["Annotate",["b0","\"x\""],["pragma_import_llvm"],[]]],[]]}"#;
        expect![[r#"cannot read the schedule: move 0 of the schedule is not allowed: `Annotate` does not accept the value `"pragma_import_llvm"`"#]].assert_eq(&crate::space::Schedule::from_json(text).expect_err("code").to_string());
    }
}
