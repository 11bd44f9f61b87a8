//! Table of orders by HTTP: method and path of each order, for the HTTP server and for its description (`openapi.rs`).

use super::{
    AccountingState, BanList, CacheEntry, CacheList, CachedUser, Call, CallList, ControlOrder, Done, Found, LimitList,
    Page, SetList, SetPage, Status,
};
use schemars::{Schema, SchemaGenerator};
use std::fmt::Display;
use std::str::FromStr;

/// A method and path, and its order.
pub(super) struct HttpRoute {
    pub(super) method: &'static str,
    /// Parts in braces are parameters.
    pub(super) path: &'static str,
    /// Summary in one sentence.
    pub(super) summary: &'static str,
    pub(super) parameters: &'static [Parameter],
    /// True: the order names one item, which may not exist.
    pub(super) names_one: bool,
    pub(super) order: fn(&Words) -> Result<ControlOrder, String>,
    /// Schema of the reply.
    pub(super) reply: fn(&mut SchemaGenerator) -> Schema,
}

/// A parameter in the path or the query.
#[derive(Debug)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) kind: ParameterKind,
    pub(super) is_required: bool,
    pub(super) about: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParameterKind {
    Text,
    /// A whole number, 0 or above.
    Number,
}

impl Parameter {
    const fn text(name: &'static str, about: &'static str) -> Self {
        Self { name, kind: ParameterKind::Text, is_required: false, about }
    }

    const fn required(name: &'static str, about: &'static str) -> Self {
        Self { is_required: true, ..Self::text(name, about) }
    }

    const fn number(name: &'static str, about: &'static str) -> Self {
        Self { kind: ParameterKind::Number, ..Self::text(name, about) }
    }

    pub(super) fn is_of_path(&self, path: &str) -> bool {
        path.split('/').any(|part| braced(part) == Some(self.name))
    }
}

const FROM: Parameter = Parameter::number("from", "Begin of the page: `next` of the page before.");
const MOST: Parameter = Parameter::number("most", "Most rows of the page, up to 1000, which is the default.");
const CALL: Parameter = Parameter::required("id", "Id of the call, as in the list of calls.");
const SET: Parameter = Parameter::required("name", "Name of the set.");
const KEYS: Parameter = Parameter::number("most", "Most keys shown of a limit, up to 1000; the default is 10.");
const CACHE: Parameter = Parameter::required("cache", "Name of the cache.");
const KEY: Parameter = Parameter::required("key", "Key of the entry.");
const USER: Parameter = Parameter::required("user", "User, as name@domain.");

/// Rows of a page if the request states none.
const PAGE: usize = 1_000;

/// Keys of a limit if the request states none.
const HIGHEST: usize = 10;

/// All orders by HTTP.
pub(super) const WAYS: &[HttpRoute] = &[
    HttpRoute {
        method: "GET",
        path: "/v1/status",
        summary: "Shows the state of the server: listeners, shards, all counters and gauges.",
        parameters: &[],
        names_one: false,
        order: |_| Ok(ControlOrder::Status),
        reply: |schemas| schemas.subschema_for::<Status>(),
    },
    HttpRoute {
        method: "GET",
        path: "/v1/registrations",
        summary: "Lists registrations, page by page.",
        parameters: &[Parameter::text("user", "Only registrations of this user, as name@domain."), FROM, MOST],
        names_one: false,
        order: |words| {
            let (user, from, most) = (words.text("user"), words.number("from")?, words.most()?);
            Ok(ControlOrder::Registrations { user, from, most })
        },
        reply: |schemas| schemas.subschema_for::<Page>(),
    },
    HttpRoute {
        method: "DELETE",
        path: "/v1/registrations",
        summary: "Ends the registrations and route tokens of a user, or one registration. A phone that may register does so again.",
        parameters: &[
            Parameter::required("user", "User, as name@domain."),
            Parameter::text("contact", "Only the registration with this contact."),
        ],
        names_one: true,
        order: |words| {
            Ok(ControlOrder::RemoveRegistrations { user: words.needed("user")?, contact: words.text("contact") })
        },
        reply: |schemas| schemas.subschema_for::<Done>(),
    },
    HttpRoute {
        method: "GET",
        path: "/v1/calls",
        summary: "Lists tracked calls, page by page.",
        parameters: &[
            Parameter::text("party", "Only calls with this text in the URI of caller or callee."),
            FROM,
            MOST,
        ],
        names_one: false,
        order: |words| {
            Ok(ControlOrder::Calls { party: words.text("party"), from: words.number("from")?, most: words.most()? })
        },
        reply: |schemas| schemas.subschema_for::<CallList>(),
    },
    HttpRoute {
        method: "GET",
        path: "/v1/calls/{id}",
        summary: "Shows a tracked call.",
        parameters: &[CALL],
        names_one: true,
        order: |words| Ok(ControlOrder::Call { id: words.needed("id")? }),
        reply: |schemas| schemas.subschema_for::<Call>(),
    },
    HttpRoute {
        method: "DELETE",
        path: "/v1/calls/{id}",
        summary: "Ends a call: each party that has answered gets a BYE, ringing callees get a CANCEL.",
        parameters: &[CALL],
        names_one: true,
        order: |words| Ok(ControlOrder::EndCall { id: words.needed("id")? }),
        reply: |schemas| schemas.subschema_for::<Done>(),
    },
    HttpRoute {
        method: "GET",
        path: "/v1/sets",
        summary: "Lists the data sets of the rules.",
        parameters: &[],
        names_one: false,
        order: |_| Ok(ControlOrder::Sets),
        reply: |schemas| schemas.subschema_for::<SetList>(),
    },
    HttpRoute {
        method: "GET",
        path: "/v1/sets/{name}",
        summary: "Lists the entries of a data set, ordered by key, page by page.",
        parameters: &[SET, Parameter::text("beginning", "Only entries whose key begins with this text."), FROM, MOST],
        names_one: true,
        order: |words| {
            let (name, beginning) = (words.needed("name")?, words.text("beginning").unwrap_or_default());
            Ok(ControlOrder::Set { name, beginning, from: words.number("from")?, most: words.most()? })
        },
        reply: |schemas| schemas.subschema_for::<SetPage>(),
    },
    HttpRoute {
        method: "GET",
        path: "/v1/sets/{name}/search",
        summary: "Returns the entries of a data set that match a number, a text or an address.",
        parameters: &[SET, Parameter::required("key", "Number, text or address.")],
        names_one: true,
        order: |words| Ok(ControlOrder::Search { name: words.needed("name")?, key: words.needed("key")? }),
        reply: |schemas| schemas.subschema_for::<Found>(),
    },
    HttpRoute {
        method: "POST",
        path: "/v1/sets/{name}/reload",
        summary: "Reads a data set again from its file or database and uses the new data, or returns the faults.",
        parameters: &[SET],
        names_one: true,
        order: |words| Ok(ControlOrder::ReloadSets { name: Some(words.needed("name")?) }),
        reply: |schemas| schemas.subschema_for::<Done>(),
    },
    HttpRoute {
        method: "POST",
        path: "/v1/sets/reload",
        summary: "Reads all data sets again whose entries are outside the configuration, and uses the new data of all, or of none.",
        parameters: &[],
        names_one: false,
        order: |_| Ok(ControlOrder::ReloadSets { name: None }),
        reply: |schemas| schemas.subschema_for::<Done>(),
    },
    HttpRoute {
        method: "GET",
        path: "/v1/limits",
        summary: "Lists the limits of calls, the calls counted now, and the keys with the most calls.",
        parameters: &[KEYS],
        names_one: false,
        order: |words| Ok(ControlOrder::Limits { name: None, key: None, most: words.keys()? }),
        reply: |schemas| schemas.subschema_for::<LimitList>(),
    },
    HttpRoute {
        method: "GET",
        path: "/v1/limits/{name}",
        summary: "Shows the calls counted under a limit, or those of one key.",
        parameters: &[
            Parameter::required("name", "Name of the limit."),
            Parameter::text("key", "Only this key: a user, group, address or URI."),
            KEYS,
        ],
        names_one: true,
        order: |words| {
            let (name, key) = (Some(words.needed("name")?), words.text("key"));
            Ok(ControlOrder::Limits { name, key, most: words.keys()? })
        },
        reply: |schemas| schemas.subschema_for::<LimitList>(),
    },
    HttpRoute {
        method: "GET",
        path: "/v1/caches",
        summary: "Lists the cached subscribers and the caches of the configuration: entries, hits, errors, state.",
        parameters: &[],
        names_one: false,
        order: |_| Ok(ControlOrder::Caches),
        reply: |schemas| schemas.subschema_for::<CacheList>(),
    },
    HttpRoute {
        method: "GET",
        path: "/v1/caches/{cache}/entry",
        summary: "Shows the size of an entry of a cache, or that there is none.",
        parameters: &[CACHE, KEY],
        names_one: true,
        order: |words| Ok(ControlOrder::CacheEntry { cache: words.needed("cache")?, key: words.needed("key")? }),
        reply: |schemas| schemas.subschema_for::<CacheEntry>(),
    },
    HttpRoute {
        method: "DELETE",
        path: "/v1/caches/{cache}/entry",
        summary: "Removes an entry of a cache.",
        parameters: &[CACHE, KEY],
        names_one: true,
        order: |words| Ok(ControlOrder::DropEntry { cache: words.needed("cache")?, key: words.needed("key")? }),
        reply: |schemas| schemas.subschema_for::<Done>(),
    },
    HttpRoute {
        method: "GET",
        path: "/v1/subscribers/{user}",
        summary: "Shows the cached data of a user, without proofs of the password.",
        parameters: &[USER],
        names_one: true,
        order: |words| Ok(ControlOrder::CachedUser { user: words.needed("user")? }),
        reply: |schemas| schemas.subschema_for::<CachedUser>(),
    },
    HttpRoute {
        method: "DELETE",
        path: "/v1/subscribers/{user}",
        summary: "Drops the cached data of a user: the database is queried again.",
        parameters: &[USER],
        names_one: true,
        order: |words| Ok(ControlOrder::DropSubscribers { user: Some(words.needed("user")?) }),
        reply: |schemas| schemas.subschema_for::<Done>(),
    },
    HttpRoute {
        method: "DELETE",
        path: "/v1/subscribers",
        summary: "Drops all cached data of subscribers: the database is queried again.",
        parameters: &[],
        names_one: false,
        order: |_| Ok(ControlOrder::DropSubscribers { user: None }),
        reply: |schemas| schemas.subschema_for::<Done>(),
    },
    HttpRoute {
        method: "GET",
        path: "/v1/accounting",
        summary: "Shows the state of accounting: written, waiting and refused rows.",
        parameters: &[],
        names_one: false,
        order: |_| Ok(ControlOrder::Accounting),
        reply: |schemas| schemas.subschema_for::<AccountingState>(),
    },
    HttpRoute {
        method: "POST",
        path: "/v1/accounting/flush",
        summary: "Tries now to write the rows in the spool of accounting, and returns the state afterwards.",
        parameters: &[],
        names_one: false,
        order: |_| Ok(ControlOrder::FlushAccounting),
        reply: |schemas| schemas.subschema_for::<AccountingState>(),
    },
    HttpRoute {
        method: "POST",
        path: "/v1/accounting/retry",
        summary: "Tries now to write the refused rows in the quarantine of accounting, and returns the state afterwards.",
        parameters: &[],
        names_one: false,
        order: |_| Ok(ControlOrder::RetryAccounting),
        reply: |schemas| schemas.subschema_for::<AccountingState>(),
    },
    HttpRoute {
        method: "GET",
        path: "/v1/bans",
        summary: "Lists banned sources, page by page.",
        parameters: &[Parameter::text("from", FROM.about), MOST],
        names_one: false,
        order: |words| Ok(ControlOrder::Bans { from: words.read("from")?, most: words.most()? }),
        reply: |schemas| schemas.subschema_for::<BanList>(),
    },
    HttpRoute {
        method: "DELETE",
        path: "/v1/bans",
        summary: "Lifts the bans of one source, or of all.",
        parameters: &[Parameter::text("source", "Any address of the source; without it, all sources.")],
        names_one: false,
        order: |words| Ok(ControlOrder::Lift { source: words.read("source")? }),
        reply: |schemas| schemas.subschema_for::<Done>(),
    },
    HttpRoute {
        method: "GET",
        path: "/v1/log-level",
        summary: "Returns the log level.",
        parameters: &[],
        names_one: false,
        order: |_| Ok(ControlOrder::LogLevel { level: None }),
        reply: |schemas| schemas.subschema_for::<Done>(),
    },
    HttpRoute {
        method: "PUT",
        path: "/v1/log-level",
        summary: "Sets the log level until the next start.",
        parameters: &[Parameter::required(
            "level",
            "Level in the syntax of STROWGER_LOG: info, or info,strowger_net=debug.",
        )],
        names_one: false,
        order: |words| Ok(ControlOrder::LogLevel { level: Some(words.needed("level")?) }),
        reply: |schemas| schemas.subschema_for::<Done>(),
    },
    HttpRoute {
        method: "POST",
        path: "/v1/reload",
        summary: "Reads the configuration, its certificates and data sets again and uses them, or returns the faults.",
        parameters: &[],
        names_one: false,
        order: |_| Ok(ControlOrder::Reload { file: None }),
        reply: |schemas| schemas.subschema_for::<Done>(),
    },
    HttpRoute {
        method: "POST",
        path: "/v1/drain",
        summary: "Shuts the server down gracefully: new calls and registrations get 503, calls being set up continue.",
        parameters: &[],
        names_one: false,
        order: |_| Ok(ControlOrder::Drain),
        reply: |schemas| schemas.subschema_for::<Done>(),
    },
];

/// Reason for which a request is no order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Miss {
    /// The path is unknown.
    Path,
    /// The path has only these methods.
    Method(Vec<&'static str>),
    /// A parameter is wrong, missing or unknown, as the sentence describes.
    Parameter(String),
}

/// Returns the route of a request, and the order that the request gives.
pub(super) fn find(method: &str, path: &str, query: Option<&str>) -> Result<(&'static HttpRoute, ControlOrder), Miss> {
    let mut methods = Vec::new();
    for way in WAYS {
        let Some(mut words) = of_path(way.path, path) else { continue };
        if way.method != method {
            methods.push(way.method);
            continue;
        }
        words.read_query(way, query.unwrap_or_default()).map_err(Miss::Parameter)?;
        let order = (way.order)(&words).map_err(Miss::Parameter)?;
        return Ok((way, order));
    }
    Err(if methods.is_empty() { Miss::Path } else { Miss::Method(methods) })
}

/// Returns the parameters in a path if the path matches the form.
fn of_path(form: &'static str, path: &str) -> Option<Words> {
    let (mut words, mut parts) = (Words::default(), path.split('/'));
    for part in form.split('/') {
        let given = parts.next()?;
        match braced(part) {
            Some(name) => words.0.push((name, decoded(given).filter(|text| !text.is_empty())?)),
            None if part == given => (),
            None => return None,
        }
    }
    parts.next().is_none().then_some(words)
}

fn braced(part: &str) -> Option<&str> {
    part.strip_prefix('{')?.strip_suffix('}')
}

/// Values of parameters by name.
#[derive(Debug, Default)]
pub(super) struct Words(Vec<(&'static str, String)>);

impl Words {
    fn read_query(&mut self, way: &HttpRoute, query: &str) -> Result<(), String> {
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let known = way.parameters.iter().find(|known| known.name == name && !known.is_of_path(way.path));
            let Some(known) = known else {
                let names = way.parameters.iter().filter(|known| !known.is_of_path(way.path)).map(|known| known.name);
                let names: Vec<&str> = names.collect();
                let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                return Err(format!("there is no parameter {name:?} here: those that there are: {names}"));
            };
            if self.text(name).is_some() {
                return Err(format!("the parameter {name} stands twice"));
            }
            // In a query a plus is a space.
            let value = decoded(&value.replace('+', " "));
            self.0.push((known.name, value.ok_or_else(|| format!("the parameter {name} is not UTF-8 in %XX"))?));
        }
        Ok(())
    }

    fn text(&self, name: &str) -> Option<String> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
    }

    fn needed(&self, name: &str) -> Result<String, String> {
        self.text(name).filter(|value| !value.is_empty()).ok_or_else(|| format!("the parameter {name} is missing"))
    }

    fn read<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, String> {
        let read = |text: String| text.parse().map_err(|error| format!("the parameter {name} is {text:?}: {error}"));
        self.text(name).map(read).transpose()
    }

    fn number(&self, name: &str) -> Result<Option<u64>, String> {
        self.read(name)
    }

    fn keys(&self) -> Result<usize, String> {
        Ok(self.read("most")?.unwrap_or(HIGHEST))
    }

    fn most(&self) -> Result<usize, String> {
        Ok(self.read("most")?.unwrap_or(PAGE))
    }
}

/// Decodes %XX escapes; `None` if the result is not UTF-8 or an escape is incomplete.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let digit = |octet: u8| char::from(octet).to_digit(16);
        bytes.push((digit(digits[0])? * 16 + digit(digits[1])?) as u8);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests;
