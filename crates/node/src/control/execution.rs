//! Execution of each order.

use super::{
    Ban, BanList, ControlOrder, Controlled, Done, Page, Registration, Reply, Request, ShardStatus, Status, next_hops,
    shutting_down,
};
use crate::identity::canonical_aor;
use crate::metrics::labelled::Sample;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use strowger_backend::accounting::Accounting;
use strowger_core::Transport;
use strowger_metrics::Unit;
use strowger_net::clock;
use strowger_store::binding::BindingView;
use strowger_store::location::Cursor;
use tokio::sync::oneshot;

/// Maximum number of registrations or bans of one reply.
const MOST: usize = 1_000;

/// Maximum number of bindings read under one lock, and partitions visited before other work gets its turn.
const SLICE: usize = 64;

impl Controlled {
    pub(super) async fn carry_out(&self, order: ControlOrder) -> Reply {
        match order {
            ControlOrder::Status => Reply::Status(Box::new(self.status())),
            ControlOrder::Registrations { user: Some(user), .. } => Reply::Registrations(self.registrations_of(&user)),
            ControlOrder::Registrations { user: None, from, most } => {
                Reply::Registrations(self.page(from, most.clamp(1, MOST)).await)
            }
            ControlOrder::RemoveRegistrations { user, contact } => self.remove_registrations(&user, contact.as_deref()),
            ControlOrder::Calls { party, from, most } => self.calls(party, from, most.clamp(1, MOST)).await,
            ControlOrder::Call { id } => self.call(&id).await,
            ControlOrder::EndCall { id } => self.end_call(id).await,
            ControlOrder::Sets => self.sets(),
            ControlOrder::Set { name, beginning, from, most } => {
                self.set(&name, beginning, from, most.clamp(1, MOST)).await
            }
            ControlOrder::Search { name, key } => self.search(&name, &key),
            ControlOrder::ReloadSets { name } => self.reload_sets(name).await,
            ControlOrder::Limits { name, key, most } => self.limits(name, key, most.min(MOST)).await,
            ControlOrder::Caches => self.list_caches(),
            ControlOrder::CachedUser { user } => self.cached_user(user).await,
            ControlOrder::DropSubscribers { user } => self.drop_subscribers(user).await,
            ControlOrder::CacheEntry { cache, key } => self.cache_entry(cache, key).await,
            ControlOrder::DropEntry { cache, key } => self.drop_entry(cache, key).await,
            ControlOrder::Accounting => self.accounting(),
            ControlOrder::FlushAccounting => self.try_accounting(Accounting::flush).await,
            ControlOrder::RetryAccounting => self.try_accounting(Accounting::retry).await,
            ControlOrder::Bans { from, most } => self.bans(from, most.clamp(1, MOST)),
            ControlOrder::Lift { source } => {
                let bans = self.shared.policy().bans.lift(source, clock::now().mono);
                let source = source.map_or_else(|| "all".into(), |source| source.to_string());
                tracing::info!(%source, bans, "bans lifted by command");
                Reply::Done(Done::Lifted { bans })
            }
            ControlOrder::LogLevel { level } => match (self.program.log_level)(level.as_deref()) {
                Ok(level) => Reply::Done(Done::Level { level }),
                Err(reason) => Reply::Refused(reason),
            },
            ControlOrder::Reload { file } => self.reload(file).await,
            ControlOrder::Drain => {
                if let Err(refusal) = self.request(Request::Drain).await {
                    return refusal;
                }
                tracing::info!("shutdown asked for by command");
                Reply::Done(Done::Draining { seconds: self.shared.policy().config.server.drain_timeout.as_secs() })
            }
        }
    }

    async fn reload(&self, file: Option<PathBuf>) -> Reply {
        let (reply, replied) = oneshot::channel();
        match self.request(Request::Reload { file, reply }).await {
            Ok(()) => replied.await.unwrap_or_else(|_| shutting_down()),
            Err(refusal) => refusal,
        }
    }

    /// Passes a request to the program of the server.
    async fn request(&self, request: Request) -> Result<(), Reply> {
        let Some(requests) = &self.program.requests else {
            return Err(Reply::Refused("the program around this server takes no such command".into()));
        };
        requests.send(request).await.map_err(|_| shutting_down())
    }

    fn status(&self) -> Status {
        let handle = self.metrics.handle();
        let counts = |shard| handle.counters(shard);
        let shard = |(shard, of)| {
            let crate::metrics::OfShard { busy, longest_turn, backlog, .. } = of;
            let (busy_seconds, longest_turn_seconds) = (busy as f64 / 1e6, longest_turn as f64 / 1e6);
            ShardStatus {
                shard,
                busy_seconds,
                longest_turn_seconds,
                buckets: counts(shard).buckets,
                backlog_bytes: backlog,
            }
        };
        let listeners = handle.listeners().iter().zip(handle.addresses());
        Status {
            version: env!("CARGO_PKG_VERSION").into(),
            process: std::process::id(),
            state: self.health.unready().unwrap_or_else(|| "ready".into()),
            uptime_seconds: self.metrics.uptime().as_secs(),
            listeners: listeners.map(|(listener, at)| format!("{}:{at}", listener.transport.text())).collect(),
            shards: self.metrics.of_shards().into_iter().map(shard).collect(),
            next_hops_aside: next_hops::aside(&self.shared, clock::now()),
            metrics: named(self.metrics.totals()),
        }
    }

    fn registrations_of(&self, user: &str) -> Page {
        let now = clock::now().mono;
        let mut registrations = Vec::new();
        let aor = canonical_aor(self.shared.policy().identity(), user.as_bytes());
        self.shared.location.lookup(&aor, now, &mut |view| registrations.push(self.registration(&view, now)));
        Page { registrations, next: None }
    }

    /// The bindings are read in slices, so that a look-up of a call, or other work of this thread, waits for one slice
    /// at most.
    async fn page(&self, from: Option<u64>, most: usize) -> Page {
        let now = clock::now().mono;
        let mut registrations = Vec::new();
        let mut place = Some(from.map_or_else(Cursor::default, Cursor::from_number));
        let mut looks = 0;
        while let (Some(cursor), true) = (place, registrations.len() < most) {
            let slice = SLICE.min(most - registrations.len());
            let seen = registrations.len();
            place = self.shared.location.walk(cursor, slice, &mut |view| {
                if view.expires_at() > now {
                    registrations.push(self.registration(&view, now));
                }
            });
            looks += 1;
            if registrations.len() > seen || looks % SLICE == 0 {
                tokio::task::yield_now().await;
            }
        }
        Page { registrations, next: place.map(Cursor::to_number) }
    }

    fn registration(&self, view: &BindingView<'_>, now: u64) -> Registration {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let received = view.received();
        // The table keeps the source only if it differs from the contact.
        let by_listener = || self.metrics.handle().listeners().get(usize::from(view.listener())).map(|l| l.transport);
        let transport = match received {
            Some(received) => Transport::ALL.get(received.transport as usize).copied(),
            None => by_listener(),
        };
        Registration {
            user: text(view.aor()),
            contact: text(view.uri()),
            transport: transport.map(|transport| transport.text().into()),
            received: received.map(|received| received.address),
            expires_in_seconds: view.expires_at().saturating_sub(now).div_ceil(1_000),
            updated_at: view.updated_at(),
            user_agent: text(view.user_agent()),
            instance: text(view.instance()),
            path: text(view.path()),
            q: view.q(),
        }
    }

    fn bans(&self, from: Option<IpAddr>, most: usize) -> Reply {
        let (now, policy) = (clock::now().mono, self.shared.policy());
        let mut listed = policy.bans.list(now, from, most + 1);
        let next = if listed.len() > most { listed.pop().map(|(source, _)| source) } else { None };
        let ban = |(source, until): (_, u64)| Ban { source, seconds_left: until.saturating_sub(now).div_ceil(1_000) };
        Reply::Bans(BanList { bans: listed.into_iter().map(ban).collect(), banned: policy.bans.banned(), next })
    }
}

fn named(samples: impl IntoIterator<Item = Sample>) -> BTreeMap<String, f64> {
    let mut named = BTreeMap::new();
    for Sample { metric, labels, value } in samples {
        let more = metric.by.iter().copied().zip(labels.iter().map(String::as_str));
        let labels: Vec<String> =
            metric.labels.iter().copied().chain(more).map(|(label, text)| format!("{label}=\"{text}\"")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let value = if metric.unit == Unit::Seconds { value as f64 / 1e6 } else { value as f64 };
        named.insert(format!("{}{labels}", metric.name()), value);
    }
    named
}
