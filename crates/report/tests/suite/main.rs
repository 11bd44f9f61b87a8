//! Behaviours of reports that cross files.

mod drawing;
mod figure;
mod specimen;
