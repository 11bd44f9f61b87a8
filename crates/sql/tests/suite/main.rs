//! Tests with database servers.

mod fence;
