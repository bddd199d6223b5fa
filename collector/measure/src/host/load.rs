//! Disturbance of this machine by other processes, by its hypervisor host and by thermal throttling.

use serde::Serialize;
use std::path::Path;

/// Cumulative CPU times from the kernel, in ticks, and the number of thermal throttling events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadReading {
    busy: u64,
    stolen: u64,
    all: u64,
    /// CPU time of this process and its descendants, in ticks.
    own: u64,
    throttled: u64,
    cpus: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Load {
    pub others_cpus: f64,
    pub cpus: u64,
    /// Share of the CPU time that the hypervisor gave to other guests (steal time).
    pub stolen_share: f64,
    pub throttled: u64,
}

impl LoadReading {
    pub fn now() -> Option<LoadReading> {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        let own = own_ticks();
        Some(LoadReading { own, throttled: throttle_count(), ..LoadReading::parse_stat(&stat)? })
    }

    /// Parses the first line of `/proc/stat`: ticks in user, nice, system, idle, iowait, irq, softirq and steal.
    fn parse_stat(stat: &str) -> Option<LoadReading> {
        let mut fields = stat.lines().next()?.split_ascii_whitespace();
        fields.next().filter(|name| *name == "cpu")?;
        let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).take(8).collect();
        let [user, nice, system, idle, waiting, interrupts, soft, stolen] = ticks.try_into().ok()?;
        let busy = user + nice + system + interrupts + soft;
        let is_cpu = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
        let cpus = stat.lines().filter(is_cpu).count() as u64;
        Some(LoadReading { busy, stolen, all: busy + idle + waiting + stolen, cpus, ..LoadReading::default() })
    }

    pub fn load_since(&self, earlier: &LoadReading) -> Load {
        let all = self.all.saturating_sub(earlier.all).max(1) as f64;
        let busy = self.busy.saturating_sub(earlier.busy);
        let others = busy.saturating_sub(self.own.saturating_sub(earlier.own));
        Load {
            others_cpus: others as f64 / all * self.cpus as f64,
            cpus: self.cpus,
            stolen_share: self.stolen.saturating_sub(earlier.stolen) as f64 / all,
            throttled: self.throttled.saturating_sub(earlier.throttled),
        }
    }
}

impl Load {
    /// Describes the disturbance by other processes, the hypervisor and throttling; None on a quiet machine.
    pub fn describe_disturbance(&self) -> Option<String> {
        /// Number of CPUs below which load is attributed to the kernel's own work.
        const OTHERS_CPUS: f64 = 0.1;
        const STOLEN_SHARE: f64 = 0.01;
        let mut parts = Vec::new();
        if self.others_cpus > OTHERS_CPUS {
            parts.push(format!("other processes use {:.1} of {} CPUs", self.others_cpus, self.cpus));
        }
        if self.stolen_share > STOLEN_SHARE {
            parts.push(format!("the hypervisor takes {:.0} % of the CPU time (steal time)", 100.0 * self.stolen_share));
        }
        if self.throttled > 0 {
            parts.push(format!("{} thermal throttling events", self.throttled));
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

fn own_ticks() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let children = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let children = children.collect::<Vec<String>>().join(" ");
    let processes = std::iter::once("self").chain(children.split_ascii_whitespace());
    processes.filter_map(|process| ticks_of(&std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?)).sum()
}

/// Sums fields 14 to 17 of `/proc/<pid>/stat`, counted from the end of the process name, which may contain spaces.
fn ticks_of(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let times: Vec<u64> =
        fields.split_ascii_whitespace().skip(11).take(4).map_while(|field| field.parse().ok()).collect();
    Some(times.iter().sum())
}

fn throttle_count() -> u64 {
    let cpus = std::fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
    let count = |folder: &Path| -> Option<u64> {
        std::fs::read_to_string(folder.join("thermal_throttle/core_throttle_count")).ok()?.trim().parse().ok()
    };
    cpus.filter_map(|cpu| count(&cpu.path())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str =
        "cpu  100 0 50 850 0 0 0 0 0 0\ncpu0 50 0 25 425 0 0 0 0 0 0\ncpu1 50 0 25 425 0 0 0 0 0 0\nintr 1\n";
    const AFTER: &str = "cpu  250 0 100 1590 0 5 5 50 0 0\ncpu0 1\ncpu1 1\nintr 9\n";

    #[test]
    fn what_others_use_is_what_is_not_ours() {
        let before = LoadReading::parse_stat(BEFORE).unwrap();
        let after = LoadReading { own: 110, throttled: 3, ..LoadReading::parse_stat(AFTER).unwrap() };
        let load = after.load_since(&before);
        assert_eq!(load, Load { others_cpus: 0.2, cpus: 2, stolen_share: 0.05, throttled: 3 });
        let told = load.describe_disturbance().unwrap();
        assert_eq!(
            told,
            "other processes use 0.2 of 2 CPUs, the hypervisor takes 5 % of the CPU time (steal time), 3 thermal \
             throttling events"
        );
        assert_eq!(before.load_since(&before).describe_disturbance(), None);
    }

    #[test]
    fn texts_that_are_none_tell_nothing() {
        assert_eq!(LoadReading::parse_stat(""), None);
        assert_eq!(LoadReading::parse_stat("cpu 1 2 3\n"), None);
        assert_eq!(ticks_of("12 (a) b) c) S 1 2 3 4 5 6 7 8 9 10 20 30 40 50 60"), Some(140));
        assert_eq!(ticks_of("nonsense"), None);
    }

    #[test]
    fn own_work_is_not_that_of_others() {
        let (before, start) = (own_ticks(), std::time::Instant::now());
        while own_ticks() < before + 20 && start.elapsed() < std::time::Duration::from_secs(60) {
            std::hint::black_box((0..10_000).sum::<u64>());
        }
        assert!(own_ticks() >= before + 20);
    }
}
