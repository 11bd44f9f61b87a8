//! Values of options.

use std::net::SocketAddr;
use std::time::SystemTime;

use strowger_core::Transport;
use strowger_load::campaign::{moment, period};
use strowger_load::engine::pace::Arrivals;
use strowger_scenario::Distribution;

pub(super) fn transport(text: &str) -> Result<Transport, String> {
    Transport::of(text.as_bytes()).ok_or_else(|| format!("'{text}' is none of udp, tcp, tls, ws and wss"))
}

pub(super) fn arrivals(text: &str) -> Result<Arrivals, String> {
    match text.to_ascii_lowercase().as_str() {
        "fixed" | "even" | "uniform" => Ok(Arrivals::Fixed),
        "poisson" | "random" => Ok(Arrivals::Poisson),
        _ => Err(format!("'{text}' is neither fixed nor poisson")),
    }
}

/// Value of `--connections`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Apart {
    /// Number of generators, each with one socket that its calls share.
    Number(u16),
    PerUser,
    PerCall,
}

pub(super) fn apart(text: &str) -> Result<Apart, String> {
    match text.to_ascii_lowercase().replace('_', "-").as_str() {
        "one" => Ok(Apart::Number(1)),
        "per-user" => Ok(Apart::PerUser),
        "per-call" => Ok(Apart::PerCall),
        number => match number.parse() {
            Ok(number @ 1..=64) => Ok(Apart::Number(number)),
            _ => Err(format!("'{text}' is none of one, per-user and per-call, nor a number, 1 to 64")),
        },
    }
}

/// Parses `1%` or `80`. A number below 1 without a sign is refused, because it could be meant as a share of one.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end();
    let percent: Option<f64> = number.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    match percent {
        Some(percent) if percent > 0.0 && percent < 1.0 && !text.contains('%') => {
            Err(format!("{number} of what? Write {number}%, or {}%", (percent * 1e10).round() / 1e8))
        }
        percent => {
            percent.ok_or_else(|| format!("'{text}' is no percentage; write a number from 0 to 100, such as 1%"))
        }
    }
}

pub(super) fn milliseconds(text: &str) -> Result<f64, String> {
    period::duration(text).map(|length| length.as_secs_f64() * 1e3)
}

pub(super) fn start_at(text: &str) -> Result<SystemTime, String> {
    moment::parse(text, SystemTime::now())
}

/// Parses `5s`, `1s-5s`, `exp:30s`.
pub(super) fn hold(text: &str) -> Result<Distribution, String> {
    let ms = milliseconds;
    if let Some(mean) = text.strip_prefix("exp:").or_else(|| text.strip_prefix("exponential:")) {
        return Ok(Distribution::Exponential { mean: ms(mean)? });
    }
    match text.split_once('-') {
        Some((min, max)) => {
            let (min, max) = (ms(min)?, ms(max)?);
            if min > max {
                return Err(format!("in '{text}' the shorter time comes first"));
            }
            Ok(Distribution::Uniform { min, max })
        }
        None => Ok(Distribution::Fixed(ms(text)?)),
    }
}

/// Parses the part of a URI after the `@`.
pub(super) fn domain(text: &str) -> Result<String, String> {
    let strange = |c: char| !(c.is_alphanumeric() || ".-_:[]".contains(c));
    match text.is_empty() || text.contains(strange) {
        true => Err(format!("'{text}' is no domain; write one such as example.org")),
        false => Ok(text.to_owned()),
    }
}

pub(super) fn key(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("'{text}' has no =; write NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Parses `IP:PORT`, `:PORT`, `PORT`; on loopback unless an address is named.
pub(super) fn listen(text: &str) -> Result<SocketAddr, String> {
    let local = |port: &str| port.parse().map(|port: u16| SocketAddr::from(([127, 0, 0, 1], port)));
    text.parse()
        .or_else(|_| local(text.trim_start_matches(':')))
        .map_err(|_| format!("'{text}' is no address; write IP:PORT such as 127.0.0.1:9100"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_a_person_would_try() {
        assert_eq!(hold("0"), Ok(Distribution::Fixed(0.0)));
        assert_eq!(hold("1s-5s"), Ok(Distribution::Uniform { min: 1_000.0, max: 5_000.0 }));
        assert_eq!(hold("exp:30s"), Ok(Distribution::Exponential { mean: 30_000.0 }));
        assert!(hold("5s-1s").is_err() && hold("long").is_err());
        assert_eq!(listen("9100"), Ok(SocketAddr::from(([127, 0, 0, 1], 9_100))));
        assert!(listen("nowhere").is_err());
        assert_eq!(key("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert_eq!(arrivals("Poisson"), Ok(Arrivals::Poisson));
        assert_eq!((apart("one"), apart("8")), (Ok(Apart::Number(1)), Ok(Apart::Number(8))));
        assert_eq!((apart("per-call"), apart("PER_USER")), (Ok(Apart::PerCall), Ok(Apart::PerUser)));
        assert!(apart("65").is_err());
        assert!(domain("example.org").is_ok() && domain("[::1]:5070").is_ok());
        assert!(domain("").is_err() && domain("exa mple").is_err() && domain("bob@example.org").is_err());
        assert!(percent("101").is_err() && percent("much").is_err() && percent("-1").is_err());
        assert_eq!((percent("0.5%"), percent("0")), (Ok(0.5), Ok(0.0)));
        assert_eq!(percent("0.8"), Err("0.8 of what? Write 0.8%, or 80%".into()));
    }
}
