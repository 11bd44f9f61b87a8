//! Claims of a call: the limits under which the call would count by rules, and the limits at the places of the rules.

use crate::call_settings::claim;
use crate::gateways::gateway;
use crate::request_facts::RequestFacts;
use std::sync::Arc;
use strowger_calls::limits::Claim;
use strowger_config::{CallLimitTable, CountedPer, Targets};

/// Returns the claims of the call of a request under these limits.
pub(crate) fn claims_by(facts: &RequestFacts<'_, '_>, limits: &[Arc<CallLimitTable>]) -> Vec<Claim> {
    let mut claims = Vec::new();
    if facts.begins_call {
        let claim = |limit: &Arc<CallLimitTable>| Some(claim(limit, &facts.counted_value(limit.per)?));
        Claim::add(&mut claims, limits.iter().filter_map(claim));
    }
    claims
}

/// Returns the claims of a request's call at each of these targets: its claims under those of `limits` that count for
/// each gateway, and under the limits of groups. The result is empty if no target has claims.
pub(crate) fn claims_at(
    facts: &RequestFacts<'_, '_>,
    targets: &Targets,
    limits: &[Arc<CallLimitTable>],
) -> Vec<Vec<Claim>> {
    let of_gateway = |limit: &&Arc<CallLimitTable>| limit.per == CountedPer::Gateway;
    let is_any = limits.iter().any(|limit| of_gateway(&limit)) || targets.call_limits().next().is_some();
    if !is_any || !facts.begins_call {
        return Vec::new();
    }
    let claims = |(place, uri): (usize, &strowger_config::SipUri)| {
        let part = targets.groups.iter().find(|part| part.places.contains(&place));
        let of_group = part.map_or(&[][..], |part| &part.group.call_limits);
        let value = |per: CountedPer| match per {
            CountedPer::Gateway => gateway(uri.as_str()).filter(|_| !facts.names_user(uri.as_str())),
            per => facts.counted_value(per),
        };
        let limits = limits.iter().filter(of_gateway).chain(of_group);
        let mut claims = Vec::new();
        Claim::add(&mut claims, limits.filter_map(|limit| Some(claim(limit, &value(limit.per)?))));
        claims
    };
    targets.uris.iter().enumerate().map(claims).collect()
}
