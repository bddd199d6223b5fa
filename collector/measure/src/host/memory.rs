//! The memory limits of this process.
#![allow(
    clippy::useless_conversion,
    clippy::unnecessary_fallible_conversions,
    reason = "limits have 32 bits on 32-bit Arm"
)]

use super::files::Files;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, rlim_t, setrlimit};
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// Returns the lowest memory limit of control groups (versions 1 and 2) and this process, and its source; cached.
pub fn memory_limit() -> Option<(u64, String)> {
    static FOUND: OnceLock<Option<(u64, String)>> = OnceLock::new();
    FOUND.get_or_init(find_limit).clone()
}

fn find_limit() -> Option<(u64, String)> {
    let mut limits: Vec<(u64, String)> = Vec::new();
    for line in fs::read_to_string("/proc/self/cgroup").unwrap_or_default().lines() {
        let (folder, file, group) = match line.splitn(3, ':').collect::<Vec<_>>()[..] {
            [_, "", group] => ("/sys/fs/cgroup", "memory.max", group),
            [_, "memory", group] => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", group),
            _ => continue,
        };
        // Limits of all ancestor groups apply, too. The group's path may be relative to a root outside of this mount.
        let groups = Path::new(group.trim_start_matches('/')).ancestors();
        let files = groups.map(|group| Path::new(folder).join(group).join(file));
        let bytes = files.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok());
        limits.extend(bytes.map(|bytes| (bytes, "control group".to_owned())));
    }
    for (resource, name) in [(Resource::RLIMIT_AS, "address space"), (Resource::RLIMIT_DATA, "data")] {
        if let Ok((soft, _)) = getrlimit(resource)
            && soft != RLIM_INFINITY
        {
            limits.push((u64::from(soft), format!("the process's limit {name}")));
        }
    }
    limits.into_iter().min()
}

/// Limits this process to the memory of machine and control group: allocations fail before the kernel kills processes.
pub fn limit_private_memory() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_DATA) else { return };
    let limit = memory_limit().map_or(u64::MAX, |(bytes, _)| bytes);
    let most = Files { root: Path::new("/") }.memory_bytes().unwrap_or(u64::MAX).min(limit);
    let bytes = rlim_t::try_from(most).unwrap_or(RLIM_INFINITY).min(hard);
    if bytes < soft {
        // The limit is only a safeguard, so a failure is ignored.
        let _ = setrlimit(Resource::RLIMIT_DATA, bytes, hard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_the_memory_of_the_machine_and_no_limit_of_others() {
        let before = memory_limit();
        limit_private_memory();
        assert_eq!(memory_limit(), before);
        let (soft, _) = getrlimit(Resource::RLIMIT_DATA).unwrap();
        assert!((64 << 20..1 << 50).contains(&soft), "{soft}");
    }
}
