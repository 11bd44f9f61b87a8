//! State in bytes: a record that one shard, process or run leaves to another.
//!
//! A record begins with the version of its format. The names of the listeners and peers follow, because each process
//! has its own numbers for them. Then follow the fields of the record in their order, without names, as postcard writes
//! them. So each change of a recorded type changes the format, and MUST change [`VERSION`]. Moments are stored as
//! remaining milliseconds.

use crate::{Arrival, ListenerId, PeerName, Target};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::hash::Hash;
use std::num::NonZeroU32;

/// Version of the format, the only one written and read. Bump on every change.
pub const VERSION: u8 = 19;

/// Type that a record can hold.
pub trait Recorded: Serialize + DeserializeOwned {
    /// Visits every number that has a meaning in its process only.
    fn numbers(&mut self, show: &mut dyn FnMut(Number<'_>));
}

/// Number of one process.
#[derive(Debug)]
pub enum Number<'a> {
    /// Position in the list of listeners of this process's configuration.
    Listener(&'a mut ListenerId),
    /// Number of a name that a peer must prove.
    Peer(&'a mut PeerName),
}

/// Names of the numbers of this process.
pub trait Names {
    /// Returns the name by which another process finds the listener.
    fn listener(&self, number: ListenerId) -> String;

    /// Returns the name that a peer must prove; for a peer that was forgotten, a name that no peer can prove.
    fn peer(&self, number: PeerName) -> String;

    /// Returns the listener of this name, if there is one.
    fn listener_called(&self, name: &str) -> Option<ListenerId>;

    /// Returns the number of this name in this process, and assigns a number if the name has none.
    fn peer_called(&self, name: &str) -> PeerName;
}

/// Reason why bytes are no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// Format of another version of this program.
    Version(u8),
    /// Truncated, or not from [`write()`].
    Malformed,
    /// This process lacks the listener of that name.
    NoListener(String),
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Version(version) => write!(f, "a record of version {version}, not {VERSION}"),
            Self::Malformed => f.write_str("not a whole record"),
            Self::NoListener(name) => write!(f, "a record of the listener {name:?}, which there is not"),
        }
    }
}

impl std::error::Error for Unreadable {}

/// Names of listeners and peers in a record, indexed by their numbers there.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Table {
    listeners: Vec<String>,
    peers: Vec<String>,
}

/// Writes the record as bytes.
pub fn write(mut record: impl Recorded, names: &impl Names) -> Vec<u8> {
    let mut table = Table::default();
    let (mut listeners, mut peers) = (HashMap::new(), HashMap::new());
    record.numbers(&mut |number| match number {
        Number::Listener(id) => {
            let place = place(&mut listeners, *id, &mut table.listeners, || names.listener(*id));
            id.0 = u16::try_from(place).expect("there are no more places than numbers of listeners");
        }
        Number::Peer(name) => {
            let place = place(&mut peers, *name, &mut table.peers, || names.peer(*name));
            name.0 = NonZeroU32::MIN.saturating_add(place);
        }
    });
    postcard::to_extend(&(table, record), vec![VERSION])
        .expect("a vector takes all, and every sequence knows its length")
}

/// Returns the position of the name of a number in the table.
fn place<N: Hash + Eq>(
    known: &mut HashMap<N, u32>,
    number: N,
    table: &mut Vec<String>,
    name: impl Fn() -> String,
) -> u32 {
    *known.entry(number).or_insert_with(|| {
        table.push(name());
        table.len() as u32 - 1
    })
}

/// Reads a record of [`write()`], with the numbers of this process.
///
/// # Errors
/// The bytes are no record of this version, or their listener is missing here.
pub fn read<R: Recorded>(bytes: &[u8], names: &impl Names) -> Result<R, Unreadable> {
    let (&version, bytes) = bytes.split_first().ok_or(Unreadable::Malformed)?;
    if version != VERSION {
        return Err(Unreadable::Version(version));
    }
    let ((table, mut record), rest): ((Table, R), _) =
        postcard::take_from_bytes(bytes).map_err(|_| Unreadable::Malformed)?;
    let listener = |name: String| names.listener_called(&name).ok_or(Unreadable::NoListener(name));
    let listeners: Vec<ListenerId> = table.listeners.into_iter().map(listener).collect::<Result<_, _>>()?;
    let peers: Vec<PeerName> = table.peers.iter().map(|name| names.peer_called(name)).collect();
    let mut is_whole = rest.is_empty();
    record.numbers(&mut |number| {
        let known = match number {
            Number::Listener(id) => listeners.get(usize::from(id.0)).map(|known| *id = *known),
            Number::Peer(name) => peers.get(name.0.get() as usize - 1).map(|known| *name = *known),
        };
        is_whole &= known.is_some();
    });
    is_whole.then_some(record).ok_or(Unreadable::Malformed)
}

impl<R: Recorded> Recorded for Vec<R> {
    fn numbers(&mut self, show: &mut dyn FnMut(Number<'_>)) {
        self.iter_mut().for_each(|record| record.numbers(show));
    }
}

impl<A: Recorded, B: Recorded> Recorded for (A, B) {
    fn numbers(&mut self, show: &mut dyn FnMut(Number<'_>)) {
        self.0.numbers(show);
        self.1.numbers(show);
    }
}

impl Recorded for Arrival {
    fn numbers(&mut self, show: &mut dyn FnMut(Number<'_>)) {
        show(Number::Listener(&mut self.listener));
    }
}

impl Recorded for Target {
    fn numbers(&mut self, show: &mut dyn FnMut(Number<'_>)) {
        show(Number::Listener(&mut self.listener));
        self.name.iter_mut().for_each(|name| show(Number::Peer(name)));
    }
}

/// Socket addresses with the scope of link-local ones, which serde leaves out.
pub(crate) mod address {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::net::{SocketAddr, SocketAddrV6};

    pub(crate) fn serialize<S: Serializer>(address: &SocketAddr, to: S) -> Result<S::Ok, S::Error> {
        let scope = match address {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(address) => address.scope_id(),
        };
        (address, scope).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
        let (address, scope): (SocketAddr, u32) = Deserialize::deserialize(from)?;
        Ok(match address {
            SocketAddr::V6(address) => SocketAddrV6::new(*address.ip(), address.port(), 0, scope).into(),
            address => address,
        })
    }
}

/// Names of header fields as text, for `#[serde(with)]`.
pub mod header_names {
    use serde::{Deserialize, Deserializer, Serializer};
    use strowger_message::Name;

    /// # Errors
    /// Errors of the serializer.
    pub fn serialize<S: Serializer>(names: &[Name], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(names.iter().map(|name| name.text()))
    }

    /// # Errors
    /// No list of texts.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Name>, D::Error> {
        let names = Vec::<String>::deserialize(from)?;
        Ok(names.iter().map(|name| Name::of(name.as_bytes())).collect())
    }
}
