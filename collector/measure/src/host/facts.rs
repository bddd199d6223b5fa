//! Facts about this machine from procfs and sysfs.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::files::{Files, parse_size};
use crate::affinity::parse_cpu_list;

/// Vector extensions that affect code selection, in the Linux kernel's spelling.
const VECTOR_EXTENSIONS: &[&str] = &[
    "sse4_2",
    "avx",
    "avx2",
    "fma",
    "f16c",
    "avx_vnni",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_int8",
    "amx_bf16",
    "asimd",
    "asimddp",
    "asimdhp",
    "sve",
    "sve2",
    "i8mm",
    "bf16",
];

/// Returns all processor flags in the Linux kernel's spelling; [`Facts`] contains only some of them.
pub fn cpu_flags() -> BTreeSet<String> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    cpu_flags_line(&cpuinfo).split_ascii_whitespace().map(str::to_owned).collect()
}

fn cpu_flags_line(cpuinfo: &str) -> String {
    field_value(cpuinfo, "flags").or_else(|| field_value(cpuinfo, "Features")).unwrap_or_default()
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheLevel {
    pub level: u32,
    /// Kind of the cache: `Data`, `Instruction` or `Unified`.
    pub kind: String,
    pub size_bytes: u64,
    pub line_bytes: u32,
    pub shared_by: u32,
}

/// Facts about this machine; unknown values are `None` or empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    pub hostname: Option<String>,
    pub boot_id: Option<String>,
    pub os: Option<String>,
    pub kernel: Option<String>,
    pub architecture: String,
    pub cpu_model: Option<String>,
    pub vector_extensions: Vec<String>,
    pub logical_cpus: u32,
    /// Number of online cores; less than the number of logical CPUs with SMT.
    pub physical_cores: Option<u32>,
    pub sockets: Option<u32>,
    pub numa_nodes: Option<u32>,
    pub is_smt_active: Option<bool>,
    pub allowed_cpus: Vec<usize>,
    pub isolated_cpus: Vec<usize>,
    pub caches: Vec<CacheLevel>,
    pub memory_bytes: Option<u64>,
    /// Frequency governor of the first allowed CPU.
    pub governor: Option<String>,
    pub is_boost_on: Option<bool>,
    pub clock_min_khz: Option<u64>,
    pub clock_max_khz: Option<u64>,
    pub hypervisor: Option<String>,
    pub huge_pages: Option<String>,
}

impl Facts {
    pub fn read_facts() -> Self {
        Self::read_from(Path::new("/"))
    }

    pub fn read_from(root: &Path) -> Self {
        let files = Files { root };
        let cpuinfo = files.read_text("proc/cpuinfo").unwrap_or_default();
        let status = files.read_text("proc/self/status").unwrap_or_default();
        let allowed_cpus =
            field_value(&status, "Cpus_allowed_list").and_then(|list| parse_cpu_list(&list)).unwrap_or_default();
        let online = files.cpu_list("sys/devices/system/cpu/online").unwrap_or_default();
        let first = allowed_cpus.first().or(online.first()).copied().unwrap_or(0);
        let flags = cpu_flags_line(&cpuinfo);
        let flags: BTreeSet<&str> = flags.split_ascii_whitespace().collect();
        let count = |cpus: usize| u32::try_from(cpus).unwrap_or(u32::MAX);
        let clock = |name: &str| files.read_text(&format!("sys/devices/system/cpu/cpu{first}/cpufreq/{name}"));
        let clock_khz = |name: &str| clock(name).and_then(|text| text.parse().ok());
        let counted = |name: &str| files.cpu_ids(&online, name).map(|ids| count(ids.len()));
        Self {
            hostname: files.read_text("proc/sys/kernel/hostname"),
            boot_id: files.read_text("proc/sys/kernel/random/boot_id"),
            os: files.read_text("etc/os-release").and_then(|text| os_name(&text)),
            kernel: files.read_text("proc/sys/kernel/osrelease"),
            architecture: std::env::consts::ARCH.into(),
            cpu_model: cpu_model(&cpuinfo).or_else(|| files.read_text("proc/device-tree/model")),
            vector_extensions: VECTOR_EXTENSIONS
                .iter()
                .filter(|name| flags.contains(**name))
                .map(ToString::to_string)
                .collect(),
            logical_cpus: count(online.len().max(allowed_cpus.len())).max(1),
            physical_cores: files.count_cores(&online).map(count),
            sockets: counted("physical_package_id"),
            numa_nodes: files.cpu_list("sys/devices/system/node/online").map(|nodes| count(nodes.len())),
            is_smt_active: files.read_text("sys/devices/system/cpu/smt/active").map(|text| text == "1"),
            isolated_cpus: files.cpu_list("sys/devices/system/cpu/isolated").unwrap_or_default(),
            caches: files.read_caches(first),
            memory_bytes: files.memory_bytes(),
            governor: clock("scaling_governor"),
            is_boost_on: files.read_boost(),
            clock_min_khz: clock_khz("scaling_min_freq"),
            clock_max_khz: clock_khz("scaling_max_freq"),
            hypervisor: files.read_hypervisor(&flags),
            huge_pages: files
                .read_text("sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0.to_string())),
            allowed_cpus,
        }
    }

    /// Returns governor, clock limits and boost state as text; None without a governor, as in most virtual machines.
    pub fn clock_policy(&self) -> Option<String> {
        let governor = Some(format!("governor {}", self.governor.as_ref()?));
        let limit = |name: &str, khz: Option<u64>| khz.map(|khz| format!("{name} {khz} kHz"));
        let boost = self.is_boost_on.map(|is_on| format!("boost {}", if is_on { "on" } else { "off" }));
        let parts = [governor, limit("min", self.clock_min_khz), limit("max", self.clock_max_khz), boost];
        Some(parts.into_iter().flatten().collect::<Vec<String>>().join(", "))
    }

    pub fn last_level_cache_bytes(&self) -> Option<u64> {
        Some(self.data_caches().max_by_key(|cache| cache.level)?.size_bytes)
    }

    /// Returns the size of the cache of a level that holds data.
    pub fn cache_bytes(&self, level: u32) -> Option<u64> {
        Some(self.data_caches().find(|cache| cache.level == level)?.size_bytes)
    }

    fn data_caches(&self) -> impl Iterator<Item = &CacheLevel> {
        self.caches.iter().filter(|cache| cache.kind != "Instruction")
    }

    /// Returns the bytes to write for a cold cache: more than the last-level cache, limited by the memory.
    pub fn cold_cache_bytes(&self) -> u64 {
        let cache_bytes = self.last_level_cache_bytes().unwrap_or(64 << 20);
        let wanted = cache_bytes + cache_bytes / 4;
        self.memory_bytes.map_or(wanted, |memory_bytes| wanted.min(memory_bytes / 8)).max(1 << 20)
    }

    /// Describes the host for readers: processor, number of CPUs and class.
    pub fn describe_host(&self) -> String {
        let model = self.cpu_model.as_deref().unwrap_or("unknown processor");
        let cpus = if self.logical_cpus == 1 { "1 CPU".to_owned() } else { format!("{} CPUs", self.logical_cpus) };
        format!("{model}, {cpus} ({})", self.host_class())
    }

    /// Returns a name shared by machines with comparable times: model, number of CPUs, and a hash of stable facts.
    pub fn host_class(&self) -> String {
        let comparable = (
            (&self.architecture, &self.cpu_model, &self.vector_extensions),
            (self.logical_cpus, self.physical_cores, self.sockets, self.numa_nodes, self.is_smt_active),
            (&self.caches, self.memory_bytes.map(|bytes| bytes.div_ceil(1 << 30)), self.clock_max_khz),
            self.hypervisor.is_some(),
        );
        let text = serde_json::to_string(&comparable).expect("numbers and texts");
        let hash = blake3::hash(text.as_bytes()).to_hex();
        let model = vendor_slug(self.cpu_model.as_deref().unwrap_or(&self.architecture));
        format!("{model}-{}cpu-{}", self.logical_cpus, &hash[..8])
    }
}

/// Converts text to lower-case words joined by hyphens, without trademark signs.
fn vendor_slug(text: &str) -> String {
    let text = text.replace("(R)", " ").replace("(TM)", " ").to_ascii_lowercase();
    let words: Vec<&str> = text
        .split(|letter: char| !letter.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty() && !["cpu", "processor", "core", "with"].contains(word))
        .collect();
    let mut slug = words.join("-");
    slug.truncate(40);
    slug
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    field_value(cpuinfo, "model name").or_else(|| {
        // Arm processors report only numbers.
        let (implementer, part) = (field_value(cpuinfo, "CPU implementer")?, field_value(cpuinfo, "CPU part")?);
        Some(format!("arm implementer {implementer} part {part}"))
    })
}

fn os_name(text: &str) -> Option<String> {
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_string())
}

fn field_value(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_string())
    })
}

impl Files<'_> {
    pub(super) fn memory_bytes(&self) -> Option<u64> {
        self.read_text("proc/meminfo").and_then(|text| parse_size(&field_value(&text, "MemTotal")?))
    }

    fn cpu_ids(&self, cpus: &[usize], name: &str) -> Option<BTreeSet<String>> {
        let read = |cpu: &usize| self.read_text(&format!("sys/devices/system/cpu/cpu{cpu}/topology/{name}"));
        cpus.iter().map(read).collect::<Option<BTreeSet<_>>>().filter(|ids| !ids.is_empty())
    }

    /// Counts the distinct cores of CPUs. A core is identified by its number within its package.
    fn count_cores(&self, cpus: &[usize]) -> Option<usize> {
        let read = |cpu: &usize| {
            let id = |name: &str| self.read_text(&format!("sys/devices/system/cpu/cpu{cpu}/topology/{name}"));
            Some((id("physical_package_id")?, id("core_id")?))
        };
        cpus.iter().map(read).collect::<Option<BTreeSet<_>>>().map(|cores| cores.len()).filter(|&cores| cores > 0)
    }

    fn read_caches(&self, cpu: usize) -> Vec<CacheLevel> {
        let folder = PathBuf::from(format!("sys/devices/system/cpu/cpu{cpu}/cache"));
        let cache = |index: usize| {
            let text = |name: &str| self.read_text(folder.join(format!("index{index}")).join(name).to_str()?);
            Some(CacheLevel {
                level: text("level")?.parse().ok()?,
                kind: text("type")?,
                size_bytes: parse_size(&text("size")?)?,
                line_bytes: text("coherency_line_size").and_then(|text| text.parse().ok()).unwrap_or(0),
                shared_by: u32::try_from(parse_cpu_list(&text("shared_cpu_list")?)?.len()).ok()?,
            })
        };
        (0..16).map_while(cache).collect()
    }

    fn read_boost(&self) -> Option<bool> {
        let on = self.read_text("sys/devices/system/cpu/cpufreq/boost").map(|text| text == "1");
        on.or_else(|| self.read_text("sys/devices/system/cpu/intel_pstate/no_turbo").map(|text| text == "0"))
    }

    fn read_hypervisor(&self, flags: &BTreeSet<&str>) -> Option<String> {
        let named = self.read_text("sys/hypervisor/type");
        if named.is_none() && !flags.contains("hypervisor") {
            return None;
        }
        let board = |name: &str| self.read_text(&format!("sys/class/dmi/id/{name}"));
        named.or_else(|| board("sys_vendor")).or_else(|| board("product_name")).or_else(|| Some("unknown".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::example::example_machine;
    use expect_test::expect;

    #[test]
    fn a_machine_is_read_from_its_files() {
        let root = example_machine();
        let facts = Facts { architecture: "x86_64".into(), ..Facts::read_from(root.path()) };
        expect![[r#"
            Facts {
                hostname: Some(
                    "lab",
                ),
                boot_id: None,
                os: Some(
                    "Debian GNU/Linux 12",
                ),
                kernel: Some(
                    "6.1.0",
                ),
                architecture: "x86_64",
                cpu_model: Some(
                    "Intel(R) Core(TM) i7-8650U CPU @ 1.90GHz",
                ),
                vector_extensions: [
                    "sse4_2",
                    "avx",
                    "avx2",
                    "fma",
                ],
                logical_cpus: 4,
                physical_cores: Some(
                    2,
                ),
                sockets: Some(
                    1,
                ),
                numa_nodes: Some(
                    1,
                ),
                is_smt_active: Some(
                    true,
                ),
                allowed_cpus: [
                    1,
                    2,
                    3,
                ],
                isolated_cpus: [
                    3,
                ],
                caches: [
                    CacheLevel {
                        level: 1,
                        kind: "Data",
                        size_bytes: 32768,
                        line_bytes: 64,
                        shared_by: 2,
                    },
                    CacheLevel {
                        level: 1,
                        kind: "Instruction",
                        size_bytes: 32768,
                        line_bytes: 64,
                        shared_by: 2,
                    },
                    CacheLevel {
                        level: 3,
                        kind: "Unified",
                        size_bytes: 8388608,
                        line_bytes: 64,
                        shared_by: 4,
                    },
                ],
                memory_bytes: Some(
                    16777216000,
                ),
                governor: Some(
                    "powersave",
                ),
                is_boost_on: Some(
                    false,
                ),
                clock_min_khz: Some(
                    400000,
                ),
                clock_max_khz: Some(
                    4200000,
                ),
                hypervisor: None,
                huge_pages: Some(
                    "madvise",
                ),
            }
        "#]]
        .assert_debug_eq(&facts);
        assert_eq!(facts.last_level_cache_bytes(), Some(8 << 20));
        assert_eq!(facts.cold_cache_bytes(), 10 << 20);
        expect!["intel-i7-8650u-1-90ghz-4cpu-f89e27cb"].assert_eq(&facts.host_class());
    }

    #[test]
    fn the_class_follows_what_shapes_times_and_nothing_else() {
        let root = example_machine();
        let facts = Facts::read_from(root.path());
        let same =
            Facts { hostname: Some("other".into()), kernel: None, boot_id: None, governor: None, ..facts.clone() };
        assert_eq!(facts.host_class(), same.host_class());
        let other = Facts { physical_cores: Some(4), ..facts.clone() };
        assert_ne!(facts.host_class(), other.host_class());
    }

    #[test]
    fn the_clock_policy_has_governor_limits_and_boost() {
        let root = example_machine();
        let policy = || Facts::read_from(root.path()).clock_policy();
        let told = |text: &str| Some(text.to_owned());
        assert_eq!(policy(), told("governor powersave, min 400000 kHz, max 4200000 kHz, boost off"));
        let write = |path: &str, text: &str| {
            let path = root.path().join("sys/devices/system/cpu").join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("folder");
            fs::write(path, text).expect("file");
        };
        write("intel_pstate/no_turbo", "0\n");
        assert_eq!(policy(), told("governor powersave, min 400000 kHz, max 4200000 kHz, boost on"));
        write("cpufreq/boost", "0\n");
        write("cpu1/cpufreq/scaling_max_freq", "1900000\n");
        assert_eq!(policy(), told("governor powersave, min 400000 kHz, max 1900000 kHz, boost off"));
        write("cpu1/cpufreq/scaling_min_freq", "\n");
        assert_eq!(policy(), told("governor powersave, max 1900000 kHz, boost off"));
        write("cpu1/cpufreq/scaling_governor", "\n");
        assert_eq!(policy(), None, "a virtual machine tells of none");
    }

    #[test]
    fn nothing_to_read_is_nothing_known() {
        let root = tempfile::tempdir().expect("folder");
        let facts = Facts::read_from(root.path());
        assert_eq!((facts.logical_cpus, facts.cpu_model, facts.caches.len()), (1, None, 0));
    }

    #[test]
    fn this_machine_is_read() {
        let facts = Facts::read_facts();
        assert!(!facts.allowed_cpus.is_empty() && facts.memory_bytes.is_some_and(|bytes| bytes > 1 << 20), "{facts:?}");
        assert_eq!(facts.host_class(), Facts::read_facts().host_class());
    }
}
