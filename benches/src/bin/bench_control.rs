//! Effect of commands on calls: `bench_control [--contacts N] [--rounds N] [--seconds N] [--rate N]`.
//!
//! A server with 1,000,000 bindings carries calls of `strowger load`. Each round has one run of calls alone, and one
//! with `strowger status` ten times a second and `strowger registrations` of all bindings without a pause. Exit code 1
//! when the median of the p99 of the session request delay is 2 ms or more above that of the runs alone, or a call
//! failed.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use strowger_benches::command_line::{Options, run};
use strowger_benches::median;
use strowger_config::{Config, Source};
use strowger_net::clock;
use strowger_node::Server;
use strowger_store::binding::{Binding, Received};
use strowger_store::location::{LocationTable, Step};
use strowger_store::ticket::Ticket;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Milliseconds by which commands may raise the p99.
const MOST: f64 = 2.0;

#[derive(clap::Parser)]
#[command(about = "What commands to a server with many registrations cost its calls")]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Bindings of the server
    #[arg(long, value_name = "N", default_value = "1000000")]
    contacts: u64,
    /// Length of a run
    #[arg(long, value_name = "N", default_value = "10")]
    seconds: u64,
    /// Calls a second
    #[arg(long, value_name = "N", default_value = "200")]
    rate: u64,
}

fn main() -> ExitCode {
    run(bench)
}

fn bench(arguments: &Arguments) -> Result<bool, String> {
    let options = &arguments.options;
    options.have(&[])?;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let socket = folder.path().join("server.control");
    let server = start(&socket)?;
    let begun = Instant::now();
    (0..arguments.contacts).for_each(|n| register(&server.shared().location, n));
    options.say(&format!("{} bindings made in {:.1} s", server.bindings(), begun.elapsed().as_secs_f64()));
    let (mut alone, mut asked) = (Vec::new(), Vec::new());
    for round in 1..=options.rounds {
        let quiet = calls(arguments, &server, folder.path())?;
        let (busy, commands) = while_asked(options, &socket, || calls(arguments, &server, folder.path()))?;
        options.say(&format!(
            "round {round}: p99 of calls alone {quiet:.3} ms, beside {} status and {} whole lists {busy:.3} ms",
            commands.0, commands.1
        ));
        alone.push(quiet);
        asked.push(busy);
        if commands.0 == 0 || commands.1 == 0 {
            return Err("no command was done in a run: raise --seconds".into());
        }
    }
    server.stop();
    let (alone, asked) = (median(alone), median(asked));
    let moved = asked - alone;
    options
        .say(&format!("median p99 {alone:.3} ms alone, {asked:.3} ms beside commands: {moved:+.3} ms of {MOST:.0} ms"));
    if options.output.json {
        println!("{{\"alone_ms\":{alone:.4},\"asked_ms\":{asked:.4},\"contacts\":{}}}", arguments.contacts);
    }
    Ok(moved < MOST)
}

fn start(socket: &Path) -> Result<Server, String> {
    let text = format!(
        "listen = [\"udp:127.0.0.1:0\"]\ndomains = []\nproxy.relay_for = \"everyone\"\nstore.database = \"memory\"\n\
         registrar.durability = \"none\"\ncontrol.socket = {:?}",
        socket.display().to_string()
    );
    let (config, _) = Config::read(Source { text: &text, ..Source::default() }).map_err(|report| report.to_string())?;
    Server::start(config).map_err(|error| format!("{error:#}"))
}

fn register(table: &LocationTable, n: u64) {
    let now = clock::now();
    let (aor, uri) =
        (format!("user{n:010}@example.com"), format!("sip:user{n:010}@192.168.100.200:50600;transport=udp;ob"));
    let (instance, agent) =
        (format!("<urn:uuid:f81d4fae-7dec-11d0-a765-{n:012}>"), format!("Softphone {:03} build 77.10", n % 200));
    let call_id = format!("{n:036}");
    let binding = Binding {
        uri: uri.as_bytes(),
        call_id: call_id.as_bytes(),
        instance: instance.as_bytes(),
        user_agent: agent.as_bytes(),
        cseq: 1,
        expires_at: now.mono + 86_400_000,
        updated_at: now.wall,
        received: Some(Received { transport: 0, address: ([192, 0, 2, 1], 50_600).into() }),
        ..Binding::EMPTY
    };
    let added = table.update(aor.as_bytes(), now.mono, 5, Ticket::NONE, |_| Ok::<_, ()>(vec![Step::Add(binding)]));
    added.expect("the table has room");
}

/// Runs calls through the server; returns the p99 of their session request delay in milliseconds.
fn calls(arguments: &Arguments, server: &Server, folder: &Path) -> Result<f64, String> {
    let report = folder.join("report.json");
    let ended = Command::new(&arguments.options.server)
        .arg("load")
        .arg(server.addresses()[0].to_string())
        .args(["--pair", "--quiet", "--hold", "100ms", "--rate", &arguments.rate.to_string()])
        .args(["--duration", &format!("{}s", arguments.seconds), "--json"])
        .arg(&report)
        .output()
        .map_err(|error| error.to_string())?;
    if !ended.status.success() {
        return Err(format!("the calls failed: {}", String::from_utf8_lossy(&ended.stderr)));
    }
    let text = std::fs::read_to_string(&report).map_err(|error| error.to_string())?;
    let json: serde_json::Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    json["delays"]["srd"]["p99"].as_f64().map(|us| us / 1e3).ok_or_else(|| "no delay was measured".into())
}

/// Runs `work` while commands are sent without a pause. Returns the number of commands of each kind.
fn while_asked<T>(
    options: &Options,
    socket: &Path,
    work: impl FnOnce() -> Result<T, String>,
) -> Result<(T, (u64, u64)), String> {
    let over = AtomicBool::new(false);
    // This is typical use: `status` ten times a second, and lists one right after another.
    let ask = |words: &[&str], pause: Duration| {
        let mut done = 0;
        while !over.load(Ordering::Relaxed) {
            let mut command = Command::new(&options.server);
            let command = command.args(words).arg("--socket").arg(socket).stdout(Stdio::null());
            done += u64::from(command.status().is_ok_and(|status| status.success()));
            std::thread::sleep(pause);
        }
        done
    };
    std::thread::scope(|scope| {
        let status = scope.spawn(|| ask(&["status", "--json"], Duration::from_millis(100)));
        let lists = scope.spawn(|| ask(&["registrations", "--json"], Duration::ZERO));
        let result = work();
        over.store(true, Ordering::Relaxed);
        let counts = (status.join().expect("it does not panic"), lists.join().expect("it does not panic"));
        Ok((result?, counts))
    })
}
