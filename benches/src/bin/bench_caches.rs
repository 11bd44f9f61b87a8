//! What credentials in a cache cost: the study of caches (store and fetch with a local cache, Memcached and Redis), by this server.
//!
//! Each round starts a server for each cache and one that has the HA1 of its users in memory, with the same users. All users register (a
//! store), then call each other (a fetch): from the request with credentials to its 200 is timed, and the processor time of the server is that
//! of the whole run. Which of them begins alternates; what counts is the median of the rounds, less that of the server without a cache. After
//! the registrations the entries of the cache are counted: each 200 has one. Exit code 1 when a call was lost, an entry is missing, the
//! generator did not keep up, or a figure is above its bar.

use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;
use strowger_benches::command_line::{Options, run};
use strowger_benches::median;
use strowger_lab::backend::{self, Backend};
use strowger_lab::driver::{Configuration, Driver, SystemUnderTest, fill};
use strowger_lab::port;
use strowger_lab::process::Process;
use strowger_lab::program::{MEMCACHED, REDIS};
use strowger_store::sqlite::SqliteSettings;
use strowger_store::sqlite_subscribers::SqliteAdmin;
use strowger_tests::account;

/// Users that register and call.
const USERS: u32 = 1_000;

/// Seconds of calls that do not count, before those that do.
const WARM: u64 = 1;

/// Where the credentials of those who are registered stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Cache {
    /// In no cache: the server has the HA1 of each user in memory.
    None,
    Local,
    Memcached,
    Redis,
}

impl Cache {
    const ALL: [Self; 4] = [Self::None, Self::Local, Self::Memcached, Self::Redis];

    const fn name(self) -> &'static str {
        match self {
            Self::None => "no cache",
            Self::Local => "local",
            Self::Memcached => "memcached",
            Self::Redis => "redis",
        }
    }

    /// Most that an operation may add: to the median and to the 99th percentile, and of processor time of the server, in microseconds.
    const fn bars(self) -> [f64; 3] {
        match self {
            Self::None => [f64::INFINITY; 3],
            Self::Local => [20.0, 1_000.0, 1.0],
            Self::Memcached | Self::Redis => [150.0, 2_000.0, 45.0],
        }
    }
}

/// What a run is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Operation {
    Store,
    Fetch,
}

impl Operation {
    const ALL: [Self; 2] = [Self::Store, Self::Fetch];

    const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Fetch => "fetch",
        }
    }

    /// The document of its calls.
    const fn document(self) -> (&'static str, &'static str) {
        match self {
            Self::Store => ("store.xml", include_str!("../../documents/caches_register.xml")),
            Self::Fetch => ("fetch.xml", include_str!("../../documents/caches_call.xml")),
        }
    }
}

/// Credentials in a cache: what storing and fetching them adds to a registration and a call.
#[derive(clap::Parser)]
struct Arguments {
    /// Calls a second
    #[arg(long, value_delimiter = ',', default_value = "100,1000")]
    rates: Vec<u64>,
    /// Seconds of each run, longer where each user would not come once
    #[arg(long, default_value = "10", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    #[command(flatten)]
    options: Options,
}

/// What one run showed, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Shown {
    p50: f64,
    p99: f64,
    /// Of the server, for each call.
    cpu: f64,
    /// Calls that did not come to their end.
    lost: u64,
    valid: bool,
}

/// Caches beside the servers.
struct Backends {
    redis: Backend,
    memcached: Backend,
}

impl Backends {
    fn start(folder: &Path) -> Result<Self, strowger_lab::Error> {
        Ok(Self { redis: backend::redis(folder)?, memcached: backend::memcached(folder)? })
    }

    /// How many entries a server of its own has.
    fn entries(&self, cache: Cache) -> Result<Option<u64>, String> {
        let number = |text: &str| text.trim().trim_start_matches(':').parse().ok();
        let (text, found) = match cache {
            Cache::None | Cache::Local => return Ok(None),
            Cache::Redis => {
                let text = say(self.redis.address(), "DBSIZE\r\n")?;
                let found = number(&text);
                (text, found)
            }
            Cache::Memcached => {
                let text = say(self.memcached.address(), "stats\r\n")?;
                let line = text.lines().find_map(|line| line.strip_prefix("STAT curr_items "));
                let found = line.and_then(number);
                (text, found)
            }
        };
        found.map(Some).ok_or_else(|| format!("{} does not say how many entries it has: {text}", cache.name()))
    }
}

/// What a cache says to a line.
fn say(address: SocketAddr, line: &str) -> Result<String, String> {
    let text = |error: std::io::Error| format!("the cache at {address}: {error}");
    let mut stream = TcpStream::connect(address).map_err(text)?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).map_err(text)?;
    stream.write_all(line.as_bytes()).map_err(text)?;
    let mut heard = vec![0; 65_536];
    // What is said here comes in one piece.
    let length = stream.read(&mut heard).map_err(text)?;
    Ok(String::from_utf8_lossy(&heard[..length]).into_owned())
}

/// A server with its users, and both ends of its calls.
struct Bed<'a> {
    arguments: &'a Arguments,
    folder: &'a Path,
    server: SystemUnderTest,
    caller: u16,
    /// Ends with this.
    _answers: Process,
}

impl<'a> Bed<'a> {
    fn start(arguments: &'a Arguments, cache: Cache, backends: &Backends, folder: &'a Path) -> Result<Self, String> {
        let text = |error: strowger_lab::Error| error.to_string();
        let database = folder.join("users.sqlite");
        let mut admin = SqliteAdmin::open(&SqliteSettings::new(&database)).map_err(|error| error.to_string())?;
        account::add(&mut admin, (1..=USERS).map(|n| format!("user{n}")));
        drop(admin);
        let engine = match cache {
            Cache::None => None,
            Cache::Local => Some("engine = \"local\"".to_owned()),
            Cache::Memcached => {
                Some(format!("engine = \"memcached\"\nservers = [\"{}\"]", backends.memcached.address()))
            }
            Cache::Redis => Some(format!("engine = \"redis\"\nservers = [\"{}\"]", backends.redis.address())),
        };
        let credentials = engine.as_ref().map_or("", |_| "auth.credential_cache = \"credentials\"\n");
        let cache = engine.map_or_else(String::new, |engine| format!("[[cache]]\nname = \"credentials\"\n{engine}\n"));
        // Bindings are in memory: what a 200 waits for is the cache alone. [authentication] signs the address of the server in place of the
        // Request-URI.
        let text_of = format!(
            "listen = [\"udp:127.0.0.1:@PORT@\"]\ndomains = [\"example.org\"]\nserver.shards = 1\nproxy.record_route = true\n\
             registrar.durability = \"none\"\nauth.uri_check = \"off\"\nstore.database = {:?}\n{credentials}{cache}",
            database.display().to_string()
        );
        let configuration = Configuration { text: text_of, ..Configuration::default() };
        let driver = Driver::Strowger { program: arguments.options.server.clone() };
        let server = driver.start(folder, &configuration).map_err(text)?;
        let (caller, called) = (port::free(), port::free());
        for operation in Operation::ALL {
            let (name, document) = operation.document();
            let document = fill(document, &[("ANSWERS", called.to_string())]).map_err(text)?;
            std::fs::write(folder.join(name), document).map_err(|error| error.to_string())?;
        }
        let mut data = String::from("SEQUENTIAL\n");
        for n in 1..=USERS {
            let callee = n % USERS + 1;
            // Writing to a String cannot fail.
            let _ = writeln!(data, "user{n};[authentication username=user{n} password=user{n}];user{callee}");
        }
        std::fs::write(folder.join("users.csv"), data).map_err(|error| error.to_string())?;
        let mut command = Command::new(&arguments.options.server);
        command.args(["load", "uas", "--source", "127.0.0.1", "--quiet", "--port", &called.to_string()]);
        let mut answers = Process::start("answers", folder, command.current_dir(folder)).map_err(text)?;
        answers.listens(called, Duration::from_secs(20)).map_err(text)?;
        Ok(Self { arguments, folder, server, caller, _answers: answers })
    }

    /// How many entries the cache within the server has.
    fn local_entries(&self) -> Result<u64, String> {
        let mut command = Command::new(&self.arguments.options.server);
        command.args(["caches", "list", "--json", "--socket"]).arg(self.folder.join("users.control"));
        let output = command.output().map_err(|error| error.to_string())?;
        let listed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let entries = listed["caches"][0]["entries"].as_u64();
        entries.ok_or_else(|| format!("no entries in {listed}: {}", String::from_utf8_lossy(&output.stderr)))
    }

    /// So many calls of this kind.
    fn run(&self, operation: Operation, calls: u64, rate: u64) -> Result<Shown, String> {
        let report = self.folder.join("report.json");
        let before = self.server.usage();
        let ended = Command::new(&self.arguments.options.server)
            .current_dir(self.folder)
            .args([
                "load",
                &format!("127.0.0.1:{}", self.server.port()),
                "--source",
                "127.0.0.1",
                "--quiet",
                "--no-exec",
            ])
            .args(["--rate", &rate.to_string(), "--calls", &calls.to_string(), "--port", &self.caller.to_string()])
            .args(["--scenario", operation.document().0, "--inf", "users.csv", "--json"])
            .arg(&report)
            .output()
            .map_err(|error| error.to_string())?;
        let used = self.server.usage().since(&before);
        let text = std::fs::read_to_string(&report)
            .map_err(|_| format!("no report of {}: {}", operation.name(), String::from_utf8_lossy(&ended.stderr)))?;
        std::fs::remove_file(&report).map_err(|error| error.to_string())?;
        let json: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let timer = |quantile: &str| json["timers"]["operation"][quantile].as_f64();
        let (p50, p99) = timer("p50").zip(timer("p99")).ok_or("nothing was timed")?;
        let successful = json["calls"]["successful"].as_u64().unwrap_or(0);
        let valid = json["verdict"]["valid"].as_bool().unwrap_or(false);
        let cpu = used.total().as_secs_f64() * 1e6 / calls as f64;
        Ok(Shown { p50, p99, cpu, lost: calls.saturating_sub(successful), valid })
    }
}

/// Rounds by rate, operation and cache.
type All = BTreeMap<(u64, Operation, Cache), Vec<Shown>>;

/// One server with one cache at one rate.
fn round(arguments: &Arguments, cache: Cache, rate: u64, all: &mut All) -> Result<bool, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    // New ones: what they have is of this round.
    let backends = Backends::start(folder.path()).map_err(|error| error.to_string())?;
    let bed = Bed::start(arguments, cache, &backends, folder.path())?;
    let calls = (rate * arguments.seconds).max(USERS.into());
    let mut has_all = true;
    for operation in Operation::ALL {
        // The first store of each user is warm-up too: from then on the server has its HA1 in memory.
        let warm = if operation == Operation::Store { u64::from(USERS).max(rate * WARM) } else { rate * WARM };
        bed.run(operation, warm, rate.max(500))?;
        let shown = bed.run(operation, calls, rate)?;
        let entries = match (operation, cache) {
            (Operation::Store, Cache::Local) => Some(bed.local_entries()?),
            (Operation::Store, _) => backends.entries(cache)?,
            (Operation::Fetch, _) => None,
        };
        has_all &= entries.is_none_or(|entries| entries == u64::from(USERS));
        arguments.options.say(&format!(
            "{rate:>5}/s {:<9} {}  p50 {:>6.0} µs, p99 {:>6.0} µs, server {:>6.1} µs a call{}{}{}",
            cache.name(),
            operation.name(),
            shown.p50,
            shown.p99,
            shown.cpu,
            if shown.lost > 0 { format!(", {} calls lost", shown.lost) } else { String::new() },
            if shown.valid { "" } else { ", INVALID" },
            entries.map_or_else(String::new, |entries| format!(", {entries} entries of {USERS}")),
        ));
        all.entry((rate, operation, cache)).or_default().push(shown);
    }
    Ok(has_all)
}

fn measure(arguments: &Arguments) -> Result<bool, String> {
    let options = &arguments.options;
    options.have(&[REDIS, MEMCACHED])?;
    let (mut all, mut has_all) = (All::new(), true);
    for rate in &arguments.rates {
        for number in 1..=options.rounds {
            let mut order = Cache::ALL;
            // What drifts while a round lasts is no advantage of one.
            if number % 2 == 0 {
                order.reverse();
            }
            for cache in order {
                has_all &= round(arguments, cache, *rate, &mut all)?;
            }
        }
    }
    Ok(judge(options, &all) && has_all)
}

/// Prints what each cache adds, and says whether all bars are kept.
fn judge(options: &Options, all: &All) -> bool {
    let figures = |shown: &[Shown]| {
        [|shown: &Shown| shown.p50, |shown: &Shown| shown.p99, |shown: &Shown| shown.cpu]
            .map(|figure| median(shown.iter().map(figure).collect()))
    };
    let is_whole = all.values().flatten().all(|shown| shown.lost == 0 && shown.valid);
    let (mut rows, mut is_kept) = (Vec::new(), true);
    options.say("\n calls/s           cache        p50 µs (added, at most)    p99 µs (added, at most)    CPU µs (added, at most)");
    for ((rate, operation, cache), shown) in all {
        let Some(without) = all.get(&(*rate, *operation, Cache::None)) else { continue };
        let (own, base, bars) = (figures(shown), figures(without), cache.bars());
        let added: Vec<f64> = own.iter().zip(base).map(|(own, base)| own - base).collect();
        let keeps = added.iter().zip(bars).all(|(added, bar)| *added <= bar);
        is_kept &= keeps;
        let cell = |n: usize| match *cache {
            Cache::None => format!("{:>8.1} {:>18}", own[n], ""),
            _ => format!("{:>8.1} ({:>+7.1}, {:>7.0})", own[n], added[n], bars[n]),
        };
        let mark = if keeps { "" } else { "  above its bar" };
        options.say(&format!(
            "{rate:>8} {:<6} {:<10} {} {} {}{mark}",
            operation.name(),
            cache.name(),
            cell(0),
            cell(1),
            cell(2)
        ));
        rows.push(json!({
            "rate": rate, "operation": operation, "cache": cache, "rounds": shown,
            "added": {"p50_us": added[0], "p99_us": added[1], "cpu_us": added[2]}, "kept": keeps,
        }));
    }
    if options.output.json {
        println!("{}", json!({ "users": USERS, "rows": rows }));
    }
    is_whole && is_kept
}

fn main() -> ExitCode {
    run(measure)
}
