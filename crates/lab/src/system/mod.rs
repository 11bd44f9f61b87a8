//! Systems under test: folders with the commands of a server and its configurations.
//!
//! The folder of a system has a `driver.toml` and the files of its scenarios. Files have marks such as `@PORT@`, which a start fills in.
//!
//! | key of `driver.toml` | content |
//! |---|---|
//! | `title` | name for people |
//! | `program`, `package` | name of the program in `PATH`, and the Debian package that contains it |
//! | `start` | words of the command that starts the server, which stays in the foreground |
//! | `measure` | words of a command that makes the load of a trial itself; its last line of JSON has the figures: `{"rate.achieved": 4500}` |
//! | `version` | words of the command that prints the version |
//! | `check` | words of the command that checks a configuration |
//! | `ready` | sign that the server is ready: `"udp"`, `"tcp"`, `"options"`, or `{ prints = "text" }` |
//! | `instances` | servers that make up the system, each on a port of its own |
//! | `external` | `true` for a server that runs already |
//! | `[[scenario]]` | `name`; `configuration`, `files`, `words`, `first`, `needs`, `rows` |
//!
//! | mark | value |
//! |---|---|
//! | `@PROGRAM@`, `@CONFIG@`, `@FOLDER@` | program, filled configuration, folder of the start |
//! | `@ADDRESS@`, `@PORT@` | address and port of the server: 127.0.0.1 unless other machines take part; by IPv6 in brackets |
//! | `@WORKERS@` | number of workers in the setting, or 1 if the setting has none |
//! | `@CAPACITY@` | calls a second that the run has found the server to carry, or 1000000 before that is known |
//! | `@LOAD@`, `@WARM_UP@`, `@WINDOW@` | in `measure`: load of the trial, and its times in seconds |
//! | `@WORDS@` | the `words` of the scenario; a word of `start` or `measure` must consist of this mark alone |
//! | `@CERTIFICATE@`, `@KEY@` | files of a certificate of `@ADDRESS@`, made for the start |
//! | `@NODE@` | number of the server among the instances, from 1 |
//! | `@DOMAIN@` | domain of all users, [`crate::document::DOMAIN`] |
//! | `@ANSWER_1@`, `@ANSWER_2@` | address and port of an answering side |
//! | `@DATABASE@`, `@CACHE@`, `@CACHE_SERVERS@` ... | values of a backend, see [`crate::backend::Beside`] |
//!
//! ```
//! use strowger_lab::system::SystemFolder;
//!
//! let system = SystemFolder::open("kamailio", None).expect("it is shipped");
//! assert!(system.scenario("relay").is_some() && system.scenario("relais").is_none());
//! ```

pub(crate) mod certificate;
mod driver;
mod folder;
mod marks;
mod quota;
mod ready;
mod running;
mod shipped;

pub use driver::{DriverFile, Entries, Ready, Rows, Scenario};
pub use folder::SystemFolder;
pub use marks::fill;
pub use quota::can_limit;
pub(crate) use running::Measuring;
pub use running::{RunningSystem, Setting, check, start};
pub use shipped::{Files, SHIPPED};
