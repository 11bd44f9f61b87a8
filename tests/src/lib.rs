//! What the tests with the world have in common.

pub mod binary;
