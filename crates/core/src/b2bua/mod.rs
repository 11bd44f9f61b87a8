//! Back-to-back user agent: calls of the user agent joined in pairs, with the media between them.
//!
//! | module | RFC | subject |
//! |---|---|---|
//! | [`negotiation`] | RFC 3264 | offers and answers of one leg, made from those of the other; answers of endpoints |

pub mod negotiation;
