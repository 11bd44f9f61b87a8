//! Terminal: keys without Enter, and a screen of its own for the run. At every end of the run, also by a panic or a
//! signal, and while the process is stopped, the terminal has its earlier content and settings.

use rustix::process::{Signal, getpgrp, getpid, kill_process};
use rustix::termios::{self, LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use std::io::{IsTerminal, Write, stdin, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Terminal of the process.
pub(crate) struct Terminal {
    /// Earlier settings, if keys are read from it.
    before: Option<Termios>,
    /// True if the program shows the screens.
    shows: bool,
    /// True if a read without keys ends after a tenth of a second.
    polled: bool,
    taken: AtomicBool,
}

/// Guard that restores the terminal when dropped.
pub(crate) struct Taken(pub(crate) Arc<Terminal>);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

impl Terminal {
    /// Returns the terminal of the process, as far as standard input and output are a terminal. `keys`: whether keys
    /// are read.
    pub(crate) fn new(keys: bool) -> Arc<Self> {
        let before =
            if keys && stdin().is_terminal() && Self::is_ours() { termios::tcgetattr(stdin()).ok() } else { None };
        let shows = stdout().is_terminal() && std::env::var_os("TERM").is_some_and(|name| name != "dumb");
        Arc::new(Self { before, shows, polled: false, taken: AtomicBool::new(false) })
    }

    /// Returns the terminal of the process only for keys; it never draws. `None`: standard input is no terminal or the
    /// process is in the background.
    pub(crate) fn of_keys() -> Option<Arc<Self>> {
        let before = stdin().is_terminal().then(|| termios::tcgetattr(stdin()).ok()).flatten();
        let before = Some(before.filter(|_| Self::is_ours())?);
        Some(Arc::new(Self { before, shows: false, polled: true, taken: AtomicBool::new(false) }))
    }

    /// Returns whether the process is in the foreground of the terminal. A background process may not use the terminal, and
    /// would be stopped.
    pub(crate) fn is_ours() -> bool {
        termios::tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp())
    }

    /// Takes the terminal. Signals that may end the process MUST be caught before.
    pub(crate) fn take(self: Arc<Self>) -> Taken {
        self.set();
        Taken(self)
    }

    /// Returns whether the program shows the screens.
    pub(crate) const fn shows(&self) -> bool {
        self.shows
    }

    pub(crate) fn set(&self) {
        if self.taken.swap(true, Ordering::SeqCst) {
            return;
        }
        if let Some(before) = &self.before {
            let mut keys = before.clone();
            // Ctrl-C stays a signal, and line ends are still translated.
            keys.local_modes &= !(LocalModes::ICANON | LocalModes::ECHO);
            let (least, tenths) = if self.polled { (0, 1) } else { (1, 0) };
            keys.special_codes[SpecialCodeIndex::VMIN] = least;
            keys.special_codes[SpecialCodeIndex::VTIME] = tenths;
            let _ = termios::tcsetattr(stdin(), OptionalActions::Now, &keys);
        }
        if self.shows {
            self.write("\x1b[?1049h\x1b[?25l\x1b[2J");
        }
    }

    /// Restores the earlier settings.
    pub(crate) fn give_back(&self) {
        if !self.taken.swap(false, Ordering::SeqCst) {
            return;
        }
        if self.shows {
            self.write("\x1b[?25h\x1b[?1049l");
        }
        if let Some(before) = &self.before {
            let _ = termios::tcsetattr(stdin(), OptionalActions::Now, before);
        }
    }

    /// Stops the process at Ctrl-Z, after the terminal has its earlier state again.
    pub(crate) fn stop(&self) {
        self.give_back();
        let _ = kill_process(getpid(), Signal::STOP);
        // The stop comes during this sleep.
        std::thread::sleep(Duration::from_millis(20));
        self.set();
    }

    /// Draws a screen. The last line is drawn even if the screen is higher than the terminal.
    pub(crate) fn draw(&self, text: &str) {
        if !self.shows || !self.taken.load(Ordering::SeqCst) {
            return;
        }
        let size = termios::tcgetwinsize(stdout()).ok().filter(|size| size.ws_row > 0 && size.ws_col > 0);
        let (rows, columns) = size.map_or((24, 80), |size| (usize::from(size.ws_row), usize::from(size.ws_col)));
        self.write(&picture(text, rows, columns));
    }

    fn write(&self, text: &str) {
        let mut out = stdout().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

/// Returns the lines from the upper left corner on, each cut to the width, followed by empty lines to the end of the
/// screen.
fn picture(text: &str, rows: usize, columns: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let shown = lines.len().min(rows);
    let mut picture = String::from("\x1b[H");
    for (row, line) in lines.iter().take(shown).enumerate() {
        let last = row + 1 == shown;
        let line = if last { lines.last().unwrap_or(line) } else { line };
        let mut column = 0;
        for c in line.trim_end().chars() {
            // A tab moves to the next multiple of eight.
            let (c, width) = match c {
                '\t' => (' ', 8 - column % 8),
                c if c.is_control() => ('?', 1),
                c => (c, 1),
            };
            let width = width.min(columns - column);
            picture.extend(std::iter::repeat_n(c, width));
            column += width;
        }
        picture.push_str(if last { "\x1b[K" } else { "\x1b[K\r\n" });
    }
    picture.push_str("\x1b[J");
    picture
}

#[cfg(test)]
mod tests {
    use super::picture;

    #[test]
    fn the_last_line_is_always_seen() {
        assert_eq!(picture("a\nb\nc\nfoot\n", 3, 80), "\x1b[Ha\x1b[K\r\nb\x1b[K\r\nfoot\x1b[K\x1b[J");
        assert_eq!(picture("12345\n\tx\n", 9, 3), "\x1b[H123\x1b[K\r\n   \x1b[K\x1b[J");
    }
}
