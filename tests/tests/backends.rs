//! The databases and caches that the laboratory starts: each takes what it is given, costs time, and ends with its value.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;
use strowger_lab::backend::{MariaDb, Memcached, PostgreSql, Redis};
use strowger_lab::stress;
use strowger_tests::program::{MARIADB, MARIADBD, MEMCACHED, POSTGRESQL, REDIS, have};
use strowger_tests::{together, wait};

/// Sends this line and returns what comes back, up to this many bytes.
fn say(address: SocketAddr, line: &str, wanted: &str) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("not zero");
    stream.write_all(line.as_bytes()).expect("it reads");
    let mut answer = vec![0; wanted.len()];
    stream.read_exact(&mut answer).expect("it answers");
    assert_eq!(String::from_utf8_lossy(&answer), wanted);
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
    let before = database.usage();
    database.execute("CREATE TABLE t (a INT, b TEXT); INSERT INTO t VALUES (1, 'x'), (2, NULL)").expect("a table");
    assert_eq!(database.execute("SELECT a, b FROM t ORDER BY a").expect("rows"), "1\tx\n2\tNULL\n");
    assert_eq!(database.count("t").expect("a table"), 2);
    assert!(database.usage().since(&before).total() > Duration::ZERO);
    let error = database.execute("SELECT nothing").expect_err("there is no such column").to_string();
    assert!(error.contains("Unknown column"), "{error}");
    if Path::new(stress::KAMAILIO_TABLES).is_dir() {
        stress::prepare_database(&database).expect("tables of Kamailio");
        assert_eq!(database.count("subscriber").expect("a table"), 10_000);
        let ha1 = database.execute("SELECT ha1 FROM subscriber WHERE username = 'user7'").expect("a row");
        // MD5 of user7:stress.example:secret7 (RFC 7616 section 3.4.2).
        let expected = database.execute("SELECT MD5('user7:stress.example:secret7')").expect("a row");
        assert_eq!(ha1, expected);
    }
    let address = database.address();
    drop(database);
    assert!(is_gone(address));
}

fn postgresql() {
    let folder = folder();
    let database = PostgreSql::start(folder.path()).expect("it starts");
    database.execute("CREATE TABLE t (a INT, b TEXT); INSERT INTO t VALUES (1, 'x'), (2, 'y')").expect("a table");
    assert_eq!(database.execute("SELECT a, b FROM t ORDER BY a").expect("rows"), "1\tx\n2\ty\n");
    assert!(database.usage().total() > Duration::ZERO);
    let error = database.execute("SELECT nothing").expect_err("there is no such column").to_string();
    assert!(error.contains("does not exist"), "{error}");
    let address = database.address();
    drop(database);
    assert!(is_gone(address));
}

fn redis() {
    let folder = folder();
    let cache = Redis::start(folder.path()).expect("it starts");
    say(cache.address(), "SET key value\r\nGET key\r\n", "+OK\r\n$5\r\nvalue\r\n");
    let address = cache.address();
    drop(cache);
    assert!(is_gone(address));
}

fn memcached() {
    let folder = folder();
    let cache = Memcached::start(folder.path()).expect("it starts");
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
