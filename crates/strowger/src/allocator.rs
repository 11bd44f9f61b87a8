//! The program's allocator, and how it is asked to give memory back.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Whether the kernel may back memory of this process with pages of 2 MiB, from now on. The allocator asks for them; without them what the
/// process holds is what it uses.
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
