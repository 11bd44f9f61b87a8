//! Messages before the first call.

use std::net::IpAddr;
use std::time::{Duration, UNIX_EPOCH};

use strowger_load::campaign::{Campaign, period, profile};
use strowger_load::engine::pace::Part;
use strowger_load::report::rfc3339;
use strowger_measure::{ReceiveBuffer, Unit, several};

/// Describes the run in one line.
pub(super) fn opening(campaign: &Campaign) -> String {
    let plan = campaign.plan();
    let transport = plan.transport.text();
    let Some(target) = &plan.target else {
        let every = plan.sources.iter().all(IpAddr::is_unspecified);
        let at = campaign.answering_at().map_or_else(String::new, |address| match every {
            true => {
                let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
                format!("port {} of every {family} address, {} in messages,", address.port(), address.ip())
            }
            false => address.to_string(),
        });
        return format!("Answering on {at} by {transport}; Ctrl-C ends it and writes the reports.");
    };
    let place = campaign.destination().map_or_else(|| target.to_string(), |address| address.to_string());
    let schedule = match (&plan.profile[..], plan.calls) {
        ([Part::Hold { rate }], Some(calls)) => format!("{} at {rate}/s", several(calls, "call")),
        ([Part::Ramp { from, to, micros }], _) if from == to => {
            format!("{from}/s for {}", period::show(Duration::from_micros(*micros)))
        }
        (parts, _) => match profile::length(parts) {
            Some(micros) => format!("a profile of {}", period::show(Duration::from_micros(micros))),
            None => "a profile".into(),
        },
    };
    let pair = match campaign.answering_at() {
        Some(address) => format!(", answered here on {address}"),
        None => String::new(),
    };
    let begin = match (plan.start_at, campaign.begins_in()) {
        (Some(moment), left) if !left.is_zero() => {
            let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
            // Whole seconds, as in the countdown.
            let left = period::show(Duration::from_secs(left.as_secs_f64().round() as u64));
            format!(", from {} on, in {left}", rfc3339(since.as_micros() as u64))
        }
        _ => String::new(),
    };
    format!("{}: {schedule} to {place} by {transport}{pair}{begin}", plan.title())
}

/// Returns a sentence on receive buffers that the kernel did not grant in full, before they cost datagrams.
pub(super) fn small<'a>(buffers: impl Iterator<Item = &'a ReceiveBuffer>) -> Option<String> {
    let small: Vec<&ReceiveBuffer> = buffers.filter(|buffer| buffer.got < buffer.asked).collect();
    let first = small.first()?;
    let show = |bytes: u64| Unit::Bytes.show(bytes as f64);
    Some(format!(
        "the receive buffer of {}{} has {} instead of {}: bursts may be lost in this machine's kernel. sysctl -w net.core.rmem_max={} allows it.",
        first.socket,
        if small.len() > 1 { format!(" (and {} more)", small.len() - 1) } else { String::new() },
        show(first.got),
        show(first.asked),
        first.asked
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_buffer_that_is_too_small_is_named_with_its_cure() {
        let buffer = |port: u16, got| ReceiveBuffer { socket: format!("127.0.0.1:{port}"), asked: 8_388_608, got };
        assert_eq!(small([buffer(1, 8_388_608)].iter()), None);
        let text = small([buffer(1, 8_388_608), buffer(2, 212_992), buffer(3, 212_992)].iter()).expect("two are small");
        for part in ["127.0.0.1:2 (and 1 more)", "213.0 kB instead of 8.4 MB", "net.core.rmem_max=8388608"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
