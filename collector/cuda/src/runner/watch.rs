//! Samples the state of a GPU between timed batches, at least five milliseconds apart, because NVML updates its values
//! only every ten milliseconds or less often. Samples of the warm-up are discarded.

use crate::nvml::{BoardState, Nvml, NvmlError};
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

pub(super) struct Watch<'a> {
    nvml: Option<&'a Nvml>,
    seen: RefCell<WatchedRun>,
    last: Cell<Option<Instant>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WatchedRun {
    pub(super) sm_clock_mhz: Result<Vec<u32>, NvmlError>,
    pub(super) memory_clock_mhz: Result<Vec<u32>, NvmlError>,
    pub(super) power_mw: Result<Vec<u32>, NvmlError>,
    pub(super) temperature_celsius: Result<Vec<u32>, NvmlError>,
    /// Bit mask of the reasons for throttling that occurred in any sample.
    pub(super) throttle: Result<u64, NvmlError>,
}

impl Default for WatchedRun {
    fn default() -> WatchedRun {
        WatchedRun {
            sm_clock_mhz: Ok(Vec::new()),
            memory_clock_mhz: Ok(Vec::new()),
            power_mw: Ok(Vec::new()),
            temperature_celsius: Ok(Vec::new()),
            throttle: Ok(0),
        }
    }
}

impl WatchedRun {
    /// Adds a sample. A quantity that any sample lacks is dropped, since its other values would not be representative.
    fn add_sample(&mut self, state: BoardState) {
        let add = |all: &mut Result<Vec<u32>, NvmlError>, one: Result<u32, NvmlError>| match one {
            Ok(number) => all.iter_mut().for_each(|seen| seen.push(number)),
            Err(error) if all.is_ok() => *all = Err(error),
            Err(_) => {}
        };
        add(&mut self.sm_clock_mhz, state.sm_clock_mhz);
        add(&mut self.memory_clock_mhz, state.memory_clock_mhz);
        add(&mut self.power_mw, state.power_mw);
        add(&mut self.temperature_celsius, state.temperature_celsius);
        match state.throttle {
            Ok(reasons) => self.throttle.iter_mut().for_each(|all| *all |= reasons),
            Err(error) if self.throttle.is_ok() => self.throttle = Err(error),
            Err(_) => {}
        }
    }
}

impl<'a> Watch<'a> {
    pub(super) fn new(nvml: Option<&'a Nvml>) -> Watch<'a> {
        Watch { nvml, seen: RefCell::default(), last: Cell::new(None) }
    }

    pub(super) fn sample_if_due(&self) {
        const AT_LEAST_BETWEEN: Duration = Duration::from_millis(5);
        if self.last.get().is_none_or(|last| last.elapsed() >= AT_LEAST_BETWEEN) {
            self.take_sample();
        }
    }

    /// Takes a sample. Returns the clock of the multiprocessors in MHz, if known.
    pub(super) fn take_sample(&self) -> Option<u32> {
        let state = self.nvml?.read_state();
        let clock = state.sm_clock_mhz.clone().ok();
        self.seen.borrow_mut().add_sample(state);
        self.last.set(Some(Instant::now()));
        clock
    }

    pub(super) fn clear_samples(&self) {
        self.seen.take();
        self.last.set(None);
    }

    pub(super) fn watched_run(&self) -> WatchedRun {
        self.seen.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(clock: u32, throttle: u64) -> BoardState {
        let missing = || NvmlError::Failed { call: "nvmlDeviceGetTemperature", why: "no such sensor".to_owned() };
        BoardState {
            sm_clock_mhz: Ok(clock),
            memory_clock_mhz: Ok(2619),
            power_mw: Ok(300_000),
            temperature_celsius: if clock == 0 { Err(missing()) } else { Ok(60) },
            throttle: Ok(throttle),
        }
    }

    #[test]
    fn a_batch_that_was_held_back_is_not_forgotten_by_later_ones() {
        let mut seen = WatchedRun::default();
        for look in [state(1980, 0), state(1410, 4), state(1980, 0)] {
            seen.add_sample(look);
        }
        assert_eq!(seen.throttle, Ok(4));
        assert_eq!(seen.sm_clock_mhz, Ok(vec![1980, 1410, 1980]));
    }

    #[test]
    fn a_figure_that_failed_once_is_refused() {
        let mut seen = WatchedRun::default();
        for look in [state(1980, 0), state(0, 0), state(1980, 0)] {
            seen.add_sample(look);
        }
        assert!(seen.temperature_celsius.is_err());
        assert_eq!(seen.power_mw.map(|seen| seen.len()), Ok(3));
    }
}
