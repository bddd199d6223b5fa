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

    pub fn sent_bytes(&self) -> f64 {
        let share = |ranks: u64| (ranks - 1) as f64 / ranks as f64;
        match *self {
            Collective::AllReduce { bytes, ranks } => 2.0 * share(ranks) * bytes,
            Collective::AllGather { bytes, ranks } | Collective::ReduceScatter { bytes, ranks } => share(ranks) * bytes,
        }
    }

    /// Returns a lower bound of the time: latency, plus the bytes sent over the slowest link.
    pub fn bound_seconds(&self, device: &GpuFacts) -> f64 {
        if self.rank_count() < 2 {
            return 0.0;
        }
        let (bandwidth, latency) = match self.rank_count() <= joined_devices(device) {
            true => (device.link_bytes_per_s, LINK_LATENCY_S),
            false => (NETWORK_BYTES_PER_S.min(device.link_bytes_per_s), NETWORK_LATENCY_S),
        };
        latency + self.sent_bytes() / bandwidth
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
        assert!(time(1e9, 16, h100) > 5.0 * eight);
        assert!(time(1e9, 16, gb200) < eight);
        let gather = Collective::AllGather { bytes: 1e9, ranks: 8 }.bound_seconds(h100);
        assert!((gather - LINK_LATENCY_S) * 1.99 < eight - LINK_LATENCY_S);
    }
}
