//! Parser of the assembler's verbose output about each kernel.

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelResources {
    pub registers: u32,
    pub shared_bytes: u32,
    pub stack_bytes: u32,
    pub spill_store_bytes: u32,
    pub spill_load_bytes: u32,
    pub barriers: u32,
}

/// Returns the resources that a kernel uses, or None if the log does not mention the kernel.
pub fn parse_resources(log: &str, kernel: &str) -> Option<KernelResources> {
    let begin = format!("Compiling entry function '{kernel}'");
    let mut lines = log.lines().skip_while(|line| !line.contains(&begin)).skip(1);
    let mut found = KernelResources::default();
    for line in lines.by_ref().take_while(|line| !line.contains("Compiling entry function")) {
        for part in line.split(',') {
            let words: Vec<&str> = part.split_whitespace().collect();
            let before = |what: &[&str]| number_before(&words, what);
            let after = |what: &str| {
                let place = words.iter().position(|word| *word == what)?;
                words.get(place + 1)?.parse().ok()
            };
            if let Some(bytes) = before(&["bytes", "stack", "frame"]) {
                found.stack_bytes = bytes;
            }
            if let Some(bytes) = before(&["bytes", "spill", "stores"]) {
                found.spill_store_bytes = bytes;
            }
            if let Some(bytes) = before(&["bytes", "spill", "loads"]) {
                found.spill_load_bytes = bytes;
            }
            if let Some(bytes) = before(&["bytes", "smem"]) {
                found.shared_bytes = bytes;
            }
            if let Some(count) = before(&["registers"]) {
                found.registers = count;
            }
            if words.last().is_some_and(|word| word.starts_with("barrier"))
                && let Some(count) = after("used")
            {
                found.barriers = count;
            }
        }
        if line.contains("Used ") {
            return Some(found);
        }
    }
    None
}

fn number_before(words: &[&str], what: &[&str]) -> Option<u32> {
    let place = words.windows(what.len()).position(|window| window == what)?;
    words[place.checked_sub(1)?].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{KernelResources, parse_resources};

    const LOG: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'main_kernel' for 'sm_75'
ptxas info    : Function properties for main_kernel
ptxas         .     16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 16 bytes cumulative stack size, 8192 bytes smem, 368 bytes cmem[0]
ptxas info    : Compile time = 6.192 ms
ptxas info    : Compiling entry function 'main_kernel_1' for 'sm_75'
ptxas info    : Function properties for main_kernel_1
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers, 368 bytes cmem[0]
";

    #[test]
    fn each_kernel_has_its_own_figures() {
        let first = KernelResources {
            registers: 40,
            shared_bytes: 8192,
            stack_bytes: 16,
            spill_store_bytes: 8,
            spill_load_bytes: 12,
            barriers: 1,
        };
        assert_eq!(parse_resources(LOG, "main_kernel"), Some(first));
        assert_eq!(
            parse_resources(LOG, "main_kernel_1"),
            Some(KernelResources { registers: 12, ..KernelResources::default() })
        );
        assert_eq!(parse_resources(LOG, "main"), None);
    }
}
