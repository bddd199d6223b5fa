//! Partitions of the last-level cache, made by the kernel's resource control (`resctrl`), which assigns cache ways to
//! groups of CPUs. Tests pass another root folder.

use std::fs;
use std::path::{Path, PathBuf};

pub const RESCTRL: &str = "/sys/fs/resctrl";

/// Allocated partitions, released on drop.
#[derive(Debug)]
pub struct CacheShares {
    groups: Vec<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum CacheShareError {
    #[error(
        "`{0}` shows no last-level cache that can be partitioned; mount resctrl as root, on a processor with cache \
         allocation"
    )]
    Missing(PathBuf),
    #[error("`{path}` has {found:?}, which is not a bit mask of cache ways", path = path.display())]
    Mask { path: PathBuf, found: String },
    #[error("the last-level cache has {ways} ways, too few for {members} shares of {share}")]
    Ways { ways: u32, members: usize, share: String },
    #[error("cannot write `{path}`: {why}", path = path.display())]
    Refused { path: PathBuf, why: String },
}

pub fn check_partitioning(root: &Path) -> Result<(), CacheShareError> {
    count_ways(root).map(drop)
}

fn count_ways(root: &Path) -> Result<u32, CacheShareError> {
    let path = root.join("info/L3/cbm_mask");
    let text = fs::read_to_string(&path).map_err(|_| CacheShareError::Missing(root.to_owned()))?;
    let found = text.trim();
    let mask = u64::from_str_radix(found, 16)
        .ok()
        .filter(|mask| *mask > 0 && mask.trailing_ones() == 64 - mask.leading_zeros());
    mask.map(u64::count_ones).ok_or_else(|| CacheShareError::Mask { path, found: found.to_owned() })
}

impl CacheShares {
    pub fn take_shares(root: &Path, groups: &[&[usize]], share: f64) -> Result<CacheShares, CacheShareError> {
        let ways = count_ways(root)?;
        let own = ((f64::from(ways) * share) as u32).max(1);
        if u64::from(own) * groups.len() as u64 > u64::from(ways) {
            return Err(CacheShareError::Ways { ways, members: groups.len(), share: share.to_string() });
        }
        let write = |path: PathBuf, text: &str| {
            fs::write(&path, text).map_err(|error| CacheShareError::Refused { path, why: error.to_string() })
        };
        let domains = cache_domains(&fs::read_to_string(root.join("schemata")).unwrap_or_default());
        let mut taken = CacheShares { groups: Vec::new() };
        for (place, cpus) in groups.iter().enumerate() {
            let folder = root.join(format!("opcollect-{}-{place}", std::process::id()));
            fs::create_dir(&folder)
                .map_err(|error| CacheShareError::Refused { path: folder.clone(), why: error.to_string() })?;
            taken.groups.push(folder.clone());
            let mask = ((1u64 << own) - 1) << (own as usize * place);
            let lines: Vec<String> = domains.iter().map(|domain| format!("{domain}={mask:x}")).collect();
            write(folder.join("schemata"), &format!("L3:{}\n", lines.join(";")))?;
            let list: Vec<String> = cpus.iter().map(usize::to_string).collect();
            write(folder.join("cpus_list"), &format!("{}\n", list.join(",")))?;
        }
        Ok(taken)
    }
}

impl Drop for CacheShares {
    fn drop(&mut self) {
        for group in &self.groups {
            // The kernel removes the files of a group with its folder.
            let _ = fs::remove_dir(group);
        }
    }
}

/// Returns the last-level caches' numbers in a line such as `L3:0=fff;1=fff`; only `0` without such a line.
fn cache_domains(schemata: &str) -> Vec<String> {
    let line = schemata.lines().find_map(|line| line.trim().strip_prefix("L3:"));
    let found = line.unwrap_or("0=").split(';').filter_map(|one| Some(one.split_once('=')?.0.trim().to_owned()));
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(mask: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(root.path().join("info/L3")).expect("a folder");
        fs::write(root.path().join("info/L3/cbm_mask"), mask).expect("a file");
        fs::write(root.path().join("schemata"), "    MB:0=100\n    L3:0=ffff;1=ffff\n").expect("a file");
        root
    }

    #[test]
    fn each_group_has_ways_of_its_own() {
        let root = kernel("ffff\n");
        let shares = CacheShares::take_shares(root.path(), &[&[0, 1], &[2]], 0.25).expect("ways");
        let read = |place: usize, file: &str| fs::read_to_string(shares.groups[place].join(file)).expect("a file");
        assert_eq!((read(0, "schemata").as_str(), read(0, "cpus_list").as_str()), ("L3:0=f;1=f\n", "0,1\n"));
        assert_eq!((read(1, "schemata").as_str(), read(1, "cpus_list").as_str()), ("L3:0=f0;1=f0\n", "2\n"));
    }

    #[test]
    fn what_cannot_be_parted_is_said() {
        let nothing = tempfile::tempdir().expect("a folder");
        assert_eq!(check_partitioning(nothing.path()), Err(CacheShareError::Missing(nothing.path().to_owned())));
        for mask in ["", "0", "f0f", "10", "zz"] {
            let found = check_partitioning(kernel(mask).path());
            assert!(matches!(found, Err(CacheShareError::Mask { .. })), "{mask}: {found:?}");
        }
        let root = kernel("f");
        let refused =
            CacheShares::take_shares(root.path(), &[&[0], &[1], &[2]], 0.5).expect_err("too many").to_string();
        assert_eq!(refused, "the last-level cache has 4 ways, too few for 3 shares of 0.5");
    }
}
