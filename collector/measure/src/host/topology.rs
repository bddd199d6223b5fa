//! Cores, caches and NUMA nodes of CPUs. CPU numbers do not identify SMT siblings, whose numbering differs between
//! machines, so every multithreaded run uses [`Topology::order_cpus`].

use super::files::{Files, parse_size};
use crate::affinity::{self, AffinityError};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Cores, caches and NUMA nodes of CPUs. A CPU unknown to sysfs counts as a separate core.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topology {
    places: BTreeMap<usize, CorePlace>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct CorePlace {
    /// First SMT sibling of the core, which identifies the core.
    core: usize,
    node: Option<usize>,
    /// Core type: whether it is an efficiency core, and its capacity.
    kind: (bool, Option<String>),
    caches: Vec<Cache>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Cache {
    level: u32,
    size_bytes: u64,
    /// First CPU that shares the cache; with the level, it identifies the cache.
    first: usize,
}

/// What [`allowed_cpus`] returns, for messages.
pub const OF_THIS_PROCESS: &str = "the CPUs that this process may use";

/// Returns the usable CPUs in the order in which runs use them.
pub fn allowed_cpus() -> Result<Vec<usize>, AffinityError> {
    let allowed = affinity::allowed_cpus()?;
    Ok(Topology::read_topology(&allowed).order_cpus(&allowed))
}

impl Topology {
    pub fn read_topology(cpus: &[usize]) -> Topology {
        Topology::read_from(Path::new("/"), cpus)
    }

    pub fn read_from(root: &Path, cpus: &[usize]) -> Topology {
        let files = Files { root };
        let small: BTreeSet<usize> =
            files.cpu_list("sys/devices/cpu_atom/cpus").unwrap_or_default().into_iter().collect();
        let nodes = read_nodes(&files);
        let place = |cpu: usize| {
            let folder = format!("sys/devices/system/cpu/cpu{cpu}");
            let siblings = files.cpu_list(&format!("{folder}/topology/thread_siblings_list")).unwrap_or_default();
            CorePlace {
                core: siblings.first().copied().unwrap_or(cpu),
                node: nodes.get(&cpu).copied(),
                kind: (small.contains(&cpu), files.read_text(&format!("{folder}/cpu_capacity"))),
                caches: read_caches(&files, &folder),
            }
        };
        Topology { places: cpus.iter().map(|&cpu| (cpu, place(cpu))).collect() }
    }

    /// Orders CPUs so that a run on `n` threads uses the first `n`: first siblings of all cores, then second siblings,
    /// each grouped by NUMA node, last-level cache and core type, in order of their smallest CPU number.
    pub fn order_cpus(&self, cpus: &[usize]) -> Vec<usize> {
        let ascending: BTreeSet<usize> = cpus.iter().copied().collect();
        let (mut nodes, mut caches, mut kinds) = (Vec::new(), Vec::new(), Vec::new());
        let mut taken: BTreeMap<usize, usize> = BTreeMap::new();
        let mut ranked: Vec<([usize; 4], usize)> = Vec::new();
        for cpu in ascending {
            let place = self.core_place(cpu);
            let own = [
                index_or_insert(&mut nodes, place.node),
                index_or_insert(&mut caches, self.last_level(cpu).map(|cache| cache.first)),
                index_or_insert(&mut kinds, place.kind),
            ];
            let siblings_before = taken.entry(place.core).or_default();
            ranked.push(([*siblings_before, own[0], own[1], own[2]], cpu));
            *siblings_before += 1;
        }
        ranked.sort_unstable();
        ranked.into_iter().map(|(_, cpu)| cpu).collect()
    }

    pub fn count_cores(&self, cpus: &[usize]) -> usize {
        cpus.iter().map(|cpu| self.core_place(*cpu).core).collect::<BTreeSet<_>>().len()
    }

    pub fn with_siblings(&self, cpus: &[usize]) -> Vec<usize> {
        let cores: BTreeSet<usize> = cpus.iter().map(|cpu| self.core_place(*cpu).core).collect();
        let siblings = self.places.iter().filter(|(_, place)| cores.contains(&place.core)).map(|(cpu, _)| *cpu);
        cpus.iter().copied().chain(siblings).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns the NUMA nodes of the CPUs in ascending order; empty if sysfs lists none.
    pub fn numa_nodes(&self, cpus: &[usize]) -> Vec<usize> {
        let nodes: BTreeSet<usize> = cpus.iter().filter_map(|cpu| self.core_place(*cpu).node).collect();
        nodes.into_iter().collect()
    }

    /// Returns how many bytes each CPU writes to flush a cache of `bytes`: a share, at least twice its private caches.
    pub fn flush_shares(&self, cpus: &[usize], bytes: u64) -> Vec<u64> {
        let last = |cpu: usize| self.last_level(cpu).map(|cache| cache.first);
        let share = |&cpu: &usize| {
            let sharing = cpus.iter().filter(|other| last(**other) == last(cpu)).count() as u64;
            let caches = self.core_place(cpu).caches;
            let private = caches.iter().rev().skip(1).map(|cache| cache.size_bytes).sum::<u64>();
            bytes.div_ceil(sharing.max(1)).max(2 * private).min(bytes)
        };
        cpus.iter().map(share).collect()
    }

    /// Returns the cache levels of the CPUs, L1 first, each with the total size of its distinct caches.
    pub fn cache_levels(&self, cpus: &[usize]) -> Vec<(u32, u64)> {
        let caches = cpus.iter().flat_map(|cpu| self.core_place(*cpu).caches);
        let distinct: BTreeMap<(u32, usize), u64> =
            caches.map(|cache| ((cache.level, cache.first), cache.size_bytes)).collect();
        let mut levels: BTreeMap<u32, u64> = BTreeMap::new();
        distinct.into_iter().for_each(|((level, _), bytes)| *levels.entry(level).or_default() += bytes);
        levels.into_iter().collect()
    }

    fn core_place(&self, cpu: usize) -> CorePlace {
        self.places.get(&cpu).cloned().unwrap_or(CorePlace { core: cpu, ..CorePlace::default() })
    }

    fn last_level(&self, cpu: usize) -> Option<Cache> {
        self.core_place(cpu).caches.last().cloned()
    }
}

fn index_or_insert<T: PartialEq>(known: &mut Vec<T>, value: T) -> usize {
    known.iter().position(|one| *one == value).unwrap_or_else(|| {
        known.push(value);
        known.len() - 1
    })
}

fn read_nodes(files: &Files<'_>) -> BTreeMap<usize, usize> {
    let nodes = files.cpu_list("sys/devices/system/node/online").unwrap_or_default();
    let of_node = |node: usize| {
        let cpus = files.cpu_list(&format!("sys/devices/system/node/node{node}/cpulist")).unwrap_or_default();
        cpus.into_iter().map(move |cpu| (cpu, node))
    };
    nodes.into_iter().flat_map(of_node).collect()
}

fn read_caches(files: &Files<'_>, folder: &str) -> Vec<Cache> {
    const INDICES: usize = 16;
    let mut found: Vec<Cache> = (0..INDICES)
        .map_while(|index| {
            let text = |name: &str| files.read_text(&format!("{folder}/cache/index{index}/{name}"));
            let cache = Cache {
                level: text("level")?.parse().ok()?,
                size_bytes: parse_size(&text("size")?)?,
                first: *affinity::parse_cpu_list(&text("shared_cpu_list")?)?.first()?,
            };
            Some((text("type")?, cache))
        })
        .filter(|(kind, _)| kind != "Instruction")
        .map(|(_, cache)| cache)
        .collect();
    found.sort_by_key(|cache| cache.level);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct FakeCpu {
        siblings: &'static str,
        node: usize,
        last_level: &'static str,
        capacity: &'static str,
    }

    fn machine(fakes: &[FakeCpu]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("folder");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("folder");
            fs::write(path, format!("{text}\n")).expect("file");
        };
        let nodes: BTreeSet<usize> = fakes.iter().map(|one| one.node).collect();
        let list =
            |cpus: &mut dyn Iterator<Item = usize>| cpus.map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(",");
        write("sys/devices/system/node/online", &list(&mut nodes.iter().copied()));
        for node in nodes {
            let mut cpus = (0..fakes.len()).filter(|cpu| fakes[*cpu].node == node);
            write(&format!("sys/devices/system/node/node{node}/cpulist"), &list(&mut cpus));
        }
        for (cpu, one) in fakes.iter().enumerate() {
            let folder = format!("sys/devices/system/cpu/cpu{cpu}");
            write(&format!("{folder}/topology/thread_siblings_list"), one.siblings);
            if !one.capacity.is_empty() {
                write(&format!("{folder}/cpu_capacity"), one.capacity);
            }
            let caches = [
                (1, "Data", "32K", one.siblings),
                (1, "Instruction", "32K", one.siblings),
                (2, "Unified", "1M", one.siblings),
                (3, "Unified", "16M", one.last_level),
            ];
            for (index, (level, kind, size, shared)) in caches.into_iter().enumerate() {
                let folder = format!("{folder}/cache/index{index}");
                write(&format!("{folder}/level"), &level.to_string());
                write(&format!("{folder}/type"), kind);
                write(&format!("{folder}/size"), size);
                write(&format!("{folder}/shared_cpu_list"), shared);
            }
        }
        root
    }

    fn fake(siblings: &'static str, node: usize, last_level: &'static str) -> FakeCpu {
        FakeCpu { siblings, node, last_level, capacity: "" }
    }

    #[track_caller]
    fn check(fakes: &[FakeCpu], allowed: &[usize], order: &[usize]) {
        let root = machine(fakes);
        let found = Topology::read_from(root.path(), allowed).order_cpus(allowed);
        assert_eq!(found, order);
    }

    #[test]
    fn cores_come_before_their_second_threads() {
        let adjacent = || ["0-1", "0-1", "2-3", "2-3", "4-5", "4-5"].map(|siblings| fake(siblings, 0, "0-5"));
        check(&adjacent(), &[0, 1, 2, 3, 4, 5], &[0, 2, 4, 1, 3, 5]);
        check(&adjacent(), &[1, 2, 3], &[1, 2, 3]);
        check(&adjacent(), &[5, 4, 1], &[1, 4, 5]);
        let apart = || ["0,2", "1,3", "0,2", "1,3"].map(|siblings| fake(siblings, 0, "0-3"));
        check(&apart(), &[0, 1, 2, 3], &[0, 1, 2, 3]);
    }

    #[test]
    fn without_second_threads_numbers_decide() {
        check(&["0", "1", "2", "3"].map(|own| fake(own, 0, "0-3")), &[0, 1, 2, 3], &[0, 1, 2, 3]);
        check(&["0", "1", "2", "3"].map(|own| fake(own, 0, "0-3")), &[2, 3], &[2, 3]);
        let root = tempfile::tempdir().expect("folder");
        let nothing = Topology::read_from(root.path(), &[0, 1, 2]);
        assert_eq!(
            (nothing.order_cpus(&[0, 1, 2]), nothing.count_cores(&[0, 1, 2])),
            (vec![0, 1, 2], 3),
            "nothing is told"
        );
    }

    #[test]
    fn what_shares_memory_and_caches_comes_together() {
        // Consecutive CPU numbers alternate between two nodes.
        let nodes = || [("0", 0), ("1", 1), ("2", 0), ("3", 1)].map(|(own, node)| fake(own, node, own));
        check(&nodes(), &[0, 1, 2, 3], &[0, 2, 1, 3]);
        check(&nodes(), &[1, 2, 3], &[1, 3, 2]);
        // Cores of the other node come before second threads.
        let threads = [("0,4", 0), ("1,5", 0), ("2,6", 1), ("3,7", 1), ("0,4", 0), ("1,5", 0), ("2,6", 1), ("3,7", 1)];
        check(&threads.map(|(own, node)| fake(own, node, own)), &[0, 1, 2, 3, 4, 5, 6, 7], &[0, 1, 2, 3, 4, 5, 6, 7]);
        // CPU numbers alternate between two last-level caches.
        let caches = [("0", "0,2"), ("1", "1,3"), ("2", "0,2"), ("3", "1,3")];
        check(&caches.map(|(own, cache)| fake(own, 0, cache)), &[0, 1, 2, 3], &[0, 2, 1, 3]);
    }

    #[test]
    fn cores_of_one_kind_come_together() {
        let fakes = [("0", "446"), ("1", "1024"), ("2", "446"), ("3", "1024")];
        let fakes = fakes.map(|(own, capacity)| FakeCpu { capacity, ..fake(own, 0, "0-3") });
        check(&fakes, &[0, 1, 2, 3], &[0, 2, 1, 3]);
        // Two performance cores with two threads each, then efficiency cores.
        let hybrid = ["0-1", "0-1", "2-3", "2-3", "4", "5"].map(|siblings| fake(siblings, 0, "0-5"));
        let root = machine(&hybrid);
        fs::create_dir_all(root.path().join("sys/devices/cpu_atom")).expect("folder");
        fs::write(root.path().join("sys/devices/cpu_atom/cpus"), "4-5\n").expect("file");
        let all = [0, 1, 2, 3, 4, 5];
        assert_eq!(Topology::read_from(root.path(), &all).order_cpus(&all), [0, 2, 4, 5, 1, 3]);
    }

    #[test]
    fn cores_and_nodes_of_a_choice_are_known() {
        let fakes = [("0-1", 0), ("0-1", 0), ("2-3", 1), ("2-3", 1)].map(|(own, node)| fake(own, node, own));
        let root = machine(&fakes);
        let topology = Topology::read_from(root.path(), &[0, 1, 2, 3]);
        assert_eq!((topology.count_cores(&[0, 1]), topology.numa_nodes(&[0, 1])), (1, vec![0]));
        assert_eq!((topology.count_cores(&[0, 2]), topology.numa_nodes(&[0, 2])), (2, vec![0, 1]));
        assert_eq!(topology.numa_nodes(&[9]), [] as [usize; 0], "of another nothing is known");
        assert_eq!(topology.with_siblings(&[1]), [0, 1]);
        assert_eq!(topology.with_siblings(&[1, 2, 9]), [0, 1, 2, 3, 9]);
    }

    #[test]
    fn every_cache_of_a_choice_is_written_over() {
        let fakes = [("0", "0-1"), ("1", "0-1"), ("2", "2-3"), ("3", "2-3")].map(|(own, cache)| fake(own, 0, cache));
        let root = machine(&fakes);
        let topology = Topology::read_from(root.path(), &[0, 1, 2, 3]);
        assert_eq!(topology.flush_shares(&[0], 20 << 20), [20 << 20]);
        assert_eq!(topology.flush_shares(&[0, 1], 20 << 20), [10 << 20; 2]);
        assert_eq!(topology.flush_shares(&[0, 1, 2], 20 << 20), [10 << 20, 10 << 20, 20 << 20]);
        // The private caches have a megabyte and 32 KiB.
        assert_eq!(topology.flush_shares(&[0, 1], 3 << 20), [(2 << 20) + (64 << 10); 2]);
        assert_eq!(topology.flush_shares(&[0, 1], 1 << 16), [1 << 16; 2], "no more than asked for");
    }

    #[test]
    fn caches_that_are_shared_count_once() {
        let fakes = [("0-1", "0-3"), ("0-1", "0-3"), ("2-3", "0-3"), ("2-3", "0-3"), ("4", "4")];
        let root = machine(&fakes.map(|(own, cache)| fake(own, 0, cache)));
        let topology = Topology::read_from(root.path(), &[0, 1, 2, 3, 4]);
        let levels = |cores: u64, last: u64| vec![(1, cores * (32 << 10)), (2, cores << 20), (3, last * (16 << 20))];
        assert_eq!(topology.cache_levels(&[0]), levels(1, 1));
        assert_eq!(topology.cache_levels(&[0, 1]), levels(1, 1));
        assert_eq!(topology.cache_levels(&[0, 2]), levels(2, 1));
        assert_eq!(topology.cache_levels(&[0, 2, 4]), levels(3, 2));
        assert_eq!(topology.cache_levels(&[9]), []);
    }

    #[test]
    fn this_machine_has_an_order() {
        let mut order = allowed_cpus().expect("this process runs somewhere");
        order.sort_unstable();
        assert_eq!(order, affinity::allowed_cpus().expect("readable"));
    }
}
