//! Expressions of all scenarios, and the messages of RFC 3665 and RFC 4475.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::{Path, PathBuf};

pub(crate) fn corpora() -> Option<PathBuf> {
    let folder = std::env::var_os("STROWGER_CORPORA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpora"),
        |folder| {
            let folder = PathBuf::from(folder);
            if folder.is_relative() { Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder) } else { folder }
        },
    );
    folder.is_dir().then_some(folder)
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for entry in entries {
        if entry.is_dir() { files(&entry, found) } else { found.push(entry) }
    }
}

/// Returns the value of an attribute as SIPp reads it: its own escapes, then entities.
fn attribute(raw: &[u8]) -> Vec<u8> {
    let mut value = Vec::new();
    let mut at = 0;
    while at < raw.len() {
        let escape = match raw[at..] {
            [b'\\', b'\\', ..] => Some(b'\\'),
            [b'\\', b'"', ..] => Some(b'"'),
            [b'\\', b'n', ..] => Some(b'\n'),
            [b'\\', b't', ..] => Some(b'\t'),
            [b'\\', b'r', ..] => Some(b'\r'),
            _ => None,
        };
        value.push(escape.unwrap_or(raw[at]));
        at += 1 + usize::from(escape.is_some());
    }
    let mut text = value;
    for (entity, byte) in [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")] {
        while let Some(at) = memchr::memmem::find(&text, entity.as_bytes()) {
            text.splice(at..at + entity.len(), byte.bytes());
        }
    }
    text
}

/// Returns the quoted values of `name=`.
fn values(document: &[u8], name: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let mut found = Vec::new();
    for at in memchr::memmem::find_iter(document, name) {
        let start = at + name.len();
        let Some(&quote @ (b'"' | b'\'')) = document.get(start) else { continue };
        let mut end = start + 1;
        while end < document.len() && document[end] != quote {
            end += if document[end] == b'\\' { 2 } else { 1 };
        }
        if end < document.len() {
            found.push((at, attribute(&document[start + 1..end])));
        }
    }
    found
}

/// Returns the expressions of all scenarios, with whether case is ignored, and their counts.
pub(crate) fn corpus_expressions(corpora: &Path) -> BTreeMap<(Vec<u8>, bool), usize> {
    let mut documents = Vec::new();
    files(&corpora.join("sipp-scenarios"), &mut documents);
    let mut expressions = BTreeMap::new();
    for document in documents.iter().filter(|path| path.extension().is_some_and(|extension| extension == "xml")) {
        let document = std::fs::read(document).unwrap();
        let element_of = |at: usize| {
            let start = memchr::memrchr(b'<', &document[..at]).unwrap_or(0);
            let end = memchr::memchr(b'>', &document[at..]).map_or(document.len(), |offset| at + offset);
            &document[start..end]
        };
        for (at, value) in values(&document, b"regexp=") {
            let folded = memchr::memmem::find(element_of(at), b"case_indep=\"true\"").is_some();
            *expressions.entry((value, folded)).or_default() += 1;
        }
        for (at, value) in [b"request=".as_slice(), b"response="].iter().flat_map(|name| values(&document, name)) {
            if memchr::memmem::find(element_of(at), b"regexp_match=\"true\"").is_some() {
                *expressions.entry((value, false)).or_default() += 1;
            }
        }
    }
    expressions
}

pub(crate) fn messages(corpora: &Path) -> Vec<CString> {
    let mut paths = Vec::new();
    files(&corpora.join("rfc3665/messages"), &mut paths);
    files(&corpora.join("rfc4475"), &mut paths);
    paths
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "sip" || extension == "dat"))
        .map(|path| {
            let mut bytes = std::fs::read(path).unwrap();
            bytes.truncate(memchr::memchr(0, &bytes).unwrap_or(bytes.len()));
            CString::new(bytes).unwrap()
        })
        .collect()
}
