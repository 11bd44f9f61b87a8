//! Orders about cached data: subscribers in memory and in the cache before their database, and the `[[cache]]` tables. Values of entries are not
//! shown: they may prove a password.

use super::cache_list::{CacheEntry, CacheList, CacheSummary, CachedUser, KeptAnswer, SubscriberCache};
use super::{Controlled, Done, Reply, shutting_down};
use std::time::Duration;
use strowger_cache::engine::CacheHandle;
use strowger_cache::error::CacheError;
use strowger_cache::gauges::{Gauges, RemoteGauges};
use strowger_cache::request::{CacheAnswer, Promise, Request};
use strowger_cache::waiting::WaitingCache;
use strowger_config::CacheTable;
use strowger_net::clock;
use strowger_store::credential_cache::{Whose, key, read_spelled};
use strowger_store::subscriber::{Asked, Ha1s, Question, SubscriberAnswer};

/// Wait for a cache after its own deadline.
const GRACE: Duration = Duration::from_millis(100);

impl Controlled {
    pub(super) fn list_caches(&self) -> Reply {
        let policy = self.shared.policy();
        let tables = &policy.config.caches;
        let caches = self
            .caches
            .each()
            .filter_map(|(name, engine)| Some(summary(tables.iter().find(|table| table.name == *name)?, engine)));
        let subscribers = self.shared.subscribers.as_ref().map(|subscribers| {
            let gauges = subscribers.gauges();
            let state = match gauges.is_broken {
                false => "works",
                true => "the database does not answer: what is not known fails at once",
            };
            SubscriberCache {
                state: state.into(),
                entries: gauges.entries as u64,
                hits: gauges.hits,
                misses: gauges.misses,
                stale: gauges.stale,
                late: gauges.late,
                failed: gauges.failed + gauges.broken,
                connections: gauges.connections as u64,
                in_flight: gauges.in_flight as u64,
                second: self.second_name(),
            }
        });
        Reply::Caches(CacheList { subscribers, caches: caches.collect() })
    }

    fn second_name(&self) -> Option<String> {
        self.shared.policy().config.store.cache.as_ref().map(|cache| cache.name().to_string())
    }

    pub(super) async fn cached_user(&self, user: String) -> Reply {
        let credentials = self.credential_cache();
        if self.shared.subscribers.is_none() && credentials.is_none() {
            return no_subscribers();
        }
        let Some(questions) = self.questions(&user) else { return no_user(&user) };
        let now = clock::now().mono;
        let in_memory = self.shared.subscribers.iter().flat_map(|subscribers| {
            questions.iter().filter_map(|asked| {
                let (answer, fresh) = subscribers.kept(asked.question(), now)?;
                Some(kept("memory", asked, &answer, fresh, None))
            })
        });
        let mut found = CachedUser { kept: in_memory.collect(), user, error: None };
        if let Some(credentials) = credentials {
            let asked = questions.clone();
            match tokio::task::spawn_blocking(move || credentials.of(&asked)).await {
                Ok(Ok(held)) => found.kept.extend(held),
                Ok(Err(error)) => found.error = Some(error),
                Err(_) => return shutting_down(),
            }
        }
        if let (Some(second), Some(name)) = (self.second.clone(), self.second_name()) {
            let of_second = name.clone();
            let held = move || -> Result<Vec<KeptAnswer>, CacheError> {
                let mut all = Vec::new();
                for asked in &questions {
                    all.extend(second.held(asked)?.map(|(answer, at)| kept(&name, asked, &answer, true, Some(at))));
                }
                Ok(all)
            };
            match tokio::task::spawn_blocking(held).await {
                Ok(Ok(held)) => found.kept.extend(held),
                Ok(Err(error)) => found.error = Some(silent(&of_second, error)),
                Err(_) => return shutting_down(),
            }
        }
        Reply::CachedUser(found)
    }

    pub(super) async fn drop_subscribers(&self, user: Option<String>) -> Reply {
        let (subscribers, credentials) = (self.shared.subscribers.clone(), self.credential_cache());
        if subscribers.is_none() && credentials.is_none() {
            return no_subscribers();
        }
        let questions = match &user {
            None => None,
            Some(user) => match self.questions(user) {
                Some(questions) => Some(questions),
                None => return no_user(user),
            },
        };
        let (second, name) = (self.second.clone(), self.second_name().unwrap_or_default());
        // The cache before the database is cleared first: its answers must not return into memory.
        let drop = move || match questions {
            Some(questions) => {
                let voided = second.map_or(Ok(()), |second| second.void(&questions));
                let answers = subscribers.map_or(0, |subscribers| subscribers.void(&questions));
                // The credentials are removed last: until then a REGISTER is verified by the database.
                let removed = credentials.map_or(Ok(0), |credentials| credentials.remove(&questions));
                // A failure of one cache does not end the work on the other caches.
                voided.map_err(|error| silent(&name, error)).and(removed).map(|removed| answers + removed)
            }
            // The credentials of registered users stay, because nothing else could verify these users.
            None => {
                if let Some(second) = second {
                    second.forget();
                }
                let answers = subscribers.as_ref().map_or(0, |subscribers| subscribers.gauges().entries);
                if let Some(subscribers) = subscribers {
                    subscribers.forget();
                }
                Ok(answers)
            }
        };
        match tokio::task::spawn_blocking(drop).await {
            Ok(Err(error)) => {
                Reply::Unavailable(format!("{error}: what it holds of {} may be there", user.unwrap_or_default()))
            }
            Ok(Ok(answers)) => {
                let user = user.unwrap_or_else(|| "all".into());
                tracing::info!(user, answers, "what caches hold of subscribers dropped by command");
                Reply::Done(Done::Dropped { answers })
            }
            Err(_) => shutting_down(),
        }
    }

    /// Returns the cache of the credentials of registered users, if there is one.
    fn credential_cache(&self) -> Option<Credentials> {
        let policy = self.shared.policy();
        let name = policy.config.auth.credential_cache.as_ref()?.name();
        let (cache, most) = self.caches.waiting(&policy.config, name)?;
        Some(Credentials { name: name.to_string(), cache, most })
    }

    pub(super) async fn cache_entry(&self, cache: String, key: String) -> Reply {
        match self.ask_cache(&cache, &key, |key| Request::Fetch { key }).await {
            Ok((CacheAnswer::Found, value_bytes)) => Reply::CacheEntry(CacheEntry { cache, key, value_bytes }),
            Ok(_) => Reply::Refused(format!("the cache {cache} has no entry with the key {key:?}")),
            Err(refusal) => refusal,
        }
    }

    pub(super) async fn drop_entry(&self, cache: String, key: String) -> Reply {
        match self.ask_cache(&cache, &key, |key| Request::Remove { key }).await {
            Ok((answer, _)) => {
                let was_there = answer == CacheAnswer::Removed;
                tracing::info!(cache, key, was_there, "entry of a cache dropped by command");
                Reply::Done(Done::Removed { was_there })
            }
            Err(refusal) => refusal,
        }
    }

    /// Asks a cache. Returns its answer and the bytes of the value.
    async fn ask_cache(
        &self,
        name: &str,
        key: &str,
        request: impl Fn(&[u8]) -> Request<'_> + Send + 'static,
    ) -> Result<(CacheAnswer, usize), Reply> {
        let policy = self.shared.policy();
        let table = policy.config.caches.iter().find(|table| table.name.as_str() == name);
        let engine = self.caches.each().find(|(own, _)| own.as_str() == name).map(|(_, engine)| engine.clone());
        let (Some(engine), Some(table)) = (engine, table) else {
            return Err(Reply::Refused(format!("no [[cache]] of the configuration has the name {name}")));
        };
        let (wait, key) = (table.timeout + GRACE, key.as_bytes().to_vec());
        let ask = move || {
            let mut cache = WaitingCache::new(engine);
            let outcome = cache.ask_one(&request(&key), clock::now().mono, wait);
            outcome.result.map(|answer| (answer, outcome.value.len()))
        };
        match tokio::task::spawn_blocking(ask).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(Reply::Unavailable(silent(name, error))),
            Err(_) => Err(shutting_down()),
        }
    }

    /// Returns the questions about a user, including those of phones that authenticate with the whole address as user
    /// name.
    fn questions(&self, user: &str) -> Option<Vec<Asked>> {
        let (name, domain) = user.rsplit_once('@').filter(|(name, domain)| !name.is_empty() && !domain.is_empty())?;
        let (policy, domain) = (self.shared.policy(), domain.to_ascii_lowercase());
        let domain = policy.identity().canonical_domain(domain.as_bytes());
        let domain = std::str::from_utf8(domain).ok()?.to_owned();
        let realm = policy.config.realm_of(&domain).as_bytes();
        let address = format!("{name}@{domain}");
        let [by_name, by_address] =
            [name, &address].map(|username| Asked::from(Question::Credential { username: username.as_bytes(), realm }));
        let exists = Question::User { username: name.as_bytes(), domain: domain.as_bytes() };
        Some(vec![by_name, by_address, exists.into()])
    }
}

/// Cache of the credentials of registered users.
struct Credentials {
    name: String,
    cache: WaitingCache,
    /// Longest wait for it.
    most: Duration,
}

/// Answer of that cache about a user name for authentication.
struct Held<'a> {
    asked: &'a Asked,
    whose: Whose<'a>,
    answer: CacheAnswer,
    value: Box<[u8]>,
}

impl Credentials {
    /// Sends a request about each user name with which a phone may have authenticated. Returns the answers.
    fn ask<'a>(
        mut self,
        questions: &'a [Asked],
        request: impl Fn(&[u8]) -> Request<'_>,
    ) -> Result<Vec<Held<'a>>, String> {
        let mut all = Vec::new();
        for asked in questions {
            let Question::Credential { username, realm } = asked.question() else { continue };
            let whose = Whose { username, realm };
            let key = key(whose);
            let mut outcomes = self.cache.ask(&[request(&key)], Promise::Kept, clock::now().mono, self.most);
            let outcome = outcomes.pop().expect("a request has an outcome");
            let answer = outcome.result.map_err(|error| silent(&self.name, error))?;
            all.push(Held { asked, whose, answer, value: outcome.value });
        }
        Ok(all)
    }

    fn of(self, questions: &[Asked]) -> Result<Vec<KeptAnswer>, String> {
        let place = self.name.clone();
        let answers = self.ask(questions, |key| Request::Fetch { key })?;
        let registered = |held: &Held<'_>| {
            let (_, credential) = read_spelled(&held.value, held.whose)?;
            let shown = kept(&place, held.asked, &SubscriberAnswer::Exists, true, None);
            Some(KeptAnswer { question: "registered".into(), algorithms: algorithms(&credential.ha1), ..shown })
        };
        Ok(answers.iter().filter_map(registered).collect())
    }

    /// Removes the credentials for these questions. Returns the number of removed credentials.
    fn remove(self, questions: &[Asked]) -> Result<usize, String> {
        let answers = self.ask(questions, |key| Request::Remove { key })?;
        Ok(answers.iter().filter(|held| held.answer == CacheAnswer::Removed).count())
    }
}

fn silent(cache: &str, error: CacheError) -> String {
    match error {
        CacheError::Denied => format!("the cache {cache} refuses: the log has its reason"),
        error => format!("the cache {cache} does not answer: {error}"),
    }
}

fn algorithms(ha1: &Ha1s) -> Vec<String> {
    ha1.iter().map(|(algorithm, _)| algorithm.into()).collect()
}

fn no_subscribers() -> Reply {
    Reply::Refused("this server knows no subscribers: store.database is \"memory\"".into())
}

fn no_user(user: &str) -> Reply {
    Reply::Refused(format!("{user:?} is no user such as alice@example.org"))
}

fn kept(place: &str, asked: &Asked, answer: &SubscriberAnswer, fresh: bool, read_at: Option<u64>) -> KeptAnswer {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (question, name, within) = match asked.question() {
        Question::Credential { username, realm } => ("credential", text(username), text(realm)),
        Question::User { username, domain } => ("user", text(username), text(domain)),
    };
    let algorithms = match answer {
        SubscriberAnswer::Credential(credential) => algorithms(&credential.ha1),
        SubscriberAnswer::Exists | SubscriberAnswer::Absent => Vec::new(),
    };
    let exists = *answer != SubscriberAnswer::Absent;
    KeptAnswer { place: place.into(), question: question.into(), name, within, exists, algorithms, fresh, read_at }
}

fn summary(table: &CacheTable, engine: &CacheHandle) -> CacheSummary {
    let (all, remote) = (engine.gauges(), engine.remote_gauges());
    let Gauges { hits, misses, stores, evictions, refused, .. } = all;
    let RemoteGauges { late, failed, connections, in_flight, is_down, silent, is_denied, .. } = remote;
    let local = matches!(engine, CacheHandle::Local(_)).then_some(all);
    CacheSummary {
        name: table.name.to_string(),
        engine: table.engine.word().into(),
        state: match engine {
            CacheHandle::Local(cache) if cache.log_gauges().is_some_and(|log| log.failing > 0) => {
                "its folder is not written: entries do not outlive the process"
            }
            CacheHandle::Remote(_) if is_down => "no server is reached: requests fail at once",
            CacheHandle::Remote(_) if silent > 0 && table.servers.len() > 1 => {
                "some of its servers do not answer: their requests fail"
            }
            CacheHandle::Remote(_) if silent > 0 => "its server does not answer: requests fail",
            CacheHandle::Remote(_) if is_denied => "a server refuses requests: the log has its reason",
            _ => "works",
        }
        .into(),
        servers: table.servers.iter().map(ToString::to_string).collect(),
        entries: local.map(|gauges| gauges.entries),
        memory_bytes: local.map(|gauges| gauges.bytes),
        most_bytes: local.map(|gauges| gauges.bound),
        hits,
        misses,
        stores,
        evictions,
        errors: refused + late + failed,
        connections,
        in_flight,
    }
}
