//! Writes the folder of a program with two calls, a product and a softmax, without code.

use engine::network::portable::{self, Portable};
use executor::FolderError;
use executor::folder;
use executor::program::{Numbers, Program, Writing, lower_sequential};
use job::Packing;
use models::operators::{Dense, Softmax};
use models::{Const, Fuse, Graph, GraphBuilder, Op, TensorType};
use reference::Tensor;
use std::path::Path;
use std::sync::OnceLock;

struct Small {
    program: Program,
    constants: Vec<Vec<u8>>,
    portable: Portable,
    outputs: Vec<Tensor>,
}

fn graph() -> Graph {
    let mut builder = GraphBuilder::new("small");
    let x = builder.add_input("x", TensorType::f32(&[2, 4])).expect("an input");
    let weight = builder.add_constant("w", TensorType::f32(&[3, 4]), Const::Random { seed: 1 }).expect("a weight");
    let product = builder.push(Op::Dense(Dense {}), &[x, weight]).expect("a call");
    let softmax = builder.push(Op::Softmax(Softmax { axis: 1, log: false }), &[product]).expect("a call");
    builder.finish(&[softmax]).expect("a graph")
}

fn small() -> &'static Small {
    static SMALL: OnceLock<Small> = OnceLock::new();
    SMALL.get_or_init(|| {
        let graph = graph();
        let plan = models::plan_calls(&graph, Fuse::Epilogue).expect("calls");
        let stored = plan.tasks.iter().map(|one| vec![Packing::Plain; one.task.parameters.len() + 1]);
        let program =
            lower_sequential(&graph, &plan, &stored.collect::<Vec<_>>(), Writing::InPlace).expect("a program");
        let all = reference::graph_constants(&graph).expect("constants");
        let mut numbers = Numbers::from_constants(&graph, &all);
        let constants = program.constants.iter().map(|one| numbers.stored_bytes(one).expect("a constant")).collect();
        let draws = reference::input_draws(&graph);
        let inputs = reference::drawn_inputs(program.inputs.iter().map(|port| &port.ty).zip(draws.iter().copied()), 0);
        let outputs = reference::evaluate_graph(&graph, &inputs.expect("inputs")).expect("outputs");
        let mut portable = Portable::default();
        (portable.architecture, portable.draws, portable.tolerance) = ("x86_64".to_owned(), draws, 1e-5);
        Small { program, constants, portable, outputs }
    })
}

pub fn write(root: &Path) {
    let Small { program, constants, portable, outputs } = small();
    let codes = vec![&[][..]; program.codes];
    folder::write_program::<FolderError>(root, program, &codes, |place| Ok(constants[place].clone()))
        .expect("a folder");
    portable::write_metadata(root, portable.clone(), Some(outputs)).expect("a folder");
}
