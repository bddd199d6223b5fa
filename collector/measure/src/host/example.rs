//! A simulated machine for tests, as sysfs and procfs files.

use std::fs;

pub fn example_machine() -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("folder");
    let mut files: Vec<(String, String)> = [
        ("proc/cpuinfo", "processor\t: 0\nmodel name\t: Intel(R) Core(TM) i7-8650U CPU @ 1.90GHz\nflags\t\t: fpu sse4_2 avx avx2 fma\n"),
        ("proc/self/status", "Name:\ttest\nCpus_allowed_list:\t1-3\n"),
        ("proc/meminfo", "MemTotal:       16384000 kB\nMemFree: 1 kB\n"),
        ("proc/sys/kernel/hostname", "lab\n"),
        ("proc/sys/kernel/osrelease", "6.1.0\n"),
        ("etc/os-release", "NAME=Debian\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n"),
        ("sys/devices/system/cpu/online", "0-3\n"),
        ("sys/devices/system/cpu/isolated", "3\n"),
        ("sys/devices/system/cpu/smt/active", "1\n"),
        ("sys/devices/system/cpu/intel_pstate/no_turbo", "1\n"),
        ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n"),
        ("sys/devices/system/cpu/cpu1/cpufreq/scaling_min_freq", "400000\n"),
        ("sys/devices/system/cpu/cpu1/cpufreq/scaling_max_freq", "4200000\n"),
        ("sys/devices/system/node/online", "0\n"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
    ]
    .map(|(path, text)| (path.to_string(), text.to_string()))
    .into();
    for cpu in 0..4 {
        let topology = format!("sys/devices/system/cpu/cpu{cpu}/topology");
        files.push((format!("{topology}/physical_package_id"), "0\n".into()));
        files.push((format!("{topology}/core_id"), format!("{}\n", cpu % 2)));
    }
    let caches = [(1, "Data", "32K", "1,3"), (1, "Instruction", "32K", "1,3"), (3, "Unified", "8192K", "0-3")];
    for (index, (level, kind, size, shared)) in caches.into_iter().enumerate() {
        let folder = format!("sys/devices/system/cpu/cpu1/cache/index{index}");
        files.push((format!("{folder}/level"), level.to_string()));
        files.push((format!("{folder}/type"), kind.to_string()));
        files.push((format!("{folder}/size"), size.to_string()));
        files.push((format!("{folder}/shared_cpu_list"), shared.to_string()));
        files.push((format!("{folder}/coherency_line_size"), "64".to_string()));
    }
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folder");
        fs::write(path, text).expect("file");
    }
    root
}
