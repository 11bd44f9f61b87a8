//! Subscribers and tables of accounting, as Kamailio has them.

use super::MariaDb;
use crate::Error;
use crate::document::DOMAIN;
use std::path::Path;

/// Folder where Debian's `kamailio-mysql-modules` keeps the tables of Kamailio.
pub const KAMAILIO_TABLES: &str = "/usr/share/kamailio/mysql";

/// Users of the domain, see [`crate::document::user`].
pub const USERS: u32 = 10_000;

/// Users of experiments that need very many.
pub const MANY: u32 = 1_000_000;

/// Makes the tables of Kamailio, with this number of users.
///
/// # Errors
/// `kamailio-mysql-modules` is not installed, or the database refuses something.
pub fn prepare(database: &MariaDb, users: u32) -> Result<(), Error> {
    for table in ["standard", "auth_db", "acc", "usrloc"] {
        let file = Path::new(KAMAILIO_TABLES).join(format!("{table}-create.sql"));
        if !file.is_file() {
            return Err(Error::NotInstalled { program: "db_mysql.so", package: "kamailio-mysql-modules" });
        }
        database.execute_file(&file)?;
    }
    // As `document::user` names them.
    let (name, password) = ("CONCAT('user', seq)", "CONCAT('secret', seq)");
    let ha1 = format!("MD5(CONCAT({name}, ':{DOMAIN}:', {password}))");
    let ha1b = format!("MD5(CONCAT({name}, '@{DOMAIN}:{DOMAIN}:', {password}))");
    database.execute(&format!(
        "ALTER TABLE acc ADD caller VARCHAR(64), ADD callee VARCHAR(64);
         ALTER TABLE acc_cdrs ADD caller VARCHAR(64), ADD callee VARCHAR(64), ADD callid VARCHAR(255);
         INSERT INTO subscriber (username, domain, ha1, ha1b)
         SELECT {name}, '{DOMAIN}', {ha1}, {ha1b} FROM seq_1_to_{users};"
    ))?;
    Ok(())
}
