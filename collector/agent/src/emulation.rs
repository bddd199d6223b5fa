//! Detection of emulators, because times measured on an emulator do not apply to the board.

use std::fs;

/// Returns a reason to assume that the machine is emulated, such as an unreadable file; None without a reason.
pub fn emulator_evidence() -> Option<String> {
    let unreadable = |what: &str| Some(format!("cannot read `{what}`"));
    let Ok(maps) = fs::read_to_string("/proc/thread-self/maps") else { return unreadable("/proc/thread-self/maps") };
    let Ok(cpuinfo) = fs::read_to_string("/proc/cpuinfo") else { return unreadable("/proc/cpuinfo") };
    find_evidence(std::env::consts::ARCH, &maps, &cpuinfo)
}

fn find_evidence(architecture: &str, maps: &str, cpuinfo: &str) -> Option<String> {
    let is_emulator = |line: &&str| line.rsplit('/').next().is_some_and(|file| file.starts_with("qemu-"));
    if maps.lines().any(|line| is_emulator(&line)) {
        return Some("the memory map of the process contains an emulator".to_owned());
    }
    let vendor = ["GenuineIntel", "AuthenticAMD"].into_iter().find(|vendor| cpuinfo.contains(vendor));
    let foreign = vendor.filter(|_| !architecture.starts_with("x86"));
    foreign.map(|vendor| format!("a program for {architecture} runs on a processor of {vendor}"))
}

#[cfg(test)]
mod tests {
    use super::find_evidence;

    #[test]
    fn signs() {
        let own = "5000-6000 r-xp 00000000 08:01 1  /usr/bin/opcollect-board\n";
        assert_eq!(find_evidence("arm", own, "Hardware : Xilinx Zynq Platform"), None);
        assert_eq!(find_evidence("x86_64", own, "vendor_id : AuthenticAMD"), None);
        assert!(find_evidence("aarch64", own, "vendor_id : GenuineIntel").is_some());
        let mapped = "5000-6000 r-xp 00000000 08:01 1  /usr/bin/qemu-arm\n";
        assert!(find_evidence("arm", mapped, "Hardware : Xilinx Zynq Platform").is_some());
    }
}
