//! Questions on the terminal.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::{Context, bail};

/// Whether somebody is there to answer.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal()
}

/// Asks until the answer can be read; an empty answer takes the default, if there is one.
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
        eprint!("{question}{hint}: ");
        io::stderr().flush()?;
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
            Err(error) => eprintln!("  {error}"),
        }
    }
}

/// Asks for a password twice, without showing it, or takes the first line of standard input.
///
/// # Errors
/// No terminal, two answers that differ, or an empty password.
pub(crate) fn password(from_stdin: bool, whose: &str) -> anyhow::Result<String> {
    let password = if from_stdin {
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line).context("cannot read the password from standard input")?;
        line.trim_end_matches(['\r', '\n']).to_owned()
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
