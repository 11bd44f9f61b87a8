//! The program's allocator, and how it is asked to give memory back.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Gives pages that this thread has freed back to the system. Costs about a millisecond; called when the load has fallen.
pub(crate) fn give_back() {
    #[expect(unsafe_code, reason = "the allocator has no safe name for this")]
    // SAFETY: mi_collect takes no pointer, may be called at any time on any thread, and frees nothing that is in use.
    unsafe {
        libmimalloc_sys::mi_collect(true);
    }
}
