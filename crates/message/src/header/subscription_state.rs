//! Subscription-State (RFC 6665 section 8.2.3).

use super::view;
use crate::params::Params;
use crate::reader::{Field, Reader, is, strict_number};

/// A subscription state: `active;expires=600`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SubscriptionState<'a> {
    /// `active`, `pending`, `terminated` or another; compares in any case.
    pub state: &'a [u8],
    /// Seconds left.
    pub expires: Option<u32>,
    /// Reason of the end.
    pub reason: Option<&'a [u8]>,
    /// Seconds to wait before trying again.
    pub retry_after: Option<u32>,
    /// All parameters, those of the other fields included: only they are written.
    pub params: Params<'a>,
}

view!(SubscriptionState);

impl SubscriptionState<'_> {
    /// Tells whether no more NOTIFY comes for this subscription.
    pub fn is_terminated(&self) -> bool {
        self.state.eq_ignore_ascii_case(b"terminated")
    }

    /// Writes the state and the parameters, unfolded.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.state);
        self.params.write(out);
    }
}

impl<'a> Field<'a> for SubscriptionState<'a> {
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let state = scan.token()?;
        let (mut expires, mut reason, mut retry_after) = (None, None, None);
        let params = Params::read(scan, |name, value| {
            if is(name, b"expires") {
                expires = value.and_then(strict_number);
                return expires.is_some();
            }
            if is(name, b"retry-after") {
                retry_after = value.and_then(strict_number);
                return retry_after.is_some();
            }
            if is(name, b"reason") {
                reason = value;
            }
            true
        })?;
        Some(Self { state, expires, reason, retry_after, params })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states() {
        let state = SubscriptionState::parse(b"Terminated;reason=probation;retry-after=30").unwrap();
        assert!(state.is_terminated());
        assert_eq!((state.reason, state.retry_after, state.expires), (Some(&b"probation"[..]), Some(30), None));
        assert_eq!(SubscriptionState::parse(b"active;expires=600").unwrap().expires, Some(600));
        assert!(SubscriptionState::parse(b"active;expires=x").is_err());
    }
}
