//! Cache of a runner's last job, for the next job with the same inputs.

use measure::Placement;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Cache key of a job: files with their sizes and modification times, CPUs, and memory placement of tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheKey(Vec<(PathBuf, Option<(u64, SystemTime)>)>, Vec<usize>, Placement);

/// Builds the cache key of a job. The stack placement is not part of the key, because every job sets it anew.
pub fn cache_key(files: &[&Path], cpus: &[usize], placement: Placement) -> CacheKey {
    let stamp = |file: &Path| {
        let metadata = file.metadata().ok()?;
        Some((metadata.len(), metadata.modified().ok()?))
    };
    let files = files.iter().map(|file| (file.to_path_buf(), stamp(file))).collect();
    CacheKey(files, cpus.to_vec(), Placement { stack_bytes: 0, ..placement })
}

impl CacheKey {
    /// Returns whether all files exist; a key with a missing file never matches.
    fn has_all_files(&self) -> bool {
        self.0.iter().all(|(_, stamp)| stamp.is_some())
    }
}

#[derive(Debug)]
pub struct JobCache<Value>(Option<(CacheKey, Value)>);

impl<Value> Default for JobCache<Value> {
    fn default() -> Self {
        JobCache(None)
    }
}

impl<Value> JobCache<Value> {
    /// Takes the cached value if its key matches. Otherwise drops the value, so that two values never exist at once.
    pub fn take_matching(&mut self, key: &CacheKey) -> Option<Value> {
        self.0.take().filter(|(known, _)| known == key && known.has_all_files()).map(|(_, value)| value)
    }

    pub fn store_value(&mut self, key: CacheKey, value: Value) {
        self.0 = Some((key, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_kept_while_files_and_cpus_are_the_same() {
        let file = std::env::temp_dir().join(format!("opcollect-kept-{}", std::process::id()));
        std::fs::write(&file, "one").expect("a file");
        let key = |cpus: &[usize]| cache_key(&[&file], cpus, Placement::default());
        let (of_one, elsewhere) = (key(&[0]), key(&[1]));
        let mut kept = JobCache::default();
        assert_eq!(kept.take_matching(&of_one), None);
        kept.store_value(of_one.clone(), 7);
        assert_eq!(kept.take_matching(&of_one), Some(7));
        assert_eq!(kept.take_matching(&of_one), None, "it was taken");
        kept.store_value(of_one.clone(), 7);
        assert_eq!(kept.take_matching(&elsewhere), None);
        kept.store_value(of_one, 7);
        std::fs::write(&file, "other").expect("a file");
        assert_eq!(kept.take_matching(&key(&[0])), None, "the file changed");
        std::fs::remove_file(&file).expect("a file");
        kept.store_value(key(&[0]), 7);
        assert_eq!(kept.take_matching(&key(&[0])), None, "there is no file");
    }
}
