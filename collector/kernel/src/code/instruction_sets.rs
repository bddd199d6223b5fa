//! Finds the instruction set extensions that code uses. A processor that lacks one of them cannot run the code.

use super::step::decode_steps;
use iced_x86::CpuidFeature;
use std::collections::BTreeSet;

/// Instruction set extensions beyond the x86-64 baseline, with the Linux kernel's names.
const EXTENSIONS: &[(CpuidFeature, &str)] = &[
    (CpuidFeature::SSE3, "pni"),
    (CpuidFeature::SSSE3, "ssse3"),
    (CpuidFeature::SSE4_1, "sse4_1"),
    (CpuidFeature::SSE4_2, "sse4_2"),
    (CpuidFeature::POPCNT, "popcnt"),
    (CpuidFeature::LZCNT, "abm"),
    (CpuidFeature::BMI1, "bmi1"),
    (CpuidFeature::BMI2, "bmi2"),
    (CpuidFeature::MOVBE, "movbe"),
    (CpuidFeature::ADX, "adx"),
    (CpuidFeature::F16C, "f16c"),
    (CpuidFeature::FMA, "fma"),
    (CpuidFeature::FMA4, "fma4"),
    (CpuidFeature::XOP, "xop"),
    (CpuidFeature::AVX, "avx"),
    (CpuidFeature::AVX2, "avx2"),
    (CpuidFeature::AVX_VNNI, "avx_vnni"),
    (CpuidFeature::GFNI, "gfni"),
    (CpuidFeature::VPCLMULQDQ, "vpclmulqdq"),
    (CpuidFeature::VAES, "vaes"),
    (CpuidFeature::AVX512F, "avx512f"),
    (CpuidFeature::AVX512VL, "avx512vl"),
    (CpuidFeature::AVX512BW, "avx512bw"),
    (CpuidFeature::AVX512DQ, "avx512dq"),
    (CpuidFeature::AVX512CD, "avx512cd"),
    (CpuidFeature::AVX512_VNNI, "avx512_vnni"),
    (CpuidFeature::AVX512_BF16, "avx512_bf16"),
    (CpuidFeature::AVX512_FP16, "avx512_fp16"),
    (CpuidFeature::AVX512_VBMI, "avx512vbmi"),
    (CpuidFeature::AVX512_VBMI2, "avx512_vbmi2"),
    (CpuidFeature::AVX512_IFMA, "avx512ifma"),
    (CpuidFeature::AVX512_BITALG, "avx512_bitalg"),
    (CpuidFeature::AVX512_VPOPCNTDQ, "avx512_vpopcntdq"),
    (CpuidFeature::AMX_TILE, "amx_tile"),
    (CpuidFeature::AMX_INT8, "amx_int8"),
    (CpuidFeature::AMX_BF16, "amx_bf16"),
];

pub fn instruction_sets<'a>(functions: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    let mut used: BTreeSet<CpuidFeature> = BTreeSet::new();
    for function in functions {
        for step in decode_steps(function) {
            used.extend(step.instruction.cpuid_features());
        }
    }
    let names = EXTENSIONS.iter().filter(|(feature, _)| used.contains(feature));
    names.map(|(_, name)| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_tell_what_they_need() {
        let baseline: &[u8] = &[0x0f, 0x58, 0xc1, 0xc3]; // addps xmm0, xmm1; ret
        let multiply_add: &[u8] = &[0xc4, 0xe2, 0x75, 0xb8, 0xc2]; // vfmadd231ps ymm0, ymm1, ymm2
        let wide: &[u8] = &[0x62, 0xf1, 0x74, 0x48, 0x58, 0xc2]; // vaddps zmm0, zmm1, zmm2
        assert_eq!(instruction_sets([baseline]), [""; 0]);
        assert_eq!(instruction_sets([baseline, multiply_add]), ["fma"]);
        assert_eq!(instruction_sets([multiply_add, wide]), ["fma", "avx512f"]);
    }
}
