//! Observers of the calls of a run.

use super::Watch;
use measure::Clock;
use measure::counters::{CounterReader, Reading};

pub(super) struct TimeWatcher<'a, C> {
    pub clock: &'a mut C,
    pub stamps: &'a mut [u64],
}

impl<C: Clock> Watch for TimeWatcher<'_, C> {
    #[inline]
    fn begin_call(&mut self, call: usize) {
        self.stamps[2 * call] = self.clock.now_ns();
    }

    #[inline]
    fn end_call(&mut self, call: usize) {
        self.stamps[2 * call + 1] = self.clock.now_ns();
    }
}

pub(super) struct CountWatcher<'a> {
    pub counters: &'a mut dyn CounterReader,
    pub channels: usize,
    pub calls: usize,
    pub readings: &'a mut [Option<Reading>],
}

impl CountWatcher<'_> {
    fn read_counters(&mut self, row: usize) {
        self.counters.read_channels(&mut self.readings[row * self.channels..][..self.channels]);
    }
}

impl Watch for CountWatcher<'_> {
    fn begin_call(&mut self, call: usize) {
        self.read_counters(call);
    }

    fn end_call(&mut self, call: usize) {
        // The reading before the next call also ends the current one, so only the last call needs its own.
        if call + 1 == self.calls {
            self.read_counters(call + 1);
        }
    }
}
