//! Nearly valid messages, and random bytes.

use crate::random::Random;

/// Seed messages. `@N@` becomes a unique number. They lead to a loopback address where no other test listens: a server
/// that relays sends its output there.
const SEEDS: &[&str] = &[
    "INVITE sip:bob@example.org SIP/2.0\r\nVia: SIP/2.0/UDP 127.9.9.9:5999;branch=z9hG4bKm@N@;rport\r\nMax-Forwards: 70\r\nFrom: \"A. User\" <sip:alice@example.net>;tag=f@N@\r\nTo: <sip:bob@example.org>\r\nCall-ID: m@N@@example.net\r\nCSeq: 1 INVITE\r\nContact: <sip:alice@127.9.9.9:5999>\r\nContent-Type: application/sdp\r\nContent-Length: 129\r\n\r\nv=0\r\no=alice 2890844526 2890844526 IN IP4 127.9.9.9\r\ns=-\r\nc=IN IP4 127.9.9.9\r\nt=0 0\r\nm=audio 49170 RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n",
    "REGISTER sip:example.org SIP/2.0\r\nVia: SIP/2.0/UDP 127.9.9.9:5999;branch=z9hG4bKr@N@;rport\r\nMax-Forwards: 70\r\nFrom: <sip:u@N@@example.org>;tag=r@N@\r\nTo: <sip:u@N@@example.org>\r\nCall-ID: r@N@\r\nCSeq: 7 REGISTER\r\nContact: <sip:u@127.9.9.9:5999>;q=0.5;expires=2;+sip.instance=\"<urn:uuid:00000000-0000-1000-8000-000A95A0E128>\"\r\nContent-Length: 0\r\n\r\n",
    "REGISTER sip:example.org SIP/2.0\r\nVia: SIP/2.0/UDP 127.9.9.9:5999;branch=z9hG4bKa@N@\r\nMax-Forwards: 70\r\nFrom: <sip:alice@example.org>;tag=a\r\nTo: <sip:alice@example.org>\r\nCall-ID: a@N@\r\nCSeq: 8 REGISTER\r\nAuthorization: Digest username=\"alice\", realm=\"example.org\", nonce=\"dcd98b7102dd2f0e8b11d0f600bfb0c093\", uri=\"sip:example.org\", qop=auth, nc=00000001, cnonce=\"0a4f113b\", response=\"6629fae49393a05397450978507c4ef1\", algorithm=MD5\r\nContact: *\r\nExpires: 0\r\nContent-Length: 0\r\n\r\n",
    "BYE sip:bob@127.9.9.9:5998 SIP/2.0\r\nVia: SIP/2.0/UDP 127.9.9.9:5999;branch=z9hG4bKb@N@\r\nRoute: <sip:127.9.9.9:5060;lr>, <sip:127.9.9.9:5061;transport=tcp;lr>\r\nMax-Forwards: 3\r\nFrom: <sip:alice@example.net>;tag=f@N@\r\nTo: <sip:bob@example.org>;tag=t@N@\r\nCall-ID: m@N@@example.net\r\nCSeq: 2 BYE\r\nContent-Length: 0\r\n\r\n",
    "ACK sip:bob@example.org SIP/2.0\r\nVia: SIP/2.0/UDP 127.9.9.9:5999;branch=z9hG4bKm@N@\r\nMax-Forwards: 70\r\nFrom: <sip:alice@example.net>;tag=f@N@\r\nTo: <sip:bob@example.org>;tag=x\r\nCall-ID: m@N@@example.net\r\nCSeq: 1 ACK\r\nContent-Length: 0\r\n\r\n",
    "CANCEL sip:bob@example.org SIP/2.0\r\nVia: SIP/2.0/UDP 127.9.9.9:5999;branch=z9hG4bKm@N@\r\nMax-Forwards: 70\r\nFrom: <sip:alice@example.net>;tag=f@N@\r\nTo: <sip:bob@example.org>\r\nCall-ID: m@N@@example.net\r\nCSeq: 1 CANCEL\r\nContent-Length: 0\r\n\r\n",
    "OPTIONS sip:example.org SIP/2.0\r\nv: SIP/2.0/TCP [::1]:5999;branch=z9hG4bKo@N@;received=127.9.9.9\r\nMax-Forwards: 0\r\nf: sip:alice@example.net;tag=f@N@\r\nt: <sips:bob@example.org;user=phone>\r\ni: o@N@\r\nCSeq: 4294967295 OPTIONS\r\nRequire: nothing\r\nProxy-Require: nothing-either\r\nk: path, gruu\r\nl: 0\r\n\r\n",
    "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP 127.9.9.9:5060;branch=z9hG4bKs@N@\r\nVia: SIP/2.0/UDP 127.9.9.9:5999;branch=z9hG4bKc@N@\r\nFrom: <sip:alice@example.net>;tag=f@N@\r\nTo: <sip:bob@example.org>;tag=t\r\nCall-ID: m@N@@example.net\r\nCSeq: 1 INVITE\r\nContact: <sip:bob@127.9.9.9>\r\nContent-Length: 0\r\n\r\n",
    "MESSAGE tel:+15551234;phone-context=example.org SIP/2.0\r\nVia: SIP/2.0/WS abc.invalid;branch=z9hG4bKt@N@\r\nMax-Forwards: 70\r\nFrom: <sip:alice@example.net>;tag=f@N@\r\nTo: <urn:service:sos>\r\nCall-ID: t@N@\r\nCSeq: 1 MESSAGE\r\nContent-Type: text/plain;charset=\"utf-8\"\r\nContent-Length: 5\r\n\r\nhello",
];

/// Tokens that are difficult for parsers.
const WORDS: &[&str] = &[
    "\r\n",
    "\r",
    "\n",
    "\r\n\r\n",
    "\r\n ",
    "\r\n\t",
    "\0",
    ";",
    ",",
    ":",
    "=",
    "\"",
    "<",
    ">",
    "@",
    "%00",
    "%",
    "\\\"",
    "[",
    "]",
    "[::1]",
    "4294967296",
    "-1",
    "99999999999999999999",
    "0",
    "Content-Length: 99999999\r\n",
    "Content-Length: 0\r\n",
    "Via: ",
    "v:",
    "SIP/2.0",
    "SIP/2.0/UDP",
    ";branch=z9hG4bK",
    ";lr",
    ";maddr=127.9.9.9",
    ";received=",
    ";rport",
    ";tag=",
    "\u{fc}",
    "sip:",
    "sips:",
    "tel:",
    "Contact: *\r\n",
    "Expires: 4294967295\r\n",
    "Route: <sip:127.9.9.9;lr>\r\n",
    "Record-Route: <sip:127.9.9.9;lr>\r\n",
    "Max-Forwards: 256\r\n",
    "Authorization: Digest ",
    "Digest username=\"\"",
    "nonce=\"\"",
    ";q=1.5",
    ";expires=0",
    ";transport=tcp",
    ";transport=sctp",
    "User-Agent: friendly-scanner\r\n",
    "z9hG4bK",
    "????",
    "    ",
];

/// Endless sequence of messages from a seed.
#[derive(Debug)]
pub struct Mutations {
    random: Random,
    number: u64,
    seeds: Vec<Vec<u8>>,
}

impl Mutations {
    /// Creates a sequence from our own seed messages and further ones.
    pub fn new(seed: u64, further: Vec<Vec<u8>>) -> Self {
        let mut seeds: Vec<Vec<u8>> = SEEDS.iter().map(|text| text.as_bytes().to_vec()).collect();
        // Our own seed messages create the transactions, so they remain the majority.
        let copies = 1 + further.len() / seeds.len();
        seeds = seeds.iter().cycle().take(seeds.len() * copies).cloned().collect();
        seeds.extend(further);
        Self { random: Random::new(seed), number: seed << 32, seeds }
    }

    /// Returns the next message of at most 8,000 bytes. Some messages are unchanged, and one in ten consists of random
    /// bytes only.
    pub fn message(&mut self) -> Vec<u8> {
        let random = &mut self.random;
        self.number += 1;
        if random.below(10) == 0 {
            return (0..random.below(300)).map(|_| random.number() as u8).collect();
        }
        let seed = &self.seeds[random.below(self.seeds.len())];
        let mut bytes = numbered(seed, self.number - random.below(3) as u64);
        for _ in 0..random.below(6) {
            let at = random.below(bytes.len());
            match random.below(8) {
                0 if !bytes.is_empty() => bytes[at] = random.number() as u8,
                1 => {
                    let end = bytes.len().min(at + random.below(20));
                    bytes.drain(at..end);
                }
                2 => {
                    let end = bytes.len().min(at + random.below(200));
                    let piece = bytes[at..end].to_vec();
                    let to = random.below(bytes.len());
                    bytes.splice(to..to, piece);
                }
                3 if random.below(4) == 0 => bytes.truncate(at),
                4 => {
                    let other = &self.seeds[random.below(self.seeds.len())];
                    let from = random.below(other.len());
                    let end = other.len().min(from + random.below(100));
                    bytes.splice(at..at, other[from..end].iter().copied());
                }
                5 if random.below(20) == 0 => {
                    let byte = random.number() as u8;
                    bytes.splice(at..at, std::iter::repeat_n(byte, random.below(4_000)));
                }
                _ => {
                    let word = WORDS[random.below(WORDS.len())];
                    bytes.splice(at..at, word.bytes());
                }
            }
        }
        bytes.truncate(8_000);
        bytes
    }
}

fn numbered(seed: &[u8], number: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(seed.len() + 32);
    let mut rest = seed;
    let digits = number.to_string();
    while let Some(at) = rest.windows(3).position(|window| window == b"@N@") {
        bytes.extend_from_slice(&rest[..at]);
        bytes.extend_from_slice(digits.as_bytes());
        rest = &rest[at + 3..];
    }
    bytes.extend_from_slice(rest);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_messages() {
        let row = |seed| {
            let mut mutations = Mutations::new(seed, Vec::new());
            (0..200).map(|_| mutations.message()).collect::<Vec<_>>()
        };
        assert_eq!(row(1), row(1));
        assert_ne!(row(1), row(2));
    }
}
