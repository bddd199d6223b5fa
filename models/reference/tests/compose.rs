//! Tests of the results of composite operators.
#![allow(missing_docs)]

use models::compose::{
    DepthOrder, Recurrent, Reset, depth_to_space, elman_step, gru_step, lstm_step, mat_mul, space_to_depth,
};
use models::{Const, GraphBuilder, Result, TensorType, UnaryOp, ValueId};
use reference::{Tensor, evaluate_graph};

fn run(x: Tensor, build: impl Fn(&mut GraphBuilder, ValueId) -> Result<ValueId>) -> (String, Vec<f64>) {
    let mut builder = GraphBuilder::new("composed");
    let input = builder.add_input("x", x.tensor_type().clone()).unwrap();
    let y = build(&mut builder, input).unwrap();
    let graph = builder.finish(&[y]).unwrap();
    let y = evaluate_graph(&graph, &[x]).unwrap().remove(0);
    (y.tensor_type().to_string(), y.to_numbers())
}

fn counting(extents: &[i64]) -> Tensor {
    let numbers: Vec<f64> = (0..extents.iter().product()).map(|number: i64| number as f64).collect();
    Tensor::from_numbers(TensorType::f32(extents), &numbers).unwrap()
}

#[test]
fn depth_and_space() {
    let block_first = run(counting(&[1, 8, 1, 1]), |b, x| depth_to_space(b, x, 2, DepthOrder::BlockFirst));
    assert_eq!(block_first, ("f32[1,2,2,2]".to_owned(), vec![0.0, 2.0, 4.0, 6.0, 1.0, 3.0, 5.0, 7.0]));
    let channel_first = run(counting(&[1, 8, 1, 1]), |b, x| depth_to_space(b, x, 2, DepthOrder::ChannelFirst));
    assert_eq!(channel_first.1, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    let there_and_back = run(counting(&[1, 2, 4, 6]), |b, x| {
        let deep = space_to_depth(b, x, 2, DepthOrder::BlockFirst)?;
        depth_to_space(b, deep, 2, DepthOrder::BlockFirst)
    });
    assert_eq!(there_and_back, ("f32[1,2,4,6]".to_owned(), counting(&[1, 2, 4, 6]).to_numbers()));
}

#[test]
fn products_of_vectors() {
    let with = |b: &mut GraphBuilder, extents: &[i64]| b.add_constant("w", TensorType::f32(extents), Const::Fill(1.0));
    let dot = run(counting(&[3]), |b, x| with(b, &[3]).and_then(|w| mat_mul(b, x, w)));
    assert_eq!(dot, ("f32[]".to_owned(), vec![3.0]));
    let left = run(counting(&[3]), |b, x| with(b, &[2, 3, 4]).and_then(|w| mat_mul(b, x, w)));
    assert_eq!(left, ("f32[2,4]".to_owned(), vec![3.0; 8]));
    let right = run(counting(&[2, 2, 3]), |b, x| with(b, &[3]).and_then(|w| mat_mul(b, x, w)));
    assert_eq!(right, ("f32[2,2]".to_owned(), vec![3.0, 12.0, 21.0, 30.0]));
}

#[test]
fn recurrent_steps() {
    let recurrent = |b: &mut GraphBuilder, gates: i64| -> Result<Recurrent> {
        let weight = b.add_constant("w", TensorType::f32(&[gates, 1]), Const::Fill(0.0))?;
        let bias = b.add_constant("b", TensorType::f32(&[gates]), Const::Fill(0.0))?;
        Ok(Recurrent::new(weight, Some(bias), 1))
    };
    let state = |b: &mut GraphBuilder| b.add_constant("h", TensorType::f32(&[1, 1]), Const::Fill(2.0));
    let gates = |numbers: &[f64]| Tensor::from_numbers(TensorType::f32(&[1, numbers.len() as i64]), numbers).unwrap();
    // Open gates for input (1) and forgetting (0), half-open for output (3); the content is tanh(0) = 0.
    let (_, state_of_lstm) = run(gates(&[100.0, 100.0, 0.0, 0.0]), |b, x| {
        let (recurrent, start) = (recurrent(b, 4)?, state(b)?);
        Ok(lstm_step(b, x, (start, start), &recurrent, [1, 0, 2, 3])?.0)
    });
    assert!((state_of_lstm[0] - 0.5 * 2f64.tanh()).abs() < 1e-6);
    for reset_at in [Reset::BeforeProduct, Reset::AfterProduct] {
        // Half of the state is kept, the other half is tanh(100) = 1.
        let (_, next) = run(gates(&[0.0, 0.0, 100.0]), |b, x| {
            let (recurrent, start) = (recurrent(b, 3)?, state(b)?);
            gru_step(b, x, start, &recurrent, [0, 1, 2], reset_at)
        });
        assert!((next[0] - 1.5).abs() < 1e-6);
    }
    let (_, next) = run(gates(&[-3.0]), |b, x| {
        let recurrent = Recurrent { functions: [UnaryOp::Relu; 3], ..recurrent(b, 1)? };
        let start = state(b)?;
        elman_step(b, x, start, &recurrent)
    });
    assert_eq!(next, [0.0]);
}
