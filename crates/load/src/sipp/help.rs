//! Text of `-h`.

pub(super) const HELP: &str = "
Usage: sipp remote_host[:remote_port] [options]

  sipp -sn uas                              answer calls on port 5060
  sipp -sn uac 127.0.0.1                    make calls, 10 a second
  sipp -sn uac 127.0.0.1 -r 100 -m 1000     100 a second, 1,000 in all
  sipp -sf mine.xml -inf users.csv host     a scenario of your own, with data

Times are numbers with ms, s, m or h behind them, or HH:MM:SS; the unit of a bare number is given below.

Scenario
  -sf FILE  -sn NAME  -sd NAME              a document; one that is built in; print a built-in one
  -oocsf FILE  -oocsn NAME                  for messages of no call
  -s USER  -key NAME VALUE                  [service]; a keyword of your own
  -set NAME VALUE                           a variable that the document names in <Global>
  -inf FILE  -infindex FILE FIELD           data for [field0] ...; an index for <lookup>
  -no_exec                                  refuse documents that run a command in a shell
  -au USER  -ap PASSWORD  -auth_uri URI     for [authentication]
  -base_cseq N  -cid_str FORM               first CSeq; form of Call-IDs: %u call, %p process, %s address
  -dynamicStart N  -dynamicMax N  -dynamicStep N      [dynamic_id]

Calls
  -r N  -rp TIME (ms)  -m N  -l N           calls a period; the period; in all; open at once
  -tdmmap {A-B}{C}{D-E}{F-G}                TDM circuits, one for each call: [tdmmap]
  -users N                                  so many users instead, each with one call after the other
  -d TIME (ms)                              length of <pause/>
  -rate_increase N  -rate_interval TIME (s)  -rate_max N  -no_rate_quit  -rate_scale N
  -timeout TIME (s)  -timeout_error         end of the run; as a failure
  -recv_timeout TIME (ms)  -send_timeout TIME (ms)
  -aa                                       answer INFO, NOTIFY, OPTIONS and UPDATE
  -nd  -default_behaviors LIST              all, none, bye, abortunexp, pingreply, cseq; with - in front: without
  -lost PERCENT  -pause_msg_ign  -callid_slash_ign  -deadcall_wait TIME (ms)

Sockets
  -t u1|un|ui|t1|tn|l1|ln                   UDP, TCP, TLS; with one socket, one for each call, one for each address
  -i ADDRESS  -p PORT  -bind_local  -rsa HOST:PORT
  -max_socket N  -ip_field N  -max_reconnect N  -reconnect_close BOOL  -reconnect_sleep TIME (ms)
  -tls_cert FILE  -tls_key FILE  -tls_ca FILE
  -tls_version 1.2|1.3                      only this one; both without it
  -tls_crl FILE                             revocation lists of the authorities of -tls_ca
  -ci ADDRESS  -cp PORT                     remote control by UDP: keys, and commands behind c
  -3pcc HOST:PORT  -master NAME  -slave NAME  -slave_cfg FILE

Repetitions (UDP)
  -nr  -max_retrans N  -max_invite_retrans N  -max_non_invite_retrans N  -T2 TIME (ms)  -rtcheck full|loose

Media
  -mi ADDRESS  -mp PORT  -min_rtp_port PORT  -max_rtp_port PORT  -rtp_echo  -rtp_payload TYPE

Files, named SCENARIO_PID_... in the working folder unless a name is given
  -trace_stat  -stf FILE  -fd TIME (s)  -stat_delimiter TEXT  -periodic_rtd      totals, a line each period
  -trace_counts  -trace_error_codes         counts of each step; codes of unexpected answers
  -trace_rtt  -rtt_freq N                   response times
  -trace_msg  -message_file FILE  -trace_shortmsg  -shortmessage_file FILE
  -trace_err  -error_file FILE  -trace_logs  -log_file FILE
  -trace_calldebug  -calldebug_file FILE    all messages of failed calls
  -trace_screen  -screen_file FILE          the screens, at the end and when asked for
  -message_overwrite BOOL ...               false: keeps the old content
  -ringbuffer_size BYTES  -ringbuffer_files N  -max_log_size BYTES
  -rfc3339                                  moments as RFC 3339 has them

The program
  -bg  -nostdin  -sleep TIME (s)  -f TIME (s)         in the background; no keys; wait first; period of the screen
  -timer_resol TIME (ms)  -seed N  -threads N         pace; repeat the random numbers; shards that share the calls

Keys: 1-9 screens, + - * / rate, p pause, q no new calls, Q the end, s screens into their file, c a command:
  set rate|rate-scale|users|limit N, set hide true|false, trace error|logs|messages|shortmessages on|off,
  dump tasks|variables, reset stats

Signals: USR1 is q, USR2 writes the screens, INT and TERM are Q.

Exit codes
    0  all calls were successful
    1  a call failed, or the command line cannot be used
   97  ended by a command or a timeout, without calls
   99  in the background, or nothing was to be run
  254  a port is not free
  255  something made the run impossible
";

#[cfg(test)]
mod tests {
    use super::HELP;
    use crate::sipp::Options;

    #[test]
    fn every_option_that_is_named_is_known() {
        let words = HELP.split_whitespace().filter_map(|word| word.strip_prefix('-'));
        for word in words.filter(|word| !word.is_empty()) {
            let line = [format!("-{word}"), "1".into(), "1".into()];
            let text = Options::parse(&line).err().unwrap_or_default();
            assert!(!text.contains("Invalid argument"), "-{word}: {text}");
        }
    }
}
