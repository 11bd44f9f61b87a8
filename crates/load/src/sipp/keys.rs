//! Keys from the terminal, from UDP, and from signals. All mean the same.

use super::terminal::Terminal;
use std::io::Read;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use tokio::signal::unix::{SignalKind, signal};

/// Key or command of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// One of `+ - * / p s q Q 1…9`.
    Letter(u8),
    /// Line after `c`: `set rate 10`.
    Command(String),
    /// Unfinished line, or `None` if it was cancelled.
    Typing(Option<String>),
    /// Write the screens now (SIGUSR2).
    Dump,
    /// End the run with this exit code (SIGHUP, SIGQUIT).
    End(u8),
    /// Redraw the screen.
    Draw,
}

/// Parser of typed bytes.
#[derive(Default)]
struct Typist {
    /// Command being typed.
    line: Option<Vec<u8>>,
}

impl Typist {
    fn key(&mut self, byte: u8) -> Key {
        const ERASE: [u8; 2] = [8, 127];
        const ESCAPE: u8 = 27;
        let Some(line) = &mut self.line else {
            // SIPp uses the letter; editors use a colon.
            if matches!(byte, b'c' | b':') {
                self.line = Some(Vec::new());
                return Key::Typing(Some(String::new()));
            }
            return Key::Letter(byte);
        };
        match byte {
            b'\n' | b'\r' => {
                let line = self.line.take().unwrap_or_default();
                return Key::Command(String::from_utf8_lossy(&line).trim().to_owned());
            }
            ESCAPE => {
                self.line = None;
                return Key::Typing(None);
            }
            byte if ERASE.contains(&byte) => drop(line.pop()),
            byte => line.push(byte),
        }
        Key::Typing(Some(String::from_utf8_lossy(line).into_owned()))
    }
}

/// Reads standard input to its end.
pub(super) fn terminal(to: Sender<Key>) {
    std::thread::spawn(move || {
        let mut typist = Typist::default();
        // Unbuffered, so that a key is read when it is pressed.
        let mut input = std::io::stdin().lock();
        let mut bytes = [0; 256];
        while let Ok(n @ 1..) = input.read(&mut bytes) {
            if bytes[..n].iter().any(|&byte| to.send(typist.key(byte)).is_err()) {
                return;
            }
        }
    });
}

/// Listens on the control port: on `port` if given, else on the first free port from 8888 on. If none of these is free,
/// there is silently no control port.
///
/// # Errors
/// The requested port is not free.
pub(super) fn control(ip: IpAddr, port: Option<u16>, to: Sender<Key>) -> std::io::Result<()> {
    let socket = match port {
        Some(port) => Some(UdpSocket::bind(SocketAddr::new(ip, port))?),
        None => (8_888..8_888 + 60).find_map(|port| UdpSocket::bind(SocketAddr::new(ip, port)).ok()),
    };
    let Some(socket) = socket else { return Ok(()) };
    std::thread::spawn(move || {
        let mut buffer = [0; 2_048];
        while let Ok((n, _)) = socket.recv_from(&mut buffer) {
            let bytes = &buffer[..n];
            let keys: Vec<Key> = match bytes.split_first() {
                Some((b'c', line)) => vec![Key::Command(String::from_utf8_lossy(line).trim().to_owned())],
                _ => bytes.iter().map(|&b| Key::Letter(b)).collect(),
            };
            if keys.into_iter().any(|key| to.send(key).is_err()) {
                return;
            }
        }
    });
    Ok(())
}

/// Handles signals. SIGUSR1 acts as `q`, SIGUSR2 writes the screens, and SIGINT and SIGTERM act as `Q`. SIGHUP and
/// SIGQUIT write the files of the run and end it with their exit codes. Ctrl-Z restores the terminal until the process
/// continues.
pub(super) fn signals(runtime: &tokio::runtime::Handle, to: &Sender<Key>, terminal: &Arc<Terminal>) {
    let mut meanings = vec![
        (SignalKind::user_defined1(), Key::Letter(b'q')),
        (SignalKind::user_defined2(), Key::Dump),
        (SignalKind::interrupt(), Key::Letter(b'Q')),
        (SignalKind::terminate(), Key::Letter(b'Q')),
    ];
    // For a process that a signal has ended, a shell reports 128 plus the number of the signal. `nohup` ignores SIGHUP.
    let others = [(SignalKind::hangup(), 1), (SignalKind::quit(), 3)];
    meanings.extend(others.iter().filter(|(_, n)| !ignored(*n)).map(|(kind, n)| (*kind, Key::End(128 + n))));
    // Signals are caught from here on, not from the first turn of a task.
    let _context = runtime.enter();
    for (kind, key) in meanings {
        let Ok(mut stream) = signal(kind) else { continue };
        let to = to.clone();
        runtime.spawn(async move {
            while stream.recv().await.is_some() {
                if to.send(key.clone()).is_err() {
                    return;
                }
            }
        });
    }
    let (to, terminal) = (to.clone(), terminal.clone());
    stops(runtime, move || {
        terminal.stop();
        to.send(Key::Draw).is_ok()
    });
}

/// Calls `stop` for each Ctrl-Z, until that returns false.
pub(crate) fn stops(runtime: &tokio::runtime::Handle, mut stop: impl FnMut() -> bool + Send + 'static) {
    const STOP: u8 = 20;
    // Without a shell of this session no program could continue the process (POSIX: orphaned process groups are not
    // stopped).
    let shell = session(std::os::unix::process::parent_id()).is_some_and(|of| Some(of) == session(std::process::id()));
    if ignored(STOP) || !shell {
        return;
    }
    let _context = runtime.enter();
    let Ok(mut stream) = signal(SignalKind::from_raw(i32::from(STOP))) else { return };
    runtime.spawn(async move { while stream.recv().await.is_some() && stop() {} });
}

/// Returns the session of a process (proc(5), stat, field 6), or `None` if the process is not visible, as from within a
/// container.
fn session(process: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program, in brackets, may contain anything.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(3)?.parse().ok().filter(|session| *session > 0)
}

/// Returns whether the parent process ignores this signal (proc(5), SigIgn).
fn ignored(signal: u8) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &[u8]) -> Vec<Key> {
        let mut typist = Typist::default();
        let keys = text.iter().map(|&byte| typist.key(byte));
        keys.filter(|key| !matches!(key, Key::Typing(Some(_)))).collect()
    }

    #[test]
    fn commands_are_typed_key_by_key() {
        let command = |text: &str| Key::Command(text.into());
        assert_eq!(typed(b"+cset rate 5\nq"), [Key::Letter(b'+'), command("set rate 5"), Key::Letter(b'q')]);
        assert_eq!(typed(b":set rate 67\x7f\r"), [command("set rate 6")]);
        assert_eq!(typed(b"cset\x1bp"), [Key::Typing(None), Key::Letter(b'p')]);
    }
}
