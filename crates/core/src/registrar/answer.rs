//! The header lines of a registrar's answers.

use strowger_message::Message;
use strowger_message::header::contact::write_q;

use super::decision::Fate;
use super::{Current, Refusal, Registrar};
use crate::Now;

impl Registrar {
    /// The header lines of the 200 to the REGISTER decided on last: every contact with the time that it has left, Date,
    /// Path and Service-Route (RFC 3261 section 10.3 step 8, RFC 3327 section 5.3, RFC 3608 section 6). `message` and
    /// `current` are those that were decided on.
    pub fn write_ok(&self, now: Now, message: &Message<'_>, current: &[Current<'_>], out: &mut Vec<u8>) {
        for (binding, fate) in current.iter().zip(&self.fates) {
            if *fate == Fate::Keep {
                contact(now, binding, out);
            }
        }
        let bytes = message.bytes();
        for upsert in &self.upserts {
            let made = Current {
                uri: &bytes[upsert.uri.clone()],
                call_id: b"",
                cseq: 0,
                expires_at: upsert.expires_at,
                q: upsert.q,
                instance: &bytes[upsert.instance.clone()],
                reg_id: upsert.reg_id,
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
        write_date(now.wall / 1000, out);
        out.extend_from_slice(b"\r\n");
    }

    /// The header lines that go with a refusal of the REGISTER decided on last.
    pub fn write_refusal(&self, refusal: Refusal, out: &mut Vec<u8>) {
        match refusal {
            Refusal::IntervalTooBrief(seconds) => line(b"Min-Expires: ", itoa::Buffer::new().format(seconds).as_bytes(), out),
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

/// One Contact line. Seconds are rounded up, so that a fresh binding shows what was granted.
fn contact(now: Now, binding: &Current<'_>, out: &mut Vec<u8>) {
    let seconds = binding.expires_at.saturating_sub(now.wall).div_ceil(1000);
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

/// Seconds since 1970 as RFC 1123 has a date (RFC 3261 section 20.17): `Sun, 06 Nov 1994 08:49:37 GMT`.
fn write_date(seconds: u64, out: &mut Vec<u8>) {
    const DAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];
    const MONTHS: [&[u8; 3]; 12] =
        [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
    let days = seconds / 86_400;
    // Days from 1 March of the year 0, so that a leap day is a year's last: 400 years have 146,097 days.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months from March have 31, 30, 31, 30, 31 days again and again.
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = (shifted_month + 2) % 12;
    let year = era * 400 + year_of_era + u64::from(month < 2);
    let two = |n: u64| [b'0' + (n / 10) as u8, b'0' + (n % 10) as u8];
    out.extend_from_slice(DAYS[(days % 7) as usize]);
    out.extend_from_slice(b", ");
    out.extend_from_slice(&two(day));
    out.push(b' ');
    out.extend_from_slice(MONTHS[month as usize]);
    out.push(b' ');
    out.extend_from_slice(itoa::Buffer::new().format(year).as_bytes());
    for (before, n) in [(b' ', seconds / 3600 % 24), (b':', seconds / 60 % 60), (b':', seconds % 60)] {
        out.push(before);
        out.extend_from_slice(&two(n));
    }
    out.extend_from_slice(b" GMT");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (seconds, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (951_868_800, "Wed, 01 Mar 2000 00:00:00 GMT"),
            (1_798_761_599, "Thu, 31 Dec 2026 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        ] {
            let mut out = Vec::new();
            write_date(seconds, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }
}
