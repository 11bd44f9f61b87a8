//! Two sides in this process, each on shards of its own.

use super::layer::{Side, layer};
use super::party::{Calling, Counts, Party, PartyCommand};
use super::{Setting, wait_until};
use crate::Error;
use std::hash::BuildHasher;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use strowger_net::{Bounds, Listener, Net, NetSettings, Node, Shards};

/// Time in which exchanges in progress can end.
const DRAIN: Duration = Duration::from_secs(2);

/// Memory of connections, which all have one source here.
const CONNECTION_MEMORY: usize = 1 << 30;

/// One in this many exchanges in progress may be lost. With more losses the load is not the intended one.
const LOST: u64 = 10;

/// Two running sides, which end when the value is dropped.
pub(super) struct Pair {
    // In this order: the calling side ends first.
    calling: Node<Party>,
    /// None where the calling side answers itself.
    answering: Option<Node<Party>>,
    counts: Arc<[Counts]>,
}

/// Measurement of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub(super) completed: u64,
    /// Exchanges that failed or got lost, from begin to end.
    pub(super) failed: u64,
    pub(super) time: Duration,
    /// Processor time of the threads that answer.
    pub(super) answering: Option<Duration>,
    /// Processor time of the threads that call, or `None` if the same threads also answer.
    pub(super) calling: Option<Duration>,
}

impl Measured {
    /// Returns the completed exchanges a second.
    pub(super) fn rate(&self) -> f64 {
        self.completed as f64 / self.time.as_secs_f64()
    }
}

/// Counters and clocks at a moment.
struct Moment {
    at: Instant,
    completed: u64,
    answering: Option<Duration>,
    calling: Duration,
}

impl Pair {
    /// Starts both sides.
    pub(super) fn start(setting: &Setting) -> Result<Self, Error> {
        let counts: Arc<[Counts]> = (0..setting.threads).map(|_| Counts::default()).collect();
        if setting.is_itself {
            let calling = side(setting, None, &counts)?;
            return Ok(Self { calling, answering: None, counts });
        }
        let answering = side(setting, None, &counts)?;
        let calling = side(setting, Some(answering.handle().addresses()[0]), &counts)?;
        Ok(Self { calling, answering: Some(answering), counts })
    }

    /// Makes exchanges as fast as possible, and measures them in this window.
    pub(super) fn measure(&self, setting: &Setting, window: Duration) -> Result<Measured, Error> {
        let handle = self.calling.handle();
        for shard in 0..setting.threads {
            let share = setting.outstanding / setting.threads as u32;
            let rest = u32::from((shard as u32) < setting.outstanding % setting.threads as u32);
            handle.mailbox(shard).send(PartyCommand::Begin(share + rest));
        }
        std::thread::sleep(setting.warm_up);
        let before = self.moment();
        std::thread::sleep(window);
        let after = self.moment();
        (0..setting.threads).for_each(|shard| handle.mailbox(shard).send(PartyCommand::Stop));
        let ended = || self.count(|of| &of.completed) + self.count(|of| &of.failed);
        wait_until(Instant::now() + DRAIN, || ended() == self.count(|of| &of.begun));
        let lost = self.count(|of| &of.begun).saturating_sub(ended());
        let failed = |reason| Err(Error::Unexpected { what: "the stack".into(), reason });
        if lost > u64::from(setting.outstanding) / LOST {
            let of = setting.outstanding;
            let cure = "raise net.core.rmem_max, or keep fewer under way";
            return failed(format!("{lost} of {of} exchanges under way were lost: {cure}"));
        }
        if after.completed == before.completed {
            return failed(format!("no exchange was completed in {window:?}: the machine does other work"));
        }
        let spent = |after: Duration, before: Duration| after.saturating_sub(before);
        let both = spent(after.calling, before.calling);
        let answering = after.answering.zip(before.answering).map(|(after, before)| spent(after, before));
        Ok(Measured {
            completed: after.completed - before.completed,
            failed: lost + self.count(|of| &of.failed),
            time: after.at - before.at,
            calling: answering.map(|_| both),
            answering: answering.or(Some(both)),
        })
    }

    /// Returns the sum of a count over all shards.
    fn count(&self, of: impl Fn(&Counts) -> &AtomicU64) -> u64 {
        self.counts.iter().map(|counts| of(counts).load(Relaxed)).sum()
    }

    fn moment(&self) -> Moment {
        let busy = |node: &Node<Party>| {
            let handle = node.handle();
            (0..handle.shards()).filter_map(|shard| handle.busy(shard)).sum()
        };
        Moment {
            at: Instant::now(),
            completed: self.count(|of| &of.completed),
            answering: self.answering.as_ref().map(busy),
            calling: busy(&self.calling),
        }
    }
}

/// Starts a side that calls this peer, or itself.
fn side(setting: &Setting, peer: Option<SocketAddr>, counts: &Arc<[Counts]>) -> Result<Node<Party>, Error> {
    let failed = |source| Error::NotStarted { name: "a side of the stack".into(), source };
    let bounds = Bounds { connection_memory_per_source: CONNECTION_MEMORY, ..Bounds::default() };
    let settings = NetSettings { shards: Shards::Fixed(setting.threads), bounds, ..NetSettings::default() };
    let (secret, transport, work) = (settings.secret, setting.transport, setting.work);
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let net = Net::bind(settings, vec![Listener::new(transport, any)]).map_err(failed)?;
    let own = net.addresses()[0];
    let side = Side { transport, own, peer: peer.unwrap_or(own), secret, seed: seed() };
    let counts = counts.clone();
    net.spawn_with_sockets(move |shard, handle| Party {
        layer: layer(work, &side, shard),
        handle,
        shard,
        transport,
        peer: side.peer,
        counts: counts.clone(),
        calling: Calling::default(),
    })
    .map_err(failed)
}

/// Draws from the entropy with which the standard library keys its tables.
fn seed() -> [u8; 32] {
    let mut seed = [0; 32];
    for (n, part) in seed.chunks_exact_mut(8).enumerate() {
        part.copy_from_slice(&std::hash::RandomState::new().hash_one(n).to_le_bytes());
    }
    seed
}
