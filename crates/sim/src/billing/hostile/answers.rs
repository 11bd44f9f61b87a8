//! Responses of the account to requests to its phones.

use super::{Hostile, Leg, Outgoing, Received, Task, response, uri};
use crate::billing::MALLORYS;
use crate::billing::text::tag;

impl Hostile {
    pub(super) fn take(&mut self, now: u64, phone: usize, said: &Received, out: &mut Vec<Outgoing>) {
        let method = said.method().to_owned();
        if method == "ACK" {
            return;
        }
        let key = format!("{}{method}", said.branch());
        if let Some(text) = self.answered.get(&key) {
            if !text.is_empty() {
                out.push((MALLORYS[phone], text.clone()));
            }
            return;
        }
        let text = match &*method {
            "INVITE" if said.tag("To").is_empty() => return self.ring(now, phone, said),
            _ if !self.random.chance(self.habits.answers) => String::new(),
            "INVITE" | "UPDATE" => {
                let lines = format!("Contact: {}\r\n{}", Self::contact_of(phone), self.timer(said));
                let status =
                    if self.random.chance(self.habits.is_right) { 200 } else { *self.random.pick(&[481, 500, 200]) };
                response(said, status, "", &lines)
            }
            _ => {
                let wrong = *self.random.pick(&[481, 500, 503, 408, 200, 401, 302]);
                let status = if self.random.chance(self.habits.is_right) { 200 } else { wrong };
                response(said, status, "m", "")
            }
        };
        if method == "BYE" && text.starts_with("SIP/2.0 200") {
            let is_meant = |leg: &Leg| leg.call_id == said.call_id() && tag(&leg.own) == said.tag("To");
            self.legs.iter_mut().filter(|leg| is_meant(leg)).for_each(|leg| leg.is_over = true);
        }
        if !text.is_empty() {
            out.push((MALLORYS[phone], text.clone()));
        }
        self.answered.insert(key, text);
    }

    /// Returns the session timer of an answer.
    fn timer(&mut self, said: &Received) -> String {
        let offered = said.session_expires();
        let seconds = match self.random.between(0, 5) {
            0 => 1,
            1 => 89,
            2 => 90,
            3 => 1_000_000,
            4 => match offered {
                Some(seconds) => seconds,
                None => return String::new(),
            },
            _ => return String::new(),
        };
        let refresher = self.random.pick(&["uac", "uas"]);
        format!("Session-Expires: {seconds};refresher={refresher}\r\n")
    }

    /// Handles a call to a phone of the account.
    fn ring(&mut self, now: u64, phone: usize, said: &Received) {
        let key = format!("{}INVITE", said.branch());
        if self.random.chance(100) {
            let text = response(said, *self.random.pick(&[486, 503, 603]), "m", "");
            self.answered.insert(key, text.clone());
            return self.tasks.plan(now + 10, Task::Say(phone, text));
        }
        let answers = if self.random.chance(150) { 2 } else { 1 };
        let mut texts = Vec::new();
        for _ in 0..answers {
            let n = self.number();
            let own_tag = match self.random.between(0, 9) {
                0 => format!("m{n}{}", "t".repeat(300)),
                1 if !self.legs.is_empty() => tag(&self.random.pick(&self.legs.clone()).peer).to_owned(),
                _ => format!("m{n}"),
            };
            let forged =
                if self.random.chance(self.habits.forges) { "Record-Route: <sip:198.51.100.67;lr>\r\n" } else { "" };
            let lines = format!("Contact: {}\r\n{}", Self::contact_of(phone), self.timer(said));
            let ok = response(said, 200, &own_tag, &lines);
            // In the position where a proxy behind the server would have put it.
            texts.push(ok.replacen("Record-Route: ", &format!("{forged}Record-Route: "), 1));
            self.legs.push(Leg {
                call_id: said.call_id().to_owned(),
                own: format!("{};tag={own_tag}", said.line("To")),
                peer: said.line("From").to_owned(),
                target: said.contact().unwrap_or_else(|| uri(said.line("From"))),
                routes: said.record_routes(),
                cseq: self.random.between(0, 3) as u32,
                phone,
                is_over: false,
            });
            let lasts = self.random.between(1_000, 60_000);
            self.tasks.plan(now + lasts, Task::End(self.legs.len() - 1));
        }
        let after = self.random.between(0, 3_000);
        for text in texts {
            for again in [0, 500, 1_500, 3_500] {
                self.tasks.plan(now + after + again, Task::Say(phone, text.clone()));
            }
            self.answered.insert(key.clone(), String::new());
        }
    }
}
