//! Tests of recognising attention in the forms that exporters write.

use super::counting;
use crate::simplify_graph;
use models::graph::Graph;
use models::operators::{Attention, Op};
use reference::{Tensor, Tolerance, compare_tensors, evaluate_graph};

/// Declares the inputs: two batches of four heads, with more keys than queries.
const INPUTS: &str = r#"
    input %0 "q": f32[2,4,3,8]
    input %1 "k": f32[2,4,5,8]
    input %2 "v": f32[2,4,5,6]
    input %3 "m": f32[2,1,3,5]
    constant %4 "scale": f32[] = fill(0.25)
    constant %5 "zero": f32[] = fill(0.0)
    constant %6 "hidden": f32[] = fill(-1e38)
"#;

const SCALED: &str = r#"
    %7 "turned": f32[2,4,8,5] = transpose(%1) permutation=[0,1,3,2]
    %8 "product": f32[2,4,3,5] = mat_mul(%0, %7) transpose_a=false transpose_b=false
    %20 "scores": f32[2,4,3,5] = binary(%8, %4) function="mul"
"#;

const TAIL: &str = r#"
    %31 "weights": f32[2,4,3,5] = softmax(%30) axis=3 log=false
    %32 "y": f32[2,4,3,6] = mat_mul(%31, %2) transpose_a=false transpose_b=false
    output %32
"#;

const PLAIN: Op = Op::Attention(Attention { causal: false, scale: 0.25, window: None, softcap: None });

#[track_caller]
fn simplified(text: &str) -> (Graph, String) {
    // Values are numbered as they stand.
    let mut numbers: Vec<String> = Vec::new();
    let is_made = |line: &&str| line.trim_start().starts_with(['%', 'i', 'c']) && line.contains('"');
    for line in text.lines().filter(is_made) {
        numbers.extend(line.split_whitespace().find(|word| word.starts_with('%')).map(str::to_owned));
    }
    let mut ordered = format!("graph \"pattern\"\n{text}\n");
    for (place, number) in numbers.iter().enumerate() {
        for end in [" ", ",", ")", "\n"] {
            ordered = ordered.replace(&format!("{number}{end}"), &format!("%new{place}{end}"));
        }
    }
    let graph = Graph::from_text(&ordered.replace("%new", "%")).unwrap();
    let after = simplify_graph(&graph).unwrap();
    let inputs: Vec<Tensor> = graph.inputs.iter().map(|id| counting(&graph, id.0 as usize)).collect();
    let (wanted, found) = (evaluate_graph(&graph, &inputs).unwrap(), evaluate_graph(&after, &inputs).unwrap());
    for (found, wanted) in found.iter().zip(&wanted) {
        let tolerance = Tolerance { absolute: 1e-6, relative: 1e-5 };
        assert!(compare_tensors(found, wanted, tolerance).unwrap().ok, "{}", after.to_text());
    }
    let names: Vec<&str> = after.nodes.iter().map(|node| node.op.name()).collect();
    let names = names.join(" ");
    (after, names)
}

#[track_caller]
fn check(text: &str, names: &str, wanted: &Op) {
    let (after, found) = simplified(text);
    assert_eq!(found, names, "{}", after.to_text());
    let is_wanted = |op: &Op| matches!(op, Op::Attention(_)).then_some(op == wanted);
    assert_eq!(after.nodes.iter().find_map(|node| is_wanted(&node.op)), Some(true), "{}", after.to_text());
}

#[track_caller]
fn check_none(text: &str) {
    let (after, names) = simplified(text);
    assert!(!names.contains("attention"), "{}", after.to_text());
}

#[test]
fn scales_stand_where_they_like() {
    let plain = SCALED.replace("%20", "%30");
    check(&format!("{INPUTS}{plain}{TAIL}"), "attention", &PLAIN);
    let divided = plain.replace("\"mul\"", "\"div\"");
    check(
        &format!("{INPUTS}{divided}{TAIL}"),
        "attention",
        &Op::Attention(Attention { causal: false, scale: 4.0, window: None, softcap: None }),
    );
    let none = r#"
        %7 "turned": f32[2,4,8,5] = transpose(%1) permutation=[0,1,3,2]
        %30 "product": f32[2,4,3,5] = mat_mul(%0, %7) transpose_a=false transpose_b=false
    "#;
    check(
        &format!("{INPUTS}{none}{TAIL}"),
        "attention",
        &Op::Attention(Attention { causal: false, scale: 1.0, window: None, softcap: None }),
    );
    // The root of it before either side, as `scaled_dot_product_attention` is exported.
    check(
        &format!(
            r#"{INPUTS}
            constant %10 "root": f32[] = fill(0.5)
            %11 "scaled": f32[2,4,3,8] = binary(%0, %10) function="mul"
            %12 "turned": f32[2,4,8,5] = transpose(%1) permutation=[0,1,3,2]
            %13 "small": f32[2,4,8,5] = binary(%10, %12) function="mul"
            %30 "scores": f32[2,4,3,5] = mat_mul(%11, %13) transpose_a=false transpose_b=false
            {TAIL}"#
        ),
        "attention",
        &PLAIN,
    );
    // The root of the width, as 32 bits hold it.
    let rounded = format!("{}{plain}{TAIL}", INPUTS.replace("0.25", "0.35355338"));
    let scale = 1.0 / 8f64.sqrt();
    check(&rounded, "attention", &Op::Attention(Attention { causal: false, scale, window: None, softcap: None }));
    let negative = format!("{}{plain}{TAIL}", INPUTS.replace("0.25", "-0.25"));
    check_none(&negative);
}

#[test]
fn keys_come_turned_in_several_ways() {
    // Directly from the layer, with heads after positions.
    let lines = r#"
        input %0 "q": f32[2,4,3,8]
        input %1 "k": f32[2,5,4,8]
        input %2 "v": f32[2,4,5,6]
        constant %4 "scale": f32[] = fill(0.25)
        %7 "turned": f32[2,4,8,5] = transpose(%1) permutation=[0,2,3,1]
        %8 "product": f32[2,4,3,5] = mat_mul(%0, %7) transpose_a=false transpose_b=false
        %30 "scores": f32[2,4,3,5] = binary(%8, %4) function="mul"
    "#;
    check(&format!("{lines}{TAIL}"), "transpose attention", &PLAIN);
    // Keys that are stored transposed, as in some caches.
    let held = lines.replace("[2,5,4,8]", "[2,4,8,5]").replace("[0,2,3,1]", "[0,1,2,3]");
    check(&format!("{held}{TAIL}"), "transpose attention", &PLAIN);
    // Reshaped to matrices, transposed, and reshaped to heads again.
    let merged = r#"
        %6a "all": f32[8,5,8] = reshape(%1) shape=[8,5,8]
        %7a "turned": f32[8,8,5] = transpose(%6a) permutation=[0,2,1]
        %8a "heads": f32[2,4,8,5] = reshape(%7a) shape=[2,4,8,5]
        %9a "product": f32[2,4,3,5] = mat_mul(%0, %8a) transpose_a=false transpose_b=false
        %30 "scores": f32[2,4,3,5] = binary(%9a, %4) function="mul"
    "#;
    check(&format!("{INPUTS}{merged}{TAIL}"), "attention", &PLAIN);
    let fused = r#"
        %8 "product": f32[2,4,3,5] = mat_mul(%0, %1) transpose_a=false transpose_b=true
        %30 "scores": f32[2,4,3,5] = binary(%8, %4) function="mul"
    "#;
    check(&format!("{INPUTS}{fused}{TAIL}"), "attention", &PLAIN);
}

#[test]
fn batches_and_heads_may_be_one_dimension() {
    let lines = r#"
        input %0 "q": f32[6,3,8]
        input %1 "k": f32[6,5,8]
        input %2 "v": f32[6,5,4]
        input %3 "m": MASK
        constant %4 "scale": f32[] = fill(0.25)
        %7 "turned": f32[6,8,5] = transpose(%1) permutation=[0,2,1]
        %8 "product": f32[6,3,5] = mat_mul(%0, %7) transpose_a=false transpose_b=false
        %9 "scores": f32[6,3,5] = binary(%8, %4) function="mul"
        REST
        %22 "y": f32[6,3,4] = mat_mul(%21, %2) transpose_a=false transpose_b=false
        output %22
    "#;
    let apart = r#"
        %11 "masked": f32[6,3,5] = binary(%9, %3) function="add"
        %21 "weights": f32[6,3,5] = softmax(%11) axis=2 log=false
    "#;
    let whole = lines.replace("REST", apart).replace("MASK", "f32[6,3,5]");
    check(&whole, "reshape reshape reshape attention reshape", &PLAIN);
    let grouped = r#"
        %10 "grouped": f32[2,3,3,5] = reshape(%9) shape=[2,3,3,5]
        %11 "masked": f32[2,3,3,5] = binary(%10, %3) function="add"
        %12 "together": f32[6,3,5] = reshape(%11) shape=[6,3,5]
        %21 "weights": f32[6,3,5] = softmax(%12) axis=2 log=false
    "#;
    let grouped = lines.replace("REST", grouped).replace("MASK", "f32[2,1,1,5]");
    check(&grouped, "reshape reshape reshape attention reshape", &PLAIN);
    // A mask for each of the six cannot be combined with two batches of three heads.
    let both = r#"
        %10 "grouped": f32[2,3,3,5] = reshape(%9) shape=[2,3,3,5]
        %12 "together": f32[6,3,5] = reshape(%10) shape=[6,3,5]
        %13 "masked": f32[6,3,5] = binary(%12, %3) function="add"
        %21 "weights": f32[6,3,5] = softmax(%13) axis=2 log=false
    "#;
    check_none(&lines.replace("REST", both).replace("MASK", "f32[6,1,5]"));
}

#[test]
fn masks_are_added_or_choose() {
    let added = r#"%30 "masked": f32[2,4,3,5] = binary(%3, %20) function="add""#;
    check(&format!("{INPUTS}{SCALED}{added}{TAIL}"), "attention", &PLAIN);
    // One that depends on data is the mask.
    let chosen = r#"
        %21 "seen": bool[2,1,3,5] = compare(%3, %5) function="less"
        %30 "masked": f32[2,4,3,5] = where(%21, %20, %6)
    "#;
    check(&format!("{INPUTS}{SCALED}{chosen}{TAIL}"), "less where attention", &PLAIN);
    check(&format!("{INPUTS}{SCALED}{}{TAIL}", chosen.replace("%20, %6", "%6, %20")), "less where attention", &PLAIN);
    // A number that does not drown what it replaces is no mask.
    let weak = INPUTS.replace("-1e38", "-10.0");
    check_none(&format!("{weak}{SCALED}{chosen}{TAIL}"));
    let twice = r#"
        %21 "seen": bool[2,1,3,5] = compare(%3, %5) function="less"
        %22 "masked": f32[2,4,3,5] = binary(%3, %20) function="add"
        %30 "chosen": f32[2,4,3,5] = where(%21, %22, %6)
    "#;
    let endless = INPUTS.replace("-1e38", "-inf");
    check(&format!("{endless}{SCALED}{twice}{TAIL}"), "less where add attention", &PLAIN);
    // A large number in place of a masked score is not that score and the number.
    check_none(&format!("{INPUTS}{SCALED}{twice}{TAIL}"));
    // Scaled after the mask, it would be another mask.
    let late = r#"
        %21 "masked": f32[2,4,3,5] = binary(%3, %20) function="add"
        %30 "scaled": f32[2,4,3,5] = binary(%21, %4) function="mul"
    "#;
    check_none(&format!("{INPUTS}{SCALED}{late}{TAIL}"));
}

#[test]
fn rows_that_see_nothing_answer_zero_where_they_are_guarded() {
    let guarded = |zero: &str| {
        format!(
            r#"{INPUTS}{SCALED}
            constant %9 "never": f32[] = fill(-inf)
            constant %10 "low": f32[] = fill(-0.5)
            %11 "sum": f32[2,1,3,1] = reduce(%3) function="max" axes=[3] keep=true
            %12 "seen": bool[2,1,3,1] = compare(%11, %10) function="less"
            %13 "masked": f32[2,4,3,5] = where(%12, %20, %9)
            %14 "weights": f32[2,4,3,5] = softmax(%13) axis=3 log=false
            %15 "bad": bool[2,4,3,5] = unary(%14) function="is_nan"
            %16 "good": f32[2,4,3,5] = where(%15, {zero}, %14)
            %17 "y": f32[2,4,3,6] = mat_mul(%16, %2) transpose_a=false transpose_b=false
            output %17"#
        )
    };
    check(&guarded("%5"), "reduce_max less where attention", &PLAIN);
    check_none(&guarded("%4"));
}

#[test]
fn constant_triangles_are_no_mask() {
    let triangle = |diagonal: i64| {
        format!(
            r#"{INPUTS}{SCALED}
            constant %9 "low": f32[3,5] = fill(-1e38)
            %10 "later": f32[3,5] = trilu(%9) upper=true diagonal={diagonal}
            %30 "masked": f32[2,4,3,5] = binary(%20, %10) function="add"
            {TAIL}"#
        )
    };
    check(
        &triangle(3),
        "attention",
        &Op::Attention(Attention { causal: true, scale: 0.25, window: None, softcap: None }),
    );
    // Where a query sees less than up to itself, or more, the mask stays.
    check(&triangle(2), "attention", &PLAIN);
    check(&triangle(4), "attention", &PLAIN);
    // The mask may be written out for each batch, but not for only one of them.
    let all = triangle(3).replace("f32[3,5] =", "f32[2,1,3,5] =");
    check(&all, "attention", &Op::Attention(Attention { causal: true, scale: 0.25, window: None, softcap: None }));
    let one = format!(
        r#"{INPUTS}{SCALED}
        constant %9 "low": f32[1,1,3,5] = fill(-1e38)
        %10 "later": f32[1,1,3,5] = trilu(%9) upper=true diagonal=3
        constant %11 "open": f32[1,1,3,5] = fill(0.0)
        %12 "both": f32[2,1,3,5] = concat(%10, %11) axis=0
        %30 "masked": f32[2,4,3,5] = binary(%20, %12) function="add"
        {TAIL}"#
    );
    check(&one, "attention", &PLAIN);
    // Beside another mask it must hide without end: a large number is seen in a row that the other one hides.
    let both = |text: &str| {
        text.replace("%30 \"masked\"", "%29 \"masked\"")
            .replace(TAIL, &format!("%30 \"both\": f32[2,4,3,5] = binary(%29, %3) function=\"add\"\n{TAIL}"))
    };
    check(&both(&triangle(3)), "add attention", &PLAIN);
    let endless = both(&triangle(3).replace(r#""low": f32[3,5] = fill(-1e38)"#, r#""low": f32[3,5] = fill(-inf)"#));
    check(&endless, "attention", &Op::Attention(Attention { causal: true, scale: 0.25, window: None, softcap: None }));
    // A band is a window; here as truths that choose.
    let band = format!(
        r#"{INPUTS}{SCALED}
        constant %9 "one": f32[3,5] = fill(1.0)
        %10 "lower": f32[3,5] = trilu(%9) upper=false diagonal=2
        %11 "band": f32[3,5] = trilu(%10) upper=true diagonal=1
        %12 "seen": bool[3,5] = cast(%11) to="bool"
        %30 "masked": f32[2,4,3,5] = where(%12, %20, %6)
        {TAIL}"#
    );
    check(&band, "attention", &Op::Attention(Attention { causal: true, scale: 0.25, window: Some(2), softcap: None }));
    // Nothing is hidden by zeros.
    let open = r#"%30 "masked": f32[2,4,3,5] = binary(%20, %5) function="add""#;
    check(&format!("{INPUTS}{SCALED}{open}{TAIL}"), "attention", &PLAIN);
}

#[test]
fn scores_bend_before_the_mask() {
    let bent = r#"
        %21 "bent": f32[2,4,3,5] = unary(%20) function="tanh"
        constant %22 "cap": f32[] = fill(3.0)
        %23 "capped": f32[2,4,3,5] = binary(%21, %22) function="mul"
        %30 "masked": f32[2,4,3,5] = binary(%23, %3) function="add"
    "#;
    let op = Op::Attention(Attention { causal: false, scale: 0.75, window: None, softcap: Some(3.0) });
    check(&format!("{INPUTS}{SCALED}{bent}{TAIL}"), "attention", &op);
}

#[test]
fn heads_share_keys_and_values() {
    let lines = |place: &str| {
        format!(
            r#"
            input %0 "q": f32[2,4,3,8]
            input %1 "k": f32[2,2,5,8]
            input %2 "v": f32[2,2,5,6]
            constant %4 "scale": f32[] = fill(0.25)
            %5 "k apart": f32[2,2,1,5,8] = reshape(%1) shape=[2,2,1,5,8]
            %6 "k again": f32[2,2,2,5,8] = expand(%5) shape=[2,2,2,5,8]
            %7 "k heads": f32[2,4,5,8] = reshape(%6) shape=[2,4,5,8]
            %8 "turned": f32[2,4,8,5] = transpose(%7) permutation=[0,1,3,2]
            %9 "product": f32[2,4,3,5] = mat_mul(%0, %8) transpose_a=false transpose_b=false
            %10 "scores": f32[2,4,3,5] = binary(%9, %4) function="mul"
            %11 "v apart": f32[{place}] = reshape(%2) shape=[{place}]
            %12 "v again": f32[2,2,2,5,6] = expand(%11) shape=[2,2,2,5,6]
            %13 "v heads": f32[2,4,5,6] = reshape(%12) shape=[2,4,5,6]
            %14 "weights": f32[2,4,3,5] = softmax(%10) axis=3 log=false
            %15 "y": f32[2,4,3,6] = mat_mul(%14, %13) transpose_a=false transpose_b=false
            output %15"#
        )
    };
    check(&lines("2,2,1,5,6"), "attention", &PLAIN);
    // Values repeated in another order belong to other heads.
    check_none(&lines("2,1,2,5,6"));
    // One head of keys and values for all, by broadcasting.
    let one = r#"
        input %0 "q": f32[2,4,3,8]
        input %1 "k": f32[2,1,5,8]
        input %2 "v": f32[2,1,5,6]
        constant %4 "scale": f32[] = fill(0.25)
    "#;
    let product = SCALED.replace("%20", "%30").replace("[2,4,8,5]", "[2,1,8,5]");
    check(&format!("{one}{product}{TAIL}"), "attention", &PLAIN);
    check_none(&format!("{}{product}{TAIL}", one.replace("[2,1,5,6]", "[2,4,5,6]")));
}

#[test]
fn what_others_read_stays() {
    let plain = SCALED.replace("%20", "%30");
    check_none(&format!("{INPUTS}{plain}{TAIL}").replace("output %32", "output %32, %30"));
    check_none(&format!("{INPUTS}{plain}{TAIL}").replace("output %32", "output %32, %31"));
    check_none(&format!("{INPUTS}{plain}{TAIL}").replace("output %32", "output %32, %8"));
    // Scaled queries that others read are the queries.
    let scaled = r#"
        %7 "small": f32[2,4,3,8] = binary(%0, %4) function="mul"
        %30 "scores": f32[2,4,3,5] = mat_mul(%7, %1) transpose_a=false transpose_b=true
    "#;
    let text = format!("{INPUTS}{scaled}{TAIL}").replace("output %32", "output %32, %7");
    check(&text, "mul attention", &Op::Attention(Attention { causal: false, scale: 1.0, window: None, softcap: None }));
}

#[test]
fn other_products_are_no_attention() {
    let plain = format!("{INPUTS}{}{TAIL}", SCALED.replace("%20", "%30"));
    check_none(&plain.replace("axis=3", "axis=2"));
    check_none(&plain.replace("log=false", "log=true"));
    // A layer, its softmax and another layer.
    check_none(&plain.replace(r#"input %2 "v": f32[2,4,5,6]"#, r#"constant %2 "v": f32[2,4,5,6] = random(1)"#));
    // One batch of keys for two of queries.
    check_none(&plain.replace("\"k\": f32[2,4,5,8]", "\"k\": f32[1,4,5,8]").replace("f32[2,4,8,5]", "f32[1,4,8,5]"));
}

#[test]
fn a_mask_is_not_repeated_for_attention() {
    let given = INPUTS.replace("f32[2,1,3,5]", "f32[2,1,1,5]");
    let added = format!(
        "{given}{SCALED}
        %21 \"repeated\": f32[2,4,3,5] = expand(%3) shape=[2,4,3,5]
        %30 \"masked\": f32[2,4,3,5] = binary(%20, %21) function=\"add\"{TAIL}"
    );
    assert_eq!(simplified(&added).1, "attention");
    let chosen = format!(
        "{given}{SCALED}
        %21 \"seen\": bool[2,1,1,5] = compare(%3, %5) function=\"less\"
        %22 \"repeated\": bool[2,1,3,5] = expand(%21) shape=[2,1,3,5]
        %23 \"mask\": f32[2,1,3,5] = where(%22, %5, %6)
        %30 \"masked\": f32[2,4,3,5] = binary(%20, %23) function=\"add\"{TAIL}"
    );
    assert_eq!(simplified(&chosen).1, "less where attention");
}
