//! Policy of a server: permissions, responses and state, with phones in a network in memory.

mod answers;
mod bans;
mod bounds;
mod bridges;
mod calls;
mod endpoints;
mod gone;
mod media_quality;
mod overload;
mod pings;
mod registrations;
mod relaying;
mod site;
mod waiting;
