//! Keys of limits, timers, look-ups, dialogs, accounting, log, control and metrics, each with the tests of its effect.

/// Tests by file, relative to the root of the project, and name.
pub(super) const OF_OPERATION: &[(&str, &[&str])] = &[
    ("limits.message_size", &["tests/tests/keys/forwarding.rs::messages_beyond_the_limits_are_refused"]),
    ("limits.connections", &["tests/tests/keys/streams.rs::so_many_connections_are_taken"]),
    ("limits.connections_per_source", &["tests/tests/keys/streams.rs::so_many_connections_are_taken"]),
    ("limits.ipv6_prefix", &["tests/tests/keys/passwords.rs::sources_are_networks_of_so_many_bits"]),
    (
        "limits.connection_memory",
        &["tests/tests/attacks_exhaustion.rs::half_messages_of_many_sources_take_no_more_than_all_may"],
    ),
    ("limits.connection_memory_per_source", &["tests/tests/attacks_exhaustion.rs::the_share_of_a_source_is_a_setting"]),
    (
        "limits.request_memory_per_source",
        &["tests/tests/attacks_exhaustion.rs::requests_that_wait_for_names_take_no_more_than_their_bound"],
    ),
    (
        "limits.request_memory_of_all",
        &["tests/tests/attacks_exhaustion.rs::requests_of_many_sources_take_no_more_than_all_may"],
    ),
    ("limits.transactions", &["tests/tests/keys/forwarding.rs::further_transactions_than_the_bound_are_refused"]),
    ("limits.idle_connection_timeout", &["tests/tests/keys/streams.rs::idle_connections_end"]),
    (
        "limits.unregistered_connection_timeout",
        &["tests/tests/keys/streams.rs::connections_of_strangers_end_and_those_of_phones_stay"],
    ),
    ("timers.t1", &["tests/tests/keys/timers.rs::copies_and_ends_follow_the_estimate_of_the_round_trip"]),
    ("timers.t2", &["tests/tests/keys/timers.rs::copies_and_ends_follow_the_estimate_of_the_round_trip"]),
    ("timers.t4", &["tests/tests/keys/timers.rs::what_was_answered_is_remembered_while_a_copy_may_be_on_its_way"]),
    ("timers.timer_b", &["tests/tests/proxy_rules.rs::timer_b_is_how_long_a_silent_phone_is_waited_for"]),
    ("timers.timer_c", &["tests/tests/keys/timers.rs::what_rings_too_long_is_cancelled"]),
    ("dns.servers", &["tests/tests/keys/names.rs::answers_are_kept"]),
    ("dns.timeout", &["tests/tests/keys/names.rs::a_silent_name_server_is_asked_twice_and_waited_for_so_long"]),
    ("dns.serve_stale", &["tests/tests/next_hops.rs::what_was_known_is_used_as_long_as_the_settings_say"]),
    (
        "dns.set_aside",
        &[
            "tests/tests/next_hops.rs::of_two_servers_the_dead_one_costs_one_call_and_is_tried_again",
            "tests/tests/next_hops.rs::no_hosts_are_set_aside_where_that_is_not_wanted",
        ],
    ),
    ("dialogs.track", &["tests/tests/dialogs.rs::calls_are_listed_shown_and_ended"]),
    ("dialogs.lifetime", &["tests/tests/dialogs.rs::a_call_that_lasts_too_long_is_ended_on_both_sides"]),
    ("dialogs.session_expires", &["tests/tests/dialogs.rs::sessions_have_the_timer_that_the_settings_say"]),
    ("dialogs.min_session_expires", &["tests/tests/dialogs.rs::sessions_have_the_timer_that_the_settings_say"]),
    ("dialogs.calls", &["tests/tests/dialogs.rs::calls_beyond_the_bound_are_refused_until_others_end"]),
    ("rule.account", &["crates/server/tests/suite/accounting.rs::rules_say_what_is_accounted"]),
    ("rule.account_as", &["crates/server/tests/suite/accounting.rs::rules_say_what_a_call_is_accounted_as"]),
    ("dialogs.folder", &["tests/tests/kept_dialogs.rs::calls_that_a_kill_interrupts_end_in_the_next_process"]),
    (
        "dialogs.database",
        &[
            "tests/tests/sql_calls.rs::calls_kept_in_mariadb_outlive_kills_and_its_outages",
            "tests/tests/kept_dialogs.rs::calls_kept_in_a_sqlite_file_outlive_a_kill",
        ],
    ),
    ("accounting.cdr", &["tests/tests/accounting.rs::calls_are_written_in_each_form"]),
    ("accounting.events", &["tests/tests/accounting.rs::calls_are_written_in_each_form"]),
    ("accounting.all", &["crates/server/tests/suite/accounting.rs::rules_say_what_is_accounted"]),
    ("accounting.to", &["tests/tests/accounting.rs::calls_are_written_in_each_form"]),
    ("accounting.database", &["tests/tests/sql_rows.rs::rows_in_mariadb_are_written_once_each_in_their_order"]),
    ("accounting.path", &["tests/tests/accounting.rs::calls_are_written_in_each_form"]),
    ("accounting.spool", &["tests/tests/accounting.rs::a_killed_server_leaves_its_spool_to_the_next"]),
    (
        "accounting.spool_size",
        &[
            "crates/node/src/backends.rs::what_no_peer_can_see_arrives_at_the_engines",
            "crates/backend/src/files/spool.rs::bytes_beyond_the_bound_are_refused_and_files_of_others_not_touched",
        ],
    ),
    (
        "accounting.group_interval",
        &[
            "crates/node/src/backends.rs::what_no_peer_can_see_arrives_at_the_engines",
            "crates/store/src/journal/tests.rs::a_large_group_does_not_wait_for_its_linger",
        ],
    ),
    ("accounting.retention", &["tests/tests/accounting.rs::old_rows_are_removed"]),
    (
        "accounting.mask_numbers",
        &["crates/server/tests/suite/accounting.rs::numbers_and_addresses_are_masked_before_a_row_leaves"],
    ),
    (
        "accounting.mask_addresses",
        &["crates/server/tests/suite/accounting.rs::numbers_and_addresses_are_masked_before_a_row_leaves"],
    ),
    ("accounting.fields", &["tests/tests/accounting.rs::calls_are_written_in_each_form"]),
    ("log.format", &["tests/tests/operation.rs::a_json_log_is_json_and_nothing_else"]),
    ("log.level", &["tests/tests/events.rs::refreshed_registrations_are_logged_at_the_level_debug"]),
    ("log.refusals_per_minute", &["tests/tests/refusals.rs::wrong_passwords_do_not_fill_the_log"]),
    ("log.calls_per_minute", &["tests/tests/events.rs::lines_about_what_succeeds_are_bounded_and_can_be_left_out"]),
    (
        "log.registrations_per_minute",
        &["tests/tests/events.rs::lines_about_what_succeeds_are_bounded_and_can_be_left_out"],
    ),
    ("log.statistics", &["tests/tests/operation.rs::a_json_log_is_json_and_nothing_else"]),
    (
        "control.socket",
        &[
            "tests/tests/control.rs::status_shows_the_server_and_its_figures",
            "tests/tests/control.rs::without_a_control_socket_commands_say_so",
        ],
    ),
    ("control.listen", &["tests/tests/control_http.rs::orders_are_taken_by_http_as_json"]),
    ("control.secret", &["tests/tests/control_http.rs::without_the_secret_no_order_is_taken"]),
    ("metrics.listen", &["tests/tests/metrics.rs::metrics_are_clean_and_count_what_was_done"]),
    ("metrics.unhealthy_after", &["crates/node/tests/sockets/health.rs::a_shard_that_stands_still_is_seen"]),
];
