//! Connection to a host by the user's `ssh`, which copies this program to the host once and then exchanges messages
//! with the agent.

use super::protocol::{Request, read, write};
use super::{Greeting, SILENCE};
use crate::row::Digest;
use crate::{Error, process, wait};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Options of `ssh`: no questions, an end soon after the link breaks, and nothing but this program.
const OPTIONS: [&str; 13] = [
    "-T",
    "-x",
    "-a",
    // A shared connection would outlive its link.
    "-o",
    "ControlPath=none",
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=10",
    "-o",
    "ServerAliveInterval=2",
    "-o",
    "ServerAliveCountMax=3",
];

/// Lines before the greeting, which start files of a shell may print.
const CHATTER: usize = 200;

/// Begin of a line of the script that starts the agent.
const MARK: &[u8] = b"strowger: ";

/// Begin of the greeting.
const GREETING: &[u8] = b"{\"is\":";

/// Time in which `ssh` ends after its agent.
const END: Duration = Duration::from_secs(8);

/// Copy of this program.
#[derive(Debug)]
pub(super) struct OwnProgram<'a> {
    pub(super) path: &'a Path,
    pub(super) digest: Digest,
    pub(super) length: u64,
}

/// Connection to the agent of a host.
#[derive(Debug)]
pub(super) struct Link {
    host: String,
    child: Arc<Mutex<Child>>,
    /// None once the laboratory has closed the connection.
    input: Arc<Mutex<Option<ChildStdin>>>,
    output: Mutex<BufReader<ChildStdout>>,
    errors: Arc<Mutex<String>>,
    /// The connection broke first, and ended the run.
    is_lost: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Link {
    /// Connects to a host, and copies the program to it if the host does not have it.
    pub(super) fn open(ssh: &[String], host: &str, copy: &OwnProgram<'_>) -> Result<(Self, Greeting), Error> {
        let mut is_copied = false;
        loop {
            let refused = match Self::start(ssh, host, copy)? {
                Some((link, greeting)) if greeting.program == copy.digest => return Ok((link, greeting)),
                Some(_) => "the program in its cache was changed",
                None => "the program is missing after it was copied",
            };
            if is_copied {
                return Err(fault(host, format!("{refused}: remove ~/.cache/strowger there")));
            }
            send(ssh, host, copy)?;
            is_copied = true;
        }
    }

    /// Starts the agent. Returns `None` if the host lacks the program.
    fn start(ssh: &[String], host: &str, copy: &OwnProgram<'_>) -> Result<Option<(Self, Greeting)>, Error> {
        let script = format!(
            "d=\"{}\"; u=\"$(uname -sm)\"; \
             if [ \"$u\" != \"Linux {}\" ]; then echo \"strowger: other $u\"; \
             elif [ -x \"$d/strowger\" ]; then touch \"$d\"; exec \"$d/strowger\" lab agent; \
             else echo \"strowger: missing\"; fi",
            folder(&copy.digest),
            std::env::consts::ARCH
        );
        let mut command = command(ssh, host, &script)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = process::spawn(&mut command);
        let mut child = started.map_err(|source| Error::NotStarted { name: ssh[0].clone(), source })?;
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(fault(host, "ssh has no pipes"));
        };
        let errors = Arc::new(Mutex::new(String::new()));
        let mut link = Self {
            host: host.into(),
            child: Arc::new(Mutex::new(child)),
            input: Arc::new(Mutex::new(Some(stdin))),
            output: Mutex::new(BufReader::new(stdout)),
            errors: Arc::clone(&errors),
            is_lost: Arc::default(),
            threads: Vec::new(),
        };
        link.thread("ssh", move || listen(stderr, &errors))?;
        let greeting = greeting(&mut *lock(&link.output));
        match greeting {
            Some(Ok(greeting)) => {
                let (input, child) = (Arc::clone(&link.input), Arc::clone(&link.child));
                let is_lost = Arc::clone(&link.is_lost);
                link.thread("alive", move || live(&input, &child, &is_lost))?;
                Ok(Some((link, greeting)))
            }
            Some(Err(said)) if said == "missing" => Ok(None),
            Some(Err(said)) => {
                let other = said.trim_start_matches("other ");
                let own = std::env::consts::ARCH;
                Err(fault(
                    host,
                    format!(
                        "it is of another kind ({other}) than this machine (Linux {own}): use a host that runs this program"
                    ),
                ))
            }
            None => {
                let text = link.last_words();
                Err(fault(host, refusal(host, &text)))
            }
        }
    }

    fn thread(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let started = std::thread::Builder::new().name(name.into()).spawn(work);
        self.threads.push(started.map_err(|source| Error::NotStarted { name: name.into(), source })?);
        Ok(())
    }

    /// Asks the agent, and reads its reply and the bytes behind it.
    pub(super) fn ask<T: DeserializeOwned>(&self, request: &Request, bytes: &[u8]) -> Result<(T, Vec<u8>), Error> {
        let mut output = lock(&self.output);
        let sent = match lock(&self.input).as_mut() {
            Some(input) => write(input, request, bytes),
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        };
        let reply = sent.and_then(|()| read::<Result<Value, String>>(&mut *output));
        drop(output);
        match reply {
            Ok(Some((Ok(value), bytes))) => match serde_json::from_value(value) {
                Ok(value) => Ok((value, bytes)),
                Err(error) => Err(fault(&self.host, format!("its reply cannot be read: {error}"))),
            },
            Ok(Some((Err(reason), _))) => Err(fault(&self.host, reason)),
            Ok(None) | Err(_) if process::is_ending() => Err(Error::Interrupted),
            Ok(None) | Err(_) => Err(self.gone()),
        }
    }

    /// Returns the error of a lost connection that has ended the run.
    pub(super) fn lost(&self) -> Option<Error> {
        self.is_lost.load(Ordering::SeqCst).then(|| self.gone())
    }

    fn gone(&self) -> Error {
        let (said, limit) = (self.last_words(), SILENCE.as_secs());
        let reason = format!("the connection is gone ({said}); its programs end by themselves within {limit} s");
        fault(&self.host, reason)
    }

    /// Returns the last output of `ssh`, once it has ended.
    fn last_words(&self) -> String {
        let ended = wait::look(END, || lock(&self.child).try_wait().ok().flatten());
        let errors = lock(&self.errors);
        let last = errors.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        match (last, ended) {
            ("", Some(_)) => "the agent has ended: it was killed, or its machine has no memory left".into(),
            ("", None) => "no answer".into(),
            (last, _) => last.into(),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The agent sees the end of its input, and ends.
        lock(&self.input).take();
        if wait::look(END, || lock(&self.child).try_wait().ok().flatten()).is_none() {
            let _ = lock(&self.child).kill();
        }
        process::forget(&lock(&self.child));
        let _ = lock(&self.child).wait();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Reads the greeting of the agent, or the error of the script that starts the agent; returns `None` if the output has
/// neither.
fn greeting(output: &mut impl BufRead) -> Option<Result<Greeting, String>> {
    for _ in 0..CHATTER {
        let mut line = Vec::new();
        if output.read_until(b'\n', &mut line).unwrap_or(0) == 0 {
            break;
        }
        // Start files of a shell may print in front of it, too.
        let behind = |sign: &[u8]| line.windows(sign.len()).position(|part| part == sign).map(|at| &line[at..]);
        if let Some(said) = behind(MARK) {
            return Some(Err(String::from_utf8_lossy(&said[MARK.len()..]).trim().to_owned()));
        }
        if let Some(mut line) = behind(GREETING)
            && let Ok(Some((greeting, _))) = read::<Greeting>(&mut line)
        {
            return Some(Ok(greeting));
        }
    }
    None
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fault(host: &str, reason: impl Into<String>) -> Error {
    Error::Host { host: host.into(), reason: reason.into() }
}

/// Returns the folder of the program on a host, written for a shell.
fn folder(digest: &Digest) -> String {
    let name: String = digest.to_string().chars().filter(char::is_ascii_alphanumeric).take(30).collect();
    format!("${{XDG_CACHE_HOME:-$HOME/.cache}}/strowger/{name}")
}

/// Returns the command that runs a script on a host.
fn command(ssh: &[String], host: &str, script: &str) -> Result<Command, Error> {
    let Some((program, words)) = ssh.split_first() else {
        return Err(fault(host, "--ssh names no program: write --ssh ssh"));
    };
    let mut command = Command::new(program);
    command.args(words).args(OPTIONS).args(["--", host]).arg(format!("exec sh -c '{script}'"));
    Ok(command)
}

/// Copies the program to a host.
fn send(ssh: &[String], host: &str, copy: &OwnProgram<'_>) -> Result<(), Error> {
    let script = format!(
        "umask 077; d=\"{}\"; t=\"$d/new.$$\"; mkdir -p \"$d\" && cat >\"$t\" && [ \"$(wc -c <\"$t\")\" -eq {} ] && \
         chmod 700 \"$t\" && mv \"$t\" \"$d/strowger\" || {{ rm -f \"$t\"; exit 1; }}; \
         find \"${{d%/*}}\" -mindepth 1 -maxdepth 1 -mtime +7 -exec rm -rf {{}} +",
        folder(&copy.digest),
        copy.length
    );
    let file = File::open(copy.path).map_err(Error::file(copy.path))?;
    let mut command = command(ssh, host, &script)?;
    command.stdin(file).stdout(Stdio::null()).stderr(Stdio::piped());
    let failed = |source| Error::NotStarted { name: ssh[0].clone(), source };
    let mut child = process::spawn(&mut command).map_err(failed)?;
    let mut said = String::new();
    if let Some(mut errors) = child.stderr.take() {
        let _ = errors.read_to_string(&mut said);
    }
    let status = child.wait();
    process::forget(&child);
    if status.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    if process::is_ending() {
        return Err(Error::Interrupted);
    }
    let said = said.lines().map(str::trim).rev().find(|line| !line.is_empty()).unwrap_or("the connection broke");
    let megabytes = copy.length.div_ceil(1_000_000);
    Err(fault(
        host,
        format!(
            "this program cannot be copied there ({said}): see that ~/.cache can be written and has {megabytes} MB free"
        ),
    ))
}

/// Keeps the last lines of an output.
fn listen(errors: impl Read, kept: &Mutex<String>) {
    for line in BufReader::new(errors).lines().map_while(Result::ok) {
        let mut kept = lock(kept);
        if kept.len() > 4_096 {
            kept.clear();
        }
        kept.push_str(&line);
        kept.push('\n');
    }
}

/// Sends a sign of life to the agent at intervals, until the input is closed. If the connection breaks earlier, all programs are ended at
/// once: the laboratory may be waiting for calls and sending no request to this host.
fn live(input: &Mutex<Option<ChildStdin>>, child: &Mutex<Child>, is_lost: &AtomicBool) {
    let mut passed = Duration::ZERO;
    let step = Duration::from_millis(200);
    loop {
        std::thread::sleep(step);
        passed += step;
        let mut input = lock(input);
        let Some(input) = input.as_mut() else { return };
        // The end of all programs ends the connections to other hosts too.
        if !matches!(lock(child).try_wait(), Ok(None)) {
            if !process::is_ending() {
                is_lost.store(true, Ordering::SeqCst);
                process::end_all();
            }
            return;
        }
        if passed >= SILENCE / 10 {
            passed = Duration::ZERO;
            let _ = write(input, &Request::Alive, &[]);
        }
    }
}

/// Returns a sentence about a failed login, from the output of `ssh`.
fn refusal(host: &str, said: &str) -> String {
    let cure = match said {
        _ if said.contains("Permission denied") => {
            format!(
                "`ssh {host}` has to log in without a question: give it a key by ssh-copy-id, and load it by ssh-add"
            )
        }
        _ if said.contains("Host key verification failed") || said.contains("IDENTIFICATION HAS CHANGED") => {
            format!("compare its key with that of the machine, and accept it once by `ssh {host}`")
        }
        _ if said.contains("Could not resolve") => "write a name of ~/.ssh/config or of DNS, or an address".into(),
        _ if said.contains("GLIBC") => {
            "the system of the host is older than the one of this program: use a like one".into()
        }
        _ => format!("see that `ssh {host} true` works"),
    };
    format!("{}: {cure}", said.trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_login_has_its_cure() {
        for (said, cure) in [
            ("root@west: Permission denied (publickey).", "ssh-copy-id"),
            ("Host key verification failed.", "accept it once by `ssh west`"),
            ("ssh: Could not resolve hostname west: Name or service not known", "~/.ssh/config"),
            ("ssh: connect to host west port 22: Connection refused", "`ssh west true`"),
        ] {
            let sentence = refusal("west", said);
            assert!(sentence.starts_with(said.trim_end_matches('.')) && sentence.contains(cure), "{sentence}");
        }
    }

    #[test]
    fn what_a_shell_prints_is_passed_over() {
        let of = |text: &str| greeting(&mut text.as_bytes());
        let said = of("Welcome\n\nToday is {\nstrowger: missing\n").expect("the script says it");
        assert_eq!(said.expect_err("no agent"), "missing");
        let sent = Greeting {
            program: Digest::of(b"program"),
            scratch: "/tmp/a".into(),
            seen_at: None,
            machine: crate::run::Machine::default(),
        };
        let mut line = b"Welcome back, ".to_vec();
        write(&mut line, &sent, &[]).expect("a Vec takes all");
        let heard = greeting(&mut line.as_slice()).expect("a greeting").expect("an agent");
        assert_eq!(heard.program, sent.program);
        assert!(of("Welcome\n").is_none() && of("").is_none());
    }

    #[test]
    fn a_host_is_no_option_of_ssh() {
        let ssh = ["ssh".to_owned(), "-F".to_owned(), "file".to_owned()];
        let command = command(&ssh, "-oProxyCommand=x", "true").expect("a command");
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        assert_eq!(words[words.len() - 3..], ["--", "-oProxyCommand=x", "exec sh -c 'true'"]);
        assert!(super::command(&[], "west", "true").is_err());
    }
}
