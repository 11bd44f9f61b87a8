//! Checks of caches.

use strowger_cache::servers::Endpoint;

use super::Config;
use super::cache::{CacheEngine, CacheMode, CacheTable};
use super::name::Reference;
use super::reader::Reader;
use super::report::Fault;

/// Notes contradictory settings of caches.
pub(super) fn check(config: &Config, reader: &mut Reader) {
    let named = |cache: &Option<Reference<CacheTable>>, table: &CacheTable| {
        cache.as_ref().is_some_and(|cache| *cache.name() == table.name)
    };
    for (index, table) in config.caches.iter().enumerate() {
        if named(&config.store.cache, table) && named(&config.auth.credential_cache, table) {
            let span = reader.value_of("auth.credential_cache");
            let message = format!(
                "cache '{}' holds answers of the database and the credentials of registered users: answers take room that credentials need",
                table.name
            );
            reader.push(Fault::warning(span, message, "add another [[cache]], and name it in auth.credential_cache"));
        }
        let mut wrong = |key: &str, message: &str, cure: &str| {
            let path = format!("cache[{index}]");
            let span = reader.value_of(&format!("{path}.{key}")).or_else(|| reader.key_of(&path));
            let message = format!("cache '{}' {message}", table.name);
            reader.push(Fault::error(span, message, cure));
        };
        let is_remote = table.engine != CacheEngine::Local;
        let is_single = table.engine == CacheEngine::Redis && table.mode == CacheMode::Single;
        if is_remote && table.servers.is_empty() {
            wrong("servers", "has no servers", "name at least one: servers = [\"127.0.0.1\"]");
        }
        if !is_remote && !table.servers.is_empty() {
            let cure = "set engine = \"memcached\" or \"redis\", or remove `servers`";
            wrong("servers", "is in this process and has servers", cure);
        }
        if is_remote && table.folder.is_some() {
            let cure = "remove `folder`; what outlives a server of the cache is set there";
            wrong("folder", "is in other processes and has a folder", cure);
        }
        if is_single && table.servers.len() > 1 {
            let cure = "set mode = \"cluster\" or \"sentinel\", or keep one server";
            wrong("servers", "has several servers that do not belong together", cure);
        }
        if table.mode != CacheMode::Single && table.engine != CacheEngine::Redis {
            wrong("mode", "is no Redis and has a mode", "set engine = \"redis\", or remove `mode`");
        }
        if table.mode == CacheMode::Sentinel && table.group.is_empty() {
            wrong("group", "has no group", "write the name that the Sentinels watch it by: group = \"mymaster\"");
        }
        let for_sentinels = !table.sentinel_user.is_empty() || table.sentinel_password.is_some();
        if table.mode != CacheMode::Sentinel && for_sentinels {
            let key = if table.sentinel_password.is_some() { "sentinel_password" } else { "sentinel_user" };
            wrong(key, "has no Sentinels and shows them something", "set mode = \"sentinel\", or remove it");
        }
        if table.mode == CacheMode::Cluster && table.database != 0 {
            wrong("database", "is a cluster, which has one database", "remove `database`");
        }
        if !table.user.is_empty() && table.password.is_none() {
            wrong("user", "has a user without a password", "add `password`, or remove `user`");
        }
        if !table.sentinel_user.is_empty() && table.sentinel_password.is_none() {
            let cure = "add `sentinel_password`, or remove `sentinel_user`";
            wrong("sentinel_user", "has a user without a password", cure);
        }
        if table.engine == CacheEngine::Memcached && table.password.is_some() && table.user.is_empty() {
            wrong("password", "has a password without a user", "add `user`, as the file of `memcached -Y` has it");
        }
        let has_space =
            table.user.contains(' ') || table.password.as_ref().is_some_and(|password| password.0.contains(' '));
        if table.engine == CacheEngine::Memcached && has_space {
            wrong(
                "password",
                "is Memcached, which takes no user and no password with a space",
                "give both without spaces",
            );
        }
        if table.tls && table.servers.iter().any(|server| matches!(server, Endpoint::Unix(_))) {
            wrong("tls", "has TLS and a socket of this machine", "remove `tls`");
        }
    }
}

/// Warns of each cache without a password, except those reached by a socket in the file system, whose permissions protect it.
pub(super) fn warn_of_open(config: &Config, reader: &mut Reader) {
    let is_tcp = |server: &Endpoint| matches!(server, Endpoint::Tcp(..));
    for (index, table) in config.caches.iter().enumerate().filter(|(_, table)| table.servers.iter().any(is_tcp)) {
        let (key, cure) = match table.engine {
            _ if table.mode == CacheMode::Sentinel && table.password.is_some() && table.sentinel_password.is_none() => {
                ("sentinel_password", "set `requirepass` of each Sentinel, and sentinel_password here")
            }
            _ if table.password.is_some() => continue,
            CacheEngine::Memcached => ("password", "start Memcached with -Y FILE, and set user and password here"),
            CacheEngine::Redis => ("password", "set `requirepass` of each Redis server, and password here"),
            CacheEngine::Local => continue,
        };
        let path = format!("cache[{index}]");
        let span = reader.value_of(&format!("{path}.servers")).or_else(|| reader.key_of(&path));
        let message = format!(
            "cache '{}' has no {key}: whoever reaches its servers, by any program, can read and change what is in it, the credentials of \
             users among it",
            table.name
        );
        reader.push(Fault::warning(span, message, format!("{cure}; or reach it by a socket in the file system")));
    }
}
