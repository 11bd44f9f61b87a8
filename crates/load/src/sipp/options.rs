//! SIPp's command line.

use super::behaviours::Behaviours;
use super::time::milliseconds;
use super::tls;
use super::traces::Traces;
use crate::engine::Circuits;
use crate::engine::run::DynamicId;
use std::path::PathBuf;
use std::sync::Arc;
use strowger_core::Transport;
use strowger_net::tls::Versions;

mod defaults;

/// Parsed command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// Host of the target, and its port; `None` for servers.
    pub remote: Option<(String, u16)>,
    pub sending_address: Option<(String, u16)>,
    pub scenario: Source,
    /// `-sd`: prints this built-in scenario and ends.
    pub dump: Option<String>,
    pub out_of_call: Option<Source>,
    pub transport: Transport,
    pub sockets: Sockets,
    /// `-max_socket`: includes the main socket and that of remote control.
    pub max_sockets: usize,
    /// `-ip_field`, for [`Sockets::PerAddress`].
    pub ip_field: Option<u32>,
    /// `-max_reconnect`; -1: no limit.
    pub max_reconnect: i64,
    /// `-reconnect_close`: calls of a lost connection end.
    pub reconnect_close: bool,
    /// `-reconnect_sleep`, milliseconds.
    pub reconnect_sleep: u64,
    pub local_ip: Option<String>,
    pub bind_local: bool,
    pub local_port: Option<u16>,
    pub media_ip: Option<String>,
    pub media_port: Option<u16>,
    /// First and last port to try for media if `media_port` is not given.
    pub min_rtp_port: Option<u16>,
    pub max_rtp_port: Option<u16>,
    /// `-rtp_payload`.
    pub payload_type: Option<u8>,
    /// `-rtp_echo`.
    pub echo: bool,
    pub service: String,
    pub keys: Vec<(String, Vec<u8>)>,
    pub sets: Vec<(String, String)>,
    pub injections: Vec<PathBuf>,
    pub indices: Vec<(PathBuf, u32)>,
    pub username: Option<String>,
    pub password: Option<String>,
    pub auth_uri: Option<String>,
    pub rate: f64,
    /// `-rp`, milliseconds.
    pub rate_period: u64,
    pub rate_increase: f64,
    /// Milliseconds; `None`: the period of the statistics.
    pub rate_interval: Option<u64>,
    pub rate_max: Option<f64>,
    pub rate_quit: bool,
    pub rate_scale: f64,
    pub users: Option<u32>,
    pub calls: Option<u64>,
    pub limit: Option<u64>,
    /// `-d`, milliseconds.
    pub duration: Option<u64>,
    /// `-timeout`, milliseconds.
    pub timeout: Option<u64>,
    pub timeout_error: bool,
    pub receive_timeout: Option<u64>,
    pub dead_call_wait: Option<u64>,
    pub auto_answer: bool,
    pub behaviours: Behaviours,
    pub retransmit: bool,
    pub most: Option<u32>,
    pub most_invite: Option<u32>,
    pub most_non_invite: Option<u32>,
    pub t2: Option<u64>,
    pub loose: bool,
    pub lost: f64,
    pub ignore_in_pause: bool,
    pub keep_slashes: bool,
    pub call_id: Option<String>,
    pub base_cseq: u32,
    /// `-dynamicStart`, `-dynamicMax`, `-dynamicStep`.
    pub dynamic_id: DynamicId,
    pub background: bool,
    pub keyboard: bool,
    pub sleep: u64,
    pub control_port: Option<u16>,
    pub control_ip: Option<String>,
    pub traces: Traces,
    /// Milliseconds between two screens, and between two lines of statistics.
    pub screen_period: u64,
    pub statistics_period: u64,
    pub delimiter: String,
    pub periodic_rtd: bool,
    /// `-rfc3339`: files have RFC 3339 timestamps.
    pub rfc3339: bool,
    /// `-timer_resol`, milliseconds.
    pub timer_resolution: Option<u64>,
    pub seed: Option<u64>,
    /// `-threads`, which SIPp does not have: number of shards that share the calls.
    pub threads: usize,
    pub third_party: Option<(String, u16)>,
    pub master: Option<String>,
    pub slave: Option<String>,
    pub slave_file: Option<PathBuf>,
    pub tls_certificate: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    pub tls_ca: Option<PathBuf>,
    /// `-tls_crl`
    pub tls_revoked: Option<PathBuf>,
    /// `-tls_version`
    pub tls_versions: Versions,
    /// `-no_exec`: documents with `exec command` are refused.
    pub no_exec: bool,
    /// `-tdmmap`.
    pub circuits: Option<Arc<Circuits>>,
    /// `-h`, `-v`.
    pub help: bool,
    pub version: bool,
    /// Options that are accepted and ignored.
    pub ignored: Vec<String>,
}

/// Source of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    File(PathBuf),
    BuiltIn(String),
}

/// Number of sockets of the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sockets {
    One,
    PerCall,
    PerAddress,
}

/// Options that are accepted and ignored, with their numbers of values.
const IGNORED: &[(&str, usize)] = &[
    ("bind_to_device", 1),
    ("plugin", 1),
    ("skip_rlimit", 0),
    ("buff_size", 1),
    ("sendbuffer_warn", 1),
    ("max_recv_loops", 1),
    ("max_sched_loops", 1),
    ("watchdog_interval", 1),
    ("watchdog_reset", 1),
    ("watchdog_minor_threshold", 1),
    ("watchdog_major_threshold", 1),
    ("watchdog_minor_maxtriggers", 1),
    ("watchdog_major_maxtriggers", 1),
    ("mb", 1),
    ("rtp_threadtasks", 1),
    ("rtp_buffsize", 1),
    ("rtpcheck_debug", 0),
    ("srtpcheck_debug", 0),
    ("audiotolerance", 1),
    ("videotolerance", 1),
    ("random_base_ssrc", 0),
    ("multihome", 1),
    ("heartbeat", 1),
    ("assocmaxret", 1),
    ("pathmaxret", 1),
    ("pmtu", 1),
    ("gracefulclose", 1),
    ("cid_type", 1),
    ("trace_timeout", 0),
    ("dump_xml", 0),
    ("dump_sequence_diagram", 0),
];

impl Options {
    /// Parses the words after the program's name.
    ///
    /// # Errors
    /// The fault as a sentence.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let Some(name) = word.strip_prefix('-').filter(|n| !n.is_empty()) else {
                options.remote = Some(address(word, 5060)?);
                continue;
            };
            let name = name.strip_prefix('-').unwrap_or(name);
            options.option(name, &mut words)?;
        }
        let growth = options.traces.growth;
        if growth.most > 0 && (growth.kept > 0 || growth.turn > 0) {
            return Err(
                "-max_log_size cannot stand with -ringbuffer_files and -ringbuffer_size: a file either ends there \
                        or is begun again"
                    .into(),
            );
        }
        tls::settle(&options)?;
        Ok(options)
    }

    fn option(&mut self, name: &str, words: &mut std::slice::Iter<'_, String>) -> Result<(), String> {
        let mut value = || words.next().cloned().ok_or_else(|| format!("missing argument for param '-{name}'"));
        let number = |text: String| -> Result<f64, String> {
            text.trim().parse().map_err(|_| format!("'-{name}' wants a number, not '{text}'"))
        };
        let whole = |text: String| -> Result<u64, String> {
            text.trim().parse().map_err(|_| format!("'-{name}' wants a whole number, not '{text}'"))
        };
        let port = |text: String| -> Result<u16, String> {
            text.trim().parse().map_err(|_| format!("'-{name}' wants a port, 0 to 65535, not '{text}'"))
        };
        let time = |text: String, unit: f64| milliseconds(&text, unit).map_err(|e| format!("'-{name}': {e}"));
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        match name {
            "h" | "help" => self.help = true,
            "v" => self.version = true,
            "no_exec" => self.no_exec = true,
            "tdmmap" => {
                let map = Circuits::parse(&value()?).map_err(|error| format!("'-{name}': {error}"))?;
                self.circuits = Some(Arc::new(map));
            }
            "rxsf" | "rxsn" | "rxinf" => {
                return Err(format!(
                    "'-{name}': one process that makes calls and takes others (mixed mode of SIPp 3.7) is not supported; start a \
                     second one for the calls that come in"
                ));
            }
            "sf" => self.scenario = Source::File(value()?.into()),
            "sn" => self.scenario = Source::BuiltIn(value()?),
            "sd" => self.dump = Some(value()?),
            "oocsf" => self.out_of_call = Some(Source::File(value()?.into())),
            "oocsn" => self.out_of_call = Some(Source::BuiltIn(value()?)),
            "s" => self.service = value()?,
            "i" => self.local_ip = Some(value()?.trim_matches(['[', ']']).to_owned()),
            "bind_local" => self.bind_local = true,
            "p" => self.local_port = Some(port(value()?)?),
            "mi" => self.media_ip = Some(value()?.trim_matches(['[', ']']).to_owned()),
            "mp" => self.media_port = Some(port(value()?)?),
            "min_rtp_port" => self.min_rtp_port = Some(port(value()?)?),
            "max_rtp_port" => self.max_rtp_port = Some(port(value()?)?),
            "rtp_echo" => self.echo = true,
            "rtp_payload" => {
                let number = whole(value()?)?;
                let known = u8::try_from(number).ok().filter(|number| *number < 128);
                self.payload_type = Some(known.ok_or_else(|| format!("'-{name}' wants 0 to 127, not '{number}'"))?);
            }
            "t" => {
                let mode = value()?;
                let mut letters = mode.chars();
                self.transport = match letters.next() {
                    Some('u') => Transport::Udp,
                    Some('t') => Transport::Tcp,
                    Some('l') => Transport::Tls,
                    Some('s') => return Err("SCTP is not supported; use -t u1, t1 or l1".into()),
                    Some('c') => return Err("the compression plugin is not supported; use -t u1".into()),
                    _ => {
                        return Err(format!("invalid argument for -t param: '{mode}'; there are u1 un ui t1 tn l1 ln"));
                    }
                };
                self.sockets = match letters.next() {
                    Some('1') => Sockets::One,
                    Some('n') => Sockets::PerCall,
                    Some('i') if self.transport == Transport::Udp => Sockets::PerAddress,
                    _ => {
                        return Err(format!("invalid argument for -t param: '{mode}'; there are u1 un ui t1 tn l1 ln"));
                    }
                };
            }
            "max_socket" => {
                self.max_sockets = usize::try_from(whole(value()?)?).unwrap_or(usize::MAX);
                if self.max_sockets == 0 {
                    return Err("'-max_socket' wants at least one socket".into());
                }
            }
            "ip_field" => self.ip_field = Some(small(whole(value()?)?)),
            "max_reconnect" => {
                let text = value()?;
                self.max_reconnect =
                    text.trim().parse().map_err(|_| format!("'-{name}' wants a whole number, not '{text}'"))?;
            }
            "reconnect_close" => self.reconnect_close = truth(name, &value()?)?,
            "reconnect_sleep" => self.reconnect_sleep = time(value()?, 1.0)?,
            "key" => {
                let key = value()?;
                self.keys.push((key, value()?.into_bytes()));
            }
            "set" => {
                let variable = value()?;
                self.sets.push((variable, value()?));
            }
            "inf" => self.injections.push(value()?.into()),
            "infindex" => {
                let file = value()?;
                self.indices.push((file.into(), small(whole(value()?)?)));
            }
            "au" => self.username = Some(value()?),
            "ap" => self.password = Some(value()?),
            "auth_uri" => self.auth_uri = Some(value()?),
            "r" => self.rate = number(value()?)?,
            "rp" => self.rate_period = time(value()?, 1.0)?.max(1),
            "rate_increase" => self.rate_increase = number(value()?)?,
            "rate_interval" => self.rate_interval = Some(time(value()?, 1_000.0)?),
            "rate_max" => self.rate_max = Some(number(value()?)?),
            "no_rate_quit" => self.rate_quit = false,
            "rate_scale" => self.rate_scale = number(value()?)?,
            "users" => self.users = Some(small(whole(value()?)?)),
            "m" => self.calls = Some(whole(value()?)?),
            "l" => self.limit = Some(whole(value()?)?),
            "d" => self.duration = Some(time(value()?, 1.0)?),
            "timeout" => self.timeout = Some(time(value()?, 1_000.0)?),
            "timeout_error" => self.timeout_error = true,
            "recv_timeout" => self.receive_timeout = Some(time(value()?, 1.0)?),
            // Here a message waits in a queue where SIPp would try again.
            "send_timeout" => {
                time(value()?, 1.0)?;
                self.ignored.push(name.to_owned());
            }
            "deadcall_wait" => self.dead_call_wait = Some(time(value()?, 1.0)?),
            "aa" => self.auto_answer = true,
            "nd" => self.behaviours = Behaviours::NONE,
            "default_behaviors" => self.behaviours = Behaviours::of(&value()?)?,
            "nr" => self.retransmit = false,
            "max_retrans" => self.most = Some(small(whole(value()?)?)),
            "max_invite_retrans" => self.most_invite = Some(small(whole(value()?)?)),
            "max_non_invite_retrans" => self.most_non_invite = Some(small(whole(value()?)?)),
            "T2" => self.t2 = Some(time(value()?, 1.0)?),
            "rtcheck" => {
                self.loose = match value()?.as_str() {
                    "full" => false,
                    "loose" => true,
                    other => return Err(format!("'-rtcheck' is full or loose, not '{other}'")),
                }
            }
            "lost" => self.lost = number(value()?)?.clamp(0.0, 100.0),
            "pause_msg_ign" => self.ignore_in_pause = true,
            "callid_slash_ign" => self.keep_slashes = true,
            "cid_str" => self.call_id = Some(value()?),
            "base_cseq" => self.base_cseq = small(whole(value()?)?),
            "dynamicStart" => self.dynamic_id.first = whole(value()?)?,
            "dynamicMax" => self.dynamic_id.last = whole(value()?)?,
            "dynamicStep" => self.dynamic_id.step = whole(value()?)?,
            "bg" => {
                self.background = true;
                self.keyboard = false;
            }
            "nostdin" => self.keyboard = false,
            "sleep" => self.sleep = time(value()?, 1_000.0)?,
            "cp" => self.control_port = Some(port(value()?)?),
            "ci" => self.control_ip = Some(value()?),
            "rsa" => self.sending_address = Some(address(&value()?, 5060)?),
            "trace_msg" => self.traces.messages = true,
            "message_file" => self.traces.message_file = Some(value()?.into()),
            "trace_shortmsg" => self.traces.short_messages = true,
            "shortmessage_file" => self.traces.short_message_file = Some(value()?.into()),
            "trace_err" => self.traces.errors = true,
            "error_file" => self.traces.error_file = Some(value()?.into()),
            "trace_error_codes" => self.traces.error_codes = true,
            "trace_logs" => self.traces.logs = true,
            "log_file" => self.traces.log_file = Some(value()?.into()),
            "trace_stat" => self.traces.statistics = true,
            "stf" => self.traces.statistics_file = Some(value()?.into()),
            "trace_rtt" => self.traces.rtt = true,
            "trace_counts" => self.traces.counts = true,
            "trace_screen" => self.traces.screen = true,
            "screen_file" => self.traces.screen_file = Some(value()?.into()),
            "trace_calldebug" => self.traces.call_debug = true,
            "calldebug_file" => self.traces.call_debug_file = Some(value()?.into()),
            "message_overwrite" => self.traces.append.messages = !truth(name, &value()?)?,
            "shortmessage_overwrite" => self.traces.append.short_messages = !truth(name, &value()?)?,
            "error_overwrite" => self.traces.append.errors = !truth(name, &value()?)?,
            "log_overwrite" => self.traces.append.logs = !truth(name, &value()?)?,
            "screen_overwrite" => self.traces.append.screen = !truth(name, &value()?)?,
            "calldebug_overwrite" => self.traces.append.call_debug = !truth(name, &value()?)?,
            "ringbuffer_files" => self.traces.growth.kept = small(whole(value()?)?) as usize,
            "ringbuffer_size" => self.traces.growth.turn = whole(value()?)?,
            "max_log_size" => self.traces.growth.most = whole(value()?)?,
            "rfc3339" => self.rfc3339 = true,
            "f" => self.screen_period = time(value()?, 1_000.0)?.max(100),
            "fd" => self.statistics_period = time(value()?, 1_000.0)?.max(1),
            "stat_delimiter" => self.delimiter = value()?,
            "rtt_freq" => self.traces.rtt_frequency = whole(value()?)?.max(1) as usize,
            "periodic_rtd" => self.periodic_rtd = true,
            "timer_resol" => self.timer_resolution = Some(time(value()?, 1.0)?.clamp(1, 1_000)),
            "seed" => self.seed = Some(whole(value()?)?),
            "threads" => self.threads = whole(value()?)?.clamp(1, 64) as usize,
            "3pcc" => self.third_party = Some(address(&value()?, 6060)?),
            "master" => self.master = Some(value()?),
            "slave" => self.slave = Some(value()?),
            "slave_cfg" => self.slave_file = Some(value()?.into()),
            "tls_cert" => self.tls_certificate = Some(value()?.into()),
            "tls_key" => self.tls_key = Some(value()?.into()),
            "tls_ca" => self.tls_ca = Some(value()?.into()),
            "tls_crl" => self.tls_revoked = Some(value()?.into()),
            "tls_version" => self.tls_versions = tls::versions(&value()?)?,
            _ => {
                let Some((_, values)) = IGNORED.iter().find(|(known, _)| *known == name) else {
                    return Err(format!("Invalid argument: '-{name}'.\nUse 'sipp -h' for details."));
                };
                for _ in 0..*values {
                    value()?;
                }
                self.ignored.push(name.to_owned());
            }
        }
        Ok(())
    }
}

/// Parses a boolean word.
fn truth(name: &str, text: &str) -> Result<bool, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "on" | "yes" | "1" => Ok(true),
        "false" | "off" | "no" | "0" => Ok(false),
        _ => Err(format!("'-{name}' wants true or false, not '{text}'")),
    }
}

/// Parses `host`, `host:port`, `[v6]:port`.
fn address(text: &str, default: u16) -> Result<(String, u16), String> {
    let wrong = |port: &str| format!("'{port}' is no port in '{text}'");
    let text = text.strip_prefix("sip:").unwrap_or(text);
    if let Some(rest) = text.strip_prefix('[') {
        let (host, tail) = rest.split_once(']').ok_or_else(|| format!("'{text}' lacks its closing bracket"))?;
        let port = match tail.strip_prefix(':') {
            Some(port) => port.parse().map_err(|_| wrong(port))?,
            None => default,
        };
        return Ok((host.to_owned(), port));
    }
    match text.split_once(':') {
        Some((host, port)) if !port.contains(':') => Ok((host.to_owned(), port.parse().map_err(|_| wrong(port))?)),
        _ => Ok((text.to_owned(), default)),
    }
}

#[cfg(test)]
mod tests;
