//! Explanation of a request without a running server: the engine, without sockets, database and registrations.

use crate::backends;
use crate::data_sets;
use crate::identity::{Guarded, identity};
use crate::routes::KernelRoutes;
use crate::service_addresses::literal;
use std::net::SocketAddr;
use std::sync::Arc;
use strowger_backend::sqlite::subscribers::has_user;
use strowger_config::Config;
use strowger_core::log_limiter::LogLimiter;
use strowger_core::{Arrival, ListenerId, Transport};
use strowger_net::clock;
use strowger_server::bounds::EngineBounds;
use strowger_server::engine::{Engine, ProcessStatus};
use strowger_server::explain::Explained;
use strowger_server::peer_names::NoNames;
use strowger_server::process_state::{ProcessContext, ProcessState};
use strowger_store::location::LocationTable;

/// Explains how a server with this configuration would handle a request that arrives by this transport from `source`.
/// `proven`: whether the sender has shown the password of the user that its credentials name. No user is registered.
/// The database file tells whether a callee exists, if this process may read the file.
///
/// # Errors
/// No listener has this transport, or the bytes are no request outside a dialog; the text says which.
pub fn explain(
    mut config: Config,
    transport: Transport,
    source: SocketAddr,
    bytes: &[u8],
    proven: bool,
) -> Result<Explained, String> {
    let Some(listener) = config.listeners.iter().position(|listener| listener.transport == transport) else {
        let listeners: Vec<String> = config.listeners.iter().map(ToString::to_string).collect();
        return Err(format!("no listener takes {}; they are {}", transport.text(), listeners.join(", ")));
    };
    data_sets::read(&mut config, None).map_err(|fault| fault.to_string())?;
    let arrival = Arrival { transport, listener: ListenerId(listener as u16), remote: source, flow: None };
    let bound: Vec<SocketAddr> = config.listeners.iter().map(|listener| listener.address).collect();
    let surroundings = ProcessContext {
        identity: identity(&config, &bound, &Guarded { services: literal(&config), ..Guarded::default() }),
        // Fixed secrets: the output of this engine is never sent.
        secret: vec![0; 32],
        seed: [0; 32],
        call_secret: 0,
        process: 0,
        shards: 1,
        location: Arc::new(LocationTable::new(config.location_settings())),
        subscribers: None,
        credentials: None,
        bounds: EngineBounds::default(),
        log_limiter: Arc::new(LogLimiter::new(config.log.refusals_per_minute, config.limits.ipv6_prefix)),
        routes: Box::new(KernelRoutes::new()),
        names: Arc::new(NoNames),
    };
    let settings = backends::sqlite(&config).filter(|_| config.store.subscribers.is_none());
    let exists = |username: &[u8], domain: &[u8]| {
        let (username, domain) = std::str::from_utf8(username).ok().zip(std::str::from_utf8(domain).ok())?;
        has_user(settings.as_ref()?, username, domain).ok()?
    };
    let now = clock::now();
    let shared = Arc::new(ProcessState::new(now, config, surroundings));
    let engine = Engine::new(now, shared, 0, ProcessStatus { draining: false, shards: 1 });
    engine.explain(now, &arrival, bytes, proven, &exists)
}
