//! `strowger explain`: the server's decision on a request.

use std::fmt::Write;

use anyhow::anyhow;
use strowger_config::Config;
use strowger_message::Uri;
use strowger_node::{offline, preflight};

use crate::cli::ExplainArguments;
use crate::output::{self, CommandOutcome};

pub(crate) fn run(arguments: &ExplainArguments) -> anyhow::Result<CommandOutcome> {
    let choice = arguments.config.choose();
    choice.announce();
    let config = match preflight::load(choice.file(), &[]) {
        Ok((config, warnings)) => {
            output::report(&warnings);
            config
        }
        Err(report) => {
            output::report(&report);
            return Ok(CommandOutcome::Failed);
        }
    };
    let request = match request(arguments, &config) {
        Ok(request) => request,
        Err(message) => {
            output::complain(&message);
            return Ok(CommandOutcome::Usage);
        }
    };
    let proven = arguments.user.is_some();
    let explained = offline::explain(config, arguments.transport, arguments.source, request.as_bytes(), proven)
        .map_err(|message| anyhow!(message))?;
    if arguments.json {
        output::print(&(serde_json::to_string_pretty(&explained)? + "\n"))?;
    } else {
        output::print(&explained.to_string())?;
    }
    Ok(CommandOutcome::Done)
}

/// Writes the request in its wire format.
fn request(arguments: &ExplainArguments, config: &Config) -> Result<String, String> {
    let [from, to] = [("--from", &arguments.from), ("--to", &arguments.to)].map(|(name, text)| uri(name, text));
    let (from, to) = (from?, to?);
    let uri = arguments.uri.as_ref().map_or_else(|| Ok(to.clone()), |text| uri("--uri", text))?;
    let (method, source, transport) = (&arguments.method, arguments.source, arguments.transport.text());
    if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(format!("--method is {method:?}, which is no method"));
    }
    let mut text = format!(
        "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/{} {source};branch=z9hG4bKexplain\r\nMax-Forwards: 70\r\n\
         From: <{from}>;tag=explain\r\nTo: <{to}>\r\nCall-ID: explain\r\nCSeq: 1 {method}\r\nContact: <sip:{source}>\r\n",
        transport.to_uppercase()
    );
    for line in &arguments.header {
        match line.split_once(':') {
            Some((name, _)) if !name.trim().is_empty() && !line.contains(['\r', '\n']) => {
                text += &format!("{line}\r\n")
            }
            _ => return Err(format!("--header is {line:?}, which is no header line such as \"User-Agent: phone\"")),
        }
    }
    if let Some(user) = &arguments.user {
        if user.contains(['"', '\\', '\r', '\n']) {
            return Err(format!("--user is {user:?}, which is no name of a user"));
        }
        let host = Uri::parse(from.as_bytes()).ok().and_then(|uri| uri.sip().map(|uri| uri.host));
        let mut domain = Vec::new();
        if let Some(host) = host {
            host.write_lower(&mut domain);
        }
        let realm = config.realm_of(&String::from_utf8_lossy(&domain));
        let _ = write!(
            text,
            "Proxy-Authorization: Digest username=\"{user}\", realm=\"{realm}\", nonce=\"0\", uri=\"{uri}\", response=\"\
             00000000000000000000000000000000\"\r\n"
        );
    }
    Ok(text + "Content-Length: 0\r\n\r\n")
}

/// Parses a URI; `alice@example.org` is a SIP URI.
fn uri(name: &str, text: &str) -> Result<String, String> {
    let has_scheme = ["sip:", "sips:", "tel:", "urn:"].iter().any(|scheme| text.starts_with(scheme));
    let whole = if has_scheme { text.to_owned() } else { format!("sip:{text}") };
    match Uri::parse(whole.as_bytes()) {
        Ok(_) if !whole.contains(['<', '>', ' ', '\r', '\n']) => Ok(whole),
        _ => Err(format!("{name} is {text:?}, which is no URI such as sip:alice@example.org")),
    }
}
