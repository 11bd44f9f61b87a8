//! Mistakes in the path of a call: failures, rules, limits and gateway groups.

use super::mistakes::Wrong;

pub(super) const WRONG_PATHS: &[Wrong] = &[
    Wrong {
        kind: "a failure that nothing is done about",
        text: "[[failure]]\nname = »\"a\"«\nstatuses = [\"486\"]\n",
        message: "failure 'a' does nothing",
        cure: "add `to` or `answer`",
    },
    Wrong {
        kind: "a failure that is answered and tried elsewhere",
        text: "[[failure]]\nname = \"a\"\nstatuses = [\"486\"]\nto = [\"sip:a.example\"]\nanswer = »404«\n",
        message: "answers, and says where the request goes",
        cure: "keep one of `to` and `answer`",
    },
    Wrong {
        kind: "a failure that is answered, and changes a request",
        text: "[[failure]]\nname = \"a\"\nstatuses = [\"486\"]\nanswer = 404\nstrip = »2«\n",
        message: "failure 'a' has `strip`, and does not say where the request goes",
        cure: "add `to`, or remove `strip`",
    },
    Wrong {
        kind: "a failure that translates by a set without values",
        text: "[[set]]\nname = \"s\"\nentries = [\"1\"]\n[[failure]]\nname = \"a\"\nstatuses = [\"486\"]\nto = [\"sip:a.example\"]\ntranslate = »\"s\"«\n",
        message: "failure 'a' translates by a set that has no value for a text",
        cure: "or with values in its `entries`",
    },
    Wrong {
        kind: "a set whose values are no texts",
        text: "[[set]]\nname = \"s\"\nentries = { a = »1« }\n",
        message: "set[0].entries[0] must be text",
        cure: "quotes",
    },
    Wrong {
        kind: "a success as a failure",
        text: "[[failure]]\nname = \"a\"\nstatuses = [»\"2xx\"«]\nanswer = 404\n",
        message: "is no failure from 300 to 699",
        cure: "such as \"486\" or \"3xx\"",
    },
    Wrong {
        kind: "a rule that names a failure which is not there",
        text: "[[failure]]\nname = \"West\"\nstatuses = [\"486\"]\nanswer = 404\n[[rule]]\nname = \"r\"\non_failure = [»\"west\"«]\n",
        message: "failure 'west' does not exist",
        cure: "West",
    },
    Wrong {
        kind: "a rule that drops and answers",
        text: "[[rule]]\nname = \"r\"\ndrop = »true«\nanswer = 404\n",
        message: "drops the request, and says what becomes of it",
        cure: "keep `drop`, `answer` or `to`",
    },
    Wrong {
        kind: "a rule that redirects and has a plan for failures",
        text: "[[failure]]\nname = \"f\"\nstatuses = [\"486\"]\nanswer = 404\n\
               [[rule]]\nname = \"r\"\nredirect = »true«\non_failure = [\"f\"]\n",
        message: "redirects, and says what else becomes of the request",
        cure: "make two rules",
    },
    Wrong {
        kind: "a limit of calls whose end does not come by",
        text: "[[call_limit]]\nname = \"l\"\nmost = 3\n[[rule]]\nname = \"r\"\nrecord_route = false\ncall_limits = »[\"l\"]«\n",
        message: "counts calls whose end the server does not see",
        cure: "record_route = true",
    },
    Wrong {
        kind: "a failure that counts calls whose end does not come by",
        text: "[[call_limit]]\nname = \"l\"\nmost = 3\n[[failure]]\nname = \"f\"\nstatuses = [\"486\"]\nto = [\"sip:a.example\"]\n\
               call_limits = [\"l\"]\n[[rule]]\nname = \"r\"\ntrack = false\non_failure = »[\"f\"]«\n",
        message: "has a failure, 'f', that counts calls whose end the server does not see",
        cure: "not track = false",
    },
    Wrong {
        kind: "a failure that answers and has limits of calls",
        text: "[[call_limit]]\nname = \"l\"\nmost = 3\n[[failure]]\nname = \"f\"\nstatuses = [\"486\"]\nanswer = 404\n\
               call_limits = »[\"l\"]«\n",
        message: "has limits for calls that it does not forward",
        cure: "remove `call_limits`",
    },
    Wrong {
        kind: "a failure that names a limit of calls which is not there",
        text: "[[call_limit]]\nname = \"boxes\"\nmost = 3\n[[failure]]\nname = \"f\"\nstatuses = [\"486\"]\nto = [\"sip:a.example\"]\n\
               call_limits = [»\"boxen\"«]\n",
        message: "call limit 'boxen' does not exist",
        cure: "boxes",
    },
    Wrong {
        kind: "a rule that leads to a gateway group which is not there",
        text: "[[gateway_group]]\nname = \"West\"\nto = [\"sip:192.0.2.1\"]\n[[rule]]\nname = \"r\"\nto = [\"sip:a.example\", »\"west\"«]\n",
        message: "gateway group 'west' does not exist",
        cure: "did you mean 'West'?",
    },
    Wrong {
        kind: "a failure that leads to a host without a scheme",
        text: "[[failure]]\nname = \"f\"\nstatuses = [\"486\"]\nto = [»\"box.example.net\"«]\n",
        message: "gateway group 'box.example.net' does not exist",
        cure: "a URI begins with sip:",
    },
    Wrong {
        kind: "a gateway group without a gateway",
        text: "[[gateway_group]]\nname = \"west\"\nto = »[]«\n",
        message: "gateway group 'west' has no target",
        cure: "write at least one URI",
    },
    Wrong {
        kind: "a gateway group within another",
        text: "[[gateway_group]]\nname = \"west\"\nto = [»\"east\"«]\n[[gateway_group]]\nname = \"east\"\nto = [\"sip:192.0.2.1\"]\n",
        message: "which is not a SIP URI",
        cure: "a URI without angle brackets",
    },
    Wrong {
        kind: "a gateway group that begins with a target which there is no word for",
        text: "[[gateway_group]]\nname = \"west\"\nto = [\"sip:192.0.2.1\"]\npick = »\"in-turn\"«\n",
        message: "gateway_group[0].pick",
        cure: "in_turn",
    },
    Wrong {
        kind: "a gateway group that counts calls whose end does not come by",
        text: "[[call_limit]]\nname = \"l\"\nmost = 3\n[[gateway_group]]\nname = \"west\"\nto = [\"sip:192.0.2.1\"]\n\
               call_limits = [\"l\"]\n[[rule]]\nname = \"r\"\nrecord_route = false\nto = »[\"west\"]«\n",
        message: "leads to gateway group 'west', which counts calls whose end the server does not see",
        cure: "record_route = true",
    },
    Wrong {
        kind: "a gateway group with limits that a redirection names",
        text: "[[call_limit]]\nname = \"l\"\nmost = 3\n[[gateway_group]]\nname = \"west\"\nto = [\"sip:192.0.2.1\"]\n\
               call_limits = [\"l\"]\n[[rule]]\nname = \"r\"\nredirect = true\nto = »[\"west\"]«\n",
        message: "redirects to gateway group 'west', which has limits for calls",
        cure: "without limits",
    },
    Wrong {
        kind: "a limit of each gateway in a rule that leads to none",
        text: "[[call_limit]]\nname = \"l\"\nper = \"gateway\"\nmost = 3\n[[rule]]\nname = \"r\"\ncall_limits = »[\"l\"]«\n",
        message: "has no `to`, and call limit 'l' counts the calls of each gateway there",
        cure: "that has the gateways",
    },
    Wrong {
        kind: "a translation by a set without values",
        text: "[[set]]\nname = \"s\"\nentries = [\"1\"]\n[[rule]]\nname = \"r\"\ntranslate = »\"s\"«\n",
        message: "translates by a set that has no value for a text",
        cure: "kind \"texts\" with `value`",
    },
    Wrong {
        kind: "characters before a user that may not stand there",
        text: "[[rule]]\nname = \"r\"\nprepend = »\"a@\"«\n",
        message: "may not stand in the user part of a URI",
        cure: "such as \"+49\"",
    },
];
