//! Calls kept over a restart: the calls of an earlier process, and the writer for this process.

use crate::backends;
use crate::lease::Leases;
use anyhow::{Context, anyhow};
use std::sync::Arc;
use strowger_backend::accounting::{Accounting, Settings};
use strowger_backend::files::spool::Spool;
use strowger_backend::technology::{self, DataPlace};
use strowger_calls::{Call, anchor_of, read_kept};
use strowger_config::Config;
use strowger_net::clock;
use strowger_server::engine::Effect;
use strowger_store::accounting::Row;
use strowger_store::calls::{CallStore, Left};

/// Calls of an earlier process.
#[derive(Default)]
pub(crate) struct LeftCalls {
    /// Calls of the table.
    pub(crate) calls: Vec<Call>,
    /// States of the roles that anchor calls, by the keys of the calls.
    pub(crate) anchors: Vec<(u64, Box<[u8]>)>,
}

/// Calls and rows of an earlier process, and the writer of kept calls.
#[derive(Default)]
pub(crate) struct Kept {
    /// Writer; `None`: calls are not kept.
    pub(crate) call_store: Option<Arc<CallStore>>,
    /// Calls to continue.
    pub(crate) left: LeftCalls,
    /// Rows of calls that had just ended: the earlier process may have written or lost them.
    #[expect(clippy::vec_box, reason = "rows come and go as they are")]
    rows: Vec<Box<Row>>,
}

impl Kept {
    /// Opens the folder or database of kept calls, if one is configured.
    pub(crate) fn open(config: &Config, leases: &Leases) -> anyhow::Result<Self> {
        let Some((key, (technology, place))) = config.dialogs.place().zip(backends::calls(config, leases)) else {
            return Ok(Self::default());
        };
        Self::read(config, technology, &place).with_context(|| format!("`{key}`"))
    }

    fn read(config: &Config, technology: &str, place: &DataPlace) -> anyhow::Result<Self> {
        let open = technology::find(technology, |technology| technology.calls);
        let engine = open.and_then(|open| open(place)).map_err(|error| anyhow!(error))?;
        let (mut all, mut rows, mut unreadable, now) = (LeftCalls::default(), Vec::new(), Vec::new(), clock::now());
        let place = engine.name();
        let (call_store, report) = CallStore::open(engine, config.call_store_settings(), |number, left| match left {
            Left::State(bytes) => match read_kept(now, bytes) {
                Ok(call) => {
                    all.calls.push(call);
                    let anchor = Some(anchor_of(bytes)).filter(|anchor| !anchor.is_empty());
                    all.anchors.extend(anchor.map(|anchor| (number, anchor.into())));
                }
                Err(error) => unreadable.push((number, error)),
            },
            Left::LastWords(bytes) => rows.extend(Row::read_all(bytes).unwrap_or_default()),
        })?;
        for (segment, damage) in &report.damage {
            tracing::error!(segment = %segment.display(), %damage, "kept calls damaged");
        }
        if let Some((_, error)) = unreadable.first() {
            tracing::error!(%error, calls = unreadable.len(), "kept calls not readable");
        }
        unreadable.iter().for_each(|(number, _)| call_store.remove(*number));
        tracing::info!(place, calls = all.calls.len(), bytes = report.bytes, "calls of the process before");
        Ok(Self { call_store: Some(Arc::new(call_store)), left: all, rows })
    }

    /// Puts rows that the earlier process may not have written into the spool, before accounting starts, so that each
    /// row is written once. Rows that the earlier process has spooled are not added again.
    pub(crate) fn spool_rows(&mut self, config: &Config) {
        let Some(settings) = backends::accounting(config) else { return };
        if self.rows.is_empty() {
            return;
        }
        match self.try_spool(&settings) {
            Ok(()) => self.rows.clear(),
            Err(error) => tracing::error!(%error, rows = self.rows.len(), "rows of calls that had ended not spooled"),
        }
    }

    fn try_spool(&mut self, settings: &Settings) -> anyhow::Result<()> {
        let mut spool = Spool::open(&settings.spool, settings.spool_bytes, settings.patience)?;
        let spooled = spool.identities()?;
        self.rows.retain(|row| !spooled.contains(row.identity()));
        Ok(spool.append(&self.rows)?)
    }

    /// Submits the rows for which the spool had no room. A table skips rows that it has already.
    pub(crate) fn submit_rows(&mut self, accounting: Option<&Accounting>) {
        let Some(accounting) = accounting else { return };
        self.rows.drain(..).for_each(|row| accounting.submit(row));
    }
}

/// Carries out the effects on kept calls; returns other effects.
pub(crate) fn carry_out(call_store: Option<&CallStore>, effect: Effect) -> Option<Effect> {
    match (effect, call_store) {
        (Effect::PersistCall { call, state }, Some(call_store)) => call_store.put(call, state),
        (Effect::FinishCall { call, rows }, Some(call_store)) => call_store.close(call, rows),
        (Effect::DeleteCall { call }, Some(call_store)) => call_store.remove(call),
        (Effect::PersistCall { .. } | Effect::FinishCall { .. } | Effect::DeleteCall { .. }, None) => (),
        (other, _) => return Some(other),
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_config::Source;
    use strowger_store::accounting::Cdr;

    #[test]
    fn rows_that_the_spool_has_do_not_come_a_second_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.spool");
        let text = format!("accounting.cdr = true\naccounting.spool = {path:?}");
        let (config, _) = Config::read(Source { text: &text, ..Source::default() }).expect("right");
        let row = |identity: &str| Box::new(Row::Cdr(Cdr { identity: identity.into(), ..Cdr::default() }));
        let open = || Spool::open(&path, 1 << 20, std::time::Duration::ZERO).unwrap();
        // The earlier process had spooled row 2, and was killed before it removed that row from the kept calls.
        open().append(&[row("1"), row("2")]).unwrap();
        let mut kept = Kept { rows: vec![row("2"), row("3")], ..Kept::default() };
        kept.spool_rows(&config);
        assert_eq!(open().chunk(9), [row("1"), row("2"), row("3")]);
        assert!(kept.rows.is_empty());
    }
}
