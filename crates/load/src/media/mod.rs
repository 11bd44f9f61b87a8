//! Media of calls: plays captures, streams RTP from sample files, echoes received datagrams, judges received streams.
//!
//! A [`Plane`] holds the sockets and the threads of one process. One thread sends due packets in batches, each
//! millisecond; each common socket has a thread that receives, and one thread receives from the sockets of single calls. Each
//! shard has a [`Legs`], which has the media addresses of its calls, commands the plane to play, pause and end, and takes the
//! figures of the received streams at the end of a call. No function of this module makes a shard's thread wait longer than a
//! batch of packets takes.
//!
//! A received stream has one sender and one SSRC, as in Wireshark, and is judged by the kernel's time stamps of arrival
//! ([`strowger_media::received_stream`]). At the port of a single call all streams are the call's; at a common port those from
//! the address in the description of its peer. The silence between the last packet and the end of a call is judged too.

mod call_port;
mod capture;
mod description;
mod dtmf;
mod echo;
mod formats;
mod hearing;
mod leg;
mod plane;
mod player;
mod receiver;
mod reception;
mod remote;
mod sending;
mod settings;
mod stamp;
mod stream;
mod tally;
mod track;

pub use capture::{Capture, CaptureError};
pub(crate) use leg::automatic;
pub use leg::{Legs, Refusal};
pub use plane::{Plane, PlaneError};
pub use remote::Remote;
pub use settings::{Echo, Settings};
pub use stamp::stamped_sound;
pub use tally::{Snapshot, Tally};
pub use track::Track;

use strowger_scenario::action::Action;
use strowger_scenario::step::StepKind;
use strowger_scenario::{Piece, Scenario};

/// Returns whether a scenario names a media port or has a media action, and so needs the media sockets.
pub fn concerns(scenario: &Scenario) -> bool {
    let is_port = |piece: &Piece| {
        matches!(
            piece,
            Piece::MediaPort(_) | Piece::AutoMediaPort(_) | Piece::RtpStreamAudioPort(_) | Piece::RtpStreamVideoPort(_)
        )
    };
    plays(scenario) || names(scenario, is_port)
}

/// Returns whether a message of the scenario has such a piece.
fn names(scenario: &Scenario, is_wanted: impl Fn(&Piece) -> bool) -> bool {
    scenario.steps.iter().chain(&scenario.init).any(|step| {
        let template = match &step.kind {
            StepKind::Send(send) => Some(&send.template),
            StepKind::SendCommand { template, .. } => Some(template),
            _ => None,
        };
        template.is_some_and(|template| template.pieces.iter().any(&is_wanted))
    })
}

/// Returns whether a scenario plays or echoes media, or names the port of a single call (`[auto_media_port]`), and so judges the streams that
/// it receives.
pub fn hears(scenario: &Scenario) -> bool {
    plays(scenario) || names(scenario, |piece| matches!(piece, Piece::AutoMediaPort(_)))
}

/// Returns whether a scenario plays or echoes media.
pub fn plays(scenario: &Scenario) -> bool {
    scenario.steps.iter().chain(&scenario.init).any(|step| step.actions.iter().any(acts))
}

/// Returns whether an action is one of [`Legs::act`].
pub const fn acts(action: &Action) -> bool {
    matches!(
        action,
        Action::PlayPcap { .. }
            | Action::PlayDtmf(_)
            | Action::RtpStream(_)
            | Action::RtpEcho(_)
            | Action::EchoSwitch(_)
    )
}
