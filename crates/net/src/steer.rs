//! Steering of datagrams by the kernel to the shard that owns their call: a classic packet filter on the group of
//! sockets bound to one address (`SO_ATTACH_REUSEPORT_CBPF`, no privilege needed).
//!
//! The filter cannot loop, so the search for the Call-ID line is unrolled: four bytes at a time, for any of four pieces
//! of "Call-ID:", one of which must lie on each alignment. It knows the long form only, within [`REACH`] bytes. A
//! datagram whose line it misses or misreads reaches some shard, which passes it on. So it saves work and decides
//! nothing.

use libc::{sock_filter, sock_fprog};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use strowger_core::call::FILTERED;

/// Bytes from the start of a datagram in which the Call-ID line must begin. Programs of 1,764 instructions load under
/// the smallest usual `net.core.optmem_max`, those of 4,004 do not.
const REACH: u32 = 640;

/// Pieces of "call-id:" with their offset in it, one for each remainder by four.
const PIECES: [([u8; 4], u32); 4] = [(*b"l-id", 3), (*b"-id:", 4), (*b"all-", 1), (*b"ll-i", 2)];

const LD: u16 = 0x00;
const LDX: u16 = 0x01;
const ST: u16 = 0x02;
const ALU: u16 = 0x04;
const JMP: u16 = 0x05;
const RET: u16 = 0x06;
const MISC: u16 = 0x07;
const W: u16 = 0x00;
const B: u16 = 0x10;
const IMM: u16 = 0x00;
const ABS: u16 = 0x20;
const IND: u16 = 0x40;
const MEM: u16 = 0x60;
const ADD: u16 = 0x00;
const MUL: u16 = 0x20;
const OR: u16 = 0x40;
const NEG: u16 = 0x80;
const RSH: u16 = 0x70;
const MOD: u16 = 0x90;
const XOR: u16 = 0xa0;
const JA: u16 = 0x00;
const JEQ: u16 = 0x10;
const JGT: u16 = 0x20;
const X: u16 = 0x08;
const A: u16 = 0x10;
const TAX: u16 = 0x00;
const TXA: u16 = 0x80;
/// Offset at which the kernel provides a random number.
const RANDOM: u32 = (-0x1000_i32 + 56) as u32;

/// Index beyond any group: the kernel then spreads by addresses and ports as without a filter.
const NO_SHARD: u32 = u32::MAX;

const fn op(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: JMP | code, jt, jf, k }
}

/// Builds the filter that gives a datagram to socket [`crate::buckets::share`] of its call's bucket.
pub(crate) fn by_call(secret: u32, shards: usize) -> Vec<sock_filter> {
    if shards == 1 {
        return vec![op(RET, 0)];
    }
    let mut p = Vec::new();
    let mut hits = Vec::new();
    for at in (0..REACH).step_by(4) {
        p.push(op(LD | W | ABS, at));
        p.push(op(ALU | OR, 0x2020_2020));
        for (i, (piece, _)) in PIECES.iter().enumerate() {
            let last = i == PIECES.len() - 1;
            p.push(jump(JEQ, u32::from_be_bytes(*piece), (PIECES.len() - 1 - i) as u8, if last { 2 } else { 0 }));
        }
        p.push(op(LDX | W | IMM, at));
        hits.push(p.len());
        p.push(op(JMP | JA, 0));
    }
    p.push(op(RET, NO_SHARD));
    for hit in hits {
        p[hit].k = (p.len() - hit - 1) as u32;
    }
    // A holds the piece, and X its position. X becomes the start of the header name.
    for (i, (piece, place)) in PIECES.iter().enumerate() {
        p.push(jump(JEQ, u32::from_be_bytes(*piece), 0, 2));
        p.push(op(LD | W | IMM, *place));
        p.push(op(JMP | JA, (PIECES.len() - 1 - i) as u32 * 3));
    }
    p.push(op(ALU | NEG, 0));
    p.push(op(ALU | ADD | X, 0));
    p.push(op(MISC | TAX, 0));
    // These bytes are the header name only if they are complete and at the start of a line.
    for (at, word) in [(0, *b"call"), (3, *b"l-id")] {
        p.push(op(LD | W | IND, at));
        p.push(op(ALU | OR, 0x2020_2020));
        p.push(jump(JEQ, u32::from_be_bytes(word), 1, 0));
        p.push(op(RET, NO_SHARD));
    }
    p.push(op(LD | B | IND, 0u32.wrapping_sub(1)));
    p.push(jump(JEQ, b'\n' as u32, 1, 0));
    p.push(op(RET, NO_SHARD));
    p.push(op(MISC | TXA, 0));
    p.push(op(ALU | ADD, 7));
    p.push(op(MISC | TAX, 0));
    // Colon and white space, up to five characters.
    for _ in 0..5 {
        p.push(op(LD | B | IND, 0));
        p.push(jump(JEQ, b':' as u32, 2, 0));
        p.push(jump(JEQ, b' ' as u32, 1, 0));
        p.push(jump(JEQ, b'\t' as u32, 0, 3));
        p.push(op(MISC | TXA, 0));
        p.push(op(ALU | ADD, 1));
        p.push(op(MISC | TAX, 0));
    }
    // M[0] is the hash, M[1] the start of the value.
    p.push(op(MISC | TXA, 0));
    p.push(op(ST, 1));
    p.push(op(LD | W | IMM, secret ^ 0x811c_9dc5));
    p.push(op(ST, 0));
    let mut ends = Vec::new();
    for k in 0..FILTERED as u32 {
        p.push(op(LDX | W | MEM, 1));
        p.push(op(LD | B | IND, k));
        // The value ends at the first white space: skip the exit, or take it.
        p.push(jump(JGT, b' ' as u32, 1, 0));
        ends.push(p.len());
        p.push(op(JMP | JA, 0));
        p.push(op(LDX | W | MEM, 0));
        p.push(op(ALU | XOR | X, 0));
        p.push(op(ALU | MUL, 0x0100_0193));
        p.push(op(ST, 0));
    }
    for end in ends {
        p[end].k = (p.len() - end - 1) as u32;
    }
    for (shift, factor) in [(15, 0x2c1b_3c6d), (12, 1)] {
        p.push(op(LD | W | MEM, 0));
        p.push(op(ALU | RSH, shift));
        p.push(op(LDX | W | MEM, 0));
        p.push(op(ALU | XOR | X, 0));
        p.push(op(ALU | MUL, factor));
        p.push(op(ST, 0));
    }
    p.push(op(ALU | RSH, 24));
    p.push(op(ALU | MUL, shards as u32));
    p.push(op(ALU | RSH, 8));
    p.push(op(RET | A, 0));
    p
}

/// Builds the filter that distributes connections at random over the first `shards` listeners.
pub(crate) fn at_random(shards: usize) -> Vec<sock_filter> {
    vec![op(LD | W | ABS, RANDOM), op(ALU | MOD, shards as u32), op(RET | A, 0)]
}

/// Attaches the filter to the whole group of `socket`, replacing the earlier filter.
pub(crate) fn attach(socket: BorrowedFd<'_>, program: &[sock_filter]) -> io::Result<()> {
    let program = sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the option takes a `sock_fprog`, which is on our stack; the kernel copies the `len` instructions that it
    // points at, and writes nothing.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size_of::<sock_fprog>() as u32,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buckets::share;
    use std::net::{SocketAddr, UdpSocket};
    use std::os::fd::AsFd;
    use std::time::Duration;
    use strowger_core::call;

    fn group(n: usize) -> Vec<UdpSocket> {
        let mut address: SocketAddr = "127.0.0.1:0".parse().unwrap();
        (0..n)
            .map(|_| {
                let socket = crate::udp::bind(address, true, &crate::NetSettings::default()).unwrap();
                address = socket.local_addr().unwrap();
                socket.set_nonblocking(false).unwrap();
                socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
                socket
            })
            .collect()
    }

    /// Returns the socket that gets the datagram.
    fn given(sockets: &[UdpSocket], bytes: &[u8]) -> usize {
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.send_to(bytes, sockets[0].local_addr().unwrap()).unwrap();
        let mut buffer = [0; 4_096];
        (0..400).map(|i| i % sockets.len()).find(|&i| sockets[i].recv(&mut buffer).is_ok()).expect("one socket has it")
    }

    #[test]
    fn kernel_and_shards_agree() {
        let (secret, shards) = (0x5eed_1234, 4);
        let sockets = group(shards);
        let program = by_call(secret, shards);
        assert!(program.len() < 2_000, "{} instructions", program.len());
        attach(sockets[0].as_fd(), &program).unwrap();
        let names = ["Call-ID: ", "call-id:", "CALL-ID:  ", "Call-ID :\t "];
        for i in 0..64usize {
            let id: String = (0..1 + i % FILTERED).map(|j| (b'!' + ((i * 31 + j * 17) % 90) as u8) as char).collect();
            let filler = "f".repeat(i);
            let via =
                "Via: SIP/2.0/UDP 127.0.0.1:5099;branch=z9hG4bK1\r\nTo: <sip:callee@example>\r\n".repeat(1 + i % 4);
            let text = format!("INVITE sip:{filler}@h SIP/2.0\r\n{via}{}{id}\r\nCSeq: 1 INVITE\r\n\r\n", names[i % 4]);
            let bucket = call::bucket(call::hash(secret, id.as_bytes()));
            assert_eq!(given(&sockets, text.as_bytes()), share(bucket, shards) as usize, "{text}");
        }
    }

    #[test]
    fn what_the_filter_does_not_find_is_spread_by_addresses() {
        let sockets = group(3);
        attach(sockets[0].as_fd(), &by_call(9, 3)).unwrap();
        for more in 1..20 {
            given(&sockets, format!("A\r\nCall-ID: {}\r\n", "i".repeat(FILTERED + more)).as_bytes());
        }
        for text in ["", "x", "\r\n\r\n", "Call-ID:", "i: 5", "call-info: x", "OPTIONS sip:a SIP/2.0\r\nCall-ID:"] {
            given(&sockets, text.as_bytes());
        }
        given(&sockets, "call ".repeat(200).as_bytes());
        given(&sockets, &[0xff; 1_200]);
    }

    #[test]
    fn one_shard_gets_everything() {
        let sockets = group(3);
        attach(sockets[0].as_fd(), &by_call(9, 1)).unwrap();
        for i in 0..20 {
            assert_eq!(given(&sockets, format!("Call-ID: {i}\r\n").as_bytes()), 0);
        }
    }
}
