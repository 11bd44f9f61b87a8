//! The eleven stress tests, A to K, and H1: processor time of the server, and of the database beside it, for a call.
//!
//! Each letter is measured in rounds: Kamailio at its best of 2, 4 and 8 processes, ours where a configuration of the letter is there
//! (`crates/lab/systems/strowger/stress-a.toml` and so on), and the floor, a relay that passes datagrams on unread, as many for a call as the letter has. Which of
//! them begins alternates. A table of each system is in the form of the seed's: load of the machine at the measured rate, scaled to 13,000 calls
//! a second, and the penalty; beside it how long callers wait for the first answer. What each letter may cost is judged by its ratio to
//! Kamailio's in the same run, to its floor, and to ours of the letter that it builds on; where that one is measured at another rate, its calls are
//! made among the rounds as well, at this one. In H each call is challenged; in H1 callers send credentials at once, and both systems take each
//! count of a nonce once. `--other` takes a further system into the rounds, such as an OpenSIPS. Needs the Debian packages kamailio,
//! kamailio-mysql-modules and mariadb-server. Exit code 1 when a call was lost, the generator did not keep up, rows are missing, a ratio is worse
//! than its bar, or a program is missing.

use serde_json::json;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use strowger_benches::bar::Bar;
use strowger_benches::command_line::{Options, run};
use strowger_benches::floor;
use strowger_lab::Error;
use strowger_lab::backend::{MariaDb, subscribers};
use strowger_lab::driver::{Configuration, Driver};
use strowger_lab::program::{KAMAILIO, MARIADBD};
use strowger_lab::stress::{self, Calls, Ends, Letter, Load, Round, Row};

/// Processes that Kamailio is tried with.
const CHILDREN: [u8; 3] = [2, 4, 8];

/// Seconds of load in a trial of so many processes.
const TRIAL: u32 = 3;

/// Datagrams of the caller in a call without a challenge: INVITE, ACK and BYE, of which the first is answered by a 100.
const OF_CALLER: u64 = 3;

/// The most that a call of each letter may cost the server, of what it costs Kamailio, and what is aimed at.
const OF_KAMAILIO: [(f64, f64); Letter::ALL.len()] = [
    (0.22, 0.18),
    (0.17, 0.12),
    (0.18, 0.13),
    (0.18, 0.13),
    (0.18, 0.13),
    (0.28, 0.18),
    (0.28, 0.18),
    (0.18, 0.13),
    (0.18, 0.13),
    (0.30, 0.20),
    (0.30, 0.20),
    (0.18, 0.13),
];

/// Letters of which server and database together may cost half of what they cost Kamailio.
const WITH_DATABASE: [Letter; 4] = [Letter::F, Letter::G, Letter::I, Letter::J];

/// What a letter may cost the server, of its floor.
const OF_FLOOR: [(Letter, f64); 2] = [(Letter::A, 1.6), (Letter::B, 1.6)];

/// What a letter may cost the server, of what another one costs it.
const OF_BASE: [(Letter, Letter, f64); 5] = [
    (Letter::C, Letter::B, 1.12),
    (Letter::G, Letter::F, 1.05),
    (Letter::H, Letter::E, 1.28),
    (Letter::H1, Letter::E, 1.08),
    (Letter::K, Letter::H, 1.15),
];

/// The stress tests A to K and H1.
#[derive(clap::Parser)]
struct Arguments {
    /// Which of them
    #[arg(long, value_delimiter = ',', default_value = "A,B,C,D,E,F,G,H,H1,I,J,K")]
    letters: Vec<Letter>,
    /// Seconds of load in each round, longer where each user would not call once
    #[arg(long, default_value = "10", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Calls a second, in place of 1,000 for A to E and 500 for the others
    #[arg(long)]
    rate: Option<u32>,
    /// Where stress-a.toml and so on are
    #[arg(long, value_name = "FOLDER", default_value_os_t = examples())]
    examples: PathBuf,
    /// Another system in the same rounds, by its command line: @CONFIG@ is its configuration, @PORT@ its port of 127.0.0.1 for UDP, @FOLDER@ a
    /// folder of its own, such as "/opt/opensips/sbin/opensips -F -f @CONFIG@ -w @FOLDER@"
    #[arg(long, value_name = "COMMAND")]
    other: Option<String>,
    /// The configuration of that system for the letter: @PORT@, @DOMAIN@ and @DATABASE@ (the URL of the MariaDB, with Kamailio's tables) are filled in
    #[arg(long, value_name = "FILE", requires = "other")]
    other_config: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
    /// Is the floor: its port, those of both ends, and of how many datagrams one is answered.
    #[arg(long, num_args = 4, hide = true)]
    floor: Option<Vec<u16>>,
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/lab/systems/strowger")
}

/// A system and what it is started with.
struct Rival {
    name: String,
    driver: Driver,
    configuration: Configuration,
    /// Of which letter they are.
    letter: Letter,
    calls: Calls,
    ends: Ends,
}

impl Rival {
    fn round(&self, load: &Load<'_>, database: &MariaDb) -> Result<Round, Error> {
        let folder = tempfile::tempdir().map_err(|source| Error::File { path: std::env::temp_dir(), source })?;
        let Self { driver, configuration, calls, ends, .. } = self;
        stress::round(driver, configuration, *calls, load, *ends, database, folder.path())
    }
}

/// The number of processes with which a call costs Kamailio the least, among those with which it loses none.
fn best_of_kamailio(arguments: &Arguments, letter: Letter, load: &Load<'_>, database: &MariaDb) -> Result<u8, Error> {
    let mut best: Option<(bool, f64, u8)> = None;
    for children in CHILDREN {
        let load = Load { seconds: TRIAL.min(load.seconds), ..load.clone() };
        let round = kamailio(letter, children, database).round(&load, database)?;
        let tried = (!round.is_whole(), round.server_cost() + round.database_cost(), children);
        arguments.options.say(&format!(
            "      kamailio with {children} processes: {:.0} µs of the server, {:.0} of the database{}",
            round.server_cost(),
            round.database_cost(),
            if round.is_whole() { "" } else { ", not all calls are whole" }
        ));
        if best.is_none_or(|best| (tried.0, tried.1) < (best.0, best.1)) {
            best = Some(tried);
        }
    }
    Ok(best.map_or(CHILDREN[0], |best| best.2))
}

fn kamailio(letter: Letter, children: u8, database: &MariaDb) -> Rival {
    Rival {
        name: "kamailio".into(),
        driver: Driver::Kamailio { children },
        configuration: stress::kamailio(letter, database),
        letter,
        calls: Calls::Of(letter),
        ends: Ends::free(),
    }
}

/// Ours, with a name for its row; none where the letter has no configuration yet.
fn strowger(name: String, letter: Letter, arguments: &Arguments, database: &MariaDb) -> Result<Option<Rival>, Error> {
    let configuration = stress::strowger(letter, &arguments.examples, database)?;
    Ok(configuration.map(|configuration| {
        let driver = Driver::Strowger { program: arguments.options.server.clone() };
        Rival { name, driver, configuration, letter, calls: Calls::Of(letter), ends: Ends::free() }
    }))
}

/// The system that the command line brings, if there is one.
fn other(arguments: &Arguments, letter: Letter, database: &MariaDb) -> Result<Option<Rival>, Error> {
    let Some(command) = &arguments.other else { return Ok(None) };
    let text = match &arguments.other_config {
        Some(path) => std::fs::read_to_string(path).map_err(|source| Error::File { path: path.clone(), source })?,
        None => String::new(),
    };
    let values = vec![("DOMAIN", stress::DOMAIN.to_owned()), ("DATABASE", database.url())];
    let configuration = Configuration { text, values, ..Configuration::default() };
    let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    let name = name_of_other(command);
    let driver = Driver::Other { name: name.clone(), words };
    Ok(Some(Rival { name, driver, configuration, letter, calls: Calls::Of(letter), ends: Ends::free() }))
}

/// What a command line is called in the table: its program.
fn name_of_other(command: &str) -> String {
    let program = Path::new(command.split_whitespace().next().unwrap_or_default());
    program.file_name().map_or_else(|| "other".into(), |name| name.to_string_lossy().into_owned())
}

/// Passes on unread as many datagrams as a call of the letter has.
fn floor_rival(letter: Letter) -> Result<Rival, Error> {
    let ends = Ends::free();
    let own = std::env::current_exe().map_err(|source| Error::File { path: PathBuf::from("the bench"), source })?;
    // A call that is challenged has as many each way: what takes the place of the challenge is passed on too.
    let answered = if letter.challenges() { 0 } else { OF_CALLER };
    let numbers = [ends.caller.to_string(), ends.called.to_string(), answered.to_string()];
    let words = ["--floor", "@PORT@", &numbers[0], &numbers[1], &numbers[2]].map(str::to_owned);
    let words = [vec![own.display().to_string()], words.to_vec()].concat();
    let driver = Driver::Other { name: "floor".into(), words };
    let configuration = Configuration::default();
    Ok(Rival { name: "floor".into(), driver, configuration, letter, calls: Calls::Unread(letter), ends })
}

/// Of ours in the letter that `letter` is judged by, where that is measured at another rate otherwise.
fn base_name(letter: Letter) -> String {
    format!("base of {letter}")
}

/// All rounds of one letter.
fn letter(arguments: &Arguments, letter: Letter, database: &MariaDb) -> Result<Vec<Row>, Error> {
    let options = &arguments.options;
    let rate = arguments.rate.unwrap_or_else(|| letter.rate());
    let load = Load { generator: &options.server, rate, seconds: arguments.seconds };
    options.say(&format!("{letter}: {}, {rate} calls a second", letter.title()));
    let children = best_of_kamailio(arguments, letter, &load, database)?;
    let mut rivals = vec![kamailio(letter, children, database), floor_rival(letter)?];
    rivals.extend(strowger("strowger".into(), letter, arguments, database)?);
    rivals.extend(other(arguments, letter, database)?);
    let is_apart = |base: Letter| arguments.rate.is_none() && base.rate() != letter.rate();
    if let Some((_, base, _)) = OF_BASE.iter().find(|(of, base, _)| *of == letter && is_apart(*base)) {
        rivals.extend(strowger(base_name(letter), *base, arguments, database)?);
    }
    let row = |rival: &Rival| Row { letter: rival.letter, system: rival.name.clone(), rounds: Vec::new() };
    let mut rows: Vec<Row> = rivals.iter().map(row).collect();
    for number in 1..=options.rounds {
        let mut order: Vec<usize> = (0..rivals.len()).collect();
        // What drifts while a round lasts is no advantage of one.
        if number % 2 == 0 {
            order.reverse();
        }
        for n in order {
            let round = rivals[n].round(&load, database)?;
            options.say(&format!(
                "{number:>5} {:<10} {:>7.1} µs of the server ({:.0} % in the kernel), {:>6.1} of the database, setup {}, {} of {} calls{}{}",
                rivals[n].name,
                round.server_cost(),
                round.server.share_of_system() * 100.0,
                round.database_cost(),
                round.outcome.setup.map_or_else(String::new, |[half, most]| format!("{half} µs (p99 {most})")),
                round.outcome.successful,
                round.calls,
                if round.outcome.valid { "" } else { ", INVALID" },
                round.rows.map_or_else(String::new, |(written, wanted)| format!(", {written} of {wanted} rows"))
            ));
            if !round.outcome.valid {
                round.outcome.remarks.iter().for_each(|remark| options.say(&format!("      {remark}")));
            }
            rows[n].rounds.push(round);
        }
    }
    Ok(rows)
}

fn measure(arguments: &Arguments) -> Result<bool, String> {
    if let Some(&[port, _, called, answered]) = arguments.floor.as_deref() {
        let socket = UdpSocket::bind(("127.0.0.1", port));
        let relayed = socket.and_then(|socket| floor::relay(&socket, called, answered.into()));
        return relayed.map(|()| true).map_err(|error| format!("floor: {error}"));
    }
    let options = &arguments.options;
    options.have(&[KAMAILIO, MARIADBD])?;
    let folder = tempfile::tempdir().map_err(|error| format!("a temporary folder: {error}"))?;
    let text = |error: Error| error.to_string();
    let database = MariaDb::start(folder.path()).map_err(text)?;
    subscribers::prepare(&database).map_err(text)?;
    let mut rows = Vec::new();
    for wanted in &arguments.letters {
        rows.extend(letter(arguments, *wanted, &database).map_err(text)?);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let bars = bars(&arguments.letters, &rows);
    let of_floors = arguments.letters.iter().filter_map(|letter| Some((*letter, of_floor(&rows, *letter)?)));
    if options.output.json {
        let of_floors: Vec<_> = of_floors.map(|(letter, ratio)| json!({"letter": letter, "ratio": ratio})).collect();
        println!("{}", json!({"cores": cores, "rows": rows, "of_floors": of_floors, "bars": bars}));
    } else {
        let other = arguments.other.as_deref().map(name_of_other);
        for system in ["kamailio", "strowger"].into_iter().chain(other.as_deref()) {
            println!("\n{}", stress::table(system, &rows, cores));
        }
        for (letter, ratio) in of_floors {
            println!("  {letter}: {ratio:.2} of its floor, {} datagrams", letter.datagrams());
        }
        bars.iter().for_each(|bar| println!("{bar}"));
    }
    Ok(rows.iter().flat_map(|row| &row.rounds).all(Round::is_whole) && bars.iter().all(Bar::is_met))
}

/// Microseconds of the server a call, the median of the rounds of a letter.
fn cost(rows: &[Row], system: &str, letter: Letter) -> Option<f64> {
    rows.iter().find(|row| row.system == system && row.letter == letter)?.server().map(|server| server.median)
}

/// What a letter costs ours, of its floor.
fn of_floor(rows: &[Row], letter: Letter) -> Option<f64> {
    Some(cost(rows, "strowger", letter)? / cost(rows, "floor", letter)?)
}

/// Microseconds of server and database together, a call.
fn cost_with_database(rows: &[Row], system: &str, letter: Letter) -> Option<f64> {
    let row = rows.iter().find(|row| row.system == system && row.letter == letter)?;
    Some(row.server()?.median + row.database())
}

/// What the letters that were measured may cost.
fn bars(letters: &[Letter], rows: &[Row]) -> Vec<Bar> {
    let own = |letter| cost(rows, "strowger", letter);
    let mut bars = Vec::new();
    for &letter in letters {
        let Some((cost, of_kamailio)) = own(letter).zip(cost(rows, "kamailio", letter)) else { continue };
        let (most, aim) = OF_KAMAILIO[letter as usize];
        bars.push(Bar::most(&format!("{letter}: server, of Kamailio's"), cost / of_kamailio, most).aiming_at(aim));
        let with_database = |system| cost_with_database(rows, system, letter);
        if WITH_DATABASE.contains(&letter)
            && let Some((cost, of_kamailio)) = with_database("strowger").zip(with_database("kamailio"))
        {
            bars.push(Bar::most(&format!("{letter}: server and database, of Kamailio's"), cost / of_kamailio, 0.5));
        }
    }
    for (letter, most) in OF_FLOOR {
        if let Some(ratio) = of_floor(rows, letter) {
            bars.push(Bar::most(&format!("{letter}: server, of its floor's"), ratio, most));
        }
    }
    for (letter, base, most) in OF_BASE {
        let of_base = || cost(rows, &base_name(letter), base).or_else(|| own(base));
        if let Some((cost, of_base)) = own(letter).zip(of_base()) {
            bars.push(Bar::most(&format!("{letter}: server, of {base}'s"), cost / of_base, most));
        }
    }
    bars
}

fn main() -> ExitCode {
    run(measure)
}
