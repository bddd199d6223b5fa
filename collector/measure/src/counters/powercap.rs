//! Energy of CPU packages and their memory, of all processes, from the kernel's power-cap interface, in microjoules.
//! Counters are updated about once per millisecond, so short calls need the mean over many runs.

use std::fs;
use std::path::{Path, PathBuf};

pub(super) const ROOT: &str = "/sys/class/powercap";

pub(super) struct Powercap {
    zones: Vec<Zone>,
}

struct Zone {
    file: PathBuf,
    range: u64,
    last: u64,
    passed: u64,
}

pub(super) type Refused = (Option<i32>, String);

impl Powercap {
    pub(super) fn open_zones(root: &Path, kind: &str) -> Result<Powercap, Refused> {
        let Ok(entries) = fs::read_dir(root) else {
            let why = format!("the kernel has no `{}`: most virtual machines have no power meter", root.display());
            return Err((None, why));
        };
        let mut folders: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        folders.sort();
        let mut zones = Vec::new();
        for folder in folders {
            // The memory-mapped interface duplicates the register interface.
            let is_double =
                folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with("intel-rapl-mmio"));
            let name = fs::read_to_string(folder.join("name")).unwrap_or_default();
            if name.starts_with(kind) && !is_double {
                zones.push(Zone::open_zone(&folder)?);
            }
        }
        match zones.is_empty() {
            true => Err((None, format!("`{}` has no zone `{kind}`", root.display()))),
            false => Ok(Powercap { zones }),
        }
    }

    /// Returns the energy since opening, or None if a zone cannot be read.
    pub(super) fn read_microjoules(&mut self) -> Option<u64> {
        self.zones.iter_mut().map(Zone::read_energy).sum()
    }
}

impl Zone {
    fn open_zone(folder: &Path) -> Result<Zone, Refused> {
        let file = folder.join("energy_uj");
        let refused = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                let (code, file) = (error.raw_os_error(), file.display());
                (code, format!("only root can read `{file}`; `sudo chmod a+r {file}` permits all users"))
            }
            _ => (error.raw_os_error(), format!("`{}` cannot be read: {error}", file.display())),
        };
        let last = read_number(&file).map_err(refused)?;
        let range = read_number(&folder.join("max_energy_range_uj")).unwrap_or(u64::MAX);
        Ok(Zone { file, range, last, passed: 0 })
    }

    fn read_energy(&mut self) -> Option<u64> {
        let now = read_number(&self.file).ok()?;
        let step =
            now.checked_sub(self.last).or_else(|| Some(self.range.checked_sub(self.last)?.saturating_add(now)))?;
        self.last = now;
        self.passed = self.passed.saturating_add(step);
        Some(self.passed)
    }
}

fn read_number(file: &Path) -> std::io::Result<u64> {
    let text = fs::read_to_string(file)?;
    text.trim()
        .parse()
        .map_err(|_| std::io::Error::new(std::io::ErrorKind::InvalidData, "it does not contain a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(root: &Path, folder: &str, name: &str, energy_uj: u64) {
        let folder = root.join(folder);
        fs::create_dir_all(&folder).expect("a folder");
        for (file, text) in [("name", name.to_owned()), ("energy_uj", energy_uj.to_string())] {
            fs::write(folder.join(file), text + "\n").expect("a file");
        }
        fs::write(folder.join("max_energy_range_uj"), "1000\n").expect("a file");
    }

    #[test]
    fn packages_are_summed_up_and_run_over() {
        let root = tempfile::tempdir().expect("a folder");
        let place = root.path();
        zone(place, "intel-rapl:0", "package-0", 990);
        zone(place, "intel-rapl:1", "package-1", 5);
        zone(place, "intel-rapl:0:0", "dram", 7);
        zone(place, "intel-rapl-mmio:0", "package-0", 990);
        let mut packages = Powercap::open_zones(place, "package").expect("there are two");
        assert_eq!(packages.read_microjoules(), Some(0));
        zone(place, "intel-rapl:0", "package-0", 20);
        zone(place, "intel-rapl:1", "package-1", 6);
        assert_eq!(packages.read_microjoules(), Some(31), "one ran over");
        assert_eq!(packages.read_microjoules(), Some(31));
        fs::remove_file(place.join("intel-rapl:1/energy_uj")).expect("it was there");
        assert_eq!(packages.read_microjoules(), None);
        let why = Powercap::open_zones(place, "psys").err().expect("there is none").1;
        assert!(why.ends_with("has no zone `psys`"), "{why}");
        let why = Powercap::open_zones(&place.join("no"), "package").err().expect("there is none").1;
        assert!(why.contains("virtual machines"), "{why}");
    }
}
