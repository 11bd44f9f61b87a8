//! The program's allocator, and how it is asked to give memory back.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Keeps the kernel from backing memory with pages of 2 MB. To be called first of all.
///
/// A page goes back to the kernel when nothing in it is in use. Of 2 MB that is rare, and the kernel puts together again what
/// the allocator had given back: the server was at 26 MB instead of 12 at its start and at 47 instead of 18 after a flood.
pub(crate) fn keep_pages_small() {
    #[expect(unsafe_code, reason = "the call has no safe name")]
    // SAFETY: this option of prctl takes numbers only, and changes nothing but how the kernel chooses pages. Where the
    // kernel does not know it, nothing happens.
    unsafe {
        libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
    }
}

/// Gives pages that this thread has freed back to the system. Costs about a millisecond; called when the load has fallen.
pub(crate) fn give_back() {
    #[expect(unsafe_code, reason = "the allocator has no safe name for this")]
    // SAFETY: mi_collect takes no pointer, may be called at any time on any thread, and frees nothing that is in use.
    unsafe {
        libmimalloc_sys::mi_collect(true);
    }
}
