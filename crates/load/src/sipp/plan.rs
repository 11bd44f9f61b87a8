//! Engine settings from SIPp's options.

use super::options::Options;
use crate::engine::pace::{Arrivals, Part};
use crate::engine::run::{Behaviour, Load, Retransmission, Run};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use strowger_core::{ListenerId, Transport};
use strowger_net::clock;
use strowger_scenario::step::{Pause, Step, StepKind};
use strowger_scenario::{Distribution, Scenario};

/// Returns the milliseconds between two start times of calls: about six calls each, finer than SIPp's own bunches, at
/// most 3 ms.
fn bunch(rate: f64) -> u64 {
    if rate > 0.0 { (6_000.0 / rate).clamp(1.0, 3.0) as u64 } else { 1 }
}

/// Returns the limit of concurrent calls without `-l`: three times the number of calls that begin during the length of
/// one call.
pub(super) fn limit(options: &Options, scenario: &Scenario, rate: f64) -> u64 {
    let duration = options.duration.unwrap_or(0) as f64;
    // Pauses of the scenario, as far as their length is known beforehand.
    let pause = |step: &Step| match &step.kind {
        StepKind::Pause(Pause::Drawn(Distribution::Fixed(ms))) => *ms,
        StepKind::Pause(Pause::Default) => duration,
        _ => 0.0,
    };
    let length = scenario.steps.iter().map(pause).sum::<f64>().max(duration).max(1_000.0);
    ((3.0 * rate * length / options.rate_period as f64) as u64).max(1)
}

/// Converts the options to the settings of a run.
pub(super) fn plan(
    options: &Options,
    scenario: &Arc<Scenario>,
    remote: Option<SocketAddr>,
    sending_address: Option<SocketAddr>,
    local: IpAddr,
    local_port: u16,
) -> Run {
    let duration = options.duration.unwrap_or(0);
    let calls = options.rate;
    let rate = calls * 1_000.0 / options.rate_period as f64;
    let limit = options.limit.unwrap_or_else(|| limit(options, scenario, calls));
    let or = |value: Option<u64>, default: u32| value.map_or(default, |v| u32::try_from(v).unwrap_or(u32::MAX));
    let retransmission = Retransmission::default();
    let behaviour = Behaviour::default();
    Run {
        target: remote,
        target_host: options.remote.as_ref().map_or(String::new(), |(host, _)| host.clone()),
        sending_address,
        peer: None,
        transport: options.transport,
        listener: ListenerId(0),
        local_ip: local.to_string(),
        local_port,
        media_ip: options.media_ip.clone().unwrap_or_else(|| local.to_string()),
        media_port: options.media_port.or(options.min_rtp_port).unwrap_or(6_000),
        service: options.service.clone(),
        username: options.username.clone(),
        password: options.password.clone().unwrap_or_else(|| "password".into()),
        auth_uri: options.auth_uri.clone(),
        keys: options.keys.clone(),
        globals: options.sets.clone(),
        call_id: options.call_id.clone().unwrap_or_else(|| "%u-%p@%s".into()),
        dynamic_id: options.dynamic_id,
        circuits: options.circuits.clone(),
        // The first request has this number.
        base_cseq: options.base_cseq.saturating_sub(1),
        load: Load {
            profile: vec![Part::Hold { rate }],
            arrivals: Arrivals::Fixed,
            calls: options.calls,
            limit: if options.users.is_some() {
                options.limit.unwrap_or(u64::MAX)
            } else {
                limit.div_ceil(options.threads as u64)
            },
            keep_limited: false,
            users: options.users,
            step: options.timer_resolution.unwrap_or_else(|| bunch(rate)),
            ..Load::default()
        },
        behaviour: Behaviour {
            goodbye: options.behaviours.goodbye,
            abort_unexpected: options.behaviours.abort_unexpected,
            answer_ping: options.behaviours.answer_ping,
            auto_answer: options.auto_answer,
            ignore_in_pause: options.ignore_in_pause,
            keep_slashes: options.keep_slashes,
            pause: Distribution::Fixed(duration as f64),
            receive_timeout: options.receive_timeout.filter(|&t| t > 0).map(|t| or(Some(t), 0)),
            dead_call_wait: or(options.dead_call_wait, behaviour.dead_call_wait),
            commands: true,
            lost: options.lost,
        },
        retransmission: Retransmission {
            enabled: options.retransmit && options.transport == Transport::Udp,
            t2: or(options.t2, retransmission.t2),
            most: options.most.unwrap_or(retransmission.most),
            most_invite: options.most_invite.unwrap_or(retransmission.most_invite),
            most_non_invite: options.most_non_invite.unwrap_or(retransmission.most_non_invite),
            rfc3261: false,
            whole: !options.loose,
        },
        seed: options.seed.unwrap_or_else(|| u64::from(std::process::id()) ^ clock::micros()),
        ..Run::new(scenario.clone())
    }
}
