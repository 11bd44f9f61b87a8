//! Which of several final responses goes upstream (RFC 3261 section 16.7 step 6).

/// How good a final response is as an answer to all branches: lower is better. A 6xx ends the matter, then
/// the lowest class; within 4xx those that tell the caller what to do, then a missing user or a time-out
/// last of all.
pub(super) fn rank(status: u16) -> u16 {
    let class = match status {
        600.. => 0,
        _ => status / 100,
    };
    let within = match status {
        401 | 407 | 415 | 420 | 484 => 0,
        // The user exists and said no: worth more than a device that is not there.
        486 | 480 | 488 => 1,
        404 | 410 => 3,
        408 => 4,
        503 => 5,
        _ => 2,
    };
    class * 10 + within
}

/// A 503 from one next hop says nothing about us: upstream it becomes 500 (section 16.7 step 6).
pub(super) fn upstream(status: u16) -> u16 {
    if status == 503 { 500 } else { status }
}

/// The phones of a user of ours cannot be reached: nothing is wrong with this server, the user is not available now (section
/// 21.4.18).
pub(super) fn of_user(status: u16) -> u16 {
    if status == 503 { 480 } else { upstream(status) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_hundred_wins_then_the_lowest_class() {
        let best = |codes: &[u16]| codes.iter().copied().min_by_key(|&c| rank(c)).unwrap();
        assert_eq!(best(&[404, 603, 302]), 603);
        assert_eq!(best(&[404, 302, 500]), 302);
        assert_eq!(best(&[408, 486, 404]), 486);
        assert_eq!(best(&[486, 401]), 401);
        assert_eq!(best(&[487, 486]), 486);
        assert_eq!(best(&[408, 500]), 408);
        assert_eq!(best(&[503, 500]), 500);
        assert_eq!(best(&[480, 408]), 480);
    }
}
