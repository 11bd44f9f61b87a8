//! Choice of the final response that is sent upstream (RFC 3261 section 16.7 step 6).

/// Returns the rank of a final response among those of all branches; the lowest is the best. A 6xx comes first, then the lowest class. Within 4xx,
/// statuses that tell the caller how to continue come first, and a missing user or a time-out comes last.
pub(super) fn rank(status: u16) -> u16 {
    let class = match status {
        600.. => 0,
        _ => status / 100,
    };
    let within = match status {
        401 | 407 | 415 | 420 | 484 => 0,
        // The user exists and refused, which is better than an absent device.
        486 | 480 | 488 => 1,
        404 | 410 => 3,
        408 => 4,
        503 => 5,
        _ => 2,
    };
    class * 10 + within
}

/// Returns the status that is sent upstream for this best status. A 503 from a next hop does not mean that this server
/// is unavailable, so it becomes 500 (section 16.7 step 6).
pub(super) fn upstream(status: u16) -> u16 {
    if status == 503 { 500 } else { status }
}

/// Returns the status that is sent upstream if the targets were the phones of a local user. A 503 then means that the
/// user is not available now, and not that this server has failed, so it becomes 480 (section 21.4.18).
pub(super) fn of_user(status: u16) -> u16 {
    if status == 503 { 480 } else { upstream(status) }
}

/// Returns the status that is sent upstream for a response of the edge proxy of a contact. A 430 says that the flow of the
/// phone has failed; no endpoint should receive it (RFC 5626 section 11.5).
pub(super) fn of_edge(status: u16) -> u16 {
    if status == 430 { 480 } else { upstream(status) }
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
