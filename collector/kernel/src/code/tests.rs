//! Tests of loop detection on loops assembled by hand and on bytes that are not code.

use super::code_features;
use super::loops::{Loop, find_loops};
use super::step::decode_steps;
use proptest::prelude::*;

fn turns(code: &[u8]) -> Vec<Option<f64>> {
    find_loops(&decode_steps(code)).iter().map(|found| found.turns).collect()
}

#[test]
fn counted_loops_say_how_often_they_turn() {
    // xor eax, eax; again: add rax, 1; cmp rax, 10; jne again; ret
    let upwards = [0x31, 0xc0, 0x48, 0x83, 0xc0, 0x01, 0x48, 0x83, 0xf8, 0x0a, 0x75, 0xf6, 0xc3];
    assert_eq!(turns(&upwards), [Some(10.0)]);
    // mov ecx, 5; again: dec rcx; jne again; ret
    let downwards = [0xb9, 0x05, 0x00, 0x00, 0x00, 0x48, 0xff, 0xc9, 0x75, 0xfb, 0xc3];
    assert_eq!(turns(&downwards), [Some(5.0)]);
    // xor eax, eax; again: lea rcx, [rax + 16]; cmp rax, 240; mov rax, rcx; jb again; ret
    let tested_first =
        [0x31, 0xc0, 0x48, 0x8d, 0x48, 0x10, 0x48, 0x3d, 0xf0, 0x00, 0x00, 0x00, 0x48, 0x89, 0xc8, 0x72, 0xf1, 0xc3];
    assert_eq!(turns(&tested_first), [Some(16.0)]);
}

#[test]
fn a_bound_that_an_argument_brings_gives_no_count() {
    // xor eax, eax; again: inc rax; cmp rax, rdi; jne again; ret
    let code = [0x31, 0xc0, 0x48, 0xff, 0xc0, 0x48, 0x39, 0xf8, 0x75, 0xf8, 0xc3];
    assert_eq!(turns(&code), [None]);
}

#[test]
fn multiply_adds_are_scaled_to_what_was_asked_for() {
    // again: vfmadd231ps zmm0, zmm1, zmmword ptr [rsi]; add rsi, 64; cmp rsi, rdi; jne again; ret
    let code = [0x62, 0xf2, 0x75, 0x48, 0xb8, 0x06, 0x48, 0x83, 0xc6, 0x40, 0x48, 0x39, 0xfe, 0x75, 0xf1, 0xc3];
    let found = code_features([&code[..]], 1600.0);
    assert_eq!(found["fma_lanes"], 1600.0);
    assert_eq!(found["fmas"], 100.0);
    assert_eq!(found["loaded_bytes"], 6400.0);
    assert_eq!(found["loops_uncounted"], 1.0);
    // One accumulator: each multiply-add waits for the one before.
    assert_eq!(found["cycles"].round(), 400.0);
}

proptest! {
    #[test]
    fn any_bytes_give_finite_figures_and_loops_within_loops(code in proptest::collection::vec(any::<u8>(), 0..400)) {
        let steps = decode_steps(&code);
        let found = find_loops(&steps);
        for (place, Loop { first, last, turns, around }) in found.iter().enumerate() {
            prop_assert!(first <= last && *last < steps.len());
            prop_assert!(turns.is_none_or(|turns| turns >= 1.0));
            if let Some(outer) = around {
                prop_assert!(*outer < place && found[*outer].first <= *first && *last <= found[*outer].last);
            }
        }
        prop_assert!(code_features([code.as_slice()], 8.0).values().all(|value| value.is_finite() && *value >= 0.0));
    }
}
