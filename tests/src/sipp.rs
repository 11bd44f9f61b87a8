//! SIPp: calls by the thousand.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::process::Process;
use crate::program::SIPP;

/// What SIPp plays.
#[derive(Debug, Clone, Copy)]
pub enum Scenario {
    /// One that is built in, such as `uac` and `uas`.
    BuiltIn(&'static str),
    /// One of `tests/scenarios`, without `.xml`.
    Ours(&'static str),
}

/// One running SIPp.
#[derive(Debug)]
pub struct Sipp {
    process: Process,
    stat: PathBuf,
    port: u16,
}

/// Figures of its last line of statistics, all since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls begun.
    pub created: u64,
    /// Calls that went through the scenario to its end.
    pub successful: u64,
    /// Calls that did not.
    pub failed: u64,
    /// Messages sent again.
    pub retransmissions: u64,
    /// Calls that failed because a message came that the scenario does not have there.
    pub unexpected: u64,
}

impl Counts {
    /// Those in the last line of a file of statistics (`-stf`); none where there is no such file or line yet.
    pub fn of(file: &Path) -> Self {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let mut lines = text.lines();
        let names: Vec<&str> = lines.next().unwrap_or_default().split(';').collect();
        let Some(last) = lines.next_back() else { return Self::default() };
        let values: HashMap<&str, &str> = names.into_iter().zip(last.split(';')).collect();
        let number = |name: &str| values.get(name).and_then(|value| value.trim().parse().ok()).unwrap_or(0);
        Self {
            created: number("TotalCallCreated"),
            successful: number("SuccessfulCall(C)"),
            failed: number("FailedCall(C)"),
            retransmissions: number("Retransmissions(C)"),
            unexpected: number("FailedUnexpectedMessage(C)"),
        }
    }
}

impl Sipp {
    /// Starts one on 127.0.0.1.
    ///
    /// `transport` is SIPp's: `u1` UDP, `t1` TCP with one connection, `tn` with one for each call.
    ///
    /// # Panics
    /// SIPp is missing, or the folder cannot be written.
    pub fn start(
        name: &str,
        folder: &Path,
        scenario: Scenario,
        port: u16,
        transport: &str,
        arguments: &[&str],
    ) -> Self {
        let stat = folder.join(format!("{name}.csv"));
        let mut command = Command::new(SIPP.path().expect("sipp is there"));
        match scenario {
            Scenario::BuiltIn(name) => command.args(["-sn", name]),
            Scenario::Ours(name) => {
                command.arg("-sf").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("scenarios/{name}.xml")))
            }
        };
        command
            .args([
                "-i",
                "127.0.0.1",
                "-p",
                &port.to_string(),
                "-t",
                transport,
                "-nostdin",
                "-max_socket",
                "1000",
                "-trace_stat",
                "-fd",
                "1",
                "-stf",
            ])
            .arg(&stat)
            .args(["-trace_err", "-error_file"])
            .arg(folder.join(format!("{name}.errors")))
            .args(arguments)
            .current_dir(folder);
        Self { process: Process::start(name, folder, &mut command), stat, port }
    }

    /// A side that answers: runs until it is dropped.
    ///
    /// # Panics
    /// As [`Sipp::start`].
    pub fn answer(folder: &Path, scenario: Scenario, port: u16, transport: &str) -> Self {
        let mut this = Self::start("uas", folder, scenario, port, transport, &[]);
        std::thread::sleep(Duration::from_millis(400));
        let ended = this.process.ended();
        assert!(ended.is_none(), "the answering SIPp ended: {ended:?}\n{}", this.process.tail());
        this
    }

    /// A side that calls `target` through `proxy`: so many calls at so many a second. `way` is the transport parameter of
    /// the Request-URI.
    ///
    /// # Panics
    /// As [`Sipp::start`].
    #[expect(clippy::too_many_arguments, reason = "each is one of SIPp's own")]
    pub fn call(
        folder: &Path,
        scenario: Scenario,
        port: u16,
        transport: &str,
        proxy: SocketAddr,
        target: SocketAddr,
        way: &str,
        calls: u32,
        rate: u32,
    ) -> Self {
        let (proxy, target) = (proxy.to_string(), target.to_string());
        let (calls, rate) = (calls.to_string(), rate.to_string());
        let arguments = [
            "-rsa", &proxy, &target, "-m", &calls, "-r", &rate, "-l", "200000", "-timeout", "300s", "-key", "way", way,
        ];
        Self::start("uac", folder, scenario, port, transport, &arguments)
    }

    /// The process.
    pub const fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Waits for its end and reads its figures.
    ///
    /// # Panics
    /// It does not end in time.
    pub fn end(&mut self, limit: Duration) -> Counts {
        self.process.end(limit);
        self.counts()
    }

    /// Waits until this many calls went through to the end, or the time is over, and reads the figures.
    pub fn settle(&mut self, successful: u64, limit: Duration) -> Counts {
        let end = Instant::now() + limit;
        while self.counts().successful < successful && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(100));
        }
        self.counts()
    }

    /// Its figures as of at most a second ago.
    pub fn counts(&self) -> Counts {
        Counts::of(&self.stat)
    }

    /// Datagrams that the kernel threw away because nobody read the sockets of this port in time.
    pub fn dropped(&self) -> u64 {
        let table = std::fs::read_to_string("/proc/net/udp").unwrap_or_default();
        let end = format!(":{:04X}", self.port);
        let of_port =
            table.lines().filter(|line| line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&end)));
        of_port.filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok()).sum()
    }

    /// The first lines of what went wrong.
    pub fn errors(&self) -> String {
        let text = std::fs::read_to_string(self.stat.with_extension("errors")).unwrap_or_default();
        text.lines().take(60).collect::<Vec<_>>().join("\n")
    }
}
