//! Memory of this process.

/// Proportional set size in bytes, from `/proc/self/smaps_rollup`; waste of the allocator counts.
///
/// # Panics
/// This is not Linux 4.14 or later.
pub fn pss() -> u64 {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").expect("Linux tells its memory");
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).expect("smaps_rollup has a Pss line");
    line.split_whitespace().next().and_then(|kb| kb.parse::<u64>().ok()).expect("Pss is in kB") * 1024
}

/// Forbids pages of 2 MiB for the memory that this process takes from now on, as in the shipped configuration of the
/// server (`server.huge_pages`). Memory then counts only as far as it is used.
pub fn without_huge_pages() {
    // SAFETY: this request reads and writes no memory of ours.
    let result = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    assert_eq!(result, 0, "Linux knows huge pages since 3.15");
}
