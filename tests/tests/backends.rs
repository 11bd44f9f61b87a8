//! Databases and caches of the laboratory: each accepts commands, costs time, and ends with its value.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;
use strowger_lab::backend::{self, MariaDb, PostgreSql, subscribers};
use strowger_tests::program::{MARIADB, MARIADBD, MEMCACHED, POSTGRESQL, REDIS, have, lacking};
use strowger_tests::{together, wait};

/// Sends a line and expects a reply, once the server accepts connections.
fn say(address: SocketAddr, line: &str, wanted: &str) {
    let say = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(line.as_bytes())?;
        let mut answer = vec![0; wanted.len()];
        stream.read_exact(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let mut heard = say();
    let is_right = wait::until(Duration::from_secs(10), || {
        let is_right = heard.as_deref().is_ok_and(|heard| heard == wanted);
        if !is_right {
            heard = say();
        }
        is_right
    });
    assert!(is_right, "{heard:?} for {wanted:?}");
}

fn is_gone(address: SocketAddr) -> bool {
    wait::until(Duration::from_secs(10), || TcpStream::connect(address).is_err())
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn mariadb() {
    let folder = folder();
    let database = MariaDb::start(folder.path()).expect("it starts");
    let before = database.server().usage();
    database.execute("CREATE TABLE t (a INT, b TEXT); INSERT INTO t VALUES (1, 'x'), (2, NULL)").expect("a table");
    assert_eq!(database.execute("SELECT a, b FROM t ORDER BY a").expect("rows"), "1\tx\n2\tNULL\n");
    assert_eq!(database.count("t").expect("a table"), 2);
    assert!(database.server().usage().since(&before).total() > Duration::ZERO);
    let error = database.execute("SELECT nothing").expect_err("there is no such column").to_string();
    assert!(error.contains("Unknown column"), "{error}");
    if !Path::new(subscribers::KAMAILIO_TABLES).is_dir() {
        return lacking("the tables of Kamailio are missing: apt-get install kamailio-mysql-modules");
    }
    subscribers::prepare(&database, subscribers::USERS).expect("tables of Kamailio");
    assert_eq!(database.count("subscriber").expect("a table"), 10_000);
    let ha1 = database.execute("SELECT ha1 FROM subscriber WHERE username = 'user7'").expect("a row");
    // printf user7:stress.example:secret7 | md5sum (RFC 7616 section 3.4.2).
    assert_eq!(ha1.trim(), "7eb8dbe1b0332ba55a25fb3dc9a59501");
    let address = database.server().address();
    drop(database);
    assert!(is_gone(address));
}

fn postgresql() {
    let folder = folder();
    let database = PostgreSql::start(folder.path()).expect("it starts");
    database.execute("CREATE TABLE t (a INT, b TEXT); INSERT INTO t VALUES (1, 'x'), (2, 'y')").expect("a table");
    assert_eq!(database.execute("SELECT a, b FROM t ORDER BY a").expect("rows"), "1\tx\n2\ty\n");
    assert!(database.server().usage().total() > Duration::ZERO);
    let error = database.execute("SELECT nothing").expect_err("there is no such column").to_string();
    assert!(error.contains("does not exist"), "{error}");
    let address = database.server().address();
    drop(database);
    assert!(is_gone(address));
}

fn redis() {
    let folder = folder();
    let cache = backend::redis(folder.path()).expect("it starts");
    say(cache.address(), "SET key value\r\nGET key\r\n", "+OK\r\n$5\r\nvalue\r\n");
    let address = cache.address();
    drop(cache);
    assert!(is_gone(address));
}

fn memcached() {
    let folder = folder();
    let cache = backend::memcached(folder.path()).expect("it starts");
    // A set and a get of the meta protocol.
    say(cache.address(), "ms key 5\r\nvalue\r\nmg key v\r\n", "HD\r\nVA 5\r\nvalue\r\n");
    let address = cache.address();
    drop(cache);
    assert!(is_gone(address));
}

#[test]
fn databases_and_caches_come_and_go() {
    if have(&[MARIADBD, MARIADB, POSTGRESQL, REDIS, MEMCACHED]) {
        together(&[("mariadb", mariadb), ("postgresql", postgresql), ("redis", redis), ("memcached", memcached)]);
    }
}
