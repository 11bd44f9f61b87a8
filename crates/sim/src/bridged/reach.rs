//! Law: from each port, the server sends packets only to the party to which it has shown the port, at addresses that the party has described or
//! has sent from. RTCP may also go to another port of the public address of a party behind NAT.

use super::sound::named;
use super::text::Facts;
use super::{CAROL, SERVER, TRANSLATOR};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;

/// Owner of an address: the party, and the Call-ID in whose messages or packets it stood first.
type Owner = (usize, Vec<u8>);

/// Parties to which the server has shown a port in one call.
#[derive(Debug, Default)]
struct Shown {
    side: Vec<u8>,
    parties: BTreeSet<usize>,
}

/// Addresses of parties, and ports of the server.
#[derive(Debug, Default)]
pub(super) struct Reach {
    owners: HashMap<SocketAddr, Owner>,
    /// Parties to which the server has shown each of its ports in the last call of the port.
    shown: HashMap<u16, Shown>,
    /// Parties and descriptions of the server that each side has got, by Call-ID.
    said: HashMap<Vec<u8>, HashSet<(usize, Vec<u8>)>>,
}

impl Reach {
    /// Records the addresses that a message of a party describes.
    pub(super) fn described(&mut self, party: usize, facts: &Facts) {
        named(&facts.body).into_iter().for_each(|address| self.came_from(address, party, &facts.call_id));
    }

    /// Records that a party has sent a packet of a call from this public address.
    pub(super) fn came_from(&mut self, address: SocketAddr, party: usize, side: &[u8]) {
        self.owners.entry(address).or_insert_with(|| (party, side.to_vec()));
    }

    /// Forgets what each side has got: the next process has other ports, and tells the parties one after the other.
    pub(super) fn restarted(&mut self) {
        self.said.clear();
    }

    /// Records the port that a message of the server shows to a party.
    ///
    /// # Errors
    /// The address in the description is not of the server.
    pub(super) fn shown(&mut self, party: usize, facts: &Facts) -> Result<(), String> {
        let Some(address) = named(&facts.body).first().copied() else { return Ok(()) };
        if address.ip() != SERVER.ip() {
            return Err(format!("a description of the server names {address}"));
        }
        // A retransmission may come after the port was shown to a new party.
        if !self.said.entry(facts.call_id.clone()).or_default().insert((party, facts.body.clone())) {
            return Ok(());
        }
        let shown = self.shown.entry(address.port()).or_default();
        if shown.side != facts.call_id {
            *shown = Shown { side: facts.call_id.clone(), parties: BTreeSet::new() };
        }
        shown.parties.insert(party);
        Ok(())
    }

    /// Checks a packet that leaves the server from this port.
    ///
    /// # Errors
    /// No party has this address, or its party has not been shown the port.
    pub(super) fn sent(&self, port: u16, to: SocketAddr) -> Result<(), String> {
        if to.ip() == CAROL.ip() {
            return Err(format!("{to} is in the network of the party, not in that of the server"));
        }
        let Some((party, side)) = self.owners.get(&to) else {
            let is_report = to.ip() == TRANSLATOR.ip() && port % 2 == 1;
            return if is_report { Ok(()) } else { Err(format!("a packet to {to}, which nobody has named")) };
        };
        let is_shown = self.shown.get(&(port & !1)).is_some_and(|shown| shown.parties.contains(party));
        // A side that has no description of the server yet may get packets: the description may wait for an acknowledgement.
        match is_shown || !self.said.contains_key(side) {
            true => Ok(()),
            false => Err(format!("a packet to {to} from port {port}, which was shown to another party")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_message::Method;

    fn facts(call_id: &str, ip: &str, port: u16) -> Facts {
        let body =
            format!("v=0\r\no=- 1 1 IN IP4 {ip}\r\ns=-\r\nc=IN IP4 {ip}\r\nt=0 0\r\nm=audio {port} RTP/AVP 8\r\n");
        Facts {
            status: Some(200),
            method: Method::Invite,
            cseq: 1,
            call_id: call_id.as_bytes().to_vec(),
            branch: Vec::new(),
            from_tag: Vec::new(),
            to_tag: Vec::new(),
            refer_to: Vec::new(),
            body: body.into_bytes(),
        }
    }

    #[test]
    fn packets_go_to_the_party_of_their_port() {
        let mut reach = Reach::default();
        let at = |text: &str| -> SocketAddr { text.parse().expect("an address") };
        reach.described(0, &facts("a", "198.51.100.11", 4_000));
        reach.described(1, &facts("b", "198.51.100.12", 4_000));
        for (party, side, port) in [(0, "a", 20_000), (1, "b", 20_002)] {
            assert_eq!(reach.shown(party, &facts(side, "192.0.2.1", port)), Ok(()));
        }
        assert!(reach.shown(0, &facts("a", "198.51.100.12", 4_000)).is_err());
        assert_eq!(reach.sent(20_000, at("198.51.100.11:4000")), Ok(()));
        assert_eq!(reach.sent(20_001, at("198.51.100.11:4001")), Ok(()));
        for (port, to) in [(20_002, "198.51.100.11:4000"), (20_000, "198.51.100.99:4000"), (20_000, "10.20.30.40:4000")]
        {
            assert!(reach.sent(port, at(to)).is_err(), "{to}");
        }
        reach.came_from(at("203.0.113.77:60000"), 0, b"a");
        assert_eq!(reach.sent(20_000, at("203.0.113.77:60000")), Ok(()));
    }

    /// The request of a party that is out of reach is sent for 32 seconds, also after the end of its call.
    #[test]
    fn a_retransmission_does_not_show_its_port_again() {
        let mut reach = Reach::default();
        reach.described(1, &facts("b", "198.51.100.12", 4_000));
        for (party, side) in [(0, "a"), (1, "b"), (0, "a")] {
            assert_eq!(reach.shown(party, &facts(side, "192.0.2.1", 20_000)), Ok(()));
        }
        assert_eq!(reach.sent(20_000, "198.51.100.12:4000".parse().expect("an address")), Ok(()));
    }
}
