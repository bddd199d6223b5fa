//! Which processors threads may use: read, set for the calling thread, and checked for the whole process.
//!
//! TVM's thread pool pins its caller, sometimes outside of the processors this process was given, and accepts numbers
//! that do not exist. So pinning is never assumed: after the pool exists, [`threads`] reads what the kernel holds.

use std::{fs, io};

use nix::{
    errno::Errno,
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};

/// Numbers at or above this are damage, not processors.
const CPUS_MAX: usize = 1 << 16;

/// Why affinity could not be read, set, or found as wished.
#[derive(Debug, thiserror::Error)]
pub enum AffinityError {
    /// The calling thread cannot be pinned as asked.
    #[error("cannot pin to processors {wanted:?}: {errno}; allowed are {allowed:?}")]
    Refused {
        /// What was asked for.
        wanted: Vec<usize>,
        /// What this thread may use.
        allowed: Vec<usize>,
        /// The system's reason.
        errno: Errno,
    },
    /// The allowed processors cannot be read.
    #[error("cannot read the allowed processors: {0}")]
    Unreadable(#[source] io::Error),
    /// Some thread may run elsewhere.
    #[error("thread {} (`{}`) may run on processors {:?}, outside of {wanted:?}", thread.tid, thread.name, thread.cpus)]
    Outside {
        /// Where all threads should stay.
        wanted: Vec<usize>,
        /// The first thread that does not.
        thread: ThreadMask,
    },
}

/// Where one thread of this process may run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadMask {
    /// The kernel's number of the thread.
    pub tid: i32,
    /// Its name; threads inherit the name of their maker.
    pub name: String,
    /// The processors it may use.
    pub cpus: Vec<usize>,
}

/// The processors the calling thread may use, in ascending order: what a job scheduler or container left us.
pub fn allowed() -> Result<Vec<usize>, AffinityError> {
    let set = sched_getaffinity(Pid::from_raw(0)).map_err(|errno| AffinityError::Unreadable(errno.into()))?;
    Ok((0..CpuSet::count()).filter(|&cpu| set.is_set(cpu) == Ok(true)).collect())
}

/// Pins the calling thread to exactly these processors. Threads it starts later inherit this.
pub fn pin(cpus: &[usize]) -> Result<(), AffinityError> {
    set_affinity(cpus).map_err(|errno| AffinityError::Refused {
        wanted: cpus.to_vec(),
        allowed: allowed().unwrap_or_default(),
        errno,
    })
}

/// Pins the calling thread, and each other thread of this process, to exactly these processors.
pub fn pin_all(cpus: &[usize]) -> Result<(), AffinityError> {
    pin(cpus)?;
    let set = set_of(cpus).map_err(|errno| AffinityError::Unreadable(errno.into()))?;
    for thread in threads()? {
        // It may have ended; whoever is left outside is found by `verify`.
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
    // The kernel drops processors that do not exist or are not ours without a word.
    let given = sched_getaffinity(Pid::from_raw(0))?;
    if given == set { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Where every thread of this process may run now. Threads that end while we look are left out.
pub fn threads() -> Result<Vec<ThreadMask>, AffinityError> {
    let mut masks: Vec<ThreadMask> = fs::read_dir("/proc/self/task")
        .map_err(AffinityError::Unreadable)?
        .filter_map(|entry| parse_status(&fs::read_to_string(entry.ok()?.path().join("status")).ok()?))
        .collect();
    masks.sort_by_key(|mask| mask.tid);
    Ok(masks)
}

/// Checks that no thread of this process may run outside of `cpus`.
pub fn verify(cpus: &[usize]) -> Result<Vec<ThreadMask>, AffinityError> {
    let masks = threads()?;
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

/// Reads the kernel's notation for sets of processors, such as `0-3,8`; `None` when it is something else.
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
        // On a thread of its own, since pinning lasts as long as the thread.
        std::thread::spawn(|| {
            let first = allowed().expect("this thread runs somewhere")[0];
            pin(&[first]).expect("it runs there already");
            assert_eq!(allowed().expect("readable"), [first]);
            std::thread::spawn(move || {
                let own = nix::unistd::gettid().as_raw();
                let masks = threads().expect("procfs");
                let mask = masks.iter().find(|mask| mask.tid == own).expect("this thread is among them");
                assert_eq!(mask.cpus, [first]);
            })
            .join()
            .expect("child");
            let error = pin(&[CPUS_MAX]).expect_err("no such processor").to_string();
            assert!(error.starts_with("cannot pin to processors [65536]: EINVAL"), "{error}");
        })
        .join()
        .expect("thread");
    }

    #[test]
    fn a_thread_outside_is_named() {
        let error = verify(&[]).expect_err("no thread can run nowhere").to_string();
        assert!(error.contains("outside of []"), "{error}");
        let everywhere: Vec<usize> = (0..CPUS_MAX).collect();
        assert!(!verify(&everywhere).expect("all are inside").is_empty());
    }
}
