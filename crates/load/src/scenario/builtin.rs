//! The scenarios that come with the program: the same flows and messages as SIPp's, of our own writing.

/// Names that `-sn` and `-sd` take.
pub const NAMES: &[&str] = &[
    "uac",
    "uas",
    "regexp",
    "branchc",
    "branchs",
    "uac_pcap",
    "3pcc-C-A",
    "3pcc-C-B",
    "3pcc-A",
    "3pcc-B",
    "ooc_default",
    "ooc_dummy",
];
