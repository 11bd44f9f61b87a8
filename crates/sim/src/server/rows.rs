//! Accounting rows on their way to the table: rows wait in memory until their group is complete, the writing of a group
//! takes time, and a kill loses unwritten rows. The table keeps each written row, and has each identity once.

use super::ServerHost;
use super::kept::Kept;
use super::process::Due;
use crate::random::Random;
use std::collections::HashSet;
use strowger_core::Now;
use strowger_store::accounting::Row;

/// The table, which outlives all processes of its server.
#[derive(Debug, Default)]
pub(super) struct Table {
    identities: HashSet<String>,
    /// Number of call records among its rows.
    pub(super) records: u64,
}

impl Table {
    /// Adds a row to the table, unless the table has it.
    fn take(&mut self, row: &Row) {
        if self.identities.insert(row.identity().to_owned()) {
            self.records += u64::from(matches!(row, Row::Cdr(_)));
        }
    }
}

/// Writer of one process.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// Time for which the first row of a group waits for others, and longest time of a group, in ms.
    linger: u64,
    patience: u64,
    #[expect(clippy::vec_box, reason = "rows come and go as they are")]
    waiting: Vec<Box<Row>>,
    /// Time of the first of them.
    since: u64,
    /// A group that is being written, or may be written already.
    #[expect(clippy::vec_box, reason = "rows come and go as they are")]
    group: Option<Vec<Box<Row>>>,
}

impl Writer {
    pub(super) fn new(linger: u64, patience: u64) -> Self {
        Self { linger, patience, ..Self::default() }
    }

    /// Returns the number of rows that are not known to be written.
    pub(super) fn open(&self) -> usize {
        self.waiting.len() + self.group.as_ref().map_or(0, Vec::len)
    }

    /// Returns the time that the next group takes: it is short, unless the table is locked.
    fn takes(&self, random: &mut Random) -> u64 {
        if random.chance(100) { random.between(0, self.patience) } else { random.between(0, 20.min(self.patience)) }
    }
}

impl ServerHost {
    /// Gives a row to the writer.
    pub(super) fn submit(&mut self, now: Now, row: Box<Row>) {
        let writer = &mut self.process.writer;
        writer.waiting.push(row);
        if writer.waiting.len() == 1 {
            writer.since = now.mono;
            if writer.group.is_none() {
                let due = now.mono + writer.linger;
                self.plan(due, Due::Group);
            }
        }
    }

    /// Takes the waiting rows as a group, which is written after a while.
    pub(super) fn take_group(&mut self, now: Now) {
        let writer = &mut self.process.writer;
        writer.group = Some(std::mem::take(&mut writer.waiting));
        let due = now.mono + writer.takes(&mut self.later_random);
        self.plan(due, Due::GroupWritten);
    }

    pub(super) fn group_written(&mut self, now: Now) {
        let writer = &mut self.process.writer;
        let group = writer.group.take();
        if !writer.waiting.is_empty() {
            let due = now.mono.max(writer.since + writer.linger);
            self.plan(due, Due::Group);
        }
        self.write(group.unwrap_or_default());
    }

    /// Records a kill. A group in progress is written or not; waiting rows are lost.
    pub(super) fn lose_rows(&mut self) {
        let writer = std::mem::take(&mut self.process.writer);
        if self.later_random.chance(500) {
            self.write(writer.group.unwrap_or_default());
        }
    }

    /// Writes all rows at a graceful end.
    pub(super) fn write_rows(&mut self) {
        let writer = std::mem::take(&mut self.process.writer);
        self.write(writer.group.unwrap_or_default());
        self.write(writer.waiting);
    }

    /// Writes the stored rows of calls that the previous process had closed. The previous process may have written some
    /// of these rows.
    pub(super) fn write_last_words(&mut self, now: Now) {
        let Some(kept) = &mut self.kept else { return };
        match kept.last_words(now) {
            Ok((rows, due)) => {
                if let Some(due) = due {
                    self.plan(due, Due::LastWords);
                }
                self.write(rows);
            }
            Err(problem) => self.wrong(problem),
        }
    }

    #[expect(clippy::vec_box, reason = "rows come and go as they are")]
    fn write(&mut self, rows: Vec<Box<Row>>) {
        for row in rows {
            self.table.take(&row);
            self.kept.iter_mut().for_each(|kept: &mut Kept| kept.on_row_written(&row));
        }
    }
}
