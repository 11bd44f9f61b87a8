//! Keys and values of the second level, as bytes that other versions of the server may read.

use std::sync::Arc;

use crate::subscriber::{Asked, Credential, Ha1s, Question, SubscriberAnswer};

/// Format version of values. A value of another version is ignored.
const VERSION: u8 = 2;

const EXISTS: u8 = 1;
const CREDENTIAL: u8 = 2;

/// Returns the key of a question. Length prefixes delimit the texts of the question, so that no two questions have one
/// key.
pub(super) fn key_of(asked: &Asked) -> Vec<u8> {
    let (kind, place, username) = match asked.question() {
        Question::Credential { username, realm } => ("credential", realm, username),
        Question::User { username, domain } => ("user", domain, username),
    };
    let mut key = format!("strowger:{kind}:{}:", place.len()).into_bytes();
    key.extend_from_slice(place);
    key.push(b':');
    key.extend_from_slice(username);
    key
}

/// Encodes an answer that the database gave at this time, in milliseconds since 1970. Returns `None` if the answer must
/// not be stored.
pub(super) fn encode(answer: &SubscriberAnswer, key: &[u8], read_at: u64) -> Option<Vec<u8>> {
    let kind = match answer {
        SubscriberAnswer::Absent => return None,
        SubscriberAnswer::Exists => EXISTS,
        SubscriberAnswer::Credential(_) => CREDENTIAL,
    };
    let mut value = vec![VERSION, kind];
    value.extend_from_slice(&read_at.to_be_bytes());
    text(key, &mut value);
    if let SubscriberAnswer::Credential(credential) = answer {
        // A phone may authenticate by another name than the subscriber's own.
        text(credential.username.as_bytes(), &mut value);
        text(credential.domain.as_bytes(), &mut value);
        ha1s(&credential.ha1, &mut value);
    }
    Some(value)
}

/// Writes a bit mask of the present algorithms, then their digests.
pub(crate) fn ha1s(ha1s: &Ha1s, value: &mut Vec<u8>) {
    let Ha1s { md5, sha256, sha512_256 } = ha1s;
    value.push(u8::from(md5.is_some()) | u8::from(sha256.is_some()) << 1 | u8::from(sha512_256.is_some()) << 2);
    value.extend(md5.iter().flatten());
    value.extend(sha256.iter().chain(sha512_256).flatten());
}

/// Writes the length of a text, and then the text.
pub(crate) fn text(text: &[u8], value: &mut Vec<u8>) {
    // Names are shorter than a message.
    value.extend_from_slice(&(text.len() as u32).to_be_bytes());
    value.extend_from_slice(text);
}

/// Decodes the answer to this question, unless it is older than `not_before`.
pub(super) fn decode(value: &[u8], asked: &Asked, key: &[u8], not_before: u64) -> Option<SubscriberAnswer> {
    let mut rest = Rest(value);
    let [version, kind] = *rest.take()?;
    let read_at = u64::from_be_bytes(*rest.take()?);
    let is_own = rest.text()? == key;
    if version != VERSION || !is_own || read_at < not_before {
        return None;
    }
    let answer = match (kind, asked.question()) {
        (EXISTS, Question::User { .. }) => SubscriberAnswer::Exists,
        (CREDENTIAL, Question::Credential { realm, .. }) => {
            let text = |bytes| std::str::from_utf8(bytes).ok().map(Box::from);
            let (username, domain) = (text(rest.text()?)?, text(rest.text()?)?);
            let (ha1, realm) = (rest.ha1s()?, text(realm)?);
            SubscriberAnswer::Credential(Arc::new(Credential { username, realm, domain, ha1 }))
        }
        _ => return None,
    };
    rest.0.is_empty().then_some(answer)
}

/// Returns the time when the database gave the answer, in milliseconds since 1970.
pub(super) fn read_at(value: &[u8]) -> Option<u64> {
    let mut rest = Rest(value);
    let [_version, _kind] = *rest.take()?;
    rest.take().map(|bytes| u64::from_be_bytes(*bytes))
}

/// Unread rest of a value.
pub(crate) struct Rest<'a>(pub(crate) &'a [u8]);

impl<'a> Rest<'a> {
    pub(crate) fn take<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (front, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(front)
    }

    /// Reads a text written by [`text`].
    pub(crate) fn text(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(u32::from_be_bytes(*self.take()?)).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(text)
    }

    /// Reads digests written by [`ha1s`].
    pub(crate) fn ha1s(&mut self) -> Option<Ha1s> {
        let [which] = *self.take()?;
        if which > 7 {
            return None;
        }
        Some(Ha1s {
            md5: if which & 1 != 0 { Some(*self.take()?) } else { None },
            sha256: if which & 2 != 0 { Some(*self.take()?) } else { None },
            sha512_256: if which & 4 != 0 { Some(*self.take()?) } else { None },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_question() -> impl Strategy<Value = Asked> {
        let text = || proptest::sample::select(vec![&b""[..], b"a", b"a:", b":a", b"1:a", b"a:1:a", b"alice", b"\xff"]);
        (any::<bool>(), text(), text()).prop_map(|(is_user, username, place)| {
            Asked::from(if is_user {
                Question::User { username, domain: place }
            } else {
                Question::Credential { username, realm: place }
            })
        })
    }

    fn any_answer() -> impl Strategy<Value = SubscriberAnswer> {
        // The subscriber's own name hardly ever equals the requested one.
        let names = ("[a-zé@.]{0,9}", "[a-zé.]{0,9}");
        let digests = (any::<Option<[u8; 16]>>(), any::<Option<[u8; 32]>>(), any::<Option<[u8; 32]>>());
        let credential = (digests, names).prop_map(|((md5, sha256, sha512_256), (username, domain))| {
            let ha1 = Ha1s { md5, sha256, sha512_256 };
            let (username, domain) = (username.into(), domain.into());
            SubscriberAnswer::Credential(Arc::new(Credential { username, realm: "r".into(), domain, ha1 }))
        });
        prop_oneof![Just(SubscriberAnswer::Exists), credential]
    }

    proptest! {
        #[test]
        fn no_two_questions_have_one_key(a in any_question(), b in any_question()) {
            prop_assert_eq!(a == b, key_of(&a) == key_of(&b));
        }

        #[test]
        fn an_answer_comes_back_to_its_own_question_alone(answer in any_answer(), other in any_question(), cut in any::<prop::sample::Index>()) {
            let asked = Asked::from(match answer {
                SubscriberAnswer::Exists => Question::User { username: b"alice", domain: b"r" },
                _ => Question::Credential { username: b"alice", realm: b"r" },
            });
            let key = key_of(&asked);
            let value = encode(&answer, &key, 5).expect("it found something");
            prop_assert_eq!(decode(&value, &asked, &key, 5), Some(answer));
            prop_assert_eq!(decode(&value, &asked, &key, 6), None);
            if other != asked {
                prop_assert_eq!(decode(&value, &other, &key_of(&other), 0), None);
            }
            prop_assert_eq!(decode(&value[..cut.index(value.len())], &asked, &key, 0), None);
            let longer = [&value[..], b"x"].concat();
            prop_assert_eq!(decode(&longer, &asked, &key, 0), None);
            let other_version = [&[VERSION + 1], &value[1..]].concat();
            prop_assert_eq!(decode(&other_version, &asked, &key, 0), None);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let asked = Asked::from(Question::Credential { username: b"alice", realm: b"r" });
            decode(&bytes, &asked, &key_of(&asked), 0);
        }
    }
}
