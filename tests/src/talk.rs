//! Bridged call by hand with the media of both parties.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::bridge::{Bridged, described, description, invite};
use crate::dialog::{answer_to, contact};
use crate::echo;
use crate::rtp::{self, PACKET_TIME, TICKS};
use crate::stalls::Stalls;
use crate::text::{Request, respond, status};
use crate::wire::Wire;

/// Time limit of each step.
const STEP: Duration = Duration::from_secs(10);

/// Bytes of a packet.
const LENGTH: usize = 172;

/// Bridged call with the media of both parties: caller and callee.
pub struct Talk {
    /// Signalling of the call.
    pub call: Bridged,
    /// Media of the parties. A read waits for the time of a packet.
    pub parties: [UdpSocket; 2],
    /// Ports of the server towards them.
    pub ports: [SocketAddr; 2],
    /// Sequence number of the next packet of [`Talk::largest_delay`].
    sequence: u16,
}

impl Talk {
    /// Calls bob, who accepts.
    ///
    /// # Panics
    /// The server refuses the call, or a message does not arrive.
    pub fn begin(caller: &mut Wire, callee: &mut Wire) -> Self {
        Self::try_begin(caller, callee).unwrap_or_else(|refusal| panic!("{}", String::from_utf8_lossy(&refusal)))
    }

    /// Acts as [`Talk::begin`].
    ///
    /// # Errors
    /// The response by which the server refuses the call.
    ///
    /// # Panics
    /// A message does not arrive.
    pub fn try_begin(caller: &mut Wire, callee: &mut Wire) -> Result<Self, Vec<u8>> {
        Self::set_up(caller, callee, None)
    }

    /// Acts as [`Talk::begin`] with a caller behind NAT, which knows only its private address 10.0.0.5.
    ///
    /// # Panics
    /// As [`Talk::begin`].
    pub fn begin_behind_nat(caller: &mut Wire, callee: &mut Wire) -> Self {
        let begun = Self::set_up(caller, callee, Some(IpAddr::from([10, 0, 0, 5])));
        begun.unwrap_or_else(|refusal| panic!("{}", String::from_utf8_lossy(&refusal)))
    }

    /// Calls bob. `private`: the only address that the caller knows of itself.
    fn set_up(caller: &mut Wire, callee: &mut Wire, private: Option<IpAddr>) -> Result<Self, Vec<u8>> {
        let parties = [&*caller, &*callee].map(|wire| {
            let media = UdpSocket::bind((wire.local().ip(), 0)).expect("loopback has a port");
            media.set_read_timeout(Some(PACKET_TIME)).expect("a time");
            media
        });
        let [of_caller, of_callee] = &parties;
        let mut offer = audio(caller, of_caller, "sendrecv");
        if let Some(private) = private {
            offer = offer.replace(&format!("IN IP4 {}", caller.local().ip()), &format!("IN IP4 {private}"));
        }
        let mut invite = invite("sip:bob@example.org", caller, &offer);
        if let Some(private) = private {
            invite.via.1.set_ip(private);
        }
        let answer = audio(callee, of_callee, "sendrecv");
        let call = Bridged::set_up(caller, callee, &invite, &answer)?;
        let ports = [echo::described(&call.answer), echo::described(&call.invite)];
        Ok(Self { call, parties, ports, sequence: 1_000 })
    }

    /// Waits until each party has heard the other one, which sends.
    ///
    /// # Panics
    /// A party does not hear the other one.
    pub fn wait_until_heard(&self) {
        for (from, to) in [(0, 1), (1, 0)] {
            self.wait_until_hears(from, to);
        }
    }

    /// Waits until the party `to`, which sends nothing, hears the party `from`.
    ///
    /// # Panics
    /// It does not hear it.
    pub fn wait_until_hears(&self, from: usize, to: usize) {
        let (mouth, ear) = (&self.parties[from], &self.parties[to]);
        let mut bytes = [0; 1_500];
        // Packets of the process before.
        self.take(to);
        let end = Instant::now() + STEP;
        for sequence in 0.. {
            assert!(Instant::now() < end, "party {to} does not hear party {from}");
            mouth.send_to(&packet(sequence), self.ports[from]).expect("loopback takes it");
            if ear.recv_from(&mut bytes).is_ok_and(|(length, source)| length == LENGTH && source == self.ports[to]) {
                return;
            }
        }
    }

    /// Accepts the re-INVITEs by which the server gives both parties other ports.
    ///
    /// # Panics
    /// One does not arrive, or names the port before.
    pub fn accept_other_ports(&mut self, caller: &mut Wire, callee: &mut Wire) {
        for (place, wire, user) in [(0, caller, "alice"), (1, callee, "callee")] {
            let got = wire.request("INVITE", STEP).expect("the server offers other ports");
            let ports = echo::described(&got);
            assert_ne!(ports, self.ports[place], "party {place}");
            self.ports[place] = ports;
            let ok = respond(&got, 200, user, &[contact(user, wire)]);
            let ok = described(&ok, &audio(wire, &self.parties[place], "sendrecv"));
            wire.send(&ok).expect("the server takes messages");
            wire.request("ACK", STEP).expect("the ACK arrives");
        }
    }

    /// Removes the datagrams that a party has got, and returns them.
    ///
    /// # Panics
    /// The socket cannot be set.
    pub fn take(&self, party: usize) -> Vec<Vec<u8>> {
        let (ear, mut bytes) = (&self.parties[party], [0; 1_500]);
        ear.set_nonblocking(true).expect("a socket");
        let mut taken = Vec::new();
        while let Ok((length, _)) = ear.recv_from(&mut bytes) {
            taken.push(bytes[..length].to_vec());
        }
        ear.set_nonblocking(false).expect("a socket");
        taken
    }

    /// Sends so many packets from the caller in their times, and returns the largest delay with which one comes to the callee, without the times in
    /// which the machine stood still, and the number of those that come.
    ///
    /// # Panics
    /// A socket fails.
    pub fn largest_delay(&mut self, packets: u16) -> (Duration, usize) {
        self.take(1);
        let (stalls, mut heard, mut bytes) = (Stalls::watch(), Vec::new(), [0; 1_500]);
        let (begun, first) = (Instant::now(), self.sequence);
        self.sequence = first.wrapping_add(packets);
        let mut sent = Vec::with_capacity(usize::from(packets));
        for number in 0..packets {
            sent.push(Instant::now());
            self.parties[0].send_to(&packet(first.wrapping_add(number)), self.ports[0]).expect("loopback takes it");
            let next = begun + PACKET_TIME * (u32::from(number) + 1);
            // The last packet may be late, too.
            let end = if number + 1 == packets { next + STEP } else { next };
            while heard.len() < usize::from(packets) {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                self.parties[1].set_read_timeout(Some(left)).expect("a time");
                let Ok((LENGTH, source)) = self.parties[1].recv_from(&mut bytes) else { continue };
                // The payload passes as it is.
                let place = u16::from_be_bytes([bytes[12], bytes[13]]).wrapping_sub(first);
                if let Some(sent) = sent.get(usize::from(place)).filter(|_| source == self.ports[1]) {
                    heard.push((*sent, Instant::now()));
                }
            }
        }
        self.parties[1].set_read_timeout(Some(PACKET_TIME)).expect("a time");
        let delays = heard.iter().map(|(sent, came)| (*came - *sent).saturating_sub(stalls.between(*sent, *came)));
        (delays.max().unwrap_or_default(), heard.len())
    }

    /// Puts the call on hold by a re-INVITE of the caller.
    ///
    /// # Panics
    /// A message does not arrive, or the ports of the server change.
    pub fn hold(&mut self, caller: &mut Wire, callee: &mut Wire) {
        let mut hold =
            self.call.near.request("INVITE").with("Content-Type: application/sdp").with(contact("alice", caller));
        hold.body = audio(caller, &self.parties[0], "sendonly").into_bytes();
        caller.send(&hold.bytes()).expect("the server takes messages");
        let got = callee.request("INVITE", STEP).expect("the change arrives");
        assert_eq!(echo::described(&got), self.ports[1]);
        let ok = respond(&got, 200, "callee", &[contact("callee", callee)]);
        let ok = described(&ok, &audio(callee, &self.parties[1], "recvonly"));
        callee.send(&ok).expect("the server takes messages");
        let answer = answer_to(&hold, caller, 200).expect("the change is answered");
        assert_eq!((status(&answer), echo::described(&answer)), (Some(200), self.ports[0]));
        let ack = Request { cseq: hold.cseq, ..self.call.near.request("ACK") };
        caller.send(&ack.bytes()).expect("the server takes messages");
        callee.request("ACK", STEP).expect("the ACK arrives");
    }
}

/// Returns a packet of G.711 A-law, whose payload begins with its sequence number.
pub fn packet(sequence: u16) -> Vec<u8> {
    let mut payload = [0xd5; TICKS as usize];
    payload[..2].copy_from_slice(&sequence.to_be_bytes());
    rtp::packet(8, 7, sequence, &payload)
}

/// Returns a description of the media of a party.
fn audio(wire: &Wire, media: &UdpSocket, direction: &str) -> String {
    let port = media.local_addr().expect("it is bound").port();
    description(wire, &format!("m=audio {port} RTP/AVP 8\r\na={direction}\r\n"))
}
