//! Caches of the configuration: local caches, and clients of remote caches.

use crate::settings;
use anyhow::Context;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;
use strowger_cache::engine::CacheHandle;
use strowger_cache::local::LocalCache;
use strowger_cache::log::Moment;
use strowger_cache::remote::{RemoteCache, RemoteSettings};
use strowger_cache::settings::{LocalSettings, LogSettings};
use strowger_cache::waiting::WaitingCache;
use strowger_config::{CacheTable, Config, Name};
use strowger_net::clock;
use strowger_store::clock::Clock;
use strowger_store::credential_cache::CredentialCache;
use strowger_store::second_level::{SecondLevel, SecondLevelSettings};

/// Bounds of keys and values: names of users are shorter than a message.
const KEY: usize = 1024;
const VALUE: usize = 64 << 10;
/// Wait for a cache after its own deadline.
const GRACE: Duration = Duration::from_millis(100);
/// Interval of sweeps of expired entries, and the number of steps of one sweep.
const SWEEP: (Duration, u32) = (Duration::from_millis(250), 5_000);

/// Caches by name.
#[derive(Default)]
pub(crate) struct Caches {
    engines: Vec<(Name, CacheHandle)>,
}

impl Caches {
    /// Opens all caches. An unreachable server is no error: the client reconnects repeatedly.
    pub(crate) fn open(config: &Config) -> anyhow::Result<Self> {
        let relied = config.auth.credential_cache.as_ref();
        let open = |table: &CacheTable| -> anyhow::Result<(Name, CacheHandle)> {
            let engine = match table.service() {
                None => CacheHandle::Local(Arc::new(local(table)?)),
                Some(service) => {
                    let mut settings = RemoteSettings {
                        name: table.name.to_string(),
                        timeout: table.timeout,
                        is_relied_upon: relied.is_some_and(|cache| *cache.name() == table.name),
                        credentials: table.credentials(),
                        key: KEY,
                        value: VALUE,
                        ..RemoteSettings::new(service, table.servers.clone())
                    };
                    if table.tls {
                        settings.tls = Some(settings::tls_client(config).load()?);
                    }
                    CacheHandle::Remote(Arc::new(RemoteCache::start(settings)?))
                }
            };
            Ok((table.name.clone(), engine))
        };
        let opened = |table: &CacheTable| open(table).with_context(|| format!("cache '{}'", table.name));
        Ok(Self { engines: config.caches.iter().map(opened).collect::<anyhow::Result<_>>()? })
    }

    /// Returns the cache between memory and the database of subscribers, if there is one.
    pub(crate) fn second_level(&self, config: &Config, clock: &Clock) -> Option<SecondLevel> {
        let name = config.store.cache.as_ref()?.name();
        let (_, engine) = self.engines.iter().find(|(own, _)| own == name)?;
        let timeout = config.caches.iter().find(|table| table.name == *name)?.timeout;
        let settings = SecondLevelSettings { found: config.store.cache_lifetime, wait: timeout + GRACE };
        Some(SecondLevel::new(engine.clone(), settings, clock.clone()))
    }

    /// Returns each cache with its name, in the order of the configuration.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&Name, &CacheHandle)> {
        self.engines.iter().map(|(name, engine)| (name, engine))
    }

    /// Returns the cache of the credentials of registered users, if there is one.
    pub(crate) fn credentials(&self, config: &Config) -> Option<CredentialCache> {
        let name = config.auth.credential_cache.as_ref()?.name();
        let (_, engine) = self.engines.iter().find(|(own, _)| own == name)?;
        Some(CredentialCache::new(engine.clone()))
    }

    /// Returns a blocking client of the cache with this name, and its longest wait; `None` if the process began without the cache.
    pub(crate) fn waiting(&self, config: &Config, name: &Name) -> Option<(WaitingCache, Duration)> {
        let (_, engine) = self.engines.iter().find(|(own, _)| own == name)?;
        let timeout = config.caches.iter().find(|table| table.name == *name)?.timeout;
        Some((WaitingCache::new(engine.clone()), timeout + GRACE))
    }

    /// Returns the addresses of all servers to which a cache is or was connected, including those named by a Sentinel
    /// or a cluster.
    pub(crate) fn peers(&self) -> Vec<SocketAddr> {
        let remote = |(_, engine): &(Name, CacheHandle)| match engine {
            CacheHandle::Local(_) => Vec::new(),
            CacheHandle::Remote(cache) => cache.peers(),
        };
        self.engines.iter().flat_map(remote).collect()
    }

    /// Tells whether the configuration has any caches.
    pub(crate) fn are_there(&self) -> bool {
        !self.engines.is_empty()
    }

    /// Removes expired entries of local caches for as long as the returned future is polled. Returns `None` if there
    /// are no local caches.
    pub(crate) fn upkeep(&self) -> Option<impl Future<Output = ()> + Send + 'static> {
        let local = |(_, engine): &(Name, CacheHandle)| match engine {
            CacheHandle::Local(cache) => Some(Arc::downgrade(cache)),
            CacheHandle::Remote(_) => None,
        };
        let caches: Vec<Weak<LocalCache>> = self.engines.iter().filter_map(local).collect();
        (!caches.is_empty()).then_some(sweep(caches))
    }
}

async fn sweep(caches: Vec<Weak<LocalCache>>) {
    let (interval, looks) = SWEEP;
    loop {
        clock::beat(interval).await;
        for cache in &caches {
            if let Some(cache) = cache.upgrade() {
                cache.sweep(clock::now().mono, looks);
            }
        }
    }
}

fn local(table: &CacheTable) -> anyhow::Result<LocalCache> {
    let settings = LocalSettings { bytes: table.memory, key: KEY, value: VALUE, ..LocalSettings::default() };
    let Some(folder) = &table.folder else { return Ok(LocalCache::new(settings)) };
    let now = clock::now();
    let at = Moment { now: now.mono, wall: now.wall };
    let opened = LocalCache::open(settings, LogSettings::new(folder), at);
    let (cache, report) = opened.with_context(|| format!("its folder {}", folder.display()))?;
    tracing::info!(cache = %table.name, folder = %folder.display(), entries = report.entries, "cache loaded");
    Ok(cache)
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_cache::request::{CacheAnswer, Life, Request};
    use strowger_config::Source;

    fn open(text: &str) -> (Caches, WaitingCache) {
        let (config, _) =
            Config::read(Source { text, ..Source::default() }).unwrap_or_else(|report| panic!("{report}"));
        let caches = Caches::open(&config).expect("they can be made");
        let engine = caches.engines[0].1.clone();
        (caches, WaitingCache::new(engine))
    }

    fn ask(cache: &mut WaitingCache, request: Request<'_>) -> CacheAnswer {
        let outcome = cache.ask_one(&request, clock::now().mono, Duration::from_secs(10));
        outcome.result.expect("it answers")
    }

    #[test]
    fn a_local_cache_keeps_to_its_memory() {
        let text = "[[cache]]\nname = \"a\"\nmemory = \"1MiB\"\n";
        let (_caches, mut cache) = open(text);
        for n in 0..20_000_u32 {
            let key = n.to_be_bytes();
            ask(&mut cache, Request::Store { key: &key, value: &[0; 100], life: Life::FOREVER });
        }
        let gauges = cache.engine().gauges();
        assert_eq!(gauges.bound, 1 << 20);
        assert!(gauges.evictions > 0 && gauges.bytes <= gauges.bound && gauges.bytes > 1 << 19, "{gauges:?}");
    }

    #[test]
    fn a_local_cache_with_a_folder_outlives_the_server() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("cache");
        let text = format!("[[cache]]\nname = \"a\"\nfolder = {:?}\n", path.display().to_string());
        for (is_kept, text) in [(true, &*text), (false, "[[cache]]\nname = \"a\"\n")] {
            let (caches, mut cache) = open(text);
            ask(&mut cache, Request::Store { key: b"key", value: b"value", life: Life::ms(60_000) });
            drop((caches, cache));
            let (_caches, mut cache) = open(text);
            let want = if is_kept { CacheAnswer::Found } else { CacheAnswer::Absent };
            assert_eq!(ask(&mut cache, Request::Fetch { key: b"key" }), want);
        }
        assert!(path.is_dir());
    }
}
