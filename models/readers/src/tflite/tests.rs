//! Tests of TFLite files that are read and that are refused.

use super::import_bytes;
use crate::{Imported, Options};
use bytes::Bytes;
use expect_test::{Expect, expect};
use models::error::Result;
use std::time::{Duration, Instant};

enum Field {
    Int(i32),
    Ints(Vec<i32>),
    Bytes(Vec<u8>),
    Table(Vec<(usize, Field)>),
    Tables(Vec<Vec<(usize, Field)>>),
}

/// Appends a table of a flatbuffer and returns its position. All fields have four bytes; what they refer to follows.
fn write_table(file: &mut Vec<u8>, fields: &[(usize, Field)]) -> usize {
    let count = fields.iter().map(|(number, _)| number + 1).max().unwrap_or(0);
    let list = file.len();
    let mut entries = vec![0u16; count];
    (0u16..).zip(fields).for_each(|(place, (number, _))| entries[*number] = 4 + 4 * place);
    let sizes = [4 + 2 * count as u16, 4 + 4 * fields.len() as u16];
    file.extend(sizes.into_iter().chain(entries).flat_map(u16::to_le_bytes));
    let table = file.len();
    file.extend(((table - list) as i32).to_le_bytes());
    file.extend(vec![0; 4 * fields.len()]);
    for (place, (_, field)) in fields.iter().enumerate() {
        let slot = table + 4 + 4 * place;
        let target = match field {
            Field::Int(number) => {
                file[slot..slot + 4].copy_from_slice(&number.to_le_bytes());
                continue;
            }
            Field::Table(fields) => write_table(file, fields),
            Field::Ints(numbers) => {
                write_vector(file, numbers.len(), numbers.iter().flat_map(|number| number.to_le_bytes()))
            }
            Field::Bytes(bytes) => write_vector(file, bytes.len(), bytes.iter().copied()),
            Field::Tables(tables) => {
                let vector = write_vector(file, tables.len(), vec![0; 4 * tables.len()]);
                for (index, fields) in tables.iter().enumerate() {
                    let element = vector + 4 + 4 * index;
                    let table = write_table(file, fields);
                    file[element..element + 4].copy_from_slice(&((table - element) as u32).to_le_bytes());
                }
                vector
            }
        };
        file[slot..slot + 4].copy_from_slice(&((target - slot) as u32).to_le_bytes());
    }
    table
}

fn write_vector(file: &mut Vec<u8>, count: usize, bytes: impl IntoIterator<Item = u8>) -> usize {
    let start = file.len();
    file.extend((count as u32).to_le_bytes());
    file.extend(bytes);
    start
}

const ADD: i32 = 0;
const CONCATENATION: i32 = 2;
const UNIDIRECTIONAL_SEQUENCE_RNN: i32 = 35;
const LESS: i32 = 58;
const SLICE: i32 = 65;
const IF: i32 = 118;
const WHILE: i32 = 119;

#[derive(Clone)]
struct TestOperator {
    code: i32,
    inputs: Vec<i32>,
    outputs: Vec<i32>,
    options: Vec<i32>,
}

fn operator(code: i32, inputs: &[i32], outputs: &[i32], options: &[i32]) -> TestOperator {
    TestOperator { code, inputs: inputs.to_vec(), outputs: outputs.to_vec(), options: options.to_vec() }
}

/// A graph whose first tensors are its inputs: by type code, extents, and a number if the tensor is constant.
#[derive(Clone)]
struct TestGraph {
    tensors: Vec<(i8, Vec<i32>, Option<i32>)>,
    inputs: Vec<i32>,
    outputs: Vec<i32>,
    operators: Vec<TestOperator>,
}

const F32: i8 = 0;
const I32: i8 = 2;
const BOOL: i8 = 6;

fn scalar(code: i8) -> (i8, Vec<i32>, Option<i32>) {
    (code, vec![], None)
}

fn number(value: i32) -> (i8, Vec<i32>, Option<i32>) {
    (I32, vec![], Some(value))
}

fn write_file(graphs: &[TestGraph]) -> Vec<u8> {
    let mut buffers = vec![vec![]];
    let mut codes = vec![];
    let mut tables = vec![];
    for graph in graphs {
        let mut tensors = vec![];
        for (index, (code, shape, value)) in graph.tensors.iter().enumerate() {
            let name = Field::Bytes(format!("t{index}").into_bytes());
            let buffer = if value.is_some() { buffers.len() as i32 } else { 0 };
            if let Some(value) = value {
                buffers.push(vec![(0, Field::Bytes(value.to_le_bytes().to_vec()))]);
            }
            let fields = [Field::Ints(shape.clone()), Field::Int(i32::from(*code)), Field::Int(buffer), name];
            tensors.push(fields.into_iter().enumerate().collect());
        }
        let mut operators = vec![];
        for TestOperator { code, inputs, outputs, options } in &graph.operators {
            let options = options.iter().copied().map(Field::Int).enumerate().collect();
            let index = Field::Int(codes.len() as i32);
            codes.push(vec![(3, Field::Int(*code))]);
            let lists = [(1, Field::Ints(inputs.clone())), (2, Field::Ints(outputs.clone()))];
            operators.push([(0, index)].into_iter().chain(lists).chain([(4, Field::Table(options))]).collect());
        }
        tables.push(vec![
            (0, Field::Tables(tensors)),
            (1, Field::Ints(graph.inputs.clone())),
            (2, Field::Ints(graph.outputs.clone())),
            (3, Field::Tables(operators)),
        ]);
    }
    let mut file = b"\0\0\0\0TFL3".to_vec();
    let root =
        write_table(&mut file, &[(1, Field::Tables(codes)), (2, Field::Tables(tables)), (4, Field::Tables(buffers))]);
    file[..4].copy_from_slice(&(root as u32).to_le_bytes());
    file
}

fn read(graphs: &[TestGraph], options: &Options) -> Result<Imported> {
    import_bytes(Bytes::from(write_file(graphs)), "small.tflite", options)
}

fn check_error(graphs: &[TestGraph], expected: Expect) {
    let start = Instant::now();
    let error = read(graphs, &Options::default()).expect_err("an error");
    expected.assert_eq(&error.to_string());
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

/// Main graph: a loop over a counter and `x`. Condition: `counter < limit`. Body: `counter + 1, x + x`.
fn counting_loop(limit: i32) -> [TestGraph; 3] {
    let main = TestGraph {
        tensors: vec![(F32, vec![2], None), number(0), scalar(I32), (F32, vec![2], None)],
        inputs: vec![0],
        outputs: vec![3],
        operators: vec![operator(WHILE, &[1, 0], &[2, 3], &[1, 2])],
    };
    let condition = TestGraph {
        tensors: vec![scalar(I32), (F32, vec![2], None), number(limit), scalar(BOOL)],
        inputs: vec![0, 1],
        outputs: vec![3],
        operators: vec![operator(LESS, &[0, 2], &[3], &[])],
    };
    let body = TestGraph {
        tensors: vec![scalar(I32), (F32, vec![2], None), number(1), scalar(I32), (F32, vec![2], None)],
        inputs: vec![0, 1],
        outputs: vec![3, 4],
        operators: vec![operator(ADD, &[0, 2], &[3], &[]), operator(ADD, &[1, 1], &[4], &[])],
    };
    [main, condition, body]
}

fn changed_loop(change: impl Fn(&mut [TestGraph; 3])) -> Vec<TestGraph> {
    let mut graphs = counting_loop(3);
    change(&mut graphs);
    graphs.to_vec()
}

#[test]
fn a_loop_is_unrolled() {
    for (limit, nodes) in [(0, 0), (1, 1), (3, 3), (4096, 4096)] {
        let graph = read(&counting_loop(limit), &Options::default()).unwrap().graph;
        assert_eq!(graph.nodes.len(), nodes);
    }
    let scopes = read(&counting_loop(1), &Options::default()).unwrap().graph;
    assert_eq!(scopes.nodes[0].origin.scope, "t2/t4");
}

#[test]
fn loops_with_unknown_or_large_trip_counts_are_refused() {
    check_error(
        &counting_loop(4097),
        expect!["`small.tflite`, node `t2` (`WHILE`): not supported: the loop has more than 4096 iterations"],
    );
    check_error(
        &counting_loop(i32::MAX),
        expect!["`small.tflite`, node `t2` (`WHILE`): not supported: the loop has more than 4096 iterations"],
    );
    // The counter is an input of the model.
    let open = changed_loop(|graphs| {
        graphs[0].tensors[1] = scalar(I32);
        graphs[0].inputs = vec![0, 1];
    });
    check_error(
        &open,
        expect!["`small.tflite`, node `t2` (`WHILE`): not supported: the loop condition depends on data at run time"],
    );
    let skipped = read(&open, &Options { skip_unsupported: true, ..Options::default() });
    let skipped = skipped.unwrap().skipped.remove(0);
    assert_eq!((&*skipped.place, &*skipped.operator), ("t2", "WHILE"));
    assert_eq!(skipped.reason, "the loop condition depends on data at run time");
}

#[test]
fn malformed_loops_are_refused() {
    let with = |change: fn(&mut [TestGraph; 3]), expected| check_error(&changed_loop(change), expected);
    with(
        |graphs| graphs[0].operators[0].options = vec![9, 2],
        expect!["`small.tflite`, node `t2` (`WHILE`): subgraph 9 does not exist"],
    );
    with(
        |graphs| graphs[0].operators[0].options = vec![1, -1],
        expect!["`small.tflite`, node `t2` (`WHILE`): subgraph -1 does not exist"],
    );
    with(
        |graphs| graphs[0].operators[0].inputs = vec![1],
        expect!["`small.tflite`, node `t2` (`WHILE`): subgraph 1 has 2 inputs, but 1 are given"],
    );
    with(
        |graphs| graphs[0].operators[0].inputs = vec![1, -1],
        expect!["`small.tflite`, node `t2` (`WHILE`): an input is missing"],
    );
    with(
        |graphs| graphs[0].operators[0].outputs = vec![2, 3, 3],
        expect!["`small.tflite`, node `t2` (`WHILE`): the operator has 3 outputs"],
    );
    with(
        |graphs| graphs[1].outputs = vec![],
        expect!["`small.tflite`, node `t2` (`WHILE`): the condition of the loop must have one output"],
    );
    with(
        |graphs| graphs[1].outputs = vec![3, 3],
        expect!["`small.tflite`, node `t2` (`WHILE`): the condition of the loop must have one output"],
    );
    with(|graphs| graphs[1].inputs = vec![0, 99], expect!["`small.tflite`: tensor 99 does not exist"]);
    with(
        |graphs| graphs[1].outputs = vec![1],
        expect!["`small.tflite`, node `t2` (`WHILE`): not supported: the loop condition depends on data at run time"],
    );
    with(
        |graphs| graphs[2].outputs = vec![3],
        expect!["`small.tflite`, node `t2` (`WHILE`): the loop has 2 states, but its body has 1 outputs"],
    );
    with(|graphs| graphs[2].outputs = vec![3, -1], expect!["`small.tflite`: tensor -1 does not exist"]);
    with(
        |graphs| graphs[2].outputs = vec![4, 3],
        expect!["`small.tflite`, node `t2` (`WHILE`): input `t0` of the subgraph does not have the type f32"],
    );
    with(
        |graphs| graphs[2].operators.truncate(1),
        expect!["`small.tflite`, node `t2` (`WHILE`): the subgraph does not produce its output `t4`"],
    );
}

#[test]
fn loops_that_contain_themselves_are_refused() {
    let call = |body| operator(WHILE, &[0, 1], &[3, 4], &[1, body]);
    let of_body = changed_loop(|graphs| graphs[2].operators = vec![call(2)]);
    check_error(
        &of_body,
        expect![
            "`small.tflite`, node `t2/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3` (`WHILE`): subgraphs are nested deeper than 32 levels"
        ],
    );
    let of_condition = changed_loop(|graphs| {
        graphs[1].tensors.push((F32, vec![2], None));
        graphs[1].operators = vec![call(2)];
    });
    check_error(
        &of_condition,
        expect![
            "`small.tflite`, node `t2/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3/t3` (`WHILE`): subgraphs are nested deeper than 32 levels"
        ],
    );
    let of_main = changed_loop(|graphs| graphs[0].operators[0].options = vec![1, 0]);
    check_error(&of_main, expect!["`small.tflite`, node `t2` (`WHILE`): subgraph 0 has 1 inputs, but 2 are given"]);
}

#[test]
fn loops_are_bounded_in_nodes_and_bytes() {
    // Loops of 4096 iterations in a loop of 4096 iterations.
    let mut graphs = counting_loop(4096).to_vec();
    graphs.push(graphs[2].clone());
    graphs[2].tensors.push(number(0));
    graphs[2].tensors.push(scalar(I32));
    graphs[2].operators[1] = operator(WHILE, &[5, 1], &[6, 4], &[1, 3]);
    check_error(
        &graphs,
        expect!["`small.tflite`: the model has more than 200048 nodes after inlining functions and unrolling loops"],
    );
    // The data are joined with themselves in each iteration.
    let doubled = changed_loop(|graphs| {
        graphs[1].tensors[2] = number(4000);
        graphs[2].operators[1] = operator(CONCATENATION, &[1, 1], &[4], &[]);
    });
    check_error(
        &doubled,
        expect![
            "`small.tflite`, node `t2/t4` (`CONCATENATION`): `concat` does not fit its inputs (f32[2305843009213693952], f32[2305843009213693952]): f32[4611686018427387904] has a byte count that exceeds 64 bits"
        ],
    );
    let mut of_constants = doubled;
    of_constants[0].tensors[0] = (F32, vec![1], Some(1));
    of_constants[0].inputs = vec![];
    check_error(
        &of_constants,
        expect![
            "`small.tflite`, node `t2/t4` (`CONCATENATION`): `concat` does not fit its inputs (f32[2305843009213693952], f32[2305843009213693952]): f32[4611686018427387904] has a byte count that exceeds 64 bits"
        ],
    );
    // Many tensors in each iteration.
    let mut wide = counting_loop(4096);
    wide[2].tensors.resize(1 << 18, scalar(F32));
    check_error(
        &wide,
        expect!["`small.tflite`: the model has more than 200032 nodes after inlining functions and unrolling loops"],
    );
}

/// Tests that a list is bounded whose first rows are written twice in each iteration.
#[test]
fn lists_that_double_are_bounded() {
    let vector = |numbers: i32| (I32, vec![1], Some(numbers));
    let mut graphs = counting_loop(50);
    let of_sum = |graph: &mut TestGraph, index: usize| graph.tensors[index] = (F32, vec![3], None);
    of_sum(&mut graphs[0], 0);
    of_sum(&mut graphs[1], 1);
    of_sum(&mut graphs[2], 1);
    let body = &mut graphs[2];
    // `[row 0, row 1, row 2]`; the first rows of the list, without its last one, are joined with themselves.
    body.tensors.extend([vector(0), vector(-1), vector(1), (F32, vec![1], None), (F32, vec![2], None), vector(2)]);
    body.operators = vec![
        operator(ADD, &[0, 2], &[3], &[]),
        operator(SLICE, &[1, 5, 7], &[8], &[]),
        operator(SLICE, &[1, 7, 6], &[9], &[]),
        operator(CONCATENATION, &[8, 9, 9], &[4], &[]),
    ];
    check_error(
        &graphs,
        expect![
            "`small.tflite`, node `t2` (`WHILE`): the file states f32[2] for `t3`, but inputs and attributes give f32[2251799813685249]"
        ],
    );
}

#[test]
fn a_branch_is_inlined_if_its_condition_is_known() {
    let branch = |operators| TestGraph {
        tensors: vec![(F32, vec![2], None), (F32, vec![2], None)],
        inputs: vec![0],
        outputs: vec![1],
        operators,
    };
    let sum = operator(ADD, &[0, 0], &[1], &[]);
    let joined = operator(CONCATENATION, &[0], &[1], &[]);
    let mut graphs = vec![
        TestGraph {
            tensors: vec![(F32, vec![2], None), number(1), (F32, vec![2], None)],
            inputs: vec![0],
            outputs: vec![2],
            operators: vec![operator(IF, &[1, 0], &[2], &[1, 2])],
        },
        branch(vec![sum]),
        branch(vec![joined]),
    ];
    assert_eq!(read(&graphs, &Options::default()).unwrap().graph.nodes.len(), 1);
    graphs[0].tensors[1] = number(0);
    assert_eq!(read(&graphs, &Options::default()).unwrap().graph.nodes.len(), 0);
    graphs[0].tensors[1] = scalar(I32);
    graphs[0].inputs = vec![0, 1];
    check_error(
        &graphs,
        expect!["`small.tflite`, node `t2` (`IF`): not supported: the condition is computed at run time"],
    );
    graphs[0].operators[0].inputs = vec![];
    check_error(&graphs, expect!["`small.tflite`, node `t2` (`IF`): the condition is missing"]);
}

#[test]
fn long_sequences_and_missing_weights_are_refused() {
    let layer = |steps: i32, inputs: &[i32]| {
        let options = [1, 4];
        vec![TestGraph {
            tensors: vec![(F32, vec![steps, 1, 1], None), (F32, vec![steps, 1, 1], None), (F32, vec![1, 1], Some(0))],
            inputs: vec![0],
            outputs: vec![1],
            operators: vec![operator(UNIDIRECTIONAL_SEQUENCE_RNN, inputs, &[1], &options)],
        }]
    };
    check_error(
        &layer(4097, &[0, 2, 2, -1, 2]),
        expect![
            "`small.tflite`, node `t1` (`UNIDIRECTIONAL_SEQUENCE_RNN`): not supported: a sequence of 4097 steps; 1 to 4096 are supported"
        ],
    );
    check_error(
        &layer(0, &[0, 2, 2, -1, 2]),
        expect![
            "`small.tflite`, node `t1` (`UNIDIRECTIONAL_SEQUENCE_RNN`): not supported: a sequence of 0 steps; 1 to 4096 are supported"
        ],
    );
    check_error(
        &layer(3, &[0, 2, 2]),
        expect!["`small.tflite`, node `t1` (`UNIDIRECTIONAL_SEQUENCE_RNN`): input 4 is missing"],
    );
    check_error(
        &layer(3, &[0]),
        expect!["`small.tflite`, node `t1` (`UNIDIRECTIONAL_SEQUENCE_RNN`): input 1 is missing"],
    );
    assert!(read(&layer(3, &[0, 2, 2, -1, 2]), &Options::default()).is_ok());
}
