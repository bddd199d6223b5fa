//! Tests that the sizes of network operators mean what their names in the predictor state.

use predictor::queries::{ModelSource, NetworkQuestion, parse_operator};
use samples::features::{Form, Work};

fn work(text: &str) -> Work {
    parse_operator(text, None).expect(text).work
}

#[test]
fn a_transposed_convolution_has_channels_for_columns() {
    let dcgan = NetworkQuestion { source: ModelSource::Local, name: "dcgan", batch: 2, tokens: 1, options: None };
    let found: Vec<_> = dcgan
        .distinct_operators()
        .expect("a network")
        .into_iter()
        .filter(|one| one.name == "conv_transpose2d")
        .collect();
    assert!(!found.is_empty(), "the network has some");
    for one in found {
        let (work, out) = (&one.work, &one.work.output);
        assert_eq!(work.form, Form::Convolution);
        let [batch, channels, down, across, _] = *out;
        assert_eq!((work.columns, work.width), (channels, across), "{}", one.text);
        assert_eq!(work.rows, batch * down * across, "{}", one.text);
        assert!(work.taps == 16.0 && work.flops > 0.0, "{}: {work:?}", one.text);
    }
}

#[test]
fn sizes_of_every_operator_multiply_to_its_result() {
    for form in zoo::simple::list_forms() {
        let found = model_of_form(form.example);
        let Work { batch, rows, columns, depth, output, .. } = found;
        let elements: f64 = output.iter().product();
        assert_eq!(batch * rows * columns, elements, "{}: {found:?}", form.example);
        // What is multiplied and added up is counted by `models`; a sum has no fewer terms than what is summed of.
        let is_product = matches!(found.form, Form::Contraction | Form::Convolution);
        assert!(!is_product || found.flops >= 2.0 * elements * depth * 0.99, "{}: {found:?}", form.example);
        let is_convolution = form.name.contains("conv");
        assert_eq!(found.form == Form::Convolution, is_convolution, "{}", form.example);
        let has_windows = is_convolution || form.name.contains("pool");
        assert!(has_windows || found.taps == 1.0 && found.width == 0.0, "{}: {found:?}", form.example);
    }
}

fn model_of_form(example: &str) -> Work {
    let graph = zoo::simple::build_operator(example).expect(example);
    let task = models::distinct_tasks(&graph, models::Fuse::Epilogue).expect(example).remove(0).task;
    samples::records::work_of(&task).expect(example)
}

#[test]
fn convolutions_and_products_have_their_own() {
    let conv = work("conv2d:n=2,ci=16,hw=28,co=40,k=3,p=1");
    assert_eq!((conv.columns, conv.rows, conv.depth, conv.taps, conv.width), (40.0, 1568.0, 144.0, 9.0, 28.0));
    let product = work("matmul:m=5,n=6,k=7");
    assert_eq!((product.batch, product.rows, product.columns, product.depth), (1.0, 5.0, 6.0, 7.0));
}
