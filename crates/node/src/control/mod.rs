//! `[control]`: the socket by which commands reach the running server.
//!
//! A connection carries orders and replies, each one line of JSON ([`Order`], [`Reply`]). It is served beside the shards; what takes long
//! is done in slices, between which other work of that thread goes on.

mod answer;
mod client;
mod order;
mod socket;

use crate::health::Health;
use crate::metrics::Metrics;
use crate::server::Program;
use std::sync::Arc;
use std::time::Duration;
use strowger_server::shared::Shared;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

pub use client::{Client, Unreachable};
pub use order::{Ban, Done, LONGEST_LINE, Order, Page, Registration, Reply, ShardStatus, Status};
pub(crate) use socket::Socket;

/// What orders are carried out on.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) shared: Arc<Shared>,
    pub(crate) metrics: Metrics,
    pub(crate) health: Arc<Health>,
    pub(crate) program: Program,
    /// A graceful shutdown is wanted.
    pub(crate) drain: Arc<Notify>,
}

/// A year: the server ends before.
const UNTIL_THE_END: Duration = Duration::from_secs(365 * 86_400);

/// Serves each connection; never ends. `silence`: how long one may be silent.
pub(crate) async fn serve(listener: UnixListener, desk: Desk, connections: usize, silence: Duration) {
    let room = Arc::new(Semaphore::new(connections));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // No descriptor is left, as a rule: an attempt at once would fail as this one did.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let place = room.clone().try_acquire_owned();
        let desk = desk.clone();
        tokio::spawn(async move {
            match place {
                Ok(place) => {
                    converse(stream, &desk, silence).await;
                    drop(place);
                }
                Err(_) => {
                    let refusal = Reply::Refused("`control.connections` commands are connected".into());
                    let mut stream = stream;
                    let _ = timeout(silence, stream.write_all(&line(&refusal))).await;
                }
            }
        });
    }
}

/// One order after the other, until the other side ends, is silent for too long or is not understood.
async fn converse(stream: UnixStream, desk: &Desk, mut silence: Duration) {
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
        if matches!(order, Ok(Order::Drain)) {
            // It may stay until the server ends, and learns so when that was.
            silence = UNTIL_THE_END;
        }
        let reply = match order {
            Ok(order) => desk.carry_out(order).await,
            Err(error) => Reply::Refused(format!("not an order of this version: {error}")),
        };
        match timeout(silence, stream.write_all(&line(&reply))).await {
            Ok(Ok(())) if understood => (),
            _ => return,
        }
    }
}

fn line(reply: &Reply) -> Vec<u8> {
    let mut line = serde_json::to_vec(reply).expect("replies are text, numbers and lists");
    line.push(b'\n');
    line
}
