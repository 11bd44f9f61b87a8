//! SIPp: calls by the thousand.

use crate::wait;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::port;
use crate::process::Process;
use crate::program::SIPP;
use crate::server::loopback;

/// SIPp scenario.
#[derive(Debug, Clone, Copy)]
pub enum Scenario {
    /// Built-in scenario, such as `uac` and `uas`.
    BuiltIn(&'static str),
    /// Scenario of `tests/scenarios`, without `.xml`.
    Ours(&'static str),
}

/// SIPp's built-in scenarios, of caller and callee.
pub const BUILT_IN: (Scenario, Scenario) = (Scenario::BuiltIn("uac"), Scenario::BuiltIn("uas"));
/// Our scenarios of caller and callee, whose requests follow the server's header fields.
pub const OURS: (Scenario, Scenario) = (Scenario::Ours("uac"), Scenario::Ours("uas"));

/// Interval of SIPp's statistics.
const STATISTICS: &str = "200ms";

/// Running SIPp.
#[derive(Debug)]
pub struct Sipp {
    process: Process,
    stat: PathBuf,
    port: u16,
}

/// Figures of its last line of statistics, since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls begun.
    pub created: u64,
    /// Calls that completed the scenario.
    pub successful: u64,
    /// Failed calls.
    pub failed: u64,
    /// Retransmitted messages.
    pub retransmissions: u64,
    /// Calls that failed because of a message that the scenario does not expect there.
    pub unexpected: u64,
}

impl Counts {
    /// Reads the last line of a file of statistics (`-stf`); zeros if there is no such file or line yet.
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
    /// Starts SIPp on 127.0.0.1.
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
                // The buffer has the largest size that the kernel allows: datagrams dropped before SIPp are no loss of
                // the server.
                "-buff_size",
                "4194304",
                "-trace_stat",
                "-fd",
                STATISTICS,
                "-stf",
            ])
            .arg(&stat)
            .args(["-trace_err", "-error_file"])
            .arg(folder.join(format!("{name}.errors")))
            .args(arguments)
            .current_dir(folder);
        Self { process: Process::start(name, folder, &mut command), stat, port }
    }

    /// Starts an answering side, which runs until it is dropped.
    ///
    /// # Panics
    /// See [`Sipp::start`].
    pub fn answer(folder: &Path, scenario: Scenario, port: u16, transport: &str) -> Self {
        Self::answer_as("uas", folder, scenario, port, transport)
    }

    /// Starts an answering side under this name. Two sides with the same name would write the same files.
    ///
    /// # Panics
    /// See [`Sipp::start`].
    pub fn answer_as(name: &str, folder: &Path, scenario: Scenario, port: u16, transport: &str) -> Self {
        let mut this = Self::start(name, folder, scenario, port, transport, &[]);
        this.process.listens(port);
        this
    }

    /// Starts a side that calls `target` through `proxy`. It makes a number of calls, or calls until it is ended, at a
    /// rate per second. `way` is the transport parameter of the Request-URI.
    ///
    /// # Panics
    /// See [`Sipp::start`].
    #[expect(clippy::too_many_arguments, reason = "each is one of SIPp's own")]
    pub fn call(
        folder: &Path,
        scenario: Scenario,
        port: u16,
        transport: &str,
        proxy: SocketAddr,
        target: SocketAddr,
        way: &str,
        calls: Option<u32>,
        rate: u32,
    ) -> Self {
        let (proxy, target, rate) = (proxy.to_string(), target.to_string(), rate.to_string());
        let calls = calls.map(|calls| calls.to_string());
        let most = calls.as_ref().map(|calls| ["-m", calls]);
        let arguments = ["-rsa", &proxy, &target, "-r", &rate, "-l", "200000", "-timeout", "300s", "-key", "way", way];
        let arguments = [&arguments[..], most.as_ref().map_or(&[], |most| &most[..])].concat();
        Self::start("uac", folder, scenario, port, transport, &arguments)
    }

    /// Returns SIPp's process.
    pub const fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Waits for the end of SIPp and reads its figures.
    ///
    /// # Panics
    /// SIPp does not end in time.
    pub fn end(&mut self, limit: Duration) -> Counts {
        self.process.end(limit);
        self.counts()
    }

    /// Waits until this many calls have ended, or for the limit, and reads the figures.
    pub fn settle(&self, ended: u64, limit: Duration) -> Counts {
        wait::until(limit, || {
            let counts = self.counts();
            counts.successful + counts.failed >= ended
        });
        self.counts()
    }

    /// Returns SIPp's figures, at most [`STATISTICS`] old.
    pub fn counts(&self) -> Counts {
        Counts::of(&self.stat)
    }

    /// Returns the number of datagrams that the kernel dropped because the sockets of this port were not read in time.
    pub fn dropped(&self) -> u64 {
        let table = std::fs::read_to_string("/proc/net/udp").unwrap_or_default();
        let end = format!(":{:04X}", self.port);
        let of_port =
            table.lines().filter(|line| line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&end)));
        of_port.filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok()).sum()
    }

    /// Returns the first lines of its errors.
    pub fn errors(&self) -> String {
        let text = std::fs::read_to_string(self.stat.with_extension("errors")).unwrap_or_default();
        text.lines().take(60).collect::<Vec<_>>().join("\n")
    }
}

/// Calls from SIPp to SIPp through a server; every one must succeed on both sides.
#[derive(Debug)]
pub struct Calls {
    /// Scenarios of caller and callee.
    pub scenarios: (Scenario, Scenario),
    /// SIPp's transports of both.
    pub transports: (&'static str, &'static str),
    /// Transport parameter of the Request-URI.
    pub way: &'static str,
    /// Number of calls; `None`: until [`CallsUnderWay::end`].
    pub calls: Option<u32>,
    /// Calls per second.
    pub rate: u32,
}

/// Both sides of [`Calls`].
#[derive(Debug)]
pub struct CallsUnderWay {
    wanted: Option<u32>,
    caller: Sipp,
    /// Answering sides, each with a share of the calls.
    answering: Vec<Sipp>,
    _folder: TempDir,
}

impl Calls {
    /// Makes all calls. `proxy`: first hop of the caller. `target`: the callee; without it the callee is the answering
    /// SIPp.
    ///
    /// # Panics
    /// A call was lost, or SIPp does not run.
    pub fn run(&self, proxy: SocketAddr, target: Option<SocketAddr>, answer_port: u16) {
        self.start(proxy, target, answer_port).end();
    }

    /// Begins the calls.
    ///
    /// # Panics
    /// SIPp does not run.
    pub fn start(&self, proxy: SocketAddr, target: Option<SocketAddr>, answer_port: u16) -> CallsUnderWay {
        self.start_at(proxy, target, &[answer_port])
    }

    /// Begins the calls with an answering SIPp at each of these ports, among which the proxy distributes them; without
    /// a target the first is called.
    ///
    /// # Panics
    /// SIPp does not run, or no port is given.
    pub fn start_at(&self, proxy: SocketAddr, target: Option<SocketAddr>, answer_ports: &[u16]) -> CallsUnderWay {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let answer = |(n, port): (usize, &u16)| {
            Sipp::answer_as(&format!("uas{n}"), folder.path(), self.scenarios.1, *port, self.transports.1)
        };
        let answering = answer_ports.iter().enumerate().map(answer).collect();
        let target = target.unwrap_or_else(|| loopback(answer_ports[0]));
        let (scenario, transport) = (self.scenarios.0, self.transports.0);
        let (calls, rate) = (self.calls, self.rate);
        let own = port::free();
        let caller = Sipp::call(folder.path(), scenario, own, transport, proxy, target, self.way, calls, rate);
        CallsUnderWay { wanted: calls, caller, answering, _folder: folder }
    }
}

impl CallsUnderWay {
    /// Waits until this many calls have begun.
    ///
    /// # Panics
    /// So many calls have not begun within 20 seconds.
    pub fn reach(&self, calls: u64) {
        let are_so_many = wait::until(Duration::from_secs(20), || self.caller.counts().created >= calls);
        assert!(are_so_many, "{:?}\n{}", self.caller.counts(), self.caller.errors());
    }

    /// Returns how many calls each answering SIPp has had.
    pub fn shares(&self) -> Vec<u64> {
        self.answering.iter().map(|answering| answering.counts().created).collect()
    }

    /// Waits until all calls have ended; if no number of calls was given, no more calls begin. Asserts that each call
    /// was successful. Returns their number.
    ///
    /// # Panics
    /// A call failed.
    pub fn end(mut self) -> u64 {
        if self.wanted.is_none() {
            // Stops new calls; SIPp ends with the last open one.
            self.caller.process().signal(libc::SIGUSR1);
        }
        let called = self.caller.end(Duration::from_secs(90));
        let calls = self.wanted.map_or(called.created, u64::from);
        let sum = || {
            let each = self.answering.iter().map(Sipp::counts);
            each.fold(Counts::default(), |sum, counts| Counts {
                created: sum.created + counts.created,
                successful: sum.successful + counts.successful,
                failed: sum.failed + counts.failed,
                retransmissions: sum.retransmissions + counts.retransmissions,
                unexpected: sum.unexpected + counts.unexpected,
            })
        };
        wait::until(Duration::from_secs(8), || sum().successful + sum().failed >= calls);
        let answered = sum();
        let dropped = (self.caller.dropped(), self.answering.iter().map(Sipp::dropped).sum::<u64>());
        let errors: Vec<String> = self.answering.iter().map(Sipp::errors).collect();
        let story = format!(
            "caller {called:?}\n{}\nanswering {answered:?}\n{}\ndatagrams dropped at SIPp's sockets (caller, answering): {dropped:?}",
            self.caller.errors(),
            errors.join("\n")
        );
        assert_eq!((called.successful, called.failed), (calls, 0), "{story}");
        // SIPp fails a call whose ACK it did not read in time; such a call is no loss of the server.
        assert!(answered.failed.max(answered.unexpected) <= dropped.1, "{story}");
        assert_eq!(answered.successful + answered.failed, calls, "{story}");
        calls
    }
}
