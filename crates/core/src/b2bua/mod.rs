//! Back-to-back user agent: calls of the user agent joined in pairs, with the media between them.
//!
//! | module | RFC | subject |
//! |---|---|---|
//! | [`bridge`] | RFC 3261, 3262, 3311 | two calls of a user agent joined; outcome of each event |
//! | [`negotiation`] | RFC 3264 | offers and answers of one leg, made from those of the other; answers of endpoints |

pub mod bridge;
pub mod negotiation;
