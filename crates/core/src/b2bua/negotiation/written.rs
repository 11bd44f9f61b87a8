//! Descriptions that we write.

use std::net::IpAddr;

use strowger_message::sdp::{
    Attribute, Bandwidth, Codec, Connection, Direction, Fmtp, Media, Origin, RtpMap, SdpBuilder, Timing, address_type,
};

/// Media description.
#[derive(Clone, Debug)]
pub(super) enum WrittenLine<'a> {
    /// Refused, ended or unused stream: its line with port 0.
    Refused(Media<'a>),
    /// Stream in use.
    Stream(WrittenStream<'a>),
}

/// Stream of a description that we write.
#[derive(Clone, Debug)]
pub(super) struct WrittenStream<'a> {
    pub(super) media: &'a [u8],
    pub(super) protocol: &'a [u8],
    pub(super) address: IpAddr,
    pub(super) port: u16,
    pub(super) formats: WrittenFormats<'a>,
    pub(super) direction: Direction,
    pub(super) has_rtcp_mux: bool,
    /// Milliseconds of media per packet, preferred and at most (RFC 8866 sections 6.4 and 6.5).
    pub(super) ptime: Option<u64>,
    pub(super) maxptime: Option<u64>,
    pub(super) bandwidths: Vec<Bandwidth<'a>>,
}

/// Formats of a written stream.
#[derive(Clone, Debug)]
pub(super) enum WrittenFormats<'a> {
    /// Formats of RTP, in order of preference.
    Rtp(Vec<Codec<'a>>),
    /// Formats and attributes that pass unread.
    Unread(Vec<&'a [u8]>, Vec<Attribute<'a>>),
}

impl WrittenFormats<'_> {
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Rtp(codecs) => codecs.is_empty(),
            Self::Unread(formats, _) => formats.is_empty(),
        }
    }
}

/// Writes a description with this session id, version and address.
pub(super) fn write(
    (session_id, version, address): (u64, u64, IpAddr),
    timings: &[Timing],
    bandwidths: &[Bandwidth<'_>],
    lines: &[WrittenLine<'_>],
) -> Vec<u8> {
    let (session_id, version) = (session_id.to_string(), version.to_string());
    let text = address.to_string();
    let origin = Origin {
        username: b"-",
        session_id: session_id.as_bytes(),
        session_version: version.as_bytes(),
        net_type: b"IN",
        address_type: address_type(address).as_bytes(),
        address: text.as_bytes(),
    };
    let mut builder = SdpBuilder::new(&origin, b"").connection(&connection(address, &text));
    for bandwidth in bandwidths {
        builder = builder.bandwidth(bandwidth);
    }
    for timing in timings {
        builder = builder.timing(timing);
    }
    for line in lines {
        builder = match line {
            WrittenLine::Refused(media) => builder.media(media),
            WrittenLine::Stream(stream) => write_stream(builder, stream, address),
        };
    }
    builder.build()
}

fn connection(address: IpAddr, text: &str) -> Connection<'_> {
    Connection {
        net_type: b"IN",
        address_type: address_type(address).as_bytes(),
        address: text.as_bytes(),
        ttl: None,
        count: None,
    }
}

fn write_stream(mut builder: SdpBuilder, stream: &WrittenStream<'_>, session: IpAddr) -> SdpBuilder {
    let formats = match &stream.formats {
        WrittenFormats::Rtp(codecs) => {
            let numbers: Vec<_> = codecs.iter().map(|codec| codec.payload.to_string()).collect();
            numbers.join(" ").into_bytes()
        }
        WrittenFormats::Unread(formats, _) => formats.join(&b' '),
    };
    builder = builder.media(&Media::new(stream.media, stream.port, stream.protocol, &formats));
    if stream.address != session {
        builder = builder.connection(&connection(stream.address, &stream.address.to_string()));
    }
    for bandwidth in &stream.bandwidths {
        builder = builder.bandwidth(bandwidth);
    }
    match &stream.formats {
        WrittenFormats::Rtp(codecs) => {
            for codec in codecs {
                builder = write_codec(builder, codec);
            }
        }
        WrittenFormats::Unread(_, attributes) => {
            for attribute in attributes {
                let Ok(name) = std::str::from_utf8(attribute.name) else { continue };
                builder = builder.attribute(name, attribute.value);
            }
        }
    }
    for (name, value) in [("ptime", stream.ptime), ("maxptime", stream.maxptime)] {
        if let Some(value) = value {
            builder = builder.attribute(name, Some(value.to_string().as_bytes()));
        }
    }
    if stream.has_rtcp_mux {
        builder = builder.attribute("rtcp-mux", None);
    }
    builder.attribute(stream.direction.name(), None)
}

fn write_codec(mut builder: SdpBuilder, codec: &Codec<'_>) -> SdpBuilder {
    let channels = codec.channels.to_string();
    let map = RtpMap {
        payload: codec.payload,
        encoding: codec.encoding.as_bytes(),
        clock_rate: codec.clock_rate,
        parameters: (codec.channels != 1).then_some(channels.as_bytes()),
    };
    builder = builder.value_attribute("rtpmap", &map);
    if let Some(parameters) = codec.parameters {
        let format = codec.payload.to_string();
        let fmtp = Fmtp { format: format.as_bytes(), parameters: parameters.as_bytes() };
        builder = builder.value_attribute("fmtp", &fmtp);
    }
    builder
}
