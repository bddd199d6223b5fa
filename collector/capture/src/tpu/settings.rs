//! How a capture is read, and what all its parts share.

use super::chip::{Chip, Engine};

/// How to read a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// Clock of the tensor unit, instead of the capture's own.
    pub tiu_mhz: Option<f64>,
    /// Give the vendor's tool's figures where they are wrong, too.
    pub compat: bool,
}

/// What all parts of a capture share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The chip.
    pub chip: Chip,
    /// Whether commands are those of a compiled model.
    pub is_bmodel: bool,
    /// Clock of the tensor unit.
    pub tiu_mhz: f64,
    /// See `Reading`.
    pub compat: bool,
}

impl Settings {
    /// The clock of an engine.
    pub fn mhz(&self, engine: Engine) -> f64 {
        if engine == Engine::Tiu { self.tiu_mhz } else { self.chip.facts().dma_mhz }
    }
}
