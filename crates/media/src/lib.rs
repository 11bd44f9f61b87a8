//! Media of calls: headers of RTP, telephone events, packet formats, WAV files. No I/O, no clock, no SIP.
//!
//! | module | content |
//! |---|---|
//! | [`rtp`] | header of an RTP packet; numbering of a stream |
//! | [`telephone_event`] | digits as telephone events |
//! | [`payload_type`] | packet formats of static payload types |
//! | [`wave`] | sound of WAV files |

#![forbid(unsafe_code)]

pub mod payload_type;
pub mod rtp;
pub mod telephone_event;
pub mod wave;
