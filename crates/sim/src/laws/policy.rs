//! Law: a request is handled by the configuration that was in force at its arrival, even after it has waited, rung or
//! moved to another shard.

use super::recent::Recent;
use super::{is_of, key};
use crate::server::{ServerHost, software};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use strowger_message::{Message, Method, Name, Uri};

#[derive(Debug, Default)]
pub(super) struct Policies {
    /// Configurations that were in force when each copy of a request came.
    came: Recent<BTreeSet<u32>>,
}

/// Returns the value of a key of a configuration.
fn said<'a>(config: &'a str, key: &str) -> Option<&'a str> {
    let line = config.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))?;
    Some(line.trim_matches('"'))
}

impl Policies {
    pub(super) fn arrived(&mut self, host: SocketAddr, message: &Message<'_>, policy: u32) {
        if let (Some(_), Ok(via)) = (message.method(), message.via()) {
            let key = key(host, via.branch.unwrap_or_default(), message.method_text());
            self.came.of(key).insert(policy);
        }
    }

    /// Checks a message that leaves a server.
    ///
    /// # Errors
    /// The message follows a configuration other than that of its request.
    pub(super) fn sent(&self, server: &ServerHost, message: &Message<'_>) -> Result<(), String> {
        let host = server.address();
        let Ok(cseq) = message.cseq() else { return Ok(()) };
        let mut vias = message.vias().flatten();
        let via = if message.status().is_some() { vias.next() } else { vias.nth(1) };
        let key = key(host, via.and_then(|via| via.branch).unwrap_or_default(), cseq.method_text);
        let Some(came) = self.came.get(&key) else { return Ok(()) };
        if message.status().is_some() {
            return self.answered(server, message, came);
        }
        if cseq.method == Method::Invite && message.to().is_ok_and(|to| to.tag.is_none()) {
            let own = |uri: &Uri<'_>| uri.sip().is_some_and(|uri| uri.host.ip() == Some(host.ip()));
            let stays = message.record_routes().flatten().any(|value| own(&value.uri));
            let is_so = |policy: &u32| said(server.config(*policy), "proxy.record_route") != Some("false");
            if !came.iter().any(|policy| is_so(policy) == stays) {
                return Err(format!("Record-Route is {stays}, by none of {came:?}"));
            }
        }
        Ok(())
    }

    fn answered(&self, server: &ServerHost, message: &Message<'_>, came: &BTreeSet<u32>) -> Result<(), String> {
        // Only responses of this server itself.
        let Some(name) = message.header(Name::Server) else { return Ok(()) };
        let is_it = |policy: &u32| software(server.address(), *policy).as_bytes() == name;
        let prefix = format!("{}/", server.address().ip());
        if !name.starts_with(prefix.as_bytes()) {
            return Ok(());
        }
        let Some(policy) = came.iter().find(|policy| is_it(policy)) else {
            return Err(format!("it is answered by another configuration than {came:?}"));
        };
        let config = server.config(*policy);
        for challenge in message.headers(Name::WwwAuthenticate).chain(message.headers(Name::ProxyAuthenticate)) {
            let challenge = String::from_utf8_lossy(challenge);
            let realm = said(config, "realm").unwrap_or_default();
            let algorithms = said(config, "auth.algorithms").unwrap_or("MD5");
            let is_offered = challenge
                .split("algorithm=")
                .nth(1)
                .is_none_or(|rest| algorithms.contains(rest.split([',', ' ']).next().unwrap_or_default()));
            if !challenge.contains(&format!("realm=\"{realm}\"")) || !is_offered {
                return Err(format!("configuration {policy} has realm {realm} and {algorithms}"));
            }
        }
        Ok(())
    }

    pub(super) fn turn(&mut self, now: u64) {
        self.came.turn(now);
    }

    pub(super) fn restarted(&mut self, host: SocketAddr) {
        self.came.retain(|key| !is_of(host, key));
    }
}
