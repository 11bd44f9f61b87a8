//! Files of records as a disk may damage them.

mod damage;
