//! Files of records damaged by a disk.

mod damage;
