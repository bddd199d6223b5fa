//! Bit-exact agreement with the reference for random layers and tilings.

#[allow(dead_code)]
mod common;

use accelerator::Core;
use common::{cut, is_exact, random, values};
use models::Task;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

const CLIPPED: &str = r#"| clip(_) low=-128.0 high=127.0 | cast(_) to="i8""#;

fn pick(random: &mut ChaCha8Rng, from: &[i64]) -> i64 {
    from[random.random_range(0..from.len())]
}

fn rest(random: &mut ChaCha8Rng, [n, c, h, w]: [i64; 4]) -> String {
    let mut text = String::new();
    if random.random_bool(0.6) {
        text += &format!("| bias_add(_, const i32[{c}]) axis=1 ");
    }
    text += &format!(r#"| binary(_, const i32[{c},1,1]) function="shift_right" "#);
    if random.random_bool(0.3) {
        text += &format!(r#"| binary(_, i32[{n},{c},{h},{w}]) function="add" "#);
    }
    if random.random_bool(0.3) {
        text += r#"| unary(_) function="relu" "#;
    }
    text + CLIPPED
}

fn convolution(random: &mut ChaCha8Rng, is_depthwise: bool) -> String {
    let kernel = pick(random, &[1, 2, 3, 3, 5]);
    let pad = pick(random, &[0, kernel / 2]);
    let (stride, n) = (pick(random, &[1, 1, 2]), pick(random, &[1, 1, 2, 4]));
    let (h, w) = (kernel + pick(random, &[0, 3, 5, 9]), kernel + pick(random, &[0, 2, 5, 6]));
    let (ci, co) = (pick(random, &[3, 8, 16, 24, 32, 48]), pick(random, &[4, 8, 16, 32, 40]));
    let (ci, co, depth, groups) = if is_depthwise { (co, co, 1, co) } else { (ci, co, ci, 1) };
    let out = |extent: i64| (extent + 2 * pad - kernel) / stride + 1;
    let after = rest(random, [n, co, out(h), out(w)]);
    format!(
        "conv(i8[{n},{ci},{h},{w}], const i8[{co},{depth},{kernel},{kernel}]) strides=[{stride},{stride}] \
         pads=[{pad},{pad},{pad},{pad}] dilations=[1,1] groups={groups} {after}"
    )
}

fn dense(random: &mut ChaCha8Rng) -> String {
    let (m, k, n) = (pick(random, &[1, 2, 5, 8, 12]), pick(random, &[10, 16, 64, 96]), pick(random, &[5, 16, 64, 80]));
    let bias = if random.random_bool(0.5) { format!("| bias_add(_, const i32[{n}]) axis=1 ") } else { String::new() };
    format!(
        r#"dense(i8[{m},{k}], const i8[{n},{k}]) {bias}| binary(_, const i32[{n}]) function="shift_right" {CLIPPED}"#
    )
}

fn elementwise(random: &mut ChaCha8Rng) -> String {
    let shape = match random.random_range(0..3) {
        0 => format!("{},{},{},{}", pick(random, &[1, 3]), pick(random, &[8, 20, 32]), pick(random, &[1, 5, 8]), 6),
        1 => format!("{},{}", pick(random, &[1, 3, 8]), pick(random, &[16, 30])),
        _ => format!("2,{},16", pick(random, &[2, 3])),
    };
    let op = ["add", "max", "min"][random.random_range(0..3)];
    let relu = if random.random_bool(0.5) { r#"| unary(_) function="relu" "# } else { "" };
    format!(r#"binary(i32[{shape}], i32[{shape}]) function="{op}" {relu}{CLIPPED}"#)
}

fn layers(count: u64, seed: u64, draw: impl Fn(&mut ChaCha8Rng) -> String) {
    let mut seen = 0;
    let mut random = random(seed);
    for _ in 0..count {
        let text = draw(&mut random);
        let task = Task::from_text(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let inputs = values(&task, &mut random);
        let core = Core::find_published(Core::NAMES[random.random_range(0..2)]).unwrap();
        let Some(knobs) = cut(&core, &task, &mut random) else { continue };
        is_exact(&core, &task, &knobs, &inputs, 3);
        seen += 1;
    }
    assert!(seen * 10 >= count * 9, "only {seen} of {count} layers had a tiling that fits");
}

#[test]
fn convolutions_are_exact() {
    layers(220, 1, |random| convolution(random, false));
}

#[test]
fn depthwise_convolutions_are_exact() {
    layers(60, 2, |random| convolution(random, true));
}

#[test]
fn products_of_matrices_are_exact() {
    layers(60, 3, dense);
}

#[test]
fn elementwise_layers_are_exact() {
    layers(60, 4, elementwise);
}
