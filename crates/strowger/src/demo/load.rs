//! Load of calls: the generator of `strowger load`, both ends in this process, through the server of the demo.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use strowger_load::campaign::{Campaign, Ended, Live, Plan, Stage, User};
use strowger_load::engine::pace::Part;
use strowger_load::report::{self, Report, Tone};
use strowger_measure::{Counter, Delay, Page, Rate, Thresholds};
use strowger_scenario::Distribution;

use super::phones::USERS;
use super::server::DOMAIN;
use crate::load::{Interrupted, Screen};
use crate::output;

/// User that answers the load. The two phones of the demo do not, because they would ring.
pub(super) const CALLEE: (&str, &str) = ("carol", "lighthouse");

/// Duration of each call in milliseconds.
pub(super) const HOLD: u64 = 200;

/// Results of the load.
pub(super) struct Calls {
    ended: Ended,
}

/// Makes calls, and shows their progress on standard error: as a screen on a terminal, otherwise as one line per
/// second.
pub(super) fn run(server: SocketAddr, seconds: u32, rate: u32, quiet: bool) -> anyhow::Result<Calls> {
    let target = server.to_string().parse().context("an address is a target")?;
    let user = |(name, password): (&str, &str)| User { name: name.into(), password: password.into() };
    let rate = f64::from(rate);
    let plan = Plan {
        domain: Some(DOMAIN.into()),
        users: vec![user(USERS[0])],
        callee: Some(user(CALLEE)),
        pair: true,
        profile: vec![Part::Ramp { from: rate, to: rate, micros: u64::from(seconds) * 1_000_000 }],
        hold: Distribution::Fixed(HOLD as f64),
        seed: 1,
        ..Plan::to(target)
    };
    let calls = u64::from(seconds) * rate as u64;
    let mut screen = Screen::new(quiet || !std::io::stderr().is_terminal(), "  ");
    let mut said = 0;
    let ended = complete(plan, |live| {
        screen.show(live);
        let second = live.elapsed.as_secs();
        if !quiet && !screen.is_drawn() && second > said {
            said = second;
            output::say(&line(live, calls));
        }
    });
    drop(screen);
    Ok(Calls { ended: ended? })
}

/// Runs a campaign to its end. `show` gets its state every 50 ms.
///
/// # Errors
/// The campaign cannot begin, or Ctrl-C was pressed.
pub(super) fn complete(plan: Plan, mut show: impl FnMut(&Live)) -> anyhow::Result<Ended> {
    let interrupted = Interrupted::listen().map_err(|error| anyhow!("Ctrl-C cannot be caught: {error}"))?;
    let mut campaign = Campaign::start(plan, &|| interrupted.times() > 0).map_err(|text| anyhow!(text))?;
    while campaign.poll(Duration::from_millis(50)) != Stage::Over {
        show(&campaign.live());
        if interrupted.times() > 0 {
            bail!("interrupted");
        }
    }
    Ok(campaign.finish())
}

fn line(live: &Live, calls: u64) -> String {
    let over = live.successful + live.failed;
    format!("  {:>3} s  {over} of {calls} calls over, {} failed", live.elapsed.as_secs(), live.failed)
}

impl Calls {
    fn totals(&self) -> &Page {
        &self.ended.run.totals
    }

    pub(super) fn made(&self) -> u64 {
        self.totals().counter(Counter::CallsOutgoing)
    }

    /// Counts the calls that did not complete: failed calls, and calls that were cut off.
    pub(super) fn failures(&self) -> u64 {
        self.made() - self.totals().counter(Counter::CallsSuccessful).min(self.made())
    }

    /// Lists the reasons of failed calls.
    pub(super) fn reasons(&self) -> String {
        report::failures(self.totals()).join(", ")
    }

    /// Returns the number of messages that the generator retransmitted.
    pub(super) fn retransmissions(&self) -> u64 {
        self.totals().counter(Counter::RetransmissionsSent)
    }

    /// Returns a percentile, in milliseconds, of the delay from the INVITE to the 200.
    pub(super) fn delay(&self, percentile: f64) -> f64 {
        self.totals().delays(Delay::Response).percentile(percentile).map_or(0.0, |us| us as f64 / 1e3)
    }

    /// Returns the successful calls per second of the time in which calls began.
    pub(super) fn per_second(&self) -> f64 {
        Rate::Successful.of(self.totals()).unwrap_or(0.0)
    }

    fn report(&self) -> Report<'_> {
        Report::new(&self.ended.run, &[], &Thresholds::default())
    }

    /// Returns whether the generator itself kept up.
    pub(super) fn valid(&self) -> bool {
        self.report().valid()
    }

    /// Returns the verdict of the report, one line each with its tone; the reasons follow INVALID.
    pub(super) fn verdict(&self) -> Vec<(Tone, String)> {
        let report = self.report();
        let lines = report.verdict().into_iter().map(|line| (line.tone, format!("{}: {}", line.title, line.text)));
        lines.chain(report.reasons().into_iter().map(|reason| (Tone::Bad, format!("- {reason}")))).collect()
    }

    /// Writes the report as a page: to this file, or to a new file in the folder for temporary files.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn write_page(&self, path: Option<&Path>) -> anyhow::Result<PathBuf> {
        let page = self.report().html();
        if let Some(path) = path {
            std::fs::write(path, page).with_context(|| format!("{} cannot be written", path.display()))?;
            return Ok(path.to_owned());
        }
        let file = tempfile::Builder::new().prefix("strowger-demo-").suffix(".html").tempfile();
        let (mut file, path) = file.context("no temporary file can be made")?.keep()?;
        std::io::Write::write_all(&mut file, page.as_bytes())
            .with_context(|| format!("{} cannot be written", path.display()))?;
        Ok(path)
    }
}
