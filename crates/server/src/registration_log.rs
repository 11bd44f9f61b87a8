//! Log of registrations: made, refreshed, removed, expired.

use crate::log_line_rate::LineRate;
use crate::process_state::ProcessState;
use std::net::SocketAddr;
use strowger_core::registrar::{ExistingBinding, Registrar};
use strowger_core::routing::Request;
use strowger_core::shown::shown;
use strowger_core::{Now, Transport};
use strowger_message::Name;
use strowger_store::binding::BindingView;
use tracing::level_filters::LevelFilter;

/// Changes by one REGISTER, which are logged when they are stored. If there is nothing to log, the value is empty and
/// has allocated no memory.
#[derive(Debug, Default)]
pub(crate) struct Changes(Vec<Change>);

#[derive(Debug)]
struct Change {
    event: Event,
    /// Contact in printable form.
    contact: String,
    /// Seconds until it expires.
    seconds: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Registered,
    Refreshed,
    Unregistered,
    /// An unreachable binding made room for a new one.
    Dropped,
}

/// Sender of the REGISTER.
#[derive(Debug)]
pub(crate) struct Sender {
    source: SocketAddr,
    transport: &'static str,
    /// User-Agent in printable form; so is the Call-ID.
    agent: String,
    call_id: String,
}

impl Sender {
    pub(crate) fn of(request: &Request<'_>) -> Self {
        let agent = request.message.header(Name::UserAgent).unwrap_or_default();
        Self {
            source: request.arrival.remote,
            transport: request.arrival.transport.text(),
            agent: shown(agent).to_string(),
            call_id: shown(request.call_id).to_string(),
        }
    }
}

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes the decision of the registrar on the bindings `current`.
    pub(crate) fn note(
        &mut self,
        now: Now,
        request: &Request<'_>,
        registrar: &Registrar,
        current: &[ExistingBinding<'_>],
        lines: &LineRate,
    ) {
        if !lines.is_on() || LevelFilter::current() < LevelFilter::INFO {
            return;
        }
        let mut note = |event: Event, contact: &[u8], seconds: u64| {
            let wanted = match event {
                Event::Refreshed => {
                    LevelFilter::current() >= LevelFilter::DEBUG && tracing::enabled!(tracing::Level::DEBUG)
                }
                _ => lines.may_log(now.mono) && is_wanted(),
            };
            if wanted {
                self.0.push(Change { event, contact: shown(contact).to_string(), seconds });
            }
        };
        let adds = !registrar.upserts().is_empty();
        for binding in registrar.removals().map(|i| &current[i]) {
            note(if binding.unreachable && adds { Event::Dropped } else { Event::Unregistered }, binding.uri, 0);
        }
        for upsert in registrar.upserts() {
            let contact = request.message.bytes().get(upsert.uri.clone()).unwrap_or_default();
            let same = upsert.replaces.is_some_and(|i| current[i].uri == contact);
            let event = if same { Event::Refreshed } else { Event::Registered };
            note(event, contact, upsert.expires_at.saturating_sub(now.mono) / 1000);
        }
    }

    /// Logs the changes, which are stored. `aor` is in printable form.
    pub(crate) fn log(&self, aor: &str, sender: &Sender) {
        let Sender { source, transport, agent, call_id } = sender;
        for Change { event, contact, seconds } in &self.0 {
            match event {
                Event::Registered => {
                    tracing::info!(%aor, %contact, %source, %transport, expires = seconds, agent, %call_id, "registered");
                }
                Event::Refreshed => {
                    tracing::debug!(%aor, %contact, %source, %transport, expires = seconds, agent, %call_id, "registration refreshed");
                }
                Event::Unregistered => {
                    tracing::info!(%aor, %contact, %source, %transport, expires = seconds, agent, %call_id, "unregistered");
                }
                Event::Dropped => {
                    let reason = "its connection is gone, and another contact takes its place";
                    tracing::info!(%aor, %contact, reason, %call_id, "registration removed");
                }
            }
        }
    }
}

/// Tells whether the log takes lines about registrations.
pub(crate) fn is_wanted() -> bool {
    tracing::enabled!(tracing::Level::INFO)
}

/// Binding that was not refreshed in time. It is logged after the table is unlocked.
#[derive(Debug)]
pub(crate) struct Expired {
    aor: String,
    contact: String,
    source: Option<(Transport, SocketAddr)>,
    agent: String,
    call_id: String,
}

impl Expired {
    /// Copies an expired binding for the log; returns `None` if no line is wanted, or there are too many.
    pub(crate) fn of(binding: &BindingView<'_>, shared: &ProcessState, now: u64) -> Option<Self> {
        let lines = &shared.registration_lines;
        let wanted = LevelFilter::current() >= LevelFilter::INFO && lines.may_log(now) && is_wanted();
        let received = binding.received().map(|r| (Transport::ALL.get(r.transport as usize).copied(), r.address));
        wanted.then(|| Self {
            aor: shown(binding.aor()).to_string(),
            contact: shown(binding.uri()).to_string(),
            source: received.and_then(|(transport, address)| Some((transport?, address))),
            agent: shown(binding.user_agent()).to_string(),
            call_id: shown(binding.call_id()).to_string(),
        })
    }

    pub(crate) fn log(&self) {
        let Self { aor, contact, source, agent, call_id } = self;
        let transport = source.map(|(transport, _)| tracing::field::display(transport.text()));
        let source = source.map(|(_, address)| tracing::field::display(address));
        tracing::info!(%aor, %contact, source, transport, agent, %call_id, "registration expired");
    }
}
