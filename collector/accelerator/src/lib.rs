//! Simulator, code generator and host interface of an FPGA core for blocked 8-bit matrix products. No board is needed.
//!
//! [`generate_program`] compiles a [`Layer`] with its tiling, [`Knobs`], to 128-bit instructions for three concurrent
//! modules that synchronise by tokens. All times are cycle counts of a model whose parameters have a name and a
//! provenance. Instructions, registers and layout are compatible with VTA, a former core of Apache TVM, and run on its
//! bitstreams.

#![forbid(unsafe_code)]

/// Revision, raised whenever a program or a cycle count of a layer changes, which invalidates earlier times.
pub const REVISION: u32 = 1;

mod bus;
mod check;
mod core;
mod cuts;
mod fit;
mod form;
mod functional;
mod generate;
mod hooked;
mod image;
mod instruction;
mod knobs;
mod layer;
mod layout;
mod program;
mod scales;
mod simulated;
mod stream;
mod timing;

pub use bus::{Bus, BusBlock, LaunchError, launch_program, registers};
pub use check::{CheckError, check_program};
pub use core::{Buffer, Core, CoreError, FabricBoard, fabric_boards};
pub use cuts::{default_knobs, knob_choices};
pub use fit::{Misfit, check_fit};
pub use form::{CpuReason, in_core_form, layer_of};
pub use functional::{FunctionalError, FunctionalMachine, Totals};
pub use generate::generate_program;
pub use hooked::{HookedBus, Hooks};
pub use image::{CoreImage, ImageError, external_result, result_place};
pub use instruction::{
    Alu, AluOp, DecodeError, Instruction, Memory, MicroOp, Multiply, Pads, Steps, Tokens, decode_instruction,
    encode_instruction,
};
pub use knobs::Knobs;
pub use layer::{Kind, Layer, Operand, Post, Tensors};
pub use layout::{LayoutError, pack_operand, unpack_result};
pub use program::{Program, Region, Role};
pub use scales::{Folded, fold_scales};
pub use simulated::SimulatedBus;
pub use stream::{INSTRUCTION_BYTES, StreamError, check_places, read_stream};
pub use timing::{
    Bound, ModuleSpan, TimedProgram, Timing, TimingError, TimingLane, TimingSet, simulate_program, simulate_with,
    timing_sets,
};
