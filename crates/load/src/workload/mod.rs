//! Ready workloads: scenario documents that are assembled from parts for a plan. Their calls are measured by the same code as
//! calls of a document of the user.

use std::fmt::Write;
use std::str::FromStr;

/// Kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// INVITE, answer, ACK, hold, BYE.
    Call,
    /// Each call of the schedule registers a user.
    Register,
    /// Registers, waits as long as a call is held, registers again.
    ReRegister,
    /// A user registers and then calls.
    RegisterThenCall,
    /// Users register and then answer their calls.
    RegisterThenReceive,
    Options,
    Message,
    /// Calls, registrations, OPTIONS and MESSAGE in the shares of [`Mix`].
    Mix,
}

impl Workload {
    /// Every workload with its name and what it does.
    pub const ALL: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Call, "call", "INVITE, answer, ACK, hold, BYE"),
        (Self::Register, "register", "each call of the schedule registers a user"),
        (Self::ReRegister, "re-register", "registers, holds, registers again"),
        (Self::RegisterThenCall, "register-then-call", "a user registers, then calls"),
        (Self::RegisterThenReceive, "register-then-receive", "users register, then answer their calls"),
        (Self::Options, "options", "OPTIONS and its answer"),
        (Self::Message, "message", "MESSAGE and its answer"),
        (Self::Mix, "mix", "70 % calls, 20 % registrations, 5 % OPTIONS, 5 % MESSAGE"),
    ];

    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(workload, ..)| *workload == self).map_or("", |(_, name, _)| name)
    }

    /// Returns whether the workload's callers register.
    pub const fn registers(self) -> bool {
        matches!(self, Self::Register | Self::ReRegister | Self::RegisterThenCall | Self::Mix)
    }

    /// Returns whether the workload makes calls, which need an answering side.
    pub const fn calls(self) -> bool {
        matches!(self, Self::Call | Self::RegisterThenCall | Self::Mix)
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = text.trim().to_ascii_lowercase().replace('_', "-");
        let found = Self::ALL.iter().find(|(_, name, _)| *name == plain || name.replace('-', "") == plain);
        let alias = match plain.as_str() {
            "calls" | "invite" | "uac" => Some(Self::Call),
            "registration" | "registrations" => Some(Self::Register),
            "reregistration" | "refresh" => Some(Self::ReRegister),
            "messages" => Some(Self::Message),
            _ => None,
        };
        found.map(|(workload, ..)| *workload).or(alias).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|(_, name, _)| *name).collect();
            format!("there is no workload '{text}'; there are {}", names.join(", "))
        })
    }
}

/// Shares of a mix in per cent. The share that remains to 100 is that of calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    pub registrations: f64,
    pub options: f64,
    pub messages: f64,
}

impl Mix {
    /// Example of written shares.
    pub const EXAMPLE: &'static str = "call=60,register=30,options=10";
}

impl Default for Mix {
    fn default() -> Self {
        Self { registrations: 20.0, options: 5.0, messages: 5.0 }
    }
}

impl FromStr for Mix {
    type Err = String;

    /// Parses `call=60,register=30,options=10`, with or without per cent signs. If `call` is absent, its share is what
    /// remains to 100.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |what: String| format!("{what}; write shares that make 100 %, such as {}", Self::EXAMPLE);
        let mut shares = [None; 4];
        for part in text.split(',').map(str::trim) {
            let (name, share) = part.split_once(['=', ':']).ok_or_else(|| wrong(format!("'{part}' has no =")))?;
            let place = match name.parse() {
                Ok(Workload::Call) => 0,
                Ok(Workload::Register) => 1,
                Ok(Workload::Options) => 2,
                Ok(Workload::Message) => 3,
                _ => return Err(wrong(format!("'{}' is none of call, register, options and message", name.trim()))),
            };
            let number = share.trim().trim_end_matches('%').trim_end();
            let share = number.parse().ok().filter(|share| (0.0..=100.0).contains(share));
            let share: f64 = share.ok_or_else(|| wrong(format!("'{part}' has no share from 0 to 100")))?;
            if shares[place].replace(share).is_some() {
                return Err(wrong(format!("'{}' stands there twice", name.trim())));
            }
        }
        let [calls, registrations, options, messages] = shares;
        let others = [registrations, options, messages].iter().flatten().sum::<f64>();
        let sum = others + calls.unwrap_or_else(|| (100.0 - others).max(0.0));
        // Three times 33.3 % counts as 100 %.
        if (sum - 100.0).abs() > 0.5 {
            return Err(wrong(format!("the shares of '{text}' make {} %", (sum * 100.0).round() / 100.0)));
        }
        let part = |share: Option<f64>| share.unwrap_or(0.0) * 100.0 / sum;
        Ok(Self { registrations: part(registrations), options: part(options), messages: part(messages) })
    }
}

/// Texts of a document that depend on the plan. They may contain keywords of scenarios.
#[derive(Clone, Debug)]
pub struct Words {
    /// Request-URI of calls and requests, and the URI in their To.
    pub uri: String,
    pub to: String,
    /// Request-URI of OPTIONS, and the URI in its To.
    pub options_uri: String,
    pub options_to: String,
    /// Domain of the users.
    pub domain: String,
    /// Name and password of a user.
    pub user: String,
    pub password: String,
    /// Contact of users that register: host and port.
    pub contact: String,
    /// Transport, as the parameter of a URI names it (RFC 3261 section 19.1.1).
    pub transport: &'static str,
    /// Requested lifetime of a registration, in seconds.
    pub expires: u32,
    /// True if challenges are answered.
    pub credentials: bool,
    /// Prefix of tags, different for each process and generator.
    pub tag: String,
    pub agent: String,
    /// Milliseconds from 180 to 200.
    pub ring: u32,
    /// Milliseconds for which the answering side keeps an ended call, to answer repetitions.
    pub linger: u32,
    pub mix: Mix,
}

const CALL: &str = include_str!("call.xml");
const REGISTER: &str = include_str!("register.xml");
const OPTIONS: &str = include_str!("options.xml");
const MESSAGE: &str = include_str!("message.xml");
const ANSWER: &str = include_str!("answer.xml");
/// BYE, CANCEL and ACK of a call that is cut off. The BYE follows the route set of the dialog.
const GOODBYE: &str = include_str!("goodbye.xml");

impl Words {
    /// Returns the document of a workload for the calling side.
    pub fn document(&self, workload: Workload) -> String {
        let mut steps = String::new();
        match workload {
            Workload::Call => {
                self.text(&mut steps, GOODBYE, "", "");
                self.part(&mut steps, CALL, "c", "");
            }
            Workload::Register | Workload::RegisterThenReceive => self.part(&mut steps, REGISTER, "r", ""),
            Workload::ReRegister => {
                self.part(&mut steps, REGISTER, "r", "");
                steps.push_str("  <pause/>\n");
                self.part(&mut steps, REGISTER, "a", "");
            }
            Workload::RegisterThenCall => {
                // To find a call, the engine ignores the part of a Call-ID before the slashes. So the REGISTER has a
                // Call-ID of its own.
                self.text(&mut steps, GOODBYE, "", "");
                self.part(&mut steps, REGISTER, "r", "r///");
                self.part(&mut steps, CALL, "c", "");
            }
            Workload::Options => self.part(&mut steps, OPTIONS, "o", ""),
            Workload::Message => self.part(&mut steps, MESSAGE, "m", ""),
            Workload::Mix => self.mixed(&mut steps),
        }
        document(workload.name(), &steps)
    }

    /// Returns the document of the answering side: calls, OPTIONS, MESSAGE and REGISTER.
    pub fn answering(&self) -> String {
        let mut steps = String::new();
        self.part(&mut steps, ANSWER, "", "");
        document("answer", &steps)
    }

    /// Appends all parts of a mix. Each call jumps to one part at random; each part ends at the end of the document.
    fn mixed(&self, steps: &mut String) {
        self.text(steps, GOODBYE, "", "");
        let shares = [("m", self.mix.messages), ("o", self.mix.options), ("r", self.mix.registrations)];
        let mut left = 100.0;
        for (place, share) in shares {
            let chance = if left > 0.0 { (share / left).clamp(0.0, 1.0) } else { 0.0 };
            left -= share;
            if share > 0.0 {
                let _ = writeln!(steps, "  <nop next=\"{place}\" chance=\"{chance:.6}\"/>");
            }
        }
        self.part(steps, CALL, "c", "");
        for (name, share, part) in [
            ("r", self.mix.registrations, REGISTER),
            ("o", self.mix.options, OPTIONS),
            ("m", self.mix.messages, MESSAGE),
        ] {
            if share > 0.0 {
                let _ = writeln!(steps, "  <nop next=\"end\"/>\n  <label id=\"{name}\"/>");
                self.part(steps, part, name, "");
            }
        }
        steps.push_str("  <label id=\"end\"/>\n");
    }

    /// Appends one part with its words filled in. `name` distinguishes its labels from the labels of other parts.
    fn part(&self, steps: &mut String, part: &str, name: &str, dialog: &str) {
        self.text(steps, part, name, dialog);
        let _ = writeln!(steps, "  <label id=\"{name}done\"/>");
    }

    fn text(&self, steps: &mut String, part: &str, name: &str, dialog: &str) {
        let mut wanted = true;
        for line in part.lines() {
            match line.trim() {
                "<!-- credentials -->" => wanted = self.credentials,
                "<!-- ring -->" => wanted = self.ring > 0,
                "<!-- end -->" => wanted = true,
                _ if wanted => {
                    self.fill(steps, line, name, dialog);
                    steps.push('\n');
                }
                _ => (),
            }
        }
    }

    fn fill(&self, steps: &mut String, line: &str, name: &str, dialog: &str) {
        let mut rest = line;
        while let Some((before, after)) = rest.split_once('{') {
            steps.push_str(before);
            let Some((word, after)) = after.split_once('}') else {
                rest = after;
                break;
            };
            match word {
                "p" => steps.push_str(name),
                "dialog" => steps.push_str(dialog),
                "uri" => steps.push_str(&self.uri),
                "to" => steps.push_str(&self.to),
                "options_uri" => steps.push_str(&self.options_uri),
                "options_to" => steps.push_str(&self.options_to),
                "domain" => steps.push_str(&self.domain),
                "user" => steps.push_str(&self.user),
                "password" => steps.push_str(&self.password),
                "contact" => steps.push_str(&self.contact),
                "transport" => steps.push_str(self.transport),
                "tag" => steps.push_str(&self.tag),
                "agent" => steps.push_str(&self.agent),
                "expires" => {
                    let _ = write!(steps, "{}", self.expires);
                }
                "ring" => {
                    let _ = write!(steps, "{}", self.ring);
                }
                "linger" => {
                    let _ = write!(steps, "{}", self.linger);
                }
                other => {
                    let _ = write!(steps, "{{{other}}}");
                }
            }
            rest = after;
        }
        steps.push_str(rest);
    }
}

fn document(name: &str, steps: &str) -> String {
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<scenario name=\"{name}\">\n{steps}\n</scenario>\n")
}

/// Escapes a text of the user for a document: brackets would begin a keyword, and a quotation mark would end a parameter
/// of a keyword.
pub fn literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' => out.push_str("\\x5c"),
            '[' => out.push_str("\\x5b"),
            ']' => out.push_str("\\x5d"),
            '"' => out.push_str("\\x22"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use strowger_scenario::{Environment, Role, Scenario};

    fn words(credentials: bool) -> Words {
        Words {
            uri: "sip:bob@127.0.0.1:5060".into(),
            to: "sip:bob@example.org".into(),
            options_uri: "sip:127.0.0.1:5060".into(),
            options_to: "sip:127.0.0.1:5060".into(),
            domain: "example.org".into(),
            user: "user[call_number]".into(),
            password: "secret".into(),
            contact: "[local_ip]:[local_port]".into(),
            transport: "udp",
            expires: 3_600,
            credentials,
            tag: "[pid]".into(),
            agent: "Test".into(),
            ring: 0,
            linger: 4_000,
            mix: Mix::default(),
        }
    }

    fn read(text: &str) -> Scenario {
        let environment = Environment { ready: true, ..Environment::default() };
        Scenario::parse(text.as_bytes(), Path::new("workload"), &environment)
            .unwrap_or_else(|refusal| panic!("{refusal}\n{text}"))
    }

    #[test]
    fn every_workload_is_a_document_without_fault() {
        for credentials in [false, true] {
            for (workload, name, _) in Workload::ALL {
                let text = words(credentials).document(*workload);
                assert!(!text.contains('{'), "{text}");
                let scenario = read(&text);
                assert_eq!((scenario.role, scenario.name.as_str()), (Role::Client, *name));
                assert!(scenario.warnings.is_empty(), "{name}: {:?}", scenario.warnings);
                assert_eq!(text.contains("[authentication"), credentials);
                assert_eq!(name.parse(), Ok(*workload));
            }
        }
        let answer = read(&Words { ring: 100, ..words(false) }.answering());
        assert_eq!(answer.role, Role::Server);
        assert!(answer.warnings.is_empty(), "{:?}", answer.warnings);
    }

    #[test]
    fn shares_of_a_mix() {
        let mix = |registrations, options, messages| Ok(Mix { registrations, options, messages });
        assert_eq!("call=70,register=20,options=5,message=5".parse(), Ok(Mix::default()));
        assert_eq!(Mix::EXAMPLE.parse(), mix(30.0, 10.0, 0.0));
        assert_eq!(" Calls = 60 %, registrations:39.5%, message=.5".parse(), mix(39.5, 0.0, 0.5));
        // The remaining share is that of calls.
        assert_eq!("options=12.5".parse(), mix(0.0, 12.5, 0.0));
        assert_eq!("register=0".parse(), mix(0.0, 0.0, 0.0));
        assert_eq!("options=50,message=50".parse(), mix(0.0, 50.0, 50.0));
        let thirds: Mix = "register=33.3,options=33.3,message=33.3,call=0".parse().unwrap();
        assert!((thirds.registrations + thirds.options + thirds.messages - 100.0).abs() < 1e-9, "{thirds:?}");
        for (text, part) in [
            ("", "'' has no ="),
            ("call", "'call' has no ="),
            ("call=60,dance=40", "'dance' is none of"),
            ("call=60,re-register=40", "'re-register' is none of"),
            ("call=-1,options=101", "'call=-1' has no share"),
            ("call=many", "'call=many' has no share"),
            ("call=nan", "'call=nan' has no share"),
            ("call=60,call=40", "'call' stands there twice"),
            ("call=60,register=30", "make 90 %"),
            ("register=80,options=40", "make 120 %"),
        ] {
            let error = text.parse::<Mix>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
            assert!(error.ends_with(Mix::EXAMPLE), "{error}");
        }
    }

    #[test]
    fn a_mix_without_calls_makes_none() {
        let mix: Mix = "register=40,options=60".parse().unwrap();
        let text = Words { mix, ..words(true) }.document(Workload::Mix);
        assert!(text.contains("<nop next=\"o\" chance=\"0.600000\"/>"), "{text}");
        assert!(text.contains("<nop next=\"r\" chance=\"1.000000\"/>"), "{text}");
        assert!(!text.contains("MESSAGE sip:") && read(&text).warnings.is_empty(), "{text}");
    }

    #[test]
    fn names_that_a_person_would_try() {
        assert_eq!("Re_Register".parse(), Ok(Workload::ReRegister));
        assert_eq!("registerthencall".parse(), Ok(Workload::RegisterThenCall));
        assert!("dance".parse::<Workload>().unwrap_err().contains("register-then-call"));
    }
}
