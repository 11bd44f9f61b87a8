//! Transports and connections of callers.

use super::fields::{Faults, Fields, Value, text};
use super::system::fill;
use super::{Axes, Experiment, Steps, SystemSpec};
use std::time::Duration;
use strowger_core::Transport;
use strowger_load::campaign::Connections;

/// Words of transports.
const TRANSPORTS: [(&str, Transport); 3] = [("udp", Transport::Udp), ("tcp", Transport::Tcp), ("tls", Transport::Tls)];

/// Words of the owners of a socket or connection.
const CONNECTIONS: [(&str, Connections); 3] =
    [("one", Connections::One), ("per-user", Connections::PerUser), ("per-call", Connections::PerCall)];

pub(super) fn transport(value: Value<'_>) -> Option<Transport> {
    of_word(value, &TRANSPORTS)
}

pub(super) fn connections(value: Value<'_>) -> Option<Connections> {
    of_word(value, &CONNECTIONS)
}

fn of_word<T: Copy>(value: Value<'_>, words: &[(&str, T)]) -> Option<T> {
    let written = text(value)?;
    words.iter().find(|(word, _)| *word == written).map(|(_, meaning)| *meaning)
}

/// Reads `transport` and `connections` of `[call]`.
pub(super) fn of_call(fields: &Fields<'_>, faults: &mut Faults) -> (Transport, Connections) {
    (
        word(fields, "transport", &TRANSPORTS, faults).unwrap_or(Transport::Udp),
        word(fields, "connections", &CONNECTIONS, faults).unwrap_or_default(),
    )
}

fn word<T: Copy>(fields: &Fields<'_>, key: &str, words: &[(&str, T)], faults: &mut Faults) -> Option<T> {
    let value = fields.value(key)?;
    let found = of_word(value, words);
    if found.is_none() {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        faults.wrong_word(value, &text(value).unwrap_or_default(), key, &known);
    }
    found
}

impl Experiment {
    /// Returns the name of the configuration of a system at these values of axes.
    pub fn configuration(&self, system: &SystemSpec, axes: &Axes) -> String {
        let mut of_values =
            self.axes.iter().filter_map(|axis| axis.configurations.get(&axes.get(&axis.name)?.to_string()));
        fill(of_values.next().unwrap_or(&system.configuration), axes)
    }

    /// Returns the time until each user has its connection. A window that begins earlier also measures connects.
    pub fn connecting(&self, axes: &Axes, load: f64) -> Duration {
        let users = f64::from(self.users(axes));
        let is_stream = self.transport(axes) != Transport::Udp;
        match self.connections(axes) {
            Connections::PerUser if is_stream && load > 0.0 && self.call.connect_rate.is_none() => {
                Duration::from_secs_f64(users / load)
            }
            _ => Duration::ZERO,
        }
    }

    /// Returns the users that connect in a second before the load at these values of axes, if each has a connection.
    pub fn connect_rate(&self, axes: &Axes) -> Option<f64> {
        let is_held = self.transport(axes) != Transport::Udp && self.connections(axes) == Connections::PerUser;
        self.call.connect_rate.filter(|_| is_held).map(f64::from)
    }

    /// Returns the time of load before a window: the time in the profile, or longer, until each user has its connection and all calls of
    /// the warm-up were made.
    pub fn warm_up(&self, steps: &Steps, axes: &Axes, load: f64) -> Duration {
        let is_counted = self.load.unit.is_rate() && load > 0.0;
        let calls = if is_counted { f64::from(steps.warm_up_calls) / load } else { 0.0 };
        steps.warm_up.max(self.connecting(axes, load)).max(Duration::from_secs_f64(calls))
    }

    /// Tells whether each call or registration establishes a connection.
    pub fn establishes(&self, axes: &Axes) -> bool {
        self.transport(axes) != Transport::Udp && self.connections(axes) == Connections::PerCall
    }

    /// Returns the transport of callers and answering sides at these values of axes.
    pub fn transport(&self, axes: &Axes) -> Transport {
        let mut of_values = self.axes.iter().filter_map(|axis| axis.transports.get(&axes.get(&axis.name)?.to_string()));
        of_values.next().copied().unwrap_or(self.call.transport)
    }

    /// Returns the owner of a socket or connection at these values of axes.
    pub fn connections(&self, axes: &Axes) -> Connections {
        let mut of_values =
            self.axes.iter().filter_map(|axis| axis.connections.get(&axes.get(&axis.name)?.to_string()));
        of_values.next().copied().unwrap_or(self.call.connections)
    }
}
