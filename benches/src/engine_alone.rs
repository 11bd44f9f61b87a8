//! The engine of a server without its network: a bench gives it messages, and gets its messages.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use strowger_config::Source;
use strowger_core::log_limiter::LogLimiter;
use strowger_core::routing::{Identity, ListenerAddress};
use strowger_core::{Now, Transport};
use strowger_node::preflight;
use strowger_server::bounds::EngineBounds;
use strowger_server::engine::{Engine, ProcessStatus};
use strowger_server::local_address::OneWay;
use strowger_server::peer_names::NoNames;
use strowger_server::process_state::{ProcessContext, ProcessState};
use strowger_store::location::LocationTable;

/// Address of the server.
pub const SERVER: &str = "127.0.0.1:5060";

/// Start of the simulated time.
pub const BEGIN: Now = Now { mono: 10_000, wall: 1_700_000_000_000 };

/// Creates the engine of a server with this configuration, whose files are in this folder. It has one shard, and
/// listens by UDP.
///
/// # Errors
/// The configuration is wrong.
pub fn engine(text: &str, folder: &Path) -> Result<Engine, String> {
    let (config, _) =
        preflight::read(Source { text, folder, ..Source::default() }).map_err(|report| report.to_string())?;
    let bound = address(SERVER);
    let listener = ListenerAddress { transport: Transport::Udp, bound, sent_by: SERVER.as_bytes().into(), network: 0 };
    let surroundings = ProcessContext {
        identity: Identity::new(vec![listener], config.domains.iter().map(|domain| domain.name.as_str()), &[]),
        secret: vec![7; 32],
        seed: [7; 32],
        call_secret: 7,
        process: 1,
        shards: 1,
        location: Arc::new(LocationTable::new(config.location_settings())),
        subscribers: None,
        credentials: None,
        bounds: EngineBounds::default(),
        log_limiter: Arc::new(LogLimiter::new(config.log.refusals_per_minute, config.limits.ipv6_prefix)),
        routes: Box::new(OneWay),
        names: Arc::new(NoNames),
    };
    let shared = Arc::new(ProcessState::new(BEGIN, config, surroundings));
    Ok(Engine::new(BEGIN, shared, 0, ProcessStatus { draining: false, shards: 1 }))
}

/// Parses an address that a bench has written.
///
/// # Panics
/// The address is malformed.
pub fn address(text: &str) -> SocketAddr {
    text.parse().expect("those of the benches are addresses")
}
