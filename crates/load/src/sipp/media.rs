//! Media of a run, by SIPp's options.

use super::options::Options;
use crate::media::{self, Echo, Plane, Settings};
use std::cell::Cell;
use std::fmt::Write;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use strowger_scenario::Scenario;

/// Starts sockets and threads if a scenario names a media port, plays media, or an echo is requested.
///
/// # Errors
/// The reason why media cannot start, as a sentence.
pub(super) fn plane(options: &Options, scenarios: &[&Scenario], local: IpAddr) -> Result<Option<Plane>, String> {
    if !options.echo && !scenarios.iter().any(|scenario| media::concerns(scenario)) {
        return Ok(None);
    }
    let address = match &options.media_ip {
        Some(ip) => super::host::resolve(ip, 0)?.ip(),
        None => local,
    };
    let defaults = Settings::default();
    if let (Some(first), Some(last), None) = (options.min_rtp_port, options.max_rtp_port, options.media_port)
        && first.saturating_add(2) > last
    {
        return Err(format!(
            "-min_rtp_port {first} and -max_rtp_port {last} leave no ports: audio takes one, video that two above"
        ));
    }
    let settings = Settings {
        address,
        port: options.media_port.or(options.min_rtp_port).unwrap_or(defaults.port),
        exact: options.media_port.is_some(),
        first_is_common: true,
        highest: options.max_rtp_port.unwrap_or(defaults.highest),
        echo: if options.echo { Echo::Always } else { Echo::Never },
        seed: options.seed.unwrap_or_else(|| u64::from(std::process::id()) << 32 ^ strowger_net::clock::micros()),
        ..defaults
    };
    Plane::start(settings, scenarios.iter().copied()).map(Some).map_err(|error| error.to_string())
}

/// Media of a run, as the screen shows them.
pub(super) struct Shown {
    plane: Plane,
    echo: bool,
    before: Cell<Period>,
}

/// Bytes sent, echoed as audio, echoed as video.
type Bytes = [u64; 3];

/// Period of the displayed rates.
#[derive(Clone, Copy)]
struct Period {
    began: Instant,
    bytes: Bytes,
    /// Kilobytes a second of the period before.
    rates: [f64; 3],
}

/// Shortest period; more frequent screens show the same rates.
const SHORTEST: Duration = Duration::from_millis(100);

impl Shown {
    pub(super) fn new(plane: Plane, options: &Options) -> Self {
        let before = Cell::new(Period { began: Instant::now(), bytes: [0; 3], rates: [0.0; 3] });
        Self { plane, echo: options.echo, before }
    }

    /// Returns the media errors as a sentence.
    pub(super) fn trouble(&self) -> Option<String> {
        let now = self.plane.snapshot();
        if now.failures + now.missed + now.refused + now.drops == 0 {
            return None;
        }
        Some(format!(
            "Media: {} packets could not be sent, {} were left out because this machine was too late, {} left late, {} \
             commands were refused ({} packets were sent); the kernel dropped {} that came.",
            now.failures, now.missed, now.late, now.refused, now.packets, now.drops
        ))
    }

    /// Returns the line of a run without media.
    pub(super) fn nothing() -> String {
        let what = "0 Total RTP pckts sent";
        format!("  {what:<40}0.000 last period RTP rate (kB/s)\n")
    }

    /// Returns the lines about sent and echoed media.
    pub(super) fn lines(&self) -> String {
        let now = self.plane.snapshot();
        let bytes: Bytes = [now.bytes, now.echoed_bytes[0], now.echoed_bytes[1]];
        let mut period = self.before.get();
        let seconds = period.began.elapsed();
        if seconds >= SHORTEST {
            let rate = |i: usize| (bytes[i] - period.bytes[i]) as f64 / seconds.as_secs_f64() / 1_000.0;
            period = Period { began: Instant::now(), bytes, rates: [rate(0), rate(1), rate(2)] };
            self.before.set(period);
        }
        let mut text = String::new();
        let mut line = |packets: u64, what: &str, rate: f64| {
            let what = format!("{packets} {what}");
            let _ = writeln!(text, "  {what:<40}{rate:.3} last period RTP rate (kB/s)");
        };
        line(now.packets, "Total RTP pckts sent", period.rates[0]);
        if self.echo {
            line(now.echoed[0], "Total echo RTP pckts 1st stream", period.rates[1]);
            line(now.echoed[1], "Total echo RTP pckts 2nd stream", period.rates[2]);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, UdpSocket};

    #[test]
    fn ports_are_sought_between_the_lowest_and_the_highest() {
        let bind = |port: u16| UdpSocket::bind((Ipv4Addr::LOCALHOST, port));
        let port_of = |lowest: u16, more: &str| {
            let line = format!("-rtp_echo -min_rtp_port {lowest} {more}");
            let options = Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).unwrap();
            plane(&options, &[], Ipv4Addr::LOCALHOST.into()).map(|plane| plane.map_or(0, |plane| plane.port()))
        };
        // Each attempt takes a port that was free a moment ago, which another program may have taken since.
        let found = (0..50).any(|_| {
            let busy = bind(0).unwrap();
            let first = busy.local_addr().unwrap().port();
            if first > u16::MAX - 8 || [2, 4].iter().any(|more| bind(first + more).is_err()) {
                return false;
            }
            let most = |more: u16| format!("-max_rtp_port {}", first + more);
            port_of(first, &most(4)) == Ok(first + 2)
                && port_of(first, &most(3)).is_err_and(|text| text.contains("no media port could be bound"))
                && port_of(first, &most(1)).is_err_and(|text| text.contains("leave no ports"))
        });
        assert!(found, "the ports between are not those that are taken");
    }
}
