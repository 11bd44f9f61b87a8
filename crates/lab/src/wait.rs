//! Waiting for a thing, not for a time.

use std::time::{Duration, Instant};

/// How often it is looked for.
const STEP: Duration = Duration::from_millis(5);

/// Calls `look` until it returns a value, and returns that value, or `None` if there is none within this time.
pub fn look<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        let is_last = Instant::now() >= end;
        let found = look();
        if found.is_some() || is_last {
            return found;
        }
        // Between two looks.
        std::thread::sleep(STEP);
    }
}

/// Calls `is_so` until it returns true. Returns false if it does not within this time.
pub fn until(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    look(limit, || is_so().then_some(())).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_is_found_and_what_does_not_is_looked_for_once_at_least() {
        let mut looks = 0;
        let third = look(Duration::from_secs(20), || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(third, Some(3));
        let mut looks = 0;
        assert!(!until(Duration::ZERO, || {
            looks += 1;
            false
        }));
        assert_eq!(looks, 1);
    }
}
