//! `[control]`: orders to the running server by a socket, and the same orders by HTTP (`http.rs`, `http_routes.rs`).
//!
//! A connection carries orders and replies, each one line of JSON ([`ControlOrder`], [`Reply`]). Connections are served
//! by a thread outside the shards. Long work is divided into slices, and other work of that thread runs between two
//! slices.

mod accounting;
mod accounting_state;
mod cache_list;
mod caches;
mod call_list;
mod calls;
mod client;
mod end_registrations;
mod execution;
pub(crate) mod http;
mod http_routes;
mod limit_list;
mod limits;
mod next_hops;
mod openapi;
mod order;
mod reload;
mod set_list;
mod sets;
mod socket;

use crate::caches::Caches;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::program::Program;
use crate::shard::Services;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use strowger_server::process_state::ProcessState;
use strowger_store::second_level::SecondLevel;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

pub use crate::program::Request;
pub use accounting_state::{AccountingError, AccountingState, QuarantineState, SpoolState};
pub use cache_list::{CacheEntry, CacheList, CacheSummary, CachedUser, KeptAnswer, SubscriberCache};
pub use call_list::{Call, CallList, CallMedia, Dialog, MediaPath};
pub use client::{Client, Unreachable};
pub use limit_list::{Limit, LimitKey, LimitList};
pub use next_hops::NextHopAside;
pub use order::{Ban, BanList, ControlOrder, Done, LONGEST_LINE, Page, Registration, Reply, ShardStatus, Status};
pub use reload::{Change, Fault, Reload, SetReload, Wrong};
pub use set_list::{Found, SetEntry, SetList, SetPage, SetSummary};
pub(crate) use socket::Socket;

/// Maximum number of commands connected at the same time, and of connections by HTTP.
const CONNECTIONS: usize = 8;
/// Longest silence of a connection; by HTTP, longest time for the request and for the answer.
const SILENCE: Duration = Duration::from_secs(10);

/// Parts of the server that orders need.
#[derive(Clone)]
pub(crate) struct Controlled {
    pub(crate) shared: Arc<ProcessState>,
    pub(crate) metrics: Metrics,
    pub(crate) health: Arc<Health>,
    pub(crate) program: Program,
    pub(crate) caches: Arc<Caches>,
    /// Cache between memory and the database of subscribers.
    pub(crate) second: Option<SecondLevel>,
    pub(crate) services: Arc<Services>,
}

/// A year, longer than the life of a server.
const UNTIL_THE_END: Duration = Duration::from_secs(365 * 86_400);

/// Serves connections; never ends.
pub(crate) async fn serve(listener: UnixListener, server: Controlled) {
    // Each open connection holds one reference.
    let open = Arc::new(());
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Usually the process has no free descriptor, so an immediate attempt would fail too.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let has_room = Arc::strong_count(&open) <= CONNECTIONS;
        let (server, place) = (server.clone(), open.clone());
        tokio::spawn(async move {
            if has_room {
                converse(stream, &server, SILENCE).await;
                drop(place);
            } else {
                drop(place);
                server.services.crowded.control.fetch_add(1, Relaxed);
                let refusal = Reply::Refused(format!("{CONNECTIONS} other commands are connected"));
                let mut stream = stream;
                let _ = timeout(SILENCE, stream.write_all(&line(&refusal))).await;
            }
        });
    }
}

/// Carries out one order after the other until the client closes the connection, is silent for too long, or sends a
/// line that is no order.
async fn converse(stream: UnixStream, server: &Controlled, mut silence: Duration) {
    let mut stream = BufReader::new(stream);
    let mut text = Vec::new();
    loop {
        text.clear();
        let mut bounded = (&mut stream).take(LONGEST_LINE as u64);
        match timeout(silence, bounded.read_until(b'\n', &mut text)).await {
            Ok(Ok(length)) if length > 0 => (),
            _ => return,
        }
        let order = serde_json::from_slice(&text);
        let understood = order.is_ok();
        if matches!(order, Ok(ControlOrder::Drain)) {
            // The client may wait for the end of the server.
            silence = UNTIL_THE_END;
        }
        let reply = match order {
            Ok(order) => server.carry_out(order).await,
            Err(error) => Reply::Refused(format!("not an order of this version: {error}")),
        };
        match timeout(silence, stream.write_all(&line(&reply))).await {
            Ok(Ok(())) if understood => (),
            _ => return,
        }
    }
}

fn shutting_down() -> Reply {
    Reply::Unavailable("the server is shutting down".into())
}

fn line(reply: &Reply) -> Vec<u8> {
    let mut line = serde_json::to_vec(reply).expect("replies are text, numbers and lists");
    line.push(b'\n');
    line
}
