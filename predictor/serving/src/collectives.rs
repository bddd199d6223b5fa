//! Collective transfers between the GPUs of a replica, bounded by the bandwidth of their links.

use crate::device::GpuFacts;
use serde::Serialize;

const HOST_DEVICES: u64 = 8;
const RACK_DEVICES: u64 = 72;
/// Network bandwidth per GPU and direction: one 400 Gbit/s card each.
const NETWORK_BYTES_PER_S: f64 = 5e10;
/// Latency of a transfer, both on the fast link and through the network.
const LINK_LATENCY_S: f64 = 4e-6;
const NETWORK_LATENCY_S: f64 = 2e-5;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    AllReduce {
        bytes: f64,
        ranks: u64,
    },
    AllGather {
        /// Total bytes of the parts of all ranks.
        bytes: f64,
        ranks: u64,
    },
    ReduceScatter {
        bytes: f64,
        ranks: u64,
    },
}

impl Collective {
    pub fn rank_count(&self) -> u64 {
        match *self {
            Collective::AllReduce { ranks, .. }
            | Collective::AllGather { ranks, .. }
            | Collective::ReduceScatter { ranks, .. } => ranks,
        }
    }

    /// Returns the bytes that each of `parts` sends at least, if the ranks are divided evenly into them.
    fn sent_bytes(&self, parts: u64) -> f64 {
        let share = (parts - 1) as f64 / parts as f64;
        match *self {
            Collective::AllReduce { bytes, .. } => 2.0 * share * bytes,
            Collective::AllGather { bytes, .. } | Collective::ReduceScatter { bytes, .. } => share * bytes,
        }
    }

    /// Returns a lower bound of the time: latency, plus the bytes that each GPU sends over its link, or the bytes that a
    /// host sends through the cards of its GPUs if that takes longer.
    pub fn bound_seconds(&self, device: &GpuFacts) -> f64 {
        let ranks = self.rank_count();
        if ranks < 2 {
            return 0.0;
        }
        let on_links = self.sent_bytes(ranks) / device.link_bytes_per_s;
        let hosts = ranks.div_ceil(joined_devices(device));
        if hosts < 2 {
            return LINK_LATENCY_S + on_links;
        }
        let cards = ranks as f64 / hosts as f64;
        NETWORK_LATENCY_S + on_links.max(self.sent_bytes(hosts) / (cards * NETWORK_BYTES_PER_S))
    }
}

/// Returns the number of GPUs that the fast link joins: those of a host, or of a rack for Grace hosts.
fn joined_devices(device: &GpuFacts) -> u64 {
    if device.system.starts_with("gb") { RACK_DEVICES } else { HOST_DEVICES }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::find_device;

    #[test]
    fn times_follow_bytes_and_links() {
        let h100 = find_device("h100_sxm").expect("a known device");
        let gb200 = find_device("gb200").expect("a known device");
        let time = |bytes, ranks, device| Collective::AllReduce { bytes, ranks }.bound_seconds(device);
        assert_eq!(time(1e6, 1, h100), 0.0);
        let eight = time(1e9, 8, h100);
        assert!((eight - (2.0 * 0.875e9 / h100.link_bytes_per_s + LINK_LATENCY_S)).abs() < 1e-9, "{eight}");
        // Each of two hosts sends its sums once, through eight cards; the links within a host take longer.
        let sixteen = time(1e9, 16, h100);
        assert!((sixteen - (2.0 * 0.9375e9 / h100.link_bytes_per_s + NETWORK_LATENCY_S)).abs() < 1e-9, "{sixteen}");
        let l40s = find_device("l40s").expect("a known device");
        let pair = Collective::AllGather { bytes: 1e9, ranks: 9 }.bound_seconds(l40s);
        assert!(pair >= 0.5e9 / (4.5 * NETWORK_BYTES_PER_S), "{pair}");
        assert!(time(1e9, 16, gb200) < eight);
        let gather = Collective::AllGather { bytes: 1e9, ranks: 8 }.bound_seconds(h100);
        assert!((gather - LINK_LATENCY_S) * 1.99 < eight - LINK_LATENCY_S);
    }
}
