//! Programs on a terminal of their own.

use crate::wait;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Time limit for the terminal.
pub const SOON: Duration = Duration::from_secs(15);

/// Text that this module writes after the output of an ended program.
const MARK: &str = "<end of output>";

/// Program on a terminal of its own.
pub struct Terminal {
    child: Child,
    keyboard: File,
    /// Program's side, kept open so that its settings can be read after its end.
    line: OwnedFd,
    seen: Arc<Mutex<Vec<u8>>>,
    /// Settings before its start.
    pub before: Settings,
}

/// Settings of a terminal: canonical mode and echo.
pub type Settings = (bool, bool);

impl Terminal {
    /// Starts a program.
    ///
    /// # Panics
    /// The program does not start, or there is no terminal.
    pub fn start(command: &mut Command) -> Self {
        let (mut own, mut line) = (-1, -1);
        let size = libc::winsize { ws_row: 40, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the function writes to both numbers and reads the size; the other pointers may be null.
        let opened = unsafe { libc::openpty(&mut own, &mut line, std::ptr::null_mut(), std::ptr::null(), &size) };
        assert_eq!(opened, 0, "this machine has terminals");
        // SAFETY: openpty created both, and no other owner has them.
        let (own, line) = unsafe { (OwnedFd::from_raw_fd(own), OwnedFd::from_raw_fd(line)) };
        let again = || line.try_clone().expect("a descriptor is left");
        command.stdin(again()).stdout(again()).stderr(again()).env("TERM", "xterm");
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(|| {
                // The tests themselves may run with ignored signals, after nohup or in the background.
                for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP] {
                    libc::signal(signal, libc::SIG_DFL);
                }
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let before = settings(&line);
        let child = command.spawn().expect("strowger starts");
        let keyboard = File::from(own);
        let mut screen = keyboard.try_clone().expect("a descriptor is left");
        let seen = Arc::<Mutex<Vec<u8>>>::default();
        let into = seen.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(n @ 1..) = screen.read(&mut bytes) {
                into.lock().expect("nobody panics with it").extend_from_slice(&bytes[..n]);
            }
        });
        Self { child, keyboard, line, seen, before }
    }

    /// Types these keys.
    ///
    /// # Panics
    /// The terminal is closed.
    pub fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("the terminal is there");
    }

    /// Returns the output so far.
    ///
    /// # Panics
    /// The reader panicked.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().expect("nobody panics with it")).into_owned()
    }

    /// Returns the last complete picture.
    pub fn picture(&self) -> String {
        let text = self.text();
        let end = text.rfind("\x1b[J").unwrap_or(0);
        let begin = text[..end].rfind("\x1b[H").unwrap_or(0);
        text[begin..end].replace("\x1b[H", "").replace("\x1b[K", "")
    }

    /// Waits until the picture contains a text.
    ///
    /// # Panics
    /// The picture does not contain the text in time.
    pub fn shows(&self, what: &str) {
        let is_shown = wait::until(SOON, || self.picture().contains(what));
        assert!(is_shown, "{what:?} is not shown:\n{}", self.picture());
    }

    /// Sends a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: the child was started here and not yet waited for.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Waits until the settings are these.
    ///
    /// # Panics
    /// The settings are others at the time limit.
    pub fn is_set(&self, wanted: Settings) {
        let is_set = wait::until(SOON, || settings(&self.line) == wanted);
        assert!(is_set, "the terminal is not set to {wanted:?}:\n{}", self.text());
    }

    /// Waits for the end; asserts that the terminal is restored.
    ///
    /// # Panics
    /// The program does not end in time, or leaves the terminal changed.
    pub fn ends(&mut self) -> ExitStatus {
        let status = wait::look(SOON, || self.child.try_wait().expect("a child can be asked"));
        let status = status.unwrap_or_else(|| panic!("it does not end:\n{}", self.picture()));
        assert_eq!(settings(&self.line), self.before, "the terminal is not as it was");
        // The mark is written after the output of the child, so once the reader has the mark, it has the whole output.
        let mut line = File::from(self.line.try_clone().expect("a descriptor is left"));
        line.write_all(MARK.as_bytes()).expect("the terminal is there");
        assert!(wait::until(SOON, || self.text().contains(MARK)), "the output ends");
        assert!(self.has_left_screen(), "the other screen was not left");
        status
    }

    /// Returns the current settings.
    pub fn settings(&self) -> Settings {
        settings(&self.line)
    }

    /// Tells whether the alternate screen was left after it was last entered.
    fn has_left_screen(&self) -> bool {
        let text = self.text();
        text.rfind("\x1b[?1049l") >= text.rfind("\x1b[?1049h")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn settings(line: &OwnedFd) -> Settings {
    // SAFETY: a terminal's settings are plain numbers, and the call below fills them in.
    let mut termios: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open.
    assert_eq!(unsafe { libc::tcgetattr(line.as_raw_fd(), &mut termios) }, 0);
    (termios.c_lflag & libc::ICANON != 0, termios.c_lflag & libc::ECHO != 0)
}
