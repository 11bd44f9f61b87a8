//! Open connections of an HTTP listener: a bound, and the choice of connections to end at the bound.
//!
//! At the bound a new connection replaces the oldest connection without a complete request. So a peer that opens
//! connections and sends no requests cannot exclude other peers. A connection with a complete request keeps its place
//! until it is answered or times out.

use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Longest head of a request; the least bound that hyper accepts.
const LONGEST_HEAD: usize = 8_192;
/// Longest time for the head of a request.
const HEAD_TIME: Duration = Duration::from_secs(2);

/// Returns the settings of hyper for a connection with one request.
pub(crate) fn builder() -> http1::Builder {
    let mut http = http1::Builder::new();
    http.keep_alive(false).max_buf_size(LONGEST_HEAD).timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
    http
}

/// Numbers of connections that were closed because as many as may be were open.
#[derive(Debug, Default)]
pub(crate) struct Crowded {
    /// Connections to `metrics.listen`.
    pub(crate) metrics: AtomicU64,
    /// Connections to `control.listen` and to the control socket.
    pub(crate) control: AtomicU64,
}

/// Open connections, the oldest first.
#[derive(Default)]
pub(crate) struct Connections {
    open: Mutex<VecDeque<Arc<State>>>,
}

#[derive(Default)]
struct State {
    /// True if the head of the connection's request is complete.
    has_asked: AtomicBool,
    /// Notified when the connection must end.
    end: Notify,
}

/// Connection among the admitted ones, until this is dropped.
pub(crate) struct AdmittedConnection {
    connections: Arc<Connections>,
    state: Arc<State>,
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, VecDeque<Arc<State>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection. If `most` connections are open, ends the oldest connection without a complete request.
    /// Returns `None` if all of them have a complete request: then the new connection is refused. `closed` counts the
    /// connections that are ended or refused.
    pub(crate) fn admit(self: &Arc<Self>, most: usize, closed: &AtomicU64) -> Option<AdmittedConnection> {
        let mut open = self.open();
        if open.len() >= most {
            closed.fetch_add(1, Ordering::Relaxed);
            let oldest = open.iter().position(|state| !state.has_asked.load(Ordering::Relaxed))?;
            let oldest = open.remove(oldest)?;
            oldest.end.notify_one();
        }
        let state = Arc::<State>::default();
        open.push_back(state.clone());
        drop(open);
        Some(AdmittedConnection { connections: self.clone(), state })
    }
}

impl AdmittedConnection {
    /// Notes that the head of this connection's request is complete: from now on no other connection replaces this one.
    /// Returns the number of connections that wait for their answers, including this one.
    pub(crate) fn asks(&self) -> usize {
        let open = self.connections.open();
        self.state.has_asked.store(true, Ordering::Relaxed);
        open.iter().filter(|state| state.has_asked.load(Ordering::Relaxed)).count()
    }

    /// Serves the connection until it ends, another connection replaces it, or `most` has passed.
    pub(crate) async fn serve(&self, most: Duration, connection: impl Future<Output = hyper::Result<()>>) {
        tokio::select! {
            _ended = tokio::time::timeout(most, connection) => {}
            () = self.state.end.notified() => {}
        }
    }
}

impl Drop for AdmittedConnection {
    fn drop(&mut self) {
        self.connections.open().retain(|state| !Arc::ptr_eq(state, &self.state));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tells whether a connection was notified to end.
    fn has_ended(place: &AdmittedConnection) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async { tokio::time::timeout(Duration::ZERO, place.state.end.notified()).await.is_ok() })
    }

    #[test]
    fn the_oldest_that_has_not_asked_gives_way() {
        let (connections, closed) = (Arc::<Connections>::default(), AtomicU64::new(0));
        let admit = || connections.admit(3, &closed);
        let places: Vec<AdmittedConnection> = (0..3).map(|_| admit().expect("there is room")).collect();
        assert_eq!(places[0].asks(), 1);
        let fourth = admit().expect("the second gives way");
        assert_eq!(places.iter().map(has_ended).collect::<Vec<_>>(), [false, true, false]);
        assert_eq!((places[2].asks(), fourth.asks()), (2, 3));
        assert!(admit().is_none(), "all have asked");
        assert_eq!(closed.load(Ordering::Relaxed), 2);
        drop(fourth);
        assert!(admit().is_some());
        drop(places);
        assert_eq!(connections.open().len(), 0);
    }
}
