//! Number formats: the type in which products are computed, and the types in which weights and activations are stored.

models::choice! {
    /// The type of the numbers that the matrix units multiply, or of a key-value cache.
    pub enum Dtype {
        /// 16-bit brain floats (half precision runs at the same rate)
        Bf16 = "bf16" | "bfloat16" | "float16" | "fp16",
        /// 8-bit floats
        Fp8 = "fp8" | "float8",
        /// 4-bit floats
        Fp4 = "fp4" | "float4",
        /// 8-bit integers
        Int8 = "int8",
    }
}

impl Dtype {
    pub fn byte_width(self) -> f64 {
        match self {
            Dtype::Bf16 => 2.0,
            Dtype::Fp8 | Dtype::Int8 => 1.0,
            Dtype::Fp4 => 0.5,
        }
    }
}

models::choice! {
    /// A quantisation scheme: formats of weights, activations and products.
    pub enum Scheme {
        /// Weights, activations and products are bf16
        Bf16 = "bf16" | "bfloat16",
        /// fp8 with one scale per tensor
        Fp8 = "fp8",
        /// fp8 with one scale per block of 128
        Fp8Block = "fp8_block",
        /// fp4 with one fp8 scale per 16 numbers
        Nvfp4 = "nvfp4",
        /// int8 weights and activations (SmoothQuant)
        Int8 = "int8" | "sq" | "smooth_quant",
        /// int8 weights, bf16 activations and products
        Int8Weights = "int8_wo",
        /// int4 weights, bf16 activations and products
        Int4Weights = "int4_wo",
        /// MXFP4 weights, bf16 activations and products
        Mxfp4Weights = "w4a16_mxfp4",
        /// MXFP4 weights, MXFP8 activations and products
        Mxfp4Mxfp8 = "w4a8_mxfp4_mxfp8",
    }
}

impl Scheme {
    pub fn product_dtype(self) -> Dtype {
        match self {
            Scheme::Bf16 | Scheme::Int8Weights | Scheme::Int4Weights | Scheme::Mxfp4Weights => Dtype::Bf16,
            Scheme::Fp8 | Scheme::Fp8Block | Scheme::Mxfp4Mxfp8 => Dtype::Fp8,
            Scheme::Nvfp4 => Dtype::Fp4,
            Scheme::Int8 => Dtype::Int8,
        }
    }

    /// Returns the bytes of one weight, including its share of scales.
    pub fn weight_bytes(self) -> f64 {
        match self {
            Scheme::Bf16 => 2.0,
            Scheme::Fp8 | Scheme::Int8 | Scheme::Int8Weights => 1.0,
            // One 4-byte scale for a block of 128 x 128 weights.
            Scheme::Fp8Block => 1.0 + 4.0 / (128.0 * 128.0),
            // One byte of scale for 16 numbers.
            Scheme::Nvfp4 => 0.5 + 1.0 / 16.0,
            // One 2-byte scale for a group of 128 weights.
            Scheme::Int4Weights => 0.5 + 2.0 / 128.0,
            // One byte of scale for 32 numbers.
            Scheme::Mxfp4Weights | Scheme::Mxfp4Mxfp8 => 0.5 + 1.0 / 32.0,
        }
    }

    pub fn activation_bytes(self) -> f64 {
        match self {
            Scheme::Bf16 | Scheme::Int8Weights | Scheme::Int4Weights | Scheme::Mxfp4Weights => 2.0,
            Scheme::Fp8 | Scheme::Int8 => 1.0,
            Scheme::Fp8Block => 1.0 + 4.0 / 128.0,
            Scheme::Nvfp4 => 0.5 + 1.0 / 16.0,
            Scheme::Mxfp4Mxfp8 => 1.0 + 1.0 / 32.0,
        }
    }
}
