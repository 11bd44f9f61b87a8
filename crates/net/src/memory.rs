//! How the kernel gives this process its memory.

/// From now on memory comes in pages of 4 KB even where the allocator asks for those of 2 MB (prctl(2),
/// `PR_SET_THP_DISABLE`), also to programs that this one starts. For a program that runs for seconds: the kernel clears a page
/// before it gives it, and a large one of which little is used costs up to milliseconds where the machine is virtual.
/// Whether the kernel does so: those before 3.15 do not.
pub fn small_pages() -> bool {
    // SAFETY: sets a mark of this process; no pointer is passed.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1u64, 0u64, 0u64, 0u64) == 0 }
}

#[cfg(test)]
mod tests {
    #[test]
    fn large_pages_are_refused_from_then_on() {
        assert!(super::small_pages());
        let status = std::fs::read_to_string("/proc/self/status").expect("the kernel has it");
        assert!(status.lines().any(|line| line.split_whitespace().eq(["THP_enabled:", "0"])), "{status}");
    }
}
