//! The eleven stress tests, A to K: processor time of the server, and of the database beside it, for a call.
//!
//! Each letter is measured in rounds: Kamailio at its best of 2, 4 and 8 processes, ours where a configuration of the letter is there
//! (`examples/stress-a.toml` and so on), and the floor, a relay that passes datagrams on unread. Which of them begins alternates. A table
//! of each system is in the form of the seed's: load of the machine at the measured rate, scaled to 13,000 calls a second, and the penalty.
//! What each letter may cost is judged by its ratio to Kamailio's in the same run, and to that of the letter that it
//! builds on. Needs the Debian packages kamailio, kamailio-mysql-modules and mariadb-server. Exit code 1 when a call was lost, the generator
//! did not keep up, rows are missing, a ratio is worse than its bar, or a program is missing.

use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use strowger_benches::bar::Bar;
use strowger_benches::command_line::{Options, run};
use strowger_benches::floor;
use strowger_lab::Error;
use strowger_lab::backend::MariaDb;
use strowger_lab::driver::{Configuration, Driver};
use strowger_lab::program::{KAMAILIO, MARIADBD};
use strowger_lab::stress::{self, Ends, Letter, Load, Round, Row};

/// Processes that Kamailio is tried with.
const CHILDREN: [u8; 3] = [2, 4, 8];

/// Seconds of load in a trial of so many processes.
const TRIAL: u32 = 3;

/// Datagrams that the floor passes on for a call: all but the 100.
const FLOOR_DATAGRAMS: f64 = 12.0;

/// The most that a call of each letter may cost the server, of what it costs Kamailio, and what is aimed at.
const OF_KAMAILIO: [(f64, f64); 11] = [
    (0.22, 0.18),
    (0.17, 0.12),
    (0.18, 0.13),
    (0.18, 0.13),
    (0.18, 0.13),
    (0.28, 0.18),
    (0.28, 0.18),
    (0.18, 0.13),
    (0.30, 0.20),
    (0.30, 0.20),
    (0.18, 0.13),
];

/// Letters of which server and database together may cost half of what they cost Kamailio.
const WITH_DATABASE: [Letter; 4] = [Letter::F, Letter::G, Letter::I, Letter::J];

/// What a letter may cost the server, of what another one costs it. Each call of H is challenged.
const OF_BASE: [(Letter, Letter, f64); 4] = [
    (Letter::C, Letter::B, 1.12),
    (Letter::G, Letter::F, 1.05),
    (Letter::H, Letter::E, 1.28),
    (Letter::K, Letter::H, 1.15),
];

/// The stress tests A to K.
#[derive(clap::Parser)]
struct Arguments {
    /// Which of them
    #[arg(long, value_delimiter = ',', default_value = "A,B,C,D,E,F,G,H,I,J,K")]
    letters: Vec<Letter>,
    /// Seconds of load in each round, longer where each user would not call once
    #[arg(long, default_value = "10", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Calls a second, in place of 1,000 for A to E and 500 for F to K
    #[arg(long)]
    rate: Option<u32>,
    /// Where stress-a.toml and so on are
    #[arg(long, value_name = "FOLDER", default_value_os_t = examples())]
    examples: PathBuf,
    #[command(flatten)]
    options: Options,
    /// Is the floor: its port, and those of both ends.
    #[arg(long, num_args = 3, hide = true)]
    floor: Option<Vec<u16>>,
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

/// A system and what it is started with.
struct Rival {
    name: String,
    driver: Driver,
    configuration: Configuration,
    /// Of which letter its calls are: those of the floor have neither users nor passwords.
    letter: Letter,
    ends: Ends,
}

impl Rival {
    fn round(&self, load: &Load<'_>, database: &MariaDb) -> Result<Round, Error> {
        let folder = tempfile::tempdir().map_err(|source| Error::File { path: std::env::temp_dir(), source })?;
        let Self { driver, configuration, letter, ends, .. } = self;
        stress::round(driver, configuration, *letter, load, *ends, database, folder.path())
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
        ends: Ends::free(),
    }
}

/// Passes on unread what a call of letter A is made of.
fn floor_rival() -> Result<Rival, Error> {
    let ends = Ends::free();
    let own = std::env::current_exe().map_err(|source| Error::File { path: PathBuf::from("the bench"), source })?;
    let words = ["--floor", "@PORT@", &ends.caller.to_string(), &ends.called.to_string()].map(str::to_owned);
    let words = [vec![own.display().to_string()], words.to_vec()].concat();
    let driver = Driver::Other { name: "floor".into(), words };
    Ok(Rival { name: "floor".into(), driver, configuration: Configuration::default(), letter: Letter::A, ends })
}

/// All rounds of one letter.
fn letter(arguments: &Arguments, letter: Letter, database: &MariaDb) -> Result<Vec<Row>, Error> {
    let options = &arguments.options;
    let rate = arguments.rate.unwrap_or_else(|| letter.rate());
    let load = Load { generator: &options.server, rate, seconds: arguments.seconds };
    options.say(&format!("{letter}: {}, {rate} calls a second", letter.title()));
    let children = best_of_kamailio(arguments, letter, &load, database)?;
    let mut rivals = vec![kamailio(letter, children, database), floor_rival()?];
    if let Some(configuration) = stress::strowger(letter, &arguments.examples, database)? {
        let driver = Driver::Strowger { program: options.server.clone() };
        rivals.push(Rival { name: "strowger".into(), driver, configuration, letter, ends: Ends::free() });
    }
    let mut rows: Vec<Row> =
        rivals.iter().map(|rival| Row { letter, system: rival.name.clone(), rounds: Vec::new() }).collect();
    for number in 1..=options.rounds {
        let mut order: Vec<usize> = (0..rivals.len()).collect();
        // What drifts while a round lasts is no advantage of one.
        if number % 2 == 0 {
            order.reverse();
        }
        for n in order {
            let round = rivals[n].round(&load, database)?;
            options.say(&format!(
                "{number:>5} {:<9} {:>7.1} µs of the server ({:.0} % in the kernel), {:>6.1} of the database, {} of {} calls{}{}",
                rivals[n].name,
                round.server_cost(),
                round.server.share_of_system() * 100.0,
                round.database_cost(),
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
    if let Some(&[port, caller, called]) = arguments.floor.as_deref() {
        return floor::relay(port, [caller, called]).map(|()| true).map_err(|error| format!("floor: {error}"));
    }
    let options = &arguments.options;
    options.have(&[KAMAILIO, MARIADBD])?;
    let folder = tempfile::tempdir().map_err(|error| format!("a temporary folder: {error}"))?;
    let text = |error: Error| error.to_string();
    let database = MariaDb::start(folder.path()).map_err(text)?;
    stress::prepare_database(&database).map_err(text)?;
    let mut rows = Vec::new();
    for wanted in &arguments.letters {
        rows.extend(letter(arguments, *wanted, &database).map_err(text)?);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let bars = bars(&arguments.letters, &rows);
    if options.json {
        println!("{}", json!({"cores": cores, "rows": rows, "bars": bars}));
    } else {
        for system in ["kamailio", "strowger"] {
            println!("\n{}", stress::table(system, &rows, cores));
        }
        for letter in &arguments.letters {
            let Some((own, floor)) = cost(&rows, "strowger", *letter).zip(cost(&rows, "floor", *letter)) else {
                continue;
            };
            println!("  {letter}: {:.2} of its floor", own / (floor * f64::from(letter.datagrams()) / FLOOR_DATAGRAMS));
        }
        bars.iter().for_each(|bar| println!("{bar}"));
    }
    Ok(rows.iter().flat_map(|row| &row.rounds).all(Round::is_whole) && bars.iter().all(Bar::is_met))
}

/// Microseconds of the server a call, the median of the rounds of a letter.
fn cost(rows: &[Row], system: &str, letter: Letter) -> Option<f64> {
    rows.iter().find(|row| row.system == system && row.letter == letter)?.server().map(|server| server.median)
}

/// The same of server and database together.
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
    for (letter, base, most) in OF_BASE {
        if let Some((cost, of_base)) = own(letter).zip(own(base)) {
            bars.push(Bar::most(&format!("{letter}: server, of {base}'s"), cost / of_base, most));
        }
    }
    bars
}

fn main() -> ExitCode {
    run(measure)
}
