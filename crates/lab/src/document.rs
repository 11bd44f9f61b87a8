//! Shipped documents: scenarios of the generator, as experiments name them.
//!
//! A document is a SIPp scenario with marks that [`text`] fills in. Its data has fields 0 to 3 for each user:
//!
//! | field | content |
//! |---|---|
//! | 0 | name: `userN`, see [`user`] |
//! | 1 | `[authentication username=userN password=secretN]` |
//! | 2 | name of the user that this user calls |
//! | 3 | header line with credentials for the user's next INVITE, by a nonce that the server gave before; only for documents that [send credentials at once](sends_at_once) |
//!
//! | mark | value |
//! |---|---|
//! | `@DOMAIN@` | domain of all users |
//! | `@URI@` | target of a call: `sip:[field2]@DOMAIN` with users, `sip:service@ANSWER` without |
//! | `@ANSWER@` | address and port of the answering side, for the Contact of a registration |
//! | `@HOLD@` | milliseconds between the ACK and the BYE |

use crate::Error;
use crate::system::fill;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use strowger_config::nearest;
use strowger_load::media::stamped_sound;

/// Names and texts of the shipped documents.
pub const SHIPPED: &[(&str, &str)] = &[
    ("answer-at-once", include_str!("../documents/answer-at-once.xml")),
    ("cache-call", include_str!("../documents/cache-call.xml")),
    ("cache-register", include_str!("../documents/cache-register.xml")),
    ("call", include_str!("../documents/call.xml")),
    ("challenge", include_str!("../documents/challenge.xml")),
    ("credentials", include_str!("../documents/credentials.xml")),
    ("media-answer", include_str!("../documents/media-answer.xml")),
    ("media-call", include_str!("../documents/media-call.xml")),
    ("overload-answer", include_str!("../documents/overload-answer.xml")),
    ("overload-cancel", include_str!("../documents/overload-cancel.xml")),
    ("overload-dialog", include_str!("../documents/overload-dialog.xml")),
    ("register", include_str!("../documents/register.xml")),
    ("register-new", include_str!("../documents/register-new.xml")),
    ("register-and-call", include_str!("../documents/register-and-call.xml")),
    ("register-with-password", include_str!("../documents/register-with-password.xml")),
];

/// Domain of all users.
pub const DOMAIN: &str = "stress.example";

/// Answering side without a document of its own: `strowger load uas`, with a short ring.
pub const ANSWER: &str = "answer";

/// File of sound in the folder of documents that play it: G.711, stamped with the time of sending ([`stamped_sound`]).
pub const SOUND: &str = "sound.raw";

/// Document by which users register before the load, with and without a challenge.
pub const REGISTER: &str = "register";

/// Document by which new users register, without a challenge.
pub const NEW: &str = "register-new";

/// Values of the marks of a document.
#[derive(Clone, Copy, Debug)]
pub struct Parties {
    /// Registered users; 0 for none.
    pub users: u32,
    /// Answering side.
    pub answer: SocketAddr,
    /// Time between the answer and the end of a call.
    pub hold: Duration,
}

/// Returns the name and the password of a user; `number` begins at 1.
pub fn user(number: u32) -> (String, String) {
    (format!("user{number}"), format!("secret{number}"))
}

/// Tells whether callers of this document send credentials with their first INVITE, as field 3 of their data.
pub fn sends_at_once(text: &str) -> bool {
    text.contains("[field3]")
}

/// Tells whether a document plays the file [`SOUND`].
pub fn plays_sound(text: &str) -> bool {
    text.contains(SOUND)
}

/// Returns a document without the lines that play the file [`SOUND`], for readers of its messages: a scenario is read together with its files.
pub fn without_sound(text: &str) -> String {
    text.split_inclusive('\n').filter(|line| !plays_sound(line)).collect()
}

/// Writes a document, and the file [`SOUND`] into its folder if the document plays it.
///
/// # Errors
/// The folder of the document cannot be written.
pub fn write(file: &Path, text: &str) -> Result<(), Error> {
    if plays_sound(text) {
        let sound = file.with_file_name(SOUND);
        std::fs::write(&sound, stamped_sound()).map_err(Error::file(&sound))?;
    }
    std::fs::write(file, text).map_err(Error::file(file))
}

/// Tells whether callers of a shipped document register, and make no call.
pub fn only_registers(name: &str) -> bool {
    SHIPPED.iter().any(|(shipped, text)| *shipped == name && !text.contains("INVITE"))
}

/// Returns the text of a document with its marks filled in; `name` is a shipped document or a path.
///
/// # Errors
/// There is no such document, or it has a mark without a value.
pub fn text(name: &str, parties: &Parties) -> Result<String, Error> {
    let text = match SHIPPED.iter().find(|(shipped, _)| *shipped == name) {
        Some((_, text)) => (*text).to_owned(),
        None => own(name)?,
    };
    let Parties { users, answer, hold } = parties;
    // The bracket of an IPv6 address is no keyword.
    let answer = answer.to_string().replace('[', "\\x5b");
    let uri = match users {
        0 => format!("sip:service@{answer}"),
        _ => format!("sip:[field2]@{DOMAIN}"),
    };
    let values =
        [("DOMAIN", DOMAIN.to_owned()), ("URI", uri), ("ANSWER", answer), ("HOLD", hold.as_millis().to_string())];
    fill(&text, &values).map_err(|error| match error {
        Error::Unexpected { reason, .. } => Error::Unexpected {
            what: format!("document {name}"),
            reason: format!("{reason}: the marks are @DOMAIN@, @URI@, @ANSWER@ and @HOLD@"),
        },
        other => other,
    })
}

/// Reads the text of a user's document.
fn own(name: &str) -> Result<String, Error> {
    let path = Path::new(name);
    if path.exists() {
        return std::fs::read_to_string(path).map_err(Error::file(path));
    }
    let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
    let cure = match nearest(name, names.iter().copied()) {
        Some(near) => format!("write {near}"),
        None => format!("write one of {}, or the path of a file", names.join(", ")),
    };
    Err(Error::Unexpected { what: format!("document {name}"), reason: format!("there is none: {cure}") })
}
