//! Amount of work of tests that try many inputs.

/// Returns how many inputs a test tries: `whole` with `STROWGER_WHOLE=1` (`.ci/run`, `make test-all`), otherwise the
/// first `part` of them. A variable of the test's own overrides both.
///
/// # Panics
/// The variable is no number.
pub fn amount(variable: &str, whole: u64, part: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")),
        Err(_) if std::env::var_os("STROWGER_WHOLE").is_some_and(|value| value == "1") => whole,
        Err(_) => part,
    }
}
