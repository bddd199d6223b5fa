//! Each loop from the innermost out: how long it is, how it is run, what it touches, how often that is used again.

use super::nest::{Mark, Nest};
use crate::model::Features;

/// Loops that are described; those further out are left to the knobs.
const DESCRIBED: usize = 9;

pub fn add(nest: &Nest, features: &mut Features) {
    let count = nest.loops.len();
    for depth in 0..count.min(DESCRIBED) {
        let place = count - 1 - depth;
        let one = nest.loops[place];
        let (touched, turns) = nest.inside(place);
        let mark = match one.mark {
            Mark::Plain => 0.0,
            Mark::Unrolled => 1.0,
            Mark::Vector => 2.0,
            Mark::Parallel => 3.0,
        };
        let mut add = |name: &str, value: f64| features.insert(format!("loop{depth}.{name}"), value);
        add("extent", one.extent.log2());
        add("walks", f64::from(one.walk as u8));
        add("mark", mark);
        add("turns", turns.log2());
        for (name, bytes) in ["data", "weights", "result"].into_iter().zip(touched) {
            add(&format!("{name}_bytes"), bytes.max(1.0).log2());
            add(&format!("{name}_reuse"), (turns / bytes.max(1.0)).log2());
        }
    }
    features.insert("loops".to_owned(), count as f64);
}
