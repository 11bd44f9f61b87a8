//! Backends by their names in experiments (`beside`).

use super::cluster::{self, Cluster};
use super::delay::Delay;
use super::{Backend, MariaDb, memcached, redis, subscribers};
use crate::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use strowger_config::nearest;

/// Delay of `redis-1ms`, both ways together.
const AWAY: Duration = Duration::from_millis(1);

/// Database or cache of a system under test, by its name. It ends when it is dropped.
///
/// | name | program | marks |
/// |---|---|---|
/// | `mariadb` | MariaDB with the tables of Kamailio and 10,000 users | `DATABASE`: its URL |
/// | `mariadb-million` | the same with a million users | `DATABASE` |
/// | `memcached` | Memcached | `CACHE`: HOST:PORT |
/// | `redis` | Redis | `CACHE`, `CACHE_HOST`, `CACHE_PORT` |
/// | `redis-cluster` | three Redis of one cluster | `CACHE_SERVERS`: their addresses as a TOML list |
/// | `redis-1ms` | Redis behind a link with 1 ms of delay in all | as of `redis` |
/// | `none`, `local`, `local-kept` | none | |
#[derive(Debug)]
pub struct Beside {
    program: Program,
}

#[derive(Debug)]
enum Program {
    Database(Box<MariaDb>),
    Memcached(Box<Backend>),
    Redis(Box<Backend>),
    Cluster(Cluster),
    /// The link ends before the cache behind it.
    Away(Delay, Box<Backend>),
}

/// Kind of a backend, for figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BesideKind {
    /// Database. Its figures are `database.*`.
    Database,
    /// Cache. Its figures are `cache.*`.
    Cache,
}

impl Beside {
    /// All names.
    pub const NAMES: &[&'static str] = &[
        "mariadb",
        "mariadb-million",
        "memcached",
        "redis",
        "redis-cluster",
        "redis-1ms",
        "none",
        "local",
        "local-kept",
    ];

    /// Tells whether a backend meets a need: `mariadb-million` is a `mariadb`.
    pub fn meets(name: &str, need: &str) -> bool {
        name.strip_prefix(need).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }

    /// Starts the backend of this name in a folder that only it uses, and makes the folder if it is missing. Returns `None` if the
    /// name needs no program.
    ///
    /// # Errors
    /// The name is unknown, a program is missing or does not start.
    pub fn start(name: &str, folder: &Path) -> Result<Option<Self>, Error> {
        if !Self::NAMES.contains(&name) {
            let cure = match nearest(name, Self::NAMES.iter().copied()) {
                Some(near) => format!("write {near}"),
                None => format!("write one of {}", Self::NAMES.join(", ")),
            };
            return Err(Error::Unexpected {
                what: format!("backend {name}"),
                reason: format!("there is none: {cure}"),
            });
        }
        std::fs::create_dir_all(folder).map_err(Error::file(folder))?;
        let program = match name {
            "mariadb" | "mariadb-million" => {
                let database = MariaDb::start(folder)?;
                let users = if name == "mariadb" { subscribers::USERS } else { subscribers::MANY };
                subscribers::prepare(&database, users)?;
                Program::Database(Box::new(database))
            }
            "memcached" => Program::Memcached(Box::new(memcached(folder)?)),
            "redis" => Program::Redis(Box::new(redis(folder)?)),
            "redis-cluster" => Program::Cluster(Cluster::start(folder)?),
            "redis-1ms" => {
                let cache = redis(folder)?;
                Program::Away(Delay::start(cache.address(), AWAY / 2)?, Box::new(cache))
            }
            _ => return Ok(None),
        };
        Ok(Some(Self { program }))
    }

    /// Returns the kind of the backend.
    pub const fn kind(&self) -> BesideKind {
        match self.program {
            Program::Database(_) => BesideKind::Database,
            Program::Memcached(_) | Program::Redis(_) | Program::Cluster(_) | Program::Away(..) => BesideKind::Cache,
        }
    }

    /// Returns the values of the marks of this backend.
    pub fn values(&self) -> Vec<(&'static str, String)> {
        let cache = |address: SocketAddr| {
            vec![
                ("CACHE", address.to_string()),
                ("CACHE_HOST", address.ip().to_string()),
                ("CACHE_PORT", address.port().to_string()),
            ]
        };
        match &self.program {
            Program::Database(database) => vec![("DATABASE", database.url())],
            Program::Memcached(server) | Program::Redis(server) => cache(server.address()),
            Program::Away(link, _) => cache(link.address()),
            Program::Cluster(cluster) => {
                let servers: Vec<String> =
                    cluster.servers().iter().map(|one| format!("\"{}\"", one.address())).collect();
                vec![("CACHE_SERVERS", format!("[{}]", servers.join(", ")))]
            }
        }
    }

    /// Returns the process ids of the roots of the backend's process trees.
    pub fn ids(&self) -> Vec<u32> {
        match &self.program {
            Program::Database(database) => vec![database.server().id()],
            Program::Memcached(server) | Program::Redis(server) | Program::Away(_, server) => vec![server.id()],
            Program::Cluster(cluster) => cluster.servers().iter().map(Backend::id).collect(),
        }
    }

    /// Returns the number of entries of a cache, or `None` for a database and for a cache that does not report the
    /// number.
    pub fn entries(&self) -> Option<u64> {
        let redis = |server: &Backend| {
            let said = cluster::say(server.address(), "DBSIZE").ok()?;
            said.trim().strip_prefix(':')?.parse().ok()
        };
        match &self.program {
            Program::Database(_) => None,
            Program::Memcached(server) => {
                let said = cluster::say(server.address(), "stats").ok()?;
                said.lines().find_map(|line| line.strip_prefix("STAT curr_items "))?.trim().parse().ok()
            }
            Program::Redis(server) | Program::Away(_, server) => redis(server),
            Program::Cluster(cluster) => cluster.servers().iter().map(redis).sum(),
        }
    }

    /// Returns the database that has the tables of accounting.
    fn database(&self) -> Result<&MariaDb, Error> {
        match &self.program {
            Program::Database(database) => Ok(database),
            _ => Err(Error::Unexpected {
                what: "rows of accounting".into(),
                reason: "a cache has no tables: put mariadb into beside".into(),
            }),
        }
    }

    /// Empties a table of accounting.
    ///
    /// # Errors
    /// The backend is no database, or the database has no such table.
    pub fn truncate(&self, table: &str) -> Result<(), Error> {
        self.database()?.execute(&format!("TRUNCATE TABLE {table}")).map(drop)
    }

    /// Returns the number of rows of a table of accounting.
    ///
    /// # Errors
    /// As [`Self::truncate`].
    pub fn count(&self, table: &str) -> Result<u64, Error> {
        self.database()?.count(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_refused_with_its_cure() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let error = Beside::start("mariabd", folder.path()).expect_err("there is none").to_string();
        assert_eq!(error, "backend mariabd: there is none: write mariadb");
        assert!(Beside::start("local", folder.path()).is_ok_and(|none| none.is_none()));
        assert!(Beside::meets("mariadb-million", "mariadb") && Beside::meets("redis", "redis"));
        assert!(!Beside::meets("mariadb", "mariadb-million") && !Beside::meets("redisx", "redis"));
    }
}
