//! The whole configuration: all tables of a text, and their items.

use std::sync::Arc;

use super::accounting::Accounting;
use super::auth::Auth;
use super::ban::Ban;
use super::cache::CacheTable;
use super::call_limit::CallLimitTable;
use super::certificate::Certificate;
use super::change::Change;
use super::control::Control;
use super::dialogs::Dialogs;
use super::dns::Dns;
use super::domains::{DomainTable, LocalDomain, Top};
use super::emergency::Emergency;
use super::failure::FailureTable;
use super::filter::FilterTable;
use super::gateway_group::GatewayGroupTable;
use super::limits::Limits;
use super::listen::{Listener, ListenerTable};
use super::log::Log;
use super::media::Media;
use super::metrics::Metrics;
use super::nat::Nat;
use super::proxy::Proxy;
use super::reader::Section;
use super::registrar::Registrar;
use super::rules::{Decisions, RuleTable, SourceTable};
use super::server::Server;
use super::set::SetTable;
use super::store::Store;
use super::table_text::{self, TableText};
use super::tables::document;
use super::timers::Timers;
use super::tls::Tls;

/// Names all tables. The macro makes from this list the fields of [`Config`] and the code that reads, names and writes tables. The field and the type
/// that a list becomes are right of the arrow.
macro_rules! tables {
    ($make:ident) => {
        $make! {
            top: Top,
            lists {
                /// Listeners; at least one.
                listener: ListenerTable => listeners: Listener,
                /// Local domains, those of `domains` first; empty for a pure relay.
                domain: DomainTable => domains: LocalDomain,
                /// Certificates by name.
                certificate: Certificate => certificates: Certificate,
                /// Groups of peers by address.
                source: SourceTable => sources: SourceTable,
                /// Data sets that conditions query.
                set: SetTable => sets: SetTable,
                /// Limits of concurrent calls.
                call_limit: CallLimitTable => call_limits: CallLimitTable,
                /// Next hops under one name.
                gateway_group: GatewayGroupTable => gateway_groups: GatewayGroupTable,
                /// Filters: requests refused before any other check.
                filter: FilterTable => filters: FilterTable,
                /// Reactions of rules to failed requests.
                failure: FailureTable => failures: FailureTable,
                /// Rules for requests, in order.
                rule: RuleTable => rules: RuleTable,
                /// Caches by name.
                cache: CacheTable => caches: CacheTable,
            }
            tables {
                server: Server,
                proxy: Proxy,
                emergency: Emergency,
                registrar: Registrar,
                auth: Auth,
                ban: Ban,
                nat: Nat,
                media: Media,
                store: Store,
                tls: Tls,
                limits: Limits,
                timers: Timers,
                dns: Dns,
                dialogs: Dialogs,
                accounting: Accounting,
                log: Log,
                metrics: Metrics,
                control: Control,
            }
        }
    };
}

macro_rules! config {
    (
        top: $top:ident,
        lists { $($(#[$doc:meta])+ $list:ident: $item:ident => $items:ident: $part:ident),+ $(,)? }
        tables { $($field:ident: $type:ident),+ $(,)? }
    ) => {
        /// Complete configuration.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Config {
            $( $(#[$doc])+ pub $items: Vec<$part>, )+
            /// Realm of digest authentication for domains without a realm of their own, and for callers from no local
            /// domain.
            pub realm: String,
            /// Compiled rules with their sets and sources.
            pub decisions: Arc<Decisions>,
            $(
                #[doc = concat!("The table `[", stringify!($field), "]`.")]
                pub $field: $type,
            )+
        }

        impl Tables {
            #[expect(clippy::too_many_arguments, reason = "one for each list")]
            pub(crate) fn into_config(
                self,
                $( $items: Vec<$part>, )+
                realm: String,
                decisions: Arc<Decisions>,
            ) -> Config {
                Config { $( $items, )+ realm, decisions, $( $field: self.$field ),+ }
            }
        }

        impl Config {
            /// Returns each table with its values as TOML, in the order of the documentation.
            pub(crate) fn tables(&self) -> Vec<TableText> {
                vec![$( TableText::new(&self.$field) ),+]
            }

            /// Returns the lists as TOML, in the order of the documentation.
            pub(crate) fn lists(&self) -> String {
                [$( table_text::list(&self.$items) ),+].concat()
            }

            /// Returns a table with the defaults for each kind of list item.
            pub(crate) fn list_items() -> Vec<TableText> {
                vec![$( TableText::item::<$item>() ),+]
            }

            /// Returns the keys of all single tables whose values differ from those in `running`.
            pub(crate) fn table_changes(&self, running: &Self) -> Vec<Change> {
                [$( self.$field.changes(&running.$field, $type::NAME) ),+].concat()
            }

            /// Returns the keys of all lists whose values differ from those in `running`.
            pub(crate) fn list_changes(&self, running: &Self) -> Vec<Change> {
                [$( table_text::list_changes(&self.$items, &running.$items) ),+].concat()
            }

            pub(crate) fn keep_fixed(&mut self, running: &Self) {
                $( self.$field.keep_fixed(&running.$field); )+
            }
        }
    };
}

tables!(document);
tables!(config);
