//! Definitions put in front of generated CUDA C, for the features (such as half precision) that TVM lists for a kernel.

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the generated CUDA code needs the header feature `{0}`, which this version does not provide")]
pub struct UnknownTag(String);

/// Definitions of short unsigned types, which generated code expects, and of fixed-width types, which NVRTC lacks.
const TYPES: &str = "\
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
";

const MATH_CONSTANTS: &str = "\
#define CUDART_INF_F __int_as_float(0x7f800000)
#define CUDART_NAN_F __int_as_float(0x7fffffff)
#define CUDART_INF __longlong_as_double(0x7ff0000000000000LL)
#define CUDART_NAN __longlong_as_double(0xfff8000000000000LL)
";

/// Returns definitions for a half-precision type: comparisons, the vector of four, functions by single precision.
fn half_definitions(scalar: &str, to_float: &str, from_float: &str, four: &str, pack: &str, has_tanh: bool) -> String {
    let mut text = format!(
        "\
__device__ inline {scalar} max({scalar} a, {scalar} b) {{ return __hgt(a, b) ? a : b; }}
__device__ inline {scalar} min({scalar} a, {scalar} b) {{ return __hlt(a, b) ? a : b; }}
__device__ inline {scalar} hpow({scalar} a, {scalar} b) {{ return {from_float}(powf({to_float}(a), {to_float}(b))); }}
__device__ inline unsigned {pack}(const {scalar} low, const {scalar} high) {{
  return (unsigned)*(const unsigned short*)&high << 16 | *(const unsigned short*)&low;
}}
struct __align__(8) {four} {{
  {scalar} x, y, z, w;
}};
__device__ inline {four} make_{four}({scalar} x, {scalar} y, {scalar} z, {scalar} w) {{
  {four} all;
  all.x = x;
  all.y = y;
  all.z = z;
  all.w = w;
  return all;
}}
"
    );
    let functions = [("htan", "tanf"), ("hatan", "atanf"), ("herf", "erff")];
    let tanh = [("htanh", "tanhf")];
    for (name, single) in functions.iter().chain(if has_tanh { &tanh[..0] } else { &tanh[..] }) {
        text.push_str(&format!(
            "__device__ inline {scalar} {name}({scalar} a) {{ return {from_float}({single}({to_float}(a))); }}\n"
        ));
    }
    text
}

pub fn write_header<'a>(tags: impl IntoIterator<Item = &'a str>) -> Result<String, UnknownTag> {
    let mut text = TYPES.to_owned();
    for tag in tags {
        match tag {
            "fp16" => {
                text.push_str("#include <cuda_fp16.h>\n");
                text.push_str(&half_definitions("half", "__half2float", "__float2half", "half4", "__pack_half2", true));
            }
            "bf16" => {
                text.push_str("#include <cuda_bf16.h>\n");
                let pack = "__pack_nv_bfloat162";
                text.push_str(&half_definitions(
                    "nv_bfloat16",
                    "__bfloat162float",
                    "__float2bfloat16",
                    "nv_bfloat164",
                    pack,
                    true,
                ));
            }
            "mma" => text.push_str("#include <mma.h>\n"),
            "math_constants" => text.push_str(MATH_CONSTANTS),
            // These features are part of the language since Volta.
            "warp_shuffle" | "int8" | "cuda" => {}
            other => return Err(UnknownTag(other.to_owned())),
        }
    }
    Ok(text)
}
