//! Memory of this process.

/// Proportional set size, bytes, from `/proc/self/smaps_rollup`: whatever the allocator wastes counts.
///
/// # Panics
/// This is not Linux 4.14 or later.
pub fn pss() -> u64 {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").expect("Linux tells its memory");
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).expect("smaps_rollup has a Pss line");
    line.split_whitespace().next().and_then(|kb| kb.parse::<u64>().ok()).expect("Pss is in kB") * 1024
}
