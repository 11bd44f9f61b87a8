//! Policy of a server in this process: permissions, responses and state, with phones as plain UDP sockets on loopback.

mod answers;
mod bans;
mod calls;
mod gone;
mod health;
mod orders;
mod pings;
mod registrations;
mod relaying;
mod removal;
mod site;
mod unreachable;
mod waiting;
