//! Cache of a runner's last job, for the next job with the same inputs.

use measure::Placement;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Cache key of a job: files with their sizes and modification times, CPUs, and memory placement of tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamps(Vec<(PathBuf, Option<(u64, SystemTime)>)>, Vec<usize>, Placement);

/// Builds the cache key of a job. The stack placement is not part of the key, because every job sets it anew.
pub fn cache_key(files: &[&Path], cpus: &[usize], placement: Placement) -> Stamps {
    let stamp = |file: &Path| {
        let metadata = file.metadata().ok()?;
        Some((metadata.len(), metadata.modified().ok()?))
    };
    let files = files.iter().map(|file| (file.to_path_buf(), stamp(file))).collect();
    Stamps(files, cpus.to_vec(), Placement { stack_bytes: 0, ..placement })
}

impl Stamps {
    /// Returns whether all files exist; a key with a missing file never matches.
    fn are_known(&self) -> bool {
        self.0.iter().all(|(_, stamp)| stamp.is_some())
    }
}

#[derive(Debug)]
pub struct JobCache<Thing>(Option<(Stamps, Thing)>);

impl<Thing> Default for JobCache<Thing> {
    fn default() -> Self {
        JobCache(None)
    }
}

impl<Thing> JobCache<Thing> {
    /// Takes the value if its key matches; otherwise drops it before a new one is created: never two at once.
    pub fn take_matching(&mut self, stamps: &Stamps) -> Option<Thing> {
        self.0.take().filter(|(known, _)| known == stamps && known.are_known()).map(|(_, thing)| thing)
    }

    pub fn store_thing(&mut self, stamps: Stamps, thing: Thing) {
        self.0 = Some((stamps, thing));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_kept_while_files_and_cpus_are_the_same() {
        let file = std::env::temp_dir().join(format!("opcollect-kept-{}", std::process::id()));
        std::fs::write(&file, "one").expect("a file");
        let stamps = |cpus: &[usize]| cache_key(&[&file], cpus, Placement::default());
        let (of_one, elsewhere) = (stamps(&[0]), stamps(&[1]));
        let mut kept = JobCache::default();
        assert_eq!(kept.take_matching(&of_one), None);
        kept.store_thing(of_one.clone(), 7);
        assert_eq!(kept.take_matching(&of_one), Some(7));
        assert_eq!(kept.take_matching(&of_one), None, "it was taken");
        kept.store_thing(of_one.clone(), 7);
        assert_eq!(kept.take_matching(&elsewhere), None);
        kept.store_thing(of_one, 7);
        std::fs::write(&file, "other").expect("a file");
        assert_eq!(kept.take_matching(&stamps(&[0])), None, "the file changed");
        std::fs::remove_file(&file).expect("a file");
        kept.store_thing(stamps(&[0]), 7);
        assert_eq!(kept.take_matching(&stamps(&[0])), None, "there is no file");
    }
}
