//! What the server allows, answers and remembers: a server in this process, phones as plain UDP sockets on loopback.

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
