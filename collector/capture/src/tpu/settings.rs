//! Settings for reading a capture.

use super::chip::{Chip, Engine};

/// Options for reading a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// Clock of the tensor unit, overriding the capture.
    pub tiu_mhz: Option<f64>,
    /// Whether to reproduce the vendor's results where they are wrong.
    pub compat: bool,
}

/// Settings shared by all parts of a capture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    pub chip: Chip,
    /// Whether commands belong to a compiled model.
    pub is_bmodel: bool,
    /// Clock of the tensor unit.
    pub tiu_mhz: f64,
    /// See `Reading`.
    pub compat: bool,
}

impl Settings {
    /// Returns the clock of an engine.
    pub fn mhz(&self, engine: Engine) -> f64 {
        if engine == Engine::Tiu { self.tiu_mhz } else { self.chip.facts().dma_mhz }
    }
}
