//! Tests of branches, loops, sequences and optional values.

use super::*;

fn graph(name: &str, inputs: &[&str], nodes: Vec<Node>, outputs: &[&str]) -> Attribute {
    let untyped = |name: &&str| ValueInfo { name: (*name).to_owned(), ty: None };
    let graph = messages::Graph {
        node: nodes,
        input: inputs.iter().map(untyped).collect(),
        output: outputs.iter().map(untyped).collect(),
        ..messages::Graph::default()
    };
    Attribute { name: name.to_owned(), g: Some(graph), ..Attribute::default() }
}

fn with(text: &str, attributes: Vec<Attribute>) -> Node {
    Node { attribute: attributes, ..node(text) }
}

fn scalar_input(name: &str, elem_type: i32) -> ValueInfo {
    let mut info = info(name, &[]);
    info.ty.as_mut().unwrap().tensor.as_mut().unwrap().elem_type = elem_type;
    info
}

fn doubling(turns: &str, condition: &str, next: &str) -> Node {
    let nodes = vec![node(next), node("after = Add(before, before)"), node("row = Identity(after)")];
    let body = graph("body", &["turn", "goes", "before"], nodes, &["next", "after", "row"]);
    with(&format!("y, rows = Loop({turns}, {condition}, x)"), vec![body])
}

fn evaluated(model: &messages::Model, options: &Options, x: &[f64]) -> Vec<Vec<f64>> {
    let graph = read(model, options).unwrap().graph;
    let x = Tensor::from_numbers(graph.values[0].ty.clone(), x).unwrap();
    reference::evaluate_graph(&graph, &[x]).unwrap().iter().map(Tensor::to_numbers).collect()
}

fn with_outputs(mut model: messages::Model, names: &[&str]) -> messages::Model {
    let output = |name: &&str| ValueInfo { name: (*name).to_owned(), ty: None };
    model.graph.as_mut().unwrap().output = names.iter().map(output).collect();
    model
}

#[test]
fn loops_of_known_length_are_unrolled() {
    let counted = model(&["2"], vec![integers("n", &[3])], vec![doubling("n", "", "next = Identity(goes)")]);
    let counted = with_outputs(counted, &["y", "rows"]);
    let results = evaluated(&counted, &Options::default(), &[1.0, 10.0]);
    assert_eq!(results, [vec![8.0, 80.0], vec![2.0, 20.0, 4.0, 40.0, 8.0, 80.0]]);

    // A condition that depends only on the iteration number is known in each iteration.
    let constants = vec![integers("limit", &[1]), integers("start", &[1])];
    let nodes = vec![node("go = Cast(start)"), doubling("", "go", "next = Less(turn, limit)")];
    let mut until = with_outputs(model(&["2"], constants, nodes), &["y"]);
    until.graph.as_mut().unwrap().node[0].attribute.push(int("to", 9));
    assert_eq!(evaluated(&until, &Options::default(), &[1.0, 10.0]), [[4.0, 40.0]]);
}

#[test]
fn a_bound_input_decides_turns_and_branches() {
    let mut open = model(&["2"], vec![], vec![doubling("n", "", "next = Identity(goes)")]);
    open.graph.as_mut().unwrap().input.push(scalar_input("n", 7));
    check_error(
        &open,
        expect![
            "`small.onnx`, node `y` (`Loop`): not supported: the number of iterations depends on data at run time; `--bind NAME=VALUE` fixes an input that the number depends on; `--skip-unsupported` leaves the node out and lists the operators of one iteration"
        ],
    );
    let bind = |name: &str, number: f64| {
        let values = BTreeMap::from([(name.to_owned(), vec![number])]);
        Options { values, ..Options::default() }
    };
    assert_eq!(evaluated(&open, &bind("n", 2.0), &[1.0, 10.0]), [[4.0, 40.0]]);
    let error = |options: &Options| read(&open, options).unwrap_err().to_string();
    assert_eq!(error(&bind("n", 2.5)), "`small.onnx`, input `n`: `--bind` sets 2.5, which i64[] cannot hold");
    assert_eq!(
        error(&bind("m", 2.0)),
        "`small.onnx`, input `m`: `--bind` names this input, but the model has no such input; the inputs are `x`, `n`"
    );

    let branches = vec![
        graph("then_branch", &[], vec![node("a = Relu(x)")], &["a"]),
        graph("else_branch", &[], vec![node("b = Neg(x)")], &["b"]),
    ];
    let mut choice = model(&["2"], vec![], vec![with("y = If(is_on)", branches)]);
    choice.graph.as_mut().unwrap().input.push(scalar_input("is_on", 9));
    check_error(
        &choice,
        expect![
            "`small.onnx`, node `y` (`If`): not supported: the condition is computed at run time; `--bind NAME=VALUE` fixes an input that the condition depends on; `--skip-unsupported` leaves the node out and lists the operators of both branches"
        ],
    );
    assert_eq!(evaluated(&choice, &bind("is_on", 1.0), &[-1.0, 2.0]), [[0.0, 2.0]]);
    assert_eq!(evaluated(&choice, &bind("is_on", 0.0), &[-1.0, 2.0]), [[1.0, -2.0]]);

    let listed = read(&choice, &Options { skip_unsupported: true, ..Options::default() }).unwrap();
    assert_eq!(listed.graph.nodes.iter().map(|node| node.op.name()).collect::<Vec<_>>(), ["relu", "neg"]);
    assert!(listed.skipped[0].reason.ends_with("the operators of both branches are listed"));
}

#[test]
fn one_iteration_of_an_open_loop_is_listed() {
    let mut open = model(&["2"], vec![], vec![doubling("n", "", "next = Identity(goes)")]);
    open.graph.as_mut().unwrap().input.push(scalar_input("n", 7));
    let listed = read(&open, &Options { skip_unsupported: true, ..Options::default() }).unwrap();
    assert_eq!(listed.graph.nodes.iter().map(|node| node.op.name()).collect::<Vec<_>>(), ["add"]);
    assert_eq!(listed.graph.nodes[0].origin.scope, "y/after");
    let reason = &listed.skipped[0].reason;
    assert!(reason.ends_with("the operators of one iteration are listed"), "{reason}");

    let long = model(&["2"], vec![integers("n", &[5000])], vec![doubling("n", "", "next = Identity(goes)")]);
    let listed = read(&long, &Options { skip_unsupported: true, ..Options::default() }).unwrap();
    assert_eq!(
        listed.skipped[0].reason,
        "the loop has 5000 iterations, but at most 4096 are unrolled; the operators of one iteration are listed"
    );
}

#[test]
fn a_loop_above_the_limit_states_its_number_of_iterations() {
    let looped = |turns: &str, next: &str| {
        let mut start = node("go = Cast(one)");
        start.attribute.push(int("to", 9));
        let constants = vec![integers("n", &[5000]), integers("one", &[1]), integers("most", &[9000])];
        model(&["2"], constants, vec![start, doubling(turns, "go", next)])
    };
    check_error(
        &looped("n", "next = Identity(goes)"),
        expect![
            "`small.onnx`, node `y` (`Loop`): not supported: the loop has 5000 iterations, but at most 4096 are unrolled; `--skip-unsupported` leaves the node out and lists the operators of one iteration"
        ],
    );
    check_error(
        &looped("n", "next = Less(turn, most)"),
        expect![
            "`small.onnx`, node `y` (`Loop`): not supported: the loop has up to 5000 iterations, but at most 4096 are unrolled; `--skip-unsupported` leaves the node out and lists the operators of one iteration"
        ],
    );
    check_error(
        &looped("", "next = Less(turn, most)"),
        expect![
            "`small.onnx`, node `y` (`Loop`): not supported: the loop has more than 4096 iterations, but at most 4096 are unrolled; `--skip-unsupported` leaves the node out and lists the operators of one iteration"
        ],
    );
    check_error(
        &looped("", "next = Identity(goes)"),
        expect![
            "`small.onnx`, node `y` (`Loop`): not supported: the loop has an infinite number of iterations, but at most 4096 are unrolled; `--skip-unsupported` leaves the node out and lists the operators of one iteration"
        ],
    );
}

#[test]
fn functions_see_omitted_inputs() {
    let mut called = with("y = Bounded(x)", vec![]);
    called.domain = "my".to_owned();
    let mut clip = model(&["2"], vec![integers("n", &[3])], vec![called]);
    let mut inner = with("b = Limited(a, low, high)", vec![]);
    inner.domain = "my".to_owned();
    let set = |domain: &str| messages::OperatorSet { domain: domain.to_owned(), version: 21 };
    let function = |name: &str, output: &str, nodes: Vec<Node>| messages::Function {
        name: name.to_owned(),
        domain: "my".to_owned(),
        input: ["a", "low", "high"].map(str::to_owned).to_vec(),
        output: vec![output.to_owned()],
        node: nodes,
        opset_import: vec![set(""), set("my")],
        ..messages::Function::default()
    };
    let limited = vec![node("r = Relu(a)"), node("c = Clip(r, low, high)")];
    clip.opset_import.push(set("my"));
    clip.functions = vec![function("Bounded", "b", vec![inner]), function("Limited", "c", limited)];
    assert_eq!(evaluated(&clip, &Options::default(), &[-1.0, 2.0]), [[0.0, 2.0]]);

    clip.functions[1].node[1] = node("c = Add(r, high)");
    check_error(&clip, expect!["`small.onnx`, node `y/b/c` (`Add`): input 1 is missing"]);
}

#[test]
fn scans_cut_and_join_along_their_axes() {
    let nodes = vec![node("after = Add(before, part)"), node("row = Identity(after)")];
    let body = graph("body", &["before", "part"], nodes, &["after", "row"]);
    let attributes = vec![
        body,
        int("num_scan_inputs", 1),
        ints("scan_input_axes", &[1]),
        ints("scan_input_directions", &[1]),
        ints("scan_output_axes", &[1]),
        ints("scan_output_directions", &[1]),
    ];
    let constants = vec![floats("zero", &[2], &[0.0; 2])];
    let scan =
        with_outputs(model(&["2", "3"], constants, vec![with("y, rows = Scan(zero, x)", attributes)]), &["y", "rows"]);
    let results = evaluated(&scan, &Options::default(), &[1.0, 2.0, 3.0, 10.0, 20.0, 30.0]);
    assert_eq!(results, [vec![6.0, 60.0], vec![6.0, 5.0, 3.0, 60.0, 50.0, 30.0]]);
}

#[test]
fn loops_grow_sequences() {
    let nodes = vec![node("next = Identity(goes)"), node("after = SequenceInsert(before, x)")];
    let body = graph("body", &["turn", "goes", "before"], nodes, &["next", "after"]);
    let nodes = vec![
        node("nothing = Optional()"),
        node("has = OptionalHasElement(nothing)"),
        with(
            "start = If(has)",
            vec![
                graph("then_branch", &[], vec![node("a = OptionalGetElement(nothing)")], &["a"]),
                graph("else_branch", &[], vec![node("b = SequenceConstruct(x)")], &["b"]),
            ],
        ),
        with("all = Loop(n, , start)", vec![body]),
        with("y = ConcatFromSequence(all)", vec![int("axis", 0)]),
    ];
    let grown = model(&["2"], vec![integers("n", &[2])], nodes);
    assert_eq!(evaluated(&grown, &Options::default(), &[1.0, 2.0]), [[1.0, 2.0, 1.0, 2.0, 1.0, 2.0]]);
}

#[test]
fn loops_end() {
    // Loops within loops count against the limit of nodes, also where their graphs are empty.
    let inner = with(
        "inner = Loop(n, , before)",
        vec![graph("body", &["turn2", "goes2", "before2"], vec![], &["goes2", "before2"])],
    );
    let body = graph("body", &["turn", "goes", "before"], vec![inner], &["goes", "inner"]);
    let nested = model(&["2"], vec![integers("n", &[4000])], vec![with("y = Loop(n, , x)", vec![body])]);
    let error = read(&nested, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("after inlining functions and unrolling loops"), "{error}");

    let endless = model(&["2"], vec![integers("n", &[i64::MAX])], vec![doubling("n", "", "next = Identity(goes)")]);
    let error = read(&endless, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("at most 4096 are unrolled"), "{error}");

    let misfit = with("y = Loop(n, , x)", vec![graph("body", &["turn"], vec![], &["turn"])]);
    let error = read(&model(&["2"], vec![integers("n", &[2])], vec![misfit]), &Options::default()).unwrap_err();
    assert!(error.to_string().contains("fewer outputs than the 1 states"), "{error}");
}
