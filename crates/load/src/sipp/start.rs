//! Start of a run: opens everything before the first call.

use super::counts::Counts;
use super::error_codes::{Codes, ErrorCodes};
use super::errors::Errors;
use super::face::{Failure, code, injections, name_of};
use super::log_file::{Growth, LogFile};
use super::options::{Options, Sockets, Source};
use super::session::Session;
use super::statistics::Statistics;
use super::terminal::Terminal;
use super::trace::{self, Listener, Stamp, Switches, Tracer};
use super::{binding, host, keys, media, plan, sockets, third_party};
use crate::command::Link;
use crate::engine::helper::Helper;
use crate::engine::script::Script;
use crate::engine::sipp_stats::SippStats;
use crate::engine::traffic::{Event, ShardCommand, Traffic};
use crate::engine::watch::Watch;
use crate::media::{Legs, Plane};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime};
use strowger_measure::{Clock, Collector, ShardRecorder};
use strowger_net::tls::OnFailure;
use strowger_net::{DedicatedSockets, clock};
use strowger_scenario::{Role, Scenario};

impl Session {
    pub(super) fn start(
        mut options: Options,
        scenario: Arc<Scenario>,
        out_of_call: Option<Arc<Scenario>>,
    ) -> Result<Self, Failure> {
        options.threads = threads(&options, &scenario);
        let fatal = |text: String| Failure(code::FATAL, text);
        let remote = match &options.remote {
            Some((name, port)) => Some(host::resolve(name, *port).map_err(fatal)?),
            None => None,
        };
        if remote.is_none() && scenario.role == Role::Client {
            return Err(fatal("Missing remote host parameter. This scenario requires it.".into()));
        }
        let sending_address = match &options.sending_address {
            Some((name, port)) => {
                Some(host::resolve(name, *port).map_err(|text| Failure(code::FAILED, format!("-rsa: {text}")))?)
            }
            None => None,
        };
        let local: IpAddr = match &options.local_ip {
            Some(ip) => host::resolve(ip, 0).map_err(fatal)?.ip(),
            None => host::local(remote),
        };
        let injections = injections(&options)?;
        let addresses = sockets::addresses(&options, &injections, local).map_err(fatal)?;
        let spoken = Arc::<OnceLock<Arc<Errors>>>::default();
        let on_failure = {
            let spoken = spoken.clone();
            OnFailure::new(move |peer, why| {
                if let Some(errors) = spoken.get() {
                    errors.say(format_args!("The TLS connection with {peer} failed: {why}"));
                }
            })
        };
        let (net, local_port) = binding::bind(&options, &addresses, scenario.role == Role::Client, on_failure)?;
        let played: Vec<&Scenario> =
            [Some(&scenario), out_of_call.as_ref()].into_iter().flatten().map(|s| &**s).collect();
        let plane = media::plane(&options, &played, local).map_err(fatal)?;
        let mut run = plan::plan(&options, &scenario, remote, sending_address, local, local_port);
        run.media_port = plane.as_ref().map_or(run.media_port, Plane::port);
        run.injections = injections;
        run.sockets = sockets::plan(&options, scenario.role, addresses[0]);
        let run = Arc::new(run);
        let main = Arc::new(Script::new(scenario.clone(), &run));
        let aside = out_of_call.clone();
        let out_of_call = out_of_call.map(|scenario| Arc::new(Script::new(scenario, &run)));
        let base = format!("{}_{}", name_of(&options.scenario), run.pid);
        let now = clock::micros();
        let mut collector = Collector::new(Clock::new(now, SystemTime::now()), scenario.timed(), options.threads);
        let files = Files::open(&options, &scenario, &base)?;
        let Files { statistics, counts, error_codes, errors, switches, screens, tracer } = files;
        // No peer connects before the shards run.
        let _ = spoken.set(errors.clone());
        let (events_out, events) = channel();
        // Parts of each shard, made on this thread.
        type Parts = (ShardRecorder, std::sync::mpsc::Sender<Event>, Option<Box<dyn Watch>>, Option<Legs>);
        let mut watch = Some(tracer as Box<dyn Watch>);
        let mut part = || -> Parts {
            let watch = watch.take().unwrap_or_else(|| Box::new(Listener(errors.clone())));
            (collector.recorder(now), events_out.clone(), Some(watch), plane.as_ref().map(Plane::legs))
        };
        let parts: Vec<Parts> = (0..options.threads).map(|_| part()).collect();
        let parts = Mutex::new(parts.into_iter());
        let several = options.threads > 1;
        let shared = run.clone();
        let (opened, receiver) = match third_party::plan(&options, &scenario).map_err(fatal)? {
            Some(plan) => Link::open(&plan)
                .map(|(link, receiver)| (Some(link), Some(receiver)))
                .map_err(|e| fatal(e.to_string()))?,
            None => (None, None),
        };
        let link = opened.clone();
        let node = net
            .spawn_with_sockets(move |index, handle| {
                let parts = parts.lock().unwrap_or_else(|e| e.into_inner()).next();
                let (recorder, events, watch, legs) = parts.expect("each shard is started once");
                let mailbox = handle.mailbox(index);
                let helper = Helper::new(move |answer| mailbox.send(ShardCommand::Helped(answer)));
                let traffic = Traffic::new(shared.clone(), main.clone(), out_of_call.clone(), recorder, events, helper)
                    .watched(watch)
                    .with_link(link.clone())
                    .with_media(legs)
                    .with_sockets(DedicatedSockets::new(&handle, index, shared.sockets.most));
                if !several {
                    return traffic;
                }
                // No call begins before each shard has its traffic.
                traffic.paused().owning(Box::new(move |name| handle.owner(handle.bucket(name)) == index))
            })
            .map_err(|e| fatal(format!("the engine could not be started: {e}")))?;
        if several {
            (0..options.threads).for_each(|i| node.handle().mailbox(i).send(ShardCommand::Pause(false)));
        }
        if let Some(receiver) = receiver {
            let mailbox = node.handle().mailbox(0);
            receiver
                .start(Arc::new(move |event| mailbox.send(ShardCommand::LinkEvent(event))))
                .map_err(|e| fatal(format!("other controllers cannot be heard: {e}")))?;
        }
        let (keys_in, keys) = channel();
        let control = match &options.control_ip {
            Some(ip) => host::resolve(ip, 0).map_err(fatal)?.ip(),
            None if options.local_ip.is_some() => local,
            None if local.is_ipv6() => Ipv6Addr::UNSPECIFIED.into(),
            None => Ipv4Addr::UNSPECIFIED.into(),
        };
        keys::control(control, options.control_port, keys_in.clone())
            .map_err(|e| Failure(code::bind(&e), format!("Unable to bind remote control socket: {e}")))?;
        let terminal = Terminal::new(options.keyboard);
        keys::signals(node.handle().services(), &keys_in, &terminal);
        let terminal = terminal.take();
        if options.keyboard {
            keys::terminal(keys_in);
        }
        let run_remote = run.target.map_or(String::new(), |target| target.to_string());
        let rate = options.rate;
        let media = plane.map(|plane| media::Shown::new(plane, &options));
        let limit = match (options.limit, options.users) {
            (None, Some(users)) => u64::from(users),
            _ => options.limit.unwrap_or_else(|| plan::limit(&options, &scenario, rate)),
        };
        Ok(Self {
            stats: SippStats::new(&scenario),
            forgotten: None,
            before: SippStats::new(&scenario),
            options,
            scenario,
            run,
            node,
            collector,
            events,
            statistics,
            started: Instant::now(),
            stamp: Stamp::now(),
            rate,
            limit,
            media,
            link: opened,
            timed_out: false,
            quitting: false,
            keys,
            counts,
            error_codes,
            errors,
            switches,
            screens,
            screen: 1,
            hide: false,
            aside,
            shows_aside: false,
            typed: None,
            paused: false,
            remote: run_remote,
            exit: None,
            rounds: 0,
            period: Instant::now(),
            reset: Stamp::now(),
            peak: (0, Duration::ZERO),
            looked: Duration::ZERO,
            terminal,
        })
    }
}

/// Files written during a run.
struct Files {
    statistics: Option<Statistics>,
    counts: Option<Counts>,
    error_codes: Option<ErrorCodes>,
    errors: Arc<Errors>,
    switches: Arc<Switches>,
    screens: LogFile,
    tracer: Box<Tracer>,
}

impl Files {
    /// Opens the files that SIPp opens at once. The files of errors, logs and response times are opened with their
    /// first record.
    fn open(options: &Options, scenario: &Scenario, base: &str) -> Result<Self, Failure> {
        let failed = |text| Failure(code::FAILED, text);
        let fatal = |text| Failure(code::FATAL, text);
        let traces = &options.traces;
        let log = |given: &Option<PathBuf>, name: &str, append: bool, growth: Growth| {
            LogFile::new(given.as_deref(), base, name, append, growth)
        };
        let mut screens = log(&traces.screen_file, "screen", traces.append.screen, Growth::default());
        if traces.screen {
            screens.open().map_err(failed)?;
        }
        let errors = log(&traces.error_file, "errors", traces.append.errors, traces.growth);
        let errors = Arc::new(Errors::new(errors, traces.errors));
        let (switches, codes) = (Arc::<Switches>::default(), Codes::default());
        let d = &options.delimiter;
        let document = matches!(options.scenario, Source::File(_));
        let tracer =
            Tracer::new(traces, document, base, d, switches.clone(), errors.clone(), codes.clone()).map_err(failed)?;
        let statistics = match traces.statistics {
            true => {
                let file = trace::create(traces.statistics_file.as_deref(), base, ".csv").map_err(fatal)?;
                let mut file = Statistics::new(file, d, scenario, options.periodic_rtd)
                    .map_err(|error| fatal(format!("the statistics: {error}")))?;
                let _ = file.write(&SippStats::new(scenario), options.rate);
                Some(file)
            }
            false => None,
        };
        let counts = match traces.counts {
            true => {
                let file = trace::create(None, base, "counts.csv").map_err(fatal)?;
                let mut file = Counts::new(file, d, scenario, options.lost > 0.0)
                    .map_err(|error| fatal(format!("the counts: {error}")))?;
                let _ = file.write(scenario, &SippStats::new(scenario));
                Some(file)
            }
            false => None,
        };
        let error_codes = if traces.error_codes { Some(ErrorCodes::new(base, d, codes).map_err(fatal)?) } else { None };
        Ok(Self { statistics, counts, error_codes, errors, switches, screens, tracer })
    }
}

/// Returns the number of shards that share the calls, which is one if calls depend on each other.
fn threads(options: &Options, scenario: &Scenario) -> usize {
    let traces = &options.traces;
    let traced = traces.messages || traces.short_messages || traces.errors || traces.logs || traces.error_codes;
    let why = if traced || traces.rtt {
        "traces are written by one"
    } else if options.users.is_some() {
        "-users are served by one"
    } else if scenario.role == Role::Server && options.calls.is_some() {
        "-m is counted by one"
    } else if scenario.third_party.is_some() || options.transport.is_reliable() && options.sockets == Sockets::One {
        "connections are served by one"
    } else {
        return options.threads;
    };
    if options.threads > 1 {
        eprintln!("Warning: -threads {}: {why}.", options.threads);
    }
    1
}
