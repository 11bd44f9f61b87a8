//! Exchange without parsing: two programs send each other the datagrams of a request or call, and only check their
//! lengths.

use std::io::{Error, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Datagrams of a system call, as many as in a shard.
const BATCH: usize = 64;

/// Room for a datagram.
const SIZE: usize = 2_048;

/// Interval at which a silent side checks whether to end.
const LOOK: Duration = Duration::from_millis(20);

/// Bytes that the kernel may hold for a side, as for a shard.
const BUFFER: usize = 4 << 20;

/// Opens the socket of a side on a free port of 127.0.0.1.
///
/// # Errors
/// No port is free.
pub fn open() -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket2::SockRef::from(&socket).set_recv_buffer_size(BUFFER)?;
    socket2::SockRef::from(&socket).set_send_buffer_size(BUFFER)?;
    Ok(socket)
}

/// Reaction to a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Length of the datagram.
    pub length: usize,
    /// Datagrams to send then.
    pub sends: Vec<Vec<u8>>,
    /// True if the datagram completes an exchange.
    pub is_last: bool,
}

/// Answers datagrams by their steps until `is_over`, and counts completed exchanges. Skips datagrams of other lengths.
/// Batches datagrams if the kernel has several of them.
///
/// # Errors
/// The socket fails, or is not IPv4.
pub fn run(socket: &UdpSocket, steps: &[Step], completed: &AtomicU64, is_over: &AtomicBool) -> std::io::Result<()> {
    socket.set_read_timeout(Some(LOOK))?;
    let mut batch = Batch::new(steps.iter().map(|step| step.sends.len()).max().unwrap_or(0));
    while !is_over.load(Relaxed) {
        let got = batch.receive(socket.as_raw_fd())?;
        let (mut done, mut answers) = (0, 0);
        for n in 0..got {
            let (length, from) = (batch.headers[n].msg_len as usize, batch.names[n]);
            let Some(step) = steps.iter().find(|step| step.length == length) else { continue };
            for bytes in &step.sends {
                batch.put(answers, from, bytes);
                answers += 1;
            }
            done += u64::from(step.is_last);
        }
        completed.fetch_add(done, Relaxed);
        batch.send(socket.as_raw_fd(), answers);
    }
    Ok(())
}

/// Begins `count` exchanges with this datagram.
///
/// # Errors
/// A datagram cannot be sent.
pub fn begin(socket: &UdpSocket, to: SocketAddr, first: &[u8], count: u32) -> std::io::Result<()> {
    (0..count).try_for_each(|_| socket.send_to(first, to).map(drop))
}

/// Headers of a received batch, and of the answers to it.
struct Batch {
    names: Vec<libc::sockaddr_in>,
    headers: Vec<libc::mmsghdr>,
    answers: Vec<libc::mmsghdr>,
    to: Vec<libc::sockaddr_in>,
    pieces: Vec<libc::iovec>,
    // The pointers above refer to these; neither moves.
    _rooms: Vec<[u8; SIZE]>,
    _places: Vec<libc::iovec>,
}

impl Batch {
    /// Creates a batch whose datagrams have at most this many answers each.
    fn new(answers: usize) -> Self {
        // SAFETY: all of these are plain C structures for which zero is a value.
        let (name, piece, header): (libc::sockaddr_in, libc::iovec, libc::mmsghdr) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed(), std::mem::zeroed()) };
        let most = BATCH * answers;
        let (mut names, mut rooms) = (vec![name; BATCH], vec![[0; SIZE]; BATCH]);
        let mut places = vec![piece; BATCH];
        let mut headers = vec![header; BATCH];
        let (mut to, mut pieces, mut sends) = (vec![name; most], vec![piece; most], vec![header; most]);
        for n in 0..BATCH {
            places[n] = libc::iovec { iov_base: rooms[n].as_mut_ptr().cast(), iov_len: SIZE };
            link(&mut headers[n], &mut names[n], &mut places[n]);
        }
        for n in 0..most {
            link(&mut sends[n], &mut to[n], &mut pieces[n]);
        }
        Self { names, headers, answers: sends, to, pieces, _rooms: rooms, _places: places }
    }

    /// Receives a batch. Returns the number of datagrams; 0 if nothing arrived in time.
    fn receive(&mut self, fd: RawFd) -> std::io::Result<usize> {
        for header in &mut self.headers {
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in>() as u32;
        }
        let headers = self.headers.as_mut_ptr();
        // SAFETY: each header points at a name, a piece and a room that live as long as the batch.
        let got = unsafe { libc::recvmmsg(fd, headers, BATCH as u32, libc::MSG_WAITFORONE, std::ptr::null_mut()) };
        usize::try_from(got).or_else(|_| {
            let error = Error::last_os_error();
            // An earlier sent datagram was unreachable: this call returns its error.
            let is_none = matches!(
                error.kind(),
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted | ErrorKind::ConnectionRefused
            );
            if is_none { Ok(0) } else { Err(error) }
        })
    }

    /// Sets answer `n`: these bytes to this address.
    fn put(&mut self, n: usize, to: libc::sockaddr_in, bytes: &[u8]) {
        self.to[n] = to;
        // The kernel does not write to the bytes of an answer.
        self.pieces[n] = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    }

    /// Sends the first `count` answers, whose bytes belong to the steps. Skips an answer that cannot be sent.
    fn send(&mut self, fd: RawFd, count: usize) {
        let mut sent = 0;
        while sent < count {
            let rest = &mut self.answers[sent..count];
            // SAFETY: each header points at a name and a piece of the batch, each piece at bytes of a step.
            let now = unsafe { libc::sendmmsg(fd, rest.as_mut_ptr(), rest.len() as u32, 0) };
            sent += usize::try_from(now).map_or(1, |now| now.max(1));
        }
    }
}

/// Points a header at its name and its piece.
fn link(header: &mut libc::mmsghdr, name: &mut libc::sockaddr_in, piece: &mut libc::iovec) {
    header.msg_hdr.msg_name = std::ptr::from_mut(name).cast();
    header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in>() as u32;
    header.msg_hdr.msg_iov = piece;
    header.msg_hdr.msg_iovlen = 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Instant;

    fn step(length: usize, sends: &[usize], is_last: bool) -> Step {
        Step { length, sends: sends.iter().map(|length| vec![b'x'; *length]).collect(), is_last }
    }

    /// The five datagrams of a call: INVITE 50, its 200 40, ACK 30, BYE 20, its 200 10.
    #[test]
    fn exchanges_of_several_datagrams_go_on_until_they_are_ended() {
        let [caller, called] = [(); 2].map(|()| open().expect("a free port"));
        let to = called.local_addr().expect("it is bound");
        let (is_over, completed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let over = is_over.clone();
        let answering = [step(50, &[40], false), step(30, &[], false), step(20, &[10], true)];
        let other = std::thread::spawn(move || {
            let answered = AtomicU64::new(0);
            run(&called, &answering, &answered, &over).expect("its socket is good");
            answered.into_inner()
        });
        begin(&caller, to, &[b'x'; 50], 3).expect("it is sent");
        begin(&caller, to, &[b'x'; 7], 1).expect("it is sent");
        let (over, done) = (is_over.clone(), completed.clone());
        let calling = [step(40, &[30, 20], false), step(10, &[50], true)];
        let caller = std::thread::spawn(move || run(&caller, &calling, &done, &over).expect("its socket is good"));
        let limit = Instant::now() + Duration::from_secs(60);
        while completed.load(Relaxed) < 1_000 && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(1));
        }
        is_over.store(true, Relaxed);
        caller.join().expect("it ends");
        let (answered, completed) = (other.join().expect("it ends"), completed.load(Relaxed));
        assert!(completed >= 1_000, "{completed}");
        // Each of the three exchanges may be one answer ahead of the others, but not more.
        assert!((completed..=completed + 3).contains(&answered), "{answered} answered, {completed} completed");
    }
}
