//! `[server]`: threads, sockets, the life of the process.

use std::time::Duration;

use super::domains::Domain;
use super::key::{Rule, words};
use super::reader::{ANY, section};

words! {
    /// Time at which a thread that a message has woken gets the processor from another program.
    pub enum Scheduling {
        /// When that program sleeps or its time slice is over, after a few milliseconds at most (`SCHED_BATCH`,
        /// sched(7)).
        Batch = "batch",
        /// Immediately, if the kernel finds it fair (`SCHED_OTHER`).
        Normal = "normal",
    }
}

section! {
    /// Threads, sockets and the life of the process.
    pub struct Server = "server" {
        /// Number of threads that carry messages; "auto" starts with one thread and adds further ones, up to the number of cores, when a thread is
        /// more than 70 % busy.
        pub shards: Option<u16> = None, Rule::number(1, 64).or("auto").fixed();
        /// Receive buffer asked of the kernel for each UDP socket; 4 MiB hold about 50 ms at 25,000 calls/s.
        pub udp_receive_buffer: usize = 4 << 20, Rule::bytes(4 << 10, 1 << 30).fixed();
        /// Scheduling of threads that messages wake while another program has the processor: "batch" lets that program finish its time slice,
        /// which saves up to a fifth of the CPU if peers run on the same machine; "normal" takes the processor at once.
        pub scheduling: Scheduling = Scheduling::Batch, ANY.fixed();
        /// Let the kernel back memory with pages of 2 MiB (transparent huge pages), which spares a server with millions of registrations or cache
        /// entries some of their look-up time. The memory of the process then grows in steps of 2 MiB, may be twice the memory in use, and is
        /// returned to the system late.
        pub huge_pages: bool = false, ANY.fixed();
        /// Act on ICMP errors, such as "port unreachable", that quote a request of this server: the transaction of the request ends at once (RFC 3261
        /// section 18.4), not only after 64 times `t1`. An attacker who can read the requests can forge such an error. False: ICMP errors are
        /// ignored.
        pub icmp_errors: bool = true, ANY.fixed();
        /// Time after SIGTERM in which calls being set up may complete before the process ends.
        pub drain_timeout: Duration = Duration::from_secs(30), Rule::time(Duration::ZERO, Duration::from_secs(86_400));
        /// Number of this server among the servers that work together; it is part of each flow token.
        pub node: u16 = 0, Rule::number(0, 65_535).fixed();
        /// Further names of this server, in addition to `domains` and `advertise`, such as the outbound proxy that phones are configured with: a
        /// Route with one of them is removed (RFC 3261 section 16.4). Names below a local domain that resolve to an address of this server need not
        /// be listed.
        pub names: Vec<Domain> = Vec::new(), ANY;
        /// Value of the header fields Server and User-Agent (RFC 3261 sections 20.35 and 20.41); "" for neither.
        pub software: String = "Strowger".into(), ANY;
    }
}
