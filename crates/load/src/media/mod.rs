//! Media of calls: plays captures, streams RTP from sample files, echoes received datagrams.
//!
//! A [`Plane`] holds the sockets and the threads of one process. One thread sends due packets in batches, each
//! millisecond; each socket has a thread that receives. Each shard has a [`Legs`], which has the media addresses of its
//! calls and commands the plane to play, pause and end. No function of this module makes a shard's thread wait.

mod capture;
mod dtmf;
mod echo;
mod leg;
mod plane;
mod player;
mod remote;
mod settings;
mod tally;
mod track;

pub use capture::{Capture, CaptureError};
pub(crate) use leg::automatic;
pub use leg::{Legs, Refusal};
pub use plane::{Plane, PlaneError};
pub use remote::Remote;
pub use settings::{Echo, Settings};
pub use tally::{Snapshot, Tally};
pub use track::Track;

use strowger_scenario::action::Action;
use strowger_scenario::step::StepKind;
use strowger_scenario::{Piece, Scenario};

/// Returns whether a scenario names a media port or has a media action, and so needs the media sockets.
pub fn concerns(scenario: &Scenario) -> bool {
    let names = |piece: &Piece| {
        matches!(
            piece,
            Piece::MediaPort(_) | Piece::AutoMediaPort(_) | Piece::RtpStreamAudioPort(_) | Piece::RtpStreamVideoPort(_)
        )
    };
    scenario.steps.iter().chain(&scenario.init).any(|step| {
        let template = match &step.kind {
            StepKind::Send(send) => Some(&send.template),
            StepKind::SendCommand { template, .. } => Some(template),
            _ => None,
        };
        template.is_some_and(|t| t.pieces.iter().any(names)) || step.actions.iter().any(acts)
    })
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
