//! The allocator of the program, and how it returns memory to the system.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Allows or forbids pages of 2 MiB for this process and its children, from now on (prctl(2), `PR_SET_THP_DISABLE`).
/// The allocator requests such pages. Without them the process holds only the memory that it uses. A process of a few
/// seconds also does not wait for the kernel to clear a large page of which little is used, which takes up to
/// milliseconds on a virtual machine.
pub(crate) fn huge_pages(are_wanted: bool) {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(!are_wanted) {
        // An old kernel does not know the call; nothing changes then.
        tracing::debug!(%error, "huge pages stay as they are");
    }
}

/// Returns pages that this thread has freed to the system. Pages that only this call finds to be free are returned by
/// the next call. Takes about a millisecond, and is called after the load has fallen.
pub(crate) fn give_back() {
    #[expect(unsafe_code, reason = "the allocator has no safe name for this")]
    // SAFETY: mi_collect takes no pointer, may be called at any time on any thread, and frees nothing that is in use.
    unsafe {
        libmimalloc_sys::mi_collect(true);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn huge_pages_are_refused_and_allowed_again() {
        let enabled = || {
            let status = std::fs::read_to_string("/proc/self/status").expect("the kernel has it");
            let value = status.lines().find_map(|line| line.strip_prefix("THP_enabled:"));
            value.expect("of this kernel").trim().to_owned()
        };
        super::huge_pages(false);
        assert_eq!(enabled(), "0");
        super::huge_pages(true);
        assert_eq!(enabled(), "1");
    }
}
