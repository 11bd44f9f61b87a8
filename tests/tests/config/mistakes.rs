//! Configuration mistakes, each alone in a file.

/// Configuration with one mistake.
pub(super) struct Wrong {
    /// Kind of mistake.
    pub(super) kind: &'static str,
    /// Text of the file; the two marks enclose the position of the caret and are removed before the file is written.
    pub(super) text: &'static str,
    /// Part of the sentence that describes the mistake.
    pub(super) message: &'static str,
    /// Part of the sentence that describes the cure.
    pub(super) cure: &'static str,
}

pub(super) const FROM: char = '»';
pub(super) const TO: char = '«';

pub(super) const WRONG: &[Wrong] = &[
    Wrong {
        kind: "a bracket that is not closed",
        text: "listen = [\"udp:127.0.0.1:5060\"\n»[«log]\nlevel = \"info\"\n",
        message: "not TOML",
        cure: "a list stands in brackets",
    },
    Wrong { kind: "text without quotes", text: "[timers]\nt1 = »500ms«\n", message: "not TOML", cure: "quotes" },
    Wrong {
        kind: "a key that stands twice",
        text: "[log]\nlevel = \"info\"\n»level« = \"warn\"\n",
        message: "duplicate key",
        cure: "remove one of the two",
    },
    Wrong {
        kind: "a table that does not exist",
        text: "[»registrer«]\nmin_expires = \"1m\"\n",
        message: "there is no table [registrer]",
        cure: "write [registrar]",
    },
    Wrong {
        kind: "a key with a slip of the pen",
        text: "[registrar]\n\n»min_expire« = \"1m\"\n",
        message: "there is no key min_expire in [registrar]",
        cure: "write min_expires",
    },
    Wrong {
        kind: "a key in the wrong table",
        text: "[timers]\n»record_route« = true\n",
        message: "there is no key record_route in [timers]",
        cure: "record_route belongs in [proxy]",
    },
    Wrong {
        kind: "a key above the first table that belongs in one",
        text: "»relay_for« = \"everyone\"\n",
        message: "there is no key relay_for",
        cure: "relay_for belongs in [proxy]",
    },
    Wrong {
        kind: "text where true or false belongs",
        text: "[registrar]\nauthenticate = »\"yes\"«\n",
        message: "registrar.authenticate must be true or false, not text",
        cure: "write true or false, without quotes",
    },
    Wrong {
        kind: "a number out of its range",
        text: "[server]\nshards = »65«\n",
        message: "server.shards is out of its range",
        cure: "a whole number from 1 to 64, or \"auto\"",
    },
    Wrong {
        kind: "a database server of another kind",
        text: "[store]\nsubscribers = »\"oracle://u@db.example.org/d\"«\n",
        message: "store.subscribers begins with the name of no database server that is known",
        cure: "write a URL such as \"mysql://USER:PASSWORD@HOST:3306/DATABASE\" or \"postgresql://USER:PASSWORD@HOST:5432/DATABASE\", or \"database\"",
    },
    Wrong {
        kind: "a database server without a database",
        text: "[store]\nsubscribers = »\"mysql://u@db.example.org\"«\n",
        message: "store.subscribers names no database",
        cure: "write a URL such as",
    },
    Wrong {
        kind: "a negative number",
        text: "[limits]\nconnections = »-1«\n",
        message: "limits.connections is out of its range",
        cure: "a whole number from 1",
    },
    Wrong {
        kind: "a size that is none",
        text: "[limits]\nmessage_size = »\"64KB\"«\n",
        message: "which is not a size",
        cure: "\"64KiB\"",
    },
    Wrong {
        kind: "a duration without its unit",
        text: "[timers]\nt1 = »500«\n",
        message: "timers.t1 is a number without a unit",
        cure: "for example \"500ms\"",
    },
    Wrong {
        kind: "a duration of words",
        text: "[timers]\nt2 = »\"four seconds\"«\n",
        message: "which is not a duration",
        cure: "from \"10ms\" to \"1m\"",
    },
    Wrong {
        kind: "a word that a key does not know",
        text: "[registrar]\ndurability = »\"powerloss\"«\n",
        message: "unknown value \"powerloss\" for registrar.durability",
        cure: "did you mean \"power-loss\"?",
    },
    Wrong {
        kind: "a transport that does not exist",
        text: "listen = [\"udp:127.0.0.1:5060\", »\"sctp:127.0.0.1:5060\"«]\n",
        message: "names the transport \"sctp\"",
        cure: "transport udp, tcp, tls, ws or wss",
    },
    Wrong {
        kind: "a name where an address belongs",
        text: "listen = [»\"udp:localhost:5060\"«]\n",
        message: "where an IP address and a port belong",
        cure: "udp:192.0.2.10:5060",
    },
    Wrong {
        kind: "a port above 65535",
        text: "[[listener]]\ntransport = \"tcp\"\nport = »70000«\n",
        message: "listener[0].port is out of its range",
        cure: "from 0 to 65535",
    },
    Wrong {
        kind: "two listeners on one port",
        text: "listen = [\"tcp:127.0.0.1:5060\", »\"ws:127.0.0.1:5060\"«]\n",
        message: "want the same port",
        cure: "give one of them another port",
    },
    Wrong {
        kind: "an advertised address that no peer can send to",
        text: "[[listener]]\nadvertise = »\"0.0.0.0:5060\"«\n",
        message: "an address that no peer can send to",
        cure: "that peers can reach",
    },
    Wrong {
        kind: "no listener at all",
        text: "listen = »[]«\n",
        message: "there is no listener",
        cure: "name at least one",
    },
    Wrong {
        kind: "tls without a certificate",
        text: "listen = [»\"tls:127.0.0.1:5061\"«]\n",
        message: "has no certificate",
        cure: "in the table [tls]",
    },
    Wrong {
        kind: "a certificate file that is not there",
        text: "listen = [\"tls:127.0.0.1:5061\"]\n[tls]\ncertificate = »\"missing.pem\"«\nkey = \"a.key\"\n",
        message: "missing.pem: No such file",
        cure: "BEGIN CERTIFICATE",
    },
    Wrong {
        kind: "a key of another certificate",
        text: "listen = [\"tls:127.0.0.1:5061\"]\n[tls]\ncertificate = \"a.pem\"\nkey = »\"b.key\"«\n",
        message: "does not belong to the certificate",
        cure: "the key that the certificate was made with",
    },
    Wrong {
        kind: "a key file with a password",
        text: "listen = [\"tls:127.0.0.1:5061\"]\n[tls]\ncertificate = \"a.pem\"\nkey = »\"encrypted.key\"«\n",
        message: "is encrypted",
        cure: "openssl pkey",
    },
    Wrong {
        kind: "a certificate without its key",
        text: "[tls]\ncertificate = »\"a.pem\"«\n",
        message: "only one of certificate and key",
        cure: "name both files",
    },
    Wrong {
        kind: "a domain that is a URI",
        text: "domains = [\"example.org\", »\"sip:example.org\"«]\n",
        message: "domains[1] is \"sip:example.org\"",
        cure: "a domain alone, such as \"example.org\"",
    },
    Wrong {
        kind: "a domain of both forms",
        text: "domains = [\"a.example\", \"example.org\"]\n[[domain]]\nname = »\"example.org\"«\n",
        message: "the domain example.org is named twice: lines 1 and 3",
        cure: "name it once: in `domains`, or in a [[domain]] table",
    },
    Wrong {
        kind: "a domain with two tables",
        text: "[[domain]]\nname = \"example.org\"\nrealm = \"a\"\n[[domain]]\nname = »\"Example.org\"«\nrealm = \"b\"\n",
        message: "the domain example.org is named twice: lines 2 and 5",
        cure: "name it once",
    },
    Wrong {
        kind: "a domain without its name",
        text: "»[[domain]]«\nrealm = \"office\"\n",
        message: "[[domain]] has no name",
        cure: "write name = and a domain alone, such as \"example.org\"",
    },
    Wrong {
        kind: "a list of domains under the name of the table",
        text: "domain = [»\"example.org\"«]\n",
        message: "domain[0] must be a table, not text",
        cure: "write each domain as a [[domain]] table, or domains = and a list",
    },
    Wrong {
        kind: "one domain under the name of the table",
        text: "»domain« = \"example.org\"\n",
        message: "domain is not a list of tables",
        cure: "write [[domain]], in double brackets, or domains = and a list",
    },
    Wrong {
        kind: "a table in single brackets that belongs in double ones",
        text: "[»domain«]\nname = \"example.org\"\n",
        message: "domain is not a list of tables",
        cure: "write [[domain]], in double brackets",
    },
    Wrong {
        kind: "users in the table of a domain",
        text: "[[domain]]\nname = \"example.org\"\n»domains« = [\"example.net\"]\n",
        message: "there is no key domains in [[domain]]",
        cure: "domains stands at the top of the file, above the first [table]",
    },
    Wrong {
        kind: "a certificate that does not exist",
        text: "[[listener]]\ntransport = \"tls\"\nport = 5061\ncertificates = [»\"west\"«]\n\
               [[certificate]]\nname = \"West\"\ncertificate = \"a.pem\"\nkey = \"a.key\"\n",
        message: "certificate 'west' does not exist",
        cure: "did you mean 'West'?",
    },
    Wrong {
        kind: "a certificate that has no table at all",
        text: "[[listener]]\ntransport = \"tls\"\nport = 5061\ncertificates = [»\"a.pem\"«]\n",
        message: "certificate 'a.pem' does not exist",
        cure: "there is no [[certificate]] table: add one with name = \"a.pem\"",
    },
    Wrong {
        kind: "a name that is a path",
        text: "[[listener]]\ntransport = \"tls\"\nport = 5061\ncertificates = [»\"tls/a.pem\"«]\n",
        message: "listener[0].certificates[0] is \"tls/a.pem\", which is not a name",
        cure: "letters, digits, -, _ and .",
    },
    Wrong {
        kind: "a certificate table without its key",
        text: "»[[certificate]]«\nname = \"west\"\ncertificate = \"a.pem\"\n",
        message: "[[certificate]] has no key",
        cure: "write key = and a path in quotes",
    },
    Wrong {
        kind: "two certificates of one name",
        text: "[[certificate]]\nname = \"a\"\ncertificate = \"a.pem\"\nkey = \"a.key\"\n\
               [[certificate]]\nname = »\"a\"«\ncertificate = \"b.pem\"\nkey = \"b.key\"\n",
        message: "there are two tables [[certificate]] with the name 'a': lines 2 and 6",
        cure: "give one of them another name",
    },
    Wrong {
        kind: "a key in the table of another certificate",
        text: "[[listener]]\ntransport = \"tls\"\nport = 5061\ncertificates = [\"a\"]\n\
               [[certificate]]\nname = \"a\"\ncertificate = \"a.pem\"\nkey = »\"b.key\"«\n",
        message: "does not belong to the certificate",
        cure: "the key that the certificate was made with",
    },
    Wrong {
        kind: "certificates by name and by file",
        text: "[[listener]]\ntransport = \"tls\"\nport = 5061\ncertificates = [\"a\"]\ncertificate = »\"a.pem\"«\nkey = \"a.key\"\n\
               [[certificate]]\nname = \"a\"\ncertificate = \"a.pem\"\nkey = \"a.key\"\n",
        message: "has certificates by name and by file: lines 4 and 5",
        cure: "keep `certificates`",
    },
    Wrong {
        kind: "a shortest life longer than the longest",
        text: "[registrar]\nmin_expires = »\"3h\"«\nmax_expires = \"1h\"\n",
        message: "min_expires (3h) is longer than max_expires (1h)",
        cure: "make min_expires the shorter",
    },
    Wrong {
        kind: "a default life out of its bounds",
        text: "[registrar]\ndefault_expires = »\"3h\"«\n",
        message: "default_expires (3h) is out of bounds",
        cure: "from min_expires (1m) to max_expires (2h)",
    },
    Wrong {
        kind: "a session timer shorter than the shortest",
        text: "[dialogs]\nsession_expires = »\"2m\"«\nmin_session_expires = \"3m\"\n",
        message: "dialogs.session_expires (2m) is shorter than min_session_expires (3m)",
        cure: "make min_session_expires the shorter",
    },
    Wrong {
        kind: "calls that last longer than the way to their parties is open",
        text: "[dialogs]\ntrack = true\nlifetime = »\"2d\"«\n",
        message: "dialogs.lifetime (2d) is longer than proxy.route_lifetime (1d)",
        cure: "make route_lifetime at least as long",
    },
    Wrong {
        kind: "a database that is the server's for accounting too",
        text: "[accounting]\ncdr = true\npath = »\"strowger.sqlite\"«\n",
        message: "accounting.path is the database of the server, store.database",
        cure: "name a file of its own",
    },
    Wrong {
        kind: "accounting in a database server that is not named",
        text: "[accounting]\ncdr = true\nto = »\"sql\"«\n",
        message: "accounting.to = \"sql\" names no database",
        cure: "set accounting.database = \"mysql://USER:PASSWORD@HOST:3306/DATABASE\"",
    },
    Wrong {
        kind: "a server for bindings that are not kept",
        text: "[registrar]\ndurability = »\"none\"«\n[store]\nbindings = \"mysql://u@127.0.0.1/d\"\n",
        message: "registrar.durability = \"none\" keeps no bindings",
        cure: "remove one of the two",
    },
    Wrong {
        kind: "accounting in a folder that is not there",
        text: "[accounting]\ncdr = true\nspool = »\"nowhere/spool\"«\n",
        message: "the folder of accounting.spool, nowhere, does not exist",
        cure: "mkdir -p",
    },
    Wrong {
        kind: "a header field with passwords in the accounts",
        text: "[accounting]\nfields = [»\"Proxy-Authorization\"«]\n",
        message: "which proves passwords",
        cure: "the name of a header field without passwords",
    },
    Wrong {
        kind: "a condition with an unknown field",
        text: "[[rule]]\nname = \"a\"\nwhen = \"»methd« == 'INVITE'\"\n",
        message: "rule 'a': there is no field `methd`",
        cure: "did you mean `method`",
    },
    Wrong {
        kind: "a condition that asks a set that is not there",
        text: "[[set]]\nname = \"gateways\"\n[[rule]]\nname = \"a\"\nwhen = \"from.user in »gateway«\"\n",
        message: "gateway",
        cure: "gateways",
    },
    Wrong {
        kind: "a rule that answers and leads on",
        text: "[[rule]]\nname = \"a\"\nanswer = 403\nto = »[\"sip:192.0.2.1\"]«\n",
        message: "rule 'a' answers, and says where the request goes",
        cure: "make two rules",
    },
    Wrong {
        kind: "a header that a rule may not take off",
        text: "[[rule]]\nname = \"a\"\nremove_headers = [»\"Via\"«]\n",
        message: "is \"Via\", which is not known or may not be taken off",
        cure: "a request can do without",
    },
    Wrong {
        kind: "a network that is none",
        text: "[[source]]\nname = \"a\"\nnetworks = [\"192.0.2.0/24\", »\"192.0.2.0/33\"«]\n",
        message: "192.0.2.0/33",
        cure: "",
    },
    Wrong {
        kind: "two rules of one name",
        text: "[[rule]]\nname = \"a\"\n[[rule]]\nname = »\"a\"«\n",
        message: "there are two tables [[rule]] with the name 'a'",
        cure: "another name",
    },
    Wrong {
        kind: "timers in the wrong order",
        text: "[timers]\nt1 = »\"5s\"«\n",
        message: "t1 (5s) is longer than t2 (4s)",
        cure: "make t1 the shorter",
    },
    Wrong {
        kind: "strangers that may be silent for longer than gateways",
        text: "[limits]\nunregistered_connection_timeout = »\"2h\"«\n",
        message: "unregistered_connection_timeout (2h) is longer than idle_connection_timeout (1h)",
        cure: "the shorter of the two",
    },
    Wrong {
        kind: "a secret that is too short",
        text: "[auth]\nsecret = »\"hunter2\"«\n",
        message: "auth.secret has 7 characters",
        cure: "at least 16 random characters",
    },
    Wrong {
        kind: "a secret in two places",
        text: "[auth]\nsecret = \"0123456789abcdef\"\nsecret_file = »\"secret\"«\n",
        message: "auth.secret and auth.secret_file are both set",
        cure: "keep one of the two",
    },
    Wrong {
        kind: "a secret file that is not there",
        text: "[auth]\nsecret_file = »\"missing\"«\n",
        message: "cannot read auth.secret_file",
        cure: "name a file whose first line is the secret",
    },
    Wrong {
        kind: "no algorithm",
        text: "[auth]\nalgorithms = »[]«\n",
        message: "auth.algorithms is empty",
        cure: "name at least one",
    },
    Wrong {
        kind: "an algorithm that stands twice",
        text: "[auth]\nalgorithms = [\"MD5\", \"SHA-256\", »\"MD5\"«]\n",
        message: "names MD5 twice",
        cure: "name each once",
    },
    Wrong {
        kind: "a network with too long a prefix",
        text: "[ban]\nexempt = [»\"10.0.0.0/33\"«]\n",
        message: "which is not a network",
        cure: "192.0.2.0/24",
    },
    Wrong {
        kind: "a route that is no URI",
        text: "[registrar]\nservice_route = [»\"<sip:edge.example.org;lr>\"«]\n",
        message: "which is not a SIP URI",
        cure: "without angle brackets",
    },
    Wrong {
        kind: "a database in memory that shall survive",
        text: "[store]\ndatabase = »\"memory\"«\n",
        message: "promises what a database in memory cannot keep",
        cure: "registrar.durability = \"none\"",
    },
    Wrong {
        kind: "a database in a folder that is not there",
        text: "[store]\ndatabase = »\"missing/strowger.sqlite\"«\n",
        message: "does not exist",
        cure: "mkdir -p",
    },
    Wrong {
        kind: "a database that is something else",
        text: "[store]\ndatabase = »\"secret\"«\n",
        message: "is no sound SQLite database",
        cure: "name another file",
    },
    Wrong {
        kind: "calls of local domains without a local domain",
        text: "domains = []\n[proxy]\nrelay_for = »\"local-domains\"«\n",
        message: "admits no caller",
        cure: "domains = [\"example.org\"]",
    },
    Wrong {
        kind: "an account for calls that are not accounted",
        text: "[[rule]]\nname = \"r\"\naccount = false\naccount_as = »\"west\"«\n",
        message: "rule 'r' names an account for calls that it does not account",
        cure: "remove account = false, or account_as",
    },
    Wrong {
        kind: "an account with a line break",
        text: "[[rule]]\nname = \"r\"\naccount_as = »\"we\\nst\"«\n",
        message: "account_as has control characters",
        cure: "such as \"wholesale\"",
    },
    Wrong {
        kind: "a filter with a reason and no answer",
        text: "[[filter]]\nname = \"f\"\nwhen = \"size > 9\"\nreason = »\"Too Large\"«\n",
        message: "has a reason and no answer",
        cure: "add `answer`, or remove `reason`",
    },
    Wrong {
        kind: "a condition of a filter",
        text: "[[filter]]\nname = \"f\"\nwhen = \"»sise« > 9\"\nanswer = 403\n",
        message: "filter 'f'",
        cure: "size",
    },
];
