//! What the tests with the world have in common: the program under test, programs by others, messages by hand.

pub mod baresip;
pub mod binary;
pub mod call;
pub mod certificate;
pub mod corpora;
pub mod duel;
pub mod kamailio;
pub mod mutation;
pub mod namespace;
pub mod port;
pub mod process;
pub mod program;
pub mod random;
pub mod server;
pub mod sipp;
pub mod text;
pub mod wire;

/// For tests that measure: no two of one program run at a time.
pub fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    // A test that failed leaves nothing behind that the next could be hurt by.
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
