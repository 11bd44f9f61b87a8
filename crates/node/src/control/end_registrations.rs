//! Order that ends registrations.

use super::{Controlled, Done, Reply};
use crate::identity::canonical_aor;
use strowger_net::clock;
use strowger_store::location::{ExistingBindings, Step};
use strowger_store::subscriber::parts_of;
use strowger_store::ticket::Ticket;

impl Controlled {
    /// Ends registrations of a user. When this returns, calls do not reach these contacts any more; the database
    /// follows with its next group. Without a contact the route tokens of the user end too, as after a removal of the
    /// account, because the tables of a database server report no removals.
    pub(super) fn remove_registrations(&self, user: &str, contact: Option<&str>) -> Reply {
        let now = clock::now();
        let aor = canonical_aor(self.shared.policy().identity(), user.as_bytes());
        let mut ended = 0;
        let mut is_last = false;
        let remove = |current: &ExistingBindings<'_>| {
            let wanted = current.iter().filter(|view| contact.is_none_or(|contact| view.uri() == contact.as_bytes()));
            let steps: Vec<Step<'_>> = wanted.map(|view| Step::Remove(view.id())).collect();
            (ended, is_last) = (steps.len(), steps.len() == current.len());
            Ok::<_, ()>(steps)
        };
        if let Err(error) = self.shared.location.update(&aor, now.mono, 0, Ticket::NONE, remove) {
            return Reply::Unavailable(format!("the registrations of {user} stay: {error:?}"));
        }
        if let Some(contact) = contact.filter(|_| ended == 0) {
            return Reply::Refused(format!("{user} has no registration with the contact {contact}"));
        }
        let (name, domain) = parts_of(&aor);
        let domain = domain.get(1..).unwrap_or_default();
        if contact.is_none() {
            self.shared.end_routes_of(name, domain, now);
        }
        if is_last {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            crate::removal::forget_credentials(now, &self.shared, &text(name), &text(domain));
        }
        tracing::info!(aor = user, contact, registrations = ended, "registrations removed by command");
        Reply::Done(Done::Unregistered { registrations: ended })
    }
}
