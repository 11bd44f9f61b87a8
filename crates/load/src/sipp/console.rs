//! Keys and commands during a run, from any source.

use super::keys::Key;
use super::session::Session;
use crate::engine::traffic::ShardCommand;
use std::sync::atomic::Ordering;
use strowger_scenario::Scope;

/// Commands of the command mode.
const COMMANDS: &str = "set rate|rate-scale|users|limit N, set display main|ooc, set hide true|false, trace \
                        error|logs|messages|shortmessages on|off, dump tasks|variables, reset stats";

impl Session {
    fn set_rate(&mut self, rate: f64) {
        self.rate = rate.max(0.0);
        self.order(|| ShardCommand::Rate(self.rate * 1_000.0 / self.options.rate_period as f64));
        if self.options.limit.is_none() {
            self.set_limit(super::plan::limit(&self.options, &self.scenario, self.rate));
        }
    }

    fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
        self.order(|| ShardCommand::Limit(limit.div_ceil(self.options.threads as u64)));
    }

    /// Adds users in a run by users, else calls per period.
    fn faster(&mut self, steps: f64) {
        let by = steps * self.options.rate_scale;
        match self.options.users {
            Some(users) => self.set_users((f64::from(users) + by).max(0.0) as u32),
            None => self.set_rate(self.rate + by),
        }
    }

    fn set_users(&mut self, users: u32) {
        self.options.users = Some(users);
        if self.options.limit.is_none() {
            self.limit = u64::from(users);
        }
        self.order(|| ShardCommand::Users(users));
    }

    /// Applies `-rate_increase`, up to `-rate_max`.
    pub(super) fn increase(&mut self) {
        let mut rate = self.rate + self.options.rate_increase;
        if let Some(most) = self.options.rate_max.filter(|&most| rate > most) {
            rate = most;
            if self.options.rate_quit && self.rate >= most {
                self.quitting = true;
                self.order(|| ShardCommand::Quit);
            }
        }
        self.set_rate(rate);
    }

    /// Stops new calls. Ends open calls if `at_once` is set, or if this is the second call of the function.
    fn quit(&mut self, at_once: bool) {
        let goodbye = self.options.behaviours.goodbye;
        if at_once || self.quitting {
            self.order(|| ShardCommand::End { goodbye });
        } else {
            self.order(|| ShardCommand::Quit);
        }
        self.quitting = true;
    }

    /// Handles the keys and commands received since the last call.
    pub(super) fn read_keys(&mut self) {
        let mut any = false;
        while let Ok(key) = self.keys.try_recv() {
            any = true;
            match key {
                Key::Letter(b'q') => self.quit(false),
                Key::Letter(b'Q') => self.quit(true),
                Key::Letter(b'+') => self.faster(1.0),
                Key::Letter(b'-') => self.faster(-1.0),
                Key::Letter(b'*') => self.faster(10.0),
                Key::Letter(b'/') => self.faster(-10.0),
                Key::Letter(b'p') => {
                    self.paused = !self.paused;
                    self.order(|| ShardCommand::Pause(self.paused));
                }
                Key::Letter(b's') | Key::Dump => {
                    self.report();
                    self.dump();
                }
                Key::Letter(digit @ b'1'..=b'9') => self.screen = digit - b'0',
                Key::Letter(_) | Key::Draw => (),
                Key::Command(line) => {
                    self.typed = None;
                    self.command(&line);
                }
                Key::Typing(line) => self.typed = line,
                Key::End(code) => {
                    self.exit = Some(code);
                    self.quit(true);
                }
            }
        }
        if any {
            self.report();
            self.draw();
        }
    }

    /// Handles a line of the command mode.
    fn command(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let done = match words[..] {
            ["set", what, value] => self.set(what, value),
            ["trace", what, value] => self.trace(what, value),
            ["dump", what] => self.list(what),
            ["reset", "stats"] => {
                self.forget();
                Ok(())
            }
            [] => Ok(()),
            _ => Err(format!("Unrecognized command: \"{line}\"; there are {COMMANDS}")),
        };
        if let Err(text) = done {
            self.errors.say(format_args!("{text}"));
            if !self.terminal.0.shows() {
                eprintln!("{text}");
            }
        }
    }

    fn set(&mut self, what: &str, value: &str) -> Result<(), String> {
        let number = || value.parse::<f64>().ok().filter(|n| *n >= 0.0 && n.is_finite());
        let number = || number().ok_or_else(|| format!("'set {what}' wants a number, 0 or more, not \"{value}\""));
        match what {
            "rate" if self.options.users.is_some() => Err("Calls come by users here: set users, not the rate.".into()),
            "rate" => number().map(|rate| self.set_rate(rate)),
            "rate-scale" => number().map(|scale| self.options.rate_scale = scale),
            "users" if self.options.users.is_none() => {
                Err("Calls come by rate here: set the rate, not users (-users).".into())
            }
            "users" => number().map(|users| self.set_users(users as u32)),
            "limit" if self.options.users.is_some() => Err("Can not set call limit for a user-based benchmark.".into()),
            "limit" => number().map(|limit| {
                self.options.limit = Some(limit as u64);
                self.set_limit(limit as u64);
            }),
            "display" => match value {
                "main" | "ooc" if value == "main" || self.aside.is_some() => {
                    self.shows_aside = value == "ooc";
                    Ok(())
                }
                "ooc" => Err("There is no out-of-call scenario: -oocsf or -oocsn names one.".into()),
                _ => Err(format!("Unknown display scenario: {value}; there are main and ooc")),
            },
            "hide" => truth(value).map(|hide| self.hide = hide),
            _ => Err(format!("Unknown set command: \"{what}\"; there are {COMMANDS}")),
        }
    }

    fn trace(&self, what: &str, value: &str) -> Result<(), String> {
        let on = truth(value)?;
        if self.options.threads > 1 {
            return Err("Traces are written where one shard has all calls: without -threads.".into());
        }
        match what {
            "error" => {
                self.errors.keep(on);
                return Ok(());
            }
            "logs" => &self.switches.logs,
            "messages" => &self.switches.messages,
            "shortmessages" => &self.switches.short_messages,
            _ => return Err(format!("Unknown log file: \"{what}\"; there are error, logs, messages, shortmessages")),
        }
        .store(on, Ordering::Relaxed);
        Ok(())
    }

    /// Runs `dump`: writes to the errors, as SIPp does.
    fn list(&mut self, what: &str) -> Result<(), String> {
        match what {
            "tasks" => {
                self.report();
                let calls = self.stats.open;
                self.errors.say(format_args!("---- {calls} calls are open ----"));
                for (index, step) in self.stats.steps.iter().enumerate().filter(|(_, step)| step.pausing > 0) {
                    self.errors.say(format_args!("step {index}: {} calls pause", step.pausing));
                }
            }
            "variables" => {
                let variables = &self.scenario.variables;
                for (level, scope) in [Scope::Global, Scope::User, Scope::Call].into_iter().enumerate() {
                    let mut names: Vec<&String> = variables.names(scope).iter().collect();
                    names.sort_unstable();
                    self.errors.say(format_args!("{} level {level} variables:", names.len()));
                    names.into_iter().for_each(|name| self.errors.say(format_args!("{name}")));
                }
            }
            _ => return Err(format!("Unknown dump type: \"{what}\"; there are tasks and variables")),
        }
        Ok(())
    }
}

fn truth(word: &str) -> Result<bool, String> {
    match word {
        "on" | "true" => Ok(true),
        "off" | "false" => Ok(false),
        _ => Err(format!("\"{word}\" is neither on nor off")),
    }
}
