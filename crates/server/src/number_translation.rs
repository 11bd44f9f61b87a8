//! Edits of the called number or user.

use strowger_config::{UserEdit, is_user_text};
use strowger_message::Uri;
use strowger_message::uri::sip::{escape_user, unescaped};
use strowger_message::uri::tel::dialled;
use strowger_rules::{SetId, Sets};

/// Returns the part that edits may change: the user of a SIP URI, the number of a tel URI.
pub(crate) fn user_part<'a>(uri: &Uri<'a>) -> Option<&'a [u8]> {
    match uri {
        Uri::Sip(sip) => sip.user,
        Uri::Tel(tel) => Some(tel.number),
        _ => None,
    }
}

/// Adds the parts of a further edit that earlier rules have not set. A data set without a value for this user part adds
/// nothing.
pub(crate) fn join(edit: &mut UserEdit, more: &UserEdit, part: &[u8], sets: &Sets) {
    if edit.translate.is_none() {
        edit.translate = more.translate.filter(|set| translated(&as_dialled(part), *set, sets).is_some());
    }
    if edit.strip == 0 {
        edit.strip = more.strip;
    }
    if edit.prepend.is_empty() {
        edit.prepend.clone_from(&more.prepend);
    }
}

/// Returns a user part in the form that rules see: the number, or the text.
fn as_dialled(part: &[u8]) -> Vec<u8> {
    dialled(part).map_or_else(|| unescaped(part).collect(), Iterator::collect)
}

/// Returns the replacement of this user from a data set.
fn translated<'a>(user: &[u8], set: SetId, sets: &'a Sets) -> Option<&'a [u8]> {
    let text = sets.set(set)?.text_value(user, strowger_rules::Case::Exact)?;
    (!text.is_empty() && is_user_text(text)).then_some(text)
}

/// Edits a user part; returns `None` if it is unchanged. A number is edited in the form that rules see, and keeps its
/// parameters (RFC 3966 section 3) unless it is translated.
pub(crate) fn edited(part: &[u8], edit: &UserEdit, sets: &Sets) -> Option<Vec<u8>> {
    let is_number = dialled(part).is_some();
    let parameters = part.iter().position(|byte| *byte == b';').filter(|_| is_number).unwrap_or(part.len());
    let user = as_dialled(part);
    let translated = edit.translate.and_then(|set| translated(&user, set, sets));
    let before = translated.unwrap_or(&user);
    let rest = before.get(usize::from(edit.strip)..).filter(|rest| !rest.is_empty()).unwrap_or(before);
    let after = [edit.prepend.as_bytes(), rest].concat();
    if after == user {
        return None;
    }
    let mut text = Vec::new();
    escape_user(&after, &mut text);
    if translated.is_none() {
        text.extend_from_slice(&part[parameters..]);
    }
    Some(text)
}
