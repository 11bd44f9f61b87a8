//! The rows and their columns. One table says each: the forms and the SQL are made from it.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Row {
    /// A call.
    Cdr(Cdr),
    /// What happened in one.
    Event(Event),
}

impl Row {
    /// Rows in bytes, for [`Row::read_all`].
    pub fn write_all(rows: &[Box<Self>]) -> Vec<u8> {
        serde_json::to_vec(rows).expect("a row is texts and numbers")
    }

    /// None: the bytes are no rows.
    pub fn read_all(bytes: &[u8]) -> Option<Vec<Box<Self>>> {
        serde_json::from_slice(bytes).ok()
    }
}

impl crate::group::Row for Box<Row> {}

/// A call that has ended, or came to nothing: the columns are the same. Moments are milliseconds since 1970, UTC. Texts of peers may be empty.
///
/// `setup <= ring <= answer <= end`, as far as they are there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cdr {
    /// Of this call alone: a table refuses it twice.
    pub identity: String,
    /// Call-ID.
    pub call_id: String,
    /// Its INVITE.
    pub setup: u64,
    /// The first callee rings.
    pub ring: Option<u64>,
    /// The first callee answers.
    pub answer: Option<u64>,
    /// Its last dialog ends, or its INVITE fails; none: the server does not know.
    pub end: Option<u64>,
    /// The URI of From.
    pub caller: String,
    /// The Request-URI of its INVITE, as rules have left it.
    pub callee: String,
    /// The name of the user that has shown its password.
    pub user: String,
    /// What the rules account it as; empty: none says.
    pub account: String,
    /// Where its INVITE came from: address and port.
    pub source: String,
    /// By which its INVITE came: `udp`, `tcp`, `tls`, `ws`, `wss`.
    pub transport: String,
    /// The next hop that answered, or that failed last: address and port.
    pub gateway: String,
    /// Next hops that were tried.
    pub attempts: u32,
    /// `answered`, `cancelled`, `missed`, `failed` or, of a call that the end of the process cut off before its answer, `unfinished`.
    pub outcome: String,
    /// The SIP status that the caller got last; 0: none.
    pub status: u16,
    /// Why it ended, by Q.850; 0: not known.
    pub cause: u16,
    /// `caller`, `callee`, `lifetime`, `session timer`, `operator`, `server`, `shutdown`; empty: not known.
    pub ended_by: String,
    /// Encodings that the answer of the callee names, with commas between.
    pub codecs: String,
    /// What the settings ask for besides: name and value.
    pub fields: Vec<(String, String)>,
}

/// What happened in a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Event {
    /// Of this event alone.
    pub identity: String,
    /// [`Cdr::identity`] of its call.
    pub call_identity: String,
    /// `invite`: it was answered; `bye`, `missed`, `failed`.
    pub event: String,
    /// When, in milliseconds since 1970, UTC.
    pub at: u64,
    /// As [`Cdr::setup`], and so the others of its names.
    pub setup: u64,
    /// See [`Cdr`].
    pub call_id: String,
    /// See [`Cdr`].
    pub caller: String,
    /// See [`Cdr`].
    pub callee: String,
    /// See [`Cdr`].
    pub user: String,
    /// See [`Cdr`].
    pub account: String,
    /// See [`Cdr`].
    pub source: String,
    /// See [`Cdr`].
    pub gateway: String,
    /// Who did it: `caller` or `callee`; empty: neither.
    pub by: String,
    /// Of the response to the INVITE, or to the BYE: also where that failed.
    pub status: u16,
    /// See [`Cdr`].
    pub cause: u16,
    /// See [`Cdr`].
    pub fields: Vec<(String, String)>,
}

impl Row {
    /// By which it is known, and written once.
    pub fn identity(&self) -> &str {
        match self {
            Self::Cdr(cdr) => &cdr.identity,
            Self::Event(event) => &event.identity,
        }
    }

    /// When it was made, in milliseconds since 1970, UTC: of a call its end, as far as that is known.
    pub fn at(&self) -> u64 {
        match self {
            Self::Cdr(cdr) => cdr.end.unwrap_or(cdr.setup),
            Self::Event(event) => event.at,
        }
    }

    /// The table that it belongs to.
    pub const fn table(&self) -> Table {
        match self {
            Self::Cdr(_) => Table::Cdr,
            Self::Event(_) => Table::Events,
        }
    }

    /// Its values, in the order of the columns of its table.
    pub fn values(&self) -> Vec<Value<'_>> {
        match self {
            Self::Cdr(cdr) => CDR.iter().map(|column| (column.value)(cdr)).collect(),
            Self::Event(event) => EVENTS.iter().map(|column| (column.value)(event)).collect(),
        }
    }
}

/// Where rows of a kind stand together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Of [`Cdr`]s.
    Cdr,
    /// Of [`Event`]s.
    Events,
}

impl Table {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Cdr, Self::Events];

    /// Of the table, and of its files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cdr => "cdr",
            Self::Events => "events",
        }
    }

    /// Name and kind of each column, in order. The first is the identity.
    pub fn columns(self) -> Vec<(&'static str, Kind)> {
        match self {
            Self::Cdr => CDR.iter().map(|column| (column.name, column.kind)).collect(),
            Self::Events => EVENTS.iter().map(|column| (column.name, column.kind)).collect(),
        }
    }

    /// The column by whose moment rows grow old.
    pub const fn moment(self) -> &'static str {
        match self {
            Self::Cdr => "setup_at",
            Self::Events => "event_at",
        }
    }
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number of at most 63 bits.
    Number,
    /// A number, or nothing.
    MaybeNumber,
    /// Text.
    Text,
    /// Names and values: an object of JSON.
    Fields,
}

/// A value of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Nothing.
    Null,
    /// A number.
    Number(u64),
    /// Text.
    Text(Cow<'a, str>),
    /// Names and values.
    Fields(&'a [(String, String)]),
}

struct Column<R: 'static> {
    name: &'static str,
    kind: Kind,
    value: for<'a> fn(&'a R) -> Value<'a>,
}

const fn column<R>(name: &'static str, kind: Kind, value: for<'a> fn(&'a R) -> Value<'a>) -> Column<R> {
    Column { name, kind, value }
}

fn text(text: &str) -> Value<'_> {
    Value::Text(Cow::Borrowed(text))
}

fn maybe(number: Option<u64>) -> Value<'static> {
    number.map_or(Value::Null, Value::Number)
}

const CDR: [Column<Cdr>; 22] = [
    column("identity", Kind::Text, |cdr| text(&cdr.identity)),
    column("call_id", Kind::Text, |cdr| text(&cdr.call_id)),
    column("setup_at", Kind::Number, |cdr| Value::Number(cdr.setup)),
    column("ring_at", Kind::MaybeNumber, |cdr| maybe(cdr.ring)),
    column("answer_at", Kind::MaybeNumber, |cdr| maybe(cdr.answer)),
    column("end_at", Kind::MaybeNumber, |cdr| maybe(cdr.end)),
    // From the INVITE to the end.
    column("total_ms", Kind::MaybeNumber, |cdr| maybe(cdr.end.map(|end| end.saturating_sub(cdr.setup)))),
    // From the answer to the end; 0 without an answer.
    column("duration_ms", Kind::MaybeNumber, |cdr| {
        maybe(cdr.end.map(|end| end.saturating_sub(cdr.answer.unwrap_or(end))))
    }),
    column("caller", Kind::Text, |cdr| text(&cdr.caller)),
    column("callee", Kind::Text, |cdr| text(&cdr.callee)),
    column("auth_user", Kind::Text, |cdr| text(&cdr.user)),
    column("account", Kind::Text, |cdr| text(&cdr.account)),
    column("source", Kind::Text, |cdr| text(&cdr.source)),
    column("transport", Kind::Text, |cdr| text(&cdr.transport)),
    column("gateway", Kind::Text, |cdr| text(&cdr.gateway)),
    column("attempts", Kind::Number, |cdr| Value::Number(cdr.attempts.into())),
    column("outcome", Kind::Text, |cdr| text(&cdr.outcome)),
    column("status", Kind::Number, |cdr| Value::Number(cdr.status.into())),
    column("cause", Kind::Number, |cdr| Value::Number(cdr.cause.into())),
    column("ended_by", Kind::Text, |cdr| text(&cdr.ended_by)),
    column("codecs", Kind::Text, |cdr| text(&cdr.codecs)),
    column("fields", Kind::Fields, |cdr| Value::Fields(&cdr.fields)),
];

const EVENTS: [Column<Event>; 16] = [
    column("identity", Kind::Text, |event| text(&event.identity)),
    column("call_identity", Kind::Text, |event| text(&event.call_identity)),
    column("event", Kind::Text, |event| text(&event.event)),
    column("event_at", Kind::Number, |event| Value::Number(event.at)),
    column("setup_at", Kind::Number, |event| Value::Number(event.setup)),
    column("call_id", Kind::Text, |event| text(&event.call_id)),
    column("caller", Kind::Text, |event| text(&event.caller)),
    column("callee", Kind::Text, |event| text(&event.callee)),
    column("auth_user", Kind::Text, |event| text(&event.user)),
    column("account", Kind::Text, |event| text(&event.account)),
    column("source", Kind::Text, |event| text(&event.source)),
    column("gateway", Kind::Text, |event| text(&event.gateway)),
    column("done_by", Kind::Text, |event| text(&event.by)),
    column("status", Kind::Number, |event| Value::Number(event.status.into())),
    column("cause", Kind::Number, |event| Value::Number(event.cause.into())),
    column("fields", Kind::Fields, |event| Value::Fields(&event.fields)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_the_columns_of_its_table() {
        for row in [Row::Cdr(Cdr::default()), Row::Event(Event::default())] {
            let (values, columns) = (row.values(), row.table().columns());
            assert_eq!((values.len(), columns[0].0), (columns.len(), "identity"));
            for (value, (name, kind)) in values.iter().zip(&columns) {
                let fits = match kind {
                    Kind::Number => matches!(value, Value::Number(_)),
                    Kind::MaybeNumber => matches!(value, Value::Number(_) | Value::Null),
                    Kind::Text => matches!(value, Value::Text(_)),
                    Kind::Fields => matches!(value, Value::Fields(_)),
                };
                assert!(fits, "{name}: {value:?}");
            }
            assert!(columns.iter().any(|(name, _)| *name == row.table().moment()));
        }
    }

    #[test]
    fn durations_are_those_of_the_moments() {
        let number = |cdr: &Cdr, name: &str| {
            let place = Table::Cdr.columns().iter().position(|(column, _)| *column == name).unwrap();
            match (CDR[place].value)(cdr) {
                Value::Number(number) => Some(number),
                _ => None,
            }
        };
        let failed = Cdr { setup: 1_000, end: Some(1_700), ..Cdr::default() };
        assert_eq!((number(&failed, "total_ms"), number(&failed, "duration_ms")), (Some(700), Some(0)));
        let answered = Cdr { answer: Some(1_200), ..failed };
        assert_eq!(number(&answered, "duration_ms"), Some(500));
        let open = Cdr { end: None, ..answered };
        assert_eq!((number(&open, "total_ms"), number(&open, "duration_ms")), (None, None));
    }
}
