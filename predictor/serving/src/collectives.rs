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
    /// Each token is sent from its rank to those of its experts, or results back.
    AllToAll {
        /// Bytes of all tokens, each counted once.
        bytes: f64,
        ranks: u64,
        /// Number of equal parts into which the ranks divide the experts.
        parts: u64,
        /// Experts of a token.
        top_k: u64,
    },
}

impl Collective {
    pub fn rank_count(&self) -> u64 {
        match *self {
            Collective::AllReduce { ranks, .. }
            | Collective::AllGather { ranks, .. }
            | Collective::AllToAll { ranks, .. } => ranks,
        }
    }

    /// Returns the bytes that each of `domains` exchanges at least, if the ranks are divided evenly into them.
    fn exchanged_bytes(&self, domains: u64) -> f64 {
        let share = (domains - 1) as f64 / domains as f64;
        match *self {
            Collective::AllReduce { bytes, .. } => 2.0 * share * bytes,
            Collective::AllGather { bytes, .. } => share * bytes,
            Collective::AllToAll { bytes, parts, top_k, .. } => {
                share * bytes * reached_share(parts.min(domains), top_k)
            }
        }
    }

    /// Returns a lower bound of the time: latency, plus the bytes that each GPU sends or receives over its link, or those
    /// of a host through the cards of its GPUs if that takes longer.
    pub fn bound_seconds(&self, device: &GpuFacts) -> f64 {
        let ranks = self.rank_count();
        if ranks < 2 {
            return 0.0;
        }
        let on_links = self.exchanged_bytes(ranks) / device.link_bytes_per_s;
        let hosts = ranks.div_ceil(joined_devices(device));
        if hosts < 2 {
            return LINK_LATENCY_S + on_links;
        }
        let cards = ranks as f64 / hosts as f64;
        NETWORK_LATENCY_S + on_links.max(self.exchanged_bytes(hosts) / (cards * NETWORK_BYTES_PER_S))
    }
}

/// Returns the expected share of equal parts of the experts in which a token has at least one of its `top_k` experts.
fn reached_share(parts: u64, top_k: u64) -> f64 {
    1.0 - (1.0 - 1.0 / parts as f64).powf(top_k as f64)
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

    #[test]
    fn tokens_go_only_where_their_experts_are() {
        let gb200 = find_device("gb200").expect("a known device");
        let h100 = find_device("h100_sxm").expect("a known device");
        let gather = |ranks, device| Collective::AllGather { bytes: 1e9, ranks }.bound_seconds(device);
        let exchange = |ranks, parts, top_k, device| {
            Collective::AllToAll { bytes: 1e9, ranks, parts, top_k }.bound_seconds(device)
        };
        // With one part, every rank has a share of every expert.
        assert_eq!(exchange(8, 1, 8, h100), gather(8, h100));
        // Of 64 ranks, a token reaches 64 · (1 - (63/64)^8) = 7.57.
        let ratio = (exchange(64, 64, 8, gb200) - LINK_LATENCY_S) / (gather(64, gb200) - LINK_LATENCY_S);
        assert!((ratio - 7.57 / 64.0).abs() < 1e-3, "{ratio}");
        // Between hosts, a token is sent at most once to each: with 8 experts, to 5.25 of 8 hosts.
        let between = exchange(64, 64, 8, h100) - NETWORK_LATENCY_S;
        assert!((between - 0.875e9 * 5.25 / 8.0 / (8.0 * NETWORK_BYTES_PER_S)).abs() < 1e-5, "{between}");
    }
}
