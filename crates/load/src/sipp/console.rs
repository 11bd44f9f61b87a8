//! What is asked for while calls run: keys and commands, by whichever way they come.

use super::keys::Key;
use super::session::Session;
use crate::engine::traffic::Order;
use std::io::IsTerminal;

impl Session {
    fn set_rate(&mut self, rate: f64) {
        self.rate = rate.max(0.0);
        self.order(|| Order::Rate(self.rate * 1_000.0 / self.options.rate_period as f64));
    }

    /// `-rate_increase`, up to `-rate_max`.
    pub(super) fn increase(&mut self) {
        let mut rate = self.rate + self.options.rate_increase;
        if let Some(most) = self.options.rate_max.filter(|&most| rate > most) {
            rate = most;
            if self.options.rate_quit && self.rate >= most {
                self.quitting = true;
                self.order(|| Order::Quit);
            }
        }
        self.set_rate(rate);
    }

    /// No calls are begun any more; asked for again, those that are open end.
    fn quit(&mut self, at_once: bool) {
        let goodbye = self.options.behaviours.goodbye;
        if at_once || self.quitting {
            self.ended = true;
            self.order(|| Order::End { goodbye });
        } else {
            self.order(|| Order::Quit);
        }
        self.quitting = true;
    }

    pub(super) fn read_keys(&mut self) {
        while let Ok(key) = self.keys.try_recv() {
            let step = self.options.rate_scale;
            match key {
                Key::Letter(b'q') => self.quit(false),
                Key::Letter(b'Q') => self.quit(true),
                Key::Letter(b'+') => self.set_rate(self.rate + step),
                Key::Letter(b'-') => self.set_rate(self.rate - step),
                Key::Letter(b'*') => self.set_rate(self.rate + 10.0 * step),
                Key::Letter(b'/') => self.set_rate(self.rate - 10.0 * step),
                Key::Letter(b'p') => {
                    self.paused = !self.paused;
                    self.order(|| Order::Pause(self.paused));
                }
                Key::Letter(b's') | Key::Dump => {
                    self.report();
                    self.dump(false);
                }
                Key::Letter(digit @ b'1'..=b'9') => self.screen = digit - b'0',
                Key::Letter(_) => (),
                Key::Command(line) => self.command(&line),
            }
        }
    }

    /// A line of the command mode.
    fn command(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |text: &str| text.parse::<f64>().ok().filter(|n| *n >= 0.0);
        match words[..] {
            ["set", "rate", rate] if number(rate).is_some() => self.set_rate(number(rate).unwrap_or(self.rate)),
            ["set", "rate-scale", scale] if number(scale).is_some() => {
                self.options.rate_scale = number(scale).unwrap_or(1.0);
            }
            ["set", "limit", limit] if number(limit).is_some() => {
                self.order(|| Order::Limit(number(limit).unwrap_or(0.0) as u64));
            }
            ["set", "hide", value] => self.show = value != "true" && std::io::stdout().is_terminal(),
            ["dump", _] => {
                self.report();
                self.dump(false);
            }
            _ => eprintln!("Unrecognized command: \"{line}\"; there are set rate, rate-scale, limit, hide, and dump"),
        }
    }
}
