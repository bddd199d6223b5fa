//! CPU affinity: reads, sets and checks it. TVM's thread pool pins its caller, sometimes outside of the CPUs of this
//! process, and accepts CPU numbers that do not exist, so [`thread_masks`] reads the actual affinity of its threads.

use std::{fs, io};

use nix::{
    errno::Errno,
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};

/// Limit on CPU numbers; larger numbers indicate damaged input.
const CPUS_MAX: usize = 1 << 16;

#[derive(Debug, thiserror::Error)]
pub enum AffinityError {
    #[error("cannot pin to processors {wanted:?}: {errno}; allowed are {allowed:?}")]
    Refused { wanted: Vec<usize>, allowed: Vec<usize>, errno: Errno },
    #[error("cannot read the allowed processors: {0}")]
    Unreadable(#[source] io::Error),
    #[error("thread {} (`{}`) may run on processors {:?}, outside of {wanted:?}", thread.tid, thread.name, thread.cpus)]
    Outside { wanted: Vec<usize>, thread: ThreadMask },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadMask {
    pub tid: i32,
    /// Name of the thread, inherited from the thread that created it.
    pub name: String,
    pub cpus: Vec<usize>,
}

/// Returns the calling thread's CPUs in ascending order; a job scheduler or container may restrict them.
pub fn allowed_cpus() -> Result<Vec<usize>, AffinityError> {
    let set = sched_getaffinity(Pid::from_raw(0)).map_err(|errno| AffinityError::Unreadable(errno.into()))?;
    Ok((0..CpuSet::count()).filter(|&cpu| set.is_set(cpu) == Ok(true)).collect())
}

/// Pins the calling thread to these CPUs. Threads started later inherit the affinity.
pub fn pin_thread(cpus: &[usize]) -> Result<(), AffinityError> {
    set_affinity(cpus).map_err(|errno| AffinityError::Refused {
        wanted: cpus.to_vec(),
        allowed: allowed_cpus().unwrap_or_default(),
        errno,
    })
}

pub fn pin_all(cpus: &[usize]) -> Result<(), AffinityError> {
    pin_thread(cpus)?;
    let set = set_of(cpus).map_err(|errno| AffinityError::Unreadable(errno.into()))?;
    for thread in thread_masks()? {
        // The thread may have ended; `verify_pinning` reports threads that stayed outside.
        let _ = sched_setaffinity(Pid::from_raw(thread.tid), &set);
    }
    Ok(())
}

fn set_of(cpus: &[usize]) -> nix::Result<CpuSet> {
    let mut set = CpuSet::new();
    cpus.iter().try_for_each(|&cpu| set.set(cpu))?;
    Ok(set)
}

fn set_affinity(cpus: &[usize]) -> nix::Result<()> {
    let set = set_of(cpus)?;
    sched_setaffinity(Pid::from_raw(0), &set)?;
    // The kernel silently drops CPUs that do not exist or are not allowed.
    let given = sched_getaffinity(Pid::from_raw(0))?;
    if given == set { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Returns the affinity of every thread of this process, without threads that end meanwhile.
pub fn thread_masks() -> Result<Vec<ThreadMask>, AffinityError> {
    let mut masks: Vec<ThreadMask> = fs::read_dir("/proc/self/task")
        .map_err(AffinityError::Unreadable)?
        .filter_map(|entry| parse_status(&fs::read_to_string(entry.ok()?.path().join("status")).ok()?))
        .collect();
    masks.sort_by_key(|mask| mask.tid);
    Ok(masks)
}

/// Checks that no thread of this process may run outside of `cpus`; returns the affinity of all threads.
pub fn verify_pinning(cpus: &[usize]) -> Result<Vec<ThreadMask>, AffinityError> {
    let masks = thread_masks()?;
    match masks.iter().find(|mask| mask.cpus.iter().any(|cpu| !cpus.contains(cpu))) {
        None => Ok(masks),
        Some(thread) => Err(AffinityError::Outside { wanted: cpus.to_vec(), thread: thread.clone() }),
    }
}

fn parse_status(status: &str) -> Option<ThreadMask> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    Some(ThreadMask {
        tid: field("Pid:")?.parse().ok()?,
        name: field("Name:")?.to_string(),
        cpus: parse_cpu_list(field("Cpus_allowed_list:")?)?,
    })
}

/// Parses a CPU list in the Linux kernel's format, such as `0-3,8`.
pub fn parse_cpu_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
        if cpus.len() > CPUS_MAX {
            return None;
        }
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read_or_refused() {
        let table: &[(&str, Option<&[usize]>)] = &[
            ("0-3,8\n", Some(&[0, 1, 2, 3, 8])),
            ("5", Some(&[5])),
            ("", Some(&[])),
            ("3-1", None),
            ("0-4000000000", None),
            ("a", None),
            ("-1", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse_cpu_list(text).as_deref(), *expected, "{text:?}");
        }
    }

    #[test]
    fn a_pinned_thread_and_its_children_are_seen_pinned() {
        // Uses a new thread, because a pinned thread stays pinned.
        std::thread::spawn(|| {
            let first = allowed_cpus().expect("this thread runs somewhere")[0];
            pin_thread(&[first]).expect("it runs there already");
            assert_eq!(allowed_cpus().expect("readable"), [first]);
            std::thread::spawn(move || {
                let own = nix::unistd::gettid().as_raw();
                let masks = thread_masks().expect("procfs");
                let mask = masks.iter().find(|mask| mask.tid == own).expect("this thread is among them");
                assert_eq!(mask.cpus, [first]);
            })
            .join()
            .expect("child");
            let error = pin_thread(&[CPUS_MAX]).expect_err("no such processor").to_string();
            assert!(error.starts_with("cannot pin to processors [65536]: EINVAL"), "{error}");
        })
        .join()
        .expect("thread");
    }

    #[test]
    fn a_thread_outside_is_named() {
        let error = verify_pinning(&[]).expect_err("no thread can run nowhere").to_string();
        assert!(error.contains("outside of []"), "{error}");
        let everywhere: Vec<usize> = (0..CPUS_MAX).collect();
        assert!(!verify_pinning(&everywhere).expect("all are inside").is_empty());
    }
}
