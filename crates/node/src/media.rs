//! Media threads of a server, and the link of each shard to them.

use crate::media_capacity::MediaCapacity;
use crate::settings;
use crate::shard::{Input, Shard};
use anyhow::Context;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};
use strowger_config::Config;
use strowger_core::entropy::Entropy;
use strowger_media::session::{PortPair, SessionEnd, SessionEvent, SessionKey, SessionOrder, Side};
use strowger_net::media::{MediaHandle, MediaThreads};
use strowger_net::{Handle, clock};
use strowger_server::engine::MediaThreadStatus;

/// Links of all shards. Each shard takes its own.
#[derive(Default)]
pub(crate) struct MediaLinks {
    links: Mutex<Vec<Option<MediaLink>>>,
    /// Shards, which the media threads wake; they own this.
    shards: Weak<OnceLock<Handle<Shard>>>,
}

/// Link of one shard.
pub(crate) struct MediaLink {
    handle: MediaHandle,
}

/// Starts the media threads for at most `shards` shards; without `media.addresses` there are none.
///
/// # Errors
/// An address is not one of this machine, or there is no descriptor or thread left.
pub(crate) fn start(
    config: &Config,
    shards: usize,
    entropy: &Entropy,
) -> anyhow::Result<(Option<MediaThreads>, MediaLinks)> {
    let Some(settings) = settings::media(config) else { return Ok((None, MediaLinks::default())) };
    let capacity = MediaCapacity::here(config);
    if !capacity.is_enough() {
        let MediaCapacity { ports, descriptors, wanted_limit } = capacity;
        tracing::warn!(ports, descriptors, wanted_limit, "fewer descriptors than ports of media");
    }
    let woken = Arc::new(OnceLock::<Handle<Shard>>::new());
    let weak = Arc::downgrade(&woken);
    let wake = move |shard: usize| {
        if let Some(handle) = woken.get() {
            handle.mailbox(shard).send(Input::Media);
        }
    };
    let (threads, handles) = MediaThreads::start(&settings, shards, entropy, wake)
        .context("media cannot be received at `media.addresses`")?;
    let links = handles.into_iter().map(|handle| Some(MediaLink { handle })).collect();
    Ok((Some(threads), MediaLinks { links: Mutex::new(links), shards: weak }))
}

/// Longest wait for the first ports.
const FIRST_PORTS: Duration = Duration::from_secs(1);

/// Waits until a shard has ports, so that the first calls find some.
pub(crate) fn wait_for_ports(threads: &MediaThreads) {
    let end = Instant::now() + FIRST_PORTS;
    while threads.total().lent == 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Interval between two looks after the media threads.
const UPKEEP: Duration = Duration::from_secs(1);

/// Looks after the media threads: starts further ones under load, and ends the server if one has ended.
pub(crate) async fn keep_up(handle: Handle<Shard>, threads: Weak<MediaThreads>) {
    loop {
        clock::beat(UPKEEP).await;
        let Some(threads) = threads.upgrade() else { continue };
        match threads.balance() {
            Ok(started) => started.into_iter().for_each(|threads| tracing::info!(threads, "media thread added")),
            Err(error) => tracing::warn!(%error, "number of media threads unchanged"),
        }
        // Without it calls have no media, and others get no ports.
        if !threads.are_running() {
            handle.fail("a media thread ended");
        }
    }
}

impl MediaLinks {
    fn lock(&self) -> MutexGuard<'_, Vec<Option<MediaLink>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the link of a shard that begins; `None` if there are no media threads.
    pub(crate) fn take(&self, handle: &Handle<Shard>, shard: usize) -> Option<MediaLink> {
        if let Some(shards) = self.shards.upgrade() {
            shards.get_or_init(|| handle.clone());
        }
        self.lock().get_mut(shard)?.take()
    }

    /// Puts the link of a shard that ends back, for the next shard of this number.
    pub(crate) fn put_back(&self, shard: usize, link: MediaLink) {
        if let Some(place) = self.lock().get_mut(shard) {
            *place = Some(link);
        }
    }
}

impl MediaLink {
    /// Gives an order to its media thread; `thread`: `None` for orders about ports. Returns the event for the shard if
    /// the thread cannot take the order: too many wait, or the thread has ended.
    pub(crate) fn order(&mut self, thread: Option<u16>, order: SessionOrder) -> Option<SessionEvent> {
        let order = match order {
            SessionOrder::Return(ports) => {
                self.give_back(&ports);
                return None;
            }
            other => other,
        };
        let thread = thread.unwrap_or_else(|| self.handle.preferred());
        self.handle.order(thread, order).err().and_then(refusal)
    }

    /// Returns the state of the media threads for the engine.
    pub(crate) fn status(&self) -> MediaThreadStatus {
        MediaThreadStatus { running: self.handle.threads() as u16, preferred: self.handle.preferred() }
    }

    /// Gives ports back, each to its thread.
    fn give_back(&mut self, ports: &[PortPair]) {
        for thread in 0..self.handle.threads() as u16 {
            let of_thread: Vec<PortPair> = ports.iter().copied().filter(|pair| pair.thread == thread).collect();
            if !of_thread.is_empty() {
                // A thread that runs always takes ports back.
                let _ = self.handle.order(thread, SessionOrder::Return(of_thread));
            }
        }
    }

    /// Takes the events since the last call.
    pub(crate) fn events(&mut self) -> Vec<SessionEvent> {
        let mut events = Vec::new();
        self.handle.take_events(|_, event| events.push(event));
        events
    }
}

/// Returns the event for the shard if no thread takes this order.
pub(crate) fn refusal(order: SessionOrder) -> Option<SessionEvent> {
    match order {
        SessionOrder::Set { key, .. } => Some(SessionEvent::Silent { key, end: SessionEnd::Silence(Side::Near) }),
        SessionOrder::Report { key } => Some(SessionEvent::Reported { key, streams: Vec::new() }),
        SessionOrder::Close { key } => Some(SessionEvent::Closed { key, streams: Vec::new() }),
        SessionOrder::Lend { shard, .. } => Some(SessionEvent::Lent { shard, ports: Vec::new() }),
        SessionOrder::Claim { key, ports } => Some(SessionEvent::Claimed { key, ports, is_bound: false }),
        SessionOrder::Return(_) => None,
    }
}

/// Returns the session of an event; `None`: the event is about the ports of its shard.
pub(crate) const fn session_of(event: &SessionEvent) -> Option<SessionKey> {
    match event {
        SessionEvent::Heard { key, .. }
        | SessionEvent::Silent { key, .. }
        | SessionEvent::Played { key, .. }
        | SessionEvent::RecordingFailed { key }
        | SessionEvent::Reported { key, .. }
        | SessionEvent::Claimed { key, .. }
        | SessionEvent::Closed { key, .. } => Some(*key),
        SessionEvent::Lent { .. } => None,
    }
}
