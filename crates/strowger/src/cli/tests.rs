//! The command line is consistent; errors name the range.

use clap::CommandFactory;

use super::*;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn a_number_that_is_none_is_answered_with_the_range() {
    for words in [["strowger", "demo", "--rate", "x"], ["strowger", "demo", "--rate", "0"]] {
        let error = Cli::try_parse_from(words).expect_err("it is refused").to_string();
        assert!(error.contains("is no whole number from 1 to 100000"), "{error}");
    }
    assert_eq!(whole::<u16>(1..=64)("64"), Ok(64));
    assert!(whole::<u16>(0..=100_000)("70000").is_err());
}

#[test]
fn every_command_has_examples() {
    let cli = Cli::command();
    for command in cli.get_subcommands().flat_map(|command| command.get_subcommands().chain([command])) {
        if command.get_name() == "help" || command.is_hide_set() {
            continue;
        }
        let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
        assert!(help.contains("Examples:"), "{}", command.get_name());
    }
}

/// Checks the width of the examples: a line that is copied from a terminal of 80 columns must not be wrapped.
#[test]
fn no_line_of_examples_is_wrapped() {
    // The examples of the generator are tested elsewhere.
    for command in Cli::command().get_subcommands().filter(|command| command.get_name() != "load") {
        let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
        for line in help.lines().filter(|line| line.starts_with("  ")) {
            assert!(line.chars().count() <= 80, "{}: {line}", command.get_name());
        }
    }
}

#[test]
fn addresses_of_record() {
    assert_eq!(address_of_record("sip:alice@Example.ORG").map(|aor| aor.to_string()), Ok("alice@example.org".into()));
    for text in ["alice", "@example.org", "a b@example.org", "alice@", "alice@example.org:5060", "al<ice@example.org"] {
        assert!(address_of_record(text).is_err(), "{text}");
    }
}
