//! Sizes, and lists of words, as texts.

use super::*;

#[test]
fn sizes_have_binary_units() {
    assert_eq!(size("64KiB"), Some(65_536));
    assert_eq!(size("4 MiB"), Some(4 << 20));
    assert_eq!(size("1GiB"), Some(1 << 30));
    assert_eq!(size("7B"), Some(7));
    for text in ["", "64", "64KB", "KiB", "99999999999GiB"] {
        assert_eq!(size(text), None, "{text}");
    }
}

#[test]
fn words_are_listed_as_a_sentence() {
    assert_eq!(alternatives(&["a"]), "\"a\"");
    assert_eq!(alternatives(&["a", "b", "c"]), "\"a\", \"b\" or \"c\"");
}
