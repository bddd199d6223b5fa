//! A core for products of small blocks of bytes on a board's fabric, with its host's part, all without the board.
//!
//! A [`Layer`] says what is computed, [`Knobs`] how it is cut, and [`generate`] makes the [`Program`] of it: instructions of
//! 128 bits for three modules that run beside each other and wait for each other by tokens. [`check`] refuses programs that
//! would go wrong on the fabric, [`Machine`] computes what one computes, bit by bit, and [`simulate`] says how many cycles it
//! takes. An [`Image`] is a program as it lies in a board's memory, and [`launch`] runs that by the registers of a [`Bus`], of
//! which [`SimulatedBus`] is one without a board. Nothing here measures anything: all times are counts of cycles of
//! a model whose parameters have a name and a provenance.
//!
//! Instructions, registers and layout are those of the core VTA of Apache TVM's history, so that its bitstreams run them.

#![forbid(unsafe_code)]

/// Raised whenever the same layer and cut become another program, or are timed otherwise: times of before are not known then.
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

pub use bus::{Block, Bus, LaunchError, launch, registers};
pub use check::{CheckError, check};
pub use core::{Board, Buffer, Core, CoreError, boards};
pub use cuts::{choices, default_knobs};
pub use fit::{Misfit, fits};
pub use form::{CpuReason, in_core_form, layer_of};
pub use functional::{FunctionalError, Machine, Totals};
pub use generate::generate;
pub use hooked::{HookedBus, Hooks};
pub use image::{Image, ImageError, result, result_place};
pub use instruction::{
    Alu, AluOp, DecodeError, Instruction, Memory, MicroOp, Multiply, Pads, Steps, Tokens, decode, encode,
};
pub use knobs::Knobs;
pub use layer::{Kind, Layer, Operand, Post, Tensors};
pub use layout::{LayoutError, pack, unpack};
pub use program::{Program, Region, Role};
pub use scales::{Folded, fold_scales};
pub use simulated::SimulatedBus;
pub use stream::{INSTRUCTION_BYTES, StreamError, check_places, read_stream};
pub use timing::{Bound, Lane, Span, Timed, Timing, TimingError, TimingSet, simulate, simulate_with, timing_sets};
