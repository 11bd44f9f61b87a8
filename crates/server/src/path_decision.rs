//! Decision of rules about the path of a call: through this server as a proxy, or to it as a back-to-back user agent.

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use strowger_config::{PathAction, ReferFrom};
use strowger_core::b2bua::negotiation::{CodecName, LegPolicy};

/// Joint decision of rules about the path of a call. For each part the first rule that sets it counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PathDecision {
    /// Record-Route; `None`: `proxy.record_route` decides.
    pub(crate) record_route: Option<bool>,
    /// True: calls are bridged; `None`: no rule decides.
    b2bua: Option<bool>,
    codecs: Vec<CodecName>,
    callee_codecs: Vec<CodecName>,
    media_types: Vec<Box<str>>,
    /// Word of a [`ReferFrom`].
    refer_from: Option<Box<str>>,
}

impl PathDecision {
    /// Returns the decision for a call whose later requests pass this server.
    pub(crate) fn recorded() -> Self {
        Self { record_route: Some(true), ..Self::default() }
    }

    /// Adds the keys of one more rule, except those that an earlier rule has set.
    pub(crate) fn apply_rule(&mut self, action: &PathAction) {
        self.record_route = self.record_route.or(action.record_route);
        self.b2bua = self.b2bua.or(action.b2bua);
        let lists = [(&mut self.codecs, &action.codecs), (&mut self.callee_codecs, &action.callee_codecs)];
        for (own, more) in lists {
            if own.is_empty() {
                own.extend_from_slice(more);
            }
        }
        if self.media_types.is_empty() {
            let words = action.media_types.iter().map(|kind| Box::<str>::from(kind.word()));
            self.media_types.extend(words);
        }
        if let (None, Some(parties)) = (&self.refer_from, action.refer_from) {
            self.refer_from = Some(parties.word().into());
        }
    }

    /// Returns the parties that may refer the other one.
    pub(crate) fn refer_from(&self) -> ReferFrom {
        self.refer_from.as_deref().and_then(ReferFrom::from_word).unwrap_or_default()
    }

    /// Tells whether calls are bridged.
    pub(crate) fn is_bridged(&self) -> bool {
        self.b2bua == Some(true)
    }

    /// Returns the policies of the legs to the caller and to the callee.
    pub(crate) fn policies(&self) -> [Arc<LegPolicy>; 2] {
        let policy = |codecs: &[CodecName]| {
            Arc::new(LegPolicy {
                codecs: codecs.to_vec(),
                media_types: self.media_types.clone(),
                ..LegPolicy::default()
            })
        };
        let near = policy(&self.codecs);
        let far = if self.callee_codecs.is_empty() { near.clone() } else { policy(&self.callee_codecs) };
        [near, far]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_config::MediaType;

    fn names(codecs: &[&str]) -> Box<[CodecName]> {
        codecs.iter().map(|name| CodecName::parse(name).expect("a name")).collect()
    }

    /// Returns the decision of these rules in their order.
    fn decided(rules: &[PathAction]) -> PathDecision {
        let mut decision = PathDecision::default();
        rules.iter().for_each(|rule| decision.apply_rule(rule));
        decision
    }

    #[test]
    fn the_first_rule_that_sets_a_part_counts() {
        let of = |b2bua| PathAction { b2bua, ..PathAction::default() };
        for (rules, is_bridged) in [
            (vec![of(None)], false),
            (vec![of(Some(true))], true),
            (vec![of(None), of(Some(true))], true),
            (vec![of(Some(false)), of(Some(true))], false),
            (vec![of(Some(true)), of(Some(false))], true),
        ] {
            assert_eq!(decided(&rules).is_bridged(), is_bridged, "{rules:?}");
        }
        let (codecs, refer_from) = (names(&["PCMA"]), Some(ReferFrom::None));
        let one = PathAction { codecs, record_route: Some(false), refer_from, ..PathAction::default() };
        let two = PathAction {
            codecs: names(&["PCMU"]),
            callee_codecs: names(&["G722", "PCMA"]),
            media_types: [MediaType::Video].into(),
            record_route: Some(true),
            refer_from: Some(ReferFrom::Everyone),
            ..PathAction::default()
        };
        let decision = decided(&[one, two]);
        assert_eq!((decision.record_route, decision.refer_from()), (Some(false), ReferFrom::None));
        assert_eq!(PathDecision::default().refer_from(), ReferFrom::Users);
        let [near, far] = decision.policies();
        assert_eq!((&near.codecs[..], &far.codecs[..]), (&*names(&["PCMA"]), &*names(&["G722", "PCMA"])));
        for policy in [near, far] {
            assert_eq!(policy.media_types.join(" "), "video");
            assert!(!policy.has_secure_rtp && !policy.has_rtcp_mux);
        }
    }

    #[test]
    fn one_list_of_codecs_is_for_both_sides() {
        let rule = PathAction { codecs: names(&["PCMU", "telephone-event"]), ..PathAction::default() };
        let [near, far] = decided(&[rule]).policies();
        assert_eq!((&near.codecs[..], near == far), (&*names(&["PCMU", "telephone-event"]), true));
        let [near, far] = PathDecision::default().policies();
        assert!(near.codecs.is_empty() && far.codecs.is_empty() && near.media_types.is_empty());
    }

    #[test]
    fn a_decision_moves_as_bytes() {
        let rule = PathAction {
            b2bua: Some(true),
            codecs: names(&["opus/48000/2"]),
            media_types: [MediaType::Text].into(),
            ..PathAction::default()
        };
        let decision = decided(&[rule]);
        let bytes = postcard::to_extend(&decision, Vec::new()).expect("a vector takes all");
        let read: PathDecision = postcard::from_bytes(&bytes).expect("its own bytes");
        assert_eq!(read, decision);
    }
}
