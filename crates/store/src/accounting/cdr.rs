//! Rows and their columns. One table defines them: the formats and the SQL are generated from it.

use super::media_quality::{MEDIA, PartyMedia};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Row of accounting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "each row is in a box of its own")]
pub enum Row {
    /// Call.
    Cdr(Cdr),
    /// Event in a call.
    Event(Event),
}

impl Row {
    /// Encodes rows for [`Row::read_all`].
    pub fn write_all(rows: &[Box<Self>]) -> Vec<u8> {
        serde_json::to_vec(rows).expect("a row is texts and numbers")
    }

    /// Decodes rows. Returns `None` if the bytes are no rows.
    pub fn read_all(bytes: &[u8]) -> Option<Vec<Box<Self>>> {
        serde_json::from_slice(bytes).ok()
    }
}

impl crate::group::Row for Box<Row> {}

/// Ended or failed call: the columns are the same. Times are milliseconds since 1970, UTC. Texts of peers may be empty.
///
/// `setup <= ring <= answer <= end`, as far as they are present.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cdr {
    /// Unique identity of this call: a table refuses it twice.
    pub identity: String,
    /// Call-ID.
    pub call_id: String,
    /// Time of the call's INVITE.
    pub setup: u64,
    /// Time when the first callee rings.
    pub ring: Option<u64>,
    /// Time when the first callee answers.
    pub answer: Option<u64>,
    /// Time when its last dialog ends, or its INVITE fails; `None`: unknown.
    pub end: Option<u64>,
    /// URI of From.
    pub caller: String,
    /// Request-URI of its INVITE, after the rules.
    pub callee: String,
    /// Name of the authenticated user.
    pub user: String,
    /// Account set by the rules; empty: none.
    pub account: String,
    /// Source of its INVITE: address and port.
    pub source: String,
    /// Transport of its INVITE: `udp`, `tcp`, `tls`, `ws`, `wss`.
    pub transport: String,
    /// Next hop that answered, or that failed last: address and port.
    pub gateway: String,
    /// Next hops that were tried.
    pub attempts: u32,
    /// `answered`, `cancelled`, `missed`, `failed`, or `unfinished` for a call that was still unanswered at the end of
    /// the process.
    pub outcome: String,
    /// Last SIP status sent to the caller; 0: none.
    pub status: u16,
    /// Cause of its end by Q.850; 0: unknown.
    pub cause: u16,
    /// `caller`, `callee`, `lifetime`, `session timer`, `operator`, `server`, `shutdown`; empty: unknown.
    pub ended_by: String,
    /// Encodings in the answer of the callee, separated by commas.
    pub codecs: String,
    /// Call-ID of the call that this server has made to the callee; empty: the parties have one dialog.
    pub far_call_id: String,
    /// Additional fields from the settings: name and value.
    pub fields: Vec<(String, String)>,
    /// Quality of the media of caller and callee, as far as the media pass this server.
    pub media: PartyMedia,
}

/// Event in a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Event {
    /// Unique identity of this event.
    pub identity: String,
    /// [`Cdr::identity`] of its call.
    pub call_identity: String,
    /// `invite` (answered), `bye`, `missed` or `failed`.
    pub event: String,
    /// Time, in milliseconds since 1970, UTC.
    pub at: u64,
    /// See [`Cdr::setup`]; the other fields of equal names have the same meaning, too.
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
    /// Originator: `caller` or `callee`; empty: neither.
    pub by: String,
    /// Status of the response to the INVITE or BYE, even if it failed.
    pub status: u16,
    /// See [`Cdr`].
    pub cause: u16,
    /// See [`Cdr`].
    pub fields: Vec<(String, String)>,
}

impl Row {
    /// Returns the identity, by which a row is written once.
    pub fn identity(&self) -> &str {
        match self {
            Self::Cdr(cdr) => &cdr.identity,
            Self::Event(event) => &event.identity,
        }
    }

    /// Returns the row's time, in milliseconds since 1970, UTC. For a call this is its end if known, and otherwise its
    /// setup.
    pub fn at(&self) -> u64 {
        match self {
            Self::Cdr(cdr) => cdr.end.unwrap_or(cdr.setup),
            Self::Event(event) => event.at,
        }
    }

    /// Returns the row's table.
    pub const fn table(&self) -> Table {
        match self {
            Self::Cdr(_) => Table::Cdr,
            Self::Event(_) => Table::Events,
        }
    }

    /// Returns the row's values, in the order of the columns of its table.
    pub fn values(&self) -> Vec<Value<'_>> {
        match self {
            Self::Cdr(cdr) => CDR.iter().chain(&MEDIA).map(|column| (column.value)(cdr)).collect(),
            Self::Event(event) => EVENTS.iter().map(|column| (column.value)(event)).collect(),
        }
    }
}

/// Table of rows of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Table of [`Cdr`]s.
    Cdr,
    /// Table of [`Event`]s.
    Events,
}

impl Table {
    /// Both tables.
    pub const ALL: [Self; 2] = [Self::Cdr, Self::Events];

    /// Returns the name of the table, and of its files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cdr => "cdr",
            Self::Events => "events",
        }
    }

    /// Returns name and kind of each column, in order. The first is the identity.
    pub fn columns(self) -> Vec<(&'static str, ValueKind)> {
        match self {
            Self::Cdr => CDR.iter().chain(&MEDIA).map(|column| (column.name, column.kind)).collect(),
            Self::Events => EVENTS.iter().map(|column| (column.name, column.kind)).collect(),
        }
    }

    /// Returns the column that determines the age of a row.
    pub const fn moment(self) -> &'static str {
        match self {
            Self::Cdr => "setup_at",
            Self::Events => "event_at",
        }
    }
}

/// Kind of the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// A number of at most 63 bits.
    Number,
    /// A number, or null.
    MaybeNumber,
    /// Text.
    Text,
    /// Names and values: a JSON object.
    Fields,
}

/// Value of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Null.
    Null,
    /// A number.
    Number(u64),
    /// Text.
    Text(Cow<'a, str>),
    /// Names and values.
    Fields(&'a [(String, String)]),
}

/// Column of a table.
pub(super) struct Column<R: 'static> {
    pub(super) name: &'static str,
    kind: ValueKind,
    value: for<'a> fn(&'a R) -> Value<'a>,
}

pub(super) const fn column<R>(name: &'static str, kind: ValueKind, value: for<'a> fn(&'a R) -> Value<'a>) -> Column<R> {
    Column { name, kind, value }
}

fn text(text: &str) -> Value<'_> {
    Value::Text(Cow::Borrowed(text))
}

pub(super) fn maybe(number: Option<u64>) -> Value<'static> {
    number.map_or(Value::Null, Value::Number)
}

const CDR: [Column<Cdr>; 23] = [
    column("identity", ValueKind::Text, |cdr| text(&cdr.identity)),
    column("call_id", ValueKind::Text, |cdr| text(&cdr.call_id)),
    column("setup_at", ValueKind::Number, |cdr| Value::Number(cdr.setup)),
    column("ring_at", ValueKind::MaybeNumber, |cdr| maybe(cdr.ring)),
    column("answer_at", ValueKind::MaybeNumber, |cdr| maybe(cdr.answer)),
    column("end_at", ValueKind::MaybeNumber, |cdr| maybe(cdr.end)),
    // From the INVITE to the end.
    column("total_ms", ValueKind::MaybeNumber, |cdr| maybe(cdr.end.map(|end| end.saturating_sub(cdr.setup)))),
    // From the answer to the end; 0 without an answer.
    column("duration_ms", ValueKind::MaybeNumber, |cdr| {
        maybe(cdr.end.map(|end| end.saturating_sub(cdr.answer.unwrap_or(end))))
    }),
    column("caller", ValueKind::Text, |cdr| text(&cdr.caller)),
    column("callee", ValueKind::Text, |cdr| text(&cdr.callee)),
    column("auth_user", ValueKind::Text, |cdr| text(&cdr.user)),
    column("account", ValueKind::Text, |cdr| text(&cdr.account)),
    column("source", ValueKind::Text, |cdr| text(&cdr.source)),
    column("transport", ValueKind::Text, |cdr| text(&cdr.transport)),
    column("gateway", ValueKind::Text, |cdr| text(&cdr.gateway)),
    column("attempts", ValueKind::Number, |cdr| Value::Number(cdr.attempts.into())),
    column("outcome", ValueKind::Text, |cdr| text(&cdr.outcome)),
    column("status", ValueKind::Number, |cdr| Value::Number(cdr.status.into())),
    column("cause", ValueKind::Number, |cdr| Value::Number(cdr.cause.into())),
    column("ended_by", ValueKind::Text, |cdr| text(&cdr.ended_by)),
    column("codecs", ValueKind::Text, |cdr| text(&cdr.codecs)),
    column("far_call_id", ValueKind::Text, |cdr| text(&cdr.far_call_id)),
    column("fields", ValueKind::Fields, |cdr| Value::Fields(&cdr.fields)),
];

const EVENTS: [Column<Event>; 16] = [
    column("identity", ValueKind::Text, |event| text(&event.identity)),
    column("call_identity", ValueKind::Text, |event| text(&event.call_identity)),
    column("event", ValueKind::Text, |event| text(&event.event)),
    column("event_at", ValueKind::Number, |event| Value::Number(event.at)),
    column("setup_at", ValueKind::Number, |event| Value::Number(event.setup)),
    column("call_id", ValueKind::Text, |event| text(&event.call_id)),
    column("caller", ValueKind::Text, |event| text(&event.caller)),
    column("callee", ValueKind::Text, |event| text(&event.callee)),
    column("auth_user", ValueKind::Text, |event| text(&event.user)),
    column("account", ValueKind::Text, |event| text(&event.account)),
    column("source", ValueKind::Text, |event| text(&event.source)),
    column("gateway", ValueKind::Text, |event| text(&event.gateway)),
    column("done_by", ValueKind::Text, |event| text(&event.by)),
    column("status", ValueKind::Number, |event| Value::Number(event.status.into())),
    column("cause", ValueKind::Number, |event| Value::Number(event.cause.into())),
    column("fields", ValueKind::Fields, |event| Value::Fields(&event.fields)),
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
                    ValueKind::Number => matches!(value, Value::Number(_)),
                    ValueKind::MaybeNumber => matches!(value, Value::Number(_) | Value::Null),
                    ValueKind::Text => matches!(value, Value::Text(_)),
                    ValueKind::Fields => matches!(value, Value::Fields(_)),
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
