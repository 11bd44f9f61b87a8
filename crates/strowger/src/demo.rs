//! `strowger demo`: a server, two phones, a call drawn as a ladder, a call to an echo, then a load of calls and its cost.

mod echo;
mod ladder;
mod load;
mod phones;
mod server;
mod table;

use std::fmt::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{bail, ensure};
use console::style;
use serde_json::{Value, json};
use strowger_config::Log;

use self::ladder::Rung;
use self::load::CALLEE;
use self::phones::{Call, PhoneCommand, PhoneEvent, Step, USERS};
use self::server::{DOMAIN, DemoServer};
use self::table::Figures;
use crate::cli::DemoArguments;
use crate::logging;
use crate::output::{self, CommandOutcome};

/// Timeout of a registration: an unanswered request ends after 32 s (RFC 3261 section 17.1.2).
const PATIENCE: Duration = Duration::from_secs(40);

const NEXT: &str = "\
What to try next
  strowger demo --rate 1000 --seconds 30   more calls, for longer
  strowger load --help                     calls for a server of your own, and the results
  strowger init                            a few questions, and a configuration of your own
  strowger user add alice@DOMAIN           a name and a password for a phone
  strowger serve                           the server; it prints the settings for a phone
";

pub(crate) fn run(arguments: &DemoArguments) -> anyhow::Result<CommandOutcome> {
    // No log lines between the pictures, unless requested.
    if std::env::var_os(logging::FILTER_VARIABLE).is_some() {
        logging::start(&Log::default())?;
    }
    if let Some(path) = &arguments.html {
        // Checked before the run, not after it.
        if let Err(error) = std::fs::File::options().create(true).append(true).open(path) {
            output::complain(&format!("{} cannot be written: {error}", path.display()));
            return Ok(CommandOutcome::Usage);
        }
    }
    let show = Show { quiet: arguments.json };
    let mut document = json!({});

    let subject = DemoServer::start(&[USERS[0], USERS[1], CALLEE])?;
    let (tell, news) = channel();
    let phones = phones::start(subject.udp(), tell)?;
    let order = phones.handle().mailbox(0);
    show.heading("A server")?;
    let listeners = subject.listeners();
    show.print(&format!("  Strowger listens on {}, for {DOMAIN}, with a new database.\n", listeners.join(" and ")))?;
    document["server"] = json!({"listeners": listeners, "domain": DOMAIN});

    show.heading("Two phones register")?;
    let mut registrations = Vec::new();
    for (phone, (name, _)) in USERS.iter().enumerate() {
        order.send(PhoneCommand::Register(phone));
        let registered = registered(&news, name)?;
        show.print(&format!("  {}\n", registered.sentence(name)))?;
        registrations.push(registered.json(name));
    }
    document["registrations"] = registrations.into();
    ensure!(subject.bindings() == USERS.len(), "{} bindings are kept, not {}", subject.bindings(), USERS.len());

    show.heading("One calls the other")?;
    order.send(PhoneCommand::Call);
    let (call, steps) = called(news.recv()?)?;
    let rungs = ladder::rungs(&steps);
    show.print(&ladder::draw(&rungs))?;
    show.print("  An arrow bears a method or status, and the CSeq; beside it parts of the message.\n")?;
    document["call"] = serde_json::to_value(&rungs)?;
    document["call_succeeded"] = call.succeeded().into();
    if !call.succeeded() {
        show.end(document)?;
        bail!("the call did not go as a call should: {}", missing(&call, &rungs));
    }

    show.heading("A caller hears itself")?;
    let heard = echo::call(subject.udp())?;
    show.print(&heard.text())?;
    document["echo"] = heard.json();

    let mut failures = 0;
    if arguments.seconds > 0 {
        let (seconds, rate) = (u64::from(arguments.seconds), u64::from(arguments.rate));
        show.heading(&format!("{} calls, {rate} a second, each held {} ms", seconds * rate, load::HOLD))?;
        let (busy, resent) = (subject.busy(), subject.retransmissions());
        let calls = load::run(subject.udp(), arguments.seconds, arguments.rate, show.quiet)?;
        let figures = Figures {
            calls: &calls,
            cpu: subject.busy().saturating_sub(busy),
            resent: subject.retransmissions() - resent,
            memory: table::resident(),
        };
        show.print(&figures.table())?;
        document["load"] = figures.json();
        failures = calls.failures();
        if arguments.html.is_some() || !show.quiet {
            let page = calls.write_page(arguments.html.as_deref())?;
            document["report"] = page.display().to_string().into();
            show.print(&format!("\n  The whole report, with charts: {}\n", page.display()))?;
        }
    }
    document["succeeded"] = (failures == 0).into();
    if failures == 0 {
        show.print(&format!("\n{}\n\n{NEXT}", style("Every call succeeded.").green().bold()))?;
    }
    show.end(document)?;
    if failures > 0 {
        output::complain(&format!("{failures} calls failed; a slower machine may need a lower --rate"));
        return Ok(CommandOutcome::Failed);
    }
    Ok(CommandOutcome::Done)
}

/// Text for people, or one JSON object at the end.
struct Show {
    quiet: bool,
}

impl Show {
    fn print(&self, text: &str) -> anyhow::Result<()> {
        if self.quiet { Ok(()) } else { output::print(text) }
    }

    fn heading(&self, text: &str) -> anyhow::Result<()> {
        self.print(&format!("\n{}\n", style(text).bold()))
    }

    fn end(&self, document: Value) -> anyhow::Result<()> {
        if self.quiet { output::print(&(serde_json::to_string_pretty(&document)? + "\n")) } else { Ok(()) }
    }
}

/// A successful registration.
struct Registered {
    /// Granted expiry in seconds.
    expires: u32,
    rungs: Vec<Rung>,
}

impl Registered {
    fn sentence(&self, name: &str) -> String {
        let mut words = Vec::new();
        for rung in &self.rungs {
            match rung.status {
                Some(status) => words.push(format!("{status}")),
                None if rung.credentials => words.push("REGISTER with credentials".into()),
                None => words.push("REGISTER".into()),
            }
        }
        let took = self.rungs.last().map_or(0.0, |rung| rung.at);
        let mut text = format!("{name:<6} {}", words.join(" → "));
        let _ = write!(text, ": registered for {} s, after {took:.2} ms", self.expires);
        text
    }

    fn json(&self, name: &str) -> Value {
        json!({"user": format!("{name}@{DOMAIN}"), "expires": self.expires, "messages": self.rungs})
    }
}

/// Waits until a phone has registered, by digest.
fn registered(news: &Receiver<PhoneEvent>, name: &str) -> anyhow::Result<Registered> {
    match news.recv_timeout(PATIENCE) {
        Ok(PhoneEvent::Registered(Ok(expires), steps)) => {
            let rungs = ladder::rungs(&steps);
            let challenged = rungs.iter().any(|rung| rung.status == Some(401));
            ensure!(
                challenged && rungs.iter().any(|rung| rung.credentials),
                "{name} was registered without a password"
            );
            Ok(Registered { expires, rungs })
        }
        Ok(PhoneEvent::Registered(Err(status), _)) => bail!("{name} was not registered: {status}"),
        Ok(PhoneEvent::Interrupted) => bail!("interrupted"),
        Ok(PhoneEvent::Called(..)) => bail!("a call ended before there was one"),
        Err(RecvTimeoutError::Timeout) => bail!("{name} got no answer to REGISTER"),
        Err(RecvTimeoutError::Disconnected) => bail!("the phones ended"),
    }
}

fn called(news: PhoneEvent) -> anyhow::Result<(Call, Vec<Step>)> {
    match news {
        PhoneEvent::Called(call, steps) => Ok((call, steps)),
        PhoneEvent::Interrupted => bail!("interrupted"),
        PhoneEvent::Registered(..) => bail!("a phone registered once more in the middle of a call"),
    }
}

/// Returns the reason why the one call failed.
fn missing(call: &Call, rungs: &[Rung]) -> String {
    match call.refused {
        Some(status) => format!("refused with {status}"),
        None => format!("it ended after {} messages", rungs.len()),
    }
}
