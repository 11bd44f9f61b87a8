//! `strowger serve`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use strowger_config::{Config, Report};
use strowger_net::{ListenSocket, descriptors};
use strowger_node::control::{Done, Fault, Reload, Reply, Request, Wrong};
use strowger_node::{Claim, Leases, PolicyThread, Program, Refusal, Server, preflight, supervisor};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::oneshot;

use crate::allocator;
use crate::banner::{BoundListener, banner};
use crate::check;
use crate::cli::ServeArguments;
use crate::logging;
use crate::output::{self, CommandOutcome};
use crate::realm;

pub(crate) fn run(arguments: &ServeArguments) -> anyhow::Result<CommandOutcome> {
    // Must precede all threads.
    let sockets = supervisor::given_sockets();
    let policies = PolicyThread::start(allocator::give_back).context("the thread that reads the configuration")?;
    let (choice, listen) = (arguments.config.choose(), arguments.listen.clone());
    let (choice, loaded) = policies.run(move || {
        let loaded = preflight::load(choice.file(), &listen);
        (choice, loaded)
    });
    let config = match loaded {
        Ok((config, warnings)) => {
            if arguments.check {
                choice.announce();
                logging::filter(&config.log)?;
                output::report(&warnings);
                let warned = warnings.warnings() + check::environment(&config, warnings.file());
                output::print(&format!("{}: {}\n", warnings.file(), check::verdict(&config, warned)))?;
                return Ok(CommandOutcome::Done);
            }
            logging::start(&config.log)?;
            choice.log();
            logging::report(&warnings);
            logging::report(&Report::new(warnings.file(), "", preflight::kernel_limits(&config)));
            config
        }
        Err(report) => {
            choice.announce();
            output::report(&report);
            return Ok(CommandOutcome::Failed);
        }
    };
    allocator::huge_pages(config.server.huge_pages);
    serve(arguments, policies, config, sockets.context("sockets of the supervisor (LISTEN_FDS)")?)
}

/// Exit code of a server of which a part failed (EX_SOFTWARE of sysexits.h).
const FAILURE: u8 = 70;

/// Maximum number of reloads that wait for the current one.
const RELOADS: usize = 8;

/// Time that the working parts of such a server have to end, while bindings are written.
const FAILURE_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval of the messages that a server on stand-by sends to the supervisor.
const STANDING_BY: Duration = Duration::from_secs(1);

fn end_at_once(code: u8) -> ! {
    logging::flush();
    std::process::exit(i32::from(code));
}

/// Binds the listeners, prints the banner and carries messages until a signal ends the server.
///
/// After SIGTERM, SIGINT and `strowger drain`, work in progress may end first; a second signal does not wait. SIGUSR1
/// and SIGUSR2 ask for one shard more and one less. SIGHUP and `strowger reload` read the configuration again.
fn serve(
    arguments: &ServeArguments,
    policies: PolicyThread,
    config: Config,
    sockets: Vec<ListenSocket>,
) -> anyhow::Result<CommandOutcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut more = signal(SignalKind::user_defined1())?;
        let mut fewer = signal(SignalKind::user_defined2())?;
        // A command waits for its reply, so few are in progress.
        let (requests, mut requested) = mpsc::channel(8);
        // Each connection needs a descriptor, and a shell grants about a thousand. `limits.connections` is the
        // effective bound if the system allows that many descriptors.
        if let Err(error) = descriptors::raise() {
            tracing::warn!(%error, "the limit of open descriptors stays as it is");
        }
        let program = Program {
            give_back: allocator::give_back,
            log_lost: logging::lost,
            log_level: logging::level,
            requests: Some(requests),
            ..Program::default()
        };
        let Some((config, leases)) = take_leases(arguments, config, &mut terminate, &mut interrupt).await? else {
            return Ok(CommandOutcome::Done);
        };
        let server = Server::start_with(program, policies, config, sockets, leases)?;
        announce(&server)?;
        // Memory that this thread needed for the start.
        allocator::give_back();
        supervisor::ready();
        let failed = server.handle().clone();
        let mut failed = std::pin::pin!(failed.failed());
        let (reloads, wanted_reloads) = mpsc::channel(RELOADS);
        let mut reloading = Box::pin(reload_each(&server, arguments, wanted_reloads));
        let has_failed = loop {
            let shards = server.handle().shards();
            let wanted = tokio::select! {
                _ = terminate.recv() => break false,
                _ = interrupt.recv() => break false,
                Some(request) = requested.recv() => match request {
                    Request::Drain => break false,
                    Request::Reload { file: Some(file), reply } if !is_file_of(arguments, &file) => {
                        let _ = reply.send(Reply::Refused(other_file(arguments, &file)));
                        continue;
                    }
                    Request::Reload { reply, .. } => {
                        if let Err(TrySendError::Full(Some(reply))) = reloads.try_send(Some(reply)) {
                            let _ = reply.send(Reply::Unavailable(format!("{RELOADS} reloads wait already")));
                        }
                        continue;
                    }
                },
                _ = &mut failed => break true,
                _ = hangup.recv() => {
                    // If there is no room, the waiting reloads will read the current file.
                    let _ = reloads.try_send(None);
                    continue;
                }
                _ = more.recv() => shards + 1,
                _ = fewer.recv() => shards.saturating_sub(1).max(1),
                () = &mut reloading => unreachable!("its channel is open"),
            };
            match server.handle().set_shards(wanted) {
                Ok(()) => match server.handle().shards() {
                    to if to == shards => {
                        tracing::warn!(shards, wanted, "server.shards admits no other number of shards")
                    }
                    to => tracing::info!(from = shards, to, "number of shards changes"),
                },
                Err(error) => tracing::warn!(%error, wanted, "the number of shards stays as it is"),
            }
        };
        // The reload in progress continues, but is not waited for.
        drop(reloading);
        if has_failed {
            // The failure is in the log. The process does not wait for a part that hangs, because its supervisor starts
            // it again.
            let ending = tokio::task::spawn_blocking(move || server.stop());
            let _ = tokio::time::timeout(FAILURE_TIMEOUT, ending).await;
            end_at_once(FAILURE);
        }
        let drain = server.policy().config.server.drain_timeout;
        tracing::info!(
            seconds = drain.as_secs(),
            "graceful shutdown: new calls and registrations get 503; another signal ends at once"
        );
        supervisor::stopping();
        drop(requested);
        let mut ending = tokio::task::spawn_blocking(move || server.drain(drain));
        loop {
            tokio::select! {
                ended = &mut ending => break ended?,
                _ = terminate.recv() => end_at_once(0),
                _ = interrupt.recv() => end_at_once(0),
                _ = hangup.recv() => tracing::warn!("SIGHUP ignored: the server is shutting down"),
            }
        }
        Ok(CommandOutcome::Done)
    })
}

/// Takes the leases that the configuration needs, at once or after the wait that the arguments ask for. Returns `None`
/// if a signal ends the wait.
async fn take_leases(
    arguments: &ServeArguments,
    config: Config,
    terminate: &mut Signal,
    interrupt: &mut Signal,
) -> anyhow::Result<Option<(Config, Leases)>> {
    let claim = match (arguments.stand_by, arguments.take_over) {
        (true, _) => Claim::StandBy,
        (_, true) => Claim::TakeOver,
        _ => Claim::IfFree,
    };
    let is_cancelled = Arc::new(AtomicBool::new(false));
    let cancelled = is_cancelled.clone();
    let mut taking = tokio::task::spawn_blocking(move || {
        let leases = Leases::acquire(&config, claim, &cancelled);
        leases.map(|leases| leases.map(|leases| (config, leases)))
    });
    loop {
        tokio::select! {
            taken = &mut taking => return taken?,
            _ = terminate.recv() => is_cancelled.store(true, Ordering::Relaxed),
            _ = interrupt.recv() => is_cancelled.store(true, Ordering::Relaxed),
            // A supervisor waits for the start, but not for the end of another server.
            () = tokio::time::sleep(STANDING_BY) => if claim == Claim::StandBy {
                supervisor::standing_by();
            },
        }
    }
}

/// Prints the listeners on standard output, and logs which users cannot register.
fn announce(server: &Server) -> anyhow::Result<()> {
    let policy = server.policy();
    let config = &policy.config;
    realm::watch(config)?;
    let bound = config.listeners.iter().zip(server.addresses());
    let bound: Vec<BoundListener> = bound.map(|(listener, address)| BoundListener::new(listener, *address)).collect();
    // If both are written to one file, earlier log lines must be first.
    logging::flush();
    if let Err(error) = output::print(&banner(config, &bound)) {
        tracing::warn!(%error, "the banner cannot be printed on standard output");
    }
    Ok(())
}

/// Returns whether this is the configuration file of the server.
fn is_file_of(arguments: &ServeArguments, file: &Path) -> bool {
    let choice = arguments.config.choose();
    choice.file().is_some_and(|own| own.canonicalize().is_ok_and(|own| own == file) || own == file)
}

/// Describes the error of a reload with another file.
fn other_file(arguments: &ServeArguments, file: &Path) -> String {
    let (choice, file) = (arguments.config.choose(), file.display());
    match choice.file() {
        Some(own) => format!(
            "it was started with {}, and reads that file again and no other: change it there, or start the server with --config {file}",
            own.display()
        ),
        None => format!("it was started without a file: start it with --config {file}"),
    }
}

/// Reads the configuration again for each request, one after the other.
async fn reload_each(
    server: &Server,
    arguments: &ServeArguments,
    mut wanted: mpsc::Receiver<Option<oneshot::Sender<Reply>>>,
) {
    while let Some(reply) = wanted.recv().await {
        supervisor::reloading();
        let said = read_again(server, arguments).await;
        supervisor::ready();
        if let Some(reply) = reply {
            let _ = reply.send(said);
        }
    }
}

/// Reads the configuration and passes it to the server, and returns the result or the refusal; logs the result.
async fn read_again(server: &Server, arguments: &ServeArguments) -> Reply {
    let (choice, listen) = (arguments.config.choose(), arguments.listen.clone());
    let before = server.policy();
    let (changes, report) = match server.reload(move || preflight::load(choice.file(), &listen)).await {
        Ok(took) => took,
        Err(Refusal::Wrong(report)) => {
            logging::lines_of(&report);
            let (file, errors) = (report.file(), report.errors());
            tracing::error!(file, errors, "configuration refused: the server keeps its own");
            return Reply::Wrong(Wrong::of(&report));
        }
        Err(Refusal::Unusable(error)) => {
            let error = format!("{error:#}");
            tracing::error!(%error, "configuration refused: the server keeps its own");
            return Reply::Refused(error);
        }
    };
    let policy = server.policy();
    if policy.config.log.level != before.config.log.level {
        logging::follow(&policy.config.log);
    }
    logging::lines_of(&report);
    let in_force = changes.iter().filter(|change| !change.needs_restart).count();
    tracing::info!(file = report.file(), changes = in_force, "configuration reloaded");
    for change in changes.iter().filter(|change| change.needs_restart) {
        let (key, running, file) = (&change.key, &change.running, &change.wanted);
        tracing::warn!(%key, %running, %file, "key needs a restart");
    }
    if let Err(error) = realm::watch(&policy.config) {
        tracing::warn!(%error, "realms of users not checked");
    }
    let (file, changes) = (report.file().into(), changes.into_iter().map(Into::into).collect());
    Reply::Done(Done::Reloaded(Reload { file, changes, warnings: Fault::all(&report) }))
}
