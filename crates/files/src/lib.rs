//! Files and folders of this process: private to its user, locked by one process at a time, identified by number, with
//! reasons for denied access.
//!
//! The one rule of use: a server creates every file by [`private::file`], every folder by [`private::make_folder`].
//!
//! ```
//! use std::time::Duration;
//! use strowger_files::{FileLock, FileNumber, LockError, private};
//!
//! let parent = tempfile::tempdir()?;
//! let folder = parent.path().join("calls");
//! let lock = FileLock::of_folder(&folder, "lock", Duration::ZERO)?;
//! // Another process has to wait, or to give up.
//! assert!(matches!(FileLock::of_folder(&folder, "lock", Duration::ZERO), Err(LockError::InUse(_))));
//! let path = folder.join("rows");
//! let file = private::file().open(&path)?;
//! assert_eq!(Some(FileNumber::of(&file)?), FileNumber::named(&path));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod access;
mod lock;
mod number;
pub mod private;

pub use self::lock::{FileLock, LockError};
pub use self::number::{FileNumber, is_full};
