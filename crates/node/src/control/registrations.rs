//! The order that ends registrations.

use super::{Controlled, Done, Reply};
use strowger_net::clock;
use strowger_store::location::{ExistingBindings, Step};
use strowger_store::subscriber::parts_of;
use strowger_store::ticket::Ticket;

impl Controlled {
    /// They have ended for calls when this returns; the database has it with its next group.
    pub(super) fn remove_registrations(&self, user: &str, contact: Option<&str>) -> Reply {
        let now = clock::now();
        let mut ended = 0;
        let mut is_last = false;
        let remove = |current: &ExistingBindings<'_>| {
            let wanted = current.iter().filter(|view| contact.is_none_or(|contact| view.uri() == contact.as_bytes()));
            let steps: Vec<Step<'_>> = wanted.map(|view| Step::Remove(view.id())).collect();
            (ended, is_last) = (steps.len(), steps.len() == current.len());
            Ok::<_, ()>(steps)
        };
        if let Err(error) = self.shared.location.update(user.as_bytes(), now.mono, 0, Ticket::NONE, remove) {
            return Reply::Unavailable(format!("the registrations of {user} stay: {error:?}"));
        }
        if ended == 0 {
            let contact = contact.map_or_else(String::new, |contact| format!(" with the contact {contact}"));
            return Reply::Refused(format!("{user} has no registration{contact}"));
        }
        if is_last {
            let (name, domain) = parts_of(user.as_bytes());
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            crate::removal::forget_credentials(
                now,
                &self.shared,
                &text(name),
                &text(domain.get(1..).unwrap_or_default()),
            );
        }
        tracing::info!(aor = user, contact, registrations = ended, "registrations removed by command");
        Reply::Done(Done::Unregistered { registrations: ended })
    }
}
