//! Header lines of a registrar's responses.

use strowger_message::Message;
use strowger_message::header::Date;
use strowger_message::header::contact::write_q;

use super::decision::Change;
use super::{ExistingBinding, Refusal, Registrar};
use crate::Now;

impl Registrar {
    /// Writes the header lines of the 200 to the last decided REGISTER: each contact with its remaining time, Date,
    /// Path and Service-Route (RFC 3261 section 10.3 step 8, RFC 3327 section 5.3, RFC 3608 section 6). `message` and
    /// `current` must be those that were given to the decision.
    pub fn write_ok(&self, now: Now, message: &Message<'_>, current: &[ExistingBinding<'_>], out: &mut Vec<u8>) {
        for (binding, change) in current.iter().zip(&self.changes) {
            if *change == Change::Keep {
                contact(now, binding, out);
            }
        }
        let bytes = message.bytes();
        for upsert in &self.upserts {
            let made = ExistingBinding {
                uri: &bytes[upsert.uri.clone()],
                call_id: b"",
                cseq: 0,
                expires_at: upsert.expires_at,
                q: upsert.q,
                instance: &bytes[upsert.instance.clone()],
                reg_id: upsert.reg_id,
                unreachable: false,
                elsewhere: false,
            };
            contact(now, &made, out);
        }
        if !self.path.is_empty() {
            line(b"Path: ", &self.path, out);
        }
        if !self.settings.service_route.is_empty() {
            line(b"Service-Route: ", &self.settings.service_route, out);
        }
        out.extend_from_slice(b"Date: ");
        Date::new((now.wall / 1000) as i64).write(out);
        out.extend_from_slice(b"\r\n");
    }

    /// Writes the header lines of a refusal of the last decided REGISTER.
    pub fn write_refusal(&self, refusal: Refusal, out: &mut Vec<u8>) {
        match refusal {
            Refusal::IntervalTooBrief(seconds) => {
                line(b"Min-Expires: ", itoa::Buffer::new().format(seconds).as_bytes(), out)
            }
            Refusal::BadExtension => line(b"Unsupported: ", &self.unsupported, out),
            Refusal::PathNotSupported => line(b"Require: ", b"path", out),
            Refusal::BadRequest(_) | Refusal::TooManyContacts | Refusal::OutOfOrder => (),
        }
    }
}

fn line(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Writes one Contact line. Seconds are rounded up, so that a fresh binding shows the granted time.
fn contact(now: Now, binding: &ExistingBinding<'_>, out: &mut Vec<u8>) {
    let seconds = binding.expires_at.saturating_sub(now.mono).div_ceil(1000);
    out.extend_from_slice(b"Contact: <");
    out.extend_from_slice(binding.uri);
    out.extend_from_slice(b">;expires=");
    out.extend_from_slice(itoa::Buffer::new().format(seconds).as_bytes());
    if let Some(q) = binding.q {
        out.extend_from_slice(b";q=");
        write_q(q, out);
    }
    if !binding.instance.is_empty() {
        out.extend_from_slice(b";+sip.instance=\"");
        out.extend_from_slice(binding.instance);
        out.push(b'"');
    }
    if binding.reg_id != 0 {
        out.extend_from_slice(b";reg-id=");
        out.extend_from_slice(itoa::Buffer::new().format(binding.reg_id).as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}
