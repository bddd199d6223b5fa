//! Tests that programs of real networks compute the results of their graphs if the reference executes each call.

use super::*;
use models::fuse::{Fuse, plan_calls};
use models::operators::{Binary, Concat, Reshape, Slice, Softmax, Unary};
use models::{BinaryOp, GraphBuilder, Op, Parallel, UnaryOp};

fn concurrent_programs(graph: &Graph, plan: &Plan) -> Vec<Program> {
    let packings: Vec<Vec<Packing>> =
        plan.tasks.iter().map(|one| vec![Packing::Plain; one.task.parameters.len() + 1]).collect();
    let of = |parallel| {
        let stages = StagePlan::by_rule(graph, plan, 3, parallel);
        assert_eq!(stages.check_matches(graph, plan, 3, "here"), Ok(()));
        lower_staged(graph, plan, &packings, &stages, Writing::InPlace).expect("a program")
    };
    [Parallel::Sequential, Parallel::Stream, Parallel::Full].map(of).to_vec()
}

fn check_disjoint_memory(program: &Program) {
    let stretch = |argument: &CallArgument| {
        let Place::Activation(begins) = argument.place else { return None };
        let bytes = TensorType::new(argument.dtype, &argument.extents).size_bytes().expect("a size");
        Some((begins, begins + bytes))
    };
    for stage in &program.stages {
        for (number, group) in stage.groups.iter().enumerate() {
            let others = stage.groups.iter().enumerate().filter(|(other, _)| *other != number);
            let others: Vec<usize> = others.flat_map(|(_, other)| other.calls.iter().copied()).collect();
            for written in group.calls.iter().filter_map(|&call| stretch(program.calls[call].arguments.last()?)) {
                let touched = others.iter().flat_map(|&call| &program.calls[call].arguments).filter_map(stretch);
                for touched in touched {
                    assert!(written.1 <= touched.0 || touched.1 <= written.0, "{written:?} {touched:?}");
                }
            }
        }
    }
}

fn cut(graph: &Graph) -> (Plan, Program) {
    cut_to(graph, Writing::InPlace)
}

fn cut_to(graph: &Graph, writing: Writing) -> (Plan, Program) {
    let cut = plan_calls(graph, Fuse::Epilogue).expect("calls");
    let packings: Vec<Vec<Packing>> =
        cut.tasks.iter().map(|one| vec![Packing::Plain; one.task.parameters.len() + 1]).collect();
    let made = lower_sequential(graph, &cut, &packings, writing).expect("a program");
    (cut, made)
}

fn run(graph: &Graph, plan: &Plan, program: &Program, inputs: &[Tensor]) -> Vec<Tensor> {
    let size = |ty: &TensorType| usize::try_from(ty.size_bytes().expect("a size")).expect("a small size");
    let constants = reference::graph_constants(graph).expect("constants");
    let mut numbers = Numbers::from_constants(graph, &constants);
    let constants: Vec<Vec<u8>> =
        program.constants.iter().map(|one| numbers.stored_bytes(one).expect("numbers")).collect();
    // Unwritten memory contains NaN.
    let mut activations = vec![0xff; usize::try_from(program.activation_bytes).expect("a small size")];
    let mut outputs: Vec<Vec<u8>> = program.outputs.iter().map(|port| vec![0xff; size(&port.ty)]).collect();
    let read = |activations: &[u8], outputs: &[Vec<u8>], place: Place, ty: &TensorType| -> Tensor {
        let bytes = match place {
            Place::Activation(offset) => &activations[usize::try_from(offset).expect("small")..][..size(ty)],
            Place::Input(index) => inputs[index].as_bytes(),
            Place::Output(index) => &outputs[index],
            Place::Constant(index) => &constants[index],
        };
        Tensor::from_bytes(ty.clone(), bytes.to_vec()).expect("as many bytes")
    };
    for call in &program.calls {
        let task = &plan.tasks[call.code].task;
        let (result, operands) = call.arguments.split_last().expect("a result");
        let operands: Vec<Tensor> = operands
            .iter()
            .zip(&task.parameters)
            .map(|(one, parameter)| read(&activations, &outputs, one.place, &parameter.ty))
            .collect();
        let made = reference::evaluate_task(task, &operands).expect("a result");
        match result.place {
            Place::Activation(offset) => {
                let offset = usize::try_from(offset).expect("small");
                activations[offset..offset + made.as_bytes().len()].copy_from_slice(made.as_bytes());
            }
            Place::Output(index) => outputs[index].copy_from_slice(made.as_bytes()),
            place => panic!("a call writes {place:?}"),
        }
    }
    let ports = program.outputs.iter().enumerate();
    ports.map(|(i, port)| read(&activations, &outputs, port.same_as.unwrap_or(Place::Output(i)), &port.ty)).collect()
}

#[track_caller]
fn check(graph: &Graph) -> Program {
    let (plan, program) = cut(graph);
    let inputs: Vec<Tensor> = graph
        .inputs
        .iter()
        .enumerate()
        .map(|(place, id)| {
            let ty = &graph.values[id.0 as usize].ty;
            let count = usize::try_from(ty.element_count().expect("a size")).expect("a small size");
            // The integers 0 and 1 are valid as floats, indices and booleans.
            let numbers: Vec<f64> = (0..count).map(|at| f64::from(u32::from((at * 7 + place) % 5 < 2))).collect();
            Tensor::from_numbers(ty.clone(), &numbers).expect("numbers")
        })
        .collect();
    let wanted = reference::evaluate_graph(graph, &inputs).expect("the reference");
    for ((found, wanted), port) in run(graph, &plan, &program, &inputs).iter().zip(&wanted).zip(&program.outputs) {
        assert_eq!(found, wanted, "{}", port.name);
    }
    for staged in concurrent_programs(graph, &plan) {
        check_disjoint_memory(&staged);
        // The worst order that the stages allow: last group first.
        let order = staged.stages.iter().flat_map(|stage| stage.groups.iter().rev().flat_map(|group| &group.calls));
        let calls: Vec<Call> = order.map(|&call| staged.calls[call].clone()).collect();
        assert_eq!(calls.len(), program.calls.len());
        let turned = Program { calls, ..staged };
        assert_eq!(run(graph, &plan, &turned, &inputs), wanted, "in stages");
    }
    let (_, apart) = cut_to(graph, Writing::Apart);
    assert_eq!(apart.writing_mode(), Writing::Apart);
    assert_eq!(run(graph, &plan, &apart, &inputs), wanted, "no result over an operand");
    let lifetimes = program_lifetimes(graph, &plan, program.writing_mode()).expect("numbers");
    assert_eq!(
        place_tensors(&lifetimes).least_bytes,
        program.least_activation_bytes,
        "lifetimes by calls that do something"
    );
    assert!(lifetimes.iter().all(|one| one.first <= one.last && one.last < program.calls.len()));
    program
}

fn network(name: &str) -> Graph {
    passes::simplify_graph(&zoo::build_model(name, 1).expect("a model")).expect("a simple model")
}

#[test]
fn small_networks_compute_what_their_graphs_do() {
    for name in ["mlp", "resnet-18:hw=32", "mobilenet-v2:hw=32", "squeezenet-1.1:hw=32"] {
        check(&network(name));
    }
}

#[test]
fn large_networks_take_little_more_memory_than_they_must() {
    for name in ["resnet-18", "mobilenet-v2", "squeezenet-1.1", "resnet-50", "densenet-121", "inception-v3"] {
        let Ok(graph) = zoo::build_model(name, 1) else { panic!("the zoo has `{name}`") };
        let (_, program) = cut(&passes::simplify_graph(&graph).expect("a simple model"));
        let (all, least) = (program.activation_bytes as f64, program.least_activation_bytes as f64);
        assert!(all <= 1.1 * least, "{name}: {all} bytes, {least} at least");
        let graph = passes::simplify_graph(&graph).expect("a simple model");
        concurrent_programs(&graph, &plan_calls(&graph, Fuse::Epilogue).expect("calls"))
            .iter()
            .for_each(check_disjoint_memory);
    }
}

#[test]
fn duplicate_and_constant_outputs_have_locations() {
    let mut builder = GraphBuilder::new("odd");
    let x = builder.add_input("x", TensorType::f32(&[2, 6])).expect("an input");
    let flat = builder.push(Op::Reshape(Reshape { shape: vec![12] }), &[x]).expect("a view");
    let relu = builder.push(Op::Unary(Unary { function: UnaryOp::Relu }), &[flat]).expect("a call");
    let again = builder.push(Op::Reshape(Reshape { shape: vec![3, 4] }), &[relu]).expect("a view of it");
    let last = builder.push(Op::Unary(Unary { function: UnaryOp::Neg }), &[again]).expect("a call");
    // An output that is read again, a view of it, a reshaped input, and the last value.
    let graph = builder.finish(&[relu, again, flat, last]).expect("a graph");
    let program = check(&graph);
    let places: Vec<Option<Place>> = program.outputs.iter().map(|port| port.same_as).collect();
    assert_eq!(places, [None, Some(Place::Output(0)), Some(Place::Input(0)), None]);
    assert_eq!(program.activation_bytes, 0, "every result is an output");
}

#[test]
fn symbolic_sizes_are_rejected() {
    let mut builder = GraphBuilder::new("open");
    let x = builder.add_input("tokens", "f32[n,4]".parse().expect("a type")).expect("an input");
    let y = builder.push(Op::Unary(Unary { function: UnaryOp::Relu }), &[x]).expect("a call");
    let graph = builder.finish(&[y]).expect("a graph");
    let cut = plan_calls(&graph, Fuse::Epilogue).expect("calls");
    let refused = lower_sequential(&graph, &cut, &[vec![Packing::Plain; 2]], Writing::InPlace)
        .expect_err("a size is open")
        .to_string();
    assert!(refused.contains("`tokens` (f32[n,4])"), "{refused}");
}

fn calls_of(make: impl FnOnce(&mut GraphBuilder, ValueId) -> Vec<ValueId>) -> usize {
    let mut builder = GraphBuilder::new("joined");
    let x = builder.add_input("x", TensorType::f32(&[1, 2, 16])).expect("an input");
    let outputs = make(&mut builder, x);
    check(&builder.finish(&outputs).expect("a graph")).calls.len()
}

#[test]
fn operands_of_concatenations_are_contiguous() {
    let softmax =
        |builder: &mut GraphBuilder, x| builder.push(Op::Softmax(Softmax { axis: 2, log: false }), &[x]).unwrap();
    let join =
        |builder: &mut GraphBuilder, parts: &[ValueId]| builder.push(Op::Concat(Concat { axis: 1 }), parts).unwrap();
    // Growing blocks: a concatenation is read and concatenated again.
    let grown = calls_of(|builder, x| {
        let one = softmax(builder, x);
        let two = softmax(builder, one);
        let both = join(builder, &[one, two]);
        let three = softmax(builder, both);
        let all = join(builder, &[both, three]);
        vec![softmax(builder, all)]
    });
    assert_eq!(grown, 4, "nothing is copied");
    // A tensor cannot be part of two concatenations, nor twice part of one, nor part of one if it is an input or
    // output of the model.
    let shared = calls_of(|builder, x| {
        let one = softmax(builder, x);
        let two = softmax(builder, one);
        let joined = [[one, two], [two, one], [one, one], [x, two]].map(|parts| join(builder, &parts));
        joined.map(|both| softmax(builder, both)).to_vec()
    });
    assert_eq!(shared, 2 + 3 + 4);
    let answered = calls_of(|builder, x| {
        let one = softmax(builder, x);
        let two = softmax(builder, one);
        vec![one, join(builder, &[one, two])]
    });
    assert_eq!(answered, 3);
    // Adjacent columns are not contiguous, and a part must be aligned.
    let apart = calls_of(|builder, x| {
        let one = softmax(builder, x);
        let two = softmax(builder, one);
        let adjacent = builder.push(Op::Concat(Concat { axis: 2 }), &[one, two]).unwrap();
        let cut = Op::Slice(Slice { axes: vec![2], starts: vec![0], stops: vec![5], steps: vec![1] });
        let short = builder.push(cut, &[two]).unwrap();
        let short = softmax(builder, short);
        let odd = join(builder, &[short, short]);
        vec![softmax(builder, adjacent), softmax(builder, odd)]
    });
    assert_eq!(apart, 8);
}

#[test]
fn results_overwrite_operands_without_later_readers() {
    // Returns how many calls overwrite one of their operands.
    let over = |make: &dyn Fn(&mut GraphBuilder, ValueId) -> Vec<ValueId>| {
        let mut builder = GraphBuilder::new("over");
        let x = builder.add_input("x", TensorType::f32(&[1, 2, 16])).expect("an input");
        let outputs = make(&mut builder, x);
        let program = check(&builder.finish(&outputs).expect("a graph"));
        let is_over = |call: &&Call| {
            let (result, operands) = call.arguments.split_last().expect("a result");
            operands.iter().any(|operand| operand.place == result.place)
        };
        (program.calls.iter().filter(is_over).count(), program.activation_bytes / 128)
    };
    let softmax =
        |builder: &mut GraphBuilder, x| builder.push(Op::Softmax(Softmax { axis: 2, log: false }), &[x]).unwrap();
    let add = |builder: &mut GraphBuilder, a, b| {
        builder.push(Op::Binary(Binary { function: BinaryOp::Add }), &[a, b]).unwrap()
    };
    // A residual block: its input is also read by its first operator, but earlier.
    let residual = |builder: &mut GraphBuilder, x| {
        let one = softmax(builder, x);
        let two = softmax(builder, one);
        let three = softmax(builder, two);
        add(builder, three, one)
    };
    let blocks = over(&|builder, x| {
        let first = residual(builder, x);
        let second = residual(builder, first);
        vec![softmax(builder, second)]
    });
    assert_eq!(blocks, (2, 2), "a block takes its own tensor and one more");
    // Values that are read later, outputs and inputs are not overwritten, nor are operands of row-wise operators.
    let kept = over(&|builder, x| {
        let one = softmax(builder, x);
        let two = softmax(builder, one);
        let sum = add(builder, two, x);
        let three = softmax(builder, sum);
        let sum = add(builder, three, one);
        let four = softmax(builder, sum);
        let last = add(builder, four, one);
        vec![softmax(builder, last), softmax(builder, two)]
    });
    assert_eq!(kept.0, 1, "the last reader alone");
    // Neither are operands that are added to themselves or broadcast.
    let stretched = over(&|builder, x| {
        let one = softmax(builder, x);
        let twice = add(builder, one, one);
        let row = Op::Slice(Slice { axes: vec![1], starts: vec![0], stops: vec![1], steps: vec![1] });
        let row = builder.push(row, &[one]).unwrap();
        let row = softmax(builder, row);
        let two = softmax(builder, twice);
        let all = add(builder, two, row);
        vec![softmax(builder, all)]
    });
    assert_eq!(stretched.0, 0);
}
