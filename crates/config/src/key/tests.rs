//! Durations, sizes and ranges, as texts.

use super::*;

#[test]
fn durations_are_written_as_they_are_read() {
    for text in ["0s", "1ms", "1500ms", "500ms", "4s", "90s", "3m", "1h", "36h", "7d"] {
        assert_eq!(duration_text(duration(text).expect(text)), text);
    }
    for text in ["", "5", "ms", "5 weeks", "200us", "-1s", "1.5s", "99999999999999999999s", "213503982335d"] {
        assert_eq!(duration(text), None, "{text}");
    }
}

#[test]
fn durations_have_bounds() {
    let rule = Rule::time(Duration::ZERO, Duration::from_secs(1));
    assert!(rule.admits(Duration::from_secs(1)) && !rule.admits(Duration::from_millis(1_001)));
    assert_eq!(Duration::allowed(&rule), "a duration from \"0s\" to \"1s\" (units ms, s, m, h, d)");
}

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
