//! Totals for the summary boxes of the workbook. They exclude only waits; `summary` excludes all system commands.

use crate::tpu::chip::Engine;
use crate::tpu::event::{Event, dma, tiu};
use crate::tpu::summary::Moved;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TiuSums {
    pub count: u64,
    /// Cycles of all commands except waits.
    pub cycles: i64,
    pub waits: i64,
    /// Minimum number of cycles that the algorithm needs.
    pub algorithm: u128,
    /// Number of operations that the algorithm needs, without padding.
    pub asked: u128,
    /// Number of operations that the hardware executes, including padding.
    pub done: u128,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DmaSums {
    pub cycles: i64,
    pub waits: i64,
    pub stalls: u64,
    pub ddr: Moved,
    pub l2: Moved,
}

pub fn sum_tiu<'a>(events: impl Iterator<Item = Event<'a>>) -> (TiuSums, Vec<(&'static str, TiuSums)>) {
    let mut kinds: Vec<(&'static str, TiuSums)> = Vec::new();
    for event in events {
        let kind = event.operation_names().kind;
        let place = kinds.iter().position(|(known, _)| std::ptr::eq(*known, kind) || *known == kind);
        let place = place.unwrap_or_else(|| {
            kinds.push((kind, TiuSums::default()));
            kinds.len() - 1
        });
        let (work, sums) = (tiu::event_work(&event), &mut kinds[place].1);
        let is_wait = !event.is_rvt() && event.operation_codes() == (Some(Engine::Tiu.system_op()), 9);
        sums.count += 1;
        *(if is_wait { &mut sums.waits } else { &mut sums.cycles }) += event.record.cycles;
        sums.algorithm += work.cycles;
        sums.asked += work.asked;
        sums.done += work.done;
    }
    let total = kinds.iter().fold(TiuSums::default(), |total, (_, sums)| TiuSums {
        count: total.count + sums.count,
        cycles: total.cycles + sums.cycles,
        waits: total.waits + sums.waits,
        algorithm: total.algorithm + sums.algorithm,
        asked: total.asked + sums.asked,
        done: total.done + sums.done,
    });
    (total, kinds)
}

pub fn sum_dma<'a>(events: impl Iterator<Item = Event<'a>>) -> DmaSums {
    let mut sums = DmaSums::default();
    for event in events {
        sums.add_event(&event);
    }
    sums
}

impl DmaSums {
    pub fn add_event(&mut self, event: &Event<'_>) {
        let traffic = dma::event_traffic(event);
        self.cycles += event.record.cycles;
        self.stalls += traffic.stall;
        if event.is_system() {
            let (_, sub) = event.operation_codes();
            let is_wait = sub == 4 || event.engine == Engine::Cdma && sub == 6;
            self.waits += if is_wait { event.record.cycles } else { 0 };
            return;
        }
        if event.engine == Engine::Cdma && traffic.bytes == 0 {
            return;
        }
        let moved = if traffic.touches_ddr() {
            &mut self.ddr
        } else if traffic.touches_l2() {
            &mut self.l2
        } else {
            return;
        };
        moved.bytes += traffic.bytes;
        moved.cycles += event.record.cycles;
    }

    pub fn working_cycles(&self) -> i64 {
        self.cycles - self.waits
    }

    pub fn plus(self, other: DmaSums) -> DmaSums {
        let moved = |a: Moved, b: Moved| Moved { bytes: a.bytes + b.bytes, cycles: a.cycles + b.cycles };
        DmaSums {
            cycles: self.cycles + other.cycles,
            waits: self.waits + other.waits,
            stalls: self.stalls + other.stalls,
            ddr: moved(self.ddr, other.ddr),
            l2: moved(self.l2, other.l2),
        }
    }
}
