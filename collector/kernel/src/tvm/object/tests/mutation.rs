//! Tests that loading any bytes returns an error or an image, without a panic or a fault. Nothing is executed.

use std::sync::OnceLock;

use proptest::prelude::*;

use super::super::load_object;
use super::compile;
use super::damage::Damage;

fn originals() -> &'static [Vec<u8>] {
    static ORIGINALS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    ORIGINALS.get_or_init(|| {
        vec![
            compile(
                "#include <string.h>\n#include <math.h>\n\
                 int data = 1; static int zeros[100]; const char *names[] = {\"a\", \"b\"}; void *__TVMFFIFunctionCall;\n\
                 int __tvm_ffi_main(void *self, void *arguments, int count, void *result) {\n\
                 memset(zeros, count, sizeof zeros); return data + (int)expf((float)count) + names[count & 1][0]; }",
            ),
            compile(
                "int f(int, int); int g(int i, int x) { switch (i) { case 0: return f(1, x); case 1: return f(2, 7);\n\
                 case 2: return f(x, x); case 3: return f(5, x); case 4: return f(6, x + 1); default: return 9; } }\n\
                 int f(int a, int b) { return a * b; } int (*pointer)(int, int) = f;",
            ),
        ]
    })
}

fn damage() -> impl Strategy<Value = Damage> {
    let index = any::<prop::sample::Index>;
    // Values at the edges of the formats' fields, and any.
    let word = prop_oneof![
        any::<u64>().prop_map(|value| value.to_le_bytes().to_vec()),
        prop::sample::select(vec![0, 1, u64::MAX, i64::MAX as u64, 1 << 32, u64::from(u32::MAX), 4096])
            .prop_map(|value| value.to_le_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 1..4),
    ];
    prop_oneof![
        1 => index().prop_map(Damage::Truncate),
        4 => (index(), 0..8u8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        4 => (index(), word).prop_map(|(at, word)| Damage::Overwrite(at, word)),
        1 => (index(), index(), 1..64usize).prop_map(|(from, to, count)| Damage::Copy { from, to, count }),
    ]
}

fn load_and_let_go(bytes: &[u8]) {
    if let Ok(loaded) = load_object(bytes) {
        // SAFETY: it is let go and never called.
        let _ = (loaded.find_symbol("g"), unsafe { loaded.packed_function("main") }.is_ok());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_objects_load_or_fail(which in 0..2usize, damages in prop::collection::vec(damage(), 1..6)) {
        let mut bytes = originals()[which].clone();
        damages.iter().for_each(|damage| damage.apply(&mut bytes));
        load_and_let_go(&bytes);
    }

    #[test]
    fn any_bytes_fail(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(load_object(&bytes).is_err());
    }
}

#[test]
fn every_prefix_and_every_single_byte() {
    for original in originals() {
        for length in 0..original.len() {
            assert!(load_object(&original[..length]).is_err(), "an object cut at {length} loads");
        }
        let mut bytes = original.clone();
        for at in 0..bytes.len() {
            for value in [0, 0x7f, 0xff] {
                bytes[at] = value;
                load_and_let_go(&bytes);
            }
            bytes[at] = original[at];
        }
    }
}
