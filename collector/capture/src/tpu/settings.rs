//! Settings for reading a capture.

use super::chip::{Chip, Engine};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// Clock of the tensor unit in MHz, overriding that of the capture.
    pub tiu_mhz: Option<f64>,
    /// Whether to reproduce the vendor's results even where they are wrong.
    pub compat: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    pub chip: Chip,
    pub is_bmodel: bool,
    pub tiu_mhz: f64,
    pub compat: bool,
}

impl Settings {
    pub fn clock_mhz(&self, engine: Engine) -> f64 {
        if engine == Engine::Tiu { self.tiu_mhz } else { self.chip.facts().dma_mhz }
    }
}
