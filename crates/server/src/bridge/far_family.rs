//! IP version by which the far side of a bridged call is reached. The media addresses that the far side is shown are of this version.

use crate::contacts::Contacts;
use crate::decider::Decider;
use crate::handling::Handling;
use crate::question::Question;
use crate::stage::Verdict;
use strowger_core::routing::Routing;

impl Decider<'_> {
    /// Tells whether the far call of an INVITE goes to IPv4: by the first address of its destination, as the far INVITE will find it. `None`: this
    /// server has media addresses of one version alone, or the destination has no address; the far INVITE then tells why.
    ///
    /// The description is written before the far INVITE is routed, so the near one is routed here. A later target of another version, after a failure
    /// or a redirection, gets the same description.
    ///
    /// # Errors
    /// Name that must be looked up first.
    pub(crate) fn far_family(
        &self,
        handling: &Handling<'_, '_>,
        routing: &Routing<'_>,
        contacts: &mut Contacts,
    ) -> Result<Option<bool>, Question> {
        let media = &self.policy.config.media;
        let has_family = |wanted: bool| media.addresses.iter().any(|own| own.public.is_ipv4() == wanted);
        if !has_family(true) || !has_family(false) {
            return Ok(None);
        }
        match self.first_destination(handling, routing, contacts) {
            Verdict::Ask(question @ Question::Name(_)) => Err(question),
            Verdict::Forward(destination) => {
                Ok(destination.first().map(|target| target.address.ip().to_canonical().is_ipv4()))
            }
            _ => Ok(None),
        }
    }
}
