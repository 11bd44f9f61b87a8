//! Each key with the tests of its effect, in addition to those of its allowed values (`config.rs`, `config/src/`).

mod operation;

use self::operation::OF_OPERATION;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use strowger_tests::binary::strowger;

/// Tests by file, relative to the root of the project, and name.
const TESTS: &[(&str, &[&str])] = &[
    (
        "listen",
        &[
            "tests/tests/commands.rs::init_writes_a_file_that_check_accepts_and_never_overwrites_it",
            "tests/tests/examples.rs::a_server_starts_with_every_example",
        ],
    ),
    ("domains", &["tests/tests/events.rs::a_refusal_names_its_reason"]),
    ("realm", &["tests/tests/config.rs::users_of_another_realm_are_told"]),
    ("listener.transport", &["tests/tests/algorithms.rs::a_listener_offers_its_own_algorithms_and_accepts_no_others"]),
    ("listener.address", &["tests/tests/algorithms.rs::a_listener_offers_its_own_algorithms_and_accepts_no_others"]),
    ("listener.port", &["tests/tests/algorithms.rs::a_listener_offers_its_own_algorithms_and_accepts_no_others"]),
    (
        "listener.advertise",
        &["crates/server/tests/policy/relaying.rs::a_domain_may_bear_a_dot_at_its_end_and_a_port_that_we_are_known_by"],
    ),
    ("listener.network", &["tests/tests/keys/forwarding.rs::a_call_from_one_network_to_another_has_a_route_for_each"]),
    (
        "listener.proxy_protocol_from",
        &["tests/tests/balancers.rs::the_address_in_a_header_is_the_source_over_every_transport"],
    ),
    ("listener.algorithms", &["tests/tests/algorithms.rs::a_listener_offers_its_own_algorithms_and_accepts_no_others"]),
    (
        "listener.certificate",
        &["tests/tests/keys/tls.rs::a_listener_shows_its_own_certificate_and_demands_one_of_its_own_authorities"],
    ),
    (
        "listener.key",
        &["tests/tests/keys/tls.rs::a_listener_shows_its_own_certificate_and_demands_one_of_its_own_authorities"],
    ),
    (
        "listener.client_ca",
        &["tests/tests/keys/tls.rs::a_listener_shows_its_own_certificate_and_demands_one_of_its_own_authorities"],
    ),
    (
        "listener.certificates",
        &["tests/tests/keys/tls.rs::a_listener_shows_the_certificate_of_the_name_that_is_asked_for"],
    ),
    ("domain.name", &["tests/tests/domains.rs::alice_of_each_domain_registers_and_calls_the_other"]),
    ("domain.aliases", &["tests/tests/names.rs::phones_and_carriers_may_use_the_address_of_the_server"]),
    ("domain.realm", &["tests/tests/domains.rs::alice_of_each_domain_registers_and_calls_the_other"]),
    ("certificate.name", &["tests/tests/keys/tls.rs::a_listener_shows_the_certificate_of_the_name_that_is_asked_for"]),
    (
        "certificate.certificate",
        &["tests/tests/keys/tls.rs::a_listener_shows_the_certificate_of_the_name_that_is_asked_for"],
    ),
    ("certificate.key", &["tests/tests/keys/tls.rs::a_listener_shows_the_certificate_of_the_name_that_is_asked_for"]),
    ("source.name", &["tests/tests/rules.rs::trusted_sources_need_no_password"]),
    ("source.networks", &["tests/tests/rules.rs::trusted_sources_need_no_password"]),
    ("source.trusted", &["tests/tests/rules.rs::trusted_sources_need_no_password"]),
    ("set.name", &["tests/tests/rules.rs::rules_answer_in_their_order"]),
    ("set.kind", &["tests/tests/rules.rs::sets_are_read_from_files_and_again"]),
    ("set.entries", &["tests/tests/rules.rs::rules_answer_in_their_order"]),
    ("set.file", &["tests/tests/rules.rs::sets_are_read_from_files_and_again"]),
    ("set.key", &["tests/tests/rules.rs::sets_are_read_from_files_and_again"]),
    ("set.value", &["tests/tests/rules.rs::sets_are_read_from_files_and_again"]),
    ("set.database", &["tests/tests/data_sets.rs::a_set_may_be_in_a_file_of_sqlite"]),
    ("set.query", &["tests/tests/data_sets.rs::a_set_may_be_in_a_file_of_sqlite"]),
    ("set.timeout", &["tests/tests/sql_subscribers.rs::subscribers_of_opensips_and_kamailio_are_read_in_place"]),
    ("set.refresh", &["tests/tests/data_sets.rs::a_set_is_read_again_by_itself"]),
    ("call_limit.name", &["crates/server/tests/suite/decisions.rs::calls_count_under_limits_until_they_end"]),
    (
        "call_limit.per",
        &[
            "crates/server/tests/suite/decisions.rs::a_limit_is_for_each_of_what_it_counts_by",
            "crates/server/tests/suite/call_limits.rs::each_user_that_showed_a_password_has_a_limit",
            "crates/server/tests/suite/call_limits.rs::each_group_of_sources_has_a_limit",
            "crates/server/tests/suite/call_limits.rs::each_source_address_has_a_limit",
            "crates/server/tests/suite/call_limits.rs::each_caller_has_a_limit",
            "crates/server/tests/suite/gateway_groups.rs::each_gateway_has_a_limit",
        ],
    ),
    ("call_limit.most", &["crates/server/tests/suite/decisions.rs::calls_count_under_limits_until_they_end"]),
    ("call_limit.status", &["crates/server/tests/suite/decisions.rs::calls_count_under_limits_until_they_end"]),
    ("call_limit.over", &["crates/server/tests/suite/decisions.rs::calls_count_under_limits_until_they_end"]),
    ("call_limit.cache", &["tests/tests/shared_counts.rs::servers_count_their_calls_together"]),
    ("call_limit.servers", &["tests/tests/shared_counts.rs::servers_count_their_calls_together"]),
    (
        "call_limit.without_cache",
        &["tests/tests/shared_counts.rs::without_its_cache_a_limit_counts_here_or_lets_no_call_through"],
    ),
    ("filter.name", &["crates/server/tests/suite/decisions.rs::filters_come_before_everything_else"]),
    ("filter.when", &["crates/server/tests/suite/decisions.rs::filters_come_before_everything_else"]),
    ("filter.answer", &["crates/server/tests/suite/decisions.rs::filters_come_before_everything_else"]),
    ("filter.reason", &["crates/server/tests/suite/decisions.rs::filters_come_before_everything_else"]),
    ("failure.name", &["crates/server/tests/suite/decisions.rs::failures_lead_to_the_mailbox_or_another_answer"]),
    ("failure.statuses", &["crates/server/tests/suite/decisions.rs::failures_lead_to_the_mailbox_or_another_answer"]),
    ("failure.to", &["crates/server/tests/suite/decisions.rs::failures_lead_to_the_mailbox_or_another_answer"]),
    ("failure.at_once", &["crates/server/tests/suite/user_places.rs::a_list_of_users_has_a_bound_of_branches"]),
    ("failure.answer", &["crates/server/tests/suite/decisions.rs::failures_lead_to_the_mailbox_or_another_answer"]),
    ("failure.try_next", &["crates/server/tests/suite/decisions.rs::a_failure_says_how_the_next_gateway_is_tried"]),
    ("failure.strip", &["crates/server/tests/suite/decisions.rs::a_failure_says_how_the_next_gateway_is_tried"]),
    ("failure.prepend", &["crates/server/tests/suite/decisions.rs::a_failure_says_how_the_next_gateway_is_tried"]),
    ("failure.translate", &["crates/server/tests/suite/decisions.rs::a_failure_says_how_the_next_gateway_is_tried"]),
    (
        "failure.remove_headers",
        &["crates/server/tests/suite/decisions.rs::a_failure_says_how_the_next_gateway_is_tried"],
    ),
    ("failure.ring_timeout", &["crates/server/tests/suite/decisions.rs::a_failure_says_how_the_next_gateway_is_tried"]),
    (
        "failure.answer_timeout",
        &["crates/server/tests/suite/decisions.rs::a_failure_says_how_the_next_gateway_is_tried"],
    ),
    (
        "failure.add_headers",
        &["crates/server/tests/suite/decisions.rs::failures_lead_to_the_mailbox_or_another_answer"],
    ),
    (
        "failure.call_limits",
        &[
            "crates/server/tests/suite/failure_limits.rs::a_failure_without_room_is_passed_over",
            "crates/server/tests/suite/failure_limits.rs::what_a_failure_took_is_given_back_when_the_call_ends",
        ],
    ),
    ("gateway_group.name", &["tests/tests/rules.rs::groups_of_gateways_are_tried_in_order_in_turn_and_by_call"]),
    ("gateway_group.to", &["tests/tests/rules.rs::groups_of_gateways_are_tried_in_order_in_turn_and_by_call"]),
    (
        "gateway_group.pick",
        &[
            "tests/tests/rules.rs::groups_of_gateways_are_tried_in_order_in_turn_and_by_call",
            "crates/server/tests/suite/gateway_groups.rs::a_group_in_turn_begins_with_the_next",
            "crates/server/tests/suite/gateway_groups.rs::a_group_by_call_sends_one_call_to_one_gateway",
        ],
    ),
    (
        "gateway_group.call_limits",
        &[
            "crates/server/tests/suite/gateway_groups.rs::a_group_without_room_is_passed_over",
            "crates/server/tests/suite/gateway_groups.rs::what_a_gateway_took_is_given_back_when_the_call_ends",
        ],
    ),
    (
        "gateway_group.user",
        &[
            "crates/server/tests/policy/bridges/gateway_accounts.rs::a_challenge_of_a_gateway_is_answered_by_the_account_of_its_group",
        ],
    ),
    (
        "gateway_group.password",
        &[
            "crates/server/tests/policy/bridges/gateway_accounts.rs::a_challenge_of_a_gateway_is_answered_by_the_account_of_its_group",
        ],
    ),
    ("rule.name", &["tests/tests/rules.rs::rules_answer_in_their_order"]),
    ("rule.when", &["tests/tests/rules.rs::rules_answer_in_their_order"]),
    (
        "rule.answer",
        &[
            "tests/tests/rules.rs::rules_answer_in_their_order",
            "crates/server/tests/policy/endpoints.rs::an_echo_answers_a_call_and_its_media_go_back",
            "crates/server/tests/policy/endpoints/sounds.rs::a_tone_is_played_until_the_caller_hangs_up",
        ],
    ),
    ("rule.play", &["tests/tests/announcement.rs::a_caller_hears_the_file_and_then_a_bye"]),
    ("rule.repeat", &["crates/server/tests/policy/endpoints/sounds.rs::a_moved_and_resumed_call_keeps_its_sound"]),
    ("rule.record_to", &["tests/tests/recording.rs::a_caller_is_recorded_and_a_kill_leaves_a_file_that_can_be_played"]),
    ("rule.record_limit", &["crates/server/tests/policy/endpoints/recordings.rs::a_call_ends_with_its_recording"]),
    ("rule.reason", &["tests/tests/rules.rs::rules_answer_in_their_order"]),
    ("rule.drop", &["crates/server/tests/suite/decisions.rs::a_rule_drops_what_it_names"]),
    ("rule.on_failure", &["crates/server/tests/suite/decisions.rs::failures_lead_to_the_mailbox_or_another_answer"]),
    ("rule.call_limits", &["crates/server/tests/suite/decisions.rs::calls_count_under_limits_until_they_end"]),
    ("rule.redirect", &["crates/server/tests/suite/decisions.rs::redirections_name_contacts_and_places_with_q"]),
    ("rule.strip", &["crates/server/tests/suite/decisions.rs::numbers_are_translated_stripped_and_prepended"]),
    ("rule.prepend", &["crates/server/tests/suite/decisions.rs::numbers_are_translated_stripped_and_prepended"]),
    ("rule.translate", &["crates/server/tests/suite/decisions.rs::numbers_are_translated_stripped_and_prepended"]),
    ("rule.stop", &["tests/tests/rules.rs::rules_answer_in_their_order"]),
    ("rule.to", &["tests/tests/rules.rs::rules_lead_to_places_with_fail_over"]),
    (
        "rule.at_once",
        &["crates/server/tests/suite/user_places.rs::a_ring_group_rings_all_and_the_first_to_answer_has_the_call"],
    ),
    ("rule.relay_for", &["crates/server/tests/suite/decisions.rs::a_rule_leads_outside_only_those_who_may_be_relayed"]),
    ("rule.try_next", &["tests/tests/rules.rs::rules_lead_to_places_with_fail_over"]),
    ("rule.identity", &["crates/server/tests/suite/identities.rs::a_rule_asserts_an_identity_at_its_gateway"]),
    ("rule.add_headers", &["tests/tests/rules.rs::rules_lead_to_places_with_fail_over"]),
    ("rule.remove_headers", &["tests/tests/rules.rs::rules_lead_to_places_with_fail_over"]),
    ("rule.record_route", &["tests/tests/rules.rs::rules_set_what_the_configuration_sets_for_all"]),
    (
        "rule.b2bua",
        &[
            "tests/tests/bridge_media.rs::calls_of_the_generator_are_heard_on_both_sides",
            "crates/server/tests/suite/bridge_rules.rs::only_an_invite_that_begins_a_call_is_bridged",
        ],
    ),
    (
        "rule.codecs",
        &[
            "tests/tests/bridge.rs::descriptions_list_the_codecs_of_their_side",
            "crates/server/tests/suite/bridge_rules.rs::explain_shows_a_bridged_call_with_the_codecs_of_each_side",
        ],
    ),
    ("rule.callee_codecs", &["tests/tests/bridge.rs::descriptions_list_the_codecs_of_their_side"]),
    (
        "rule.media_types",
        &[
            "tests/tests/bridge.rs::descriptions_list_the_codecs_of_their_side",
            "tests/tests/bridge.rs::a_fax_passes_as_datagrams_beside_the_audio",
        ],
    ),
    (
        "rule.refer_from",
        &[
            "crates/server/tests/policy/bridges/referrals.rs::an_outsider_may_not_refer_a_user",
            "crates/server/tests/suite/bridge_rules.rs::explain_shows_a_bridged_call_with_the_codecs_of_each_side",
        ],
    ),
    ("rule.track", &["tests/tests/rules.rs::rules_set_what_the_configuration_sets_for_all"]),
    ("rule.ring_timeout", &["tests/tests/rules.rs::rules_bound_how_long_a_place_rings_and_is_silent"]),
    ("rule.answer_timeout", &["tests/tests/rules.rs::rules_bound_how_long_a_place_rings_and_is_silent"]),
    ("cache.name", &["tests/tests/keys/caches.rs::what_a_server_learns_is_in_its_cache"]),
    ("cache.engine", &["tests/tests/keys/caches.rs::what_a_server_learns_is_in_its_cache"]),
    ("cache.servers", &["tests/tests/keys/caches.rs::what_a_server_learns_is_in_its_cache"]),
    ("cache.mode", &["tests/tests/keys/caches.rs::a_cache_may_be_a_group_or_a_cluster"]),
    ("cache.group", &["tests/tests/keys/caches.rs::a_cache_may_be_a_group_or_a_cluster"]),
    ("cache.database", &["tests/tests/keys/caches.rs::what_a_server_learns_is_in_its_cache"]),
    ("cache.user", &["tests/tests/keys/caches.rs::a_cache_may_want_a_password_and_tls"]),
    ("cache.password", &["tests/tests/keys/caches.rs::a_cache_may_want_a_password_and_tls"]),
    ("cache.sentinel_user", &["tests/tests/keys/caches.rs::a_cache_may_be_a_group_or_a_cluster"]),
    ("cache.sentinel_password", &["tests/tests/keys/caches.rs::a_cache_may_be_a_group_or_a_cluster"]),
    ("cache.tls", &["tests/tests/keys/caches.rs::a_cache_may_want_a_password_and_tls"]),
    ("cache.timeout", &["tests/tests/keys/caches.rs::a_cache_that_is_silent_is_waited_for_so_long"]),
    ("cache.memory", &["crates/node/src/caches.rs::a_local_cache_keeps_to_its_memory"]),
    ("cache.folder", &["crates/node/src/caches.rs::a_local_cache_with_a_folder_outlives_the_server"]),
    ("store.cache", &["tests/tests/keys/caches.rs::what_a_server_learns_is_in_its_cache"]),
    (
        "server.shards",
        &[
            "tests/tests/shards.rs::telephones_of_one_shard_are_called_from_another",
            "crates/server/tests/policy/gone.rs::who_cannot_be_reached_any_more_is_not_available",
        ],
    ),
    ("server.udp_receive_buffer", &["tests/tests/keys/sockets.rs::the_kernel_is_asked_for_what_the_settings_say"]),
    ("server.scheduling", &["tests/tests/keys/sockets.rs::the_kernel_is_asked_for_what_the_settings_say"]),
    ("server.huge_pages", &["tests/tests/keys/sockets.rs::the_kernel_is_asked_for_what_the_settings_say"]),
    (
        "server.icmp_errors",
        &["crates/node/tests/sockets/unreachable.rs::who_does_not_believe_icmp_waits_for_the_timer"],
    ),
    ("server.drain_timeout", &["tests/tests/keys/forwarding.rs::a_shutdown_waits_for_calls_as_long_as_it_may"]),
    ("server.names", &["tests/tests/proxy_rules.rs::a_route_with_a_configured_name_of_this_server_is_taken_off"]),
    ("server.node", &["crates/node/src/settings.rs::what_no_peer_can_see_arrives_at_the_network_side"]),
    ("server.software", &["tests/tests/keys/forwarding.rs::what_is_forwarded_and_answered_is_as_the_settings_say"]),
    (
        "proxy.relay_for",
        &[
            "crates/server/tests/policy/relaying.rs::authenticated_users_only",
            "crates/server/tests/policy/relaying.rs::from_local_domains",
            "crates/server/tests/policy/relaying.rs::everyone",
        ],
    ),
    ("proxy.record_route", &["tests/tests/keys/forwarding.rs::what_is_forwarded_and_answered_is_as_the_settings_say"]),
    ("proxy.route_lifetime", &["tests/tests/attacks_relay.rs::route_tokens_end"]),
    ("proxy.max_forwards", &["tests/tests/keys/forwarding.rs::what_is_forwarded_and_answered_is_as_the_settings_say"]),
    (
        "proxy.fork",
        &["tests/tests/keys/forwarding.rs::contacts_ring_in_the_order_of_the_setting_and_as_long_as_they_may"],
    ),
    (
        "proxy.fork_timeout",
        &["tests/tests/keys/forwarding.rs::contacts_ring_in_the_order_of_the_setting_and_as_long_as_they_may"],
    ),
    ("proxy.max_branches", &["tests/tests/forwarding.rs::one_request_costs_a_bounded_number_of_branches"]),
    ("proxy.udp_to_tcp_above", &["tests/tests/keys/forwarding.rs::a_large_request_leaves_by_tcp"]),
    (
        "proxy.unmatched_cancel",
        &[
            "crates/server/tests/suite/decisions.rs::statuses_of_users_that_are_away_and_cancels_that_match_nothing_are_settings",
        ],
    ),
    (
        "proxy.unregistered_status",
        &[
            "crates/server/tests/suite/decisions.rs::statuses_of_users_that_are_away_and_cancels_that_match_nothing_are_settings",
        ],
    ),
    (
        "proxy.method_filter",
        &[
            "crates/server/tests/suite/decisions.rs::contacts_are_passed_over_that_do_not_take_the_method",
            "tests/tests/sql_bindings.rs::methods_of_a_device_in_sqlite_outlive_a_restart",
        ],
    ),
    (
        "proxy.unfit_status",
        &["crates/server/tests/suite/decisions.rs::contacts_are_passed_over_that_do_not_take_the_method"],
    ),
    (
        "emergency.numbers",
        &[
            "crates/server/tests/suite/emergency.rs::an_emergency_call_needs_no_password_and_meets_no_rule_filter_or_limit",
        ],
    ),
    ("emergency.target", &["crates/server/tests/policy/answers.rs::emergency_calls_have_a_way"]),
    ("emergency.identity", &["crates/server/tests/suite/emergency.rs::an_emergency_call_has_a_record_and_an_identity"]),
    ("proxy.reachable", &["crates/server/tests/suite/reach.rs::networks_of_the_configuration_are_reachable"]),
    ("registrar.authenticate", &["crates/server/tests/policy/registrations.rs::without_passwords"]),
    (
        "registrar.durability",
        &[
            "tests/tests/durability.rs::no_acknowledged_binding_is_lost_by_kill_9_during_5000_registrations_a_second",
            "tests/tests/durability.rs::a_trace_shows_that_the_sync_returned_before_the_200",
        ],
    ),
    ("registrar.min_expires", &["tests/tests/keys/registering.rs::bindings_live_as_long_as_the_bounds_say"]),
    ("registrar.max_expires", &["tests/tests/keys/registering.rs::bindings_live_as_long_as_the_bounds_say"]),
    ("registrar.default_expires", &["tests/tests/keys/registering.rs::bindings_live_as_long_as_the_bounds_say"]),
    ("registrar.max_contacts", &["crates/server/tests/policy/registrations.rs::too_many"]),
    ("registrar.max_bindings", &["tests/tests/keys/registering.rs::bindings_live_as_long_as_the_bounds_say"]),
    ("registrar.path", &["tests/tests/keys/registering.rs::path_is_kept_ignored_or_demanded"]),
    ("registrar.service_route", &["crates/server/tests/policy/registrations.rs::path_and_service_route"]),
    ("auth.algorithms", &["tests/tests/algorithms.rs::md5_alone_is_offered_unless_the_configuration_says_otherwise"]),
    ("auth.qop", &["tests/tests/attacks_passwords.rs::no_offer_can_be_talked_down"]),
    ("auth.nonce_lifetime", &["tests/tests/attacks_passwords.rs::an_old_nonce_tells_only_who_knows_the_password"]),
    ("auth.used_nonces", &["tests/tests/attacks_passwords.rs::one_account_cannot_use_up_the_nonces_of_others"]),
    ("auth.without_qop", &["tests/tests/keys/passwords.rs::answers_without_qop_are_taken_if_the_setting_says_so"]),
    ("auth.uri_check", &["tests/tests/attacks_passwords.rs::credentials_lead_to_no_other_number"]),
    ("auth.secret", &["tests/tests/keys/passwords.rs::servers_of_one_secret_take_nonces_of_each_other"]),
    ("auth.secret_file", &["tests/tests/keys/passwords.rs::servers_of_one_secret_take_nonces_of_each_other"]),
    (
        "auth.user_must_match",
        &[
            "tests/tests/attacks_identities.rs::a_user_calls_as_no_other",
            "crates/server/src/advance/tests/realms.rs::domains_may_share_a_realm",
        ],
    ),
    ("auth.identities", &["crates/server/tests/suite/identities.rs::an_account_shows_the_numbers_that_it_may_show"]),
    (
        "auth.register_for_others",
        &["tests/tests/attacks_identities.rs::a_user_registers_for_others_where_the_setting_says_so"],
    ),
    ("auth.calls", &["crates/server/tests/policy/relaying.rs::from_local_domains_without_a_password"]),
    (
        "auth.credential_cache",
        &["tests/tests/credential_cache.rs::a_phone_that_registered_at_one_server_is_verified_at_the_other"],
    ),
    (
        "auth.credential_cache_required",
        &[
            "tests/tests/credential_cache_faults.rs::a_redis_that_is_frozen_slow_or_gone_has_its_stated_answers",
            "tests/tests/credential_cache_faults.rs::a_memcached_that_is_frozen_slow_or_gone_has_its_stated_answers",
        ],
    ),
    ("ban.enabled", &["crates/server/tests/policy/bans.rs::switched_off"]),
    ("ban.failures", &["crates/server/tests/policy/bans.rs::who_fails_too_often_is_not_heard"]),
    (
        "ban.account_failures",
        &["tests/tests/attacks_passwords.rs::an_account_that_many_sources_guess_hears_each_of_them_once_more"],
    ),
    ("ban.window", &["tests/tests/keys/passwords.rs::failures_count_within_the_window"]),
    ("ban.duration", &["crates/server/tests/policy/bans.rs::who_fails_too_often_is_not_heard"]),
    ("ban.scanners", &["tests/tests/keys/passwords.rs::scanners_are_those_of_the_list"]),
    ("ban.exempt", &["crates/server/tests/policy/bans.rs::those_exempt_may_fail"]),
    ("nat.contact_repair", &["tests/tests/shards.rs::answers_come_by_other_connections"]),
    (
        "nat.force_rport",
        &["tests/tests/keys/forwarding.rs::answers_go_where_requests_came_from_if_the_setting_says_so"],
    ),
    ("nat.ping_interval", &["crates/server/tests/policy/pings.rs::every_phone_behind_nat_is_pinged_once_an_interval"]),
    ("nat.ping_method", &["tests/tests/keys/registering.rs::a_phone_is_pinged_by_line_ends_if_the_setting_says_so"]),
    ("media.addresses", &["crates/server/tests/policy/endpoints.rs::an_echo_answers_a_call_and_its_media_go_back"]),
    (
        "media.ports",
        &["crates/server/tests/policy/endpoints.rs::a_call_without_a_common_codec_or_a_free_port_is_refused"],
    ),
    ("media.dscp", &["crates/node/src/settings.rs::media_threads_get_their_settings"]),
    ("media.threads", &["crates/node/src/settings.rs::media_threads_get_their_settings"]),
    (
        "media.timeout",
        &[
            "crates/node/src/settings.rs::media_threads_get_their_settings",
            "crates/server/tests/policy/endpoints.rs::a_call_without_media_is_ended",
        ],
    ),
    (
        "store.database",
        &["tests/tests/durability.rs::no_acknowledged_binding_is_lost_by_kill_9_during_5000_registrations_a_second"],
    ),
    ("store.subscribers", &["tests/tests/sql_subscribers.rs::subscribers_of_opensips_and_kamailio_are_read_in_place"]),
    (
        "store.subscriber_table",
        &["tests/tests/sql_subscribers.rs::subscribers_of_opensips_and_kamailio_are_read_in_place"],
    ),
    ("store.bindings", &["tests/tests/sql_bindings.rs::bindings_in_mariadb_follow_the_rules"]),
    (
        "store.busy_timeout",
        &["tests/tests/durability.rs::a_database_that_another_process_holds_answers_500_until_it_lets_go"],
    ),
    ("store.lookup_timeout", &["tests/tests/keys/subscribers.rs::a_look_up_that_takes_too_long_fails"]),
    (
        "store.lookup_connections",
        &["crates/store/src/read_through/tests.rs::as_many_batches_are_with_the_engine_as_there_are_connections"],
    ),
    ("store.serve_stale", &["tests/tests/database_outage.rs::a_frozen_database_is_no_outage_for_users_who_are_known"]),
    ("store.cache_entries", &["tests/tests/keys/subscribers.rs::so_many_answers_are_kept"]),
    ("store.cache_lifetime", &["tests/tests/keys/subscribers.rs::an_answer_is_good_for_its_lifetime"]),
    (
        "tls.certificate",
        &["tests/tests/keys/tls.rs::a_listener_shows_its_own_certificate_and_demands_one_of_its_own_authorities"],
    ),
    (
        "tls.key",
        &["tests/tests/keys/tls.rs::a_listener_shows_its_own_certificate_and_demands_one_of_its_own_authorities"],
    ),
    (
        "tls.client_ca",
        &["tests/tests/keys/tls.rs::a_listener_shows_its_own_certificate_and_demands_one_of_its_own_authorities"],
    ),
    ("tls.outbound_ca", &["tests/tests/keys/tls.rs::certificates_of_other_servers_are_verified"]),
    ("tls.outbound_verify", &["tests/tests/keys/tls.rs::certificates_of_other_servers_are_verified"]),
];

/// Returns each key with its tests.
fn all() -> impl Iterator<Item = &'static (&'static str, &'static [&'static str])> {
    TESTS.iter().chain(OF_OPERATION)
}

/// Returns every key that the program knows, with its table in front.
fn keys() -> BTreeSet<String> {
    let output = Command::new(strowger()).args(["check", "--keys"]).output().expect("the program runs");
    let page = String::from_utf8(output.stdout).expect("it is text");
    let mut table = String::new();
    let mut keys = BTreeSet::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            let name = heading.trim_matches(['`', '[', ']']);
            table = if heading.starts_with('`') { format!("{name}.") } else { String::new() };
        } else if let Some(key) = line.strip_prefix("| `").and_then(|rest| rest.split('`').next()) {
            keys.insert(format!("{table}{key}"));
        }
    }
    keys
}

fn root() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).to_owned()
}

#[test]
fn every_key_has_a_test_of_its_effect() {
    let (known, named) = (keys(), all().map(|(key, _)| (*key).to_owned()).collect::<BTreeSet<_>>());
    assert!(known.len() > 100, "{known:?}");
    let missing: Vec<_> = known.difference(&named).collect();
    assert!(missing.is_empty(), "no test of its effect is named in {} for: {missing:?}", file!());
    let gone: Vec<_> = named.difference(&known).collect();
    assert!(gone.is_empty(), "no such key: {gone:?}");
}

#[test]
fn every_test_that_is_named_exists() {
    let mut missing = Vec::new();
    for test in all().flat_map(|(_, tests)| *tests) {
        let (file, name) = test.split_once("::").expect("a file and a name");
        let text = std::fs::read_to_string(root().join(file)).unwrap_or_default();
        let place = text.find(&format!("fn {name}("));
        let before = place.map(|at| text[..at].trim_end());
        if !before.is_some_and(|before| before.strip_suffix("async").unwrap_or(before).trim_end().ends_with(']')) {
            missing.push(test);
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}
