//! `strowger lab capacity`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use clap::{Args, ValueHint};
use console::{Term, style};
use strowger_core::Transport;
use strowger_lab::capacity::{self, Capacity, CapacityRequest, Failure, LONGEST, News, Obstacle, Server, Work};
use strowger_lab::finder::{Finding, Part};
use strowger_lab::host::ProcessHost;
use strowger_lab::{Error, guard, process};
use strowger_load::campaign::{Target, User, period, users};
use strowger_measure::grouped;
use strowger_report::{Terminal, printable};

use super::{before, hosts, print};
use crate::output::{self, Refusal, code, usage};

/// Find the capacity of a SIP server and the cause of its limit, within three minutes.
///
/// First the command looks for obstacles. Then it searches by trials of 2 s, in which at most 1 % of the attempts may
/// fail, and 95 % of the successful attempts may take at most 300 ms. At the end it offers 0.9 of the limit for 30 s. The
/// answer is one sentence.
///
/// Without further options it sends OPTIONS. With --users it registers users. With --pair, --callee or a user in the target it makes calls.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger lab capacity 127.0.0.1                              OPTIONS
  strowger lab capacity 192.168.1.5 --users users.csv          registrations
  strowger lab capacity 192.168.1.5 --pair --callee bob:secret calls to bob, who registers and answers here
  strowger lab capacity sip:600@192.168.1.5                    calls to somebody who answers there
  strowger lab capacity 127.0.0.1 --html capacity.html         with a page of figures
  strowger lab capacity 192.168.1.5 --server root@192.168.1.5  with samples of the server, by its login
  strowger lab capacity 127.0.0.1 --json - --max-rate 500
  strowger lab capacity sip.example.org --yes                  a server of the Internet: ask its owner first

Exit codes, of several the first in this order:
  2    the command line, or a file or host that it names, cannot be used; or the server asks for a password
  130  ended by Ctrl-C
  4    the generator was the limit; or a ban, a limiter or a refusal of every request stands before the server
  3    the server carries a load at first and not when it stays
  1    nothing listens or answers there, the lowest load is too much, a report could not be written, or
       the host shows no process of the server, or its connection is gone
  0    all well")]
pub(crate) struct CapacityArguments {
    /// The server: a host, host:port, [IPv6]:port, a SIP URI, or TRANSPORT://host.
    #[arg(value_name = "TARGET")]
    pub target: Target,
    /// Users with passwords, one a line: user;password. They register, or make calls.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub users: Option<PathBuf>,
    /// Make calls whose both ends are here: through the server to an answering side in this process.
    #[arg(long)]
    pub pair: bool,
    /// Make calls to this user, who with --pair first registers at the server, and answers on this machine.
    #[arg(long, value_name = "USER[:PASSWORD]", value_parser = users::one)]
    pub callee: Option<User>,
    /// The domain of the users [default: the target's host].
    #[arg(long)]
    pub domain: Option<String>,
    /// The highest load that is offered.
    #[arg(long, value_name = "RATE", default_value = "2000", value_parser = period::rate)]
    pub max_rate: f64,
    /// The address is neither of this machine nor of a private network, and its owner has agreed.
    #[arg(long)]
    pub yes: bool,
    /// Process of the server on this machine, whose threads are sampled [default: the one that has bound the port].
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Host of the server, by its name for ssh. The process that has bound the port on that host is sampled, with a login that
    /// may see it.
    #[arg(long, value_name = "HOST", value_parser = hosts::name, conflicts_with = "pid")]
    pub server: Option<String>,
    /// Command that reaches the host, such as "ssh -F FILE".
    #[arg(long, value_name = "COMMAND", default_value = "ssh")]
    pub ssh: String,
    /// Length of a trial.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = period::duration)]
    pub trial: Duration,
    /// Length of the trial that confirms the limit.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = period::duration)]
    pub confirm: Duration,
    /// Write the result as JSON; - is standard output, and sentence and table go to standard error.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Write the report as one self-contained HTML page; - has the same meaning as with --json.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Print only the sentence, without progress and table.
    #[arg(long, short)]
    pub quiet: bool,
}

pub(super) fn run(arguments: &CapacityArguments) -> Result<ExitCode, Refusal> {
    let folder = tempfile::TempDir::with_prefix("strowger-capacity-")
        .map_err(|error| Refusal(code::FAILED, format!("no temporary folder can be made: {error}")))?;
    let mut request = request(arguments, folder.path())?;
    process::end_by_signals().map_err(|error| Refusal(code::FAILED, format!("Ctrl-C cannot be caught: {error}")))?;
    guard::start(std::process::Command::new(&request.program).args(["lab", "guard"]))
        .map_err(|error| Refusal(code::FAILED, format!("the guard does not start: {error}")))?;
    let hosts = hosts::only_server(arguments.server.as_deref(), &arguments.ssh, &request.program).map_err(before)?;
    if let ProcessHost::There(host) = &hosts.server.place {
        request.server = Server::There(Arc::clone(host));
    }
    let when = SystemTime::now();
    let progress = Progress::new(&request, arguments.quiet);
    let measured = capacity::measure(&request, |news| progress.tell(news));
    progress.clear();
    let is_whole = matches!(&measured, Ok(capacity) if !capacity.is_interrupted);
    if let Some(lost) = hosts.lost().filter(|_| !is_whole) {
        return Err(Refusal(code::FAILED, lost.to_string()));
    }
    let capacity = measured.map_err(refusal)?;
    let is_written = write(arguments, &request, &capacity, when)?;
    Ok(ExitCode::from(exit_code(&capacity, is_written)))
}

/// Makes the request of a command line.
fn request(arguments: &CapacityArguments, folder: &Path) -> Result<CapacityRequest, Refusal> {
    let target = arguments.target.clone();
    let transport = target.transport.unwrap_or(Transport::Udp);
    let address = target.resolve(transport).map_err(usage)?;
    let is_here = capacity::is_of_this_machine(address.ip());
    if !is_here && !capacity::is_private(address.ip()) && !arguments.yes {
        return Err(usage(format!(
            "{} is neither of this machine nor of a private network: give --yes if its owner has agreed to {} requests a second",
            address.ip(),
            grouped(arguments.max_rate)
        )));
    }
    for (wrong, option) in [
        (arguments.max_rate < 1.0, "--max-rate: a search needs at least 1 a second"),
        (arguments.trial < Duration::from_secs(1), "--trial: a trial lasts at least 1s"),
        (arguments.confirm <= arguments.trial, "--confirm: the confirmation is longer than a trial"),
        (arguments.confirm > LONGEST / 3, "--confirm: a confirmation lasts at most 60s"),
    ] {
        if wrong {
            return Err(usage(option));
        }
    }
    let mut words: Vec<String> = Vec::new();
    if let Some(file) = &arguments.users {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file).map_err(|error| usage(format!("{name} cannot be read: {error}")))?;
        users::parse(&text, &name).map_err(usage)?;
        // The generator runs in a folder of its own.
        let file = std::path::absolute(file).map_err(|error| usage(format!("{name}: {error}")))?;
        words.extend(["--users".into(), file.display().to_string()]);
    }
    let calls = arguments.pair || arguments.callee.is_some() || target.user.is_some();
    let work = match (calls, &arguments.users) {
        (true, _) => Work::Calls,
        (false, Some(_)) => Work::Registrations,
        (false, None) => Work::Options,
    };
    if arguments.pair {
        words.push("--pair".into());
    }
    if let Some(callee) = &arguments.callee {
        let password = if callee.password.is_empty() { String::new() } else { format!(":{}", callee.password) };
        words.extend(["--callee".into(), format!("{}{password}", callee.name)]);
    }
    if let Some(domain) = &arguments.domain {
        words.extend(["--domain".into(), domain.clone()]);
    }
    // Registrations that the measurement leaves behind expire soon.
    words.extend(["--expires".into(), EXPIRES.into()]);
    let program = std::env::current_exe()
        .map_err(|error| Refusal(code::FAILED, format!("the path of this program is not known: {error}")))?;
    let found = || if is_here { capacity::owner_of_port(address.port()) } else { None };
    let server = arguments.pid.or_else(found);
    Ok(CapacityRequest {
        target,
        address,
        transport,
        work,
        words,
        program,
        server: server.map_or(Server::Unseen, Server::Here),
        most: arguments.max_rate,
        trial: arguments.trial,
        hold: arguments.confirm,
        folder: folder.into(),
    })
}

/// Seconds of a registration.
const EXPIRES: &str = "300";

fn refusal(failure: Failure) -> Refusal {
    match failure {
        Failure::Obstacle(obstacle) => {
            let code = match &obstacle {
                Obstacle::Dead(_) | Obstacle::Silent(_) => code::FAILED,
                Obstacle::Challenge(_) => code::USAGE,
                Obstacle::Refused(_) | Obstacle::Banned(_) => code::INVALID,
            };
            Refusal(code, obstacle.to_string())
        }
        Failure::Error(Error::Interrupted) => Refusal(code::INTERRUPTED, "interrupted before the first trial".into()),
        Failure::Error(error) => Refusal(code::FAILED, error.to_string()),
    }
}

fn exit_code(capacity: &Capacity, is_written: bool) -> u8 {
    match capacity.limit.finding {
        _ if capacity.is_interrupted => code::INTERRUPTED,
        _ if capacity.limit.cause.part == Part::Generator => code::INVALID,
        Finding::Unstable => code::MISSED,
        Finding::Nothing => code::FAILED,
        Finding::Found | Finding::AtLeast if !is_written => code::FAILED,
        Finding::Found | Finding::AtLeast => code::WELL,
    }
}

/// Writes the reports. Returns false if one of them could not be written.
fn write(
    arguments: &CapacityArguments,
    request: &CapacityRequest,
    capacity: &Capacity,
    when: SystemTime,
) -> Result<bool, Refusal> {
    let outputs = [&arguments.json, &arguments.html];
    let is_taken = outputs.into_iter().flatten().any(|path| path == Path::new("-"));
    let columns = |term: &Term| term.size_checked().map_or(strowger_report::WIDTH, |(_, columns)| usize::from(columns));
    let (colour, columns) = match is_taken {
        true => (console::colors_enabled_stderr(), columns(&Term::stderr())),
        false => (console::colors_enabled(), columns(&Term::stdout())),
    };
    let mut terminal = Terminal::new(colour, columns);
    terminal.sentence(&capacity::answer(request, capacity));
    if !arguments.quiet {
        terminal.blank();
        terminal.table(&capacity::table(request, capacity));
    }
    let text = terminal.text();
    if is_taken {
        output::say(text.trim_end())
    } else {
        print(&text)?
    }
    if let (Work::Options, false) = (&request.work, arguments.quiet) {
        output::say("Registrations are measured with --users FILE, calls with --pair or --callee.");
    }
    let program = concat!("Strowger ", env!("CARGO_PKG_VERSION"));
    let page = || capacity::page(request, capacity, when, program).map_err(|fault| fault.to_string());
    let json = || Ok(format!("{:#}\n", capacity::json(request, capacity)));
    let mut is_written = true;
    for (path, text) in [(&arguments.json, &json as &dyn Fn() -> Result<String, String>), (&arguments.html, &page)] {
        let Some(path) = path else { continue };
        let text = text().map_err(|fault| Refusal(code::FAILED, fault))?;
        if path == Path::new("-") {
            print(&text)?;
        } else if let Err(error) = std::fs::write(path, text) {
            is_written = false;
            output::complain(&format!("{} cannot be written: {error}", path.display()));
        }
    }
    Ok(is_written)
}

/// Progress on standard error: a line for each trial, and on a terminal the present trial.
struct Progress {
    unit: String,
    begun: Instant,
    term: Option<Term>,
    is_quiet: bool,
}

impl Progress {
    fn new(request: &CapacityRequest, is_quiet: bool) -> Self {
        let term = Term::stderr();
        let term = (!is_quiet && term.is_term()).then_some(term);
        let (unit, begun) = (request.work.unit().to_string(), Instant::now());
        if !is_quiet {
            let target = printable(&request.target.to_string()).into_owned();
            let sampled = match &request.server {
                Server::Unseen => String::new(),
                Server::Here(id) => format!(", process {id} is sampled"),
                Server::There(host) => format!(", the server is sampled on {}", host.name()),
            };
            output::say(&format!(
                "Measuring {unit} of {target}, at most {} for at most 3 minutes{sampled}.",
                grouped(request.most)
            ));
        }
        Self { unit, begun, term, is_quiet }
    }

    fn tell(&self, news: News<'_>) {
        if self.is_quiet {
            return;
        }
        let elapsed = self.begun.elapsed().as_secs();
        match (news, &self.term) {
            (News::Offered(load, length), Some(term)) => {
                let line = format!(
                    "{}:{:02} {} {} for {} s ...",
                    elapsed / 60,
                    elapsed % 60,
                    grouped(load),
                    self.unit,
                    length.as_secs_f64()
                );
                let _ = term.clear_line().and_then(|()| term.write_str(&line));
            }
            (News::Offered(..), None) => {}
            (News::Made(step), _) => {
                self.clear();
                let failed =
                    step.outcome.value("failed.any").map_or_else(String::new, |share| format!(", {share:.1} % failed"));
                let mark = if step.is_met { style("carried").green() } else { style("not carried").red() };
                let mark = mark.for_stderr();
                output::say(&format!(
                    "{}:{:02} {} {}: {mark}{failed}",
                    elapsed / 60,
                    elapsed % 60,
                    grouped(step.load),
                    self.unit
                ));
            }
        }
    }

    fn clear(&self) {
        if let Some(term) = &self.term {
            let _ = term.clear_line();
        }
    }
}
