//! Questions on the terminal.

use std::io::{self, BufRead, IsTerminal, Read, Write};

use anyhow::{Context, bail};

use crate::output;

/// Returns whether a person is there to answer.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal()
}

/// Asks until the answer can be parsed. An empty answer means the default, if there is one.
///
/// # Errors
/// The end of the input.
pub(crate) fn ask<T>(
    question: &str,
    default: Option<&str>,
    read: impl Fn(&str) -> Result<T, String>,
) -> anyhow::Result<T> {
    let mut input = io::stdin().lock();
    loop {
        let hint = default.map_or_else(String::new, |default| format!(" [{default}]"));
        write!(io::stderr(), "{question}{hint}: ")?;
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            bail!("the input ended before the question was answered");
        }
        let answer = match (line.trim(), default) {
            ("", Some(default)) => default,
            (answer, _) => answer,
        };
        match read(answer) {
            Ok(value) => return Ok(value),
            Err(error) => output::say(&format!("  {error}")),
        }
    }
}

/// Asks for a password twice, without showing it, or reads one line of standard input.
///
/// # Errors
/// No terminal, two answers that differ, several lines, or an empty password.
pub(crate) fn password(from_stdin: bool, whose: &str) -> anyhow::Result<String> {
    let password = if from_stdin {
        let mut text = String::new();
        io::stdin().lock().read_to_string(&mut text).context("cannot read the password from standard input")?;
        one_line(&text)?.to_owned()
    } else {
        if !can_ask() {
            bail!("there is no terminal to ask for the password on; --password-stdin takes it from standard input");
        }
        let terminal = console::Term::stderr();
        terminal.write_str(&format!("Password for {whose}: "))?;
        let first = terminal.read_secure_line()?;
        terminal.write_str("The same again: ")?;
        if terminal.read_secure_line()? != first {
            bail!("the two passwords differ; nothing was changed");
        }
        first
    };
    if password.is_empty() {
        bail!("the password is empty; nothing was changed");
    }
    Ok(password)
}

/// Returns the password without its line end. Several lines are refused, because any of them could be meant.
fn one_line(text: &str) -> anyhow::Result<&str> {
    let line = text.strip_suffix('\n').unwrap_or(text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.contains(['\r', '\n']) {
        bail!("standard input has several lines, and a password is one; nothing was changed");
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn a_password_is_one_line() {
        for text in ["open sesame", "open sesame\n", "open sesame\r\n"] {
            assert_eq!(one_line(text).ok(), Some("open sesame"));
        }
        assert_eq!(one_line("\n").ok(), Some(""));
        for text in ["one\ntwo", "one\ntwo\n", "one\n\n", "\none"] {
            assert!(one_line(text).is_err(), "{text:?}");
        }
    }
}
