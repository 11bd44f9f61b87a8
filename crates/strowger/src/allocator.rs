//! The program's allocator, and how it is asked to give memory back.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Whether the kernel may back memory of this process, and of programs that it starts, with pages of 2 MiB, from now on (prctl(2),
/// `PR_SET_THP_DISABLE`). The allocator asks for them. Without them what the process holds is what it uses, and a process that lives for seconds
/// does not wait, on a virtual machine for up to milliseconds, until the kernel has cleared a large page of which little is used.
pub(crate) fn huge_pages(are_wanted: bool) {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(!are_wanted) {
        // A kernel that knows nothing of it goes on as it does.
        tracing::debug!(%error, "huge pages stay as they are");
    }
}

/// Gives pages that this thread has freed back to the system; those that only this call finds to be free go with the next. Costs about a millisecond;
/// called when the load has fallen.
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
